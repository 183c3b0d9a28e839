"""Sweeps over all that is known: a part that stands for the whole in every run, the rest in an exhaustive one.

In: the values of a sweep. Out: parameters for `pytest.mark.parametrize`. Invariant: no value is left out of all runs. A default run does
not collect what it would not run: that is more than half of all, and takes a sixth of the time of its collection for each worker.
"""

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any, TypeVar

import pytest

Value = TypeVar("Value")
# Markers whose tests this run does not even collect; known before any test is imported.
NOT_COLLECTED: set[str] = set()


def in_every_run(
    values: Iterable[Value],
    chosen: Collection[Value],
    others: pytest.MarkDecorator = pytest.mark.exhaustive,
) -> list[Any]:
    """The values, of which those that are not chosen are left to an exhaustive run, or to what `.ci/run` asks of each commit."""
    return [
        value if value in chosen else pytest.param(value, marks=others)
        for value in values
        if value in chosen or others.name not in NOT_COLLECTED
    ]


def pairs_in_every_run(
    values: Iterable[tuple[Any, ...]],
    chosen: Collection[tuple[Any, ...]],
    others: pytest.MarkDecorator = pytest.mark.exhaustive,
) -> list[Any]:
    """The same for the values of several arguments."""
    return [
        pytest.param(*value, marks=() if value in chosen else others)
        for value in values
        if value in chosen or others.name not in NOT_COLLECTED
    ]


def one_of_each(
    values: Iterable[Value], kind: Callable[[Value], Hashable]
) -> list[Value]:
    """The first value of every kind."""
    first: dict[Hashable, Value] = {}
    for value in values:
        first.setdefault(kind(value), value)
    return list(first.values())
