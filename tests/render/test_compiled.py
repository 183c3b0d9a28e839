"""Compiled templates are kept beside the templates, and only there."""

import sys
from pathlib import Path

import jinja2
import pytest

from scaffold.render import compiled
from scaffold.render.compiled import CompiledTemplates
from scaffold.workspace import store


def environment(root: Path) -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(root)
    return jinja2.Environment(loader=loader, bytecode_cache=CompiledTemplates(store))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(compiled, "template_root", lambda: tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    (tmp_path / "a.jinja").write_text("{{ 1 + 1 }}")
    return tmp_path


def kept(root: Path) -> list[Path]:
    return sorted((root / "__pycache__").glob("*"))


def test_second_environment_loads_what_the_first_compiled(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert environment(root).get_template("a.jinja").render() == "2"
    assert len(kept(root)) == 1
    monkeypatch.setattr(jinja2.Environment, "compile", None)  # calling it would fail
    assert environment(root).get_template("a.jinja").render() == "2"


def test_changed_template_is_compiled_again(root: Path) -> None:
    environment(root).get_template("a.jinja")
    (root / "a.jinja").write_text("{{ 2 + 2 }}")
    assert environment(root).get_template("a.jinja").render() == "4"


@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_damaged_entry_is_compiled_again(root: Path, damage: bytes | None) -> None:
    environment(root).get_template("a.jinja")
    (entry,) = kept(root)
    entry.write_bytes(entry.read_bytes()[:-20] if damage is None else damage)
    assert environment(root).get_template("a.jinja").render() == "2"


def test_nothing_is_kept_where_python_keeps_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert environment(root).get_template("a.jinja").render() == "2"
    assert not (root / "__pycache__").exists()


def test_prefix_is_where_python_would_put_it(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    prefix = tmp_path_factory.mktemp("prefix")
    monkeypatch.setattr(sys, "pycache_prefix", str(prefix))
    environment(root).get_template("a.jinja")
    assert not (root / "__pycache__").exists()
    assert list(prefix.rglob("*.jinjac"))


def test_place_that_cannot_be_written_is_no_error(root: Path) -> None:
    (root / "__pycache__").write_text("a file in the way")
    assert environment(root).get_template("a.jinja").render() == "2"
