"""`scaffold init`: what a project begins with, guessed from the tree; what is there stays."""

import json
import re
import shlex
from pathlib import Path

import pytest

from scaffold.cli.help import COMMANDS
from scaffold.spec import load_configuration
from scaffold.spec.json_schema import ops_schema
from scaffold.spec.toml import parse_toml, read_ops
from tests.cli.running import listing, new_op, scaffold

pytestmark = pytest.mark.usefixtures("proven_at_once")

FILES = {"pyproject.toml", "ops.toml", "scaffold.schema.json"}


def made(directory: Path, *paths: str) -> Path:
    """The directory with some files in it; a path that ends in a slash is a directory."""
    for path in paths:
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        if path.endswith("/"):
            (directory / path).mkdir(exist_ok=True)
        else:
            (directory / path).touch()
    return directory


def places(directory: Path) -> tuple[str, str | None, str | None]:
    found = load_configuration(directory)
    assert found.project
    return found.source, found.tests, found.package


def test_an_empty_directory_becomes_a_project(tmp_path: Path) -> None:
    outcome = scaffold(tmp_path, "init")
    assert (outcome.code, outcome.err) == (0, "")
    files, _, _ = outcome.out.partition("next:\n")
    assert files.split() == [
        *("create", "pyproject.toml", "create", "ops.toml"),
        *("create", "scaffold.schema.json"),
    ]
    assert set(listing(tmp_path)) == FILES
    assert places(tmp_path) == (".", None, None)
    manifest = (tmp_path / "ops.toml").read_text()
    assert manifest.startswith("#:schema ./scaffold.schema.json\n")
    assert read_ops(manifest, "ops.toml") == ()
    schema = json.loads((tmp_path / "scaffold.schema.json").read_text())
    assert schema == ops_schema()


def test_the_next_commands_work_as_they_are_printed(tmp_path: Path) -> None:
    _, _, commands = scaffold(tmp_path, "init").out.partition("next:\n")
    for line in commands.splitlines():
        _, *words = shlex.split(line, comments=True)
        assert scaffold(tmp_path, *words).code == 0, words
    assert "[ops.swish]" in (tmp_path / "ops.toml").read_text()
    again = scaffold(tmp_path, "init")
    assert (again.code, "next:" in again.out) == (0, False)
    quiet = scaffold(tmp_path, "init", "--ci", "github", "--quiet")
    assert (quiet.code, "next:" in quiet.out) == (0, False)


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["src/team/__init__.py"], ("src/team", "tests", "team")),
        (["src/team/ops/"], (".", None, None)),
        (
            ["src/team/__init__.py", "src/team/ops/", "test/"],
            ("src/team/ops", "test", "team.ops"),
        ),
        (["team/__init__.py", "tests/__init__.py"], ("team", "tests", "team")),
        (
            ["a/__init__.py", "my_ops/__init__.py", "docs/__init__.py"],
            ("my_ops", "tests", "my_ops"),
        ),
        (["a/__init__.py", "b/__init__.py", "tests/"], (".", "tests", None)),
        (["script.py", "tests/"], (".", "tests", None)),
    ],
)
def test_the_places_are_guessed_from_the_tree(
    tmp_path: Path, paths: list[str], expected: tuple[str, str | None, str | None]
) -> None:
    made(tmp_path, *paths)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'my-ops'\n")
    assert scaffold(tmp_path, "init").code == 0
    assert places(tmp_path) == expected


@pytest.mark.parametrize("name", ["benchmarks", "docs", "examples", "scripts", "tests"])
def test_what_stands_beside_a_package_is_none(tmp_path: Path, name: str) -> None:
    made(tmp_path, f"{name}/__init__.py")
    assert scaffold(tmp_path, "init").code == 0
    assert places(tmp_path)[0] == "."


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--source lib/ops", ("lib/ops", "tests", None)),
        ("--source src/team/kernels", ("src/team/kernels", "tests", "team.kernels")),
        ("--tests src/team/tests", ("src/team", "src/team/tests", "team")),
        ("--package other", ("src/team", "tests", "other")),
    ],
)
def test_an_option_goes_before_a_guess(
    tmp_path: Path, options: str, expected: tuple[str, str | None, str | None]
) -> None:
    made(tmp_path, "src/team/__init__.py")
    assert scaffold(tmp_path, "init", *shlex.split(options)).code == 0
    assert places(tmp_path) == expected


@pytest.mark.parametrize(
    "text",
    [
        "# mine\n[project]\nname = 'x'  # kept\n\n\n",
        "[project]\nname = 'x'",
        "\ufeff[project]\nname = 'größe'\n",
        "tool.black.line-length = 100\n",
        "[tool.black]\nline-length = 100\n[tool.poetry]\n",
    ],
)
def test_what_the_file_says_is_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(text, encoding="utf-8")
    assert scaffold(tmp_path, "init", "--source", "ops").code == 0
    after = path.read_text(encoding="utf-8")
    assert after == f'{text.rstrip()}\n\n[tool.scaffold]\nsource = "ops"\n'
    before = parse_toml(text.removeprefix("\ufeff"), "")
    data = parse_toml(after.removeprefix("\ufeff"), "")
    assert data["tool"].pop("scaffold") == {"source": "ops"}
    assert {**before, "tool": before.get("tool", {})} == data


def test_line_ends_are_kept(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b"[project]\r\nname = 'x'\r\n")
    assert scaffold(tmp_path, "init").code == 0
    data = (tmp_path / "pyproject.toml").read_bytes()
    assert data == b"[project]\r\nname = 'x'\r\n\r\n[tool.scaffold]\r\n"


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    made(tmp_path, "src/team/__init__.py", ".github/")
    assert scaffold(tmp_path, "init").code == 0
    before = listing(tmp_path)
    outcome = scaffold(tmp_path, "init", "--source", "src/team/")
    assert outcome.code == 0
    note = "note: 'pyproject.toml' has a [tool.scaffold], which stays as it is\n"
    assert outcome.err == note
    assert not re.search("create|update", outcome.out)
    assert listing(tmp_path) == before


def test_a_directory_of_a_project_becomes_none_by_mistake(tmp_path: Path) -> None:
    made(tmp_path, "packages/one/")
    assert scaffold(tmp_path, "init").code == 0
    before = listing(tmp_path)
    inner = tmp_path / "packages" / "one"
    for directory, arguments in ((inner, ["init"]), (tmp_path, ["init", str(inner)])):
        outcome = scaffold(directory, *arguments)
        shown = "" if directory == tmp_path else "../../"
        assert outcome.code == 2
        assert outcome.err.startswith(
            f"{shown}pyproject.toml:1:7: 'packages/one' is part of this project already"
        )
        assert listing(tmp_path) == before
    (inner / "pyproject.toml").touch()  # as the packages of a repository have it
    outcome = scaffold(inner, "init")
    note = "'packages/one' is no longer part of the project of '../../pyproject.toml'"
    assert (outcome.code, outcome.err) == (0, f"note: {note}\n")
    assert scaffold(inner, "check").code == 0
    assert "no part" not in scaffold(inner, "init").err


def test_a_broken_file_above_holds_no_project(tmp_path: Path) -> None:
    made(tmp_path, "one/")
    (tmp_path / "pyproject.toml").write_text("[tool.scaffold\n")
    assert scaffold(tmp_path / "one", "init").code == 0


def test_a_manifest_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.scaffold]\nmanifest = ['all/*.toml', 'all/ops.toml']\n"
    )
    assert scaffold(tmp_path, "init").code == 0
    manifest = tmp_path / "all" / "ops.toml"
    assert manifest.read_text().startswith("#:schema ../scaffold.schema.json\n")
    manifest.write_text("[ops.foo]\ninputs = 'x'\n")
    outcome = scaffold(tmp_path, "init", "--on-conflict", "overwrite")
    assert (outcome.code, manifest.read_text()) == (0, "[ops.foo]\ninputs = 'x'\n")


def test_patterns_name_no_manifest_to_begin_with(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.scaffold]\nmanifest = 'o/*.toml'\n")
    assert scaffold(tmp_path, "init").code == 0
    assert set(listing(tmp_path)) == FILES - {"ops.toml"}


def test_another_file_is_a_conflict(tmp_path: Path) -> None:
    (tmp_path / "scaffold.schema.json").write_text("{}")
    outcome = scaffold(tmp_path, "init")
    assert (outcome.code, set(listing(tmp_path))) == (1, {"scaffold.schema.json"})
    assert "'scaffold.schema.json' exists and differs" in outcome.err
    assert scaffold(tmp_path, "init", "--on-conflict", "skip").code == 0
    assert (tmp_path / "scaffold.schema.json").read_text() == "{}"
    assert set(listing(tmp_path)) == FILES


@pytest.mark.parametrize("option", ["--dry-run", "--diff"])
def test_a_look_writes_nothing(tmp_path: Path, option: str) -> None:
    outcome = scaffold(tmp_path, "init", "--ci", "github", option)
    assert (outcome.code, listing(tmp_path)) == (0, {})
    for name in (*FILES, "scaffold.yml"):
        assert name in outcome.out


def test_the_job_is_written_where_it_is_usual_or_wanted(tmp_path: Path) -> None:
    workflow = ".github/workflows/scaffold.yml"
    for name in ("plain", "usual", "unwanted", "wanted"):
        (tmp_path / name).mkdir()
    made(tmp_path / "usual", ".github/")
    made(tmp_path / "unwanted", ".github/")
    assert scaffold(tmp_path, "init", "plain").code == 0
    assert scaffold(tmp_path, "init", "usual").code == 0
    assert scaffold(tmp_path, "init", "unwanted", "--ci", "none").code == 0
    wanted = scaffold(tmp_path, "init", "wanted", "--ci", "github")
    assert (wanted.code, f"in '{workflow}'" in wanted.err) == (0, True)
    written = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*.yml")}
    assert written == {"usual", "wanted"}
    job = (tmp_path / "wanted" / workflow).read_text()
    commands = re.findall(r"run: scaffold (\S+)", job)
    assert commands and set(commands) <= set(COMMANDS)


def test_a_new_project_is_in_order_and_takes_ops(tmp_path: Path) -> None:
    made(tmp_path, "src/team/__init__.py")
    assert scaffold(tmp_path, "init").code == 0
    assert scaffold(tmp_path, "sync").code == 0
    assert scaffold(tmp_path, "check").code == 0
    assert new_op(tmp_path, "--inputs", "x", name="MyOp").code == 0
    assert {"src/team/my_op.py", "tests/test_my_op.py"} <= set(listing(tmp_path))
    assert "\n[ops.MyOp]\n" in (tmp_path / "ops.toml").read_text()
    assert "class MyOp(nn.Module)" in (tmp_path / "src/team/my_op.py").read_text()
    assert scaffold(tmp_path, "check", "--strict").code == 0


def test_reviews_fold_the_records_up(tmp_path: Path) -> None:
    made(tmp_path, ".git/")
    attributes = tmp_path / ".gitattributes"
    attributes.write_text("*.png binary\n")
    assert scaffold(tmp_path, "init").code == 0
    text = "*.png binary\n/.scaffold/*.json linguist-generated -diff\n"
    assert attributes.read_text() == text
    assert scaffold(tmp_path, "init").code == 0
    assert attributes.read_text() == text


def test_what_is_no_repository_gets_no_attributes(tmp_path: Path) -> None:
    assert scaffold(tmp_path, "init").code == 0
    assert not (tmp_path / ".gitattributes").exists()


def test_a_package_that_is_built_wants_to_be_installed_for_its_tests(
    tmp_path: Path,
) -> None:
    built = "[project]\nname = 'team'\n[build-system]\nrequires = []\n"
    made(tmp_path, "src/team/__init__.py", "tests/")
    (tmp_path / "pyproject.toml").write_text(built)
    outcome = scaffold(tmp_path, "init")
    assert outcome.err == (
        "note: tests import 'team' as it is installed: pip install -e . before they run\n"
    )
