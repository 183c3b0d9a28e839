"""Spellings of primitives in code: `torch.exp`, the method `exp`, the attribute `mT`, the operator `+`.

The table is searched by the key of a call in a user's text; `torch.nn.functional.silu` and `F.silu` have the same key.

Words: a *head* is a spelling as the table has it; a *bare* head has no parameters of its own; a *bar* is the mark `*_` in a head;
the *roots* are the modules a function's name begins with.

In: the `call`
and `also` of a section, or the name of a function, as text. Out: the key for looking up a primitive, ("function", "F.silu").
Invariant: arguments are not matched to parameters here; `scaffold.derive` does so from the same text.
"""

import ast
import re
from collections.abc import Iterator
from itertools import filterfalse
from typing import Literal, NamedTuple

Kind = Literal["function", "method", "attribute", "operator", "subscript"]
Key = tuple[Kind, str]

ROOTS = frozenset({"torch", "F", "math"})
_DOTTED = re.compile(r"([A-Za-z_][\w.]*)(\(|$)")
_BINARY = re.compile(r"\w+ (\S+) \w+$")
_UNARY = re.compile(r"([-+~])\w+$")


def normalized(name: str) -> str:
    """Return the name of a function in the form of the table: `F.silu` for `torch.nn.functional.silu`."""
    for long in ("torch.nn.functional.", "nn.functional."):
        if name.startswith(long):
            return "F." + name.removeprefix(long)
    return name


def full_name(name: str) -> str:
    """Return the full dotted name of a function, to look it up in PyTorch; the inverse of `normalized`."""
    return f"torch.nn.functional.{name[2:]}" if name.startswith("F.") else name


def key_of(head: str, call: str) -> Key | None:
    """Return the key of one spelling in a section: an entry of `also`, `head`, or `call` itself; None if it cannot be read.

    The entry "method" means the method with the name of `call`: of `torch.exp(x)` that is ("method", "exp").
    """
    if head == "method":
        found = _DOTTED.match(call)
        return ("method", found[1].rpartition(".")[2]) if found else None
    if found := _DOTTED.match(head):
        name = normalized(found[1])
        root, dot, last = name.rpartition(".")
        # `found[2]` is "(" if it is a call: `x.sum(dim)` is a method, `x.mT` an attribute.
        # A call without a dot, `my_norm(x)`, is a team's own function.
        if name.partition(".")[0] in ROOTS or (not dot and found[2]):
            return "function", name
        # A name alone, or a longer path, `a.b.f(x)`: neither a method nor an attribute of a tensor.
        if not dot or "." in root:
            return None
        return ("method" if found[2] else "attribute"), last
    return _operator_or_subscript(head)


def _operator_or_subscript(head: str) -> Key | None:
    """Return the key of `x + y`, ("operator", "+"), of `-x` or of `x[index]`, ("subscript", "[]"); None for any other text."""
    if re.match(r"\w+\[\w+\]$", head):
        return "subscript", "[]"
    found = _BINARY.match(head) or _UNARY.match(head)
    return ("operator", found[1]) if found else None


class Parameter(NamedTuple):
    """A parameter in a spelling of a primitive."""

    name: str
    keyword: bool = False  # written `name=default`
    default: ast.expr | None = None  # `...`: it must be given, by keyword
    starred: bool = False  # it takes several arguments


def parameters(call: str) -> tuple[str, ...]:
    """Return the names of the parameters in a spelling, in order: of `x.sum(dim)` x and dim, of `x + y` x and y."""
    return tuple(item.name for item in all_parameters(call))


def all_parameters(call: str) -> Iterator[Parameter]:
    """Yield the parameters of a spelling, in order."""
    tree = ast.parse(call, mode="eval").body
    # An operator, an attribute or a subscript.
    if not isinstance(tree, ast.Call):
        names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
        # `ast.walk` goes by depth; the parameters of `x + y` are in the order of the text.
        for node in sorted(names, key=lambda node: node.col_offset):
            yield Parameter(node.id)
        return
    match tree.func:
        # A method: its receiver is the first parameter. `torch.exp(x)` and `torch.linalg.norm(x)` are none.
        case ast.Attribute(ast.Name(owner)) if owner not in ROOTS:
            yield Parameter(owner)
    for item in filterfalse(is_bar, tree.args):
        starred = isinstance(item, ast.Starred)
        yield Parameter(ast.unparse(item).lstrip("*"), starred=starred)
    for word in tree.keywords:
        yield Parameter(str(word.arg), True, word.value)


def is_bar(item: ast.expr) -> bool:
    """Return whether an argument of a spelling is `*_`, no parameter but a mark: the later ones are keyword-only."""
    return isinstance(item, ast.Starred) and ast.unparse(item) == "*_"


def is_bare(head: str) -> bool:
    """Return whether an entry of `also` has no parameters of its own, so those of `call` are its: "method", or a dotted name."""
    return bool(re.fullmatch(r"method|[A-Za-z_][\w.]*", head))
