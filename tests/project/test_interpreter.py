"""Which interpreter runs a proof, and what is said of it."""

import json
import os
from pathlib import Path
from unittest.mock import patch

import pytest

from scaffold import verify
from scaffold.errors import ScaffoldError
from scaffold.project.interpreter import Interpreter, find_interpreter
from tests.cli.environments import that_answers, with_torch_alone
from tests.cli.projects import SCALE, project
from tests.cli.running import environment, run, scaffold
from tests.inspect import test_adopting

HAS, LACKS = "echo 3 12 True", "echo 3 12 False"
DERIVED = ("new-op", "foo", "--inputs", "x, y", "--forward", "x * y", "--no-module")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of a checkout; the tool has no torch, and nor has anything around."""
    here = tmp_path / "checkout" / "src"
    here.mkdir(parents=True)
    (here.parent / ".git").mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setattr(verify, "has_torch", lambda: False)
    return tmp_path


def test_they_are_tried_in_their_order(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is put beside those that go after it, and is found."""
    assert find_interpreter() is None
    on_path = that_answers(place / "bin" / "python", HAS)
    assert find_interpreter() == Interpreter(str(on_path), "PATH")
    above = that_answers(place / "checkout" / ".venv" / "bin" / "python", HAS)
    assert find_interpreter() == Interpreter(str(above), ".venv")
    active = that_answers(place / "active" / "bin" / "python", HAS)
    monkeypatch.setenv("VIRTUAL_ENV", str(place / "active"))
    assert find_interpreter() == Interpreter(str(active), "VIRTUAL_ENV")
    with patch.object(verify, "has_torch", return_value=True):
        own = find_interpreter()
        assert own is not None and own.note() == ()
        stated = that_answers(place / "checkout" / "stated", HAS)
        file = place / "checkout" / "pyproject.toml"
        file.write_text("[tool.scaffold]\npython = './stated'\n")
        assert find_interpreter() == Interpreter(str(stated), "the configuration")
        given = that_answers(place / "given", HAS)
        assert find_interpreter("../../given") == Interpreter(str(given), "--python")


def test_one_without_torch_is_passed_over(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    that_answers(place / "active" / "bin" / "python", LACKS)
    monkeypatch.setenv("VIRTUAL_ENV", str(place / "active"))
    that_answers(place / "checkout" / ".venv" / "bin" / "python", "exit 1")
    found = that_answers(place / "bin" / "python", HAS)
    assert find_interpreter() == Interpreter(str(found), "PATH")


def test_what_lies_above_a_checkout_or_in_it_by_chance_is_not_run(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = place / "ran"
    that_answers(place / ".venv" / "bin" / "python", f"touch {mark}; {HAS}")
    that_answers(place / "checkout" / "src" / "python", f"touch {mark}; {HAS}")
    monkeypatch.setenv("PATH", os.pathsep.join([".", "", str(place / "bin")]))
    assert find_interpreter() is None
    assert not mark.exists()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (LACKS, "'{}' has no torch"),
        ("echo 2 7 True", "'{}' is Python 2.7, which is too old"),
        ("echo hello", "'{}' is not a Python interpreter"),
    ],
)
def test_one_that_is_named_and_lacks_torch_is_refused(
    answer: str, words: str, place: Path
) -> None:
    path = str(that_answers(place / "given", answer))
    with pytest.raises(ScaffoldError) as raised:
        find_interpreter(path)
    assert raised.value.message == words.format(path)
    assert str(raised.value.location) == "--python"
    assert raised.value.exit_code == 2


def test_one_of_the_configuration_is_refused_at_its_place(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = place / "checkout" / "pyproject.toml"
    file.write_text("[tool.scaffold]\nsource = 'src'\npython = 'none/python'\n")
    with pytest.raises(ScaffoldError) as raised:
        find_interpreter()
    assert str(raised.value) == (
        "../pyproject.toml:3:11: 'none/python' cannot be started: "
        "No such file or directory\nhint: name another with --python PATH"
    )
    monkeypatch.setenv("SCAFFOLD_PYTHON", "no_such_python")
    with pytest.raises(ScaffoldError, match="^SCAFFOLD_PYTHON: 'no_such_python'"):
        find_interpreter()


@pytest.mark.each_commit
def test_where_the_tool_has_no_torch_the_run_says_which_proved_it(
    tmp_path: Path,
) -> None:
    python = with_torch_alone(tmp_path / "project" / ".venv")
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'project' not in sys.prefix:\n    sys.modules['torch'] = None\n"
    )
    path = os.pathsep.join([str(blocked), environment()["PYTHONPATH"]])
    variables = {"PYTHONPATH": path, "VIRTUAL_ENV": "", "PATH": ""}
    done = run(tmp_path / "project", *DERIVED, **variables)
    assert (done.code, done.out) == (0, "create  foo.py\ncreate  test_foo.py\n")
    assert done.err == "note: proven with .venv/bin/python (from .venv)\n"
    assert python.exists()
    wrong = ("--grad", "x=2 * grad_output * y", "--verify", "--format", "json")
    done = run(tmp_path / "project", *DERIVED, *wrong, "--dry-run", **variables)
    assert done.code == 1
    assert "proven with .venv/bin/python (from .venv)" in json.loads(done.out)["notes"]


def test_where_none_has_torch_one_line_says_so(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "sitecustomize.py").write_text(
        "import sys\nsys.modules['torch'] = None\n"
    )
    path = os.pathsep.join([str(blocked), environment()["PYTHONPATH"]])
    work = tmp_path / "work"
    (work / ".git").mkdir(parents=True)
    done = run(work, *DERIVED, PYTHONPATH=path, VIRTUAL_ENV="", PATH="")
    assert (done.code, done.out) == (0, "create  foo.py\ncreate  test_foo.py\n")
    assert done.err == (
        "note: not proven: no PyTorch found "
        "(name an interpreter that has it: --python PATH, or pip install torch)\n"
    )


def test_every_command_that_proves_takes_one(tmp_path: Path) -> None:
    root = project(tmp_path, SCALE)
    (root / "old.py").write_text(test_adopting.HEAD + test_adopting.SCALE)
    (root / "rules.toml").touch()
    proving = [
        *(["sync"], ["upgrade"], ["new-op", "scale"]),
        *(["adopt", "old.py::ScaleFunction"], ["rules", "check", "rules.toml"]),
    ]
    for command in proving:
        said = scaffold(root, *command, "--python", "nowhere/python")
        assert said.code == 2, (command, said)
        assert said.err.startswith("--python: 'nowhere/python' cannot be started")
    assert scaffold(root, "sync", "--no-verify").code == 0
    said = scaffold(root, "verify", "scale", "--python", "nowhere/python")
    assert said.code and "'nowhere/python' cannot be started" in said.out + said.err
