"""Docstrings of generated code.

In: an `OpSpec` (what the user asked for: inputs, outputs, the forward as text, `doc`, a description) and its `Derivation` (what the
compiler made of it). Out: lines, not yet indented. Invariant: whatever the user's text holds, the docstring stays one string.
"""

import re
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from scaffold.derive import Derivation
from scaffold.formula import Formula, emit
from scaffold.render.formatting import format_source
from scaffold.render.second_order import second_order_note
from scaffold.spec import Attribute, Dim, Input, OpSpec, Output
from scaffold.spec.config_keys import Docstrings

# --- Paragraphs of docstrings, and the quotes around them.
#
# In: a text. Out: lines. Invariant: whatever the text holds, the docstring stays one string.


INDENT = "    "
QUOTES = r"\"\"\""
WIDTH = 84  # a line without its indentation
ONE_LINE = WIDTH - 6  # and without the quotes, if they share the line
CONSTANTS = {
    "bool": "Flag.",
    "float": "Float.",
    "int": "Integer.",
    "str": "String.",
}  # by annotation


def quoted(lines: list[str]) -> str:
    """Quote lines as a docstring: on one line if there is one, else with the closing quotes on their own line."""
    text = _escaped("\n".join(lines))
    # A quote at the end would run into the closing ones.
    if len(lines) == 1 and len(text) <= ONE_LINE and not text.endswith('"'):
        return f'"""{text}"""'
    return f'"""{text}\n"""'


def wrapped(text: str, indent: str = "", more: str | None = None) -> list[str]:
    """Wrap a paragraph into lines, without breaking words; the first is indented by `indent`, the others by `more` (None: alike).

    Quotes and backslashes are escaped for the count, since they stand so in the file; `quoted` escapes the result again.
    """
    lines = textwrap.wrap(
        _escaped(text),  # as wide as it will stand in the file
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent if more is None else more,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(QUOTES, '"""').replace("\\\\", "\\") for line in lines]


def first_paragraph(text: str) -> list[str]:
    """Wrap a paragraph beginning beside the opening quotes, which leave less room in its first line."""
    # Three blanks in place of the opening quotes.
    lines = wrapped(" ".join(text.split()), "   ", "")
    return [lines[0].lstrip(), *lines[1:]]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"""', QUOTES)


# --- The sections of a docstring listing values, in the team's convention.
#
# In: names of values with their descriptions. Out: lines. Invariant: the three conventions say the same.


class Described(NamedTuple):
    """A value with its description."""

    name: str
    words: str  # a sentence; of a returned value only its end: " of shape ``(N,)``"


def section_lines(
    arguments: Sequence[Described],
    returned: Sequence[Described],
    convention: Docstrings,
) -> list[str]:
    """Return the sections for arguments and returned values in the team's convention; a section without values is left out."""
    sections = {"google": _google, "numpy": _numpy, "sphinx": _sphinx}
    return sections[convention](arguments, returned)


def _google(arguments: Sequence[Described], returned: Sequence[Described]) -> list[str]:
    """Return the sections in Google's style, `Args:` and `Returns:`."""
    lines = ["", "Args:"] if arguments else []
    for name, words in arguments:
        lines += wrapped(f"{name}: {words}", INDENT, 2 * INDENT)
    if returned:
        lines += ["", "Returns:", *wrapped(_listed(returned), INDENT)]
    return lines


def _numpy(arguments: Sequence[Described], returned: Sequence[Described]) -> list[str]:
    """Return the sections in NumPy's style, with underlined titles."""
    lines: list[str] = []
    sentences = [Described(name, f"Tensor{words}.") for name, words in returned]
    for title, values in (("Parameters", arguments), ("Returns", sentences)):
        lines += ["", title, "-" * len(title)] if values else []
        for name, words in values:
            lines += [name, *wrapped(words, INDENT)]
    return lines


def _sphinx(arguments: Sequence[Described], returned: Sequence[Described]) -> list[str]:
    """Return the fields `:param x:` and `:returns:`."""
    lines = [""] if arguments or returned else []
    for name, words in arguments:
        lines += wrapped(f":param {name}: {words}", "", INDENT)
    if returned:
        lines += wrapped(f":returns: {_listed(returned)}", "", INDENT)
    return lines


def _listed(returned: Sequence[Described]) -> str:
    """Return a sentence listing the returned values."""
    return ", ".join(f"``{name}``{words}" for name, words in returned) + "."


# --- Docstrings of generated code.


def wrapper_docstring(
    spec: OpSpec, derivation: Derivation, convention: Docstrings
) -> str:
    """Return the wrapper's docstring: the computation, notes on the gradient, and the shapes."""
    body = [*_summary(spec), *_formula(spec), *_notes(spec, derivation)]
    sections = section_lines(_arguments(spec), _returned(spec), convention)
    return quoted([*body, *sections])


def _summary(spec: OpSpec) -> list[str]:
    """Return the user's paragraphs; else the forward, if it is short; else a sentence with the op's name."""
    if spec.doc and spec.doc.strip():
        first, *rest = (part for part in re.split(r"\n\s*\n", spec.doc) if part.strip())
        lines = first_paragraph(first)
        for paragraph in rest:
            lines += ["", *wrapped(" ".join(paragraph.split()))]
        return lines
    return [_computed(spec) or f"Apply {spec.name}."]


def _computed(spec: OpSpec) -> str | None:
    """Return a line with the forward, if it is one short expression; else None."""
    if spec.forward is None or spec.forward.statements:
        return None
    text = spec.forward.text.removeprefix("return").strip()
    line = f"Compute ``{text}``."
    # Several lines, or a line with a comment, cannot stand inside a sentence.
    return line if len(line) <= ONE_LINE and not {"\n", "#"} & set(text) else None


def _formula(spec: OpSpec) -> list[str]:
    """Return the forward as the user wrote it, or reformatted if a line is too long; [] if the summary already shows it."""
    if spec.forward is None or (not spec.doc and _computed(spec)):
        return []
    lines = spec.forward.text.splitlines()
    joined = len(lines) == 1 and spec.forward.statements  # by `;`
    if joined or any(len(line) > WIDTH - len(INDENT) for line in lines):
        lines = _formatted(spec.forward).splitlines()
    return ["", "Computes::", "", *(f"{INDENT}{line}".rstrip() for line in lines)]


def _formatted(formula: Formula) -> str:
    """Return the user's code with long lines broken; an expression gets a `return`, as the formatter breaks no bare one."""
    # A forward kept as the user wrote it has its whole text as the label of its result.
    if formula.kept is not None and formula.result is not None:
        return format_source(formula.result.label, WIDTH - len(INDENT))
    bare = not formula.statements and not formula.text.startswith("return")
    code = f"return {formula.text}" if bare else formula.text
    return format_source(code, WIDTH - len(INDENT))


def _notes(spec: OpSpec, derivation: Derivation) -> list[str]:
    """Return the notes of a docstring: conditions, inputs changed in place, no second derivative, a gradient other than the derivative."""
    notes = []
    conditions = [f"``{emit(one.result)}``" for one in spec.require if one.result]
    if conditions:
        notes.append(f"Requires {', '.join(conditions)}.")
    if spec.dirty:
        notes.append(
            f"Changes {' and '.join(f'``{name}``' for name in spec.dirty)} in place."
        )
    if derivation.once_differentiable:
        reason = f" ({' '.join(spec.reason.split())})" if spec.reason else ""
        notes.append(f"Once differentiable{reason}: {second_order_note(derivation)}.")
    if spec.surrogate:
        notes.append(_surrogate_note(spec))
    return [line for note in notes for line in ("", *wrapped(note))]


def _surrogate_note(spec: OpSpec) -> str:
    """Return the sentence on a gradient other than the derivative, with the formula of the surrogate if it is one line."""
    assert spec.surrogate is not None
    stated = spec.surrogate.forward
    source = (
        f"that of ``{stated.text}``"
        if stated and "\n" not in stated.text
        else "a surrogate"
    )
    said = f"The gradient is {source}, not the derivative."
    if spec.is_library:
        return said
    return (
        f"{said} Where the op is traced through instead of called (``torch.export``, ``make_fx``, "
        "``torch.compile`` of ``torch.func.grad``), PyTorch uses the derivative of the forward."
    )


def _arguments(spec: OpSpec) -> list[Described]:
    """Return descriptions of the inputs; none if no shape is declared, as there is nothing to tell then."""
    if all(tensor.dims is None for tensor in spec.tensors):
        return []
    return [Described(item.name, _description(item)) for item in spec.inputs]


def _description(item: Input) -> str:
    """Return the description of an input: "Integer tensor of shape ``(N,)``, or None."."""
    if isinstance(item, Attribute):
        return CONSTANTS.get(item.annotation, "Constant.")
    if item.dims is None:
        return "Tensor, or None." if item.optional else "Tensor."
    kinds = {
        "int": "integer ",
        "bool": "boolean ",
        "complex": "complex ",
        "index": "long ",
    }
    noun = "tensors" if item.variadic else "tensor"
    words = f"{kinds.get(item.dtype, '')}{noun} of shape ``{shape(item.dims)}``"
    below = f", below {item.bound}" if item.dtype == "index" else ""
    # Only of a float is it worth saying: integers and masks never have one.
    constant = " without a gradient" if item.dtype == "float" and item.const else ""
    absent = f"{constant}, or None" if item.optional else constant
    return f"{words[0].upper()}{words[1:]}{below}{absent}."


def shape(dims: tuple[Dim, ...]) -> str:
    """Return a shape as Python writes it, with `...` or `*batch` for leading dimensions."""
    listed = ", ".join(str(dim) for dim in dims)
    return f"({listed},)" if len(dims) == 1 else f"({listed})"


def _returned(spec: OpSpec) -> list[Described]:
    """Return descriptions of the outputs; none for a single output of unknown shape."""
    if not any(output.dims for output in spec.outputs) and len(spec.outputs) == 1:
        return []
    return [Described(output.name, _traits(output)) for output in spec.outputs]


def _traits(output: Output) -> str:
    """Return the words after an output's name: its shape, and whether it lacks a gradient."""
    dims = f" of shape ``{shape(output.dims)}``" if output.dims else ""
    constant = "" if output.differentiable else " (no gradient)"
    return f"{dims}{constant}"
