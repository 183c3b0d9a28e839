"""How a specification declares the inputs and the outputs of a hand-written Function.

In: its facts and what is documented. Out: the entries of the keys `inputs` and `outputs`. Invariant: what cannot be told is a
reason, never guessed.
"""

import ast
import re
from collections.abc import Iterator

from scaffold.formula.names import fresh
from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Parameter
from scaffold.inspect.method_formulas import Unfit
from scaffold.inspect.surrounding_code import Documented
from scaffold.inspect.trial_inputs import CODES, NAMED, NUMERIC
from scaffold.primitives.calls import is_mask, is_whole, takes_index, takes_mask

TYPES = {"int", "float", "bool", "str"}


def declared_input(facts: Facts, item: Parameter, documented: Documented) -> str:
    """One entry of the inputs."""
    if item.passing == "variadic":
        return f"*{item.name}"
    if item.passing != "positional":
        raise Unfit(facts.function.node, f"'{item.name}' is no positional parameter")
    annotation = facts.names.resolve(item.annotation) if item.annotation else ""
    default = dict(documented.defaults).get(item.name) or _source(facts, item.default)
    gradient = facts.has_gradient(item.name)
    if gradient is None:
        raise Unfit(
            facts.function.node, f"the gradient of '{item.name}' cannot be told"
        )
    if gradient or _is_tensor(facts, item):
        optional = "?" if default == "None" or _is_optional(item) else ""
        shape = dict(documented.shapes).get(item.name, "")
        traits = "" if gradient or facts.is_trivial else "; const"
        known = dict(documented.traits).get(item.name)
        if not known and not gradient and not facts.is_trivial:
            known = kinds_of(facts, item)[0]
        traits = f"; {known}" if known and not gradient else traits
        inner = f"[{shape or '...'}{traits}]" if shape or traits else ""
        return f"{item.name}{inner}{optional}"
    kind = annotation if annotation in TYPES else _kind(default)
    if kind == "object" and not annotation and not default:
        kind = named_kind(item.name)
    assigned = f" = {default}" if default else ""
    return f"{item.name}: {kind}{assigned}"


def is_constant(facts: Facts, item: Parameter) -> bool:
    """Whether an input is a tensor that gets no gradient."""
    if item.passing != "positional" or facts.has_gradient(item.name) is not False:
        return False
    if facts.is_trivial:
        return False  # so gets none
    return _is_tensor(facts, item)


def _is_tensor(facts: Facts, item: Parameter) -> bool:
    """Whether an input is a tensor: by its annotation, its uses, or its name where it is an index or a mask."""
    if item.annotation is not None and "Tensor" in ast.unparse(item.annotation):
        return True
    forward = facts.function.forward
    if forward is None or item.name in facts.values(forward).evident:
        return forward is not None
    named = CODES.search(item.name) or "mask" in item.name
    plain = item.annotation is None and item.default is None
    return bool(plain and named and any(_uses(forward.node, item.name)))


def kinds_of(facts: Facts, item: Parameter) -> tuple[str, ...]:
    """What a tensor without a gradient may hold, as its uses and its name suggest, the likeliest first."""
    forward = facts.function.forward
    annotation = ast.unparse(item.annotation) if item.annotation else ""
    uses = set(_uses(forward.node, item.name)) if forward else set()
    if "Bool" in annotation or "bool" in uses:
        return ("bool", "const", "int")
    if re.search("Long|Int", annotation) or "int" in uses:
        return ("int", "bool", "const")
    if "mask" in item.name:
        return ("bool", "const", "int")
    if CODES.search(item.name):
        return ("int", "const", "bool")
    return ("const", "int", "bool")


def _uses(node: ast.AST, name: str) -> Iterator[str]:
    """`int` for an index, `bool` for a mask."""

    def is_it(part: ast.expr) -> bool:
        return isinstance(part, ast.Name) and part.id == name

    for inner in ast.walk(node):
        if isinstance(inner, ast.Subscript):
            index = inner.slice
            parts = index.elts if isinstance(index, ast.Tuple) else [index]
            if any(map(is_it, parts)):
                yield "bool" if "mask" in name else "int"
        elif isinstance(inner, ast.UnaryOp) and isinstance(inner.op, ast.Invert):
            if is_it(inner.operand):
                yield "bool"
        elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
            given = [*inner.args, *(item.value for item in inner.keywords)]
            if takes_index(inner.func.attr) and any(map(is_it, given)):
                yield "int"
            if takes_mask(inner.func.attr) and given and is_it(given[0]):
                yield "bool"


def named_kind(name: str) -> str:
    """The type of a parameter whose name has one meaning."""
    if name in NAMED:
        return type(ast.literal_eval(NAMED[name])).__name__
    return "float" if NUMERIC.fullmatch(name) else "object"


def _source(facts: Facts, node: ast.expr | None) -> str:
    if node is None:
        return ""
    return ast.get_source_segment(facts.module.text, node) or ""


def _is_optional(item: Parameter) -> bool:
    text = ast.unparse(item.annotation) if item.annotation else ""
    return "None" in text or text.startswith("Optional")


def _kind(default: str) -> str:
    try:
        value = ast.literal_eval(default) if default else None
    except ValueError:
        value = None
    return (
        type(value).__name__
        if isinstance(value, bool | int | float | str)
        else "object"
    )


def declared_outputs(
    facts: Facts, documented: Documented, names: tuple[str, ...]
) -> str:
    """The outputs by name, where they are not the one called output."""
    marked = facts.marked("mark_non_differentiable") or frozenset()
    if names == ("output",) and not facts.is_trivial:
        return ""
    entries = []
    for name in names:
        shape = dict(documented.shapes).get(name, "")
        unmarked = name not in marked and not facts.is_trivial
        kind = "" if unmarked else "; int" if _is_index(facts, name) else "; const"
        inner = f"[{shape or '...'}{kind}]" if shape or kind else ""
        entries.append(f"{name}{inner}")
    return ", ".join(entries)


def _is_index(facts: Facts, name: str) -> bool:
    """Whether an output holds positions, by its name or by what makes it."""
    if re.search(r"ind(ex|ices)|idx|arg(min|max|sort)", name):
        return True
    return any(
        isinstance(item.node, ast.Call)
        and isinstance(item.node.func, ast.Attribute)
        and is_whole(item.node.func.attr)
        and not is_mask(item.node.func.attr)
        for item in facts.outputs
    )


def output_names(facts: Facts) -> tuple[str, ...]:
    """The names under which forward returns its outputs."""
    if len(facts.outputs) != 1 or facts.outputs[0].values is None:
        names = {ast.unparse(item.node) for item in facts.outputs if item.node}
        return (
            tuple(names)
            if len(names) == 1 and next(iter(names)).isidentifier()
            else ("output",)
        )
    values = facts.outputs[0].values
    if len(values) == 1:
        node = values[0]
        inputs = {item.name for item in facts.inputs}
        named = isinstance(node, ast.Name) and node.id not in inputs
        return (ast.unparse(node),) if named else ("output",)
    taken = {item.name for item in facts.inputs}
    taken |= {node.id for node in values if isinstance(node, ast.Name)}
    found = list[str]()
    for node in values:
        one = node.id if isinstance(node, ast.Name) else fresh("output", taken)
        taken.add(one)
        found.append(one)
    return tuple(found)
