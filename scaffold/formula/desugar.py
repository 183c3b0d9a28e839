"""Desugaring: chained and tuple assignments and early returns -> one target each, one return at the end.

The parser of straight-line statements accepts few forms; this module brings what people write into them, before each parse:

    a = b = x                             -> a = x;  b = a
    if c: return x                        -> if c: result = x
    return y                                 else: result = y;  and at the end: return result
    with torch.no_grad(): m = x.amax(-1)  -> m = x.amax(-1).detach()
    rows.append(x)                        -> rows = [*rows, x]

Words: a *constant* here is a value without a gradient, as all computed under `torch.no_grad()`; a value is *new* if it is no
alias of a tensor from outside; a name is *made* in a block if it is assigned a new value there, and *taken* if no new name may
be equal to it; a body *closes* if each path through it ends in a return or a raise; a *way* is one branch.

In: the statements of a formula. Out: the same without statements that do nothing; each assigns one target, which either
is a part of a tensor or contains none; with `result = ...` in each branch that returns. Invariant: the statements
passed in stay as they are, and none is repeated: if a single return would need repetition, they come back unchanged.
"""

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain

from scaffold.formula.constant_folding import without_empty
from scaffold.formula.names import IMPORTS, load_of, names_in, store_of, stored, take
from scaffold.formula.substitution import changes, is_pure, named, placed, substituted
from scaffold.primitives.calls import (
    constant_tensors,
    facts_of_attribute,
    is_in_place,
    may_be_argument,
    may_be_several_tensors,
    may_compute_lower,
)

NAME = "result"  # the name assigned by the branches
DETACHED = "value.detach()"
UNKNOWN = 'raise ValueError(f"unknown {0}: {{{0}}}")'


def plain(
    body: Sequence[ast.stmt], taken: Collection[str] = frozenset()
) -> list[ast.stmt]:
    """Return statements with one target each: chained assignments split, `pass` and bare annotations dropped.

    `a = b = x` becomes two assignments. `v[0], a = x, y` gets names for the parts that are not
    `taken`, so that all values are computed before `v` changes.
    """
    return _Plain({*taken, *names_in(body)}).block(body)


class _Plain:
    """The rewriter behind `plain`; `taken` are the names no new local may have."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = taken

    def block(self, body: Iterable[ast.stmt]) -> list[ast.stmt]:
        """Return statements with one target each, without `pass`, bare annotations, `del` and imports."""
        found: list[ast.stmt] = []
        for item in body:
            match item:
                case ast.Pass() | ast.AnnAssign(value=None):
                    pass
                case ast.Import() | ast.ImportFrom() if ast.unparse(item) in IMPORTS:
                    pass  # `import torch`: every formula has this name
                case ast.Delete(names) if all(isinstance(x, ast.Name) for x in names):
                    pass  # generated code keeps only saved tensors alive anyway
                case ast.Assign(
                    [ast.Tuple(targets)], ast.Tuple(values)
                ) if star := _star_targets(targets, values):
                    found += self.block(_split_star(item, targets, values, star))
                case ast.Assign([target], value):
                    found += self._with_parts_named(item, target, value)
                # `a = b = x`: the first name keeps the value for the other targets.
                case ast.Assign([ast.Name(name) as first, *others], value):
                    found.append(_assigned(item, first, value))
                    found += self._each(item, others, name)
                case ast.Assign(targets, value):  # `v[0] = a = x`
                    name = take(self.taken, "value")
                    found.append(_assigned(item, store_of(name, item), value))
                    found += self._each(item, targets, name)
                case ast.If(test, inner, other):
                    choice = ast.If(test, self.block(inner), self.block(other))
                    found += without_empty(ast.copy_location(choice, item))
                case _:
                    found.append(item)
        return found

    def _each(
        self, item: ast.stmt, targets: Sequence[ast.expr], name: str
    ) -> Iterator[ast.stmt]:
        """Yield an assignment to each target of the value that has been given a name: `b = a`, `v[0] = a`."""
        for target in targets:
            yield from self._with_parts_named(item, target, load_of(name, target))

    def _with_parts_named(
        self, item: ast.stmt, target: ast.expr, value: ast.expr
    ) -> Iterator[ast.stmt]:
        """Yield assignments with parts of tensors as targets of their own.

        `v[0], w = x, y` -> `v_part, w = x, y` and `v[0] = v_part`: both values are computed before `v` changes.
        """
        parts = list(_parts(target))
        changed = [part for part in parts if isinstance(part, ast.Subscript)]
        # `v[0] = x` alone, or no part of a tensor at all: nothing to pull apart.
        if target in changed or not changed:
            yield _assigned(item, target, value)
            return
        # In `v[i], i = x, 1` the new `i` may only be assigned after `v[i]`: then all get names.
        reassigned = names_in(changed).intersection(stored([target]))
        names = {
            id(part): take(self.taken, _stem(part))
            for part in parts
            if part in changed or reassigned and isinstance(part, ast.Name)
        }
        yield _assigned(item, _renamed(target, names), value)
        for part in parts:
            if id(part) in names:
                yield _assigned(item, part, load_of(names[id(part)], part))


def _star_targets(
    targets: Sequence[ast.expr], values: Sequence[ast.expr]
) -> slice | None:
    """Return the slice of targets filled by `*x.shape` in `b, t, n = *x.shape, 2`: here the first two.

    None if the assignment cannot be split by `_split_star`: if not exactly one value has a star, or it would fill no target; if a
    target is no name, as in `v[0], n = *x.shape, 2`; if a value reads an assigned name, or the order of the values matters.
    """
    stars = [at for at, one in enumerate(values) if isinstance(one, ast.Starred)]
    if len(stars) != 1 or not all(isinstance(one, ast.Name) for one in targets):
        return None
    # The star stands for this many values and one more.
    more = len(targets) - len(values)
    # `x, n = *x.shape, x.ndim`: the second of two assignments would read another x.
    if more < 0 or names_in(targets) & names_in(values) or not is_pure(values):
        return None
    return slice(stars[0], stars[0] + more + 1)


def _split_star(
    item: ast.stmt, targets: list[ast.expr], values: list[ast.expr], star: slice
) -> Iterator[ast.stmt]:
    """Yield `b, t = x.shape` and `n = 2` for `b, t, n = *x.shape, 2`; `star` is the slice of `_star_targets`."""
    sizes = values[star.start]
    assert isinstance(sizes, ast.Starred)
    pairs: list[tuple[ast.expr, ast.expr]] = [
        *zip(targets[: star.start], values[: star.start], strict=True),
        (ast.Tuple(targets[star], ast.Store()), sizes.value),
        *zip(targets[star.stop :], values[star.start + 1 :], strict=True),
    ]
    for target, value in pairs:
        made = ast.copy_location(ast.Assign([target], value), item)
        yield ast.fix_missing_locations(made)


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    """Yield the single targets inside a target, from left to right: `a`, `b`, `c[0]` for `a, (b, *c[0])`."""
    match target:
        case ast.Tuple(elts) | ast.List(elts):
            for item in elts:
                yield from _parts(item)
        case ast.Starred(inner):
            yield from _parts(inner)
        case _:
            yield target


def _stem(part: ast.expr) -> str:
    """Return a name for the value assigned to a part of a target: `v_part` for `v[0]`."""
    base = part
    while isinstance(base, ast.Subscript):
        base = base.value
    return f"{base.id}_part" if isinstance(base, ast.Name) else "part"


def _renamed(target: ast.expr, names: dict[int, str]) -> ast.expr:
    """Return a target with some parts replaced by names: `v_part, w` for `v[0], w`; `names` has them by the part's `id`."""
    match target:
        case _ if id(target) in names:
            return store_of(names[id(target)], target)
        case ast.Tuple(elts) | ast.List(elts):
            inner = [_renamed(item, names) for item in elts]
            return ast.copy_location(ast.Tuple(inner, ast.Store()), target)
        case ast.Starred(inner):
            starred = ast.Starred(_renamed(inner, names), ast.Store())
            return ast.copy_location(starred, target)
    return target


def _assigned(item: ast.stmt, target: ast.expr, value: ast.expr) -> ast.Assign:
    """Return `target = value` at the place of a statement; the statement itself if it says just this."""
    if isinstance(item, ast.Assign) and item.targets == [target]:
        return item
    return ast.copy_location(ast.Assign([target], value), item)


def with_one_return(
    body: list[ast.stmt], taken: Collection[str] = ()
) -> list[ast.stmt]:
    """Replace early returns by `result = ...` in each branch and one return at the end.

    The statements come back unchanged if no branch returns early, or if one return would need repeated statements. `taken`
    names cannot be the result's.
    """
    body = _with_last_resort(body)
    early = any(isinstance(item, ast.If) and _returns(item) for item in body)
    if not early or not _closes(body):
        return body
    values = [node.value for item in body for node in _returns_in(item)]
    names = _result_names(values, {*taken, *names_in(body)})
    if names is None:
        return body
    done = _with_assignments(body, names)
    last = ast.Return(_of_names(names, ast.Load()))
    return [*done, ast.fix_missing_locations(ast.copy_location(last, body[-1]))]


def _with_last_resort(body: list[ast.stmt]) -> list[ast.stmt]:
    """Add an `else` with a `raise`, the last resort, to a final chain of `if mode == "sum": return ...` without `else`.

    It would otherwise return nothing in another mode, and a formula always has a result.
    """
    last = body[-1] if body else None
    if not isinstance(last, ast.If) or not _returns(last):
        return body
    inner = _with_last_resort(last.body)
    if not _closes(inner):
        return body  # no mode: it falls through even if the test holds
    # Without an `else` the first is []; with one, an `elif` chain, its own end is closed instead.
    orelse = _with_last_resort(last.orelse) or _last_resort(last)
    if not orelse:
        return body
    closed = ast.If(last.test, inner, orelse)
    return [*body[:-1], ast.copy_location(closed, last)]


def _last_resort(item: ast.If) -> list[ast.stmt]:
    """Return `raise ValueError(f"unknown mode: {mode}")` as the missing `else` of `if mode == "sum"`, or of a test of a rank.

    [] if the test is about anything else.
    """
    match item.test:
        case ast.Compare(chosen, [ast.Eq() | ast.In()], [value]) if isinstance(
            value, ast.Constant | ast.Tuple | ast.List
        ) and (isinstance(chosen, ast.Name) or _is_rank(chosen)):
            error = ast.parse(UNKNOWN.format(ast.unparse(chosen)))
            return placed(error, item).body
    return []


def _is_rank(item: ast.expr) -> bool:
    """Return whether an expression is the rank of a name: `x.ndim`, `x.dim()`, `len(x.shape)`; tests of it list modes, too."""
    match item:
        case (
            ast.Attribute(ast.Name(), "ndim")
            | ast.Call(ast.Attribute(ast.Name(), "dim"), [], [])
            | ast.Call(ast.Name("len"), [ast.Attribute(ast.Name(), "shape")], [])
        ):
            return True
    return False


def with_modes_closed(body: Sequence[ast.stmt], tests: set[str]) -> list[ast.stmt]:
    """Add a `raise` as the missing `else` of choices between modes, if the last test is one of `tests`, as text.

    `if mode == "a": y = ...`, `elif mode == "b": y = ...` assigns no `y` in another mode, and a later read of `y` would raise.
    """
    return [_closed_mode(item, tests, False) for item in body]


def _closed_mode(item: ast.stmt, tests: set[str], chained: bool) -> ast.stmt:
    """Return an `if` with the `else` added by `with_modes_closed`; it is an `elif` of another if `chained`.

    A single `if` without `else` is no list of modes, so it gets none. Other statements come back as they are.
    """
    if not isinstance(item, ast.If):
        return item
    inner = with_modes_closed(item.body, tests)
    if not item.orelse and chained and ast.unparse(item.test) in tests:
        orelse = _last_resort(item)
    # An `elif` is an `if` that is alone in the `else`.
    elif len(item.orelse) == 1:
        orelse = [_closed_mode(item.orelse[0], tests, True)]
    else:
        orelse = with_modes_closed(item.orelse, tests)
    return ast.copy_location(ast.If(item.test, inner, orelse), item)


def _returns_in(item: ast.AST) -> list[ast.Return]:
    return [node for node in ast.walk(item) if isinstance(node, ast.Return)]


def _returns(item: ast.AST) -> bool:
    return bool(_returns_in(item))


def _closes(body: Sequence[ast.stmt]) -> bool:
    """Return whether every path ends in a returned value or a raise, and no path needs a copy of another's statements.

    Statements after an `if` that returns must belong to one branch of it: the other one has returned. If the body of that
    `if` does not close, it runs on into them.
    """
    for at, item in enumerate(body):
        # With statements below it, or without a value, it is reported by `statements`.
        if isinstance(item, ast.Return | ast.Raise):
            returns_none = isinstance(item, ast.Return) and item.value is None
            return at == len(body) - 1 and not returns_none
        if isinstance(item, ast.If) and _returns(item):
            rest = body[at + 1 :]
            if _closes(item.body):
                return _closes([*item.orelse, *rest])
            return _closes(item.orelse) and _closes([*item.body, *rest])
        if _returns(item):
            return False  # inside a loop or a `with`
    return False


def _result_names(
    values: Sequence[ast.expr | None], taken: set[str]
) -> list[str] | None:
    """Return one free name for the result, or as many as each return has values; None if the returns differ in number.

    They are `result`, or `result_0`, `result_1` for tuples of two. `values` are those of the returns.
    """
    # 0 for one value; a tuple counts only if the text lists its items.
    counts = {
        len(value.elts) if isinstance(value, ast.Tuple) else 0 for value in values
    }
    if len(counts) > 1:
        return None
    count = counts.pop()
    stem = NAME
    # `result_0` must be free too, for a tuple of results.
    while any(name == stem or name.startswith(f"{stem}_") for name in taken):
        stem = f"{stem}_value"
    return [f"{stem}_{at}" for at in range(count)] if count else [stem]


def _of_names(names: Sequence[str], context: ast.expr_context) -> ast.expr:
    """Return one name, or a tuple of several; `context` tells whether they are read or assigned."""
    items: list[ast.expr] = [ast.Name(name, context) for name in names]
    return items[0] if len(items) == 1 else ast.Tuple(items, context)


def _with_assignments(body: Sequence[ast.stmt], names: Sequence[str]) -> list[ast.stmt]:
    """Replace returns by assignments to `names`; statements after a returning branch go into the other one."""
    done: list[ast.stmt] = []
    for at, item in enumerate(body):
        if isinstance(item, ast.Return) and item.value is not None:
            value = ast.Assign([_of_names(names, ast.Store())], item.value)
            return [*done, ast.fix_missing_locations(ast.copy_location(value, item))]
        if isinstance(item, ast.If) and _returns(item):
            rest = list(body[at + 1 :])  # they run if this `if` did not return
            inner, other = item.body, item.orelse
            if _closes(inner):
                other = [*other, *rest]
            else:
                inner = [*inner, *rest]
            parts = (_with_assignments(inner, names), _with_assignments(other, names))
            return [*done, ast.copy_location(ast.If(item.test, *parts), item)]
        done.append(item)
    return done


# Functions of numbers: autocast does not change what they give.
NUMBERS = ("float", "int", "len", "max", "min")
# Contexts that switch gradients back on within `torch.no_grad()`.
RECORDS = ("enable_grad", "set_grad_enabled")

# --- Statements with no counterpart in a formula, as equivalent assignments.


def straightened(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return statements with `with` blocks and growing lists replaced by plain assignments; a `with` of another kind stays.

    `with torch.no_grad(): m = x.amax(-1)` becomes `m = x.amax(-1).detach()`, and
    `rows.append(x)` becomes `rows = [*rows, x]`.
    """
    return _straightened(body, _lists(body))


def _straightened(body: Sequence[ast.stmt], lists: Collection[str]) -> list[ast.stmt]:
    """Return statements with appends to `lists` and the bodies of `with` blocks written out.

    `lists` are the names of lists created in the forward, known by one name only. An append in a branch stays: straight-line
    code cannot tell the list's length after it.
    """
    found: list[ast.stmt] = []
    for item in body:
        match item:
            case ast.With([ast.withitem(context, None)], inner):
                found += _without_mode(ast.unparse(context), inner) or [item]
            case ast.If(test, inner, other):
                ways = (_straightened(way, frozenset()) for way in (inner, other))
                found.append(ast.copy_location(ast.If(test, *ways), item))
            case ast.Expr(
                ast.Call(ast.Attribute(ast.Name(name), "append"), [value], [])
            ) if (name in lists):
                found.append(_appended(item, name, value))
            case ast.AugAssign(ast.Name(name), ast.Add(), ast.List() as value) if (
                name in lists
            ):
                more = ast.copy_location(ast.Starred(value, ast.Load()), value)
                found.append(_appended(item, name, more))
            case _:
                found.append(item)
    return found


def _without_mode(mode: str, inner: Sequence[ast.stmt]) -> list[ast.stmt] | None:
    """Return the statements of a `with` block, detached for `torch.no_grad()`; None if the context is not supported.

    `mode` is the source of the context, `inner` its statements. `torch.enable_grad()`, and `torch.autocast` when disabled and
    without effect, change nothing. A `no_grad` block that switches gradients on again is not supported.
    """
    if mode == "torch.enable_grad()" or _is_without_autocast(mode, inner):
        return _straightened(inner, frozenset())
    switches_on = any(word in ast.unparse(item) for item in inner for word in RECORDS)
    if mode != "torch.no_grad()" or switches_on:
        return None
    return _constants(_straightened(inner, frozenset()), set())


def _is_without_autocast(mode: str, inner: Sequence[ast.stmt]) -> bool:
    """Return whether a context is `torch.autocast(..., enabled=False)` without effect on the statements in it.

    It has none if autocast would not run any of their operations at lower precision. A product, a loop, or a function not
    known here may be such an operation.
    """
    match ast.parse(mode, mode="eval").body:
        case ast.Call(ast.Attribute(_, "autocast") | ast.Name("autocast"), _, keywords):
            words = {word.arg: ast.unparse(word.value) for word in keywords}
        case _:
            return False
    nodes = [node for item in inner for node in ast.walk(item)]
    called = [node.func for node in nodes if isinstance(node, ast.Call)]
    names = (of.attr for of in called if isinstance(of, ast.Attribute))
    lower = any(isinstance(node, ast.MatMult | ast.For) for node in nodes)
    lower |= any(isinstance(of, ast.Name) and of.id not in NUMBERS for of in called)
    lower |= any(map(may_compute_lower, names))
    return words.get("enabled") == "False" and not lower


def _constants(body: Sequence[ast.stmt], made: set[str]) -> list[ast.stmt] | None:
    """Return the statements of a `no_grad` block, detached; None if unsure for one. `made` (updated) are names made in it."""
    found: list[ast.stmt] = []
    for item in body:
        lines: list[ast.stmt]
        match item:
            case ast.If():
                choice = _choice_of_constants(item, made)
                if choice is None:
                    return None
                found.append(choice)
                continue
            case ast.Assign([ast.Name(alias)], ast.Name(name)) if name not in made:
                found.append(item)  # the value is from outside, and keeps its gradient
                made.discard(alias)
                continue
            case ast.Raise() | ast.Assert():
                lines, sure = [item], True
            case ast.Assign([ast.Tuple(parts)], value):
                lines = [item, *_each_constant(item, stored(parts))]
                are_names = all(isinstance(part, ast.Name) for part in parts)
                sure = are_names and _are_new(value, made)
            case ast.Assign([ast.Name() as target], value):
                lines, sure = [_constant(item, target, value)], _is_new(value, made)
            case ast.Assign([ast.Subscript(ast.Name(name)) as target], value):
                lines, sure = [_constant(item, target, value)], name in made
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), method)) as call):
                # After `h.add_(y)` h is detached; `h.scatter_(0, index, 1)` gives it no gradient.
                recorded = _may_be_recorded(method, call)
                lines = [item, *_each_constant(item, [name] if recorded else [])]
                sure = name in made and is_in_place(method)
            case ast.AugAssign(ast.Name(name), _, value):  # `q /= q.sum(0)`
                lines = [_changed_by_constant(item, made)]
                sure = name in made and not changes([value])
            case _:
                return None
        if not sure:
            return None
        made.update(stored([item]))
        found += lines
    return found


def _changed_by_constant(item: ast.AugAssign, made: Collection[str]) -> ast.AugAssign:
    """Return `q /= value.detach()` for `q /= value`; an operand of names without a gradient (`made`) stays as it is."""
    if names_in([ast.Expr(item.value)]) <= {*made}:
        return item
    value = _constant(item, item.target, item.value).value
    return ast.copy_location(ast.AugAssign(item.target, item.op, value), item)


def _may_be_recorded(method: str, call: ast.Call) -> bool:
    """Return whether autograd would record an in-place call outside of `no_grad`: an argument may be a tensor with a gradient.

    It may for `h.add_(y)`, not for `h.scatter_(0, index, 1)`. `without` are the positions and names of parameters that have no
    gradient.
    """
    without = {*chain.from_iterable(constant_tensors(method.removesuffix("_")))}
    named = ((item.arg, item.value) for item in call.keywords)
    return any(
        place not in without and not isinstance(value, ast.Constant)
        # From 1, since position 0 is the receiver.
        for place, value in (*enumerate(call.args, 1), *named)
    )


def _choice_of_constants(item: ast.If, made: set[str]) -> ast.If | None:
    """Return an `if` with the values in both branches detached; None if unsure for one of them.

    Afterwards only the names detached in both branches are in `made`.
    """
    made_in_body, made_in_orelse = set(made), set(made)
    body = _constants(item.body, made_in_body)
    orelse = _constants(item.orelse, made_in_orelse)
    if body is None or orelse is None:
        return None
    made.clear()
    made.update(made_in_body & made_in_orelse)
    return ast.copy_location(ast.If(item.test, body, orelse), item)


def _each_constant(item: ast.stmt, names: Sequence[str]) -> Iterator[ast.stmt]:
    """Yield `a = a.detach()` for each name, after an assignment of several."""
    for name in names:
        yield _constant(item, store_of(name, item), load_of(name, item))


def _are_new(value: ast.expr, made: Collection[str]) -> bool:
    """Return whether the values of several targets have no gradient: a tuple of values, or one value to be unpacked.

    `made` are the names made in the `no_grad` block so far.
    """
    if isinstance(value, ast.Tuple | ast.List):
        return all(_is_new(part, made) for part in value.elts)
    return _is_new(value, made, several=True)


def _is_new(value: ast.expr, made: Collection[str], several: bool = False) -> bool:
    """Return whether a value computed under `no_grad` surely has no gradient.

    It must be no alias of a tensor from outside, which keeps its gradient, and must change no tensor. `made` are the names made
    in the block. `several` says that the value is unpacked into several targets.
    """
    match value:
        case ast.Call(ast.Name(name)):
            # A function of the user's, and `max`, may return its argument, which keeps its gradient.
            return name in ("float", "int", "len")
        case ast.Call(ast.Attribute(inner, name)) if is_in_place(name):
            # `torch.empty(3).normal_()`, or `h.mul_(2)` of an h made in the block.
            return _root(inner) in ("torch", *made) and not several
        case ast.Call(ast.Attribute(inner, name)) if may_be_argument(name):
            # `x.float()` of floats is x itself.
            return not several and _is_new(inner, made) and not changes([value])
        case ast.Name(name):
            return name in made and not several
        case ast.IfExp(_, body, orelse):
            return all(_is_new(way, made, several) for way in (body, orelse))
        case ast.Call(ast.Attribute(_, name)):
            # `x.max(0)` gives two tensors: it cannot be detached as one.
            fits = several or not may_be_several_tensors(name) or _is_of_two(value)
            return fits and not changes([value])
        case ast.Attribute(_, name):
            # `x.real` of a real x is x itself.
            return all(facts.memory != "same" for facts in facts_of_attribute(name))
        case ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.Constant():
            return not several and not changes([value])
        case ast.List([]):
            return True
    return isinstance(value, ast.Subscript) and not changes([value])


def _is_of_two(call: ast.Call) -> bool:
    """Return whether a call is `torch.min(x, y)` of two tensors, with one result, not of a tensor and a dim, with two.

    The name of the second argument decides: `d`, `axis` and names with `dim` in them are dims.
    """
    match call:
        case ast.Call(
            ast.Attribute(ast.Name("torch"), "min" | "max"), [_, ast.Name(other)], []
        ):
            return other not in ("d", "axis") and "dim" not in other
    return False


def _root(item: ast.expr) -> str | None:
    """Return the name a chain of calls, attributes and subscripts starts with: `x` for `x.view(-1)[0]`; else None."""
    match item:
        case ast.Name(name):
            return name
        case ast.Attribute(inner) | ast.Call(inner) | ast.Subscript(inner):
            return _root(inner)
    return None


def _constant(item: ast.stmt, target: ast.expr, value: ast.expr) -> ast.Assign:
    """Return `target = value.detach()`, the assignment of `item` under `torch.no_grad()`; a literal is not detached."""
    if not isinstance(value, ast.Constant):
        detached = placed(ast.parse(DETACHED, mode="eval").body, value)
        value = substituted(detached, {"value": value})
    return ast.copy_location(ast.Assign([target], value), item)


def _lists(body: Sequence[ast.stmt]) -> frozenset[str]:
    """Return the names of lists created here and known by one name only, so `rows = [*rows, x]` says the same as an append."""
    nodes = [node for item in body for node in ast.walk(item)]
    # The first target is enough: after `ys = zs = []` neither counts (`_handed_on`).
    lists = {
        node.targets[0].id
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.List)
    }
    return frozenset(lists.difference(*map(_handed_on, nodes)))


def _handed_on(node: ast.AST) -> Iterator[str]:
    """Yield the names of lists that get a second name in a node: `ys` in `z = ys`, `z = (ys, 1)`, `z.append(ys)`.

    After `ys = zs = []` both names are one list, so both are given.
    """
    match node:
        case ast.Assign([_, _, *_], value) if isinstance(value, ast.List):
            yield from stored(node.targets)
        case ast.Assign(_, value) | ast.NamedExpr(_, value):
            yield from _may_hold(value)
        case ast.Call(ast.Attribute(_, "append"), [value]):
            yield from _may_hold(value)


def _may_hold(value: ast.expr) -> Iterator[str]:
    """Yield the names a value may be or contain: `ys` in `ys if a else [x]`."""
    match value:
        case ast.Name(name):
            yield name
        case ast.Tuple(parts) | ast.List(parts) | ast.BoolOp(_, parts):
            yield from chain.from_iterable(map(_may_hold, parts))
        case ast.IfExp(_, body, orelse):
            yield from chain(_may_hold(body), _may_hold(orelse))
        case ast.Dict(_, values):
            yield from chain.from_iterable(map(_may_hold, values))


def _appended(item: ast.stmt, name: str, value: ast.expr) -> ast.stmt:
    """Return `name = [*name, value]`, the assignment for `name.append(value)`."""
    old = ast.Starred(ast.Name(name, ast.Load()), ast.Load())
    grown = ast.copy_location(ast.List([old, value], ast.Load()), item)
    return ast.fix_missing_locations(named(name, grown))
