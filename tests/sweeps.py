"""Sweeps over all that is known: a part that stands for the whole in every run, the rest in an exhaustive one.

In: the values of a sweep. Out: parameters for `pytest.mark.parametrize`. Invariant: no value is left out of all runs.
"""

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any, TypeVar

import pytest

Value = TypeVar("Value")


def in_every_run(
    values: Iterable[Value],
    chosen: Collection[Value],
    others: pytest.MarkDecorator = pytest.mark.exhaustive,
) -> list[Any]:
    """The values, of which those that are not chosen are left to an exhaustive run, or to what `.ci/run` asks of each commit."""
    return [
        value if value in chosen else pytest.param(value, marks=others)
        for value in values
    ]


def pairs_in_every_run(
    values: Iterable[tuple[Any, ...]], chosen: Collection[tuple[Any, ...]]
) -> list[Any]:
    """The same for the values of several arguments."""
    return [
        pytest.param(*value, marks=() if value in chosen else pytest.mark.exhaustive)
        for value in values
    ]


def one_of_each(
    values: Iterable[Value], kind: Callable[[Value], Hashable]
) -> list[Value]:
    """The first value of every kind."""
    first: dict[Hashable, Value] = {}
    for value in values:
        first.setdefault(kind(value), value)
    return list(first.values())
