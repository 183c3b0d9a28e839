"""Argument slots of a call of PyTorch: a tensor, a mask, positions, or a Python value.

`project.name_uses` asks it whether the `n` of `x.view(n, -1)` is a number: so inputs get their types. In: the spelling of a call,
its number of arguments and its keywords. Out: for each primitive it may mean, a `Slot` for each argument. Invariant: everything
follows from the sections of the table; a call found in none has no slots.

Words: a *head* is a spelling as the table has it, with parameters, `x.sum(dim=None)`; *samples* are the arguments of a section's
tests, `x[3, 4], dim=1`: they show which parameters are tensors; *given* are the arguments of a call or a sample.
"""

import ast
from collections.abc import Collection, Iterable, Mapping
from typing import Literal, NamedTuple

from scaffold.primitives.facts import Facts, Section
from scaffold.primitives.sections import Primitives, built_in_primitives
from scaffold.primitives.spelling import Parameter, all_parameters, is_bare, parameters

Taken = Literal["tensor", "positions", "mask", "value", "either"]
Argument = int | str  # a position, or a keyword
Given = list[tuple[str, ast.expr]]  # parameters and their arguments in a sample


class Slot(NamedTuple):
    """What a call takes as one argument: the parameter's name, the kind, and of a Python value its type, if a sample shows one.

    The kind is `either` if samples have a number and a tensor there, as for a bound of `clamp`.
    """

    parameter: str
    takes: Taken
    type: str = ""
    # Positions may be replaced by a tensor of floats, with another meaning.
    soft: bool = False


Call = Mapping[Argument, Slot]  # the slots of a call under one primitive


def calls_of(
    kind: str, name: str, count: int, keywords: Collection[str]
) -> tuple[Call, ...]:
    """Return the slots of a call's arguments, for each primitive the call may mean; () if it means none.

    `kind` and `name` are its spelling, as ("method", "sum"); it has `count` positional arguments, of a method with the receiver as
    the first, and `keywords`. If no primitive has all the keywords, those unknown to all (`dtype`) get no slot.
    """
    table = built_in_primitives()
    known = table.find(kind, name)
    for words in ([*keywords], _known_keywords(table, known, keywords)):
        fitting = tuple(
            slots
            for found, head in known
            if (slots := _slots(table, found, head, count, words)) is not None
        )
        if fitting:
            return fitting
    return ()


def _known_keywords(
    table: Primitives, known: Iterable[tuple[str, str]], keywords: Collection[str]
) -> list[str]:
    """Return the keywords that one of these primitives, `known`, has a parameter for."""
    names = {word for name, _ in known for word in parameters(table.heads[name][0])}
    return [word for word in keywords if word in names]


def _slots(
    table: Primitives, primitive: str, head: str, count: int, keywords: Collection[str]
) -> Call | None:
    """Return the slots of a call, if it means this primitive; None if the arguments do not fit its parameters.

    `head` is the spelling by which it was found; `count` positional arguments are given, and `keywords`.
    """
    call = table.heads[primitive][0]
    # A bare head, such as "method", has the parameters of `call`.
    own = list(all_parameters(call if is_bare(head) else head))
    positional = [item for item in own if not _only_by_keyword(item)]
    by_name = {item.name: item for item in own}
    starred = bool(positional) and positional[-1].starred
    if count > len(positional) and not starred or not {*keywords} <= by_name.keys():
        return None
    # Arguments beyond the last parameter are its own: it has a star, as the sizes of `x.view(n, -1)`.
    given: dict[Argument, Parameter] = {
        at: positional[min(at, len(positional) - 1)] for at in range(count)
    }
    given |= {word: by_name[word] for word in keywords}
    # One without a default is missing.
    if any(not (x.keyword or x.starred or x in given.values()) for x in own):
        return None
    samples = _samples(table.section(primitive))
    takes = _kinds(table.facts(primitive), samples)
    when = table.section(primitive).get("when", "")
    types = _types(own, samples)
    found: dict[Argument, Slot] = {}
    for argument, item in given.items():
        python_type = types.get(item.name, "")
        if item.starred and list(given.values()).count(item) > 1:  # x.view(n, -1)
            # The first sample gives `*shape` as one tuple, `tuple[int, ...]`; of several arguments each is an int.
            python_type = python_type.removeprefix("tuple[").partition(",")[0]
        # `whole(target) or ...`: the rule takes positions, or in another way a tensor of floats.
        soft = f"whole({item.name}) or" in when
        kind = takes.get(item.name, "value")
        found[argument] = Slot(item.name, kind, python_type, soft)
    return found


def _kinds(facts: Facts, samples: list[Given]) -> dict[str, Taken]:
    """Return what each parameter takes, by the facts and by samples; those that take a Python value are left out.

    A parameter that is no tensor in any sample takes a Python value; one that is a number in the first sample alone, either.
    """
    shown: dict[str, list[ast.expr]] = {}
    for name, value in (item for sample in samples for item in sample):
        shown.setdefault(name, []).append(value)
    numbers = {name for name, values in shown.items() if not any(map(_tensors, values))}
    number_first = {name for name, values in shown.items() if _type_of(values[0])}
    # A parameter that a sample shows as a tensor is one, even if no fact names it.
    tensors = ({*facts.differentiable, *facts.nondiff} | shown.keys()) - numbers
    return {
        **dict.fromkeys(tensors, "tensor"),
        **dict.fromkeys(tensors & number_first, "either"),  # a bound of clamp
        **dict.fromkeys(facts.indices, "positions"),
        **dict.fromkeys(facts.masks, "mask"),
    }


def _tensors(value: ast.expr) -> bool:
    """Return whether the value in a sample is a tensor, `x[3, 4]`, or a tuple of tensors."""
    if isinstance(value, ast.Tuple):
        # `all()` of an empty tuple would be True.
        return bool(value.elts) and all(map(_tensors, value.elts))
    return isinstance(value, ast.Subscript)


def _only_by_keyword(item: Parameter) -> bool:
    """Return whether a parameter must be given by keyword: its default is `...`."""
    return isinstance(item.default, ast.Constant) and item.default.value is ...


def _types(own: list[Parameter], samples: list[Given]) -> dict[str, str]:
    """Return the type of each parameter that takes a Python value, by the first sample with one, else by its default: `dim` -> "int"."""
    defaults = [(item.name, item.default) for item in own if item.default is not None]
    found: dict[str, str] = {}
    for name, value in (item for given in (*samples, defaults) for item in given):
        if python_type := _type_of(value):
            found.setdefault(name, python_type)
    return found


def _type_of(value: ast.expr) -> str:
    """Return the type of a literal, `tuple[int, ...]` for `(1, 2)`; "" for any other expression."""
    try:
        literal = ast.literal_eval(value)
    except (ValueError, TypeError):
        return ""
    if isinstance(literal, tuple) and literal:
        return f"tuple[{type(literal[0]).__name__}, ...]"
    # None, a frequent default, says nothing about the type.
    return type(literal).__name__ if type(literal) in (int, float, bool, str) else ""


def _samples(section: Section) -> list[Given]:
    """Return the arguments of each sample of a section, each with the name of its parameter."""
    own, found = parameters(section["call"]), []
    for sample in section.get("samples", ()):
        call = ast.parse(f"f({sample})", mode="eval").body
        assert isinstance(call, ast.Call)
        words = [(str(word.arg), word.value) for word in call.keywords]
        # A sample may leave out the last parameters, or give a star several arguments: the first one is enough.
        found.append([*zip(own, call.args, strict=False), *words])
    return found
