"""Fixes: apply edits to a text through LibCST, keeping formatting and comments.

`scaffold lint --fix` calls it. LibCST (a parser that keeps every character) has the tree; the rules work on `ast`, so edits and
tree meet by line and column.

Words: a *group* is the edits of one finding; a *place* is an edit with its position in characters; a place is *open* if the tree
has a statement or expression exactly there, and no comment would be lost: these are `known`.

In: a text, and for each finding the edits to fix it. Out: the text with them.
Invariant: the edits of a finding are applied together or not at all, and two findings never edit the same place; statements
without an edit keep every character. LibCST is an extra: an importer of this module reports it if it is missing.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from scaffold.formula.text import is_python
from scaffold.lint.model import Edit, Place, Span

# Open places: the kind, the line and column, the end line and end column.
Known = set[tuple[str, int, int, int, int]]
BY_LINE = ("decorate", "undecorate", "signature", "drop")  # at a definition


def fix_text(text: str, groups: Iterable[Sequence[Edit]]) -> str:
    """Return the text with every applicable group of edits; unchanged if none applies, or if the result is not Python.

    A group holds the edits of one finding, and is applied as a whole or not at all.
    """
    lines = text.split("\n")
    placed = [
        tuple(_place(edit, lines) for edit in group)
        for group in groups
        if not any(_swallows(edit, lines) for edit in group)
    ]
    wrapped, known = places_in(text)
    chosen = _compatible(placed, known)
    if not chosen:
        return text
    fixed = wrapped.visit(Rewriter(chosen)).code
    return fixed if is_python(fixed) else text


def _swallows(edit: Edit, lines: list[str]) -> bool:
    """Return whether a comment stands inside the text an edit replaces, and would be lost."""
    first, _, last, _ = edit.span
    # Not on the last row: a comment there stands behind the replaced text, and stays.
    return edit.kind == "replace" and any(
        "#" in row for row in lines[first - 1 : last - 1]
    )


def _place(edit: Edit, lines: list[str]) -> Place:
    """Return an edit's place with columns in characters, as LibCST counts; those of ast are bytes of UTF-8."""
    line, column, end_line, end_column = edit.span
    return Place(
        edit.kind,
        line,
        _characters(lines, line, column),
        end_line,
        _characters(lines, end_line, end_column),
        edit.text,
    )


def _characters(lines: list[str], line: int, column: int) -> int:
    """Return a column in bytes of UTF-8 as one in characters."""
    return len(lines[line - 1].encode()[:column].decode(errors="ignore"))


def _compatible(groups: Iterable[tuple[Place, ...]], known: Known) -> frozenset[Place]:
    """Return the places of all groups that can be applied together.

    All places of such a group are open (`known`), and none overlaps another, or one of an earlier group. A place chosen already,
    as an import needed by two findings, is shared.
    """
    chosen: dict[Place, None] = {}
    taken: list[Place] = []
    for group in groups:
        rest = [place for place in group if place not in chosen]
        if not all(_is_known(place, known) for place in rest):
            continue
        # Insertions take no room.
        spans = [place for place in rest if place.kind in ("replace", "remove")]
        if any(_overlap(one, other) for one in spans for other in taken):
            continue
        if any(_overlap(a, b) for n, a in enumerate(spans) for b in spans[:n]):
            continue
        chosen.update(dict.fromkeys(rest))
        taken += spans
    return frozenset(chosen)


def _is_known(place: Place, known: Known) -> bool:
    """Return whether a place is in `known`, the places of the file open to edits; an import goes anywhere.

    A place to write before or after a statement is found by its start; a definition, whose decorators or signature change, by
    its line; anything else by its whole span.
    """
    if place.kind == "import":
        return True
    if place.kind in BY_LINE:
        return (place.kind, place.line, 0, 0, 0) in known
    if place.kind in ("before", "after"):
        return ("statement", place.line, place.column, 0, 0) in known
    start, end = (place.line, place.column), (place.end_line, place.end_column)
    return (place.kind, *start, *end) in known


def _overlap(one: Place, other: Place) -> bool:
    """Return whether two places have a character in common, so their edits cannot both be applied."""
    first = (one.line, one.column), (one.end_line, one.end_column)
    second = (other.line, other.column), (other.end_line, other.end_column)
    return first[0] < second[1] and second[0] < first[1]


# --- The side of LibCST.
#
# In: a text, places in it. Out: its tree with positions and the places open to edits; the edited tree.
# Invariant: a statement that shares its line with another, or would lose a comment, is not open to edits.


def places_in(text: str) -> tuple[MetadataWrapper, Known]:
    """Return LibCST's tree of a text with its positions, and the places open to edits."""
    # LibCST copies a tree that may hold one node twice; a parsed tree does not.
    wrapped = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    finder = _Finder()
    wrapped.visit(finder)
    return wrapped, finder.known


class Positioned(cst.MetadataDependent):
    """A mixin to find the place of a node in the original tree."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def span(self, node: cst.CSTNode) -> Span:
        """Return the span of a node as ast has it, without parentheses around it; those of a tuple are part of it."""
        first = last = node
        if isinstance(node, cst.Tuple) and node.lpar:
            # The innermost pair: further ones, `((a, b))`, stand around it.
            first, last = node.lpar[-1], node.rpar[0]
        start = self.get_metadata(PositionProvider, first).start
        end = self.get_metadata(PositionProvider, last).end
        return start.line, start.column, end.line, end.column


class _Finder(Positioned, cst.CSTVisitor):
    """A collector of the places open to edits (`known`)."""

    def __init__(self) -> None:
        super().__init__()
        self.known: Known = set()

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Note the places an edit may name: expressions, statements alone on their line, functions, decorators.

        A statement or decorator with a comment beside or above it cannot be removed. A place is a kind and a span, with 0 for the parts of the
        span by which edits of this kind are not looked up. True: LibCST visits the parts too.
        """
        if isinstance(node, cst.BaseExpression):
            self._add("replace", node)
        elif isinstance(node, cst.SimpleStatementLine) and len(node.body) == 1:
            small = node.body[0]
            self.known.add(("statement", *self.span(small)[:2], 0, 0))
            self._add("replace", small)
            if not _is_commented(node.trailing_whitespace, node.leading_lines):
                self._add("remove", small)
        elif isinstance(node, cst.BaseCompoundStatement):
            self.known.add(("statement", *self.span(node)[:2], 0, 0))
            if isinstance(node, cst.FunctionDef):
                self._add_function(node)
        elif isinstance(node, cst.Decorator) and not _is_commented(
            node.trailing_whitespace, node.leading_lines
        ):
            self.known.add(("undecorate", self.span(node.decorator)[0], 0, 0, 0))
        return True

    def _add_function(self, node: cst.FunctionDef) -> None:
        """Note the edits open to a function: a decorator, a new signature if that is plain, removal if no comment ends its body."""
        line = self.span(node.name)[0]
        # 0, 0, 0: these edits are looked up by their line alone.
        self.known.add(("decorate", line, 0, 0, 0))
        if _is_plain(node.params):
            self.known.add(("signature", line, 0, 0, 0))
        footer = getattr(node.body, "footer", ())
        if not any(item.comment for item in footer):
            self.known.add(("drop", line, 0, 0, 0))

    def _add(self, kind: str, node: cst.CSTNode) -> None:
        """Note that a node is open to an edit of this kind."""
        self.known.add((kind, *self.span(node)))


def _is_commented(
    behind: cst.TrailingWhitespace, above: Sequence[cst.EmptyLine]
) -> bool:
    """Return whether a comment stands behind a statement on its line, or on lines right above it."""
    return behind.comment is not None or any(line.comment for line in above)


def _is_plain(parameters: cst.Parameters) -> bool:
    """Return whether the parameters of a function are simple enough to be rewritten: at least one, all positional, no comment."""
    stars = (
        *parameters.posonly_params,
        *parameters.kwonly_params,
        parameters.star_kwarg,
    )
    starred = isinstance(parameters.star_arg, cst.Param | cst.ParamStar)
    if any(item is not None for item in stars) or starred or not parameters.params:
        return False
    return "#" not in cst.Module([]).code_for_node(parameters)


def _parse(text: str, original: cst.BaseExpression) -> cst.BaseExpression:
    """Return LibCST's tree of an expression's text, with the parentheses of the expression it replaces (`original`)."""
    try:
        parsed = cst.parse_expression(text)
    except cst.ParserSyntaxError:
        parsed = cst.parse_expression(f"({text})")  # its line breaks need parentheses
    if original.lpar and not parsed.lpar:
        return parsed.with_changes(lpar=original.lpar, rpar=original.rpar)
    return parsed


class Rewriter(Positioned, cst.CSTTransformer):
    """A transformer of LibCST that applies the edits at the given places; `leave_...` methods get each node after its parts."""

    def __init__(self, places: frozenset[Place]) -> None:
        """Sort the places by kind of edit, each by the key it is looked up by: span, [1:5], for an expression, start or line for others."""
        super().__init__()
        self.replaced = {
            place[1:5]: place for place in places if place.kind == "replace"
        }
        self.removed = {place[1:5] for place in places if place.kind == "remove"}
        self.before = _by_start(places, "before")
        self.after = _by_start(places, "after")
        self.decorated = _by_line(places, "decorate")
        self.undecorated = _by_line(places, "undecorate")
        self.signatures = _by_line(places, "signature")
        self.dropped = _by_line(places, "drop")
        self.imports = sorted({p.text for p in places if p.kind == "import"})

    def on_leave(self, original_node: cst.CSTNode, updated_node: Any) -> Any:
        """Replace an expression, or surround a compound statement with the statements inserted before and after it."""
        updated = super().on_leave(original_node, updated_node)
        if isinstance(original_node, cst.BaseExpression):
            place = self.replaced.get(self.span(original_node))
            # A statement replaces all of its line: leave_SimpleStatementLine does it.
            if place is not None and not _is_statement(place.text):
                return _parse(place.text, original_node)
        elif isinstance(original_node, cst.BaseCompoundStatement):
            return self._surrounded(original_node, updated)
        return updated

    def leave_SimpleStatementLine(
        self,
        original_node: cst.SimpleStatementLine,
        updated_node: cst.SimpleStatementLine,
    ) -> Any:
        """Remove or replace the statement of a line, or insert statements before and after it; a line of several stays as it is."""
        if len(original_node.body) != 1:
            return updated_node
        small = original_node.body[0]
        span = self.span(small)
        if span in self.removed:
            return cst.RemoveFromParent()
        place = self.replaced.get(span)
        if place is not None and _takes_all(small, place.text):
            parsed = cst.parse_statement(place.text)
            assert isinstance(parsed, cst.SimpleStatementLine)
            updated_node = updated_node.with_changes(body=parsed.body)
        return self._surrounded(small, updated_node)

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> Any:
        """Remove a function, replace its parameters, or decorate it, if an edit names the line of its name."""
        line = self.span(original_node.name)[0]
        if line in self.dropped:
            return cst.RemoveFromParent()
        if line in self.signatures:
            parameters = _merged(original_node.params, self.signatures[line])
            updated_node = updated_node.with_changes(params=parameters)
        if line in self.decorated:
            decorator = cst.Decorator(cst.parse_expression(self.decorated[line]))
            # The last one is next to the function, below @staticmethod.
            decorators = (*updated_node.decorators, decorator)
            return updated_node.with_changes(decorators=decorators)
        return updated_node

    def leave_Decorator(
        self, original_node: cst.Decorator, updated_node: cst.Decorator
    ) -> Any:
        """Remove a decorator, if an edit names its line."""
        line = self.span(original_node.decorator)[0]
        return cst.RemoveFromParent() if line in self.undecorated else updated_node

    def leave_Module(
        self, original_node: cst.Module, updated_node: cst.Module
    ) -> cst.Module:
        """Add the imports that edits need, after the first imports of the module."""
        if not self.imports:
            return updated_node
        body = list(updated_node.body)
        index = _behind_imports(body)
        imports = [cst.parse_statement(text) for text in self.imports]
        return updated_node.with_changes(body=[*body[:index], *imports, *body[index:]])

    def _surrounded(self, original: cst.CSTNode, updated: Any) -> Any:
        """Return the updated statement between the ones that edits insert before and after the original."""
        start = self.span(original)[:2]
        before, after = self.before.get(start, ()), self.after.get(start, ())
        if not before and not after:
            return updated
        return cst.FlattenSentinel(
            [
                *map(_statement, before),
                updated,
                *map(_statement, after),
            ]
        )


def _statement(text: str) -> Any:
    """Return LibCST's tree of a statement to insert, with the empty lines at the beginning of its text."""
    parsed = cst.parse_statement(text)
    lines = [line.with_changes(indent=False) for line in parsed.leading_lines]
    return parsed.with_changes(leading_lines=lines)


def _by_line(places: frozenset[Place], kind: str) -> dict[int, str]:
    """Return the texts of the edits of one kind by line."""
    return {place.line: place.text for place in places if place.kind == kind}


def _merged(parameters: cst.Parameters, text: str) -> cst.Parameters:
    """Return the parameters listed in a text, `x, y=None`; names among the old `parameters` keep their annotations.

    The commas between them, and what follows the last, are as before.
    """
    parsed = cst.parse_statement(f"def f({text}): pass")
    assert isinstance(parsed, cst.FunctionDef)
    old = {item.name.value: item for item in parameters.params}
    first, last = parameters.params[0], parameters.params[-1]
    # The comma of a sole parameter is the one behind the last.
    between = first.comma if len(old) > 1 else cst.MaybeSentinel.DEFAULT
    listed = []
    for item in parsed.params.params:
        kept = old.get(item.name.value, item)
        # The new text decides on defaults: the fix of AF27 takes them away.
        if item.default is None:
            kept = kept.with_changes(default=None, equal=cst.MaybeSentinel.DEFAULT)
        no_space = cst.SimpleWhitespace("")
        listed.append(kept.with_changes(comma=between, whitespace_after_param=no_space))
    listed[-1] = listed[-1].with_changes(
        comma=last.comma, whitespace_after_param=last.whitespace_after_param
    )
    return parameters.with_changes(params=listed)


def _by_start(
    places: frozenset[Place], kind: str
) -> dict[tuple[int, int], tuple[str, ...]]:
    """Return the texts to insert at each start of a statement, by (line, column)."""
    found: dict[tuple[int, int], tuple[str, ...]] = {}
    for place in sorted(places):
        if place.kind == kind:
            start = (place.line, place.column)
            found[start] = (*found.get(start, ()), place.text)
    return found


def _takes_all(small: cst.BaseSmallStatement, text: str) -> bool:
    """Return whether a replacement (`text`) is for the whole statement rather than for its expression.

    A statement that is an expression, `f(x)`, has the span of that expression: then the text tells, by being a statement or not.
    """
    return not isinstance(small, cst.Expr) or _is_statement(text)


def _is_statement(text: str) -> bool:
    """Return whether a replacement is a statement other than an expression."""
    try:
        cst.parse_expression(f"({text})")
    except cst.ParserSyntaxError:
        return True
    return False


def _behind_imports(body: Sequence[Any]) -> int:
    """Return the index, among the statements of a module, after its first imports, or else after its docstring."""
    at = 0
    for number, statement in enumerate(body):
        if not isinstance(statement, cst.SimpleStatementLine):
            break
        small = statement.body[0]
        if isinstance(small, cst.Import | cst.ImportFrom):
            at = number + 1
        elif number == 0 and isinstance(small, cst.Expr):
            at = 1
    return at
