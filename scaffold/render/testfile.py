"""The test file of an op.

In: an `OpSpec`, its `Derivation`, where the files go, and the op in plain PyTorch where that is known.
Out: the text of `test_NAME.py`, formatted.
Invariant: it imports what it uses, and holds no section that has nothing to say.
"""

from pathlib import PurePosixPath
from typing import NamedTuple

from scaffold.derive import Derivation
from scaffold.render.environment import with_imports
from scaffold.render.file_style import PLAIN, House
from scaffold.render.formatting import format_source
from scaffold.render.imports import import_block
from scaffold.render.layout import Layout
from scaffold.render.shape_checks import Refused, refused
from scaffold.render.templates import TESTS
from scaffold.render.testcall import (
    CallView,
    ReferenceView,
    call_view,
    reference_view,
)
from scaffold.render.testcases import LIBRARY, op_imports, plan_making, samples_name
from scaffold.render.testgradients import (
    ContractView,
    TransformsView,
    contract_view,
    first_options,
    second_options,
    transforms_view,
)
from scaffold.render.testinputs import InputsView, inputs_view
from scaffold.render.testlimits import (
    is_its_derivative,
    maps,
    precision,
    singular,
    takes_any_layout,
)
from scaffold.render.testmodule import ModuleTests, module_tests
from scaffold.spec import OpSpec


class ProofView(NamedTuple):
    """What the module has beside the parts of the test file; expressions as they stand in it."""

    cases: str
    function: str
    reference: str  # what has the gradient; None where no PyTorch function is known
    forward: str  # what the op computes; the same but for a surrogate
    true_forward: ReferenceView | None  # ... of a surrogate
    names: str  # of the values of a call, a variadic input's with a star
    outputs: (
        str  # name, dims and dtype of each; () where there may be any number of them
    )
    input_shapes: str  # name -> declared dims, None where there are none
    broadcast: str  # position of an input -> how many of its dims are not leading ones
    attributes: str  # position of an attribute -> further values of it
    newer: str  # functions that the shipped table does not have
    tolerance: str
    bare: bool  # backward returns one gradient rather than a tuple
    surrogate: bool
    loose: bool  # the forward may refuse any case
    contiguous: bool  # ... and whatever is not contiguous


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
    close: str  # what compares tensors
    rounded: (
        str  # the precision that the forward computes in: "double", "single", "half"
    )
    refused: tuple[Refused, ...]  # inputs whose shapes forward does not take
    first_options: str  # of gradcheck
    second_options: str  # of gradgradcheck
    second_of_empty: bool  # gradgradcheck takes empty tensors too
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
    gradients, rounded = bool(spec.differentiable), precision(spec)
    transforms = (
        gradients and derivation.transforms and derivation.style == "setup-context"
    )
    random = derivation.random
    call = call_view(spec, names[spec.name], random)
    stated = reference_view(spec, reference, random) if reference is not None else None
    # Autograd of such a forward is what its gradient is compared with, nothing else.
    detached = stated is not None and not is_its_derivative(spec)
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
        close="assert_close" if rounded == "double" else "assert_near",
        rounded=rounded,
        once_differentiable=derivation.once_differentiable,
        compiles=gradients and derivation.compiles,
        refused=refused(spec, derivation),
        first_options=first_options(spec, derivation, making),
        second_options=second_options(spec, making),
        second_of_empty=not (making.empty and singular(spec)),
    )


def imports_of(spec: OpSpec, layout: Layout, code: str, single: bool = False) -> str:
    """The import block; where no import finds the op or what tests share, directories are added to the path before it."""
    op = op_imports(spec, layout.module)
    if not layout.search_paths:
        return import_block(code, (*op, *spec.imports), LIBRARY, single)
    added = "\n".join(
        f"sys.path.insert(0, str({_directory(path)}))" for path in layout.search_paths
    )
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
