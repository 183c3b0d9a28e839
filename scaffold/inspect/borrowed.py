"""What code that leaves its file still needs of it.

In: the facts of a Function, and the text that its bodies became. Out: import statements.
Invariant: every name that the text does not bind is imported, from where its file had it or from that file; a name that
the file's top level does not have is a reason.
"""

import ast
import builtins
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.formulas import Unfit


def imports_of(facts: Facts, text: str, module: str) -> Iterator[str]:
    """What the bodies use of other modules, and of the file that they stood in."""
    try:
        tree = ast.parse(text)
    except SyntaxError:  # what is said to ctx stood where only ctx can
        raise Unfit(facts.function.node, "backward sets what ctx keeps") from None
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.Name)]
    bound = {n.id for n in nodes if isinstance(n.ctx, ast.Store)}
    bound |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    bound |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    free = {n.id for n in nodes} - bound - set(dir(builtins))
    whole = {
        alias.asname or alias.name.split(".")[0]: alias
        for node in ast.walk(facts.module.tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    lines, theirs = [], []
    for name in sorted(free):
        dotted = facts.names.imported.get(name, "")
        if name in whole:
            alias = whole[name]
            lines.append(
                f"import {alias.name}" + (f" as {name}" if alias.asname else "")
            )
        elif dotted and not dotted.startswith("."):
            source, _, last = dotted.rpartition(".")
            lines.append(
                f"from {source} import {last}" + (f" as {name}" if last != name else "")
            )
        else:
            theirs.append(name)
    unknown = set(theirs) - _module_names(facts)
    if unknown:
        raise Unfit(facts.function.node, f"'{min(unknown)}' is no name of its module")
    if theirs and not all(part.isidentifier() for part in module.split(".")):
        raise Unfit(facts.function.node, f"'{module}' cannot be imported from")
    if theirs:
        lines.append(f"from {module} import {', '.join(theirs)}")
    yield from sorted(lines, key=lambda line: (line.startswith("from"), line))


def _module_names(facts: Facts) -> set[str]:
    """The names that the top level of a file binds."""
    found = set(facts.names.imported)
    pending: list[ast.AST] = list(facts.module.tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        pending.extend(ast.iter_child_nodes(node))
    return found
