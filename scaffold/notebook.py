"""The cell magic `%%scaffold`: derives the op of a forward written in a cell.

In: the magic's line, with the options of `scaffold new-op`, and the cell. Out: a `Derived`, shown by the notebook and
bound there to the op's name. Invariant: IPython is never imported; it calls us.
"""

import shlex
from collections.abc import Callable, MutableMapping
from typing import Any, Protocol

from scaffold.api import Derived, derive
from scaffold.errors import Location, ScaffoldError, did_you_mean
from scaffold.spec.keys import KEYS
from scaffold.spec.kinds import EITHER, NAMES, SWITCH, TABLE, TEXTS

LINE = Location("%%scaffold")


class Shell(Protocol):
    """The part of IPython's shell used here."""

    @property
    def user_ns(self) -> MutableMapping[str, Any]:
        """Return the notebook's variables."""

    def register_magic_function(
        self, func: Callable[..., Any], magic_kind: str, magic_name: str
    ) -> None:
        """Register a function to be called by `%%magic_name`."""


def register(shell: Shell) -> None:
    """Register the magic `%%scaffold` with a shell."""

    def scaffold(line: str, cell: str) -> Derived:
        """Derive the op of a cell: an expression, statements with a return, or a function.

        %%scaffold swish --inputs 'x[..., D], beta: float = 1.0' --save-policy balanced
        x * torch.sigmoid(beta * x)

        The name and the options may be left out; the options are those of `scaffold new-op`. The op is bound to its name in the notebook.
        """
        made = derive(cell, **read_line(line))
        shell.user_ns[made.name] = made
        return made

    shell.register_magic_function(scaffold, "cell", "scaffold")


def read_line(line: str) -> dict[str, Any]:
    """Parse the magic's line, in shell syntax, into arguments of `derive`: `swish --inputs x` -> {"name": "swish", "inputs": "x"}.

    Raise ScaffoldError for an unknown option, a missing value or a second name.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise ScaffoldError(f"the line cannot be read: {error}", LINE) from None
    found: dict[str, Any] = {}
    while words:
        word = words.pop(0)
        if not word.startswith("--"):
            if "name" in found:
                hint = "put it into quotes: --inputs 'x, weight'"
                raise ScaffoldError(f"'{word}' is not an option", LINE, hint)
            found["name"] = word
            continue
        option, equals, value = word.removeprefix("--").partition("=")
        _take(option, [value] if equals else words, found)
    return found


def _take(option: str, values: list[str], found: dict[str, Any]) -> None:
    """Add an option to `found`, the arguments of `derive`, and remove its value from `values`, the words behind it.

    An option given again adds to a list or a table. Raise ScaffoldError for an unknown option or a missing value.
    """
    key = option.removeprefix("no-")
    if key not in KEYS or key == "forward":  # the forward is the cell
        hint = did_you_mean(f"--{option}", [f"--{known}" for known in KEYS])
        raise ScaffoldError(f"no such option: --{option}", LINE, hint)
    kind = KEYS[key].kind
    name = "imports" if key == "import" else key.replace("-", "_")
    if kind is SWITCH or kind is EITHER:
        found[name] = not option.startswith("no-")
        return
    if not values:
        raise ScaffoldError(
            f"--{option} takes a value", LINE, f"write: --{option} '...'"
        )
    value = values.pop(0)
    if kind is TABLE:
        entry, _, formula = value.partition("=")
        found.setdefault(name, {})[entry.strip()] = formula.strip()
    elif kind is NAMES:
        found.setdefault(name, []).extend(part.strip() for part in value.split(","))
    elif kind is TEXTS:
        found.setdefault(name, []).append(value)
    else:
        found[name] = value
