"""PyTorch features an op supports: vmap and `torch.func`, `torch.compile`, a second derivative.

In: an `OpSpec` and its `Maths`. Out: `Capabilities`. Invariant: in doubt a feature counts as unsupported: better to
omit a true claim than to make a false one.

The generated Function and its test claim these features: `generate_vmap_rule`, `once_differentiable`, a test under
`torch.compile`. Words: a kept forward stands as the user wrote it, with a loop for instance, so only the names in it
are known. An opaque op leaves PyTorch: NumPy, or a kernel of the user's. An op is steady if the same steps run for
any data. `kinds` tells tensors from numbers.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from scaffold.derive.analysis.activity import (
    callee,
    is_random,
    leaves_autograd,
    leaves_torch,
)
from scaffold.derive.derivation import Forward, Maths
from scaffold.derive.forward.body import writes_in_place
from scaffold.errors import ScaffoldError
from scaffold.formula import (
    If,
    Lines,
    Node,
    Statement,
    ValueKinds,
    assignments,
    bound,
    expressions,
    is_check,
    names_bound_to,
    same_memory,
    written_to,
)
from scaffold.primitives.calls import is_made_of_numbers, is_mask, may_be
from scaffold.spec import OpSpec

NOT_DERIVED = "the backward is not derived"
ADVICE = "state its gradient with --grad or --backward"


class Capabilities(NamedTuple):
    """The PyTorch features an op supports, and the facts they depend on."""

    opaque: bool  # leaves PyTorch: NumPy, or a kernel of the user's
    random: bool  # the forward draws random numbers
    transforms: bool  # works under torch.func
    compiles: bool  # works under torch.compile(fullgraph=True)


def capabilities(spec: OpSpec, maths: Maths) -> Capabilities:
    """Return the PyTorch features an op supports; the user's setting for `torch.func` wins.

    Under vmap and `torch.func`, the same steps must run for any data, without random numbers, in-place changes of
    inputs, code outside PyTorch, or writes into a tensor shared by all samples.
    """
    forward = maths.forward
    opaque = _is_opaque(spec, maths)
    random = forward is not None and any(map(is_random, forward.expressions()))
    steady = _is_steady(spec)
    fills = forward and _fills_a_constant(forward.statements, forward.results)
    transforms = spec.transforms
    if transforms is None:
        # With a combined forward, `torch.func` needs a handwritten vmap rule.
        pure = steady and not (opaque or random or spec.dirty or fills)
        transforms = pure and spec.style == "setup-context"
    # torch.compile rejects an op whose single output is marked as non-differentiable.
    constant = len(spec.outputs) == 1 and spec.outputs[0].const
    by_data = forward is not None and any(map(_is_sized_by_data, forward.expressions()))
    # torch.compile does not trace into a registered op.
    stops_tracing = not spec.is_library and (opaque or constant)
    compiles = steady and not (by_data or stops_tracing)
    return Capabilities(opaque, random, transforms, compiles)


def once_differentiable(
    spec: OpSpec, maths: Maths, cut_off: frozenset[str], program: Lines
) -> bool:
    """Return the user's setting, else whether a second derivative would be silently wrong or is impossible.

    `cut_off` are the saved locals that depend on an input: autograd sees values read from ctx as constants. `program`
    is the backward. Raise if the user asks for a second derivative despite such locals.
    """
    if spec.once_differentiable is None:
        return bool(cut_off) or maths.once or _leaves_torch(spec, program)
    if cut_off and not spec.once_differentiable:
        message = f"'{min(cut_off)}' cannot be recomputed, so it is saved as a constant"
        hint = "let the op be once-differentiable: its second derivative would be wrong"
        raise ScaffoldError(message, maths.place, hint)
    return spec.once_differentiable


def outside_of_pytorch(spec: OpSpec, forward: Forward) -> str | None:
    """Return why the user must state the gradients, as a note: the part of the forward PyTorch does not see; None without one.

    `spec.foreign` are the imports from outside PyTorch; those with rules of the user's own are known.
    """
    outside = spec.foreign
    if outside and spec.rules:
        # Only for an op with the user's own rules, since it reads the rule table.
        from scaffold.derive.rules.team_tables import ruled_imports

        outside -= ruled_imports(spec)
    for node in forward.expressions():
        foreign = sorted(node.names() & outside)
        if foreign:
            return f"{NOT_DERIVED}: '{foreign[0]}' is not part of PyTorch; {ADVICE}"
        if leaves_autograd(node, outside):
            return f"{NOT_DERIVED}: the forward calls code outside PyTorch; {ADVICE}"
    return None


def _is_opaque(spec: OpSpec, maths: Maths) -> bool:
    """Return whether a part of the op leaves PyTorch: calls NumPy, or a kernel of the user's.

    False if the user says that it works under `torch.func`.
    """
    if spec.transforms:
        return False
    forward = maths.forward
    if forward and any(leaves_torch(node, spec.foreign) for node in forward.results):
        return True
    statements = forward.statements if forward else ()
    return _leaves_torch(spec, (*statements, *maths.program))


def _leaves_torch(spec: OpSpec, statements: Lines) -> bool:
    """Return whether some statements call code outside PyTorch."""
    return any(leaves_torch(node, spec.foreign) for node in expressions(*statements))


def _is_sized_by_data(value: Node) -> bool:
    """Return whether a call makes a tensor as long as another's largest number, such as `bincount`.

    A compiler does not accept that from within a Function.
    """
    return any(may_be(callee(node) or "", "sized_by_data") for node in value.walk())


# --- Whether the same steps run for any data.


READ = frozenset({"bool", "float", "int", "range"})  # Python builtins that want numbers


def _is_steady(spec: OpSpec) -> bool:
    """Return whether the same steps run for any data, and no batched value is written into an unbatched tensor.

    Otherwise vmap cannot run the forward for several samples, nor a compiler once for all data. Not steady: a test of
    a tensor, `x[mask]`, `int(x)`, and in a kept forward any write beside `torch.zeros(3)` or the like.
    """
    formula = spec.forward
    if formula is None:
        return True
    kept = formula.kept
    statements = kept.statements if kept else formula.statements
    attributes = [item.name for item in spec.attributes]
    variadic = [item.name for item in spec.tensors if item.variadic]
    kinds = ValueKinds(attributes, variadic).after(statements)
    values = [*expressions(*statements)]
    # The result of a kept forward is its whole body, and no expression.
    if kept is None and formula.result is not None:
        values.append(formula.result)
    nodes = [inner for node in values for inner in node.walk()]
    tests = [test for item in statements for test in _tests(item)]
    if any(kinds.of(test) == "tensor" for test in tests):
        return False
    masks = [item.name for item in spec.tensors if item.dtype == "bool"]
    if _selects_by_data(statements, values, masks):
        return False
    if any(_reads_data(node, kinds) for node in nodes):
        return False
    makes_constants = any(is_made_of_numbers(callee(node) or "") for node in nodes)
    # A kept forward may write in a loop, into a tensor that vmap does not batch. Of other forwards
    # each line is known: `_fills_a_constant`.
    return kept is None or not (makes_constants and writes_in_place(kept))


def _tests(item: Statement) -> Iterator[Node]:
    """Yield the conditions in a statement and its branches: of each `if`, and of an `assert`. None may depend on data."""
    if isinstance(item, If):
        yield item.test
        for inner in (*item.body, *item.orelse):
            yield from _tests(inner)
    elif is_check(item) and item.value.label == "assert":
        yield item.value.args[0]


def _reads_data(node: Node, kinds: ValueKinds) -> bool:
    """Return whether a choice or a number in an expression depends on a tensor's data: `a if x.any() else b`, `int(x)`."""
    if node.kind == "conditional":
        return kinds.of(node.args[0]) == "tensor"
    # A builtin, `int(x)`; the method `x.int()` gives a tensor.
    if node.kind != "call" or node.args[0].kind != "name":
        return False
    wants_number = callee(node) in READ
    return wants_number and any(kinds.of(arg) == "tensor" for arg in node.args[1:])


# --- Writes into a tensor shared by a whole batch: `torch.zeros(4).index_add_(0, index,
# x)`.
#
# In: the statements and results of a forward. Out: yes or no. Invariant: if yes,
# `torch.func.vmap` refuses it.


def _fills_a_constant(statements: Iterable[Statement], results: Iterable[Node]) -> bool:
    """Return whether a tensor made from Python values alone, `torch.zeros(4)`, changes in place; vmap has one for all samples."""
    made = set[str]()  # names of such tensors so far
    for item in assignments(statements):
        changes = item.operator or item.target.kind == "subscript"
        if changes and bound(item.target) & made or _writes_into(item.value, made):
            return True
        if not changes and _is_made(item.value, made):
            made |= bound(item.target)
    return any(_writes_into(node, made) for node in results)


def _writes_into(value: Node, made: Collection[str]) -> bool:
    """Return whether an expression changes a tensor made from Python values alone in place: `torch.zeros(4).add_(x)`.

    `made` are the names of such tensors.
    """
    return any(
        _is_made(changed, made) for node in value.walk() for changed in written_to(node)
    )


def _is_made(value: Node, made: Collection[str]) -> bool:
    """Return whether a value may be a tensor made by `torch.zeros` or the like from Python values alone, or a view of one.

    `made` are the names of such tensors.
    """
    return any(_comes_of_factory(node, made) for node in same_memory(value))


def _comes_of_factory(node: Node, made: Collection[str]) -> bool:
    """Return whether a node is a name in `made`, or a call of `torch.zeros` or the like: the tensor is made from Python values alone."""
    match node:
        case Node("name", name):
            return name in made
        case Node("call", _, (Node("attribute", label, (Node("name", "torch"),)), *_)):
            return is_made_of_numbers(label)
    return False


# --- Selections whose length depends on data: `x[x > 0]`, `mask.nonzero()`.
#
# In: statements and results of a forward. Out: yes or no. Invariant: if yes, neither
# vmap nor a compiler runs it.


# Comparisons that give a Python bool.
STATIC = frozenset({"in", "is", "is not", "not in"})


def _selects_by_data(
    statements: Iterable[Statement], results: Iterable[Node], masks: Collection[str]
) -> bool:
    """Return whether a mask or the like selects elements; `masks` are the inputs that are masks.

    `results` are further expressions to look into.
    """
    lines = tuple(statements)
    known = names_bound_to(lines, masks, _is_mask)
    several = (*expressions(*lines), *results)
    return any(_selects(inner, known) for node in several for inner in node.walk())


def _selects(node: Node, masks: Collection[str]) -> bool:
    """Return whether a node selects elements by data, so the length of its value depends on them: `x[mask]`, `m.nonzero()`."""
    if node.kind == "call":
        called = node.args[0]
        # A plain name, `nonzero(x)`, is no function of PyTorch.
        return called.kind == "attribute" and may_be(called.label, "selects")
    if node.kind != "subscript":
        return False
    index = node.args[1]
    parts = index.args if index.kind == "tuple" else (index,)
    return any(_is_mask(part, masks) for part in parts)


def _is_mask(node: Node, masks: Collection[str]) -> bool:
    """Return whether an expression is a tensor of booleans, a mask: `x > 0`, `~m`, `m & n`; `masks` are names of such.

    `m & n` counts if one of the two is known as a mask: in doubt it is one.
    """
    match node:
        case Node("name", name):
            return name in masks
        case Node("compare", label):
            return label not in STATIC
        case Node("unary", "~", (inner,)) | Node("subscript", _, (inner, _)):
            return _is_mask(inner, masks)
        case Node("binary", "&" | "|" | "^", args):
            return any(_is_mask(arg, masks) for arg in args)
        case Node("call", _, (Node("attribute", name), *_)):
            return is_mask(name)
    return False
