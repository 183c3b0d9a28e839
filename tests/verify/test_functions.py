"""Functions that were written by hand are judged: no correct one fails, and of a faulty one the fault is told.

What is told of the faulty ones stands in `functions/faulty.txt`; SCAFFOLD_REGENERATE=1 writes it anew.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scaffold.project.function_verdicts import Question, Stated, judge
from scaffold.project.hand_written import find_functions
from scaffold.verify import Verdict

HERE = Path(__file__).with_name("functions")
GOLDEN = HERE / "faulty.txt"
LIMIT = 60
# A default run asks of these alone.
FAULTY = (
    *("RawMemory", "DetachedSecond", "MaxOfTies", "MeanOfNone"),
    *("UsualEps", "MaxOfEmptyGroups", "BiasUnlessNeeded", "DistanceAtZero"),
    *("Float32Buffer", "PowersToThree", "WrongTangent", "FallingRows"),
    *("UnsortedByItsOrder", "RecordedFactor", "OnlyPlainTensors"),
    *("AutocastFactor", "CountedCalls"),
)
CORRECT = (
    *("RoundSTE", "NumpySort", "SingleGradient", "ForExport", "GatedBound"),
    *("ModReLU", "BackwardAlone", "PermutedRows"),
    *("OneScale", "ExpOfBounded", "CountedMean", "PolarForm", "CopiedSum"),
    *("JvpOfFourier", "JvpInFloat32", "RealGain", "LatentCost", "AttachedLoss"),
)
# Digits that another version of PyTorch may change.
UNSTABLE = re.compile(r"largest difference.*? instead of \S+|by \d+%|factor [\d./]+")


def verdicts(names: tuple[str, ...] = ()) -> Iterator[tuple[str, Verdict]]:
    """Those of all Functions, or of some, the correct ones first; one process judges them."""
    questions = [
        Question(meant, function, Stated())
        for meant in find_functions((str(HERE),)).meant
        for function in meant.functions
        if function.name in names or not names
    ]
    found = judge(questions, sys.executable, LIMIT, 1)
    return zip([one.function.name for one in questions], found, strict=True)


def told(name: str, verdict: Verdict) -> str:
    """What failed, as the golden file has it."""
    failed = [one for one in verdict.checks if one.status == "failed"]
    lines = [f"  {x.name}: {UNSTABLE.sub('...', x.words)}: {x.line}" for x in failed]
    return "\n".join([name, *lines, ""])


def expected() -> dict[str, str]:
    """The paragraphs of the golden file by the names of the Functions."""
    paragraphs = GOLDEN.read_text().split("\n\n")
    return {text.partition("\n")[0]: text.strip() + "\n" for text in paragraphs}


def check(names: tuple[str, ...] = ()) -> None:
    """Hold what is told of some Functions, or of all, against the golden file."""
    known = expected()
    for name, verdict in verdicts(names):
        assert told(name, verdict) == known.get(name, f"{name}\n")
        assert verdict.failure is None


def test_faults_are_told_and_nothing_else() -> None:
    check((*CORRECT, *FAULTY))


@pytest.mark.exhaustive
def test_every_fault_is_told_and_nothing_else() -> None:
    if os.environ.get("SCAFFOLD_REGENERATE"):
        every = [told(name, verdict) for name, verdict in verdicts()]
        GOLDEN.write_text("\n".join(text for text in every if "\n  " in text))
    else:
        check()


def test_the_golden_file_has_every_faulty_function() -> None:
    (meant,) = find_functions((str(HERE / "faulty.py"),)).meant
    assert {function.name for function in meant.functions} == expected().keys()


SCALE = """
from torch.autograd import Function


class Scale(Function):
    @staticmethod
    def forward(ctx, x):
        return x * TWO

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * TWO
"""


def test_a_file_is_judged_without_its_package_if_that_cannot_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file that cannot be imported itself, its own missing import is told."""
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("import no_such_package\n")
    (package / "parts.py").write_text("TWO = 2\n")
    (package / "alone.py").write_text(f"from .parts import TWO\n{SCALE}")
    (package / "kernels.py").write_text(f"import no_such_triton\n{SCALE}")
    meant = find_functions((str(package),)).meant
    questions = [Question(x, f, Stated()) for x in meant for f in x.functions]
    alone, kernels = judge(questions, sys.executable, LIMIT, 1)
    words = "No module named 'no_such_package' (package/__init__.py:1)"
    assert not alone.failure and alone.cases
    assert alone.notes[-1].endswith(words)
    assert kernels.failure is not None
    assert kernels.failure.words.endswith(
        "No module named 'no_such_triton' (package/kernels.py:1)"
    )
    assert kernels.failure.hint.startswith("install no_such_triton")


SUM = """
import torch
from torch.autograd import Function


class Weighted(Function):
    @staticmethod
    def forward(ctx, weigh, *tensors):
        ctx.weigh = weigh
        return sum(map(weigh, tensors))

    @staticmethod
    def backward(ctx, grad_output):
        return None, ctx.weigh(grad_output), ctx.weigh(grad_output)


def calls():
    return (lambda x: 2 * x), torch.randn(2, 3), torch.randn(2, 3)
"""


def test_samples_have_several_values_of_a_variadic_input(tmp_path: Path) -> None:
    path = tmp_path / "sums.py"
    path.write_text(SUM)
    (meant,) = find_functions((f"{path}:Weighted",)).meant
    stated = Stated(samples=f"@{path}:calls")
    questions = [Question(meant, function, stated) for function in meant.functions]
    (verdict,) = judge(questions, sys.executable, LIMIT, 1)
    assert verdict.failure is None
    assert verdict.call.endswith("tensors[0] (2, 3), tensors[1] (2, 3)")
    assert {one.status for one in verdict.checks} == {"passed", "skipped"}


SHARED = """
import torch
from torch.autograd import Function


class Scaled(Function):
    @staticmethod
    def forward(ctx, x, power=2.0):
        Scaled.largest = x.abs().max()
        ctx.power = power
        return x * Scaled.largest.detach() ** power

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * Scaled.largest**ctx.power, None


def plain(x, power=2.0):
    return x * x.abs().max().detach() ** power


def calls():
    return (torch.randn(2, 3),)
"""


def test_samples_may_omit_defaults_and_calls_differ(tmp_path: Path) -> None:
    """The second of two calls has other numbers, though there is one sample."""
    path = tmp_path / "shared.py"
    path.write_text(SHARED)
    (meant,) = find_functions((f"{path}:Scaled",)).meant
    stated = Stated(samples=f"@{path}:calls", reference=f"{path}:plain")
    questions = [Question(meant, function, stated) for function in meant.functions]
    (verdict,) = judge(questions, sys.executable, LIMIT, 1)
    assert verdict.call.endswith("power=2.0")
    failed = [one.name for one in verdict.checks if one.status == "failed"]
    assert failed[0] == "two calls before one backward"


FORGOTTEN = """
from torch.autograd import Function


class Mul(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(w)
        return x * w

    @staticmethod
    def backward(ctx, grad_output):
        (w,) = ctx.saved_tensors
        return grad_output * w, None


class Shift(Function):
    @staticmethod
    def forward(ctx, x, shift):
        return (x + shift) - shift

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


def plain(x, w):
    return x * w


def frozen(x, w):
    return x * w.detach()
"""
NOT_GIVEN = "w gets no gradient (None), though the output changes with it"


@pytest.mark.parametrize(
    ("name", "stated", "failed", "noted"),
    [
        ("Mul", {}, False, True),
        ("Mul", {"inputs": "x, w"}, False, True),
        ("Mul", {"inputs": "x, w[...; const]"}, False, False),
        ("Mul", {"reference": "plain"}, True, False),
        ("Mul", {"reference": "frozen"}, False, False),
        ("Shift", {}, False, False),
    ],
)
def test_a_gradient_that_is_none_is_judged_by_the_reference_and_noted_without(
    name: str, stated: dict[str, Any], failed: bool, noted: bool, tmp_path: Path
) -> None:
    path = tmp_path / "products.py"
    path.write_text(FORGOTTEN)
    (meant,) = find_functions((f"{path}:{name}",)).meant
    if "reference" in stated:
        stated = {"reference": f"{path}:{stated['reference']}"}
    questions = [Question(meant, one, Stated(**stated)) for one in meant.functions]
    (verdict,) = judge(questions, sys.executable, LIMIT, 1)
    assert verdict.failure is None
    faults = [(x.words, x.line) for x in verdict.checks if x.status == "failed"]
    line = FORGOTTEN.split("\n").index("        return grad_output * w, None") + 1
    words = "grad_w: None, where the reference's is not 0"
    assert faults == [(words, line)] * failed
    assert any(note.startswith(NOT_GIVEN) for note in verdict.notes) is noted


MINIMUM = """
import torch
from torch.autograd import Function


class Minimum(Function):
    @staticmethod
    def forward(ctx, Q, p, A, b):
        n, m = Q.size(0), A.size(0)
        rows = torch.cat([Q, A.t()], 1), torch.cat([A, Q.new_zeros(m, m)], 1)
        K = torch.cat(rows)
        found = torch.linalg.solve(K, torch.cat([-p, b]))
        ctx.save_for_backward(K, found)
        ctx.n = n
        return found[:n]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        K, found = ctx.saved_tensors
        x, nu = found[: ctx.n], found[ctx.n :]
        d = torch.linalg.solve(K.t(), torch.cat([grad, torch.zeros_like(nu)]))
        dx, dnu = d[: ctx.n], d[ctx.n :]
        return -dx.outer(x), -dx, -dnu.outer(x) - nu.outer(dx), dnu
"""


def test_sizes_of_a_singular_system_are_no_fault(tmp_path: Path) -> None:
    """More rows of A than unknowns make it singular: other sizes are taken, as all the digits are lost."""
    path = tmp_path / "minimum.py"
    path.write_text(MINIMUM)
    (meant,) = find_functions((str(path),)).meant
    stated = Stated(inputs="Q[n, n], p[n], A[m, n], b[m]")
    questions = [Question(meant, one, stated) for one in meant.functions]
    (verdict,) = judge(questions, sys.executable, LIMIT, 1)
    assert verdict.failure is None
    assert verdict.call == "Q (3, 3), p (3,), A (2, 3), b (2,)"
    assert {one.status for one in verdict.checks} == {"passed", "skipped"}


PRODUCT = """
from torch.autograd import Function


class Product(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * y.conj(), grad * x.conj()
"""


DOUBLED_IN_PLACE = """
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class SquareOfDoubled(Function):
    @staticmethod
    def forward(ctx, *xs):
        ctx.save_for_backward(*[x.clone() for x in xs])
        return sum(x.mul_(2).square() for x in xs)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return tuple(8 * x * grad for x in ctx.saved_tensors)
"""


def test_changed_tensors_of_a_variadic_input_are_copied_for_other_checks(
    tmp_path: Path,
) -> None:
    path = tmp_path / "doubled.py"
    path.write_text(DOUBLED_IN_PLACE)
    (meant,) = find_functions((str(path),)).meant
    (function,) = meant.functions
    (verdict,) = judge([Question(meant, function, Stated())], sys.executable, LIMIT, 1)
    failed = {one.name for one in verdict.checks if one.status == "failed"}
    assert failed == {"inputs stay as they are"}


@pytest.mark.parametrize(
    ("inputs", "call"),
    [
        ("x[N], y[N]", "x (2,), y (2,)"),
        (None, "x (2, 3) complex128, y (2, 3) complex128"),
    ],
)
def test_declared_numbers_are_real_unless_declared_complex(
    tmp_path: Path, inputs: str | None, call: str
) -> None:
    path = tmp_path / "product.py"
    path.write_text(PRODUCT)
    (meant,) = find_functions((str(path),)).meant
    stated = Stated(inputs=inputs) if inputs else Stated()
    (function,) = meant.functions
    (verdict,) = judge([Question(meant, function, stated)], sys.executable, LIMIT, 1)
    assert verdict.call == call


ROWS = """
import torch
from torch.autograd import Function


class Distance(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return (x - y).square().sum(1).mean()

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        one = grad * 2 / len(x) * (x - y)
        return one, -one


class Deviation(Function):
    @staticmethod
    def forward(ctx, x):
        d = x - x.mean(-1, keepdim=True)
        std = d.square().mean(-1, keepdim=True).sqrt()
        ctx.save_for_backward(d, std)
        return std

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        d, std = ctx.saved_tensors
        return grad * d / std / d.shape[-1]
"""
NOTED = {
    "Distance": "grad_x: factor 3 for x (3, 3, 3), y (3, 3, 3)",
    "Deviation": "no gradient, as autograd of the forward has none, where a row of x is 0",
}


def test_what_its_forward_was_not_meant_for_is_noted(tmp_path: Path) -> None:
    """A forward that sums along dim 1 means rows; and a deviation of 0 has no gradient in PyTorch, either."""
    path = tmp_path / "rows.py"
    path.write_text(ROWS)
    (meant,) = find_functions((str(path),)).meant
    questions = [Question(meant, one, Stated()) for one in meant.functions]
    for question, verdict in zip(
        questions, judge(questions, sys.executable, LIMIT, 1), strict=True
    ):
        failed = [x for x in verdict.checks if x.status == "failed"]
        assert verdict.failure is None and not failed
        assert NOTED[question.function.name] in verdict.notes


SAMPLED = """
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class Permuted(Function):
    @staticmethod
    def forward(ctx, x, index, inverse):
        ctx.save_for_backward(inverse)
        return x.index_select(-1, index)

    @staticmethod
    def backward(ctx, grad):
        (inverse,) = ctx.saved_tensors
        return grad.index_select(-1, inverse), None, None


class Energy(Function):
    @staticmethod
    def forward(ctx, matrix, x):
        ctx.save_for_backward(x, matrix @ x)
        return (x * (matrix @ x)).sum(0)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, product = ctx.saved_tensors
        return x @ (grad[:, None] * x.mT), 2 * product * grad


class InBuffer(Function):
    @staticmethod
    def forward(ctx, x):
        total = x.sum(-1, keepdim=True)
        parts = torch.zeros_like(x)
        parts[:] = x
        parts.div_(total + 1e-5)
        root = parts * total.sqrt()
        ctx.save_for_backward(x, total)
        return parts.copy_(root)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, total = ctx.saved_tensors
        below = total + 1e-5
        of_sum = (grad * x).sum(-1, keepdim=True)
        slope = (0.5 / total.sqrt() - total.sqrt() / below) / below
        return grad * total.sqrt() / below + of_sum * slope


class Sparse(Function):
    @staticmethod
    def forward(ctx, sparse, x):
        ctx.save_for_backward(sparse)
        return sparse @ x

    @staticmethod
    def backward(ctx, grad):
        (sparse,) = ctx.saved_tensors
        return None, sparse.t() @ grad


class Sinc(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.where(x == 0, torch.ones_like(x), x.sin() / x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x * x.cos() - x.sin()) / (x * x)


def plain(x):
    return torch.sinc(x / torch.pi)


class Scaled(Function):
    @staticmethod
    def forward(ctx, x, y):
        root = x.abs().sqrt()
        ctx.save_for_backward(x, y, root)
        return root * y

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        x, y, root = ctx.saved_tensors
        return grad * y * x.sign() / (2 * root), grad * x.abs() / root


def plain_scaled(x, y):
    return x.abs().sqrt() * y


def sparse():
    return torch.randn(3, 3).to_sparse(), torch.randn(3, 2, requires_grad=True)


def sparse_rows():
    return torch.randn(3, 3).to_sparse_csr(), torch.randn(3, 2, requires_grad=True)


def order():
    return torch.randn(3, 4), torch.tensor([2, 0, 3, 1]), torch.tensor([1, 3, 0, 2])


def symmetric():
    matrix = torch.randn(3, 3)
    return matrix + matrix.mT, torch.randn(3, 2)


def positive():
    return (0.5 + torch.rand(3, 4),)
"""


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        *(("Permuted", "order"), ("Energy", "symmetric"), ("InBuffer", "positive")),
        *(("Sparse", "sparse"), ("Sparse", "sparse_rows")),
    ],
)
def test_other_values_keep_the_kind_of_the_samples(
    tmp_path: Path, name: str, calls: str
) -> None:
    """A permutation stays one, a symmetric matrix symmetric, a sparse one itself; at the edge of the domain a gradient may be NaN."""
    assert not failures_of(tmp_path, name, samples=calls)


def test_a_gradient_is_no_nan_where_the_references_is_a_number(tmp_path: Path) -> None:
    """Without a reference that is a note, as autograd of the forward gives a NaN, too."""
    assert not failures_of(tmp_path, "Sinc")
    (failed,) = failures_of(tmp_path, "Sinc", reference="plain")
    assert failed.startswith("grad_x: not finite: nan")
    # The reference's gradient of x is a NaN there; that of y is 0.
    (failed,) = failures_of(tmp_path, "Scaled", reference="plain_scaled")
    assert failed.startswith("grad_y: not finite: nan")


def failures_of(
    directory: Path, name: str, samples: str = "", reference: str = ""
) -> list[str]:
    """What failed of a Function of SAMPLED."""
    path = directory / "sampled.py"
    path.write_text(SAMPLED)
    (meant,) = find_functions((f"{path}:{name}",)).meant
    stated = Stated(
        samples=f"@{path}:{samples}" if samples else None,
        reference=f"{path}:{reference}" if reference else None,
    )
    questions = [Question(meant, function, stated) for function in meant.functions]
    (verdict,) = judge(questions, sys.executable, LIMIT, 1)
    assert verdict.failure is None
    return [one.words for one in verdict.checks if one.status == "failed"]
