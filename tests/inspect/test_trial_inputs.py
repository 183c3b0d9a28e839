"""What a test can call a Function with: what the text states, and what is missing."""

from pathlib import Path

import pytest

from scaffold.inspect import inspect_text
from scaffold.inspect.facts import Facts
from scaffold.inspect.pure_torch import is_torch
from scaffold.inspect.surrogates import is_rough
from scaffold.inspect.trial_inputs import arguments, guessed, shapes_for
from tests.cli.running import scaffold
from tests.executed.suites import Suites
from tests.inspect.test_stubs import (
    AFFINE,
    HEAD,
    SCALE,
    SPIKE,
    pytest_says,
    stub,
)
from tests.inspect.test_stubs import (
    LINEAR as STRIDED,
)
from tests.sweeps import in_every_run


def given(code: str) -> list[tuple[str, str]]:
    module = inspect_text(HEAD + code, "ops.py")
    function, *_ = module.functions
    return [(a.kind, a.text) for a in arguments(Facts(function, module))]


def test_arguments_come_from_gradients_defaults_and_calls() -> None:
    assert given(SCALE) == [("tensor", ""), ("value", "2.0")]
    assert given(AFFINE) == [("tensor", ""), ("tensor", ""), ("optional", "")]
    assert given(SPIKE) == [("tensor", ""), ("value", "25.0")]
    assert given(STRIDED)[2:] == [
        ("missing", "a value of stride"),
        ("missing", "a value of target (torch.Tensor)"),
    ]


LINEAR = """\
class Linear(Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return times(x, weight) + bias

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        return g @ weight, g.t() @ x, g.sum(0)


def times(x, weight):
    return x @ weight.t()
"""
PRODUCT = """\
class Product(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return torch.mm(a, b)

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g.mm(b.t()), a.t().mm(g)
"""
TRANSPOSED = PRODUCT.replace("g.mm(b.t())", "b.mm(g.t()).t() * 2")
SHIFT = """\
class Shift(Function):
    @staticmethod
    def forward(ctx, x, mask, scale: float, shift: int):
        ctx.save_for_backward(mask)
        ctx.scale = scale
        return torch.where(mask, x * scale, x[:, :1] + shift)

    @staticmethod
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        zero = torch.zeros_like(g)
        grad = torch.where(mask, g * ctx.scale, zero)
        grad[:, 0] += torch.where(mask, zero, g).sum(1)
        return grad, None, None, None
"""
PICK = """\
class Pick(Function):
    @staticmethod
    def forward(ctx, x, index):
        ctx.save_for_backward(index)
        ctx.size = x.shape
        return x[index] * 1

    @staticmethod
    def backward(ctx, g):
        (index,) = ctx.saved_tensors
        grad = g.new_zeros(ctx.size)
        return grad.index_add(0, index, g), None
"""
NEVER = """\
class Never(Function):
    @staticmethod
    def forward(ctx, x):
        return x[:, :, :, :, :, 0] * 2

    @staticmethod
    def backward(ctx, g):
        return g.unsqueeze(5) * 2
"""
IN_PLACE = """\
class Double(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 2
"""
KERNEL = LINEAR.replace("x @ weight.t()", "kernels.times(x, weight)")
REVERSED = """\
class Reversed(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -g
"""


def facts(code: str) -> Facts:
    module = inspect_text(HEAD + code, "ops.py")
    return Facts(module.functions[0], module)


TRIED = {
    "linear": (LINEAR, "22 passed, 2 skipped"),
    "product": (PRODUCT, "20 passed, 3 skipped"),
    "wrong": (TRANSPOSED, "3 failed, 17 passed, 3 skipped"),
    "masked": (SHIFT, "19 passed, 2 skipped"),
    "index": (PICK, "19 passed, 2 skipped"),
    "never": (NEVER, "21 skipped"),
    "in-place": (IN_PLACE, "19 passed"),
    "kernel": (KERNEL, "24 skipped"),
    "reversed": (REVERSED, "13 passed"),
}


@pytest.mark.parametrize(
    "name", in_every_run(TRIED, ["wrong", "index", "in-place"], pytest.mark.each_commit)
)
def test_what_fits_is_checked(tmp_path: Path, name: str, suites: Suites) -> None:
    code, result = TRIED[name]
    (tmp_path / "ops.py").write_text(HEAD + code)
    assert scaffold(tmp_path, "test-stub", "ops.py").code == 0
    assert pytest_says(tmp_path, suites) == result


def test_the_reason_to_skip_says_what_is_needed(tmp_path: Path) -> None:
    assert "fitting(apply, never_arguments, 'shapes of x')" in stub(NEVER).text
    assert stub(PICK.replace("index)", "index, *rest)")).waiting == (
        ("Pick", "shape and dtype of index; *rest"),
    )


def test_a_note_says_how_many_try(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(f"{HEAD}{LINEAR}\n\n{PICK}\n\n{SCALE}")
    outcome = scaffold(tmp_path, "test-stub", "ops.py", "--dry-run")
    assert (
        "1 can run as they are, 2 try inputs that may fit, 0 are skipped" in outcome.err
    )


def test_numbers_and_masks_are_guessed_and_codes_are_not() -> None:
    assert [(a.kind, a.text) for a in guessed(facts(SHIFT))] == [
        *(("tensor", ""), ("constant", "mask"), ("value", "0.5"), ("value", "2")),
    ]
    assert guessed(facts(PICK))[1].kind == "missing"


@pytest.mark.parametrize(
    ("parameter", "kind", "text"),
    [
        ("x", "tensor", ""),  # the code says it
        ("value: Tensor", "tensor", ""),  # the annotation
        ("value: torch.Tensor", "tensor", ""),
        ("mask: Tensor", "constant", "mask"),
        ("scale: float", "value", "0.5"),
        ("scale: int", "value", "2"),
        ("flag: bool", "value", "False"),
        ("y_min: float", "value", "0.25"),
        ("upper: float", "value", "0.75"),
        ("y_min", "value", "0.25"),
        ("y_max", "value", "0.75"),
        ("y_max: int", "value", "2"),
        ("gamma", "value", "2.0"),
        ("sigma", "value", "0.5"),
        ("num_groups: int", "value", "2"),
        ("thing", "missing", "a value of thing"),
        ("gamma: Gamma", "missing", "a value of gamma (Gamma)"),
        ("row_index: Tensor", "missing", "a value of row_index (Tensor)"),
        ("size_min: float", "missing", "a value of size_min (float)"),
        ("*rest", "missing", "*rest"),
    ],
)
def test_what_is_guessed_of_a_parameter(parameter: str, kind: str, text: str) -> None:
    beside = f", {parameter}" if parameter != "x" else ""
    code = f"""\
class Twice(Function):
    @staticmethod
    def forward(ctx, x{beside}):
        return x.exp()

    @staticmethod
    def backward(ctx, g):
        return gradients(g)
"""
    found = guessed(facts(code))[-1]
    assert (found.kind, found.text) == (kind, text)


@pytest.mark.parametrize("name", ["mask", "value"])
def test_a_tensor_without_a_gradient_is_a_constant(name: str) -> None:
    code = SHIFT.replace("mask", name)
    assert guessed(facts(code))[1] == (name, "constant", "mask" * (name == "mask"))


@pytest.mark.parametrize(
    ("code", "plain"),
    [
        (LINEAR, True),
        (KERNEL, False),
        (PRODUCT.replace("torch.mm(", "torch.ops.mine.mm("), False),
        (PRODUCT.replace("torch.mm(a, b)", "kernel[(1,)](a, b)"), False),
        (PRODUCT.replace("torch.mm(", "mm("), False),
        (LINEAR.replace("def times", "@triton.jit\ndef times"), False),
        (LINEAR.replace("def times", "@torch.jit.script\ndef times"), True),
    ],
)
def test_what_is_called_is_followed(code: str, plain: bool) -> None:
    assert is_torch(facts(code)) == plain


@pytest.mark.parametrize(
    ("code", "rough"),
    [
        (LINEAR, False),
        (IN_PLACE, False),
        (REVERSED, True),
        (LINEAR.replace("x @ weight.t()", "(x @ weight.t()).round()"), True),
        (LINEAR.replace("x @ weight.t()", "torch.bernoulli(x)"), True),
        (LINEAR.replace("class Linear", "class LinearSTE"), True),
        (LINEAR.replace("class Linear", "class Stellar"), False),
    ],
)
def test_what_is_meant_as_a_surrogate(code: str, rough: bool) -> None:
    assert is_rough(facts(code)) == rough


def test_names_suggest_shapes() -> None:
    assert shapes_for(["x", "weight", "bias"])[0] == ((3, 4), (5, 4), (5,))
    assert shapes_for(["x"])[0] == ((3, 4),)
    assert ((3, 4), (4, 5)) in shapes_for(["a", "b"])
