"""Inspection: read existing autograd.Functions by syntax alone; user code is never imported.

`lint` asks it for the mistakes in a user's Functions, `test-stub` and `verify` for the arguments to call them with, `adopt` for
the op a Function becomes. The modules build on each other: `imported_names` and `flow` (names and statements), `values` (an
expression: a tensor? whose memory?), `classes` (which classes are Functions), `facts` (all that is known of a Function); then
`trial_inputs`, `declared_inputs`, `stubs` for tests, `declarations`, `context`, `bodies`, `adopting` for `adopt`.

Words: a *Function* is a subclass of torch.autograd.Function; an *operator* is a function under torch.library.custom_op; *known*
are names of Functions that other files of the project define.

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

# Words in nearly every text with a Function, a custom op or a gradcheck.
HINTS = (
    *("autograd", "save_for_backward", "saved_tensors", "setup_context", "(ctx"),
    *("custom_op", "gradcheck"),
)
# In the bases of a class: torch's Function, not `sympy.Function`.
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
    """Return whether a text may hold a Function, a custom op, a gradcheck or a new Parameter, so it is worth parsing.

    A cheap search for words, never wrongly False: most files of a project are skipped by it. `known` are names of Functions
    in other files: a subclass of one is a Function too.
    """
    if any(hint in text for hint in HINTS):
        return True
    if "Tensor(" in text and "Parameter(" in text:
        return True  # `nn.Parameter(torch.Tensor(n))`, uninitialised memory, is a finding of lint
    if not known or "class " not in text:
        return False
    # Group 2 of CLASS is the text of the bases.
    return any(
        not known.isdisjoint(NAME.findall(found[2])) for found in CLASS.finditer(text)
    )


def function_names(text: str) -> set[str]:
    """Return the names of a file's classes with a base called Function, found by a search of the text alone.

    They are collected over a whole project before its files are parsed, since other files may inherit from them.
    """
    if "Function" not in text or "torch" not in text:
        return set()
    return {found[1] for found in CLASS.finditer(text) if BASE.search(found[2])}


def inspect_text(text: str, path: str, known: frozenset[str] = frozenset()) -> Module:
    """Return a file's Functions and operators, with its tree, imports, calls and scopes; raise NotReadable if it cannot be parsed.

    `path` is for messages. `known` are names of Functions in other files: a class here with such a base is a Function too.
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
