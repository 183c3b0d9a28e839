"""The README is true: its commands print what it shows, and what it names exists."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from scaffold.cli.app import COMMANDS as COMMANDS_OF_THE_TOOL
from scaffold.cli.app import application
from scaffold.errors import Location
from scaffold.spec import Attribute, OpSpec, TensorInput, build, load_configuration
from scaffold.spec.config_keys import KEYS as CONFIGURATION_KEYS
from scaffold.spec.toml import parse_toml
from tests.cli.running import scaffold
from tests.docs.readme import (
    ROOT,
    TEXT,
    Command,
    File,
    read_blocks,
    read_code,
    read_steps,
    read_table,
)
from tests.executed.checks import findings_of_ruff

BLOCKS = read_blocks(TEXT)
CODE = read_code(TEXT)
COMMANDS = [step for step in read_steps(TEXT) if isinstance(step, Command)]
FORMS = read_table(TEXT, "form")
OPTIONS = read_table(TEXT, "option")
FIRST_CODE = re.compile(r"`([^`]+)`")


@dataclass
class Played:
    """The directory of a reader who did all of it, and what each command printed."""

    directory: Path
    printed: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def played(
    environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Played:
    """The README from top to bottom in one empty directory."""
    played = Played(tmp_path_factory.mktemp("reader"))
    for step in read_steps(TEXT):
        if isinstance(step, File):
            (played.directory / step.name).write_text(step.text)
        else:
            played.printed.append(run(step.text, played.directory, environment).stdout)
    return played


def run(
    command: str, directory: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """What a terminal shows of a command."""
    return subprocess.run(
        command,
        shell=True,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def without_times(output: str) -> str:
    """The output with pytest's time taken out; nothing else varies."""
    return re.sub(
        r"\bin \d+\.\d\ds( \(\d+:\d\d:\d\d\))?$", "in _s", output, flags=re.MULTILINE
    )


def transcript(outputs: list[str]) -> str:
    """The commands with what they print, as a terminal shows them."""
    shown = zip(COMMANDS, outputs, strict=True)
    return "".join(
        f"$ {command.text}\n{without_times(output)}" for command, output in shown
    )


def test_commands_print_and_generate_what_is_shown(played: Played) -> None:
    """In one test: it is played once, whoever runs which tests."""
    shown = transcript([command.output for command in COMMANDS])
    assert transcript(played.printed) == shown
    for block in BLOCKS:
        if block.role == "shown":
            assert block.text in (played.directory / block.name).read_text(), block


def test_every_file_that_is_written_is_used() -> None:
    """A `file:` block that no command names would be noise."""
    typed = "\n".join(command.text for command in COMMANDS)
    for step in read_steps(TEXT):
        assert isinstance(step, Command) or step.name in typed


def test_ruff_has_nothing_to_say_of_files_that_are_written(tmp_path: Path) -> None:
    """What a reader copies as it stands."""
    for step in read_steps(TEXT):
        if isinstance(step, File) and step.name.endswith(".py"):
            (tmp_path / step.name).write_text(step.text)
    assert (tmp_path / "rms.py").exists()
    assert not findings_of_ruff(tmp_path)


def test_every_comment_belongs_to_a_block() -> None:
    """A comment that is a line away from its block would switch a check off."""
    comments = re.findall(r"^<!-- (\w+): (\S+) -->$", TEXT, re.MULTILINE)
    assert comments == [(b.role, b.name) for b in BLOCKS if b.role]
    assert {role for role, _ in comments} == {"start", "shown", "file"}
    assert TEXT.count("```") == 2 * len(BLOCKS)


@pytest.fixture(scope="module")
def help_text() -> str:
    asked = ([*command.split(), "--help"] for command in ("", *commands_of_the_tool()))
    return "".join(scaffold(ROOT, *words).out for words in asked)


def commands_of_the_tool() -> Iterator[str]:
    """Every command, and those below it."""
    yield from COMMANDS_OF_THE_TOOL
    for group in application(None).registered_groups:
        below = group.typer_instance.registered_commands if group.typer_instance else ()
        yield from (f"{group.name} {command.name}" for command in below)


NAMED = sorted(
    {
        flag
        for text in (*CODE, *(c.text for c in COMMANDS))
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)
    }
)


@pytest.mark.parametrize("flag", NAMED)
def test_an_option_that_is_named_exists(help_text: str, flag: str) -> None:
    assert re.search(rf"(?m)^  .*{flag}(?![\w-])", help_text)


def op(inputs: str) -> OpSpec:
    return build(
        "op", {"inputs": inputs}, lambda path, key=False: Location("README.md")
    )


@pytest.mark.parametrize(
    "form", [form for row in FORMS for form in FIRST_CODE.findall(row[0])]
)
def test_a_form_of_the_inputs_parses(form: str) -> None:
    assert len(op(f"first[N, C], {form}").inputs) == 2


def words(row: str) -> list[str]:
    """The words that a row of the inputs table offers, from the code of its second column."""
    (meaning,) = (cells[1] for cells in FORMS if cells[0] == row)
    offered = max(FIRST_CODE.findall(meaning), key=len)
    return [word for word in offered.split() if word.isidentifier()]


@pytest.mark.parametrize("word", words("`x[...; positive]`"))
def test_a_source_of_test_values_exists(word: str) -> None:
    (tensor,) = op(f"x[N, N; {word}]").inputs
    assert isinstance(tensor, TensorInput) and tensor.domain == word


@pytest.mark.parametrize(
    "word",
    [
        *words("`eps: float = 1e-6`, `dim = -1`"),
        "tuple[int, ...]",
        "Literal['a', 'b']",
        "my_package.Mode",
    ],
)
def test_a_type_of_an_attribute_exists(word: str) -> None:
    assert isinstance(op(f"x, a: {word}").inputs[1], Attribute)


@pytest.mark.parametrize("option", [FIRST_CODE.findall(row[0])[0] for row in OPTIONS])
def test_an_option_of_the_table_works(option: str, tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text("def make():\n    return []\n")
    command = ["new-op", "op", "--inputs", "x[H], y[G]", "--stdout"]
    if option == "--no-shape-checks":  # a skeleton has none
        command += ["--no-verify", "--forward", "x.mean(0) * y.mean(0)"]
    before = scaffold(tmp_path, *command)
    after = scaffold(tmp_path, *command, *shlex.split(option))
    assert (before.code, after.code) == (0, 0), after.err
    assert before.out + before.err != after.out + after.err


def test_the_schema_string_works(environment: dict[str, str], tmp_path: Path) -> None:
    (option,) = (code for code in CODE if code.startswith("--schema"))
    done = run(f"scaffold new-op linear {option}", tmp_path, environment)
    assert (done.returncode, (tmp_path / "linear.py").exists()) == (
        0,
        True,
    ), done.stdout


def test_toml_loads_and_every_key_of_the_configuration_is_shown(tmp_path: Path) -> None:
    tables = [parse_toml(b.text, "README.md") for b in BLOCKS if b.language == "toml"]
    (shown,) = (table["tool"]["scaffold"] for table in tables if "tool" in table)
    assert sorted(shown) == sorted(CONFIGURATION_KEYS)
    (block,) = (b for b in BLOCKS if b.text.startswith("[tool.scaffold]"))
    (tmp_path / "pyproject.toml").write_text(block.text)
    (tmp_path / "rules.toml").write_text("")
    (tmp_path / "templates").mkdir()
    configuration = load_configuration(tmp_path)
    assert configuration.source == shown["source"]
    assert configuration.parameter_names == tuple(shown["parameter-names"])


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", TEXT):
        assert (ROOT / target).exists(), target
