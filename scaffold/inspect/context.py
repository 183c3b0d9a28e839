"""Context: the values ctx carries from forward to backward, saved tensors and attributes.

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
from scaffold.formula.names import fresh, names_in
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
    given: str  # the op's argument for backward
    local: str = ""  # of forward, returned beside the outputs
    kept: ast.expr | None = None  # the value to assign to the local
    guarded: bool = False  # it is kept only in some calls
    brackets: str = ""  # "()" or "[]" for an element of a tuple or a list on ctx


def handed(facts: Facts, outputs: tuple[str, ...]) -> tuple[Handed, ...]:
    """Return the values backward reads from ctx: saved tensors in their order, then attributes.

    `outputs` are the names of the op's outputs. Raise Unfit if the op could not pass one of them.
    """
    saver = facts.function.saver
    return tuple(_Keeper(facts, saver, outputs).handed()) if saver else ()


class _Keeper:
    """The method with ctx and the inputs: a combined forward, or setup_context."""

    def __init__(self, facts: Facts, saver: Method, outputs: tuple[str, ...]) -> None:
        """Prepare to read the values `saver` leaves on ctx; the outputs have these names in the op."""
        self.facts, self.saver, self.flow = facts, saver, saver.flow
        plain = (item for item in facts.inputs if item.passing == "positional")
        self.inputs = tuple(item.name for item in plain)
        # Of keywords: `apply` cannot set them, so in every call they have these values.
        self.defaults = {
            item.name: item.default
            for item in facts.inputs
            if item.passing == "keyword"
        }
        self.outputs = outputs
        self.combined = saver is facts.function.forward
        self.locals = {*self.flow.bindings, *self.flow.parameters}
        self.taken = {*self.inputs, *outputs}
        changed = facts.marked("mark_dirty") or frozenset()
        self.changed = frozenset(changed) if self.combined else frozenset()
        self.overwritten = _overwritten(facts, saver)

    def handed(self) -> Iterator[Handed]:
        """Yield the values backward reads from ctx; raise Unfit if the saved tensors depend on the branch.

        Attributes of ctx backward does not read are left out.
        """
        calls = self.facts.context_calls(self.saver, "save_for_backward")
        if len(calls) > 1 or any(item.starred for item in calls):
            raise Unfit(calls[-1].call, "the saved tensors depend on the branch")
        for item in calls:
            for node in item.call.args:
                found = self._saved(node, item.step)
                yield found._replace(guarded=bool(item.step.guards))
        kept: dict[str, list[tuple[ast.expr, Step]]] = {}
        for one in self.facts.kept(self.saver):
            kept.setdefault(one.name, []).append((one.value, one.step))
        backward = self.facts.function.backward
        read = _attributes(backward, ast.Load) if backward else []
        stored = _attributes(self.saver, ast.Store)
        for name, values in kept.items():
            if name in read:
                if stored.count(name) != len(values):
                    raise Unfit(
                        values[0][0], f"ctx.{name} has a value that is not told"
                    )
                yield from self._on_ctx(name, values)

    def _saved(self, node: ast.expr, step: Step) -> Handed:
        """Return the counterpart of a saved tensor: an input, an output, or a local of forward returned beside the outputs.

        A local rebound later is returned under another name. In setup_context, with no such locals, backward must recompute it.
        """
        if known := self._unchanged(node, step):
            return Handed("", known)
        if not self.combined or is_none(node):
            return Handed("", self._recomputed(node, step, "what is saved"))
        if isinstance(node, ast.Name) and self._lasts(node.id, [(node, step)]):
            return Handed("", self._op_name(node.id), node.id)
        stem = node.id if isinstance(node, ast.Name) else "tensor"
        local = taking(f"{stem}_saved", self.locals)
        return Handed("", self._op_name(local), local, node)

    def _on_ctx(
        self, name: str, values: list[tuple[ast.expr, Step]]
    ) -> Iterator[Handed]:
        """Yield the counterpart of an attribute of ctx, or of each element if all its assignments are tuples or lists of one length.

        `ctx.sizes = x, n` is handed over element by element, unless forward itself reads `ctx.sizes`.
        """
        try:
            yield self._attribute(name, values)
        except Unfit:
            lists = [value for value, _ in values]
            own = self.combined and name in _attributes(self.saver, ast.Load)
            forms = {_form(value) for value in lists}
            if own or None in forms or len(forms) > 1:
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
        expression to compute again, last a local returned by the op's forward beside its outputs. Setup_context has no such
        locals: there it must be one of the first two. The message calls it `shown`, else by its name.
        """
        (value, step), *more = values
        guarded = any(at.guards for _, at in values)
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
                return Handed(name, self._op_name(value.id), value.id, value)
            local = taking(name, self.locals)
            return Handed(name, self._op_name(local), local, value, guarded)
        what = f"what ctx.{shown or name} holds"
        raise Unfit(value, f"{what} is neither an input nor a tensor of forward")

    def _same_always(self, values: list[tuple[ast.expr, Step]]) -> str:
        """Return the one expression over inputs and outputs to which all assignments come, else ""."""
        found = [self._resolved(copy.deepcopy(one), at, DEPTH) for one, at in values]
        texts = {ast.unparse(one) if one is not None else "" for one in found}
        steady = all(one is not None and _is_steady(self.facts, one) for one in found)
        return texts.pop() if len(texts) == 1 and steady else ""

    def _with_tests(self, value: ast.expr, step: Step) -> str:
        """Return an expression as text, with `if test else None` for each branch it is assigned in; "" if a test is unknown."""
        text = ast.unparse(value)
        for guard in reversed(step.guards):
            if not isinstance(guard.node, ast.If):
                return ""
            at = next(s for s in self.flow.steps if s.statement is guard.node)
            test = self._resolved(copy.deepcopy(guard.node.test), at, DEPTH)
            if _asks_need(guard.node.test):
                continue
            if test is None or not _is_steady(self.facts, test):
                return ""
            there = ast.unparse(test)
            there = there if guard.branch == "body" else f"not ({there})"
            text = f"{text} if {there} else None"
        return text

    def _recomputed(self, node: ast.expr, step: Step, what: str) -> str:
        """Return an expression with the same value in backward; raise Unfit if there is none."""
        found = self._resolved(copy.deepcopy(node), step, DEPTH)
        if found is None or not _is_steady(self.facts, found):
            raise Unfit(node, f"{what} is neither an input nor an output")
        return ast.unparse(found)

    def _op_name(self, local: str) -> str:
        """Return a free name in the op for a local of forward."""
        name = local if is_free(local) else f"{local.strip('_')}_kept"
        return taking(f"{name}_kept" if name in self.taken else name, self.taken)

    def _unchanged(self, node: ast.expr, step: Step) -> str:
        """Return the input or output with the value of an expression, else "".

        In a combined forward, one with ctx, it is an unchanged parameter (not one of `mark_dirty`), or a local returned in every
        case. In setup_context it may be read through names and elements: `x` for `inputs[0]`.
        """
        if not self.combined:
            found = self._resolved(copy.deepcopy(node), step, DEPTH)
            known = isinstance(found, ast.Name) and found.id
            return known if known and known in (*self.inputs, *self.outputs) else ""
        if not isinstance(node, ast.Name):
            return ""
        plain = node.id in self.inputs and self.flow.is_parameter(node.id, step)
        if plain and node.id not in self.changed:
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
        names = [item.id if isinstance(item, ast.Name) else "" for item in values or ()]
        known = name in names[: len(self.outputs)]
        return names.index(name) if known else None

    def _lasts(self, name: str, values: list[tuple[ast.expr, Step]]) -> bool:
        """Return whether all assignments are of one name, with a value at each return, the one of an assignment."""
        kept = [self.flow.reaching(name, at) for _, at in values]
        ends = [self.flow.reaching(name, at) for at in self.flow.returns]
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
        plain = isinstance(node, ast.Attribute) and node.attr not in READ_OUT
        if self.overwritten and plain and is_shapely(node):
            # A change in place keeps the shape.
            keeper = copy.copy(self)
            keeper.overwritten = frozenset()
            return keeper._resolved(node, step, depth)
        if known := self._element(node, step):
            return ast.Name(known, ast.Load())
        if self.facts.values(self.saver).is_ctx(node, NEEDS):
            return ast.Name(NEEDS, ast.Load())
        if isinstance(node, ast.Name):
            return self._of_name(node, step, depth)
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
        """Return a part of an expression rewritten over inputs and outputs; None if this is impossible.

        It is for a comprehension, since it binds names of its own. `depth`: how many names may still be followed. A part of
        another kind, such as an operator, stays.
        """
        if isinstance(part, ast.keyword):
            value = self._resolved(part.value, step, depth)
            return ast.keyword(part.arg, value) if value is not None else None
        if isinstance(part, ast.comprehension):
            return None
        return self._resolved(part, step, depth) if isinstance(part, ast.expr) else part

    def _of_name(self, node: ast.Name, step: Step, depth: int) -> ast.expr | None:
        """Return a name as an expression over inputs and names of the module; None if its value is unknown.

        It may be an input, an output, a name bound once, or an element of setup_context's tuple: `x, w = inputs`. After a change in
        place (`h.mul_(2)`, `n += 1`) the expression bound to it has another value.
        """
        if node.id not in self.flow.bindings and node.id not in self.flow.parameters:
            return node  # a name of the module
        if node.id in self.overwritten:
            return None
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
        names = () if bound.starred else self._all_names(bound.value, earlier)
        known = "".join(names[bound.element :][:1])  # "" if there are fewer
        return ast.Name(known, ast.Load()) if known else None

    def _element(self, node: ast.expr, step: Step) -> str:
        """Return the name in the op of `inputs[0]`, of `output[1]` or of a sole output, else ""."""
        if isinstance(node, ast.Name) and len(self.outputs) == 1:
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
        parameters = () if self.combined else self.saver.positional
        return (
            isinstance(node, ast.Name)
            and node.id in [item.name for item in parameters[position:][:1]]
            and self.flow.is_parameter(node.id, step)
        )


def _form(node: ast.expr) -> tuple[type, int] | None:
    """Return the type and the length of a written tuple or list; None for another expression, or one with a star."""
    if not isinstance(node, ast.Tuple | ast.List):
        return None
    starred = any(isinstance(item, ast.Starred) for item in node.elts)
    return None if starred else (type(node), len(node.elts))


def _overwritten(facts: Facts, saver: Method) -> frozenset[str]:
    """Return the names whose values the method changes in place, itself or through another name for the same memory."""
    changes = facts.changes(saver)
    pending = [item for change in changes for item in names_in([change.target])]
    found, values = set[str](), facts.values(saver)
    while pending:
        name = pending.pop()
        if name in found or name == saver.ctx:
            continue
        found.add(name)
        for bound in saver.flow.bindings.get(name, ()):
            value, at = bound.value, saver.flow.steps[bound.order]
            root = values.root(value, at) if value is not None else None
            fresh = root is not None and root.origin == "fresh" and not root.views
            if value is not None and (isinstance(value, ast.Subscript) or not fresh):
                pending += names_in([value])
    return frozenset(found)


def taking(name: str, taken: set[str]) -> str:
    """Return the name, or a free one like it, and add the result to `taken`."""
    found = name if name not in taken else fresh(name, taken)
    taken.add(found)
    return found


def _attributes(method: Method, kind: type) -> list[str]:
    """Return the attributes of ctx read in a method, or set if `kind` is `ast.Store`; each once for each time."""
    nodes = (n for n in ast.walk(method.node) if isinstance(n, ast.Attribute))
    return [
        node.attr
        for node in nodes
        if isinstance(node.ctx, kind) and ast.unparse(node.value) == method.ctx
    ]


def _asks_need(test: ast.expr) -> bool:
    asked = (NEEDS, "requires_grad")
    return any(getattr(node, "attr", "") in asked for node in ast.walk(test))


def _is_steady(facts: Facts, value: ast.expr) -> bool:
    """Return whether an expression has the same value when recomputed: no random numbers, no unknown calls."""
    for node in ast.walk(value):
        if isinstance(node, ast.Lambda | ast.Await | ast.NamedExpr | ast.Yield):
            return False
        if isinstance(node, ast.Call) and not _is_pure(facts, node):
            return False
    return True


def _is_pure(facts: Facts, call: ast.Call) -> bool:
    """Return whether a call has no effect and always the same result: a size, a steady function of torch, of Python or `math`."""
    if is_shapely(call):
        return True
    name = torch_call(call, facts.names) or method_call(call, facts.names)
    if name:
        return is_tensor_call(name) and is_steady_call(name)
    dotted = facts.names.resolve(call.func)
    builtin = dotted in PURE and dotted in dir(builtins)
    return builtin or dotted.startswith("math.")
