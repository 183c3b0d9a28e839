"""The test file of an op: its claims, the reference in plain PyTorch, and the claims on the module around the op.

`templates/test.py.jinja` writes it, a class of attributes: the test methods themselves are shared by all ops (`op_testing.py`).
In: an `OpSpec`, its `Derivation`, the paths of the files, and the op in plain PyTorch if known.
Out: the text of `test_NAME.py`, not formatted yet.
Words: a *claim* is an attribute of the test's class; `making` is what the test's `make` makes inputs of (`testcases.py`); the *reference* is
the forward in plain PyTorch; an input is *owned* if it is a parameter or buffer of the module.
Invariant: it imports only names it uses, and states nothing true of every op; the module's constructor gets the arguments
declared by the module's own template, by keyword.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from scaffold.derive import Derivation
from scaffold.render.environment import render_template, with_imports
from scaffold.render.file_style import PLAIN, House
from scaffold.render.formatting import keep_formatted
from scaffold.render.imports import import_block, import_lines
from scaffold.render.layout import Layout
from scaffold.render.op_testing import needed, op_testing_draft
from scaffold.render.parameters import kept_attributes, size_arguments
from scaffold.render.reference import stated_lines
from scaffold.render.signature import annotation, call_arguments, starred, wrapper_type
from scaffold.render.templates import OP_TESTING, TESTS
from scaffold.render.testcases import (
    LIBRARY,
    RESERVED,
    SHARED,
    Making,
    op_imports,
    plan_making,
    samples_name,
)
from scaffold.render.testclaims import Claim, claims, kinks, tupled
from scaffold.render.testvalues import attribute_value, other_constants
from scaffold.spec import (
    Attribute,
    Import,
    Input,
    ModuleSpec,
    OpSpec,
    is_variadic,
)
from scaffold.spec.other_tools import LINE_LENGTH

OPAQUE = ("object()", "torch.tanh")  # values a copy need not equal


class ModuleTestsView(NamedTuple):
    """The template's data for the class of the module's tests."""

    name: str  # of the module
    claims: tuple[Claim, ...]
    build_parameters: str
    build_lines: tuple[str, ...]


def module_tests(
    spec: OpSpec, making: Making, name: str, tests: str
) -> ModuleTestsView | None:
    """Return the data of the module's tests; None without a module.

    `name` is the module's name in the file, `tests` that of the class of the op's tests. A test builds the module by `build`: attributes that
    a question changes are parameters of that (`passed`), all others are written into the call.
    """
    module = spec.module
    if module is None:
        return None
    owned = (*module.parameters, *module.buffers)
    values = _arguments(spec, module, making)
    passed = {
        item.name: f"{annotation(item)} = {values[item.name]}"
        for item in kept_attributes(spec, module)
        # A test calls `build(device="meta")`: such a word is not free for an attribute.
        if item.name in other_constants(spec) and item.name not in RESERVED
    }
    arguments = ", ".join(
        f"{name}={name if name in passed else value}" for name, value in values.items()
    )
    # Some argument is an item of the op's inputs: `inputs[1]`.
    made = [f"inputs = {tests}().inputs()"] if "inputs[" in arguments else []
    options = ", **options" if owned else ""
    # If there are no arguments, `options` begins with the comma.
    call = f"{name}({f'{arguments}{options}'.removeprefix(', ')})"
    parameters = [*(["*"] if passed else []), *(f"{k}: {v}" for k, v in passed.items())]
    parameters += ["**options: Any"] if owned else []
    return ModuleTestsView(
        name=name,
        claims=(
            Claim("op_tests", tests),
            *_module_claims(spec, module, owned),
            *([Claim("constants", tupled(tuple(passed)))] if passed else []),
        ),
        build_parameters=", ".join(parameters),
        build_lines=(*made, f"return {call}"),
    )


def _module_claims(
    spec: OpSpec, module: ModuleSpec, owned: tuple[str, ...]
) -> tuple[Claim, ...]:
    """Return claims on the owner of each tensor, and on the attributes a copy shares with the module."""
    optional = {item.name for item in spec.tensors if item.optional}
    tensors = [item for item in spec.tensors if item.name not in owned]
    attributes = (*spec.attributes, *module.attributes)
    plain = [item for item in attributes if attribute_value(spec, item) not in OPAQUE]
    # By the name of the claim: inputs the module owns, those passed to its forward, ...
    listed = {
        "owned": owned,
        "optional": [name for name in module.parameters if name in optional],
        "attributes": [item.name for item in plain],
        "given": [item.name for item in tensors if not item.keyword_only],
        "given_by_keyword": [item.name for item in tensors if item.keyword_only],
        "updated": [name for name, _ in module.updates],
    }
    return tuple(Claim(name, tupled(tuple(v))) for name, v in listed.items() if v)


def _arguments(spec: OpSpec, module: ModuleSpec, making: Making) -> dict[str, str]:
    """Return the constructor's arguments by keyword: sizes, attributes, and the dtype of owned tensors.

    With the user's samples, or for an imported class, the value of an attribute is that in `inputs`.
    """
    shapes = {f"{name}_shape": shape for name, shape in making.shapes.items()}
    values = shapes | making.sizes
    listed = {name: values[name] for name, _ in size_arguments(spec, module)}
    for item in kept_attributes(spec, module):
        sampled = item.imported is not None or spec.samples is not None
        sampled = sampled and item in spec.attributes
        usual = making.sizes.get(item.name, attribute_value(spec, item))
        # An attribute that is a size too has its value from `size_arguments`.
        listed.setdefault(
            item.name, f"inputs[{spec.index(item.name)}]" if sampled else usual
        )
    if module.parameters or module.buffers:
        listed["dtype"] = _dtype(spec, module)
    return listed


def _dtype(spec: OpSpec, module: ModuleSpec) -> str:
    """Return the dtype of the module's tensors in a test: complex if one of them is."""
    owned = (*module.parameters, *module.buffers)
    kinds = {item.dtype for item in spec.tensors if item.name in owned}
    return "torch.cdouble" if "complex" in kinds else "torch.double"


BASE = ('"base": {}',)  # the cases of `OpTests`


class FunctionView(NamedTuple):
    """A function of all inputs, in the order of the Function's."""

    name: str
    title: str
    parameters: str
    type: str
    lines: tuple[str, ...]


class ProofView(NamedTuple):
    """The parts of the proof's module beyond the test file; expressions as source."""

    makers: str  # functions making special tensors
    samples: str  # the user's function of samples; "" for none
    cases: str
    true_forward: FunctionView | None  # of a surrogate
    own: tuple[FunctionView, ...]  # the text of the user's, nothing of it rewritten
    own_forward: str  # the one with the op's values; None for none
    own_gradient: str  # ... and the one with its gradients
    names: str  # of the values of a call, a variadic input's with a star
    outputs: str  # name, dims and dtype of each; () for any number of them
    input_shapes: str  # name -> declared dims, None if undeclared
    broadcast: str  # position of an input -> number of its non-leading dims
    attributes: str  # position of an attribute -> further values of it
    newer: str  # functions missing from the shipped table
    asked_more: bool  # more calls are tried than in the tests
    scaled: str  # positions of inputs to try with larger values, for stated gradients
    # Position of an input -> values to try in its elements; inf is `float("inf")`.
    values: str
    tolerance: str
    attached: bool  # an output of the reference may require no grad
    declared: str  # number of outputs the op returns; None for all
    single: bool
    surrogate: bool
    loose: bool  # the forward may refuse any case
    contiguous: bool  # ... and any non-contiguous tensor
    other: str = "None"  # another operator, called by a measurement


class TestView(NamedTuple):
    """The template's data; every `_lines` is a body, not yet indented."""

    licence_lines: tuple[str, ...]
    header: str  # as in the op's file
    op: str
    imports: str
    kernel_imports: list[str]  # of an op with kernels
    op_testing_lines: tuple[str, ...]  # the test methods, unless imported
    samples_lines: tuple[str, ...]  # the user's function
    name: str  # of the class
    claims: tuple[Claim, ...]
    make_parameters: str
    make_lines: tuple[str, ...]
    # The op if it takes keywords, and the reference.
    functions: tuple[FunctionView, ...]
    module: ModuleTestsView | None
    proof: ProofView | None = None  # the additional parts of a verification


def suite_draft(
    spec: OpSpec,
    derivation: Derivation,
    layout: Layout,
    reference: tuple[str, ...] | None,
    house: House,
) -> str:
    """Return the text of the test file before formatting; the shared test code is in it, unless a project has a file of that.

    `reference` is the body of the op in plain PyTorch, None if there is none.
    """
    shown = view(spec, derivation, layout, reference, house)
    if layout.op_testing is None:
        own = render_template(TESTS, shown, house.templates)
        text = needed(op_testing_draft(house, None), own, derivation.complete)
        # Formatting the code common to all tests takes a fifth of a run; our template is formatted, and stays so when cut.
        if (
            layout.line_length == LINE_LENGTH
            and house.templates.find(OP_TESTING) is None
        ):
            keep_formatted(text, layout.line_length)
        shown = shown._replace(op_testing_lines=tuple(text.splitlines()))
    single = house.single_line_imports
    return with_imports(
        TESTS, shown, lambda code: imports_of(spec, layout, code, single), house
    )


def view(
    spec: OpSpec,
    derivation: Derivation,
    layout: Layout,
    reference: tuple[str, ...] | None,
    house: House = PLAIN,
) -> TestView:
    """Return the template's data, without imports and test methods: these follow from the rendered code."""
    own, single = op_imports(spec, layout.module), house.single_line_imports
    # The names in this file: an op `mask` is imported as `mask_op`.
    names = {item.name: item.binding for item in own}
    making = plan_making(spec)
    tests = f"Test{spec.class_name}"
    return TestView(
        licence_lines=house.licence,
        header=house.header,
        op=spec.name,
        imports="",
        kernel_imports=import_lines(own if spec.kernels else (), single),
        op_testing_lines=(),
        samples_lines=_samples_lines(spec),
        name=tests,
        claims=tuple(_claims(spec, derivation, making, names[spec.name], reference)),
        make_parameters=", ".join(
            ["*", *making.parameters] if making.parameters else []
        ),
        make_lines=_make_lines(spec, making),
        functions=tuple(_functions(spec, derivation, names[spec.name], reference)),
        module=module_tests(spec, making, names.get(spec.module_name, ""), tests),
    )


def _claims(
    spec: OpSpec,
    derivation: Derivation,
    making: Making,
    op: str,
    reference: tuple[str, ...] | None,
) -> Iterator[Claim]:
    """Yield the claims: the op, its properties, and the cases."""
    # With keyword-only inputs `op` is a function of the class, made by `_functions`.
    if not _takes_keywords(spec):
        yield Claim("op", f"staticmethod({op})")
    yield from claims(spec, derivation, making, compared=reference is not None)
    if making.cases != BASE:
        yield Claim("cases", f"{{{', '.join(making.cases)}}}", "Cases")
    if making.empty:
        yield Claim("empty_cases", f"{{{', '.join(making.empty)}}}", "Cases")
    # A stated or unwritten gradient need not support undeclared shapes.
    stated = spec.gradients or spec.backward or derivation.missing
    if making.broadcast and reference is not None and not stated:
        yield Claim("broadcast_cases", f"{{{', '.join(making.broadcast)}}}", "Cases")


def _takes_keywords(spec: OpSpec) -> bool:
    """Return whether an input is keyword-only."""
    return any(item.keyword_only for item in spec.inputs)


def _functions(
    spec: OpSpec, derivation: Derivation, op: str, reference: tuple[str, ...] | None
) -> Iterator[FunctionView]:
    """Yield the functions of the test's class: the op, if it takes keywords, then the reference and the stated gradients.

    The op's has every value in its place, since tests pass all inputs so.
    """
    if _takes_keywords(spec):
        values = call_arguments((item, starred(item)) for item in spec.inputs)
        title = f"{spec.name}, called with every value in its place."
        lines = (f"return {op}({values})",)
        yield FunctionView("op", title, _parameters(spec), wrapper_type(spec), lines)
    if reference is not None:
        yield reference_function(spec, reference)
    stated = stated_lines(spec, derivation)
    # Elsewhere the gradient agrees with autograd's of the reference, and a test compares with that.
    if stated and (spec.surrogate is not None or kinks(spec, derivation)):
        title = f"The gradients of {spec.name}, as they were stated."
        given = f"{_parameters(spec)}, grad_output: Tensor"
        yield FunctionView("stated", title, given, "tuple[Any, ...]", stated)


def reference_function(spec: OpSpec, lines: tuple[str, ...]) -> FunctionView:
    """Return the test's `reference`, the op in plain PyTorch to compare with, and its docstring; `lines` are its body.

    Of an op with `--surrogate` it is `surrogate`, the function whose gradient the op has.
    """
    name, title = "reference", f"{spec.name} in plain PyTorch."
    if spec.surrogate is not None:
        name, title = "surrogate", f"The function whose gradient {spec.name} has."
    return FunctionView(name, title, _parameters(spec), wrapper_type(spec), lines)


def _parameters(spec: OpSpec) -> str:
    return ", ".join(f"{starred(item)}: {_annotation(item)}" for item in spec.inputs)


def _annotation(item: Input) -> str:
    """Return the type of an input in the test, `Any` for a type to be imported."""
    opaque = isinstance(item, Attribute) and item.imported is not None
    return "Any" if opaque else annotation(item)


def _samples_lines(spec: OpSpec) -> tuple[str, ...]:
    """Return the user's function of samples, under a free name."""
    if spec.samples is None:
        return ()
    own, free = f"def {spec.samples.function}(", f"def {samples_name(spec)}("
    return tuple(spec.samples.source.strip("\n").replace(own, free, 1).splitlines())


def _make_lines(spec: OpSpec, making: Making) -> tuple[str, ...]:
    """Return the body of `make`: a dict of the inputs, or the values of one of the user's tuples by name."""
    if spec.samples is None:
        items = making.items
        # `{**{... for ...}}` is `{... for ...}`.
        sole = len(items) == 1 and items[0].startswith("**{")
        return (
            "return {",
            *([items[0][3:-1]] if sole else [f"    {item}," for item in items]),
            "}",
        )
    keys = ", ".join(
        (
            f'*(f"{item.name}[{{index}}]" for index in range(len(values)))'
            if is_variadic(item)
            else f'"{item.name}"'
        )
        for item in spec.inputs
    )
    return (
        f"values = [in_double(value) for value in list({samples_name(spec)}())[sample]]",
        f"return dict(zip([{keys}], values, strict=True))",
    )


def imports_of(spec: OpSpec, layout: Layout, code: str, single: bool = False) -> str:
    """Return the import block for the test's `code`; lines adding directories to `sys.path` precede the imports found only there.

    With kernels, the op is imported by lines of its own in the template.
    """
    op = () if spec.kernels else op_imports(spec, layout.module)
    if layout.op_testing is not None:
        op += tuple(Import(layout.op_testing, name) for name in SHARED)
    if not layout.search_paths:
        return import_block(code, (*op, *spec.imports), LIBRARY, single)
    added = "\n".join(
        f"sys.path.insert(0, str({_directory(path)}))" for path in layout.search_paths
    )
    above = import_block(code, spec.imports, LIBRARY, single, added)
    return "\n\n".join([above, added, import_block(code, op, (), single)]).rstrip()


def _directory(search_path: str) -> str:
    """Return an expression for a directory given relative to the test file's own."""
    parts = PurePosixPath(search_path).parts
    above = sum(part == ".." for part in parts)
    steps = "".join(f" / {_quoted(part)}" for part in parts[above:])
    return f"Path(__file__).resolve().parents[{above}]{steps}"


def _quoted(text: str) -> str:
    """Return a string literal in the formatter's preferred quotes."""
    literal = repr(text)
    return literal if '"' in literal else f'"{literal[1:-1]}"'
