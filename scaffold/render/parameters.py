"""Parameters and buffers of a module: their sizes, creation and initialisation.

`module.py` writes the class of an op with parameters, as `nn.Linear` is one. In: an `OpSpec` and its module (`ModuleSpec`: the names of
its parameters and buffers, stated initialisations). Out: lines of the constructor and of `reset_parameters`.
Words: the *sizes* of a module are the named dims of its parameters, `in_features`; *fan-in* is the number of inputs that one output is
computed from; a *factory* is the `device=device, dtype=dtype` of a new tensor; *leading* dims are any number, `...`.
Invariant: a named dimension is one integer argument; a parameter of unknown shape has its shape as an argument.
"""

from collections.abc import Sequence

from scaffold.spec import (
    Attribute,
    Dim,
    Init,
    ModuleSpec,
    OpSpec,
    is_size_name,
    leading,
)

Dims = tuple[Dim, ...] | None  # None: given to the constructor as a whole
FACTORY = "device=device, dtype=dtype"
BIASES = ("bias", "beta")
SPREAD = {"var", "variance", "std"}  # a divisor starts at one
KAIMING = Init("", "kaiming_uniform", "a=5**0.5")  # as nn.Linear and nn.Conv2d start


def dims_of(spec: OpSpec, name: str) -> Dims:
    """Return the shape of a parameter in names and numbers; None if it is undeclared or has leading dims."""
    dims = spec.dims(name)
    return None if dims is None or leading(dims) else dims


def size_arguments(spec: OpSpec, module: ModuleSpec) -> list[tuple[str, str]]:
    """Return the sizes the constructor takes, each with its type: ("in_features", "int"), or ("weight_shape", "Sequence[int]").

    They stand in the order of the constructor of the nn.Module that the op was read from (`made_by`), others in order of first appearance.
    """
    owned = (*module.parameters, *module.buffers)
    used = {
        dim
        for name in owned
        for dim in dims_of(spec, name) or ()
        if isinstance(dim, str)
    }
    found: dict[str, str] = {name: "int" for name in module.made_by if name in used}
    for item in spec.tensors:
        for dim in spec.dims(item.name) or ():
            if dim in used:
                found[str(dim)] = "int"
    for name in owned:
        if dims_of(spec, name) is None:
            found[f"{name}_shape"] = "Sequence[int]"
    return list(found.items())


def kept_attributes(spec: OpSpec, module: ModuleSpec) -> tuple[Attribute, ...]:
    """Return the attributes the constructor takes, without `training`, as every module has it."""
    items = (*spec.attributes, *module.attributes)
    return tuple(item for item in items if item.name != "training")


def _empty(name: str, dims: Dims, maker: str, factory: str = FACTORY) -> str:
    """Return a call of `maker` for the tensor `name`: `torch.empty(N, D, device=device, dtype=dtype)`, `torch.zeros(...)`."""
    if dims is None:
        size = f"{name}_shape"
    else:
        size = ", ".join(str(dim) for dim in dims) or "()"
    return f"torch.{maker}({size}, {factory})"


def parameter_lines(name: str, dims: Dims, optional: bool) -> list[str]:
    """Return lines creating a parameter; an optional one under its switch."""
    made = f"self.{name} = nn.Parameter({_empty(name, dims, 'empty')})"
    if not optional:
        return [made]
    return [
        f"if {name}:",
        f"    {made}",
        "else:",
        f'    self.register_parameter("{name}", None)',
    ]


def buffer_lines(spec: OpSpec, name: str, dims: Dims) -> list[str]:
    """Return lines creating a buffer, filled with zeros, or with ones if its name says it divides; a floating one has the module's dtype."""
    kinds = {item.name: item.dtype for item in spec.tensors}
    fixed = {"int": "torch.long", "index": "torch.long", "bool": "torch.bool"}
    factory = f"device=device, dtype={fixed.get(kinds[name], 'dtype')}"
    filled = "ones" if name.split("_")[-1] in SPREAD else "zeros"
    return [f'self.register_buffer("{name}", {_empty(name, dims, filled, factory)})']


def reset_lines(spec: OpSpec, module: ModuleSpec) -> list[str]:
    """Return the body of `reset_parameters`: each parameter's stated or usual initialisation, and stated ones of buffers.

    An optional parameter may be None on the module, so its lines stand under a test.
    """
    stated = {item.parameter: item for item in module.inits}
    optional = {item.name for item in spec.tensors if item.optional}
    lines = []
    for name in module.parameters:
        start = _start(
            spec, module, name, stated.get(name) or _usual(spec, module, name)
        )
        if name in optional:
            lines += [
                f"if self.{name} is not None:",
                *(f"    {line}" for line in start),
            ]
        else:
            lines += start
    buffers = [stated[name] for name in module.buffers if name in stated]
    return lines + [
        line for item in buffers for line in _start(spec, module, item.parameter, item)
    ]


SIZE = ".shape[1:].numel()"  # inputs per output, of a weight of undeclared dims


def _usual(spec: OpSpec, module: ModuleSpec, name: str) -> Init:
    """Choose the initialisation of the parameter `name` if the user states none, by its name and number of dims.

    As in nn.Linear, that of a matrix is kaiming_uniform, and a bias beside a matrix is uniform by its fan-in. Other biases are zeros, other
    vectors, scales, ones; of unknown dims, normal.
    """
    dims = dims_of(spec, name)
    word = name.rpartition("_")[2]  # of up_bias
    # `beta` is added in a norm, and starts at 0 there, but it is a factor in `x * torch.sigmoid(beta * x)`.
    if word == "bias" or word in BIASES and not _is_a_factor(spec, name):
        weight = _own_weight(module, name) or _matrix(spec, module)
        matrix = weight is not None and len(dims_of(spec, weight) or ()) > 1
        return Init(name, "fan_in_uniform" if matrix and word == "bias" else "zeros")
    if dims is None:
        return Init(name, "normal")
    return KAIMING if len(dims) > 1 else Init(name, "ones")


def _own_weight(module: ModuleSpec, name: str) -> str | None:
    """Return the weight of a bias by its name: `up_weight` for `up_bias`; else None."""
    beside = f"{name.removesuffix('bias')}weight"
    # A `bias` without such a word goes with the first matrix: `_matrix`.
    return beside if name != "bias" and beside in module.parameters else None


def _is_a_factor(spec: OpSpec, name: str) -> bool:
    """Return whether the forward uses a parameter only in products and quotients: `beta` in `x * torch.sigmoid(beta * x)`, not in a norm."""
    if spec.forward is None:
        return False
    nodes = spec.forward.nodes()
    uses = [node for node in nodes if any(arg.label == name for arg in node.args)]
    return bool(uses) and all(node.label in ("*", "/") for node in uses)


def _matrix(spec: OpSpec, module: ModuleSpec) -> str | None:
    """Return the parameter with the fan-in for the bias: the first of two or more dimensions; else None."""
    for name in module.parameters:
        if len(dims_of(spec, name) or ()) > 1:
            return name
    return None


def _start(spec: OpSpec, module: ModuleSpec, name: str, init: Init) -> list[str]:
    """Return the lines initialising the parameter `name` as `init` says; `fan_in_uniform` is our own, the others are functions of `nn.init`.

    It is that of a bias in nn.Linear: uniform between -1 and 1 over the root of the fan-in.
    """
    if init.function == "fan_in_uniform":
        fan_in, lines = _fan_in(spec, module, name), []
        # The line below has it twice: a long one gets a name.
        if fan_in.endswith(SIZE):
            fan_in, lines = "fan_in", [f"fan_in = {fan_in}"]
        bound = f"bound = 1 / math.sqrt({fan_in}) if {fan_in} > 0 else 0.0"
        return [*lines, bound, f"nn.init.uniform_(self.{name}, -bound, bound)"]
    arguments = f", {init.arguments}" if init.arguments else ""
    return [f"nn.init.{init.function}_(self.{name}{arguments})"]


def _fan_in(spec: OpSpec, module: ModuleSpec, name: str) -> str:
    """Return an expression for the fan-in of a bias, counted as in torch.nn.init: the dims its weight shares with the data.

    `self.in_features` for `weight[out_features, in_features]` and `x[..., in_features]`; if there are no such dims, all but the first.
    """
    of_its_own = _own_weight(module, name)
    matrix = of_its_own or _matrix(spec, module) or name
    dims: Sequence[Dim] = dims_of(spec, matrix) or ()
    owned = {*module.parameters, *module.buffers}
    data = {
        dim
        for item in spec.tensors
        if item.name not in owned
        for dim in spec.dims(item.name) or ()
    }
    shared = [dim for dim in dims if dim in data and is_size_name(dim)]
    # As torch.nn.init counts: the first dim of a weight is that of the output.
    counted: Sequence[Dim] = dims[1:] if of_its_own else shared or dims[1:]
    if of_its_own and not dims:  # its size is known only at run time
        return f"self.{matrix}{SIZE}"
    if not counted:  # a vector the data do not share, or unknown dims
        return f"self.{matrix}.numel()"
    return " * ".join(
        f"self.{dim}" if isinstance(dim, str) else str(dim) for dim in counted
    )
