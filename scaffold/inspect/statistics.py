"""The table that a lead wants: how many Functions there are, and how they are written.

In: files with their Functions. Out: `Counts`, which add up over files.
Invariant: a Function is counted once, where its forward stands; tested means that a test file names it or its alias.
"""

import ast
import re
from collections.abc import Iterable
from typing import NamedTuple

from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Function, Module

ROWS = {
    "functions": "Functions",
    "forward_only": "forward only",
    "setup_context": "with setup_context",
    "combined": "combined forward(ctx, ...)",
    "needs_input_grad": "ask needs_input_grad",
    "once_differentiable": "once differentiable",
    "tensors_on_ctx": "keep a tensor on ctx",
    "mark_dirty": "work in place (mark_dirty)",
    "non_differentiable": "mark outputs non-differentiable",
    "vmap": "have a vmap rule",
    "jvp": "have a jvp",
    "several_outputs": "have several outputs",
    "tested": "named by a test",
    "custom_ops": "torch.library.custom_op",
}


class Described(NamedTuple):
    """One Function in the table."""

    path: str
    line: int
    name: str
    aliases: tuple[str, ...]  # names by which a test may call it
    traits: frozenset[str]


class Counted(NamedTuple):
    """What a file adds to the table."""

    functions: tuple[Described, ...] = ()
    operators: int = 0
    mentioned: frozenset[str] = frozenset()  # words of a test file


def describe(module: Module) -> Counted:
    """The Functions of a file and their traits; of a test file also its words."""
    functions = tuple(
        Described(
            module.path,
            function.node.lineno,
            function.qualname,
            (function.name, *function.aliases, *_wrappers(function)),
            frozenset(_traits(function, module)),
        )
        for function in module.functions
        if not (_is_of_tests(module) and _watches(function))
    )
    return Counted(functions, len(module.operators), words_of(module.text, module.path))


def _is_of_tests(module: Module) -> bool:
    """Whether a file is one of tests, by its place or by what it imports."""
    sources = (*module.names.imported.values(), *module.names.starred)
    return is_test(module.path) or any(
        source.split(".")[0] in ("pytest", "unittest") for source in sources
    )


def _watches(function: Function) -> bool:
    """Whether a Function only goes between another one and its caller, as a test's recorder does."""
    inherits = bool(function.parents) or not function.complete
    return inherits and "forward" not in function.methods


def words_of(text: str, path: str) -> frozenset[str]:
    """The words of a test file; none of any other."""
    if not is_test(path):
        return frozenset()
    return frozenset(re.findall(r"[A-Za-z_]\w+", text))


def is_test(path: str) -> bool:
    """Whether a path is one that pytest collects, or lies among tests."""
    parts = path.replace("\\", "/").split("/")
    name = parts[-1]
    named = name.startswith("test_") or name.endswith("_test.py")
    return named or bool({"test", "tests"} & set(parts[:-1]))


def _wrappers(function: Function) -> Iterable[str]:
    """The functions and classes in which `apply` is called."""
    for application in function.applications:
        for node in application.within[:1]:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                yield node.name


def _traits(function: Function, module: Module) -> Iterable[str]:
    facts = Facts(function, module)
    backward = function.backward
    yield "setup_context" if function.setup_context else "combined"
    if backward is None or facts.is_trivial:
        yield "forward_only"
    elif any(
        isinstance(node, ast.Attribute) and node.attr == "needs_input_grad"
        for node in ast.walk(function.node)
    ):
        yield "needs_input_grad"
    if function.once_differentiable:
        yield "once_differentiable"
    saver = function.saver
    if saver is not None and any(
        facts.values(saver).is_tensor(kept.value, kept.step)
        for kept in facts.kept(saver)
    ):
        yield "tensors_on_ctx"
    if facts.marked("mark_dirty") != frozenset():
        yield "mark_dirty"
    if facts.marked("mark_non_differentiable") != frozenset():
        yield "non_differentiable"
    if function.generate_vmap_rule or "vmap" in function.methods:
        yield "vmap"
    if "jvp" in function.methods:
        yield "jvp"
    if facts.output_count is not None and facts.output_count > 1:
        yield "several_outputs"


def count(counted: Iterable[Counted]) -> dict[str, int]:
    """The table: how many Functions have each trait."""
    files = tuple(counted)
    mentioned = frozenset().union(*(file.mentioned for file in files))
    totals = dict.fromkeys(ROWS, 0)
    for file in files:
        totals["custom_ops"] += file.operators
        for function in file.functions:
            totals["functions"] += 1
            totals["tested"] += not mentioned.isdisjoint(function.aliases)
            for trait in function.traits:
                totals[trait] += 1
    return totals
