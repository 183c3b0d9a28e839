"""`scaffold new-op`: one op, from its specification to its files.

Words: `values` are the keys of the op's specification, `settings` the options about the run; an op is *generated* when its files are
texts, *proven* when a process with PyTorch found its gradients right, *settled* when the files are written or the plan is made;
a run is *refused* if files in the way forbid writing; it is *looking* if nothing is to be written.

In: options, which are rows of `spec/keys.py`, or of `cli/op_options.py` if they are about the run. Out: files (`project/rendering.py`,
`project/writing.py`; in a project `project/adding.py`), and messages about them. Invariant: a derived op is proven before it is
written, unless that is switched off.
"""

import sys
from typing import TYPE_CHECKING

from scaffold.cli.op_options import command
from scaffold.cli.options import FORMATS, check_choice, proofs_wanted
from scaffold.errors import Location, ScaffoldError
from scaffold.workspace.conflicts import POLICIES

if TYPE_CHECKING:
    from scaffold.project.interpreter import Proving
    from scaffold.project.rendering import Generated
    from scaffold.project.specification import Values
    from scaffold.project.writing import Settled

HELP = """Write an op: its Function, wrapper, Module and tests.

Without --forward and --grad you write the bodies later, and the tests wait for them. On a terminal, scaffold new-op without arguments asks for all it needs.

Example: scaffold new-op swish --inputs 'x' --forward 'x * torch.sigmoid(x)'

Example: scaffold new-op scale --inputs 'x[N, D], weight[D]' --params weight --forward 'x * weight'

Example: scaffold new-op linear --inputs 'input, weight, bias?'

Example: scaffold examples norm
"""
LOOKING = ("dry-run", "diff", "stdout")
# The exit code if a forward was given, but a gradient is left to write.
UNDERIVED = 1
CHOICES = {
    "on-conflict": POLICIES,
    "format": FORMATS,
}


def _run(name: str, values: "Values", settings: "Values") -> None:
    """Generate, prove and write an op; exit with 1 if its forward was given and a gradient could not be derived."""
    generated, refused = _proven(name, values, settings)
    _report(generated, settings, refused)
    # Without a forward, or with --no-derive, it is meant that the user writes it.
    if generated.missing and "forward" in values and values.get("derive", True):
        sys.exit(UNDERIVED)


def _proven(
    name: str, values: "Values", settings: "Values"
) -> "tuple[Generated, Settled | None]":
    """Return the op, proven if that is asked for, or if gradients were derived and a proof is not forbidden; and None.

    If its files cannot be written it needs no proof: then the second value is the plan with the reason.
    """
    from scaffold.cli.output import TERMINAL
    from scaffold.project.interpreter import proving

    with proving(settings, TERMINAL) as process:
        problems = _problems(settings)
        # The process starts while the op is derived.
        if not problems and will_be_proven(values, settings):
            problems = process.start()
        return _generated(name, values, settings, problems, process)


def will_be_proven(values: "Values", settings: "Values") -> bool:
    """Return whether the options request a proof; it is asked before anything is read, to start the process early."""
    if "verify" in settings:
        return bool(settings["verify"])
    return "forward" in values and values.get("derive", True)


def _generated(
    name: str,
    values: "Values",
    settings: "Values",
    problems: list[ScaffoldError],
    process: "Proving",
) -> "tuple[Generated, Settled | None]":
    """Return the op, proven by `process` if asked for, and None; or, if its files cannot be written, the op and the reason."""
    from scaffold.project.rendering import generate

    generated = generate(name, values, settings, problems)
    # By default a proof is made if there is a gradient to prove.
    begun = not generated.missing or bool(generated.derivation.derived)
    if not settings.get("verify", begun):
        return generated, None
    refused = _foreseen(generated, settings)
    if refused is not None:
        return generated, refused
    from scaffold.project.proofs import fitting, prove

    return prove(generated, process, fitting(generated, values, settings)), None


def _foreseen(generated: "Generated", settings: "Values") -> "Settled | None":
    """Return the plan with the reason why it cannot be written, found before the proof, which takes seconds; None without one.

    None too if nothing would be written, if a dialogue may decide, or if an interrupted run has to be undone first.
    """
    from scaffold.cli.output import has_terminal
    from scaffold.workspace import interrupted

    looking = any(settings.get(key) for key in LOOKING)
    asks = settings.get("on-conflict", "ask") == "ask" and has_terminal()
    if looking or asks or interrupted(generated.root):
        return None
    # Planned only, and without a proof, which comes after this.
    settled = _settle(generated, {**settings, "dry-run": True, "verify": False})
    refusal = settled.refusal or settled.obstacle
    return settled._replace(refusal=refusal) if refusal else None


def _report(
    generated: "Generated", settings: "Values", refused: "Settled | None"
) -> None:
    """Write the files and report them, or with --dry-run, --diff or --stdout only report.

    `refused` is the plan with the reason why it cannot be written, if that is known already.
    """
    from scaffold.cli import output

    format_, notes = settings.get("format", "text"), generated.notes
    if settings.get("stdout"):
        output.show_texts(generated, format_)
        return
    # In JSON the notes are in the object.
    with output.beside(notes if format_ == "text" else ()):
        settled = refused or _settle(generated, settings)
    showing = output.Showing(diff=bool(settings.get("diff")), format_=format_)
    output.tell(settled, showing, notes, output.of_op(generated))
    if format_ == "text":
        output.show_proven(generated.proven)


def _settle(generated: "Generated", settings: "Values") -> "Settled":
    """Write the op's files, in a project its table and record too, or only plan that (--dry-run, --diff); return the outcome."""
    from scaffold.cli.output import TERMINAL
    from scaffold.project.writing import NOTHING, look, write

    looking = settings.get("dry-run") or settings.get("diff")
    policy = settings.get("on-conflict", "ask")
    if generated.specified.joins:
        from scaffold.project.adding import add_ops

        python, limit = settings.get("python"), settings.get("limit")
        run, ops = proofs_wanted(python, limit, settings.get("verify")), [generated]
        return add_ops(ops, policy, write=not looking, run=run, console=TERMINAL)
    settle = look if looking else write
    return settle(generated.files, generated.root, policy, NOTHING, TERMINAL)


def _problems(settings: "Values") -> list[ScaffoldError]:
    """Return the problems of the options about the run: unknown words, options excluding each other."""
    found = []
    for key, choices in CHOICES.items():
        found += check_choice(f"--{key}", settings.get(key, choices[0]), choices)
    for key in ("diff", "dry-run"):
        if settings.get("stdout") and settings.get(key):
            message = f"--{key} and --stdout exclude each other"
            place = Location(f"--{key}")
            found.append(ScaffoldError(message, place, "keep one of them"))
    return found


new_op = command(_run, HELP)
