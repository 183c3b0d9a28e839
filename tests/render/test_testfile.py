"""Generated test files: they pass on good operators and fail on bad ones."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import black
import pytest

from scaffold.render.layout import Layout
from scaffold.render.testfile import suite_file
from tests.render.mutants import LINEAR, OTHERS, Mutant
from tests.render.op_specs import EXAMPLES, Example
from tests.render.running import Outcomes, run_suites

BY_NAME = {example.spec.name: example for example in EXAMPLES}
WRITTEN = sorted(BY_NAME.keys() - {"linear_todo"})


def suite_of(example: Example, layout: Layout) -> str:
    return suite_file(example.spec, example.derivation, layout, example.reference)


def flat(name: str) -> Layout:
    return Layout(name, f"{name}.py", f"test_{name}.py")


def mutated(directory: Path, mutants: Iterable[Mutant]) -> dict[str, Counter[str]]:
    """The outcomes for each mutant, by the mistake."""
    files, names = {}, {}
    for number, mutant in enumerate(mutants):
        example, name = BY_NAME[mutant.op], f"mutant_{number}"
        files[f"{name}.py"] = mutant.apply(example.op_text)
        files[f"test_{name}.py"] = suite_of(example, flat(name))
        names[f"test_{name}"] = f"{mutant.op}: {mutant.mistake}"
    outcomes = run_suites(directory, files)
    return {label: outcomes[name] for name, label in names.items()}


def survivors(outcomes: dict[str, Counter[str]]) -> list[str]:
    return [label for label, counts in outcomes.items() if not counts["failure"]]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All operators and their tests."""
    directory = tmp_path_factory.mktemp("ops")
    for example in EXAMPLES:
        name = example.spec.name
        (directory / f"{name}.py").write_text(example.op_text)
        (directory / f"test_{name}.py").write_text(example.suite_text)
    return directory


@pytest.fixture(scope="module")
def outcomes(directory: Path) -> Outcomes:
    return run_suites(directory, {})


@pytest.mark.parametrize("name", WRITTEN)
def test_a_written_op_passes_all_its_tests(outcomes: Outcomes, name: str) -> None:
    counts = outcomes[f"test_{name}"]
    assert counts["passed"] > 3
    assert set(counts) == {"passed"}


def test_a_skeleton_xfails_all_that_needs_its_maths(outcomes: Outcomes) -> None:
    counts = outcomes["test_linear_todo"]
    assert set(counts) == {"passed", "xfail"}
    assert counts["passed"] == 3  # copies of the module, twice, and the meta device
    assert counts["xfail"] > 40


def test_generated_tests_are_clean_for_ruff(directory: Path) -> None:
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "."]
    found = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout


def test_generated_tests_are_clean_for_mypy(directory: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir=cache", "."]
    found = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.spec.name)
def test_a_generated_test_is_formatted_and_fits(example: Example) -> None:
    text = example.suite_text
    ast.parse(text)
    assert black.format_str(text, mode=black.Mode()) == text
    assert max(map(len, text.splitlines())) <= 88


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.spec.name)
def test_only_a_skeleton_speaks_of_what_is_not_written(example: Example) -> None:
    words = ("xfail", "written", "NotImplementedError")
    assert all(
        (word in example.suite_text) == (not example.derivation.complete)
        for word in words
    )


def test_every_mistake_in_linear_is_found(tmp_path: Path) -> None:
    assert survivors(mutated(tmp_path, LINEAR)) == []


@pytest.mark.exhaustive
def test_every_mistake_in_the_other_ops_is_found(tmp_path: Path) -> None:
    assert survivors(mutated(tmp_path, OTHERS)) == []


FILLED = (
    BY_NAME["linear_2d"]
    .op_text.replace("linear_2d", "linear_todo")
    .replace("Linear2d", "LinearTodo")
)
SHAPES = ("grad_output.mm(weight)", "grad_output.mm(weight.t())")


def fill(tmp_path: Path, op_text: str) -> Counter[str]:
    """The outcomes of the skeleton's tests, unedited, over other bodies."""
    files = {
        "linear_todo.py": op_text,
        "test_linear_todo.py": BY_NAME["linear_todo"].suite_text,
    }
    return run_suites(tmp_path, files)["test_linear_todo"]


def test_a_filled_skeleton_passes_unedited(tmp_path: Path) -> None:
    assert set(fill(tmp_path, FILLED)) == {"passed"}


def test_a_half_filled_skeleton_still_xfails(tmp_path: Path) -> None:
    half = FILLED.replace(
        "grad_bias = grad_output.sum(0)",
        'raise NotImplementedError("linear_todo: write grad_bias")',
    )
    counts = fill(tmp_path, half)
    assert counts["xfail"] > 40
    assert set(counts) == {"passed", "xfail"}


@pytest.mark.parametrize(
    "change",
    [
        (SHAPES,),  # wrong, with all written
        (
            SHAPES,
            (
                "grad_bias = grad_output.sum(0)",
                'raise NotImplementedError("linear_todo: write grad_bias")',
            ),
        ),
        (("input.mm(weight.t())", "input.mm(weight)"),),
        (("input.mm(weight.t())", 'raise NotImplementedError("no kernel")'),),
    ],
    ids=["gradient", "gradient-half-filled", "forward", "a-message-of-its-own"],
)
def test_a_real_error_in_a_skeleton_is_a_failure(
    tmp_path: Path, change: tuple[tuple[str, str], ...]
) -> None:
    text = FILLED
    for old, new in change:
        assert old in text
        text = text.replace(old, new)
    counts = fill(tmp_path, text.replace("output = raise", "raise"))
    assert counts["failure"] > 5
    assert not counts["xfail"]
    assert not counts["error"]


def test_the_file_finds_its_op_in_another_directory(tmp_path: Path) -> None:
    example = BY_NAME["scale_by"]
    (tmp_path / "src").mkdir()
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    layout = Layout(
        "scale_by",
        "src/scale_by.py",
        "tests/unit/test_scale_by.py",
        search_path="../../src",
    )
    files = {
        layout.op_path: example.op_text,
        layout.test_path: suite_of(example, layout),
    }
    counts = run_suites(tmp_path, files)
    assert set(sum(counts.values(), Counter())) == {"passed"}


def test_the_line_length_is_that_of_the_project() -> None:
    example = BY_NAME["linear"]
    text = suite_of(example, replace(flat("linear"), line_length=120))
    assert black.format_str(text, mode=black.Mode(line_length=120)) == text
    assert text != example.suite_text
