"""Calls of the functions of the user's file -> their statements in place.

In: statements whose names `definitions` has resolved. Out: statements without such calls. Invariant: they give what Python
gives for the file: each argument is evaluated once, nothing runs that a choice leaves out, and no name of a function
changes one of its caller.
"""

import ast
import copy
from collections.abc import Callable, Collection, Sequence

from scaffold.formula.arguments import (
    NotHere,
    Refusal,
    bound_arguments,
    check_decorators,
    is_pure,
    is_simple,
    own_name,
)
from scaffold.formula.definitions import Definitions
from scaffold.formula.fold import folded, without_empty
from scaffold.formula.resolve import Function, resolve
from scaffold.formula.results import Block, assigned_values, names_of_target, returned
from scaffold.formula.sites import Sites, as_statement_if, place_holder
from scaffold.formula.substitution import (
    named,
    names_in,
    reads,
    renamed,
    stored,
    substituted,
    versioned,
)

MOST = 300  # calls: more is a program that doubles at every step
Known = dict[str, Function]  # the functions that are defined inside the one that runs
Report = Callable[[Refusal], None]


class Inliner:
    """Replaces calls, statement by statement; what it cannot replace is reported, once for a statement."""

    def __init__(
        self,
        definitions: Definitions,
        readable: frozenset[str],
        there: frozenset[str],
        taken: Collection[str],
        report: Report,
    ) -> None:
        self.definitions, self.report = definitions, report
        self.readable, self.there = readable, there
        self.taken = set(taken)
        self.made: frozenset[str] = frozenset()  # names that were introduced here
        self.running: tuple[str, ...] = ()
        self.count = 0

    def block(self, body: Sequence[ast.stmt], known: Known) -> Block:
        """The statements with the calls replaced; `known` learns of the functions that they define."""
        done: Block = []
        for item in body:
            if self.running:
                done += self.statement(item, known)
                continue
            try:
                done += self.statement(item, known)
            except Refusal as refusal:
                self.report(refusal)
                done.append(place_holder(item))
        return done

    def statement(self, item: ast.stmt, known: Known) -> Block:
        match item:
            case ast.FunctionDef(name):
                known[name] = Function(name, item.args, item.body, item)
                return []
            case ast.Assign([ast.Name(name)], ast.Lambda(arguments, value) as node):
                returned: ast.stmt = ast.copy_location(ast.Return(value), value)
                known[name] = Function(name, arguments, [returned], node)
                return []
            case ast.If():
                sites = Sites(self, known)
                item.test = sites.visit(item.test)
                item.body = self.block(item.body, dict(known))
                item.orelse = self.block(item.orelse, dict(known))
                return [*sites.before, *without_empty(item)]
            case ast.While() | ast.With():
                item.body = self.block(item.body, dict(known))
                return [item]
            case ast.For():
                sites = Sites(self, known)
                item.iter = sites.visit(item.iter)
                item.body = self.block(item.body, dict(known))
                item.orelse = self.block(item.orelse, dict(known))
                return [*sites.before, item]
            case (
                ast.Assign()
                | ast.AnnAssign()
                | ast.AugAssign()
                | ast.Return()
                | ast.Expr()
            ) if (item.value is not None):
                return self._with_value(item, item.value, known)
        return [item]

    def _with_value(
        self,
        item: ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return | ast.Expr,
        value: ast.expr,
        known: Known,
    ) -> Block:
        target = item.targets[0] if isinstance(item, ast.Assign) else None
        before = set(self.taken), self.made
        idle = isinstance(item, ast.Expr)
        sites = Sites(self, known, value, target, idle=idle)
        try:
            item.value = sites.visit(copy.deepcopy(value))
        except NotHere:
            self.taken, self.made = before
            if not isinstance(value, ast.IfExp):
                raise
            item.value = value
            return self.statement(as_statement_if(item, value), known)
        for part in item.targets if isinstance(item, ast.Assign) else ():
            if isinstance(part, ast.Subscript):
                part.slice = Sites(self, known, conditional=True).visit(part.slice)
        if sites.whole and isinstance(item, ast.Assign):
            return [*sites.before, *assigned_values(item)]
        if sites.whole and idle and is_pure([item.value]):
            return sites.before
        return [*sites.before, item]

    def called(self, callee: ast.expr, known: Known) -> Function | None:
        """The function of the file that a callee is."""
        if not isinstance(callee, ast.Name):
            return None
        if callee.id.startswith("@"):
            name = callee.id[1:]
            found = resolve(name, self.definitions.functions[name], self.definitions)
            return found._replace(name=callee.id)
        return known.get(callee.id)

    def instance(
        self,
        call: ast.Call,
        function: Function,
        known: Known,
        target: ast.expr | None,
        conditional: bool,
        idle: bool = False,
    ) -> tuple[Block, ast.expr]:
        """The statements of a call, and the expression that is its value."""
        self._check(call, function)
        arguments = bound_arguments(call, function)
        body = copy.deepcopy(function.body)
        before, body = self._bound(call, function, body, arguments)
        body, value = returned(function, folded(body, self.there), idle)
        inner = {} if _is_global(call) else dict(known)
        seen = names_in([*body, value, *(item.node for item in inner.values())])
        names = names_of_target(target, value, set(stored(body)), seen)
        for name in stored(body):
            if "." in name and name not in names:
                names[name] = self._fresh(name, function, call)
        body = [renamed(item, names) for item in body]
        value = renamed(value, names)
        self.running = (*self.running, function.name)
        try:
            before += self.block(body, inner)
            after, value = self._value(value, inner, target, conditional)
        finally:
            self.running = self.running[:-1]
        if conditional and (before or after):
            shown = own_name(function.name)
            message = (
                f"'{shown}' cannot stand inside a choice: it is several statements"
            )
            raise NotHere(call, message, "write the choice as an if statement")
        return [*before, *after], value

    def _value(
        self,
        value: ast.expr,
        known: Known,
        target: ast.expr | None,
        conditional: bool,
    ) -> tuple[Block, ast.expr]:
        sites = Sites(self, known, value, target, conditional)
        try:
            found: ast.expr = sites.visit(copy.deepcopy(value))
        except NotHere:
            if conditional or not isinstance(value, ast.IfExp):
                raise
            own = target.id if isinstance(target, ast.Name) else self.free("result")
            name = ast.copy_location(ast.Name(own, ast.Store()), value)
            item = ast.copy_location(ast.Assign([name], value), value)
            done = self.statement(as_statement_if(item, value), known)
            return done, ast.copy_location(ast.Name(own, ast.Load()), value)
        return sites.before, found

    def _check(self, call: ast.Call, function: Function) -> None:
        shown = own_name(function.name)
        self.count += 1
        if function.name in self.running:
            hint = "write out the steps that it repeats"
            raise Refusal(call, f"'{shown}' calls itself", hint)
        if self.count > MOST:
            hint = "make the larger ones ops of their own"
            raise Refusal(
                call, f"more than {MOST} calls of functions of the file", hint
            )
        node = function.node
        if isinstance(node, ast.FunctionDef):
            check_decorators(node, shown, self.definitions.imports)

    def _bound(
        self,
        call: ast.Call,
        function: Function,
        body: Block,
        arguments: dict[str, ast.expr],
    ) -> tuple[Block, Block]:
        """Assignments of the arguments that need a name, and the body with the others put in."""
        pure = is_pure([*body, *arguments.values()])
        fixed = {
            name: value
            for name, value in arguments.items()
            if name not in stored(body) and self._is_plain(value)
        }
        body = folded([substituted(item, fixed) for item in body], self.there)
        before: Block = []
        values: dict[str, ast.expr] = {}
        for name, value in arguments.items():
            if name in fixed:
                continue
            plain, changed = self._is_plain(value), name in stored(body)
            once = pure and reads(body, name) <= 1 and not isinstance(value, ast.Name)
            if not changed and (plain or once):
                values[name] = value
                continue
            own = self._fresh(name, function, call)
            later = None
            if changed and plain:
                later = versioned(body, name, value, own, self.there)
            if later is None:
                before.append(named(own, value))
                values[name] = ast.Name(own, ast.Load())
            body = later or body
        return before, [substituted(item, values) for item in body]

    def _is_plain(self, value: ast.expr) -> bool:
        """Whether it may stand for its parameter; an unknown name is complained of where it is passed."""
        known = self.readable | self.made
        name = value.id if isinstance(value, ast.Name) else ""
        return is_simple(value) and (not name or "." in name or name in known)

    def _fresh(self, name: str, function: Function, call: ast.Call) -> str:
        """A local's own name where it is free, else one that says whose it is."""
        local, owner = own_name(name), own_name(function.name).strip("_")
        choices = [local, f"{owner}_{local}"]
        if local in self.made and call.args and isinstance(call.args[0], ast.Name):
            choices.insert(1, f"{call.args[0].id}_{local}")
        return self.free(*choices)

    def free(self, *choices: str) -> str:
        """The first of the names that is free, else the last with a number; it is taken from now on."""
        numbered = (f"{choices[-1]}_{count}" for count in range(2, len(self.taken) + 3))
        free = next(one for one in (*choices, *numbered) if one not in self.taken)
        self.taken.add(free)
        self.made |= {free}
        return free


def _is_global(call: ast.Call) -> bool:
    """Whether a call is of a function at the top level, which sees no local of its caller."""
    return isinstance(call.func, ast.Name) and call.func.id.startswith("@")
