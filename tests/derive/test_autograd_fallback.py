"""Autograd of a forward as a whole: what falls back to it, what it sees, and why, in words."""

from typing import Any

import pytest
import torch

from scaffold.derive import derive
from scaffold.derive import gradients as engine
from tests.derive.against_autograd import POLICIES, check_forward, tensor
from tests.derive.building import load, op_text, spec_of

LOCALS = "h = x\nrstd = x + x + x\nreturn x + input + gamma + sum(tensors)"


@pytest.mark.parametrize("style", ["setup-context", "combined"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("inputs", "forward", "gradient", "outputs"),
    [
        ("x, input?, gamma?, *tensors", LOCALS, {"tensors": "rstd * tensors[i]"}, None),
        (
            "x, y, *tensors",
            "rstd = x.exp() * y\nreturn x * (tensors[0] + sum(tensors[1:])), x.exp()",
            {"y": "grad_a * rstd"},
            "a, b",
        ),
    ],
)
def test_a_local_that_is_saved_is_no_result(
    inputs: str,
    forward: str,
    gradient: dict[str, str],
    outputs: str | None,
    policy: str,
    style: str,
) -> None:
    raw: dict[str, Any] = {"grad": gradient, "save_policy": policy, "style": style}
    if outputs:
        raw["outputs"] = outputs
    text = op_text(inputs, forward=forward, **raw)
    if style == "combined":
        return  # nothing is derived; the forward returns what it saves nowhere
    op = load(text).some_op
    values = [tensor(3).requires_grad_() for _ in range(4)]
    found = op(*values)
    total = sum(item.sum() for item in found) if outputs else found.sum()
    (of_x,) = torch.autograd.grad(total, values[:1])
    x = values[0].detach().clone().requires_grad_()
    rest = [item.detach() for item in values[1:]]
    plain = x + sum(rest) if not outputs else x * sum(rest[1:])
    extra = x.exp().sum() if outputs else 0
    (right,) = torch.autograd.grad(plain.sum() + extra, x)
    torch.testing.assert_close(of_x, right)


LORA = """
y = x @ w.t()
if bias is not None:
    y = y + bias
if a is not None and b is not None:
    y = y + scale * (x @ a.t()) @ b.t()
return y
"""


@pytest.mark.parametrize("shapes", [(3, 4), (4,), (2, 3, 4)])
def test_what_two_optional_inputs_make_together(shapes: tuple[int, ...]) -> None:
    x, w, bias, a, b = (
        tensor(*shapes),
        tensor(2, 4),
        tensor(2),
        tensor(5, 4),
        tensor(2, 5),
    )
    calls = [
        (x, w, some, first, second, 0.5)
        for some in (bias, None)
        for first, second in ((a, b), (None, None), (a, None), (None, b))
    ]
    inputs = "x, w, bias?, a?, b?, scale: float = 1.0"
    text = check_forward(inputs, LORA, calls)
    assert "torch.func.vjp" not in text


PINHOLE = (
    "uv = (K @ X.T).T\nreturn uv[:, :2] / uv[:, 2:]",
    "uv = X @ K.mT\nreturn uv[..., :2] / uv[..., 2:]",
    "p = torch.einsum('ij,nj->ni', K, X)\nreturn p[:, :2] / p[:, 2:]",
)


@pytest.mark.parametrize("inputs", ["X, K", "X[N, 3], K[3, 3]"])
@pytest.mark.parametrize("forward", PINHOLE)
def test_a_projection(forward: str, inputs: str) -> None:
    text = check_forward(inputs, forward, [(tensor(5, 3), tensor(3, 3))])
    assert "torch.func.vjp" not in text


def test_no_word_of_python_s_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def deep(*_: object) -> object:
        raise RecursionError("maximum recursion depth exceeded in comparison")

    monkeypatch.setattr(engine, "lower", deep)
    (note,) = derive(spec_of("x", forward="x * 2")).notes
    assert note.endswith("as a whole: it is nested too deeply")


def test_a_block_that_computes_in_another_precision() -> None:
    forward = "with torch.autocast('cpu', dtype=torch.bfloat16):\n    y = x @ w\nreturn y.float()"
    values = [tensor(3, 4).float(), tensor(4, 5).float()]
    spec = spec_of("x[N, D], w[D, E]", forward=forward)
    assert "there is a with statement" in derive(spec).notes[0]
    op = load(op_text("x[N, D], w[D, E]", forward=forward))
    x, w = (value.requires_grad_() for value in values)
    result = op.some_op(x, w)
    assert torch.equal(result, (x.bfloat16() @ w.bfloat16()).float())
    grad = torch.autograd.grad(result.sum(), x)[0]
    torch.testing.assert_close(
        grad, w.detach().bfloat16().sum(1).float().expand(3, 4), rtol=0.02, atol=0.02
    )


HALVED = """
out = x
for i in range(3):
    if out.sum() > i:
        out = out / 2
return out * mask if bias is None else out * mask + bias
"""


@pytest.mark.parametrize(
    "mask", [torch.tensor([True, False, True]), torch.arange(3)], ids=["bool", "int"]
)
def test_an_input_that_nobody_declares_may_hold_no_floats(mask: torch.Tensor) -> None:
    values, none = tensor(3), None
    calls = [(values, mask, none), (values, mask, values), (values, values, values)]
    text = check_forward("x, mask, bias?", HALVED, calls)
    assert "autograd differentiates the forward as a whole" in text


ALIAS = """
values = values * 2
same = values
out = torch.zeros_like(values)
for k in range(2):
    places = (torch.arange(values.shape[-1]) + index[k]) % values.shape[-1]
    out = out + same[..., places]
return out
"""


def test_a_call_of_an_alias() -> None:
    """What autograd differentiates there by is what the call reads, under whatever name."""
    calls = [(tensor(2, 5), torch.tensor([3, 1]))]
    text = check_forward("values, index[K; int]", ALIAS, calls)
    assert "lambda new_values:" in text


@pytest.mark.parametrize(
    ("inputs", "forward"),
    [
        ("x[N]", "torch.outer(x, [])"),
        ("w[O, I]", "torch.mv(w, True)"),
        ("x[N, D]", "x @ 2"),
        ("x[N, D]", "torch.cdist(x, 1)"),
        ("x[B, N, D]", "torch.bmm(x, ())"),
        ("x[N, D]", "F.cross_entropy(x, 1)"),
        ("x[A, B, C, D]", "x.permute(2, [0], 0, 1)"),
        ("x[N]", "a, b = x,\nreturn a * 2"),
    ],
)
def test_what_pytorch_refuses_is_left_to_it(inputs: str, forward: str) -> None:
    """Something that is no tensor in the place of one, another number of values: the proof tells what PyTorch says of it."""
    derivation = derive(spec_of(inputs, forward=forward))
    assert not derivation.derived or derivation.notes


@pytest.mark.parametrize(
    "forward",
    [
        "v = x + 0\nu = v.t()\nu[0] *= 2\nreturn torch.stack([r.sum() for r in u])",
        "v = x + 0\nv.t()[0].mul_(3)\nreturn torch.stack([r.exp() for r in v.t()])",
        "v = x * 1\nu = v[0]\nu *= 2\nreturn torch.stack([r.exp() for r in v])",
        "v = x * 1\nu = v.t()\nu[0] *= 2\nreturn sum(r.square().sum() for r in u)",
        "v = x * 1\nu = v.t()\nu[0] *= 2\nreturn torch.stack(u.unbind(0)).square()",
    ],
)
def test_rows_of_a_view_that_was_changed_are_as_many_as_it_has(forward: str) -> None:
    check_forward("x[N, D]", forward, [(tensor(3, 4),), (tensor(2, 5),)])
