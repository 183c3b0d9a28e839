"""What code that leaves its file still needs of it.

In: the facts of a Function, and the text that its bodies became. Out: import statements.
Invariant: every name that the text does not bind is imported, from where its file had it or from that file; a name that
the file's top level does not have is a reason.
"""

import ast
import builtins
import symtable
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.method_formulas import Unfit


def imports_of(facts: Facts, text: str, module: str) -> Iterator[str]:
    """What the bodies use of other modules, and of the file that they stood in."""
    own = module_names(facts, own=True)
    free = _free(facts, text) - (set(dir(builtins)) - own)
    whole = {
        alias.asname or alias.name.split(".")[0]: alias
        for node in ast.walk(facts.module.tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    lines, theirs = [], []
    for name in sorted(free):
        dotted = facts.names.imported.get(name, "")
        if name in own:
            theirs.append(name)
        elif name in whole:
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
    unknown = set(theirs) - module_names(facts)
    if unknown:
        raise Unfit(facts.function.node, f"'{min(unknown)}' is no name of its module")
    if theirs and not all(part.isidentifier() for part in module.split(".")):
        raise Unfit(facts.function.node, f"'{module}' cannot be imported from")
    if theirs:
        lines.append(f"from {module} import {', '.join(theirs)}")
    yield from sorted(lines, key=lambda line: (line.startswith("from"), line))


def _free(facts: Facts, text: str) -> set[str]:
    """The names that functions of a text read and nothing in it binds, each by the scope that it stands in."""
    try:
        pending = [symtable.symtable(text, "bodies", "exec")]
    except SyntaxError:  # what is said to ctx stood where only ctx can
        raise Unfit(facts.function.node, "backward sets what ctx keeps") from None
    bound = {symbol.get_name() for symbol in pending[0].get_symbols()}
    found: set[str] = set()
    while pending:
        table = pending.pop()
        pending += table.get_children()
        if table.get_type() != "module":
            found |= {s.get_name() for s in table.get_symbols() if s.is_global()}
    return found - bound


def module_names(facts: Facts, own: bool = False) -> set[str]:
    """The names that the top level of a file binds; with `own`, those that are no imports alone."""
    found = set() if own else set(facts.names.imported)
    pending: list[ast.AST] = list(facts.module.tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
            continue
        if isinstance(node, ast.Lambda | ast.expr_context):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        pending.extend(ast.iter_child_nodes(node))
    return found
