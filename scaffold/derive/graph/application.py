"""Application of primitives: of a call as written, or of a rule by name, with the result's shape and kind.

In: a `Table` and a `Program`. Out: ops with all parameters of their rule, in its order. Invariant: a parameter that takes
no tensor gets none; a call without a fitting rule is not guessed at; unknown facts of a result are left open.
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
from scaffold.derive.rules.table import Found, Rule, Table
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
    """Return the shape and kind of a rule's result for these arguments."""
    if rule.results != ("result",):
        return Inferred(SCALAR, "group")
    return Inferred(
        shape_said(program, rule.facts.shape, args), kind_of(program, rule, args)
    )


def kind_of(program: Program, rule: Rule, args: Args, position: int = 0) -> Kind:
    """Return the kind of a result, by the table and a `dtype` argument."""
    said = rule.facts.kind(position)
    dtype = args.get("dtype")
    if dtype is not None and _is_device(program.value_of(dtype)):
        args = {name: item for name, item in args.items() if item is not dtype}
        dtype = None
    asked = dtype is not None and literal(dtype) is not None
    known = None if dtype is None else program.dtype(dtype)
    if known is not None:
        return known
    if said in args:
        kind = args[said].kind
    else:
        kind = FIXED.get(said) or _of_arguments(program, rule, args, said)
    # A dtype not known before the call may be a real one.
    return "real" if asked and kind in ("int", "bool") else kind


def _is_device(op: Op) -> bool:
    """Return whether an argument for a dtype is a device: in `x.to("cuda")`, `x.to(y.device)`, `x.to(torch.device("cuda"))`."""
    if op.is_python("call"):
        op = op.args[0]
    said = literal(op)
    if isinstance(said, str):
        return not said.startswith("torch.")  # x.type("torch.LongTensor")
    return op.is_python("attribute", "device")


def _of_arguments(program: Program, rule: Rule, args: Args, said: str) -> Kind:
    """Return the kind of the promoted arguments: `said` is "float", "kept", "number" or "magnitude"."""
    everything = {item.kind for item in tensors(args.values())}
    if "complex" in everything or _complex_number(args):
        return "real" if said == "magnitude" else "complex"
    apart = rule.facts.nondiff
    given = (item for name, item in args.items() if name not in apart)
    kinds = {item.kind for item in tensors(given)} if apart else everything
    kinds = kinds or everything
    moves = rule.category in MOVING  # its numbers are positions, not elements
    if said == "float" or "real" in kinds or not kinds:
        return "real"
    if not moves and _real_number(program, args):
        return "real"
    return "bool" if said != "number" and kinds == {"bool"} else "int"


def _real_number(program: Program, args: Args) -> bool:
    """Return whether the arguments include a Python float, or a value that may be one."""
    plain = (item for item in args.values() if not item.is_tensor)
    return any(
        isinstance(value := literal(item), float)
        or (value is UNKNOWN and not is_int(program, item))
        for item in plain
    )


def _complex_number(args: Args) -> bool:
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
        """Return the note on a call of that function or method."""
        return f"{called} has the rule {self.rule} only where {self.condition}, which is not known before the call"


class Applier:
    """A maker of ops of one program, by the rules of a table."""

    def __init__(self, program: Program, table: Table) -> None:
        self.program, self.table = program, table
        self._undecided: dict[str, Undecided] = {}
        self._defaults: dict[Node, Op] = {}

    def undecided(self, called: str) -> Undecided | None:
        """Return the undecided rule of a call of that function or method; None without one."""
        return self._undecided.get(called)

    def found(
        self,
        kind: str,
        name: str,
        positional: Sequence[Op],
        keywords: Mapping[str, Op] | None = None,
    ) -> Bound | None:
        """Return the rule for a call with these arguments; None without a certain one."""
        maybe = list[Undecided]()
        for item in self.table.find(kind, name):
            bound = self._bind(item, positional, keywords or {})
            if bound is None:
                continue
            meant = self._is_meant(item.rule, bound)
            if meant:
                return Bound(item.rule, bound)
            if meant is None:
                maybe.append(self._open(item.rule, bound))
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
        """Return all rules among which an attribute's value decides in each call: `F.gelu(x, approximate=kind)`."""
        found = []
        for item in self.table.find(kind, name):
            bound = self._bind(item, positional, keywords or {})
            if bound is not None and self._is_meant(item.rule, bound) is None:
                found.append(Bound(item.rule, bound))
        return tuple(found)

    def _bind(
        self, found: Found, positional: Sequence[Op], keywords: Mapping[str, Op]
    ) -> dict[str, Op] | None:
        """Bind a call's arguments to a rule's parameters; None unless they fit."""
        names = {item.name for item in found.spelled.parameters}
        usual = {
            KEYWORDS.get(key, key) if key not in names else key: value
            for key, value in keywords.items()
        }
        if len(usual) != len(keywords):
            return None
        bound = bind(found.spelled, positional, usual, self._collected)
        if bound is None or any(item.rule == "starred" for item in bound.values()):
            return None  # the parameters of `*several` are unknown
        rule = found.rule
        whole = self.completed(rule, self._with_defaults(found.spelled, bound))
        fits = whole is not None and all(
            rule.code or name in rule.tensors or not any(tensors((value,)))
            for name, value in whole.items()
        )
        return whole if fits and whole else None

    def _open(self, rule: Rule, whole: Mapping[str, Op]) -> Undecided:
        test = self.table.condition(rule)
        assert test is not None
        return Undecided(rule.name, emit(undecided(self.program, test, whole)))

    def _is_meant(self, rule: Rule, whole: Mapping[str, Op]) -> bool | None:
        """Return whether the rule is for such arguments, None if unknown before the call; a bool as `dim` means `unbiased`, of another overload."""
        if rule.category == FOR_FORMULAS:
            return False
        if "dim" in whole and isinstance(literal(whole["dim"]), bool):
            return False
        kinds = {value.kind for value in tensors(whole.values())}
        if rule.facts.complex is False and "complex" in kinds:
            return False
        if rule.facts.complex == "only" and "complex" not in kinds:
            return False
        test = self.table.condition(rule)
        return True if test is None else holds(self.program, test, whole)

    def _collected(self, values: Sequence[Op]) -> Op:
        if len(values) == 1 and (
            values[0].kind == "group" or _may_be_several(self.program, values[0])
        ):
            return values[0]
        return self.program.op("list", values)

    def _with_defaults(self, spelled: Spelling, bound: dict[str, Op]) -> dict[str, Op]:
        for item in spelled.parameters:
            if item.name not in bound and item.default is not None:
                bound[item.name] = self.default(item.default)
        return bound

    def completed(self, rule: Rule, bound: Mapping[str, Op]) -> dict[str, Op] | None:
        """Return the arguments in the rule's order with defaults; None if one is missing or does not fit."""
        whole: dict[str, Op] = {}
        for item in rule.parameters:
            if item.name in bound:
                whole[item.name] = bound[item.name]
            elif item.default is not None:
                whole[item.name] = self.default(item.default)
            else:
                return None
        return whole if bound.keys() <= whole.keys() else None

    def takes_none(self, op: Op, arg: Op) -> bool:
        """Return whether an op accepts None for an argument: `F.linear` for its bias."""
        rule = self.table.of_op(op.rule)
        if arg.rule not in ("input", "static", "python") or rule is None:
            return False
        parameters = rule.parameters
        return any(
            value is arg and item.default is not None and item.default.label == "None"
            for value, item in zip(op.args, parameters, strict=False)
        )

    def default(self, node: Node) -> Op:
        """Return a default of the table as an op."""
        found = self._defaults.get(node)
        if found is None:
            found = constant(self.program, node) or self.program.static(node)
            self._defaults[node] = found
        return found

    def apply(self, rule: Rule, args: Mapping[str, Op]) -> Op:
        """Return the op of a rule with all its arguments."""
        made = self.program.made(rule.op, args.values())
        if made is not None:
            return made
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
        """Return the op of a primitive named by its name in the graph."""
        rule = self.table.of_op(name)
        if rule is None:
            raise UnsupportedError(f"{name} is not a primitive")
        if rule.spelled.is_plain and len(positional) <= len(rule.parameters):
            names = (item.name for item in rule.parameters)
            return self._applied(rule, dict(zip(names, positional, strict=False)))
        count = next(
            (at for at, item in enumerate(rule.parameters) if item.keyword), None
        )
        plain = positional[:count]
        keywords = {
            item.name: value
            for item, value in zip(
                rule.parameters[len(plain) :], positional[len(plain) :], strict=False
            )
        }
        bound = bind(rule.spelled, plain, keywords, self._collected)
        return self._applied(rule, bound)

    def _applied(self, rule: Rule, bound: Mapping[str, Op] | None) -> Op:
        whole = None if bound is None else self.completed(rule, bound)
        if whole is None:
            raise UnsupportedError(f"{rule.op} takes other arguments")
        return self.apply(rule, whole)


def _has_zero(rule: Rule, args: Mapping[str, Op]) -> bool:
    """Return whether 0 stands for a matrix or a part: the gradient of an unused one among several results."""
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


def _may_be_several(program: Program, op: Op) -> bool:
    """Return whether a Python value may be several sizes: `x.shape[:-1] + (n, -1)`, or a value known only by name."""
    named = op.rule == "static" and op.expression.kind == "name"
    return named or is_sequence(program, op)


LITERALS = frozenset({"constant", "unary", "tuple", "list"})


def constant(program: Program, node: Node) -> Op | None:
    """Return a literal expression as a constant; None for others."""
    if node.kind not in LITERALS:
        return None
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
