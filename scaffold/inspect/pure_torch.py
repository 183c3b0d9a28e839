"""Pure torch: decide whether a Function uses only torch and Python, so it runs wherever torch does.

`test-stub` and `adopt` call such a Function with guessed arguments; one with a kernel or a file's own objects might do anything.

Words: an *own* function is one of the file, or a method of the class; *known* are the functions of the file by name.

In: the facts of a Function. Out: a bool.
Invariant: yes only if every call in it, and in the functions of the file it calls, is one of torch, of a tensor or of Python
itself; a call by a name that the file does not explain makes it no.
"""

import ast
import builtins

from scaffold.inspect.facts import Facts
from scaffold.inspect.imported_names import decorators, method_call
from scaffold.inspect.vocabulary import SHAPELY, changes, is_tensor_call
from scaffold.primitives.calls import facts_of_call

# Functions of Python with effects beyond their result, or on what code says.
EFFECTS = {
    *("__import__", "breakpoint", "compile", "delattr", "eval", "exec", "exit"),
    *("globals", "input", "open", "quit", "setattr", "vars"),
}
PYTHON = {*dir(builtins)} - EFFECTS
# Methods of Python's values, and of tensors outside the table of primitives.
METHODS = {
    *dir(list),
    *dir(dict),
    *dir(str),
    "backward",
    "numpy",
    "retain_grad",
    "tolist",
}
OF_METHODS = ("staticmethod", "classmethod")
# Parts of torch that need more than tensors: a device, other processes, registered kernels.
ELSEWHERE = ("torch.ops.", "torch.cuda.", "torch.distributed.", "torch.utils.")


def is_torch(facts: Facts, also: tuple[str, ...] = ()) -> bool:
    """Return whether all calls of forward, setup_context and backward are of torch, of Python or of modules in `also`: `numpy.`.

    Functions of the file are followed: their calls count too. Such a Function can be tried with guessed arguments, since it
    has no effect but on tensors.
    """
    function = facts.function
    methods = (function.forward, function.setup_context, function.backward)
    contexts = {m.ctx for m in methods if m is not None}
    nodes = reached(facts, [m.node for m in methods if m is not None])
    known = _functions(facts)
    return all(
        # A function of the file may be called: its own calls are among those asked.
        _own(call, facts, known) is not None or _is_known(call, facts, contexts, also)
        for node in nodes
        for call in _calls(node)
    )


def reached(facts: Facts, starts: list[ast.FunctionDef]) -> list[ast.FunctionDef]:
    """Return all code of the file that `starts` run: themselves, and functions of the file and methods of the class they call.

    Calls are followed through these, too.
    """
    known, pending = _functions(facts), list(starts)
    found: dict[int, ast.FunctionDef] = {}
    while pending:
        node = pending.pop()
        if id(node) not in found:
            found[id(node)] = node
            owned = (_own(call, facts, known) for call in _calls(node))
            pending += [inner for inner in owned if inner is not None]
    return list(found.values())


def _functions(facts: Facts) -> dict[str, ast.FunctionDef]:
    """Return the top-level functions of the file by name."""
    body = facts.module.tree.body
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


def _calls(node: ast.FunctionDef) -> list[ast.Call]:
    """Return the calls in a function, without its decorators."""
    nodes = [inner for statement in node.body for inner in ast.walk(statement)]
    return [inner for inner in nodes if isinstance(inner, ast.Call)]


def _own(
    call: ast.Call, facts: Facts, known: dict[str, ast.FunctionDef]
) -> ast.FunctionDef | None:
    """Return the called function of the file, or method of the class; None for any other call.

    `known` are the functions of the file. One with a decorator of another package, a kernel for example, does not count.
    """
    function = call.func
    if isinstance(function, ast.Name):
        found = known.get(function.id)
        return found if found is not None and _is_bare(found, facts) else None
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        owners = ("cls", "self", facts.function.name)
        if function.value.id in owners:
            method = facts.function.method(function.attr)
            found = method.node if method is not None else None
            return found if found is not None and _is_bare(found, facts) else None
    return None


def _is_bare(node: ast.FunctionDef, facts: Facts) -> bool:
    """Return whether a function has no decorators but torch's and those of methods; another's, `@triton.jit`, may make something else of it."""
    names = decorators(node, facts.names)
    return all(name.startswith("torch.") or name in OF_METHODS for name in names)


def _is_known(
    call: ast.Call, facts: Facts, contexts: set[str | None], also: tuple[str, ...]
) -> bool:
    """Return whether a call is of Python, of ctx, of torch, or of a module in `also`; `contexts` are the names of ctx.

    A method of anything else, `x.exp()`, is known if tensors or Python's values have one of this name. Parts of torch that need
    more than tensors are not: `torch.distributed` (ELSEWHERE).
    """
    function = call.func
    # An imported name, `exp` of torch, is looked up below by its dotted name.
    if isinstance(function, ast.Name) and function.id not in facts.names.imported:
        return function.id in PYTHON
    owner = function.value if isinstance(function, ast.Attribute) else None
    if isinstance(owner, ast.Name) and owner.id in contexts:
        return True
    dotted = facts.names.resolve(function)
    if dotted.startswith(("torch.", "math.", *also)):
        return not dotted.startswith(ELSEWHERE)
    name = method_call(call, facts.names)
    known = bool(facts_of_call(name)) or is_tensor_call(name) or changes(name)
    return known or name in METHODS | SHAPELY
