"""A local that the user calls as an input: by that name, where the input is read no more."""

import pytest

from scaffold.derive.forward.input_names import is_given_up
from scaffold.formula import Graph
from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import op_text
from tests.derive.test_name_collisions import statements

INPUTS = "x[N, D], w[N, D], k: int = 2"


def forward_lines(text: str) -> list[str]:
    """The body of `forward` without the checks of shapes."""
    body = text.partition("def forward(")[2].partition("    @staticmethod")[0]
    lines = [line.strip() for line in body.partition(" -> Tensor:\n")[2].splitlines()]
    checks = ("if x.", "if w.", "raise", "f", ")")
    return [line for line in lines if line and not line.startswith(checks)]


@pytest.mark.parametrize("style", ["setup-context", "combined"])
def test_the_forward_stays_as_the_user_wrote_it(style: str) -> None:
    forward = "x = x.sigmoid()\nx = x * w\nreturn x.sin() * k"
    text = op_text(
        INPUTS, forward=forward, derive=True, style=style, save_policy="recompute"
    )
    body = ["x = x.sigmoid()", "x = x * w", "return x.sin() * k"]
    filled = ["ctx.save_for_backward(x, w)", "ctx.k = k"]
    combined = style == "combined"
    assert forward_lines(text) == [*(filled if combined else []), *body]


def test_what_is_known_late_fills_ctx_late() -> None:
    forward = "x = x.exp()\ny = x[w > 0]\nreturn y.sum() / y.numel()"
    text = op_text(
        "x, w[; const]",
        forward=forward,
        style="combined",
        amp="off",
        save_policy="recompute",
    )
    lines = forward_lines(text)
    assert lines[:2] == ["ctx.save_for_backward(x, w)", "x = x.exp()"]
    assert lines[-2].startswith("ctx.y_"), lines


@pytest.mark.parametrize("style", ["setup-context", "combined"])
@pytest.mark.parametrize(
    "forward",
    [
        # the input is read once more, or nothing but it
        "h = x.exp()\nx = h * 2\nreturn x + w",
        "w = x.exp() * w\nx = w.sin()\nreturn x * w + 1",
        # what is saved besides inputs, is saved after the last line
        "x = torch.softmax(x * w, -1)\nreturn x",
        "w = torch.softmax(x * w, -1)\nx = w * 2\nreturn x + 1",
        # branches
        "if k > 1:\n    x = x * w\nreturn x.exp()",
        "if k > 1:\n    x = x.sin()\nelse:\n    w = w.sin()\nreturn x * w",
        "if k > 1:\n    x = w.sin()\nelse:\n    w = x.sin()\nreturn x * w",
        "if k < 1:\n    h = x\nelse:\n    x = w * x\n    h = x.sin()\nreturn h * x",
        # two at once, in place, and what a type checker knows as something else
        "x, w = w.sin(), x.cos()\nreturn x * w.exp()",
        "x = x * 2\nx += w\nx.mul_(w)\nreturn x.sin()",
        "x = sum([x, w])\nreturn x * w",
        "x = x.sum() if k > 1 else 2.0\nreturn w * x",
        "x = x.max(-1)\nreturn x.values * w.sum()",
    ],
)
def test_the_gradients_are_those_of_autograd(forward: str, style: str) -> None:
    values = tensor(3, 4), tensor(3, 4).cos()
    check_forward(INPUTS, forward, [(*values, 2), (*values, 0)], style=style)


@pytest.mark.parametrize(
    ("forward", "given"),
    [
        ("new_x = x * 2\ny = new_x + w", True),
        ("new_x = x * 2\ny = new_x + x", False),
        ("new_x = x * 2\nx = w", False),
        ("if p > 1:\n    new_x = x\nelse:\n    new_x = x * 2", False),
        ("if p > 1:\n    new_x = x\nelse:\n    new_x = w * 2", True),
        ("y = x * w", False),
    ],
)
def test_a_name_is_given_up_when_it_is_read_no_more(forward: str, given: bool) -> None:
    assert is_given_up(statements(forward, Graph()), "x", "new_x") is given
