"""`scaffold test-stub`: where stubs go, which Functions they are for, and that none is overwritten."""

from pathlib import Path

from tests.cli.running import listing, scaffold
from tests.executed.suites import Suites
from tests.inspect.test_stubs import (
    AFFINE,
    HEAD,
    SCALE,
    pytest_says,
)


def test_stubs_go_where_the_project_has_its_tests(
    tmp_path: Path, suites: Suites
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "ops.py").write_text(HEAD + SCALE)
    (tmp_path / "pyproject.toml").write_text("[tool.scaffold]\ntests = 'tests'\n")
    for here, path in ((tmp_path, "src/ops.py"), (tmp_path / "src", "ops.py")):
        outcome = scaffold(here, "test-stub", path, "--dry-run")
        assert outcome.out == "create  tests/test_ops_gradients.py\n".replace(
            "tests/", "../tests/" if here != tmp_path else "tests/"
        )
    assert scaffold(tmp_path, "test-stub", "src/ops.py").code == 0
    assert pytest_says(tmp_path, suites) == "21 passed"
    said = ("test-stub", "src/ops.py", "--out-dir", "here", "--dry-run")
    assert scaffold(tmp_path, *said).out == "create  here/test_ops_gradients.py\n"


def test_a_stub_imports_a_file_of_a_namespace_package(
    tmp_path: Path, suites: Suites
) -> None:
    core = tmp_path / "megatron" / "core"
    core.mkdir(parents=True)
    (core / "__init__.py").touch()
    (core / "numbers.py").write_text("TWO = 2.0\n")
    used = "from megatron.core.numbers import TWO\n"
    (core / "ops.py").write_text(used + HEAD + SCALE.replace("2.0", "TWO"))
    assert scaffold(tmp_path, "test-stub", "megatron/core/ops.py").code == 0
    (stub_,) = tmp_path.glob("test_*.py")
    assert '"megatron.core.ops"' in stub_.read_text()
    assert pytest_says(tmp_path, suites) == "21 passed"


def test_one_function_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(f"{HEAD}{SCALE}\n\n{AFFINE}")
    outcome = scaffold(tmp_path, "test-stub", "ops.py::Scale", "--stdout")
    assert "def test_scale_gradients" in outcome.out and "affine" not in outcome.out
    assert list(listing(tmp_path)) == ["ops.py"]


def test_files_of_one_name_get_names_of_their_own(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "pkg" / name).mkdir(parents=True)
        (tmp_path / "pkg" / name / "__init__.py").touch()
        (tmp_path / "pkg" / name / "ops.py").write_text(HEAD + SCALE)
    (tmp_path / "pkg" / "__init__.py").touch()
    outcome = scaffold(tmp_path, "test-stub", "pkg")
    assert outcome.out == (
        "create  test_ops_gradients.py\ncreate  test_b_ops_gradients.py\n"
    )
    text = (tmp_path / "test_b_ops_gradients.py").read_text()
    assert '"pkg.b.ops"' in text


def test_a_stub_that_was_filled_in_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(HEAD + SCALE)
    (tmp_path / "test_ops_gradients.py").write_text("# mine\n")
    outcome = scaffold(tmp_path, "test-stub", "ops.py", "--on-conflict", "abort")
    assert outcome.code == 1
    assert (tmp_path / "test_ops_gradients.py").read_text() == "# mine\n"


DISTANCE = """
class Distance(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return (a - b) ** 2

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        d = 2 * grad * (a - b)
        return d, d
"""


def test_two_inputs_of_one_shape_are_not_the_same_numbers(
    tmp_path: Path, suites: Suites
) -> None:
    """Of equal ones the difference is 0, and so is its gradient, whatever its sign."""
    (tmp_path / "ops.py").write_text(HEAD + DISTANCE)
    assert scaffold(tmp_path, "test-stub", "ops.py").code == 0
    assert " failed" in pytest_says(tmp_path, suites)


def test_a_file_without_functions_is_passed_over_beside_others(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(HEAD + SCALE)
    (tmp_path / "plain.py").write_text("x = 1\n")
    outcome = scaffold(tmp_path, "test-stub", "ops.py", "plain.py", "--dry-run")
    assert (outcome.code, outcome.out) == (0, "create  test_ops_gradients.py\n")
    assert "note: skipped: 'plain.py' holds no autograd.Function" in outcome.err
    assert scaffold(tmp_path, "test-stub", "plain.py").code == 2


FAULTY = """

class Pick(Function):
    @staticmethod
    def forward(ctx, table, index, scale):
        ctx.save_for_backward(index)
        ctx.rows, ctx.scale = table.shape[0], scale
        return table[index] * scale

    @staticmethod
    def backward(ctx, grad):
        (index,) = ctx.saved_tensors
        grad_table = grad.new_zeros(ctx.rows, grad.shape[-1])
        return grad_table.index_add(0, index, grad * ctx.scale), None, None


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x
"""
USES = """
import torch
from ops import Pick, Square

def test_pick():
    table = torch.randn(5, 4, requires_grad=True)
    Pick.apply(table, torch.tensor([0, 4, 4]), 2.0).sum().backward()
    assert False, "a test that fails has called it"

def test_square():
    Square.apply(torch.randn(4, 3).t().requires_grad_())
    Square.apply(torch.randn(90, 90))
"""


def test_a_stub_calls_functions_as_the_tests_of_the_project_do(
    tmp_path: Path, suites: Suites
) -> None:
    (tmp_path / "ops.py").write_text(HEAD + FAULTY + SCALE)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_ops.py").write_text(USES)
    outcome = scaffold(tmp_path, "test-stub", "ops.py", "--record", "tests")
    assert (outcome.code, "Scale: no recorded call" in outcome.err) == (0, True)
    stub_ = (tmp_path / "test_ops_gradients.py").read_text()
    for line in (
        "recorded((5, 4), (4, 1)).requires_grad_()",
        "recorded((3,), (1,), torch.int64, 0, 4)",
        "recorded((3, 4), (1, 3)).requires_grad_()",
    ):
        assert line in stub_
    assert "(90, 90)" not in stub_  # gradcheck would take minutes
    (tmp_path / "tests" / "test_ops.py").unlink()
    assert " failed" in pytest_says(
        tmp_path, suites
    )  # Square's gradient is half of what it should be
    (tmp_path / "ops.py").write_text(
        (HEAD + FAULTY + SCALE).replace("return grad * x", "return 2 * grad * x")
    )
    assert " failed" not in pytest_says(tmp_path, suites)


def test_tests_that_cannot_be_recorded_are_told(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(HEAD + SCALE)
    outcome = scaffold(tmp_path, "test-stub", "ops.py", "--record", "tests")
    assert outcome.code == 0
    assert "pytest ended with exit code 4: ERROR: file or directory" in outcome.err
    (tmp_path / "test_dies.py").write_text("import os\nos._exit(3)\n")
    outcome = scaffold(tmp_path, "test-stub", "ops.py", "--record", "test_dies.py")
    assert (outcome.code, "the tests ended the process" in outcome.err) == (0, True)
