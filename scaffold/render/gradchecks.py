"""What the generated test asks of gradcheck and of gradgradcheck.

In: an `OpSpec`, its `Derivation`, and how the test makes its inputs. Out: the keyword arguments of the two, as text.
Invariant: what the user states of the tolerance goes before what follows from the op.
"""

from math import prod

from scaffold.derive import Derivation
from scaffold.derive.activity import calls
from scaffold.derive.forward.verbatim_forward import writes_in_place
from scaffold.formula import Node, expressions
from scaffold.render.sizes_of_tests import input_dims
from scaffold.render.testcases import BATCH, Making
from scaffold.spec import OpSpec, is_leading

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
    fast = {"fast_mode": "True"} if _elements(spec, making) > MANY else {}
    return fast | dict(spec.tolerance)


def _elements(spec: OpSpec, making: Making) -> int:
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
