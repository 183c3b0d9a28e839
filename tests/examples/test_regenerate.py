"""The committed examples are what their commands make, byte for byte."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import Result

from tests.examples.examples import EXAMPLES, ROOT, Example
from tests.executed.generation import new_op
from tests.sweeps import in_every_run

TAUGHT = {  # by the tutorials on extending PyTorch
    *("linear_skeleton", "linear", "linear_kaiming", "linear_in_out"),
    *("mul_constant", "mul_constant_lazy", "exp_in_place", "sort_last"),
    *("l2_normalize_once", "sigmoid", "centre", "sign_ste", "gradient_reversal"),
    *("sum_tensors", "apply_pointwise", "nearest_code", "numpy_log1p"),
    "rms_norm_kernels",
}

PROVED = {"linear", "attention", "exp_in_place"}  # in every run

every_example = pytest.mark.parametrize(
    "example", EXAMPLES, ids=lambda example: example.directory.name
)


def contents(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def generate(example: Example, directory: Path, *options: str) -> Result:
    """Run the example's command in the directory."""
    return new_op(
        directory, *example.arguments, *options, environment=example.environment
    )


def written(directory: Path) -> dict[str, tuple[int, int]]:
    """When each file was written, and whether in place of another."""
    stats = {path.name: path.stat() for path in directory.iterdir()}
    return {name: (stat.st_mtime_ns, stat.st_ino) for name, stat in stats.items()}


def test_the_ops_of_the_tutorials_are_examples() -> None:
    assert {example.op for example in EXAMPLES} >= TAUGHT


def test_every_directory_is_an_example() -> None:
    directories = {path for path in ROOT.iterdir() if path.is_dir()}
    assert {example.directory for example in EXAMPLES} == directories


@every_example
def test_an_example_is_one_command_in_a_directory_of_its_name(example: Example) -> None:
    assert example.op == example.directory.name
    assert "\n" not in example.command


@every_example
def test_an_example_has_no_stray_file(example: Example) -> None:
    """What is not generated is the command, or named by it or by the spec."""
    specs = [path for path in example.given if path.suffix == ".toml"]
    named = " ".join([example.command, *(path.read_text() for path in specs)])
    for path in example.given:
        assert path.name == "command" or path.name in named or f"{path.stem}:" in named


@pytest.mark.one_of(2)
@every_example
def test_the_command_makes_the_committed_files(
    example: Example, tmp_path: Path
) -> None:
    """Without a proof, which changes nothing of what is right."""
    example.copy_given(tmp_path)
    generate(example, tmp_path, "--no-verify")
    assert contents(tmp_path) == contents(example.directory)
    assert {path.name for path in example.generated} <= contents(tmp_path).keys()


@pytest.mark.parametrize(
    "example",
    in_every_run(EXAMPLES, [one for one in EXAMPLES if one.op in PROVED]),
    ids=lambda example: example.op,
)
def test_with_its_proof_the_command_makes_them_too(
    example: Example, tmp_path: Path
) -> None:
    example.copy_given(tmp_path)
    generate(example, tmp_path)
    assert contents(tmp_path) == contents(example.directory)


@pytest.mark.parametrize(
    "example",
    in_every_run(EXAMPLES, EXAMPLES[::6], pytest.mark.each_commit),
    ids=lambda example: example.op,
)
def test_a_second_run_writes_nothing(example: Example, tmp_path: Path) -> None:
    example.copy(tmp_path)
    before = written(tmp_path)
    result = generate(example, tmp_path, "--no-verify")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines == [["identical", path.name] for path in example.generated]
    assert written(tmp_path) == before


@pytest.mark.each_commit
def test_a_shell_runs_the_command_as_it_stands(tmp_path: Path) -> None:
    """With `python -m scaffold` for `scaffold`, which need not be on the path here."""
    (example,) = (example for example in EXAMPLES if example.op == "sort_last")
    example.copy_given(tmp_path)
    root = Path(__file__).resolve().parents[2]
    subprocess.run(
        f'"{sys.executable}" -m {example.command}',
        shell=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(root)},
        check=True,
    )
    assert contents(tmp_path) == contents(example.directory)
