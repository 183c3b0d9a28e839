"""What the tests of all ops share: clean Python; a test that imports it asks the same as one that holds it."""

import ast
import re
from pathlib import Path

import pytest

from scaffold.render.file_style import PLAIN
from scaffold.render.formatting import BOUNDARY, fold, format_source
from scaffold.render.layout import Layout
from scaffold.render.op_testing import needed, op_testing_draft
from tests.executed.checks import findings_of_black, findings_of_mypy, findings_of_ruff
from tests.executed.suites import Suites
from tests.render.formatted import op_testing_file, suite_file
from tests.render.op_specs import EXAMPLES, Example
from tests.sweeps import in_every_run

KINDS = ("linear", "centring", "exp_", "sign_ste", "sum_all", "top_class")
BY_NAME = {example.spec.name: example for example in EXAMPLES}
SHARED = """
import itertools

Kept = dict[str, int]
Left = dict[str, int]


def asked_if(*conditions):
    return lambda test: test


class Questions:
    pass


def helper() -> Kept:
    return {}


class OpTests(Questions):
    flag = False
    stays = True
    unread = 1

    @asked_if("flag")
    def test_flag(self): ...

    @asked_if("not flag", "stays")
    def test_other(self):
        self.read()

    def read(self):
        helper()

    def left(self): ...

    def test_written(self):
        self.written()
        assert self.stays

    def written(self): ...
"""


def imported(example: Example) -> str:
    name = example.spec.name
    layout = Layout(name, f"{name}.py", f"test_{name}.py", op_testing="op_testing")
    return suite_file(example.spec, example.derivation, layout, example.reference)


def definitions(text: str) -> set[str]:
    named = (ast.ClassDef, ast.FunctionDef)
    return {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, named)}


def test_a_test_holds_what_it_asks_and_reads() -> None:
    text = needed(SHARED, "class TestOp(OpTests):\n    op = 1\n", complete=True)
    assert definitions(text) == {
        *("OpTests", "helper", "test_other", "read", "test_written")
    }
    assert "asked_if" not in text and "Left" not in text and "unread" not in text
    assert "self.written()" not in text and "stays = True" in text
    assert "class OpTests:" in text


def test_what_the_class_of_an_op_says_counts() -> None:
    text = needed(SHARED, "class TestOp(OpTests):\n    flag = True\n", complete=False)
    found = definitions(text)
    assert "test_flag" in found and "test_other" not in found
    assert "written" in found and "self.written()" in text


GIVES_BACK = """
class OpTests(Questions):
    random = False
    changed_in_place = ()

    def on_copy(self, function):
        \"\"\"Of what is changed.\"\"\"
        if not self.changed_in_place:
            return function
        return lambda x: function(x.clone())

    def seeded(self, function):
        \"\"\"Of what draws.\"\"\"
        if not self.random:
            return function
        return lambda x: function(x)

    def prepared(self, function):
        \"\"\"Both.\"\"\"
        return self.seeded(self.on_copy(function))

    def test_it(self):
        self.prepared(self.op or self.other)(1)
        self.seeded(self.on_copy(self.op))(2)
"""


@pytest.mark.parametrize(
    ("stated", "kept", "calls"),
    [
        ("op = 1", set(), ("(self.op or self.other)(1)", "self.op(2)")),
        (
            "random = True",
            {"seeded", "prepared"},
            ("self.prepared(self.op or self.other)(1)", "self.seeded(self.op)(2)"),
        ),
    ],
)
def test_what_gives_back_its_argument_is_left_out(
    stated: str, kept: set[str], calls: tuple[str, str]
) -> None:
    text = needed(GIVES_BACK, f"class TestOp(OpTests):\n    {stated}\n", complete=True)
    assert definitions(text) == {"OpTests", "test_it", *kept}
    assert tuple(line.strip() for line in text.splitlines()[-2:]) == calls


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ops whose tests import what they share."""
    directory = tmp_path_factory.mktemp("ops")
    (directory / "op_testing.py").write_text(op_testing_file())
    for name in KINDS:
        (directory / f"{name}.py").write_text(BY_NAME[name].op_text)
        (directory / f"test_{name}.py").write_text(imported(BY_NAME[name]))
    return directory


@pytest.mark.each_commit
def test_it_is_clean_for_the_type_checker_and_the_formatter(
    project: Path, mypy_cache: Path
) -> None:
    assert not findings_of_mypy(project, mypy_cache)
    assert not findings_of_black(project)


def test_it_is_clean_for_the_linter_and_its_lines_fit(project: Path) -> None:
    assert not findings_of_ruff(project)
    lines = (project / "op_testing.py").read_text().splitlines()
    assert max(map(len, lines)) <= 88


def test_the_template_is_formatted_as_it_stands() -> None:
    """A test that holds a part of it is not formatted again there."""
    _, *pieces = BOUNDARY.split(op_testing_draft(PLAIN, None).rstrip("\n"))
    folded = fold("\n\n\n".join(pieces), 88) + "\n"
    assert format_source(folded) == folded


# Of linear, which has the most tests, the examples are run.
@pytest.mark.parametrize(
    "name", in_every_run(KINDS[1:4], KINDS[1:2], pytest.mark.each_commit)
)
def test_a_test_that_imports_asks_what_one_asks_that_holds_all(
    project: Path, tmp_path: Path, suites: Suites, name: str
) -> None:
    (tmp_path / f"{name}.py").write_text(BY_NAME[name].op_text)
    (tmp_path / f"test_{name}.py").write_text(BY_NAME[name].suite_text)
    chosen_tests = "not compile and not vmap and not jacrev"
    options = (f"test_{name}.py", "--tb=no", "-k", chosen_tests)
    alone, together = suites.run(tmp_path, *options), suites.run(project, *options)
    asked = together.outcomes
    chosen = {
        test for test in asked if re.search("low_prec|checkpoint|no_values", test)
    }
    assert {test: asked[test] for test in asked.keys() - chosen} == alone.outcomes
    assert len(chosen) >= 2
    assert set(together.counts) == {"passed"}


SQUARE_OP = """
import torch
from torch import Tensor
from torch.autograd import Function


class SquareFunction(Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return GRADIENT


def square(x: Tensor) -> Tensor:
    return SquareFunction.apply(x)
"""
SQUARE = """
import torch
from op_testing import OpTests
from square import SquareFunction, square


class TestSquare(OpTests):
    op = staticmethod(square)
    function = SquareFunction
    differentiable = ("x",)
    deterministic = channels_last = True

    @staticmethod
    def make():
        return {"x": torch.randn(2, 3, 2, 2, dtype=torch.double)}

    @staticmethod
    def reference(x):
        return x * x
"""
CHOSEN = (
    *("test_low_precision[float32]", "test_low_precision[bfloat16]"),
    *("test_checkpoint", "test_reads_no_values", "test_deterministic"),
    "test_channels_last",
)


GRADIENTS = {  # which questions a backward fails, of those that a team chooses
    "2 * grad_output * x": (),
    "2 * grad_output.float() * x": ("test_low_precision[bfloat16]",),
    "(grad_output * (x + 99) - grad_output * 99) * 1 + grad_output * x": (
        "test_low_precision[float32]",
        "test_low_precision[bfloat16]",
    ),
    "2 * grad_output * x * torch.tensor(1.0)": ("test_reads_no_values",),
    "2 * grad_output * x if x.sum() else None": ("test_reads_no_values",),
    "2 * grad_output * x + __import__('time').time() * 1e-9": ("test_deterministic",),
}


def test_what_a_team_chooses_finds_what_it_is_for(
    tmp_path: Path, suites: Suites
) -> None:
    """In one run: to start it takes longer than the questions."""
    (tmp_path / "op_testing.py").write_text(op_testing_file())
    for number, gradient in enumerate(GRADIENTS):
        op, test = SQUARE_OP.replace("GRADIENT", gradient), SQUARE
        (tmp_path / f"square{number}.py").write_text(op)
        test = test.replace("from square ", f"from square{number} ")
        (tmp_path / f"test_square{number}.py").write_text(test)
    kept = "low_prec or checkpoint or no_values or deterministic or channels"
    report = suites.run(tmp_path, "--tb=short", "--strict-markers", "-k", kept)
    for number, wanted in enumerate(GRADIENTS.values()):
        found = {
            test.rpartition("::")[2].rpartition(".")[2]: outcome
            for test, outcome in report.outcomes.items()
            if f"test_square{number}" in test
        }
        assert set(found) == {*CHOSEN}, report.output
        failed = {test for test, outcome in found.items() if outcome == "failed"}
        assert {*wanted} <= failed and (wanted or not failed), report.output


def test_a_run_leaves_out_what_is_marked(tmp_path: Path, suites: Suites) -> None:
    (tmp_path / "op_testing.py").write_text(op_testing_file())
    op = SQUARE_OP.replace("GRADIENT", "2 * grad_output * x")
    (tmp_path / "square.py").write_text(op)
    (tmp_path / "test_square.py").write_text(SQUARE)
    options = ("--strict-markers", "-m", "not compile and not vmap and not checkpoint")
    outcomes = suites.run(tmp_path, *options).outcomes
    assert not [test for test in outcomes if re.search("compile|vmap|checkpoint", test)]
    assert [test for test in outcomes if "gradcheck" in test]


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose conftest.py has the options, by the line that the file itself names."""
    directory = tmp_path_factory.mktemp("team")
    op = SQUARE_OP.replace("GRADIENT", "2 * grad_output * x")
    test = SQUARE.replace("    deterministic = channels_last = True\n", "")
    shared = op_testing_file()
    (line,) = re.findall(
        r"^from op_testing import .*  # noqa: F401$", shared, re.MULTILINE
    )
    files = {
        "src/square.py": op,
        "tests/op_testing.py": shared,
        "tests/conftest.py": line,
        "tests/test_square.py": test,
    }
    for name, text in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text)
    return directory


def path_of(team: Path) -> tuple[str, str]:
    """As `pythonpath = ["src", "tests"]` says in the configuration of pytest."""
    return "-o", f"pythonpath={team}/src {team}/tests"


@pytest.mark.parametrize("mode", ["prepend", "importlib"])
def test_a_run_is_given_devices_dtypes_and_checks(
    team: Path, suites: Suites, mode: str
) -> None:
    options: tuple[str, ...] = ("--device", "cpu", "--dtype", "float16")
    options += ("--check", "deterministic")
    chosen = ("-k", "low_precision or deterministic or contract", "--strict-markers")
    options += (*path_of(team), f"--import-mode={mode}")
    found = suites.run(team, *options, *chosen).outcomes
    told = {test.rpartition("::")[2]: outcome for test, outcome in found.items()}
    assert told == dict.fromkeys(
        (
            "test_low_precision[float16]",
            "test_deterministic",
            "test_backward_contract[base-x]",
        ),
        "passed",
    )


def test_a_device_that_is_not_there_is_skipped_and_why(
    team: Path, suites: Suites
) -> None:
    options = ("--device", "cpu", "--device", "cuda:99", "-rs", "-k", "contract")
    report = suites.run(team, *path_of(team), *options)
    assert report.counts == {"passed": 1, "skipped": 1}
    assert "no cuda:99 in double precision here: " in report.output


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("meta", "--device meta: its tensors have no values that could be compared"),
        ("gpu", "--device gpu: Expected one of cpu, cuda"),
    ],
)
def test_a_device_that_cannot_be(
    team: Path, suites: Suites, device: str, message: str
) -> None:
    with pytest.raises(AssertionError, match=re.escape(message)):
        suites.run(team, *path_of(team), "--device", device)  # there is no report of it


def test_the_test_of_an_op_is_short() -> None:
    assert len(imported(BY_NAME["linear"]).splitlines()) <= 70
