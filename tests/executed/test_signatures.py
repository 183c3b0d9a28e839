"""Every kind of signature that ops in use have: generated, compared with plain autograd, and tested by its own tests."""

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from tests.executed.checks import findings_of_black, findings_of_mypy, findings_of_ruff
from tests.executed.generation import load, new_op, run_new_op
from tests.executed.rows import COMBINED, FILES, OTHERS, ROWS, Row
from tests.executed.suites import WITHOUT_COMPILING, Suites
from tests.sweeps import in_every_run

EVERY = (*ROWS, *OTHERS)
BY_NAME = {row.name: row for row in EVERY}
PROVED = {  # in every run; a proof starts a process that imports PyTorch
    *("tensors_with_one_output", "variadic_tensors", "several_outputs", "in_place"),
    *("random_numbers", "a_surrogate", "imported_kernels", "optional_tensors"),
}
# What the tests themselves ask of otherwise; the values of all rows are compared in every run.
TESTED = {"complex_tensors", "conditions_on_sizes", "tensors_without_gradient"} | {
    "random_numbers"  # of the other kinds the examples are tested
}
OF_BOTH_STYLES = ("several_outputs",)


def generate(directory: Path, row: Row, signature: tuple[str, ...], *more: str) -> None:
    """Without a proof: the op is compared with autograd here, and its tests are run."""
    for name, text in FILES.items():
        (directory / name).write_text(text)
    new_op(directory, row.name, *signature, *row.options, "--no-verify", *more)


def fresh(values: tuple[Any, ...]) -> list[Any]:
    """The same values, tensors as leaves of their own."""
    return [
        (
            value.detach().clone().requires_grad_(value.requires_grad)
            if isinstance(value, Tensor)
            else value
        )
        for value in values
    ]


def run(function: Any, values: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Outputs, whether each requires grad, and the gradients of all inputs that need one."""
    leaves = fresh(values)
    moved = [1 * x if isinstance(x, Tensor) and x.requires_grad else x for x in leaves]
    torch.manual_seed(1)
    found = function(*moved, **keywords)
    outputs = list(found) if isinstance(found, tuple) else [found]
    ends = [output for output in outputs if output.requires_grad]
    needed = [x for x in leaves if isinstance(x, Tensor) and x.requires_grad]
    torch.manual_seed(2)
    grad_outputs = [torch.randn_like(output) for output in ends]
    grads = torch.autograd.grad(ends, needed, grad_outputs) if ends else ()
    values_only = [output.detach() for output in outputs]
    return values_only, [output.requires_grad for output in outputs], list(grads)


def compare(directory: Path, row: Row) -> None:
    """With plain autograd, and with what the signature of the wrapper should be."""
    function = getattr(load(directory / f"{row.name}.py"), row.name)
    shown = str(inspect.signature(function)).replace("torch.Tensor", "Tensor")
    assert shown.replace("typing.Any", "Any") == row.signature
    torch.manual_seed(0)
    values = row.values()
    assert_close(run(function, values, row.keywords), run(row.plain, values, {}))


def check(directory: Path, row: Row, suites: Suites, *options: str) -> None:
    compare(directory, row)
    report = suites.run(directory, *options)
    assert set(report.counts) <= {"passed", "skipped"}, report.output
    assert report.counts["passed"] >= 3


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "row", in_every_run(EVERY, EVERY[::2], pytest.mark.each_commit), ids=str
)
def test_an_op_by_its_inputs(row: Row, tmp_path: Path) -> None:
    generate(tmp_path, row, row.written)
    compare(tmp_path, row)


@pytest.mark.parametrize(
    "row", in_every_run(EVERY, [BY_NAME[name] for name in TESTED]), ids=str
)
def test_its_own_tests_pass(row: Row, tmp_path: Path, suites: Suites) -> None:
    generate(tmp_path, row, row.written)
    check(tmp_path, row, suites)


@pytest.mark.parametrize("name", in_every_run(BY_NAME, PROVED))
def test_its_proof_holds_and_changes_nothing(name: str, tmp_path: Path) -> None:
    row, texts = BY_NAME[name], []
    for proof in ("--no-verify", "--verify"):
        directory = tmp_path / proof
        directory.mkdir()
        generate(directory, row, row.written, proof)
        texts.append({path.name: path.read_text() for path in directory.iterdir()})
    assert texts[0] == texts[1]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("row", [row for row in EVERY if row.schema], ids=str)
def test_an_op_by_its_schema_is_the_same(row: Row, tmp_path: Path) -> None:
    """Byte for byte, so what holds of the one holds of the other."""
    texts = []
    for label, signature in (("written", row.written), ("schema", row.schema)):
        directory = tmp_path / label
        directory.mkdir()
        generate(directory, row, signature)
        texts.append({path.name: path.read_text() for path in directory.iterdir()})
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", in_every_run(COMBINED, OF_BOTH_STYLES))
def test_an_op_in_the_combined_style(name: str, tmp_path: Path, suites: Suites) -> None:
    row = BY_NAME[name]
    generate(tmp_path, row, row.written, "--style", "combined")
    assert "setup_context" not in (tmp_path / f"{name}.py").read_text()
    check(tmp_path, row, suites, *WITHOUT_COMPILING)


@pytest.mark.each_commit
def test_tools_have_nothing_to_say(tmp_path: Path, mypy_cache: Path) -> None:
    for row in EVERY:
        generate(tmp_path, row, row.written)
        combined = replace(row, name=f"{row.name}_combined")
        # The test is the same for both styles.
        generate(tmp_path, combined, row.written, "--style", "combined", "--no-test")
    assert not findings_of_ruff(tmp_path)
    assert not findings_of_black(tmp_path)
    assert not findings_of_mypy(tmp_path, mypy_cache)


@pytest.mark.parametrize("name", ["once_differentiable", "math", "any", "function"])
def test_an_op_hides_nothing_that_its_file_imports(name: str, tmp_path: Path) -> None:
    result = run_new_op(tmp_path, name, "--inputs", "x")
    assert result.exit_code != 0
    assert not list(tmp_path.iterdir())


def test_no_module_and_no_test(tmp_path: Path) -> None:
    row = BY_NAME["tensors_with_one_output"]
    generate(tmp_path, row, row.written, "--no-module", "--no-test")
    assert {path.name for path in tmp_path.iterdir()} == {*FILES, f"{row.name}.py"}
    text = (tmp_path / f"{row.name}.py").read_text()
    assert "nn" not in text.split() and "Module" not in text
    compare(tmp_path, row)


def test_no_module_has_tests_without_one(tmp_path: Path, suites: Suites) -> None:
    row = BY_NAME["optional_tensors"]
    generate(tmp_path, row, row.written, "--no-module")
    assert "Module" not in (tmp_path / f"test_{row.name}.py").read_text()
    check(tmp_path, row, suites, *WITHOUT_COMPILING)
    assert not findings_of_ruff(tmp_path)
