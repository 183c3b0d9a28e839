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
    from scaffold.cli.adopting import adopted
    from scaffold.cli.choices import check_policy
    from scaffold.cli.existing import put
    from scaffold.cli.existing import target as directory
    from scaffold.cli.here import configuration_here
    from scaffold.cli.prover import proving
    from scaffold.cli.report import show_notes, tell
    from scaffold.errors import ScaffoldError, raise_all

    check_policy(on_conflict)
    joins = configuration_here().project and out_dir is None
    settings: Values = {"verify": verify}
    said = {"name": name, "python": python, "limit": limit}
    settings |= {key: value for key, value in said.items() if value is not None}
    settings |= {} if joins else {"out-dir": out_dir or "."}
    try:
        with proving({**settings, "verify": None}) as process:
            if verify:
                raise_all(process.start())
            found = adopted(target, settings, process)
    except ScaffoldError as error:
        show_notes(error.details)
        raise
    show_notes(found.notes)
    if joins and not stdout:
        from scaffold.cli.adding import add_op

        proven = found.generated.proof is not None
        looking = dry_run or diff
        policy = on_conflict
        settled = add_op(found.generated, policy, write=not looking, proving=proven)  # type: ignore[arg-type]
        tell(settled, with_diff=diff)
        return
    where = directory(out_dir)
    put(
        *(_files(found, where.below.as_posix()), where.root, on_conflict),
        dry_run=dry_run,
        diff=diff,
        stdout=stdout,
    )


def _files(found: "Adoption", below: str) -> dict[str, str]:
    """The table in a file of its own, and what it names."""
    from pathlib import Path

    texts = {f"{found.op.name}.toml": found.op.toml()}
    texts |= {Path(i.path).name: i.text for i in found.generated.companions}
    return {Path(below, name).as_posix(): text for name, text in texts.items()}
