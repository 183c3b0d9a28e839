"""The places of a text that an edit may name, as LibCST sees them.

In: a text. Out: its tree with positions, and the places.
Invariant: a statement that shares its line with another, or would lose a comment, is no place for an edit.
"""

from collections.abc import Callable, Sequence

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

Known = set[tuple[str, int, int, int, int]]


def places_in(text: str) -> tuple[MetadataWrapper, Known]:
    """The tree of a text with its positions, and every place that an edit may name."""
    wrapped = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    finder = _Finder()
    wrapped.visit(finder)
    return wrapped, finder.known


def _span(found: CodeRange) -> tuple[int, int, int, int]:
    return (found.start.line, found.start.column, found.end.line, found.end.column)


def place_of(
    node: cst.CSTNode, position: Callable[[cst.CSTNode], CodeRange]
) -> tuple[int, int, int, int]:
    """The span as ast has it: without parentheses, but for those of a tuple."""
    if isinstance(node, cst.Tuple) and node.lpar:
        first, last = position(node.lpar[-1]), position(node.rpar[0])
        return (*_span(first)[:2], *_span(last)[2:])
    return _span(position(node))


class Positioned(cst.MetadataDependent):
    """Asks where a node of the original tree stands."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def position(self, node: cst.CSTNode) -> CodeRange:
        """The range of a node."""
        found = self.get_metadata(PositionProvider, node)
        assert isinstance(found, CodeRange)
        return found


class _Finder(Positioned, cst.CSTVisitor):
    """Collects the places."""

    def __init__(self) -> None:
        super().__init__()
        self.known: Known = set()

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.BaseExpression):
            self._add("replace", node)
        elif isinstance(node, cst.SimpleStatementLine) and len(node.body) == 1:
            small = node.body[0]
            found = self.position(small)
            self.known.add(("statement", found.start.line, found.start.column, 0, 0))
            self._add("replace", small)
            if not _is_commented(node.trailing_whitespace, node.leading_lines):
                self._add("remove", small)
        elif isinstance(node, cst.BaseCompoundStatement):
            found = self.position(node)
            self.known.add(("statement", found.start.line, found.start.column, 0, 0))
            if isinstance(node, cst.FunctionDef):
                self._add_function(node)
        elif isinstance(node, cst.Decorator) and not _is_commented(
            node.trailing_whitespace, node.leading_lines
        ):
            line = self.position(node.decorator).start.line
            self.known.add(("undecorate", line, 0, 0, 0))
        return True

    def _add_function(self, node: cst.FunctionDef) -> None:
        line = self.position(node.name).start.line
        self.known.add(("decorate", line, 0, 0, 0))
        if _is_plain(node.params):
            self.known.add(("signature", line, 0, 0, 0))
        footer = getattr(node.body, "footer", ())
        if not any(item.comment for item in footer):
            self.known.add(("drop", line, 0, 0, 0))

    def _add(self, kind: str, node: cst.CSTNode) -> None:
        self.known.add((kind, *place_of(node, self.position)))


def _is_commented(
    behind: cst.TrailingWhitespace, above: Sequence[cst.EmptyLine]
) -> bool:
    return behind.comment is not None or any(line.comment for line in above)


def _is_plain(parameters: cst.Parameters) -> bool:
    """Whether parameters can be written anew: names and defaults, without a star and without a comment."""
    stars = (
        *parameters.posonly_params,
        *parameters.kwonly_params,
        parameters.star_kwarg,
    )
    starred = isinstance(parameters.star_arg, cst.Param | cst.ParamStar)
    if any(item is not None for item in stars) or starred or not parameters.params:
        return False
    return "#" not in cst.Module([]).code_for_node(parameters)
