"""The LibCST side of fixing: which places a text has, and a transformer that edits them.

In: a text; places. Out: the places that can be edited; the edited tree.
Invariant: a statement that shares its line with another, or would lose a comment, is no place for an edit.
"""

from collections.abc import Callable, Sequence
from typing import Any

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from scaffold.lint.fixing import Place

Known = set[tuple[str, int, int, int, int]]
Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
Flattened = cst.FlattenSentinel[Statement]


def places_in(text: str) -> tuple[MetadataWrapper, Known]:
    """The tree of a text with its positions, and every place that an edit may name."""
    wrapped = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    finder = _Finder()
    wrapped.visit(finder)
    return wrapped, finder.known


def _span(found: CodeRange) -> tuple[int, int, int, int]:
    return (found.start.line, found.start.column, found.end.line, found.end.column)


def _place_of(
    node: cst.CSTNode, position: Callable[[cst.CSTNode], CodeRange]
) -> tuple[int, int, int, int]:
    """The span as ast has it: without parentheses, but for those of a tuple."""
    if isinstance(node, cst.Tuple) and node.lpar:
        first, last = position(node.lpar[-1]), position(node.rpar[0])
        return (*_span(first)[:2], *_span(last)[2:])
    return _span(position(node))


def _parse(text: str, original: cst.BaseExpression) -> cst.BaseExpression:
    """An expression in the place of another, in its parentheses."""
    try:
        parsed = cst.parse_expression(text)
    except cst.ParserSyntaxError:
        parsed = cst.parse_expression(f"({text})")  # its lines were held by some
    if original.lpar and not parsed.lpar:
        return parsed.with_changes(lpar=original.lpar, rpar=original.rpar)
    return parsed


class _Finder(cst.CSTVisitor):
    """Collects the places."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.known: Known = set()

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.BaseExpression):
            self._add("replace", node)
        elif isinstance(node, cst.SimpleStatementLine) and len(node.body) == 1:
            small = node.body[0]
            found = self._position(small)
            self.known.add(("statement", found.start.line, found.start.column, 0, 0))
            self._add("replace", small)
            commented = node.trailing_whitespace.comment is not None or any(
                line.comment for line in node.leading_lines
            )
            if not commented:
                self._add("remove", small)
        elif isinstance(node, cst.BaseCompoundStatement):
            found = self._position(node)
            self.known.add(("statement", found.start.line, found.start.column, 0, 0))
            if isinstance(node, cst.FunctionDef):
                line = self._position(node.name).start.line
                self.known.add(("decorate", line, 0, 0, 0))
        return True

    def _add(self, kind: str, node: cst.CSTNode) -> None:
        self.known.add((kind, *_place_of(node, self._position)))

    def _position(self, node: cst.CSTNode) -> CodeRange:
        found = self.get_metadata(PositionProvider, node)
        assert isinstance(found, CodeRange)
        return found


class Rewriter(cst.CSTTransformer):
    """Edits the places it was given."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, places: frozenset[Place]) -> None:
        super().__init__()
        self.replaced = {
            place[1:5]: place for place in places if place.kind == "replace"
        }
        self.removed = {place[1:5] for place in places if place.kind == "remove"}
        self.before = _by_start(places, "before")
        self.after = _by_start(places, "after")
        self.decorated = {
            place.line: place.text for place in places if place.kind == "decorate"
        }
        self.imports = sorted({p.text for p in places if p.kind == "import"})

    def _position(self, node: cst.CSTNode) -> CodeRange:
        found = self.get_metadata(PositionProvider, node)
        assert isinstance(found, CodeRange)
        return found

    def _at(self, node: cst.CSTNode) -> tuple[int, int, int, int]:
        return _place_of(node, self._position)

    def on_leave(self, original_node: cst.CSTNode, updated_node: Any) -> Any:
        updated = super().on_leave(original_node, updated_node)
        if isinstance(original_node, cst.BaseExpression):
            place = self.replaced.get(self._at(original_node))
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
        if len(original_node.body) != 1:
            return updated_node
        small = original_node.body[0]
        span = self._at(small)
        if span in self.removed:
            return cst.RemoveFromParent()
        place = self.replaced.get(span)
        if place is not None and not isinstance(small, cst.Expr):
            parsed = cst.parse_statement(place.text)
            assert isinstance(parsed, cst.SimpleStatementLine)
            updated_node = updated_node.with_changes(body=parsed.body)
        return self._surrounded(small, updated_node)

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> Any:
        name = self.decorated.get(self._at(original_node.name)[0])
        if name is not None:
            decorator = cst.Decorator(cst.parse_expression(name))
            decorators = (*updated_node.decorators, decorator)
            return updated_node.with_changes(decorators=decorators)
        return updated_node

    def leave_Module(
        self, original_node: cst.Module, updated_node: cst.Module
    ) -> cst.Module:
        if not self.imports:
            return updated_node
        body = list(updated_node.body)
        at = _behind_imports(body)
        added = [cst.parse_statement(text) for text in self.imports]
        return updated_node.with_changes(body=[*body[:at], *added, *body[at:]])

    def _surrounded(self, original: cst.CSTNode, updated: Any) -> Any:
        """A statement between those that are to stand before and after it."""
        start = self._at(original)[:2]
        before, after = self.before.get(start, ()), self.after.get(start, ())
        if not before and not after:
            return updated
        return cst.FlattenSentinel(
            [
                *map(cst.parse_statement, before),
                updated,
                *map(cst.parse_statement, after),
            ]
        )


def _by_start(
    places: frozenset[Place], kind: str
) -> dict[tuple[int, int], tuple[str, ...]]:
    found: dict[tuple[int, int], tuple[str, ...]] = {}
    for place in sorted(places):
        if place.kind == kind:
            start = (place.line, place.column)
            found[start] = (*found.get(start, ()), place.text)
    return found


def _is_statement(text: str) -> bool:
    """Whether a replacement is a statement that is no expression."""
    try:
        cst.parse_expression(f"({text})")
    except cst.ParserSyntaxError:
        return True
    return False


def _behind_imports(body: Sequence[Any]) -> int:
    """The position after the first imports of a module, or after its docstring."""
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
