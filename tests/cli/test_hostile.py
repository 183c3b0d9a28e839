"""A clone that nobody vouches for: what of its code each command runs, and whether the run says so.

Everything in it that could run writes its name into a file outside of it. Commands that prove may run what an op imports and
the function of its samples, and say so; `verify` runs tests. No other command runs anything.
"""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sweeps import in_every_run

pytestmark = pytest.mark.usefixtures("cold_processes")

SHADOWS = (
    *("torch", "jinja2", "black", "typer", "click", "tomllib", "libcst", "numpy"),
    *("sitecustomize", "usercustomize", "pytest", "conftest"),
)
CONFIGURATION = """\
[tool.scaffold]
manifest = ["ops.toml"]
source = "ops"
tests = "tests"
template-dirs = ["t"]
rules = ["rules.toml"]

[tool.black]
required-version = "1"

[tool.pytest.ini_options]
addopts = "-p conftest"
"""
RULES = """\
[cube]
call = "cube(x)"
from = "kernels"
category = "elementwise"
grad.x = "3 * grad * x * x"
samples = ["x[3]"]
"""
OPS = """\
[ops.foo]
inputs = "x"
forward = "cube(x)"
import = ["kernels:cube"]

[ops.bar]
inputs = "x[N]"
forward = "x * 2"
samples = "@drawn.py:draw"
"""
HAND = """\
import torch
MARK


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2
"""
TEMPLATE = """\
{% extends "builtin/op.py.jinja" %}
{% block header %}
MARK
{{ super() }}{% endblock %}
"""
PLAIN = [
    ["--help"],
    ["check"],
    ["check", "--diff"],
    ["list"],
    ["list", "--format", "json"],
    ["lint", "."],
    ["lint", "--fix", "--diff", "ops", "hand.py"],
    ["schema"],
    ["config"],
    ["templates", "list"],
    ["templates", "diff"],
    ["templates", "lint"],
    ["rules", "list"],
    ["rules", "show", "cube"],
    ["derive", "foo", "--explain"],
    ["test-stub", "hand.py", "--dry-run"],
    ["rename", "foo", "baz", "--dry-run"],
    ["remove", "foo", "--dry-run"],
    ["new-op", "qux", "--inputs", "x", "--forward", "x * 2", "--no-verify"],
    ["init", "--dry-run"],
    ["sync", "--no-verify"],
    ["show", "foo"],
    ["examples", "norm"],
    ["test-stub", "hand.py"],
    ["templates", "eject", "test"],
    ["upgrade", "--no-verify"],
    ["rename", "foo", "baz"],
    ["remove", "bar"],
]
PROVING = [
    ["new-op", "qux", "--inputs", "x", "--import", "kernels:cube", "--forward", "cube(x)"],
    ["new-op", "foo", "--dry-run"],
    ["sync", "--dry-run"],
    ["sync", "--diff"],
    ["sync"],
    ["upgrade", "foo", "bar", "--dry-run"],
    ["upgrade", "foo", "bar"],
    ["new-op", "foo", "--stdout"],
]  # fmt: skip
OWN = {"kernels", "drawn"}  # what the ops themselves name
# Several commands, each with its arguments, in one process that is started as the command is: after each, what it said, as JSON.
ONE_AFTER_ANOTHER = """\
import contextlib, io, json, sys
from scaffold.cli import main
for command in json.loads(sys.argv.pop()):
    said, code = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), 0
    sys.argv[1:] = command
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    print(json.dumps([said.buffer.getvalue().decode(), code]), flush=True)
"""


class Clone:
    """A repository and the marks that its code leaves."""

    def __init__(self, root: Path) -> None:
        self.root, self.marks = root / "clone", root / "marks"
        self.root.mkdir()
        for name in SHADOWS:
            self.write(f"{name}.py", self.mark(name))
        for below in ("ops", "tests"):
            self.write(f"{below}/conftest.py", self.mark(f"{below}/conftest"))
        self.write("pyproject.toml", CONFIGURATION)
        self.write("rules.toml", RULES)
        self.write("ops.toml", OPS)
        self.write(
            "kernels.py", f"{self.mark('kernels')}\ndef cube(x): return x * x * x\n"
        )
        drawn = (
            f"def draw():\n    {self.mark('drawn')}\n    return [(torch.rand(3),)]\n"
        )
        self.write("drawn.py", f"import torch\n{drawn}")
        self.write("hand.py", HAND.replace("MARK", self.mark("hand")))
        self.write("t/op.py.jinja", TEMPLATE.replace("MARK", self.mark("template")))
        self.write(".venv/pyvenv.cfg", "home = /\n")
        for name in ("python", "python3", "ruff", "black", "git"):
            script = f"#!/bin/sh\necho venv/{name} >> {self.marks}\nexit 1\n"
            self.write(f".venv/bin/{name}", script).chmod(stat.S_IRWXU)

    def names_a_python(self) -> None:
        """Let the configuration name an interpreter that lies in the clone."""
        script = f"#!/bin/sh\necho evil >> {self.marks}\nexit 1\n"
        self.write("evil", script).chmod(stat.S_IRWXU)
        stated = CONFIGURATION.replace("manifest =", 'python = "./evil"\nmanifest =')
        self.write("pyproject.toml", stated)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def mark(self, name: str) -> str:
        """A line that says that it ran."""
        return f"open({str(self.marks)!r}, 'a').write({name + chr(10)!r})"

    def run(self, *command: str, safe: bool = True) -> tuple[str, set[str], int]:
        """What a run says, what ran, and the exit code."""
        done, ran = self._start(*(["-P"] if safe else []), "-m", "scaffold", *command)
        return done.stdout + done.stderr, ran, done.returncode

    def run_all(
        self, commands: list[list[str]]
    ) -> tuple[list[tuple[str, int]], set[str]]:
        """What each command says, with its exit code, and what ran in any."""
        listed = json.dumps(commands)
        done, ran = self._start("-P", "-c", ONE_AFTER_ANOTHER, listed)
        assert not done.stderr, done.stderr
        said = [json.loads(line) for line in done.stdout.splitlines()]
        return [(text, code) for text, code in said], ran

    def _start(
        self, *arguments: str
    ) -> tuple["subprocess.CompletedProcess[str]", set[str]]:
        self.marks.unlink(missing_ok=True)
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.root,
            env=os.environ
            | {"PYTHONDONTWRITEBYTECODE": "1", "PYTEST_ADDOPTS": "-k forward"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert "Traceback" not in done.stdout + done.stderr, done
        ran = self.marks.read_text().split() if self.marks.exists() else ()
        return done, set(ran)


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


@pytest.mark.parametrize(
    "python", in_every_run(["the tool's own", "of the clone"], ["of the clone"])
)
@pytest.mark.each_commit
def test_what_does_not_prove_runs_nothing(clone: Clone, python: str) -> None:
    if python == "of the clone":
        clone.names_a_python()
    outcomes, ran = clone.run_all(PLAIN)
    assert not ran, (ran, outcomes)
    for command, (said, code) in zip(PLAIN, outcomes, strict=True):
        assert code in (0, 1), (command, said)


@pytest.mark.exhaustive
@pytest.mark.parametrize("command", PLAIN, ids=" ".join)
def test_what_does_not_prove_runs_nothing_in_a_process_of_its_own(
    command: list[str], clone: Clone
) -> None:
    said, ran, code = clone.run(*command)
    assert not ran, (ran, said)
    assert code in (0, 1), said


@pytest.mark.parametrize(
    "command", in_every_run(PROVING[1:4], PROVING[1:2]), ids=" ".join
)
def test_a_proof_in_an_interpreter_of_the_clone_says_so(
    command: list[str], clone: Clone
) -> None:
    clone.names_a_python()
    said, ran, _ = clone.run(*command)
    assert ran <= OWN | {"evil"}, (ran, said)
    assert "evil" not in ran or "'./evil'" in said or "with evil" in said, said


@pytest.mark.parametrize(
    "command",
    in_every_run(PROVING, PROVING[:1]),
    ids=" ".join,
)
def test_what_proves_runs_what_the_ops_name_and_says_so(
    command: list[str], clone: Clone
) -> None:
    said, ran, code = clone.run(*command)
    assert ran <= OWN, (ran, said)
    assert code == 0, said
    if "kernels" in ran:
        assert "the proof ran code of kernels" in said, said
    if "drawn" in ran:
        assert "the proof ran code of draw()" in said, said


ADOPTING = [
    ["adopt", "hand.py::Twice", "--dry-run"],
    ["adopt", "hand.py::Twice", "--diff"],
    ["adopt", "hand.py::Twice", "--stdout"],
    ["adopt", "hand.py::Twice"],
]


@pytest.mark.parametrize("command", in_every_run(ADOPTING, ADOPTING[3:]), ids=" ".join)
@pytest.mark.each_commit
def test_to_adopt_runs_the_module_of_the_function_and_says_so(
    command: list[str], clone: Clone
) -> None:
    said, ran, code = clone.run(*command)
    assert (ran, code) == ({"hand"}, 0), (ran, said)
    assert "compared with a run of Twice of hand.py" in said
    said, ran, code = clone.run(*command, "--name", "other", "--no-verify")
    assert (ran, code) == (set(), 0), (ran, said)


@pytest.mark.parametrize("command", ADOPTING[:1], ids=" ".join)
def test_to_adopt_in_an_interpreter_of_the_clone_says_so(
    command: list[str], clone: Clone
) -> None:
    clone.names_a_python()
    said, ran, _ = clone.run(*command)
    assert ran == {"evil"} and "'./evil'" in said, (ran, said)


@pytest.mark.each_commit
def test_a_failed_proof_says_so_too(clone: Clone) -> None:
    clone.write("rules.toml", RULES.replace("3 * grad", "2 * grad"))
    said, ran, code = clone.run("new-op", "foo")
    assert (ran, code) == ({"kernels"}, 1), said
    assert "note: the proof ran code of kernels" in said


@pytest.mark.each_commit
def test_a_check_of_rules_runs_the_functions_that_they_are_of(clone: Clone) -> None:
    said, ran, _ = clone.run("rules", "check")
    assert ran <= {"kernels"}, (ran, said)


@pytest.mark.each_commit
def test_tests_are_what_verify_runs(clone: Clone) -> None:
    clone.run("sync", "--no-verify")
    said, ran, _ = clone.run("verify")
    assert not ran & {"torch", "numpy", "jinja2", "black", "venv/python"}, (ran, said)


@pytest.mark.parametrize(
    "command",
    in_every_run([["check"], ["list"], ["--help"]], [["list"]]),
    ids=" ".join,
)
def test_the_module_is_run_without_the_directorys_own(
    command: list[str], clone: Clone
) -> None:
    """`python -m scaffold` would find them first."""
    said, ran, _ = clone.run(*command, safe=False)
    assert not ran, (ran, said)


@pytest.mark.each_commit
def test_a_template_that_changes_the_function_is_not_proven(clone: Clone) -> None:
    """Its code does not run, and the run says that something else was proven."""
    changed = '{% extends "builtin/op.py.jinja" %}{% block forward %}MARK{{ super() }}{% endblock %}'
    clone.write(
        "t/op.py.jinja", changed.replace("MARK", f"    {clone.mark('template')}\n")
    )
    said, ran, code = clone.run("new-op", "qux", "--inputs", "x", "--forward", "x * 2")
    assert (ran, code) == (set(), 0), said
    assert "note: not proven as it stands: a template changes its Function" in said
    assert str(clone.marks) in (clone.root / "ops/qux.py").read_text()


def test_the_page_on_trust_names_every_command() -> None:
    from scaffold.cli.help import COMMANDS

    page = (Path(__file__).parents[2] / "docs/trust.md").read_text("utf-8")
    for command in COMMANDS:
        assert f"`{command}`" in page or f"`{command} " in page, command
    assert "A list of names is no sandbox" in page
    assert "docs/trust.md" in (Path(__file__).parents[2] / "README.md").read_text(
        "utf-8"
    )
