"""The mistakes that are planted: each in its place, and each does something else."""

import ast

import pytest

from scaffold.verify.mistakes import MISTAKES, Mistake
from scaffold.verify.op_tree import Op
from tests.examples.examples import EXAMPLES

TEXTS = {example.op: example.op_file.read_text() for example in EXAMPLES}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_changes_the_op_at_each_of_its_places(mistake: Mistake) -> None:
    """In some example there is a place for it; what is planted there differs from the op, and from what the others are."""
    found = 0
    for name in ("linear", "linear_in_out", "layer_norm"):
        op = Op(TEXTS[name])
        for at in range(len([*mistake(op)])):
            planted = Op(TEXTS[name])
            label, plant = [*mistake(planted)][at]
            plant()
            assert label
            assert ast.unparse(planted.tree) != ast.unparse(op.tree)
            found += 1
    assert found


def test_no_two_mistakes_have_one_name() -> None:
    names = [mistake.__name__ for mistake in MISTAKES]
    assert len({*names}) == len(names)
