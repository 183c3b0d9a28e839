"""The Function with a `jvp`, as lines for its template, and which of the two the wrapper takes.

In: an `OpSpec` and its `Derivation`. Out: a `JvpView`. Invariant: under torch.compile the Function without it runs, since Dynamo takes
none that has one where a gradient is wanted; what is saved for the jvp is exactly what is saved for the backward, of which PyTorch's vmap
keeps one record.
"""

from typing import NamedTuple

from scaffold.derive import Derivation
from scaffold.derive.derivation import Jvp
from scaffold.formula import Assign, Lines, Node, emit, emit_lines, written
from scaffold.formula.names import fresh
from scaffold.render.backward import RETURN_WIDTH, names_of
from scaffold.render.typing import annotated_body
from scaffold.spec import Input, OpSpec, TensorInput


class JvpView(NamedTuple):
    """What the template shows of the Function with a jvp; every `_lines` is a body, not yet indented."""

    name: str
    context_lines: tuple[str, ...]
    parameters: str
    returns: str
    lines: tuple[str, ...]


def jvp_name(spec: OpSpec) -> str:
    """The Function with a jvp."""
    return f"{spec.function_name}WithJvp"


def chosen(spec: OpSpec) -> tuple[list[str], str]:
    """Return the lines of the wrapper that choose the Function, and its name."""
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
    """The body of `jvp`."""
    if jvp.missing:
        return [f'raise NotImplementedError("{spec.name}: write jvp")']
    body = _body(spec, jvp)
    names = names_of(body)
    saved = [item.name for item in derivation.saved]
    if not saved or not names & {*saved}:
        return body
    listed = [name if name in names else f"_{name}" for name in saved]
    target = f"({listed[0]},)" if len(listed) == 1 else ", ".join(listed)
    return [f"{target} = ctx.saved_tensors", *body]


def _body(spec: OpSpec, jvp: Jvp) -> list[str]:
    """The statements, the last of which stands in the return if it is all that is returned."""
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
    """The statements without the last one, and its value, where that is short and is the result."""
    *before, last = statements
    alone = isinstance(last, Assign) and not (last.operator or last.comments)
    again = any(result.label in written(item) for item in before)
    if not (alone and not again and isinstance(last, Assign)):
        return statements, result
    if last.target != result or len(emit(last.value)) > RETURN_WIDTH - len("return "):
        return statements, result
    return tuple(before), last.value


def parameters(spec: OpSpec, jvp: Jvp, body: list[str]) -> str:
    """The tangents of the inputs, those that the body does not read with an underscore."""
    names = names_of(body)
    pairs = zip(spec.inputs, jvp.parameters, strict=True)
    return ", ".join(
        f"{name if name in names or jvp.missing else f'_{name}'}: {_type(item)}"
        for item, name in pairs
    )


def _type(item: Input) -> str:
    """A tangent is zeros where there is none, and None of what is no tensor."""
    if not isinstance(item, TensorInput):
        return "None"
    return "Tensor | None" if item.optional else "Tensor"


def returns(spec: OpSpec, derivation: Derivation, jvp: Jvp) -> str:
    """The type of what `jvp` returns."""
    count = len(spec.outputs) + len(derivation.extra)
    if count == 1:
        return "Tensor" if jvp.missing or jvp.results[0] is not None else "None"
    return "tuple[Tensor | None, ...]"
