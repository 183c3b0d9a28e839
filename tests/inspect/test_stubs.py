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


def test_no_two_functions_share_the_names_of_their_tests() -> None:
    """The third is called as the second would be."""
    third = SCALE.replace("Scale(", "Scale_2(")
    text = stub(f"{SCALE}\n\n{SCALE}\n\n{third}").text
    names = [n.name for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
    assert len(names) == len({*names})


def test_a_stub_says_what_it_needs() -> None:
    made = stub(LINEAR)
    assert made.ready == ()
    needs = "shapes of x, weight; a value of stride; a value of target (torch.Tensor)"
    assert made.waiting == (("Linear", needs),)
    assert f"reason='needs {needs}'" in made.text


PLANTED = Path(__file__).parents[1] / "verify" / "functions"
# A faulty Function there; what the stub says of it; the check of `verify` that it fails.
FAULTS = [
    ("DetachedSecond", "silently wrong by", "second derivative"),
    (
        "TwoPassShared",
        "differs if the op is called twice",
        "two calls before one backward",
    ),
    ("SavedMutated", "differs in a second backward", "backward twice"),
    (
        "GradInplace",
        "backward changes grad_output in place",
        "grad_output stays as it is",
    ),
    ("InputInplace", "forward changes x in place", "inputs stay as they are"),
    (
        "RawMemory",
        "wrong: assumes contiguous memory",
        "gradient of a strided grad_output",
    ),
    (
        "LossIgnoresGrad",
        "ignores grad_output",
        "gradient of a scaled grad_output",
    ),
    (
        "OutputsApart",
        "differs, if only output 0 is used",
        "gradient of one output alone",
    ),
    ("OutputOnCtx", "an output stays in memory", "outputs are freed"),
    ("CtxInput", "is changed after the forward", "input changed after the forward"),
    (
        "RMSNormWeightNotReduced",
        "autograd sums it silently",
        "shapes that backward returns",
    ),
    ("DtypeBreaks", "have the same dtype", "float32"),
    ("LowPrecisionPath", "wrong in bfloat16", "bfloat16"),
    ("SoftmaxWrongDim", "for more dims", "other ranks"),
    ("ShuffleSame", "for other sizes", "other sizes"),
    (
        "VmapWrong",
        "its gradient differs from each sample's",
        "vmap of torch.func.grad",
    ),
    ("SavedOrder", "is not contiguous: assumes contiguous memory", "strided inputs"),
    ("AbsAtNegative", "times -1", "gradient"),
    ("WrongFactor", "Jacobian mismatch", "gradient"),
    ("NormAtZero", "not a number where the inputs are 0", "other values"),
    ("IgnoredInForward", "with ignore_index=1", "other values"),
    ("UsualEps", "with eps=0.01", "other arguments"),
    ("PoolOverwrites", "with stride=1", "other arguments"),
    (
        "RecordedFactor",
        "a different gradient with create_graph",
        "gradient with create_graph",
    ),
    ("OnlyPlainTensors", "differs in torch.func.grad", "torch.func.grad"),
    ("AutocastFactor", "wrong in autocast", "autocast"),
    ("CountedCalls", "its gradient differs under checkpoint", "checkpoint"),
]


def planted(*names: str, file: str = "faulty") -> str:
    """The text of some Functions, with what their file imports."""
    text = (PLANTED / f"{file}.py").read_text()
    kept = [
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        or getattr(node, "name", "") in names
    ]
    return "\n".join(ast.get_source_segment(text, node) or "" for node in kept)


@pytest.mark.parametrize(
    ("name", "words", "check"), pairs_in_every_run(FAULTS, FAULTS[12:15])
)
def test_a_fault_fails_the_stub_and_verify(
    tmp_path: Path, name: str, words: str, check: str, suites: Suites
) -> None:
    (tmp_path / "ops.py").write_text(planted(name))
    verdict = scaffold(tmp_path, "verify", "ops.py")
    assert verdict.code == 1 and f"\n  {check}" in verdict.out, verdict.out
    assert scaffold(tmp_path, "test-stub", "ops.py").code == 0
    output = suites.run(tmp_path, "-q", "--no-header").output
    assert words in output, output


def test_values_and_sizes_are_those_that_are_meant(
    tmp_path: Path, suites: Suites
) -> None:
    """A permutation stays one, halves are of one size, labels 0 or 1, limits positive, and a row is one."""
    names = ("PermutedRows", "Rotary", "FocalOfTargets", "LearnedBound", "DecayScan")
    (tmp_path / "ops.py").write_text(planted(*names, file="correct"))
    assert scaffold(tmp_path, "test-stub", "ops.py").code == 0
    report = suites.run(tmp_path, "-q", "-rf")
    assert not report.named("failed"), report.output
    stems = {x.partition("_in_training")[0] for x in report.named("passed")}
    assert all(any(snake_case(name) in stem for stem in stems) for name in names)


NOT_SEEN = {
    # Numbers that its forward draws, or a comparison there, may be why a gradient is a surrogate: it is not held against the derivative.
    *("DropoutEvalMask", "FirstOfBatch"),
    "MaxOfTies",  # at a tie there is no derivative that gradcheck could find
    "WrongTangent",  # no tangents are asked for
    "ComplexMatmulNoConj",  # real numbers alone are tried
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

THIRDS = """

class Gated(Function):
    @staticmethod
    def forward(ctx, gates, h):
        ctx.save_for_backward(*gates.chunk(3, 1))
        a, b, c = ctx.to_save
        return a + b * c + h

    @staticmethod
    def backward(ctx, grad_output):
        a, b, c = ctx.saved_tensors
        g = grad_output
        return torch.cat([g, g * c, g * b], 1), g
"""


LAYER = """

class Layer(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        return grad_output @ weight, x.t() @ grad_output
"""
CUT = """

class Cut(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x * 2 + y * 3

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output[1:] * 2, grad_output * 3
"""
ROWS = """

class Rows(Function):
    @staticmethod
    def forward(ctx, x, a):
        h, found = torch.zeros_like(x[0]), []
        for row in x:
            h = a * h + row
            found.append(h)
        y = torch.stack(found)
        ctx.save_for_backward(y, a)
        return y

    @staticmethod
    def backward(ctx, gy):
        y, a = ctx.saved_tensors
        g, ga, gx = torch.zeros_like(gy[0]), torch.zeros_like(a), []
        for t in reversed(range(len(y))):
            g = gy[t] + (a * g if gx else 0)
            gx.insert(0, g)
            if t > 0:
                ga = ga + (g * y[t - 1]).sum_to_size(a.shape)
        return torch.stack(gx), ga
"""


COLUMN = """

class Column(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x[INDEX] * 2 * w.sum()

    @staticmethod
    def backward(ctx, grad_output):
        x, w = ctx.saved_tensors
        gx = torch.zeros_like(x)
        gx[INDEX] = 2 * w.sum() * grad_output
        return gx, (2 * grad_output * x[INDEX]).sum().expand_as(w)
"""


@pytest.mark.parametrize(
    ("index", "wrong"), [(":, 7", False), ("-9", False), ("0, -13", True)]
)
def test_a_constant_index_tells_the_size(
    tmp_path: Path, index: str, wrong: bool, suites: Suites
) -> None:
    code = COLUMN.replace("INDEX", index)
    if wrong:
        code = code.replace(f"gx[{index}] = 2", f"gx[{index}] = 3")
    (tmp_path / "ops.py").write_text(HEAD + code)
    assert scaffold(tmp_path, "test-stub", "ops.py").code == 0
    report = suites.run(tmp_path, "-q", "-rsf")
    assert report.named("passed"), report.output
    assert bool(report.named("failed")) is wrong, report.output
    assert "out of bounds" not in report.output


@pytest.mark.parametrize(
    ("code", "failed", "reason"),
    [
        (THIRDS, False, "needs shapes of gates, h: nothing that was tried fits"),
        (ROWS, False, ""),
        (LAYER, True, ""),
        (CUT, True, ""),
    ],
    ids=["chance", "a row", "not transposed", "another shape"],
)
def test_gradients_of_another_shape_fail_unless_tensors_broadcast_by_chance(
    tmp_path: Path, code: str, failed: bool, reason: str, suites: Suites
) -> None:
    (tmp_path / "ops.py").write_text(HEAD + code)
    assert scaffold(tmp_path, "test-stub", "ops.py").code == 0
    report = suites.run(tmp_path, "-q", "-rsf")
    assert bool(report.named("failed")) == failed, report.output
    assert bool(report.named("passed")) == (code != THIRDS)
    assert reason in report.output


def test_what_is_not_asked_of_a_surrogate_is_told(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(HEAD + SPIKE)
    outcome = scaffold(tmp_path, "test-stub", "ops.py", "--stdout")
    assert (
        "note: Spike: its gradient differs from the derivative on purpose"
        in outcome.err
    )
    assert "second_derivative" not in outcome.out  # nor is what it needs written


def test_defaults_with_a_point_are_no_numbers() -> None:
    code = SCALE.replace("2.0", "(0.5, 2.0)").replace("* factor", "* factor[1]")
    assert "(0.5, 2.0)" in stub(code).text
    assert "load('a.b')" in stub(SCALE.replace("2.0", "a.b")).text.replace('"', "'")


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
        (SCALE + "\n\n" + AFFINE + "\n\n" + ONCE, "89 passed, 1 skipped"),
        (WRONG, "3 failed, 18 passed"),
        (SPIKE, "13 passed"),
        (LINEAR, "24 skipped"),
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
    assert pytest_says(tmp_path, suites) == "21 skipped"


PAIRS = """
class Pairs(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x @ y.t() / y.shape[0]

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        g = grad_output / x.shape[0]
        return g @ y, g.t() @ x
"""
SQUARE = """
class Square(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight / weight.shape[1]

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        g = grad_output / weight.shape[0]
        return g @ weight.t(), x.t() @ g
"""
VIEWED = """
class Viewed(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        rows = grad_output.view(-1, weight.shape[0])
        return grad_output @ weight, rows.t() @ x.reshape(-1, weight.shape[1])
"""
OF_ROWS = """
class OfRows(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return (x * x + y * y).sum(1).mean()

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return 2 * x * grad_output / len(x), 2 * y * grad_output / len(x)
"""
CHANCE = """
class Chance(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return (x - y).pow(2).sum() / x.numel()

    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        g = 2 * (x - y) * grad_output / y.numel()
        return g, -g.sum_to_size(y.shape)
"""


@pytest.mark.parametrize(
    ("code", "shapes"),
    [
        (PAIRS, "called with x (3, 4), y (5, 4): the gradient"),
        (SQUARE, "called with x (3, 4), weight (4, 5): the gradient"),
        (VIEWED, "called with x (2, 3, 4), weight (5, 4): view size"),
        (CHANCE, ""),
        (OF_ROWS, ""),
    ],
    ids=["equal sizes", "a square", "a batch", "broadcast", "rows"],
)
def test_all_is_asked_of_further_shapes_that_fit(
    tmp_path: Path, code: str, shapes: str, suites: Suites
) -> None:
    """A fault may need other shapes than the first that fit; a broadcast by chance is none, nor more dims than are meant."""
    (tmp_path / "ops.py").write_text(HEAD + code)
    verdict = scaffold(tmp_path, "verify", "ops.py")
    assert verdict.code == bool(shapes), verdict.out
    assert scaffold(tmp_path, "test-stub", "ops.py").code == 0
    report = suites.run(tmp_path, "-q", "-rsf", "-k", "needed0 or strided_grad")
    assert bool(report.named("failed")) == bool(shapes), report.output
    assert report.named("passed") and shapes in report.output
