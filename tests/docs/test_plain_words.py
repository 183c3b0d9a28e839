"""Plain words: sentences in docs, messages and docstrings do not become riddles again.

A riddle word (that, which, what, where, whose, those, whom) is fine now and then; a text full of them has to be read twice.
A number here may only become smaller.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.cli.running import EXCERPT
from tests.docs.pages import PAGES, ROOT
from tests.failures.transcript import read

RIDDLE = re.compile(r"\b(?:that|which|what|where|whose|those|whom)\b", re.IGNORECASE)
FENCED = re.compile(r"^```.*?^```$|<!--.*?-->", re.MULTILINE | re.DOTALL)
END = re.compile(r"(?<=[.:?!])\s+|\n\n|\n(?=[-|#])")
BEGINS = re.compile(r"^[-*\d. ]*(What|Whose|Of which|Which) (?!.*\?$)")
DOCS, MESSAGES, DOCSTRINGS = 0.125, 0.09, 0.17  # riddle words a sentence
BEGINNINGS = 2  # sentences of the docs that begin with one


def sentences(text: str) -> list[str]:
    """Return the sentences of a page, code left out."""
    parts = END.split(FENCED.sub("", text))
    return [part.strip() for part in parts if " " in part.strip()]


def share(texts: list[str]) -> float:
    return sum(len(RIDDLE.findall(text)) for text in texts) / len(texts)


def of_docs() -> list[str]:
    return [s for path in PAGES for s in sentences(path.read_text(encoding="utf-8"))]


def messages() -> Iterator[str]:
    """Yield the lines of every transcript, without its inputs."""
    for path in sorted((ROOT / "tests" / "failures" / "cases").glob("*.txt")):
        for case in read(path.read_text(encoding="utf-8")):
            yield from filter(None, EXCERPT.sub("", case.stderr).splitlines())


def first_lines(path: Path) -> Iterator[str]:
    """Yield the first line of every docstring of a module."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        text = ast.get_docstring(node) if isinstance(node, kinds) else None
        if text:
            yield text.splitlines()[0]


def test_the_docs_are_no_riddle() -> None:
    found = of_docs()
    assert len(found) > 1000
    assert share(found) <= DOCS, share(found)
    begins = [sentence for sentence in found if BEGINS.match(sentence)]
    assert len(begins) <= BEGINNINGS, begins


def test_messages_are_no_riddle() -> None:
    found = list(messages())
    assert len(found) > 1000
    assert share(found) <= MESSAGES, share(found)


def test_docstrings_are_no_riddle() -> None:
    paths = (ROOT / "scaffold").rglob("*.py")
    found = [line for path in paths for line in first_lines(path)]
    assert len(found) > 4000
    assert share(found) <= DOCSTRINGS, share(found)


def test_the_measure_sees_a_riddle() -> None:
    text = "What is told of those that nobody asks for.\n\nReturn it.\n\n```\nthat\n```"
    assert share(sentences(text)) == 1.5
    assert BEGINS.match(text)
