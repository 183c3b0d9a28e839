"""Docstrings of generated code.

In: an `OpSpec`. Out: lines. Invariant: whatever the user's text holds, the docstring stays one string.
"""

import textwrap

from scaffold.derive import Derivation
from scaffold.spec import Attribute, Dim, Input, OpSpec, Output

INDENT = "    "
WIDTH = 84  # what the indentation leaves of a line


def wrapper_docstring(spec: OpSpec, derivation: Derivation) -> str:
    """What the op computes, the shapes, what to know of its gradient."""
    body = [_summary(spec), *_formula(spec), *_notes(spec, derivation)]
    return quoted([*body, *_arguments(spec), *_returns(spec)])


def quoted(lines: list[str]) -> str:
    """Lines as a docstring: one line if it is one, else with the quotes on their own at the end."""
    text = "\n".join(lines).replace("\\", "\\\\").replace('"""', r"\"\"\"")
    if len(lines) == 1 and not text.endswith('"'):
        return f'"""{text}"""'
    return f'"""{text}\n"""'


def _summary(spec: OpSpec) -> str:
    if spec.doc:
        return " ".join(spec.doc.split())
    expression = _expression(spec)
    line = f"Compute ``{expression}``."
    return line if expression and len(line) < WIDTH - 6 else f"Apply {spec.name}."


def _expression(spec: OpSpec) -> str | None:
    """The forward, where it is one expression on one line."""
    if spec.forward is None or spec.forward.statements or "\n" in spec.forward.text:
        return None
    return spec.forward.text.removeprefix("return ")


def _formula(spec: OpSpec) -> list[str]:
    """The forward as the user wrote it, where the summary does not already show it."""
    if spec.forward is None or (
        not spec.doc and f"``{spec.forward.text}``" in _summary(spec)
    ):
        return []
    return [
        "",
        "Computes::",
        "",
        *textwrap.indent(spec.forward.text, "    ").splitlines(),
    ]


def _notes(spec: OpSpec, derivation: Derivation) -> list[str]:
    notes = []
    if spec.dirty:
        notes.append(
            f"Changes {' and '.join(f'``{name}``' for name in spec.dirty)} in place."
        )
    if derivation.once_differentiable:
        notes.append(
            "Once differentiable: the gradient must not be part of a loss, since autograd may drop "
            "the second derivative without an error."
        )
    if spec.surrogate:
        notes.append(_surrogate_note(spec))
    return [line for note in notes for line in ("", *textwrap.wrap(note, WIDTH))]


def _surrogate_note(spec: OpSpec) -> str:
    assert spec.surrogate is not None
    stated = spec.surrogate.forward
    source = (
        f"that of ``{stated.text}``"
        if stated and "\n" not in stated.text
        else "a surrogate"
    )
    return (
        f"The gradient is {source}, not the derivative. Where the op is traced through instead of "
        "called (``torch.export``, ``torch.compile`` of ``torch.func.grad``), PyTorch uses the "
        "derivative of the forward."
    )


def _arguments(spec: OpSpec) -> list[str]:
    described = [(item, _description(spec, item)) for item in spec.inputs]
    if not any(text for _, text in described):
        return []
    lines = ["", "Args:"]
    for item, text in described:
        lines += textwrap.wrap(
            f"{item.name}: {text or 'tensor.'}",
            WIDTH - 4,
            initial_indent="    ",
            subsequent_indent="        ",
        )
    return lines


def _description(spec: OpSpec, item: Input) -> str:
    if isinstance(item, Attribute):
        return "Constant." if any(tensor.dims for tensor in spec.tensors) else ""
    if item.dims is None:
        return ""
    kinds = {
        "int": "integer ",
        "bool": "boolean ",
        "complex": "complex ",
        "index": "long ",
    }
    noun = "tensors" if item.variadic else "tensor"
    words = f"{kinds.get(item.dtype, '')}{noun} of shape ``{shape(item.dims)}``"
    below = f", below {item.bound}" if item.dtype == "index" else ""
    absent = ", or None" if item.optional else ""
    return f"{words[0].upper()}{words[1:]}{below}{absent}."


def shape(dims: tuple[Dim, ...]) -> str:
    """A shape as Python writes it, `...` for leading dimensions."""
    listed = ", ".join(str(dim) for dim in dims)
    return f"({listed},)" if len(dims) == 1 else f"({listed})"


def _returns(spec: OpSpec) -> list[str]:
    if not any(output.dims for output in spec.outputs) and len(spec.outputs) == 1:
        return []
    named = [_returned(output) for output in spec.outputs]
    return [
        "",
        "Returns:",
        *textwrap.wrap(
            ", ".join(named) + ".",
            WIDTH - 4,
            initial_indent="    ",
            subsequent_indent="    ",
        ),
    ]


def _returned(output: Output) -> str:
    dims = f" of shape ``{shape(output.dims)}``" if output.dims else ""
    constant = "" if output.differentiable else " (no gradient)"
    return f"``{output.name}``{dims}{constant}"
