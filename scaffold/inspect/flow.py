"""Control flow: a function's statements with their branches, and the bindings of names.

Lint and `adopt` must know which value a name has at a place of a user's method: `values` and `facts` ask here.

    if c:
        y = 1
    else:
        y = x           # at `return y` two bindings of `y` reach: 1 and x; at this line, one of `x`: the parameter
    return y

Words: a *step* is a statement, numbered in the order of the text (`order`); its *guards* are the branches around it, outermost
first: it runs only if all of them are taken; a binding *reaches* a step if the name may still have its value there; it is
*definite* if it is the only one; a branch *exits* if it always ends in a return or raise.

In: a function's node. Out: a `Flow`: steps in order, the bindings that reach a place.
Invariant: all possible bindings of a name are given; a definite answer is the only one.
"""

import ast
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple


class Guard(NamedTuple):
    """A branch of an if, a loop or a handler, around some statements: the statement, and `body`, `orelse`, `case 0` ..."""

    node: ast.AST
    branch: str

    def excludes(self, other: "Guard") -> bool:
        """Return whether the two branches never both run: those of one `if` or `match`, not of a loop or a `try`."""
        both = isinstance(self.node, ast.If | ast.Match)
        return both and self.node is other.node and self.branch != other.branch


Guards = tuple[Guard, ...]


class Step(NamedTuple):
    """A statement, without the statements inside it."""

    order: int
    statement: ast.stmt
    guards: Guards

    def expressions(self) -> Iterator[ast.AST]:
        """Yield every node of the statement itself, lambdas and comprehensions included."""
        for child in ast.iter_child_nodes(self.statement):
            if not isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                yield from ast.walk(child)


class Bound(NamedTuple):
    """A binding of a name to a value; None if that is not an expression of the text, as for a loop's target."""

    order: int  # of its step
    value: ast.expr | None
    guards: Guards
    element: int | None = None  # the name is bound to this element of the value
    starred: bool = False  # `*more, x = value`: the position is not sure


DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
LOOPS = (ast.For, ast.AsyncFor, ast.While)
EXITS = (ast.Return, ast.Raise)  # a break reaches the code after the loop


class Flow:
    """The statements and bindings of one function.

    `bindings` holds the statements' bindings alone: a parameter has none before it is bound again, see `parameters`.
    """

    def __init__(self, node: ast.FunctionDef, parameters: Sequence[str]) -> None:
        """Read the statements of a function; `parameters` are the names it gets from its caller, ctx included."""
        self.node = node
        self.parameters = frozenset(parameters)
        self.steps: list[Step] = []
        self.bindings: dict[str, list[Bound]] = {}
        self.outer: set[str] = set()  # names bound by nested functions
        # By the id of an `if`, a loop ... and its branch: does the branch always exit?
        self._exits: dict[tuple[int, str], bool] = {}
        self._add(node.body, ())

    @property
    def returns(self) -> tuple[Step, ...]:
        return tuple(s for s in self.steps if isinstance(s.statement, ast.Return))

    def _add(self, body: Sequence[ast.stmt], guards: Guards) -> None:
        """Record the statements of a block, with their bindings, and of the blocks inside them.

        `guards` are the branches around the block, outermost first: its statements run only if all of them are taken.
        """
        for statement in body:
            step = Step(len(self.steps), statement, guards)
            self.steps.append(step)
            self._bind(step)
            if isinstance(statement, ast.With | ast.AsyncWith):
                self._add(statement.body, guards)  # runs whenever the with does
                continue
            for branch, inner in blocks(statement):
                guard = Guard(statement, branch)
                self._exits[id(statement), branch] = always_exits(inner)
                self._add(inner, (*guards, guard))

    def _bind(self, step: Step) -> None:
        """Record the names a statement binds: by assignment, a loop, `with`, a definition, an import, `except`, `:=`, `match`.

        `del x` binds it too: after it the name has no known value.
        """
        statement = step.statement
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                self._target(step, target, statement.value)
        elif isinstance(statement, ast.AnnAssign) and statement.value:
            self._target(step, statement.target, statement.value)
        elif isinstance(statement, DEFINITIONS):
            self._name(step, statement.name, None)
            self._outer(statement)
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            for alias in statement.names:
                self._name(step, (alias.asname or alias.name).split(".")[0], None)
        elif isinstance(statement, ast.Try):
            for handler in statement.handlers:
                if handler.name:
                    self._name(step, handler.name, None)
        # Of these every stored name: the target of a loop, of a `with`, of `del`.
        stores = isinstance(statement, (*LOOPS, ast.With, ast.AsyncWith, ast.Delete))
        for node in step.expressions():
            if stores and isinstance(node, ast.Name):
                if not isinstance(node.ctx, ast.Load):
                    self._name(step, node.id, None)
            elif isinstance(node, ast.NamedExpr):
                self._name(step, node.target.id, None)
            # `case _:` has no name.
            elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
                self._name(step, node.name, None)

    def _outer(self, node: ast.AST) -> None:
        """Record the names a nested function may rebind, by `nonlocal` or `global`: nothing definite is known of them."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Nonlocal | ast.Global):
                self.outer.update(inner.names)

    def _target(self, step: Step, target: ast.expr, value: ast.expr | None) -> None:
        """Record the names bound if `value` is assigned to a target: a name, `*xs` or a tuple; None: a value the text does not show.

        An attribute or item, `x.a = 1`, binds no name.
        """
        if isinstance(target, ast.Name):
            self._name(step, target.id, value)
        elif isinstance(target, ast.Starred):
            self._target(step, target.value, None)
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(step, target.elts, value)

    def _unpack(
        self, step: Step, targets: list[ast.expr], value: ast.expr | None
    ) -> None:
        """Record bindings of several targets: to elements of a written tuple, else to a position in the value.

        `a, b = x, y` binds `a` to `x`; `a, b = f(x)` binds `a` to element 0 of `f(x)`. With a star among the targets,
        `*more, b = f(x)`, the position is not sure.
        """
        starred = any(isinstance(t, ast.Starred) for t in targets)
        if isinstance(value, ast.Tuple | ast.List) and not starred:
            stars = any(isinstance(v, ast.Starred) for v in value.elts)
            # With a starred part, `a, b = (x, *rest)`, which value goes where is unknown.
            if len(value.elts) == len(targets) and not stars:
                for target, one in zip(targets, value.elts, strict=True):
                    self._target(step, target, one)
                return
        for position, target in enumerate(targets):
            if isinstance(target, ast.Name):
                bound = Bound(step.order, value, step.guards, position, starred)
                self.bindings.setdefault(target.id, []).append(bound)
            else:
                self._target(step, target, None)

    def _name(self, step: Step, name: str, value: ast.expr | None) -> None:
        bound = Bound(step.order, value, step.guards)
        self.bindings.setdefault(name, []).append(bound)

    def reaching(self, name: str, at: Step) -> list[Bound | None]:
        """Return the bindings a name may have before a step; None among them is the parameter, or a name from outside.

        The search goes backwards, and ends at a binding sure to run whenever the step does. Bindings further down count too if a
        loop leads from them back to the step.
        """
        bindings = self.bindings.get(name, ())
        later = [bound for bound in bindings if self._loops_back(bound, at)]
        before: list[Bound] = []
        for bound in reversed(bindings):
            # `x = x + 1` binds `x` only after it has read it.
            if bound.order >= at.order or self._cannot_reach(bound, at):
                continue
            before.append(bound)
            # Is the name surely bound at the end of the innermost block around both? Then nothing earlier reaches the step.
            shared = _shared(bound.guards, at.guards)
            if self._settled([b.guards for b in before], shared):
                return [*later, *before]
        return [*later, *before, None]

    def _loops_back(self, bound: Bound, at: Step) -> bool:
        """Return whether a later binding, or the step's own, reaches the step by going round a loop around both."""
        if bound.order < at.order:
            return False
        return not set(_loops(bound.guards)).isdisjoint(_loops(at.guards))

    def _cannot_reach(self, bound: Bound, at: Step) -> bool:
        """Return whether a binding is in another branch than the step, or in one with a return or raise at its end.

        After `if c: y = 1; return y` a step below the `if` never sees this `y`.
        """
        # `map` ends with the shorter: one of the two may be nested deeper.
        if any(map(Guard.excludes, bound.guards, at.guards)):
            return True
        # The branches the step is not in.
        left = bound.guards[len(_shared(bound.guards, at.guards)) :]
        return any(self._exits[id(guard.node), guard.branch] for guard in left)

    def _settled(self, bindings: Sequence[Guards], at: Guards) -> bool:
        """Return whether a name is surely bound at the end of a block, by one of some bindings.

        One stands in the block itself, or one in each branch of an `if` in it, as in `if c: y = 1` and `else: y = 2`; a branch that
        always exits needs none.
        `bindings` are the guards of the bindings, `at` those of the block.
        """
        if at in bindings:
            return True
        # The statements of the block with bindings further inside.
        # Each of these has a guard more than `at`: equal ones were met above.
        deeper = (g[len(at)].node for g in bindings if g[: len(at)] == at)
        return any(
            all(
                # False: an `if` without `else` has no such branch.
                self._exits.get((id(node), branch), False)
                or self._settled(bindings, (*at, Guard(node, branch)))
                for branch in ("body", "orelse")
            )
            for node in dict.fromkeys(deeper)
            if isinstance(node, ast.If)
        )

    def may_follow(self, first: Step, second: Step) -> bool:
        """Return whether a path from the first step to the second is sure to exist, so lint may warn of it.

        The second stands further down, no branch between exits or excludes it, and one of the two is inside all branches around
        the other: two separate ifs might never be taken both.
        """
        if first.order >= second.order or self._cannot_reach(
            Bound(first.order, None, first.guards), second
        ):
            return False
        shorter = min(len(first.guards), len(second.guards))
        return first.guards[:shorter] == second.guards[:shorter]

    def definite(self, name: str, at: Step) -> Bound | None:
        """Return the only binding of a name reaching a step; None if there are several, or only the parameter.

        None too for a name a nested function may rebind.
        """
        found = self.reaching(name, at)
        return found[0] if len(found) == 1 and name not in self.outer else None

    def sole_value(self, name: str, at: Step) -> tuple[ast.expr, Step] | None:
        """Return the expression that alone gives a name its value at a step, and the expression's own step, which is an earlier one.

        None if there are several, or the text does not show the value, or the name is an element of it.
        """
        bound = self.definite(name, at)
        if bound is None or bound.value is None or bound.element is not None:
            return None
        return bound.value, self.steps[bound.order]

    def is_parameter(self, name: str, at: Step) -> bool:
        """Return whether a name surely still has the value of the function's parameter."""
        known = name in self.parameters and name not in self.outer
        return known and self.reaching(name, at) == [None]


def _shared(first: Guards, second: Guards) -> Guards:
    """Return the branches around both of two statements, outermost first."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return tuple(mine for mine, _ in pairs)


def _loops(guards: Guards) -> Iterator[ast.AST]:
    return (guard.node for guard in guards if isinstance(guard.node, LOOPS))


def blocks(statement: ast.stmt) -> Iterator[tuple[str, list[ast.stmt]]]:
    """Yield the blocks inside a statement, each with the name of its branch: `body`, `orelse`, `handler 0`, `case 1`.

    A nested definition has none, since its statements do not run here.
    """
    if isinstance(statement, DEFINITIONS):
        return
    for name in ("body", "orelse", "finalbody"):
        inner = getattr(statement, name, None)
        if inner:
            yield name, inner
    for number, handler in enumerate(getattr(statement, "handlers", ())):
        yield f"handler {number}", handler.body
    for number, case in enumerate(getattr(statement, "cases", ())):
        yield f"case {number}", case.body


def always_exits(body: Sequence[ast.stmt]) -> bool:
    """Return whether a block never reaches the statement after it: every path through it meets a return or raise."""
    for statement in body:
        if isinstance(statement, EXITS):
            return True
        if isinstance(statement, ast.If) and all(
            always_exits(branch) for branch in (statement.body, statement.orelse)
        ):
            return True
        # The block of a `with` runs whenever the statement does.
        if isinstance(statement, ast.With) and always_exits(statement.body):
            return True
    return False
