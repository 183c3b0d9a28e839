"""Forwards with loops: they stay as they are, and autograd differentiates them as a whole."""

import textwrap
from typing import Any

import pytest
import torch
from torch import Tensor

from scaffold.derive import Derivation, derive
from scaffold.errors import ScaffoldError
from scaffold.spec.build import build
from tests.derive.building import draft_of, load, locate, reference, spec_of
from tests.derive.checking import check_op


def r(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.double)


def checked(
    inputs: str, names: str, forward: str, *values: Any, **raw: Any
) -> Derivation:
    """The op, which is right for every subset of what may need a gradient."""
    spec = spec_of(inputs, forward=forward, derive=True, **raw)
    derivation = derive(spec)
    assert not derivation.missing and not derivation.once_differentiable
    module = load(draft_of(spec, derivation))
    torch.manual_seed(0)
    function = module.SomeOpFunction
    check_op(function, function.apply, reference(names.split(", "), forward), values)
    return derivation


SCAN = """
h = torch.zeros_like(x[:, 0])
outs = []
for t in range(x.shape[1]):
    h = a[:, t] * h + x[:, t]  # the state
    outs.append(h)
return torch.stack(outs, 1)
"""
GROWN = """
outs: list[Tensor] = []
for i, row in enumerate(x.unbind(0)):
    outs = [*outs, row * i] if i else [row]
outs.extend([x[0], x[1]])
outs[0] = outs[0] + outs.pop()
return torch.stack(outs)
"""
EMA = """
out = torch.empty_like(x)
out[:, 0] = x[:, 0]
for t in range(1, x.size(1)):
    out[:, t] = alpha * x[:, t] + (1 - alpha) * out[:, t - 1].clone()
return out
"""
STATE = """
if h0 is None:
    h = torch.zeros_like(x[:, 0])
else:
    h = h0 * 1
for t in range(x.shape[1]):
    h = torch.tanh(x[:, t] * w + h)
return h
"""
TABLE = """
rows = [[x[0, 0] * 0] * (x.shape[1] + 1) for _ in range(x.shape[0] + 1)]
for i in range(x.shape[0]):
    for j in range(x.shape[1]):
        near = torch.stack([rows[i][j], rows[i][j + 1], rows[i + 1][j]])
        rows[i + 1][j + 1] = x[i, j] - torch.logsumexp(-near, 0)
return rows[-1][-1]
"""
SINKHORN = """
for _ in range(steps):
    x = x - torch.logsumexp(x, -1, keepdim=True)
    x = x - torch.logsumexp(x, -2, keepdim=True)
return x.exp()
"""
WHILE = """
n = 0
y = x
while n < 6:
    n += 1
    if n == 2:
        continue
    if n == 5:
        break
    y = y * x + n
return y
"""
RAISES = """
assert x.ndim == 2, f"{x.ndim} dims"
if y.shape != x.shape:
    raise ValueError(f"{x.shape} and {y.shape}")
for k in range(9):
    assert k < 9, f"{k} of 9"
    x = x * y.sin()
return x
"""
CASES = [
    ("a, x", "a, x", SCAN, (r(2, 5, 3), r(2, 5, 3))),
    ("a[B, T, D], x[B, T, D]", "a, x", SCAN, (r(2, 5, 3), r(2, 5, 3))),
    ("a[B, T, D], x[B, T, D]", "a, x", SCAN, (r(5, 2, 3).transpose(0, 1), r(2, 5, 3))),
    ("a[B, T, D], x[B, T, D]", "a, x", SCAN, (r(0, 5, 3), r(0, 5, 3))),
    ("a, x", "a, x", SCAN, (r(1, 5, 1), r(2, 5, 3))),
    ("x", "x", GROWN, (r(4, 3),)),
    ("x[B, T], alpha: float = 0.5", "x, alpha", EMA, (r(2, 6), 0.5)),
    ("x, w, h0?", "x, w, h0", STATE, (r(2, 6, 3), r(3), None)),
    ("x, w, h0?", "x, w, h0", STATE, (r(2, 6, 3), r(3), r(2, 3))),
    ("x[N, M]", "x", TABLE, (r(3, 2),)),
    ("x[N, N], steps: int = 5", "x, steps", SINKHORN, (r(3, 3), 5)),
    ("x", "x", WHILE, (r(2, 3),)),
    ("x, y", "x, y", RAISES, (r(2, 3), r(2, 3))),
    (
        "x, y",
        "x, y",
        "torch.stack([a * b.exp() for a, b in zip(x, y)])",
        (r(3, 2), r(3, 2)),
    ),
    ("x", "x", "for row in x:\n    y = row * row\nreturn y", (r(3, 2),)),
    (
        "x",
        "x",
        "a = b = x * 2\nfor k in range(9):\n    a = a * b.cos()\nreturn a",
        (r(2),),
    ),
    (
        "*tensors",
        "*tensors",
        "y = 1.0\nfor t in tensors:\n    y = y * t\nreturn y",
        (r(2), r(2)),
    ),
]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("policy", ["recompute", "balanced"])
@pytest.mark.parametrize(("inputs", "names", "forward", "values"), CASES)
def test_the_gradient_is_that_of_the_loop(
    inputs: str, names: str, forward: str, values: tuple[Any, ...], policy: str
) -> None:
    forward = (
        forward
        if forward.startswith("\n")
        else f"return {forward}" * ("return" not in forward) or forward
    )
    derivation = checked(inputs, names, forward.strip(), *values, save_policy=policy)
    assert any("as a whole" in note for note in derivation.notes)


def test_several_outputs() -> None:
    forward = SCAN.strip().replace(
        "return torch.stack(outs, 1)", "return torch.stack(outs, 1), h"
    )
    values = (r(2, 5, 3), r(2, 5, 3))
    checked("a, x", "a, x", forward, *values, outputs="y, last")


def test_gradients_that_are_off_stay_off() -> None:
    forward = """
with torch.no_grad():
    scale = x.abs().max()
y = x / scale
for k in range(7):
    y = y * x.detach()
return y
"""
    checked("x", "x", forward.strip(), r(2, 3))


def test_the_code_is_the_users() -> None:
    text = draft_of(spec_of("a, x", forward=SCAN, derive=True))
    assert textwrap.indent(SCAN.strip(), " " * 8) in text


def test_the_note_says_where_a_loop_stands() -> None:
    derivation = derive(spec_of("x", forward=WHILE, derive=True))
    (note,) = derivation.notes
    assert note == (
        "--forward:4:1: autograd differentiates the forward as a whole: there is a loop"
    )


def test_the_forward_runs_again_once_for_all_inputs_that_are_there() -> None:
    stops = STATE.replace("return h", "    if t == 2:\n        break\nreturn h")
    text = draft_of(spec_of("x, w, h0?", forward=stops.strip(), derive=True))
    assert text.count("torch.func.vjp(") == 1
    assert 'needed["h0"] = h0' in text


@pytest.mark.parametrize("raises", [True, False])
def test_the_code_of_a_file(raises: bool) -> None:
    """Functions that it calls are written out, in loops too; what stays has its comments."""
    source = """
import torch


def step(y, row):
    y = y * row
    return y.cos() if raises else y


def forward(x):
    y = x[0]
    for row in x:
        # a step
        y = step(y, row)
    return y
"""
    source = source.replace("raises", str(raises))

    def read(path: str) -> str:
        return source

    table = {"inputs": "x", "forward": "@ops.py:forward", "derive": True}
    spec = build("some_op", table, locate, read=read)
    function = load(draft_of(spec, derive(spec))).SomeOpFunction
    steps = "y = x[0]\nfor row in x:\n    y = y * row" + "\n    y = y.cos()" * raises
    check_op(
        function, function.apply, reference(["x"], f"{steps}\nreturn y"), (r(3, 2),)
    )


def test_a_few_steps_are_derived() -> None:
    forward = "y = x\nfor c in (0.5, 2.0):\n    y = y * x + c\nreturn y"
    derivation = checked("x", "x", forward, r(2, 3))
    assert not derivation.notes


@pytest.mark.parametrize(
    ("forward", "steady"),
    [
        (SCAN, True),
        (EMA, True),
        (WHILE, True),
        (RAISES, True),
        ("y = x\nwhile y.sum() < 9:\n    y = y + 1\nreturn y * x", False),
        ("y = x * 2\nfor k in range(int(x.max())):\n    y = y + 1\nreturn y", False),
        (
            "y = x * 2\nfor k in x:\n    if k.sum() > 0:\n        y = y + k\nreturn y",
            False,
        ),
        ("y = [k if k.sum() > 0 else -k for k in x]\nreturn torch.stack(y)", False),
        ("y = torch.zeros(3)\nfor k in range(9):\n    y[k] = x[k]\nreturn y", False),
        ("y = torch.zeros(3)\nfor k in range(9):\n    y = y + x\nreturn y", True),
    ],
)
def test_what_looks_at_data_is_not_mapped(forward: str, steady: bool) -> None:
    inputs = "a, x, y, alpha: float = 0.5" if "alpha" in forward else "a, x, y"
    derivation = derive(spec_of(inputs, forward=forward.strip(), derive=True))
    assert (derivation.transforms, derivation.compiles) == (steady, steady)


@pytest.mark.parametrize(
    "line",
    [
        "x[0] = 1",
        "x += 1",
        "x.add_(1)",
        "y.mul_(2)",
        "rows[0].mul_(2)",
        "y = torch.exp(y, out=y)",
        "z = list(x)[0].exp_()",
        "z = torch.stack([row.exp_() for row in x])",
        "z = [a.exp_() for a, b in zip(x, y)]",
        "grown[-1] += 1",
    ],
)
def test_an_input_is_not_changed(line: str) -> None:
    forward = f"""
rows = list(x.unbind(0))
grown = []
y = x * 1
for t in range(9):
    {line}
    y = x[t]
    grown.append(y)
return y * 2
"""
    with pytest.raises(ScaffoldError, match="changes its input 'x' in place"):
        derive(spec_of("x", forward=forward.strip(), derive=True))


@pytest.mark.parametrize(
    "line",
    ["y += 1", "y[0] = 1", "y.add_(1)", "rows[0] = y", "n += 1", "grown[0] = x[0]"],
)
def test_what_the_forward_made_may_change(line: str) -> None:
    forward = f"""
rows = list(x.unbind(0))
grown = [None] * 9
n = 0
y = x * 1
for t in range(9):
    {line}
return y * 2
"""
    assert not derive(spec_of("x", forward=forward.strip(), derive=True)).missing


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("y = y + torch.rand_like(x)", "there is a loop"),
        ("y = y + F.dropout(x)", "there is a loop"),
        ("y = y + torch.from_numpy(x.numpy())", "calls code outside PyTorch"),
    ],
)
def test_what_cannot_run_again_is_not_derived(line: str, reason: str) -> None:
    forward = f"y = x\nfor t in range(9):\n    {line}\nreturn y * x"
    derivation = derive(spec_of("x", forward=forward, derive=True))
    assert derivation.missing == {"x"}
    assert "not derived" in derivation.notes[0] and reason in derivation.notes[0]


def test_inputs_among_several_results_are_returned_as_copies() -> None:
    forward = "y, z = x, w\nfor _ in range(power):\n    y = y * z\nreturn z.exp(), y, z"
    outputs = {"outputs": "a, b, c"}
    spec = spec_of("x, w, power: int", forward=forward, derive=True, **outputs)
    text = draft_of(spec, derive(spec))
    function = load(text).SomeOpFunction
    for power in (0, 2):
        values = (r(2, 3), r(3), power)
        check_op(
            function, function.apply, reference(["x", "w", "power"], forward), values
        )


def test_a_stated_gradient_stands_beside_a_loop() -> None:
    forward = "y = x\nfor t in range(9):\n    y = y * 2\nreturn y * w"
    spec = spec_of(
        "x, w", forward=forward, derive=True, grad={"x": "grad_output * w * 512"}
    )
    text = draft_of(spec, derive(spec))
    assert "lambda w: SomeOpFunction" in text
    function = load(text).SomeOpFunction
    check_op(
        function, function.apply, reference(["x", "w"], forward), (r(2, 3), r(2, 3))
    )


@pytest.mark.parametrize(
    ("steps", "last"),
    [
        ("y = x\nfor _ in range(power):\n    y = y * w", "y"),
        ("while x.sum() > 1e9:\n    x = x * w", "x"),
    ],
)
def test_an_input_that_no_round_changed_is_returned_as_a_copy(
    steps: str, last: str
) -> None:
    forward = f"{steps}\nreturn {last}"
    spec = spec_of("x, w, power: int", forward=forward, derive=True)
    op = load(draft_of(spec, derive(spec))).some_op
    x, w = r(2, 3).requires_grad_(), r(3).requires_grad_()
    found = op(x, w, 0)
    assert torch.equal(found, x) and found.data_ptr() != x.data_ptr()
    grad_x, grad_w = torch.autograd.grad(found.sum(), (x, w))
    assert torch.equal(grad_x, torch.ones_like(x)) and not grad_w.any()
