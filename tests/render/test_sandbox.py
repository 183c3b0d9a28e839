"""Templates of a team: layers over ours, in a sandbox; what they read is data, and a digest tells when it moved."""

from pathlib import Path

import jinja2
import pytest

from scaffold.derive import derive
from scaffold.errors import Location, ScaffoldError
from scaffold.render import templates
from scaffold.render.compiled import CompiledTemplates
from scaffold.render.file_style import House, header_line, licence_lines
from scaffold.render.files import drafts
from scaffold.render.layout import Directories
from scaffold.render.opfile import function_text
from scaffold.render.templates import (
    BUILT_IN,
    Source,
    Templates,
    built_in,
    digest,
    read_templates,
)
from tests.derive.building import spec_of
from tests.render.formatted import op_files

SPEC = spec_of("x", name="twice", forward="x * 2")
DERIVATION = derive(SPEC)
OURS = '{% extends "builtin/op.py.jinja" %}'
NEXT = '{% extends "op.py.jinja" %}'


def layers(*texts: dict[str, str]) -> Templates:
    return Templates(
        tuple(
            tuple(
                Source(name, f"t{number}/{name}", text) for name, text in layer.items()
            )
            for number, layer in enumerate(texts)
        )
    )


def op_of(*texts: dict[str, str]) -> str:
    """The draft of the op's file with these layers, the first on top."""
    return drafts(SPEC, DERIVATION, Directories(), House(layers(*texts)))["twice.py"]


def header(code: str, extends: str = OURS) -> str:
    return f"{extends}{{% block header %}}\n{code}\n{{{{ super() }}}}{{% endblock %}}"


PLAIN = op_of()


def test_a_block_is_replaced_and_the_others_stay() -> None:
    replaced = op_of(
        {"op.py.jinja": f"{OURS}{{% block docstring %}}# d{{% endblock %}}"}
    )
    assert replaced.startswith("# d\n")
    assert replaced.split("class ")[1:] == PLAIN.split("class ")[1:]


def test_super_is_the_block_below() -> None:
    wrapped = op_of({"op.py.jinja": header("# mine")})
    assert wrapped.strip() == f"# mine\n{PLAIN}".strip()


def test_a_template_of_its_own_name_is_the_next_layer() -> None:
    found = op_of(
        {"op.py.jinja": header("# top", NEXT)},
        {"other.jinja": ""},
        {"op.py.jinja": header("# middle", NEXT)},
        {"op.py.jinja": header("# low", NEXT)},
    )
    assert found.startswith("# top\n# middle\n# low\n")


def test_builtin_passes_over_the_layers() -> None:
    found = op_of({"op.py.jinja": header("# top")}, {"op.py.jinja": header("# low")})
    assert "# top" in found
    assert "# low" not in found


def test_macros_of_any_layer_are_imported_and_included() -> None:
    top = header('{% import "m/macros.jinja" as m %}{{ m.said(view.function.name) }}')
    low = {
        "m/macros.jinja": '{% macro said(x) %}# {{ x }}\n{% include "more.jinja" %}{% endmacro %}',
        "more.jinja": "# more",
    }
    assert op_of({"op.py.jinja": top}, low).startswith("# TwiceFunction\n# more")


def test_imports_follow_from_what_a_template_adds() -> None:
    assert "import math" not in PLAIN
    child = f"{OURS}{{% block wrapper %}}{{{{ super() }}}}\n\nTAU = 2 * math.pi\n{{% endblock %}}"
    assert "import math\n" in op_of({"op.py.jinja": child})


def test_the_function_alone_is_that_of_the_team() -> None:
    child = f"{OURS}{{% block forward %}}    # ours\n{{{{ super() }}}}{{% endblock %}}"
    house = House(layers({"op.py.jinja": child}))
    assert "    # ours" in function_text(SPEC, DERIVATION, 88, house)


@pytest.mark.parametrize(
    "code",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ view|attr('__class__')|attr('__mro__') }}",
        "{{ '{0.__class__.__mro__}'.format(view) }}",
        "{{ view._replace(header='x') }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ self._TemplateReference__context }}",
        "{{ lipsum.__globals__ }}",
        "{{ dict.mro() }}",
        "{% include '/etc/passwd' %}",
        "{% include '../pyproject.toml' %}",
        "{% import 'os' as os %}",
        "{% include 'builtin/../pyproject.toml' %}",
        "{% include 'builtin//etc/passwd' %}",
        "{{ [1, 2]|random }}",
        "{% set _ = [1].append(2) %}",
    ],
)
def test_a_template_reaches_nothing(code: str) -> None:
    with pytest.raises(ScaffoldError) as raised:
        op_of({"op.py.jinja": header(code)})
    assert raised.value.exit_code == 2
    assert raised.value.location == Location("t0/op.py.jinja", 2)


def test_what_a_spec_says_is_never_a_template() -> None:
    spec = spec_of("x", name="twice", forward="x * 2", doc="{{ 1 + 1 }} {% raw %}")
    house = House(layers({"op.py.jinja": header("# mine")}))
    assert (
        "{{ 1 + 1 }} {% raw %}"
        in drafts(spec, derive(spec), Directories(), house)["twice.py"]
    )


def test_the_place_is_the_line_of_the_layer_that_is_wrong() -> None:
    low = header("{{ view.nothing }}", NEXT)
    with pytest.raises(ScaffoldError) as raised:
        op_of({"op.py.jinja": header("# top", NEXT)}, {"op.py.jinja": low})
    assert raised.value.location == Location("t1/op.py.jinja", 2)


def test_licence_and_header_stand_on_top_of_each_file() -> None:
    house = House(
        licence=licence_lines("Copyright Acme\n\n# as it is\n"),
        header=header_line("ops.toml"),
    )
    files = op_files(SPEC, DERIVATION, Directories(), house)
    top = (
        "# Copyright Acme\n#\n# as it is\n\n"
        "# Generated by scaffold from ops.toml: edits are kept by 'scaffold upgrade'.\n"
    )
    plain = op_files(SPEC, DERIVATION, Directories())
    assert len(files) == 2
    assert files == {path: f"{top}{text}" for path, text in plain.items()}


def test_imports_can_have_a_line_each() -> None:
    files = op_files(SPEC, DERIVATION, Directories(), House(single_line_imports=True))
    lines = [line for text in files.values() for line in text.splitlines()]
    froms = [line for line in lines if line.startswith("from ")]
    assert froms
    assert not [line for line in froms if "," in line or "(" in line]


def test_directories_are_read_once(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "op.py.jinja").write_text(header("# mine"))
    (tmp_path / "m" / "x.jinja").write_text("")
    (tmp_path / "note.txt").write_text("no template")
    found = read_templates([(tmp_path, Location("--template-dir"))])
    assert [item.name for item in found.sources] == ["m/x.jinja", "op.py.jinja"]
    (tmp_path / "op.py.jinja").unlink()
    files = drafts(SPEC, DERIVATION, Directories(), House(found))
    assert files["twice.py"].startswith("# mine")


def test_the_digest_tells_of_each_text_name_and_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, two = {"a.jinja": "1"}, {"b.jinja": "2"}
    values = [
        *((), (one,), (two,), (one, two), (two, one), ({"a.jinja": "2"},)),
        ({"b.jinja": "1"},),
    ]
    digests = {digest(layers(*value)) for value in values}
    assert len(digests) == len(values)
    assert digest(layers()) == digest(BUILT_IN)
    before = digest(BUILT_IN)
    monkeypatch.setattr(
        "scaffold.render.templates.built_in",
        lambda name: built_in(name)._replace(text="other"),
    )
    assert digest(BUILT_IN) != before


def test_templates_of_a_team_are_never_kept_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored: list[Path] = []
    cache = CompiledTemplates(lambda path, data: stored.append(path))
    keys: list[str] = []
    monkeypatch.setattr(
        cache, "get_cache_key", lambda name, file=None: keys.append(name)
    )
    ours = templates.built_in_environment()
    monkeypatch.setattr(ours, "bytecode_cache", cache)
    monkeypatch.setattr(ours, "cache", jinja2.utils.LRUCache(10))
    op_of({"op.py.jinja": header("# kept?")})
    assert set(keys) == {"op.py.jinja", "test.py.jinja", "op_testing.py.jinja"}
    first = header("# one")
    assert op_of({"op.py.jinja": first}) != op_of({"op.py.jinja": header("# two")})


def test_the_text_of_a_template_is_that_of_a_file() -> None:
    with pytest.raises(ScaffoldError, match="more than 1000000 characters"):
        op_of({"op.py.jinja": header("# {{ 'x' * 1000000 }}")})


def test_a_loop_knows_its_length_and_its_last() -> None:
    code = "{% for i in 'abc' %}# {{ loop.index }} of {{ loop.length }}{{ '!' if loop.last }}\n{% endfor %}"
    assert op_of({"op.py.jinja": header(code)}).startswith(
        "# 1 of 3\n# 2 of 3\n# 3 of 3!\n"
    )
