"""Declarations of the inputs and outputs of a hand-written Function.

`adopt` writes them into the op's table: `forward(ctx, x, mask, eps=1e-5)` -> `inputs = "x, mask[...; bool], eps: float = 1e-5"`.

Words: a tensor's *kind* is `int`, `bool` or `const` (floating) if it has no gradient, "" if it has one; a *constant* is a tensor
input without a gradient; an *untold* argument is no tensor, and the text does not tell its type; a Function is *trivial* if its
backward gives no gradient; CODES matches names of indices, labels and lengths, NUMERIC names of floats; USUAL_VALUES has names that
mean the same everywhere, `eps`, `dim`.

In: its facts. Out: the entries of the keys `inputs` and `outputs`. Invariant: an undecidable question raises `Unfit`, and is never
guessed.
"""

import ast
import itertools
import re
from collections.abc import Iterator, Mapping

from scaffold.errors import Location, ScaffoldError
from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Parameter
from scaffold.inspect.trial_inputs import CODES, NUMERIC, USUAL_VALUES
from scaffold.primitives.calls import is_discrete, is_mask, takes_index, takes_mask
from scaffold.spec.names import check_name

TYPES = {"int", "float", "bool", "str"}
ASSUMED = ("float", "int", "bool")  # types to try for an argument of unknown type


class Unfit(ScaffoldError):
    """The reason why a Function cannot be adopted, and the node of its place in the file."""

    def __init__(self, node: ast.AST, reason: str) -> None:
        super().__init__(reason)
        self.node = node


def declared_input(
    facts: Facts, item: Parameter, default: str, known: Mapping[str, str]
) -> str:
    """Return the entry of the key `inputs` for a positional parameter: `x`, `mask[...; bool]?`, `eps: float = 1e-5`.

    `default` is the wrapper's, as text, "" without one. `known` maps inputs to the caller's choice of a kind or type for them,
    one of `choices_of_kinds`: `bool` for a mask, `int` for a number of unknown type.
    """
    annotation = facts.names.resolve(item.annotation) if item.annotation else ""
    default = default or _source(facts, item.default)
    gradient = has_gradient(facts, item)
    if gradient or _is_tensor(facts, item):
        optional = "?" if default == "None" or item.admits_none else ""
        # No kind if it has a gradient; in a trivial Function no input has one.
        plain = gradient or facts.is_trivial
        kind = known.get(item.name) or kinds_of(facts, item)[0]
        return (
            f"{item.name}{optional}" if plain else f"{item.name}[...; {kind}]{optional}"
        )
    kind = annotation if annotation in TYPES else _type_of(default)
    # Nothing states the type; an annotation such as `Config` does, so it stays an object.
    if kind == "object" and not annotation and not default:
        kind = known.get(item.name) or type_by_name(item.name)
    assigned = f" = {default}" if default else ""
    return f"{item.name}: {kind}{assigned}"


def has_gradient(facts: Facts, item: Parameter) -> bool:
    """Return whether an input gets a gradient: by the returns of backward, else if it is taken for a tensor.

    It is taken for one without a type and a default, unless its name is one of a number or an index: `eps`, `alpha`, `labels`.
    """
    known = facts.has_gradient(item.name)
    if known is not None:
        return known
    is_number = type_by_name(item.name) != "object" or CODES.search(item.name)
    return item.is_bare and not is_number or _is_tensor(facts, item)


def choices_of_kinds(facts: Facts) -> Iterator[Mapping[str, str]]:
    """Yield combinations of kinds for tensors without a gradient, `{"mask": "bool", "index": "int"}`, likeliest first.

    `adopt` tries them in this order until the op does as the Function. Before them come the likeliest kinds together with types
    for the arguments of unknown type (`untold`): all of them floats, then ints, then bools.
    """
    items = [item for item in facts.inputs if is_constant(facts, item)]
    kinds = [kinds_of(facts, item) for item in items]
    names = [item.name for item in items]
    untold = [item.name for item in facts.inputs if is_untold(facts, item)]
    for assumed in ASSUMED if untold else ():
        likeliest = dict(zip(names, (each[0] for each in kinds), strict=True))
        yield likeliest | dict.fromkeys(untold, assumed)
    for chosen in itertools.product(*kinds):
        yield dict(zip(names, chosen, strict=True))


def is_untold(facts: Facts, item: Parameter) -> bool:
    """Return whether an argument is no tensor and of unknown type: no annotation, no default, no name with a fixed meaning (`eps`)."""
    bare = item.passing == "positional" and item.is_bare
    tensor = has_gradient(facts, item) or _is_tensor(facts, item)
    return bare and not tensor and type_by_name(item.name) == "object"


def is_constant(facts: Facts, item: Parameter) -> bool:
    """Return whether an input is a tensor without a gradient, though others have one: a mask, an index."""
    # If backward is trivial no input has a gradient.
    may_be = item.passing == "positional" and not facts.is_trivial
    return may_be and not has_gradient(facts, item) and _is_tensor(facts, item)


def _is_tensor(facts: Facts, item: Parameter) -> bool:
    """Return whether an input is a tensor, by its annotation or its uses.

    `x[index]` and `~mask` tell it only of an input named like an index or a mask: an int may be an index too.
    """
    if "Tensor" in item.type or facts.is_tensor(item.name):
        return True
    forward, code = facts.function.forward, CODES.search(item.name)
    named_so = item.is_bare and (code or "mask" in item.name)
    return bool(named_so and forward and any(_uses(forward.node, item.name)))


def kinds_of(facts: Facts, item: Parameter) -> tuple[str, ...]:
    """Return the kinds a tensor without a gradient may have, likeliest first: ("int", "bool", "const") for an index.

    Its annotation counts first, then its uses, then its name.
    """
    forward = facts.function.forward
    uses = set(_uses(forward.node, item.name)) if forward else set()
    if "Bool" in item.type or "bool" in uses:
        return ("bool", "const", "int")
    if re.search("Long|Int", item.type) or "int" in uses:
        # `x[keep]`: unless named as an index, it may be a mask.
        return ("int", *("bool",) * (not CODES.search(item.name)), "const")
    if "mask" in item.name:
        return ("bool", "const", "int")
    if CODES.search(item.name):
        return ("int", "const", "bool")
    return ("const", "int", "bool")


def _uses(node: ast.AST, name: str) -> Iterator[str]:
    """Yield `int` for each use of a name as an index, `bool` for each as a mask: `x[index]`, `~mask`, `x.masked_fill(mask, 0)`."""

    def is_it(part: ast.expr) -> bool:
        return isinstance(part, ast.Name) and part.id == name

    for inner in ast.walk(node):
        if isinstance(inner, ast.Subscript):
            index = inner.slice
            parts = index.elts if isinstance(index, ast.Tuple) else [index]
            if any(map(is_it, parts)):
                # `x[i]` reads the same for an index and a mask: the name decides.
                yield "bool" if "mask" in name else "int"
        elif isinstance(inner, ast.UnaryOp) and isinstance(inner.op, ast.Invert):
            if is_it(inner.operand):
                yield "bool"
        elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
            given = [*inner.args, *(item.value for item in inner.keywords)]
            if takes_index(inner.func.attr) and any(map(is_it, given)):
                yield "int"
            # Of `x.masked_fill(mask, 0)` the first argument alone is the mask.
            if takes_mask(inner.func.attr) and given and is_it(given[0]):
                yield "bool"


def type_by_name(name: str) -> str:
    """Return the type of a parameter by a name with a fixed meaning, `float` for `eps`, `int` for `dim`; else "object"."""
    if name in USUAL_VALUES:
        return type(ast.literal_eval(USUAL_VALUES[name])).__name__
    return "float" if NUMERIC.fullmatch(name) else "object"


def _source(facts: Facts, node: ast.expr | None) -> str:
    """Return an expression as its author wrote it, "" for None."""
    if node is None:
        return ""
    return ast.get_source_segment(facts.module.text, node) or ""


def _type_of(default: str) -> str:
    """Return the type of a literal default, `float` for "1e-5"; "object" for any other text, and for ""."""
    try:
        value = ast.literal_eval(default) if default else None
    except ValueError:
        value = None
    known = isinstance(value, bool | int | float | str)
    return type(value).__name__ if known else "object"


def declared_outputs(facts: Facts, names: tuple[str, ...]) -> str:
    """Return the value of the key `outputs`, such as `values, indices[...; int]`, for outputs with these names.

    "" for a single `output`, the default of the key.
    """
    # The output of a trivial Function has a kind, so it must be declared.
    if names == ("output",) and not facts.is_trivial:
        return ""
    return ", ".join(
        name if kind == "" else f"{name}[...; {kind}]"
        for name, kind in zip(names, output_kinds(facts, len(names)), strict=True)
    )


def output_kinds(facts: Facts, count: int) -> tuple[str, ...]:
    """Return for each of `count` outputs "" if it has a gradient, else its kind: `int` for positions, as of `topk`, or `const`.

    An output has no gradient if `mark_non_differentiable` names it. Raise Unfit if that is given other expressions than names of
    returned locals.
    """
    marked = facts.marked("mark_non_differentiable")
    if marked is None:
        raise Unfit(
            facts.function.node, "what mark_non_differentiable is given is not named"
        )
    found = []
    for position in range(count):
        names = {_name_at(item.values, position) for item in facts.outputs}
        plain = not (names & marked or facts.is_trivial)
        whole = any(_is_index(facts, name) for name in names)
        found.append("" if plain else "int" if whole else "const")
    # It has one name where it is marked and another where it is returned: `z`, then `return y`.
    if marked and not any(found):
        raise Unfit(facts.function.node, "which output has no gradient cannot be told")
    return tuple(found)


def _name_at(values: tuple[ast.expr, ...] | None, position: int) -> str:
    """Return the name at a position of the values of a return, "" if another expression or none stands there."""
    nodes = (values or ())[position:][:1]
    return "".join(node.id for node in nodes if isinstance(node, ast.Name))


def _is_index(facts: Facts, name: str) -> bool:
    """Return whether an output holds positions, by its name, `indices`, or since forward returns a call such as `x.argmax()`."""
    if re.search(r"ind(ex|ices)|idx|arg(min|max|sort)", name):
        return True
    # `x.isnan()` gives whole values too, but no positions.
    return any(
        isinstance(item.node, ast.Call)
        and isinstance(item.node.func, ast.Attribute)
        and is_discrete(item.node.func.attr)
        and not is_mask(item.node.func.attr)
        for item in facts.outputs
    )


def output_names(facts: Facts) -> tuple[str, ...]:
    """Return a name for each output: `output` for one, of several the returned locals' or `output_1`, `output_2`.

    Their number is told by the annotation or the returns of forward, else by the gradients backward takes; raise Unfit if it is
    not. Locals give the names only if there is one return, and all its values are different names an op may use.
    """
    count, backward = facts.output_count, facts.function.backward
    forward = facts.function.forward
    annotated = facts.names.resolve(forward.node.returns) if forward else ""
    # `-> Tensor` tells it of `return helper(x)`, too.
    if annotated in ("torch.Tensor", "Tensor"):
        count = 1
    if count is None and backward is not None and backward.variadic is None:
        count = len(backward.positional)
    if not count:
        raise Unfit(facts.function.node, "how many outputs it has cannot be told")
    taken = {item.name for item in facts.inputs}
    if count == 1:
        return ("result" if "output" in taken else "output",)
    found = [_name_at(facts.outputs[0].values, at) for at in range(count)]
    # All different, each a name (not ""), and none an input's.
    fit = len(set(found) - taken - {""}) == count and all(map(is_free, found))
    own = fit and len(facts.outputs) == 1
    return tuple(found) if own else tuple(f"output_{n}" for n in range(1, count + 1))


def is_free(name: str) -> bool:
    """Return whether an op may use the name for an input or an output: not `__x`, `grad_x`, `ctx` or a keyword."""
    return check_name(name, Location("", 1), "") is None
