"""The lines of `backward`.

In: an `OpSpec` and its `Derivation`. Out: source lines, not yet indented.
Invariant: a gradient that is not needed is None, one that is needed has its branch, and no branch is idle.
"""

from scaffold.derive import (
    Block,
    Derivation,
    Element,
    variadic_names,
)
from scaffold.derive.write.backward_program import surely_written
from scaffold.derive.write.layout import UNTYPED
from scaffold.formula import Assign, If, emit, emit_lines, written
from scaffold.render.arriving import (
    absent_grads,
    grad_names,
    names_of,
    none_for,
    split_grads,
)
from scaffold.render.needs import any_needed, guard, needed
from scaffold.render.typing import is_typed
from scaffold.spec import OpSpec, TensorInput


def backward_lines(spec: OpSpec, derivation: Derivation) -> list[str]:
    """The body of `backward`."""
    if not spec.differentiable:
        return _without_gradient(spec)
    body = [*absent_grads(spec, derivation), *_body(spec, derivation)]
    return [
        *split_grads(spec, derivation, names_of(body)),
        *_unpack(spec, derivation, body),
        *_typed_functions(spec, derivation, names_of(body)),
        *body,
    ]


def _typed_functions(
    spec: OpSpec, derivation: Derivation, names: frozenset[str]
) -> list[str]:
    """A type for each function of PyTorch that has none and is called by its bare name."""
    lines = [line for block in derivation.blocks for line in block.statements]
    own = frozenset().union(*map(written, lines))
    own |= {item.name for item in spec.inputs} | {item.binding for item in spec.imports}
    return [
        f"{name}: Callable[..., {kind}] = torch.{name}"
        for name, kind in UNTYPED.items()
        if name in names - own
    ]


def _without_gradient(spec: OpSpec) -> list[str]:
    side = "input" if any(item.differentiable for item in spec.outputs) else "output"
    docstring = f'"""No {side} has a gradient."""'
    if len(spec.inputs) == 1 and not _variadic(spec):
        return [docstring]
    nothing = ", ".join(none_for(spec, item) for item in spec.inputs)
    return [
        docstring,
        f"return ({nothing},)" if _variadic(spec) else f"return {nothing}",
    ]


def _unpack(spec: OpSpec, derivation: Derivation, body: list[str]) -> list[str]:
    several = variadic_names(spec)
    names = [item.name for item in derivation.saved]
    starred = {
        item.name
        for item in derivation.saved
        if item.source != "intermediate" and item.origin in several
    }
    if not names:
        return []
    if len(names) == 1 and starred:
        unused = "" if names[0] in names_of(body) else "  # noqa: F841"
        return [f"{names[0]} = ctx.saved_tensors{unused}"]
    listed = ", ".join(f"*{name}" if name in starred else name for name in names)
    target = f"({listed},)" if len(names) == 1 else listed
    unused = "" if names_of(body) >= set(names) else "  # noqa: RUF059"
    return [f"{target} = ctx.saved_tensors{unused}"]


def _body(spec: OpSpec, derivation: Derivation) -> list[str]:
    inlined = _inlined(spec, derivation)
    if inlined is not None:
        return inlined
    lines = _initial(spec, derivation)
    for block in derivation.blocks:
        lines += _guarded(spec, block)
    for name in (
        item.name for item in spec.differentiable if item.name in derivation.missing
    ):
        message = f'raise NotImplementedError("{spec.name}: write grad_{name}")'
        lines += guard(spec, frozenset({name}), [message], always=True)
    for element in derivation.elements:
        lines += _element_lines(spec, element)
    return [*lines, f"return {_returned(spec, derivation)}"]


def _guarded(spec: OpSpec, block: Block) -> list[str]:
    """A block under its branch; the test of a sole `if` in it joins the branch's."""
    lines = emit_lines(block.statements)
    guarded = guard(spec, block.serves, lines)
    first, *rest = block.statements
    sole = not rest and isinstance(first, If) and not (first.orelse or first.comments)
    if guarded == lines or not sole:
        return guarded
    assert isinstance(first, If)
    tests = [any_needed(spec, block.serves), emit(first.test)]
    joined = " and ".join(f"({test})" if _is_choice(test) else test for test in tests)
    return [f"if {joined}:", *(f"    {line}" for line in emit_lines(first.body))]


def _is_choice(test: str) -> bool:
    """Whether a test binds less than `and`."""
    return " or " in test or " if " in test


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
        emit(last.value) if item.name == names[0] else none_for(spec, item)
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
        for name in _sure(spec, block)
    }
    sure |= {f"grad_{item.name}" for item in derivation.elements}
    open_ = [item for item in spec.differentiable if f"grad_{item.name}" not in sure]
    names = [f"grad_{item.name}" for item in open_ if not item.variadic]
    note = ": Tensor | None" if len(spec.inputs) == 1 else ""
    lines = [f"{' = '.join(names)}{note} = None"] if names else []
    for item in open_:
        if item.variadic:
            nothing = f"[None for _ in {needed(spec, item.name)}]"
            lines.append(f"grad_{item.name}: Sequence[Tensor | None] = {nothing}")
    return lines


def _sure(spec: OpSpec, block: Block) -> frozenset[str]:
    """The names that a block assigns; of a sole gradient the type must be said first, if branches do."""
    if len(spec.inputs) > 1:
        return surely_written(*block.statements)
    return written(*(item for item in block.statements if isinstance(item, Assign)))


def _element_lines(spec: OpSpec, element: Element) -> list[str]:
    """One gradient for each tensor of a variadic input."""
    target, needs = f"grad_{element.name}", needed(spec, element.name)
    value = emit(element.value)
    statements = emit_lines(element.statements)
    names = names_of([*statements, f"return {value}"])
    whole = f"({value})" if element.value.kind == "conditional" else value
    flag = "needed" if "needed" not in names else "is_needed"
    if not statements:
        indexed = f"for i, {flag} in enumerate({needs})"
        loop = indexed if "i" in names else f"for {flag} in {needs}"
        return [f"{target} = [{whole} if {flag} else None {loop}]"]
    return [
        f"{target}: list[Tensor | None] = [None for _ in {needs}]",
        f"for i, {flag} in enumerate({needs}):",
        f"    if {flag}:",
        *(f"        {line}" for line in statements),
        f"        {target}[i] = {value}",
    ]


def _returned(spec: OpSpec, derivation: Derivation) -> str:
    differentiable = {item.name for item in spec.differentiable}
    values = []
    for item in spec.inputs:
        if item.name not in differentiable:
            values.append(none_for(spec, item))
        elif isinstance(item, TensorInput) and item.variadic:
            values.append(f"*{_variadic_result(spec, derivation, item.name)}")
        elif item.name in derivation.joint:
            values.append(
                f"grad_{item.name} if {any_needed(spec, {item.name})} else None"
            )
        else:
            values.append(f"grad_{item.name}")
    if len(values) == 1 and values[0].startswith("*"):
        value = values[0][1:]
        return f"tuple{value}" if value.startswith("(") else f"tuple({value})"
    return ", ".join(values)


def _variadic_result(spec: OpSpec, derivation: Derivation, name: str) -> str:
    if any(item.name == name for item in derivation.elements):
        return f"grad_{name}"
    pairs = f"zip(grad_{name}, {needed(spec, name)}, strict=True)"
    return f"(grad if needed else None for grad, needed in {pairs})"
