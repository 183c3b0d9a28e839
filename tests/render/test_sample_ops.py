"""The views of templates: each field is described, and shown both present and missing by some specimen."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from scaffold.derive import derive
from scaffold.render.blocks import outline
from scaffold.render.file_style import House
from scaffold.render.layout import Directories, layout
from scaffold.render.opfile import op_view
from scaffold.render.reference import reference_lines
from scaffold.render.templates import BUILT_IN, built_in
from scaffold.render.testdomains import with_domains
from scaffold.render.testfile import view
from tests.render.specimens import specimens

ROOT = Path(__file__).resolve().parents[2]
SHOWN = (ROOT / "docs" / "templates.md").read_text()
# Filled in at the end, and of verification alone.
UNSAID = {"imports", "op_testing_lines", "proof"}


def fields(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every field of a view and of the views in it, with its value."""
    for name in value._fields:
        if name in UNSAID:
            continue
        below = getattr(value, name)
        yield f"{path}.{name}", below
        if hasattr(below, "_fields"):
            yield from fields(below, f"{path}.{name}")


@cache
def values() -> dict[str, dict[str, list[Any]]]:
    """The values of each field over all specimens, by template."""
    found: dict[str, dict[str, list[Any]]] = {"op": {}, "test": {}}
    houses = (House(), House(licence=("# L",), header="# H"))
    for number, spec in enumerate(specimens()):
        house = houses[number % 2]
        derivation = derive(spec)
        views = {"op": op_view(spec, derivation, 88, house)}
        tested = with_domains(spec, derivation)
        place = layout(spec.name, Directories())
        reference = reference_lines(tested, derivation)
        shown = view(tested, derivation, place, reference, house)
        for kind, one in (*views.items(), ("test", shown)):
            for path, value in fields(one, "view"):
                found[kind].setdefault(path, []).append(value)
    return found


FIELDS = [(kind, path) for kind, paths in values().items() for path in paths]


@pytest.mark.parametrize(("kind", "path"), FIELDS)
def test_a_specimen_has_the_field_and_another_lacks_it(kind: str, path: str) -> None:
    seen = values()[kind][path]
    assert any(seen), "no specimen shows it"
    may_lack = f"`{path}`?" in section(kind)
    assert may_lack == (not all(seen)), "docs/templates.md marks what may be missing"


def section(kind: str) -> str:
    """What the documentation says of a template."""
    return SHOWN.split(f"## `{kind}.py.jinja`")[1].split("\n## ")[0]


@pytest.mark.parametrize(("kind", "path"), FIELDS)
def test_the_field_is_documented(kind: str, path: str) -> None:
    assert f"| `{path}`" in section(kind)


@pytest.mark.parametrize("kind", ["op", "test", "op_testing"])
def test_the_blocks_are_documented_in_their_order(kind: str) -> None:
    found = outline(built_in(f"{kind}.py.jinja"), BUILT_IN)
    table = section(kind).split("Its fields")[0]
    listed = [line.split("`")[1] for line in table.splitlines() if line[:3] == "| `"]
    assert listed == [block.name for block in found.blocks]


@pytest.mark.parametrize("kind", ["op", "test"])
def test_no_field_is_documented_that_is_not_there(kind: str) -> None:
    table = section(kind).split("Its fields")[1]
    listed = [line.split("`")[1] for line in table.splitlines() if line[:3] == "| `"]
    assert sorted(listed) == sorted(values()[kind])
