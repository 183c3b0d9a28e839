"""The Function with a `jvp`, as lines for its template, and the wrapper's choice between the two Functions.

`--forward-ad` asks for it. A jvp is forward mode: from a *tangent* of each input it computes those of the outputs. In: an `OpSpec` and its
`Derivation`, whose `jvp` has the statements, a name for each tangent (`parameters`) and a result for each output, None for a constant.
Out: a `JvpView`. Invariant: under torch.compile the Function without a jvp runs, since Dynamo
rejects one with a jvp if a gradient is wanted; the jvp and the backward save exactly the same tensors, as PyTorch's vmap keeps
one record for both.
"""

from typing import NamedTuple

from scaffold.derive import Derivation
from scaffold.derive.derivation import Jvp
from scaffold.formula import Assign, Lines, Node, emit, emit_lines
from scaffold.formula.names import fresh
from scaffold.render.backward import RETURN_WIDTH, names_of
from scaffold.render.typing import annotated_body
from scaffold.spec import Input, OpSpec, TensorInput


class JvpView(NamedTuple):
    """The template's data for the Function with a jvp; every `_lines` is a body, not yet indented."""

    name: str
    context_lines: tuple[str, ...]
    parameters: str
    returns: str
    lines: tuple[str, ...]


def jvp_name(spec: OpSpec) -> str:
    """Return the name of the Function with a jvp."""
    return f"{spec.function_name}WithJvp"


def function_to_call(spec: OpSpec) -> tuple[list[str], str]:
    """Return lines of the wrapper that choose a Function, and the name to call it by.

    Without `--forward-ad` there are none: `[]`, "SwishFunction". With it there are two Functions, and the name is that of a local:
    `function = SwishFunctionWithJvp`, `if torch.compiler.is_compiling(): function = SwishFunction`.
    """
    if not spec.forward_ad:
        return [], spec.function_name
    function = fresh("function", {item.name for item in spec.inputs})
    lines = [
        f"{function}: type[{spec.function_name}] = {jvp_name(spec)}",
        "if torch.compiler.is_compiling():  # Dynamo refuses a jvp",
        f"    {function} = {spec.function_name}",
    ]
    return lines, function


def jvp_lines(spec: OpSpec, derivation: Derivation, jvp: Jvp) -> list[str]:
    """Return the body of `jvp`: the line unpacking the saved tensors, if it reads any, its statements, and the return.

    It only raises NotImplementedError if the user has to write it (`missing`).
    """
    if jvp.missing:
        return [f'raise NotImplementedError("{spec.name}: write jvp")']
    body = _body(spec, jvp)
    names = names_of(body)
    saved = [item.name for item in derivation.saved]
    if not saved or not names & {*saved}:
        return body
    listed = [name if name in names else f"_{name}" for name in saved]  # _unread
    target = f"({listed[0]},)" if len(listed) == 1 else ", ".join(listed)
    return [f"{target} = ctx.saved_tensors", *body]


def _body(spec: OpSpec, jvp: Jvp) -> list[str]:
    """Return the statements and the return; a sole result, a name, is inlined if possible."""
    results = jvp.results
    statements = jvp.statements
    if len(results) == 1 and results[0] is not None:
        pairs = zip(spec.inputs, jvp.parameters, strict=True)
        tensors = frozenset(
            name for item, name in pairs if isinstance(item, TensorInput)
        )
        statements, value = _inlined(statements, results[0])
        lines, text = annotated_body(
            statements, value, tensors, results[0].label, strict=spec.strict_types
        )
        return [*lines, f"return {text}"]
    listed = ", ".join("None" if item is None else emit(item) for item in results)
    return [*emit_lines(statements), f"return {listed}"]


def _inlined(statements: Lines, result: Node) -> tuple[Lines, Node]:
    """Return the statements but the last, and its value as the result: `tangent = 2 * t`, `return tangent` -> `return 2 * t`.

    Both unchanged if the last statement is not just that assignment, or if the return would be too long.
    """
    match statements:
        case (*before, Assign(target, value, "", ())) if target == result:
            if len(f"return {emit(value)}") <= RETURN_WIDTH:
                return tuple(before), value
    return statements, result


def parameters(spec: OpSpec, jvp: Jvp, body: list[str]) -> str:
    """Return the parameters of `jvp`: the inputs' tangents, with an underscore on unread ones."""
    names = names_of(body)
    pairs = zip(spec.inputs, jvp.parameters, strict=True)
    return ", ".join(
        # The user's own lines may read any of them.
        f"{name if name in names or jvp.missing else f'_{name}'}: {_type(item, name, body)}"
        for item, name in pairs
    )


def _type(item: Input, tangent: str, body: list[str]) -> str:
    """Return the type of a tangent: a missing one is zeros, or None if the body fills it; inputs other than tensors have None."""
    if not isinstance(item, TensorInput):
        return "None"
    may_be_none = item.optional or f"if {tangent} is None:" in body
    return "Tensor | None" if may_be_none else "Tensor"


def returns(spec: OpSpec, derivation: Derivation, jvp: Jvp) -> str:
    """Return the annotation of the value `jvp` returns: a tensor, or of several outputs a tuple in which each may be None.

    None for a sole output without a tangent. `extra` outputs are those returned to be saved; a `missing` jvp is the user's to write.
    """
    count = len(spec.outputs) + len(derivation.extra)
    if count == 1:
        return "Tensor" if jvp.missing or jvp.results[0] is not None else "None"
    return "tuple[Tensor | None, ...]"
