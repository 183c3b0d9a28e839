"""Behaviour of an op under `torch.autocast`, which computes some calls in float16 or bfloat16 and others in float32.

In: an `OpSpec`. Out: an `Amp`. Invariant: an op that autocast leaves alone has no code for it; the reference is the
text of the forward under autocast.

The forward runs unchanged, and the backward under the forward's autocast (`region`): so both compute in the same
precision. `float32`: all floating-point inputs are cast to it first. The pipeline asks which, and whether a line of
the backward is concerned at all.

Words: a kept formula stands as the user wrote it, with a loop for instance, so only the names in it are known. The
policy of a primitive is what autocast does to its arguments: cast them to the lower precision ("lower"), or to
float32.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import lru_cache

from scaffold.derive.analysis.activity import callee, known_facts
from scaffold.derive.analysis.input_kinds import kinds_of_inputs
from scaffold.formula import (
    Formula,
    Lines,
    Node,
    Statement,
    ValueKinds,
    expressions,
    is_of_module,
    names_bound_to,
)
from scaffold.primitives.calls import is_discrete, moves
from scaffold.spec import Amp, OpSpec, TensorInput

# Calls of these compute no tensor, or one that autocast leaves alone (`x.max()`).
PYTHON_VALUES = frozenset(
    {"numel", "size", "dim", "len", "range", "list", "max", "min"}
)


def amp_of(spec: OpSpec) -> Amp:
    """Return the user's setting, else "off" unless autocast changes a primitive of the forward, and there is a backward.

    The question is asked of the op without shapes and style (`bare`), so that all derivations of it share one answer.
    """
    if spec.amp is not None or not spec.differentiable:
        return spec.amp or "off"
    inputs = (
        item._replace(dims=None) if isinstance(item, TensorInput) else item
        for item in spec.inputs
    )
    bare = replace(spec, inputs=tuple(inputs), require=(), style="setup-context")
    if not _op_is_changed(bare):
        return "off"
    # A compiler runs a registered op outside the autocast region it traced: a matmul of
    # mixed dtypes would raise there.
    return "float32" if spec.is_library else "region"


def is_changed(values: Iterable[Node]) -> bool:
    """Return whether autocast may change a call or an operator in some expressions; an unknown call may be changed."""
    return any(_may_be_changed(node) for value in values for node in value.walk())


def _may_be_changed(node: Node) -> bool:
    """Return whether autocast may change the precision of a node: an operator or call with a policy, or an unknown call.

    A policy is the `autocast` of a primitive's section in the rule table; the policy `number_first` holds only with a
    number on the left: `1 / x`, or `ctx.eps / x` in a line of the backward.
    """
    if node.kind not in ("binary", "call") or callee(node) in PYTHON_VALUES:
        return False
    candidates = known_facts(node)
    # The table has all operators that autocast changes, but a call may be of anything.
    if not candidates:
        return node.kind == "call"
    policies = {facts.autocast for facts in candidates} - {""}
    if policies == {"number_first"}:
        return _operands(node)[0].names() <= {"ctx"}
    return bool(policies)


# Shapes and styles do not matter here, so all derivations of an op share one answer.
@lru_cache(maxsize=16)
def _op_is_changed(spec: OpSpec) -> bool:
    """Return whether autocast changes a primitive of the forward, or of the surrogate behind the backward."""
    surrogate = spec.surrogate.forward if spec.surrogate else None
    return bool(_policies(spec, spec.forward) or _policies(spec, surrogate))


def _expressions(formula: Formula | None) -> tuple[Node, ...]:
    """Return the expressions computed by a formula, in its statements and its result; of a kept one, the parsed expressions."""
    if formula is None:
        return ()
    results = formula.kept.returned if formula.kept else (formula.result,)
    return (*expressions(*_statements(formula)), *filter(None, results))


def _statements(formula: Formula) -> Lines:
    """Return the statements of a formula; of a kept one, the sketch of its effect on names."""
    return formula.kept.statements if formula.kept else formula.statements


# --- The precision autocast gives to the parts of a formula.
#
# In: an op and a formula of it. Out: the table's policies, none for a formula autocast
# leaves alone. Invariant: Python values and integers, never cast by autocast, have no
# policy; nor has a function of the user's.


def is_lowered(spec: OpSpec, formula: Formula) -> bool:
    """Return whether autocast computes a part of a formula in its own dtype, as the half precision of a matmul.

    The generated module turns autocast off around an update of its buffers by such a formula.
    """
    return "lower" in _policies(spec, formula)


def _policies(spec: OpSpec, formula: Formula | None) -> set[str]:
    """Return the autocast policies of all calls and operators in a formula; none for a formula autocast leaves alone."""
    if formula is None:
        return set()
    kinds = kinds_of_inputs(spec).after(_statements(formula))
    integers = _integer_names(spec, _statements(formula))
    nodes = [node for root in _expressions(formula) for node in root.walk()]
    found = (_policy(spec, node, kinds, integers) for node in nodes)
    return {policy for policy in found if policy is not None}


def _policy(
    spec: OpSpec, node: Node, kinds: ValueKinds, integers: Collection[str]
) -> str | None:
    """Return the autocast policy of one call or operator ("lower", "float32", ...), or None if autocast leaves it alone.

    `integers` are names of tensors autocast never casts; `kinds` tells tensors from numbers. A call with `dtype=`
    computes in that; the user's own functions have no policy.
    """
    operands = _operands(node)
    if not operands or kinds.of(node) == "scalar" or _is_integer(operands[0], integers):
        return None
    # A function of the user's, `my_kernels.softmax(x)`.
    if node.kind == "call" and node.args[0].names() & spec.foreign:
        return None
    # Primitives with the same name share a policy: `prod(x)` and `prod(x, dim)`.
    for facts in known_facts(node):
        if facts.autocast == "number_first":  # `1 / x`
            return "float32" if kinds.of(operands[0]) == "scalar" else None
        if facts.autocast == "float32" and "dtype" in node.keywords:
            return None  # it computes in the given dtype
        if facts.autocast:
            return facts.autocast
    return None


def _operands(node: Node) -> tuple[Node, ...]:
    """Return the operands of an operator or a call, its tensor first: `x` and `1` for `x.sum(1)`; () otherwise.

    The first one tells whether autocast casts: an integer or a number stays.
    """
    if node.kind == "binary":
        return node.args
    if node.kind != "call":
        return ()
    called, *args = node.args
    # `x.sum(1)`, and not `torch.sum(x, 1)`.
    of_tensor = called.kind == "attribute" and not is_of_module(called.args[0])
    return (called.args[0], *args) if of_tensor else tuple(args)


def _integer_names(spec: OpSpec, statements: Iterable[Statement]) -> frozenset[str]:
    """Return the names of integer tensors and masks: autocast never casts them."""
    given = (x.name for x in spec.tensors if x.dtype in ("bool", "int", "index"))
    return names_bound_to(statements, given, _is_integer)


def _is_integer(node: Node, names: Collection[str]) -> bool:
    """Return whether a value is a tensor of integers or a mask, for sure: `names` are the known ones; `i + 1` and `m[0]` are such too.

    Of calls, those that always give such (`x.argmax()`), and those that only move elements of one (`i.view(-1)`).
    """
    match node:
        case Node("name", name):
            return name in names
        case Node("compare"):
            return True
        case Node("unary", "~", (inner,)) | Node("subscript", _, (inner, *_)):
            return _is_integer(inner, names)
        case Node("binary", "&" | "|" | "^" | "+" | "-" | "*" | "//" | "%", args):
            # Of `i + 1`, the 1.
            return all(arg.label.isdigit() or _is_integer(arg, names) for arg in args)
        case Node("call"):
            word, operands = callee(node) or "", _operands(node)
            moved = moves(word) and bool(operands) and _is_integer(operands[0], names)
            return moved or is_discrete(word)
    return False
