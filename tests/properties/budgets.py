"""Properties with two budgets: a few examples in every run, many with `-m exhaustive`."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st


def search(
    strategy: st.SearchStrategy[Any],
    hold: Callable[[Any], None],
    count: int,
    *examples: Any,
) -> None:
    """Look for a value for which `hold` does not hold; the examples come first."""
    looking = given(strategy)(hold)
    for value in examples:
        looking = example(value)(looking)
    settings(max_examples=count)(looking)()


def holds_for(
    strategy: st.SearchStrategy[Any], few: int, *examples: Any
) -> Callable[[Callable[[Any], None]], Callable[[int], None]]:
    """Make a test of a function that holds for every value: `few` of them, or many more."""

    def decorate(hold: Callable[[Any], None]) -> Callable[[int], None]:
        many = pytest.param(600 * few, marks=pytest.mark.exhaustive)

        @pytest.mark.parametrize("count", [few, many])
        def test(count: int) -> None:
            search(strategy, hold, count, *examples)

        test.__doc__ = hold.__doc__
        return test

    return decorate


def searched(
    few: int,
    *strategies: st.SearchStrategy[Any],
    many: int = 0,
    **named: st.SearchStrategy[Any],
) -> Callable[[Callable[..., None]], Callable[[int], None]]:
    """As `given`, for `few` values of the arguments, or `many`: thirty times as many if it is not said."""

    def decorate(hold: Callable[..., None]) -> Callable[[int], None]:
        more = pytest.param(many or 30 * few, marks=pytest.mark.exhaustive)

        @pytest.mark.parametrize("count", [few, more])
        def test(count: int) -> None:
            settings(max_examples=count)(given(*strategies, **named)(hold))()

        test.__doc__ = hold.__doc__
        return test

    return decorate
