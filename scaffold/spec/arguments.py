"""The inputs and outputs of an op, from whichever keys state them.

In: `inputs`, `outputs`, `schema`, `optional`, `nondiff` and `dirty` of a raw mapping. Out: an `Arguments`.
Invariant: every name in a list is an input of the right kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from scaffold.errors import did_you_mean
from scaffold.spec.config import Configuration
from scaffold.spec.model import Attribute, Dim, Input, Output, TensorInput
from scaffold.spec.problems import Problems
from scaffold.spec.signature import (
    parse_inputs,
    parse_outputs,
    read_inputs,
    read_outputs,
)
from scaffold.spec.torch_schema import Schema, parse_schema

Shapes = tuple[tuple[str, tuple[Dim, ...]], ...]


@dataclass(frozen=True, slots=True)
class Arguments:
    """What goes into an op and what comes out."""

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    dirty: tuple[str, ...]

    @property
    def tensors(self) -> tuple[TensorInput, ...]:
        return tuple(item for item in self.inputs if isinstance(item, TensorInput))


def read_arguments(raw: Mapping[str, Any], problems: Problems) -> Arguments | None:
    """The op's inputs and outputs; None where they cannot be read."""
    schema = _schema(raw, problems)
    inputs = _inputs(raw, schema, problems)
    outputs = _outputs(raw, schema, problems)
    if inputs is None or outputs is None:
        return None
    inputs = _marked(inputs, raw, problems)
    stated = [*(schema.dirty if schema else ()), *raw.get("dirty", ())]
    _check_dirty(inputs, outputs, raw, problems)
    return Arguments(inputs, outputs, tuple(dict.fromkeys(stated)))


def _schema(raw: Mapping[str, Any], problems: Problems) -> Schema | None:
    text = raw.get("schema")
    if text is None:
        return None
    return problems.attempt(lambda: parse_schema(text, problems.within(("schema",))))


def _inputs(
    raw: Mapping[str, Any], schema: Schema | None, problems: Problems
) -> tuple[Input, ...] | None:
    text = raw.get("inputs")
    if text is not None and "schema" in raw:
        return _shaped(raw, schema, problems)
    if text is not None:
        return problems.attempt(
            lambda: parse_inputs(text, problems.within(("inputs",)))
        )
    if "schema" in raw:
        return problems.attempt(lambda: read_inputs(schema.inputs)) if schema else None
    hint = "write: inputs = 'x, weight, bias?'"
    problems.at(("inputs",), "the op has no inputs", hint)
    return None


def _shaped(
    raw: Mapping[str, Any], schema: Schema | None, problems: Problems
) -> tuple[Input, ...] | None:
    """The schema's inputs with the shapes and traits that `inputs` adds to them."""
    shown = problems.attempt(
        lambda: parse_inputs(raw["inputs"], problems.within(("inputs",)))
    )
    declared = problems.attempt(lambda: read_inputs(schema.inputs)) if schema else None
    if shown is None or declared is None:
        return None
    shapes = {item.name: item for item in shown if isinstance(item, TensorInput)}
    names = [item.name for item in declared]
    for name in sorted({item.name for item in shown} - set(names)):
        hint = did_you_mean(name, names)
        problems.at(("inputs",), f"the schema has no argument '{name}'", hint)
    return tuple(_with_shape(item, shapes.get(item.name)) for item in declared)


def _with_shape(item: Input, shown: TensorInput | None) -> Input:
    if shown is None or isinstance(item, Attribute):
        return item
    return replace(
        item,
        dims=shown.dims,
        dtype=shown.dtype,
        bound=shown.bound,
        domain=shown.domain,
        const=shown.const,
    )


def _outputs(
    raw: Mapping[str, Any], schema: Schema | None, problems: Problems
) -> tuple[Output, ...] | None:
    text = raw.get("outputs")
    if text is not None:
        return problems.attempt(
            lambda: parse_outputs(text, problems.within(("outputs",)))
        )
    if schema is not None and (schema.named or len(schema.outputs) > 1):
        return problems.attempt(lambda: read_outputs(schema.outputs))
    variadic = schema is not None and any(entry.variadic for entry in schema.outputs)
    return (Output("outputs", variadic=True),) if variadic else (Output("output"),)


def _marked(
    inputs: tuple[Input, ...], raw: Mapping[str, Any], problems: Problems
) -> tuple[Input, ...]:
    """The inputs with what `optional` and `nondiff` say of them."""
    optional = tensor_names("optional", inputs, raw, problems)
    nondiff = tensor_names("nondiff", inputs, raw, problems)

    def mark(item: Input) -> Input:
        if isinstance(item, Attribute):
            return item
        floating = item.dtype in ("float", "complex")
        return replace(
            item,
            optional=item.optional or item.name in optional,
            const=item.const or (floating and item.name in nondiff),
        )

    return tuple(mark(item) for item in inputs)


def tensor_names(
    key: str, inputs: tuple[Input, ...], raw: Mapping[str, Any], problems: Problems
) -> tuple[str, ...]:
    """The names of a list, each of which must be a tensor input that is not variadic."""
    known = {item.name: item for item in inputs}
    found = []
    for position, name in enumerate(raw.get(key, ())):
        item = known.get(name)
        path = (key, str(position))
        if item is None:
            hint = did_you_mean(name, known) or f"the inputs: {', '.join(known)}"
            problems.at(path, f"'{name}' is no input", hint)
        elif isinstance(item, Attribute):
            problems.at(path, f"'{name}' is an attribute, not a tensor")
        elif item.variadic and key != "nondiff":
            problems.at(
                path, f"'*{name}' holds several tensors, which '{key}' does not take"
            )
        else:
            found.append(name)
    return tuple(dict.fromkeys(found))


def _check_dirty(
    inputs: tuple[Input, ...],
    outputs: tuple[Output, ...],
    raw: Mapping[str, Any],
    problems: Problems,
) -> None:
    known = {item.name: item for item in inputs}
    for name in tensor_names("dirty", inputs, raw, problems):
        if getattr(known[name], "optional", False):
            problems.at(
                ("dirty",), f"'{name}' may be None, so it cannot be changed in place"
            )
    if raw.get("dirty") and len(outputs) > 1:
        message = "an op that changes its input in place has one output"
        problems.at(
            ("dirty",), message, "autograd refuses several where the input is a view"
        )
    names = [item.name for item in inputs]
    for output in outputs:
        if output.name in names and output.name not in raw.get("dirty", ()):
            problems.at(
                ("outputs",), f"the output '{output.name}' is called like an input"
            )


def conventional_shapes(
    tensors: tuple[TensorInput, ...], configuration: Configuration
) -> Shapes:
    """Shapes of the first convention that at least two of the tensors belong to, if none declares one."""
    for convention in configuration.conventions:
        shapes = dict(convention)
        here = [item for item in tensors if item.name in shapes]
        if len(here) > 1 and all(item.dims is None for item in here):
            return tuple((item.name, shapes[item.name]) for item in here)
    return ()
