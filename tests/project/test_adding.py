"""`new-op` in a project whose manifests are known by a pattern alone."""

from pathlib import Path

import pytest

from scaffold.project.project import _own_manifest
from tests.cli.projects import SCALE, contents
from tests.cli.running import QUICK, scaffold


@pytest.fixture
def globbed(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.scaffold]\nmanifest = ["ops/*.toml"]\n'
    )
    return tmp_path


def test_an_op_gets_a_manifest_of_its_own(globbed: Path) -> None:
    looked = scaffold(globbed, "new-op", "Foo", *QUICK, "--dry-run")
    done = scaffold(globbed, "new-op", "Foo", *QUICK)
    assert (done.code, done.out) == (
        0,
        "create  foo.py\ncreate  ops/foo.toml\n",
    )
    assert (looked.code, looked.out) == (0, done.out)
    assert (globbed / "ops/foo.toml").read_text().startswith("[ops.Foo]\n")
    checked = scaffold(globbed, "check")
    assert (checked.code, checked.out.splitlines()[-1]) == (0, "1 unprovable")


def test_one_that_is_listed_stays_where_it_is(globbed: Path) -> None:
    (globbed / "ops").mkdir()
    (globbed / "ops/all.toml").write_text(SCALE)
    assert scaffold(globbed, "new-op", "scale").code == 0
    assert scaffold(globbed, "new-op", "foo", *QUICK).code == 0
    manifests = sorted(path for path in contents(globbed) if path.startswith("ops/"))
    assert manifests == ["ops/all.toml", "ops/foo.toml"]


def test_a_file_of_that_name_takes_the_op_as_well(globbed: Path) -> None:
    (globbed / "ops").mkdir()
    (globbed / "ops/foo.toml").write_text(SCALE)
    assert scaffold(globbed, "new-op", "foo", *QUICK).code == 0
    assert (globbed / "ops/foo.toml").read_text().startswith(f"{SCALE}\n[ops.foo]\n")


def test_the_templates_of_an_option_are_those_that_are_written(tmp_path: Path) -> None:
    """Also where the configuration names others."""
    configuration = "[tool.scaffold]\ntemplate-dirs = ['configured']\n"
    (tmp_path / "pyproject.toml").write_text(configuration)
    for name in ("configured", "given"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "op.py.jinja").write_text(
            '{% extends "builtin/op.py.jinja" %}\n'
            f"{{% block docstring %}}\n# {name}\n{{{{ super() }}}}{{% endblock %}}\n"
        )
    done = scaffold(tmp_path, "new-op", "one", *QUICK, "--template-dir", "given")
    assert done.code == 0, done.err
    text = (tmp_path / "one.py").read_text()
    assert "# given\n" in text and "# configured" not in text
    assert scaffold(tmp_path, "check", "--template-dir", "given").code == 0
    assert "a template changed" in scaffold(tmp_path, "check").out


@pytest.mark.parametrize(
    ("patterns", "path"),
    [
        (("*.toml",), "foo.toml"),
        (("ops/scaffold-*.toml",), "ops/scaffold-foo.toml"),
        (("ops/*.toml", "more/*.toml"), None),
        (("**/*.toml",), None),
        (("*/ops.toml",), None),
        (("ops/**.toml",), None),
        (("ops/?*.toml",), None),
        (("ops/[a-m]*.toml",), None),
    ],
)
def test_a_name_is_made_only_where_the_pattern_leaves_no_choice(
    patterns: tuple[str, ...], path: str | None
) -> None:
    assert _own_manifest(patterns, "foo") == path
