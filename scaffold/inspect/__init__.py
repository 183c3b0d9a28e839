"""Inspection: read existing autograd.Functions by syntax alone; user code is never imported.

In: the text of a file. Out: a `Module`: its Functions and custom operators, and questions about them.
Invariant: no file makes it fail; an unparsable one raises `NotReadable` with the place.
"""

import ast
import re
import warnings

from scaffold.errors import Location, ScaffoldError
from scaffold.formula.text import long_number
from scaffold.inspect.classes import find_functions, find_operators, scan
from scaffold.inspect.functions import Function, Method, Module, Operator, Parameter
from scaffold.inspect.imported_names import Names
from scaffold.inspect.values import Values

__all__ = [
    "Function",
    "Method",
    "Module",
    "NotReadable",
    "Operator",
    "Parameter",
    "Values",
    "function_names",
    "inspect_text",
    "may_matter",
    "parsed",
]

HINTS = (
    *("autograd", "save_for_backward", "saved_tensors", "setup_context", "(ctx"),
    *("custom_op", "gradcheck"),
)
BASE = re.compile(r"(?<!sympy\.)\b(?:Inplace)?Function\b")
NAME = re.compile(r"\w+")
CLASS = re.compile(r"^[ \t]*class\s+(\w+)\s*\(([^()]*)\)", re.MULTILINE)


LONG = 60  # characters of a line in a hint
MARKER = re.compile(r"^(<{7}|\|{7}|>{7})( .*)?$", re.MULTILINE)  # as git writes them
UNMERGED = "cannot be parsed: it holds conflict markers"
UNMERGED_HINT = "resolve the merge conflict and remove the markers"
TOO_MANY_DIGITS = "cannot be parsed: a number has thousands of digits"
TOO_DEEP = "cannot be parsed: it is nested too deeply"


class NotReadable(ScaffoldError):
    """A file unreadable for this interpreter; callers report it."""


def may_matter(text: str, known: frozenset[str] = frozenset()) -> bool:
    """Return whether a text may hold a Function, a custom op or a gradcheck: cheap, and never wrongly no.

    So most files of a project need not be parsed. `known` are names of Functions in other files: a subclass of one is a
    Function too.
    """
    if any(hint in text for hint in HINTS):
        return True
    if "Tensor(" in text and "Parameter(" in text:
        return True
    if not known or "class " not in text:
        return False
    return any(
        not known.isdisjoint(NAME.findall(found[2])) for found in CLASS.finditer(text)
    )


def function_names(text: str) -> set[str]:
    """Return the names of classes with a base called Function; other files may inherit from them."""
    if "Function" not in text or "torch" not in text:
        return set()
    return {found[1] for found in CLASS.finditer(text) if BASE.search(found[2])}


def inspect_text(text: str, path: str, known: frozenset[str] = frozenset()) -> Module:
    """Return the Functions and operators of a file; raise NotReadable if it cannot be parsed.

    `known` are names of Functions in other files, as bases of classes here.
    """
    tree = parsed(text, path)
    found = scan(tree)
    names = Names(tree, found.imports)
    functions = find_functions(found, names, known)
    return Module(
        path,
        text,
        tree,
        names,
        functions,
        find_operators(found, names),
        tuple(call for call, _ in found.calls),
        tuple(node for node, _ in (*found.classes, *found.functions)),
    )


def parsed(text: str, path: str) -> ast.Module:
    """Parse a file; raise `NotReadable` if it is no Python, or newer than this one.

    The message names the commonest causes: markers of a merge conflict, a number of thousands of digits, deep nesting.
    Python's own warnings, about `"\\d"` for example, are not for us to print.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        if found := long_number(text, error):
            place = Location(path, found[0] + 1, found[1] + 1)
            raise NotReadable(TOO_MANY_DIGITS, place) from None
        if marker := MARKER.search(text):
            place = Location(path, text.count("\n", 0, marker.start()) + 1)
            raise NotReadable(UNMERGED, place, UNMERGED_HINT) from None
        place = Location(path, error.lineno or 1, error.offset or 1)
        line = (error.text or "").strip()[:LONG]
        hint = f"fix this line: {line}" if line else None
        raise NotReadable(f"cannot be parsed: {error.msg}", place, hint) from None
    except (RecursionError, MemoryError):
        raise NotReadable(TOO_DEEP, Location(path)) from None
    except ValueError as error:
        raise NotReadable(f"cannot be parsed: {error}", Location(path)) from None
