"""The body of `backward`: unpacking, `ctx.needs_input_grad` branches, and the return.

`function.py` puts it into the generated `torch.autograd.Function`. In: an `OpSpec` (what the user asked for) and its `Derivation` (the
statements of the gradients in `blocks`, what is saved). Out: source lines, not yet indented.
Invariant: a gradient that is not needed is None, one that is needed has its branch, and no branch is idle.

Words: a *flag* is an item of `ctx.needs_input_grad`, in the order of the inputs; a *block* is statements that serve the same gradients, and
stand under one test of flags; a *variadic* input is any number of tensors, `*tensors`, always the last; an *element* is the gradient of one
of these; an *intermediate* is a local of forward, returned to be saved; *incoming* gradients are those of the outputs, as autograd hands
them to backward; a gradient is *missing* if the user has to write it; *library* style: an op registered with `torch.library`, no Function;
a name is *sure* if it is assigned whatever gradients are needed, *open* if not; *extra* are the intermediates that forward returns.
"""

from collections.abc import Iterable, Sequence

from scaffold.derive import (
    Block,
    Derivation,
    Element,
    Filled,
    are_several,
    grad_name,
    variadic_names,
)
from scaffold.derive.derivation import LINE, METHOD, indent_of
from scaffold.formula import (
    Assign,
    If,
    Statement,
    emit,
    emit_lines,
    surely_written,
    written,
)
from scaffold.render.fused import backward_call
from scaffold.render.imports import names_read
from scaffold.render.real_inputs import refused_in_backward
from scaffold.render.second_order import (
    once_only,
    refused_at_once,
)
from scaffold.render.signature import result_type
from scaffold.render.typing import is_typed, untyped_calls_ignored
from scaffold.spec import Input, OpSpec, TensorInput, is_variadic

RECORDED = "torch.is_grad_enabled()"
RETURN_WIDTH = LINE - METHOD  # a longer return gets a line for each None

# --- Conditions on `ctx.needs_input_grad`.
#
# In: the inputs served by some code. Out: the condition of its branch.
# Invariant: code serving every differentiable input has no branch, since backward runs only if one needs it.


def needed(spec: OpSpec, name: str, flat: bool = False) -> str:
    """Return the flag for an input's gradient, `ctx.needs_input_grad[0]`, or the flags of a variadic input.

    Those are a slice, except in the backward of a registered op: there they are a list among the flags. `flat` asks for the
    slice, as in that op's `setup_context`.
    """
    position = spec.index(name)
    item = spec.inputs[position]
    if is_variadic(item) and (flat or not spec.is_library):
        # A slice to the end: a variadic input is the last.
        return (
            f"ctx.needs_input_grad[{position}:]" if position else "ctx.needs_input_grad"
        )
    return f"ctx.needs_input_grad[{position}]"


def any_needed(spec: OpSpec, names: Iterable[str], flat: bool = False) -> str:
    """Return a test for some of these inputs needing its gradient: `ctx.needs_input_grad[0] or ctx.needs_input_grad[2]`.

    Three or more adjacent flags are written as a slice, `any(ctx.needs_input_grad[1:4])`. `flat`: `needs_input_grad` has one flag for
    each tensor of a variadic input, rather than a tuple of flags at its place.
    """
    listed = [item for item in spec.differentiable if item.name in set(names)]
    tests = list[str]()
    for row in _side_by_side(spec, listed):
        if len(row) > 2:  # of two, a test each is as short
            first = spec.index(row[0].name)
            # From the first input on `[:3]`, not `[0:3]`.
            tests.append(f"any(ctx.needs_input_grad[{first or ''}:{first + len(row)}])")
            continue
        for item in row:
            flag = needed(spec, item.name, flat)
            # Of a variadic input `flag` is a slice, or a tuple at its place.
            tests.append(f"any({flag})" if item.variadic else flag)
    return " or ".join(tests)


def _side_by_side(
    spec: OpSpec, listed: Iterable[TensorInput]
) -> list[list[TensorInput]]:
    """Group inputs, in call order, into runs of adjacent arguments, so one test asks of several: `any(needs_input_grad[1:4])`.

    A variadic input, always the last, is alone.
    """
    rows: list[list[TensorInput]] = []
    for item in listed:
        before = rows[-1][-1] if rows else None
        if (
            before is None
            or item.variadic
            # An input whose flag is not asked for stands between: `b, size: int, c`.
            or spec.index(before.name) + 1 < spec.index(item.name)
        ):
            rows.append([item])
        else:
            rows[-1].append(item)
    return rows


def serves_all(spec: OpSpec, names: frozenset[str]) -> bool:
    """Return whether the names include every differentiable input: code that serves all of them needs no test of flags."""
    return names >= {item.name for item in spec.differentiable}


def guard(
    spec: OpSpec, names: frozenset[str], lines: list[str], always: bool = False
) -> list[str]:
    """Put lines under a test for some input in `names` needing its gradient; without a test if they serve every input, unless `always`."""
    if serves_all(spec, names) and not always:
        return lines
    return [f"if {any_needed(spec, names)}:", *(f"    {line}" for line in lines)]


# --- The output gradients as they come into `backward`.
#
# In: an `OpSpec` and its `Derivation`. Out: the parameters of `backward`, and the lines handling a gradient of None.
# Invariant: below these lines every gradient read by a formula is a tensor.


def backward_parameters(spec: OpSpec, derivation: Derivation, body: list[str]) -> str:
    """Return the parameters of `backward`: `grad_output: Tensor`, a gradient for each value forward returns.

    One that its `body` does not read gets an underscore, `_grad_max`. With an unwritten gradient (`missing`) the user may read any.
    """
    names = names_of(body)
    kind = "Tensor | None" if gradients_may_be_none(spec, derivation) else "Tensor"
    # `*grads` is the last parameter, so what comes behind it is split off in the body.
    if _collects(spec, derivation):
        first = [grad_name(spec, output.name) for output in spec.outputs[:-1]]
        listed = [name if name in names else f"_{name}" for name in first]
        return ", ".join(f"{name}: {kind}" for name in (*listed, "*grads"))
    listed = []
    for name in grad_names(spec):
        read = derivation.missing or name.lstrip("*") in names
        star, bare = ("*", name[1:]) if name.startswith("*") else ("", name)
        listed.append(f"{star}{bare if read else '_' + bare}: {kind}")
    # Intermediates with an incoming gradient of their own, for second derivatives.
    handed = {name: grad for grad, name in derivation.incoming.handed}
    for name in derivation.returned_locals:
        grad = handed.get(name)
        # An intermediate without a gradient, such as positions, is not in `handed`: `_grad_index`.
        listed.append(f"{grad if grad in names else f'_grad_{name}'}: {kind}")
    return ", ".join(listed)


def gradients_may_be_none(spec: OpSpec, derivation: Derivation) -> bool:
    """Return whether an output's gradient is None if nothing has read the output."""
    return derivation.incoming.may_be_none or not spec.materialize_grads


def _collects(spec: OpSpec, derivation: Derivation) -> bool:
    """Return whether the gradients of a variadic output arrive as `*grads`, to be split or filled in."""
    if not spec.outputs[-1].variadic:
        return False
    name = spec.outputs[-1].name
    # Gradients of intermediates are split off `*grads`; each None of a filled output becomes zeros.
    return bool(derivation.extra) or any(
        item.output == name for item in derivation.filled
    )


def _collected(derivation: Derivation) -> str:
    """Return the name for the gradients of a variadic output, some of which may be None."""
    return "some_grads" if derivation.extra else "grads"


def split_grads(
    spec: OpSpec, derivation: Derivation, names: frozenset[str]
) -> list[str]:
    """Return the line splitting `*grads` into gradients of a variadic output and of intermediates; none if nothing is to be split.

    `*grad_parts, _grad_index = grads`; a name that is not among `names`, those read below, gets an underscore. If some of the gradients may
    be None, they are called `some_grads` until zeros are filled in.
    """
    if not (derivation.extra and _collects(spec, derivation)):
        return []
    name = grad_name(spec, spec.outputs[-1].name)
    if derivation.filled:
        name = _collected(derivation)
    extra = ", ".join(f"_grad_{item}" for item in derivation.returned_locals)
    return [f"*{name if name in names else f'_{name}'}, {extra} = grads"]


def grad_names(spec: OpSpec) -> tuple[str, ...]:
    """Return the names of the output gradients in the formulas, a variadic one with its star."""
    return tuple(
        ("*" if item.variadic else "") + grad_name(spec, item.name)
        for item in spec.outputs
    )


def absent_grads(spec: OpSpec, derivation: Derivation) -> list[str]:
    """Return lines for absent output gradients: return None for every input if all are None, else fill in zeros.

    Autograd passes None for an output that nothing has read, if the op asks for that (`set_materialize_grads(False)`). `derivation.watched`
    are the outputs to test, `derivation.filled` those that get zeros.
    """
    if not (derivation.watched or derivation.filled):
        return []
    several = variadic_names(spec)
    tests = [
        (
            f"all(grad is None for grad in {_collected(derivation)})"
            if name in several
            else f"{grad_name(spec, name)} is None"
        )
        for name in derivation.watched
    ]
    nothing = ", ".join(none_for(spec, item) for item in spec.inputs)
    comma = "," if nothing.startswith("*") and len(spec.inputs) == 1 else ""  # a tuple
    lines = list[str]()
    if tests:
        lines = [f"if {' and '.join(tests)}:", f"    return {nothing}{comma}"]
    extra = [name for _, name in derivation.incoming.handed]
    alone = len(extra) == 1 and len(spec.outputs) == 1
    # A reader may wonder how the gradient of a sole output can be None.
    only = f"  # a second derivative, by {extra[0]} alone" if alone else ""
    for item in derivation.filled:
        name = grad_name(spec, item.output)
        if item.output in several:
            lines += _filled_each(name, _collected(derivation), item)
        else:
            lines += [f"if {name} is None:{only}", f"    {name} = {_zeros(item)}"]
    return lines


def _zeros(item: Filled) -> str:
    """Return the expression of zeros in place of an output gradient of None: like a saved tensor, or by shape and dtype kept on ctx."""
    if item.scalar:
        return f"{item.like}.new_zeros(())"
    if item.like and item.shape:  # of another shape than the saved tensor
        return f"{item.like}.new_zeros(ctx.{item.shape})"
    if item.like:
        return f"torch.zeros_like({item.like})"
    facets = f"dtype=ctx.{item.dtype}, device=ctx.{item.device}"
    return f"torch.zeros(ctx.{item.shape}, {facets})"


def _filled_each(name: str, given: str, item: Filled) -> list[str]:
    """Return lines replacing each None among the gradients of a variadic output, `given`, by zeros."""
    facets = f"ctx.{item.shape}, ctx.{item.dtype}, ctx.{item.device}"
    zeros = "torch.zeros(shape, dtype=dtype, device=device)"
    return [
        f"{name} = tuple(",
        f"    {zeros} if grad is None else grad",
        "    for grad, shape, dtype, device in zip(",
        f"        {given}, {facets}, strict=True",
        "    )",
        ")",
    ]


def none_for(spec: OpSpec, item: Input) -> str:
    """Return the None to return for an input without a gradient; for a variadic input one per tensor."""
    if is_variadic(item):
        if spec.is_library:
            return f"[None for _ in {needed(spec, item.name)}]"
        return f"*(None for _ in {needed(spec, item.name)})"
    return "None"


def names_of(body: list[str]) -> frozenset[str]:
    """Return the names read by the lines of a body, which need not be valid outside of a function (`return`)."""
    return names_read("\n".join(["def backward():", *(f"    {line}" for line in body)]))


# --- The lines of `backward`.


def backward_lines(spec: OpSpec, derivation: Derivation, line_length: int) -> list[str]:
    """Return the body of `backward`: refusals, unpacking, zeros for absent gradients, the gradients and the return.

    From the last line to the first, since each part reads names the one before it must bind: `grad_output` and saved tensors only if used.
    """
    if not spec.differentiable:
        return _without_gradient(spec)
    body = _body(spec, derivation)
    names = names_of(body)
    grads = [item for item in grad_names(spec) if item.lstrip("*") in names]
    read = (*grads, *_saved_names(spec, derivation))
    refused = refused_in_backward(spec, derivation, line_length)
    absent = absent_grads(spec, derivation)
    # The refusal of complex inputs reads a gradient: after it is filled in, if it may be None.
    late = refused if derivation.filled else []
    body = [
        *absent,
        *late,
        *backward_call(spec, derivation),
        *once_only(spec, derivation, body, read),
    ]
    return [
        *refused_at_once(spec, derivation),
        *([] if late else refused),
        # Of the body as it is now: the lines for absent gradients read names too.
        *split_grads(spec, derivation, names_of(body)),
        *_unpack(spec, derivation, body),
        *(
            # PyTorch gives a registered op no type: a typed local, for a strict checker.
            f"{kernel.called}: Callable[..., {result_type(len(kernel.spec.outputs), False)}] = {kernel.spec.function_name}"
            for kernel in derivation.kernels
            if spec.strict_types
        ),
        *untyped_calls_ignored(body, strict=spec.strict_types),
    ]


def _without_gradient(spec: OpSpec) -> list[str]:
    """Return the body of a backward for an op without gradients: a docstring that says why, and a None for each input."""
    # If an output could have a gradient, then no input takes one: `x[N; int]`.
    side = "input" if any(item.differentiable for item in spec.outputs) else "output"
    docstring = f'"""No {side} has a gradient."""'
    # The docstring alone is a body that returns None, the gradient of the sole input.
    if len(spec.inputs) == 1 and not _variadic(spec):
        return [docstring]
    nothing = ", ".join(none_for(spec, item) for item in spec.inputs)
    # `return *(None for ...)` alone is no Python: stars stand in a tuple.
    return [
        docstring,
        f"return ({nothing},)" if "*" in nothing else f"return {nothing}",
    ]


def _unpack(spec: OpSpec, derivation: Derivation, body: list[str]) -> list[str]:
    """Return the line unpacking `ctx.saved_tensors`; none if nothing is saved.

    A name that `body` does not read is unpacked all the same, with a comment for the linter.
    """
    targets = _saved_names(spec, derivation)
    names = [target.lstrip("*") for target in targets]
    if not names:
        return []
    if len(names) == 1 and targets != tuple(names):  # `*tensors` alone: the whole tuple
        unused = "" if names[0] in names_of(body) else "  # noqa: F841"
        return [f"{names[0]} = ctx.saved_tensors{unused}"]
    listed = ", ".join(targets)
    target = f"({listed},)" if len(names) == 1 else listed
    # RUF059 is ruff's rule for an unpacked name that nothing reads, F841 for an assigned one.
    unused = "" if names_of(body) >= set(names) else "  # noqa: RUF059"
    return [f"{target} = ctx.saved_tensors{unused}"]


def _saved_names(spec: OpSpec, derivation: Derivation) -> tuple[str, ...]:
    """Return the names of the saved tensors, to unpack `ctx.saved_tensors`: `*tensors` for a variadic input or output."""
    return tuple(
        f"*{item.name}" if are_several(spec, item) else item.name
        for item in derivation.saved
    )


def _body(spec: OpSpec, derivation: Derivation) -> list[str]:
    """Return the lines computing the gradients, with the return of them; an unknown gradient raises NotImplementedError if needed."""
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
        # Under a test even for the sole gradient: else the return below could never be reached.
        lines += guard(spec, frozenset({name}), [message], always=True)
    for element in derivation.elements:
        # The gradients of a sole input are listed in the return.
        if len(spec.inputs) == 1 and not element.statements and not spec.is_library:
            return [*lines, f"return tuple({_each_gradient(spec, element)})"]
        lines += _element_lines(spec, element)
    return [*lines, f"return {_returned(spec, derivation)}"]


def _guarded(spec: OpSpec, block: Block) -> list[str]:
    """Return a block's lines under a test of the flags they serve; if the block is one `if`, its test is joined by `and`."""
    lines = emit_lines(block.statements)
    guarded = guard(spec, block.serves, lines)
    first, *rest = block.statements
    # An `else`, or a comment above the `if`, has no place where two tests are joined to one.
    sole = not rest and isinstance(first, If) and not (first.orelse or first.comments)
    # Equal if the block serves all gradients: there is no test to join.
    if guarded == lines or not sole:
        return guarded
    assert isinstance(first, If)
    tests = [any_needed(spec, block.serves), emit(first.test)]
    joined = " and ".join(f"({test})" if _is_choice(test) else test for test in tests)
    return [f"if {joined}:", *(f"    {line}" for line in emit_lines(first.body))]


def _is_choice(test: str) -> bool:
    """Return whether a test binds less tightly than `and`, so it needs brackets beside one."""
    return " or " in test or " if " in test


def _inlined(spec: OpSpec, derivation: Derivation) -> list[str] | None:
    """Return the body with its sole gradient in the return itself, `return 2 * grad_output * x`; None if it is not so simple.

    Not for several gradients, a variadic input, or if statements before the last assign the gradient.
    """
    names = [item.name for item in spec.differentiable]
    if len(names) != 1 or derivation.elements or derivation.missing:
        return None
    if spec.inputs[spec.index(names[0])] in _variadic(spec):
        return None
    # Every block serves the one gradient there is, so none of them stands under a test.
    *before, last = derivation.lines
    if f"grad_{names[0]}" in written(*before):
        return None
    match last:
        # `if torch.is_grad_enabled():` asks whether backward itself is recorded. The fast path
        # comes first; the other one consists of operations PyTorch can differentiate.
        case If(test, body, orelse, comments) if emit(test) == RECORDED:
            fast = _returned_at_once(spec, derivation, names[0], orelse)
            # A name is annotated once in a function: by the fast path, whose lines come first.
            slow = _returned_at_once(spec, derivation, names[0], body, annotated=False)
            if slow is None or fast is None:
                return None
            return [
                *emit_lines(before),
                f"if not {RECORDED}:",
                *(f"    {line}" for line in fast),
                *(f"# {comment}" for comment in comments),
                *slow,
            ]
    return _returned_at_once(spec, derivation, names[0], derivation.lines)


def _returned_at_once(
    spec: OpSpec,
    derivation: Derivation,
    name: str,
    lines: Sequence[Statement],
    annotated: bool = True,
) -> list[str] | None:
    """Return the statements `lines` as code ending in `return <gradient>`; None unless only the last statement assigns the gradient.

    `name` is the input of the gradient, the others get None. The gradient has a line of its own if the return would be too long, or if a
    type checker needs its type.
    """
    *before, last = lines
    target = f"grad_{name}"
    if target in written(*before):
        return None
    if not (isinstance(last, Assign) and last.target.label == target):
        return None
    # `grad_x += y` has no value to return, and a comment needs the line below it.
    if last.operator or last.comments:
        return None
    gradient = emit(last.value)
    values, named = (
        [text if item.name == name else none_for(spec, item) for item in spec.inputs]
        for text in (gradient, target)
    )
    # The names a checker knows to be tensors: what comes from `ctx` is `Any`.
    tensors = frozenset(name.lstrip("*") for name in grad_names(spec))
    if spec.strict_types and len(values) == 1 and not is_typed(last.value, tensors):
        return [
            *emit_lines(before),
            f"{target}{': Tensor' * annotated} = {values[0]}",
            f"return {target}",
        ]
    inline, by_name = (f"return {', '.join(each)}" for each in (values, named))
    # A line of its own for the gradient helps only if the return then fits.
    if len(values) > 1 and len(inline) > _width(derivation) >= len(by_name):
        return [*emit_lines(before), f"{target} = {gradient}", by_name]
    return [*emit_lines(before), inline]


def _variadic(spec: OpSpec) -> tuple[TensorInput, ...]:
    return tuple(item for item in spec.tensors if item.variadic)


def _initial(spec: OpSpec, derivation: Derivation) -> list[str]:
    """Return the lines `grad_input = grad_weight = None`, for gradients assigned only under a test; of a variadic input a list of None."""
    every = frozenset(item.name for item in spec.differentiable)
    sure = {
        name
        for block in derivation.blocks
        # Such a block stands under no test.
        if block.serves == every
        for name in _sure(spec, block)
    }
    # `grad_xs = [...]`, a list of all elements, is assigned without a test.
    sure |= {f"grad_{item.name}" for item in derivation.elements}
    open_ = [item for item in spec.differentiable if f"grad_{item.name}" not in sure]
    names = [f"grad_{item.name}" for item in open_ if not item.variadic]
    # As `_sure` says: the gradient of a sole input is declared before any branch.
    note = ": Tensor | None" if spec.strict_types and len(spec.inputs) == 1 else ""
    lines = [
        f"{' = '.join(row)}{note} = None" for row in _rows(names, _width(derivation))
    ]
    for item in open_:
        if item.variadic:
            nothing = f"[None for _ in {needed(spec, item.name)}]"
            lines.append(f"grad_{item.name}: Sequence[Tensor | None] = {nothing}")
    return lines


def _rows(names: Iterable[str], width: int) -> list[list[str]]:
    """Group names into as few lines `grad_x = grad_y = None` as fit into `width` columns."""
    rows: list[list[str]] = []
    for name in names:
        if rows and len(" = ".join([*rows[-1], name, "None"])) <= width:
            rows[-1].append(name)
        else:
            rows.append([name])
    return rows


def _width(derivation: Derivation) -> int:
    """Return the width of a line of the body, less any indentation by `with ctx.autocast:`."""
    return RETURN_WIDTH - (indent_of("region") if derivation.region else 0)


def _sure(spec: OpSpec, block: Block) -> frozenset[str]:
    """Return the names a block assigns on every path, which need no initial None.

    For a sole input with strict types only those assigned outside branches: there the gradient must be declared, with its type, before any
    branch.
    """
    if len(spec.inputs) > 1 or not spec.strict_types:
        return surely_written(*block.statements)
    return written(*(item for item in block.statements if isinstance(item, Assign)))


def _element_lines(spec: OpSpec, element: Element) -> list[str]:
    """Return lines computing a gradient for each tensor of a variadic input: a comprehension, or a loop over statements."""
    target, needs = f"grad_{element.name}", needed(spec, element.name)
    if not element.statements:
        return [f"{target} = [{_each_gradient(spec, element)}]"]
    flag = _flag(element)
    return [
        f"{target}: list[Tensor | None] = [None for _ in {needs}]",
        f"for i, {flag} in enumerate({needs}):",
        f"    if {flag}:",
        *(f"        {line}" for line in emit_lines(element.statements)),
        f"        {target}[i] = {emit(element.value)}",
    ]


def _each_gradient(spec: OpSpec, element: Element) -> str:
    """Return the inside of a comprehension over the gradients of a variadic input: `grad_y if needed else None for needed in ...`."""
    value, flag, needs = emit(element.value), _flag(element), needed(spec, element.name)
    # A conditional needs brackets beside `if`.
    bracketed = f"({value})" if element.value.kind == "conditional" else value
    indexed = f"for i, {flag} in enumerate({needs})"
    # `i` is the position of the element, as in `tensors[i]`.
    loop = indexed if "i" in _read(element) else f"for {flag} in {needs}"
    return f"{bracketed} if {flag} else None {loop}"


def _flag(element: Element) -> str:
    """Return the name of the flag of an element: `needed`, or `is_needed` if a line of its gradient reads another `needed`."""
    return "needed" if "needed" not in _read(element) else "is_needed"


def _read(element: Element) -> frozenset[str]:
    return names_of([*emit_lines(element.statements), f"return {emit(element.value)}"])


def _returned(spec: OpSpec, derivation: Derivation) -> str:
    """Return the expression backward returns: a gradient or None for each input, `grad_x, None`.

    A gradient computed along with others, needed or not (`joint`), is returned only if needed.
    """
    differentiable = {item.name for item in spec.differentiable}
    values = []
    for item in spec.inputs:
        if item.name not in differentiable:
            values.append(none_for(spec, item))
        elif is_variadic(item):
            # A registered op takes a list for `*tensors`, and returns a list of gradients in its place.
            star = "" if spec.is_library else "*"
            values.append(f"{star}{_variadic_result(spec, derivation, item.name)}")
        elif item.name in derivation.joint:
            values.append(
                f"grad_{item.name} if {any_needed(spec, {item.name})} else None"
            )
        else:
            values.append(f"grad_{item.name}")
    if len(values) == 1 and values[0].startswith("*"):  # `return *x` is no expression
        value = values[0][1:]
        return f"tuple{value}" if value.startswith("(") else f"tuple({value})"
    return ", ".join(values)


def _variadic_result(spec: OpSpec, derivation: Derivation, name: str) -> str:
    """Return an expression of the gradients of a variadic input, one for each tensor, each None unless it is needed."""
    # A gradient made element by element has a None for each that is not needed.
    if any(item.name == name for item in derivation.elements):
        return f"grad_{name}"
    pairs = f"zip(grad_{name}, {needed(spec, name)}, strict=True)"
    each = f"grad if needed else None for grad, needed in {pairs}"
    return f"[{each}]" if spec.is_library else f"({each})"
