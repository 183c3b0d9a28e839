"""A forward that stays as the user wrote it: what may not be in it, and what PyTorch can make of it.

In: an `OpSpec` and its kept forward. Out: a `Forward` whose results are that body, or an error. Invariant: it changes no input, and
PyTorch can call it with tensors alone, as autograd of it needs.
"""

from collections.abc import Collection, Iterable, Iterator

from scaffold.derive.activity import callee
from scaffold.derive.aliasing import Change, Trace
from scaffold.derive.derivation import Forward
from scaffold.derive.value_kinds import Kinds
from scaffold.errors import ScaffoldError
from scaffold.formula import (
    Assign,
    Formula,
    If,
    Kept,
    Node,
    Statement,
    assignments,
    bound,
    emit,
    expressions,
    is_check,
    same_memory,
    same_tensor,
    sharing,
    written,
    written_to,
)
from scaffold.spec import OpSpec

# --- Whether a forward writes into a tensor that is the same for a whole batch: `torch.zeros(4).index_add_(0, index, x)`.
#
# In: the statements and results of a forward. Out: yes or no. Invariant: `torch.func.vmap` refuses what is said to write so.


# What makes a tensor to be filled, out of Python values.
FACTORIES = frozenset(
    {"empty", "eye", "full", "ones", "rand", "randn", "tensor", "zeros"}
)


def fills_a_constant(statements: Iterable[Statement], results: Iterable[Node]) -> bool:
    """Whether a tensor that comes of Python values alone changes in place."""
    made = set[str]()
    return any(_fills(item, made) for item in statements) or any(
        _writes_into(node, made) for node in results
    )


def _fills(item: Statement, made: set[str]) -> bool:
    if isinstance(item, If):
        return any(_fills(inner, made) for inner in (*item.body, *item.orelse))
    changed = item.operator or item.target.kind == "subscript"
    if changed and bound(item.target) & made or _writes_into(item.value, made):
        return True
    if not changed and _is_made(item.value, made):
        made |= bound(item.target)
    return False


def _writes_into(value: Node, made: Collection[str]) -> bool:
    return any(
        _is_made(changed, made) for node in value.walk() for changed in written_to(node)
    )


def _is_made(value: Node, made: Collection[str]) -> bool:
    """Whether a value may be memory of a factory of torch's."""
    return any(_comes_of_factory(node, made) for node in same_memory(value))


def _comes_of_factory(node: Node, made: Collection[str]) -> bool:
    match node:
        case Node("name", name):
            return name in made
        case Node("call", _, (Node("attribute", label, (Node("name", "torch"),)), *_)):
            return label in FACTORIES
    return False


# --- Selections whose length depends on data: `x[x > 0]`, `mask.nonzero()`.
#
# In: statements and results of a forward. Out: yes or no. Invariant: what is said selects so; neither vmap nor a compiler runs it.


SELECTS = frozenset({"argwhere", "masked_select", "nonzero", "unique"})
TO_MASK = frozenset(
    {"bool", "eq", "ge", "gt", "isfinite", "isinf", "isnan", "le", "logical_and"}
    | {"logical_not", "logical_or", "logical_xor", "lt", "ne"}
)
STATIC = frozenset({"in", "is", "is not", "not in"})


def selects_by_data(
    statements: Iterable[Statement], results: Iterable[Node], masks: Collection[str]
) -> bool:
    """Whether a mask or its like selects elements; `masks` are the inputs that are masks."""
    known, lines = set(masks), tuple(statements)
    for item in assignments(lines):
        _learn(item, known)
    nodes = (node for item in lines for node in expressions(item))
    return any(
        _selects(inner, known) for node in (*nodes, *results) for inner in node.walk()
    )


def _learn(item: Assign, known: set[str]) -> None:
    """Note the names that are masks, wherever they are."""
    if item.target.kind == "name" and _is_mask(item.value, known):
        known |= bound(item.target)


def _selects(node: Node, masks: Collection[str]) -> bool:
    if node.kind == "call":
        return node.args[0].label in SELECTS and node.args[0].kind == "attribute"
    return node.kind == "subscript" and any(
        _is_mask(part, masks) for part in _parts(node.args[1])
    )


def _parts(index: Node) -> Iterator[Node]:
    yield from index.args if index.kind == "tuple" else (index,)


def _is_mask(node: Node, masks: Collection[str]) -> bool:
    """Whether an expression is a tensor of truth values."""
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
            return name in TO_MASK
    return False


# --- A forward that stays as the user wrote it: what may not be in it, and what PyTorch can make of it.


READ = frozenset({"bool", "float", "int", "range"})  # Python's own, which want numbers


def kept_forward(spec: OpSpec, formula: Formula, kept: Kept) -> Forward:
    """The forward of an op as it stands."""
    assert formula.result is not None  # the body
    if spec.style == "combined" and not spec.style_is_free:
        message = f"{kept.reason}, which a combined forward cannot hold"
        hint = "leave out the style, so that forward is a function of its inputs"
        raise ScaffoldError(message, kept.location, hint)
    _refuse_changes(spec, kept)
    _refuse_inputs(spec, kept)
    return Forward((), (formula.result,) * len(spec.outputs), (), {}, {})


def is_steady(spec: OpSpec) -> bool:
    """Whether the same steps are run for any data, and no batch is written into what has none.

    Else neither vmap nor a compiler can run the forward for several samples, or once for all.
    """
    formula = spec.forward
    if formula is None:
        return True
    kept = formula.kept
    statements = kept.statements if kept else formula.statements
    plain = [item.name for item in spec.attributes]
    several = [item.name for item in spec.tensors if item.variadic]
    kinds = Kinds(plain, several).after(statements)
    values = [node for item in statements for node in expressions(item)]
    if kept is None and formula.result is not None:
        values.append(formula.result)
    nodes = [inner for node in values for inner in node.walk()]
    tests = [test for item in statements for test in _tests(item)]
    if any(kinds.of(test) == "tensor" for test in tests):
        return False
    masks = [item.name for item in spec.tensors if item.dtype == "bool"]
    if selects_by_data(statements, values, masks):
        return False
    if any(_reads_data(node, kinds) for node in nodes):
        return False
    made = any(callee(node) in FACTORIES for node in nodes)
    return kept is None or not (made and writes_in_place(kept))


def writes_in_place(kept: Kept) -> bool:
    """Whether it changes a tensor, or a number, that has a name."""
    return bool(_changes(kept))


def _refuse_changes(spec: OpSpec, kept: Kept) -> None:
    tensors = {item.name for item in spec.tensors} - set(spec.dirty)
    changed = frozenset().union(*(item.outside for item in _changes(kept)))
    for name in sorted(changed & tensors):
        message = f"the forward changes its input '{name}' in place"
        raise ScaffoldError(message, kept.location, f"work on {name}.clone()")


def _refuse_inputs(spec: OpSpec, kept: Kept) -> None:
    """PyTorch takes no input that is saved and returned as it is."""
    assigned = written(*kept.statements)
    tensors = {item.name for item in spec.tensors} - assigned - set(spec.dirty)
    for value in kept.returned:
        parts = value.args if value.kind == "tuple" else (value,)
        for part in parts:
            for name in sorted(same_tensor(part) & tensors):
                how = "returns" if part.kind == "name" else "may return"
                message = f"the forward {how} its input '{name}' itself"
                text = emit(part)
                if part.kind not in ("name", "call", "attribute", "subscript"):
                    text = f"({text})"
                hint = f"return a tensor of its own: {text}.clone()"
                raise ScaffoldError(message, kept.location, hint)


def _changes(kept: Kept) -> list[Change]:
    return Trace(kept.statements, sharing).changes


def _tests(item: Statement) -> Iterator[Node]:
    if isinstance(item, If):
        yield item.test
        for inner in (*item.body, *item.orelse):
            yield from _tests(inner)
    elif is_check(item) and item.value.label == "assert":
        yield item.value.args[0]


def _reads_data(node: Node, kinds: Kinds) -> bool:
    """Whether a choice or a number in an expression depends on what is in a tensor."""
    if node.kind == "conditional":
        return kinds.of(node.args[0]) == "tensor"
    if node.kind != "call" or node.args[0].kind != "name":
        return False
    number = callee(node) in READ
    return number and any(kinds.of(arg) == "tensor" for arg in node.args[1:])
