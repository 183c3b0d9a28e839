"""Formatting piece by piece gives what formatting the whole gives, and formats a piece once."""

import ast
from pathlib import Path

import black
import pytest
from black.mode import TargetVersion
from black.parsing import InvalidInput
from hypothesis import example
from hypothesis import strategies as st

from scaffold.render import formatting
from scaffold.render.formatting import (
    fold,
    format_files,
    format_source,
    keep_formatted,
    split,
)
from tests.properties.budgets import searched
from tests.sweeps import in_every_run

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "generated_examples").rglob("*.py"))
# What stands at the top level of a file, with what may confuse a split.
BLOCKS = (
    "import torch\nfrom torch import nn",
    "from a import b",
    '"""A docstring."""',
    "'''A string with\n\n\ndef inside():\n    it'''",
    'TEXT = """\n\n\nclass NoClass:\n    pass\n"""',
    "VALUES = [\n\n\n]",
    "CALL = f(\n    1\n\n\n)",
    "x = {  'a':1 }",
    "if x:\n    import late\n\n\n    def nested(): ...",
    "# a comment",
    "# fmt: off",
    "# fmt: on",
    "# yapf: disable",
    "w = 1\r\nv = 2",
    "z   = 1  # fmt: skip",
    "def f(a,b):\n    return a+b",
    "def g(): ...",
    "async def h(a):\n    await a",
    "@decorated\n@twice(1)\ndef d():\n\n\n    'text'",
    "@overload\ndef o(a: int) -> int: ...",
    "class C:\n\n    x: int = 1\n    def m(self): pass",
    "class D(Base):\n    '''Doc.'''",
    "def long(parameter_number_one, parameter_number_two, parameter_number_three, more):\n    pass",
    "def said():\n    # only a comment\n    pass\n    # at the end",
    "def joined():\n    return 1 + \\\n        2",
    "with a as b, c as d:\n    pass",
)
BLANKS = ("\n", "\n\n\f\n", "\n\n", "\n\n\n", "\n\n\n\n\n", "\n \n\t\n")


def whole(source: str, length: int = 88) -> str:
    """What black makes of the whole."""
    mode = black.Mode(target_versions={TargetVersion.PY311}, line_length=length)
    return black.format_str(fold(source, length), mode=mode)


MODULES = st.lists(
    st.tuples(st.sampled_from(BLOCKS), st.sampled_from(BLANKS)), min_size=2, max_size=6
).map(lambda parts: "".join(block + blank for block, blank in parts))


@searched(30, MODULES, st.sampled_from([40, 88, 120]))
@example('"""Doc."""\n\n\n@a\ndef f():\n    pass\n', 88)
@example("# fmt: off\n\n\ndef f(a,b):\n    pass\n", 88)
@example("# yapf: disable\n\n\ndef f(a,b):\n    pass\n", 88)
@example('"""a\r\nb"""\n\n\ndef f():\n    pass\n', 88)
@example("@a\ndef o(b: int) -> int: ...\n@a\ndef o(b: str) -> str: ...\n", 88)
def test_pieces_together_are_the_whole(source: str, length: int) -> None:
    assert format_source(source, length) == whole(source, length)


@pytest.mark.parametrize(
    "path", in_every_run(FILES, FILES[::24]), ids=lambda path: str(path.name)
)
def test_generated_files_are_in_pieces_what_they_are_whole(path: Path) -> None:
    text = path.read_text()
    assert len(split(text)) > 1
    for length in (88, 60):
        assert format_source(text, length) == whole(text, length)


@pytest.mark.parametrize("length", [20, 50, 88])
def test_folded_code_means_what_it_meant(length: int) -> None:
    texts = [
        "grad_log_dt = grad_real = grad_log_real = grad_imag = None\n",
        "same = left_hand_side == right_hand_side.shape\n",
        "rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps); y = x * rstd * weight\n",
        *(path.read_text() for path in FILES[::24]),
    ]
    for text in texts:
        assert ast.dump(ast.parse(fold(text, length))) == ast.dump(ast.parse(text))


def test_a_piece_that_is_no_python_is_formatted_with_the_next() -> None:
    source = 'import a\n\n\ndef f():\n    return """\n\n\ndef g():\n    pass\n"""\n'
    ast.parse(source)
    assert len(split(source)) == 3, "the split does not know of strings"
    assert format_source(source) == source


def test_what_stands_in_a_string_is_not_taken_for_code() -> None:
    text = "def g(a,b):\n    pass"
    inside = f'import a\n\n\ndef f():\n    return """\n\n\n{text}\n\n\ndef h(): """\n'
    assert text in format_source(inside)
    assert "g(a, b)" in format_source(f"import a\n\n\n{text}\n\n\ndef i(): pass\n")


def test_only_so_many_pieces_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formatting, "MOST", 3)
    formatting._KEPT.clear()
    for number in range(9):
        again = "\n\n\ndef f():\n    pass\n"
        format_source(f"import a{number}{again}")
    kept = [piece for piece, _ in formatting._KEPT]
    assert len(kept) == 3
    assert {"import a8", "def f():\n    pass\n"} < set(kept)


def test_what_is_no_python_at_all_is_an_error() -> None:
    with pytest.raises(InvalidInput):
        format_source("import a\n\n\ndef f(:\n    pass\n")


def test_a_piece_is_formatted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    formatted: list[str] = []
    usual = black.format_str

    def counted(text: str, mode: black.Mode) -> str:
        formatted.append(text)
        return usual(text, mode=mode)

    monkeypatch.setattr(black, "format_str", counted)
    formatting._KEPT.clear()
    shared = "\n\n\ndef shared() -> None:\n    print(12321)\n"
    files = {name: f"import {name}\n{shared}" for name in ("abc", "abd")}
    format_files(files, 88)
    assert formatted == [files["abc"].replace("\n\n\n\n", "\n\n\n"), "import abd\n"]


def test_what_is_formatted_already_is_taken_as_it_is() -> None:
    formatting._KEPT.clear()
    shared = (
        "def shared():\n    print(  1  )\n\n\n\nclass C:\n\n    x = 1\n\n\n    y = 2"
    )
    keep_formatted(shared, 88)
    written = format_source(f"import a\n\n\n\n{shared}\n\n\ndef own( ): ...\n")
    assert "print(  1  )" in written, "it is not looked at again"
    assert "    x = 1\n\n    y = 2\n\n\ndef own(): ...\n" in written
    assert "print(1)" in format_source(f"import a\n\n\n{shared}", 79)
    formatting._KEPT.clear()
