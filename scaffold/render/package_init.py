"""The `__init__.py` of a directory of ops: exports for everything the ops define.

In: the text of the file, the modules of the ops with their names. Out: the text with these exports.
Invariant: only imports of ops and the entries of `__all__` change; everything else in the file is the user's and stays
as it is, byte for byte. So the file needs no record, and a formatter or import sorter causes no drift.

A new import is placed by its name among the others; an `__all__` other than a list of strings is left to the user.

Words: a row is an entry of `__all__` on a line of its own; a name is bound by the import under itself or by `as`; *ours* are the names of
all listed ops; an import is *kept* as far as its module still has the names, and what it loses is *dropped*; *coming* lines are inserted.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from scaffold.errors import Location, ScaffoldError


class Exported(NamedTuple):
    """The wanted exports, and the facts about exports to remove."""

    package: str | None  # the dotted name of the directory
    names: Mapping[str, tuple[str, ...]]  # of each op's module
    # Whether a module of no listed op was one and is gone, judged by the names imported from it.
    gone: Callable[[str, frozenset[str]], bool]
    # Names an op's module no longer defines.
    obsolete: Mapping[str, frozenset[str]]
    line_length: int
    single_lines: bool  # one name an import


class _Import(NamedTuple):
    """An import of a sibling module."""

    module: str
    first: int  # line, from 0
    end: int
    names: tuple[tuple[str, str], ...]  # as imported, and as bound


def with_exports(text: str, path: str, wanted: Exported) -> str:
    """Return the text of an `__init__.py` exporting every op, and no op that is gone; raise ScaffoldError if it is not Python."""
    changed, dropped = _with_imports(text, path, wanted)
    return _with_all(changed, path, wanted, dropped)


def _parsed(text: str, path: str) -> ast.Module:
    """Return the syntax tree of the file; raise ScaffoldError with the line if it is not Python."""
    try:
        return ast.parse(text)
    except (RecursionError, MemoryError):
        message = "cannot be read as Python: it is nested too deeply"
        raise ScaffoldError(message, Location(path)) from None
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        message = f"is not Python: {getattr(error, 'msg', error)}"
        hint = "fix it: the exports of the ops are written into this file"
        raise ScaffoldError(message, Location(path, line), hint) from None


def _with_imports(text: str, path: str, wanted: Exported) -> tuple[str, set[str]]:
    """Return the text with the ops' imports updated, and the names it no longer binds, which leave `__all__` too.

    An import with another set of names is written anew; imports of new modules are inserted. Edits go from the last line to the first, so
    that line numbers stay right.
    """
    tree = _parsed(text, path)
    lines = text.splitlines(keepends=True)
    imports = list(_imports(tree, wanted.package))
    missing = dict(_missing(imports, wanted))
    dropped: set[str] = set()
    edits: dict[int, tuple[int, list[str]]] = {}  # line: (removed, new lines)
    for item in imports:
        kept = _kept(item, wanted)
        dropped |= {bound for _, bound in item.names} - {bound for _, bound in kept}
        more = [(name, name) for name in missing.pop(item.module, ())]
        names = sorted({*kept, *more})
        # An import of the same names in another order stays as the user has it.
        if set(names) != set(item.names):
            new = _statement(item.module, names, wanted) if names else []
            edits[item.first] = (item.end - item.first, new)
    # New imports stand among those of ops, not among the user's other ones.
    known = [item for item in imports if item.module in wanted.names]
    coming: dict[int, list[str]] = {}  # lines inserted before a line
    for module, names_missing in missing.items():
        new = _statement(module, [(name, name) for name in names_missing], wanted)
        coming.setdefault(_place(module, known, tree), []).extend(new)
    # Beside an import of another module of the directory a new one needs no blank line.
    if not imports:
        _add_blank_lines(lines, coming)
    for line in sorted({*edits, *coming}, reverse=True):
        count, new = edits.get(line, (0, []))
        lines[line : line + count] = [*coming.get(line, ()), *new]
    return "".join(lines), dropped


def _kept(item: _Import, wanted: Exported) -> list[tuple[str, str]]:
    """Return the names of an import to keep: all but names its op's module no longer defines; none if the module is gone."""
    if item.module in wanted.names:
        obsolete = wanted.obsolete.get(item.module, frozenset())
        return [pair for pair in item.names if pair[0] not in obsolete]
    imported = frozenset(name for name, _ in item.names)
    return [] if wanted.gone(item.module, imported) else list(item.names)


def _imports(tree: ast.Module, package: str | None) -> Iterator[_Import]:
    """Yield the imports of sibling modules that can be edited: each alone on its lines. `package` is the name for absolute imports."""
    starts = [node.lineno for node in tree.body]  # a line twice: joined by `;`
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue  # `from . import linear` has no module
        prefix = f"{package}." if package and node.level == 0 else ""
        beside = node.level == 1 or prefix and node.module.startswith(prefix)
        module = node.module.removeprefix(prefix)
        # `.sub.linear` is not in this directory but below it.
        if beside and "." not in module and starts.count(node.lineno) == 1:
            names = tuple(
                (alias.name, alias.asname or alias.name) for alias in node.names
            )
            yield _Import(module, node.lineno - 1, node.end_lineno or 0, names)


def _missing(
    imports: Iterable[_Import], wanted: Exported
) -> Iterator[tuple[str, list[str]]]:
    """Yield each module with the names it defines and no import has yet; none for one imported by `*`."""
    present: dict[str, set[str]] = {}
    for item in imports:
        # `linear as mine` does not export the name `linear`.
        plain = {name for name, bound in item.names if name == bound}
        present.setdefault(item.module, set()).update(plain)
    for module in sorted(wanted.names):
        found = present.get(module, set())
        missing = [name for name in sorted(wanted.names[module]) if name not in found]
        if missing and "*" not in found:
            yield module, missing


def _place(module: str, known: list[_Import], tree: ast.Module) -> int:
    """Return the line (from 0) to insert a new import before: in the order of modules, else below all imports."""
    later = [item.first for item in known if item.module > module]
    if later:
        return min(later)
    if known:
        return max(item.end for item in known)
    end = 0
    for position, node in enumerate(tree.body):
        documents = position == 0 and isinstance(node, ast.Expr)  # the docstring
        if not documents and not isinstance(node, ast.Import | ast.ImportFrom):
            break
        end = node.end_lineno or 0
    return end


def _statement(
    module: str, names: list[tuple[str, str]], wanted: Exported
) -> list[str]:
    """Return the lines of an import from a module: `names` are pairs of a name there and the name it is bound to."""
    said = [name if name == bound else f"{name} as {bound}" for name, bound in names]
    start = f"from .{module} import"
    if wanted.single_lines:
        return [f"{start} {name}\n" for name in said]
    line = f"{start} {', '.join(said)}\n"
    if len(line) - 1 <= wanted.line_length:
        return [line]
    return [f"{start} (\n", *(f"    {name},\n" for name in said), ")\n"]


def _add_blank_lines(lines: list[str], coming: dict[int, list[str]]) -> None:
    """Add blank lines between the first imports and the code around them; `coming` has the new lines by their place."""
    for line, new in coming.items():
        above = ["\n"] if line and lines[line - 1].strip() else []
        below = ["\n"] if line < len(lines) and lines[line].strip() else []
        # The last line of the file may lack its end.
        if line and not lines[line - 1].endswith("\n"):
            lines[line - 1] += "\n"
        coming[line] = [*above, *new, *below]


def _with_all(text: str, path: str, wanted: Exported, dropped: set[str]) -> str:
    """Return the text with the ops' names in `__all__`, and without dropped ones; unchanged if `__all__` is no list of strings."""
    tree = _parsed(text, path)
    lines = text.splitlines(keepends=True)
    ours = {name for names in wanted.names.values() for name in names}
    # Statements about `__all__`; of several, `__all__ += [...]`, none is touched.
    # Their first line tells: a function whose body reads `__all__` is none.
    nodes = [
        node for node in tree.body if "__all__" in ast.unparse(node).split("\n")[0]
    ]
    if not nodes:
        place = _after_imports(tree)
        if not ours:
            return text
        lines[place:place] = [
            "\n",
            *_all(ours, wanted),
            *(["\n"] if lines[place:] else []),
        ]
        return "".join(lines)
    listed = _listed(nodes[0])
    if len(nodes) > 1 or listed is None:
        return text
    names = set(listed) - dropped | ours
    if names == set(listed):
        return text
    node = nodes[0]
    assert isinstance(node, ast.Assign | ast.AnnAssign)  # _listed accepts no other node
    items = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else []
    # One name a line, none on the line of a bracket: the lines are edited, not written anew.
    rows = [item.lineno for item in items]
    if rows and len({node.lineno, *rows, node.end_lineno}) == len(rows) + 2:
        _edit_rows(lines, items, names)
    else:
        # A comment behind the list stays; columns count bytes.
        rest = lines[(node.end_lineno or 1) - 1].encode()[node.end_col_offset :]
        *new, last = _all(names, wanted)
        new.append(f"{last.rstrip()}{rest.decode()}")
        lines[node.lineno - 1 : node.end_lineno] = new
    return "".join(lines)


def _edit_rows(lines: list[str], items: list[ast.expr], names: set[str]) -> None:
    """Add and remove names of a list with one name a line, in `lines`; the others keep their lines and comments.

    `items` are the entries, `names` the wanted ones. A new name goes before the first one later in the alphabet.
    """
    rows = {str(ast.literal_eval(item)): item.lineno for item in items}
    last = items[-1]
    # The columns of a syntax tree count bytes.
    line = lines[last.lineno - 1].encode()
    head, tail = line[: last.end_col_offset], line[last.end_col_offset or 0 :]
    if not tail.lstrip().startswith(b","):
        lines[last.lineno - 1] = (head + b"," + tail).decode()  # another may follow
    new: dict[int, list[str]] = {}
    for name in sorted(names - rows.keys()):
        later = [row for other, row in rows.items() if other > name]
        place = min(later, default=max(rows.values()) + 1)
        new.setdefault(place, []).append(f'    "{name}",\n')
    gone = {row for name, row in rows.items() if name not in names}
    for row in sorted({*new, *gone}, reverse=True):
        lines[row - 1 : row] = [
            *new.get(row, ()),
            *([] if row in gone else [lines[row - 1]]),
        ]


def _after_imports(tree: ast.Module) -> int:
    """Return the last line of the last import, 0 without one."""
    ends = [
        node.end_lineno or 0
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    return max(ends, default=0)


def _listed(node: ast.stmt) -> list[str] | None:
    """Return the names of an `__all__` that is a list or tuple of strings; else None."""
    match node:
        case ast.Assign(
            [ast.Name("__all__")], ast.List(items) | ast.Tuple(items)
        ) | ast.AnnAssign(ast.Name("__all__"), _, ast.List(items) | ast.Tuple(items)):
            names = [item.value for item in items if isinstance(item, ast.Constant)]
            texts = [name for name in names if isinstance(name, str)]
            return texts if len(texts) == len(items) else None
    return None


def _all(names: Iterable[str], wanted: Exported) -> list[str]:
    """Return the lines of an `__all__` with these names, on one line if it fits."""
    said = [f'"{name}"' for name in sorted(names)]
    line = f"__all__ = [{', '.join(said)}]\n"
    if len(line) - 1 <= wanted.line_length:
        return [line]
    return ["__all__ = [\n", *(f"    {name},\n" for name in said), "]\n"]
