"""Derivations are the same in every process, and their times are held against the targets."""

import pytest

from benchmarks.derive_speed import digests, reported


# Every run has a seed of its own, and regenerates the examples byte for byte.
@pytest.mark.parametrize(
    "every",
    [
        pytest.param(20, marks=pytest.mark.each_commit),
        pytest.param(1, marks=pytest.mark.exhaustive),
    ],
)
def test_other_hash_seeds_give_the_same_bytes(every: int) -> None:
    one, two = digests(2, every)
    assert one == two


@pytest.mark.parametrize(
    ("times", "met"), [((4, 4, 79), True), ((4, 4, 81), False), ((4, 11, 60), False)]
)
def test_the_median_and_the_worst_have_a_target(
    times: tuple[float, ...], met: bool
) -> None:
    line = reported("balanced", dict(zip("abc", times, strict=True)))
    assert line.endswith("missed") != met
