"""Imported names: resolve the names of a file by its imports.

A user writes `torch.exp`, `F.exp` or `from torch import exp`; every module of `inspect` asks here for the one dotted name, so that
it need not know the spelling.

In: the tree of a file. Out: `Names`, to resolve an expression to its dotted name: `F.relu` is `torch.nn.functional.relu`.
Invariant: a name bound by anything but an import resolves to itself; nothing is guessed.
"""

import ast
import re
from collections.abc import Iterator

from scaffold.inspect.vocabulary import NAMESPACES


def unsubscripted(node: ast.expr) -> ast.expr:
    """Return the expression under all subscripts: the base `Function` of `Function[T]`, the tensor `x` of `x[0][1]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


class Names:
    """The imports of a file, at any level: `imported` maps each bound name to its dotted one, `starred` lists `from m import *`."""

    def __init__(self, tree: ast.Module, found: list[ast.AST] | None = None) -> None:
        """Read the imports of a file; `found` are its import statements, if a walk over the tree has found them already."""
        self.imported: dict[str, str] = {}
        self.starred: list[str] = []
        for node in found if found is not None else ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    # `import torch.nn` binds `torch`; `import torch.nn as nn` binds `nn` to all of it.
                    dotted = alias.name if alias.asname else alias.name.split(".")[0]
                    self.imported[alias.asname or dotted] = dotted
            elif isinstance(node, ast.ImportFrom):
                self._from(node)

    def _from(self, node: ast.ImportFrom) -> None:
        """Record the names of a `from` import: `relu` as `torch.relu` after `from torch import relu`; of `*`, the module alone."""
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            if alias.name == "*":
                self.starred.append(module)
                continue
            # `from . import f` is `.f`, `from .ops import f` is `.ops.f`.
            dot = "" if module.endswith(".") or not module else "."
            self.imported[alias.asname or alias.name] = f"{module}{dot}{alias.name}"

    def resolve(self, node: ast.AST | None) -> str:
        """Return the dotted name of an expression, its imports replaced: `torch.nn.functional.relu` for `F.relu`.

        "" for anything else than names joined by dots, such as `f().relu`, and for None.
        """
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        first = self.imported.get(node.id, node.id)
        return ".".join([first, *reversed(parts)])


def decorators(
    node: ast.FunctionDef | ast.AsyncFunctionDef, names: Names
) -> Iterator[str]:
    """Yield the dotted name of each decorator, called or not: `torch.amp.custom_fwd` for `@custom_fwd(device_type="cuda")`."""
    for decorator in node.decorator_list:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        yield names.resolve(target)


def torch_call(node: ast.AST, names: Names) -> str:
    """Return `exp` for a call of `torch.exp`, `F.exp` or another namespace of NAMESPACES, else ""."""
    if isinstance(node, ast.Call):
        dotted = names.resolve(node.func)
        for namespace in NAMESPACES:
            rest = dotted.removeprefix(namespace)
            if rest != dotted and "." not in rest:  # `torch.nn.f` is none of `torch.`
                return rest
    return ""


def method_call(node: ast.AST, names: Names) -> str:
    """Return `exp` for a call of `x.exp()`, else ""; a function of an imported module, `np.exp(x)`, does not count."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        first = node.func.value
        while isinstance(first, ast.Attribute):  # `np` of `np.linalg.norm(x)`
            first = first.value
        if isinstance(first, ast.Name) and first.id in names.imported:
            return ""
        return node.func.attr
    return ""


def snake_case(name: str) -> str:
    """Convert a name to the style of functions: `GradReverse` to `grad_reverse`."""
    # Before a capital after a small letter, and before the last capital of several: `GRUCell` -> `gru_cell`.
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return re.sub(r"_+", "_", words).strip("_").lower()
