"""Inlining: calls of functions in the user's file -> their statements in place.

A formula may call other functions of its file, `norm(x) * w`; the derivation sees one body, so `program` calls this module to
write `m = x.mean()` and so on in place of the call.

Words: `known` are the functions nested in the one being read, by name; `there` are names never None; a call is *conditional* if
Python may not run it, as in `f(x) if c else x`, and *idle* if its value is not used; a *site* is an expression with calls; a
name is *taken* if no new local may have it; `running` are the functions whose calls are being inlined.

In: statements with names resolved by `definitions`. Out: statements without such calls. Invariant: the result equals
Python's for the file: each argument is evaluated once, nothing runs for a branch not taken, nothing is moved across a
change that could affect it, and no local of a function changes a name of its caller. A call Python would reject is a
`Refusal` at its place.

`Inliner` walks the statements. For a call it binds the arguments to the parameters (`bound_arguments`), splits the body
from the returned value (`returned`), and puts the value in the place of the call (`Sites`).
"""

import ast
import copy
from collections.abc import Callable, Collection, Sequence

from scaffold.formula.constant_folding import folded, without_empty
from scaffold.formula.definitions import (
    Defined,
    Definitions,
    Function,
    defaults,
    full_name,
    is_constant,
    parameters,
    resolve,
)
from scaffold.formula.desugar import with_one_return
from scaffold.formula.loop_unrolling import elements_of
from scaffold.formula.names import load_of, names_in, reads, store_of, stored, take
from scaffold.formula.substitution import (
    changes,
    is_pure,
    is_random,
    is_simple,
    named,
    placed,
    renamed,
    substituted,
    versioned,
)
from scaffold.formula.text import Refusal
from scaffold.formula.user_functions import check_decorators

IMPORTED = "import the function that launches it, instead of '@file': --import 'MODULE:FUNCTION'"
# Calls in all: of functions that each call the next one twice, ten make a thousand.
MOST = 300
Known = dict[str, Function]  # the nested functions of the running one
Report = Callable[[Refusal], None]
Block = list[ast.stmt]
Valued = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return | ast.Expr
# The meaning of module names once a function is resolved.
ALWAYS = {"F": "torch.nn.functional", "math": "math", "torch": "torch"}


class NotHere(Refusal):
    """A refused call: its function has several statements, and it stands inside `a if test else b`.

    The statements would run before the expression, whichever branch is chosen.
    """


class Swapped(Refusal):
    """A refused call: its statements would run before parts of the expression to its left, and the order matters."""


class Inliner:
    """An inliner of calls, statement by statement.

    It reports the first call of a statement it cannot inline.
    """

    def __init__(
        self,
        definitions: Definitions,
        readable: frozenset[str],
        there: frozenset[str],
        taken: Collection[str],
        report: Report,
    ) -> None:
        """Prepare to inline calls of the file's `definitions`.

        `readable` names have a value in the formula, those in `there` are never None, `taken` ones cannot be given to a local.
        `report` receives the first problem of a statement.
        """
        self.definitions, self.report = definitions, report
        self.readable, self.there = readable, there
        self.taken = set(taken)
        self.made: frozenset[str] = frozenset()  # names introduced here
        self.running: tuple[str, ...] = ()  # functions whose calls are being inlined
        self.count = 0  # of calls so far

    def block(self, body: Sequence[ast.stmt], known: Known) -> Block:
        """Return statements with their calls inlined; add the functions they define to `known`.

        At the outermost level a problem is reported and a stand-in keeps the place; inside a call (`self.running`) it is raised,
        for the statement with the outermost call.
        """
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
        """Return a statement with its calls inlined, after the lines these need; [] for the definition of a function.

        `known` are the nested functions defined so far; a definition is added to it.
        """
        match item:
            case ast.FunctionDef(name):
                known[name] = Function(name, item.args, item.body, item)
                return []
            case ast.Assign([ast.Name(name)], ast.Lambda(arguments, value) as node):
                returned: ast.stmt = ast.copy_location(ast.Return(value), value)
                known[name] = Function(name, arguments, [returned], node)
                return []
            # Functions defined in a branch are unknown after it: each gets a copy.
            case ast.If():
                sites = Sites(self, known)
                item.test = sites.visit(item.test)
                item.body = self.block(item.body, dict(known))
                item.orelse = self.block(item.orelse, dict(known))
                return [*sites.before, *without_empty(item)]
            # The test of a `while` runs in each round, so no lines above the loop can stand for a call in it.
            # The context of a `with` calls no function of the user's.
            case ast.While() | ast.With():
                item.body = self.block(item.body, dict(known))
                return [item]
            case ast.For():
                sites = Sites(self, known)
                item.iter = sites.visit(item.iter)
                item.body = self.block(item.body, dict(known))
                item.orelse = self.block(item.orelse, dict(known))
                return [*sites.before, item]
        if isinstance(item, Valued) and item.value is not None:
            return self._with_value(item, item.value, known)
        return [item]

    def _with_value(self, item: Valued, value: ast.expr, known: Known) -> Block:
        """Return a statement with the calls in its value inlined, after the lines they need.

        `y = f(x) if c else x` becomes an `if` statement if `f` has several lines: they may run only if `c` holds. Raise NotHere
        for such a call deeper in the value. `known` are the nested functions defined so far.
        """
        target = item.targets[0] if isinstance(item, ast.Assign) else None
        names_before = set(self.taken), self.made
        # The value of a statement `f(x)` is not used.
        idle = isinstance(item, ast.Expr)
        sites = Sites(self, known, value, target, idle=idle)
        try:
            # A copy: after a NotHere the value is needed as it was.
            item.value = sites.visit(copy.deepcopy(value))
        except NotHere:
            self.taken, self.made = names_before  # those of the attempt are free again
            if not isinstance(value, ast.IfExp):
                raise
            item.value = value
            return self.statement(as_statement_if(item, value), known)
        for part in item.targets if isinstance(item, ast.Assign) else ():
            if isinstance(part, ast.Subscript):
                # The index is evaluated after the value: no line may come between.
                part.slice = Sites(self, known, conditional=True).visit(part.slice)
        if sites.whole and isinstance(item, ast.Assign):
            return [*sites.before, *assigned_values(item)]
        # `f(x)` alone: of its lines the effect is left, its value is dropped unless computing it has one.
        if sites.whole and idle and is_pure([item.value]):
            return sites.before
        return [*sites.before, item]

    def called(self, callee: ast.expr, known: Known) -> Function | None:
        """Return the file's function, or nested function, named by a callee; None for any other callee: its call stays.

        `known` are the nested functions defined so far. In resolved syntax the name of a function of the file begins with `@`.
        """
        if not isinstance(callee, ast.Name):
            return None
        if callee.id.startswith("@"):
            name = callee.id[1:]
            found = resolve(name, self.definitions.functions[name], self.definitions)
            # With the `@`, to tell it in `running` from a nested function of the same name.
            return found._replace(name=callee.id)
        return known.get(callee.id)

    def instance(
        self,
        call: ast.Call,
        function: Function,
        known: Known,
        target: ast.expr | None,
        conditional: bool,
        idle: bool,
    ) -> tuple[Block, ast.expr]:
        """Return the statements of a call of `function`, and the expression of its value: `m = x.mean()`, and `x - m`.

        `target` is the target of an assignment with the call as its whole value: a returned local takes its name. A `conditional`
        call may not run at all: raise NotHere if it has statements. The value of an `idle` call is not used.
        """
        self._check(call, function)
        arguments = bound_arguments(call, function)
        body = copy.deepcopy(function.body)
        before, body = self._bound(call, function, body, arguments)
        # Folded again: `_bound` has put in further arguments since, and these may settle a test.
        body, value = returned(function, folded(body, self.there), idle)
        if self._is_without_gradient(function.node):
            body, value = without_gradient(function, body, value)
        of_file = isinstance(call.func, ast.Name) and call.func.id.startswith("@")
        # A function of the file does not see the nested ones of its caller; a nested one does.
        inner = {} if of_file else dict(known)
        seen = names_in([*body, value, *(item.node for item in inner.values())])
        names = names_of_target(target, value, set(stored(body)), seen)
        # A name with a dot is a local of a function: it needs one a user could write.
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
            message = f"'{shown}' has several statements, so it cannot be called inside 'a if test else b'"
            raise NotHere(call, message, "write the choice as an if statement")
        return [*before, *after], value

    def _value(
        self,
        value: ast.expr,
        known: Known,
        target: ast.expr | None,
        conditional: bool,
    ) -> tuple[Block, ast.expr]:
        """Return the lines before a returned expression (`value`), and the expression with its calls inlined.

        For `return f(x) if c else x`, if `f` has lines, these are an `if` statement assigning a name, `target` if it is one, and
        the expression is this name. Raise NotHere where no `if` can be written.
        """
        sites = Sites(self, known, value, target, conditional)
        try:
            # A copy: after a NotHere the value is needed as it was.
            found: ast.expr = sites.visit(copy.deepcopy(value))
        except NotHere:
            if conditional or not isinstance(value, ast.IfExp):
                raise
            # `y = g(x)`: the branches of the new `if` assign y itself.
            name = target.id if isinstance(target, ast.Name) else self.free("result")
            item = named(name, value)
            done = self.statement(as_statement_if(item, value), known)
            return done, load_of(name, value)
        return sites.before, found

    def _check(self, call: ast.Call, function: Function) -> None:
        """Count a call, and raise a Refusal for one impossible to inline: of a recursive or decorated function, or one too many.

        The decorator `@torch.no_grad()` alone is allowed.
        """
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
        if isinstance(node, ast.FunctionDef) and not self._is_without_gradient(node):
            check_decorators(node, shown, self.definitions.imports)

    def _is_without_gradient(self, node: Defined) -> bool:
        """Return whether `@torch.no_grad()` is the only decorator of a function."""
        decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
        names = [full_name(item, self.definitions.imports) for item in decorators]
        return names == ["torch.no_grad"] and isinstance(decorators[0], ast.Call)

    def _bound(
        self,
        call: ast.Call,
        function: Function,
        body: Block,
        arguments: dict[str, ast.expr],
    ) -> tuple[Block, Block]:
        """Return assignments of arguments in need of a name, and the body with the others put in place of their parameters.

        For `f(x.exp(), 2)` they are `a = x.exp()`, and the body with `a` and `2`. An argument needs a name if its parameter is
        reassigned, or if it would be evaluated twice or at a time that matters; an unknown name too, as `_is_plain` says.
        """
        pure = is_pure([*body, *arguments.values()])
        # Literals and names: they replace their parameters first, so that tests of them settle.
        fixed = {
            name: value
            for name, value in arguments.items()
            if name not in stored(body) and self._is_plain(value)
        }
        body = [substituted(item, fixed) for item in body]
        body = folded(body, self.there)
        before: Block = []
        values: dict[str, ast.expr] = {}
        for name, value in arguments.items():
            if name in fixed:
                continue
            # Asked again: folding may have removed the assignment of a parameter.
            is_plain, reassigned = self._is_plain(value), name in stored(body)
            once = pure and reads(body, name) <= 1 and not isinstance(value, ast.Name)
            if not reassigned and (is_plain or once):
                values[name] = value
                continue
            local = self._fresh(name, function, call)
            split = None
            # Up to that assignment a plain argument stands for the parameter itself, after it the local.
            if reassigned and is_plain:
                split = versioned(body, name, value, local, self.there)
            if split is None:
                before.append(named(local, value))
                values[name] = ast.Name(local, ast.Load())
            body = split or body
        return before, [substituted(item, values) for item in body]

    def _is_plain(self, value: ast.expr) -> bool:
        """Return whether an argument may replace its parameter: a literal, a name known to have a value, or a tuple of simple values.

        An unknown name alone may not: it gets a name at the call, where the problem belongs.
        """
        known = self.readable | self.made
        name = value.id if isinstance(value, ast.Name) else ""
        # "" for a literal, `torch.float64` or a tuple; a name with a dot is a local of a called function, so it has a value.
        return is_simple(value) and (not name or "." in name or name in known)

    def _fresh(self, name: str, function: Function, call: ast.Call) -> str:
        """Return a free name for a local: its own, else prefixed by its function or an argument.

        In `norm(a) + norm(b)` the second `mean` is `b_mean`; for other calls it is `norm_mean`.
        """
        # Of a private `_norm` too the local is `norm_mean`.
        local, owner = own_name(name), own_name(function.name).strip("_")
        choices = [local, f"{owner}_{local}"]
        if local in self.made and call.args and isinstance(call.args[0], ast.Name):
            # The name was given to the local of another call: the argument tells the two apart.
            choices.insert(1, f"{call.args[0].id}_{local}")
        return self.free(*choices)

    def free(self, *choices: str) -> str:
        """Return the first free name, else the last with a number, and mark it as taken."""
        name = take(self.taken, *choices)
        self.made |= {name}
        return name


def own_name(identifier: str) -> str:
    """Return the user's name for a resolved name: `mean` for the local `norm.mean`, `norm` for the function `@norm`."""
    return identifier.rpartition(".")[2].removeprefix("@")


def bound_arguments(call: ast.Call, function: Function) -> dict[str, ast.expr]:
    """Return the expression of each parameter in a call: an argument, or else the parameter's default.

    Raise a `Refusal` if the arguments do not fit the parameters.
    """
    params = function.arguments
    shown = own_name(function.name)
    positional = [item.arg for item in (*params.posonlyargs, *params.args)]
    by_keyword = (*params.args, *params.kwonlyargs)
    by_name = {own_name(item.arg): item.arg for item in by_keyword}
    hint = f"its parameters: {', '.join(map(own_name, _all(function)))}"
    if params.vararg or params.kwarg:
        message = f"'{shown}' takes any number of arguments"
        raise Refusal(call, message, "give it a parameter for each")
    if len(call.args) > len(positional):
        surplus = call.args[len(positional)]
        takes = f"'{shown}' takes {len(positional)} argument"
        plural = "" if len(positional) == 1 else "s"
        message = f"{takes}{plural}, and gets {len(call.args)}"
        raise Refusal(surplus, message, hint)
    # Not strict: the others come by keyword or have a default. Of the keywords, `**` is refused first.
    found = dict(zip(positional, call.args, strict=False))
    starred: list[ast.expr] = [x for x in call.args if isinstance(x, ast.Starred)]
    starred += [word.value for word in call.keywords if word.arg is None]
    if starred:
        raise Refusal(starred[0], f"call '{shown}' without * or **", hint)
    for word in call.keywords:
        name = by_name.get(word.arg or "")
        if name is None:
            raise Refusal(word, f"'{shown}' takes no argument '{word.arg}'", hint)
        if name in found:
            raise Refusal(word, f"'{shown}' gets '{word.arg}' twice", hint)
        found[name] = word.value
    preset = defaults(params)
    for name in (name for name in _all(function) if name not in found):
        own = own_name(name)
        if name not in preset:
            raise Refusal(call, f"'{shown}' is called without '{own}'", hint)
        found[name] = constant(preset[name], own, "pass it as an argument")
    return found


def constant(default: ast.expr, name: str, hint: str) -> ast.expr:
    """Return the default of a parameter; raise a `Refusal` with the hint unless it is a constant, so it can be written anywhere."""
    if is_constant(default, ALWAYS):
        return default
    message = f"the default of '{name}' is not a constant"
    raise Refusal(default, message, hint)


def _all(function: Function) -> list[str]:
    """Return the names of a function's parameters in order."""
    return [item.arg for item in parameters(function.arguments)]


def returned(
    function: Function, body: Block, idle: bool = False
) -> tuple[Block, ast.expr]:
    """Split a body into the statements before the return and the returned value.

    An `idle` call may return nothing, since its value is not used; the value is then None. `y = f(x); return y` gives `f(x)`.
    Raise a `Refusal` for a return that `with_one_return` cannot move to the end, or a missing one.
    """
    shown = own_name(function.name)
    own = set(stored(body))
    body = with_one_return(body)
    # Names that `with_one_return` brought in become locals of this function.
    new_names = {name: f"{shown}.{name}" for name in stored(body) if name not in own}
    body = [renamed(item, new_names) for item in body]
    early = [
        node
        for item in body[:-1]
        for node in ast.walk(item)
        if isinstance(node, ast.Return)
    ]
    if early:
        raise Refusal(
            early[0],
            f"'{shown}' has a return before its last statement",
            "assign a name in each branch",
        )
    last = body[-1] if body else None
    value = last.value if isinstance(last, ast.Return) else None
    rest = body[:-1] if isinstance(last, ast.Return) else body
    if value is None:
        at = last or function.node
        if idle:
            return rest, ast.copy_location(ast.Constant(None), at)
        hint = f"end it with: return ..., or call it alone: {shown}(...)"
        raise Refusal(at, f"'{shown}' returns nothing", hint)
    match rest[-1:], value:
        case [ast.Assign([ast.Name(name)], made)], ast.Name(
            name_returned
        ) if name == name_returned and name not in stored(rest[:-1]):
            # A name of several lines stays, so that the caller's target can take its place in all.
            return rest[:-1], made
    return rest, value


def without_gradient(
    function: Function, body: Block, value: ast.expr
) -> tuple[Block, ast.expr]:
    """Return a call's statements under `with torch.no_grad():`, and the names of its values.

    A returned expression is computed inside the block, so it gets a name there: `return x * 2` of `f` gives
    `f.value = x * 2`. `body` and `value` are the function's statements and returned expression.
    """
    shown = own_name(function.name)
    values = value.elts if isinstance(value, ast.Tuple) else [value]
    lines, names, local = [*body], list[str](), stored(body)
    for item in values:
        if isinstance(item, ast.Name) and item.id in local:
            names.append(item.id)
            continue
        names.append(f"{shown}.value{len(names) + 1 if len(values) > 1 else ''}")
        lines.append(named(names[-1], item))
    (block,) = ast.parse("with torch.no_grad(): pass").body
    assert isinstance(block, ast.With)
    placed(block, value).body = lines
    results = [load_of(name, item) for name, item in zip(names, values, strict=True)]
    if not isinstance(value, ast.Tuple):
        return [block], results[0]
    return [block], ast.copy_location(ast.Tuple([*results], ast.Load()), value)


def names_of_target(
    target: ast.expr | None, value: ast.expr, local: set[str], seen: set[str]
) -> dict[str, str]:
    """Return new names for returned locals, after the targets of the assignment: `{"half.result": "y"}` for `y = half(x)`.

    So no line `y = result` is needed. `value` is the expression the function returns. `local` are the names the function binds,
    `seen` all names in it: a target among these would clash. A local has a dot in its name; it is renamed once.
    """
    pairs: list[tuple[ast.expr, ast.expr]] = []
    match target, value:
        case ast.Name(), ast.Name():
            pairs = [(target, value)]
        case ast.Tuple(targets), ast.Tuple(values) if len(targets) == len(values):
            pairs = list(zip(targets, values, strict=True))
    found: dict[str, str] = {}
    for new, old in pairs:
        if not isinstance(new, ast.Name) or not isinstance(old, ast.Name):
            continue
        # Without a dot it is a parameter: its first line, `t = x.exp()`, stands before the body.
        if (
            "." in old.id
            and old.id in local
            and new.id not in seen
            and old.id not in found
        ):
            found[old.id] = new.id
    return found


def assigned_values(item: ast.Assign) -> list[ast.stmt]:
    """Return the statements for an assignment of a call's value: `a, b = c, d` as two if equivalent, none for `a = a`.

    It is not equivalent if `d` reads `a`, or if the order of the values matters; the statement then stays.
    """
    match item:
        case ast.Assign([ast.Name(name)], ast.Name(same)) if name == same:
            return []
        case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)) if len(targets) == len(
            values
        ):
            pass
        case _:
            return [item]
    done: list[ast.stmt] = []
    for at, (target, value) in enumerate(zip(targets, values, strict=True)):
        if not isinstance(target, ast.Name) or target.id in names_in(values[at + 1 :]):
            return [item]
        if not (isinstance(value, ast.Name) and value.id == target.id):
            done.append(ast.copy_location(ast.Assign([target], value), item))
    return done if is_pure(values) else [item]


class Sites(ast.NodeTransformer):
    """A replacement of the calls in one expression by their values.

    After the visit `before` are the statements to run ahead of the expression; `whole` is true if `root` was nothing but a call.
    """

    def __init__(
        self,
        inliner: "Inliner",
        known: dict[str, Function],
        root: ast.expr | None = None,
        target: ast.expr | None = None,
        conditional: bool = False,
        idle: bool = False,
    ) -> None:
        """Prepare to visit an expression: the value of a statement, then given as `root`, or a part of one, such as a test.

        The value of the root is assigned to `target`, or not used if it is `idle`. `known` are the nested functions. In a
        `conditional` part, which may not run, no call may need statements.
        """
        self.inliner, self.known = inliner, known
        self.is_call = isinstance(root, ast.Call)  # the root is nothing but a call
        self.target, self.conditional, self.idle = target, conditional, idle
        self.before: list[ast.stmt] = []
        self.whole = False
        self.depth = 0  # of the node being visited; 1 for the expression itself
        self.seen: list[ast.expr] = []  # expressions evaluated so far

    def visit(self, node: ast.AST) -> ast.expr:
        """Visit a node, and note its expression in `seen`: it is evaluated before whatever follows.

        Lines of a later call would run before it, and are refused if the order matters.
        """
        self.depth += 1
        found: ast.expr = super().visit(node)
        self.depth -= 1
        # For a name or a literal it does not matter when it is evaluated.
        if isinstance(node, ast.expr) and not isinstance(node, ast.Name | ast.Constant):
            self.seen.append(found)
        return found

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Return the value of an inlined call, its lines added to `before`; visit the parts of any other call, which stays.

        A value that changes a tensor or is random, inside a larger expression, gets a name in these lines.
        """
        function = self.inliner.called(node.func, self.known)
        earlier = list(self.seen)
        # For a call that stays, Python evaluates the callee before the arguments; an
        # inlined callee is not evaluated.
        if function is None:
            node.func = self.visit(node.func)
            if _is_dotted(node.func):  # `torch.tanh`, which nothing can change
                self.seen = earlier[:]
        node.args = [part for item in node.args for part in _unpacked(self.visit(item))]
        for word in node.keywords:
            word.value = self.visit(word.value)
        if function is None:
            return node
        # The arguments of an inlined call are a part of its lines, no longer something to the left of them.
        self.seen = earlier
        whole = self.is_call and self.depth == 1
        before, value = self.inliner.instance(
            node,
            function,
            self.known,
            self.target if whole else None,
            self.conditional,
            whole and self.idle,
        )
        # A conditional part can have no lines, so its value stays in place.
        if not whole and not self.conditional and not is_pure([value]):
            before, value = self._named(before, value)
        self._check_order(node, function, before)
        self.before += before
        self.whole = self.whole or whole
        return value

    def _named(
        self, before: list[ast.stmt], value: ast.expr
    ) -> tuple[list[ast.stmt], ast.expr]:
        """Return the statements with an assignment of the value added, and the value's new name.

        An impure value must be computed with the statements (`before`), not later in the expression.
        """
        name = self.inliner.free("value")
        return [*before, named(name, value)], load_of(name, value)

    def _check_order(
        self, node: ast.Call, function: Function, before: list[ast.stmt]
    ) -> None:
        """Raise if the inlined lines would run before an expression to their left, and the order matters.

        It matters if one of the two changes a tensor, or if both draw random numbers.
        """
        swapped = (
            (changes(before) and self.seen)
            or (before and changes(self.seen))
            or (is_random(before) and is_random(self.seen))
        )
        if swapped:
            shown = own_name(function.name)
            message = (
                f"'{shown}' would run too early: before the expressions to its left"
            )
            raise Swapped(node, message, "call it on a line above: value = ...")

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Raise a `Refusal` for a function used as a value: only its calls can be inlined."""
        if node.id.startswith("@") or node.id in self.known:
            shown = own_name(node.id)
            hint = f"call it: {shown}(...)"
            raise Refusal(node, f"the function '{shown}' is used as a value", hint)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        """Visit `a if test else b`: only one of `a` and `b` runs."""
        node.test = self.visit(node.test)
        node.body, node.orelse = self._chosen(node.body), self._chosen(node.orelse)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """Visit `a and b`: operands after the first may not run."""
        first, *others = node.values
        node.values = [self.visit(first), *map(self._chosen, others)]
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Visit `a < f(x) < g(x)`: Python calls g only if the first comparison holds."""
        node.left = self.visit(node.left)
        first, *others = node.comparators
        node.comparators = [self.visit(first), *map(self._chosen, others)]
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return node  # not allowed in a formula

    visit_SetComp = visit_DictComp = visit_Lambda  # type: ignore[assignment]

    def visit_ListComp(self, node: ast.ListComp | ast.GeneratorExp) -> ast.expr:
        """Write out a comprehension over calls of the file's functions: each element is a call of its own."""
        return self._written_out(node) or node

    visit_GeneratorExp = visit_ListComp

    def _written_out(self, node: ast.ListComp | ast.GeneratorExp) -> ast.expr | None:
        """Return a comprehension as a list of its elements if it calls functions of the file, else None.

        A call inlined in it needs statements, and these cannot stand in a comprehension.
        """
        calls = self._functions_in(node)
        if not calls:
            return None
        elements = elements_of(node, self.inliner.readable)
        if elements is None:
            shown = own_name(calls[0].id)
            message = f"'{shown}' is called in a comprehension: its values are not listed, as in [f(t) for t in (x, y)]"
            hint = f"write a loop: for ...: found.append({shown}(...))"
            raise Refusal(calls[0], message, hint)
        listed = self.visit(ast.copy_location(ast.List(elements, ast.Load()), node))
        assert isinstance(listed, ast.expr)
        return listed

    def _functions_in(self, node: ast.expr) -> list[ast.Name]:
        """Return the names in an expression that mean functions to inline: of the file (`@name`), or nested ones."""
        return [
            item
            for item in ast.walk(node)
            if isinstance(item, ast.Name)
            and (item.id.startswith("@") or item.id in self.known)
        ]

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """Replace `halves(x)[0]`, after inlining the call, by `a` if the function returns `a, b` and computing `b` has no effect.

        Raise a Refusal for an index of a function itself, `kernel[grid]`: only Triton's have one.
        """
        match node.value:
            case ast.Name(name) if name.startswith("@") or name in self.known:
                message = f"'{own_name(name)}[...]' launches a kernel"
                raise Refusal(node, message, IMPORTED)
        # Asked before the visit, which puts the returned tuple in the place of the call.
        made = isinstance(node.value, ast.Call)
        self.generic_visit(node)
        match node:
            case ast.Subscript(ast.Tuple(items), ast.Constant(int(at))) if (
                made and at < len(items) and is_pure(items)
            ):
                return items[at]
        return node

    def _chosen(self, node: ast.expr) -> ast.expr:
        """Visit an expression evaluated in some runs only: a call in it that needs statements raises NotHere."""
        outer, self.conditional = self.conditional, True
        found = self.visit(node)
        self.conditional = outer
        return found


def _is_dotted(node: ast.expr) -> bool:
    """Return whether an expression is a dotted name: `F.relu`, `x.exp`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _unpacked(value: ast.expr) -> list[ast.expr]:
    """Return the arguments a starred tuple stands for, `a` and `b` for `*(a, b)`; any other argument alone."""
    match value:
        case ast.Starred(ast.Tuple(items)):
            return items
    return [value]


def as_statement_if(item: Valued, value: ast.IfExp) -> ast.If:
    """Return `if c: y = a`, `else: y = b` for `y = a if c else b`; so too for a `return` or another statement of the value."""
    parts: list[list[ast.stmt]] = []
    for chosen in (value.body, value.orelse):
        part = copy.copy(item)
        # Without the annotation, a local that the call returns can be named `y` itself.
        if isinstance(item, ast.AnnAssign):
            part = ast.copy_location(ast.Assign([item.target], chosen), item)
        part.value = chosen
        parts.append([part])
    return ast.copy_location(ast.If(value.test, *parts), item)


def place_holder(item: ast.stmt) -> ast.stmt:
    """Return a stand-in for a statement reported as a problem, `y = None` for `y = f(x)`: so `y` is no unknown name below."""
    target = item.targets[0] if isinstance(item, ast.Assign) else None
    nothing = ast.copy_location(ast.Constant(None), item)
    if isinstance(target, ast.Name | ast.Tuple):
        return ast.copy_location(ast.Assign([target], nothing), item)
    if isinstance(item, ast.Return):
        return ast.copy_location(ast.Return(nothing), item)
    return ast.copy_location(ast.Assign([store_of("_", item)], nothing), item)
