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
    assert pytest_says(tmp_path, suites) == "9 passed"
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
    assert pytest_says(tmp_path, suites) == "9 passed"


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
