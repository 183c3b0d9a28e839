"""What help shows: few options first, all of them behind --help-all, and the same from every way to ask."""

import re
from pathlib import Path

import pytest
from typer.core import TyperOption
from typer.main import get_command

from scaffold.cli.app import application
from scaffold.cli.help import COMMANDS, EXAMPLES, INPUTS, PANELS, SHARED, first_page
from scaffold.errors import Location
from scaffold.spec import TensorInput
from scaffold.spec.build import build
from tests.cli.running import run, scaffold

FEW = 24  # options and forms of inputs that a page shows before --help-all
LONGEST = 60  # lines


def test_the_first_page_is_the_same_however_it_is_asked_for(tmp_path: Path) -> None:
    page = first_page() + "\n"
    for words in (["--help"], ["-h"], ["help"], ["-q", "--help"]):
        assert scaffold(tmp_path, *words).out == page
    nothing = scaffold(tmp_path)
    assert (nothing.code, nothing.err) == (2, page)
    assert len(page.splitlines()) < LONGEST
    for example in EXAMPLES:
        assert example in page


def test_help_of_a_command_is_its_page(tmp_path: Path) -> None:
    for words in ("new-op", "rules", "rules show"):
        named = words.split()
        page = scaffold(tmp_path, *named, "--help")
        assert (page.code, page.err) == (0, "")
        assert scaffold(tmp_path, "help", *named) == page
    unknown = scaffold(tmp_path, "help", "new-ops")
    assert unknown.code == 2 and "no such command 'new-ops'" in unknown.err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_has_few_options_and_all_has_every_one(
    name: str, tmp_path: Path
) -> None:
    short, long = (
        scaffold(tmp_path, name, flag).out for flag in ("--help", "--help-all")
    )
    shown = re.findall(r"(?m)^  (--[a-z-]+)", short)
    assert len(shown) <= FEW
    command = get_command(application(None)).commands[name]  # type: ignore[attr-defined]
    for option in command.params:
        if isinstance(option, TyperOption):
            flag = next(item for item in option.opts if item.startswith("--"))
            assert re.search(rf"(?m)^  (-\w, )?{flag}\b", long), flag
    for flag in SHARED:
        assert f"  {flag}" in long
    assert name == "help" or f"scaffold {name} --help-all" in short


def test_panels_name_options_that_are_there() -> None:
    """Or they would be shown to nobody."""
    for name, panels in PANELS.items():
        command = get_command(application(None)).commands[name]  # type: ignore[attr-defined]
        there = {flag for item in command.params for flag in item.opts}
        named = [flag for panel in panels for flag in panel.options]
        assert set(named) <= there | {"--prove"}
        assert len(named) == len(set(named))


def test_the_forms_of_inputs_are_inputs() -> None:
    for form in INPUTS:
        found = build(
            "op", {"inputs": f"first, {form}"}, lambda *_, **__: Location("help")
        )
        assert len(found.inputs) == 2 and isinstance(found.inputs[0], TensorInput)


def test_help_fits_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for columns in (60, 80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        text = scaffold(tmp_path, "sync", "--help-all").out
        assert max(map(len, text.splitlines())) <= min(columns, 100)


def test_groups_tell_of_their_commands_in_whole_sentences(tmp_path: Path) -> None:
    page = " ".join(scaffold(tmp_path, "templates", "--help").out.split())
    assert "where each comes from, and which blocks it overrides." in page
    assert "Check that templates render sample ops to Python." in page


def test_short_options(tmp_path: Path) -> None:
    assert scaffold(tmp_path, "-V") == scaffold(tmp_path, "--version")
    op = ("new-op", "foo", "--inputs", "x[N, in_features], weight[out, in_features]")
    plain = scaffold(tmp_path, *op, "--dry-run")
    assert "create  foo.py" in plain.out and "note: " in plain.err
    quiet = scaffold(tmp_path, *op, "-q", "--dry-run")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    assert scaffold(tmp_path, "-q", *op, "--dry-run") == quiet
    much = scaffold(tmp_path, *op, "-v", "--dry-run")
    assert much.out == plain.out
    first, second, *rest, last = much.err.splitlines()
    assert re.fullmatch(r"scaffold: scaffold \S+, Python \S+", first)
    assert second == "scaffold: configuration: none"
    assert "\n".join(rest) + "\n" == plain.err
    assert re.fullmatch(r"scaffold: \d+\.\d\d s", last)
    wrong = scaffold(tmp_path, "new-op", "foo", "-q", "--format", "texts")
    assert wrong.code == 2 and "hint: " in wrong.err


def test_colours_only_where_they_are_shown(tmp_path: Path) -> None:
    plain = run(tmp_path, "new-op", "--help")
    assert "\x1b[" not in plain.out
    forced = run(tmp_path, "new-op", "--help", FORCE_COLOR="1")
    assert "\x1b[1mUsage:\x1b[0m" in forced.out
    assert re.sub(r"\x1b\[[\d;]*m", "", forced.out) == plain.out
    assert run(tmp_path, "--help", FORCE_COLOR="1", NO_COLOR="1").out == (
        run(tmp_path, "--help").out
    )
    wrong = run(tmp_path, "new-op", "foo", "--format", "texts", FORCE_COLOR="1")
    assert "\x1b[36mhint:\x1b[0m" in wrong.err
