"""`[tool.scaffold]`: what it says, from where it is taken, and what it may not say."""

import ast
import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from scaffold.errors import ScaffoldError
from scaffold.spec import (
    Configuration,
    OpSpec,
    config,
    load_configuration,
    op_spec,
)
from scaffold.spec.config import read_configuration
from scaffold.spec.config_keys import KEYS
from scaffold.spec.lint_settings import LintConfiguration
from scaffold.spec.names import Patterns
from scaffold.spec.toml import parse_toml, toml_text


def read(text: str) -> Configuration:
    found = read_configuration(f"[tool.scaffold]\n{text}", "pyproject.toml", "root")
    assert found is not None
    return found


def test_every_key_is_read() -> None:
    found = read("""
source = 'src/ops/'
tests = './tests'
package = 'my.ops'
style = 'combined'
line-length = 100
parameter-names = ['w']
conventions = [{ x = '..., D', w = 'D, 3' }]
manifest = ['ops/*.toml', './more.toml']
save-policy = 'balanced'
defaults = { module = false, tolerance = { atol = 1e-4 } }
require = ['doc', 'reason']
names = { file = '{op}_op.py', function = '_{Op}' }
licence = '''
Copyright Us
All rights reserved'''
header = false
docstrings = 'numpy'
exports = true
formatter = 'ruff'
lint = { ignore = ['af01'] }
""")
    assert found == Configuration(
        root="root",
        project=True,
        source="src/ops",
        tests="tests",
        package="my.ops",
        style="combined",
        line_length=100,
        parameter_names=("w",),
        conventions=((("x", ("...", "D")), ("w", ("D", 3))),),
        manifest=("ops/*.toml", "more.toml"),
        save_policy="balanced",
        defaults=(("module", False), ("tolerance", {"atol": 1e-4})),
        require=("doc", "reason"),
        names=Patterns(file="{op}_op.py", function="_{Op}"),
        licence="Copyright Us\nAll rights reserved",
        header=False,
        docstrings="numpy",
        exports=True,
        formatter="ruff",
        lint=LintConfiguration(ignore=("AF01",)),
    )


def test_nothing_said_leaves_the_defaults() -> None:
    assert read("") == Configuration(root="root", project=True)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("[tool.black]\nline-length = 79\n[tool.ruff]\nline-length = 99\n", 79),
        ("[tool.ruff]\nline-length = 99\n[tool.black]\npreview = true\n", 99),
        ("[tool]\nblack = 3\n[tool.ruff]\nline-length = true\n", 88),
    ],
)
def test_the_line_length_of_the_formatter_holds(text: str, length: int) -> None:
    found = read_configuration(f"{text}[tool.scaffold]\n", "pyproject.toml", ".")
    assert found is not None and found.line_length == length


def test_the_nearest_file_that_has_the_table_is_taken(tmp_path: Path) -> None:
    below = tmp_path / "member" / "src"
    below.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.scaffold]\nsource = 'ops'\n")
    member = tmp_path / "member" / "pyproject.toml"
    member.write_text("[tool.black]\nline-length = 70\n")
    assert load_configuration(below).root == str(tmp_path)
    member.write_text("[tool.scaffold]\n")
    assert load_configuration(below).root == str(tmp_path / "member")


def test_without_the_table_the_line_length_still_holds(tmp_path: Path) -> None:
    project = tmp_path / "pyproject.toml"
    project.write_text("[tool.ruff]\nline-length = 70\n")
    assert load_configuration(tmp_path) == Configuration(line_length=70)
    project.write_text("[tool.ruff\nline-length = 70\n")  # its owner's affair
    assert load_configuration(tmp_path) == Configuration()


def test_a_broken_file_is_an_error_as_seen_from_here(tmp_path: Path) -> None:
    below = tmp_path / "src"
    below.mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.scaffold]\nsource = \n")
    with pytest.raises(ScaffoldError, match="not valid TOML: invalid value") as caught:
        load_configuration(below)
    assert str(caught.value).startswith("../pyproject.toml:2:10: ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "sorce = 'x'",
            "2:1: unknown key 'sorce' in [tool.scaffold]\nhint: did you mean 'source'?",
        ),
        ("source = 3", "2:10: 'source' must be a string"),
        (
            "source = '/usr'",
            (
                "2:11: 'source' must be a directory of the project\n"
                "hint: write it relative to the project, such as 'src/ops'"
            ),
        ),
        (
            "tests = 'a/../../b'",
            (
                "2:10: 'tests' must be a directory of the project\n"
                "hint: write it relative to the project, such as 'src/ops'"
            ),
        ),
        (
            "package = 'my-ops'",
            "2:12: 'my-ops' is not a package\nhint: write: package = 'myops'",
        ),
        (
            "package = 'a.class'",
            "2:12: 'a.class' is not a package\nhint: write: package = 'myops'",
        ),
        (
            "style = 'combinde'",
            "2:10: unknown value 'combinde' for 'style'\nhint: did you mean 'combined'?",
        ),
        ("line-length = true", "2:15: 'line-length' must be a number from 40 up"),
        ("line-length = 8", "2:15: 'line-length' must be a number from 40 up"),
        (
            "parameter-names = 'w'",
            (
                "2:20: 'parameter-names' must be a list of strings\n"
                "hint: write: parameter-names = ['w']"
            ),
        ),
        (
            "parameter-names = ['w', 'grad_w']",
            (
                "2:26: 'grad_w' cannot name a parameter: it is kept for gradients\n"
                "hint: choose another name, such as 'w_grad'"
            ),
        ),
        (
            "conventions = { x = 'D' }",
            (
                "2:15: 'conventions' must be a list of tables\n"
                "hint: write: conventions = [{ x = 'N, D', scale = 'D' }]"
            ),
        ),
        ("conventions = [{ x = 1 }]", "2:22: the shape of 'x' must be a string"),
        (
            "conventions = [{ x = 'D' }, { y = 'D, 0' }]",
            (
                "2:39: 0 is not a size\n"
                "hint: sizes are integers from 1; empty cases are tested anyway"
            ),
        ),
        (
            "conventions = [{ x = 'D', D = '3' }]",
            (
                "2:23: the dimension 'D' has the name of a tensor\n"
                "hint: give one of them another name"
            ),
        ),
    ],
)
def test_what_it_may_not_say(text: str, message: str) -> None:
    with pytest.raises(ScaffoldError) as caught:
        read(text)
    assert str(caught.value) == f"pyproject.toml:{message}"


def test_all_problems_come_together() -> None:
    with pytest.raises(ScaffoldError) as caught:
        read("style = 1\nsource = 2\nline-length = 'x'")
    places = [str(item.location) for item in caught.value.problems]
    assert places == [f"pyproject.toml:{place}" for place in ("2:9", "3:10", "4:16")]


def test_the_table_must_be_one() -> None:
    with pytest.raises(ScaffoldError, match="'tool.scaffold' must be a table"):
        read_configuration("[tool]\nscaffold = 1", "pyproject.toml", ".")


def test_the_defaults_of_the_table_are_those_of_the_configuration() -> None:
    lines = (
        f"{key} = {toml_text(row.default)}"
        for key, row in KEYS.items()
        if row.default is not None
    )
    assert read("\n".join(lines)) == read("")
    fields = {key.replace("-", "_") for key in KEYS}
    assert fields < set(Configuration._fields)
    unset = {key.replace("-", "_") for key, row in KEYS.items() if row.default is None}
    assert {Configuration._field_defaults[name] for name in unset} == {None}


def test_an_op_has_the_default_style_and_policy_of_the_configuration() -> None:
    of_an_op = {item.name: item.default for item in fields(OpSpec)}
    for key in ("style", "save-policy"):
        field = key.replace("-", "_")
        assert of_an_op[field] == Configuration._field_defaults[field]
        assert of_an_op[field] == KEYS[key].default


def test_no_field_repeats_a_word_of_the_table() -> None:
    """A default written again in a field could come to differ from the first."""
    words = {row.default for row in KEYS.values() if isinstance(row.default, str)}
    assert {"ops.toml", "balanced", "setup-context", "google"} < words
    for module in (config, op_spec):
        tree = ast.parse(inspect.getsource(module))
        defaults = [
            node.value for node in ast.walk(tree) if isinstance(node, ast.AnnAssign)
        ]
        parts = [part for node in defaults if node for part in ast.walk(node)]
        texts = {part.value for part in parts if isinstance(part, ast.Constant)}
        assert not texts & (words - {"."})  # the root, too, is "."


@pytest.mark.parametrize(
    ("text", "single"),
    [
        ("[tool.ruff.lint.isort]\nforce-single-line = true\n", True),
        ("[tool.ruff.isort]\nforce-single-line = true\n", True),
        ("[tool.isort]\nforce_single_line = true\n", True),
        ("[tool.isort]\nforce_single_line = 'yes'\n", False),
        ("[tool.ruff.lint]\nisort = 1\n", False),
    ],
)
def test_single_line_imports_are_seen(text: str, single: bool, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    assert load_configuration(tmp_path).single_line_imports == single
    (tmp_path / "pyproject.toml").write_text(f"{text}[tool.scaffold]\n")
    assert load_configuration(tmp_path).single_line_imports == single


# Key -> what a variable says, and the field's value.
STATED: dict[str, tuple[str, Any]] = {
    "source": ("src/ops/", "src/ops"),
    "manifest": ("a.toml:b/*.toml", ("a.toml", "b/*.toml")),
    "style": ("combined", "combined"),
    "namespace": ("mylib", "mylib"),
    "line-length": ("100", 100),
    "header": ("FALSE", False),
    "exports": ("1", True),
    "require": ("doc, test", ("doc", "test")),
    "parameter-names": ("w,gain", ("w", "gain")),
    "names": ("{ test = '{op}_test.py' }", Patterns(test="{op}_test.py")),
    "defaults": ("{ module = false }", (("module", False),)),
    "conventions": ("[{ x = 'N', w = 'N' }]", ((("x", ("N",)), ("w", ("N",))),)),
    "licence": ("Copyright Us", "Copyright Us"),
}


@pytest.mark.parametrize("key", STATED)
def test_a_variable_goes_before_the_file(key: str, tmp_path: Path) -> None:
    text, value = STATED[key]
    variable = f"SCAFFOLD_{key.upper().replace('-', '_')}"
    field = key.replace("-", "_")
    (tmp_path / "pyproject.toml").write_text("[tool.scaffold]\n")
    before = load_configuration(tmp_path)
    assert getattr(before, field) != value
    after = load_configuration(tmp_path, {variable: text})
    assert after == before._replace(**{field: value})
    (tmp_path / "pyproject.toml").write_text(
        f"[tool.scaffold]\n{key} = {toml_text(KEYS[key].default or 'x')}\n"
    )
    assert load_configuration(tmp_path, {variable: text}) == after
    (tmp_path / "pyproject.toml").unlink()
    alone = load_configuration(tmp_path, {variable: text})
    assert alone == Configuration()._replace(**{field: value})


def test_an_empty_variable_says_nothing(tmp_path: Path) -> None:
    variables = {"SCAFFOLD_STYLE": "", "SCAFFOLD_RULES": "", "SCAFFOLD_OTHER": "x"}
    assert load_configuration(tmp_path, variables) == Configuration()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("SCAFFOLD_STYL", "SCAFFOLD_STYLE"),
        ("SCAFFOLD_SAVEPOLICY", "SCAFFOLD_SAVE_POLICY"),
        ("SCAFFOLD_LINELENGTH", "SCAFFOLD_LINE_LENGTH"),
        ("SCAFFOLD_EXPORT", "SCAFFOLD_EXPORTS"),
        ("SCAFFOLD_template_dirs", "SCAFFOLD_TEMPLATE_DIRS"),
    ],
)
def test_a_variable_that_is_misspelt_is_an_error(
    tmp_path: Path, name: str, meant: str
) -> None:
    with pytest.raises(ScaffoldError) as caught:
        load_configuration(tmp_path, {name: "x", "PATH": "/bin"})
    assert str(caught.value).splitlines() == [
        f"{name}: the configuration has no such key: {name}",
        f"hint: did you mean {meant}?",
    ]


@pytest.mark.parametrize("name", ["SCAFFOLD_REGENERATE", "SCAFFOLD_HOME", "STYL"])
def test_a_variable_of_another_tool_says_nothing(tmp_path: Path, name: str) -> None:
    assert load_configuration(tmp_path, {name: "x"}) == Configuration()


def test_problems_of_file_and_variables_come_together(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.scaffold]\nstyle = 1\nsource = 2\n")
    variables = {
        "SCAFFOLD_LINE_LENGTH": "wide",
        "SCAFFOLD_HEADER": "maybe",
        "SCAFFOLD_STYLE": "combinde",
        "SCAFFOLD_TEMPLATE_DIRS": "pyproject.toml",
        "SCAFFOLD_NAMES": "{ file = ",
    }
    with pytest.raises(ScaffoldError) as caught:
        load_configuration(tmp_path, variables)
    assert str(caught.value).splitlines() == [
        "SCAFFOLD_HEADER: 'header' must be true or false",
        "SCAFFOLD_LINE_LENGTH: 'line-length' must be a number from 40 up",
        "SCAFFOLD_NAMES: 'names' must be a table",
        "hint: write: names = { file = '{op}.py', function = '{Op}Function' }",
        "SCAFFOLD_STYLE: unknown value 'combinde' for 'style'",
        "hint: did you mean 'combined'?",
        "SCAFFOLD_TEMPLATE_DIRS: 'pyproject.toml' is not a directory",
        "pyproject.toml:3:10: 'source' must be a string",
    ]


def test_directories_of_templates_count_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "team" / "src").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text(
        "[tool.scaffold]\ntemplate-dirs = ['team/', './team/src']\n"
    )
    found = load_configuration(tmp_path / "team" / "src")
    assert found.template_dirs == ("team", "team/src")


@pytest.mark.parametrize(
    "value", ["x", 'a"b\\c\n\t\x7f', "größe 😀", 1, True, [], ["a", {"b c": {}}], 0.5]
)
def test_text_of_toml_is_read_back(value: object) -> None:
    assert parse_toml(f"value = {toml_text(value)}", "") == {"value": value}
