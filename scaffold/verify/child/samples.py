"""What the user's function of samples gives, held against what is asked of it, before a test is made of each.

In: the function, the names of the values of a call. Out: the function. Invariant: what is wrong with it is said of it, not of the forward.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor

MEND = "return a list of calls, each with a value for every input: [({})]"


class SamplesError(Exception):
    """What the function gives instead of samples, and what to do about it."""

    def __init__(self, words: str, hint: str) -> None:
        super().__init__(words)
        self.words, self.hint = words, hint


def sampled(
    function: Callable[[], Any], names: Sequence[str]
) -> Callable[[], list[Any]]:
    """The function, if it returns a list of calls that have these values."""
    called = f"{function.__name__}()"
    values = ", ".join(names) + "," * (len(names) == 1)
    hint, shown = MEND.format(values), ", ".join(names)
    try:
        found = function()
        calls = list(found) if isinstance(found, Iterable) else []
    except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
        words = f"{called} raised {type(error).__name__}: {error}"
        raise SamplesError(words, "") from None
    if isinstance(found, dict | Tensor) or not calls:
        kind = _kind(found) if calls else "nothing"
        raise SamplesError(f"{called} returns {kind}, not a list of calls", hint)
    for number, call in enumerate(calls):
        if not isinstance(call, tuple | list):
            words = f"{called}[{number}] is {_kind(call)}, not the values of a call"
            raise SamplesError(words, hint)
        least = len(names) - any(name.startswith("*") for name in names)
        if len(call) < least or least == len(names) != len(call):
            count = f"{len(call)} value{'s' * (len(call) != 1)}"
            words = f"{called}[{number}] has {count}, the op's inputs are {shown}"
            raise SamplesError(words, hint)
    return function


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
