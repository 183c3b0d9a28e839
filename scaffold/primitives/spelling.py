"""How primitives are spelled in code: `torch.exp`, the method `exp`, the attribute `mT`, the operator `+`.

In: the `call` and `also` of a section, or the name of a function, as text. Out: what a primitive is looked up by.
Invariant: nothing is parsed; which argument is which parameter, `scaffold.derive` reads from the same text.
"""

import re
from typing import Literal

Kind = Literal["function", "method", "attribute", "operator", "subscript"]
Key = tuple[Kind, str]

ROOTS = frozenset({"torch", "F", "math"})
_DOTTED = re.compile(r"([A-Za-z_][\w.]*)(\(|$)")
_BINARY = re.compile(r"\w+ (\S+) \w+$")
_UNARY = re.compile(r"([-+~])\w+$")


def normalized(name: str) -> str:
    """The name of a function as the table has it: `F.silu` for `torch.nn.functional.silu`."""
    for long in ("torch.nn.functional.", "nn.functional."):
        if name.startswith(long):
            return "F." + name.removeprefix(long)
    return name


def full_name(name: str) -> str:
    """The dotted name that `normalized` shortens."""
    return f"torch.nn.functional.{name[2:]}" if name.startswith("F.") else name


def key_of(head: str, call: str) -> Key | None:
    """What one entry of `also`, or `call` itself, is looked up by; None if it cannot be read."""
    if head == "method":
        found = _DOTTED.match(call)
        return ("method", found[1].rpartition(".")[2]) if found else None
    if found := _DOTTED.match(head):
        name = normalized(found[1])
        root, dot, last = name.rpartition(".")
        if name.partition(".")[0] in ROOTS or (not dot and found[2]):
            return "function", name
        if not dot or "." in root:
            return _operator_or_subscript(head)
        return ("method" if found[2] else "attribute"), last
    return _operator_or_subscript(head)


def _operator_or_subscript(head: str) -> Key | None:
    if re.match(r"\w+\[\w+\]$", head):
        return "subscript", "[]"
    found = _BINARY.match(head) or _UNARY.match(head)
    return ("operator", found[1]) if found else None


def is_bare(head: str) -> bool:
    """Whether an entry of `also` has the parameters of `call`: "method", or a name with dots."""
    return bool(re.fullmatch(r"method|[A-Za-z_][\w.]*", head))
