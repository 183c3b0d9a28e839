"""Application of primitives: of a call as written, or of a rule by name, with the result's shape and kind.

In: a `Table` and a `Program`. Out: ops with all parameters of their rule, in its order. Invariant: a parameter that
takes no tensor gets none; a call without a fitting rule is not guessed at; unknown facts of a result are left open.

Lowering applies calls of the user's text, everything after it rules by name. Words: a rule is the section of a
primitive in the table; a spelling is one of the calls that mean it, `x.sum(dim)`; a call is `bound` once each
parameter of a rule has its argument. A rule may hold under a condition only, its `when`. The kind is that of the
elements: real, complex, int or bool; Python values are `static`, several results are a `group`. An op is active if a
gradient passes through it. A rule is meant if it is for that call; `said` is the word of the table for a kind. A kind
is "kept" if it is that of the arguments.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scaffold.derive.graph.conditions import holds, undecided
from scaffold.derive.graph.op import Kind, Op, Program, is_number, literal, tensors
from scaffold.derive.graph.shape_rules import Args, shape_said
from scaffold.derive.graph.shapes import SCALAR, Shape
from scaffold.derive.graph.static_values import (
    UnsupportedError,
    is_complex,
    is_int,
    is_sequence,
)
from scaffold.derive.rules.call_bindings import Spelling, bind
from scaffold.derive.rules.table import Rule, SpelledRule, Table
from scaffold.formula import UNKNOWN, Node, emit, literal_value
from scaffold.primitives.facts import MOVING

FIXED: Mapping[str, Kind] = {
    "bool": "bool",
    "int": "int",
    "real": "real",
    "complex": "complex",
}


class Inferred(NamedTuple):
    """The shape and the kind of a result, as far as known."""

    shape: Shape | None
    kind: Kind


def infer(program: Program, rule: Rule, args: Args) -> Inferred:
    """Return the shape and kind of a rule's result for these arguments, by parameter.

    Several results together are a "group" without a shape: each has its own as an item.
    """
    if rule.results != ("result",):
        return Inferred(SCALAR, "group")
    return Inferred(
        shape_said(program, rule.facts.shape, args), kind_of(program, rule, args)
    )


def kind_of(program: Program, rule: Rule, args: Args, position: int = 0) -> Kind:
    """Return the kind of a rule's result at a position: by its `dtype` argument if there is one, otherwise by the table.

    The table's word (`said`) is a parameter with the same kind, a kind, or a way of promotion.
    """
    said = rule.facts.kind(position)
    dtype = args.get("dtype")
    # `x.to("cuda")`: a device in the place of a dtype
    if dtype is not None and _is_device(program.value_of(dtype)):
        # Left out of the arguments too: `y.device` would count as a number of unknown type.
        args = {name: item for name, item in args.items() if item is not dtype}
        dtype = None
    has_dtype = dtype is not None and literal(dtype) is not None
    known = None if dtype is None else program.dtype(dtype)
    if known is not None:
        return known
    if said in args:
        kind = args[said].kind
    else:
        kind = FIXED.get(said) or _promoted_kind(program, rule, args, said)
    # A dtype not known before the call may be a real one.
    return "real" if has_dtype and kind in ("int", "bool") else kind


def _is_device(op: Op) -> bool:
    """Return whether an argument of `x.to(...)` is a device and not a dtype: `"cuda"`, `y.device`, `torch.device("cuda")`."""
    # `torch.device(...)`: what is called ends in `.device`, as `y.device` does.
    if op.is_python("call"):
        op = op.args[0]
    text = literal(op)
    if isinstance(text, str):
        return not text.startswith("torch.")  # x.type("torch.LongTensor")
    return op.is_python("attribute", "device")


def _promoted_kind(program: Program, rule: Rule, args: Args, said: str) -> Kind:
    """Return the kind the arguments promote to, by the table's word for it (`said`); real if none is a tensor.

    "float": an int becomes real; "kept": no change; "number": a bool becomes an int; "magnitude": a complex value
    becomes real.
    """
    everything = {item.kind for item in tensors(args.values())}
    if "complex" in everything or _complex_number(args):
        return "real" if said == "magnitude" else "complex"
    # An index or a mask decides only if no other tensor is given.
    nondiff = rule.facts.nondiff
    given = (item for name, item in args.items() if name not in nondiff)
    kinds = {item.kind for item in tensors(given)} if nondiff else everything
    kinds = kinds or everything
    moves = rule.category in MOVING  # its numbers are positions, not elements
    if said == "float" or "real" in kinds or not kinds:
        return "real"
    if not moves and _real_number(program, args):
        return "real"
    return "bool" if said != "number" and kinds == {"bool"} else "int"


def _real_number(program: Program, args: Args) -> bool:
    """Return whether the arguments include a Python float, or a Python value that is not certainly an int.

    With a tensor of ints, such a number makes the result real.
    """
    python_values = (item for item in args.values() if not item.is_tensor)
    return any(
        isinstance(value := literal(item), float)
        or (value is UNKNOWN and not is_int(program, item))
        for item in python_values
    )


def _complex_number(args: Args) -> bool:
    """Return whether the arguments include an imaginary number, `2j`: it makes the result complex."""
    # A list is left out: `is_complex` would look into its tensors.
    return any(
        item.rule in ("const", "static", "python") and is_complex(item)
        for item in args.values()
    )


WITHOUT_GRADIENT = "constant"
OF_MATRICES = frozenset({"contraction", "linalg"})  # none takes a number
FOR_FORMULAS = "backward"  # a forward cannot use its rules


class Bound(NamedTuple):
    """A rule and the argument of each of its parameters."""

    rule: Rule
    args: dict[str, Op]


class Undecided(NamedTuple):
    """A candidate rule of a call, and the condition of its `when` undecided before the call."""

    rule: str
    condition: str

    def said_of(self, called: str) -> str:
        """Return the sentence for the user on a call of the function or method `called`."""
        return f"{called} has the rule {self.rule} only where {self.condition}, which is not known before the call"


class Applier:
    """A maker of ops of one program, by the rules of a table."""

    def __init__(self, program: Program, table: Table) -> None:
        """Make ops in `program`, by the rules of `table`; undecided calls and defaults are remembered."""
        self.program, self.table = program, table
        self._undecided: dict[str, Undecided] = {}
        self._defaults: dict[Node, Op] = {}

    def undecided(self, called: str) -> Undecided | None:
        """Return the rule possibly meant by a call of that function, with its undecided condition; None without one.

        For a note to the user. It is noted by `meant_rule`, which returned None for that call.
        """
        return self._undecided.get(called)

    def meant_rule(
        self,
        kind: str,
        name: str,
        positional: Sequence[Op],
        keywords: Mapping[str, Op] | None = None,
    ) -> Bound | None:
        """Return the first rule certainly meant by a call, with its arguments; None if no rule certainly is.

        `kind` is the spelling, "function", "method", "attribute" or "operator"; `name` is as in the table. A rule
        which may be meant, by a condition unknown before the call, is noted for `undecided`.
        """
        maybe = list[Undecided]()
        for item in self.table.find(kind, name):
            bound = self._bind(item, positional, keywords or {})
            if bound is None:
                continue
            is_meant = self._is_meant(item.rule, bound)
            if is_meant:
                return Bound(item.rule, bound)
            # Its condition is undecided; a later rule may be for any call, as `nll_loss` behind a special case.
            if is_meant is None:
                maybe.append(self._with_condition(item.rule, bound))
        if maybe:
            self._undecided[name] = maybe[0]
        return None

    def cases(
        self,
        kind: str,
        name: str,
        positional: Sequence[Op],
        keywords: Mapping[str, Op] | None = None,
    ) -> tuple[Bound, ...]:
        """Return all rules possibly meant by a call, for an argument to decide at run time: `F.gelu(x, approximate=kind)`.

        Asked if `meant_rule` has found none that is certainly meant. The caller makes a choice of them, by their
        conditions.
        """
        possible = []
        for item in self.table.find(kind, name):
            bound = self._bind(item, positional, keywords or {})
            if bound is not None and self._is_meant(item.rule, bound) is None:
                possible.append(Bound(item.rule, bound))
        return tuple(possible)

    def _bind(
        self, item: SpelledRule, positional: Sequence[Op], keywords: Mapping[str, Op]
    ) -> dict[str, Op] | None:
        """Return the argument of each parameter of a rule, with defaults; None if the call does not fit its parameters.

        Also None if a tensor is given to a parameter that takes none, or for a rule without parameters. Other names
        of a parameter count (`axis` for `dim`).
        """
        names = {one.name for one in item.spelled.parameters}
        by_name = {
            # A parameter of that very name goes first: `input` of `F.linear`.
            KEYWORDS.get(key, key) if key not in names else key: value
            for key, value in keywords.items()
        }
        if len(by_name) != len(keywords):  # `dim` and `axis` both
            return None
        bound = bind(item.spelled, positional, by_name, self._as_one)
        if bound is None or any(one.rule == "starred" for one in bound.values()):
            return None  # the parameters of `*several` are unknown
        rule = item.rule
        args = self.completed(rule, self._with_defaults(item.spelled, bound))
        fits = args is not None and all(
            # A coded rule need not list its tensors, as `matmul`: any argument may be one.
            rule.code or name in rule.tensors or not any(tensors((value,)))
            for name, value in args.items()
        )
        return args if fits and args else None

    def _with_condition(self, rule: Rule, args: Mapping[str, Op]) -> Undecided:
        """Return a rule with the undecided part of its condition, as text for the user."""
        test = self.table.condition(rule)
        assert test is not None
        return Undecided(rule.name, emit(undecided(self.program, test, args)))

    def _is_meant(self, rule: Rule, args: Mapping[str, Op]) -> bool | None:
        """Return whether a rule is for such arguments, by its `when` and `complex`; None if unknown before the call.

        `x.std(True)` is refused: a bool in the place of `dim` is the `unbiased` of another overload.
        """
        if rule.category == FOR_FORMULAS:
            return False
        if "dim" in args and isinstance(literal(args["dim"]), bool):
            return False
        kinds = {value.kind for value in tensors(args.values())}
        if rule.facts.complex is False and "complex" in kinds:
            return False
        if rule.facts.complex == "only" and "complex" not in kinds:
            return False
        test = self.table.condition(rule)
        return True if test is None else holds(self.program, test, args)

    def _as_one(self, values: Sequence[Op]) -> Op:
        """Return the op for a parameter with several values, as in `x.view(2, 3)`: a list, or the one argument if it is a tuple.

        So `x.view((2, 3))` is the same op.
        """
        if len(values) == 1 and (
            values[0].kind == "group" or _may_be_tuple(self.program, values[0])
        ):
            return values[0]
        return self.program.op("list", values)

    def _with_defaults(self, spelled: Spelling, bound: dict[str, Op]) -> dict[str, Op]:
        """Add the defaults of a call's spelling to its arguments.

        The spelling is one of the calls that mean the rule; the rule itself may have other defaults.
        """
        for item in spelled.parameters:
            if item.name not in bound and item.default is not None:
                bound[item.name] = self.default(item.default)
        return bound

    def completed(self, rule: Rule, bound: Mapping[str, Op]) -> dict[str, Op] | None:
        """Return an argument for each parameter of a rule, in order, with defaults.

        None if one without a default is missing, or an argument belongs to no parameter.
        """
        args: dict[str, Op] = {}
        for item in rule.parameters:
            if item.name in bound:
                args[item.name] = bound[item.name]
            elif item.default is not None:
                args[item.name] = self.default(item.default)
            else:
                return None
        return args if bound.keys() <= args.keys() else None

    def takes_none(self, op: Op, arg: Op) -> bool:
        """Return whether an op accepts None for an argument it has, as `F.linear` for its bias.

        Then no test for None is needed around the op. Only an input or a Python value can be None.
        """
        rule = self.table.of_op(op.rule)
        if arg.rule not in ("input", "static", "python") or rule is None:
            return False
        parameters = rule.parameters
        return any(
            value is arg and item.default is not None and item.default.label == "None"
            for value, item in zip(op.args, parameters, strict=False)
        )

    def default(self, node: Node) -> Op:
        """Return the default of a rule's parameter as an op, made once."""
        default = self._defaults.get(node)
        if default is None:
            default = constant(self.program, node) or self.program.static(node)
            self._defaults[node] = default
        return default

    def apply(self, rule: Rule, args: Mapping[str, Op]) -> Op:
        """Return the op of a rule with all its arguments; it is active if a gradient passes to an active argument.

        Raise `UnsupportedError` for a tuple of unknown length, or for the number 0 (a gradient of zeros) in the place
        of a matrix or of a tensor to be joined.
        """
        made = self.program.made(rule.op, args.values())
        if made is not None:
            return made
        # A variadic input, or a split of unknown length: its tensors have no ops of their own.
        if any(op.kind == "group" and op.active for op in args.values()):
            raise UnsupportedError("a tuple of any length")
        of_tensors = rule.category in OF_MATRICES or "joins" in rule.facts.flags
        if of_tensors and _has_zero(rule, args):
            raise UnsupportedError(f"{rule.op} of the number 0")
        inferred = infer(self.program, rule, args)
        active = rule.category != WITHOUT_GRADIENT and inferred.kind in ACTIVE
        given = (op for name, op in args.items() if name in rule.formulas or rule.code)
        active = active and any(op.active for op in tensors(given))
        return self.program.op(
            rule.op,
            args.values(),
            kind=inferred.kind,
            shape=inferred.shape,
            active=active,
        )

    def named(self, name: str, *positional: Op) -> Op:
        """Return the op of a primitive by its name in the graph: `named("sum", x, dim)`. A missing argument gets its default.

        Raise `UnsupportedError` for another name. Arguments from the first keyword-only parameter on are bound by
        name.
        """
        rule = self.table.of_op(name)
        if rule is None:
            raise UnsupportedError(f"{name} is not a primitive")
        # The number of parameters before the first keyword-only one; a starred one takes several arguments.
        only = (at for at, item in enumerate(rule.parameters) if item.keyword)
        count = next(only, len(positional))
        plain, rest = positional[:count], positional[count:]
        names = (item.name for item in rule.parameters[count:])
        keywords = dict(zip(names, rest, strict=False))
        bound = bind(rule.spelled, plain, keywords, self._as_one)
        return self._applied(rule, bound)

    def _applied(self, rule: Rule, bound: Mapping[str, Op] | None) -> Op:
        """Return the op of a rule with defaults; raise `UnsupportedError` if `bound` is None or lacks an argument."""
        args = None if bound is None else self.completed(rule, bound)
        if args is None:
            raise UnsupportedError(f"{rule.op} takes other arguments")
        return self.apply(rule, args)


def _has_zero(rule: Rule, args: Mapping[str, Op]) -> bool:
    """Return whether the number 0, a gradient of zeros, is given in the place of a tensor.

    An unused one among several results has such a gradient. Without declared tensors, parameters without a default
    count as tensors.
    """
    required = (item.name for item in rule.parameters if item.default is None)
    names = rule.tensors or frozenset(required)
    given = (op for name, op in args.items() if name in names)
    parts = (part for op in given for part in (op.args if op.rule == "list" else [op]))
    return any(is_number(op, 0) for op in parts)


ACTIVE = frozenset({"real", "complex", "group"})
# PyTorch's other names for the table's parameters.
KEYWORDS = {
    "input": "x",
    "axis": "dim",
    "keepdims": "keepdim",
    "other": "y",
    "self": "x",
    "split_size_or_sections": "split_size",
}


def _may_be_tuple(program: Program, op: Op) -> bool:
    """Return whether a Python value may be a tuple of sizes: `x.shape[:-1] + (n, -1)`, or any name."""
    named = op.rule == "static" and op.expression.kind == "name"
    return named or is_sequence(program, op)


def constant(program: Program, node: Node) -> Op | None:
    """Return a literal expression, as `-1` or `(2, 3)`, as an op with that value; None for others."""
    match node:
        case Node("constant", text):
            return program.const(literal_value(text))
        case Node("unary", "-", (Node("constant", text),)):
            value = literal_value(text)
            if isinstance(value, int | float | complex):
                return program.const(-value)
        case Node("tuple" | "list", _, args):
            inner = [constant(program, arg) for arg in args]
            if all(item is not None for item in inner):
                return program.op("list", [item for item in inner if item])
    return None
