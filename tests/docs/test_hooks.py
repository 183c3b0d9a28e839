"""The hooks for pre-commit: each is a command of the tool that a commit may run."""

import re
import shlex

import pytest

from scaffold.cli.help import COMMANDS
from tests.docs.pages import ROOT, read_page

# `key: value` lines, an entry for each `- id:`; more of YAML the file does not use.
HOOKS = [
    dict(re.findall(r"^[- ] (\w+): (.*)$", block, re.MULTILINE))
    for block in (ROOT / ".pre-commit-hooks.yaml").read_text().split("\n\n")
]


def test_the_hooks_are_those_that_the_page_names() -> None:
    ids = [hook["id"] for hook in HOOKS]
    assert ids == ["scaffold-check", "scaffold-lint"]
    for name in ids:
        assert f"- id: {name}" in read_page("docs/editors-ci.md")


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: str(hook["id"]))
def test_a_hook_is_a_command(hook: dict[str, str]) -> None:
    program, command = shlex.split(hook["entry"])
    assert (program, hook["language"]) == ("scaffold", "python")
    assert command in COMMANDS
    assert hook["id"] == f"{program}-{command}"


def test_check_runs_for_whatever_it_is_about() -> None:
    (check,) = (hook for hook in HOOKS if hook["id"] == "scaffold-check")
    for path in ("ops.toml", "src/rms_norm.py", ".scaffold/rms_norm.json"):
        assert re.search(check["files"], path), path
    assert not re.search(check["files"], "README.md")
