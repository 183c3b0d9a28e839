"""The lines of an op about autocast: the cast in the wrapper, and the region that the backward runs in.

In: an `OpSpec` and its `Derivation`. Out: source lines, not yet indented. Invariant: an op that autocast leaves alone has none. What is no
tensor of floating point is not cast, nor is float64: as by PyTorch.
"""

from scaffold.derive import Derivation
from scaffold.formula import written
from scaffold.formula.names import fresh
from scaffold.spec import OpSpec, TensorInput

FEW = 3  # tensors that are cast line by line


def cast_lines(spec: OpSpec, derivation: Derivation, run: list[str]) -> list[str]:
    """The body of the wrapper: `run` on inputs that are cast where autocast is on."""
    cast = [item for item in spec.tensors if item.dtype == "float"]
    if not (derivation.autocast.casts and cast):
        return run
    taken = {item.name for item in spec.inputs}
    device, dtype, one = (fresh(name, taken) for name in ("device", "dtype", "each"))
    lines = [f"{device} = {_device(spec)}", _if_on(device)]
    method = "float()"
    if derivation.autocast.amp == "lower":
        lines.append(f"    {dtype} = torch.get_autocast_dtype({device})")
        method = f"to({dtype})"
    lines += [f"    {line}" for line in _casts(cast, method, one)]
    if derivation.autocast.off:
        lines.append(f"    with torch.autocast({device}, enabled=False):")
        lines += [f"        {line}" for line in run]
    return [*lines, *run]


def _if_on(device: str) -> str:
    """The test: of meta tensors it may not be asked; `torch.amp.is_autocast_available` breaks the graph of PyTorch 2.9's compiler."""
    return f'if {device} != "meta" and torch.is_autocast_enabled({device}):'


def _device(spec: OpSpec) -> str:
    """The type of the device of the tensors: that of the first one that is there."""
    sure = _sure(spec)
    if sure:
        return f"{sure}.device.type"
    item = spec.tensors[0]
    if item.variadic:
        return f'{item.name}[0].device.type if {item.name} else "cpu"'
    return f'{item.name}.device.type if {item.name} is not None else "cpu"'


def _sure(spec: OpSpec) -> str:
    """The first tensor that is there in every call."""
    plain = (item for item in spec.tensors if not (item.optional or item.variadic))
    return next((item.name for item in plain), "")


def _casts(cast: list[TensorInput], method: str, one: str) -> list[str]:
    """Assignments of the tensors, cast by a method of theirs."""
    plain = [item.name for item in cast if not (item.optional or item.variadic)]
    lines = []
    if len(plain) > FEW:
        listed = ", ".join(plain)
        lines.append(f"{listed} = ({_cast(one, method)} for {one} in ({listed}))")
        plain = []
    for item in cast:
        name = item.name
        if item.variadic:
            lines.append(f"{name} = tuple({_cast(one, method)} for {one} in {name})")
        elif item.optional:
            kept = f"{name} is None or {name}.dtype == torch.double"
            lines.append(f"{name} = {name} if {kept} else {name}.{method}")
        elif name in plain:
            lines.append(f"{name} = {_cast(name, method)}")
    return lines


def _cast(name: str, method: str) -> str:
    return f"{name} if {name}.dtype == torch.double else {name}.{method}"


# --- A region: the backward under the autocast of the forward.


def kept_autocast(spec: OpSpec, derivation: Derivation) -> list[str]:
    """What ctx keeps of the autocast of the forward: whether it is on, and by that its dtype."""
    if not _is_region(spec, derivation):
        return []
    device = fresh("device", _names(spec, derivation))
    enabled = f"enabled=torch.is_autocast_enabled({device})"
    return [
        *_region_device(spec, device),
        f"ctx.autocast = torch.autocast({device}, {enabled})",
    ]


def _region_device(spec: OpSpec, device: str) -> list[str]:
    """The device whose autocast it is: meta tensors, which have none, are as well off with the CPU's."""
    found, tensor = _device(spec), _sure(spec)
    if tensor:
        return [f'{device} = "cpu" if {tensor}.is_meta else {found}']
    back = f'{device} = "cpu" if {device} == "meta" else {device}'
    return [f"{device} = {found}", back]


def _names(spec: OpSpec, derivation: Derivation) -> set[str]:
    """The names that are taken where ctx is filled."""
    names = {item.name for item in (*spec.inputs, *spec.outputs)}
    return names.union(*map(written, derivation.forward or ()))


def under_autocast(spec: OpSpec, derivation: Derivation, body: list[str]) -> list[str]:
    """The body of the backward in it."""
    if not _is_region(spec, derivation):
        return body
    return ["with ctx.autocast:", *(f"    {line}" for line in body)]


def _is_region(spec: OpSpec, derivation: Derivation) -> bool:
    return derivation.autocast.is_region and bool(spec.differentiable)
