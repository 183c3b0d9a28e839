"""Test stubs: what the text tells is called, what it does not tell is a reason to skip."""

import ast
from pathlib import Path

import pytest

from scaffold.inspect import inspect_text
from scaffold.inspect.imported_names import snake_case
from scaffold.inspect.stubs import Source, Stub, write_stub
from scaffold.verify.question_text import function_questions
from tests.cli.running import scaffold
from tests.executed.suites import Suites
from tests.sweeps import pairs_in_every_run

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
    questions = function_questions()
    return write_stub(module, module.functions, Source("ops", "."), questions=questions)


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


CYCLE = """\
class Cycle(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.y = x.exp()
        return ctx.y

    @staticmethod
    def backward(ctx, g):
        return g * ctx.y
"""
HELD = CYCLE.replace("ctx.y = x.exp()", "ctx.y = x").replace(
    "return ctx.y", "return x * x / 2", 1
)
WIDE = """\
class Wide(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        return g * weight, g * x
"""
DOUBLES = SCALE.replace(
    "grad_output * ctx.factor",
    "grad_output @ torch.eye(grad_output.shape[-1], dtype=torch.double) * ctx.factor",
)
RANKED = """\
class Ranked(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.softmax(-1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return y * (g - (g * y).sum(1, keepdim=True))
"""
MAPPED = """\
class Mapped(Function):
    @staticmethod
    def forward(x, w):
        return x * w

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w, g * x

    @staticmethod
    def vmap(info, in_dims, x, w):
        return Mapped.apply(x, w[0] if in_dims[1] is not None else w), 0
"""
ORDERED = """\
class Ordered(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * g * torch.as_strided(x, x.shape, torch.empty(x.shape).stride())
"""
POSITIVE = """\
class Positive(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.abs()

    @staticmethod
    def backward(ctx, g):
        return g * 1
"""
# A fault; what the stub says of it; the check of `verify` that it fails.
FAULTS = [
    (KEPT, "silently wrong by", "second derivative"),
    (SHARED, "differs after a second call", "two calls before one backward"),
    (FORGETS, "differs in a second backward", "backward twice"),
    (
        SCALE.replace("return grad_output *", "return grad_output.mul_(2) * 0.5 *"),
        "backward changes grad_output in place",
        "grad_output stays as it is",
    ),
    (
        SCALE.replace("return x * factor", "return x.detach().mul_(factor) * 1"),
        "forward changes x in place",
        "inputs stay as they are",
    ),
    (
        SCALE.replace(
            "return grad_output *",
            "return grad_output * grad_output.is_contiguous() *",
        ),
        "wrong: reads memory in order",
        "gradient of a strided grad_output",
    ),
    (
        SCALE.replace("grad_output * ctx.factor", "grad_output.sign() * 2"),
        "grad_output is ignored",
        "gradient of a scaled grad_output",
    ),
    (LONELY, "differs, of output 0 alone", "gradient of one output alone"),
    (CYCLE, "an output stays in memory", "outputs are freed"),
    (HELD, "is changed after the forward", "input changed after the forward"),
    (WIDE, "autograd sums it silently", "shapes that backward returns"),
    (DOUBLES, "have the same dtype", "float32"),
    (RANKED, "of more dims", "other ranks"),
    (MAPPED, "another gradient than of each sample", "vmap of torch.func.grad"),
    (ORDERED, "is not contiguous: reads memory in order", "strided inputs"),
    (POSITIVE, "times -1", "gradient"),
    (WRONG, "Jacobian mismatch", "gradient"),
]


@pytest.mark.parametrize(
    ("code", "words", "check"), pairs_in_every_run(FAULTS, FAULTS[8:11])
)
def test_a_fault_fails_the_stub_and_verify(
    tmp_path: Path, code: str, words: str, check: str, suites: Suites
) -> None:
    (tmp_path / "ops.py").write_text(HEAD + code)
    verdict = scaffold(tmp_path, "verify", "ops.py")
    assert verdict.code == 1 and f"\n  {check}" in verdict.out, verdict.out
    assert scaffold(tmp_path, "test-stub", "ops.py").code == 0
    output = suites.run(tmp_path, "-q", "--no-header").output
    assert words in output, output


PLANTED = Path(__file__).parents[1] / "verify" / "functions"
# Their inputs are not found without a run, but for the last one: a mask that is drawn has the same values each time.
NOT_SEEN = {
    *("ScatterWrong", "ShuffleSame", "ComplexNoConj", "NumpyNoOnce", "NLLNoScale"),
    "DropoutEvalMask",
}
GROUP = 12  # Functions of one run


def groups() -> list[tuple[str, tuple[str, ...]]]:
    """The Functions that `verify` calls right, and those that it finds wrong, by file."""
    found = []
    for file in ("correct", "faulty"):
        text = (PLANTED / f"{file}.py").read_text()
        names = [x.name for x in ast.parse(text).body if isinstance(x, ast.ClassDef)]
        parts = range(0, len(names), GROUP)
        found += [(file, tuple(names[at : at + GROUP])) for at in parts]
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize(("file", "names"), groups())
def test_a_stub_says_what_verify_says(
    tmp_path: Path, file: str, names: tuple[str, ...], suites: Suites
) -> None:
    (tmp_path / "ops.py").write_text((PLANTED / f"{file}.py").read_text())
    assert scaffold(tmp_path, "test-stub", "ops.py").code == 0
    stems = {
        f"test_{snake_case(name)}_{kind}": name for name in names for kind in KINDS
    }
    report = suites.run(tmp_path, "-q", "--tb=line", "-k", " or ".join(stems))
    failed = {
        stems.get(x.partition("[")[0].split(".")[-1].split("::")[-1])
        for x in report.named("failed")
    }
    failed -= {None}
    assert failed == ({*names} - NOT_SEEN if file == "faulty" else set())


KINDS = ("gradients", "shapes", "in_training")


def test_what_is_not_asked_of_a_surrogate_is_told(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(HEAD + SPIKE)
    outcome = scaffold(tmp_path, "test-stub", "ops.py", "--stdout")
    assert "note: Spike: its gradient is meant to be another one" in outcome.err
    assert "second_derivative" not in outcome.out  # nor is what it needs written


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
        (SCALE + "\n\n" + AFFINE + "\n\n" + ONCE, "77 passed, 1 skipped"),
        (WRONG, "2 failed, 16 passed"),
        (SPIKE, "12 passed"),
        (LINEAR, "21 skipped"),
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
    assert pytest_says(tmp_path, suites) == "18 skipped"
