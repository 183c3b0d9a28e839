"""PyTorch's own backward calls compute the gradients that are wanted, and no others."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.derive.building import backward_of, load, op_text, reference
from tests.derive.checking import assert_close, subsets, with_needs

NORM = "F.layer_norm(x, (D,), weight, bias)"


@pytest.mark.parametrize(
    ("inputs", "forward", "mask"),
    [
        ("x[N, D], weight[D], bias[D]", NORM, "ctx.needs_input_grad"),
        (
            "x[N, D], weight[D], bias[D], s: float",
            f"{NORM} * s",
            "ctx.needs_input_grad[:3]",
        ),
        ("x[N, D]", "F.layer_norm(x, (D,))", "(True, False, False)"),
        (
            "bias[D], x[N, D], weight[D]",
            NORM,
            "(ctx.needs_input_grad[1], ctx.needs_input_grad[2], ctx.needs_input_grad[0])",
        ),
        (
            "x[N, K], a[K, D], weight[D], bias[D]",
            NORM.replace("(x", "(x @ a"),
            "(ctx.needs_input_grad[0] or ctx.needs_input_grad[1], ctx.needs_input_grad[2], ctx.needs_input_grad[3])",
        ),
        (
            "x[N, D], weight[D]?",
            "F.layer_norm(x, (D,), weight)",
            "(ctx.needs_input_grad[0], ctx.needs_input_grad[1], False)",
        ),
    ],
)
def test_a_mask_has_the_flag_of_each_gradient(
    inputs: str, forward: str, mask: str
) -> None:
    text = "".join(backward_of(op_text(inputs, forward=forward)).split())
    assert f",{''.join(mask.split())}".replace(",)", ")") in text.replace(",)", ")")


class Masks(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the mask of each backward call of a norm."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = list[tuple[bool, ...]]()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if "norm_backward" in str(func):
            self.seen.append(tuple(args[-1]))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("frozen", ["x", "weight", "bias"])
def test_a_frozen_input_costs_nothing(frozen: str) -> None:
    op = load(op_text("x[N, D], weight[D], bias[D]", forward=NORM)).some_op
    sizes = {"x": (2, 3), "weight": (3,), "bias": (3,)}
    inputs = [torch.randn(size, requires_grad=k != frozen) for k, size in sizes.items()]
    total = op(*inputs).sum()
    with Masks() as masks:
        total.backward()
    assert masks.seen == [tuple(name != frozen for name in sizes)]


@pytest.mark.parametrize(
    ("inputs", "forward"),
    [
        (
            "x[N, K], a[K, D], weight[D], bias[D]",
            "F.layer_norm(x @ a, (4,), weight, bias)",
        ),
        ("x[N, D], weight[D], bias[D]", "F.silu(F.group_norm(x, 2, weight, bias))"),
        (
            "x[N, D, L], weight[D], bias[D]",
            "F.instance_norm(x, weight=weight * 2, bias=bias)",
        ),
    ],
)
def test_each_subset_of_gradients_is_autograd_s(inputs: str, forward: str) -> None:
    op = load(op_text(inputs, forward=forward)).some_op
    sizes = {"N": 3, "K": 5, "D": 4, "L": 2}
    declared = [part.rstrip("]").split("[") for part in inputs.split("], ")]
    plain = reference([name for name, _ in declared], forward)
    drawn = [
        torch.randn([sizes[size] for size in dims.split(", ")], dtype=torch.double)
        for _, dims in declared
    ]
    for needs in subsets(drawn):
        found = []
        for function in (op, plain):
            given = with_needs(drawn, needs)
            output = function(*given)
            wanted = [x for x, need in zip(given, needs, strict=True) if need]
            found.append(torch.autograd.grad(output.square().sum(), wanted))
        for one, two in zip(*found, strict=True):
            assert_close(one, two)
