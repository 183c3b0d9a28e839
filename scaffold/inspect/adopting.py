"""The specification that a hand-written Function would have come from, and the computation of that Function alone.

In: the facts of a Function. Out: the keys of its `[ops.NAME]` table, or why there can be none; the Function without what a generated one
does for autocast and for second derivatives, decorated with `once_differentiable` where it refused to be differentiated.
Invariant: what the keys say is what the text says; a statement that has no place in a formula is a reason, never left
out. What is taken away computes neither output nor gradient; what has another form is left as it is.
"""

import ast
import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from scaffold.formula.text import TAKEN, WELL_KNOWN
from scaffold.inspect import bodies
from scaffold.inspect.bodies import module_names
from scaffold.inspect.declarations import declared_input, declared_outputs, output_names
from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Function, Method
from scaffold.inspect.gradients import backward_text
from scaffold.inspect.imported_names import snake_case
from scaffold.inspect.method_formulas import Unfit, forward_text, words_of
from scaffold.inspect.surrounding_code import Documented, read_documented
from scaffold.spec.names import camel_name
from scaffold.spec.toml import op_table

Value = str | bool | list[str] | dict[str, str]
NO_KINDS: Mapping[str, str] = {}


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


class Wanted(NamedTuple):
    """What the caller says of the op."""

    name: str = ""  # else that of its wrapper or its class
    kinds: Mapping[str, str] = NO_KINDS  # of tensors without a gradient


ANY = Wanted()


def adopt(facts: Facts, wanted: Wanted = ANY) -> Iterator[Adopted]:
    """The tables that a Function may have come from, the one of its own statements last.

    The first ones have the formula that its docstring states; they hold only if they lead to the same code.
    `Unfit` says which statement stands in the way.
    """
    function = facts.function
    if function.forward is None or function.backward is None:
        raise Unfit(function.node, "it has no forward and backward of its own")
    documented = _documented(facts, wanted)
    if documented.formula:
        returned = dict(documented.shapes).keys() - {item.name for item in facts.inputs}
        several = facts.output_count is not None and facts.output_count > 1
        outputs = output_names(facts) if returned and several else ("output",)
        if returned and not several:
            outputs = tuple(returned)[:1]
        yield _table(facts, documented, outputs, documented.formula)
    yield _table(facts, documented, output_names(facts), forward_text(facts))


def _documented(facts: Facts, wanted: Wanted) -> Documented:
    found = read_documented(facts)
    kinds = {**wanted.kinds, **dict(found.traits)}
    found = found._replace(traits=tuple(kinds.items()))
    return found._replace(wrapper=wanted.name) if wanted.name else found


def adopt_bodies(
    facts: Facts, module: str, package: str, wanted: Wanted
) -> tuple[Adopted, str, str]:
    """The table of a Function whose bodies stay code, and the name and the text of the file that has them.

    `module` is the Function's own; the file lies in `package`.
    """
    documented = _documented(facts, wanted)
    outputs = bodies.output_names(facts)
    name, _ = _names(facts, documented)
    file = f"{name}_code"
    made = bodies.bodies(facts, name, module, outputs)
    called = made.called
    gradients = {"": f"@{file}.py:{called.backward}"}
    forward = f"@{file}.py:{called.forward}"
    table = _table(facts, documented, outputs, forward, gradients)
    place = f"{package}.{file}" if package else file
    imports = [f"{place}:{called.forward_body}", f"{place}:{called.backward_body}"]
    keys = {**table.keys, "import": imports}
    return Adopted(name, keys), f"{file}.py", made.text


def _names(facts: Facts, documented: Documented) -> tuple[str, str]:
    """The name of the op and that of its class."""
    function = facts.function
    base = function.name.removesuffix("Function") or function.name
    return documented.wrapper or snake_case(base), base


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
    if camel_name(name) != base:
        yield "class-name", base
    if documented.doc:
        yield "doc", documented.doc
    inputs = [declared_input(facts, item, documented) for item in facts.inputs]
    yield "inputs", ", ".join([*inputs, *documented.attributes])
    declared = declared_outputs(facts, documented, outputs)
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
    if documented.required:
        yield "require", list(documented.required)
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


def _imports(facts: Facts, texts: str) -> Iterator[str]:
    """What the formulas use and a specification does not know of itself."""
    used, whole = words_of([texts]), _whole(facts)
    for name in sorted((used & TAKEN) - {item.name for item in facts.inputs}):
        dotted = facts.names.imported.get(name, WELL_KNOWN.get(name, name))
        if dotted != WELL_KNOWN.get(name, name) or name in module_names(
            facts, own=True
        ):
            raise Unfit(facts.function.node, f"'{name}' is a name of its module's own")
    for name, dotted in facts.names.imported.items():
        if name not in used or dotted.split(".")[0] in ("torch", "math", "typing"):
            continue
        module, _, last = dotted.rpartition(".")
        if dotted in whole:
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


DECORATOR = "torch.autograd.function.once_differentiable"


def computation_of(function: Function) -> Function:
    """The Function without its autocast and its refusal of second derivatives; both stand in a specification as keys."""
    return _as_decorated(_without_autocast(function))


def _without_autocast(function: Function) -> Function:
    """Without `with ctx.autocast:` around the backward, and what it is set to."""
    backward, saver = function.methods.get("backward"), function.saver
    if backward is None or saver is None:
        return function
    body = [item for each in backward.node.body for item in _inside(each, backward)]
    if body == backward.node.body:
        return function
    kept = f"{saver.ctx}.autocast"
    left: list[ast.stmt] = []
    read: set[str] = set()  # by what is left out
    for statement in reversed(saver.node.body):
        target = _target(statement)
        if target == kept or target in read:
            names = ast.walk(statement.value)  # type: ignore[attr-defined]
            read |= {item.id for item in names if isinstance(item, ast.Name)}
        else:
            left.insert(0, statement)
    changed = {
        "backward": _with_body(backward, body),
        saver.node.name: _with_body(saver, left or [ast.Pass()]),
    }
    return replace(function, methods={**function.methods, **changed})


def _inside(statement: ast.stmt, backward: Method) -> Iterator[ast.stmt]:
    if isinstance(statement, ast.With) and [
        ast.unparse(item) for item in statement.items
    ] == [f"{backward.ctx}.autocast"]:
        yield from statement.body
    else:
        yield statement


def _target(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        return ast.unparse(statement.targets[0])
    return ""


def _with_body(method: Method, body: list[ast.stmt]) -> Method:
    node = copy.copy(method.node)
    node.body = body
    return replace(method, node=node)


def _as_decorated(function: Function) -> Function:
    """With the decorator in place of its own refusal."""
    backward = function.methods.get("backward")
    body = _computation(backward.node.body) if backward else None
    if backward is None or body is None:
        return function
    plain = _with_body(backward, body)
    plain = replace(plain, decorators=(*backward.decorators, DECORATOR))
    return replace(function, methods={**function.methods, "backward": plain})


def _computation(body: list[ast.stmt]) -> list[ast.stmt] | None:
    first = body[0]
    if _asks(first, "torch.is_grad_enabled()") and isinstance(first.body[0], ast.Raise):  # type: ignore[attr-defined]
        return body[1:]
    for index, statement in enumerate(body):
        if _is_without_gradients(statement):
            assert isinstance(statement, ast.With)
            value = _value(statement.body[-1], body[index + 1 :])
            if value is None:
                return None
            *inner, last = statement.body
            whole = isinstance(value, ast.Name)
            inner = [*inner, last] if whole else inner
            return [*body[:index], *inner, ast.copy_location(ast.Return(value), last)]
    return None


def _value(last: ast.stmt, after: list[ast.stmt]) -> ast.expr | None:
    """What is returned where no graph is recorded: the gradient by its name, or all of them as a tuple."""
    if not after or not isinstance(after[-1], ast.Return):
        return None
    if _asks(after[0], "torch.is_grad_enabled()") and len(after) == 2:
        return after[-1].value
    if not _asks(after[0], "not torch.is_grad_enabled()"):
        return None
    returned = after[0].body[0]  # type: ignore[attr-defined]
    if not isinstance(returned, ast.Return) or not isinstance(last, ast.Assign):
        return None
    same = ast.unparse(last.targets[0]) == ast.unparse(returned)[len("return ") :]
    return last.value if same else None


def _asks(statement: ast.stmt, test: str) -> bool:
    return isinstance(statement, ast.If) and ast.unparse(statement.test) == test


def _is_without_gradients(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.With) and [
        ast.unparse(item) for item in statement.items
    ] == ["torch.no_grad()"]
