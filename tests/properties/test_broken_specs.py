"""Whatever is typed or filed: files that are whole, or an error with a place, exit 2, and nothing written."""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import note
from hypothesis import strategies as st

from tests.cli.running import Outcome, listing, scaffold
from tests.properties.budgets import search
from tests.properties.specs import Raw, options, raws, toml
from tests.properties.test_valid_specs import check_text

PIECES = (
    *("'", '"', '"""', "'''", "\\", "\n", "\r", "\t", "\0", "\x1b[31m", "{{ x }}"),
    *("{% for %}", "#", "@", "@maths.py", ":", ";", ",", "?", "*", "[", "]", "(", ")"),
    *(
        "=",
        "==",
        ":=",
        "->",
        "...",
        "..",
        "__class__",
        "lambda: 0",
        "import os",
        "def ",
    ),
    *(
        "None",
        "True",
        "if",
        "for x in y",
        "ﬁ",
        "é",
        "e\u0301",
        "\u202e",
        "\udc80",
        "１",
    ),
    *(
        "1e999",
        "0x",
        "1_",
        "9" * 30,
        "- ",
        "**",
        "@@",
        "$",
        "`",
        "torch.",
        "ctx",
        "grad_",
    ),
    *("\ufeff", "\u2028", "\x85", "\x0c", "\x7f", "😀", " ", "  ", "|", "~", "await "),
)
GARBAGE = st.one_of(
    st.text(max_size=30), st.lists(st.sampled_from(PIECES), max_size=5).map("".join)
)
PLACE = re.compile(
    r"(?P<source>--[a-z-]+|NAME|ops\.toml|maths\.py|pyproject\.toml)(:(?P<line>\d+):(?P<column>\d+))?: \S"
)


@st.composite
def mutated(draw: st.DrawFn, text: str) -> str:
    """A text with a few pieces cut out, put in or doubled."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.sampled_from([0, 0, 1, 1, 2, 7])))
        piece = draw(st.one_of(st.sampled_from(PIECES), st.just(text[start:end] * 2)))
        text = text[:start] + piece + text[end:]
    return text


@st.composite
def broken_options(draw: st.DrawFn) -> tuple[str, ...]:
    """The options of a valid op, one value of which is spoilt."""
    words = list(options(draw(raws())))
    values = [k for k, word in enumerate(words) if not word.startswith("--")]
    if values:
        k = draw(st.sampled_from(values))
        words[k] = draw(st.one_of(mutated(words[k]), GARBAGE))
    return tuple(words)


def outcome_of(files: dict[str, bytes], *arguments: str) -> tuple[Outcome, Any]:
    """Run in a directory with these files; what is there afterwards that was not."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for path, data in files.items():
            (directory / path).write_bytes(data)
        outcome = scaffold(directory, "new-op", *arguments, "--no-verify")
        now = listing(directory)
        assert {path: now.pop(path) for path in files} == files
        return outcome, now


def check(files: dict[str, bytes], name: str, *arguments: str) -> None:
    outcome, written = outcome_of(files, name, *arguments)
    note(outcome.err)
    assert outcome.code in (0, 2)
    if outcome.code == 0:
        for text in written.values():
            check_text(text.decode())
        return
    assert not written and not outcome.out
    known = sources(files, name, arguments)
    if "Error: " in outcome.err:  # Typer's own
        return
    last = ""
    for line in outcome.messages:
        if line.startswith("hint: "):
            assert not last.startswith("hint: ")
        else:
            check_place(line, known)
        last = line


def sources(
    files: dict[str, bytes], name: str, arguments: tuple[str, ...]
) -> dict[str, list[str]]:
    """What the user wrote, by the name that a place calls it."""
    found = {"NAME": [name]}
    for option, value in zip(arguments, [*arguments[1:], ""], strict=True):
        if option.startswith("--"):
            found.setdefault(option, []).append(value)
    for path, data in files.items():
        found[path] = [data.decode("utf-8-sig", errors="replace")]
    return found


def check_place(line: str, known: dict[str, list[str]]) -> None:
    """The place is one in something that the user wrote, or just behind its end."""
    place = PLACE.match(line)
    assert place, f"no place: {line!r}"
    assert place["line"] or place["source"].startswith(("--", "NAME"))
    number, column = int(place["line"] or 1), int(place["column"] or 1)
    assert number >= 1 and column >= 1
    for text in known.get(place["source"], [""]):
        lines = re.split(r"\r\n|\r|\n", text)
        if number <= len(lines) and column <= len(lines[number - 1]) + 1:
            return
    raise AssertionError(f"nothing is there: {line!r}")


def hold_spoilt_options(arguments: tuple[str, ...]) -> None:
    check({}, "foo", *arguments)


@st.composite
def broken_tomls(draw: st.DrawFn) -> bytes:
    text = toml("foo", draw(raws()))
    whole = draw(st.one_of(mutated(text), GARBAGE.map(lambda end: text + end)))
    return whole.encode(errors="surrogatepass")


def hold_spoilt_files(data: bytes) -> None:
    check({"ops.toml": data}, "foo", "--spec", "ops.toml")


@st.composite
def retyped(draw: st.DrawFn) -> Raw:
    """A valid op with a value of any other type, or a key of any other name."""
    raw = dict(draw(raws()))
    value = draw(
        st.recursive(
            st.one_of(st.booleans(), st.integers(-3, 3), st.floats(), GARBAGE),
            lambda inner: st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from([*raw, "x", "w"]), inner, max_size=2),
            max_leaves=4,
        )
    )
    key = draw(st.sampled_from([*raw, "module", "update", "import", "tolerances", ""]))
    return raw | {key: value}


def hold_values_of_other_types(raw: Raw) -> None:
    """`json` writes NaN and Infinity as TOML does not: then it is the file that is broken."""
    text = toml("foo", raw).encode(errors="surrogatepass")
    check({"ops.toml": text}, "foo", "--spec", "ops.toml")


SOURCE = '''import torch
from torch.nn import functional as F, init

def forward(x, w):
    """What it does."""
    # a comment
    y = torch.tanh(x @ w)
    return F.relu(y)

def backward(grad_output, x, w, y):
    grad_y = grad_output * (y > 0)
    grad_x = grad_y @ w.t()
    grad_w = x.t() @ grad_y
'''


def hold_spoilt_python(source: str) -> None:
    arguments = ("--inputs", "x, w", "--forward", "@maths.py:forward")
    more = ("--backward", "@maths.py:backward", "--no-test", "--no-module")
    data = source.encode(errors="surrogatepass")
    check({"maths.py": data}, "foo", *arguments, *more)


PROJECT = """[tool.scaffold]
source = 'src'
tests = "tests"
package = 'myops'
style = 'combined'
line-length = 99
parameter-names = ['w', "b"]
conventions = [{ x = 'N, D', w = 'D' }]
[tool.black]
line-length = 100
[tool.pytest.ini_options]
pythonpath = ['src']
addopts = '-q'
"""


def hold_spoilt_configuration(text: str) -> None:
    data = text.encode(errors="surrogatepass")
    arguments = ("--inputs", "x, w", "--no-test", "--no-module")
    outcome, written = outcome_of({"pyproject.toml": data}, "foo", *arguments)
    note(outcome.err)
    if outcome.code == 0:
        of_project = {path for path in written if path.startswith(".scaffold/")}
        assert len(written.keys() - of_project - {"ops.toml"}) == 1
        return
    assert (outcome.code, written) == (2, {})
    known = {"pyproject.toml": [data.decode(errors="replace")]}
    for line in outcome.messages:
        if not line.startswith(("hint: ", "note: ")):
            if line.startswith("error: "):
                assert "source" in text or "tests" in text  # a directory of no use
            else:
                check_place(line, known)


def hold_names_of_an_op(name: str) -> None:
    if not name.startswith("-"):
        check({}, name, "--inputs", "x", "--no-test", "--no-module")


HELD: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], None]]] = {
    "options": (broken_options(), hold_spoilt_options),
    "files": (broken_tomls(), hold_spoilt_files),
    "types": (retyped(), hold_values_of_other_types),
    "python": (mutated(SOURCE), hold_spoilt_python),
    "configuration": (mutated(PROJECT), hold_spoilt_configuration),
    "names": (GARBAGE, hold_names_of_an_op),
}


@pytest.mark.parametrize("what", HELD)
@pytest.mark.parametrize("count", [8, pytest.param(5000, marks=pytest.mark.exhaustive)])
def test_what_is_spoilt_is_refused_or_works(what: str, count: int) -> None:
    strategy, hold = HELD[what]
    search(strategy, hold, count)
