"""The specification that a hand-written Function would have come from.

In: the facts of a Function. Out: the keys of its `[ops.NAME]` table, or why there can be none.
Invariant: what the keys say is what the text says; a statement that has no place in a formula is a reason, never left
out.
"""

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from scaffold.inspect import bodies
from scaffold.inspect.documented import Documented, read_documented
from scaffold.inspect.facts import Facts
from scaffold.inspect.formulas import Unfit, forward_text
from scaffold.inspect.gradients import backward_text
from scaffold.inspect.model import Parameter
from scaffold.spec.toml_text import op_table

Value = str | bool | list[str] | dict[str, str]
TYPES = {"int", "float", "bool", "str"}


class Adopted(NamedTuple):
    """An op in TOML: its name and its keys in order."""

    name: str
    keys: dict[str, Value]

    def toml(self) -> str:
        """The table as a file holds it; several lines end in a line end of their own."""
        return op_table(self.name, _ended(self.keys))


def _ended(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ended(item) for key, item in value.items()}
    several = isinstance(value, str) and "\n" in value
    return f"{value}\n" if several else value


def adopt(facts: Facts) -> Iterator[Adopted]:
    """The tables that a Function may have come from, the one of its own statements last.

    The first ones have the formula that its docstring states; they hold only if they lead to the same code.
    `Unfit` says which statement stands in the way.
    """
    function = facts.function
    if function.forward is None or function.backward is None:
        raise Unfit(function.node, "it has no forward and backward of its own")
    documented = read_documented(facts)
    if documented.formula:
        returned = dict(documented.shapes).keys() - {item.name for item in facts.inputs}
        several = facts.output_count is not None and facts.output_count > 1
        outputs = output_names(facts) if returned and several else ("output",)
        if returned and not several:
            outputs = tuple(returned)[:1]
        yield _table(facts, documented, outputs, documented.formula)
    yield _table(facts, documented, output_names(facts), forward_text(facts))


def adopt_bodies(facts: Facts, module: str) -> tuple[Adopted, str, str]:
    """The table of a Function whose bodies stay code, and the name and the text of the file that has them."""
    documented = read_documented(facts)
    outputs = bodies.output_names(facts)
    name, _ = _names(facts, documented)
    file = f"{name}_code"
    made = bodies.bodies(facts, name, module, outputs)
    gradients = {"": f"@{file}.py:backward"}
    table = _table(facts, documented, outputs, f"@{file}.py:forward", gradients)
    imports = [f"{file}:{name}_forward", f"{file}:{name}_backward"]
    keys = {**table.keys, "import": imports}
    return Adopted(name, keys), f"{file}.py", made.text


def _names(facts: Facts, documented: Documented) -> tuple[str, str]:
    """The name of the op and that of its class."""
    function = facts.function
    base = function.name.removesuffix("Function") or function.name
    return documented.wrapper or _snake(base).strip("_"), base


def _table(
    facts: Facts,
    documented: Documented,
    outputs: tuple[str, ...],
    forward: str,
    gradients: dict[str, str] | None = None,
) -> Adopted:
    name, _ = _names(facts, documented)
    keys = dict(_signature(facts, documented, outputs))
    backward = gradients
    if not backward:
        backward = {} if _is_open(facts) else backward_text(facts, outputs)
    keys.update(_maths(facts, documented, forward, backward))
    keys.update(_behaviour(facts))
    keys.update(_owned(documented))
    return Adopted(name, keys)


def _signature(
    facts: Facts, documented: Documented, outputs: tuple[str, ...]
) -> Iterator[tuple[str, Value]]:
    name, base = _names(facts, documented)
    if _pascal(name) != base:
        yield "class-name", base
    if documented.doc:
        yield "doc", documented.doc
    inputs = [_input(facts, item, documented) for item in facts.inputs]
    yield "inputs", ", ".join([*inputs, *documented.attributes])
    declared = _outputs(facts, documented, outputs)
    if declared:
        yield "outputs", declared


def _maths(
    facts: Facts, documented: Documented, forward: str, backward: dict[str, str]
) -> Iterator[tuple[str, Value]]:
    imports = list(_imports(facts, "\n".join([forward, *backward.values()])))
    if imports:
        yield "import", imports
    if not _is_open(facts):
        yield "forward", forward
    if documented.surrogate:
        yield "surrogate", documented.surrogate
    if "" in backward:
        yield "backward", backward[""]
    grad = {name: text for name, text in backward.items() if name}
    if grad:
        yield "grad", grad


def _owned(documented: Documented) -> Iterator[tuple[str, Value]]:
    """What the module has."""
    if not documented.module:
        yield "module", False
    if documented.inits:
        yield "init", dict(documented.inits)
    if documented.buffers:
        yield "buffers", list(documented.buffers)
    if documented.updates:
        yield "update", dict(documented.updates)


def _is_open(facts: Facts) -> bool:
    """Whether forward is still to be written: all it does is raise NotImplementedError."""
    forward = facts.function.forward
    statements = forward.node.body if forward else []
    return len(statements) == 1 and isinstance(statements[0], ast.Raise)


def _behaviour(facts: Facts) -> Iterator[tuple[str, Value]]:
    dirty = facts.marked("mark_dirty")
    if dirty is None:
        raise Unfit(facts.function.node, "what mark_dirty is given is not named")
    if dirty:
        yield "dirty", sorted(dirty)
    if facts.function.once_differentiable:
        yield "once-differentiable", True
    if not facts.materializes:
        yield "materialize-grads", False
    if facts.function.style == "combined":
        yield "style", "combined"


def _input(facts: Facts, item: Parameter, documented: Documented) -> str:
    """One entry of the inputs."""
    if item.passing == "variadic":
        return f"*{item.name}"
    if item.passing != "positional":
        raise Unfit(facts.function.node, f"'{item.name}' is no positional parameter")
    annotation = facts.names.resolve(item.annotation) if item.annotation else ""
    default = dict(documented.defaults).get(item.name) or (_source(facts, item.default))
    gradient = facts.has_gradient(item.name)
    if gradient is None:
        raise Unfit(
            facts.function.node, f"the gradient of '{item.name}' cannot be told"
        )
    forward = facts.function.forward
    tensor = forward is not None and item.name in facts.values(forward).evident
    if (
        gradient
        or tensor
        or "Tensor" in (ast.unparse(item.annotation) if item.annotation else "")
    ):
        optional = "?" if default == "None" or _is_optional(item) else ""
        shape = dict(documented.shapes).get(item.name, "")
        traits = "" if gradient or facts.is_trivial else "; const"
        known = dict(documented.traits).get(item.name)
        traits = f"; {known}" if known and not gradient else traits
        inner = f"[{shape or '...'}{traits}]" if shape or traits else ""
        return f"{item.name}{inner}{optional}"
    kind = annotation if annotation in TYPES else _kind(default)
    assigned = f" = {default}" if default else ""
    return f"{item.name}: {kind}{assigned}"


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


def _outputs(facts: Facts, documented: Documented, names: tuple[str, ...]) -> str:
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
        and item.node.func.attr in ("argmin", "argmax", "argsort", "long", "nonzero")
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
    if not all(isinstance(node, ast.Name) for node in values):
        raise Unfit(facts.function.node, "its outputs have no names")
    return tuple(ast.unparse(node) for node in values)


def _imports(facts: Facts, texts: str) -> Iterator[str]:
    """What the formulas use and a specification does not know of itself."""
    used = set(re.findall(r"\b[A-Za-z_]\w*\b", texts))
    for name, dotted in facts.names.imported.items():
        if name not in used or dotted.split(".")[0] in ("torch", "math", "typing"):
            continue
        module, _, last = dotted.rpartition(".")
        if dotted in _whole(facts):
            yield dotted if dotted == name else f"{dotted} as {name}"
        else:
            alias = "" if last == name else f" as {name}"
            yield f"{module}:{last}{alias}"


def _whole(facts: Facts) -> set[str]:
    """The modules that are imported as such."""
    return {
        alias.name
        for node in ast.walk(facts.module.tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }


def _snake(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return re.sub(r"_+", "_", words).strip("_").lower()


def _pascal(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
