"""What the generated test says of the module.

In: an `OpSpec` and the sizes that its test inputs have. Out: a `ModuleTests`, or None where there is no module.
Invariant: the constructor's arguments are those that the module's own template declares, by keyword.
"""

from typing import NamedTuple

from scaffold.render.parameters import kept_attributes, size_arguments
from scaffold.render.signature import call_arguments
from scaffold.render.testcases import Making
from scaffold.render.testvalues import attribute_value
from scaffold.spec import Input, ModuleSpec, OpSpec, TensorInput

OPAQUE = ("object()", "torch.tanh")  # values of which a copy need not be equal


class ModuleTests(NamedTuple):
    """The module's tests, as the template shows them."""

    name: str
    build_parameters: str
    build_lines: tuple[str, ...]
    arguments: str
    stateful: bool
    switches: tuple[
        str, ...
    ]  # optional parameters, which the constructor can leave out
    switch_parameters: str
    switch_arguments: str
    copied_lines: tuple[str, ...]  # what a copy must have in common with the module
    state: str  # what `make` has for the parameters and buffers; "" for none
    tensors: str  # of a call of the module
    operands: str  # of the op, as the module calls it
    to_eval: str
    updated_lines: tuple[str, ...]  # what a call in training changes


def module_tests(spec: OpSpec, making: Making, name: str) -> ModuleTests | None:
    """The module, under the name that the file gives it."""
    module = spec.module
    if module is None:
        return None
    owned = (*module.parameters, *module.buffers)
    tensors = [item for item in spec.tensors if item.name not in owned]
    call = call_arguments((item, _operand(spec, item)) for item in tensors)
    optional = {item.name for item in spec.tensors if item.optional}
    switches = tuple(item for item in module.parameters if item in optional)
    arguments = ", ".join(_arguments(spec, module, making, switches))
    return ModuleTests(
        name=name,
        build_parameters=_build_parameters(switches, bool(owned)),
        build_lines=("inputs = make()",) * ("inputs[" in arguments),
        arguments=arguments,
        stateful=bool(owned),
        switches=switches,
        switch_parameters=", ".join(f"{item}: bool" for item in switches),
        switch_arguments=", ".join(f"{item}={item}" for item in switches),
        copied_lines=tuple(_copied_lines(spec, module)),
        state=", ".join(f'"{name}": inputs[{spec.index(name)}]' for name in owned),
        tensors=call,
        operands=", ".join(
            f"module.{item.name}" if item.name in owned else _operand(spec, item)
            for item in spec.inputs
        ),
        to_eval=".eval()" if module.updates else "",
        updated_lines=tuple(_updated_lines(spec, module, call)),
    )


def _build_parameters(switches: tuple[str, ...], stateful: bool) -> str:
    listed = [f"{name}: bool = True" for name in switches]
    listed += ['device: str = "cpu"'] if stateful else []
    return ", ".join(["*", *listed]) if listed else ""


def _arguments(
    spec: OpSpec, module: ModuleSpec, making: Making, switches: tuple[str, ...]
) -> list[str]:
    """Sizes, attributes, switches and factory arguments, by keyword."""
    shapes = {f"{name}_shape": shape for name, shape in making.shapes.items()}
    values = shapes | making.sizes
    listed = {name: values[name] for name, _ in size_arguments(spec, module)}
    for item in kept_attributes(spec, module):
        sampled = item.imported is not None or spec.samples is not None
        sampled = sampled and item in spec.attributes
        usual = making.sizes.get(item.name, attribute_value(spec, item))
        listed.setdefault(item.name, _operand(spec, item) if sampled else usual)
    listed |= {name: name for name in switches}
    if module.parameters or module.buffers:
        listed |= {"device": "device", "dtype": _dtype(spec, module)}
    return [f"{name}={value}" for name, value in listed.items()]


def _dtype(spec: OpSpec, module: ModuleSpec) -> str:
    owned = (*module.parameters, *module.buffers)
    kinds = {item.dtype for item in spec.tensors if item.name in owned}
    return "torch.cdouble" if "complex" in kinds else "torch.double"


def _copied_lines(spec: OpSpec, module: ModuleSpec) -> list[str]:
    stateful = bool(module.parameters or module.buffers)
    lines = ["assert_close(copied.state_dict(), module.state_dict())"] * stateful
    attributes = (*spec.attributes, *module.attributes)
    plain = [item for item in attributes if attribute_value(spec, item) not in OPAQUE]
    return lines + [
        f"assert copied.{item.name} == module.{item.name}" for item in plain
    ]


def _operand(spec: OpSpec, item: Input) -> str:
    """The value of an input that the module does not own, out of those of `make`."""
    position = spec.index(item.name)
    if isinstance(item, TensorInput) and item.variadic:
        return f"*inputs[{position}:]" if position else "*inputs"
    return f"inputs[{position}]" + (".clone()" if item.name in spec.dirty else "")


def _updated_lines(spec: OpSpec, module: ModuleSpec, tensors: str) -> list[str]:
    lines = [
        f'assert not torch.equal(module.{name}, before["{name}"])'
        for name, _ in module.updates
    ]
    if lines and spec.differentiable:
        ends = [item.differentiable for item in spec.outputs]
        one = len(ends) == 1 and not spec.outputs[0].variadic
        end = "output" if one else f"outputs[{ends.index(True)}]"
        lines.append(
            f"module({tensors})  # another update leaves the first graph alone"
        )
        lines.append(f"{end}.sum().backward()")
    return lines
