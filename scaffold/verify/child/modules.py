"""Modules from text: import text under a name, without a file; record the branches taken.

A proof runs ops and checks that are not written to disk yet. It also tells the user which branches of a forward never ran.
In: a name and a module's source; names of functions whose conditions are watched. Out: the module, imported under that name; the
conditions that had one value only.
Words: a function is *watched* if its conditions are *noted*: their values, by text, are the *ways* taken.
Invariant: nothing is written; a traceback shows the lines of the text.
"""

import ast
import linecache
import sys
from collections.abc import Collection
from importlib.abc import ExecutionLoader
from importlib.util import module_from_spec, spec_from_loader
from types import CodeType, ModuleType
from typing import Any


class TextLoader(ExecutionLoader):
    """A loader of one module from a text, for Python's import system; `place` stands for the file in tracebacks: "<verified_op>"."""

    def __init__(self, text: str, place: str, watched: Collection[str]) -> None:
        self.text, self.place, self.watched = text, place, watched

    def get_source(self, fullname: str) -> str:
        return self.text

    def get_filename(self, fullname: str) -> str:
        return self.place

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source; in a watched function, wrap each condition in a call that records its value."""
        tree = ast.parse(self.text)
        for node in ast.walk(tree) if self.watched else ():
            if isinstance(node, ast.FunctionDef) and node.name in self.watched:
                _Watched().visit(node)
        located = ast.fix_missing_locations(tree)
        return compile(located, self.place, "exec", dont_inherit=True)


NOTED = "noted_test"  # the function to record a condition
WAYS = "ways_of_tests"  # its records: both are globals of a loaded module
Ways = dict[str, set[bool]]  # the text of a condition -> its values


class _Watched(ast.NodeTransformer):
    """A transformer to record the values of branch-choosing conditions.

    One whose body only raises chooses none.
    """

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        return self._noted(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        """Wrap the condition of an `if`, unless its body only raises: then it chooses no branch of the computation."""
        refuses = all(isinstance(one, ast.Raise) for one in node.body)
        return self.generic_visit(node) if refuses else self._noted(node)

    def _noted(self, node: ast.IfExp | ast.If) -> ast.AST:
        """Return the node with `test` replaced by `noted_test("test", test)`; a constant stays as it is."""
        # `if True:` has one value by intention.
        if isinstance(node.test, ast.Constant):
            return self.generic_visit(node)
        text = ast.Constant(ast.unparse(node.test))
        self.generic_visit(node)
        call = ast.Call(ast.Name(NOTED, ast.Load()), [text, node.test], [])
        node.test = ast.copy_location(call, node.test)
        return node


def one_way(module: Any) -> dict[str, bool]:
    """Return the conditions of watched functions with the same value in all calls, and this value: `{"x > 0": True}`."""
    ways: Ways = vars(module).get(WAYS, {})
    return {test: next(iter(seen)) for test, seen in ways.items() if len(seen) == 1}


def load(name: str, text: str, watched: Collection[str] = ()) -> ModuleType:
    """Return a module made from text; from now on it can be imported by its name. Conditions in `watched` functions are recorded."""
    place = f"<{name}>"
    spec = spec_from_loader(name, TextLoader(text, place, watched), origin=place)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    # Tracebacks find the lines here, as there is no file.
    linecache.cache[place] = (len(text), None, text.splitlines(True), place)
    ways = module.__dict__[WAYS] = Ways()

    def noted(test: str, value: Any) -> Any:
        ways.setdefault(test, set()).add(bool(value))
        return value

    module.__dict__[NOTED] = noted
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def load_checks(request: dict[str, Any], watched: Collection[str] = ()) -> ModuleType:
    """Load the op's module of checks and return it, after the modules it and the op import."""
    for name, text in request["modules"]:
        load(name, text)
    load("verified_op", request["op"])
    return load("verified_checks", request["checks"], watched)
