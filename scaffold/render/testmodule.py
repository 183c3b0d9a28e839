"""What the generated test says of the module.

In: an `OpSpec` and the sizes that its test inputs have. Out: a `ModuleTestsView`, or None where there is no module.
Invariant: the constructor's arguments are those that the module's own template declares, by keyword.
"""

from typing import NamedTuple

from scaffold.render.parameters import kept_attributes, size_arguments
from scaffold.render.testcases import Making
from scaffold.render.testclaims import Claim, tupled
from scaffold.render.testvalues import attribute_value
from scaffold.spec import Input, ModuleSpec, OpSpec

OPAQUE = ("object()", "torch.tanh")  # values of which a copy need not be equal


class ModuleTestsView(NamedTuple):
    """The class of the module's tests, as the template shows it."""

    name: str  # of the module
    claims: tuple[Claim, ...]
    build_parameters: str
    build_lines: tuple[str, ...]


def module_tests(
    spec: OpSpec, making: Making, name: str, tests: str
) -> ModuleTestsView | None:
    """The module, under the name that the file gives it; `tests` is the class of the op's tests."""
    module = spec.module
    if module is None:
        return None
    owned = (*module.parameters, *module.buffers)
    arguments = ", ".join(_arguments(spec, module, making))
    made = [f"inputs = {tests}().inputs()"] if "inputs[" in arguments else []
    options = ", **options" if owned else ""
    call = f"{name}({f'{arguments}{options}'.removeprefix(', ')})"
    return ModuleTestsView(
        name=name,
        claims=(Claim("op_tests", tests), *_claims(spec, module, owned)),
        build_parameters="**options: Any" if owned else "",
        build_lines=(*made, f"return {call}"),
    )


def _claims(
    spec: OpSpec, module: ModuleSpec, owned: tuple[str, ...]
) -> tuple[Claim, ...]:
    """Whose tensors are whose, and what a copy must have in common with the module."""
    optional = {item.name for item in spec.tensors if item.optional}
    tensors = [item for item in spec.tensors if item.name not in owned]
    attributes = (*spec.attributes, *module.attributes)
    plain = [item for item in attributes if attribute_value(spec, item) not in OPAQUE]
    listed = {
        "owned": owned,
        "optional": [name for name in module.parameters if name in optional],
        "attributes": [item.name for item in plain],
        "given": [item.name for item in tensors if not item.keyword_only],
        "given_by_keyword": [item.name for item in tensors if item.keyword_only],
        "updated": [name for name, _ in module.updates],
    }
    return tuple(Claim(name, tupled(tuple(v))) for name, v in listed.items() if v)


def _arguments(spec: OpSpec, module: ModuleSpec, making: Making) -> list[str]:
    """Sizes, attributes and the type of what it owns, by keyword."""
    shapes = {f"{name}_shape": shape for name, shape in making.shapes.items()}
    values = shapes | making.sizes
    listed = {name: values[name] for name, _ in size_arguments(spec, module)}
    for item in kept_attributes(spec, module):
        sampled = item.imported is not None or spec.samples is not None
        sampled = sampled and item in spec.attributes
        usual = making.sizes.get(item.name, attribute_value(spec, item))
        listed.setdefault(item.name, _input(spec, item) if sampled else usual)
    if module.parameters or module.buffers:
        listed["dtype"] = _dtype(spec, module)
    return [f"{name}={value}" for name, value in listed.items()]


def _dtype(spec: OpSpec, module: ModuleSpec) -> str:
    owned = (*module.parameters, *module.buffers)
    kinds = {item.dtype for item in spec.tensors if item.name in owned}
    return "torch.cdouble" if "complex" in kinds else "torch.double"


def _input(spec: OpSpec, item: Input) -> str:
    """The value of an input out of those of the tests."""
    return f"inputs[{spec.index(item.name)}]"
