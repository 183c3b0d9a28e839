"""`scaffold new-op` without arguments, on a terminal: ask for name, forward and inputs.

For a newcomer, who learns the options from the command that it prints at the end.

In: answers, and inputs inferred from the forward. Out: the equivalent arguments, after the Function was shown.
Invariant: nothing is written here, and nothing is asked without a terminal; an invalid answer is asked for again.
"""

import shlex
from typing import TYPE_CHECKING

import typer

from scaffold.cli.output import prompt, say_error
from scaffold.errors import Location, ScaffoldError

if TYPE_CHECKING:
    from scaffold.project.specification import Values

GREETING = """\
An op from its forward. An empty answer takes what stands in brackets; Ctrl-D leaves without writing anything.
"""
FORWARD = "Its forward, such as x * torch.sigmoid(x) or @file.py:function (empty: you write it): "
WRITE = "Prove and write it? n asks for the forward again. [Y/n] "


def asked_arguments() -> list[str]:
    """Return the arguments of `new-op`, asked of the user; raise ScaffoldError if the user leaves."""
    typer.echo(GREETING, err=True)
    try:
        values = _asked()
    except (EOFError, KeyboardInterrupt):
        hint = "the same without questions: scaffold new-op NAME --forward '...'"
        place = Location("scaffold new-op")
        raise ScaffoldError("nothing was written", place, hint) from None
    name = values.pop("name")
    options = [word for key, text in values.items() for word in (f"--{key}", text)]
    command = shlex.join(["scaffold", "new-op", name, *options])
    typer.echo(f"\nThe command that does the same:\n  {command}\n", err=True)
    return [name, *options]


def _asked() -> "Values":
    """Return name, inputs and forward as keys of a specification, asked until the user approves of the derived Function."""
    name = _asked_name()
    while True:
        forward = prompt(FORWARD).strip()
        values = {"forward": forward} if forward else {}
        try:
            values = {**_inputs(name, values), **values}
            _show(name, values)
        except ScaffoldError as error:
            say_error(error)
            continue
        if prompt(WRITE).strip().lower() in ("", "y", "yes"):
            return {"name": name, **values}


def _asked_name() -> str:
    """Return the name of the op, asked until it is valid."""
    while True:
        name = prompt("What is the op called, such as rms_norm? ").strip()
        try:
            _check_name(name)
            return name
        except ScaffoldError as error:
            say_error(error)


def _check_name(name: str) -> None:
    """Raise ScaffoldError for an invalid name of an op or of its class."""
    from scaffold.spec.names import check_class_name, op_names

    place = Location("NAME")
    _, klass = op_names(name, place, packaged=False)  # raises for the op's own
    amiss = check_class_name(klass, place)
    if amiss is not None:
        raise amiss


def _inputs(name: str, values: "Values") -> "Values":
    """Return the key `inputs` as answered; {} if the user accepts the ones inferred from the forward: they need no option.

    `values` has the forward, if there is one. `Unsaid`, an input of unclear kind, is shown with a proposal to answer; any other error
    of the specification is raised.
    """
    found, default = None, ""  # `found`: the inferred inputs
    if values:
        from scaffold.project.inferred_inputs import Unsaid
        from scaffold.project.specification import specified

        try:
            found = specified(name, values, {}, []).inferred
        except ScaffoldError as error:
            last = error.problems[-1]
            # An input of unclear kind is what the question below is about; anything else is an error.
            if not isinstance(last, Unsaid):
                raise
            for problem in error.problems:
                typer.echo(f"  {problem.message}", err=True)
            default = last.proposal
    default = found.inputs if found else default or "x"
    answer = prompt(f"Its inputs, in the order of a call [{default}]: ").strip()
    # The inputs are inferred again by the command itself: no option is needed.
    if found and answer in ("", default):
        return {}
    return {"inputs": answer or default}


def _show(name: str, values: "Values") -> None:
    """Print the derived Function, for the user to approve; nothing without a forward. Raise the errors of the specification."""
    if "forward" not in values:
        return
    from scaffold.project.rendering import function_shown, generate

    made = generate(name, values, {"stdout": True}, [])
    text = function_shown(made.spec, made.derivation, made.specified.places)
    typer.echo(f"\n{text}", err=True)
