"""The import block of a generated file.

In: the code below it and the imports that the user asked for. Out: sorted lines in three sections.
Invariant: exactly what the code reads is imported, in the order that isort's profile of ruff wants.
"""

import ast
import sys
from collections.abc import Iterable

from scaffold.spec import Import

KNOWN = (
    Import("torch"),
    Import("math"),
    Import("torch.nn.functional", None, "F"),
    Import("typing", "Any"),
    Import("typing", "Literal"),
    Import("typing", "TYPE_CHECKING"),
    Import("collections.abc", "Callable"),
    Import("collections.abc", "Sequence"),
    Import("torch", "Tensor"),
    Import("torch", "nn"),
    Import("torch.autograd", "Function"),
    Import("torch.autograd.function", "once_differentiable"),
)
THIRD_PARTY = frozenset({"cupy", "jax", "numpy", "pytest", "scipy", "torch", "triton"})


def import_block(
    code: str, wanted: Iterable[Import] = (), known: Iterable[Import] = KNOWN
) -> str:
    """The imports that `code` needs of the known ones, and of the wanted ones, as one text."""
    read = names_read(code)
    chosen = [item for item in (*known, *wanted) if item.binding in read]
    sections: dict[int, list[Import]] = {0: [], 1: [], 2: []}
    for item in dict.fromkeys(chosen):
        sections[_section(item)].append(item)
    blocks = ["\n".join(_lines(items)) for items in sections.values() if items]
    return "\n\n".join(blocks)


def names_read(code: str) -> frozenset[str]:
    """The identifiers that some code reads, those in quoted annotations left out."""
    tree = ast.parse(code)
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))


def _section(item: Import) -> int:
    root = item.module.split(".")[0]
    if root in sys.stdlib_module_names:
        return 0
    return 1 if root in THIRD_PARTY else 2


def _lines(items: list[Import]) -> list[str]:
    """`import` lines first, then one `from` line for each module, both sorted."""
    plain = sorted({_plain(item) for item in items if item.name is None}, key=str.lower)
    members: dict[str, list[Import]] = {}
    for item in items:
        if item.name is not None:
            members.setdefault(item.module, []).append(item)
    lines = []
    for module in sorted(members, key=str.lower):
        names = sorted(members[module], key=_member_key)
        shared = [item for item in names if _member(item) == item.name]
        if shared:
            listed = ", ".join(_member(item) for item in shared)
            lines.append(f"from {module} import {listed}")
        renamed = [item for item in names if item not in shared]
        lines += [f"from {module} import {_member(item)}" for item in renamed]
    return plain + lines


def _plain(item: Import) -> str:
    return f"import {item.module}" + (f" as {item.alias}" if item.alias else "")


def _member(item: Import) -> str:
    alias = f" as {item.alias}" if item.alias and item.alias != item.name else ""
    return f"{item.name}{alias}"


def _member_key(item: Import) -> tuple[int, str, str]:
    """Constants, then classes, then the rest."""
    name = item.name or ""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, name.lower(), name
