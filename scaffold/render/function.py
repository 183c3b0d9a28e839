"""The `autograd.Function` of an op, as lines for its template.

In: an `OpSpec` (what the user asked for) and its `Derivation` (statements and results of the forward, the gradients, what is saved). Out: a
`FunctionView`, from which `templates/op.py.jinja` writes the class. Invariant: every string is ready to stand in the file.

Words: forward fills ctx in `setup_context`, or by itself in combined style. An intermediate is a local of forward saved for backward;
in `setup_context` style forward returns it after the op's outputs (`derivation.extra`). *Saved* are tensors of `save_for_backward`, *kept*
are other values on ctx, `ctx.dim = dim`. A variadic input is any number of tensors, `*tensors`, always the last. *Library* style: an op
registered with `torch.library`, no Function.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from scaffold.derive import Derivation, Saved, are_several, facet_of, variadic_names
from scaffold.derive.library import forward_leaves
from scaffold.formula import Lines, emit, emit_lines, written
from scaffold.render.autocast import kept_autocast, under_autocast
from scaffold.render.backward import (
    any_needed,
    backward_lines,
    backward_parameters,
    gradients_may_be_none,
)
from scaffold.render.fused import IN_KERNELS, context_call, forward_call, statistics
from scaffold.render.jvp import JvpView, jvp_lines, jvp_name, returns
from scaffold.render.jvp import parameters as tangents
from scaffold.render.kept_forward import kept_lines
from scaffold.render.library import CONTIGUOUS, LibraryView, library_view
from scaffold.render.real_inputs import refused_in_context
from scaffold.render.second_order import (
    decorated,
    guards,
    leads_back,
    refusal,
)
from scaffold.render.shape_checks import check_lines
from scaffold.render.signature import (
    annotation,
    parameters,
    registered_parameters,
    result_type,
)
from scaffold.render.typing import annotated_body
from scaffold.spec import OpSpec, Output, is_variadic
from scaffold.spec.library import PLAIN

NONE = re.compile(r"(?<!is )(?<!is not )\bNone\b")  # a value, not a test for None
NO_GRADIENT = re.compile(r"(?:return|else|=) None\b")  # nor an argument


class FunctionView(NamedTuple):
    """The template's data for the Function; every `_lines` is a body, not yet indented."""

    name: str
    vmap_rule: bool
    returns_saved: str  # why forward returns more than the op; "" if it does not
    combined: bool
    library: LibraryView | None  # set for an op registered with PyTorch, not a Function
    once_differentiable: bool  # has this decorator
    refusal: str  # the statement raising for a second derivative; "" for none
    forward_parameters: str
    forward_type: str
    forward_lines: tuple[str, ...]
    context_output: str
    context_lines: tuple[str, ...]
    backward_parameters: str
    backward_type: str
    backward_lines: tuple[str, ...]
    jvp: JvpView | None = None


def function_view(
    spec: OpSpec, derivation: Derivation, line_length: int
) -> FunctionView:
    """Return the template's data for the Function, or for the functions of a registered op."""
    combined = derivation.style == "combined"
    body = backward_lines(spec, derivation, line_length)
    body = under_autocast(spec, derivation, body)
    listed = registered_parameters if spec.is_library else parameters
    typed = listed(spec.inputs)
    checks = check_lines(derivation, line_length)
    context = tuple(_context_lines(spec, derivation, line_length))
    library = library_view(spec, derivation, bool(context)) if spec.is_library else None
    return FunctionView(
        name=spec.function_name,
        # PyTorch generates the rule only for a Function with `setup_context`.
        vmap_rule=derivation.transforms and not combined,
        returns_saved=_reason_for_more(spec, derivation),
        combined=combined,
        library=library,
        once_differentiable=decorated(derivation),
        refusal=refusal(spec) if guards(derivation) else "",
        forward_parameters=f"ctx: Any, {typed}" if combined else typed,
        forward_type=forward_type(spec, derivation),
        forward_lines=(
            *checks,
            *forward_call(spec),
            *_forward_lines(spec, derivation, line_length),
        ),
        context_output=_context_output(spec, derivation),
        context_lines=context,
        backward_parameters=backward_parameters(spec, derivation, body),
        backward_type=_backward_type(spec, body),
        backward_lines=tuple(body),
        jvp=_jvp_view(spec, derivation),
    )


def _reason_for_more(spec: OpSpec, derivation: Derivation) -> str:
    """Return a comment on why forward returns more than the outputs of the op; "" if it does not."""
    if not derivation.extra:
        return ""
    # Whether a saved local has a gradient by which second derivatives reach the inputs.
    passes = derivation.incoming.handed or leads_back(spec, derivation)
    # Without a second derivative nothing has to reach the inputs.
    if derivation.once_differentiable or not passes:
        return "Forward also returns what is saved for backward."
    return "Forward also returns what it saves, so that second derivatives reach the inputs."


def _jvp_view(spec: OpSpec, derivation: Derivation) -> JvpView | None:
    """Return the data of the second Function, the one with a jvp; None without a jvp.

    It saves, for both directions, everything either of them reads, whichever gradients are needed. Its `setup_context` runs that of the
    plain Function, then saves what the jvp reads as well.
    """
    jvp = derivation.jvp
    if jvp is None:
        return None
    names = _names_in_context(spec, derivation)
    every = frozenset(item.name for item in spec.differentiable)
    # `always`: without a test of the gradients that need it.
    wanted = [item._replace(serves=every, always=True) for item in derivation.saved]
    saved = [_saved(spec, item, names) for item in wanted]
    lines = []
    if saved:
        usual = [_saved(spec, item, names) for item in derivation.saved]
        # If equal, the `setup_context` of the plain Function, which runs first, has saved them.
        if usual != saved:
            lines.append(f"ctx.save_for_backward({', '.join(saved)})")
        lines.append(f"ctx.save_for_forward({', '.join(saved)})")
        text = "\n".join(lines)
        output = _context_output(spec, derivation)
        lines = [
            f"{spec.function_name}.setup_context(ctx, inputs, {output})",
            *_unpacked_inputs(spec, text),
            *_unpacked_outputs(spec, derivation, text),
            *lines,
        ]
    body = jvp_lines(spec, derivation, jvp)
    return JvpView(
        name=jvp_name(spec),
        context_lines=tuple(lines),
        parameters=tangents(spec, jvp, body),
        returns=returns(spec, derivation, jvp),
        lines=tuple(body),
    )


def forward_type(spec: OpSpec, derivation: Derivation) -> str:
    """Return the return type of `forward`: the outputs, then the intermediates `setup_context` saves."""
    variadic = any(output.variadic for output in spec.outputs)
    return result_type(len(spec.outputs) + len(derivation.extra), variadic)


def _backward_type(spec: OpSpec, body: Sequence[str]) -> str:
    """Return the return type of `backward`, read off its lines: `Tensor`, or a tuple with one per input; `Tensor | None` if one may be None."""
    if spec.is_library and any(item.variadic for item in spec.tensors):
        return "Any"  # a list among the gradients
    single = len(spec.inputs) == 1 and not is_variadic(spec.inputs[0])
    # In a tuple any None is a gradient; of a sole one only what is returned or assigned.
    none = NO_GRADIENT if single else NONE
    one = "Tensor | None" if none.search("\n".join(body)) else "Tensor"
    if single:
        return one if spec.differentiable else "None"
    return f"tuple[{one}, ...]"


def _forward_lines(spec: OpSpec, derivation: Derivation, line_length: int) -> list[str]:
    """Return the body of forward without its shape checks: the statements and the return; in combined style also the lines filling ctx."""
    if derivation.forward is None:
        return _unwritten_forward(spec, derivation, line_length)
    if spec.kept is not None:
        return kept_lines(spec, spec.kept, _typed_inputs(spec))
    lines = emit_lines(derivation.forward)
    values = [emit(result) for result in derivation.results]
    # Only a sole result may be `Any` to a checker; several are returned as a tuple.
    if len(values) == 1 and not (derivation.extra or spec.outputs[0].variadic):
        lines, value = annotated_body(
            derivation.forward,
            derivation.results[0],
            _typed_inputs(spec),
            spec.outputs[0].name,
            strict=spec.strict_types,
        )
        values = [value]
    if derivation.style == "combined":
        named = _named_results(spec, derivation, values)
        pairs = zip(named, values, strict=True)
        # A result that a line of ctx reads gets a name before the return.
        lines += [f"{new} = {old}" for new, old in pairs if new != old]
        outputs = dict(zip(_output_names(spec), named, strict=True))
        early, late = _by_time(
            spec, derivation.forward, _setup(spec, derivation, outputs, line_length)
        )
        lines, values = [*early, *lines, *late], named
    comments = [f"# {comment}" for comment in derivation.comments]
    if spec.is_library and forward_leaves(spec, derivation):
        comments.append(CONTIGUOUS)
    return [
        *lines,
        *comments,
        f"return {', '.join(_returned(spec, derivation, values))}",
    ]


def _by_time(
    spec: OpSpec, forward: Lines, setup: list[str]
) -> tuple[list[str], list[str]]:
    """Split `setup`, the lines filling ctx, into those before and after the body of a combined forward.

    They stand after it, but before it if the body gives an input's name to another value, `x = x.float()`: ctx needs the user's x. Then only
    lines that read none of such inputs, and may read values of the body, stay after it.
    """
    # A dirty input is the user's tensor even after the body has changed it in place.
    given = written(*forward) - set(spec.dirty)
    inputs = given & {item.name for item in spec.inputs}
    inner = (given - inputs) | set(_output_names(spec))  # values of the body
    if not inputs:
        return [], setup
    # If no line reads a value of the body, all of them can stand before it.
    if any(_mentions(line, name) for line in setup for name in inner):
        late = [x for x in setup if not any(_mentions(x, name) for name in inputs)]
        return [line for line in setup if line not in late], late
    return setup, []


def _unwritten_forward(
    spec: OpSpec, derivation: Derivation, line_length: int
) -> list[str]:
    """Return the body of a forward the user has to write: it raises NotImplementedError.

    In combined style the lines filling ctx stand above it; those that need outputs in a comment, to be put before the user's return.
    """
    lines = [f'raise NotImplementedError("{spec.name}: write forward")']
    if derivation.style != "combined":
        return lines
    names = _output_names(spec)
    setup = _setup(spec, derivation, {name: name for name in names}, line_length)
    late = [line for line in setup if any(_mentions(line, name) for name in names)]
    if late:
        lines = ["# before the return:", *(f"# {line}" for line in late), *lines]
    return [*(line for line in setup if line not in late), *lines]


def _returned(spec: OpSpec, derivation: Derivation, values: list[str]) -> list[str]:
    """Return the values forward returns: `values`, of the op's outputs, and those it returns to be saved.

    A variadic output, always the last, is unpacked if there are others.
    """
    extra = [emit(value) for value in derivation.extra]
    if spec.outputs[-1].variadic and len(values) + len(extra) > 1:
        values = [*values[:-1], f"*{values[-1]}"]
    return [*values, *extra]


def _typed_inputs(spec: OpSpec) -> frozenset[str]:
    """Return the inputs with a type other than `Any` for a type checker."""
    typed = (item.name for item in spec.attributes if annotation(item) in PLAIN)
    return frozenset({*typed, *(item.name for item in spec.tensors)})


def _output_names(spec: OpSpec) -> list[str]:
    return [output.name for output in spec.outputs]


def _named_results(
    spec: OpSpec, derivation: Derivation, values: list[str]
) -> list[str]:
    """Return the texts of the results, with the output's name for an expression a line of ctx reads: "x * 2" -> "output".

    Such lines save it, keep a facet of it (its shape), or mark it as non-differentiable. A text that is a name already stays.
    """
    wanted = {item.origin for item in derivation.saved if item.source == "output"}
    wanted |= {item.output for item in derivation.kept if item.output is not None}
    wanted |= {output.name for output in spec.outputs if _marked(spec, output)}
    return [
        output.name if output.name in wanted and not value.isidentifier() else value
        for output, value in zip(spec.outputs, values, strict=True)
    ]


def _context_lines(spec: OpSpec, derivation: Derivation, line_length: int) -> list[str]:
    """Return the body of `setup_context`: its arguments unpacked, as far as they are read, then the lines filling ctx.

    [] in combined style, where forward fills ctx itself, and for a registered op with nothing to save.
    """
    if derivation.style == "combined":
        return []
    lines = _setup(spec, derivation, _names_in_context(spec, derivation), line_length)
    # Such an op is registered without this function; a Function cannot do without it.
    if not lines and spec.is_library:
        return []
    if not lines:
        return ['"""Backward needs nothing of the forward."""']
    text = "\n".join(lines)
    return [
        *_unpacked_inputs(spec, text),
        *_unpacked_outputs(spec, derivation, text),
        *lines,
    ]


def _names_in_context(spec: OpSpec, derivation: Derivation) -> dict[str, str]:
    """Return the name of each output in `setup_context`: its own, but the parameter's for a sole tensor, as it is not unpacked."""
    if _returns_one(spec, derivation):
        return {spec.outputs[0].name: _context_output(spec, derivation)}
    return {name: name for name in _output_names(spec)}


def _context_output(spec: OpSpec, derivation: Derivation) -> str:
    """Return the name of `setup_context`'s parameter for forward's result, distinct from every input: `output`, or `outputs` for a tuple."""
    if spec.is_library:
        return "output"  # PyTorch passes it by this name
    taken = {item.name for item in spec.inputs}
    one = _returns_one(spec, derivation)
    names = ("output", "result") if one else ("outputs", "results")
    return next((name for name in names if name not in taken), f"the_{names[1]}")


def _mentions(text: str, name: str) -> bool:
    """Return whether code mentions a name: as a word, or before a dot (a lexical test: `x.shape` mentions x, `ctx.x` does not)."""
    words = "".join(
        char if char.isalnum() or char in "_." else " " for char in text
    ).split()
    return any(word.split(".")[0] == name for word in words)


def _unpacked_inputs(spec: OpSpec, text: str) -> list[str]:
    """Return the line of setup_context to unpack the inputs read by its other lines, `text`: `x, _dim = inputs`; none if none are read.

    The others get an underscore.
    """
    read = {item.name for item in spec.inputs if _mentions(text, item.name)}
    if not read:
        return []
    starred = not spec.is_library  # a registered op has a list for a variadic input
    # Of `*xs` alone `inputs` already is the tuple of the tensors.
    if starred and len(spec.inputs) == 1 and is_variadic(spec.inputs[0]):
        return [f"{spec.inputs[0].name} = inputs"]
    targets = []
    for item in spec.inputs:
        star = "*" if is_variadic(item) and starred else ""
        targets.append(star + (item.name if item.name in read else f"_{item.name}"))
    joined = ", ".join(targets)
    return [f"{joined} = inputs" if len(targets) > 1 else f"({joined},) = inputs"]


def _returns_one(spec: OpSpec, derivation: Derivation) -> bool:
    """Return whether forward returns one tensor, not a tuple."""
    return (
        len(spec.outputs) + len(derivation.intermediates) == 1
        and not spec.outputs[0].variadic
    )


def _unpacked_outputs(spec: OpSpec, derivation: Derivation, text: str) -> list[str]:
    """Return the line of setup_context to unpack forward's results; none if there is one tensor, or if no line reads them."""
    names = [*_output_names(spec), *derivation.intermediates]
    if _returns_one(spec, derivation) or not any(
        _mentions(text, name) for name in names
    ):
        return []
    result = _context_output(spec, derivation)
    targets = [name if _mentions(text, name) else f"_{name}" for name in names]
    # A sole variadic output: forward's result is the tuple of its tensors.
    if len(names) == 1:
        return [f"{names[0]} = {result}"]
    if spec.outputs[-1].variadic:
        targets[len(spec.outputs) - 1] = f"*{targets[len(spec.outputs) - 1]}"
    return [f"{', '.join(targets)} = {result}"]


def _setup(
    spec: OpSpec, derivation: Derivation, outputs: dict[str, str], line_length: int
) -> list[str]:
    """Return the lines filling ctx: marks, flags, saved tensors and other values; `outputs` maps outputs to their names here."""
    lines = [*refused_in_context(spec, derivation, line_length), *_marks_of_dirty(spec)]
    constant = [
        ("*" if item.variadic else "") + outputs[item.name]
        for item in spec.outputs
        if _marked(spec, item)
    ]
    # Intermediates without a gradient of their own are marked as constants. With a jvp, each has
    # a tangent, used by forward mode to differentiate the backward reading it.
    detached = derivation.jvp is None and not leads_back(spec, derivation)
    # A combined forward returns no intermediates.
    if derivation.style != "combined" and detached:
        # `handed`: (gradient, intermediate), for those with an incoming gradient.
        led = {name for _, name in derivation.incoming.handed}
        constant += [name for name in derivation.intermediates if name not in led]
    if constant:
        lines.append(f"ctx.mark_non_differentiable({', '.join(constant)})")
    # Else autograd makes zeros for an output that nothing has read.
    if gradients_may_be_none(spec, derivation):
        lines.append("ctx.set_materialize_grads(False)")
    lines += context_call(spec)
    if derivation.saved:
        saved = [_saved(spec, item, outputs) for item in derivation.saved]
        lines.append(f"ctx.save_for_backward({', '.join(saved)})")
    kept = _kept(spec, derivation, outputs)
    return [*lines, *kept, *kept_autocast(spec, derivation)]


def _marks_of_dirty(spec: OpSpec) -> list[str]:
    """Return the `mark_dirty` call for inputs changed in place, none of which is optional; [] if there are none."""
    several = variadic_names(spec)
    listed = ", ".join(f"*{name}" if name in several else name for name in spec.dirty)
    return [f"ctx.mark_dirty({listed})"] if listed else []


def _marked(spec: OpSpec, output: Output) -> bool:
    """Return whether an output is marked as non-differentiable on ctx.

    A sole output of integers needs no mark, as it cannot require a gradient; one of floats does, if it is declared `const`.
    """
    return not output.differentiable and (len(spec.outputs) > 1 or output.const)


def _saved(spec: OpSpec, item: Saved, outputs: dict[str, str]) -> str:
    """Return the argument of `save_for_backward` for a tensor, `x if ctx.needs_input_grad[0] else None`; without a test if always saved.

    `outputs` maps outputs to their names at that place.
    """
    value = outputs[item.origin] if item.source == "output" else item.origin
    several = are_several(spec, item)
    if item.always:
        return f"*{value}" if several else value
    # If the formula ran, they are empty tensors, and backward computes the numbers again.
    if item.origin in statistics(spec):
        return f"{value} if ctx.{IN_KERNELS} else None"
    # In `setup_context` each tensor of a registered op's list has a flag of its own.
    test = any_needed(spec, item.serves, flat=True)
    return (
        f"*({value} if {test} else ())" if several else f"{value} if {test} else None"
    )


def _kept(spec: OpSpec, derivation: Derivation, outputs: dict[str, str]) -> list[str]:
    """Return the lines storing values other than tensors on ctx: `ctx.dim = dim`; of an output a facet, `ctx.shape = output.shape`."""
    of_outputs = {item.name: item for item in spec.outputs}
    lines = []
    for item in derivation.kept:
        value = item.expression
        if item.output is not None:
            owner = of_outputs[item.output]
            value = facet_of(owner, outputs[item.output], item.expression)
        lines.append(f"ctx.{item.name} = {value}")
    return lines
