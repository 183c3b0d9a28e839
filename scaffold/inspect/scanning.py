"""One walk over a file: what stands in it, and where `Name.apply` is called and bound.

In: the tree of a file. Out: a `Scan`; applications and aliases by the name of the class.
Invariant: everything is in the order in which it stands, with the definitions around it.
"""

import ast
from typing import NamedTuple

from scaffold.inspect.functions import Application
from scaffold.inspect.imported_names import Names


class Scan(NamedTuple):
    """Nodes of a file by what they are, from one walk, with the definitions around each."""

    classes: list[tuple[ast.ClassDef, tuple[ast.AST, ...]]]
    calls: list[tuple[ast.Call, tuple[ast.AST, ...]]]
    assignments: list[tuple[ast.Assign, tuple[ast.AST, ...]]]
    functions: list[tuple[ast.FunctionDef, tuple[ast.AST, ...]]]
    imports: list[ast.AST]


def scan(tree: ast.Module) -> Scan:
    """Every class, call, assignment, function and import of a file, in the order in which they stand."""
    found = Scan([], [], [], [], [])
    pending: list[tuple[ast.AST, tuple[ast.AST, ...]]] = [(tree, ())]
    while pending:
        node, within = pending.pop()
        if isinstance(node, ast.ClassDef):
            found.classes.append((node, within))
            within = (*within, node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if isinstance(node, ast.FunctionDef):
                found.functions.append((node, within))
            within = (*within, node)
        elif isinstance(node, ast.Call):
            found.calls.append((node, within))
        elif isinstance(node, ast.Assign):
            found.assignments.append((node, within))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.imports.append(node)
        children = [(child, within) for child in ast.iter_child_nodes(node)]
        pending.extend(reversed(children))
    return found


def applications(found: Scan) -> dict[str, list[tuple[str, Application]]]:
    """Calls of `Name.apply(...)`, and of names that are bound to `Name.apply`."""
    aliases = {
        target.id: node.value.value.id
        for node, _ in found.assignments
        if isinstance(node.value, ast.Attribute)
        and node.value.attr == "apply"
        and isinstance(node.value.value, ast.Name)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    calls: dict[str, list[tuple[str, Application]]] = {}
    for call, within in found.calls:
        function = call.func
        name = ""
        if isinstance(function, ast.Attribute) and function.attr == "apply":
            if isinstance(function.value, ast.Name):
                name = function.value.id
        elif isinstance(function, ast.Name):
            name = aliases.get(function.id, "")
        if name:
            calls.setdefault(name, []).append((name, Application(call, within)))
    return calls


def aliases(found: Scan) -> dict[str, list[str]]:
    """The module's names for `Name.apply`."""
    aliases: dict[str, list[str]] = {}
    for node, within in found.assignments:
        value = node.value
        if within or not isinstance(value, ast.Attribute) or value.attr != "apply":
            continue
        if isinstance(value.value, ast.Name):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    aliases.setdefault(value.value.id, []).append(target.id)
    return aliases


def local_names(found: Scan, names: Names) -> dict[str, str]:
    """`Base = torch.autograd.Function` at the top of a file."""
    return {
        target.id: names.resolve(node.value)
        for node, within in found.assignments
        if not within and isinstance(node.value, ast.Attribute | ast.Name)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
