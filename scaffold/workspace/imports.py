"""A three-way merge of imports in a row, which are a set of names whatever their lines.

In: the same run of imports in three texts. Out: the text of the file's run with what was added and dropped since, or None
where lines have to be compared.
Invariant: a name that neither side gave up is imported; lines that need no change are as they were.
"""

import ast
from dataclasses import dataclass
from textwrap import dedent

from scaffold.workspace.statements import Imported, Statement, module_of, split

WIDTH = 88  # of a line, unless the file has longer ones


@dataclass(slots=True)
class _Import:
    """One statement: what stands above it, its names, its lines, whether those have comments."""

    above: str
    module: str | None  # None: `import name`
    names: list[str]
    text: str
    bare: bool

    @property
    def key(self) -> str:
        """What the statements of a run are told apart by."""
        return f"import {self.names[0]}" if self.module is None else self.module


def merge_imports(base: Statement, mine: Statement, new: Statement) -> str | None:
    """The file's imports, with those that the generator added and without those that it dropped."""
    old, here, then = (
        {one.said: one for one in run.imports} for run in (base, mine, new)
    )
    if any(then[said].comments != old[said].comments for said in old.keys() & then):
        return None
    dropped = old.keys() - then
    added = [one for said, one in then.items() if said not in old and said not in here]
    left = [one for said, one in here.items() if said not in dropped]
    if any(one.bound == other.bound for one in added for other in left):
        return None  # two things of one name
    lines, model = _parse(mine.text), _parse(new.text)
    if not lines or not model or not _drop(lines, dropped):
        return None
    width = max(WIDTH, *(len(line) for line in mine.text.split("\n")))
    single = _is_single(lines)
    for one in added:
        _add(lines, model, one, single)
    indent = mine.text[: len(mine.text) - len(mine.text.lstrip())].rpartition("\n")[2]
    return "".join(_text(line, indent, width) for line in lines)


def _parse(text: str) -> list[_Import] | None:
    """The statements of a run; None where two share a line, or a comment ends the run."""
    rows = split(text)
    lines: list[_Import] = []
    done = 0
    for node in ast.parse(dedent(text)).body:
        assert isinstance(node, ast.Import | ast.ImportFrom)
        first, last = node.lineno - 1, node.end_lineno or 0
        if first < done:
            return None
        above, own = "".join(rows[done:first]), "".join(rows[first:last])
        names = [f"{a.name} as {a.asname}" if a.asname else a.name for a in node.names]
        bare = "#" not in own and ";" not in own
        lines.append(_Import(above, module_of(node), names, own, bare))
        done = last
    return lines if done == len(rows) else None


def _drop(lines: list[_Import], dropped: set[str]) -> bool:
    """Leave out names; False where a comment stands in the way."""
    for line in list(lines):
        names = [name for name in line.names if _said(line, name) not in dropped]
        if names == line.names:
            continue
        if not line.bare:
            return False
        line.names, line.text = names, ""
        if not names:
            _take_out(lines, lines.index(line))
    return True


def _take_out(lines: list[_Import], place: int) -> None:
    """Remove a statement; what starts a section stays above the next one of it."""
    above = lines.pop(place).above
    if place < len(lines) and not lines[place].above:
        lines[place].above = above


def _said(line: _Import, name: str) -> str:
    original, _, alias = name.partition(" as ")
    return Imported(line.module, original, alias or None).said


def _is_single(lines: list[_Import]) -> bool:
    """Whether the file has one name a line."""
    modules = [line.module for line in lines if line.module is not None]
    several = any(len(line.names) > 1 for line in lines)
    return len(modules) > len(set(modules)) and not several


def _add(
    lines: list[_Import], model: list[_Import], one: Imported, single: bool
) -> None:
    """Import a name, where the file has its module or else where the new text has it."""
    name = f"{one.name} as {one.alias}" if one.alias else one.name
    same = [line for line in lines if line.module == one.module and line.module]
    if same and not single and same[-1].bare:
        names = same[-1].names
        ordered = names == sorted(names, key=_rank)
        same[-1].names = (
            sorted([*names, name], key=_rank) if ordered else [*names, name]
        )
        same[-1].text = ""
        return
    line = _Import("", one.module, [name], "", True)
    if not same:
        _insert(lines, model, line)
    elif single and _rank(name) < _rank(same[0].names[0]):
        _put_before(lines, lines.index(same[0]), line)
    else:
        before = [other for other in same if _rank(other.names[-1]) < _rank(name)]
        lines.insert(lines.index((before or same)[-1]) + 1, line)


def _rank(name: str) -> tuple[int, str]:
    """The order of names: constants, classes, the rest."""
    kind = 0 if len(name) > 1 and name.isupper() else 1 if name[0].isupper() else 2
    return kind, name.lower()


def _insert(lines: list[_Import], model: list[_Import], line: _Import) -> None:
    """Put a statement beside the neighbour that it has in the new text, of its section if possible."""
    keys = [other.key for other in lines]
    place = [other.key for other in model].index(line.key)
    sections = [0]
    for other in model[1:]:
        sections.append(sections[-1] + ("\n" in other.above))
    near = [
        (
            sections[number] != sections[place],
            abs(number - place),
            number < place,
            number,
        )
        for number, other in enumerate(model)
        if other.key in keys
    ]
    if not near:
        lines.append(line)
        return
    apart, _, earlier, number = min(near)
    if earlier:
        beside = len(keys) - 1 - keys[::-1].index(model[number].key)
        line.above = "\n" if apart else ""
        lines.insert(beside + 1, line)
    else:
        _put_before(lines, keys.index(model[number].key), line)
        if apart:
            lines[keys.index(model[number].key) + 1].above = "\n"


def _put_before(lines: list[_Import], place: int, line: _Import) -> None:
    """Insert a statement below the blank lines of the one that it comes before."""
    blank, comments = _blank(lines[place].above)
    line.above, lines[place].above = blank, comments
    lines.insert(place, line)


def _blank(above: str) -> tuple[str, str]:
    rest = above.lstrip("\n")
    return above[: len(above) - len(rest)], rest


def _text(line: _Import, indent: str, width: int) -> str:
    """The lines of a statement, on one if that is possible."""
    if line.text:
        return line.above + line.text
    if line.module is None:
        return f"{line.above}{indent}import {', '.join(line.names)}\n"
    start = f"{indent}from {line.module} import "
    if len(whole := start + ", ".join(line.names)) <= width:
        return f"{line.above}{whole}\n"
    rows = "".join(f"{indent}    {name},\n" for name in line.names)
    return f"{line.above}{start}(\n{rows}{indent})\n"
