"""A three-way merge of texts: the edits of a file and those of its generator, both kept.

`scaffold upgrade` needs it: an op was changed in the manifest, and somebody has edited its files. In: the text generated last
(`base`), the file on disk (`mine`), and the text generated now (`new`). Out: a `Merged`, with markers where both sides changed the
same lines. Invariant: a change on one side alone is taken over as it is; if only the generator changed a file, the
result is the generator's text.

First the statements of the three texts are aligned, so a change of formatting does not count; then adjacent imports are merged
as sets of names; last, the lines of statements changed on both sides are merged by diff3. If places are left to settle, since
the generator writes the file in another form, definitions are merged by their names.

Words: a *side* is one of the three texts, or the same part of it; a *run* are adjacent imports, one `Statement`; a *form* is a
statement's text independent of formatting; a *hunk* is a part of each side, *stable* if all three have the same; *above* are
the blank and comment lines over a statement. `base`, `mine` and `new` are the text as generated last, the file, and the text generated
now; `old`, `here` and `then` are the same part of these three. *Kept* definitions stay though the new text lacks them.
"""

import ast
import re
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from textwrap import dedent
from typing import NamedTuple

from scaffold.workspace.statements import (
    Imported,
    Statement,
    cut,
    module_of,
    normal_form,
    split,
    unix,
)

# --- Agreements and differences of three versions of a sequence: diff3, over difflib.
#
# In: the common ancestor and its two descendants, as sequences of lines or of anything comparable and hashable.
# Out: `Hunk`s, from the start to the end, covering all three.
# Invariant: a stable hunk is in all three, in their order; between two stable hunks each of the three has its part,
# perhaps an empty one.
#
# The algorithm is from Khanna, Kunal and Pierce, "A Formal Investigation of Diff3" (2007): parts both descendants share
# with the ancestor are stable, the rest lies in between.


class Hunk(NamedTuple):
    """A part of each of the three; in a `stable` one they are equal."""

    stable: bool
    base: slice
    mine: slice
    new: slice


class _Start(NamedTuple):
    """An index into each of the three."""

    base: int
    mine: int
    new: int


def diff3(
    base: Sequence[Hashable], mine: Sequence[Hashable], new: Sequence[Hashable]
) -> Iterator[Hunk]:
    """Yield the parts of `base` and its descendants `mine` and `new`, from start to end: stable hunks, equal in all three, and others.

    In an unstable hunk, between two stable ones, at least one of the three differs; it may be empty in one or two of them.
    """
    at = _Start(0, 0, 0)
    for start, size in _agreements(base, mine, new):
        end = _Start(*(index + size for index in start))
        if start != at:
            yield Hunk(False, *map(slice, at, start))
        if size:
            yield Hunk(True, *map(slice, start, end))
        at = end


def _agreements(
    base: Sequence[Hashable], mine: Sequence[Hashable], new: Sequence[Hashable]
) -> Iterator[tuple[_Start, int]]:
    """Yield the start and length of each run of items common to all three sequences; last, the three ends with a length of 0.

    A run is the overlap, within `base`, of a match of `base` and `mine` with a match of `base` and `new`.
    """
    of_mine, of_new = iter(_matches(base, mine)), iter(_matches(base, new))
    one, other = next(of_mine), next(of_new)
    while True:
        start = max(one.a, other.a)
        end = min(one.a + one.size, other.a + other.size)
        if start < end:
            at_mine, at_new = one.b + start - one.a, other.b + start - other.a
            yield _Start(start, at_mine, at_new), end - start
        # The last of difflib's matches, at the ends, has size 0.
        if one.size == 0 or other.size == 0:
            break
        # Go on from the match that ends first: the other one may overlap its successor too.
        if one.a + one.size <= other.a + other.size:
            one = next(of_mine)
        else:
            other = next(of_new)
    yield _Start(len(base), len(mine), len(new)), 0


def _matches(base: Sequence[Hashable], other: Sequence[Hashable]) -> list[Match]:
    """Return difflib's matches of `base` (`a`) and `other` (`b`), in order; the last one lies at both ends and has size 0."""
    # autojunk: difflib would ignore frequent lines, such as blank ones and brackets.
    return SequenceMatcher(None, base, other, autojunk=False).get_matching_blocks()


# --- A three-way merge of adjacent imports, treated as a set of names whatever their lines.


WIDTH = 88  # of a line, unless the file has longer ones


@dataclass(slots=True)
class _Import:
    """One import statement: the lines above it, its names, its text, whether it is free of comments."""

    above: str
    module: str | None  # None: `import name`
    names: list[str]
    text: str
    bare: bool  # without a comment or a `;`: its lines may be written anew

    @property
    def key(self) -> str:
        """Return the identity of a statement among imports: the module of a `from` import, else `import name`."""
        return f"import {self.names[0]}" if self.module is None else self.module


def merge_imports(base: Statement, mine: Statement, new: Statement) -> str | None:
    """Return the text of the user's run of imports, `mine`, with the names added and removed that the generator changed, `base` to `new`.

    Imports are compared name by name, by `said`, `from a import b as c`. None if it is unsafe: a comment on an import changed or
    stands in the way, or an added name is bound to something else in the file.
    """
    old, here, then = (
        {one.said: one for one in run.imports} for run in (base, mine, new)
    )
    # The generator changed a comment on an import that stays.
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
    # The file's own lines may be longer: then a longer one is no surprise.
    width = max(WIDTH, *(len(line) for line in mine.text.split("\n")))
    single = _is_single(lines)
    for one in added:
        _add(lines, model, one, single)
    # The blanks before the first import: the run may stand in a block, under `if TYPE_CHECKING:`.
    indent = mine.text[: len(mine.text) - len(mine.text.lstrip())].rpartition("\n")[2]
    return "".join(_text_of_bindings(line, indent, width) for line in lines)


def _parse(text: str) -> list[_Import] | None:
    """Return the import statements of a run's text, each with the lines above it, to change them one by one.

    None if two of them share a line, or other lines follow the last one: then they cannot be taken apart.
    """
    rows = split(text)
    lines: list[_Import] = []
    done = 0
    for node in ast.parse(dedent(text)).body:
        assert isinstance(node, ast.Import | ast.ImportFrom)
        first, last = node.lineno - 1, node.end_lineno or 0
        # Two on one line: `import a; import b`.
        if first < done:
            return None
        above, own = "".join(rows[done:first]), "".join(rows[first:last])
        names = [f"{a.name} as {a.asname}" if a.asname else a.name for a in node.names]
        bare = "#" not in own and ";" not in own
        lines.append(_Import(above, module_of(node), names, own, bare))
        done = last
    return lines if done == len(rows) else None


def _drop(lines: list[_Import], dropped: set[str]) -> bool:
    """Remove the names in `dropped`, each as `from a import b`, from the statements, in place; return whether all could be removed.

    False, with the removal incomplete, if a statement to be shortened holds a comment: its lines cannot be written anew. A changed
    statement has the text "": it is written later.
    """
    for line in list(lines):
        names = [name for name in line.names if _said(line, name) not in dropped]
        if names == line.names:
            continue
        if not line.bare:
            return False
        line.names, line.text = names, ""
        if not names:
            _remove_statement(lines, lines.index(line))
    return True


def _remove_statement(lines: list[_Import], place: int) -> None:
    """Remove the statement at the index `place`; the lines above it move to its successor, if that has none of its own."""
    above = lines.pop(place).above
    if place < len(lines) and not lines[place].above:
        lines[place].above = above


def _said(line: _Import, name: str) -> str:
    """Return the import of one name of a statement on its own: `from a import b as c` for `b as c`."""
    original, _, alias = name.partition(" as ")
    return Imported(line.module, original, alias or None).said


def _is_single(lines: list[_Import]) -> bool:
    """Return whether the file writes a statement for each name, as some projects want: a module recurs, and no statement has several."""
    modules = [line.module for line in lines if line.module is not None]
    several = any(len(line.names) > 1 for line in lines)
    return len(modules) > len(set(modules)) and not several


def _add(
    lines: list[_Import], model: list[_Import], one: Imported, single: bool
) -> None:
    """Add the import of a name, `one`, to the statements `lines`, in place, as the file would have it.

    It joins its module's last statement, in sorted order if the names are sorted; or gets a statement of its own beside that if the
    file imports one name per statement (`single`) or a comment forbids rewriting. A new module goes where `model`, the imports of the
    new text, has it.
    """
    name = f"{one.name} as {one.alias}" if one.alias else one.name
    # Nothing joins an `import name`, which has no module.
    same = [line for line in lines if line.module == one.module and line.module]
    # A statement with a comment is not written anew (`bare`).
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
    # It becomes the first of its module, in sorted order.
    elif single and _rank(name) < _rank(same[0].names[0]):
        _put_before(lines, lines.index(same[0]), line)
    else:
        before = [other for other in same if _rank(other.names[-1]) < _rank(name)]
        lines.insert(lines.index((before or same)[-1]) + 1, line)


def _rank(name: str) -> tuple[int, str]:
    """Return the sort key of a name as import sorters have it: CONSTANTS, then Classes, then the rest."""
    # A single capital, the `F` of torch.nn, counts as a class.
    kind = 0 if len(name) > 1 and name.isupper() else 1 if name[0].isupper() else 2
    return kind, name.lower()


def _insert(lines: list[_Import], model: list[_Import], line: _Import) -> None:
    """Insert an import of a new module, `line`, into `lines`, beside its nearest neighbour in `model` that the file has too.

    `model` holds the new text's imports; its blank lines divide them into sections (standard library, third party, own). A neighbour
    of the same section is preferred; beside one of another section a blank line is set between.
    """
    keys = [other.key for other in lines]
    place = [other.key for other in model].index(line.key)
    sections = [0]
    for other in model[1:]:
        sections.append(sections[-1] + ("\n" in other.above))
    # By preference: same section, near, after it.
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
        # The neighbour's last statement: its module may have several.
        beside = len(keys) - 1 - keys[::-1].index(model[number].key)
        line.above = "\n" if apart else ""
        lines.insert(beside + 1, line)
    else:
        at = keys.index(model[number].key)
        _put_before(lines, at, line)
        lines[at + 1].above = "\n" * apart + lines[at + 1].above


def _put_before(lines: list[_Import], place: int, line: _Import) -> None:
    """Insert a statement at the index `place`: blank lines above its successor go above it, comments stay with the successor."""
    blank, comments = _split_above(lines[place].above)
    line.above, lines[place].above = blank, comments
    lines.insert(place, line)


def _split_above(above: str) -> tuple[str, str]:
    """Split the text above a statement into its leading newlines and the rest."""
    rest = above.lstrip("\n")
    return above[: len(above) - len(rest)], rest


def _text_of_bindings(line: _Import, indent: str, width: int) -> str:
    """Return the text of an import statement with the lines above it: its own if unchanged, else one line, or a line a name if too long."""
    if line.text:
        return line.above + line.text
    if line.module is None:
        return f"{line.above}{indent}import {', '.join(line.names)}\n"
    start = f"{indent}from {line.module} import "
    if len(one_line := start + ", ".join(line.names)) <= width:
        return f"{line.above}{one_line}\n"
    rows = "".join(f"{indent}    {name},\n" for name in line.names)
    return f"{line.above}{start}(\n{rows}{indent})\n"


# --- A three-way merge of texts: the edits of a file and those of its generator, both kept.
#
# In: the text as last written, the file on disk, the text to be written now. Out: a `Merged`.
# Invariant: a change on one side alone is applied; different changes on both stand between markers. Of one statement in two
# spellings the file's is kept, so a formatter's work neither conflicts nor gets lost.


YOURS, BASE, OURS = "yours", "base", "scaffold"
_MARKER = re.compile(r"^(<{7}|\|{7}|>{7})( .*)?$", re.MULTILINE)
Side = tuple[Statement, ...]


class Merged(NamedTuple):
    """A merged text and the number of places left for the user to settle."""

    text: str
    conflicts: int


class _Sides(NamedTuple):
    """The same part of the three texts."""

    base: Side
    mine: Side
    new: Side


def has_markers(text: str) -> bool:
    """Return whether a merge, ours or another's, left a place to settle; `=======` alone is no evidence."""
    return _MARKER.search(unix(text)) is not None


def merge(base: str, mine: str, new: str) -> Merged:
    """Return the file, `mine`, with the generator's changes from `base` to `new`; changes of both to one place stand between markers.

    Every line of a merged text ends in a newline. Of two ways to merge a Python file, the one with fewer lines between markers is taken.
    """
    if new in (base, mine):
        return Merged(mine, 0)
    if mine == base:
        return Merged(new, 0)
    texts = [_ended(unix(text)) for text in (base, mine, new)]
    sides = [cut(text) for text in texts]
    if None in sides:  # no Python: the lines of the texts are merged
        return _merged(_Sides(*map(_lines, texts)))
    merged = _merged(_with_imports(_Sides(*(side or () for side in sides))))
    if not merged.conflicts and cut(merged.text) is None:
        # Both sides' changes fit by their lines, and give no valid Python.
        merged = _one_conflict(*map(split, texts))
    if merged.conflicts:
        return min(merged, merge_definitions(*texts) or merged, key=_marked_lines)
    return merged


def _marked_lines(merged: Merged) -> int:
    """Return the number of lines between markers, the markers included: the user has to look at these, so the fewer the better."""
    count, inside = 0, False
    for line in split(merged.text):
        inside = inside or line.startswith("<<<<<<<")
        count += inside
        inside = inside and not line.startswith(">>>>>>>")
    return count


def _ended(text: str) -> str:
    """Return a text whose last line ends in a newline, as `cut` needs it."""
    return text if text.endswith("\n") or not text else f"{text}\n"


def _lines(text: str) -> Side:
    """Return the lines of a text as if each were a statement, to merge a file that is no Python; trailing blanks make no difference."""
    return tuple(Statement(line, line.rstrip()) for line in split(text))


def _with_imports(sides: _Sides) -> _Sides:
    """Return the sides with the merged text of each run of imports on all three: being equal, it is in no conflict in the merge to come.

    A run stays as it is if only one side changed it or it cannot be merged by names; all stay if the sides have different numbers of runs.
    """
    runs = [[i for i, item in enumerate(side) if item.imports] for side in sides]
    if len({len(places) for places in runs}) > 1:
        return sides
    lists = [list(side) for side in sides]  # to be changed
    for places in zip(*runs, strict=True):
        base, mine, new = (side[i] for side, i in zip(lists, places, strict=True))
        # Only one side changed it, or both to the same: the merge by statements takes it over.
        if mine.text == base.text or new.form in (base.form, mine.form):
            continue
        text = merge_imports(base, mine, new)
        if text is not None:
            for side, place in zip(lists, places, strict=True):
                side[place] = Statement(text, mine.form)
    return _Sides(*map(tuple, lists))


def _merged(sides: _Sides) -> Merged:
    """Return three sequences of statements, compared by their forms, merged into one text, with its number of conflicts."""
    parts: list[str] = []
    conflicts = 0
    for hunk in diff3(*map(_forms, sides)):
        part = _Sides(sides.base[hunk.base], sides.mine[hunk.mine], sides.new[hunk.new])
        if hunk.stable:
            parts += map(_spelling, *part)
            continue
        text, count = _decide(part)
        parts.append(text)
        conflicts += count
    return Merged("".join(parts), conflicts)


def _spelling(base: Statement, mine: Statement, new: Statement) -> str:
    """Return the text of a statement that all sides have, perhaps with different formatting.

    The file's, `mine`, if the user or a formatter changed it since it was generated; else the new one.
    """
    return new.text if mine.text == base.text else mine.text


def _decide(gap: _Sides) -> Merged:
    """Return the merged text of an unstable part, `gap`: the changed side, if only one is or both say the same; else merged by lines."""
    base, mine, new = map(_forms, gap)
    if mine == base:
        return Merged(_text(gap.new), 0)
    if new in (base, mine):
        return Merged(_text(gap.mine), 0)
    return _merged_lines(*(split(_text(side)) for side in gap))


def _forms(side: Side) -> list[str]:
    """Return the forms of the statements, by which sides are compared."""
    return [statement.form for statement in side]


def _text(side: Side) -> str:
    return "".join(statement.text for statement in side)


def _merged_lines(base: list[str], mine: list[str], new: list[str]) -> Merged:
    """Return the lines of a part changed on both sides, merged, with markers around each conflict, and the number of these."""
    parts: list[str] = []
    conflicts = 0
    for hunk in diff3(base, mine, new):
        old, here, then = base[hunk.base], mine[hunk.mine], new[hunk.new]
        if here == old:
            parts += then
        elif then in (old, here):
            parts += here
        else:
            parts.append(_marked(old, here, then))
            conflicts += 1
    return Merged("".join(parts), conflicts)


def _marked(base: Sequence[str], mine: Sequence[str], new: Sequence[str]) -> str:
    """Return one conflict: the file's, the last generated and the new lines between markers, as `git merge` writes them with diff3 style."""
    first, second, third = ("".join(side) for side in (mine, base, new))
    return (
        f"<<<<<<< {YOURS}\n{first}||||||| {BASE}\n{second}"
        f"=======\n{third}>>>>>>> {OURS}\n"
    )


def _one_conflict(base: list[str], mine: list[str], new: list[str]) -> Merged:
    """Return the three texts, as lines, as one conflict, apart from the first and the last lines they share.

    The last resort, if a merge without conflicts would be no valid Python: the user must see both sides.
    """
    sides = (base, mine, new)
    head = _common(*sides)
    # Counted behind `head`, so that no line is in both.
    tail = _common(*(side[head:][::-1] for side in sides))
    middle = (side[head : len(side) - tail] for side in sides)
    end = mine[len(mine) - tail :]
    return Merged("".join([*mine[:head], _marked(*middle), *end]), 1)


def _common(*sides: Sequence[str]) -> int:
    """Return how many first lines are equal on all sides."""
    count = 0
    # The sides may have different lengths: the shortest limits what they share.
    for lines in zip(*sides, strict=False):
        if len(set(lines)) > 1:
            break
        count += 1
    return count


# --- A merge of definitions by their names, for a file its generator now writes in another form.
#
# In: the three texts. Out: the new text, with everything written or changed by hand in the file; None if a name is defined twice,
# two statements share a line, both sides changed an import, or a statement without a name was changed.
# Invariant: a definition the generator has dropped goes, unless it was changed by hand, or is read by code written by hand.


class _Part(NamedTuple):
    """A statement other than an import, with the lines above it."""

    text: str
    form: str
    reads: frozenset[str]  # names, and fixtures requested by tests


class _File(NamedTuple):
    """A file as its statements, by the name each defines, and its imports."""

    # All of the file, in its order: (name, text), with the name "" for an import.
    pieces: list[tuple[str, str]]
    parts: dict[str, _Part]
    imports: dict[str, Imported]  # by the name they bind

    @property
    def nameless(self) -> set[str]:
        """Return the keys of the statements without a name (`if`, a call, a comment at the end), except the docstring."""
        return {key for key in self.parts if key.startswith(END)} - {DOCSTRING}


DOCSTRING = '="'  # the name of the docstring; no statement has such a one
END = "="  # the name of the text below the last statement


def merge_definitions(base: str, mine: str, new: str) -> Merged | None:
    """Return the generator's text with each definition the user wrote or changed; None if the texts cannot be merged by names.

    A definition the generator dropped stays only if the user changed it, or code of the user's reads it, directly or not. A
    statement without a name (`if`) cannot be told from another: None if the user changed one, or a result without conflicts is no Python.
    """
    old, here, then = (_file(text) for text in (base, mine, new))
    if old is None or here is None or then is None:
        return None
    pairs = ((old, here), (old, then), (here, then))
    if any(_clash(one.imports, other.imports) for one, other in pairs):
        return None
    if old.nameless - here.nameless:  # one was changed, nobody can say into which
        return None
    decided = _edited(old.parts, here.parts, then.parts)
    kept = {key for key in here.parts if key in decided and not decided[key].conflicts}
    kept |= _needed(here.parts, kept, then.parts.keys())
    # Imports of the file to add: the user's own, and those the kept definitions read.
    read = frozenset[str]().union(*(here.parts[key].reads for key in kept))
    wanted = [
        one
        for name, one in here.imports.items()
        if name not in then.imports and (name in read or name not in old.imports)
    ]
    text = _add_imports(new, mine, wanted)
    generated = None if text is None else _file(text)
    if generated is None:
        return None
    # What the new text lacks: written or changed by hand, or read by such definitions.
    own = {
        key: decided[key].text if key in decided else part.text
        for key, part in here.parts.items()
        if key not in then.parts and (key in kept or key in decided)
    }
    pieces = [
        (key, decided[key].text if key in decided else piece)
        for key, piece in generated.pieces
    ]
    conflicts = sum(part.conflicts for part in decided.values())
    text = "".join(_placed(pieces, own, list(here.parts)))
    return Merged(text, conflicts) if conflicts or cut(text) is not None else None


def _file(text: str) -> _File | None:
    """Return a text as named statements and imports; None if two statements share a line or a name: they could not be told apart.

    The name (key) of a statement that defines none is `=` and its form.
    """
    rows, done = split(text), 0
    runs = (statement.imports for statement in cut(text) or ())
    found = _File([], {}, {one.bound: one for run in runs for one in run})
    for node in ast.parse(text).body:
        # To `ast` a decorated definition begins at its `def`.
        above = [item.lineno for item in getattr(node, "decorator_list", ())]
        first, last = min([node.lineno, *above]) - 1, node.end_lineno or 0
        if first < done:
            return None
        piece, done = "".join(rows[done:last]), last
        if isinstance(node, ast.Import | ast.ImportFrom):
            found.pieces.append(("", piece))
            continue
        form = normal_form(piece)
        key = _defined(node) or f"{END}{form}"
        # The first statement, if it is a bare expression: a docstring, whatever its text.
        if not found.pieces and isinstance(node, ast.Expr):
            key = DOCSTRING
        if key in found.parts:
            return None
        found.parts[key] = _Part(piece, form, frozenset(_read(node)))
        found.pieces.append((key, piece))
    rest = "".join(rows[done:])
    # Comments below the last statement.
    if rest.strip():
        found.parts[END] = _Part(rest, rest.strip(), frozenset())
    found.pieces.append((END, rest))
    return found


def _clash(one: Mapping[str, Imported], other: Mapping[str, Imported]) -> bool:
    """Return whether two files import a name from different modules, or with different comments: then neither can be preferred."""
    return any(one[name] != other[name] for name in one.keys() & other)


def _defined(node: ast.stmt) -> str:
    """Return the name a statement defines: of a function, a class, or the single target of an assignment; "" for any other statement."""
    match node:
        case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
            return name
        case ast.Assign([ast.Name(name)]) | ast.AnnAssign(ast.Name(name)):
            return name
    return ""


def _read(node: ast.stmt) -> Iterator[str]:
    """Yield the names in a statement, parameters included: those of a pytest test are fixtures, defined elsewhere in the file."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.arg):
            yield part.arg


def _edited(
    base: Mapping[str, _Part], mine: Mapping[str, _Part], new: Mapping[str, _Part]
) -> dict[str, Merged]:
    """Return, by key, the text of each statement that the user wrote, changed or removed ("" for a removed one).

    `base` has the statements as generated last, `mine` the file's, `new` those generated now; if the generator changed one too, both
    are merged, perhaps with conflicts.
    """
    found: dict[str, Merged] = {}
    for key in dict.fromkeys([*mine, *base]):
        parts = [side.get(key) for side in (base, mine, new)]
        # None of a side that does not have it.
        old, here, then = (part and part.form for part in parts)
        # Not changed by the user, or to what the generator writes now too.
        if here in (old, then):
            continue
        texts = [part.text if part else "" for part in parts]
        if then == old:
            found[key] = Merged(texts[1], 0)
        else:
            sides = [cut(text) for text in texts]
            found[key] = _merged(_Sides(*(side or () for side in sides)))
    return found


def _needed(
    mine: Mapping[str, _Part], kept: Collection[str], there: Collection[str]
) -> set[str]:
    """Return the keys of the file's definitions that the `kept` ones read, directly or not, and that the new text (keys `there`) lacks."""
    reached: set[str] = set()
    waiting = list(kept)
    while waiting:
        read = mine[waiting.pop()].reads & (mine.keys() - there - reached)
        reached |= read
        waiting += read
    return reached


def _add_imports(new: str, mine: str, wanted: Sequence[Imported]) -> str | None:
    """Return the new text with the `wanted` imports of the file, `mine`, added; None if it has no imports, or they cannot be taken apart."""
    statements, models = list(cut(new) or ()), cut(mine) or ()
    runs = [i for i, item in enumerate(statements) if item.imports]
    for one in wanted:
        if not runs:
            return None
        having = (i for i in runs if one.module in _modules(statements[i]))
        # In the run that imports from its module already, else in the first one.
        place = next(having, runs[0])
        # `one` is an import of `mine`, so some statement has it.
        source = next(m for m in models if one.said in {o.said for o in m.imports})
        lines, model = _parse(statements[place].text), _parse(source.text)
        if not lines or not model:
            return None
        _add(lines, model, one, _is_single(lines))
        text = "".join(_text_of_bindings(line, "", WIDTH) for line in lines)
        statements[place] = statements[place]._replace(text=text)
    return "".join(statement.text for statement in statements)


def _modules(run: Statement) -> set[str | None]:
    """Return the modules that a run of imports imports from; `import name` has none."""
    return {one.module for one in run.imports if one.module is not None}


def _placed(
    pieces: Sequence[tuple[str, str]], own: Mapping[str, str], mine: list[str]
) -> Iterator[str]:
    """Yield the texts of the merged file: `pieces`, from the new text, with the file's `own` definitions in between.

    Each own one stays before what followed it in the file: `mine` has the file's keys in order, and the first successor that the new
    text has too decides; without one it comes last.
    """
    keys = {key for key, _ in pieces}
    before: dict[str, list[str]] = {}
    for key, text in own.items():
        following = (other for other in mine[mine.index(key) + 1 :] if other in keys)
        before.setdefault(next(following, END), []).append(text)
    for key, text in pieces:
        yield from before.get(key, ())
        yield text
