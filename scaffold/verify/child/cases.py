"""The cases of a verification: which calls are tried.

In: the module of checks, whose `make` is that of the generated test (`render/testcases.py`, `render/testvalues.py`), with the further sizes
and values that `render/verification.py` writes. Out: `Case`s, whose inputs are made anew for every call.
Invariant: a case is a call that the forward may refuse; then it says nothing about the gradients.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, islice, product
from typing import Any, NamedTuple

import torch
from torch import Tensor

Needs = tuple[str, ...]
Change = Callable[[Tensor, int], Tensor]  # of a tensor and the number of leading dims


MOST_PAIRS = 24  # of values of two attributes


class Case(NamedTuple):
    """A call: how the module makes its inputs, and what is changed of one of them."""

    name: str
    arguments: dict[str, Any]
    further: bool = False  # beyond those of the generated test: must be finite to count
    # Of shapes that nobody has declared: it may raise, not be wrong.
    guessed: bool = False
    position: int = -1  # of the input that has fewer elements
    change: Change | None = None
    attributes: tuple[tuple[int, Any], ...] = ()  # positions of some, another value


def needs_gradient(value: Any) -> bool:
    """Whether an argument is a tensor that autograd follows."""
    return isinstance(value, Tensor) and value.requires_grad


def _without(value: Tensor, leading: int) -> Tensor:
    return value[(0,) * leading]


def _of_size_1(value: Tensor, leading: int) -> Tensor:
    return value[(slice(1),) * leading]


def _without_first(value: Tensor, leading: int) -> Tensor:
    return value[0]


def _last_of_size_1(value: Tensor, leading: int) -> Tensor:
    return value[(*(slice(None),) * (leading - 1), slice(1))]


def _with_one_dim(value: Tensor, leading: int) -> Tensor:
    return value * torch.linspace(1, 0.5, 3).to(value.dtype)


CHANGES: tuple[tuple[str, int, Change], ...] = (  # words, least leading dims
    ("without its leading dims", 1, _without),
    ("with leading dims of size 1", 1, _of_size_1),
    ("without its first dim", 2, _without_first),
    ("with size 1 in its last leading dim", 2, _last_of_size_1),
)
# Of a tensor that has no dims where shapes were searched for: it may have another number of elements than the others.
OF_NO_DIMS = (("with one dim", 0, _with_one_dim),)


def list_cases(checks: Any) -> Iterator[Case]:
    """Those of the generated test, tensors that broadcast, other values of attributes, further sizes, empty tensors."""
    for name, arguments in checks.CASES.items():
        yield Case(name, arguments)
    yield from _broadcast(checks)
    yield from _of_attributes(checks)
    further = checks.FURTHER_CASES | checks.EMPTY_CASES
    for name, arguments in further.items():
        yield Case(name, arguments, further=True, guessed=checks.LOOSE)


def _with_values(
    checks: Any, arguments: dict[str, Any], values: dict[int, Any]
) -> Case:
    """A case with other values of attributes."""
    named = [f"{checks.NAMES[at]}={value!r}" for at, value in values.items()]
    absent = [f"without {name}" for name in arguments.get("absent", ())]
    name = ", ".join((*named, *absent))
    return Case(name, arguments, further=True, attributes=tuple(values.items()))


def _of_attributes(checks: Any) -> Iterator[Case]:
    """Each other value of each; the last of each at once; that of each where all is absent that may be."""
    for position, values in checks.ATTRIBUTES.items():
        for value in values:
            yield _with_values(checks, {}, {position: value})
    last = {position: values[-1] for position, values in checks.ATTRIBUTES.items()}
    if len(last) > 1:
        yield _with_values(checks, {}, last)
    if checks.ASKED_MORE:
        for values in islice(_pairs(checks), MOST_PAIRS):
            yield _with_values(checks, {}, values)
        chosen = [
            (name, arguments)
            for name, arguments in checks.CASES.items()
            if any(isinstance(value, str | bool) for value in arguments.values())
        ]
        for (name, arguments), (at, value) in product(chosen, last.items()):
            case = _with_values(checks, arguments, {at: value})
            yield case._replace(name=f"{name}, {case.name}")
    absences = [one["absent"] for one in checks.CASES.values() if "absent" in one]
    for position, value in last.items() if absences else ():
        yield _with_values(
            checks, {"absent": max(absences, key=len)}, {position: value}
        )


def _pairs(checks: Any) -> Iterator[dict[int, Any]]:
    """Other values of two attributes at once, those first that choose a branch."""
    several = [
        (type(one) in (int, float), {at: one})
        for at, values in checks.ATTRIBUTES.items()
        for one in values
    ]
    every = combinations(several, 2)
    for (_, one), (_, two) in sorted(every, key=lambda pair: pair[0][0] + pair[1][0]):
        if one.keys() != two.keys():
            yield one | two


def _broadcast(checks: Any) -> Iterator[Case]:
    """The bases in which the leading dims of one input are fewer or 1, or one that has no dims has one."""
    bases = ("base", "higher-rank")
    for base in [name for name in bases if name in checks.CASES]:
        values = checks.make(**checks.CASES[base])
        for position, declared in checks.BROADCAST.items():
            if not isinstance(values[position], Tensor):
                continue
            ndim = values[position].ndim
            leading = ndim - declared
            for words, least, change in CHANGES if ndim else OF_NO_DIMS:
                if leading >= least:
                    name = f"{base}, {checks.NAMES[position]} {words}"
                    arguments = checks.CASES[base]
                    yield Case(name, arguments, True, checks.LOOSE, position, change)


def layouts(checks: Any) -> Sequence[tuple[str, Callable[[Tensor], Tensor] | None]]:
    """In which order a tensor's elements are in memory; None where there is no gradient."""
    if not checks.HAS_GRADIENT:
        return (("", None),)
    return (("", torch.clone), ("not contiguous", checks.permuted))


def subsets(checks: Any) -> Sequence[Needs]:
    """The inputs of which gradients are needed: each alone, all, and with few inputs every subset."""
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
    """The inputs of a call, those in `needs` as leaves that require grad."""
    chosen: dict[str, Any] = {} if layout is None else {"layout": layout}
    if needs is not None:
        chosen["needs"] = needs
    inputs = list(checks.make(**case.arguments, **chosen))
    for at, other in case.attributes:
        inputs[at] = other
    if case.change is not None:
        value = inputs[case.position]
        declared = checks.BROADCAST[case.position]
        smaller = case.change(value.detach(), value.ndim - declared)
        copied = (layout or torch.clone)(smaller)
        inputs[case.position] = copied.requires_grad_(value.requires_grad)
    return tuple(inputs)


def value_names(checks: Any, count: int) -> list[str]:
    """A name for each value of a call: `tensors[0]`, `tensors[1]` for a variadic input."""
    names: list[str] = []
    for name in checks.NAMES:
        if name.startswith("*"):
            some = count - len(checks.NAMES) + 1
            names += [f"{name[1:]}[{index}]" for index in range(some)]
        else:
            names.append(name)
    return names


def describe(names: Sequence[str], inputs: Sequence[Any]) -> str:
    """The call in words: shapes of tensors, other values as they are."""
    parts = []
    for name, value in zip(names, inputs, strict=True):
        if isinstance(value, Tensor):
            unusual = (
                "" if value.dtype == torch.double else f" {dtype_name(value.dtype)}"
            )
            parts.append(f"{name} {shape_of(value)}{unusual}")
        elif value is None:
            parts.append(f"{name} absent")
        else:
            bare = type(value) is object  # whose repr is an address
            shown = getattr(value, "__name__", "object()" if bare else repr(value))
            parts.append(f"{name}={shown}")
    return ", ".join(parts)


def shape_of(value: Tensor) -> str:
    """A shape as Python writes a tuple."""
    return str(tuple(value.shape))


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# --- Calls of the user's own: what his function of samples gives, held against what is asked of it, before a test is made of each. What is
# wrong with it is said of it, not of the forward.

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
