"""What programs hear of a failure: the same object from every command that has `--format json`."""

import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from scaffold.cli.app import application
from scaffold.cli.output import telling
from tests.cli.projects import SCALE, project
from tests.cli.running import scaffold

pytestmark = pytest.mark.usefixtures("proven_at_once")

# What is wrong in a project whose manifest holds `scale`, for each command that has the option.
BAD = {
    "new-op": ("foo", "--inputs", "x["),
    "init": ("nope",),
    "adopt": ("nope.py::Nope",),
    "test-stub": ("nope.py",),
    "sync": ("nope.toml",),
    "check": ("nope",),
    "upgrade": ("nope",),
    "rename": ("nope", "other"),
    "remove": ("nope",),
    "derive": ("foo", "--inputs", "x[, y"),
    "examples": ("nope",),
    "show": ("foo", "--inputs", "x[, y"),
    "bench": ("foo", "--inputs", "x[, y"),
    "lint": ("--select", "AF99"),
    "verify": ("--limit", "0"),
    "config": ("nope",),
    "rules show": ("nope",),
    "rules check": ("nope.toml",),
}
# These take no argument: their configuration is wrong.
CONFIGURED = ("list", "templates list", "templates lint", "rules list")


def with_json(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The commands that take `--format json`."""
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from with_json(inner, (*path, name))
        return
    options = {item.name: getattr(item, "help", "") for item in command.params}
    if "json" in (options.get("format_") or options.get("format") or ""):
        yield " ".join(path)


def test_no_command_is_left_out() -> None:
    assert sorted(with_json(get_command(application(None)))) == sorted(
        (*BAD, *CONFIGURED)
    )


@pytest.mark.parametrize("command", [*BAD, *CONFIGURED])
def test_every_command_tells_programs_what_was_wrong(
    tmp_path: Path, command: str
) -> None:
    configuration = "[tool.scaffold]\n" + "nope = 1\n" * (command in CONFIGURED)
    project(tmp_path, SCALE, configuration=configuration)
    typed = (*command.split(), *BAD.get(command, ()))
    plain = scaffold(tmp_path, *typed)
    told = scaffold(tmp_path, *typed, "--format", "json")
    assert (plain.code, plain.out) == (2, "")
    assert (told.code, told.err) == (2, plain.err), "people hear the same"
    found = json.loads(told.out)
    assert list(found) == ["version", "written", "notes", "problems"]
    assert (found["version"], found["written"]) == (1, False)
    messages = [problem["message"] for problem in found["problems"]]
    assert messages and all(message in told.err for message in messages)


@pytest.mark.parametrize(
    ("file", "said"),
    [("ops.toml", ["'ops.toml': No space left on device"]), (None, [])],
)
def test_what_the_system_refuses_is_a_problem_too(
    file: str | None, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of an output that cannot be written nothing is said in it."""

    def command(format_: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", file)

    with pytest.raises(OSError):
        telling(command)(format_="json")
    out = capsys.readouterr().out
    problems = json.loads(out)["problems"] if out else []
    assert [problem["message"] for problem in problems] == said


def test_a_refusal_is_one_object(tmp_path: Path) -> None:
    """A run that is refused says what it looked at, once, in the form of a run."""
    project(tmp_path, SCALE)
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops/scale.py").write_text("mine = 1\n")
    told = scaffold(tmp_path, "sync", "--format", "json")
    found = json.loads(told.out)
    assert (told.code, found["ops"]) == (1, {"scale": "conflict"})
    (problem,) = found["problems"]
    assert told.err.startswith(f"ops/scale.py:1:1: {problem['message']}\n")
