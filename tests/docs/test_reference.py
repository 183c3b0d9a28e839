"""What the pages name exists: options, forms of the inputs, keys of the configuration."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from scaffold.cli.app import application
from scaffold.cli.help import COMMANDS as COMMANDS_OF_THE_TOOL
from scaffold.errors import Location
from scaffold.spec import Attribute, OpSpec, TensorInput, load_configuration
from scaffold.spec.build import build
from scaffold.spec.config_keys import KEYS as CONFIGURATION_KEYS
from scaffold.spec.toml import parse_toml
from tests.cli.running import scaffold
from tests.docs.pages import (
    PAGES,
    ROOT,
    Command,
    read_blocks,
    read_code,
    read_page,
    read_steps,
    read_table,
)

TEXTS = [path.read_text(encoding="utf-8") for path in PAGES]
CODE = [code for text in TEXTS for code in read_code(text)]
COMMANDS = [
    step for text in TEXTS for step in read_steps(text) if isinstance(step, Command)
]
FORMS = read_table(read_page("docs/inputs.md"), "form")
OPTIONS = read_table(read_page("docs/options.md"), "option")
FIRST_CODE = re.compile(r"`([^`]+)`")


@pytest.fixture(scope="module")
def help_text() -> str:
    asked = (
        [*command.split(), "--help-all"] for command in ("", *commands_of_the_tool())
    )
    return "".join(scaffold(ROOT, *words).out for words in asked)


def commands_of_the_tool() -> Iterator[str]:
    """Every command, and those below it."""
    yield from COMMANDS_OF_THE_TOOL
    for group in application(None).registered_groups:
        below = group.typer_instance.registered_commands if group.typer_instance else ()
        yield from (f"{group.name} {command.name}" for command in below)


OTHERS = ("python ", "pytest ", "uv", "pip")  # commands that have options of their own
NAMED = sorted(
    {
        flag
        for text in (*CODE, *(c.text for c in COMMANDS))
        if not text.startswith(OTHERS)
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)
    }
)


@pytest.mark.parametrize("flag", NAMED)
def test_an_option_that_is_named_exists(help_text: str, flag: str) -> None:
    assert re.search(rf"(?m)^  .*{flag}(?![\w-])", help_text)


def op(inputs: str) -> OpSpec:
    return build(
        "op", {"inputs": inputs}, lambda path, key=False: Location("inputs.md")
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
    if option.startswith("--test-shapes"):  # those that are declared have one
        command[3] = "x, w"
    before = scaffold(tmp_path, *command)
    after = scaffold(tmp_path, *command, *shlex.split(option))
    assert (before.code, after.code) == (0, 0), after.err
    assert before.out + before.err != after.out + after.err


def test_the_schema_string_works(tmp_path: Path) -> None:
    (option,) = (code for code in CODE if code.startswith("--schema '"))
    command = ["new-op", "linear", *shlex.split(option), "--no-verify"]
    done = scaffold(tmp_path, *command)
    assert (done.code, (tmp_path / "linear.py").exists()) == (0, True), done.err


def test_every_key_of_the_configuration_is_shown(tmp_path: Path) -> None:
    (block,) = read_blocks(read_page("docs/configuration.md"))[:1]
    shown = parse_toml(block.text, "configuration.md")["tool"]["scaffold"]
    assert sorted(shown) == sorted(CONFIGURATION_KEYS)
    (tmp_path / "pyproject.toml").write_text(block.text)
    (tmp_path / "rules.toml").write_text("")
    (tmp_path / "templates").mkdir()
    configuration = load_configuration(tmp_path)
    assert configuration.source == shown["source"]
    assert configuration.parameter_names == tuple(shown["parameter-names"])
