"""What is broadcast inside a primitive, or comes of a tuple: the gradient is that of autograd, by a rule or without one."""

import pytest
import torch

from scaffold.derive import derive
from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import (
    backward_of,
    draft_of,
    load,
    op_text,
    reference,
    spec_of,
)
from tests.derive.checking import check_op, recorder

KL = "F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1), reduction='{}')"
# A signature, a forward, and the shapes.
CASES: tuple[tuple[str, str, tuple[tuple[int, ...], ...]], ...] = (
    ("x[C, D]", "torch.stack(x.unbind(0), 0) * x", ((4, 5),)),
    ("x[C, D]", "torch.cat(x.chunk(2), 0) * x", ((4, 5),)),
    (
        "x[D, D, 1], y[D, D]",
        "torch.einsum('...ij,...jk->...ik', x, y)",
        ((5, 5, 1), (5, 5)),
    ),
    (
        "x[B], y",
        "torch.einsum('...i,...i->...', x.sum(-1, keepdim=True), y)",
        ((3,), (2, 3)),
    ),
    ("x[N, 1], y[N, D]", "torch.einsum('ni,ni->n', x, y)", ((3, 1), (3, 4))),
    ("x[N, 1], y[1, D]", "torch.einsum('ni,ni->n', x, y)", ((3, 1), (1, 4))),
    ("x[D], y[D, A, 1]", KL.format("sum"), ((5,), (5, 2, 1))),
    ("x, y", KL.format("mean"), ((5,), (5, 2, 1))),
    ("x, y", KL.format("none"), ((2, 5), (5,))),
    ("y", "y.sum(0).sum(-1)", ((5,),)),
    ("y", "y.sum(0).sum(-1)", ((5, 2),)),
    ("x[D, D]", "torch.linalg.eigh(x + x.mT)[0].exp()", ((4, 4),)),
    ("x[D, D]", "torch.linalg.eigh(x + x.mT)[1].square()", ((4, 4),)),
)


@pytest.mark.parametrize(("inputs", "forward", "shapes"), CASES)
def test_the_gradient_is_that_of_autograd(
    inputs: str, forward: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    torch.manual_seed(4)
    spec = spec_of(inputs, forward=forward, derive=True)
    module = load(draft_of(spec, derive(spec)))
    plain = load(draft_of(spec_of(inputs, forward=forward))).SomeOpFunction
    values = [torch.randn(shape, dtype=torch.double) for shape in shapes]
    check_op(module.SomeOpFunction, module.some_op, plain.forward, values)


def test_an_index_may_count_from_the_end() -> None:
    forward = "torch.take_along_dim(x, index, 1)"
    spec = spec_of("x[N, D], index[N, K; int]", forward=forward, derive=True)
    module = load(draft_of(spec, derive(spec)))
    x = torch.randn(2, 3, dtype=torch.double, requires_grad=True)
    index = torch.tensor([[0, -1], [1, -3]])
    (found,) = torch.autograd.grad(module.some_op(x, index).sum(), x)
    assert found.tolist() == [[1, 0, 1], [1, 1, 0]]


@pytest.mark.parametrize(
    "forward",
    [
        "x @ w + y.float()",
        "torch.softmax(x @ w + y.float().cumsum(-1), -1)",
        "torch.where(y > 0, x @ w, y.double())",
        "F.linear(x, w) * y.to(torch.float64)",
    ],
)
def test_a_product_beside_a_cast_has_a_gradient_of_its_dtype(forward: str) -> None:
    """Autograd casts on the way; a product of two dtypes raises."""
    op = load(op_text("x[N, N], w[N, N], y[N, N]", forward=forward, derive=True))
    plain = reference(["x", "w", "y"], forward)
    for dtype in (torch.bfloat16, torch.float32, torch.double):
        torch.manual_seed(0)
        inputs = [torch.randn(3, 3, dtype=dtype, requires_grad=True) for _ in "xwy"]
        found, wanted = (
            torch.autograd.grad(function(*inputs).sum(), inputs)
            for function in (op.some_op, plain)
        )
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    "forward",
    [
        "x * (y > 0).float()",
        "(x * torch.tensor([2.0, 3.0, 4.0])).sum()",
        "(x @ w - torch.eye(3)).square().mean()",
        "x.sum() / ((y > 0).sum() + 1e-4)",
        "(x @ w).sum() / ((y > 0).sum() + 1e-4)",
        "x * torch.ones(3, dtype=torch.float64)",
    ],
)
def test_a_gradient_is_of_the_dtype_of_its_input(forward: str) -> None:
    """Autograd casts it; what backward itself gives is looked at."""
    op = load(op_text("x[N, N], w[N, N], y[N, N; const]", forward=forward, derive=True))
    for dtype in (torch.bfloat16, torch.float32):
        torch.manual_seed(0)
        inputs = [torch.randn(3, 3, dtype=dtype, requires_grad=True) for _ in "xw"]
        recorded, returned = recorder(op.SomeOpFunction)
        output = recorded.apply(*inputs, torch.randn(3, 3, dtype=dtype))
        output = output[0] if isinstance(output, tuple) else output
        output.sum().backward()
        found = {item.dtype for item in returned[-1] if item is not None}
        assert found == {dtype}


@pytest.mark.parametrize(
    "forward",
    [
        "x * (y > 0).to(x.dtype)",
        "dtype = x.dtype\nreturn x * (y > 0).to(dtype)",
        "x * torch.ones(3, dtype=x.dtype, device=x.device)",
        "x / (y > 0).sum()",
    ],
)
def test_a_dtype_of_an_input_brings_in_no_other(forward: str) -> None:
    text = op_text("x[N, N], y[N, N; const]", forward=forward, derive=True)
    assert backward_of(text).count(".to(") == forward.count(".to(")


def test_without_a_cast_nothing_is_cast() -> None:
    text = op_text("x[N, K], w[K, D], b[D]", forward="x @ w + b", derive=True)
    assert ".to(" not in backward_of(text)


NUMBER_OR_TENSOR = """
scale = 1.5
if n > 2:
    scale = scale + w.exp()
y = scale * x
if m is not None:
    y = y * m
    count = m.expand_as(y).sum(-1).clamp(min=0.5)
else:
    count = y[0].numel()
return (y + scale).tanh().sum(-1) / count
"""


@pytest.mark.parametrize("inputs", ["x[B, D], w[D], m[B, 1]?, n: int = 3"])
def test_a_choice_of_a_tensor_or_a_number(inputs: str) -> None:
    x, w, m = tensor(3, 4), tensor(4), tensor(3, 1).exp()
    calls = [(x, w, m, 3), (x, w, None, 3), (x, w, m, 1), (x, w, None, 1)]
    text = check_forward(inputs, NUMBER_OR_TENSOR, calls, derive=True)
    assert "vjp" not in text


@pytest.mark.parametrize(
    "value",
    [
        "s ** x",
        "x * abs(s)",
        "x.abs() ** s",
        "torch.xlogy(x, s)",
        "(x.exp() + s) ** s",
        "F.gelu(x) * s + F.silu(x / s)",
    ],
)
def test_no_function_of_tensors_is_called_for_a_number_of_a_choice(value: str) -> None:
    forward = f"s = w if n > 2 else 0.7\nreturn {value}"
    calls = [(tensor(3, 4), tensor(4).exp(), n) for n in (1, 3)]
    text = check_forward("x[B, D], w[D], n: int = 3", forward, calls, derive=True)
    assert ("vjp" in text) is ("gelu" not in value)


def test_a_mask_of_a_size_that_one_branch_reads() -> None:
    """`torch.ones` takes numbers."""
    forward = """
s = q @ k.mT
if causal:
    n = s.shape[-1]
    later = torch.triu(torch.ones(n, n, dtype=torch.bool, device=s.device), 1)
    s = s.masked_fill(later, -9.0)
return s.softmax(-1) @ k
"""
    calls = [(tensor(2, 4, 3), tensor(2, 4, 3), causal) for causal in (True, False)]
    inputs = "q[..., S, D], k[..., S, D], causal: bool = True"
    assert "vjp" not in check_forward(inputs, forward.strip(), calls, derive=True)
