"""What an op does under `torch.autocast`: in which dtype it takes its tensors, and what its backward runs under.

In: an `OpSpec`. Out: an `Autocast`. Invariant: an op that autocast leaves alone has no code for it. The reference is the text of the
forward under autocast; what that computes in which precision is a fact of each primitive.

A forward of matmuls alone takes its inputs in autocast's dtype (`lower`), one of exponentials and sums alone in float32 (`float32`):
then all that is saved has the dtype of what is computed, and so have the gradients. Of both there is no such dtype: the forward runs
as it is, and the backward under the autocast of the forward (`region`).
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import lru_cache

from scaffold.derive.analysis.activity import callee, is_random
from scaffold.derive.analysis.value_kinds import (
    ValueKinds,
    is_of_module,
    kinds_of_inputs,
)
from scaffold.derive.derivation import CAST, Autocast
from scaffold.formula import (
    Formula,
    Lines,
    Node,
    Statement,
    assignments,
    bound,
    expressions,
)
from scaffold.primitives import Facts, built_in_primitives
from scaffold.primitives.calls import facts_of_call, is_whole, moves
from scaffold.spec import Amp, OpSpec, TensorInput


def autocast_of(spec: OpSpec) -> Autocast:
    """What is written about autocast: as the user says, else as the primitives of the forward tell; nothing for an op without a backward."""
    inputs = (
        item._replace(dims=None) if isinstance(item, TensorInput) else item
        for item in spec.inputs
    )
    bare = replace(spec, inputs=tuple(inputs), require=(), style="setup-context")
    found = _autocast_of(bare)
    if spec.is_library and found.amp == "region":
        # A compiler runs what is registered outside of the region that it traced: of mixed dtypes, a matmul there would raise.
        return Autocast("float32", True)
    return found


# No shape or style changes what is said, so a derivation that asks for each of them reads the forward once.
@lru_cache(maxsize=16)
def _autocast_of(spec: OpSpec) -> Autocast:
    policies = _policies(spec, spec.forward)
    if spec.amp is not None:
        return Autocast(spec.amp, spec.amp in CAST and not policies <= {spec.amp})
    if not spec.differentiable:
        return Autocast()
    # What a surrogate's gradient is computed of is no part of the forward, whose inputs keep their dtype.
    of_surrogate = _policies(spec, spec.surrogate and spec.surrogate.forward)
    if not policies | of_surrogate:
        return Autocast()
    if _is_of_its_dtypes(spec):
        return Autocast("region")
    if "lower" in policies and _has(spec, lambda facts: facts.category == "linalg"):
        # Few of these have kernels of low precision, and products with an inverse need the digits.
        return Autocast("float32", True)
    if policies == {"lower"} and _meets_float32(spec):
        return Autocast("region")
    if policies not in ({"lower"}, {"float32"}):
        return Autocast("region")
    return Autocast(policies.pop())


def _is_of_its_dtypes(spec: OpSpec) -> bool:
    """Whether inputs of another dtype would make another forward: it asks for a dtype, draws numbers or changes an input."""
    if spec.dirty or spec.forward is None:
        return bool(spec.dirty)
    kinds = kinds_of_inputs(spec).after(_statements(spec.forward))
    roots = _expressions(spec.forward)
    nodes = (node for root in roots for node in root.walk())
    return any(map(is_random, roots)) or any(_asks(node, kinds) for node in nodes)


def _asks(node: Node, kinds: ValueKinds) -> bool:
    """Whether an expression asks a tensor for its dtype: `x.dtype`, `y.type_as(x)`, `y.to(x)`."""
    if node.kind == "attribute":
        return node.label == "dtype"
    positions = [item.dtype for item in facts_of_call(callee(node) or "")]
    operands = _operands(node)
    return any(
        isinstance(at, int)
        and 0 < at < len(operands)
        and kinds.of(operands[at]) == "tensor"
        for at in positions
    )


def _meets_float32(spec: OpSpec) -> bool:
    """Whether tensors of float32 meet those of autocast's dtype: of no input's dtype, `torch.eye(n)`, `x.float()`, or of what a CPU computes in float32 alone."""
    if spec.forward is None:
        return False
    kinds = kinds_of_inputs(spec).after(_statements(spec.forward))
    whole = _whole_names(spec, _statements(spec.forward))

    def is_made(node: Node) -> bool:
        if node.kind not in ("binary", "call") or kinds.of(node) != "tensor":
            return False
        if any((one.dtype, one.memory) == ("own", "same") for one in _facts(node)):
            return True  # a cast
        tensors = [x for x in _operands(node) if kinds.of(x) != "scalar"]
        return not _is_whole(node, whole) and all(_is_whole(x, whole) for x in tensors)

    nodes = (node for root in _expressions(spec.forward) for node in root.walk())
    alone = _has(spec, lambda facts: "single_on_cpu" in facts.flags)
    return alone or any(map(is_made, nodes))


def _has(spec: OpSpec, told: Callable[[Facts], bool]) -> bool:
    """Whether the forward may call what these facts tell of."""
    nodes = (node for root in _expressions(spec.forward) for node in root.walk())
    words = {callee(node) or "" for node in nodes} - spec.foreign
    return any(told(facts) for word in words for facts in facts_of_call(word))


def _expressions(formula: Formula | None) -> tuple[Node, ...]:
    """The expressions that a formula computes; of a formula that is kept as the user wrote it, those that were understood."""
    if formula is None:
        return ()
    results = formula.kept.returned if formula.kept else (formula.result,)
    nodes = [node for item in _statements(formula) for node in expressions(item)]
    return (*nodes, *filter(None, results))


def _statements(formula: Formula) -> Lines:
    return formula.kept.statements if formula.kept else formula.statements


# --- In which precision autocast computes the parts of a formula.
#
# In: an op and a formula of it. Out: words of `Amp`, none for a formula that autocast leaves alone. Invariant: Python values and
# integers, which autocast does not cast, say nothing; nor does a function of the user's.


def is_lowered(spec: OpSpec, formula: Formula) -> bool:
    """Whether autocast computes a part of a formula in its own dtype."""
    return "lower" in _policies(spec, formula)


def _policies(spec: OpSpec, formula: Formula | None) -> set[Amp]:
    """The autocast policies of all calls and operators in an expression."""
    if formula is None:
        return set()
    kinds = kinds_of_inputs(spec).after(_statements(formula))
    whole = _whole_names(spec, _statements(formula))
    nodes = [node for root in _expressions(formula) for node in root.walk()]
    found = (_policy(spec, node, kinds, whole) for node in nodes)
    return {policy for policy in found if policy is not None}


def _policy(
    spec: OpSpec, node: Node, kinds: ValueKinds, whole: Collection[str]
) -> Amp | None:
    """The autocast policy of one call or operator."""
    operands = _operands(node)
    if not operands or kinds.of(node) == "scalar" or _is_whole(operands[0], whole):
        return None
    if node.names() & spec.foreign & {item.label for item in _path(node)}:
        return None
    # Of several primitives that are called so each has the same policy: `prod(x)` and `prod(x, dim)`.
    for facts in _facts(node):
        if facts.autocast == "number_first":
            return "float32" if kinds.of(operands[0]) == "scalar" else None
        if facts.autocast == "float32" and "dtype" in node.keywords:
            return None  # it computes in the dtype that it is given
        if facts.autocast:
            return facts.autocast
    return None


def _facts(node: Node) -> tuple[Facts, ...]:
    """The facts of the primitives that a call or an operator may be."""
    if node.kind == "binary":
        return built_in_primitives().named("operator", node.label)
    if node.args[0].kind == "name":  # of Python's own: `pow(x, 2)`
        return built_in_primitives().named("function", node.args[0].label)
    return facts_of_call(callee(node) or "")


def _operands(node: Node) -> tuple[Node, ...]:
    """The operands of an operator or a call, its tensor first: `x` and `1` of `x.sum(1)`; none of anything else."""
    if node.kind == "binary":
        return node.args
    if node.kind != "call":
        return ()
    called, *args = node.args
    of_tensor = called.kind == "attribute" and not is_of_module(called.args[0])
    return (called.args[0], *args) if of_tensor else tuple(args)


def _path(node: Node) -> Iterable[Node]:
    """The names that the callee of a call is made of: `my_kernels` of `my_kernels.softmax(x)`."""
    return node.args[0].walk() if node.kind == "call" else ()


def _whole_names(spec: OpSpec, statements: Iterable[Statement]) -> frozenset[str]:
    """The names of integers and masks."""
    known = {
        item.name for item in spec.tensors if item.dtype in ("bool", "int", "index")
    }
    for item in assignments(statements):
        if item.target.kind == "name" and _is_whole(item.value, known):
            known |= bound(item.target)
    return frozenset(known)


def _is_whole(node: Node, names: Collection[str]) -> bool:
    """Whether a value is a tensor of integers or a mask."""
    match node:
        case Node("name", name):
            return name in names
        case Node("compare"):
            return True
        case Node("unary", "~", (inner,)) | Node("subscript", _, (inner, *_)):
            return _is_whole(inner, names)
        case Node("binary", "&" | "|" | "^" | "+" | "-" | "*" | "//" | "%", args):
            return all(arg.label.isdigit() or _is_whole(arg, names) for arg in args)
        case Node("call"):
            word, operands = callee(node) or "", _operands(node)
            kept = moves(word) and bool(operands) and _is_whole(operands[0], names)
            return kept or is_whole(word)
    return False
