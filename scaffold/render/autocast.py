"""Autocast in an op: lines for the backward's autocast region, and the casts of `--amp float32`.

In: an `OpSpec` and its `Derivation` (`amp`: how the op behaves there). Out: source lines, not yet indented.
Words: a *region* is a `with torch.autocast(...)` in which the backward runs, to compute in the dtypes of the forward; *variadic*: any number
of tensors, `*tensors`.
Invariant: an op unaffected by autocast has none of these lines.
"""

from scaffold.derive import Derivation
from scaffold.derive.derivation import BY_AUTOGRAD
from scaffold.formula import written
from scaffold.formula.names import fresh
from scaffold.spec import OpSpec


def in_float32(spec: OpSpec, derivation: Derivation, run: list[str]) -> list[str]:
    """Return the wrapper's body: the lines `run`, the call; before them, for `--amp float32`, the same call for active autocast.

    There floating-point inputs of low precision are cast to float32, and autocast is off. Lines: `if torch.is_autocast_enabled(device): ...`.
    """
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
    reason = "The op"
    if spec.is_library:
        reason = "A compiler runs it outside of autocast, so the op"
    return [
        f"{device} = {_device(spec)}",
        # Of meta tensors it may not be asked; `torch.amp.is_autocast_available` breaks the graph of PyTorch 2.9's compiler.
        f'if {device} != "meta" and torch.is_autocast_enabled({device}):',
        f"    # {reason} computes in float32.",
        f"    {low} = (torch.float16, torch.bfloat16)",
        *(f"    {line}" for line in lines),
        f"    with torch.autocast({device}, enabled=False):",
        *(f"        {line}" for line in run),
        *run,
    ]


def _device(spec: OpSpec) -> str:
    """Return an expression for the tensors' device type: the device of the first one present, "cpu" if none is."""
    sure = _sure(spec)
    if sure:
        return f"{sure}.device.type"
    item = spec.tensors[0]
    if item.variadic:
        return f'{item.name}[0].device.type if {item.name} else "cpu"'
    return f'{item.name}.device.type if {item.name} is not None else "cpu"'


def _sure(spec: OpSpec) -> str:
    """Return the name of the first tensor present in every call, which is no variadic or optional one; "" if there is none."""
    plain = (item for item in spec.tensors if not (item.optional or item.variadic))
    return next((item.name for item in plain), "")


# --- A region: the backward under the autocast of the forward.


def kept_autocast(spec: OpSpec, derivation: Derivation) -> list[str]:
    """Return lines saving the forward's autocast state on ctx; its dtype is explicit, as a compiler would use the default."""
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
    """Return lines setting the device type of the region; meta tensors have no autocast, so the CPU's will do."""
    found, tensor = _device(spec), _sure(spec)
    if tensor:
        return [f'{device} = "cpu" if {tensor}.is_meta else {found}']
    back = f'{device} = "cpu" if {device} == "meta" else {device}'
    return [f"{device} = {found}", back]


def _names(spec: OpSpec, derivation: Derivation) -> set[str]:
    """Return the names in use inside `setup_context`."""
    names = {item.name for item in (*spec.inputs, *spec.outputs)}
    return names.union(*map(written, derivation.forward or ()))


def under_autocast(spec: OpSpec, derivation: Derivation, body: list[str]) -> list[str]:
    """Put the backward's body under `with ctx.autocast:`; if autograd differentiates the whole forward, only up to its pullback.

    Such a body makes it in one statement, `_, pull = torch.func.vjp(...)`, below the comment BY_AUTOGRAD. The pullback is called outside,
    as PyTorch's own backward runs in the dtypes of the incoming gradients.
    """
    if not _is_region(spec, derivation):
        return body
    comment = f"# {BY_AUTOGRAD}"
    # That statement stands in the line after its comment.
    end = body.index(comment) + 2 if comment in body else len(body)
    return ["with ctx.autocast:", *(f"    {line}" for line in body[:end]), *body[end:]]


def _is_region(spec: OpSpec, derivation: Derivation) -> bool:
    """Return whether the backward runs under the autocast of the forward, and there is a backward."""
    return derivation.region and bool(spec.differentiable)
