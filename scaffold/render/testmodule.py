"""What the generated test says of the module.

In: an `OpSpec` and the sizes that its test inputs have. Out: a `ModuleView`, or None where there is no module.
Invariant: the constructor's arguments are those that the module's own template declares, by keyword.
"""

from dataclasses import dataclass

from scaffold.render.testcases import Making
from scaffold.render.testvalues import attribute_value
from scaffold.spec.model import Attribute, ModuleSpec, OpSpec, TensorInput


@dataclass(frozen=True, slots=True)
class ModuleView:
    """The module's tests, as the template shows them."""

    name: str
    switches: tuple[str, ...]  # optional parameters
    arguments: str  # of the constructor, without the switches
    stateful: bool
    dtype: str
    attributes: tuple[str, ...]  # that a copy must keep: those with plain values
    unpack: str  # `input, *_ = make()`
    tensors: str  # of the call of the module
    operands: str  # of the op, as the module calls it
    updated: tuple[str, ...]  # buffers that training changes


def module_view(
    spec: OpSpec, making: Making, taken: frozenset[str]
) -> ModuleView | None:
    """The module as its tests see it; `taken` are names that no local may have."""
    module = spec.module
    if module is None:
        return None
    owned = (*module.parameters, *module.buffers)
    tensors = [item for item in spec.tensors if item.name not in owned]
    local = {item.name: _local(item.name, taken) for item in tensors}
    return ModuleView(
        name=spec.class_name,
        switches=_switches(spec, module),
        arguments="".join(f"{text}, " for text in _arguments(spec, making, owned)),
        stateful=bool(owned),
        dtype=_dtype(spec, owned),
        attributes=tuple(
            item.name for item in spec.attributes if _is_plain(spec, item)
        ),
        unpack=_unpack(spec, local),
        tensors=", ".join(_operand(spec, item, local) for item in tensors),
        operands=", ".join(_operand(spec, item, local) for item in spec.inputs),
        updated=tuple(name for name, _ in module.updates),
    )


def _local(name: str, taken: frozenset[str]) -> str:
    return f"{name}_" if name in taken else name


def _switches(spec: OpSpec, module: ModuleSpec) -> tuple[str, ...]:
    optional = {item.name for item in spec.tensors if item.optional}
    return tuple(name for name in module.parameters if name in optional)


def _arguments(spec: OpSpec, making: Making, owned: tuple[str, ...]) -> list[str]:
    """Sizes, then attributes, as keyword arguments."""
    dims = {dim for name in owned for dim in spec.dims(name) or ()}
    named = [f"{name}={size}" for name, size in making.sizes.items() if name in dims]
    shapes = [
        f"{name}_shape={making.shape}" for name in owned if spec.dims(name) is None
    ]
    values = [(item.name, attribute_value(spec, item)) for item in spec.attributes]
    return (
        named
        + shapes
        + [f"{name}={value}" for name, value in values if name not in dims]
    )


def _dtype(spec: OpSpec, owned: tuple[str, ...]) -> str:
    kinds = {item.dtype for item in spec.tensors if item.name in owned}
    return "torch.cdouble" if "complex" in kinds else "torch.double"


def _is_plain(spec: OpSpec, item: Attribute) -> bool:
    return attribute_value(spec, item) not in ("object()", "torch.tanh")


def _unpack(spec: OpSpec, local: dict[str, str]) -> str:
    """The left side that takes the module's tensors out of `make()`."""
    targets = []
    for item in spec.inputs:
        star = "*" if isinstance(item, TensorInput) and item.variadic else ""
        targets.append(star + local.get(item.name, "_"))
    if targets == ["*" + name for name in local.values()]:
        return targets[0][1:]
    if len(targets) > 1 and targets[-1] == "_":
        while targets[-1] == "_":
            targets.pop()
        targets.append("*_")
    return ", ".join(targets) + ("," if len(targets) == 1 else "")


def _operand(spec: OpSpec, item: TensorInput | Attribute, local: dict[str, str]) -> str:
    if item.name not in local:
        return f"module.{item.name}"
    if isinstance(item, TensorInput) and item.variadic:
        return f"*{local[item.name]}"
    return local[item.name] + (".clone()" if item.name in spec.dirty else "")
