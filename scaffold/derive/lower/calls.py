"""Calls of the forward as primitives.

In: an expression, and the op of each name in it. Out: its op. Invariant: a call that no rule is about stays what it is, over
the tensors in it; one that changes a tensor under other eyes is refused.
"""

from collections.abc import Sequence

from scaffold.derive.activity import READ_OUT, carries_gradient
from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.op import OfShape, Op, literal
from scaffold.derive.graph.shapes import broadcast
from scaffold.derive.graph.static_values import UnsupportedError, dotted
from scaffold.derive.lower.autograd_saved import retained
from scaffold.derive.lower.expressions import Expressions, kind_of_type
from scaffold.derive.lower.mutation import made_anew
from scaffold.derive.lower.unruled_calls import (
    creates,
    kind_of_call,
    made,
    refuse_changes,
    template_of,
)
from scaffold.formula import WELL_KNOWN, Node, keywords, sharing, written_to
from scaffold.spec import OpSpec

# --- Functions of several tensors at once: Python's own (`abs(x)`, `sum(parts)`), and `torch.broadcast_tensors`.
#
# In: a name and arguments. Out: an op, or None where Python decides on data, or does what no primitive does. Invariant: `sum` adds up
# what it iterates over, which of a tensor is its first dim.


LIKE_METHODS = frozenset({"abs", "pow"})


def of_builtin(applier: Applier, name: str, values: Sequence[Op]) -> Op | None:
    """What a builtin function makes of tensors."""
    if name in LIKE_METHODS:
        bound = applier.found("method", name, values)
        return bound and applier.apply(bound.rule, bound.args)
    if name == "sum" and len(values) == 1:
        return _sum(applier, values[0])
    return None


def broadcast_together(applier: Applier, values: Sequence[Op]) -> Op:
    """Each of the tensors in the shape that they have together."""
    program = applier.program
    whole = broadcast(*(value.shape for value in values))
    shape = program.op("shape", (), OfShape(whole))
    return program.op(
        "list",
        [
            value if value.shape == whole else applier.named("expand", value, shape)
            for value in values
        ],
    )


def _sum(applier: Applier, items: Op) -> Op | None:
    if items.is_tensor:
        return applier.named("sum", items, applier.program.const(0))
    if items.rule == "unbind":
        return applier.named("sum", *items.args)
    if items.rule != "list" or not items.args:
        return None
    first, *rest = items.args
    for item in rest:
        first = applier.named("add", first, item)
    return first


# --- Calls of the forward as primitives.


# What computes in a dtype that it is given, as if its argument had that one.
CASTING = frozenset(
    {"sum", "mean", "prod", "cumsum", "cumprod", "softmax", "log_softmax", "softmin"}
    | {"nansum", "norm", "vector_norm"}
)

READ_LATER = "it changes in place what the gradient of that value reads"


class Calls(Expressions):
    """Turns calls into ops."""

    def __init__(self, spec: OpSpec, applier: Applier, wanted: frozenset[str]) -> None:
        super().__init__(spec, applier, wanted)
        self.own: frozenset[Node] = frozenset()  # calls that change a name's tensor

    def _call(self, node: Node) -> Op:
        changed = next(written_to(node), None)
        plain = None
        if changed is None and "inplace" not in node.keywords:
            return self._plain_call(node)
        if changed is None or node in self.own or not sharing(changed):
            plain = made_anew(self.program.graph, node)
        op = None if plain is None else self._plain_call(plain)
        if op is None or self.applier.table.of_op(op.rule) is None:
            return self._plain_call(node)
        before = None if changed is None else self.value(changed)
        if before and before.active and before in retained(self.applier.table, before):
            raise UnsupportedError(READ_LATER)
        return op

    def _plain_call(self, node: Node) -> Op:
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
        if path is not None and path.partition(".")[0] in WELL_KNOWN:
            self._cast_first(path, values, named)
            return self._applied(
                self.applier.found("function", path, values, named), node
            )
        if callee.kind == "name":
            if callee.label in self.ruled:
                bound = self.applier.found("function", callee.label, values, named)
                return self._applied(bound, node)
            plain = None if named else of_builtin(self.applier, callee.label, values)
            return plain or self._unknown(node)
        if callee.kind != "attribute":
            raise UnsupportedError("a call of what is no name")
        values = [self.value(callee.args[0]), *values]
        _refuse_in_place(callee.label, [*values, *named.values()])
        if callee.label == "type" and not self._is_known_type(
            [*values, *named.values()]
        ):
            return self._unknown(node)
        self._cast_first(callee.label, values, named)
        return self._applied(
            self.applier.found("method", callee.label, values, named), node
        )

    def _unknown(self, node: Node) -> Op:
        """A call without a rule, over the tensors in it."""
        if node.args[0].label in self.ruled:
            raise UnsupportedError(f"no rule is for this call of {node.args[0].label}")
        refuse_changes(node)
        template, args = template_of(
            self.program.graph, node, self._argument, self.fixed
        )
        given = [arg for arg in args if arg.rule != "dtype"]
        if not given and creates(node):
            values = [self.value(item) for item in node.args[1:]]
            return made(self.program, template, values, args)
        if any(not arg.is_tensor for arg in given) or not given:
            raise UnsupportedError(
                "a call over several tensors at once that has no rule"
            )
        carrying = frozenset(name for name, op in self.env.items() if op.active)
        kind, active = kind_of_call(node, args), carries_gradient(node, carrying)
        active = active and any(arg.active for arg in args)
        if self.kinds.of(node) == "group":
            if active:
                raise UnsupportedError("several results of a call that has no rule")
            kind = "group"
        return self.program.op(
            "call", args, template, kind=kind, shape=None, active=active
        )

    def _is_known_type(self, values: list[Op]) -> bool:
        """Whether the type that `x.type(...)` is given is known: a dtype, one by name, that of a tensor."""
        if len(values) < 2:
            return False
        wanted = values[1]
        if self.program.dtype(wanted) is None:
            kind = kind_of_type(wanted)
            if kind is not None:
                self.program.set_dtype(wanted, kind)
        return self.program.dtype(wanted) is not None

    def _argument(self, node: Node) -> Op | None:
        """The tensor that an argument is, or that it takes the dtype of; None for a Python value."""
        if not self.is_static(node):
            op = self.value(node)
            return None if op.rule == "static" else op
        dtype = node.kind == "attribute" and node.label == "dtype"
        read = self.value(node) if dtype else None
        return read if read and read.rule == "dtype" else None

    def _cast_first(self, name: str, values: list[Op], named: dict[str, Op]) -> None:
        """`x.sum(dtype=d)` is `x.to(d).sum()`."""
        if name.rpartition(".")[2] not in CASTING or "dtype" not in named:
            return
        dtype = named.pop("dtype")
        if literal(dtype) is None or not (values or "input" in named):
            return
        x = values[0] if values else named["input"]
        bound = self.applier.found("method", "to", (x, dtype))
        assert bound is not None
        cast = self.applier.apply(bound.rule, bound.args)
        if values:
            values[0] = cast
        else:
            named["input"] = cast


def _refuse_in_place(label: str, values: list[Op]) -> None:
    """Refuse a method that changes what a gradient may read again: `torch.exp(x).mul_(y)`."""
    if label.endswith("_") and any(op.active for op in values):
        raise UnsupportedError("it changes a tensor in place")
