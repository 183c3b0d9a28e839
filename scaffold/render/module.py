"""The `nn.Module` around an op, as lines for its template.

In: an `OpSpec` with a module (`ModuleSpec`: the inputs it owns, and updates). Out: a `ModuleView`, from which `templates/op.py.jinja` writes
the class; values of new parameters come from `parameters.py`. Invariant: the module owns parameters, buffers and attributes; every
other input is an argument of its `forward`.

Words: a buffer is a tensor of the module without a gradient; an update is the formula for its value after each call in training. An
optional parameter has a switch in the constructor, `bias=True`. The module *owns* its parameters, buffers and attributes; *given* inputs of
an update are arguments of the call.
"""

import textwrap
from collections.abc import Callable
from typing import NamedTuple

from scaffold.derive import Derivation, apart_from, is_lowered
from scaffold.formula import (
    Assign,
    Formula,
    Graph,
    Lines,
    Node,
    emit,
    emit_lines,
    expressions,
    nodes,
    rewritten,
    sharing,
    written,
)
from scaffold.formula.names import fresh
from scaffold.render.docstring import INDENT, first_paragraph, quoted, wrapped
from scaffold.render.parameters import (
    Dims,
    buffer_lines,
    dims_of,
    kept_attributes,
    parameter_lines,
    reset_lines,
    size_arguments,
)
from scaffold.render.signature import (
    annotation,
    call_arguments,
    parameter,
    parameters_with_defaults,
    starred,
    wrapper_type,
)
from scaffold.spec import Attribute, Input, ModuleSpec, OpSpec

# --- Updates of a module's buffers in training.
#
# In: an `OpSpec` and its module's updates. Out: lines of its `forward`. Invariant: every update reads the buffers' values
# from before the call.


RESULT = "output"  # the local variable for the module's result


def update_lines(spec: OpSpec, module: ModuleSpec) -> list[str]:
    """Return statements updating each buffer in `forward`: `self.running_mean.copy_(...)`.

    If a formula reads a buffer updated before it, all new values are computed first (`together`).
    """
    bodies = [_of_module(spec, module, formula) for _, formula in module.updates]
    names = [name for name, _ in module.updates]
    taken = {item.name for item in spec.inputs}
    taken |= written(*(item for body in bodies for item in body))
    together = any(
        _reads(body, earlier)
        for position, body in enumerate(bodies)
        for earlier in names[:position]
    )
    lines, copies = list[str](), list[str]()
    for name, body in zip(names, bodies, strict=True):
        *before, last = body
        assert isinstance(last, Assign)
        value = emit(last.value)
        lines += emit_lines(before)
        if together:
            new = fresh(f"new_{name}", taken)
            lines.append(f"{new} = {value}")
            copies.append(f"self.{name}.copy_({new})")
        else:
            lines.append(f"self.{name}.copy_({value})")
    return lines + copies


def _of_module(spec: OpSpec, module: ModuleSpec, formula: Formula) -> Lines:
    """Return the statements of an update's formula, its value last, reading from `self` the values the module owns.

    Locals with the name of an input, of the op or of an import would hide it, and are renamed.
    """
    assert formula.result is not None
    graph = formula.graph
    body = formula.lines()
    items = (*spec.attributes, *module.attributes)
    owned = {*module.parameters, *module.buffers, *(item.name for item in items)}
    outer = owned | {item.name for item in spec.inputs} | {spec.name, RESULT}
    outer |= {item.binding for item in spec.imports}
    body, _ = apart_from(graph, body, outer, outer | written(*body))
    return rewritten(graph, body, _over_self(graph, owned))


def _over_self(graph: Graph, owned: set[str]) -> Callable[[Node], Node | None]:
    """Return the change of a name the module owns to an attribute: `weight` -> `self.weight`."""

    def change(node: Node) -> Node | None:
        if node.kind == "name" and node.label in owned:
            return graph.node("attribute", node.label, (graph.name("self"),))
        return None

    return change


def _reads(body: Lines, name: str) -> bool:
    """Return whether a body reads `self.name`."""
    return any(
        inner.kind == "attribute"
        and inner.label == name
        and inner.args[0].label == "self"
        for inner in nodes(*body)
    )


# --- The `nn.Module` around an op, as lines for its template.


FACTORY = [
    "device: torch.device | str | None = None",
    "dtype: torch.dtype | None = None",
]


class ModuleView(NamedTuple):
    """The template's data for the module; every `_lines` is a body, not yet indented."""

    name: str
    docstring: str
    field_lines: tuple[str, ...]
    init_parameters: str
    init_lines: tuple[str, ...]
    reset_lines: tuple[str, ...]
    forward_parameters: str
    forward_type: str
    forward_lines: tuple[str, ...]
    repr_lines: tuple[str, ...]


def module_view(
    spec: OpSpec, module: ModuleSpec, derivation: Derivation, line_length: int
) -> ModuleView:
    """Return the template's data for the module."""
    dims = {name: dims_of(spec, name) for name in (*module.parameters, *module.buffers)}
    arguments = init_arguments(spec, module)
    return ModuleView(
        name=spec.module_name,
        docstring=textwrap.indent(_docstring(spec, module), INDENT),
        field_lines=tuple(_fields(spec, module)),
        init_parameters=", ".join(arguments),
        init_lines=tuple(_init_lines(spec, module, dims)) if arguments else (),
        reset_lines=tuple(reset_lines(spec, module)),
        forward_parameters=parameters_with_defaults(_call_inputs(spec, module)),
        forward_type=wrapper_type(spec),
        forward_lines=tuple(_forward_lines(spec, module, derivation)),
        repr_lines=tuple(_repr_lines(spec, module, line_length)),
    )


def init_arguments(spec: OpSpec, module: ModuleSpec) -> list[str]:
    """Return the constructor's parameters, each with its type: sizes, attributes, a switch per optional parameter, device and dtype.

    Those without a default come first. Device and dtype are keywords of a module with tensors of its own.
    """
    attributes = kept_attributes(spec, module)
    arguments = [f"{name}: {kind}" for name, kind in size_arguments(spec, module)]
    arguments += [parameter(item) for item in attributes if item.default is None]
    arguments += [f"{name}: bool = True" for name in _switches(spec, module)]
    arguments += [
        f"{parameter(item)} = {item.default}" for item in attributes if item.default
    ]
    return (
        [*arguments, "*", *FACTORY]
        if module.parameters or module.buffers
        else arguments
    )


def _switches(spec: OpSpec, module: ModuleSpec) -> list[str]:
    """Return the optional parameters: the constructor has a bool for each, to leave it out."""
    optional = {item.name for item in spec.tensors if item.optional}
    return [name for name in module.parameters if name in optional]


def _call_inputs(spec: OpSpec, module: ModuleSpec) -> list[Input]:
    """Return the inputs not owned by the module, the arguments of its `forward`; renamed if they would hide the op, which it calls."""
    owned = {*module.parameters, *module.buffers}
    items = [item for item in spec.tensors if item.name not in owned]
    return [
        item._replace(name=f"{item.name}_") if item.name == spec.name else item
        for item in items
    ]


def _docstring(spec: OpSpec, module: ModuleSpec) -> str:
    """Return the module's docstring: the op, the tensors it owns, the buffers it updates."""
    names = [f"``{name}``" for name in (*module.parameters, *module.buffers)]
    owns = f" that owns {_and(names)}" if names else ""
    lines = first_paragraph(f":func:`{spec.name}` as a module{owns}.")
    if module.updates:
        buffers = _and([f"``{name}``" for name, _ in module.updates])
        note = (
            f"In training, a call updates {buffers} after it has computed its result."
        )
        lines += ["", *wrapped(note)]
    return quoted(lines)


def _and(words: list[str]) -> str:
    """Return words as an enumeration: `a, b and c`."""
    return (
        " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
    )


def _fields(spec: OpSpec, module: ModuleSpec) -> list[str]:
    """Return type declarations of attributes set by `register_parameter` and `register_buffer`, unseen by type checkers."""
    lines = [f"{name}: nn.Parameter | None" for name in _switches(spec, module)]
    return lines + [f"{name}: Tensor" for name in module.buffers]


def _init_lines(spec: OpSpec, module: ModuleSpec, dims: dict[str, Dims]) -> list[str]:
    """Return the body of `__init__`: sizes and attributes set on `self`, parameters and buffers made, then given their first values."""
    lines = ["super().__init__()"]
    lines += [
        f"self.{name} = {name}"
        for name, kind in size_arguments(spec, module)
        if kind == "int"
    ]
    lines += [
        f"self.{item.name} = {item.name}" for item in kept_attributes(spec, module)
    ]
    optional = _switches(spec, module)
    lines += [  # an absent parameter has no shape to read
        f"self.{name}_shape = tuple({name}_shape)"
        for name in optional
        if dims[name] is None
    ]
    for name in module.parameters:
        lines += parameter_lines(name, dims[name], name in optional)
    for name in module.buffers:
        lines += buffer_lines(spec, name, dims[name])
    return [*lines, "self.reset_parameters()"] if reset_lines(spec, module) else lines


def _forward_lines(
    spec: OpSpec, module: ModuleSpec, derivation: Derivation
) -> list[str]:
    """Return the body of the module's forward: the call of the wrapper, then its buffers' updates."""
    copied = _copied(module, derivation)
    owned = {*module.parameters, *module.buffers}
    owned |= {item.name for item in spec.attributes}
    passed = iter(_call_inputs(spec, module))  # in the order of the inputs
    values = [
        (
            f"self.{item.name}.clone()"
            if item.name in copied
            else f"self.{item.name}" if item.name in owned else starred(next(passed))
        )
        for item in spec.inputs
    ]
    pairs = zip(spec.inputs, values, strict=True)
    call = f"{spec.name}({call_arguments(pairs)})"
    if not module.updates:
        return [f"return {call}"]
    result = fresh(RESULT, {item.name for item in spec.inputs})
    return [f"{result} = {call}", *_update_block(spec, module), f"return {result}"]


def _update_block(spec: OpSpec, module: ModuleSpec) -> list[str]:
    """Return the lines updating the buffers after a call, in training only.

    As in `nn.BatchNorm1d` they compute in the buffers' dtype, and an empty batch changes nothing: arguments they read are cast (`casts`) and
    must have elements (`test`).
    """
    nodes = [node for _, formula in module.updates for node in formula.nodes()]
    read = {node.label for node in nodes if node.kind == "name"}
    given = [
        item
        for item in spec.tensors
        if item.name in read - {*module.parameters, *module.buffers}
        # The one may be None, the other is a tuple: the lines below ask for a dtype and for elements.
        and not (item.optional or item.variadic)
    ]
    floats = {item.name for item in spec.tensors if item.dtype == "float"}
    updated = [name for name, _ in module.updates if name in floats]
    casts = [
        # All buffers of floats have the module's dtype: any of them tells it.
        f"{item.name} = {item.name}.to(self.{updated[0]}.dtype)"
        for item in given
        if updated and item.name in floats
    ]
    test = ["self.training", *(f"{item.name}.numel() > 0" for item in given)]
    manager = "torch.no_grad()"
    # Autocast would compute a product in low precision; the device is that of an argument.
    if given and any(is_lowered(spec, item) for _, item in module.updates):
        manager += f", torch.autocast({given[0].name}.device.type, enabled=False)"
    return [
        f"if {' and '.join(test)}:",
        f"    with {manager}:",
        *(f"        {line}" for line in [*casts, *update_lines(spec, module)]),
    ]


def _copied(module: ModuleSpec, derivation: Derivation) -> set[str]:
    """Return the updated buffers the call must be given copies of: it saves them, or may return a view of them.

    The update after the call changes them in place, and backward would read the new values. All of them if the forward's code is unknown.
    """
    updated = {name for name, _ in module.updates}
    if derivation.opaque or derivation.forward is None:
        return updated
    shared = {item.origin for item in derivation.saved if item.source == "input"}
    for value in (*expressions(*derivation.forward), *derivation.results):
        shared |= sharing(value)
    return updated & shared


def _repr_lines(spec: OpSpec, module: ModuleSpec, line_length: int) -> list[str]:
    """Return the body of `extra_repr`, for `print`: an f-string of the constructor's arguments, in lines that are short enough."""
    parts = []
    for name, kind in size_arguments(spec, module):
        owner = name.removesuffix("_shape")
        # As in `_init_lines`: an optional parameter may be None, so its shape is an attribute, too.
        on_self = kind == "int" or owner in _switches(spec, module)
        value = f"self.{name}" if on_self else f"tuple(self.{owner}.shape)"
        parts.append(f"{name}={{{value}}}")
    attributes = [item for item in kept_attributes(spec, module) if shows(item)]
    parts += [
        f"{item.name}={{self.{item.name}}}"
        for item in attributes
        if item.default is None
    ]
    parts += [f"{name}={{self.{name} is not None}}" for name in _switches(spec, module)]
    parts += [
        f"{item.name}={{self.{item.name}}}" for item in attributes if item.default
    ]
    return _joined(parts, line_length)


def shows(item: Attribute) -> bool:
    """Return whether an attribute is worth printing: a value, not an object."""
    return annotation(item) != "Any" and item.imported is None


def _joined(parts: list[str], line_length: int) -> list[str]:
    """Return the body of `extra_repr`: one f-string, or several in brackets if it is longer than a line."""
    if not parts:
        return []
    rows = [parts[0]]
    room = line_length - len('            f", "')  # in brackets, with a comma after it
    for part in parts[1:]:
        if len(f"{rows[-1]}, {part}") <= room:
            rows[-1] += f", {part}"
        else:
            rows[-1] += ", "
            rows.append(part)
    line = f'return f"{rows[0]}"'
    if len(rows) == 1 and len(line) <= line_length - len("        "):
        return [line]
    return ["return (", *(f'    f"{row}"' for row in rows), ")"]
