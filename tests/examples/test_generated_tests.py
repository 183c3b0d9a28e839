"""The committed examples' own tests pass, and type checker, linter and formatter have nothing to say."""

import ast
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.examples.examples import EXAMPLES, ROOT, Example
from tests.executed.checks import findings_of_black, findings_of_mypy, findings_of_ruff
from tests.executed.suites import Suites
from tests.sweeps import in_every_run

# One op for each kind of input, output, gradient and module. Those of the first line are tested in every run, the others at each commit:
# ops of their kinds are tested in every run in tests/executed and tests/render.
IN_EVERY_RUN = {"linear_derived", "exp_in_place", "sort_last", "rms_norm_kernels"}
KINDS = IN_EVERY_RUN | {
    *("linear", "centre", "nearest_code", "sign_ste", "apply_pointwise"),
    *("sum_tensors", "numpy_log1p", "l2_normalize_once", "mul_constant_lazy"),
    "fused_swish",
}
KERNELS = {"test_kernels_are_as_exact_as_pytorch", "test_in_the_interpreter"}
DTYPES_REFUSED = {
    "numpy_log1p": {"test_dtype_of_gradients"},  # NumPy has no bfloat16
    # On a CPU F.layer_norm takes no bfloat16 input with a float32 weight.
    "fused_layer_norm": {"test_autocast", "test_autocast_dtype"},
}
COMPLETE = [example for example in EXAMPLES if not example.skeleton]
SKELETONS = [example for example in EXAMPLES if example.skeleton]
EMPTY = re.compile(r"=0\b|empty-batch")
WITHOUT_MATHS = {"test_module_copies", "test_module_on_meta"}


def name_of(example: Example) -> str:
    return example.op


def functions_of(example: Example) -> set[str]:
    """The names of the tests that the example's test file defines, in whatever class."""
    tree = ast.parse(example.test_file.read_text())
    found = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return {node.name for node in found if node.name.startswith("test_")}


def bare(tests: Sequence[str]) -> set[str]:
    """The names of the functions of some tests, without their parameters."""
    return {name.partition("::")[2].partition("[")[0] for name in tests}


ASKED = [example for example in COMPLETE if example.op in KINDS]
OTHERS = [example for example in COMPLETE if example.op not in KINDS]
OF_EVERY_RUN = [example for example in ASKED if example.op in IN_EVERY_RUN]


@pytest.mark.parametrize(
    "example",
    in_every_run(ASKED, OF_EVERY_RUN, pytest.mark.each_commit)
    + in_every_run(OTHERS, []),
    ids=name_of,
)
def test_a_complete_example_passes_all_its_tests(
    example: Example, suites: Suites
) -> None:
    """Skipped is only what the forward of the op itself refuses, a size of 0, or a dtype; and kernels, which one test runs in a process of its own.

    A warning is an error, so that a team may run all its tests like that.
    """
    report = suites.run(example.directory, "-W", "error")
    assert set(report.counts) <= {"passed", "skipped"}, report.output
    other = [name for name in report.named("skipped") if not EMPTY.search(name)]
    other = [name for name in other if not bare([name]) & KERNELS]
    assert bare(other) == DTYPES_REFUSED.get(example.op, set())
    left = functions_of(example) - bare(other) - KERNELS
    assert bare(report.named("passed")) - KERNELS == left


@pytest.mark.parametrize("example", SKELETONS, ids=name_of)
def test_a_skeleton_expects_all_that_needs_its_maths_to_fail(
    example: Example, suites: Suites
) -> None:
    report = suites.run(example.directory)
    assert set(report.counts) == {"passed", "xfailed"}, report.output
    assert bare(report.named("passed")) == WITHOUT_MATHS
    assert bare(report.named("xfailed")) == functions_of(example) - WITHOUT_MATHS


@pytest.mark.each_commit
def test_mypy_has_nothing_to_say(mypy_cache: Path) -> None:
    assert not findings_of_mypy(ROOT, mypy_cache)
    for example in EXAMPLES:
        if example.environment.get("SCAFFOLD_TYPING") == "strict":
            assert not findings_of_mypy(example.directory, mypy_cache, "--strict")


@pytest.mark.each_commit  # below, the same rules over all of them at once
@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_ruff_has_nothing_to_say_by_default(example: Example) -> None:
    assert not findings_of_ruff(example.directory)


def test_rules_that_teams_add_have_little_to_say() -> None:
    """Nothing but a name that a loop of the tests gives anew; styles that exclude each other are not asked."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache"]
    wide = "E,W,F,B,UP,C4,SIM,RUF,PERF,PIE,ERA,PLC,PLE,PLW,FURB,ISC,T20,RSE,G,Q"
    found = subprocess.run(
        [*command, "--select", wide, "--ignore", "PLW2901", "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not found.returncode, found.stdout


def test_ruff_has_nothing_to_say_as_configured_here() -> None:
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "."]
    found = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert not found.returncode, found.stdout


@pytest.mark.parametrize(
    "directory",
    [
        ROOT / "linear",
        pytest.param(ROOT, marks=pytest.mark.exhaustive),  # made by black as they are
    ],
    ids=str,
)
def test_black_has_nothing_to_change(directory: Path) -> None:
    assert not findings_of_black(directory)


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_the_lines_fit(example: Example) -> None:
    lines = [
        line for path in example.generated for line in path.read_text().splitlines()
    ]
    assert max(map(len, lines)) <= 88
