"""The op's own file: Function, wrapper and module.

In: an `OpSpec` (what the user asked for) and its `Derivation` (what the compiler made of it). Out: the text of `NAME.py`, formatted.
Words: the *wrapper* is the function that users call; it calls `apply` of the Function. `house` is a team's style; `package` is the dotted
name of the directory, by which the kernels' module is imported.
Invariant: the same bytes every time.
"""

from textwrap import indent
from typing import NamedTuple

from scaffold.derive import Derivation, without_gradient
from scaffold.render.autocast import in_float32
from scaffold.render.docstring import INDENT, quoted, wrapper_docstring
from scaffold.render.environment import render_block, with_imports
from scaffold.render.file_style import PLAIN, House
from scaffold.render.formatting import format_source
from scaffold.render.function import FunctionView, forward_type, function_view
from scaffold.render.fused import import_lines, with_kernels
from scaffold.render.imports import import_block
from scaffold.render.jvp import function_to_call
from scaffold.render.layout import Layout
from scaffold.render.library import SHARDING_IMPORTS
from scaffold.render.module import ModuleView, module_view
from scaffold.render.signature import (
    arguments,
    parameters_with_defaults,
    registered_arguments,
    wrapper_type,
)
from scaffold.render.templates import OP
from scaffold.render.typing import typed_call
from scaffold.spec import Import, OpSpec
from scaffold.spec.config_keys import Docstrings


class WrapperView(NamedTuple):
    """The template's data for the wrapper function."""

    name: str
    parameters: str
    returns: str
    docstring: str
    body_lines: tuple[str, ...]


class OpView(NamedTuple):
    """The template's data for an op's file."""

    licence_lines: tuple[str, ...]
    header: str  # comment line naming the file's origin; "" outside a project
    docstring: str
    imports: str
    type_imports: str  # for annotations only
    function: FunctionView
    wrapper: WrapperView
    module: ModuleView | None
    kernel_lines: tuple[str, ...] = ()  # import the kernels


def op_file(
    spec: OpSpec, derivation: Derivation, layout: Layout, house: House = PLAIN
) -> str:
    """Return the text of the op's file, formatted."""
    package = layout.module.rpartition(".")[0]
    draft = op_draft(spec, derivation, layout.line_length, house, package)
    return format_source(draft, layout.line_length)


def op_draft(
    spec: OpSpec,
    derivation: Derivation,
    line_length: int,
    house: House = PLAIN,
    package: str = "",
) -> str:
    """Return the text of the op's file before formatting: the template filled with `op_view`, and the imports its code needs."""
    view = op_view(spec, derivation, line_length, house, package)
    single = house.single_line_imports
    wanted = (*spec.imports, *(SHARDING_IMPORTS if spec.sharding else ()))
    return with_imports(
        OP, view, lambda code: import_block(code, wanted, single=single), house
    )


def function_text(
    spec: OpSpec, derivation: Derivation, line_length: int, house: House
) -> str:
    """Return the text of the Function alone, formatted."""
    view = op_view(spec, derivation, line_length, house)
    code = render_block(OP, "function", view, house.templates)
    return format_source(code.lstrip("\n"), line_length)


def op_view(
    spec: OpSpec,
    derivation: Derivation,
    line_length: int,
    house: House,
    package: str = "",
) -> OpView:
    """Return the template's data, still without the imports: these follow from the rendered code."""
    # Outputs that the forward detaches have no gradient, whatever was declared.
    spec = without_gradient(spec, derivation.detached)
    derivation = with_kernels(spec, derivation)
    return OpView(
        licence_lines=house.licence,
        header=house.header,
        docstring=quoted([f"The custom operator {spec.name}."]),
        imports="",
        type_imports=_type_imports(spec),
        kernel_lines=import_lines(spec, package),
        function=function_view(spec, derivation, line_length),
        wrapper=wrapper_view(spec, derivation, house.docstrings),
        module=(
            module_view(spec, spec.module, derivation, line_length)
            if spec.module is not None
            else None
        ),
    )


def _type_imports(spec: OpSpec) -> str:
    """Return the imports of the user's classes in annotations of attributes, for `if TYPE_CHECKING:`: they are not needed at run time."""
    wanted = tuple(Import(*item.imported) for item in spec.attributes if item.imported)
    code = "\n".join(item.binding for item in wanted)
    return import_block(code, wanted, known=())


def wrapper_view(
    spec: OpSpec, derivation: Derivation, convention: Docstrings
) -> WrapperView:
    """Return the data of the function users call: its parameters with defaults, its docstring, and a body that calls the Function.

    The body of `swish(x)` is `return SwishFunction.apply(x)`. These options put lines before it: `--forward-ad` the choice of one of two
    Functions, strict types a local with the type of `apply`, `--amp float32` casts.
    """
    lines_of_choice, function = function_to_call(spec)
    if spec.is_library:  # a function registered with `torch.library`
        callee, given, local = function, registered_arguments(spec.inputs), "call"
    else:
        callee, given, local = f"{function}.apply", arguments(spec.inputs), "apply"
    result = forward_type(spec, derivation)
    taken = {item.name for item in spec.inputs}
    typed_local, callee = typed_call(spec, local, callee, result, taken)
    run = _returning_outputs(spec, derivation, f"{callee}({given})")
    body = [*lines_of_choice, *typed_local, *in_float32(spec, derivation, run)]
    return WrapperView(
        name=spec.name,
        parameters=parameters_with_defaults(spec.inputs),
        returns=wrapper_type(spec),
        docstring=indent(wrapper_docstring(spec, derivation, convention), INDENT),
        body_lines=tuple(body),
    )


def _returning_outputs(spec: OpSpec, derivation: Derivation, call: str) -> list[str]:
    """Return the lines that return a call's results, without the intermediates a forward may return too: `y, _h = call`, `return y`.

    `setup_context` sees only inputs and results of forward, so a local it saves is a result too (`derivation.extra`). Users get the declared
    outputs alone.
    """
    if not derivation.extra:
        return [f"return {call}"]
    names = [
        f"*{output.name}" if output.variadic else output.name for output in spec.outputs
    ]
    extra = [f"_{name}" for name in derivation.intermediates]
    sole = len(names) == 1 and spec.outputs[0].variadic  # `*ys` is unpacked as a list
    result = f"tuple({names[0][1:]})" if sole else ", ".join(names)
    return [f"{', '.join([*names, *extra])} = {call}", f"return {result}"]
