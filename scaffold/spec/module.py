"""The module of an op: which inputs it owns, how they start and change.

In: `module`, `params`, `buffers`, `update` and `init` of a raw mapping. Out: a `ModuleSpec`, or None.
Invariant: what a list or table names is an input that the module can own, under a name that nn.Module leaves free.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from scaffold.errors import did_you_mean
from scaffold.formula import Formula, Scope, Text, parse
from scaffold.spec.arguments import Arguments, tensor_names
from scaffold.spec.config import Configuration
from scaffold.spec.conventions import Shapes
from scaffold.spec.imports import meanings
from scaffold.spec.maths import Maths
from scaffold.spec.model import Attribute, Init, ModuleSpec
from scaffold.spec.problems import Problems

Raw = Mapping[str, Any]
Names = tuple[str, ...]

# What nn.Module has already, and what generated modules define or take.
TAKEN = frozenset(
    {
        "T_destination",
        "add_module",
        "apply",
        "bfloat16",
        "buffers",
        "call_super_init",
        "children",
        "compile",
        "cpu",
        "cuda",
        "double",
        "dump_patches",
        "eval",
        "extra_repr",
        "float",
        "forward",
        "get_buffer",
        "get_extra_state",
        "get_parameter",
        "get_submodule",
        "half",
        "ipu",
        "load_state_dict",
        "modules",
        "mtia",
        "named_buffers",
        "named_children",
        "named_modules",
        "named_parameters",
        "parameters",
        "register_backward_hook",
        "register_buffer",
        "register_forward_hook",
        "register_forward_pre_hook",
        "register_full_backward_hook",
        "register_full_backward_pre_hook",
        "register_load_state_dict_post_hook",
        "register_load_state_dict_pre_hook",
        "register_module",
        "register_parameter",
        "register_state_dict_post_hook",
        "register_state_dict_pre_hook",
        "requires_grad_",
        "reset_parameters",
        "set_extra_state",
        "set_submodule",
        "share_memory",
        "state_dict",
        "to",
        "to_empty",
        "train",
        "training",
        "type",
        "xpu",
        "zero_grad",
        "_buffers",
        "_modules",
        "_parameters",
    }
)
FACTORY = frozenset(
    {"device", "dtype"}
)  # arguments of a constructor that makes tensors


def read_module(
    raw: Raw,
    arguments: Arguments,
    maths: Maths,
    shapes: Shapes,
    configuration: Configuration,
    problems: Problems,
) -> ModuleSpec | None:
    """The module's side of the op; None where the user wants none."""
    if raw.get("module") is False:
        for key in ("params", "buffers", "update", "init"):
            if raw.get(key):
                problems.at((key,), f"'{key}' is for a module, and module is off")
        return None
    buffers = tensor_names("buffers", arguments.inputs, raw, problems)
    parameters = _parameters(raw, arguments, buffers, configuration, problems)
    _check_owned(arguments, parameters, buffers, raw, problems)
    _check_names(arguments, parameters, buffers, shapes, raw, problems)
    return ModuleSpec(
        parameters,
        buffers,
        _updates(raw, arguments, maths, buffers, problems),
        _inits(raw, arguments, (*parameters, *buffers), shapes, problems),
    )


def _parameters(
    raw: Raw,
    arguments: Arguments,
    buffers: Names,
    configuration: Configuration,
    problems: Problems,
) -> Names:
    if "params" in raw:
        return tensor_names("params", arguments.inputs, raw, problems)
    usual = set(configuration.parameter_names) - set(buffers) - set(arguments.dirty)
    kept = [
        item.name
        for item in arguments.tensors
        if item.name in usual and item.differentiable and not item.variadic
    ]
    owned = {*kept, *buffers}
    return tuple(kept) if len(owned) < len(arguments.tensors) else ()


def _check_owned(
    arguments: Arguments,
    parameters: Names,
    buffers: Names,
    raw: Raw,
    problems: Problems,
) -> None:
    known = {item.name: item for item in arguments.tensors}
    for position, name in enumerate(raw.get("params", ())):
        path = ("params", str(position))
        if name in buffers:
            problems.at(path, f"'{name}' is a parameter and a buffer")
        if name in arguments.dirty:
            message = f"'{name}' is changed in place, which a parameter cannot be"
            problems.at(path, message)
        if name in parameters and not known[name].differentiable:
            message = f"'{name}' gets no gradient, so it is no parameter"
            problems.at(path, message, f"make it a buffer: buffers = ['{name}']")
    for position, name in enumerate(raw.get("buffers", ())):
        if name in buffers and known[name].optional:
            path = ("buffers", str(position))
            problems.at(path, f"'{name}' may be None, which a buffer cannot be")
    if len({*parameters, *buffers}) == len(known):
        key = "params" if raw.get("params") else "buffers"
        problems.at((key,), "the module would own every tensor and take none")


def _check_names(
    arguments: Arguments,
    parameters: Names,
    buffers: Names,
    shapes: Shapes,
    raw: Raw,
    problems: Problems,
) -> None:
    """The module keeps attributes, parameters, buffers and sizes under their names."""
    owned = {*parameters, *buffers}
    declared = {item.name: item.dims for item in arguments.tensors} | dict(shapes)
    attributes = {
        item.name: item for item in arguments.inputs if isinstance(item, Attribute)
    }
    sizes = {str(dim) for name in owned for dim in declared[name] or ()}
    taken = TAKEN | FACTORY if owned else TAKEN
    for name in sorted({*owned, *attributes, *sizes} & taken):
        if name == "training" and name in attributes:
            continue  # the module's own switch serves it
        message = f"the module cannot keep '{name}': nn.Module has that name"
        if name in FACTORY:
            message = f"the module cannot keep '{name}': its constructor takes it"
        key = "inputs" if "inputs" in raw else "schema"
        problems.at((key,), message, f"rename '{name}', or write no module")


def _updates(
    raw: Raw, arguments: Arguments, maths: Maths, buffers: Names, problems: Problems
) -> tuple[tuple[str, Formula], ...]:
    names = frozenset(item.name for item in arguments.inputs)
    names |= {item.binding for item in maths.imports}
    tensors = frozenset(item.name for item in arguments.tensors)
    optional = frozenset(item.name for item in arguments.tensors if item.optional)
    found = []
    for name, value in raw.get("update", {}).items():
        path = ("update", name)
        if name not in buffers:
            hint = did_you_mean(name, buffers)
            hint = hint or f"name it in buffers: buffers = ['{name}']"
            problems.at_key(path, f"'{name}' is no buffer", hint)
            continue
        text = Text(value, problems.within(path))
        known = meanings(maths.imports, arguments.inputs)
        scope = Scope(names, optional, None, tensors, meanings=known)
        formula = problems.attempt(partial(parse, text, scope, maths.graph))
        found += [(name, formula)] if formula is not None else []
    return tuple(found)


def _inits(
    raw: Raw, arguments: Arguments, owned: Names, shapes: Shapes, problems: Problems
) -> tuple[Init, ...]:
    if not raw.get("init"):
        return ()
    from scaffold.spec.initializers import parse_init  # few ops state any

    dims = {item.name: item.dims for item in arguments.tensors} | dict(shapes)
    found = []
    for name, text in raw.get("init", {}).items():
        path = ("init", name)
        if name not in owned:
            hint = did_you_mean(name, owned)
            hint = hint or f"name it in params: params = ['{name}']"
            problems.at_key(path, f"'{name}' is no parameter of the module", hint)
            continue
        place = problems.within(path)
        item = problems.attempt(partial(parse_init, name, text, place, dims[name]))
        found += [item] if item else []
    return tuple(found)
