"""Statements: Python's statements of a formula -> assignments and choices over its nodes.

`parse` uses it for every forward without a loop, every backward and every stated gradient; `verbatim` builds on it.

Words: an *optional* is an input that may be None, *present* where it is known not to be None, *absent* otherwise (an `absent`
node is something else: it stands for no target); a *target* is the left side of an assignment, but `scope.targets` are the
gradients a backward has to assign; `above` are the comments above a statement.

In: the `Program` of a `Text` (an expression, or statements that end in a `return`) and the `Scope` of its names. Out: a
`Formula`. Invariant: the text is never evaluated; anything but straight-line maths is an error at its place, under
Python's name for it.
"""

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from scaffold.errors import Location, ScaffoldError, did_you_mean, raise_all
from scaffold.formula.assertions import CheckedExpressions
from scaffold.formula.constant_folding import BINARY
from scaffold.formula.definite_assignment import Unassigned, unassigned
from scaffold.formula.definitions import RESERVED, parameters
from scaffold.formula.desugar import plain, with_modes_closed, with_one_return
from scaffold.formula.emit import shown
from scaffold.formula.expression import ELSEWHERE, NO_DICT, WITH_OPTIONAL
from scaffold.formula.graph import (
    Assign,
    Formula,
    Graph,
    If,
    Lines,
    Node,
    Statement,
    expressions,
)
from scaffold.formula.names import stores
from scaffold.formula.operators import instead_of
from scaffold.formula.optionality import Guarded, guards, is_present, may_be_none
from scaffold.formula.program import Program
from scaffold.formula.text import TAKEN, Scope, Text, parse_source, place_in
from scaffold.formula.uses import raises, written
from scaffold.primitives.calls import is_in_place

SEVERAL_OUTPUTS = "the outputs have {}; to keep a value for the backward, do not return it: y, rstd = kernel(x); return y"
LONGEST = 40  # characters of a statement in a message
LOOP = (
    "a loop",
    "only a forward can have loops: put this one into a function of your own and use --import 'module:name'",
)
PLAIN_FORMS = {  # allowed forms for common Python
    "dict": NO_DICT,
    "map": "list the values: [f(a), f(b)], or of a tensor [f(t) for t in x.unbind(0)]",
    "itertools": "list the values: for i, j in ((0, 1), (1, 0)): ...",
}
CHECK = "check inputs in the forward"
IMPORT = "use --import 'module:name', or put it at the top of a file; torch, F, nn and math need none"
ASYNC = ("async", None)
KINDS: dict[type[ast.stmt], tuple[str, str | None]] = {
    ast.AsyncFor: ASYNC,
    ast.AsyncFunctionDef: ASYNC,
    ast.AsyncWith: ASYNC,
    ast.Assert: ("an assert", CHECK),
    ast.Raise: ("a raise", CHECK),
    ast.ClassDef: ("a class", ELSEWHERE),
    ast.Delete: ("a del", "remove it: tensors that are not saved are freed anyway"),
    ast.For: LOOP,
    ast.While: LOOP,
    ast.FunctionDef: ("a function", "keep it in a file: '@file.py:function'"),
    ast.Global: ("a global", "make it an input"),
    ast.Nonlocal: ("a nonlocal", "assign a name in each function"),
    ast.Import: ("an import", IMPORT),
    ast.ImportFrom: ("an import", IMPORT),
    ast.Match: ("a match", "write it as if and elif"),
    ast.Try: ("a try", "use if to test for the case that would fail"),
    ast.TryStar: ("a try", "use if to test for the case that would fail"),
    ast.With: ("a with", ELSEWHERE),
}


def assigned(formula: Formula) -> frozenset[str]:
    """Return the names the statements of a formula assign."""
    return written(*formula.statements)


class StatementParser:
    """A parser of one program's statements into a graph; it collects all `problems`, to report them together.

    Parsing goes on after a problem, with a stand-in for what is wrong.
    """

    def __init__(
        self, text: Text, program: Program, scope: Scope, graph: Graph
    ) -> None:
        """Prepare to parse a program; its own problems are the first ones collected."""
        self.program, self.scope, self.graph = program, scope, graph
        # Of a text without a file the dedented form; of a function its own text, not the whole file.
        self.text = text if text.origin else program.text
        self.lines = program.text.value.split("\n")
        self.problems = list(program.problems)
        self.locals: set[str] = set()
        # Locals that are lists, `ys = [x, y]`: no item of one may be assigned, `ys[0] = w`, as of a tensor.
        self.written_out: set[str] = set()
        # Whether the op runs the user's text unchanged, as `verbatim.py` has it.
        self.keeps_text = False
        self.asserts = scope.kept
        self.branches: dict[ast.If, Guarded] = {}  # optionals present after an `if`
        self.expressions = CheckedExpressions(self, scope.optional, scope.tensors)

    def formula(self) -> Formula:
        """Return the formula of the program; raise for all its problems together."""
        body = plain(self.program.body, TAKEN.union(self.scope.names))
        if self.scope.wants_result:
            body = with_one_return(body, self.scope.names)
            # Tests that leave a name unassigned if they fail: `mode == "mean"`.
            left = {item.test for item in self._unassigned(body) if not item.holds}
            body = with_modes_closed(body, left) if left else body
        with_result = tuple(body)  # `body` loses its result below
        if not body:
            raise self._empty()
        result: Node | None = None
        last = body[-1]
        # In a text an expression at the end is the result; in a function of a file it needs a `return`.
        if isinstance(last, ast.Return) or (
            isinstance(last, ast.Expr)
            and self.scope.wants_result
            and not self.text.is_function
        ):
            body.pop()
            statements, present = self._block(body, frozenset())
            result = self._result(last, present)
            statements += self._checks()[0]  # of optionals in the result
        else:
            if self.scope.wants_result and isinstance(last, ast.Expr):
                self.fail_without_result(body.pop())
            statements, _ = self._block(body, frozenset())
            if self.scope.wants_result and not self.problems:
                self.fail_without_result(last)
        if self.scope.targets is not None:
            self._check_targets(statements, frozenset(self.scope.targets))
        # After a problem some names are stand-ins: more messages would only follow from it.
        if not self.problems:
            self._check_assigned(with_result)
        raise_all(self.problems)
        above = self._above(last) if result else ()
        text = shown(self.text, self.program.body, statements, result)
        place = self.text.location
        return Formula(
            *(statements, result, text, place, above, self.graph), locate=self.locate
        )

    def _empty(self) -> ScaffoldError:
        """Return the error for a text with nothing to compute: no statement, or functions that are not called."""
        message = "the formula is empty"
        hint = "write an expression, as in: 'x * torch.sigmoid(x)'"
        # Functions of a file are no part of the text.
        for item in [] if self.text.origin else parse_source(self.text).body:
            if isinstance(item, ast.FunctionDef):
                message = f"the formula defines '{item.name}' and returns nothing"
                given = ", ".join(one.arg for one in parameters(item.args))
                hint = f"end it with the call: {item.name}({given})"
        return ScaffoldError(message, self.text.location, hint)

    def fail(self, node: ast.AST, message: str, hint: str | None = None) -> None:
        """Collect a problem at the place of a node, once."""
        problem = ScaffoldError(message, self.place(node), hint)
        # An unrolled step repeats the problem.
        if str(problem) not in map(str, self.problems):
            self.problems.append(problem)

    def refuse(self, named: Iterable[tuple[ast.AST, str, str | None]]) -> None:
        """Report problems found before the parse (each a node, a message, a hint): names that are no operators."""
        for node, message, hint in named:
            self.fail(node, message, hint)

    def fail_without_result(self, last: ast.stmt) -> None:
        """Report a formula that ends in a statement without a returned value, with the return to write."""
        value = ast.unparse(last) if isinstance(last, ast.Expr) else "..."
        hint = f"end it with: return {value}"
        self.fail(last, "the formula returns nothing", hint)

    def place(self, node: ast.AST) -> Location:
        """Return the place of a node in the text."""
        return place_in(self.program.text, node)

    def locate(self, wanted: Callable[[ast.AST], bool]) -> Location | None:
        """Return the place, in the user's text, of the first node the predicate `wanted` accepts; None if there is none."""
        nodes = [node for item in self.program.body for node in ast.walk(item)]
        found = [
            self.place(node)
            for node in nodes
            if isinstance(node, ast.expr | ast.stmt) and wanted(node)
        ]
        return min(found, key=lambda place: (place.line, place.column), default=None)

    def spelled(self, item: ast.Constant) -> str:
        """Return a number as the user wrote it, any other literal as its `repr`.

        A literal that does not end on its line is marked as made by a rewrite: the text there does not hold it.
        """
        if (
            isinstance(item.value, int | float | complex)
            and item.lineno == item.end_lineno
        ):
            line = self.lines[item.lineno - 1].encode()
            return line[item.col_offset : item.end_col_offset].decode()
        return repr(item.value)

    def _above(self, item: ast.stmt) -> tuple[str, ...]:
        """Return the comments above a statement's line and forget them, so a second statement of the line has none."""
        return self.program.comments.pop(item.lineno, ())

    def _result(self, last: ast.Return | ast.Expr, present: Guarded) -> Node | None:
        """Return the node of the returned value; report a `return` without one and give None."""
        if last.value is None:
            self.fail_without_result(last)
            return None
        return self.expressions.parse(last.value, present)

    def _block(self, body: list[ast.stmt], present: Guarded) -> tuple[Lines, Guarded]:
        """Return the nodes of statements, and the optionals known to be present after them; `present` are so before.

        An optional read under a test of another name is meant to be present: an assert above the statement says so.
        """
        found: list[Statement] = []
        # The reads to be asserted by the statement around this block are kept for it.
        outer, self.expressions.needed = self.expressions.needed, {}
        for item in body:
            statement = self._statement(item, present)
            checks, there = self._checks()
            # Parse it again with the asserted optionals present: `x + bias` is then no choice.
            if there and isinstance(statement, Assign):
                known = self._statement(item, present | there)
                assert isinstance(known, Assign)
                statement = replace(known, comments=statement.comments)
            if statement is not None:
                found += (*checks, statement)
                present = self._present_after(item, statement, present | there)
        self.expressions.needed = outer
        return tuple(found), present

    def _checks(self) -> tuple[Lines, Guarded]:
        """Return assert statements for the optionals read untested since the last call, and the names present after them."""
        asserts, asserted = self.expressions.needs()
        absent = self.graph.node("absent")
        return tuple(Assign(absent, check) for check in asserts), asserted

    def _present_after(
        self, item: ast.stmt, statement: Statement, present: Guarded
    ) -> Guarded:
        """Return the optional inputs known to be present after a statement; `present` ones are before it.

        An assert proves them; an assigned name is present unless its value may be None; an `if` has noted in `branches` what is
        present after it.
        """
        if isinstance(item, ast.If):
            return self.branches.pop(item)
        names = written(statement) & self.scope.optional
        if isinstance(item, ast.Assign | ast.AnnAssign) and isinstance(statement, If):
            # In a kept forward it stands below the assignments to the variables of a comprehension.
            statement = statement.body[-1]
        if isinstance(item, ast.Assert):
            return present | guards(item.test)[0]
        if isinstance(statement, Assign) and not may_be_none(statement.value):
            return present | names
        return present - names

    def _statement(self, item: ast.stmt, present: Guarded) -> Statement | None:
        """Return the statement of a piece of syntax; report syntax a formula cannot have."""
        above = self._above(item)
        match item:
            # 1: the target is a plain name, `y: Tensor = x`.
            case ast.Assign([target], assigned) | ast.AnnAssign(
                target, _, assigned, 1
            ) if assigned:
                of_input = self._input_of_gradient(target)
                value = self.expressions.assigned(assigned, present | of_input)
                named = self._target(target)
                if isinstance(assigned, ast.List) and named.kind == "name":
                    self.written_out.add(named.label)
                return Assign(named, value, "", above)
        if isinstance(item, ast.AugAssign):
            return self._augmented(item, present, above)
        if isinstance(item, ast.If):
            return self._choice(item, present, above)
        if isinstance(item, ast.Expr) and _works_in_place(item.value):
            value = self.expressions.parse(item.value, present)
            return Assign(self.graph.node("absent"), value, "", above)
        # `kept`: only a forward has checks; a backward is run after they have held.
        if isinstance(item, ast.Assert | ast.Raise) and self.scope.kept:
            check = self.expressions.check(item, present)
            return Assign(self.graph.node("absent"), check, "", above)
        self._refuse(item)
        return None

    def _input_of_gradient(self, target: ast.expr) -> Guarded:
        """Return the input whose gradient a target is, {"bias"} for `grad_bias`; empty for other targets.

        The value may read that input untested, since a gradient is computed only if its input is present.
        """
        name = target.id if isinstance(target, ast.Name) else ""
        is_gradient = name in (self.scope.targets or ())
        return frozenset({name.removeprefix("grad_")} if is_gradient else ())

    def _augmented(
        self, item: ast.AugAssign, present: Guarded, above: tuple[str, ...]
    ) -> Statement:
        """Return the statement of `y += value`; with an optional `bias` as its value, `if bias is not None: y += bias`."""
        operator = BINARY[type(item.op)]
        self.expressions.parse(item.target, present)  # it is read first
        target = self._target(item.target)
        name = self.expressions.absent_operand(item.value, present)
        if name is None or operator not in WITH_OPTIONAL:
            value = self.expressions.parse(item.value, present)
            return Assign(target, value, operator, above)
        value = self.expressions.parse(item.value, present | {name})
        given = Assign(target, value, operator)
        return If(is_present(self.graph, name), (given,), (), above)

    def _choice(
        self, item: ast.If, present: Guarded, above: tuple[str, ...]
    ) -> Statement:
        """Return an `if`; its branches, and the lines after a branch with a raise, know the optionals proved present by its test.

        `if_true` are present if the test holds, `if_false` if it does not. After it, those present at the end of both branches
        are; of one branch if the other raises.
        """
        test = self.expressions.parse(item.test, present)
        if_true, if_false = guards(item.test)
        with self.expressions.under(test, holds=True):
            body, after_body = self._block(item.body, present | if_true)
        with self.expressions.under(test, holds=False):
            orelse, after_orelse = self._block(item.orelse, present | if_false)
        self.branches[item] = after_body & after_orelse
        if raises(body) or raises(orelse):  # `if bias is None: raise ValueError(...)`
            self.branches[item] = after_orelse if raises(body) else after_body
        return If(test, body, orelse, above)

    def _refuse(self, item: ast.stmt) -> None:
        """Report a statement no formula has; its names count as assigned, so their reads are no further problem."""
        self.locals.update(node.id for node in stores([item]))
        self.fail(item, *words_on(item))

    def _target(self, target: ast.expr) -> Node:
        """Return the node of an assignment's target, and note its names as locals.

        Report names that generated code uses itself (RESERVED), an item of a list, and targets of other forms.
        """
        if isinstance(target, ast.Name):
            if target.id in RESERVED or target.id.startswith("__"):
                # `F` -> `f_`, `__x` -> `x_`: neither reserved nor a dunder.
                hint = f"give it another name: {target.id.strip('_').lower()}_"
                self.fail(target, f"'{target.id}' cannot be assigned", hint)
            self.locals.add(target.id)
            self.written_out.discard(target.id)  # it has another value now
            return self.graph.name(target.id)
        if isinstance(target, ast.Tuple | ast.List):
            return self._targets(target)
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            name = target.value.id
            if name in self.written_out and not self.keeps_text:
                hint = f"assign the whole list: {name} = [...]"
                self.fail(target, f"an item of the list '{name}' is assigned", hint)
            return self.expressions.parse(target)
        self.fail(target, "only names, tuples of names and name[...] can be assigned")
        return self.graph.node("absent")

    def _targets(self, target: ast.Tuple | ast.List) -> Node:
        """Return the node of several targets, `a, *b`; report a second star."""
        stars = [item for item in target.elts if isinstance(item, ast.Starred)]
        for item in stars[1:]:
            self.fail(item, "only one target can have a star")
        args = [
            (
                self.graph.node("starred", args=(self._target(item.value),))
                if isinstance(item, ast.Starred)
                else self._target(item)
            )
            for item in target.elts
        ]
        return self.graph.node("tuple", args=tuple(args))

    def resolve(self, node: ast.Name) -> None:
        """Report the read of a name unknown here, with the likely cause and a hint; a known name is fine."""
        known = self.scope.names | self.locals
        values = self.scope.tensors | self.locals
        # The module is refused below with its plain form (PLAIN_FORMS), though it may be imported.
        is_module = node.id == "itertools" and node.id not in values
        if node.id in known and not is_module:
            return
        if node.id in self.scope.hidden:
            message = f"'{node.id}' is imported, and the name of a gradient"
            self.fail(node, message, f"import it under another name: {node.id} as ...")
            return
        if node.id in (self.scope.targets or ()):
            self.fail(node, f"'{node.id}' is read before it is assigned")
            return
        if node.id in self.program.others:
            message = f"'{node.id}' of the file is not a constant"
            self.fail(node, message, "make it an input")
            return
        if node.id in PLAIN_FORMS:
            message = f"'{node.id}' is not allowed in a formula"
            self.fail(node, message, PLAIN_FORMS[node.id])
            return
        message = f"unknown name '{node.id}'"
        if any(item.message == message for item in self.problems):
            return  # reported at its first read
        self.fail(node, message, self._hint_of_unknown(node, known))

    def _hint_of_unknown(self, node: ast.Name, known: frozenset[str]) -> str:
        """Return how to write a size, which gradients the outputs have, a similar name, or else all that is known."""
        if size := self.scope.sizes.get(node.id):
            return f"it is a size: write {size}"
        several = [name for name in sorted(known) if name.startswith("grad_")]
        if node.id == "grad_output" and len(several) > 1:
            return SEVERAL_OUTPUTS.format(" and ".join(several))
        if hint := instead_of(node, self.program.body) or did_you_mean(node.id, known):
            return hint
        if not known:
            # Only a condition reads sizes alone; a formula knows its inputs.
            return "no size is declared: x[N, D] declares two"
        hint = f"known here: {', '.join(sorted(known))}"
        # In a backward, or in a condition on sizes, a new input would not help.
        if several or known & self.scope.sizes.keys():
            return hint
        return f"{hint}; if '{node.id}' is an input, name it among the inputs"

    def _check_assigned(self, body: Sequence[ast.stmt]) -> None:
        """Report reads of names that are not assigned in every case: `m` after `if training: m = x.mean()`."""
        for found in self._unassigned(body):
            # The message puts the test between single quotes.
            name, test = found.name.id, found.test.replace("'", '"')
            truth = "true" if found.holds else "false"
            message = f"'{name}' is not assigned where '{test}' is {truth}"
            hint = f"assign '{name}' in each branch"
            # For example `if mode == "sum": y = ...`, without an assignment of y in
            # other modes.
            name_compared, equals, _ = test.partition(" == ")
            if equals and name_compared in self.scope.names:
                hint = f"{hint}, or end the choice with: else: raise ValueError({name_compared})"
            self.fail(found.name, message, hint)

    def _unassigned(self, body: Sequence[ast.stmt]) -> list[Unassigned]:
        """Return the reads of names some test leaves unassigned; the scope's names have a value from the start."""
        return unassigned(body, self.scope.outer, self.scope.choices)

    def _check_targets(self, statements: Lines, targets: frozenset[str]) -> None:
        """Report a `grad_` name assigned and never read that is no gradient of the op (`targets`), and a backward without any."""
        read = {name for node in expressions(*statements) for name in node.names()}
        unknown = written(*statements) - targets - read - self.scope.names
        for name in sorted(x for x in unknown if x.startswith("grad_")):
            hint = did_you_mean(name, targets)
            hint = hint or f"its gradients: {', '.join(sorted(targets))}"
            # A name that `plain` has made would be read, so this one stands in the text.
            nodes = (part for item in self.program.body for part in ast.walk(item))
            place = next(
                part for part in nodes if isinstance(part, ast.Name) and part.id == name
            )
            self.fail(place, f"'{name}' is not a gradient of this op", hint)
        if not any(written(item) & targets for item in statements):
            hint = f"assign: {', '.join(sorted(targets))}"
            message = "the backward assigns no gradient"
            self.problems.append(ScaffoldError(message, self.text.location, hint))


def _works_in_place(value: ast.expr) -> bool:
    """Return whether an expression is a call for its effect: `x.exp_()`."""
    match value:
        case ast.Call(ast.Attribute(_, name)):
            return is_in_place(name)
    return False


def words_on(item: ast.stmt) -> tuple[str, str | None]:
    """Return the message about a statement no formula has, and a hint with the allowed form."""
    if isinstance(item, ast.Expr):
        return _of_expression(item.value)
    if isinstance(item, ast.Return):
        return "a return must be the last statement", "assign a name in each branch"
    if type(item) in KINDS:
        kind, hint = KINDS[type(item)]
        return f"{kind} is not allowed in a formula", hint
    return f"'{_short(item)}' is not allowed in a formula", "write: name = ..."


def _of_expression(value: ast.expr) -> tuple[str, str | None]:
    """Return the message about an expression that is a statement, so its value is lost, and a hint."""
    match value:
        case ast.Call(ast.Name("print")):
            return "a print is not allowed in a formula", "take it out"
        case ast.Call(ast.Attribute(ast.Name(name), "append" | "extend" | "insert")):
            hint = f"assign the whole list, in each branch: {name} = [...]"
            return f"the result of '{_short(value)}' is not used", hint
        case ast.Call():
            return f"the result of '{_short(value)}' is not used", "write: name = ..."
    return f"'{_short(value)}' does nothing", "write: name = ..."


def _short(node: ast.AST) -> str:
    """Return some syntax as one line for a message, cut after LONGEST characters."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
