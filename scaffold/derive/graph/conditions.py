"""Tests with a fixed outcome in each call, as `bias is not None`: their outcome, choices by them, implications between them.

In: tests and values as ops; a rule's `when` as a node. Out: an op of one of two values, or a certain outcome.
Invariant: nothing unknown before the call is guessed; `not`, `is` and `!=` are turned around, so that equal tests are
the same op.

Of optional inputs and of flags: the backward gets one `if` for all that depends on a test. Words: an op is one
application of a primitive in the graph. A choice (`cond`) is `body if test else orelse`; a test `told` has a certain
outcome; branch 0 is taken if the test is true, branch 1 if not. A value is `given` if it is not None. A test held if
its outcome was true; `known` is a test with a known outcome, `asked` the one whose outcome is wanted. A rule is a
primitive's section in the table; it holds for the calls in which its `when` is true.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from scaffold.derive.graph.op import (
    Expression,
    Kind,
    Op,
    Operator,
    Program,
    Test,
    is_number,
    literal,
)
from scaffold.derive.graph.shapes import (
    SCALAR,
    Chosen,
    Dim,
    OrScalar,
    Shape,
    UnnamedSize,
    unknown,
)
from scaffold.derive.graph.static_values import (
    is_literal,
    is_no_string,
    known_value,
    may_be_none,
)
from scaffold.formula import (
    NO_STRING,
    OPPOSITES,
    PRESENT,
    UNKNOWN,
    Node,
    evaluated,
    of_math,
    truth,
)

# --- The `when` of a rule, evaluated for the arguments of a call.
#
# In: the test as a node, and the op of each parameter. Out: True only if it certainly holds. Invariant: a rule is not
# used because of facts unknown before the call.


def holds(program: Program, test: Node, args: Mapping[str, Op]) -> bool | None:
    """Return whether a rule's `when` holds for the arguments of a call; None if unknown before the call.

    `args` has the op of each parameter: `when = "p == 2"` holds of `torch.norm(x, 2)`.
    """
    return truth(evaluated(test, lambda node: _known(program, node, args)))


def undecided(program: Program, test: Node, args: Mapping[str, Op]) -> Node:
    """Return the part of a rule's condition not known before the call, for a message: of `a and b`, the first such part.

    Of any other test, all of it. `args` has the op of each parameter.
    """
    if test.kind == "boolean" and test.label == "and":
        open_ = (part for part in test.args if holds(program, part, args) is None)
        return undecided(program, next(open_, test.args[0]), args)
    return test


def _known(program: Program, node: Node, args: Mapping[str, Op]) -> object:
    """Return a name or a call in a rule's `when`, evaluated before the call: `p`, `rank(x)`, `whole(x)` (of integers), `len(sizes)`.

    `UNKNOWN` if only the call tells. A value known only not to be None is `PRESENT`, and `NO_STRING` if it is no
    string either: tests as `p is None` and `p == "fro"` are decided by that.
    """
    match node:
        case Node("name", name):
            value = known_value(args[name])
            if value is not UNKNOWN:
                return value
            if args[name].kind == "static" and may_be_none(program, args[name]):
                return UNKNOWN
            return NO_STRING if is_no_string(program, args[name]) else PRESENT
        case Node("call", _, (Node("name", "rank"), Node("name", name))):
            rank = args[name].shape.rank
            return UNKNOWN if rank is None else rank
        case Node("call", _, (Node("name", "whole"), Node("name", name))):
            return args[name].kind == "int"
        case Node("call", _, (Node("name", "len"), Node("name", name))):
            return _length(args[name])
    return of_math(node, lambda inner: _known(program, inner, args))


def _length(sequence: Op) -> object:
    """Return the length of a tuple, `len(sizes)` in a rule's `when`; `UNKNOWN` if it is not known before the call."""
    if sequence.rule == "list":
        starred = any(item.rule == "starred" for item in sequence.args)
        return UNKNOWN if starred else len(sequence.args)
    known = known_value(sequence)
    return len(known) if isinstance(known, tuple) else UNKNOWN


# --- One of two values, by a test fixed in each call.


def choose(
    program: Program, test: Op, body: Op, orelse: Op, *, zeros: bool = True
) -> Op:
    """Return the op of `body if test else orelse`, for a test fixed in each call; one of the two if it is known before.

    With `zeros`, a 0 is a gradient of zeros, with a shape. Equal choices are one op: see `unnegated`.
    """
    if body is orelse:
        return body
    turned = unnegated(program, test)
    if turned is not None:
        return choose(program, turned, orelse, body, zeros=zeros)
    if test.is_python("compare", "==") and is_number(test.args[1], 0):
        x = test.args[0]
        if x.is_python("binary", "/") and is_literal(x.args[1]):
            # `n / 2 == 0` becomes `n == 0`: the divisor cannot be 0, or the test would raise.
            test = program.python("compare", "==", x.args[0], test.args[1])
    data = Test(test)
    made = program.made("cond", (body, orelse), data)
    if made is not None:  # so its test is undecided: that is not computed again
        return made
    told = truth(known_value(test))
    if told is not None:
        return body if told else orelse
    if body.kind == orelse.kind == "static":
        return program.python("conditional", "", test, body, orelse)
    tensor, other = (body, orelse) if body.is_tensor else (orelse, body)
    kind: Kind = "complex" if "complex" in (body.kind, orelse.kind) else tensor.kind
    if other.is_tensor:
        shape = _chosen_shape(test, body, orelse)
    else:
        shape = shape_or_scalar(tensor.shape, other, zeros=zeros)
    active = body.active or orelse.active
    return program.op(
        "cond", (body, orelse), data, kind=kind, shape=shape, active=active
    )


@dataclass(frozen=True, slots=True, repr=False)
class ChosenSize(UnnamedSize):
    """One of two sizes, by a test: that of a dim of a chosen tensor."""

    test: Op
    body: Dim
    orelse: Dim


def shape_or_scalar(shape: Shape, other: Op, *, zeros: bool) -> Shape:
    """Return the shape of a choice between a tensor of a shape and the Python value `other`.

    That is the tensor's shape beside None, or (with `zeros`) beside a 0 standing for a gradient; otherwise an
    `OrScalar` of it.
    """
    if (zeros and is_number(other, 0)) or literal(other) is None or shape == SCALAR:
        return shape
    return shape if isinstance(shape.origin, OrScalar) else unknown(OrScalar(shape))


def _chosen_shape(test: Op, body: Op, orelse: Op) -> Shape:
    """Return the shape of a choice of two tensors: dim by dim for equal ranks, else one of the two shapes."""
    one, two = body.shape, orelse.shape
    if one == two:
        return one
    # Two `...` may stand for other numbers of dims.
    if one.dims is None or two.dims is None or one.rank is None or one.rank != two.rank:
        return unknown(Chosen(test.serial, one, two))
    pairs = zip(one.dims, two.dims, strict=True)
    return Shape(tuple(a if a == b else ChosenSize(test, a, b) for a, b in pairs))


def unnegated(program: Program, test: Op) -> Op | None:
    """Return the opposite of a test with `not`, `is` or `!=`, without these words: `a == b` for `a != b`; None for other tests.

    With branches exchanged, such a choice is the same as another one's.
    """
    if test.is_python("unary", "not"):
        return test.args[0]
    for label, other in (("is", "is not"), ("!=", "==")):
        if test.is_python("compare", label):
            return program.python("compare", other, *test.args)
    return None


def opposite(program: Program, test: Op) -> Op:
    """Return the op of `not test`, of a test with `is`, `!=` or `not` without a `not`: `a is None` -> `a is not None`."""
    return unnegated(program, test) or program.python("unary", "not", test)


def given(program: Program, op: Op) -> Op:
    """Return whether a value is not None: a `const` of True or False, or a test for an optional input or a choice with None.

    `x if flag else None` -> `flag`. Of a choice, both branches are asked, under the test's outcome there.
    """
    if may_be_none(program, op):
        value = program.read(op.name) if op.rule == "input" else op
        return program.python("compare", "is not", value, program.const(None))
    if op.rule != "cond":
        return program.const(literal(op) is not None)

    def in_branch(at: int) -> Op:
        """Return whether a branch's value is not None; the choice's test is known there, and may decide that."""
        asked = given(program, op.args[at])
        told = told_by(asked, op.test, at == 0)
        return asked if told is None else program.const(told)

    body, orelse = in_branch(0), in_branch(1)
    if body is orelse:
        return body
    other = opposite(program, op.test)
    for known_branch, maybe, where in ((body, orelse, op.test), (orelse, body, other)):
        known = literal(known_branch)
        if known is not UNKNOWN:
            # `where` holds in the known branch: given there, or only in the other one.
            test = where if known else opposite(program, where)
            if literal(maybe) is not UNKNOWN:
                return test
            # Given wherever the known branch is, or else if the other one is.
            label = "or" if known else "and"
            return program.python("boolean", label, test, maybe)
    return program.python("conditional", "", op.test, body, orelse)


def may_be_zero(op: Op) -> bool:
    """Return whether a gradient is the number 0, standing for zeros, always or in some branch of a choice.

    It must become a tensor in the end.
    """
    if op.rule in ("cond", "neg"):
        return any(map(may_be_zero, op.args))
    if op.rule in ("add", "sub"):
        return all(map(may_be_zero, op.args))
    return is_number(op, 0)


def may_be_number(op: Op) -> bool:
    """Return whether a value is a Python number, always or in some branch of a choice, rather than a tensor: it has no methods then."""
    if op.rule == "cond":
        return any(map(may_be_number, op.args))
    if op.rule in ("add", "sub", "mul", "div", "neg"):
        return all(map(may_be_number, op.args))
    return not op.is_tensor


def under(op: Op, test: Op, held: bool) -> Op:
    """Return the value an op has if a test came out as `held`: the branch taken of each choice decided by it.

    `a if flag else b` under `flag` is `a`.
    """
    while op.rule == "cond":
        told = told_by(op.test, test, held)
        if told is None:
            return op
        op = op.args[0 if told else 1]
    return op


# --- Implications between tests.
#
# In: tests, and the outcome of one. Out: the outcome of another. Invariant: an uncertain outcome is None.


def told_by(asked: Op, known: Op, held: bool) -> bool | None:
    """Return the outcome of the test `asked` in calls with the outcome `held` of the test `known`; None if undecided.

    `mode == "sum"` is False if `mode == "mean"` held.
    """
    if asked is known:
        return held
    match known.data:
        case Operator("unary", "not"):
            return told_by(asked, known.args[0], not held)
        case Operator("compare", label) if _is_opposite(asked, label, known.args):
            return not held
        case Operator("compare", "!="):
            # If `x != 1` did not hold, x is 1.
            return None if held else _other_constant(asked, known.args)
        case Operator("boolean", label) if label == ("and" if held else "or"):
            # All parts of an `and` that held did; all of an `or` that did not, did not.
            found = (told_by(asked, part, held) for part in known.args)
            return next((told for told in found if told is not None), None)
        case Operator("compare", "=="):
            return _other_constant(asked, known.args) if held else None
    return None


def _is_opposite(asked: Op, label: str, args: tuple[Op, ...]) -> bool:
    """Return whether a test is the opposite of a comparison with this operator and these operands: `a >= b` of `a < b`."""
    opposite = OPPOSITES.get(label)
    return (
        opposite is not None
        and asked.is_python("compare", opposite)
        and asked.args == args
    )


def _other_constant(asked: Op, known: tuple[Op, ...]) -> bool | None:
    """Return False for `x == "sum"` given `x == "mean"`, as the constants differ; None for anything else."""
    if not asked.is_python("compare", "==") or asked.args[0] is not known[0]:
        return None
    values = [known_value(args[1]) for args in (asked.args, known)]
    return None if UNKNOWN in values or values[0] == values[1] else False


def decides(known: Op, branch: int, test: Op, at: int) -> bool:
    """Return whether branch `branch` of the test `known` is taken only with branch `at` of `test`; 0 is the branch of a true test.

    Inside that branch, a choice by `test` is decided.
    """
    return known is not test and told_by(test, known, branch == 0) is (at == 0)


def is_presence(test: Op, name: str) -> bool:
    """Return whether a test is `name is not None`, for an input's name."""
    return test.is_python("compare", "is not") and _compares_with_none(test, name)


def _compares_with_none(test: Op, name: str) -> bool:
    one, two = test.args
    return is_name(one, name) and literal(two) is None


def is_name(op: Op, name: str) -> bool:
    """Return whether a Python value is the variable of that name."""
    match op.data:
        case Expression(Node("name", label)):
            return label == name
    return False


def implies(test: Op, branch: int, name: str) -> bool:
    """Return whether the named value is certainly not None in a branch of a test: 0 if the test held, 1 if not.

    `x is not None and flag` implies it of x in branch 0; so does a plain `if x`.
    """
    match test.data:
        case Operator("unary", "not"):
            return implies(test.args[0], 1 - branch, name)
        case Operator("boolean", label) if label == ("or" if branch else "and"):
            return any(implies(part, branch, name) for part in test.args)
        case Operator("compare", "is not" | "is" as label):
            # In branch 1 the test is false: then `x is None` implies that x is not None.
            held = label == ("is" if branch else "is not")
            return held and _compares_with_none(test, name)
        case Operator("compare", "<" | "<=" | ">" | ">="):
            return any(is_name(part, name) for part in test.args)  # None has no order
    return branch == 0 and is_name(test, name)


# --- A test only the backward can evaluate.


def is_recorded(program: Program) -> Op:
    """Return the test `torch.is_grad_enabled()`: in a backward, whether autograd records it, to differentiate it again.

    For a choice between a formula and a fused call without a derivative.
    """
    asked = program.graph.node(
        "attribute", "is_grad_enabled", (program.graph.name("torch"),)
    )
    return program.static(program.graph.node("call", "", (asked,)))
