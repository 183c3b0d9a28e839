"""What the generated test expects of backward, by itself and under torch.func.

In: an `OpSpec` and its `Derivation`. Out: a `ContractView` and a `TransformsView`.
Invariant: every expression stands as it is in the file, where `inputs` are those of `make`.
"""

from math import prod
from typing import NamedTuple

from scaffold.derive import Derivation
from scaffold.derive.activity import calls
from scaffold.derive.forward.verbatim_forward import writes_in_place
from scaffold.formula import Node, expressions
from scaffold.render.sizes_of_tests import input_dims
from scaffold.render.testcall import CallView, ends_of, is_single, pick, picking, seeded
from scaffold.render.testcases import (
    BATCH,
    Making,
    differentiable_names,
    element_count,
    element_names,
)
from scaffold.spec import Attribute, Input, OpSpec, is_leading


class ContractView(NamedTuple):
    """What backward is to return, and what it may keep."""

    function: str
    bare: bool  # it returns one gradient rather than a tuple
    partial: bool  # the inputs that are needed may be absent
    recorder: str
    result: str
    first: str  # an input that has a gradient
    to_real: str
    made: str  # arguments of `make`
    changed: str  # positions of the tensors that a caller may change
    changed_outputs: str  # ... of those it gets, without a gradient


class TransformsView(NamedTuple):
    """Gradients under torch.func."""

    argnums: str
    in_dims: str  # "" where every input is a tensor
    loss_lines: tuple[str, ...]
    op: str  # the outputs that have a gradient, as a function
    reference: str
    randomness: str  # for vmap: every sample of a batch draws the same numbers
    mapped: bool  # vmap takes the gradient
    jacobian: bool  # jacrev takes real tensors alone
    needed: str  # the inputs that have a gradient
    elements: str  # the elements of those outputs


def contract_view(spec: OpSpec, derivation: Derivation) -> ContractView:
    """The contract of backward."""
    variadic = any(item.variadic for item in spec.tensors)
    extra = bool(derivation.intermediates) and derivation.style == "setup-context"
    outputs = "[0]" if is_single(spec) else f"[:{len(spec.outputs)}]"
    first = spec.index(spec.differentiable[0].name)
    return ContractView(
        function=spec.function_name,
        bare=len(spec.inputs) == 1 and not variadic,
        partial=any(item.optional or item.variadic for item in spec.differentiable),
        recorder="on_copy(Recorder.apply)" if spec.dirty else "Recorder.apply",
        result=f"apply(*inputs){outputs if extra else ''}",
        first=f"inputs[{first}]",
        to_real=".abs()" if spec.differentiable[0].dtype == "complex" else "",
        made=_made(spec),
        changed=_changed(spec),
        changed_outputs=_changed_outputs(spec),
    )


def _made(spec: OpSpec) -> str:
    """A case; where nothing else tries other memory layouts, in one of those."""
    needs = ", needs=needs" if len(differentiable_names(spec)) > 1 else ""
    alone = spec.surrogate is not None and spec.surrogate.forward is None
    return f"**case{needs}{', layout=permuted' if alone else ''}"


def _changed(spec: OpSpec) -> str:
    """`range(3), ids=[...]`: the tensors of a call that the op does not change itself."""
    kept = [
        (position, name)
        for position, (item, name) in enumerate(_values(spec))
        if name and item.name not in spec.dirty
    ]
    return _parametrized(kept)


def _changed_outputs(spec: OpSpec) -> str:
    """An output with a gradient that stays on ctx makes a cycle, which is found otherwise."""
    if spec.outputs[-1].variadic:
        return ""
    ends = ends_of(spec)
    named = [(position, item.name) for position, item in enumerate(spec.outputs)]
    return _parametrized([item for item in named if item[0] not in ends])


def _parametrized(kept: list[tuple[int, str]]) -> str:
    """Positions and their ids, as `parametrize` takes them; "" for none."""
    if not kept:
        return ""
    positions = [position for position, _ in kept]
    whole = positions == list(range(len(kept)))
    ids = ", ".join(f'"{name}"' for _, name in kept)
    return f"{f'range({len(kept)})' if whole else positions}, ids=[{ids}]"


def _values(spec: OpSpec) -> list[tuple[Input, str]]:
    """The values of a call in order, each with its name."""
    return [(item, name) for item in spec.inputs for name in _elements(spec, item)]


def _elements(spec: OpSpec, item: Input) -> list[str]:
    """The names of an input's values in a call; empty for one that is no tensor, or may not be one."""
    if isinstance(item, Attribute) or (item.optional and spec.samples is not None):
        return [""]
    return list(element_names(item, element_count(spec)))


def transforms_view(spec: OpSpec, call: CallView, mapped: bool) -> TransformsView:
    """Gradients of the differentiable inputs, whose positions in a call are `argnums`."""
    values = _values(spec)
    differentiable = spec.differentiable
    argnums = tuple(
        position
        for position, (item, name) in enumerate(values)
        if name and item in differentiable
    )
    whole = len(argnums) == len(values)
    picked = ", ".join(f"inputs[{position}]" for position in argnums)
    return TransformsView(
        argnums=str(argnums),
        in_dims=_in_dims(spec, [name for _, name in values]),
        loss_lines=tuple(_loss_lines(spec, call)),
        op=picking(spec, call.wrapper),
        reference=picking(
            spec, seeded("surrogate" if spec.surrogate else "reference", call.random)
        ),
        randomness=', randomness="same"' if call.random else "",
        mapped=mapped,
        jacobian=not is_complex(spec),
        needed="inputs" if whole else f"({picked},)",
        elements=_flat(spec, call.wrapper),
    )


def _in_dims(spec: OpSpec, names: list[str]) -> str:
    if spec.samples is not None:
        return "tuple(0 if isinstance(x, Tensor) else None for x in samples[0])"
    return "" if all(names) else str(tuple(0 if name else None for name in names))


def is_complex(spec: OpSpec) -> bool:
    """Whether a tensor of the op is complex."""
    kinds = {item.dtype for item in spec.tensors} | {
        item.dtype for item in spec.outputs
    }
    return "complex" in kinds


def _loss_lines(spec: OpSpec, call: CallView) -> list[str]:
    """The body of a function of the inputs to one number."""
    op, positions = call.wrapper, ends_of(spec)
    real = ".abs()" if is_complex(spec) else ""
    if len(positions) == 1 and not spec.outputs[positions[0]].variadic:
        end = "" if is_single(spec) else f"[{positions[0]}]"
        value = f"{op}(*inputs){end}{real}.square().sum()"
        if not call.random:
            return [f"return {value}"]
        return [f"total: Tensor = {value}", "return total"]
    ends = pick(spec, "outputs")
    return [
        f"outputs = {op}(*inputs)",
        f"return torch.stack([output{real}.square().sum() for output in {ends}]).sum()",
    ]


def _flat(spec: OpSpec, op: str) -> str:
    if is_single(spec):
        return f"{op}(*inputs).flatten()"
    return f"torch.cat([output.flatten() for output in {pick(spec, f'{op}(*inputs)')}])"


# --- The keyword arguments of gradcheck and of gradgradcheck. What the user states of the tolerance goes before what follows from the op.


# The vmap that gradcheck's check_batched_grad uses, not torch.func's, has no rule for these.
UNBATCHED = frozenset(
    {"adjoint", "broadcast_to", "column_stack", "dstack", "einsum", "flatten"}
    | {"hsplit", "hstack", "item", "meshgrid", "moveaxis", "multi_dot", "ravel"}
    | {"swapaxes", "swapdims", "unflatten", "vstack"}
)
MANY = 250  # elements, beyond which the derivative of each by each takes minutes


def first_options(spec: OpSpec, derivation: Derivation, making: Making) -> str:
    """The arguments of gradcheck."""
    written = spec.kept is not None and writes_in_place(spec.kept)
    batchable = _is_batchable(derivation) and not written
    some = "case not in EMPTY_CASES.values()"
    every = not (making.empty and any(map(_takes_the_first, _nodes(derivation))))
    batched = {"check_batched_grad": "True" if every else some} if batchable else {}
    options = batched | {"check_grad_dtypes": "True"} | _shared(spec, making)
    return ", ".join(f"{name}={value}" for name, value in options.items())


def second_options(spec: OpSpec, making: Making) -> str:
    """The arguments of gradgradcheck, each after a comma."""
    shared = _shared(spec, making).items()
    return "".join(f", {name}={value}" for name, value in shared)


def _shared(spec: OpSpec, making: Making) -> dict[str, str]:
    """What holds of both: many elements are projected on one."""
    fast = {"fast_mode": "True"} if _element_total(spec, making) > MANY else {}
    return fast | dict(spec.tolerance)


def _element_total(spec: OpSpec, making: Making) -> int:
    """How many elements the inputs with a gradient have."""
    count = 0
    for item in spec.differentiable:
        sizes = (
            making.sizes.get(str(dim), BATCH if is_leading(dim) else dim)
            for dim in input_dims(spec, item.name)
        )
        known = [int(size) for size in sizes if str(size).isdecimal()]
        count += prod(known)
    return count


def _is_batchable(derivation: Derivation) -> bool:
    """Whether gradcheck can batch the backward, which is not known before it is written."""
    nodes = _nodes(derivation)
    called = {name for node in nodes for name in calls(node)}
    unbatched = called & UNBATCHED or any(map(_slices_all, nodes))
    return not (derivation.opaque or derivation.missing or unbatched)


def _nodes(derivation: Derivation) -> list[Node]:
    """The expressions of the backward, and of a forward that it runs as a whole."""
    blocks = (item for block in derivation.blocks for item in block.statements)
    several = (item for element in derivation.elements for item in element.statements)
    nodes = [node for item in (*blocks, *several) for node in expressions(item)]
    nodes += [element.value for element in derivation.elements]
    return nodes + [item for item in derivation.results if item.kind == "body"]


def _takes_the_first(node: Node) -> bool:
    """Whether a slice begins at 0 and ends early, `x[:, :1]`: of a dim that is otherwise empty it takes all."""
    return any(
        item.args[0].label in ("", "0") and item.args[1].kind == "constant"
        for item in node.walk()
        if item.kind == "slice"
    )


def _slices_all(node: Node) -> bool:
    """Whether a slice may take all there is: then it is an alias, for which that vmap has no rule either."""
    bounds = (arg for item in node.walk() if item.kind == "slice" for arg in item.args)
    return any(bound.kind not in ("absent", "constant", "unary") for bound in bounds)
