"""The table of primitives: read by pattern, a section when it is asked for."""

import tomllib

from scaffold.primitives import (
    CATEGORIES,
    Primitives,
    built_in_primitives,
    built_in_text,
    read_primitives,
)

TABLE = built_in_primitives()


def test_reading_by_pattern_finds_what_toml_says() -> None:
    whole = tomllib.loads(built_in_text())
    assert list(TABLE) == list(whole)
    for name, section in whole.items():
        assert TABLE.heads[name] == (section["call"], *section.get("also", ()))
        assert TABLE.composed.get(name, ()) == tuple(section.get("composed", ()))
        assert TABLE.section(name) == section


def test_a_section_is_read_when_it_is_asked_for_and_once() -> None:
    asked = []

    def read(name: str) -> dict[str, str]:
        asked.append(name)
        return {"category": "view"}

    table = Primitives({"a": ("torch.a(x)",), "b": ("torch.b(x)",)}, read, {})
    assert "a" in table and table.find("function", "torch.b") == (("b", "torch.b(x)"),)
    assert not asked
    assert table.facts("a").category == table.facts("a").category == "view"
    assert asked == ["a"]


def test_a_primitive_is_found_by_each_spelling() -> None:
    for kind, name, found in [
        ("function", "torch.exp", "exp"),
        ("function", "torch.special.expit", "sigmoid"),
        ("function", "torch.nn.functional.silu", "silu"),
        ("method", "sum", "sum"),
        ("attribute", "mT", "mT"),
        ("operator", "@", "matmul"),
        ("subscript", "[]", "getitem"),
    ]:
        assert found in [name for name, _ in TABLE.find(kind, name)], name
    assert not TABLE.find("function", "torch.no_such_thing")


def test_every_spelling_of_the_table_is_found() -> None:
    text = '[a]\ncall = "torch.a(x)"\nalso = ["method", "x.c"]\ncategory = "view"\n'
    table = read_primitives(text)
    keys = {("function", "torch.a"), ("method", "a"), ("attribute", "c")}
    assert table.spelled() == keys
    assert [facts.category for facts in table.named("attribute", "c")] == ["view"]


def test_every_primitive_has_facts() -> None:
    for name in TABLE:
        assert TABLE.facts(name).category in CATEGORIES
