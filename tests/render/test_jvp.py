"""The jvp of whole ops: what it is written from, what is saved, what is refused."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from scaffold.errors import ScaffoldError
from tests.derive.building import draft_of, load, reference, spec_of, text_of

LINEAR = """
output = input @ weight.t()
if bias is not None:
    output = output + bias
return output
"""


def jvp_of(inputs: str, forward: str, **raw: Any) -> str:
    """The Function with a jvp."""
    text = text_of(spec_of(inputs, forward=forward, forward_ad=True, **raw))
    return text.partition("WithJvp(")[2].partition("\ndef some_op(")[0]


def test_linear() -> None:
    text = jvp_of("input[..., K], weight[N, K], bias[N]?", LINEAR)
    assert "ctx.save_for_backward(input, weight)" in text
    assert "ctx.save_for_forward(input, weight)" in text
    assert "tangent_input @ weight.t() + input @ tangent_weight.t()" in text
    assert "if tangent_bias is not None:" in text
    spec = spec_of("input[..., K], weight[N, K], bias[N]?", forward=LINEAR)
    plain = text_of(spec).partition("class SomeOpFunction")[2].partition("\n\n\n")[0]
    whole = text_of(
        spec_of(
            "input[..., K], weight[N, K], bias[N]?", forward=LINEAR, forward_ad=True
        )
    )
    assert plain in whole  # the Function that is compiled is the usual one


def test_a_local_is_computed_again() -> None:
    forward = (
        "rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)\nreturn x * rstd"
    )
    text = jvp_of("x[..., D], eps: float = 1e-6", forward)
    assert "rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + ctx.eps)" in text
    assert "_tangent_eps: None" in text


def test_a_value_without_a_name_that_comes_again_gets_one() -> None:
    forward = "total = 1 + x + x * x / 2\nreturn total / total.sum(-1, keepdim=True)"
    op = load(draft_of(spec_of("x[..., D]", forward=forward, forward_ad=True))).some_op
    x = torch.randn(2, 3, dtype=torch.double)
    found, expected = (f(op)(x) for f in (torch.func.jacfwd, torch.func.jacrev))
    torch.testing.assert_close(found, expected)


def test_an_optional_argument_of_a_call() -> None:
    spec = spec_of(
        "x[..., K], w[N, K], bias[N]?",
        forward="2 * F.linear(x, w, bias)",
        forward_ad=True,
    )
    op = load(draft_of(spec)).some_op
    x, w, bias = (torch.randn(n, dtype=torch.double) for n in ((2, 3), (4, 3), (4,)))
    for inputs in ((x, w, bias), (x, w, None)):
        places = tuple(at for at, item in enumerate(inputs) if item is not None)
        found = torch.func.jacfwd(op, places)(*inputs)
        torch.testing.assert_close(found, torch.func.jacrev(op, places)(*inputs))


@pytest.mark.parametrize(
    "forward",
    [
        # the norm of a scalar has no dim to spread over
        "x.norm(dim=-1)",
        "x.sum(-1) * x.norm(3, dim=-1)",
        # to the jvp no gradient comes whose dtype and device zeros might have
        "y = torch.zeros_like(x)\ny[..., 0] = x.sum(-1)\nreturn y + x",
    ],
)
def test_shapes_that_are_not_declared(forward: str) -> None:
    op = load(draft_of(spec_of("x", forward=forward, forward_ad=True))).some_op
    for shape in ((2, 3), (3,), ()) if "y" not in forward else ((2, 3), (3,)):
        x = torch.randn(shape, dtype=torch.double)
        found, expected = (f(op)(x) for f in (torch.func.jacfwd, torch.func.jacrev))
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "forward",
    [
        "-x.norm(dim=-1)",
        "torch.softmax(x @ x.mT, -1) @ x",
        "h = x - x.mean(-1, keepdim=True)\nreturn torch.exp(h) * torch.tanh(h)",
    ],
)
def test_saved_intermediates_have_tangents(forward: str) -> None:
    """What reads them in the backward is no constant to forward mode; PyTorch takes no tangent of what is marked."""
    raw: dict[str, Any] = {"save_policy": "balanced", "forward_ad": True}
    op = load(draft_of(spec_of("x", forward=forward, **raw))).some_op
    plain = reference(["x"], forward)
    value, tangent = torch.randn(2, 3, 4, dtype=torch.double)[:, :, :3]
    found = []
    for call in (op, plain):
        with forward_ad.dual_level():
            x = forward_ad.make_dual(value.clone().requires_grad_(), tangent)  # type: ignore[no-untyped-call]
            output = call(x)
            (grad,) = torch.autograd.grad(output.sin().sum(), x)
            duals = (forward_ad.unpack_dual(item) for item in (output, grad))  # type: ignore[no-untyped-call]
            found.append([item.tangent for item in duals])
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize(
    "forward",
    [
        "tangent_y = x * x\ny = tangent_y * x\nreturn tangent_y * y * y.exp()",
        "grad = x * 2\ntangent = x * x\nreturn grad * tangent * x.exp()",
    ],
)
def test_names_of_the_forward_that_tangents_would_have(forward: str) -> None:
    op = load(draft_of(spec_of("x[N]", forward=forward, forward_ad=True))).some_op
    x, tangent = torch.randn(2, 3, dtype=torch.double)
    plain = reference(["x"], forward)
    found, expected = (torch.func.jvp(f, (x,), (tangent,)) for f in (op, plain))
    torch.testing.assert_close(found, expected)


def test_names_with_a_number_are_those_of_tangents_too() -> None:
    text = text_of(spec_of("x, y", forward="F.huber_loss(x, y)", forward_ad=True))
    assert "grad" not in text[text.index("def jvp") : text.index("return summed")]


def test_an_output_that_no_input_reaches_has_zeros() -> None:
    spec = spec_of(
        "x[N]",
        outputs="a, b",
        forward="return x * 2, torch.ones_like(x)",
        forward_ad=True,
    )
    op = load(draft_of(spec)).some_op
    x = torch.randn(3, dtype=torch.double)
    tangents = torch.func.jvp(op, (x,), (torch.ones_like(x),))[1]
    torch.testing.assert_close(tangents, (2 * torch.ones_like(x), torch.zeros_like(x)))


@pytest.mark.parametrize("policy", ["recompute", "balanced"])
def test_transforms(policy: str) -> None:
    """Jacobians, Hessians and a vmap on either side, of inputs some of which are frozen."""
    forward = "h = torch.exp(x) * y\nreturn torch.tanh(h).sum(-1)"
    raw = {"save_policy": policy, "forward": forward}
    op = load(draft_of(spec_of("x[N, D], y[N, D]", forward_ad=True, **raw))).some_op

    def plain(x: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(torch.exp(x) * y).sum(-1)

    torch.manual_seed(0)
    x, y = torch.randn(2, 4, 3, 2, dtype=torch.double)
    for jacobian in (torch.func.jacfwd, torch.func.jacrev):
        found, expected = (jacobian(f, (0, 1))(x[0], y[0]) for f in (op, plain))
        torch.testing.assert_close(found, expected)

    def mapped(f: Any) -> Any:
        return lambda x: torch.func.vmap(f, (0, None))(x, y[0]).sin().sum()

    ways: list[Any] = [torch.func.grad, torch.func.jacfwd]
    if policy == "recompute":
        ways.append(torch.func.hessian)
    for way in ways:
        torch.testing.assert_close(way(mapped(op))(x), way(mapped(plain))(x))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"dirty": ["x"], "forward": "x.exp_()"}, "is changed in place"),
        ({"style": "combined", "forward": "x.exp()"}, "forward mode needs style"),
        (
            {"surrogate": True, "grad": {"x": "grad_output"}, "forward": "x.round()"},
            "the gradient is a surrogate",
        ),
        ({"materialize_grads": False, "forward": "x.exp()"}, "materialize-grads"),
    ],
)
def test_what_has_no_forward_mode(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(ScaffoldError, match=message):
        spec_of("x", forward_ad=True, **raw)


@pytest.mark.parametrize(
    ("inputs", "forward", "reason"),
    [
        ("*tensors", "torch.stack(tensors).sum(0)", "any number of tensors"),
        ("x", "torch.meshgrid(x, x)[0]", "several results"),
    ],
)
def test_what_cannot_be_derived(inputs: str, forward: str, reason: str) -> None:
    with pytest.raises(ScaffoldError, match=reason) as caught:
        jvp_of(inputs, forward)
    assert caught.value.hint


def test_a_skeleton_has_a_jvp_to_write() -> None:
    text = text_of(spec_of("x", forward_ad=True))
    assert 'raise NotImplementedError("some_op: write jvp")' in text


def test_a_weight_without_a_gradient_has_no_tangent() -> None:
    """PyTorch differentiates the weights of classes in no way, and raises where it is asked to."""
    forward = "F.cross_entropy(x, t, w)"
    spec = spec_of("x[N, C], t[N; index(C)], w[C]", forward=forward, forward_ad=True)
    op = load(draft_of(spec)).some_op
    x, tangent = torch.randn(2, 4, 3, dtype=torch.double)
    w, of_w = torch.rand(2, 3, dtype=torch.double)
    t = torch.tensor([0, 1, 2, 1])

    def pushed(call: Any) -> Any:
        return torch.func.jvp(lambda x, w: call(x, t, w), (x, w), (tangent, of_w))

    torch.testing.assert_close(pushed(op), pushed(torch.nn.functional.cross_entropy))


def test_a_number_is_taken_out_of_a_mean() -> None:
    forward = "x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)"
    text = text_of(spec_of("x[N, D]", forward=forward, forward_ad=True))
    assert "inner = (tangent_x * x).mean(-1, keepdim=True)\n" in text
    assert "inv_rms * (tangent_x - x * inner * inv_rms**2)\n" in text


@pytest.mark.parametrize(
    "forward", ["return x * y, x.sqrt()", "return x + y, x.sqrt()"]
)
def test_an_input_without_a_tangent_counts_as_constant(forward: str) -> None:
    """With an output whose gradient may be None PyTorch hands over None for tangents, too."""
    spec = spec_of("x, y", forward=forward, outputs="a, b", forward_ad=True)
    op = load(draft_of(spec)).some_op
    x, y = torch.rand(2, 3, dtype=torch.double) + 1
    for position in range(2):
        found = torch.func.jacfwd(op, position)(x, y)
        torch.testing.assert_close(found, torch.func.jacrev(op, position)(x, y))


def test_an_optional_input_whose_tangent_may_be_none_is_refused() -> None:
    """It counted as absent: the tangent was that of the other branch."""
    forward = "return x if b is None else x * b, y.sqrt()"
    spec = spec_of("x, y, b?", forward=forward, outputs="u, v", forward_ad=True)
    with pytest.raises(ScaffoldError, match="no jvp can be derived"):
        text_of(spec)
