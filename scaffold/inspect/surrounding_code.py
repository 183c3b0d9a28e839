"""What the code around a Function says of it: its wrapper, the shapes in its docstring, the module that owns its parameters.

In: the facts of a Function. Out: a `Documented`; what is not there is empty.
Invariant: only what is written as this tool writes it is read.
"""

import ast
import re
from textwrap import dedent
from typing import NamedTuple

from scaffold.inspect.facts import Facts

LONG = 120
SHAPE = re.compile(
    r"^\s*(\w+): (?:Tensor|\w+ tensor) of shape ``\((.*?),?\)``", re.MULTILINE
)
KIND = re.compile(
    r"^\s*(\w+): (\w+) tensor of shape ``.*?``(?:,\s+below\s+(\w+))?", re.MULTILINE
)
TRAITS = {"Boolean": "bool", "Integer": "int", "Long": "int"}
RETURNED = re.compile(r"``(\w+)`` of shape ``\((.*?),?\)``")
BLOCK = re.compile(r"^Computes::\n\n((?:    .*\n|\n)+)", re.MULTILINE)
SURROGATE = re.compile(
    r"The gradient is that of ``(.*?)``, not the derivative", re.DOTALL
)
REQUIRED = re.compile(r"^Requires (``.*?``)\.$", re.MULTILINE | re.DOTALL)
INIT = re.compile(r"^(\w+)_\(self\.(\w+)(?:, )?(.*)\)$", re.DOTALL)


class Documented(NamedTuple):
    """The surroundings of a Function."""

    wrapper: str = ""
    doc: str = ""
    formula: str = ""  # what it says that it computes
    surrogate: str = ""  # what it says that its gradient is of
    required: tuple[str, ...] = ()  # what its sizes must satisfy
    shapes: tuple[tuple[str, str], ...] = ()
    traits: tuple[tuple[str, str], ...] = ()  # of tensors that are no floating ones
    defaults: tuple[tuple[str, str], ...] = ()
    module: bool = False
    inits: tuple[tuple[str, str], ...] = ()
    buffers: tuple[str, ...] = ()
    updates: tuple[tuple[str, str], ...] = ()
    attributes: tuple[str, ...] = ()  # of the module alone, as inputs are written


def read_documented(facts: Facts) -> Documented:
    """The wrapper and the module of a Function."""
    wrapper = _wrapper(facts)
    if wrapper is None:
        return Documented(module=False)
    text = (ast.get_docstring(wrapper) or "") + "\n"
    first = " ".join(text.split("\n\n")[0].split()).rstrip(".")
    if len(first) > LONG or ":" in first:
        first = ""  # no sentence that says what it does
    computed = re.fullmatch(r"Compute ``(.*)``", first)
    block = BLOCK.search(text)
    formula = dedent(block[1]).strip() if block else computed[1] if computed else ""
    said = SURROGATE.search(text)
    module = _module(facts, wrapper.name)
    return Documented(
        wrapper.name,
        f"{first}." if first and not computed else "",
        formula,
        " ".join(said[1].split()) if said else "",
        _required(text),
        (*SHAPE.findall(text), *RETURNED.findall(text)),
        _traits(text),
        _defaults(facts, wrapper),
        module is not None,
        _inits(facts, module) if module is not None else (),
        *_buffers(wrapper, module),
    )


def _required(text: str) -> tuple[str, ...]:
    """The conditions on sizes."""
    found = REQUIRED.search(text)
    listed = re.findall(r"``(.*?)``", found[1], re.DOTALL) if found else []
    return tuple(" ".join(condition.split()) for condition in listed)


def _traits(text: str) -> tuple[tuple[str, str], ...]:
    """`index(C)` of a long tensor below C, `bool`, `int`."""
    return tuple(
        (name, f"index({below})" if below else TRAITS[kind])
        for name, kind, below in KIND.findall(text)
        if kind in TRAITS
    )


def _wrapper(facts: Facts) -> ast.FunctionDef | None:
    """The function of the module in which apply is bound or called."""
    name = facts.function.name
    for node in facts.module.tree.body:
        if isinstance(node, ast.FunctionDef):
            used = (
                inner.value
                for inner in ast.walk(node)
                if isinstance(inner, ast.Attribute) and inner.attr == "apply"
            )
            if any(isinstance(owner, ast.Name) and owner.id == name for owner in used):
                return node
    return None


def _defaults(facts: Facts, node: ast.FunctionDef) -> tuple[tuple[str, str], ...]:
    plain = [*node.args.posonlyargs, *node.args.args]
    start = len(plain) - len(node.args.defaults)
    pairs = zip(plain[start:], node.args.defaults, strict=True)
    text = facts.module.text
    return tuple(
        (item.arg, ast.get_source_segment(text, value) or "") for item, value in pairs
    )


def _module(facts: Facts, wrapper: str) -> ast.ClassDef | None:
    """The nn.Module whose forward calls the wrapper."""
    for node in facts.module.tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        bases = {facts.names.resolve(base) for base in node.bases}
        calls = {
            inner.func.id
            for inner in ast.walk(node)
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name)
        }
        if "torch.nn.Module" in bases and wrapper in calls:
            return node
    return None


def _inits(facts: Facts, module: ast.ClassDef) -> tuple[tuple[str, str], ...]:
    """`nn.init.uniform_(self.weight, -0.1, 0.1)` as `uniform(-0.1, 0.1)` of weight."""
    found = []
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            name = facts.names.resolve(node.func)
            matched = INIT.match(ast.unparse(node).split(".init.")[-1])
            if name.startswith("torch.nn.init.") and matched:
                text = f"{matched[1]}({matched[3]})" if matched[3] else matched[1]
                if matched[3] == "-bound, bound":
                    text = "fan_in_uniform"
                found.append((matched[2], text))
    return tuple(found)


def _buffers(
    wrapper: ast.FunctionDef, module: ast.ClassDef | None
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...], tuple[str, ...]]:
    """The buffers of a module, their updates, and the arguments of its own that those read."""
    calls = [n for n in ast.walk(module) if isinstance(n, ast.Call)] if module else []
    buffers, updates = [], []
    for call in calls:
        name = ast.unparse(call.func)
        if name == "self.register_buffer" and isinstance(call.args[0], ast.Constant):
            buffers.append(str(call.args[0].value))
        matched = re.fullmatch(r"self\.(\w+)\.copy_", name)
        if matched:
            updates.append((matched[1], ast.unparse(call.args[0]).replace("self.", "")))
    known = {item.arg for item in wrapper.args.args}
    read = set(re.findall(r"\w+", " ".join(text for _, text in updates))) - known
    attributes = []
    for node in ast.walk(module) if module else ():
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            start = len(node.args.args) - len(node.args.defaults)
            pairs = zip(node.args.args[start:], node.args.defaults, strict=True)
            for item, default in pairs:
                if item.arg in read and item.annotation is not None:
                    kind, value = ast.unparse(item.annotation), ast.unparse(default)
                    attributes.append(f"{item.arg}: {kind} = {value}")
    return tuple(buffers), tuple(updates), tuple(attributes)
