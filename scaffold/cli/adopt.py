"""`scaffold adopt`: the specification of a Function that was written by hand."""

from typing import TYPE_CHECKING, Annotated

import typer

from scaffold.cli.test_stub import ON_CONFLICT

if TYPE_CHECKING:
    from scaffold.cli.adopting import Adoption
    from scaffold.cli.options import Values

TARGET = Annotated[
    str, typer.Argument(metavar="PATH::CLASS", help="The Function to adopt.")
]
NAME = Annotated[
    str | None,
    typer.Option(
        "--name",
        help="What the op is called (default: as its wrapper or its class).",
        metavar="NAME",
    ),
]
OUT_DIR = Annotated[
    str | None,
    typer.Option(
        "--out-dir",
        help="Where the specification goes (default: the project's manifest, else here).",
        metavar="DIR",
    ),
]
VERIFY = Annotated[
    bool,
    typer.Option(
        "--verify/--no-verify",
        help="Run the Function's module, and compare the op with it first.",
    ),
]
PYTHON = Annotated[
    str | None,
    typer.Option(
        "--python",
        help="Compare with this interpreter (default: the first with PyTorch).",
        metavar="PATH",
    ),
]
LIMIT = Annotated[
    int | None,
    typer.Option(
        "--limit",
        help="Seconds for each comparison (default: 30).",
        metavar="SECONDS",
    ),
]
DRY_RUN = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be written, write nothing.")
]
DIFF = Annotated[
    bool, typer.Option("--diff", help="Show the difference, write nothing.")
]
STDOUT = Annotated[
    bool, typer.Option("--stdout", help="Print the specification, write nothing.")
]


def adopt(
    target: TARGET,
    name: NAME = None,
    out_dir: OUT_DIR = None,
    verify: VERIFY = True,
    python: PYTHON = None,
    limit: LIMIT = None,
    on_conflict: ON_CONFLICT = "ask",
    dry_run: DRY_RUN = False,
    diff: DIFF = False,
    stdout: STDOUT = False,
) -> None:
    """Write the specification of a hand-written Function, as TOML.

    Its forward and backward become formulas, or functions of a file where formulas have no words for them. The op that this
    makes is compared with the Function, values and gradients, where that runs: else the run says "not compared".

    Example: scaffold adopt src/ops.py::ScaleFunction
    """
    from scaffold.cli.choices import check_policy
    from scaffold.cli.here import configuration_here
    from scaffold.cli.report import show_notes

    check_policy(on_conflict)
    joins = configuration_here().project and out_dir is None
    stated = {"name": name, "python": python, "limit": limit}
    stated["out-dir"] = None if joins else out_dir or "."
    settings: Values = {
        key: value for key, value in stated.items() if value is not None
    }
    found = _adopted(target, settings, verify)
    show_notes(found.notes)
    if joins and not stdout:
        _join(found, settings, on_conflict, write=not (dry_run or diff), diff=diff)
        return
    from scaffold.cli.existing import put
    from scaffold.cli.existing import target as directory

    where = directory(out_dir)
    put(
        *(_files(found, where.below.as_posix()), where.root, on_conflict),
        dry_run=dry_run,
        diff=diff,
        stdout=stdout,
    )


def _adopted(target: str, settings: "Values", verify: bool) -> "Adoption":
    from scaffold.cli.adopting import adopted
    from scaffold.cli.prover import proving
    from scaffold.cli.report import show_notes
    from scaffold.errors import ScaffoldError, raise_all

    try:
        with proving(settings) as process:
            if verify:
                raise_all(process.start())
            return adopted(target, {**settings, "verify": verify}, process)
    except ScaffoldError as error:
        show_notes(error.details)
        raise


def _join(
    found: "Adoption", settings: "Values", policy: str, *, write: bool, diff: bool
) -> None:
    """Make the op one of the project's."""
    from scaffold.cli.adding import add_op
    from scaffold.cli.proofs import Run
    from scaffold.cli.prover import LIMIT as SECONDS
    from scaffold.cli.report import tell

    stated = Run(settings.get("python"), settings.get("limit", SECONDS))
    run = stated if found.generated.proof is not None else None
    settled = add_op(found.generated, policy, write=write, run=run)  # type: ignore[arg-type]
    tell(settled, with_diff=diff)


def _files(found: "Adoption", below: str) -> dict[str, str]:
    """The table in a file of its own, and what it names."""
    from pathlib import Path

    texts = {f"{found.op.name}.toml": found.op.toml()}
    texts |= {Path(i.path).name: i.text for i in found.generated.companions}
    return {Path(below, name).as_posix(): text for name, text in texts.items()}
