"""Test stubs: what the text tells is called, what it does not tell is a reason to skip."""

import ast
from pathlib import Path

import pytest

from scaffold.inspect import inspect_text
from scaffold.inspect.stubs import Source, Stub, write_stub
from tests.cli.running import scaffold
from tests.executed.suites import Suites

HEAD = "import torch\nfrom torch.autograd import Function\n\n\n"
SCALE = """\
class Scale(Function):
    @staticmethod
    def forward(ctx, x, factor=2.0):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.factor, None
"""
WRONG = SCALE.replace("grad_output * ctx.factor", "grad_output * ctx.factor * 2")
AFFINE = """\
class Affine(Function):
    @staticmethod
    def forward(ctx, x, scale, shift=None):
        ctx.save_for_backward(x, scale)
        y = torch.mul(x, scale)
        return y if shift is None else y + shift

    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        return g * scale, g * x, g if ctx.needs_input_grad[2] else None
"""
LINEAR = """\
class Linear(Function):
    @staticmethod
    def forward(ctx, x, weight, stride, target: torch.Tensor):
        return kernels.run(x, weight, stride, target)

    @staticmethod
    def backward(ctx, g):
        return g * 1, g * 1, None, None
"""
SPIKE = """\
class Spike(Function):
    @staticmethod
    def forward(ctx, x, slope):
        ctx.save_for_backward(x)
        ctx.slope = slope
        return (x > 0.5).float()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g / (ctx.slope * x.abs() + 1.0) ** 2, None


def spike(x, slope=25.0):
    return Spike.apply(x, slope)
"""
ONCE = """\
class Once(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


once = Once.apply
"""


def stub(code: str) -> Stub:
    module = inspect_text(HEAD + code, "ops.py")
    return write_stub(module, module.functions, Source("ops", "."))


def test_what_is_called_is_what_the_code_base_calls() -> None:
    assert 'load("spike")' in stub(SPIKE).text.replace("'", '"')
    assert "load('once')" in stub(ONCE).text
    assert "load('Scale').apply" in stub(SCALE).text


def test_a_stub_says_what_it_needs() -> None:
    made = stub(LINEAR)
    assert made.ready == ()
    needs = "shapes of x, weight; a value of stride; a value of target (torch.Tensor)"
    assert made.waiting == (("Linear", needs),)
    assert f"reason='needs {needs}'" in made.text


KEPT = """\
class Kept(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.slope = x.cos()
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        return g * ctx.slope
"""
SHARED = """\
class Shared(Function):
    @staticmethod
    def forward(ctx, x):
        Shared.x = x
        return x * x, x * 1

    @staticmethod
    def backward(ctx, g, h):
        return g * 2 * Shared.x + h
"""
LONELY = """\
class Lonely(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 1, x * 3

    @staticmethod
    def backward(ctx, g, h):
        return 2 * g if h is None else 3 * h if g is None else g + 3 * h
"""
FORGETS = """\
class Forgets(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.slope = torch.ones_like(x)
        return x * 1

    @staticmethod
    def backward(ctx, g):
        slope, ctx.slope = ctx.slope, 2 * ctx.slope
        return g * slope
"""


@pytest.mark.parametrize(
    ("code", "faults"),
    [
        (KEPT, ["the second derivative is silently wrong"]),
        (SHARED, ["a second call changes the gradient of the first one"]),
        (FORGETS, ["a second backward gives another gradient"]),
        (
            SCALE.replace("return grad_output *", "return grad_output.mul_(2) * 0.5 *"),
            ["backward changes grad_output in place"],
        ),
        (
            SCALE.replace("return x * factor", "return x.detach().mul_(factor) * 1"),
            ["an input is changed in place"],
        ),
        (
            SCALE.replace(
                "return grad_output *",
                "return grad_output * grad_output.is_contiguous() *",
            ),
            ["a strided grad_output for a contiguous one", "an expanded grad_output"],
        ),
        (
            SCALE.replace("grad_output * ctx.factor", "grad_output.sign() * 2"),
            ["for twice the grad_output the gradient is not twice as large"],
        ),
        (
            LONELY,
            ["another gradient where output 0 alone is used"],
        ),
    ],
)
def test_a_fault_fails_the_test_and_is_named(
    tmp_path: Path, code: str, faults: list[str], suites: Suites
) -> None:
    (tmp_path / "ops.py").write_text(HEAD + code)
    assert scaffold(tmp_path, "test-stub", "ops.py").code == 0
    output = suites.run(tmp_path, "-q", "--no-header").output
    assert all(fault in output for fault in faults), output


def test_what_is_not_asked_of_a_surrogate_is_told(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(HEAD + SPIKE)
    outcome = scaffold(tmp_path, "test-stub", "ops.py", "--stdout")
    assert "note: Spike: its gradient is meant to be another one" in outcome.err
    assert "second_derivative" not in outcome.out


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (
            "def make():\n" + "".join(f"    {x}\n" for x in SCALE.split("\n")),
            "inside make",
        ),
        (SCALE.replace("grad_output * ctx.factor, None", "None, None"), "gives none"),
        (SCALE.replace("factor=2.0", "*factors"), "*factors"),
        (SCALE.replace("factor=2.0", "*, factor"), "keyword factor"),
        (
            "from a import Base\n"
            + SCALE.replace("(Function)", "(Base)").replace("forward", "run"),
            "inherited from another file",
        ),
    ],
)
def test_what_cannot_be_called_is_skipped(code: str, reason: str) -> None:
    made = stub(code)
    ((_, needs),) = made.waiting
    assert reason in needs
    ast.parse(made.text)


def pytest_says(directory: Path, suites: Suites) -> str:
    output = suites.run(directory, "-q", "--no-header").output
    return output.strip().splitlines()[-1].split(" in ")[0]


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (SCALE + "\n\n" + AFFINE + "\n\n" + ONCE, "41 passed, 1 skipped"),
        (WRONG, "1 failed, 8 passed"),
        (SPIKE, "7 passed"),
        (LINEAR, "12 skipped"),
    ],
    ids=["right", "wrong", "surrogate", "open"],
)
def test_the_stub_runs(tmp_path: Path, code: str, result: str, suites: Suites) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "ops.py").write_text(HEAD + code)
    outcome = scaffold(tmp_path, "test-stub", "src/ops.py", "--out-dir", "tests")
    assert outcome.code == 0, outcome.err
    assert outcome.out == "create  tests/test_ops_gradients.py\n"
    assert pytest_says(tmp_path, suites) == result


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    "line",
    [
        "import no_such_module",
        "raise RuntimeError('no GPU')",
        "import sys; sys.exit('a script')",
        "class Panic(BaseException): pass\nraise Panic('of a native library')",
        "import pytest; pytest.skip('not here', allow_module_level=True)",
        "x = = 1",
    ],
    ids=["missing", "error", "exit", "panic", "skip", "syntax"],
)
def test_an_import_that_fails_in_any_way_is_a_skip(
    tmp_path: Path, line: str, suites: Suites
) -> None:
    (tmp_path / "ops.py").write_text(HEAD + SCALE)
    assert scaffold(tmp_path, "test-stub", "ops.py").code == 0
    (tmp_path / "ops.py").write_text(f"{line}\n{HEAD}{SCALE}")
    assert pytest_says(tmp_path, suites) == "9 skipped"
