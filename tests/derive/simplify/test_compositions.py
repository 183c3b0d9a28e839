"""Primitives that a forward spells out: each composition of the rule table has its rule's value, and is found."""

import pytest
import torch

from scaffold.derive.rules.table import Rule, built_in
from scaffold.errors import Location
from scaffold.formula import Graph, Node, Scope, Text, parse
from scaffold.verify.child.rule_runs import drawn_values
from scaffold.verify.child.rule_values import Interpreter, called, defaults
from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import backward_of, load, op_text
from tests.derive.rules.test_table import samples

TABLE = built_in()


def composed(name: str, text: str) -> tuple[Rule, Node]:
    """A rule, and a formula of it over its parameters."""
    rule = TABLE.rule(name)
    place = Location(f"rule {name}")
    result = parse(Text(text, place), Scope(TABLE.scope(rule)), Graph()).result
    assert result is not None
    return rule, result


@pytest.mark.parametrize(
    ("rule", "pattern"),
    [composed(name, text) for _, name, text in TABLE.composed()],
    ids=lambda item: getattr(item, "name", ""),
)
def test_it_has_the_value_of_its_rule(rule: Rule, pattern: Node) -> None:
    for sample in samples(rule):
        given = drawn_values(TABLE, rule, sample, torch.float64)
        values = defaults(TABLE, rule) | given
        torch.testing.assert_close(
            Interpreter(TABLE, values)(pattern), called(rule.spelled, given)
        )


def fused(forward: str, inputs: str = "x", **raw: object) -> str:
    """Outside of a region, where each cotangent has the dtype of its value."""
    raw = {"once_differentiable": True, "amp": "off", **raw}
    text = op_text(inputs, forward=forward, derive=True, **raw)
    return backward_of(text)


@pytest.mark.parametrize(
    ("forward", "name"),
    [
        ("x * torch.sigmoid(x)", "silu_backward"),
        ("torch.sigmoid(x) * x", "silu_backward"),
        ("s = x.sigmoid()\nreturn x * s", "silu_backward"),
        ("x * 0.5 * (torch.erf(x / math.sqrt(2.0)) + 1)", "gelu_backward"),
        ("x * (1.0 + torch.erf(x / 2 ** 0.5)) / 2", "gelu_backward"),
        (
            "0.5 * x * (1 + torch.tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x * x * x)))",
            "gelu_backward",
        ),
        (
            "e = torch.exp(x - x.amax(-1, keepdim=True))\nreturn e / e.sum(-1, keepdim=True)",
            "_softmax_backward_data",
        ),
        ("torch.exp(x) / torch.exp(x).sum(1, keepdim=True)", "_softmax_backward_data"),
    ],
)
def test_it_is_found(forward: str, name: str) -> None:
    assert f"torch.ops.aten.{name}(" in fused(forward)


@pytest.mark.parametrize(
    "forward",
    [
        "x * torch.sigmoid(1.702 * x)",
        "x * torch.sigmoid(x + 1)",
        "x * torch.tanh(F.softplus(x, beta=2))",
        "0.5 * x * (1 + torch.erf(x / 1.4142))",
        "0.5 * x * (1 + torch.tanh(0.7978 * (x + 0.044715 * x ** 3)))",
        "torch.exp(x) / torch.exp(x).sum(-1)",
        "torch.exp(x) / torch.exp(2 * x).sum(-1, keepdim=True)",
    ],
)
def test_what_is_only_like_it_is_not(forward: str) -> None:
    text = fused(forward)
    for name in ("silu_", "mish_", "gelu_", "_softmax_"):
        assert f"aten.{name}" not in text


def test_two_inputs_are_not_one() -> None:
    assert "silu_backward" not in fused("x * torch.sigmoid(y)", "x, y")


def test_what_broadcasts_is_not_one() -> None:
    """`x[:, None] * sigmoid(x)` is an outer product."""
    assert "silu_backward" not in fused("x[:, None] * torch.sigmoid(x)", "x[N]")


@pytest.mark.parametrize("policy", ["recompute", "balanced"])
def test_a_sigmoid_in_several_steps_keeps_its_tail(policy: str) -> None:
    """In float32 it is 1 from 17 on, and its gradient is e^-x."""
    forward = "1 / (1 + torch.exp(-x))"
    op = load(op_text("x", forward=forward, save_policy=policy)).some_op
    x = torch.tensor([20.0, 2.0, -20.0], requires_grad=True)
    (found,) = torch.autograd.grad(op(x).sum(), x)
    (right,) = torch.autograd.grad((1 / (1 + torch.exp(-x))).sum(), x)
    torch.testing.assert_close(found, right)


Z_LOSS = """\
lse = torch.logsumexp(x, {})
return F.cross_entropy(x, target) + w * (lse ** 2).mean()"""
PICKED = "x[N, C], target[N; index(C)], w: float = 0.1"


@pytest.mark.parametrize("dim", ["1", "-1", "-1, keepdim=True"])
@pytest.mark.parametrize("policy", ["recompute", "balanced"])
def test_a_softmax_is_not_computed_again_from_its_logsumexp(
    dim: str, policy: str
) -> None:
    forward = Z_LOSS.format(dim)
    text = backward_of(op_text(PICKED, forward=forward, save_policy=policy))
    assert text.count("torch.softmax(") == 1
    assert "torch.exp(" not in text
    target = torch.tensor([2, -100, 0])
    check_forward(PICKED, forward, [(tensor(3, 4), target, 0.1)])


@pytest.mark.parametrize("dim", ["0", "(0, 1)"])
def test_a_logsumexp_along_another_dim_is_of_other_values(dim: str) -> None:
    forward = Z_LOSS.format(dim)
    text = backward_of(op_text(PICKED, forward=forward))
    assert "torch.exp(" in text
    target = torch.tensor([2, 1, 0])
    check_forward(PICKED, forward, [(tensor(3, 4), target, 0.1)])


def test_one_value_per_line_is_put_into_the_sum_of_two_products() -> None:
    """No one-hot of the whole shape is made."""
    text = backward_of(op_text(PICKED, forward=Z_LOSS.format(-1)))
    assert "scaled_grad.scatter_add_(" in text
    assert "onehot" not in text
