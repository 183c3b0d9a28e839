"""Context: the values ctx carries from forward to backward, saved tensors and attributes.

`adopt` turns forward and backward into functions without ctx; here each value on ctx gets its counterpart in the op, an expression
over inputs and outputs that the call of backward computes again, or else a local that forward returns beside the outputs:

    h = torch.exp(w)                                       the op's backward gets x, h, which its forward returns too,
    ctx.save_for_backward(x, h); ctx.n = n * 2       ->    and n * 2

Words: the *saver* is the method with ctx and the inputs: a *combined* `forward(ctx, x, n)`, or else
`setup_context(ctx, inputs, output)`, and locals of the latter the op's forward cannot return; a *counterpart* is a `Handed`;
a value is *kept* by `ctx.n = n`; a name is *overwritten* if its tensor is changed in place; a value is *steady* if computing
it again gives the same; `reaching` and `definite` bindings are of `inspect.flow`.

In: the facts of a Function and the names of its outputs. Out: a `Handed` for each, in the order of `ctx.saved_tensors`, then by attribute.
Invariant: a value is the one at the time of keeping, even if its name is rebound later; a value that is neither an input, an output nor a
tensor of forward, and may differ when recomputed, raises `Unfit`.
"""

import ast
import builtins
import copy
from collections.abc import Iterator
from typing import NamedTuple

from scaffold.formula import BUILTINS
from scaffold.formula.names import names_in, take
from scaffold.formula.optionality import is_none
from scaffold.inspect.declarations import Unfit, is_free
from scaffold.inspect.facts import Facts
from scaffold.inspect.flow import Step
from scaffold.inspect.functions import Method
from scaffold.inspect.imported_names import method_call, torch_call
from scaffold.inspect.values import is_shapely
from scaffold.inspect.vocabulary import is_steady as is_steady_call
from scaffold.inspect.vocabulary import is_tensor_call
from scaffold.primitives.python_values import READ_OUT

DEPTH = 10  # longer chains of names are not followed
PURE = BUILTINS | {"reversed", "sorted", "str"}
NEEDS = "needs_input_grad"


class Handed(NamedTuple):
    """A value forward leaves on ctx for backward, and its counterpart in the op."""

    attribute: str  # of ctx; "" for a saved tensor
    given: str  # the op's argument for backward, as text
    local: str = ""  # of forward, returned beside the outputs; "" if that is not needed
    kept: ast.expr | None = None  # the value to assign to a new local
    guarded: bool = False  # it is kept only in some calls
    brackets: str = ""  # of the tuple or list on ctx it is an element of: "()", "[]"


def handed(facts: Facts, outputs: tuple[str, ...]) -> tuple[Handed, ...]:
    """Return the values backward reads from ctx: saved tensors in their order, then attributes.

    `outputs` are the names of the op's outputs. Raise Unfit if the op could not pass one of them.
    """
    saver = facts.function.saver
    return tuple(_Keeper(facts, saver, outputs).handed()) if saver else ()


class _Keeper:
    """The method with ctx and the inputs: a combined forward, or setup_context."""

    def __init__(self, facts: Facts, saver: Method, outputs: tuple[str, ...]) -> None:
        """Prepare to read the values `saver` leaves on ctx; `outputs` are the names of the outputs in the op.

        `taken` are the op's names in use, `locals` those of the method; both grow when a new name is chosen.
        """
        self.facts, self.saver, self.flow = facts, saver, saver.flow
        plain = (item for item in facts.inputs if item.passing == "positional")
        self.inputs = tuple(item.name for item in plain)
        # Of keyword parameters: `apply` cannot set them, so in every call they have these values.
        self.defaults = {
            item.name: item.default
            for item in facts.inputs
            if item.passing == "keyword"
        }
        self.outputs = outputs
        self.combined = saver is facts.function.forward
        self.locals = {*self.flow.bindings, *self.flow.parameters}
        self.taken = {*self.inputs, *outputs}
        # A parameter given to mark_dirty has another value at the end; setup_context sees it then.
        changed = facts.marked("mark_dirty") or frozenset()
        self.changed = frozenset(changed) if self.combined else frozenset()
        self.overwritten = _overwritten(facts, saver)

    def handed(self) -> Iterator[Handed]:
        """Yield the saved tensors, then the attributes of ctx that backward reads.

        Raise Unfit if there are two calls of save_for_backward, `*xs` is saved, or an attribute is set by more than assignments
        (a loop's target, `ctx.n += 1`): its value is then unknown.
        """
        calls = self.facts.context_calls(self.saver, "save_for_backward")
        if len(calls) > 1 or any(item.starred for item in calls):
            raise Unfit(calls[-1].call, "the saved tensors depend on the branch")
        for item in calls:
            for node in item.call.args:
                found = self._saved(node, item.step)
                # In a branch the local may stay unset: the new forward then begins with `h = None`.
                yield found._replace(guarded=bool(item.step.guards))
        kept: dict[str, list[tuple[ast.expr, Step]]] = {}
        for one in self.facts.kept(self.saver):
            kept.setdefault(one.name, []).append((one.value, one.step))
        backward = self.facts.function.backward
        read = _attributes(backward, ast.Load) if backward else []
        stored = _attributes(self.saver, ast.Store)
        for name, values in kept.items():
            # An attribute that backward does not read needs no counterpart.
            if name in read:
                # It is set in another way too, `ctx.n += 1`: `kept` lists plain assignments alone.
                if stored.count(name) != len(values):
                    raise Unfit(
                        values[0][0], f"ctx.{name} has a value that is not told"
                    )
                yield from self._on_ctx(name, values)

    def _saved(self, node: ast.expr, step: Step) -> Handed:
        """Return the counterpart of a saved tensor: an input, an output, or a local of forward returned beside the outputs.

        A local rebound before the return is saved under a new name, `h_saved`. In setup_context, with no such locals, backward
        must recompute it.
        """
        if known := self._unchanged(node, step):
            return Handed("", known)
        # None is written out in the call; a local of setup_context has to be computed again there.
        if not self.combined or is_none(node):
            return Handed("", self._recomputed(node, step))
        if isinstance(node, ast.Name) and self._lasts(node.id, [(node, step)]):
            return Handed("", self._op_name(node.id), node.id)
        # `save_for_backward(x + 1)` saves no name.
        stem = node.id if isinstance(node, ast.Name) else "tensor"
        local = take(self.locals, f"{stem}_saved")
        return Handed("", self._op_name(local), local, node)

    def _on_ctx(
        self, name: str, values: list[tuple[ast.expr, Step]]
    ) -> Iterator[Handed]:
        """Yield the counterpart of the attribute `name` of ctx, or of each element if it is a tuple with no counterpart as a whole.

        `values` are all its assignments, each with its step. `ctx.pair = x, n` is handed over element by element if every
        assignment is a tuple or list of one length, and forward itself does not read `ctx.pair`. Else raise Unfit.
        """
        try:
            yield self._attribute(name, values)
        except Unfit:  # no counterpart as a whole
            lists = [value for value, _ in values]
            read_here = self.combined and name in _attributes(self.saver, ast.Load)
            forms = {_form(value) for value in lists}
            # Not element by element if forward reads the tuple, or if its assignments differ in form.
            if read_here or None in forms or len(forms) > 1:
                raise
            elements = zip(*(value.elts for value in lists), strict=True)  # type: ignore[attr-defined]
            for at, parts in enumerate(elements):
                ways = [
                    (part, step) for part, (_, step) in zip(parts, values, strict=True)
                ]
                found = self._attribute(f"{name}_{at}", ways, f"{name}[{at}]")
                brackets = "()" if isinstance(lists[0], ast.Tuple) else "[]"
                yield found._replace(attribute=name, brackets=brackets)

    def _attribute(
        self, name: str, values: list[tuple[ast.expr, Step]], shown: str = ""
    ) -> Handed:
        """Return the counterpart of an attribute of ctx: an expression over inputs, or a tensor of forward; raise Unfit otherwise.

        `values` are all its assignments, each with its step. First choice is an input or output of the same value, then an
        expression to compute again, last a tensor returned by the op's forward beside its outputs, which setup_context cannot do.
        The message calls it `shown`, else by its name.
        """
        (value, step), *more = values
        guarded = any(at.guards for _, at in values)
        # With several assignments the value depends on the branch, unless all are equal.
        if not more:
            if known := self._unchanged(value, step):
                return Handed(name, known)
            again = self._resolved(copy.deepcopy(value), step, DEPTH)
            steady = again is not None and _is_steady(self.facts, again)
            known = self._with_tests(again, step) if again and steady else ""
            if known:
                return Handed(name, known)
        elif known := self._same_always(values):
            return Handed(name, known)
        tensors = self.facts.values(self.saver)
        if self.combined and all(
            is_none(one) or tensors.is_tensor(one, at) for one, at in values
        ):
            if isinstance(value, ast.Name) and self._lasts(value.id, values):
                # Not `guarded`: by `_lasts` the local is set at each return.
                return Handed(name, self._op_name(value.id), value.id, value)
            local = take(self.locals, name)
            return Handed(name, self._op_name(local), local, value, guarded)
        what = f"what ctx.{shown or name} holds"
        raise Unfit(value, f"{what} is neither an input nor a tensor of forward")

    def _same_always(self, values: list[tuple[ast.expr, Step]]) -> str:
        """Return the expression over inputs and outputs that all assignments equal, so that the branch makes no difference; else ""."""
        found = [self._resolved(copy.deepcopy(one), at, DEPTH) for one, at in values]
        texts = {ast.unparse(one) if one is not None else "" for one in found}
        steady = all(one is not None and _is_steady(self.facts, one) for one in found)
        return texts.pop() if len(texts) == 1 and steady else ""

    def _with_tests(self, value: ast.expr, step: Step) -> str:
        """Return an expression as text, with `if test else None` for each branch its statement `step` is in; "" if a test is unknown.

        `if n > 2: ctx.k = n * 2` -> `(n * 2) if n > 2 else None`. A branch for an input that needs a gradient is left out: backward
        reads the value only then.
        """
        text = ast.unparse(value)
        # From the innermost branch outwards: the outermost test is then asked first.
        for guard in reversed(step.guards):
            # In a loop or a `try` no test tells whether the value was set.
            if not isinstance(guard.node, ast.If):
                return ""
            # Names in the test have their values at the `if`, not at the assignment.
            at = next(s for s in self.flow.steps if s.statement is guard.node)
            test = self._resolved(copy.deepcopy(guard.node.test), at, DEPTH)
            if _asks_need(guard.node.test):
                continue
            if test is None or not _is_steady(self.facts, test):
                return ""
            taken = ast.unparse(test)
            taken = taken if guard.branch == "body" else f"not ({taken})"
            text = f"({text}) if {taken} else None"
        return text

    def _recomputed(self, node: ast.expr, step: Step) -> str:
        """Return an expression over inputs and outputs, as text, for backward to compute a saved value again; raise Unfit without one."""
        found = self._resolved(copy.deepcopy(node), step, DEPTH)
        if found is None or not _is_steady(self.facts, found):
            raise Unfit(node, "what is saved is neither an input nor an output")
        return ast.unparse(found)

    def _op_name(self, local: str) -> str:
        """Return a name in the op for a local of forward, not that of an input or output: `h`, else `h_kept`."""
        # `__h` is no name an op may use.
        name = local if is_free(local) else f"{local.strip('_')}_kept"
        return take(self.taken, name, f"{name}_kept")

    def _unchanged(self, node: ast.expr, step: Step) -> str:
        """Return the input or output with the value of an expression, else "": backward gets it without any computation.

        In a combined forward, one with ctx, it is an unchanged parameter (not one of `mark_dirty`), or a local returned in every
        case. In setup_context it may be read through names and elements: `x` for `inputs[0]`.
        """
        if not self.combined:
            found = self._resolved(copy.deepcopy(node), step, DEPTH)
            known = isinstance(found, ast.Name) and found.id
            return known if known and known in (*self.inputs, *self.outputs) else ""
        if not isinstance(node, ast.Name):
            return ""
        is_input = node.id in self.inputs and self.flow.is_parameter(node.id, step)
        if is_input and node.id not in self.changed:
            return node.id
        return self._output_of(node.id, step)

    def _output_of(self, name: str, step: Step) -> str:
        """Return the output with the value a name has at this step, else "": backward may then be given the output instead.

        Every return must give the name at one position, and the name must have one value at the step and at all returns.
        """
        found = {self._position(name, item.values) for item in self.facts.outputs}
        position = found.pop() if len(found) == 1 else None
        before = self.flow.reaching(name, step)
        same = all(self.flow.reaching(name, at) == before for at in self.flow.returns)
        return self.outputs[position] if position is not None and same else ""

    def _position(self, name: str, values: tuple[ast.expr, ...] | None) -> int | None:
        """Return the position of a name among the values of a return, if it is one of the outputs, else None."""
        names = [item.id if isinstance(item, ast.Name) else "" for item in values or ()]
        known = name in names[: len(self.outputs)]
        return names.index(name) if known else None

    def _lasts(self, name: str, values: list[tuple[ast.expr, Step]]) -> bool:
        """Return whether all assignments to ctx keep this name, and it still has the kept value at each return.

        Then forward can return this local itself, without a new name for the kept value.
        """
        kept = [self.flow.reaching(name, at) for _, at in values]
        ends = [self.flow.reaching(name, at) for at in self.flow.returns]
        # None among the bindings: on some path it is not set, and a return of it would fail.
        bound = name in self.flow.parameters or not any(None in end for end in ends)
        alike = {ast.unparse(one) for one, _ in values} == {name}
        return alike and bound and all(end in kept for end in ends)

    def _resolved(self, node: ast.expr, step: Step, depth: int) -> ast.expr | None:
        """Return an expression rewritten over inputs and outputs, in place; None if this is impossible.

        Names are followed to their values, through at most `depth` of them. `scale * 2` after `scale = inputs[1]` becomes
        `factor * 2`, if forward calls its second input `factor`.
        """
        if depth == 0:
            return None
        # `x.shape`, not a number read out of the tensor, as by `x.item()`.
        describes = isinstance(node, ast.Attribute) and node.attr not in READ_OUT
        if self.overwritten and describes and is_shapely(node):
            # A change in place keeps the shape.
            keeper = copy.copy(self)
            keeper.overwritten = frozenset()
            return keeper._resolved(node, step, depth)
        # Before its parts are rewritten: `inputs[0]` has a name in the op, `inputs` alone has none.
        if known := self._element(node, step):
            return ast.Name(known, ast.Load())
        # The op's backward has `ctx.needs_input_grad` under this very name.
        if self.facts.values(self.saver).is_ctx(node, NEEDS):
            return ast.Name(NEEDS, ast.Load())
        if isinstance(node, ast.Name):
            return self._of_name(node, step, depth)
        # Any other expression: rewrite each of its parts.
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                parts = [self._part(one, step, depth) for one in value]
                if None in parts:
                    return None
                value[:] = parts
            elif isinstance(value, ast.expr | ast.keyword | ast.slice):
                part = self._part(value, step, depth)
                if part is None:
                    return None
                setattr(node, field, part)
        return node

    def _part(self, part: ast.AST, step: Step, depth: int) -> ast.AST | None:
        """Return a part of an expression, at `step`, rewritten over inputs and outputs; None if this is impossible.

        A comprehension is impossible, since it binds names of its own. A part that is no expression, such as an operator, stays.
        `depth`: how many names may still be followed.
        """
        if isinstance(part, ast.keyword):
            value = self._resolved(part.value, step, depth)
            return ast.keyword(part.arg, value) if value is not None else None
        if isinstance(part, ast.comprehension):
            return None
        return self._resolved(part, step, depth) if isinstance(part, ast.expr) else part

    def _of_name(self, node: ast.Name, step: Step, depth: int) -> ast.expr | None:
        """Return a name as an expression over inputs and names of the module; None if its value is unknown.

        It may be an input, an output, a name bound once (then its value is rewritten, at most `depth` names deep), or an element
        of setup_context's tuple: `x, w = inputs`. After a change in place (`h.mul_(2)`, `n += 1`) its value is unknown.
        """
        if node.id not in self.flow.bindings and node.id not in self.flow.parameters:
            return node  # a name of the module
        if node.id in self.overwritten:
            return None
        # An input by its name; a keyword parameter by its default, which `apply` cannot change.
        if self.combined and self.flow.is_parameter(node.id, step):
            return node if node.id in self.inputs else self.defaults.get(node.id)
        if self.combined and (known := self._output_of(node.id, step)):
            return ast.Name(known, ast.Load())
        bound = self.flow.definite(node.id, step)
        if bound is None or bound.value is None:
            return None
        earlier = self.flow.steps[bound.order]
        if bound.element is None:
            return self._resolved(copy.deepcopy(bound.value), earlier, depth - 1)
        # With a star, `x, *rest = inputs`, positions are not sure.
        names = () if bound.starred else self._all_names(bound.value, earlier)
        known = "".join(names[bound.element :][:1])  # "" if there are fewer
        return ast.Name(known, ast.Load()) if known else None

    def _element(self, node: ast.expr, step: Step) -> str:
        """Return the op's name for `inputs[0]`, `output[1]` or a sole `output` in setup_context; "" for another expression."""
        if isinstance(node, ast.Name) and len(self.outputs) == 1:
            # Parameter 1 of setup_context, then no tuple.
            return self.outputs[0] if self._is_argument(node, 1, step) else ""
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            # () unless `inputs` or `output` is still the parameter of setup_context
            names, at = self._all_names(node.value, step), node.slice.value
            if isinstance(at, int) and -len(names) <= at < len(names):
                return names[at]
        return ""

    def _all_names(self, node: ast.expr, step: Step) -> tuple[str, ...]:
        """Return the names of all inputs, or of all outputs, if an expression is setup_context's tuple of them, else ()."""
        for position, names in enumerate((self.inputs, self.outputs)):
            if self._is_argument(node, position, step):
                return names
        return ()

    def _is_argument(self, node: ast.expr, position: int, step: Step) -> bool:
        """Return whether an expression is still setup_context's parameter at a position: 0 for the inputs, 1 for the output."""
        # A combined forward has no tuples of inputs and outputs.
        parameters = () if self.combined else self.saver.positional
        return (
            isinstance(node, ast.Name)
            and node.id in [item.name for item in parameters[position:][:1]]
            and self.flow.is_parameter(node.id, step)
        )


def _form(node: ast.expr) -> tuple[type, int] | None:
    """Return the type and the length of a written tuple or list, to compare two; None for another expression, or one with a star."""
    if not isinstance(node, ast.Tuple | ast.List):
        return None
    starred = any(isinstance(item, ast.Starred) for item in node.elts)
    return None if starred else (type(node), len(node.elts))


def _overwritten(facts: Facts, saver: Method) -> frozenset[str]:
    """Return the names with values the method changes in place, itself or through another name for the same memory.

    `h.mul_(2)` after `h = x.view(-1)` gives `h` and `x`: no expression of these can be computed again in backward.
    """
    changes = facts.changes(saver)
    pending = [item for change in changes for item in names_in([change.target])]
    found, values = set[str](), facts.values(saver)
    while pending:
        name = pending.pop()
        # ctx is among the names in `ctx.h.mul_(2)`, but it is no tensor.
        if name in found or name == saver.ctx:
            continue
        found.add(name)
        for bound in saver.flow.bindings.get(name, ()):
            value, at = bound.value, saver.flow.steps[bound.order]
            root = values.root(value, at) if value is not None else None
            # A fresh tensor shares no memory with the names its expression reads.
            fresh = root is not None and root.origin == "fresh" and not root.views
            # Of a fresh `h` also `h[0]` has a fresh root, though the two share memory.
            if value is not None and (isinstance(value, ast.Subscript) or not fresh):
                pending += names_in([value])
    return frozenset(found)


def _attributes(method: Method, kind: type) -> list[str]:
    """Return the attributes of ctx read in a method (`kind` is `ast.Load`) or set in it (`ast.Store`), one entry for each place."""
    nodes = (n for n in ast.walk(method.node) if isinstance(n, ast.Attribute))
    return [
        node.attr
        for node in nodes
        if isinstance(node.ctx, kind) and ast.unparse(node.value) == method.ctx
    ]


def _asks_need(test: ast.expr) -> bool:
    """Return whether a test asks if an input needs a gradient: `ctx.needs_input_grad[0]`, `x.requires_grad`."""
    names = (NEEDS, "requires_grad")
    return any(getattr(node, "attr", "") in names for node in ast.walk(test))


def _is_steady(facts: Facts, value: ast.expr) -> bool:
    """Return whether an expression has the same value when backward computes it again: no random numbers, no unknown calls.

    A lambda or `:=` is refused too: it binds names of its own.
    """
    for node in ast.walk(value):
        if isinstance(node, ast.Lambda | ast.Await | ast.NamedExpr | ast.Yield):
            return False
        if isinstance(node, ast.Call) and not _is_pure(facts, node):
            return False
    return True


def _is_pure(facts: Facts, call: ast.Call) -> bool:
    """Return whether a call has no effect and always the same result: `x.size(0)`, `torch.exp(x)`, `len(x)`, not `torch.rand(3)`."""
    if is_shapely(call):
        return True
    name = torch_call(call, facts.names) or method_call(call, facts.names)
    # A word of torch or a method: steady only if the table of primitives says so.
    if name:
        return is_tensor_call(name) and is_steady_call(name)
    dotted = facts.names.resolve(call.func)
    builtin = dotted in PURE and dotted in dir(builtins)  # not a function of that name
    return builtin or dotted.startswith("math.")
