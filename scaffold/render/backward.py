"""The lines of `backward`.

In: an `OpSpec` and its `Derivation`. Out: source lines, not yet indented.
Invariant: a gradient that is not needed is None, one that is needed has its branch, and no branch is idle.
"""

from scaffold.derive import Block, Derivation
from scaffold.formula import Assign, emit, emit_lines, written
from scaffold.render.imports import names_read
from scaffold.render.typing import is_typed
from scaffold.render.needs import any_needed, guard, needed
from scaffold.spec import Input, OpSpec, TensorInput


def backward_parameters(spec: OpSpec, derivation: Derivation, body: list[str]) -> str:
    """The output gradients, those that the body does not read with an underscore."""
    text = "\n".join(body)
    kind = "Tensor" if spec.materialize_grads else "Tensor | None"
    listed = []
    for name in grad_names(spec):
        read = derivation.missing or name.lstrip("*") in text
        star, bare = ("*", name[1:]) if name.startswith("*") else ("", name)
        listed.append(f"{star}{bare if read else '_' + bare}: {kind}")
    extra = derivation.intermediates if spec.style == "setup-context" else ()
    listed += [f"_grad_{name}: {kind}" for name in extra]
    return ", ".join(listed)


def grad_names(spec: OpSpec) -> tuple[str, ...]:
    """The names of the output gradients in the formulas, a variadic one with its star."""
    outputs = spec.outputs
    if len(outputs) == 1 and not outputs[0].variadic:
        return ("grad_output",)
    return tuple(
        ("*" if item.variadic else "") + f"grad_{item.name}" for item in outputs
    )


def backward_lines(spec: OpSpec, derivation: Derivation) -> list[str]:
    """The body of `backward`."""
    if not spec.differentiable:
        return _without_gradient(spec)
    body = [*_absent(spec, derivation), *_body(spec, derivation)]
    return [*_unpack(spec, derivation, body), *body]


def _without_gradient(spec: OpSpec) -> list[str]:
    docstring = '"""No output has a gradient."""'
    if len(spec.inputs) == 1 and not _variadic(spec):
        return [docstring]
    nothing = ", ".join(_nothing(spec, item) for item in spec.inputs)
    return [
        docstring,
        f"return ({nothing},)" if _variadic(spec) else f"return {nothing}",
    ]


def _unpack(spec: OpSpec, derivation: Derivation, body: list[str]) -> list[str]:
    variadic = {item.name for item in _variadic(spec)}
    names = [item.name for item in derivation.saved]
    if not names:
        return []
    if len(names) == 1 and names[0] in variadic:
        return [f"{names[0]} = ctx.saved_tensors"]
    listed = ", ".join(f"*{name}" if name in variadic else name for name in names)
    target = f"({listed},)" if len(names) == 1 else listed
    read = names_read("\n".join(["def backward():", *(f"    {line}" for line in body)]))
    unused = "" if read >= set(names) else "  # noqa: RUF059"
    return [f"{target} = ctx.saved_tensors{unused}"]


def _absent(spec: OpSpec, derivation: Derivation) -> list[str]:
    """Guards for output gradients that are None because nothing downstream used them."""
    if spec.materialize_grads:
        return []
    nothing = f"return {', '.join(_nothing(spec, item) for item in spec.inputs)}"
    names = [name for name in grad_names(spec) if not name.startswith("*")]
    read = [name for name in names if name.removeprefix("grad_") in derivation.filled]
    watched = read or names[:1]
    lines = [
        f"if {' and '.join(f'{name} is None' for name in watched)}:",
        f"    {nothing}",
    ]
    for name in read:
        output = name.removeprefix("grad_")
        like = f"dtype=ctx.{output}_dtype, device=ctx.{output}_device"
        lines += [
            f"if {name} is None:",
            f"    {name} = torch.zeros(ctx.{output}_shape, {like})",
        ]
    return lines


def _nothing(spec: OpSpec, item: Input) -> str:
    if isinstance(item, TensorInput) and item.variadic:
        return f"*(None for _ in {needed(spec, item.name)})"
    return "None"


def _body(spec: OpSpec, derivation: Derivation) -> list[str]:
    inlined = _inlined(spec, derivation)
    if inlined is not None:
        return inlined
    lines = _initial(spec, derivation)
    for block in derivation.blocks:
        lines += guard(spec, block.serves, emit_lines(block.statements))
    for name in (
        item.name for item in spec.differentiable if item.name in derivation.missing
    ):
        message = f'raise NotImplementedError("{spec.name}: write grad_{name}")'
        lines += guard(spec, frozenset({name}), [message], always=True)
    for name, value in derivation.elements:
        lines += _element_lines(spec, name, emit(value))
    return [*lines, f"return {_returned(spec, derivation)}"]


def _inlined(spec: OpSpec, derivation: Derivation) -> list[str] | None:
    """A sole gradient that is one expression stands in the return itself."""
    names = [item.name for item in spec.differentiable]
    if len(names) != 1 or derivation.elements or derivation.missing:
        return None
    *before, last = [line for block in derivation.blocks for line in block.statements]
    target = f"grad_{names[0]}"
    once = sum(target in written(line) for line in (*before, last)) == 1
    if not (once and isinstance(last, Assign) and last.target.label == target):
        return None
    if (
        last.operator
        or last.comments
        or spec.inputs[spec.index(names[0])] in _variadic(spec)
    ):
        return None
    values = [
        emit(last.value) if item.name == names[0] else _nothing(spec, item)
        for item in spec.inputs
    ]
    tensors = frozenset(name.lstrip("*") for name in grad_names(spec))
    if len(values) == 1 and not is_typed(last.value, tensors):
        return [
            *emit_lines(before),
            f"{target}: Tensor = {values[0]}",
            f"return {target}",
        ]
    return [*emit_lines(before), f"return {', '.join(values)}"]


def _variadic(spec: OpSpec) -> tuple[TensorInput, ...]:
    return tuple(item for item in spec.tensors if item.variadic)


def _initial(spec: OpSpec, derivation: Derivation) -> list[str]:
    """`grad_input = grad_weight = None` for those that a branch may leave out."""
    every = frozenset(item.name for item in spec.differentiable)
    sure = {
        name
        for block in derivation.blocks
        if block.serves == every
        for name in _sure(block)
    }
    sure |= {f"grad_{name}" for name, _ in derivation.elements}
    open_ = [item for item in spec.differentiable if f"grad_{item.name}" not in sure]
    names = [f"grad_{item.name}" for item in open_ if not item.variadic]
    lines = [f"{' = '.join(names)} = None"] if names else []
    for item in open_:
        if item.variadic:
            nothing = f"[None for _ in {needed(spec, item.name)}]"
            lines.append(f"grad_{item.name}: Sequence[Tensor | None] = {nothing}")
    return lines


def _sure(block: Block) -> frozenset[str]:
    assigns = [item for item in block.statements if isinstance(item, Assign)]
    return frozenset(name for item in assigns for name in written(item))


def _element_lines(spec: OpSpec, name: str, value: str) -> list[str]:
    """One gradient for each tensor of a variadic input."""
    needs = needed(spec, name)
    indexed = f"for i, needed in enumerate({needs})"
    loop = indexed if _reads_index(value) else f"for needed in {needs}"
    return [f"grad_{name} = [{value} if needed else None {loop}]"]


def _reads_index(value: str) -> bool:
    return "i" in names_read(value)


def _returned(spec: OpSpec, derivation: Derivation) -> str:
    differentiable = {item.name for item in spec.differentiable}
    values = []
    for item in spec.inputs:
        if item.name not in differentiable:
            values.append(_nothing(spec, item))
        elif isinstance(item, TensorInput) and item.variadic:
            values.append(f"*{_variadic_result(spec, derivation, item.name)}")
        elif item.name in derivation.joint:
            values.append(
                f"grad_{item.name} if {any_needed(spec, {item.name})} else None"
            )
        else:
            values.append(f"grad_{item.name}")
    if len(values) == 1 and values[0].startswith("*"):
        return f"tuple({values[0][1:]})"
    return ", ".join(values)


def _variadic_result(spec: OpSpec, derivation: Derivation, name: str) -> str:
    if name in dict(derivation.elements):
        return f"grad_{name}"
    pairs = f"zip(grad_{name}, {needed(spec, name)}, strict=True)"
    return f"(grad if needed else None for grad, needed in {pairs})"
