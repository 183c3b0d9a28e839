"""The bodies of a Function that formulas have no words for, as functions of a file that its specification names.

In: the facts of a Function, the name of the op and of the module that it stands in. Out: the text of that file with the imports that it
needs, and what forward and backward hand each other.
Invariant: the statements are those of the Function, in their order; only what they say to ctx is said by parameters and
results. What cannot be handed over is a reason, and so is a name that the top level of the file does not have.
"""

import ast
import builtins
import copy
import re
import symtable
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeGuard

from scaffold.inspect.backward_reads import Read, handed, is_steady
from scaffold.inspect.facts import Facts
from scaffold.inspect.flow import Step
from scaffold.inspect.functions import Method
from scaffold.inspect.gradients import gradients_by_input
from scaffold.inspect.method_formulas import (
    CONTEXT,
    Replaced,
    Unfit,
    comments_above,
    rebound,
    text_of,
)


def imports_of(facts: Facts, text: str, module: str) -> Iterator[str]:
    """What the bodies use of other modules, and of the file that they stood in."""
    own = module_names(facts, own=True)
    free = _free(facts, text) - (set(dir(builtins)) - own)
    whole = {
        alias.asname or alias.name.split(".")[0]: alias
        for node in ast.walk(facts.module.tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    lines, theirs = [], []
    for name in sorted(free):
        dotted = facts.names.imported.get(name, "")
        if name in own:
            theirs.append(name)
        elif name in whole:
            alias = whole[name]
            lines.append(
                f"import {alias.name}" + (f" as {name}" if alias.asname else "")
            )
        elif dotted and not dotted.startswith("."):
            source, _, last = dotted.rpartition(".")
            lines.append(
                f"from {source} import {last}" + (f" as {name}" if last != name else "")
            )
        else:
            theirs.append(name)
    unknown = set(theirs) - module_names(facts)
    if unknown:
        raise Unfit(facts.function.node, f"'{min(unknown)}' is no name of its module")
    if theirs and not all(part.isidentifier() for part in module.split(".")):
        raise Unfit(facts.function.node, f"'{module}' cannot be imported from")
    if theirs:
        lines.append(f"from {module} import {', '.join(theirs)}")
    yield from sorted(lines, key=lambda line: (line.startswith("from"), line))


def _free(facts: Facts, text: str) -> set[str]:
    """The names that functions of a text read and nothing in it binds, each by the scope that it stands in."""
    try:
        pending = [symtable.symtable(text, "bodies", "exec")]
    except SyntaxError:  # what is said to ctx stood where only ctx can
        raise Unfit(facts.function.node, "backward sets what ctx keeps") from None
    bound = {symbol.get_name() for symbol in pending[0].get_symbols()}
    found: set[str] = set()
    while pending:
        table = pending.pop()
        pending += table.get_children()
        if table.get_type() != "module":
            found |= {s.get_name() for s in table.get_symbols() if s.is_global()}
    return found - bound


def module_names(facts: Facts, own: bool = False) -> set[str]:
    """The names that the top level of a file binds; with `own`, those that are no imports alone."""
    found = set() if own else set(facts.names.imported)
    pending: list[ast.AST] = list(facts.module.tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
            continue
        if isinstance(node, ast.Lambda | ast.expr_context):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        pending.extend(ast.iter_child_nodes(node))
    return found


class Handed(NamedTuple):
    """Something that backward reads of forward."""

    read: str  # how backward writes it: 'ctx.name', or '' for a saved tensor
    given: str  # what it is where backward is called
    made: str = ""  # the local of forward, where that has to return it


class Bodies(NamedTuple):
    """The file, and how it calls what the specification names."""

    text: str
    called: "Called"


class Called(NamedTuple):
    """The functions of the file: what the specification names, and the bodies that these call."""

    forward: str
    backward: str
    forward_body: str
    backward_body: str


def bodies(facts: Facts, op: str, module: str, outputs: tuple[str, ...]) -> Bodies:
    """The functions of a file that forward and backward become, and the bodies that these call."""
    function = facts.function
    forward, backward = function.forward, function.backward
    if forward is None or backward is None:
        raise Unfit(function.node, "it has no forward and backward of its own")
    if facts.marked("mark_dirty") != frozenset():
        raise Unfit(forward.node, "it works in place")
    if any(item.passing != "positional" for item in facts.inputs):
        raise Unfit(forward.node, "its arguments are not all positional")
    passed = tuple(_handed(facts, outputs))
    made = [item.made for item in passed if item.made]
    inputs = [item.name for item in facts.inputs]
    called = _called(facts, op)
    first = _forward_body(facts, forward, made, len(outputs))
    parts = [
        _function(called.forward_body, inputs, first),
        _function(called.backward_body, *_backward(facts, backward, passed)),
        *_callers(facts, called, passed, outputs),
    ]
    body = "\n\n\n".join(parts)
    named = f"{called.forward} and {called.backward}"
    head = f'"""The code of {op}, as it stood in {module}: its specification names {named}."""'
    imports = "\n".join(imports_of(facts, body, module))
    above = "\n\n".join(filter(None, (head, imports)))
    return Bodies(f"{above}\n\n\n{body}\n", called)


def _called(facts: Facts, op: str) -> Called:
    """Names for the functions; one that the bodies use themselves is somebody else's."""
    used = {
        getattr(node, "id", None) or getattr(node, "arg", None)
        for node in ast.walk(facts.function.node)
    }

    def free(name: str) -> str:
        return name if name not in used else free(f"{name}_body")

    wanted = ("forward", "backward", f"{op}_forward", f"{op}_backward")
    return Called(*map(free, wanted))


def output_names(facts: Facts) -> tuple[str, ...]:
    """A name for each output: its own where it has one that no input has."""
    count, backward = facts.output_count, facts.function.backward
    if count is None and backward is not None and backward.variadic is None:
        count = 1 if len(backward.positional) == backward.required == 1 else None
    if count is None:
        raise Unfit(facts.function.node, "how many outputs it has cannot be told")
    if count == 1:
        return ("output",)
    taken = {item.name for item in facts.inputs}
    values = facts.outputs[0].values or ()
    names = [v.id if isinstance(v, ast.Name) else "" for v in values]
    free = len(set(names) - taken - {""}) == count and len(facts.outputs) == 1
    return tuple(names) if free else tuple(f"output_{n}" for n in range(1, count + 1))


def _handed(facts: Facts, outputs: tuple[str, ...]) -> Iterator[Handed]:
    """What is saved, in its order, and what is kept on ctx."""
    for item in handed(facts, outputs, steady=False):
        yield _passed(facts, item, outputs)


def _passed(facts: Facts, item: Read, outputs: tuple[str, ...]) -> Handed:
    """How one value comes from forward to backward."""
    forward, saver = facts.function.forward, facts.function.saver
    assert forward is not None and saver is not None
    read = f"ctx.{item.name}" if item.name else ""
    inputs = {given.name for given in facts.inputs}
    combined = saver is forward
    value = item.value
    own = set(forward.flow.bindings) | {n for n in inputs if rebound(forward, n)}
    if isinstance(value, ast.Name) and value.id in (inputs | set(outputs)) - own:
        return Handed(read, value.id)
    if isinstance(value, ast.Name) and value.id in outputs and not combined:
        return Handed(read, value.id)
    shown = _without_locals(facts, value, item.step) if combined else value
    used = {n.id for n in ast.walk(shown) if isinstance(n, ast.Name)}
    known = not used & own and used <= inputs | module_names(facts)
    if known and is_steady(facts, shown):
        return Handed(read, ast.unparse(shown))
    if isinstance(value, ast.Name):
        returned = _returned_names(facts)
        if value.id in returned and returned.index(value.id) < len(outputs):
            return Handed(read, outputs[returned.index(value.id)])
        step = forward.flow.returns[0] if forward.flow.returns else item.step
        if not read or facts.values(forward).is_tensor(value, step):
            free = value.id not in inputs | set(outputs)
            return Handed(read, value.id if free else f"{value.id}_kept", value.id)
    what = f"what {read} holds" if read else "what is saved"
    raise Unfit(item.node, f"{what} is neither an input nor a tensor with a name")


def _without_locals(facts: Facts, value: ast.expr, step: Step) -> ast.expr:
    """An expression with what locals of forward are, where they are sizes and the like rather than tensors."""
    forward = facts.function.forward
    assert forward is not None
    values, flow = facts.values(forward), forward.flow
    several = {name for name in flow.bindings if rebound(forward, name)}

    class Inlined(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            bound = flow.definite(node.id, step)
            plain = bound is not None and bound.element is None
            if not plain or bound is None or bound.value is None:
                return node
            if node.id in several or values.is_tensor(node, step):
                return node
            return _without_locals(facts, bound.value, flow.steps[bound.order])

    found = Inlined().visit(copy.deepcopy(value))
    assert isinstance(found, ast.expr)
    return found


def _returned_names(facts: Facts) -> list[str]:
    if len(facts.outputs) != 1:
        return []
    values = facts.outputs[0].values or (facts.outputs[0].node,)
    return [v.id if isinstance(v, ast.Name) else "" for v in values]


def _forward_body(
    facts: Facts, forward: Method, made: list[str], outputs: int
) -> list[str]:
    """The statements of forward; its one return also gives what backward reads."""
    returns = forward.flow.returns
    if made and (len(returns) != 1 or returns[0].guards):
        raise Unfit(forward.node, "it returns in several places")
    known: Replaced = {
        f"ctx.{kept.name}": f"({ast.unparse(kept.value)})"
        for kept in facts.kept(forward)
    }
    known |= _own_class(facts, forward)

    def text(statement: ast.stmt) -> str:
        if isinstance(statement, ast.Return) and made and statement.value:
            values = list(_elements(facts, statement.value, known, outputs))
            return f"return {', '.join([*values, *made])}"
        if _is_around(statement, forward.ctx):
            return _with(facts, statement, known, texts(statement.body))
        return text_of(facts, statement, known)

    def texts(body: Sequence[ast.stmt]) -> list[str]:
        return [
            comments_above(facts, statement) + text(statement)
            for statement in body
            if not (_is_context(statement, forward.ctx) or _is_doc(statement))
        ]

    return texts(forward.node.body)


def _is_around(statement: ast.stmt, ctx: str | None) -> TypeGuard[ast.With]:
    """Whether a statement is a `with` around a return or what is said to ctx: its own statements are gone through."""
    return isinstance(statement, ast.With) and any(
        isinstance(node, ast.Return) or isinstance(node, ast.Name) and node.id == ctx
        for node in ast.walk(statement)
    )


def _with(
    facts: Facts, statement: ast.With, known: Replaced, body: Iterable[str]
) -> str:
    """A `with` around other statements: `torch.enable_grad()` around all that backward does."""
    items = []
    for item in statement.items:
        name = f" as {ast.unparse(item.optional_vars)}" if item.optional_vars else ""
        items.append(text_of(facts, item.context_expr, known) + name)
    rows = "\n".join(body) or "pass"
    return f"with {', '.join(items)}:\n{textwrap.indent(rows, '    ')}"


def _elements(
    facts: Facts, value: ast.expr, known: Replaced, outputs: int
) -> Iterator[str]:
    """What is returned, one by one; where it is a tuple that has a name, its elements."""
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    for part in parts:
        spread = isinstance(part, ast.Starred)
        text = text_of(facts, part.value if spread else part, known)  # type: ignore[attr-defined]
        whole = not isinstance(value, ast.Tuple) and outputs > 1
        yield f"*{text}" if spread or whole else text


def _own_class(facts: Facts, method: Method) -> Replaced:
    """The name of the class for the `cls` of a classmethod."""
    given = method.node.args.args
    return {given[0].arg: facts.function.name} if method.binding == "class" else {}


def _is_doc(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_context(statement: ast.stmt, ctx: str | None) -> bool:
    """Whether a statement only tells ctx something."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        called = statement.value.func
        return isinstance(called, ast.Attribute) and called.attr in CONTEXT
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return bool(targets) and all(
        isinstance(t, ast.Attribute) and ast.unparse(t.value) == ctx for t in targets
    )


def _backward(
    facts: Facts, backward: Method, handed: tuple[Handed, ...]
) -> tuple[list[str], list[str]]:
    """The parameters and the statements of the body of backward."""
    saved = [f"saved_{n}" for n, _ in enumerate(h for h in handed if not h.read)]
    unpacked = _unpacked(backward, len(saved))
    names = unpacked[1] if unpacked else saved
    known: Replaced = {"ctx.saved_tensors": f"({''.join(f'{n}, ' for n in names)})"}
    known |= _own_class(facts, backward)
    known["ctx.needs_input_grad"] = repr(tuple(True for _ in facts.inputs))
    bound = set(backward.flow.bindings) | {item.name for item in backward.positional}
    attributes = []
    for item in handed:
        if item.read:
            name = item.read.removeprefix("ctx.")
            name = f"{name}_kept" if name in bound | set(names) else name
            attributes.append(name)
            known[item.read] = name
    given = [item.name for item in backward.positional]
    first = unpacked[0] if unpacked else None
    body = _backward_body(facts, backward, known, first)
    asked = [re.sub(r"\(True(, True)*,?\)\[-?\d+\]", "True", text) for text in body]
    return [*given, *names, *attributes], list(map(_without_true_branches, asked))


def _without_true_branches(text: str) -> str:
    """A statement whose parts under `if True:` stand where the branch does; one with an `else` stays."""
    lines = text.split("\n")
    for at in reversed(range(len(lines))):
        indent, test, rest = lines[at].partition("if True:")
        if not test or indent.strip() or rest:
            continue
        behind = lines[at + 1 :]
        outside = (line and not line.startswith(f"{indent} ") for line in behind)
        end = next((n for n, found in enumerate(outside) if found), len(behind))
        inside, after = behind[:end], behind[end:]
        if not (after and after[0].startswith((f"{indent}else", f"{indent}elif"))):
            plain = textwrap.indent(textwrap.dedent("\n".join(inside)), indent)
            lines[at:] = [*plain.split("\n"), *after]
    return "\n".join(lines)


def _backward_body(
    facts: Facts, backward: Method, known: Replaced, unpacked: ast.stmt | None
) -> list[str]:
    """The statements of backward, but for the one that names the saved tensors."""
    wanted = gradients_by_input(facts)
    if not wanted:
        raise Unfit(backward.node, "no input gets a gradient")

    def text(statement: ast.stmt) -> str:
        if isinstance(statement, ast.Return):
            values = (text_of(facts, value, known) for value in wanted.values())
            return f"return {', '.join(values)}"
        if _is_around(statement, backward.ctx):
            return _with(facts, statement, known, texts(statement.body))
        if any(isinstance(node, ast.Return) for node in ast.walk(statement)):
            raise Unfit(statement, "backward returns in several places")
        return text_of(facts, statement, known)

    def texts(body: Sequence[ast.stmt]) -> list[str]:
        return [
            comments_above(facts, statement) + text(statement)
            for statement in body
            if not (statement is unpacked or _is_doc(statement))
        ]

    return texts(backward.node.body)


def _unpacked(backward: Method, count: int) -> tuple[ast.stmt, list[str]] | None:
    """The statement that names the saved tensors, where it is the only one to read them."""
    attributes = [n for n in ast.walk(backward.node) if isinstance(n, ast.Attribute)]
    reads = [n for n in attributes if n.attr == "saved_tensors"]
    for step in backward.flow.steps:
        statement = step.statement
        if step.guards or not isinstance(statement, ast.Assign):
            continue
        if statement.value not in reads:
            continue
        target = statement.targets[0]
        elements = target.elts if isinstance(target, ast.Tuple | ast.List) else []
        names = [item.id for item in elements if isinstance(item, ast.Name)]
        if len(reads) == 1 and len(names) == len(elements) == len(set(names)) == count:
            return statement, names
    return None


def _function(name: str, parameters: list[str], body: list[str]) -> str:
    lines = [f"    {row}" if row else "" for text in body for row in text.split("\n")]
    return "\n".join(
        [f"def {name}({', '.join(parameters)}):", *(lines or ["    pass"])]
    )


def _callers(
    facts: Facts, called: Called, handed: tuple[Handed, ...], outputs: tuple[str, ...]
) -> Iterator[str]:
    """The functions that the specification names."""
    inputs = [item.name for item in facts.inputs]
    made = [item.given for item in handed if item.made]
    call = f"{called.forward_body}({', '.join(inputs)})"
    results = ", ".join([*outputs, *made])
    body = [f"{results} = {call}", f"return {', '.join(outputs)}"]
    yield _function(called.forward, inputs, body)
    marked = facts.marked("mark_non_differentiable") or frozenset()
    backward = facts.function.backward
    assert backward is not None
    grads = ["grad_output"] if len(outputs) == 1 else [f"grad_{n}" for n in outputs]
    if marked and len(outputs) > 1:
        raise Unfit(backward.node, "an output has no gradient")
    given = [*grads, *(h.given for h in (*_saved(handed), *_kept(handed)))]
    targets = ", ".join(f"grad_{name}" for name in gradients_by_input(facts))
    words = {word for text in given for word in re.findall(r"[A-Za-z_]\w*", text)}
    known = [*grads, *inputs, *outputs, *made]
    parameters = [name for name in dict.fromkeys(known) if name in words]
    body = [f"{targets} = {called.backward_body}({', '.join(given)})"]
    yield _function(called.backward, parameters, body)


def _saved(handed: tuple[Handed, ...]) -> tuple[Handed, ...]:
    return tuple(item for item in handed if not item.read)


def _kept(handed: tuple[Handed, ...]) -> tuple[Handed, ...]:
    return tuple(item for item in handed if item.read)
