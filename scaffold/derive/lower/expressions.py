"""Turn expressions of the forward into ops: primitives, Python values, and calls that no rule is about.

`x.softmax(-1) * s` is the op `mul(softmax(x, -1), s)`; `statements` calls this for the right side of each line.

In: an expression, and the op of each name in it. Out: its op. Invariant: an op has the value of the expression that it came from; a
Python value is written over names that still mean the same when the backward runs; a call without a rule stays what it is, over the
tensors in it; one that changes a tensor under other eyes is refused, and so is what is not understood. To refuse is to raise
`UnsupportedError`: then autograd differentiates the whole forward, and its message tells the user why.

Words: a `static` op is a Python value, fixed within a call (`x.shape[0]`, an attribute); a `group` is the several results of one
call. A rule is the section of a primitive in the table; it is `bound` once each of its parameters has an argument. `env` maps names
to ops. A value is active if a gradient may pass through it. A function is `ruled` if the team's table has a rule for it; a call of
`_own` changes a tensor that only one name sees. Values are `named` if they are passed by keyword, and `given` if they are no dtype.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from scaffold.derive.analysis.activity import (
    carries_gradient,
    drops,
    is_random,
    is_undifferentiated,
)
from scaffold.derive.analysis.input_kinds import kinds_of_inputs
from scaffold.derive.analysis.metadata import shape_read, size_read
from scaffold.derive.autocast import amp_of
from scaffold.derive.graph.application import Applier, Bound, constant
from scaffold.derive.graph.conditions import given, opposite, told_by
from scaffold.derive.graph.op import (
    Declared,
    Kind,
    Named,
    OfShape,
    Op,
    Operator,
    Position,
    Program,
    literal,
    number,
    tensors,
)
from scaffold.derive.graph.precision import Precision, source_of
from scaffold.derive.graph.shapes import (
    Dim,
    Input,
    LeadingDims,
    NamedSize,
    Shape,
    broadcast,
    unknown,
)
from scaffold.derive.graph.static_values import (
    UnsupportedError,
    as_text,
    dotted,
    is_int,
    may_be_none,
    size_at,
    static_node,
)
from scaffold.derive.lower import indexing
from scaffold.derive.lower.autograd_saved import retained, same_storage
from scaffold.derive.lower.calls_in_parts import in_parts
from scaffold.derive.lower.evaluator import Evaluator
from scaffold.derive.lower.mutation import CHANGES, made_anew
from scaffold.derive.lower.size_equations import required_sizes
from scaffold.derive.lower.unruled_calls import (
    creates,
    item_of_call,
    kind_of_call,
    made,
    refuse_changes,
    template_of,
)
from scaffold.derive.rules.formulas import condition_of, value_of
from scaffold.derive.rules.team_tables import ruled_imports
from scaffold.derive.simplify.constructors import Maker
from scaffold.formula import (
    UNKNOWN,
    WELL_KNOWN,
    Node,
    checked_for_none,
    computed,
    evaluated,
    keywords,
    of_math,
    sharing,
    truth,
    written_to,
)
from scaffold.primitives.calls import computes_in_given_dtype
from scaffold.primitives.python_values import DTYPES, READ_OUT
from scaffold.spec import ANY_DIMS, OpSpec, TensorInput, is_leading

# --- Dtypes, as far as derivatives differ by them.
#
# In: what is declared of an input, or the name of a dtype of torch's. Out: the kind of its tensors.


# The kinds of inputs, by what is declared.
KINDS: Mapping[str, Kind] = {
    "float": "real",
    "complex": "complex",
    "int": "int",
    "index": "int",
    "bool": "bool",
}


TENSORS: Mapping[str, Kind] = {  # `torch.DoubleTensor`
    **dict.fromkeys(("Double", "Float", "Half", "BFloat16"), "real"),
    **dict.fromkeys(("Byte", "Char", "Short", "Int", "Long"), "int"),
    "Bool": "bool",
}


def _declared(dim: int | str, name: str, known: Mapping[str, Dim]) -> Dim:
    """Return a declared dim of the input `name` as a size: a named one, or leading dims for `...` and `*batch`.

    `known` has the sizes that conditions such as `E == 3 * D` determine.
    """
    if isinstance(dim, int):
        return dim
    if dim == ANY_DIMS:
        return LeadingDims(name)
    if is_leading(dim):
        return LeadingDims(dim.removeprefix("*"), named=True)
    return known.get(dim, NamedSize(dim))


def kind_of_type(op: Op) -> Kind | None:
    """Return the kind of a torch tensor type, given as a string or an attribute: `torch.cuda.FloatTensor` -> "real"; None for others."""
    attribute = isinstance(op.data, Operator) and op.data.kind == "attribute"
    # `torch.FloatTensor` is read by its text, "torch.FloatTensor" by its value.
    text = as_text(op).label if attribute or op.rule == "static" else literal(op)
    last = text.rpartition(".")[2] if isinstance(text, str) else ""
    return TENSORS.get(last.removesuffix("Tensor"))


def declared(spec: OpSpec) -> Declared:
    """Return the facts an op's signature states about names in its forward: optional inputs, types of attributes."""
    return Declared(
        optional=frozenset(item.name for item in spec.tensors if item.optional),
        never_none=frozenset(
            item.name
            for item in spec.attributes
            if "None" not in item.annotation and item.annotation != "object"
        ),
        ints=frozenset(
            item.name for item in spec.attributes if item.annotation == "int"
        ),
        numbers=frozenset(
            item.name
            for item in spec.attributes
            if item.annotation in ("int", "float", "bool", "complex")
        ),
        sequences=frozenset(
            item.name
            for item in spec.attributes
            if item.annotation.startswith(("tuple", "list"))
        ),
        no_strings=frozenset(
            item.name
            for item in spec.attributes
            if not any(word in item.annotation for word in ("str", "object", "Any"))
        ),
        bounded=frozenset(item.name for item in spec.tensors if item.bound is not None),
    )


def inputs_of(
    spec: OpSpec,
    program: Program,
    wanted: frozenset[str],
) -> dict[str, Op]:
    """Return the op of each tensor input by name: a walk over the forward begins with them.

    Only the `wanted` ones are active, so only they get gradients.
    """
    known = required_sizes(spec, program)
    return {
        item.name: _input(program, item, item.name in wanted, known)
        for item in spec.tensors
    }


def _input(
    program: Program,
    item: TensorInput,
    wanted: bool,
    known: Mapping[str, Dim],
) -> Op:
    """Return the op of an input, with its declared shape; without declared dims, with an unknown shape no other has.

    It is active if its gradient is `wanted`; `known` has the sizes determined by conditions.
    """
    if item.dims is None:
        shape = unknown(Input(item.name))
    else:
        shape = Shape(tuple(_declared(dim, item.name, known) for dim in item.dims))
    kind: Kind = "group" if item.variadic else KINDS[item.dtype]
    return program.op(
        "input", (), Named(item.name), kind=kind, shape=shape, active=wanted
    )


def attributes_of(spec: OpSpec, program: Program) -> dict[str, Op]:
    """Return the op of each attribute by name: a Python value, read by its name."""
    names = [item.name for item in spec.attributes]
    return {name: program.static(program.graph.name(name)) for name in names}


# --- The walk over expressions of the forward.


DRAWN_INSIDE = "it draws random numbers inside an expression; draw them in a line of its own, mask = ..."
DROPPED_INSIDE = "it drops weights at random inside attention; leave dropout_p out, or write F.dropout(torch.softmax(q @ k.mT / d**0.5, -1), p) @ v"
OVERLAPPING = "unfolded"  # the shape of a view in which an element may stand twice
READ_LATER = "it changes in place what the gradient of that value reads"


class Expressions(Evaluator):
    """A translator of expressions into ops; `env` says the op each name has at this point."""

    def __init__(
        self,
        spec: OpSpec,
        applier: Applier,
        env: Mapping[str, Op],
        writes: Mapping[str, int],
        note: Callable[[Node, Op], None],
    ) -> None:
        """Translate expressions of `spec` over the ops in `env`; `writes` counts the assignments of each name.

        `note` is called with each expression computed in every call, and its op: it could be saved.
        """
        super().__init__(applier, env)
        self.spec = spec
        self.kinds = kinds_of_inputs(spec)
        self.ruled = ruled_imports(spec)
        self.imported = {item.binding for item in spec.imports} - self.ruled
        self.writes = writes
        self._own: frozenset[Node] = frozenset()  # calls that change a name's tensor
        # `_choices` counts the branches around the current expression: in one, it is not computed in every call.
        self._note, self._choices = note, 0
        # Whether the backward runs under the autocast of the forward.
        self._in_autocast = amp_of(spec) == "region"
        self.parts: dict[Node, Node] = {}  # a call -> the same in parts
        # Set by `lower`: whether the forward may save results, and what it returns.
        self.saves, self.returned = False, frozenset[Node]()
        # For the `value` and `when` of rules; ops of the forward are not simplified.
        self.make = Maker(applier, {}, lambda op: True, {}, Precision({}))

    @contextmanager
    def choice(self) -> Iterator[None]:
        """Enter a branch computed only in some calls, as of `a if test else b`; values in it are not reported to `note`."""
        self._choices += 1
        try:
            yield
        finally:
            self._choices -= 1

    def assigned_value(self, node: Node, own: frozenset[Node]) -> Op:
        """Return the op of an assigned expression.

        `own` are its in-place calls that change only one named tensor: they are allowed.
        """
        self._own = own
        return self.value(node)

    def value(self, node: Node) -> Op:
        """Return the op of an expression, and report it to `note` if every call computes it."""
        op = super().value(node)
        if not self._choices:
            self._note(node, op)
        return op

    def python(self, node: Node) -> Op | None:
        """Return the op of a Python value, as `x.shape[0] + 1` or `torch.float32`; None for a tensor.

        Raise `UnsupportedError` for a random draw, as the backward would draw again.
        """
        if node.kind == "call" and is_random(node):
            raise UnsupportedError(DROPPED_INSIDE if drops(node) else DRAWN_INSIDE)
        if node.kind == "attribute" and str(dotted(node)).startswith("torch."):
            return self._torch_name(node)
        return self._static(node) if self.is_static(node) else None

    # Names, operators, attributes, indices

    def _torch_name(self, node: Node) -> Op:
        """Return the op of a name of torch that is not called: a dtype, as `torch.float32`, or a constant, as `torch.pi`."""
        op, kind = self.program.static(node), DTYPES.get(node.label)
        if kind is not None:
            self.program.set_dtype(op, kind)
        return op

    def other(self, node: Node) -> Op:
        """Return the op of a Python type used as a dtype, as `x.to(float)`; refuse any other unknown expression."""
        if node.kind != "name":
            raise UnsupportedError(f"a {node.kind} in the forward")
        if node.label not in ("bool", "int", "float"):
            raise UnsupportedError(f"'{node.label}'")
        return self._torch_name(node)

    def operator(self, node: Node, *values: Op) -> Op:
        """Apply the operator or comparison of a node to values: tensors, lists, or choices between a tensor and a number.

        Raise `UnsupportedError` for a chain of comparisons, `0 < x < 1`.
        """
        # The label of a chain has all its operators: `<,<`.
        if "," in node.label:
            raise UnsupportedError("a chain of comparisons of tensors")
        if node.label == "+" and len(values) == 1:  # `+x`
            return values[0]
        if node.kind == "binary" and any(item.rule == "list" for item in values):
            joined = self._joined_lists(node.label, *values)
            if joined is not None:
                return joined
        choices = [item for item in values if _is_tensor_or_number(item)]
        if choices and node.kind in ("unary", "binary"):
            # All tensors must be choices by one test; else no branch has all of them.
            test, chosen = choices[0].test, {item for item in values if item.is_tensor}
            if all(item in choices and item.test is test for item in chosen):
                return self._in_each_branch(node, test, values)
        return self._spelled(node, "operator", node.label, values)

    def _in_each_branch(self, node: Node, test: Op, values: Sequence[Op]) -> Op:
        """Apply an operator in each branch of its operands: `1 + c * 2`, with c a tensor in some calls and a number in others.

        Each tensor in `values` is a choice by `test`, its arguments are the two branches; so is the result.
        """
        sides = [
            [item.args[at] if item.is_tensor else item for item in values]
            for at in (0, 1)
        ]
        made = (
            (
                self.operator(node, *side)
                if any(item.is_tensor for item in side)
                else self._python_arithmetic(node, *side)
            )
            for side in sides
        )
        return self.chosen(test, *made)

    def _python_arithmetic(self, node: Node, *values: Op) -> Op:
        """Apply an operator to Python values: return the number if it is known and short, otherwise the op of the expression."""
        numbers = [found for item in values if (found := number(item)) is not None]
        # Both operands are numbers; one number alone may stand beside a size.
        made = computed(node.label, *numbers, short=True) if len(numbers) == 2 else None
        if made is not None:
            return self.program.const(made)
        return self.program.python(node.kind, node.label, *values)

    def _joined_lists(self, sign: str, left: Op, right: Op) -> Op | None:
        """Return the list an operator (`sign`) makes of lists, `[x] * 2` or `[x] + [y]`; None for others, or an unknown count."""
        times = literal(right)
        if sign == "*" and left.rule == "list" and isinstance(times, int):
            return self.program.op("list", left.args * times)
        if sign == "+" and left.rule == right.rule == "list":
            return self.program.op("list", left.args + right.args)
        return None

    def _spelled(
        self,
        node: Node,
        kind: str,
        name: str,
        values: Sequence[Op],
        named: Mapping[str, Op] | None = None,
    ) -> Op:
        """Return the op of a call, operator or attribute by the rule of this spelling; without a rule, as a call left to autograd.

        `kind` is "function", "method", "attribute" or "operator", `named` are keyword arguments. If only the call can tell which of
        several rules is meant, the result is a choice among them.
        """
        bound = self.applier.meant_rule(kind, name, values, named)
        if bound is not None:
            op = self._in_parts(node, bound) or self._applied(bound)
            return op or self._unknown(node)
        cases = self.applier.cases(kind, name, values, named)
        # With one undecided rule alone, the calls that it is not for have none.
        found = self._by_case(cases) if len(cases) > 1 else None
        return found or self._unknown(node)

    def _in_parts(self, node: Node, bound: Bound) -> Op | None:
        """Return the value of a call written in parts, one of them worth saving: `F.max_pool2d(x, 2, return_indices=True)[0]`.

        None if its rule has no parts, or if autocast forbids them:

        - Parts that are several calls, `F.nll_loss(F.log_softmax(x, 1), target)`, only outside of autocast: it may treat a part
          otherwise than the call. On a CPU `log_softmax` is not computed in float32, as `cross_entropy` is.
        - Parts that are one result of a single call, `torch.native_layer_norm(...)[0]`, only if the other results may be saved.
        """
        table, autocast = self.applier.table, bound.rule.facts.autocast
        parts = table.parts(bound.rule)
        if parts is None:
            return None
        several = parts.kind == "call"  # else one result of a call, `call(...)[0]`
        fits = not self._in_autocast if several else self._saves_parts(node, bound)
        # Autocast does nothing with a pooling, for one: its parts are always right.
        if autocast and not fits:
            return None
        if node not in self.parts:
            # Calls inside this one, in its arguments, are in parts already.
            inner = self.program.graph.rewrite(node, self.parts.get)
            written = in_parts(self.make, table, bound, inner)
            if written is None:
                return None
            self.parts[node] = written
        return self.value(self.parts[node])

    def _saves_parts(self, node: Node, bound: Bound) -> bool:
        """Return whether the mean and deviation of a norm are saved: PyTorch's backward takes them beside a gradient of a fitting dtype.

        The gradient of the norm that the op returns has the dtype of the norm. If a norm reads inputs alone, its gradient is cast to
        the dtype of the statistics (`simplify/autocast_casts`). Of any other norm no dtype is known.
        """
        of_inputs = all(op.rule == "input" for op in tensors(bound.args.values()))
        return node in self.returned or of_inputs and self.saves

    def _by_case(self, cases: Sequence[Bound]) -> Op | None:
        """Return a choice among the rules of all cases by their conditions; None if some call may have no rule.

        A case is a rule and its arguments. The last one is taken without a test of its own, if no other condition holds. That is
        right only if its own condition is known to hold then, by one of the others that does not.
        """
        table = self.applier.table
        try:
            *tests, last = (condition_of(self.make, table, *case) for case in cases)
        except UnsupportedError:  # a rank that is not known
            return None
        if not any(told_by(last, test, False) for test in tests):
            return None
        *bodies, choice = map(self._applied, cases)
        for test, body in zip(reversed(tests), reversed(bodies), strict=True):
            if body is None or choice is None:  # a rule that needs an unknown rank
                return None
            choice = self.chosen(test, body, choice)
        return choice

    def _applied(self, bound: Bound) -> Op | None:
        """Return the op of a rule's call, written out in primitives if its section has a `value`; None if that needs an unknown rank.

        A tuple split from one tensor and joined again, `torch.stack(x.unbind(1))`, is never split: it is a `movedim`.
        """
        if bound.rule.value is not None:
            return self._in_primitives(bound)
        several = {
            name: op
            for name, op in bound.args.items()
            # A variadic input is no tuple split from one tensor.
            if op.kind == "group" and op.active and op.rule != "input"
        }
        # A team's function may join without a `dim`.
        if several and "joins" in bound.rule.facts.flags and "dim" in bound.args:
            # `stack` or `cat`: their one argument of tensors, as (name, tuple).
            (whole, parted), dim = *several.items(), bound.args["dim"]
            stacked = bound.rule.facts.shape == "stacked"
            found = indexing.joined(self.applier, stacked, parted, dim)
            if found is not None:
                return found
            listed = self.listed(parted) or parted
            return self.applier.apply(bound.rule, {**bound.args, whole: listed})
        return self.applier.apply(bound.rule, bound.args)

    def _in_primitives(self, bound: Bound) -> Op | None:
        """Return a call written in primitives, by the `value` of its rule; None if that needs an unknown rank.

        Tuples among its arguments are written out as lists, if their length is known.
        """
        args = {name: self.listed(op) or op for name, op in bound.args.items()}
        try:
            return value_of(self.make, self.applier.table, bound.rule, args)
        except UnsupportedError:
            return None

    def attribute(self, node: Node) -> Op:
        """Return the op of an attribute of a tensor, `x.mT`; `x.data` is a `detach`, and `x.max(0).values` one of several results."""
        (inner,) = node.args  # the value before the dot
        value = self.value(inner)
        if value.kind == "group":
            return self._named_result(value, node.label)
        if node.label == "data":
            return self._spelled(node, "method", "detach", (value,))
        return self._spelled(node, "attribute", node.label, (value,))

    def _named_result(self, value: Op, name: str) -> Op:
        """Return a result by its name, as `x.max(-1).values`; raise `UnsupportedError` if the call has no such result."""
        rule = self.applier.table.of_op(value.rule)
        if rule is None or name not in rule.results:
            raise UnsupportedError(f".{name}")
        return self.item(value, rule.results.index(name))

    def subscript(self, node: Node) -> Op:
        """Return the op of an index; `x[(...,) + (None,) * n]` is a reshape to `n` more dims of size 1, for any `n`."""
        inner, index = node.args
        count = _new_dims(index)
        if count is None or not self.value(inner).is_tensor:
            return super().subscript(node)
        graph = self.program.graph
        shape = graph.node("attribute", "shape", (inner,))
        ones = graph.node("list", "", (graph.constant("1"),))
        more = graph.node("binary", "*", (ones, count))
        sizes = (graph.node("starred", "", (item,)) for item in (shape, more))
        callee = graph.node("attribute", "reshape", (inner,))
        return self.value(graph.node("call", "", (callee, *sizes)))

    # Calls

    def call(self, node: Node) -> Op:
        """Return the op of a call; an in-place call has the value of its out-of-place form, if that has a rule: `h.mul_(y)` of `h.mul(y)`."""
        changed = next(written_to(node), None)  # the tensor changed in place
        anew, flag = None, keywords(node).get("inplace")
        if changed is None and flag is None:
            return self._plain_call(node)
        # Of `F.relu(x, inplace=flag)` only the call tells whether x changes.
        if flag is not None and literal(self.value(flag)) is UNKNOWN:
            raise UnsupportedError(CHANGES)
        # Nothing else sees the change: its tensor has one name, or none. (Nothing changes with `inplace=False`.)
        if changed is None or node in self._own or not sharing(changed):
            anew = made_anew(self.program.graph, node)
        op = None if anew is None else self._plain_call(anew)
        # Without a rule for the other form, the call stays what it is, and may be refused.
        if op is None or self.applier.table.of_op(op.rule) is None:
            return self._plain_call(node)
        if changed is not None:
            self._refuse_change(self.value(changed))
        return op

    def _refuse_change(self, before: Op) -> None:
        """Raise `UnsupportedError` if an in-place change of the tensor `before` is refused by autograd, or may change an element twice.

        Autograd refuses if it has saved the tensor for a gradient; in `x.unfold(...)`, windows share elements.
        """
        table = self.applier.table
        *views, whole = same_storage(table, before)
        if any(view.facts.shape == OVERLAPPING for view in views):
            raise UnsupportedError(CHANGES)
        if whole.active and whole in retained(table, whole):
            raise UnsupportedError(READ_LATER)

    def _plain_call(self, node: Node) -> Op:
        """Return the op of a call as it stands, by the rule of its function or method.

        Raise `UnsupportedError` for a function not of PyTorch's, and for one that reads numbers out of a tensor, as `x.tolist()`.
        """
        callee, *args = node.args
        if "**" in node.keywords:
            raise UnsupportedError("a call with two stars")
        if node.names() & self.imported:
            raise UnsupportedError("it calls a function that is not PyTorch's")
        count = len(args) - len(node.keywords)
        values = self.several(args[:count])
        named = {key: self.value(item) for key, item in keywords(node).items()}
        path = dotted(callee)
        if path == "torch.broadcast_tensors" and values:
            return broadcast_together(self.applier, values)
        if callee.kind == "attribute" and callee.label in READ_OUT:
            raise UnsupportedError("it reads numbers out of a tensor")
        # `torch.exp(x)`; then `abs(x)`; then `x.exp()`.
        if path is not None and path.partition(".")[0] in WELL_KNOWN:
            self._cast_first(path, values, named)
            return self._spelled(node, "function", path, values, named)
        if callee.kind == "name":
            if callee.label in self.ruled:
                return self._spelled(node, "function", callee.label, values, named)
            plain = None if named else of_builtin(self.applier, callee.label, values)
            return plain or self._unknown(node)
        if callee.kind != "attribute":
            raise UnsupportedError("a call of an expression that is not a name")
        values = [self.value(callee.args[0]), *values]
        _refuse_in_place(callee.label, [*values, *named.values()])
        # Of an unknown dtype, so that the kind of the result is unknown.
        if callee.label == "type" and not self._learn_type([*values, *named.values()]):
            return self._unknown(node)
        self._cast_first(callee.label, values, named)
        return self._spelled(node, "method", callee.label, values, named)

    def _unknown(self, node: Node) -> Op:
        """Return the op of a call without a rule, left to autograd: a template with its tensors as arguments.

        Raise `UnsupportedError` if autograd alone could not differentiate it, or it changes a tensor.
        """
        called = node.args[0].label if node.args else ""
        if called in self.ruled:  # a team's own function, which autograd may not know
            found = self.applier.undecided(called)
            reason = f"no rule is for this call of {called}"
            raise UnsupportedError(found.said_of(called) if found else reason)
        refuse_changes(node)
        template, args = template_of(
            self.program.graph, node, self._argument, self.fixed
        )
        given = [arg for arg in args if arg.rule != "dtype"]
        if not given and creates(node):  # of Python values alone
            values = self.several(node.args[1:])
            return made(self.program, template, values, args)
        if any(not arg.is_tensor for arg in given) or not given:
            raise UnsupportedError(
                "a call over several tensors at once that has no rule"
            )
        # Is it differentiated? Not if no active tensor reaches it, nor if autograd does not.
        carrying = frozenset(name for name, op in self.env.items() if op.active)
        kind, active = kind_of_call(node, args), carries_gradient(node, carrying)
        active = active and any(arg.active for arg in args)
        active = active and not is_undifferentiated(node)
        if self.kinds.of(node) == "group":  # a tuple
            if active:
                raise UnsupportedError("several results of a call that has no rule")
            kind = "group"
        return self.program.op(
            "call", args, template, kind=kind, shape=None, active=active
        )

    def _learn_type(self, values: list[Op]) -> bool:
        """Record the dtype that `x.type("torch.FloatTensor")` names, on the op of its argument; return whether it is known.

        `values` are the tensor and the type. False for `x.type()`, which gives a string.
        """
        if len(values) < 2:
            return False
        wanted = values[1]
        if self.program.dtype(wanted) is None:
            kind = kind_of_type(wanted)
            if kind is not None:
                self.program.set_dtype(wanted, kind)
        return self.program.dtype(wanted) is not None

    def _argument(self, node: Node) -> Op | None:
        """Return the tensor an argument of a call without a rule is, or the `dtype` op of `y.dtype`; None for other Python values."""
        if not self.is_static(node):
            op = self.value(node)
            return None if op.rule in ("static", "python") else op
        dtype = node.kind == "attribute" and node.label == "dtype"
        read = self.value(node) if dtype else None
        return read if read and read.rule == "dtype" else None

    def _cast_first(self, name: str, values: list[Op], named: dict[str, Op]) -> None:
        """Replace `x.sum(dtype=d)` by `x.to(d).sum()`, in `values` or `named`: PyTorch casts before it computes.

        `name` is the function or method.
        """
        word = name.rpartition(".")[2]
        if "dtype" not in named or not computes_in_given_dtype(word):
            return
        dtype = named.pop("dtype")
        # `dtype=None` casts nothing; a tensor given by another keyword is not found.
        if literal(dtype) is None or not (values or "input" in named):
            return
        x = values[0] if values else named["input"]
        bound = self.applier.meant_rule("method", "to", (x, dtype))
        assert bound is not None
        cast = self.applier.apply(bound.rule, bound.args)
        if values:
            values[0] = cast
        else:
            named["input"] = cast

    # Several values

    def item(self, op: Op, position: int) -> Op:
        """Return one of several results, of a list, or of the sizes of a shape; raise `UnsupportedError` if there is none at `position`."""
        if op.rule == "list" and not -len(op.args) <= position < len(op.args):
            raise UnsupportedError("another number of values than of names")
        if op.rule == "list":
            return op.args[position]
        if op.rule == "shape":
            return size_at(self.program, op.asked, position)
        if op.kind == "static":  # an attribute that is a tuple
            if op.rule not in ("static", "python"):  # one number: `a, b = x.shape[0]`
                raise UnsupportedError("a part of a shape")
            at = self.program.const(position)
            return self.program.python("subscript", "", op, at)
        # Without a gradient, the index can be part of the call's own expression.
        if op.rule == "call" and not op.active:
            return item_of_call(self.program, op, position)
        # A variadic input and a choice between two calls are groups, too, but no rule knows their parts.
        if op.kind != "group" or op.rule in ("input", "cond"):
            raise UnsupportedError("several results of a call that has no rule")
        shape, kind, active = indexing.item_of(self.program, self.applier, op, position)
        return self.program.op(
            "item", (op,), Position(position), kind=kind, shape=shape, active=active
        )

    # Python values: sizes, attributes, tests, and arithmetic on them

    def test(self, node: Node) -> Op | bool:
        """Return the op of a condition fixed in each call, or its outcome if ranks and literals settle it; a name alone stays a test.

        Fixed means that it depends only on attributes, shapes and absent inputs; raise `UnsupportedError` if it depends on the
        numbers in a tensor.
        """
        outcome = truth(evaluated(node, self._known_value))
        if outcome is not None and node.kind != "name":
            return outcome
        if not self.is_static(node):
            raise UnsupportedError("a condition depends on the data of a tensor")
        return self._presence(node) or self.program.static(self.fixed(node))

    def _presence(self, node: Node) -> Op | None:
        """Return `emb is not None` for `scale is not None`, if `scale` is a local set to None in just the calls without `emb`.

        So the backward asks the same of an input. None for other tests, and if the outcome is known.
        """
        match node:
            case Node("compare") if checked := checked_for_none(node):
                name, present = checked
                op = self.env.get(name)
                presence = given(self.program, op) if op and op.rule == "cond" else None
                if presence is None or literal(presence) is not UNKNOWN:
                    return None
                return presence if present else opposite(self.program, presence)
            case Node("unary", "not", (inner,)):
                asked = self._presence(inner)
                return asked and opposite(self.program, asked)
            case Node("boolean", label, parts):
                each = [self._presence(part) for part in parts]
                if any(each):
                    pairs = zip(each, parts, strict=True)
                    made = dict.fromkeys(
                        asked or self.program.static(self.fixed(part))
                        for asked, part in pairs
                    )
                    first, *rest = made
                    python = self.program.python
                    return python("boolean", label, first, *rest) if rest else first
        return None

    def _known_value(self, node: Node) -> object:
        """Return the value of a name, or the rank of a tensor (`x.ndim`, `len(x.shape)`), if known before the call; else `UNKNOWN`."""
        match node:
            case Node("name", name) if name in self.env:
                op = self.env[name]
                return literal(op) if op.kind == "static" else UNKNOWN
            # `x.ndim`, `x.dim()` and `len(x.shape)`.
            case (
                Node("attribute", "ndim", (x,))
                | Node("call", _, (Node("attribute", "dim" | "ndimension", (x,)),))
                | Node(
                    "call", _, (Node("name", "len"), Node("attribute", "shape", (x,)))
                )
            ) if (x.kind == "name"):
                value = self.env.get(x.label)
                rank = value.shape.rank if value and value.is_tensor else None
                return UNKNOWN if rank is None else rank
        return of_math(node, self._known_value)

    def is_static(self, node: Node) -> bool:
        """Return whether an expression is a Python value fixed in each call, not a tensor and not read out of one, as `x.item()`."""
        scalar = self.kinds.of(node) == "scalar"
        return scalar and not any(item.label in READ_OUT for item in node.walk())

    def _static(self, node: Node) -> Op:
        """Return the op of a Python value computed by an expression: sizes of a shape, a dtype, arithmetic.

        Sizes are read from the op's shape, not from the text, so that equal sizes are equal ops.
        """
        shape_of, size = shape_read(node), size_read(node)
        if shape_of is not None and not self.is_static(shape_of):
            return self.program.op("shape", (), OfShape(self.value(shape_of).shape))
        if size is not None:
            return self._size(node, *size)
        match node:
            case Node("attribute", "dtype", (inner,)) if not self.is_static(inner):
                return self._dtype(node, self.value(inner))
            # `x.type()`, the string that `y.type(x.type())` takes as a dtype.
            case Node("call", _, (Node("attribute", "type", (inner,)),)):
                op = self.program.static(self.fixed(node))
                self.program.set_dtype(op, self.value(inner).kind)
                return op
        sizes = self._size_list(node) if _joins_or_cuts(node) else None
        if sizes is not None:
            return self.program.op("list", sizes)
        of = self._leading_dims_of(node)
        if of is not None:
            return self.program.op("lead_dims", (), OfShape(self.value(of).shape))
        op = self.program.static(self.fixed(node))
        # So that the size `n + 1`, of a slice or a new tensor, is known to be one more than n.
        match node:
            case Node("binary", "+" | "-" | "*" | "//" as sign, parts):
                if is_int(self.program, op):
                    self.program.compute(op, sign, *map(self.value, parts))
        return op

    def _size_list(self, node: Node) -> Sequence[Op] | None:
        """Return the sizes in `x.shape[:-1] + (2, 2)`, one op for each; None if their number is unknown before the call."""
        match node:
            case Node("binary", "+", (left, right)):
                first, second = self._size_list(left), self._size_list(right)
                if first is None or second is None:
                    return None
                return [*first, *second]
            case Node("subscript", _, (inner, Node("slice") as cut)):
                row, known = self._size_list(inner), self._slice(cut)
                return None if row is None or known is None else row[known]
            case Node("name" | "tuple" | "list" | "attribute"):
                op = self.value(node)
                if op.rule == "shape" and op.asked.rank is not None:
                    places = range(op.asked.rank)
                    return [size_at(self.program, op.asked, at) for at in places]
                # `*sizes` may be any number of them.
                plain = all(x.kind == "static" and x.rule != "starred" for x in op.args)
                return op.args if op.rule == "list" and plain else None
        return None

    def _slice(self, node: Node) -> slice | None:
        """Return `1:-1` of an index as a Python slice; None if a bound is unknown before the call."""
        bounds = [
            None if end.kind == "absent" else literal(self.value(end))
            for end in node.args
        ]
        known = [item for item in bounds if isinstance(item, int | None)]
        return slice(*known) if len(known) == len(bounds) else None

    def _leading_dims_of(self, node: Node) -> Node | None:
        """Return the tensor `x` of `list(range(x.ndim - 1))`, the dims the gradient of a weight sums over; None for others."""
        match node:
            case Node(
                "call",
                _,
                (
                    Node("name", "list"),
                    Node(
                        "call",
                        _,
                        (
                            Node("name", "range"),
                            Node(
                                "binary",
                                "-",
                                (
                                    Node("attribute", "ndim", (inner,)),
                                    Node("constant", "1"),
                                ),
                            ),
                        ),
                    ),
                ),
            ) if not self.is_static(inner):
                return inner
        return None

    def _dtype(self, node: Node, value: Op) -> Op:
        """Return the dtype of a tensor as a Python value; if its name is assigned twice, read from an input of the same dtype."""
        if not self._changes(node):
            op = self.program.static(node)
        else:
            of_input = self._read_from_input(value, "dtype")
            op = of_input or self.program.op("dtype", (value,))
        self.program.set_dtype(op, value.kind)
        return op

    def _size(self, node: Node, inner: Node, index: Node) -> Op:
        """Return the size `inner.shape[index]`; as an expression if the index is unknown before the call."""
        size_op = self._part_of_shape(inner, index)
        return self.program.static(self.fixed(node)) if size_op is None else size_op

    def _part_of_shape(self, inner: Node, index: Node) -> Op | None:
        """Return `x.shape[1]` or `x.shape[:-1]`, as one size or a list; None if the index or a needed rank is unknown before the call."""
        at = constant(self.program, index)
        value = None if at is None else literal(at)
        if not isinstance(value, int) or self.is_static(inner):
            return self._cut(inner, index)
        return size_at(self.program, self.value(inner).shape, value)

    def _cut(self, inner: Node, index: Node) -> Op | None:
        """Return the sizes in `x.shape[:-1]` as a list; None for any other index, or an unknown rank."""
        if index.kind != "slice" or self.is_static(inner):
            return None
        known, shape = self._slice(index), self.value(inner).shape
        if known is None or shape.rank is None:
            return None
        places = range(shape.rank)[known]
        return self.program.op(
            "list", [size_at(self.program, shape, at) for at in places]
        )

    def fixed(self, node: Node) -> Node:
        """Return the expression over names assigned once, as the backward reads it; sizes are read from tensors at hand.

        Raise `UnsupportedError` if a name assigned twice remains: the backward would read its last value.
        """

        def placed(item: Node) -> Node | None:
            """Return an expression over names assigned once as it is, a size or name as its value; None to go on into its parts."""
            if not self._changes(item):
                return item
            found = self._metadata(item)
            return None if found is None else static_node(self.program, found)

        if not self._changes(node):
            return node
        done = self.program.graph.rewrite(node, placed)
        for name in done.names():
            if self.writes.get(name, 0) > 1:
                raise UnsupportedError(
                    f"'{name}' is assigned twice, and read as a Python value"
                )
        return done

    def _changes(self, node: Node) -> bool:
        """Return whether an expression reads a name assigned more than once: its value then depends on the line."""
        return any(self.writes.get(name, 0) > 1 for name in node.names())

    def _metadata(self, node: Node) -> Op | None:
        """Return the op of a Python name, or of a tensor's shape, rank, length, dtype or device; None for other expressions."""
        size = size_read(node)
        if size is not None:
            return self._part_of_shape(*size)
        match node:
            case Node("name", name) if name in self.env:
                op = self.env[name]
                return op if op.kind == "static" else None
            case Node("attribute", "shape" | "ndim" as label, (inner,)):
                of_shape = OfShape(self.value(inner).shape)
                return self.program.op(
                    "shape" if label == "shape" else "rank", (), of_shape
                )
            case Node("call", _, (Node("name", "len"), inner)):
                return self._length(inner)
            case Node("call", _, (Node("attribute", "numel" | "nelement", (inner,)),)):
                return self.program.op("count", (), OfShape(self.value(inner).shape))
            case Node("call", _, (Node("attribute", "dim" | "ndimension", (inner,)),)):
                return self.program.op("rank", (), OfShape(self.value(inner).shape))
            case Node("attribute", "dtype" | "device" as label, (inner,)):
                value = self.value(inner)
                found = self._read_from_input(value, label)
                # There is an op for the dtype of a value in the forward, and none for its device.
                if found is None and label == "dtype" and value.is_tensor:
                    return self.program.op("dtype", (value,))
                return found
        return None

    def _length(self, inner: Node) -> Op | None:
        """Return the op of `len(inner)`: the first size of a tensor, the rank for its shape, the count of known items; else None."""
        match inner:
            case Node("attribute", "shape", (x,)) if not self.is_static(x):
                of_shape = OfShape(self.value(x).shape)
                return self.program.op("rank", (), of_shape)
        value = self.value(inner)
        if value.is_tensor:
            return size_at(self.program, value.shape, 0)
        items = self.listed(value)
        return None if items is None else self.program.const(len(items.args))

    def _read_from_input(self, value: Op, label: str) -> Op | None:
        """Return the dtype or the device (`label`) of a tensor as the attribute of an input that has the same: `x.dtype`.

        None if no such input is certain: a call without a rule may return a tensor on another device; an input may be None.
        """
        source = source_of(value)
        if source is None and label == "device":
            inputs = (op for op in value.walk() if op.rule == "input")
            # The one of most dims: beside tensors on a GPU, PyTorch takes one without dims from the CPU too.
            source = max(inputs, key=lambda op: op.shape.least, default=None)
            if any(op.rule == "call" and any(tensors(op.args)) for op in value.walk()):
                source = None  # a call may return a tensor on another device
        if source is None or may_be_none(self.program, source):
            return None
        graph = self.program.graph
        node = graph.node("attribute", label, (graph.name(source.name),))
        return self.program.static(node)


def _joins_or_cuts(node: Node) -> bool:
    """Return whether an expression joins or slices lists, perhaps of sizes: `sizes + (2, 2)`, `sizes[:-1]`; then it is worth reading as sizes."""
    match node:
        case Node("subscript", _, (_, Node("slice"))):
            return True
        case Node("binary", "+", parts):
            return any(x.kind in ("tuple", "list") or _joins_or_cuts(x) for x in parts)
    return False


def _new_dims(index: Node) -> Node | None:
    """Return the number of dims an index appends: `n` of `(...,) + (None,) * n`; None for other indices."""
    match index:
        case Node(
            "binary",
            "+",
            (
                Node("tuple", _, (Node("constant", "..."),)),
                Node("binary", "*", (Node("tuple", _, (Node("constant", "None"),)), n)),
            ),
        ):
            return n
    return None


def _refuse_in_place(label: str, values: list[Op]) -> None:
    """Raise `UnsupportedError` for an in-place method of an active value, which a gradient may read: `torch.exp(x).igamma_(y)`.

    Asked of calls as written: `call` has found no out-of-place form with a rule, or another name may see the change.
    """
    if label.endswith("_") and any(op.active for op in values):
        raise UnsupportedError("it changes a tensor in place")


# --- Functions of several tensors at once: Python's own (`abs(x)`, `sum(parts)`), and `torch.broadcast_tensors`.
#
# In: a name and arguments. Out: an op, or None if no primitive does the same. Invariant: `sum` adds up the items it iterates over, for a
# tensor those along its first dim.


LIKE_METHODS = frozenset({"abs", "pow"})


def of_builtin(applier: Applier, name: str, values: Sequence[Op]) -> Op | None:
    """Return the op of `abs(x)`, `pow(x, y)` or `sum(parts)` of tensors; None for any other Python function."""
    if name in LIKE_METHODS:
        bound = applier.meant_rule("method", name, values)
        return bound and applier.apply(bound.rule, bound.args)
    if name == "sum" and len(values) == 1:
        return _sum(applier, values[0])
    return None


def broadcast_together(applier: Applier, values: Sequence[Op]) -> Op:
    """Return the list of `torch.broadcast_tensors`: each tensor expanded to the common shape."""
    program = applier.program
    common = broadcast(*(value.shape for value in values))
    shape = program.op("shape", (), OfShape(common))
    return program.op(
        "list",
        [
            value if value.shape == common else applier.named("expand", value, shape)
            for value in values
        ],
    )


def _sum(applier: Applier, items: Op) -> Op | None:
    """Return the op of Python's `sum` of a tensor, of `x.unbind(dim)`, or of several tensors; None for other items."""
    if items.is_tensor:
        return applier.named("sum", items, applier.program.const(0))
    if indexing.are_parts(applier, items) and indexing.are_single(items):
        return applier.named("sum", *items.args)
    if items.rule != "list" or not items.args:
        return None
    first, *rest = items.args
    for item in rest:
        first = applier.named("add", first, item)
    return first


def _is_tensor_or_number(op: Op) -> bool:
    """Return whether a value is a choice between a tensor and a number: an operator is then applied in each branch."""
    if op.rule != "cond":
        return False
    # False sorts first: `one` is the number, if either is.
    one, other = sorted(op.args, key=lambda arg: arg.is_tensor)
    return one.kind == "static" and literal(one) is not None and other.is_tensor
