"""Mistakes planted in the examples' ops are found by the examples' own tests, as they stand."""

from pathlib import Path

import pytest

from tests.examples.examples import EXAMPLES, Example
from tests.executed.generation import new_op
from tests.executed.suites import Suites
from tests.sweeps import one_of_each
from tests.verify.mutants import MISTAKES, Mutant, mutants

PLANTED = (
    "linear",
    "linear_in_out",
)  # one mistake of each kind, a third of them in every run


def differentiable(example: Example) -> bool:
    return not example.skeleton and "No output has a gradient" not in (
        example.op_file.read_text()
    )


BY_NAME = {example.op: example for example in EXAMPLES}
CASES = [
    (example, mutant)
    for example in map(BY_NAME.get, PLANTED)
    if example
    for mutant in mutants(example.op_file.read_text())
]
ONE_OF_EACH = one_of_each(CASES, lambda case: case[1].mistake)


@pytest.mark.parametrize("op", PLANTED)
def test_every_mistake_can_be_made_in(op: str) -> None:
    example = BY_NAME[op]
    kinds = {mutant.mistake for mutant in mutants(example.op_file.read_text())}
    assert kinds == {mistake.__name__ for mistake in MISTAKES}


@pytest.mark.parametrize(
    ("example", "mutant"),
    [
        pytest.param(
            example,
            mutant,
            id=f"{example.op}: {mutant.name}",
            marks=[pytest.mark.each_commit] if number % 3 else [],
        )
        for number, (example, mutant) in enumerate(ONE_OF_EACH)
    ],
)
def test_a_mistake_of_each_kind_is_found(
    example: Example, mutant: Mutant, tmp_path: Path, suites: Suites
) -> None:
    assert_found(example, mutant, tmp_path, suites)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "example",
    [example for example in EXAMPLES if differentiable(example)],
    ids=lambda example: example.op,
)
def test_every_mistake_is_found(
    example: Example, tmp_path: Path, suites: Suites
) -> None:
    if [*example.directory.glob("*_triton.py")]:
        pytest.importorskip("triton")  # without it no call reaches a kernel
    for number, mutant in enumerate(mutants(example.op_file.read_text())):
        directory = tmp_path / f"{number}"
        directory.mkdir()
        assert_found(example, mutant, directory, suites)


def assert_found(
    example: Example, mutant: Mutant, directory: Path, suites: Suites
) -> None:
    """The op's own tests fail on the mutant."""
    example.copy(directory)
    (directory / example.op_file.name).write_text(mutant.text)
    report = suites.run(directory, "-x", "--tb=no")
    assert report.counts["failed"] == 1, f"{mutant.name}\n{report.output}"


def test_a_check_that_asks_for_no_more_than_the_rank_is_found(
    tmp_path: Path, suites: Suites
) -> None:
    inputs = "a[N, D], b[M, D]"
    forward = "(a[:, None] - b).square().sum(-1).amin(-1)"
    new_op(tmp_path, "nearest", "--inputs", inputs, "--forward", forward)
    file = tmp_path / "nearest.py"
    found = {mutant.name: mutant.text for mutant in mutants(file.read_text())}
    test = "b.ndim != 2 or b.shape[-1] != a.shape[-1]"
    weaker = found[f"missing_check: sizes of {test}"]
    assert "if b.ndim != 2 or False:" in weaker
    for text in (weaker, found[f"missing_check: {test}"]):
        file.write_text(text)
        report = suites.run(tmp_path, "-x", "--tb=no", "-k", "shapes")
        assert report.named("failed") == ["test_nearest::test_other_shapes_are_refused"]
