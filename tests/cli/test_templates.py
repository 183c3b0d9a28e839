"""`scaffold templates`: what there is, a start, the differences, and whether they hold."""

import json
from pathlib import Path

import pytest

from scaffold.render.templates import built_in
from tests.cli.running import listing, new_op, scaffold

pytestmark = pytest.mark.usefixtures("proven_at_once")

OWN = '{% extends "builtin/op.py.jinja" %}\n'
DOC = f"{OWN}{{% block docstring %}}\n# ours\n{{{{ super() }}}}{{% endblock %}}\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a directory of templates, which is empty."""
    (tmp_path / "pyproject.toml").write_text(
        "[tool.scaffold]\ntemplate-dirs = ['team', 'company']\n"
    )
    for name in ("team", "company"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_the_list_says_where_each_comes_from(project: Path) -> None:
    (project / "team" / "op.py.jinja").write_text(DOC.replace("builtin/", ""))
    (project / "company" / "op.py.jinja").write_text(DOC)
    (project / "company" / "macros.jinja").write_text("")
    done = scaffold(project, "templates", "list")
    assert done.out.splitlines() == [
        "op.py.jinja          team/op.py.jinja over company/op.py.jinja: docstring",
        "op.py.jinja          company/op.py.jinja over builtin/op.py.jinja: docstring",
        "op.py.jinja          builtin/op.py.jinja",
        "op_testing.py.jinja  builtin/op_testing.py.jinja",
        "test.py.jinja        builtin/test.py.jinja",
        "macros.jinja         company/macros.jinja",
    ]
    for_programs = json.loads(
        scaffold(project, "templates", "list", "--format", "json").out
    )
    assert for_programs["version"] == 1
    assert for_programs["templates"][0] == {
        "name": "op.py.jinja",
        "path": "team/op.py.jinja",
        "extends": "company/op.py.jinja",
        "blocks": ["docstring"],
    }


@pytest.mark.parametrize("name", ["op", "test", "op_testing"])
def test_what_is_ejected_renders_what_ours_does(project: Path, name: str) -> None:
    plain = new_op(project, "--inputs", "x", "--stdout").out
    whole = scaffold(project, "templates", "eject", name)
    assert whole.out == f"create  team/{name}.py.jinja\n"
    assert (project / "team" / f"{name}.py.jinja").read_text() == built_in(
        f"{name}.py.jinja"
    ).text
    assert new_op(project, "--inputs", "x", "--stdout").out == plain
    assert scaffold(project, "templates", "diff").out == ""


@pytest.mark.usefixtures("few_samples")
@pytest.mark.parametrize("name", ["op", "test"])
def test_every_block_is_ejected_as_it_is(project: Path, name: str) -> None:
    from scaffold.render.blocks import outline
    from scaffold.render.templates import BUILT_IN

    plain = new_op(project, "--inputs", "x", "--stdout").out
    blocks = outline(built_in(f"{name}.py.jinja"), BUILT_IN).blocks
    for block in blocks:
        done = scaffold(project, "templates", "eject", name, "--block", block.name)
        assert done.code == 0, done.err
        if block.name == "function":
            break  # the others would be in it twice
    assert new_op(project, "--inputs", "x", "--stdout").out == plain
    assert scaffold(project, "templates", "diff").out == ""
    assert scaffold(project, "templates", "lint").out == "1 template, no problem\n"


def test_a_block_is_added_to_what_is_there(project: Path) -> None:
    own = project / "team" / "op.py.jinja"
    own.write_text(DOC)
    before = listing(project)
    shown = scaffold(
        project, "templates", "eject", "op", "--block", "wrapper", "--diff"
    )
    assert "+{% block wrapper %}" in shown.out
    assert listing(project) == before
    done = scaffold(project, "templates", "eject", "op", "--block", "wrapper")
    assert done.out.startswith("update")
    assert own.read_text().startswith(DOC)
    again = scaffold(project, "templates", "eject", "op", "--block", "wrapper")
    assert again.out.startswith("identical")


def test_a_block_comes_from_the_nearest_layer_below(project: Path) -> None:
    (project / "company" / "op.py.jinja").write_text(DOC)
    blocks = ("--block", "docstring", "--block", "module")
    scaffold(project, "templates", "eject", "op", *blocks)
    text = (project / "team" / "op.py.jinja").read_text()
    assert text.startswith('{% extends "op.py.jinja" %}\n')
    assert "# ours" in text
    assert "class {{ view.module.name }}" in text


def test_a_file_is_not_replaced_unasked(project: Path) -> None:
    own = project / "team" / "op.py.jinja"
    own.write_text("# mine\n")
    refused = scaffold(project, "templates", "eject", "op")
    assert (refused.code, own.read_text()) == (1, "# mine\n")
    scaffold(project, "templates", "eject", "op", "--on-conflict", "overwrite")
    assert own.read_text() == built_in("op.py.jinja").text


def test_a_directory_that_is_not_there_is_made(tmp_path: Path) -> None:
    arguments = ("templates", "eject", "test", "--template-dir", "a/b")
    assert scaffold(tmp_path, *arguments, "--dry-run").out.startswith("create")
    assert not list(tmp_path.iterdir())
    assert scaffold(tmp_path, *arguments).code == 0
    assert [path for path in listing(tmp_path) if "jinja" in path] == [
        "a/b/test.py.jinja"
    ]


def test_the_difference_is_that_of_the_blocks(project: Path) -> None:
    (project / "team" / "op.py.jinja").write_text(DOC)
    copy = built_in("test.py.jinja").text.replace("Tests of", "Sown tests of")
    (project / "company" / "test.py.jinja").write_text(copy)
    done = scaffold(project, "templates", "diff")
    assert done.code == 0
    lines = [line for line in done.out.splitlines() if line[:3] in ("---", "+++")]
    assert lines == [
        "--- builtin/op.py.jinja, block docstring",
        "+++ team/op.py.jinja, block docstring",
        "--- builtin/test.py.jinja",
        "+++ company/test.py.jinja",
    ]
    assert "+# ours\n" in done.out
    assert '+"""Sown tests of' in done.out


def test_lint_tells_all_problems_at_once(project: Path, few_samples: None) -> None:
    own = DOC.replace("# ours", "{{ view.nothing }}")
    (project / "team" / "op.py.jinja").write_text(own)
    (project / "company" / "op_testing.py.jinja").write_text("{% if %}")
    done = scaffold(project, "templates", "lint")
    assert done.code == 2
    places = [line.split(": ")[0] for line in done.messages]
    assert [place for place in places if place != "hint"] == [
        "company/op_testing.py.jinja:1:1",
        "team/op.py.jinja:3:1",
    ]
    data = json.loads(scaffold(project, "templates", "lint", "--format", "json").out)
    assert [item["source"] for item in data["problems"]] == [
        "company/op_testing.py.jinja",
        "team/op.py.jinja",
    ]


def test_an_option_goes_before_the_configuration(project: Path) -> None:
    (project / "team" / "op.py.jinja").write_text(DOC)
    (project / "mine").mkdir()
    (project / "mine" / "op.py.jinja").write_text(
        DOC.replace("builtin/", "").replace("ours", "mine")
    )
    done = new_op(project, "--inputs", "x", "--template-dir", "mine", "--stdout")
    assert "# mine\n# ours\n" in done.out
    assert "# mine" not in new_op(project, "--inputs", "x", "--stdout").out


def test_ruff_formats_where_the_project_says_so(project: Path) -> None:
    with (project / "pyproject.toml").open("a") as file:
        file.write("formatter = 'ruff'\n[tool.ruff.format]\nquote-style = 'single'\n")
    done = new_op(project, "--inputs", "x, mode: str = 'sum'", "--stdout")
    assert done.code == 0, done.err
    assert "mode: str = 'sum'" in done.out


@pytest.mark.parametrize(
    ("convention", "expected"),
    [
        ("google", "    Args:\n        x: Tensor of shape ``(N,)``.\n"),
        (
            "numpy",
            "    Parameters\n    ----------\n    x\n        Tensor of shape ``(N,)``.\n",
        ),
        ("sphinx", "    :param x: Tensor of shape ``(N,)``.\n"),
    ],
)
def test_docstrings_follow_the_convention(
    project: Path, convention: str, expected: str
) -> None:
    with (project / "pyproject.toml").open("a") as file:
        file.write(f"docstrings = '{convention}'\nlicence = 'Ours.'\n")
    done = new_op(
        project, "--inputs", "x[N]", "--forward", "2 * x", "--no-verify", "--stdout"
    )
    assert expected in done.out
    assert done.out.count("\n# Ours.\n") == 2


def test_commands_over_all_ops_take_the_option_too(project: Path) -> None:
    (project / "ops.toml").write_text("[ops.twice]\ninputs = 'x'\nforward = '2 * x'\n")
    (project / "mine").mkdir()
    (project / "mine" / "op.py.jinja").write_text(DOC)
    option = ("--template-dir", "mine")
    assert scaffold(project, "sync", *option).code == 0
    assert "# ours\n" in (project / "twice.py").read_text()
    assert scaffold(project, "check", *option).code == 0
    assert "stale" in scaffold(project, "check").out
    assert scaffold(project, "upgrade", "--all", *option).code == 0
    assert "# ours\n" in (project / "twice.py").read_text()
    assert scaffold(project, "upgrade", "--all").code == 0
    assert "# ours\n" not in (project / "twice.py").read_text()


@pytest.mark.parametrize("option", [(), ("--template-dir", "team")])
def test_a_directory_that_is_configured_is_begun_by_ejecting(
    tmp_path: Path, option: tuple[str, ...]
) -> None:
    """It need not be there yet; others say so, with the command that begins it."""
    (tmp_path / "pyproject.toml").write_text(
        "[tool.scaffold]\ntemplate-dirs = ['team', 'company']\n"
    )
    outcome = scaffold(tmp_path, "new-op", "foo", "--inputs", "x")
    assert outcome.code == 2
    assert outcome.messages == [
        "pyproject.toml:2:19: 'team' is not a directory",
        "hint: scaffold templates eject op --template-dir team",
        "pyproject.toml:2:27: 'company' is not a directory",
        "hint: scaffold templates eject op --template-dir company",
    ]
    eject = ("templates", "eject", "op", "--block", "wrapper")
    assert scaffold(tmp_path, *eject, *option).code == 0
    assert (tmp_path / "team/op.py.jinja").is_file()
    assert scaffold(tmp_path, *eject, "--template-dir", "company").code == 0
    assert scaffold(tmp_path, "templates", "list").code == 0
    assert scaffold(tmp_path, "new-op", "foo", "--inputs", "x").code == 0
