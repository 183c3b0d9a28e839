"""What an op does under autocast, told by its forward."""

import re

import pytest
import torch
import torch.nn.functional as F

from scaffold.derive import derive
from tests.derive.building import load, op_text, spec_of

LINEAR = "input[..., K], weight[N, K], bias[N]?"
MATHS = "input @ weight.t() + bias"


@pytest.mark.parametrize(
    ("inputs", "forward", "amp"),
    [
        ("x, y", "x * y + torch.tanh(x)", "off"),
        ("x", "x.mean(-1)", "off"),  # not on the lists
        (LINEAR, "F.linear(input, weight, bias)", "region"),
        (LINEAR, "input @ weight.t() + bias", "region"),
        ("x[..., D], w1[H, D], w2[D, H]", "F.silu(x @ w1.t()) @ w2.t()", "region"),
        ("x", "torch.exp(x)", "region"),
        ("x", "x.softmax(-1)", "region"),
        ("x", "x ** 2", "region"),
        ("x", "2 ** x", "region"),
        ("x", "1 / x", "region"),
        ("x, y", "x / y", "off"),
        ("x", "x / 2 ** 0.5", "off"),  # of Python's numbers
        ("x", "x * math.exp(2.0)", "off"),
        ("x, n: int", "x / n ** 2", "off"),
        ("x, m[bool]", "x / m.sum()", "off"),  # integers are not cast
        ("x, m", "k = m > 0\nreturn x / k.sum()", "off"),
        ("x", "x.sum(dtype=torch.float32)", "off"),  # it says its dtype
        ("q[..., D], k[S, D]", "torch.softmax(q @ k.mT, -1)", "region"),
        ("q[N, K], k[K, M]", "torch.tensordot(q, k, 1)", "region"),
        ("x[..., D], w[D, H]", "(x @ w).to(x.dtype)", "region"),
        ("x[..., D], w[D, H]", "x.float() @ w", "region"),  # float32 meets w
        ("x, w", "torch.einsum('bd,dn->bn', x.to(torch.float32), w)", "region"),
        ("x", "torch.exp(x.float()).type_as(x)", "region"),
        ("x", "torch.exp(x.float()).to(x)", "region"),
        ("x", "torch.exp(x).to(torch.float32)", "region"),
        ("x[..., D], w[D, H]", "(x + torch.randn_like(x)) @ w", "region"),
        ("x[N, N]", "for _ in range(3):\n    x = x @ x\nreturn x", "region"),
        ("*tensors", "torch.stack(tensors).sum(0)", "region"),
        ("x", "x.argmax(-1)", "off"),
    ],
)
def test_the_forward_tells(inputs: str, forward: str, amp: str) -> None:
    inputs = inputs.replace("m[bool]", "m[N; bool]")
    assert derive(spec_of(inputs, forward=forward)).amp == amp


def test_functions_of_the_users_say_nothing() -> None:
    spec = spec_of(
        "x", forward="softmax(x)", import_=["mine:softmax"], grad={"x": "grad_output"}
    )
    assert derive(spec).amp == "off"


def test_a_surrogate_tells_too() -> None:
    options = {"forward": "torch.sign(x)", "surrogate": "1 / (1 + torch.exp(-x))"}
    assert derive(spec_of("x", **options)).amp == "region"


def test_without_a_backward_there_is_nothing_to_say() -> None:
    spec = spec_of(
        "x[N, K], w[K, M]", outputs="y[N; int]", forward="(x @ w).argmax(-1)"
    )
    assert derive(spec).amp == "off"


def test_what_is_stated_goes_first() -> None:
    inputs, forward = "q[..., D], k[S, D]", "torch.softmax(q @ k.mT, -1)"
    for amp in ("float32", "region", "off"):
        assert derive(spec_of(inputs, forward=forward, amp=amp)).amp == amp


def test_a_registered_op_is_computed_in_float32() -> None:
    """A compiler runs it outside of the region."""
    assert derive(spec_of(LINEAR, forward=MATHS, style="library")).amp == "float32"
    assert derive(spec_of("x", forward="x * 2", style="library")).amp == "off"


def test_what_an_older_version_cast_is_a_region() -> None:
    """But for a registered op, which has none."""
    assert spec_of(LINEAR, forward=MATHS, amp="lower").amp == "region"
    registered = spec_of(LINEAR, forward=MATHS, amp="lower", style="library")
    assert registered.amp == "float32"


def test_what_autocast_leaves_alone_has_no_line_of_it() -> None:
    assert "autocast" not in op_text("x, y", forward="torch.tanh(x) * y")
    assert "autocast" not in op_text(
        LINEAR, forward="F.linear(input, weight, bias)", amp="off"
    )


@pytest.mark.parametrize("forward", ["eps / x", "2 / x"])
def test_a_number_is_divided_in_the_precision_of_the_forward(forward: str) -> None:
    """Of a number divided by a tensor, the reciprocal is computed in float32; a product is not."""
    inputs = "x[N], eps: float = 1.0"
    assert derive(spec_of(inputs, forward=forward)).region
    assert not derive(spec_of(inputs, forward="eps * x")).region


def test_a_gradient_of_atens_gets_a_cotangent_of_its_dtype() -> None:
    """Another one it refuses: on CUDA the product is in float16, the softmax in float32."""
    inputs = "q[..., S, D], k[..., T, D], v[..., T, E]"
    options = {"forward": "torch.softmax(q @ k.mT, -1) @ v"}
    assert ".to(probs.dtype), probs, -1, probs.dtype" in op_text(inputs, **options)
    assert ".to(probs.dtype)" not in op_text(inputs, **options, amp="off")
    # A compiler traces the backward of a registered op under the autocast around its call.
    library = op_text(inputs, **options, style="library")
    assert ".to(probs.dtype), probs, -1, probs.dtype" in library


def test_a_loss_of_low_precision_has_a_gradient_of_that_precision() -> None:
    """Autocast computes the loss in float32; log_softmax too on CUDA, but not on a CPU."""
    options = {"forward": "F.nll_loss(F.log_softmax(x, -1), t)"}
    run = load(op_text("x[N, C], t[N; index(C)]", **options))
    target = torch.tensor([0, 2, 1])
    for dtype in (torch.bfloat16, torch.float32):
        x = torch.linspace(-1, 2, 15).reshape(3, 5).to(dtype).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            plain = F.nll_loss(F.log_softmax(x, -1), target)
            ours = run.some_op(x, target)
        (wanted,) = torch.autograd.grad(plain, x)
        (found,) = torch.autograd.grad(ours, x)
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    "moved",
    [
        "t.to(z.device)",
        't.to("cpu")',
        't.to(torch.device("cpu"))',
        "torch.arange(len(z)).to(z.device)",
    ],
)
def test_positions_on_another_device_are_positions(moved: str) -> None:
    """They were taken for numbers, and cast with the scores that they pick."""
    forward = f"F.log_softmax(z @ z.T, -1).gather(-1, ({moved})[:, None]).sum()"
    text = op_text("z[M, D], t[M; index(M)]", forward=forward, save_policy="recompute")
    assert re.search(r"\.unsqueeze\(1\), (1|grad)", text)  # the positions of a scatter
