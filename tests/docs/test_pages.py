"""The README and the pages of docs/ are true: their commands print what they show, and what they name exists."""

import os
import re
from pathlib import Path

import pytest

from scaffold.spec.toml import parse_toml
from tests.docs.pages import (
    PAGES,
    README,
    ROOT,
    Block,
    Command,
    File,
    read_blocks,
    read_code,
    read_page,
    read_steps,
)
from tests.docs.playing import play, with_outputs
from tests.executed.checks import findings_of_ruff
from tests.sweeps import in_every_run

NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]
PLAYED = [name for name in NAMES if read_steps(read_page(name))]
# They prove many ops, or run the tests of one again and again: a second or more each.
SLOW = {
    f"docs/{name}.md" for name in ("assistants", "first-day", "first-op", "gradients")
}
SLOW |= {"docs/old-functions.md", "docs/projects.md", "docs/python.md"}
SLOW |= {"docs/templates.md"}
# Languages whose blocks are a step, and those whose blocks only have to be well formed.
STEPS = {"console", "pycon"}
PICTURE = "text"
CONFIGURATION = "pyproject"  # every command reads it


@pytest.mark.parametrize(
    "name",
    in_every_run(PLAYED, {*PLAYED} - SLOW, pytest.mark.each_commit),
)
def test_commands_print_and_generate_what_is_shown(name: str, tmp_path: Path) -> None:
    text = read_page(name)
    played = play(text, tmp_path)
    if os.environ.get("SCAFFOLD_REGENERATE"):
        (ROOT / name).write_text(with_outputs(text, played), encoding="utf-8")
        return
    assert played.seen == played.shown
    for block in read_blocks(text):
        if block.role == "shown":
            assert block.text in (tmp_path / block.name).read_text(), block


@pytest.mark.parametrize("name", NAMES)
def test_every_block_is_run_or_says_why_not(name: str) -> None:
    text = read_page(name)
    for block in read_blocks(text):
        assert block.role or block.language in STEPS or _is_well_formed(block), block
    # a comment that is a line away from its block would switch a check off
    comments = re.findall(
        r"^<!-- (file|shown|start|not run): (.+) -->$", text, re.MULTILINE
    )
    assert comments == [(b.role, b.name) for b in read_blocks(text) if b.role]
    assert text.count("```") == 2 * len(read_blocks(text))


def _is_well_formed(block: Block) -> bool:
    if block.language == "toml":
        return bool(parse_toml(block.text, "page"))
    # a directive is run by the build of the site
    return block.language == PICTURE or block.language.startswith("{")


@pytest.mark.parametrize("name", PLAYED)
def test_every_file_that_is_written_is_used(name: str) -> None:
    """A `file:` block that no command names would be noise."""
    steps = read_steps(read_page(name))
    typed = "\n".join(step.text for step in steps if not isinstance(step, File))
    for step in steps:
        stem = Path(step.name).stem if isinstance(step, File) else ""
        assert stem in typed or stem == CONFIGURATION
        if isinstance(step, File):  # the comment that names it is not shown
            assert step.name in read_code(read_page(name)), step.name


def test_ruff_has_nothing_to_say_of_files_that_are_written(tmp_path: Path) -> None:
    """What a reader copies as it stands."""
    for name in PLAYED:
        for step in read_steps(read_page(name)):
            if isinstance(step, File) and step.name.endswith(".py"):
                own = f"{Path(name).stem}_{step.name}".replace("/", "_")
                (tmp_path / own).write_text(step.text)
    assert (tmp_path / "gradients_rms.py").exists()
    assert not findings_of_ruff(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\((?!\w+:)([^)#]+)", read_page(name)):
        assert (ROOT / name).parent.joinpath(target).exists(), target


def test_every_page_is_reached_from_the_start() -> None:
    index = read_page("docs/index.md")
    for path in PAGES:
        assert path == README or path.stem == "index" or path.stem in index, path


def test_the_readme_says_in_a_line_where_old_functions_go() -> None:
    """From lint and verify to adopt: one sentence names them, and links the page that walks through them."""
    sentences = read_page("README.md").split("\n- ")
    (line,) = (x for x in sentences if "you have [hand-written" in x)
    assert "(docs/old-functions.md)" in line
    assert all(f"`scaffold {name}" in line for name in ("lint", "verify FILE"))
    assert "adopt" in line


def test_the_readme_is_a_screen_and_a_half() -> None:
    assert len(read_page("README.md").splitlines()) <= 160
    commands = [
        step for step in read_steps(read_page("README.md")) if isinstance(step, Command)
    ]
    assert commands
