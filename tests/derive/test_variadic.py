"""Any number of tensors: autograd of the whole forward, for those that need it."""

from typing import Any

import pytest
import torch
from torch import Tensor

from scaffold.derive import Derivation, derive
from tests.derive.building import load, spec_of, text_of
from tests.derive.checking import check_op


def r(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.double)


def checked(inputs: str, values: list[Any], forward: str, **raw: Any) -> Derivation:
    """The op, which is right for every subset of what may need a gradient."""
    spec = spec_of(inputs, forward=forward, derive=True, **raw)
    derivation = derive(spec)
    module = load(text_of(spec, derivation))
    plain = load(text_of(spec_of(inputs, forward=forward, **raw))).SomeOpFunction
    apply = module.SomeOpFunction.apply
    check_op(module.SomeOpFunction, apply, plain.forward, values)
    return derivation


FORWARDS = (
    *("torch.cat(tensors, -1)", "torch.stack(tensors)", "sum(tensors)"),
    *("tensors[0] + tensors[1].sin()", "torch.stack(tensors).softmax(0).sum(0)"),
)


@pytest.mark.parametrize("forward", FORWARDS)
@pytest.mark.parametrize("count", [2, 3])
def test_each_of_the_tensors_gets_its_gradient(forward: str, count: int) -> None:
    derivation = checked("*tensors", [r(2, 3) for _ in range(count)], forward)
    assert not derivation.missing
    assert "any number of tensors" in derivation.notes[0]


@pytest.mark.parametrize("forward", FORWARDS)
def test_beside_a_tensor_and_an_attribute(forward: str) -> None:
    values = [r(1), 2.0, r(2, 3), r(2, 3)]
    checked("w, *tensors, scale: float = 1.0", values, f"w * scale * ({forward})")


@pytest.mark.parametrize("w", [None, r(3)])
def test_beside_what_may_be_absent(w: Tensor | None) -> None:
    checked("w?, *tensors", [w, r(2, 3), r(2, 3)], "sum(tensors) * w")


def test_several_outputs() -> None:
    forward = "total = sum(tensors)\nreturn total, total * 2"
    checked("*tensors", [r(2, 3), r(3)], forward, outputs="a, b")


def test_shapes_that_differ() -> None:
    checked("*tensors", [r(2, 3), r(3), r(2, 1)], "sum(tensors)")


def test_what_is_stated_stays() -> None:
    spec = spec_of(
        "w, *tensors",
        forward="w * sum(tensors)",
        derive=True,
        grad={"tensors": "(grad_output * w).sum_to_size(tensors[i].shape)"},
    )
    text = text_of(spec, derive(spec))
    assert "sum_to_size" in text and "lambda w: SomeOpFunction" in text


def test_an_input_called_i_is_in_the_way() -> None:
    spec = spec_of("i, *tensors", forward="i * sum(tensors)", derive=True)
    assert derive(spec).missing == {"i", "tensors"}
