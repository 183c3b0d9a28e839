"""The text of a specification injects nothing: generated code holds what the op means, and only that.

Each place that text can come in by is filled with text that would like to be code, and the generated syntax is compared
with that of a harmless text: the same tree, but for the string itself.
"""

import ast
import tempfile
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from tests.cli.running import Outcome, listing, scaffold
from tests.properties.budgets import holds_for, search

NASTY = (
    *('"', "'", '"""', "'''", "\\", "\\\\", "\n", "\n\n    ", "\t", "{{ 7 * 7 }}"),
    *("{% raw %}", "{% endblock %}", "{#", "#}", "{}", "{x}", "%s", "%(x)s", "$HOME"),
    *("import os", "\nimport os\n", "os.system('x')", "# noqa", "# fmt: off", "pass"),
    *('"""\nimport os\n"""', '\\"""', "é", "𝕏", "\\N{DASH}", "\\x00", ")", "]", "r'"),
    *("x", " ", "  ", "``", ":", ";", "...", "return", "\u202e", "\\\n", "-*- coding"),
)
TEXTS = st.one_of(
    st.lists(st.sampled_from(NASTY), min_size=1, max_size=6).map("".join),
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1),
)
HARMLESS = "harmless"
Files = dict[str, ast.Module]


def generate(
    *arguments: str, files: dict[str, str] | None = None
) -> tuple[Outcome, Files]:
    """What a run says, and the syntax of each file that it writes."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for path, text in (files or {}).items():
            (directory / path).write_text(text)
        outcome = scaffold(directory, "new-op", "foo", *arguments, "--no-verify")
        texts = {
            Path(path).name: ast.parse(data)
            for path, data in listing(directory).items()
            if path not in (files or {})
        }
    assert outcome.code in (0, 1, 2)  # 1: a gradient is left to write
    assert bool(texts) == (outcome.code < 2)
    return outcome, texts


@cache
def benign(*arguments: str) -> Files:
    """The syntax of the same files with a harmless text."""
    return generate(*arguments)[1]


class _Blank(ast.NodeTransformer):
    """Takes docstrings out of a tree, and puts `HARMLESS` for one string."""

    def __init__(self, text: str | None) -> None:
        self.text = text
        self.docstrings: list[str] = []
        self.found = 0

    def visit(self, node: ast.AST) -> Any:
        body = getattr(node, "body", None)
        if isinstance(body, list):
            match body:
                case [ast.Expr(ast.Constant(str() as text)), *_]:
                    self.docstrings.append(text)
                    body[0] = ast.Expr(ast.Constant(""))
        return super().visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if self.text is not None and node.value == self.text:
            self.found += 1
            return ast.Constant(HARMLESS)
        return node


def shape(tree: ast.Module, text: str | None = None) -> str:
    """The tree as text, without docstrings and with the string replaced."""
    return ast.dump(_Blank(text).visit(deepcopy(tree)))


def docstrings(tree: ast.Module) -> list[str]:
    blank = _Blank(None)
    blank.visit(deepcopy(tree))
    return blank.docstrings


def check_same(nasty: Files, harmless: Files, text: str | None = None) -> None:
    strings = (
        node.value
        for tree in harmless.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
    )
    assume(text is None or text not in strings)
    assert nasty.keys() == harmless.keys()
    for name, tree in nasty.items():
        assert shape(tree, text) == shape(harmless[name])


@holds_for(TEXTS, 3, '"""', "\\", 'ends with "', "ends with \\", '\\"""\nimport os')
def test_doc_is_one_docstring(text: str) -> None:
    """Words of the user's stand in the docstring; what stands around it is as without them."""
    arguments = ("--inputs", "x", "--forward", "x * 2", "--no-test")
    _, nasty = generate(*arguments, "--doc", text)
    harmless = benign(*arguments, "--doc", HARMLESS)
    assert nasty, "any text is documentation"
    found = [" ".join(one.split()) for one in docstrings(nasty["foo.py"])]
    assert any(" ".join(text.split()) in one for one in found)
    check_same(nasty, harmless)


@holds_for(TEXTS, 3)
def test_a_string_in_a_formula_is_that_string(text: str) -> None:
    assume(text != HARMLESS)

    def formula(inner: str) -> tuple[str, ...]:
        forward = f"y = x * len({inner!r})\nreturn y + len({inner!r}[:1])"
        return ("--inputs", "x", "--forward", forward, "--grad", "x=2 * grad_output")

    _, nasty = generate(*formula(text))
    harmless = benign(*formula(HARMLESS))
    check_same(nasty, harmless, text)


@holds_for(TEXTS, 3)
def test_a_default_is_that_string(text: str) -> None:
    assume(text != HARMLESS)

    def inputs(inner: str) -> tuple[str, ...]:
        return ("--inputs", f"x, t: str, s: str = {inner!r}", "--forward", "x * len(s)")

    outcome, nasty = generate(*inputs(text))
    assert outcome.code == 0, outcome.err
    harmless = benign(*inputs(HARMLESS))
    check_same(nasty, harmless, text)


@holds_for(TEXTS, 3)
def test_a_choice_is_that_string(text: str) -> None:
    assume(text not in (HARMLESS, "other"))

    def inputs(inner: str) -> tuple[str, ...]:
        return ("--inputs", f"x, s: Literal[{inner!r}, 'other'] = {inner!r}")

    outcome, nasty = generate(*inputs(text))
    assert outcome.code == 0, outcome.err
    harmless = benign(*inputs(HARMLESS))
    check_same(nasty, harmless, text)


@holds_for(TEXTS.filter(lambda text: "\n" not in text), 3)
def test_a_comment_is_no_code(text: str) -> None:
    """A comment of a formula is shown in the docstring and beside the code; no code comes of it."""

    def formula(inner: str) -> tuple[str, ...]:
        forward = f"# {inner}\ny = x * 2  # {inner}\n# {inner}\nreturn y"
        return ("--inputs", "x", "--forward", forward, "--grad", f"x=y # {inner}")

    outcome, nasty = generate(*formula(text))
    assert outcome.code == 0, outcome.err
    harmless = benign(*formula(HARMLESS))
    check_same(nasty, harmless)


@holds_for(TEXTS.filter(lambda text: "/" not in text and len(text.encode()) < 200), 3)
def test_a_directory_is_a_string(text: str) -> None:
    assume(text.strip(".") and text != "t" and text != HARMLESS)
    arguments = ("--inputs", "x", "--no-module", "--test-dir", "t", "--out-dir")
    outcome, nasty = generate(*arguments, text)
    assert outcome.code == 0, outcome.err
    harmless = benign(*arguments, HARMLESS)
    check_same(nasty, harmless, text)


@holds_for(
    TEXTS.filter(
        lambda text: not set(text) & {"/", "\n"}
        and len(text.encode()) < 200
        and ".py" not in text
        and text == text.strip()
    ),
    3,
)
def test_the_name_of_a_file_is_not_in_the_code(text: str) -> None:
    source = (
        'import torch\n\n\ndef make():\n    """Two."""\n    return [(torch.ones(2),)]\n'
    )

    def samples(name: str) -> tuple[Outcome, Files]:
        arguments = ("--inputs", "x", "--samples", f"@{name}.py:make")
        return generate(*arguments, files={f"{name}.py": source})

    outcome, nasty = samples(text)
    assert outcome.code == 0, outcome.err
    _, harmless = samples(HARMLESS)
    check_same(nasty, harmless)


WHERE: dict[str, Callable[[str], tuple[str, ...]]] = {
    "name of an input": lambda text: ("--inputs", f"x, {text}"),
    "dimension": lambda text: ("--inputs", f"x[{text}]"),
    "trait": lambda text: ("--inputs", f"x[N; {text}]"),
    "type": lambda text: ("--inputs", f"x, a: {text}"),
    "default": lambda text: ("--inputs", f"x, a = {text}"),
    "output": lambda text: ("--inputs", "x", "--outputs", text),
    "class": lambda text: ("--inputs", "x", "--class-name", text),
    "import": lambda text: ("--inputs", "x", "--import", text, "--forward", "x + a"),
    "module of an import": lambda text: (
        *("--inputs", "x", "--import", f"{text}:a", "--forward", "a(x)"),
    ),
    "tolerance": lambda text: ("--inputs", "x", "--tolerance", f"eps={text}"),
    "start": lambda text: ("--inputs", "x, weight", "--init", f"weight=normal({text})"),
    "word of a start": lambda text: (
        *("--inputs", "x, weight[N, N]"),
        *("--init", f"weight=kaiming_normal(mode={text!r})"),
    ),
    "schema": lambda text: ("--schema", f"f(Tensor x, {text}) -> Tensor"),
    "default in a schema": lambda text: (
        *("--schema", f"f(Tensor x, str s={text!r}) -> Tensor"),
    ),
    "require": lambda text: ("--inputs", "x[N]", "--require", text),
    "function of a file": lambda text: ("--inputs", "x", "--forward", f"@f.py:{text}"),
}
ALLOWED = {
    *("copy", "gc", "itertools", "math", "pickle", "re", "sys", "weakref"),
    *("collections.abc", "contextlib", "pathlib", "typing", "pytest", "torch", "foo"),
    *("torch.autograd", "torch.autograd.function", "torch.nn.functional"),
    *("torch.testing", "warnings", "torch.nn", "random", "types"),
}
CALLED = {"eval", "exec", "compile", "__import__", "open", "input", "print"}


ATTACKS = (
    "x): pass\nimport os\ndef f(x",
    "__import__('os').system('x')",
    "a\nimport os",
    "os:system\nimport sys",
)


@pytest.mark.parametrize("count", [4, pytest.param(750, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("where", WHERE)
def test_text_elsewhere_is_refused_or_harmless(where: str, count: int) -> None:
    """Whatever gets through brings no statement at module level and no call that generated code does not make."""

    def hold(text: str) -> None:
        _, files = generate(*WHERE[where](text))
        for tree in files.values():
            check_module(tree, text if where.endswith("import") else "")

    search(TEXTS, hold, count, *ATTACKS)


def check_module(tree: ast.Module, imported: str) -> None:
    """Only what a generated file consists of: imports that are known, classes, functions, constants."""
    for node in tree.body:
        assert isinstance(
            node,
            ast.Import
            | ast.ImportFrom
            | ast.ClassDef
            | ast.FunctionDef
            | ast.Assign
            | ast.AnnAssign
            | ast.If
            | ast.Expr,
        )
        if isinstance(node, ast.Expr):
            assert isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Import | ast.ImportFrom) and not imported:
            names = (
                [node.module]
                if isinstance(node, ast.ImportFrom)
                else [alias.name for alias in node.names]
            )
            assert set(names) <= ALLOWED, names
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            assert getattr(call.func, "id", "") not in CALLED
            assert getattr(call.func, "attr", "") not in {"system", "popen"}
