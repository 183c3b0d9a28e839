"""Mistakes planted in the examples' ops are found by the examples' own tests, as they stand."""

from pathlib import Path

import pytest

from scaffold.verify.mistakes import MISTAKES
from scaffold.verify.mutants import mutants
from tests.examples.examples import EXAMPLES, Example
from tests.executed.generation import new_op
from tests.executed.suites import Suites

PLANTED = {"linear", "linear_in_out"}  # in every run; the others in an exhaustive one


def differentiable(example: Example) -> bool:
    return not example.skeleton and "No output has a gradient" not in (
        example.op_file.read_text()
    )


CASES = [
    pytest.param(
        example,
        mutant.text,
        id=f"{example.op}: {mutant.name}",
        marks=() if example.op in PLANTED else pytest.mark.exhaustive,
    )
    for example in EXAMPLES
    if differentiable(example)
    for mutant in mutants(example.op_file.read_text())
]


@pytest.mark.parametrize("op", sorted(PLANTED))
def test_every_mistake_can_be_made_in(op: str) -> None:
    (example,) = (example for example in EXAMPLES if example.op == op)
    kinds = {mutant.mistake for mutant in mutants(example.op_file.read_text())}
    assert kinds == {mistake.__name__ for mistake in MISTAKES}


@pytest.mark.parametrize(("example", "text"), CASES)
def test_a_mistake_is_found(
    example: Example, text: str, tmp_path: Path, suites: Suites
) -> None:
    example.copy(tmp_path)
    (tmp_path / example.op_file.name).write_text(text)
    report = suites.run(tmp_path, "-x", "--tb=no")
    assert report.counts["failed"] == 1, report.output


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
