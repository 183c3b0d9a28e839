"""PyTorch's own backward calls compute the gradients that are wanted, and no others."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
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


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize(
    ("inputs", "forward"),
    [
        (
            "x[N, D], w[D], s[D]?",
            "w2 = w * s if s is not None else None\nreturn F.layer_norm(x, (D,), w2)",
        ),
        (
            "x[N, D], w[D], s[D]?",
            "w2 = w * s if s is not None else None\nreturn F.group_norm(x, 1, w2)",
        ),
        (
            "x[N, D], w[D], s: bool = True",
            "F.layer_norm(x, (D,), w if s else None)",
        ),
    ],
)
def test_a_weight_that_is_computed_may_be_none(
    inputs: str, forward: str, given: bool
) -> None:
    op = load(op_text(inputs, forward=forward)).some_op
    x, w = torch.randn(2, 3).double(), torch.randn(3).double()
    last = given if "bool" in inputs else torch.ones(3).double() if given else None
    for needs in subsets([x, w]):
        one, other = with_needs([x, w], needs), with_needs([x, w], needs)
        norm = F.layer_norm if "layer" in forward else F.group_norm
        size: Any = (3,) if "layer" in forward else 1
        plain = norm(other[0], size, other[1] if given else None)
        wanted = [(a, b) for a, b in zip(one, other, strict=True) if a.requires_grad]
        if not plain.requires_grad:
            continue
        op(*one, last).square().sum().backward()
        plain.square().sum().backward()  # type: ignore[no-untyped-call]
        for a, b in wanted:
            zeros = torch.zeros_like(b)
            found = zeros if a.grad is None else a.grad
            torch.testing.assert_close(found, zeros if b.grad is None else b.grad)


@pytest.mark.parametrize("style", ["setup-context", "library"])
def test_any_number_of_tensors_has_flags_of_its_own(style: str) -> None:
    forward = "F.layer_norm(torch.stack(xs), w.shape, w)"
    op = load(op_text("w[D], *xs", forward=forward, style=style)).some_op
    for needs in subsets([torch.ones(3)] * 3):
        w, *xs = with_needs([torch.randn(3) for _ in range(3)], needs)
        wanted = [x for x in (w, *xs) if x.requires_grad]
        ours = torch.autograd.grad(op(w, *xs).square().sum(), wanted)
        plain = F.layer_norm(torch.stack(xs), w.shape, w).square().sum()
        torch.testing.assert_close(ours, torch.autograd.grad(plain, wanted))


def test_a_call_in_each_block_asks_for_the_result_of_its_own() -> None:
    forward = "F.layer_norm(x, (D,), w, b)"
    text = op_text("x[N, D], w[D]?, b[D]?", forward=forward, style="library")
    assert "needs_input_grad[0], ctx" not in text


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
