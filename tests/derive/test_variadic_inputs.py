"""Any number of tensors: autograd of the whole forward, for those that need it."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from scaffold.derive import Derivation, derive
from tests.derive.building import draft_of, load, spec_of
from tests.derive.checking import check_op, tuple_of
from tests.sweeps import pairs_in_every_run


def r(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.double)


def checked(inputs: str, values: list[Any], forward: str, **raw: Any) -> Derivation:
    """The op, which is right for every subset of what may need a gradient."""
    spec = spec_of(inputs, forward=forward, derive=True, **raw)
    derivation = derive(spec)
    module = load(draft_of(spec, derivation))
    skeleton = spec_of(
        inputs, forward=forward, **raw | {"derive": False, "style": "setup-context"}
    )
    plain = load(draft_of(skeleton)).SomeOpFunction

    def wrapper(*inputs: Any) -> Any:  # what is returned beside them is saved
        outputs = tuple_of(module.SomeOpFunction.apply(*inputs))
        return outputs[: len(spec.outputs)]

    once = derivation.once_differentiable
    check_op(module.SomeOpFunction, wrapper, plain.forward, values, once=once)
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
    left = ["autograd differentiates the forward" in note for note in derivation.notes]
    assert left == [True] * ("tensors[" in forward)


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
    text = draft_of(spec, derive(spec))
    assert "sum_to_size" in text and "lambda w: SomeOpFunction" in text


def test_an_input_called_i_is_in_the_way() -> None:
    spec = spec_of("i, *tensors", forward="i * sum(tensors)", derive=True)
    assert derive(spec).missing == {"i", "tensors"}


JOINED = (
    *("torch.cat(tensors, dim=0).exp()", "torch.stack(tensors, -1).logsumexp(-1)"),
    *("sum(tensors).square() * scale", "torch.stack(tensors).mean(0) * w"),
    "total = sum(tensors)\nreturn total * total.sum() + w",
    "h = torch.cat(tensors, -1)\nreturn F.gelu(h) * h.mean()",
)


WAYS = [*product(("w, *tensors", "w[N, D], *tensors[N, D]"), ("recompute", "balanced"))]


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("inputs", "policy"), pairs_in_every_run(WAYS, WAYS[1:3], pytest.mark.each_commit)
)
@pytest.mark.parametrize("forward", JOINED)
def test_what_is_made_of_all_tensors_is_derived(
    forward: str, inputs: str, policy: str
) -> None:
    values = [r(2, 3), r(2, 3), r(3, 2).mT, r(2, 3)]
    for count in (2, 4):
        found = checked(
            f"{inputs}, scale: float = 2.0",
            [values[0], 2.0, *values[1:count]],
            forward,
            save_policy=policy,
        )
        assert not [note for note in found.notes if "autograd" in note]


def test_parts_of_other_sizes_get_their_own() -> None:
    checked("*tensors", [r(2, 3), r(4, 3), r(0, 3)], "torch.cat(tensors).sin()")
    for dims in ("", "[N, D]"):
        checked(f"*tensors{dims}", [r(2, 3), r(1, 3), r(2, 1)], "sum(tensors).sin()")
    inputs = "w[N, D], *tensors[N, D]"
    checked(inputs, [r(2, 3), r(1, 3), r(1, 3)], "torch.stack(tensors).sum(0) * w")
    checked(inputs, [r(1, 3), r(2, 3), r(2, 1)], "sum(tensors) * w")


def test_the_text_of_a_stack() -> None:
    text = draft_of(spec_of("*tensors", forward="torch.stack(tensors)"))
    assert "grad_output[i] if needed else None" in text
    for dim, part in ((-1, "[..., i]"), (1, "[:, i]"), (-2, "[..., i, :]")):
        forward = f"torch.stack(tensors, dim={dim})"
        checked("*tensors", [r(2, 3), r(2, 3)], forward)
        text = draft_of(spec_of("*tensors", forward=forward))
        assert f"grad_output{part} if needed else None" in text


@pytest.mark.parametrize(
    "forward",
    [
        "sum(tensors) * tensors[0]",
        "sum(tensors) * torch.stack(tensors)",
        "i = 2\nreturn sum(tensors) * i",
    ],
)
def test_other_reads_are_left_to_autograd(forward: str) -> None:
    found = checked("*tensors", [r(2, 3), r(2, 3)], forward)
    assert "any number of tensors" in found.notes[0]
