"""The inputs and outputs of an op, from whichever keys state them.

Second step of `build`, after the check of the keys: the formulas need the names. In: `inputs`, `outputs`, `schema`, `optional`,
`nondiff`, `dirty` and `test-shapes` of a raw mapping. Out: an `Arguments`. Invariant: every name in a list is an input of the
right kind.

Words: an *entry* is one input or output as written, not yet checked (`grammar`); *raw* are the keys of the op; *dirty* inputs
are changed in place by the forward; a *trait* is a word after `;` in `x[N; const]`.
"""

from collections.abc import Container, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from scaffold.errors import ScaffoldError, did_you_mean, raise_all
from scaffold.spec.config_values import Convention, Shapes, conventional_shapes
from scaffold.spec.grammar import Entry, Trait, Words, parse_entries
from scaffold.spec.op_spec import ANY_DIMS, Attribute, Dim, Input, Output, TensorInput
from scaffold.spec.problems import KeyPath, Problems
from scaffold.spec.signature import (
    dim_problems,
    leading_problems,
    read_dims,
    read_inputs,
    read_outputs,
)

if TYPE_CHECKING:
    from scaffold.spec.torch_schema import Schema

Raw = Mapping[str, Any]
Entries = tuple[Entry, ...]


class Arguments(NamedTuple):
    """The inputs and outputs of an op, the inputs its forward changes in place, and shapes for tests alone."""

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    dirty: tuple[str, ...]
    test_shapes: Shapes = ()  # of inputs without a declared shape

    @property
    def tensors(self) -> tuple[TensorInput, ...]:
        return tuple(item for item in self.inputs if isinstance(item, TensorInput))

    def conventional(self, conventions: Sequence[Convention]) -> Shapes:
        """Return the usual shapes of inputs declared without one, by the first matching convention: `input, weight` get a linear map's.

        Inputs with a shape for tests match none.
        """
        return conventional_shapes(self.inputs, conventions, dict(self.test_shapes))


def read_arguments(raw: Raw, problems: Problems) -> Arguments | None:
    """Return the op's inputs and outputs; None if they cannot be read, with the problems reported."""
    schema = _schema(raw, problems)
    # It is stated but invalid, which is reported.
    if schema is None and "schema" in raw:
        return None
    entries = _input_entries(raw, schema, problems)
    results = _output_entries(raw, schema, problems)
    if entries is None or results is None:
        return None
    entries, results = _marked(entries, results, raw, problems)
    inputs = problems.attempt(lambda: read_inputs(entries))
    outputs = problems.attempt(lambda: read_outputs(results))
    if inputs is None or outputs is None:
        return None
    # Each input changed in place, with the place that says so.
    in_schema = dict.fromkeys(schema.dirty if schema else (), ("schema",))
    stated: dict[str, KeyPath] = {**in_schema, **_places_in("dirty", raw)}
    dirty = _dirty(stated, inputs, problems)
    _check_outputs(entries, results, set(dirty), raw, problems)
    if len(outputs) > 1:
        # Reported once, for the first of them.
        for name in dirty[:1]:
            message = f"'{name}' is changed in place, so the op has one output"
            hint = "autograd refuses several where the input is a view"
            problems.at(stated[name], message, hint)
    return Arguments(inputs, outputs, dirty, _test_shapes(raw, inputs, problems))


def _schema(raw: Raw, problems: Problems) -> "Schema | None":
    """Return the parsed key `schema`, the signature of a registered op; None if it is not stated or invalid (reported)."""
    text = raw.get("schema")
    if text is None:
        return None
    from scaffold.spec.torch_schema import parse_schema  # few ops have one

    return problems.attempt(lambda: parse_schema(text, problems.within(("schema",))))


def _entries(key: str, raw: Raw, problems: Problems) -> Entries | None:
    """Return the entries in the text of a key, `inputs` or `outputs`; report a text that has other forms and give None."""
    place = problems.within((key,))
    return problems.attempt(lambda: parse_entries(raw[key], place))


def _input_entries(
    raw: Raw, schema: "Schema | None", problems: Problems
) -> Entries | None:
    """Return the entries of the inputs, from `inputs` or a schema or both; None if there are none or they are invalid (reported)."""
    if "inputs" not in raw:
        if schema is not None:
            return schema.inputs
        hint = "name them in the order of the call: 'x, weight, bias?'"
        problems.at(("inputs",), "the op has no inputs", hint)
        return None
    shown = _entries("inputs", raw, problems)
    if schema is None or shown is None:
        return shown
    return problems.attempt(lambda: _with_shapes(schema.inputs, shown))


def _with_shapes(declared: Entries, shown: Entries) -> Entries:
    """Return the inputs of a schema with the shapes and traits the key `inputs` adds: a schema has none of its own.

    `declared` are the inputs of the schema, `shown` those of the key, perhaps fewer. Raise for an unknown name in the latter, and
    for a type, a default or a `?` other than the schema's.
    """
    known = {entry.name.text: entry for entry in declared}
    problems = []
    for entry in shown:
        name = entry.name
        if name.text not in known:
            hint = did_you_mean(name.text, known) or f"it has: {', '.join(known)}"
            message = f"the schema has no argument '{name.text}'"
            problems.append(ScaffoldError(message, name.place, hint))
            continue
        problems += _contradiction(entry, known[name.text])
        known[name.text] = known[name.text]._replace(
            dims=entry.dims, traits=entry.traits
        )
    raise_all(problems)
    return tuple(known.values())


def _contradiction(shown: Entry, declared: Entry) -> list[ScaffoldError]:
    """Return the problem of an input that contradicts the schema, in a list; [] if it only adds a shape and traits.

    `shown` is the input as the key `inputs` has it, `declared` as the schema has it.
    """
    name = shown.name
    hint = "with a schema, 'inputs' adds only shapes and traits: 'x[..., D], mask[N; bool]'"
    # `bias = None` in `inputs` is a tensor that may be None, and states no default of its own.
    if shown.annotation or (shown.default and not shown.tensor):
        message = f"the type and the default of '{name.text}' are the schema's"
    elif (shown.optional or shown.default) and not declared.optional:
        message = f"'{name.text}' is not optional in the schema"
    elif shown.variadic and not declared.variadic:
        message = f"'{name.text}' is one tensor in the schema"
    elif not declared.tensor and (shown.dims is not None or shown.traits):
        message = f"'{name.text}' is not a tensor in the schema"
    else:
        return []
    return [ScaffoldError(message, name.place, hint)]


def _output_entries(
    raw: Raw, schema: "Schema | None", problems: Problems
) -> Entries | None:
    """Return the outputs of the key `outputs`, else a schema's, else one called `output`; None if they are invalid (reported).

    With a schema the key may rename them and add shapes, but there must be as many, with a star at the same ones.
    """
    declared = schema.outputs if schema else None
    if "outputs" not in raw:
        return declared or (Entry(Words("output", problems.within(("outputs",)))),)
    shown = _entries("outputs", raw, problems)
    if shown is None or declared is None:
        return shown
    # The lists also differ if there are more or fewer.
    if [entry.variadic for entry in shown] != [entry.variadic for entry in declared]:
        names = [("*" if one.variadic else "") + one.name.text for one in declared]
        message = "'outputs' does not fit the schema"
        hint = f"the schema returns: {', '.join(names)}"
        problems.at(("outputs",), message, hint)
        return None
    return shown


def _marked(
    entries: Entries, results: Entries, raw: Raw, problems: Problems
) -> tuple[Entries, Entries]:
    """Return the inputs (`entries`) and outputs (`results`) with what the keys `optional` and `nondiff` say of them.

    `optional = ["bias"]` is the same as `bias?`, `nondiff = ["mask"]` as `mask[; const]`.
    """
    optional = _listed("optional", entries, raw, problems)
    nondiff = _listed("nondiff", (*entries, *results), raw, problems)

    def mark(entry: Entry) -> Entry:
        """Return an entry with the trait `const` if the list `nondiff` names it."""
        path = nondiff.get(entry.name.text)
        if path is None:
            return entry
        const = Trait(Words("const", problems.within(path)))
        return entry._replace(traits=(*entry.traits, const))

    named = (
        entry._replace(optional=True) if entry.name.text in optional else entry
        for entry in entries
    )
    return tuple(map(mark, named)), tuple(map(mark, results))


def _listed(
    key: str, entries: Entries, raw: Raw, problems: Problems
) -> dict[str, KeyPath]:
    """Return the tensors named in the list of a key, such as `nondiff`, each with its place in the list; report other names.

    `entries` are the inputs (and outputs) of the op; of two with one name, an input and an output, the first counts.
    """
    known = {entry.name.text: entry for entry in reversed(entries)}
    found: dict[str, KeyPath] = {}
    for position, name in enumerate(raw.get(key, ())):
        path = (key, str(position))
        if name not in known:
            hint = did_you_mean(name, known)
            listed = ", ".join(entry.name.text for entry in entries)
            what = "an input or output" if key == "nondiff" else "an input"
            problems.at(path, f"'{name}' is not {what}", hint or f"known: {listed}")
        elif not known[name].tensor:
            hint = "leave it out: only tensors can be listed here"
            problems.at(path, f"'{name}' is an attribute, not a tensor", hint)
        else:
            found[name] = path
    return found


def tensor_names(
    key: str, inputs: Sequence[Input], raw: Raw, problems: Problems
) -> tuple[str, ...]:
    """Return the inputs named in the list of a key, such as `params`; report names of anything but a single tensor."""
    return _tensors(key, _places_in(key, raw), inputs, problems)


def _places_in(key: str, raw: Raw) -> dict[str, KeyPath]:
    """Return the names in the list of a key, each with the path to its place there; of a repeated one the last place."""
    return {name: (key, str(at)) for at, name in enumerate(raw.get(key, ()))}


def _tensors(
    key: str, paths: Mapping[str, KeyPath], inputs: Sequence[Input], problems: Problems
) -> tuple[str, ...]:
    """Return the valid names in a list of the op, such as `params`, in order; report the others at their places.

    Valid are tensor inputs, except `*xs`. `paths` maps each name to its place, `key` is the list's key, for the message.
    """
    known = {item.name: item for item in inputs}
    found = []
    for name, path in paths.items():
        item = known.get(name)
        if item is None:
            hint = did_you_mean(name, known) or f"the inputs: {', '.join(known)}"
            problems.at(path, f"'{name}' is not an input", hint)
        elif isinstance(item, Attribute):
            hint = "leave it out: only tensors can be listed here"
            problems.at(path, f"'{name}' is an attribute, not a tensor", hint)
        elif item.variadic:
            message = f"'*{name}' is any number of tensors: '{key}' takes single ones"
            problems.at(path, message)
        else:
            found.append(name)
    return tuple(found)


def _test_shapes(raw: Raw, inputs: Sequence[Input], problems: Problems) -> Shapes:
    """Return the shapes for tests of inputs declared without: `x[B, D]; D % 2 == 0`, its condition left to `maths`; report other forms."""
    if "test-shapes" not in raw:
        return ()
    path = ("test-shapes",)
    if "samples" in raw:
        problems.at(path, "'samples' makes the inputs of the tests", "keep one of them")
    text, _, rest = raw["test-shapes"].partition(";")
    place = problems.within(path)
    # The `;` stands inside brackets, `x[N; int]`: it begins no condition.
    if text.count("[") > text.count("]") and "]" in rest:
        hint = "write traits in --inputs: 'x[; const]'"
        problems.at(path, "a shape of the tests can have only dims, no traits", hint)
        return ()
    entries = problems.attempt(lambda: parse_entries(text, place)) or ()
    known = {item.name: item for item in inputs}
    for problem in dim_problems(entries, set(known), "an input"):
        problems.add(problem)
    found = dict[str, tuple[Dim, ...]]()
    for entry in entries:
        wrong = _test_shape_problem(entry, known, found)
        problems.add(wrong)
        if wrong is None:
            dims = problems.attempt(partial(read_dims, entry.dims or ()))
            if dims is not None:
                found[entry.name.text] = dims
    return tuple(found.items())


def _test_shape_problem(
    entry: Entry, inputs: Mapping[str, Input], others: Container[str]
) -> ScaffoldError | None:
    """Return the error if an entry of `test-shapes` is no shape of an input declared without; `others` have one there already."""
    name, item = entry.name, inputs.get(entry.name.text)
    hint = "write: 'x[B, T, D], w[D, N]'"
    if item is None:
        message = f"'{name.text}' is not an input"
        hint = did_you_mean(name.text, inputs) or f"the inputs: {', '.join(inputs)}"
    elif isinstance(item, Attribute):
        message = f"'{name.text}' is an attribute, not a tensor"
    # An input declared `x[...]` says as little as `x`, so the tests may state more.
    elif item.dims not in (None, (ANY_DIMS,)):
        message = f"the shape of '{name.text}' is declared, and the tests use it"
        hint = "leave it out here"
    elif entry.dims is None:
        message = f"'{name.text}' has no shape here"
    elif entry != Entry(name, entry.variadic, dims=entry.dims):
        message = f"'{name.text}' can have only dims here: no '?', type or default"
    elif name.text in others:
        message = f"'{name.text}' occurs twice"
    else:
        return None
    return ScaffoldError(message, name.place, hint)


def _dirty(
    paths: Mapping[str, KeyPath], inputs: Sequence[Input], problems: Problems
) -> tuple[str, ...]:
    """Return the inputs the forward changes in place; report names that are no tensors, or may be None. `paths` has the place of each."""
    known = {item.name: item for item in inputs if isinstance(item, TensorInput)}
    found = _tensors("dirty", paths, inputs, problems)
    for name in found:
        if known[name].optional:
            message = f"'{name}' may be None, so it cannot be changed in place"
            problems.at(paths[name], message)
    return found


def _check_outputs(
    entries: Entries, results: Entries, dirty: set[str], raw: Raw, problems: Problems
) -> None:
    """Report outputs, or dims of outputs, with the name of an input, and leading dims in outputs no input has.

    `entries` are the inputs, `results` the outputs. An input changed in place (`dirty`) may be an output: it is returned.
    """
    names = {entry.name.text for entry in entries}
    for problem in (
        *dim_problems(results, names, "an input"),
        *leading_problems(results, entries),
    ):
        problems.add(problem)
    for name in (entry.name for entry in results):
        if name.text in names - dirty:
            message = f"'{name.text}' is the name of an input and of an output"
            stated = "outputs" in raw or "schema" in raw
            hint = "give one of them another name"
            hint = hint if stated else "name the output: outputs = 'result'"
            problems.add(ScaffoldError(message, name.place, hint))
