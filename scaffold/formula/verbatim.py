"""A forward with loops, checked and kept as text for autograd to differentiate.

`parse` uses it if a loop is left over after unrolling: the op then runs the user's text, and autograd differentiates it.

Words: a forward is *kept* if its text stays as it is; the *sketch* is statements of the graph with the same effect on names;
a name is *drawn* if a loop or a comprehension gives it one element of an iterable after another; a list *grows* by `append`.

In: `Text` and the `Scope` of its names. Out: a `Formula` with the text unchanged, every expression in it, and a sketch
of its effect on names. Invariant: an operation on anything but tensors and the forward's own lists is an error at its
place.

The sketch only answers questions about memory and kinds of values: a loop is a branch with its body twice, an append
assigns the list anew, a return assigns nothing.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from scaffold.errors import raise_all
from scaffold.formula.assertions import CheckedExpressions
from scaffold.formula.desugar import with_one_return
from scaffold.formula.emit import as_written
from scaffold.formula.expression import Source
from scaffold.formula.graph import (
    Assign,
    Formula,
    Graph,
    If,
    Kept,
    Lines,
    Node,
    Statement,
    expressions,
)
from scaffold.formula.names import stores
from scaffold.formula.optionality import Guarded, guards
from scaffold.formula.program import Program
from scaffold.formula.statements import StatementParser
from scaffold.formula.text import Scope, Text

ITERATED = frozenset({"enumerate", "reversed", "zip"})
SAME_ITEMS = frozenset({"list", "reversed", "tuple"})
# Methods that change a list; for the sketch each adds its arguments to it.
GROWS = frozenset({"append", "clear", "extend", "insert", "pop", "reverse"})
TYPES = frozenset({"Tensor", "torch", "list", "tuple", "bool", "float", "int", "str"})
# Contexts for the precision of a block or for autograd. The text is run unchanged in
# the backward too, so they stay valid.
MODES = ("torch.no_grad", "torch.enable_grad", "torch.autocast", "torch.amp.autocast")
LEAVES = (ast.Return, ast.Raise, ast.Break, ast.Continue)


class VerbatimSource(Source, Protocol):
    """The text that contains an expression of a kept forward."""

    drawn: list[Assign]  # assignments to the names of comprehensions

    def target(self, item: ast.expr) -> Node:
        """Return the node of an assignment target."""


class VerbatimExpressions(CheckedExpressions):
    """A parser of the expressions of one kept forward into one graph; it allows comprehensions and loop functions too."""

    source: VerbatimSource

    def __init__(
        self, source: VerbatimSource, optional: frozenset[str], tensors: frozenset[str]
    ) -> None:
        """Prepare to parse; `optional` names may be None, `tensors` cannot be called."""
        super().__init__(source, optional, tensors)
        self.source = source

    def absent_name(self, item: ast.expr, present: Guarded) -> str | None:
        """Return None always, so `x + bias` stays: the text is kept, and no operand of it can be left out."""
        return None

    def _name(self, item: ast.Name, present: Guarded) -> Node:
        """Return the node of a name; `zip`, `enumerate` and `reversed` are allowed here, for loops."""
        if item.id in ITERATED and item.id not in self.source.locals:
            return self.graph.name(item.id)
        return super()._name(item, present)

    def other(self, item: ast.expr, present: Guarded) -> Node:
        """Return the node of a comprehension, allowed in a kept text; leave other syntax to the parsers of formulas."""
        if isinstance(item, ast.ListComp | ast.GeneratorExp):
            return self._comprehension(item, present)
        return super().other(item, present)

    def _comprehension(
        self, item: ast.ListComp | ast.GeneratorExp, present: Guarded
    ) -> Node:
        """Return a list node with the element, the iterables and the tests of a comprehension: all it reads.

        Its variables are locals in it alone; `drawn` of the source gets an assignment to each.
        """
        before = set(self.source.locals)
        parts = []
        for generator in item.generators:
            if generator.is_async:
                self.fail(generator.iter, "async is not allowed in a formula")
            # `[b * 2 for b in (bias, w) if b is not None]`: the test may sort out each None.
            maybe_tested = self.optional if generator.ifs else frozenset[str]()
            items = self.parse(generator.iter, present | maybe_tested)
            target = self.source.target(generator.target)
            self.source.drawn.append(Assign(target, drawn(self.graph, items)))
            parts += [items, *(self.parse(test, present) for test in generator.ifs)]
        element = self.parse(item.elt, present)
        self.source.locals -= self.source.locals - before
        return self.graph.node("list", "", (element, *parts))


def drawn(graph: Graph, items: Node) -> Node:
    """Return the node of one element of an iterable: `x[0]` for `x`, the pair `x[0], y[0]` for `zip(x, y)`.

    It stands for every element, which has the same kind and shares the same memory.
    """
    match items:
        case Node("call", _, (Node("name", "range"), *_)):
            return graph.constant("0")
        case Node("call", _, (Node("name", "enumerate"), value, *_)):
            pair = (graph.constant("0"), drawn(graph, value))
            return graph.node("tuple", "", pair)
        case Node("call", _, (Node("name", "zip"), *values)):
            each = tuple(drawn(graph, value) for value in values)
            return graph.node("tuple", "", each)
        case Node("call", _, (Node("name", name), value)) if name in SAME_ITEMS:
            return drawn(graph, value)
    return graph.node("subscript", "", (items, graph.constant("0")))


class VerbatimParser(StatementParser):
    """A parser of one forward's statements into a sketch; it checks every expression."""

    expressions: VerbatimExpressions

    def __init__(
        self, text: Text, program: Program, scope: Scope, graph: Graph
    ) -> None:
        """Prepare to sketch a program: its text is kept, and only its assignments and returned values are noted.

        All names it assigns count as known: a loop may read one assigned further down.
        """
        super().__init__(text, program, scope, graph)
        self.drawn: list[Assign] = []
        self.returned: list[Node] = []
        module = ast.Module(self.program.body, [])
        self.assigned = _stored(module)
        self.locals |= self.assigned
        self.lists, self.keeps_text = _lists(module), True
        self.expressions = VerbatimExpressions(self, scope.optional, scope.tensors)

    def kept(self, reason: str, node: ast.AST) -> Formula:
        """Return the formula with its text kept; `node` is the syntax behind the `reason`, such as a loop.

        Raise all problems found on the way. The result is one `body` node with all expressions of the text as its parts.
        """
        self._end_in_one_return()
        *above, last = self.program.body
        statements, present = self._block(above, frozenset())
        result = None
        if isinstance(last, ast.Return) or (
            isinstance(last, ast.Expr) and not self.text.is_function
        ):
            result = self._result(last, present)
        elif not self.problems:
            self.fail_without_result(last)
        raise_all(self.problems)
        assert result is not None  # otherwise there was a problem
        code = _code(self.text, self.program.body)
        ended = (*statements, *self._flushed(), Assign(self._absent, result))
        read = tuple(expressions(*ended))
        kept = Kept(reason, self.place(node), *code, ended, (*self.returned, result))
        lines = "\n".join(filter(None, (code.lines, f"return {code.value}")))
        body = self.graph.node("body", lines, read)
        text, place = self.text.value.strip(), self.text.location
        return Formula((), body, text, place, (), self.graph, kept, self.locate)

    def _end_in_one_return(self) -> None:
        """Give a forward one return at the end if its last statement is an `if`; the generated code returns from one place."""
        if isinstance(self.program.body[-1], ast.If):
            ended = with_one_return(list(self.program.body), self.scope.names)
            self.program = self.program._replace(body=ended)
            self.locals |= _stored(ast.Module(ended, []))

    @property
    def _absent(self) -> Node:
        return self.graph.node("absent")

    def target(self, item: ast.expr) -> Node:
        """Return the node of an assignment target."""
        return self._target(item)

    def _target(self, target: ast.expr) -> Node:
        """Return the node of a target; `rows[i][j]` is allowed too."""
        if isinstance(target, ast.Subscript) and _root(target):
            return self.expressions.parse(target)
        return super()._target(target)

    def _statement(self, item: ast.stmt, present: Guarded) -> Statement | None:
        """Return the sketch of a statement; the names of its comprehensions are assigned above it, under one `if`."""
        before, self.drawn = self.drawn, []
        found = self._sketched(item, present)
        above, self.drawn = self._flushed(), before
        if not above or found is None:
            return found
        return If(self._absent, (*above, found))

    def _flushed(self) -> tuple[Assign, ...]:
        """Return the assignments drawn so far by comprehensions, and forget them."""
        drawn_now, self.drawn = tuple(self.drawn), []
        return drawn_now

    def _sketched(self, item: ast.stmt, present: Guarded) -> Statement | None:
        """Return a statement in outline: loops and modes run their body, a return is an assignment.

        Several statements, or none, stand under an `if` without a test.
        """
        match item:
            case ast.For():
                return self._for(item, present)
            case ast.While():
                test = self.expressions.parse(item.test, present)
                return self._loop(test, (), item, present)
            case ast.With():
                return self._with(item, present)
            case ast.Return(value) if value is not None:
                self.returned.append(self.expressions.parse(value, present))
                return Assign(self._absent, self.returned[-1])
            case ast.Break() | ast.Continue() | ast.Pass():
                return If(self._absent, ())
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), method), args, [])):
                # Of the forward's own lists only; else it is a call for its effect.
                if method in GROWS and name in self.assigned:
                    return self._grown(name, args, present)
            case ast.AugAssign(ast.Name(name), ast.Add(), value) if name in self.lists:
                return self._grown(name, [value], present)
            case ast.Assign([ast.Subscript() as target], value):
                root = _root(target)
                if root in self.lists:
                    # Its node is not used, but an unknown name in the index is reported.
                    self.expressions.parse(target, present)
                    return self._grown(root, [value], present)
            # `a = b = x`: nothing has split it, since the text is kept.
            case ast.Assign([first, *others], value) if others:
                node = self.expressions.assigned(value, present)
                targets = map(self._target, (first, *others))
                return If(self._absent, tuple(Assign(each, node) for each in targets))
            case ast.AnnAssign(_, annotation):
                self._check_annotation(annotation)
        return super()._statement(item, present)

    def _for(self, item: ast.For, present: Guarded) -> Statement:
        """Return the sketch of a `for` loop: a step assigns an element of the iterable to the target, then runs the body."""
        items = self.expressions.parse(item.iter, present)
        step = Assign(self._target(item.target), drawn(self.graph, items))
        # The iterable is read even if the loop has no round.
        start = Assign(self._absent, items)
        return self._loop(self._absent, (start, step), item, present)

    def _loop(
        self,
        head: Node,
        step: Lines,
        item: ast.For | ast.While,
        present: Guarded,
    ) -> Statement:
        """Return the sketch of a loop: a branch with the `step` and the body twice, then the loop's `else`.

        `head` is the test of a `while`, absent for a `for`; `step` assigns the loop variables. A loop without a round runs its
        `else` alone. Twice, so that the second round sees the memory and the kinds of values the first one leaves.
        """
        body, _ = self._block(item.body, present)
        after, _ = self._block(item.orelse, present)
        return If(head, (*step, *body, *step, *body, *after), after)

    def _with(self, item: ast.With, present: Guarded) -> Statement:
        """Return the sketch of a `with` of `torch.no_grad` or autocast; report a `with` of anything else.

        It has the body in both branches of an `if`, with reads of the arguments and a call `torch.no_grad()` in the first: by this
        call the tests' writer sees that values may be computed without a gradient.
        """
        read: list[Node] = []
        for part in item.items:
            match part:
                case ast.withitem(ast.Call(called, args, keywords), None) if (
                    ast.unparse(called) in MODES
                ):
                    values = [*args, *(keyword.value for keyword in keywords)]
                    read += (self.expressions.parse(arg, present) for arg in values)
                case _:
                    message = f"'{ast.unparse(part)}' cannot stand in a with"
                    self.fail(part.context_expr, message, f"only {_listed(MODES)} can")
        body, _ = self._block(item.body, present)
        mark = self.expressions.parse(ast.parse("torch.no_grad()", mode="eval").body)
        read.append(mark)
        return If(
            self._absent, (*(Assign(self._absent, each) for each in read), *body), body
        )

    def _choice(
        self, item: ast.If, present: Guarded, above: tuple[str, ...]
    ) -> Statement:
        """Return an `if`; below one that ends in a return, raise, break or continue, its test is known to be false.

        So after `if bias is None: return x` the optional `bias` is present.
        """
        statement = super()._choice(item, present, above)
        # With an `else` the lines below may also come from that branch.
        if isinstance(item.body[-1], LEAVES) and not item.orelse:
            self.branches[item] = present | guards(item.test)[1]
        return statement

    def _grown(self, name: str, args: list[ast.expr], present: Guarded) -> Statement:
        """Return the sketch of an append: `rows = [rows, x]`, a list of the old elements and the new."""
        known = self.graph.name(name)
        parts = [self.expressions.parse(arg, present) for arg in args]
        return Assign(known, self.graph.node("list", "", (known, *parts)))

    def _check_annotation(self, annotation: ast.expr) -> None:
        """Report an unknown name in the annotation of a local, since the kept text runs it, except for usual types."""
        for node in ast.walk(annotation):
            if isinstance(node, ast.Name) and node.id not in TYPES:
                self.resolve(node)


def _listed(names: Sequence[str]) -> str:
    """Join names as a text: `a(), b() and c()`."""
    *several, last = (f"{name}()" for name in names)
    return f"{', '.join(several)} and {last}"


def _root(target: ast.expr) -> str:
    """Return the name at the root of a target: `rows` for `rows[i][j]`; '' if there is none."""
    while isinstance(target, ast.Subscript):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""


class _Code(NamedTuple):
    """The code of a forward: the lines above its last return, and the value of that return, both as text."""

    lines: str
    value: str


def _code(text: Text, body: list[ast.stmt]) -> _Code:
    """Return the user's text as it is, with comments; the text of the statements `body` if calls were inlined in them."""
    module = as_written(text, body)
    if module is not None:
        return _split(text.value, module.body[-1])
    *above, last = body
    value = ast.unparse(last)
    return _Code("\n".join(map(ast.unparse, above)), _returned(value))


def _split(text: str, last: ast.stmt) -> _Code:
    """Return a text split into the lines above its `last` statement, and the value that this returns.

    A comment after it is dropped. Columns of `ast` count bytes, so the text is split as bytes.
    """
    lines = text.encode().split(b"\n")
    before = [*lines[: last.lineno - 1], lines[last.lineno - 1][: last.col_offset]]
    # `y = x; return y`: the `;` separates two statements of a line.
    above = b"\n".join(before).decode().rstrip().removesuffix(";").rstrip()
    return _Code(above, _returned(ast.get_source_segment(text, last) or ""))


def _returned(code: str) -> str:
    """Return the value in the code of a `return`, without this word; an expression alone is its own value."""
    return re.sub(r"\Areturn\b\s*", "", code)


def _stored(module: ast.Module) -> frozenset[str]:
    """Return the names assigned by statements, without the variables of comprehensions, which are unknown outside."""
    inside = {
        id(inner)
        for node in ast.walk(module)
        if isinstance(node, ast.comprehension)
        for inner in ast.walk(node.target)
    }
    return frozenset(node.id for node in stores([module]) if id(node) not in inside)


def _lists(module: ast.Module) -> frozenset[str]:
    """Return the names bound to lists by all their assignments: `rows += [x]` and `rows[i] = x` then change a list, no tensor."""
    found: dict[str, bool] = {}
    for name, value in _values(module):
        # One assignment of anything but a list is enough: the name may then be a tensor.
        found[name] = found.get(name, True) and value is not None and _is_list(value)
    return frozenset(name for name, holds in found.items() if holds)


def _values(module: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield each assigned name with its value, once for each assignment; None for a loop or one of several targets.

    Assignments by `+=` are left out. `seen` are the targets already accounted for.
    """
    seen: set[int] = set()
    for node in ast.walk(module):
        match node:
            case ast.Assign([ast.Name() as target], value):
                yield target.id, value
                seen.add(id(target))
            case ast.AnnAssign(ast.Name() as target, _, value):
                yield target.id, value
                seen.add(id(target))
            case ast.AugAssign(ast.Name() as target):
                seen.add(id(target))
    for name in stores([module]):
        if id(name) not in seen:
            yield name.id, None


def _is_list(value: ast.expr) -> bool:
    """Return whether an expression is surely a list: `[x]`, `[None] * n`, `list(...)`, a sum of lists."""
    match value:
        case ast.List() | ast.ListComp() | ast.Call(ast.Name("list")):
            return True
        case ast.BinOp(left, ast.Mult(), right):
            # Only of a literal list: about two names, `a * b`, nothing is known.
            return isinstance(left, ast.List) or isinstance(right, ast.List)
        case ast.BinOp(left, ast.Add(), right):
            return _is_list(left) or _is_list(right)
        case ast.IfExp(_, body, orelse):
            return _is_list(body) and _is_list(orelse)
    return False
