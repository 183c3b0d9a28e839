"""Checks in a formula: `assert` and `raise` as statements without a target.

A user's `assert x.dim() == 2` and `raise ValueError(f"{x.shape} is odd")` are kept in the generated forward.

Words: a *check* is the node of such a statement, a *words* node the f-string of its message; an *optional* input may be None,
and is *present* where a test tells it is not. `statements` calls this module for each `assert` and `raise`, `emit` prints
the messages, and the tests' writer asks for inputs that a forward refuses.

In: an `ast` statement. Out: an `Assign` without a target, whose value is a `check`. Invariant: a check may raise an
error about the inputs and has no other effect; no value of the formula depends on it.
"""

import ast
import re
from collections.abc import Callable, Mapping

from scaffold.formula.constant_folding import PRESENT, UNKNOWN, evaluated, truth
from scaffold.formula.expression import ExpressionParser, Source
from scaffold.formula.graph import Formula, If, Lines, Node
from scaffold.formula.optionality import Guarded
from scaffold.formula.uses import is_check, written

ERRORS = frozenset(
    {"AssertionError", "IndexError", "NotImplementedError", "RuntimeError"}
    | {"TypeError", "ValueError"}
)
# Allowed only in an error message: these calls, and these attributes of a type.
TOLD = frozenset({"repr", "str", "type"})
TOLD_ATTRIBUTES = frozenset({"__class__", "__name__", "__qualname__"})
HOLE = re.compile(r"_hole(\d+)_")


class CheckedExpressions(ExpressionParser):
    """A parser of expressions and of error messages.

    A message may hold more than a formula: f-strings, `type(x).__name__`, and optional inputs read without a test for None.
    `_in_message` is True while one is parsed; the methods of the parser then allow these too.
    """

    def __init__(
        self, source: Source, optional: frozenset[str], tensors: frozenset[str]
    ) -> None:
        """Prepare to parse; `optional` names may be None, `tensors` cannot be called."""
        super().__init__(source, optional, tensors)
        self._in_message = False

    def check(self, item: ast.Assert | ast.Raise, present: Guarded) -> Node:
        """Return the node of an `assert` or a `raise`, `absent` after reporting an error of a class not in ERRORS.

        `present` are the optional inputs known not to be None at the statement.
        """
        if isinstance(item, ast.Assert):
            words = (self.message(item.msg, present),) if item.msg else ()
            return self._check("assert", (self.parse(item.test, present), *words))
        match item:
            case ast.Raise(ast.Name(name), None) if name in ERRORS:
                return self._check("raise", (self.graph.name(name),))
            case ast.Raise(ast.Call(ast.Name(name), args, []), None) if name in ERRORS:
                said = (self.message(part, present) for part in args)
                error = self.graph.node("call", "", (self.graph.name(name), *said))
                return self._check("raise", (error,))
        listed = ", ".join(sorted(ERRORS))
        self.fail(item, "this cannot be raised", f"raise one of: {listed}")
        return self.graph.node("absent")

    def message(self, item: ast.expr, present: Guarded) -> Node:
        """Return the node of an error message; optional inputs it names may be None."""
        self._in_message = True
        node = self.parse(item, present | self.optional)
        self._in_message = False
        return node

    def _check(self, label: str, args: tuple[Node, ...]) -> Node:
        return self.graph.node("check", label, args)

    def _name(self, item: ast.Name, present: Guarded) -> Node:
        """Return the node of a name; in an error message it may be the builtin `repr`, `str` or `type`."""
        # A local called `type` is no builtin.
        if self._in_message and item.id in TOLD and item.id not in self.source.locals:
            return self.graph.name(item.id)
        return super()._name(item, present)

    def _attribute(self, item: ast.Attribute, present: Guarded) -> Node:
        """Return the node of an attribute; in an error message it may be `type(x).__name__`."""
        if self._in_message and item.attr in TOLD_ATTRIBUTES:
            value = self.parse(item.value, present)
            return self.graph.node("attribute", item.attr, (value,))
        return super()._attribute(item, present)

    def other(self, item: ast.expr, present: Guarded) -> Node:
        """Return the node of syntax rare in formulas; in an error message it may be an f-string."""
        if self._in_message and isinstance(item, ast.JoinedStr):
            return self._f_string(item, present)
        return super().other(item, present)

    def _f_string(self, item: ast.JoinedStr, present: Guarded) -> Node:
        """Return an f-string as a `words` node: its text with holes, and the nodes of the values for the holes."""
        values = [part for part in item.values if isinstance(part, ast.FormattedValue)]
        parts = tuple(self.parse(part.value, present) for part in values)
        return self.graph.node("words", _with_holes(item), parts)


def _with_holes(item: ast.JoinedStr) -> str:
    """Return an f-string's text with holes for its values: `f"{_hole0_} is odd"` for `f"{x.shape} is odd"`.

    The values become nodes of their own, so that names in them can be renamed like all others; `with_words` fills them in.
    """
    parts: list[ast.expr] = []
    for part in item.values:
        if isinstance(part, ast.FormattedValue):
            # The number of holes so far: the hole of a value has the position of its node in the `words` node.
            count = sum(isinstance(other, ast.FormattedValue) for other in parts)
            hole = ast.Name(f"_hole{count}_", ast.Load())
            part = ast.FormattedValue(hole, part.conversion, part.format_spec)
        parts.append(part)
    return ast.unparse(ast.JoinedStr(parts))


def with_words(node: Node, emit: Callable[[Node], str]) -> str:
    """Return the f-string of a `words` node, the message of an error: `f"{x.shape} is odd"`.

    Its label is the string with `_hole0_` for its first value; with a quote or backslash in a value it becomes
    `"{0} is odd".format(...)`, since an f-string cannot hold them in older Pythons.
    """
    texts = [emit(part) for part in node.args]  # the source of each value
    quoted = any("'" in text or '"' in text or "\\" in text for text in texts)
    if not quoted:
        return HOLE.sub(lambda match: texts[int(match[1])], node.label)
    plain = HOLE.sub(lambda match: match[1], node.label).removeprefix("f")
    return f"{plain}.format({', '.join(texts)})"


def refuses(formula: Formula, given: Mapping[str, bool]) -> bool:
    """Return whether a forward always raises for these given and missing inputs, as by `if bias is None: raise`.

    The generated test then leaves this combination out. `given` maps an optional input to True if it is given, to False if
    it is None.
    """
    kept = formula.kept
    if kept is not None and len(kept.returned) > 1:
        return False  # an earlier return is possible
    known = {name: PRESENT if is_given else None for name, is_given in given.items()}
    return _end_in_a_raise(kept.statements if kept else formula.statements, known)


def _end_in_a_raise(statements: Lines, known: dict[str, object]) -> bool:
    """Return whether the statements always raise, given the `known` values of names.

    Each assigned name becomes unknown in `known`, which is changed. Of an `if` with an unknown test both branches must raise.
    """

    def read(node: Node) -> object:
        return known.get(node.label, UNKNOWN) if node.kind == "name" else UNKNOWN

    def holds(test: Node) -> bool | None:
        return truth(evaluated(test, read))

    for item in statements:
        if isinstance(item, If):
            outcome = holds(item.test)
            taken = [item.body if outcome else item.orelse]
            if outcome is None:  # either branch may run
                taken = [item.body, item.orelse]
            # A copy: an assignment in one branch leaves the other one's names as they are.
            if all(_end_in_a_raise(body, {**known}) for body in taken):
                return True
        elif is_check(item):
            raised = item.value.label == "raise"  # else an `assert`
            if raised or holds(item.value.args[0]) is False:
                return True
        known.update(dict.fromkeys(written(item), UNKNOWN))
    return False
