"""How the generated test calls the op, and the function that it compares the op with.

In: an `OpSpec`. Out: a `CallView` and a `ReferenceView`.
Invariant: every expression stands as it is in the file, where `inputs` are those of `make`.
"""

from typing import NamedTuple

from scaffold.derive import perhaps_detached
from scaffold.render.signature import (
    annotation,
    arguments,
    call_arguments,
    starred,
    wrapper_type,
)
from scaffold.render.testcases import differentiable_names
from scaffold.spec import Attribute, Input, OpSpec, TensorInput


class CallView(NamedTuple):
    """A call of the op and the outputs of it that have a gradient."""

    wrapper: str  # the op, called with every value in its place
    positional: "PositionalView | None"  # where the op takes some by keyword only
    random: bool  # each call is to draw the same numbers
    function: str  # the op, given a copy where it changes its input
    checked: str  # the same with the outputs alone that have a gradient
    compiled: str  # the same, compiled
    module: str  # a call of `module`
    single: bool  # one output, rather than a tuple
    countless: bool  # any number of outputs, which may be none
    result: str  # the name of what a call returns
    spread: str  # ... all of it, in a tuple
    end: str  # an output that has a gradient, ...
    ends: str  # ... all of them, out of `outputs`; "" where all outputs have one
    arguments: str
    copies: str  # the arguments, those that the op changes as copies
    in_place_lines: tuple[str, ...]
    refused: bool  # it changes a tensor in place that has a gradient
    without_grad: str  # arguments of `make` for tensors that require no grad


class PositionalView(NamedTuple):
    """A function of all inputs in the order of the Function's."""

    parameters: str
    type: str
    call: str


class ReferenceView(NamedTuple):
    """The op in plain PyTorch, or for a surrogate what has its gradient."""

    name: str
    function: str
    title: str
    parameters: str
    type: str
    lines: tuple[str, ...]
    forward: bool  # it states the forward, not the gradient alone
    detached: bool  # an output of it may require no grad


def call_view(spec: OpSpec, wrapper: str, random: bool) -> CallView:
    """Calls of the op under the name that the file gives it."""
    single = is_single(spec)
    positional = _positional_view(spec, wrapper)
    wrapper = "positional" if positional else wrapper
    function = f"on_copy({wrapper})" if spec.dirty else wrapper
    compiled = f'torch.compile({function}, fullgraph=True, backend="aot_eager")'
    return CallView(
        wrapper=seeded(wrapper, random),
        positional=positional,
        random=random,
        function=seeded(function, random),
        checked=picking(spec, seeded(function, random)),
        compiled=seeded(compiled, random),
        module=seeded("module", random),
        single=single,
        countless=len(spec.outputs) == 1 and spec.outputs[0].variadic,
        result="output" if single else "outputs",
        spread="output" if single else "*outputs",
        end=(
            "output"
            if single
            else f"outputs[{ends_of(spec)[0]}]" if ends_of(spec) else ""
        ),
        ends=pick(spec, "outputs").removeprefix("outputs") and pick(spec, "outputs"),
        arguments=arguments(spec.inputs),
        copies=", ".join(_copy(spec, item) for item in spec.inputs),
        in_place_lines=tuple(
            f"assert inputs[{spec.index(name)}]._version > 0" for name in spec.dirty
        ),
        refused=any(item.name in spec.dirty for item in spec.differentiable),
        without_grad="needs=()" if differentiable_names(spec) else "",
    )


def seeded(function: str, random: bool) -> str:
    """The function, made to draw the same numbers in every call."""
    return f"seeded({function})" if random else function


def _positional_view(spec: OpSpec, op: str) -> PositionalView | None:
    if not any(item.keyword_only for item in spec.inputs):
        return None
    values = call_arguments((item, starred(item)) for item in spec.inputs)
    return PositionalView(_parameters(spec), wrapper_type(spec), f"{op}({values})")


def is_single(spec: OpSpec) -> bool:
    """Whether the op returns a tensor rather than a tuple of them."""
    return len(spec.outputs) == 1 and not spec.outputs[0].variadic


def pick(spec: OpSpec, outputs: str) -> str:
    """The outputs that have a gradient, out of a tuple of all."""
    ends = ends_of(spec)
    if len(ends) == len(spec.outputs):
        return outputs
    if ends == list(range(len(ends))):
        return f"{outputs}[:{len(ends)}]"
    return f"tuple({outputs}[index] for index in {tuple(ends)})"


def picking(spec: OpSpec, function: str) -> str:
    """A function of the inputs to the outputs that have a gradient."""
    if is_single(spec) or len(ends_of(spec)) == len(spec.outputs):
        return function
    return f"lambda *inputs: {pick(spec, f'{function}(*inputs)')}"


def ends_of(spec: OpSpec) -> list[int]:
    """The positions of the outputs that have a gradient."""
    return [index for index, output in enumerate(spec.outputs) if output.differentiable]


def _copy(spec: OpSpec, item: Input) -> str:
    if item.name not in spec.dirty:
        return starred(item)
    if isinstance(item, TensorInput) and item.variadic:
        return f"*(tensor.clone() for tensor in {item.name})"
    return f"{item.name}.clone()"


def reference_view(spec: OpSpec, lines: tuple[str, ...], random: bool) -> ReferenceView:
    """The function that the op is compared with."""
    surrogate = spec.surrogate is not None
    name = "surrogate" if surrogate else "reference"
    return ReferenceView(
        name=name,
        function=seeded(f"on_copy({name})" if spec.dirty else name, random),
        title=(
            f"What {spec.name} has the gradient of."
            if surrogate
            else f"{spec.name} in plain PyTorch."
        ),
        parameters=_parameters(spec),
        type=wrapper_type(spec),
        lines=lines,
        forward=not surrogate,
        detached=not surrogate and perhaps_detached(spec),
    )


def _parameters(spec: OpSpec) -> str:
    return ", ".join(f"{starred(item)}: {_annotation(item)}" for item in spec.inputs)


def _annotation(item: Input) -> str:
    opaque = isinstance(item, Attribute) and item.imported is not None
    return "Any" if opaque else annotation(item)
