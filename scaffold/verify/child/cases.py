"""Cases: the calls to try in a verification.

Every comparison of a proof (`checking.py`, `further_questions.py`, `function_checks.py`) takes its calls from here, so that the inputs of
all are made alike. In: the module of checks (`checks`, generated for one op; CASES by name, NAMES of the inputs), whose `make` is that of
the generated test (`render/testcases.py`, `render/testvalues.py`), with the further sizes and values that `render/verification.py`
writes. Out: `Case`s, whose inputs are made anew for every call.
Words: *leading dims* are those before an input's declared ones (`...` in `x[..., D]`); *attributes* are arguments other than tensors; a
shape is *guessed* if the user declared none; ASKED_MORE: the gradient is a user's formula or has branches; LOOSE: some input has no
declared shape; DIFFERENTIABLE are the inputs with a gradient, HAS_GRADIENT is false if no output has one.
Invariant: the forward may refuse a case; then the case says nothing about the gradients.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from inspect import signature
from itertools import combinations, islice, product
from typing import Any, NamedTuple

import torch
from torch import Tensor

Needs = tuple[str, ...]
Change = Callable[[Tensor, int], Tensor]  # of a tensor and the number of leading dims


MOST_PAIRS = 24  # of values of two attributes


class Case(NamedTuple):
    """A call to try: arguments for the `make` of the module of checks, and changes to the inputs it makes."""

    name: str  # as a user reads it: "base, bias with leading dims of size 1"
    arguments: dict[str, Any]  # sizes, a seed, `absent` inputs
    further: bool = False  # beyond those of the generated test: must be finite to count
    # Its shapes were never declared: it may raise, but not be wrong.
    guessed: bool = False
    position: int = -1  # of the input to which `change` applies
    change: Change | None = None
    attributes: tuple[tuple[int, Any], ...] = ()  # (position, other value)


def needs_gradient(value: Any) -> bool:
    """Return whether an argument is a tensor and requires grad."""
    return isinstance(value, Tensor) and value.requires_grad


# Ways to broadcast an input: words, the least number of leading dims, the change. The least is 2 if with one
# leading dim the change would be one of those above.
CHANGES: tuple[tuple[str, int, Change], ...] = (
    ("without its leading dims", 1, lambda x, n: x[(0,) * n]),
    ("with leading dims of size 1", 1, lambda x, n: x[(slice(1),) * n]),
    ("without its first dim", 2, lambda x, n: x[0]),
    (
        "with size 1 in its last leading dim",
        2,
        lambda x, n: x[(*(slice(None),) * (n - 1), slice(1))],
    ),
)
# For a tensor without dims, if shapes were searched for: it may have more elements than the others.
OF_NO_DIMS: tuple[tuple[str, int, Change], ...] = (
    ("with one dim", 0, lambda x, n: x * torch.linspace(1, 0.5, 3).to(x.dtype)),
)


def list_cases(checks: Any) -> Iterator[Case]:
    """Yield the cases of a proof: those of the generated test, broadcast inputs, more dims, other attributes, other sizes, empty tensors."""
    for name, arguments in checks.CASES.items():
        yield Case(name, arguments)
    yield from _broadcast(checks)
    yield from _of_more_dims(checks)
    yield from _of_attributes(checks)
    further = checks.FURTHER_CASES | checks.EMPTY_CASES
    for name, arguments in further.items():
        yield Case(name, arguments, further=True, guessed=checks.LOOSE)


def _with_values(
    checks: Any, arguments: dict[str, Any], values: dict[int, Any]
) -> Case:
    """Return a case with other values of attributes, by position; its name tells them, as `dim=0, without bias`."""
    named = [f"{checks.NAMES[at]}={value!r}" for at, value in values.items()]
    absent = [f"without {name}" for name in arguments.get("absent", ())]
    name = ", ".join((*named, *absent))
    return Case(name, arguments, further=True, attributes=tuple(values.items()))


def _of_attributes(checks: Any) -> Iterator[Case]:
    """Yield cases with other values of attributes: each value alone, then the last value of every attribute at once.

    A gradient formula of a user's is also tried with pairs of values, and in the cases of the tests with a flag or a string. At the
    end the last value of each attribute is tried alone again, with the most inputs absent: a branch may ask for both.
    """
    # ATTRIBUTES: by the position of an attribute, values other than the tests'.
    for position, values in checks.ATTRIBUTES.items():
        for value in values:
            yield _with_values(checks, {}, {position: value})
    # Together with another change one value of each has to do: the last, as None and numbers at a
    # comparison come first (`testvalues.further_values`).
    last = {position: values[-1] for position, values in checks.ATTRIBUTES.items()}
    if len(last) > 1:
        yield _with_values(checks, {}, last)
    if checks.ASKED_MORE:
        for values in islice(_pairs(checks), MOST_PAIRS):
            yield _with_values(checks, {}, values)
        with_flags = [
            (name, arguments)
            for name, arguments in checks.CASES.items()
            if any(isinstance(value, str | bool) for value in arguments.values())
        ]
        for (name, arguments), (at, value) in product(with_flags, last.items()):
            case = _with_values(checks, arguments, {at: value})
            yield case._replace(name=f"{name}, {case.name}")
    absences = [one["absent"] for one in checks.CASES.values() if "absent" in one]
    for position, value in last.items() if absences else ():
        yield _with_values(
            checks, {"absent": max(absences, key=len)}, {position: value}
        )


def _pairs(checks: Any) -> Iterator[dict[int, Any]]:
    """Yield other values of two attributes at once, by position; flags and strings first: they choose branches, numbers do so seldom."""
    choices = [(at, one) for at, values in checks.ATTRIBUTES.items() for one in values]
    pairs = map(dict, combinations(choices, 2))
    # Two values of the same attribute make a dict of one item.
    of_two = [pair for pair in pairs if len(pair) == 2]
    yield from sorted(of_two, key=_count_numbers)


def _count_numbers(values: dict[int, Any]) -> int:
    # By type, as True is an int for Python, but a flag here.
    return sum(type(value) in (int, float) for value in values.values())


def _broadcast(checks: Any) -> Iterator[Case]:
    """Yield cases with one input broadcast: without leading dims, or with dims of size 1; a tensor without dims gets one.

    BROADCAST has, by position, the number of declared dims of each input that may broadcast; the dims before those are leading.
    """
    bases = ("base", "higher-rank")
    for base in [name for name in bases if name in checks.CASES]:
        values = checks.make(**checks.CASES[base])
        for position, declared in checks.BROADCAST.items():
            if not isinstance(values[position], Tensor):
                continue
            ndim = values[position].ndim
            leading = ndim - declared
            for words, least, change in CHANGES if ndim else OF_NO_DIMS:
                # A change of leading dims needs as many as it changes.
                if leading >= least:
                    name = f"{base}, {checks.NAMES[position]} {words}"
                    arguments = checks.CASES[base]
                    yield Case(name, arguments, True, checks.LOOSE, position, change)


def _of_more_dims(checks: Any) -> Iterator[Case]:
    """Yield cases in which an input with an undeclared shape has one or two more dims, and all dims are of size EQUAL.

    Only for derived gradients, which must hold for all shapes; a user's formula need not.
    """
    # Sizes are the integer parameters of `make`, but for its seed.
    parameters = signature(checks.make).parameters.items()
    sizes = {k: EQUAL for k, x in parameters if type(x.default) is int and k != "seed"}
    # Without sizes as parameters `make` has no equal ones to offer.
    searched = sizes and not checks.ASKED_MORE
    # Not strict: the last input may be variadic, `*tensors`, with any number of values.
    values = zip(checks.NAMES, checks.make(), strict=False) if searched else ()
    for at, (name, value) in enumerate(values):
        # None: its shape is undeclared; (): it is not in the table, as an attribute is not.
        undeclared = checks.INPUT_SHAPES.get(name, ()) is None
        if undeclared and isinstance(value, Tensor) and value.ndim > 1:
            for words, change in MORE_DIMS.items():
                yield Case(f"{name} with {words}", sizes, True, True, at, change)


EQUAL = 4  # the size of all dims


def _wider(value: Tensor, _: int = 0) -> Tensor:
    """Return a tensor with one more dim at its end, along which its values differ."""
    return value[..., None] * torch.linspace(1, 0.5, EQUAL).to(value.dtype)


MORE_DIMS: dict[str, Change] = {
    "one more dim": _wider,
    "two more dims": lambda x, n: _wider(_wider(x)),
}


def layouts(checks: Any) -> Sequence[tuple[str, Callable[[Tensor], Tensor] | None]]:
    """Return the memory layouts to try, each with words and the function to copy a tensor to it; ("", None) without a gradient."""
    if not checks.HAS_GRADIENT:
        return (("", None),)
    return (("", torch.clone), ("not contiguous", checks.permuted))


def subsets(checks: Any) -> Sequence[Needs]:
    """Return the sets of inputs to require grad in turn: all, each alone, and for few inputs every subset (NEEDS).

    A backward that skips gradients by `needs_input_grad` takes another branch for each. () if the op has no gradient.
    """
    names: Needs = checks.DIFFERENTIABLE
    if not names or not checks.HAS_GRADIENT:
        return ()  # no output has a gradient
    alone = [(name,) for name in names]
    return tuple(dict.fromkeys([names, *alone, *checks.NEEDS]))


def make_inputs(
    checks: Any,
    case: Case,
    layout: Callable[[Tensor], Tensor] | None,
    needs: Needs | None = None,
) -> tuple[Any, ...]:
    """Make the inputs of a call anew; tensors named in `needs`, by default all differentiable ones, are leaves and require grad.

    `layout` copies a tensor to a memory layout; None: as the module's `make` does.
    """
    chosen: dict[str, Any] = {} if layout is None else {"layout": layout}
    if needs is not None:
        chosen["needs"] = needs
    inputs = list(checks.make(**case.arguments, **chosen))
    for at, other in case.attributes:
        inputs[at] = other
    if case.change is not None:
        value = inputs[case.position]
        # An input not in BROADCAST gets more dims (`_of_more_dims`), however many are leading.
        leading = value.ndim - checks.BROADCAST.get(case.position, 0)
        copied = (layout or torch.clone)(case.change(value.detach(), leading))
        inputs[case.position] = copied.requires_grad_(value.requires_grad)
    return tuple(inputs)


def value_names(checks: Any, count: int) -> list[str]:
    """Return a name for each value of a call: `tensors[0]`, `tensors[1]` for a variadic input."""
    names: list[str] = []
    for name in checks.NAMES:
        if name.startswith("*"):
            its_values = count - (len(checks.NAMES) - 1)  # each other input has one
            names += [f"{name[1:]}[{index}]" for index in range(its_values)]
        else:
            names.append(name)
    return names


def describe(names: Sequence[str], inputs: Sequence[Any]) -> str:
    """Describe a call: `x (2, 3), weight (3,) float32, bias absent, dim=-1`."""
    parts = []
    for name, value in zip(names, inputs, strict=True):
        if isinstance(value, Tensor):
            kind = f" {dtype_name(value.dtype)}" * (value.dtype != torch.double)
            parts.append(f"{name} {shape_of(value)}{kind}")
        elif value is None:
            parts.append(f"{name} absent")
        else:
            bare = type(value) is object  # whose repr is an address
            shown = getattr(value, "__name__", "object()" if bare else repr(value))
            parts.append(f"{name}={shown}")
    return ", ".join(parts)


def shape_of(value: Tensor) -> str:
    """Return a shape as Python writes a tuple."""
    return str(tuple(value.shape))


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# --- The user's own samples: check what the user's function returns before a case is made of each sample. An error in them is reported
# as theirs, not as the forward's.

MEND = "return a list of calls, each with a value for every input: [({})]"


class SamplesError(Exception):
    """An unusable result of the user's samples function, with a hint."""

    def __init__(self, words: str, hint: str) -> None:
        super().__init__(words)
        self.words, self.hint = words, hint


def sampled(
    function: Callable[[], Any], names: Sequence[str]
) -> Callable[[], list[Any]]:
    """Return the user's function if it returns a list of calls with the op's inputs, else raise SamplesError.

    It is called once to check. `names` are the op's inputs; a variadic one, `*tensors`, is the last and takes any number of values.
    """
    called = f"{function.__name__}()"
    values = ", ".join(names) + "," * (len(names) == 1)
    hint, shown = MEND.format(values), ", ".join(names)
    variadic = any(name.startswith("*") for name in names)
    try:
        found = function()
        calls = list(found) if isinstance(found, Iterable) else []
    except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
        words = f"{called} raised {type(error).__name__}: {error}"
        raise SamplesError(words, "") from None
    # A dict and a tensor can be iterated, but their items are no calls.
    if isinstance(found, dict | Tensor) or not calls:
        kind = _kind(found) if calls else "nothing"
        raise SamplesError(f"{called} returns {kind}, not a list of calls", hint)
    for number, call in enumerate(calls):
        if not isinstance(call, tuple | list):
            words = f"{called}[{number}] is {_kind(call)}, not the values of a call"
            raise SamplesError(words, hint)
        # A variadic input takes any number of values, also none.
        fits = len(call) >= len(names) - 1 if variadic else len(call) == len(names)
        if not fits:
            count = f"{len(call)} value{'s' * (len(call) != 1)}"
            words = f"{called}[{number}] has {count}, the op's inputs are {shown}"
            raise SamplesError(words, hint)
    return function


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
