"""The lines of an op about autocast: the region that the backward runs in, and the cast of `--amp float32`.

In: an `OpSpec` and its `Derivation`. Out: source lines, not yet indented. Invariant: an op that autocast leaves alone has none.
"""

from scaffold.derive import Derivation
from scaffold.derive.derivation import BY_AUTOGRAD
from scaffold.formula import written
from scaffold.formula.names import fresh
from scaffold.spec import OpSpec


def in_float32(spec: OpSpec, derivation: Derivation, run: list[str]) -> list[str]:
    """Return the body of the wrapper: `run`, where autocast is on in float32 and without it."""
    cast = [item for item in spec.tensors if item.dtype == "float"]
    if derivation.amp != "float32" or not cast:
        return run
    taken = {item.name for item in spec.inputs}
    device, low = fresh("device", taken), fresh("low", taken)
    lines = []
    for item in cast:
        name = item.name
        if item.variadic:
            x = fresh("x", taken)
            each = f"{x}.float() if {x}.dtype in {low} else {x} for {x} in {name}"
            lines.append(f"{name} = tuple({each})")
        elif item.optional:
            test = f"{name} is not None and {name}.dtype in {low}"
            lines += [f"if {test}:", f"    {name} = {name}.float()"]
        else:
            lines.append(
                f"{name} = {name}.float() if {name}.dtype in {low} else {name}"
            )
    return [
        f"{device} = {_device(spec)}",
        # Of meta tensors it may not be asked; `torch.amp.is_autocast_available` breaks the graph of PyTorch 2.9's compiler.
        f'if {device} != "meta" and torch.is_autocast_enabled({device}):',
        f"    {low} = (torch.float16, torch.bfloat16)",
        *(f"    {line}" for line in lines),
        f"    with torch.autocast({device}, enabled=False):",
        *(f"        {line}" for line in run),
        *run,
    ]


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


# --- A region: the backward under the autocast of the forward.


def kept_autocast(spec: OpSpec, derivation: Derivation) -> list[str]:
    """What ctx keeps: the autocast of the forward, with its dtype, without which a compiler takes the default one."""
    if not _is_region(spec, derivation):
        return []
    device = fresh("device", _names(spec, derivation))
    dtype = f"torch.get_autocast_dtype({device})"
    enabled = f"torch.is_autocast_enabled({device})"
    return [
        "# Backward runs outside of autocast: it enters the forward's again.",
        *_region_device(spec, device),
        f"ctx.autocast = torch.autocast({device}, {dtype}, {enabled})",
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
    """The body of the backward in it; not the pullback of the forward as a whole, as PyTorch's own backward runs in the dtypes that come."""
    if not _is_region(spec, derivation):
        return body
    comment = f"# {BY_AUTOGRAD}"
    end = body.index(comment) + 2 if comment in body else len(body)
    return ["with ctx.autocast:", *(f"    {line}" for line in body[:end]), *body[end:]]


def _is_region(spec: OpSpec, derivation: Derivation) -> bool:
    return derivation.region and bool(spec.differentiable)
