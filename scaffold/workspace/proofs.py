"""The proof of an op that is on record: what was proven, by what, and whether it is what stands in the file.

In: the record's `Proof`, the digest of the op's specification as it is now, the text of the op's file. Out: whether the
proof still holds.
Invariant: a proof is of a specification and of the code of the Function and its wrapper, with whatever else of the file
they name; formatting, comments, docstrings, the Module and the names of unrelated imports are no part of it, and neither are
the versions of the tool and of PyTorch, which are kept for information.
"""

import ast
import hashlib
import warnings
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import groupby
from typing import Literal, NamedTuple

By = Literal["proof", "tests"]
_UNSAID = frozenset({"ctx", "kind", "type_comment"})  # of a syntax tree
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_DOCUMENTED, ast.alias, ast.Assign, ast.AnnAssign)


class Proof(NamedTuple):
    """What was proven of an op; where `lacks` says something, why that could not be done."""

    spec: str  # digest of what the specification says of the maths
    function: str  # digest of the code that ran
    text: str = ""  # digest of the file that was written with that code
    by: By = (
        "proof"  # of the generated code; or the op's tests passed, of what stood in the file
    )
    tool: str = ""
    torch: str = ""
    lacks: str = ""


def function_digest(text: str, names: Collection[str]) -> str:
    """The fingerprint of the definitions with these names, and of what they name in the file; "" where it is not Python.

    It is the same in every version of Python. A file that defines none of them counts as a whole.
    """
    parts = _cut(text)
    if parts is None:
        return ""
    reached = {id(part) for part in _reached(parts, set(names))}
    meant = [part for part in parts if id(part) in reached] or parts
    said: list[str] = []
    for imports, run in groupby(meant, lambda part: isinstance(part.node, ast.alias)):
        texts = (part.said for part in run)
        said += sorted(texts) if imports else texts
    return hashlib.sha256("\n".join(said).encode("utf-8", "replace")).hexdigest()


def adds_only(base: str, text: str) -> bool:
    """Whether a file still holds every statement of its base, and beside them definitions of names that are new to it."""
    before, after = _cut(base), _cut(text)
    if before is None or after is None:
        return False
    waiting = Counter(part.said for part in before)
    taken = {name for part in before for name in (*part.binds, *part.reads)}
    for part in after:
        if waiting[part.said]:
            waiting[part.said] -= 1
        elif part.binds & taken or not isinstance(part.node, _DEFINITIONS):
            return False
    return not waiting.total()


def _cut(text: str) -> list["_Part"] | None:
    """The parts of a file, docstrings left out; None where it is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python thinks of the code's escapes
            statements = _without_docstring(ast.parse(text).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return [part for statement in statements for part in _parts(statement)]


class _Part(NamedTuple):
    """A statement of the file, or one name of an import: sorting and splitting these changes nothing."""

    node: ast.AST
    binds: set[str]  # the names that have a meaning by it
    reads: set[str]
    origin: str = ""  # of an imported name

    @property
    def said(self) -> str:
        return f"{self.origin}{_said(self.node)}"


def _parts(statement: ast.stmt) -> Iterator[_Part]:
    read = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    match statement:
        case ast.Import(names) | ast.ImportFrom(names=names):
            origin = ""
            if isinstance(statement, ast.ImportFrom):
                origin = "." * statement.level + (statement.module or "")
            for alias in names:
                yield _Part(alias, {_binding(alias)}, set(), f"import {origin} ")
        case ast.ClassDef(name) | ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
            yield _Part(statement, {name}, read)
        case ast.Assign(targets):
            bound = {_root(each) for each in _flat(targets)}
            yield _Part(statement, bound, read)
        case ast.AnnAssign(target) | ast.AugAssign(target):
            yield _Part(statement, {_root(target)}, read)
        case _:  # whatever it does, it does to what it names
            yield _Part(statement, read | set(_defined(statement)), read)


def _binding(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _root(target: ast.expr) -> str:
    """`torch` of `torch.backends.cudnn.enabled = True`; "" of what binds nothing."""
    while isinstance(target, (ast.Attribute, ast.Subscript, ast.Starred)):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""


def _defined(statement: ast.stmt) -> Iterator[str]:
    """What a compound statement defines: `if TYPE_CHECKING:` imports."""
    for node in ast.walk(statement):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from map(_binding, node.names)
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name


def _reached(parts: list[_Part], wanted: set[str]) -> Iterator[_Part]:
    """The parts that bind a wanted name, or one that those read."""
    waiting = parts
    while found := [part for part in waiting if part.binds & wanted]:
        yield from found
        waiting = [part for part in waiting if not part.binds & wanted]
        for part in found:
            wanted = wanted | part.reads


def _said(value: object) -> str:
    """A syntax tree as text: without what is empty, which is what versions of Python differ in."""
    match value:
        case ast.Delete(targets):
            return f"Delete({_said(list(_flat(targets)))})"
        case ast.AST():
            fields = []
            for name in value._fields:
                item = getattr(value, name, None)
                if name == "body" and isinstance(value, _DOCUMENTED):
                    item = _without_docstring(value.body)
                if name not in _UNSAID and item is not None and item != []:
                    fields.append(f"{name}={_said(item)}")
            return f"{type(value).__name__}({', '.join(fields)})"
        case list():
            return f"[{', '.join(map(_said, value))}]"
    return repr(value)


def _flat(targets: list[ast.expr]) -> Iterator[ast.expr]:
    """The targets one by one: `del (a, b)` deletes the same as `del a, b`, as formatters write it."""
    for target in targets:
        if isinstance(target, (ast.Tuple, ast.List)):
            yield from _flat(target.elts)
        else:
            yield target


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    match body:
        case [ast.Expr(ast.Constant(str())), *rest]:
            return rest
    return body
