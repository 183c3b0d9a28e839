"""How the generated test calls the op, and what it expects.

In: an `OpSpec` and its `Derivation`. Out: the views of the sections on forward and backward.
Invariant: every expression stands as it is in the file, where `inputs` are those of `make`.
"""

from dataclasses import dataclass

from scaffold.derive import Derivation
from scaffold.render.signature import annotation, arguments, starred, wrapper_type
from scaffold.render.testcases import VARIADIC, differentiable_names
from scaffold.spec import Attribute, Input, OpSpec, TensorInput


@dataclass(frozen=True, slots=True)
class CallView:
    """A call of the op and the outputs of it that have a gradient."""

    wrapper: str  # the op, as the file imports it
    function: str  # the op, given a copy where it changes its input
    single: bool  # one output, rather than a tuple
    result: str  # the name of what a call returns
    end: str  # an output that has a gradient, ...
    ends: str  # ... all of them
    arguments: str
    copies: str  # the arguments, those that the op changes as copies
    in_place_lines: tuple[str, ...]
    refused: bool  # it changes a tensor in place that has a gradient
    without_grad: str  # arguments of `make` for tensors that require no grad


@dataclass(frozen=True, slots=True)
class ReferenceView:
    """The op in plain PyTorch, or for a surrogate what has its gradient."""

    name: str
    function: str
    title: str
    parameters: str
    type: str
    lines: tuple[str, ...]
    forward: bool  # it states the forward, not the gradient alone


@dataclass(frozen=True, slots=True)
class ContractView:
    """What backward is to return, and what it may keep."""

    function: str
    bare: bool  # it returns one gradient rather than a tuple
    partial: bool  # the inputs that are needed may be absent
    recorder: str
    result: str
    none: str  # for which values that need no gradient there is none; "" for all
    first: str  # an input that has a gradient
    to_real: str
    changed: str  # positions of the tensors that a caller may change


@dataclass(frozen=True, slots=True)
class TransformsView:
    """Gradients under torch.func."""

    argnums: str
    in_dims: str  # "" where every input is a tensor
    loss_lines: tuple[str, ...]
    op: str  # the outputs that have a gradient, as a function
    reference: str
    jacobian: bool  # jacrev takes real tensors alone
    needed: str  # the inputs that have a gradient
    elements: str  # the elements of those outputs


def call_view(spec: OpSpec, wrapper: str) -> CallView:
    """Calls of the op under the name that the file gives it."""
    single = is_single(spec)
    return CallView(
        wrapper=wrapper,
        function=f"on_copy({wrapper})" if spec.dirty else wrapper,
        single=single,
        result="output" if single else "outputs",
        end="output" if single else f"outputs[{_ends(spec)[0]}]" if _ends(spec) else "",
        ends="(output,)" if single else pick(spec, "outputs"),
        arguments=arguments(spec.inputs),
        copies=", ".join(_copy(spec, item) for item in spec.inputs),
        in_place_lines=tuple(
            f"assert inputs[{spec.index(name)}]._version > 0" for name in spec.dirty
        ),
        refused=any(item.name in spec.dirty for item in spec.differentiable),
        without_grad="needs=()" if differentiable_names(spec) else "",
    )


def is_single(spec: OpSpec) -> bool:
    """Whether the op returns a tensor rather than a tuple of them."""
    return len(spec.outputs) == 1 and not spec.outputs[0].variadic


def pick(spec: OpSpec, outputs: str) -> str:
    """The outputs that have a gradient, out of a tuple of all."""
    ends = _ends(spec)
    if len(ends) == len(spec.outputs):
        return outputs
    if ends == list(range(len(ends))):
        return f"{outputs}[:{len(ends)}]"
    return f"tuple({outputs}[index] for index in {tuple(ends)})"


def _ends(spec: OpSpec) -> list[int]:
    return [index for index, output in enumerate(spec.outputs) if output.differentiable]


def _copy(spec: OpSpec, item: Input) -> str:
    if item.name not in spec.dirty:
        return starred(item)
    if isinstance(item, TensorInput) and item.variadic:
        return f"*(tensor.clone() for tensor in {item.name})"
    return f"{item.name}.clone()"


def reference_view(spec: OpSpec, lines: tuple[str, ...]) -> ReferenceView:
    """The function that the op is compared with."""
    surrogate = spec.surrogate is not None
    name = "surrogate" if surrogate else "reference"
    return ReferenceView(
        name=name,
        function=f"on_copy({name})" if spec.dirty else name,
        title=(
            f"What {spec.name} has the gradient of."
            if surrogate
            else f"{spec.name} in plain PyTorch."
        ),
        parameters=", ".join(
            f"{starred(item)}: {_annotation(item)}" for item in spec.inputs
        ),
        type=wrapper_type(spec),
        lines=lines,
        forward=not surrogate,
    )


def _annotation(item: Input) -> str:
    opaque = isinstance(item, Attribute) and item.imported is not None
    return "Any" if opaque else annotation(item)


def contract_view(spec: OpSpec, derivation: Derivation) -> ContractView:
    """The contract of backward; a joint gradient may come unasked."""
    variadic = any(item.variadic for item in spec.tensors)
    extra = bool(derivation.intermediates) and spec.style == "setup-context"
    outputs = "[0]" if is_single(spec) else f"[:{len(spec.outputs)}]"
    first = spec.index(spec.differentiable[0].name)
    positions = [
        spec.index(item.name)
        for item in spec.differentiable
        if item.name in derivation.joint
    ]
    return ContractView(
        function=spec.function_name,
        bare=len(spec.inputs) == 1 and not variadic,
        partial=any(item.optional or item.variadic for item in spec.differentiable),
        recorder="on_copy(Recorder.apply)" if spec.dirty else "Recorder.apply",
        result=f"apply(*inputs){outputs if extra else ''}",
        none=f"position not in {tuple(positions)}" if positions else "",
        first=f"inputs[{first}]",
        to_real=".abs()" if spec.differentiable[0].dtype == "complex" else "",
        changed=_changed(spec),
    )


def _changed(spec: OpSpec) -> str:
    """`range(3), ids=[...]`: the tensors of a call that the op does not change itself."""
    names = [name for item in spec.inputs for name in _elements(spec, item)]
    kept = [index for index, name in enumerate(names) if name]
    if not kept:
        return ""
    whole = kept == list(range(len(kept)))
    ids = ", ".join(f'"{names[index]}"' for index in kept)
    return f"{f'range({len(kept)})' if whole else kept}, ids=[{ids}]"


def _elements(spec: OpSpec, item: Input) -> list[str]:
    """The names of an input's values in a call, empty for one that is not to be changed."""
    if isinstance(item, TensorInput) and item.variadic:
        count = VARIADIC if spec.samples is None else 1
        return [f"{item.name}[{index}]" for index in range(count)]
    return [
        (
            item.name
            if isinstance(item, TensorInput) and item.name not in spec.dirty
            else ""
        )
    ]


def transforms_view(
    spec: OpSpec, call: CallView, names: tuple[str, ...]
) -> TransformsView:
    """Gradients of the differentiable inputs, whose positions in a call are `argnums`."""
    elements = [name for item in spec.inputs for name in _elements(spec, item)]
    argnums = tuple(elements.index(name) for name in names)
    tensors = all(isinstance(item, TensorInput) for item in spec.inputs)
    whole = argnums == tuple(range(len(elements)))
    picked = ", ".join(f"inputs[{index}]" for index in argnums)
    return TransformsView(
        argnums=str(argnums),
        in_dims=(
            ""
            if tensors
            else f"({', '.join('0' if name else 'None' for name in elements)},)"
        ),
        loss_lines=tuple(_loss_lines(spec, call.wrapper)),
        op=_picking(spec, call.wrapper),
        reference=_picking(spec, "surrogate" if spec.surrogate else "reference"),
        jacobian=not is_complex(spec),
        needed="inputs" if whole else f"({picked},)",
        elements=_flat(spec, call.wrapper),
    )


def is_complex(spec: OpSpec) -> bool:
    """Whether a tensor of the op is complex."""
    kinds = {item.dtype for item in spec.tensors} | {
        item.dtype for item in spec.outputs
    }
    return "complex" in kinds


def _loss_lines(spec: OpSpec, op: str) -> list[str]:
    real = ".abs()" if is_complex(spec) else ""
    if is_single(spec):
        return [f"return {op}(*inputs){real}.square().sum()"]
    if len(_ends(spec)) == 1 and not spec.outputs[_ends(spec)[0]].variadic:
        return [f"return {op}(*inputs)[{_ends(spec)[0]}]{real}.square().sum()"]
    ends = pick(spec, "outputs")
    return [
        f"outputs = {op}(*inputs)",
        f"return torch.stack([output{real}.square().sum() for output in {ends}]).sum()",
    ]


def _picking(spec: OpSpec, function: str) -> str:
    """A function of the inputs to the outputs that have a gradient."""
    if is_single(spec) or len(_ends(spec)) == len(spec.outputs):
        return function
    return f"lambda *inputs: {pick(spec, f'{function}(*inputs)')}"


def _flat(spec: OpSpec, op: str) -> str:
    if is_single(spec):
        return f"{op}(*inputs).flatten()"
    return f"torch.cat([output.flatten() for output in {pick(spec, f'{op}(*inputs)')}])"
