"""The objects that commands print for programs have the keys that the page for assistants promises."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.running import ROOT, scaffold
from tests.docs.pages import read_table

PAGE = (ROOT / "docs/assistants.md").read_text(encoding="utf-8")
ROWS = {
    command: re.findall(r"`([\w-]+)`", keys)
    for names, keys in read_table(PAGE, "command")
    for command in re.findall(r"`([\w -]+)`", names)
}
ARGUMENTS = {
    "new-op": ("double", "--inputs", "x", "--forward", "x * 2", "--dry-run"),
    "derive": ("scale",),
    "show": ("scale",),
    "bench": ("scale", "--no-compile", "--rounds", "1", "--sizes", "...=2, D=3"),
    "examples": ("norm",),
    "init": ("--dry-run",),
    "adopt": (
        "ops/scale.py::ScaleFunction",
        "--no-verify",
        "--name",
        "second",
        "--dry-run",
    ),
    "test-stub": ("ops/scale.py", "--stdout"),
    "upgrade": ("scale", "--dry-run"),
    "rename": ("scale", "scaled", "--dry-run"),
    "remove": ("scale", "--dry-run"),
    "verify": ("test_small.py",),
    "lint": ("ops",),
    "rules show": ("tanh",),
}


@pytest.mark.usefixtures("few_samples")
@pytest.mark.parametrize("command", ROWS)
def test_a_command_has_the_keys_of_its_row(command: str, synced: Path) -> None:
    (synced / "test_small.py").write_text("def test_a(): pass\n")
    words = (*command.split(), *ARGUMENTS.get(command, ()), "--format", "json")
    done = scaffold(synced, *words)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found.pop("version") == 1
    assert list(found) == ROWS[command]


def test_what_is_refused_has_the_same_keys_of_every_command(tmp_path: Path) -> None:
    for words in (
        ("new-op", "foo", "--inputs", "x["),
        ("new-op", "foo", "--input", "x"),
    ):
        done = scaffold(tmp_path, *words, "--format", "json")
        assert done.code == 2
        found = json.loads(done.out)
        assert list(found) == ["version", "written", "notes", "problems"]
        (problem,) = found["problems"]
        assert list(problem) == ["source", "line", "column", "message", "hint"]
        assert problem["hint"]


def test_json_is_short_for_its_format(synced: Path) -> None:
    for words in (("check",), ("rules", "show", "tanh"), ("list",)):
        long = scaffold(synced, *words, "--format", "json")
        assert scaffold(synced, *words, "--json") == long
        assert json.loads(long.out)["version"] == 1
    refused = scaffold(synced, "check", "--json", "--stric")
    assert (refused.code, json.loads(refused.out)["version"]) == (2, 1)
    assert scaffold(synced, "schema", "--json").code == 2  # it has no format
