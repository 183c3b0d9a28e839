"""Keys inferred from the others: imports of NumPy, outputs, changed inputs, surrogates, the input of a sole gradient.

So a user may write `--forward 'x * 2, x > 0'` without naming its outputs. `specification` calls it around `build`.
In: the keys of an op as given. Out: the keys with the inferred ones, and a note for each.
Invariant: no stated key is changed; if two readings are possible, neither is taken, and the error that follows explains it.

Words: *raw* are the keys of an op, key -> value; a *stated* gradient is a formula of the user's; *surrogate* marks it as meant to
differ from the derivative; *dirty* inputs are changed in place.
"""

import ast
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from scaffold.derive import derive, zero_gradients
from scaffold.errors import Location, ScaffoldError
from scaffold.formula import Formula, Node, Scope, Text, Trace, emit
from scaffold.formula.operators import ARRAYS
from scaffold.formula.program import program_of
from scaffold.primitives.calls import is_constant
from scaffold.spec import OpSpec
from scaffold.spec.maths import read_reference
from scaffold.spec.problems import Locate
from scaffold.spec.signature import parse_inputs

Raw = Mapping[str, Any]
FORMULAS = ("forward", "backward")
_NOWHERE = Location("--inputs")  # for errors in inputs parsed only for their names


class Completed(NamedTuple):
    """The keys of an op with the inferred ones, and notes on these."""

    raw: Raw
    notes: tuple[str, ...] = ()


# --- Before the specification is built.


def completed(raw: Raw, locate: Locate, read: Callable[[str], str]) -> Completed:
    """Return the keys with three inferred ones: imports of NumPy, names of outputs, and the input of a gradient stated without one.

    `--grad 'grad_output * 2'` of an op with one differentiable input `x` is the gradient of `x`.
    """
    notes = list[str]()
    found = dict(raw)
    if numpy := _numpy(raw):
        found["import"] = [*raw.get("import", ()), *numpy]
    if (sole := _sole_gradient(raw)) is not None:
        found["grad"] = {sole: raw["grad"][""]}
        notes.append(f"the gradient is taken for that of {sole}")
    outputs = _outputs(found, locate, read)
    if outputs is not None:
        found["outputs"] = outputs
        notes.append(f"outputs taken from the forward: {outputs}")
    return Completed(found, tuple(notes))


def _numpy(raw: Raw) -> list[str]:
    """Return imports, `numpy as np`, for NumPy's usual names the formulas read and nothing else defines.

    [] unless a gradient is stated, or a formula calls `x.numpy()`: NumPy's functions have no rules to derive one by.
    """
    stated = [raw[key] for key in FORMULAS if isinstance(raw.get(key), str)]
    stated += dict(raw.get("grad", {})).values()
    trees = [tree for tree in map(_tree, stated) if tree is not None]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    # Then NumPy is meant, as no gradient has to be derived through it.
    no_rule = raw.get("grad") or raw.get("backward") or "numpy" in attributes
    known = re.findall(r"\w+", f"{raw.get('import')} {raw.get('inputs')}")
    wanted = names - {*known} if no_rule else ()
    return [item for name, item in ARRAYS.items() if name in wanted]


def _tree(text: str) -> ast.Module | None:
    """Return the syntax tree of a text; None if it is not Python."""
    try:
        return ast.parse(text.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _sole_gradient(raw: Raw) -> str | None:
    """Return the only differentiable input, if a sole gradient is stated without its name (the key ""); None otherwise."""
    # "" is the key of a `--grad` without a name; beside others it is an error, reported later.
    if [*raw.get("grad", {})] != [""] or not isinstance(raw.get("inputs"), str):
        return None
    try:
        inputs = parse_inputs(raw["inputs"], _NOWHERE)
    except ScaffoldError:
        return None
    names = [item.name for item in inputs if getattr(item, "differentiable", False)]
    return names[0] if len(names) == 1 else None


def _outputs(raw: Raw, locate: Locate, read: Callable[[str], str]) -> str | None:
    """Return a value of the key `outputs`, `y, mask`, for a forward that ends with a tuple of two or more; None for any other.

    None also if the outputs are stated. `locate` finds the place of the forward, `read` reads a file it may name.
    """
    stated = raw.get("forward")
    if {"outputs", "schema"} & raw.keys() or not isinstance(stated, str):
        return None
    place = locate(("forward",))
    try:
        text = Text(stated, place)
        if stated.lstrip().startswith("@"):
            text = read_reference(stated, "forward", place, read).text
        body = program_of(text, Scope(frozenset())).body
    except ScaffoldError:
        return None  # the error is reported when the forward is read
    last = body[-1] if body else None
    if not isinstance(last, ast.Return | ast.Expr):
        return None
    match last.value:
        # A tuple of one, `return y,`, is one output: its name need not be inferred.
        case ast.Tuple([_, _, *_] as items):
            return ", ".join(_output_names(items, _inputs_of(raw)))
    return None


def _inputs_of(raw: Raw) -> frozenset[str]:
    """Return the names of the stated inputs, which no output may have; none if they are missing or invalid (reported later)."""
    try:
        return frozenset(item.name for item in parse_inputs(raw["inputs"], _NOWHERE))
    except (ScaffoldError, KeyError):
        return frozenset()


def _output_names(items: Iterable[ast.expr], taken: Collection[str]) -> list[str]:
    """Return names for the values of a returned tuple: their own if all are distinct names and none is `taken` by an input; else y1, y2."""
    values = list(items)
    names = [item.id for item in values if isinstance(item, ast.Name)]
    # One that is no name (`x * 2`), a name twice, or an input's: then none has its own.
    own = len(set(names)) == len(values) and not {*names} & {*taken}
    return names if own else [f"y{at}" for at, _ in enumerate(values, 1)]


# --- After the specification is built.


def meant(spec: OpSpec, raw: Raw) -> Completed:
    """Return the keys with a further one that the built op implies, `dirty` or `surrogate`, if it is not stated; and a note on it.

    The caller builds the op again with it. An op named like `relu_` changes inputs in place (`dirty`); stated gradients of inputs
    whose derivative is zero everywhere, as that of `round`, are surely meant to differ from it (`surrogate`).
    """
    # A forward kept as written is not understood: nothing can be inferred from it.
    if spec.forward is None or spec.forward.kept is not None:
        return Completed(raw)
    _refuse_caret(spec, spec.forward)
    changed = _changed(spec, spec.forward) if _names_a_change(spec) else ()
    if changed:
        names = ", ".join(changed)
        note = (
            f"{spec.name} changes {names} in place, as its name says: --dirty {names}"
        )
        return Completed({**raw, "dirty": [*changed]}, (note,))
    stated = _constant(spec) if "surrogate" not in raw else ()
    if stated:
        names = " and ".join(stated)
        what = "a surrogate" if len(stated) == 1 else "surrogates"
        note = f"the derivative by {names} is zero everywhere: the stated gradient counts as {what} (--surrogate)"
        return Completed({**raw, "surrogate": True}, (note,))
    return Completed(raw)


def as_surrogate(spec: OpSpec, raw: Raw, build: Callable[[Raw], OpSpec]) -> OpSpec:
    """Return an op read from a manifest with its stated gradients as a surrogate, if the derivatives are zero everywhere, else as it is.

    `raw` are its keys, `build` makes an op of changed ones.
    """
    known = "surrogate" in raw or spec.forward is None or spec.forward.kept is not None
    # Of a kept forward no derivative is known.
    return spec if known or not _constant(spec) else build({**raw, "surrogate": True})


def _refuse_caret(spec: OpSpec, formula: Formula) -> None:
    """Raise ScaffoldError if a formula has `x ^ 2` of a differentiable input: in Python a bitwise xor, where a power is meant."""
    floating = {item.name for item in spec.differentiable}
    for node in formula.nodes():
        if node.kind == "binary" and node.label == "^":
            names = [one.label for one in node.args if one.kind == "name"]
            # `a ^ b` of two names may be masks; with a number a power is meant.
            if floating & {*names} and any(one.kind == "constant" for one in node.args):
                one, two = map(emit, node.args)
                message = f"'{one} ^ {two}' is a bitwise xor, not a power"
                raise ScaffoldError(message, formula.location, f"write: {one}**{two}")


def _names_a_change(spec: OpSpec) -> bool:
    """Return whether the op is named like PyTorch's in-place functions, `relu_`, and no changed input is stated."""
    return spec.name.endswith("_") and not spec.dirty


def _changed(spec: OpSpec, formula: Formula) -> tuple[str, ...]:
    """Return the tensor inputs whose memory the forward changes in place, `x.add_(1)`, itself or a view of it."""
    changed = Trace(formula.lines()).changed_outside
    return tuple(item.name for item in spec.tensors if item.name in changed)


def _constant(spec: OpSpec) -> tuple[str, ...]:
    """Return the inputs with a stated gradient, if the forward's derivative by each of them is zero everywhere; () otherwise.

    The stated gradient of `torch.round(x)` then differs from the derivative on purpose, and counts as a surrogate. Deriving takes
    time: so only a forward with a flat function is derived at all, without its stated gradients.
    """
    stated = tuple(dict(spec.gradients))
    # A stated backward is the gradient of all of them.
    if spec.backward is not None:
        stated = tuple(item.name for item in spec.differentiable)
    assert spec.forward is not None
    if not stated or not any(map(_is_flat, spec.forward.nodes())):
        return ()
    try:
        alone = derive(replace(spec, gradients=(), backward=None, derive=True))
    except ScaffoldError:
        return ()
    return stated if {*stated} <= zero_gradients(alone) else ()


def _is_flat(node: Node) -> bool:
    """Return whether a node of a formula is a comparison or a call whose gradient is zero wherever it has one: `round(x)`, `x > 0`."""
    called = node.kind == "call" and node.args[0].kind == "attribute"
    # `x is None` compares no elements.
    compared = node.kind == "compare" and node.label not in ("is", "is not")
    return compared or called and is_constant(node.args[0].label)
