"""The import block of a generated file.

In: the code below it and the user's own imports, each an `Import` (module, name or None, alias; `binding` is the name it binds). Out:
sorted lines in three sections.
Invariant: only names read by the code are imported, in the order of ruff's isort profile.
"""

import ast
import re
import sys
from collections.abc import Iterable
from functools import lru_cache

from scaffold.spec import Import

KNOWN = (
    Import("torch"),
    Import("math"),
    Import("warnings"),
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
BINDINGS = frozenset(item.binding for item in KNOWN)
_FROM = re.compile(
    r"^from (\S+) import [^(\n]+\n(?:from \1 import [^(\n]+\n)*", re.MULTILINE
)
UNEXPORTED = (Import("torch.nn.grad"),)  # type checkers do not find them through torch
# Any other module counts as the user's own.
THIRD_PARTY = frozenset(
    {"apex", "causal_conv1d", "cupy", "cutlass", "deepspeed", "einops", "fla"}
    | {"flash_attn", "functorch", "jax", "jaxtyping", "liger_kernel", "mamba_ssm"}
    | {"numba", "numpy", "opt_einsum", "pykeops", "pytest", "scipy", "sympy"}
    | {"tensordict", "tilelang", "torch", "torch_geometric", "torch_scatter"}
    | {"torch_sparse", "torchaudio", "torchvision", "transformers", "triton"}
    | {"typing_extensions", "xformers"}
)


def import_block(
    code: str,
    wanted: Iterable[Import] = (),
    known: Iterable[Import] = KNOWN,
    single: bool = False,
    also: str = "",
) -> str:
    """Return the imports whose names `code` reads, as one text: of `known`, for any generated file, and of `wanted`, the user's.

    `single` gives every name a line of its own; `also` is further code using them.
    """
    read = names_read(code) | names_read(also)
    chosen = [item for item in (*known, *wanted) if item.binding in read]
    chosen += [item for item in UNEXPORTED if f"{item.module}." in code]
    sections: dict[int, list[Import]] = {0: [], 1: [], 2: []}  # as in `_section`
    for item in dict.fromkeys(chosen):
        sections[_section(item)].append(item)
    blocks = [
        "\n".join(import_lines(items, single)) for items in sections.values() if items
    ]
    return "\n\n".join(blocks)


@lru_cache(maxsize=8)  # the blocks of one file, and the test code shared by all files
def names_read(code: str) -> frozenset[str]:
    """Return the identifiers read by code, excluding quoted annotations."""
    return frozenset(_read([ast.parse(code)]))


def _read(left: list[ast.AST]) -> set[str]:
    """Return the names read by some nodes and all nodes in them, except parameters of the functions around them.

    `left` is the list of nodes to visit, and is used up.
    """
    found: set[str] = set()
    while left:  # like ast.walk, in half the time
        node = left.pop()
        if isinstance(node, ast.Name):
            found.add(node.id)
            continue
        if isinstance(node, ast.FunctionDef):
            own = BINDINGS.intersection(item.arg for item in node.args.args)
            if own:  # for example a size named F
                found |= _read([*ast.iter_child_nodes(node)]) - own
                continue
        for field in node._fields:
            value = getattr(node, field, None)
            if isinstance(value, list):
                left += [item for item in value if isinstance(item, ast.AST)]
            # `ast.Load()`, the context of a name, has no fields, and so no names.
            elif isinstance(value, ast.AST) and value._fields:
                left.append(value)
    return found


def _section(item: Import) -> int:
    """Return the section of an import: 0 for the standard library, 1 for third parties, 2 for the user's modules."""
    root = item.module.split(".")[0]
    if root in sys.stdlib_module_names:
        return 0
    return 1 if root in THIRD_PARTY else 2


def import_lines(items: Iterable[Import], single: bool) -> list[str]:
    """Return the lines of imports, sorted: `import` lines first, then `from` lines, one for each module and for each alias.

    If `single`, each name has a line of its own.
    """
    plain = sorted({_plain(item) for item in items if item.name is None}, key=_natural)
    members: dict[str, list[Import]] = {}
    for item in items:
        if item.name is not None:
            members.setdefault(item.module, []).append(item)
    return plain + [
        line
        for module in sorted(members, key=_natural)
        for line in _from_lines(
            module, sorted(members[module], key=_member_key), single
        )
    ]


def _from_lines(module: str, items: list[Import], single: bool) -> list[str]:
    """Return one line for names without an alias, and one for each alias, sorted by first name."""
    # `stay`: the names that share a line.
    stay = [item for item in items if _member(item) == item.name and not single]
    groups = [[item] for item in items if item not in stay] + ([stay] if stay else [])
    groups.sort(key=lambda group: _member_key(group[0]))
    return [
        f"from {module} import {', '.join(_member(item) for item in group)}"
        for group in groups
    ]


def _plain(item: Import) -> str:
    return f"import {item.module}" + (f" as {item.alias}" if item.alias else "")


def _member(item: Import) -> str:
    alias = f" as {item.alias}" if item.alias and item.alias != item.name else ""
    return f"{item.name}{alias}"


def _member_key(item: Import) -> tuple[int, list[tuple[int, int, str]], str]:
    """Return a sort key: constants, then classes, then the rest."""
    name = item.name or ""
    # A single capital, `F`, is sorted among the classes.
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, _natural(name), name


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Return a case-insensitive sort key placing `k2` before `k10`."""
    parts = re.split(r"(\d+)", name.lower())
    # Of equal form, as Python compares no number with a text.
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


def one_style(code: str) -> str:
    """Join the imports of each module into one line, so texts differing only in import style compare equal.

    A team's tool may have split the imports of a generated file: that is no edit of the user's.
    """
    return _FROM.sub(_joined, code)


def _joined(run: re.Match[str]) -> str:
    """Return a run of imports of one module as one line, the names sorted."""
    names = [
        name.strip()
        for line in run[0].splitlines()
        for name in line.split(" import ", 1)[1].split(",")
    ]
    return f"from {run[1]} import {', '.join(sorted(names))}\n"
