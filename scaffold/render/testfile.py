"""The test file of an op.

In: an `OpSpec`, its `Derivation`, where the files go, and the op in plain PyTorch where that is known.
Out: the text of `test_NAME.py`, formatted.
Invariant: it imports what it uses, and holds no section that has nothing to say.
"""

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from scaffold.derive import Derivation
from scaffold.derive.activity import calls
from scaffold.derive.kept import writes_in_place
from scaffold.formula import Node, expressions
from scaffold.render.formatting import format_source
from scaffold.render.house import PLAIN, House
from scaffold.render.imports import import_block
from scaffold.render.layout import Layout
from scaffold.render.templates import TESTS
from scaffold.render.testcall import (
    CallView,
    ReferenceView,
    call_view,
    reference_view,
)
from scaffold.render.testcases import plan_making
from scaffold.render.testgradients import (
    ContractView,
    TransformsView,
    contract_view,
    transforms_view,
)
from scaffold.render.testinputs import InputsView, inputs_view
from scaffold.render.testlimits import is_its_derivative, maps, takes_any_layout
from scaffold.render.testmodule import ModuleTests, module_tests
from scaffold.render.testnames import LIBRARY, op_imports, samples_name
from scaffold.render.whole import with_imports
from scaffold.spec import OpSpec

if TYPE_CHECKING:
    from scaffold.render.verification import ProofView

# The vmap that gradcheck's check_batched_grad uses, not torch.func's, has no rule for these.
UNBATCHED = frozenset(
    {"adjoint", "broadcast_to", "column_stack", "dstack", "einsum", "flatten"}
    | {"hsplit", "hstack", "item", "meshgrid", "moveaxis", "multi_dot", "ravel"}
    | {"swapaxes", "swapdims", "unflatten", "vstack"}
)
SECOND_ORDER = (
    "eps",
    "atol",
    "rtol",
    "nondet_tol",
    "fast_mode",
)  # that gradgradcheck takes


class TestView(NamedTuple):
    """What the template shows; every `_lines` is a body, not yet indented."""

    licence_lines: tuple[str, ...]
    header: str  # as in the op's file
    op: str
    imports: str
    inputs: InputsView
    call: CallView
    reference: ReferenceView | None
    contract: ContractView | None  # None: the op has no gradient
    transforms: TransformsView | None
    module: ModuleTests | None
    skeleton: bool
    gradchecks: bool
    layouts: str  # of the inputs
    once_differentiable: bool
    compiles: bool
    first_options: str  # of gradcheck
    second_options: str  # of gradgradcheck
    proof: "ProofView | None" = None  # what verification has beside that


def suite_file(
    spec: OpSpec,
    derivation: Derivation,
    layout: Layout,
    reference: tuple[str, ...] | None,
    house: House = PLAIN,
) -> str:
    """The text of the test file; `reference` is the body of a function of the op's inputs."""
    draft = suite_draft(spec, derivation, layout, reference, house)
    return format_source(draft, layout.line_length)


def suite_draft(
    spec: OpSpec,
    derivation: Derivation,
    layout: Layout,
    reference: tuple[str, ...] | None,
    house: House = PLAIN,
) -> str:
    """The text of the test file before it is formatted."""
    incomplete = view(spec, derivation, layout, reference, house)
    single = house.single_line_imports
    return with_imports(
        TESTS, incomplete, lambda code: imports_of(spec, layout, code, single), house
    )


def view(
    spec: OpSpec,
    derivation: Derivation,
    layout: Layout,
    reference: tuple[str, ...] | None,
    house: House = PLAIN,
) -> TestView:
    """The view, but for the imports, which follow from the code that it makes."""
    names = {item.name: item.binding for item in op_imports(spec, layout.module)}
    making = plan_making(spec)
    gradients = bool(spec.differentiable)
    transforms = (
        gradients and derivation.transforms and derivation.style == "setup-context"
    )
    random = derivation.random
    call = call_view(spec, names[spec.name], random)
    stated = reference_view(spec, reference, random) if reference is not None else None
    # Autograd of such a forward is what its gradient is compared with, nothing else.
    detached = bool(derivation.derived and stated) and not is_its_derivative(spec)
    return TestView(
        licence_lines=house.licence,
        header=house.header,
        op=spec.name,
        imports="",
        inputs=inputs_view(spec, making, samples_name(spec), gradients, transforms),
        call=call,
        reference=stated,
        contract=contract_view(spec, derivation) if gradients else None,
        transforms=transforms_view(spec, call, maps(spec)) if transforms else None,
        module=module_tests(spec, making, names[spec.module_name]),
        skeleton=not derivation.complete,
        gradchecks=gradients and spec.surrogate is None and not detached,
        layouts="torch.clone, permuted" if takes_any_layout(spec) else "torch.clone",
        once_differentiable=derivation.once_differentiable,
        compiles=gradients and derivation.compiles,
        first_options=_first_options(spec, derivation),
        second_options=_second_options(spec),
    )


def _first_options(spec: OpSpec, derivation: Derivation) -> str:
    kept = spec.forward.kept if spec.forward is not None else None
    batchable = _is_batchable(derivation) and not (kept and writes_in_place(kept))
    batched = {"check_batched_grad": "True"} if batchable else {}
    options = batched | {"check_grad_dtypes": "True"} | dict(spec.tolerance)
    return ", ".join(f"{name}={value}" for name, value in options.items())


def _is_batchable(derivation: Derivation) -> bool:
    """Whether gradcheck can batch the backward, which is not known before it is written."""
    blocks = (item for block in derivation.blocks for item in block.statements)
    several = (item for element in derivation.elements for item in element.statements)
    nodes = [node for item in (*blocks, *several) for node in expressions(item)]
    nodes += [element.value for element in derivation.elements]
    nodes += [item for item in derivation.results if item.kind == "body"]
    called = {name for node in nodes for name in calls(node)}
    unbatched = called & UNBATCHED or any(map(_slices_all, nodes))
    return not (derivation.opaque or derivation.missing or unbatched)


def _slices_all(node: Node) -> bool:
    """Whether a slice may take all there is: then it is an alias, for which that vmap has no rule either."""
    bounds = (arg for item in node.walk() if item.kind == "slice" for arg in item.args)
    return any(bound.kind not in ("absent", "constant", "unary") for bound in bounds)


def _second_options(spec: OpSpec) -> str:
    shared = (item for item in spec.tolerance if item[0] in SECOND_ORDER)
    return "".join(f", {name}={value}" for name, value in shared)


def imports_of(spec: OpSpec, layout: Layout, code: str, single: bool = False) -> str:
    """The import block; where no import finds the op, its directory is added to the path before it."""
    op = op_imports(spec, layout.module)
    if layout.search_path is None:
        return import_block(code, (*op, *spec.imports), LIBRARY, single)
    added = f"sys.path.insert(0, str({_directory(layout.search_path)}))"
    above = import_block(code, spec.imports, LIBRARY, single, added)
    return "\n\n".join([above, added, import_block(code, op, (), single)])


def _directory(search_path: str) -> str:
    """The expression for a directory that is given as seen from the test file's own."""
    parts = PurePosixPath(search_path).parts
    above = sum(part == ".." for part in parts)
    steps = "".join(f" / {_quoted(part)}" for part in parts[above:])
    return f"Path(__file__).resolve().parents[{above}]{steps}"


def _quoted(text: str) -> str:
    """A string's literal in the quotes that the formatter would choose."""
    literal = repr(text)
    return literal if '"' in literal else f'"{literal[1:-1]}"'
