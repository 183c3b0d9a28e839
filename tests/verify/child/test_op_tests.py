"""The class of an op's tests in a proof."""

from typing import Any

import torch

from scaffold.verify.child.op_tests import OpTests, on_copy


def test_all_tensors_of_a_variadic_input_reach_the_function() -> None:
    """A call may have more of them than the tests' own; the changed input is copied."""

    class Tests(OpTests):
        changed_in_place = ("x",)

        @staticmethod
        def make() -> dict[str, Any]:
            return dict.fromkeys(("x", "tensors[0]"), torch.zeros(2))

    def function(x: torch.Tensor, *tensors: torch.Tensor) -> torch.Tensor:
        return x.add_(sum(tensors))

    x, *tensors = torch.ones(4, 2)
    assert on_copy(Tests, function)(x, *tensors).tolist() == [4, 4]
    assert x.tolist() == [1, 1]
