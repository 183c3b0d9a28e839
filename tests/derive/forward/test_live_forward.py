"""Locals of the forward in the backward: computed again, or saved."""

from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from scaffold.derive import Derivation, derive
from scaffold.errors import ScaffoldError
from scaffold.formula import emit, emit_lines
from tests.derive.building import backward_of, importable, load, op_text, spec_of

KERNELS = {"kernels": {"run": None}}


def derived(
    forward: str, backward: str, inputs: str = "x, p: float", **raw: Any
) -> Derivation:
    with importable(**KERNELS):
        return derive(spec_of(inputs, forward=forward, backward=backward, **raw))


def handed(forward: str, backward: str, **raw: Any) -> tuple[set[str], set[str]]:
    """What is saved, and what the backward assigns."""
    found = derived(forward, backward, **raw)
    saved = {item.name for item in found.saved}
    lines = [line for block in found.blocks for line in emit_lines(block.statements)]
    names = {line.split(" = ")[0].strip() for line in lines if " = " in line}
    return saved, names - {"grad_x"}


@pytest.mark.parametrize(
    ("forward", "saved", "repeated"),
    [
        # computed again from the input
        ("h = x.sin()\nreturn h * 2", {"x"}, {"h"}),
        ("k = x * 2\nh = k.sin()\nreturn h * 2", {"x"}, {"k", "h"}),
        # of several results some are outputs, and stay as they are
        ("v, i = x.topk(2)\nh = v * i\nreturn i", {"x", "i"}, {"v, _i", "h"}),
        # an output is at hand
        ("h = x.sin()\nreturn h", {"h"}, set()),
        ("y = x.exp()\nh = y * 2\nreturn y", {"y"}, {"h"}),
        # random numbers, kernels and objects are not run twice
        ("h = torch.rand_like(x)\nreturn h * x", {"h"}, set()),
        ("k = torch.rand_like(x)\nh = k * x\nreturn h * 2", {"k", "x"}, {"h"}),
        # a number is no tensor
        ("h = x.shape[0] * p\nreturn x * h", set(), {"h"}),
        # an early value has the name, where the later one is not there
        ("t = x.sin()\nh = t * 2\nt = x.cos()\nreturn t * h", {"x"}, {"t", "h"}),
        # and one of its own, where it is handed over
        (
            "t = torch.rand_like(x)\nh = t * x\nt = x.cos()\nreturn t * h",
            {"first_t", "x"},
            {"h"},
        ),
        # names that are not read again
        (
            "h, m = x.sin(), x.cos()\nm = torch.rand_like(x)\nreturn h * m",
            {"x"},
            {"h"},
        ),
    ],
)
def test_what_comes_again(forward: str, saved: set[str], repeated: set[str]) -> None:
    found = handed(forward, "grad_x = grad_output * h")
    assert found == (saved, repeated)


@pytest.mark.parametrize(
    ("forward", "saved"),
    [
        ("h = x.sin()\nreturn h * 2", {"h"}),
        ("h = x.contiguous()\nreturn h * 2", {"x"}),  # it may be the input itself
        ("k = x\nh = k\nreturn h * 2", {"x"}),
        ("h = x.shape[0]\nreturn x * h", set()),
        ("parts = x.chunk(2)\nh = parts[0]\nreturn h * 2", {"h"}),
    ],
)
@pytest.mark.parametrize(
    "policy",
    [
        {"once_differentiable": True},
        {"once_differentiable": True, "save_policy": "recompute"},
    ],
)
def test_tensors_are_saved_where_that_is_asked(
    forward: str, saved: set[str], policy: dict[str, Any]
) -> None:
    assert handed(forward, "grad_x = grad_output * h", **policy)[0] == saved


@pytest.mark.parametrize(
    ("forward", "once"),
    [
        ("h = x.sin()\nreturn h * 2", False),
        ("h = torch.rand_like(x)\nreturn h * x", False),
        ("h = torch.rand_like(x) * x\nreturn h * x", True),
        ("h = F.dropout(x)\nreturn h * 2", True),
        ("h = x.sum().item()\nreturn x * h", True),
        (
            "h = torch.zeros_like(x) + torch.rand_like(x)\nrow = h[0]\nrow += x[0]\nreturn h * 2",
            True,
        ),
        (
            "if p > 2:\n    h = torch.rand_like(x)\n    k = x * h\nelse:\n    h = torch.ones_like(x)\n    k = x\nreturn k * 2",
            False,
        ),
    ],
)
def test_a_constant_that_carries_a_gradient_allows_no_second_derivative(
    forward: str, once: bool
) -> None:
    backward = "grad_x = grad_output * h"
    assert derived(forward, backward).once_differentiable is once


@pytest.mark.parametrize("policy", ["recompute", "balanced"])
@pytest.mark.parametrize("style", ["setup-context", "combined"])
@pytest.mark.parametrize("once", [{"once_differentiable": True}, {}])
def test_what_the_backward_names_is_there(
    policy: str, style: str, once: dict[str, bool]
) -> None:
    options = {"save_policy": policy, "style": style, "derive": True, **once}
    lines = "y = torch.exp(x) @ w.view(2, 3)\nreturn y.sin()"
    op = load(op_text("x, w", forward=lines, **options)).some_op
    x, w = torch.randn(4, 2, requires_grad=True), torch.randn(6, requires_grad=True)
    expected = torch.autograd.grad((x.exp() @ w.view(2, 3)).sin().sum(), (x, w))
    found = torch.autograd.grad(op(x, w).sum(), (x, w))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("style", ["setup-context", "combined"])
def test_the_shape_of_a_part_is_none_that_is_kept_of_the_whole(style: str) -> None:
    lines = "y = x @ w\nreturn y[:, :, :3, 0]"
    text = op_text("x, w", forward=lines, derive=True, style=style)
    op = load(text).some_op
    x = torch.randn(2, 2, 4, 3, requires_grad=True)
    w = torch.randn(3, 5, requires_grad=True)
    expected = torch.autograd.grad((x @ w)[:, :, :3, 0].sum(), (x, w))
    torch.testing.assert_close(torch.autograd.grad(op(x, w).sum(), (x, w)), expected)


def test_kernels_of_the_users_are_run_once() -> None:
    raw = {"import_": ["kernels:run"]}
    saved, names = handed("y, h = run(x)\nreturn y", "grad_x = grad_output * h", **raw)
    assert saved == {"h"}
    assert not names


def test_an_object_is_called_once() -> None:
    raw = {"inputs": "x, fn: object"}
    saved, _ = handed("h = fn(x)\nreturn h * 2", "grad_x = grad_output * h", **raw)
    assert saved == {"h"}


def test_the_forward_keeps_the_users_names_where_it_can() -> None:
    found = derived("h = x.sin()\nh = h * 2\nreturn h + p", "grad_x = grad_output * h")
    assert found.forward is not None
    assert emit_lines(found.forward) == ["h = x.sin()", "h = h * 2"]


def test_a_saved_early_value_has_its_name_in_the_forward_too() -> None:
    found = derived(
        "t = torch.rand_like(x)\nh = t * x\nt = x.cos()\nreturn t * h",
        "grad_x = grad_output * h",
    )
    assert found.forward is not None
    assert emit_lines(found.forward)[0] == "first_t = torch.rand_like(x)"
    assert found.intermediates == ("first_t",)


def test_what_only_a_branch_makes_is_saved_all_the_same() -> None:
    found = derived(
        "if p > 2:\n    m = torch.rand_like(x)\n    y = x * m\nelse:\n    y = x * 2\nreturn y",
        "grad_x = grad_output * (m if p > 2 else 2)",
    )
    assert found.forward is not None
    assert emit_lines(found.forward)[:2] == [
        "# something to save where no branch assigns it",
        "m = x.new_empty(0)",
    ]


def test_a_choice_that_gives_the_result_comes_again_in_part() -> None:
    forward = (
        "if p == 2:\n    y = x * 2\nelse:\n    b = abs(p - 2)\n    y = x * b\nreturn y"
    )
    found = derived(forward, "grad_x = grad_output * (2 if p == 2 else b)")
    lines = [line for block in found.blocks for line in emit_lines(block.statements)]
    assert lines[:2] == ["if ctx.p != 2:", "    b = abs(ctx.p - 2)"]
    assert not found.saved


def test_the_backward_reads_what_was_repeated() -> None:
    text = op_text(
        "x, p: float",
        forward="# the scale\nh = x.sin()\nreturn h * p",
        grad={"x": "grad_output * h"},
    )
    assert backward_of(text) == (
        "if grad_output.dtype.is_complex:\n"
        '    raise TypeError("some_op: x must be real")\n'
        "(x,) = ctx.saved_tensors\n# the scale\nh = x.sin()\nreturn grad_output * h, None"
    )


def test_a_view_of_a_result_is_returned_as_a_copy() -> None:
    found = derived(
        "h = torch.rand_like(x)\nm = F.dropout(h)\nreturn h",
        "grad_x = grad_output * m",
    )
    assert [emit(node) for node in found.extra] == ["m.clone()"]


def test_an_input_that_may_be_saved_as_a_local_is_saved_as_a_view() -> None:
    found = derived("m = F.dropout(x, p)\nreturn m * 2", "grad_x = grad_output * m")
    assert [emit(node) for node in found.extra] == ["m.view_as(m)"]


def test_what_cannot_be_saved_is_an_error_with_a_hint() -> None:
    with pytest.raises(ScaffoldError) as caught:
        derived("h = torch.rand(1).item()\nreturn x * h", "grad_x = grad_output * h")
    assert str(caught.value) == (
        "--backward: the backward needs 'h', which is not a tensor and cannot be recomputed\n"
        "hint: make it a tensor, or compute h in the backward"
    )


def test_what_a_result_was_before_comes_again_under_another_name() -> None:
    lines = """
h = x * w
if p:
    s = h.exp().sum(-1, keepdim=True)
    h = h * s.tanh()
h = h + 1
if q:
    c = h.sin()
    h = c * h
return h
"""
    spec = "x, w, p: bool = True, q: bool = True"
    text = op_text(spec, forward=lines.strip(), derive=True)
    assert "once_differentiable" not in text and "new_empty" not in text
    function = load(text).SomeOpFunction
    x, w = torch.randn(2, 3, 4, dtype=torch.double).requires_grad_().unbind()
    for p, q in product((True, False), repeat=2):
        call = partial(_called_with, function, p, q)
        assert gradcheck(call, (x, w)) and gradgradcheck(call, (x, w))


def _called_with(
    function: Any, p: bool, q: bool, *tensors: torch.Tensor
) -> torch.Tensor:
    result: torch.Tensor = function.apply(*tensors, p, q)
    return result
