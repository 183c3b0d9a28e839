"""AF25: a Function is used in a way that torch refuses.

Defining both vjp and backward raises; `Double(x)` only makes an object, and calling that raises: a Function is used through apply,
as the fix does.

Words: `facts` are what is known of one autograd.Function.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.lint.model import Edit, Found, Rule, span


def find(facts: Facts) -> Iterator[Found]:
    """Yield vjp beside backward, and calls of the class or of an instance instead of apply.

    No calls if the class defines them (`__call__`), or if its name may stand for something else.
    """
    function = facts.function
    if "vjp" in function.methods and "backward" in function.methods:
        yield Found(
            function.methods["vjp"].node,
            "both vjp and backward are defined: RuntimeError; keep one",
        )
    if {"__call__", "__new__"}.intersection(function.methods):
        return
    if function.nested or not function.unique or not function.complete:
        return  # not complete: an unseen base may define `__call__`
    found = tuple(_called(facts))
    if found and not _defined_otherwise(facts):
        yield from found


def _called(facts: Facts) -> Iterator[Found]:
    """Yield calls of the class, of an instance, and of an attribute set to an instance."""
    function = facts.function
    for scope in facts.module.scopes:
        if isinstance(scope, ast.ClassDef):
            yield from _on_attributes(scope, function.name)
    # With an `__init__` of its own, `Scale(3)` makes an object on purpose.
    plain = function.method("__init__") is None and not function.node.decorator_list
    for call in facts.module.calls:
        made = call.func
        if isinstance(made, ast.Call) and _is_of(made, function.name):
            message = f"an instance of {function.name} is called: RuntimeError"
            bare = not (made.args or made.keywords)
            yield _applied(call, message, function.name, made if bare else None)
        # `Double()` without arguments may be made for its `apply`.
        elif plain and _is_of(call, function.name) and call.args:
            message = f"{function.name}(...) makes an object and computes nothing"
            bare = not call.keywords  # apply takes no keywords
            yield _applied(call, message, function.name, made if bare else None)


def _on_attributes(scope: ast.ClassDef, name: str) -> Iterator[Found]:
    """Yield calls of `self.op(x)` in a class with `self.op = Double()`, where Double (`name`) is the Function."""
    nodes = list(ast.walk(scope))
    made = {
        ast.unparse(target): node.value
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and _is_of(node.value, name)
        for target in node.targets
        if isinstance(target, ast.Attribute)
    }
    for node in nodes if made else ():
        owner = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if owner in made:
            call = made[owner]
            # `Scale(3)` keeps its 3: apply has no place for it.
            bare = not (call.args or call.keywords)
            message = f"{owner} is an instance of {name} and is called: RuntimeError"
            yield _applied(node, message, name, call if bare else None)


def _is_of(call: ast.Call, name: str) -> bool:
    """Return whether a call is of the class of this name: `Double(...)`."""
    return isinstance(call.func, ast.Name) and call.func.id == name


def _applied(call: ast.AST, message: str, name: str, made: ast.expr | None) -> Found:
    """Return the finding for a wrong call; `made`, if given, is the expression to be replaced by `Double.apply`."""
    text = f"{name}.apply"
    edits = (Edit("replace", span(made), text),) if made else ()
    return Found(call, f"{message}; use {text}", edits)


def _defined_otherwise(facts: Facts) -> bool:
    """Return whether the class's name has another definition too, as in `Double = Double.apply`."""
    name, function = facts.function.name, ast.FunctionDef | ast.AsyncFunctionDef
    return name in facts.module.names.imported or any(
        isinstance(node, function)
        and node.name == name
        or isinstance(node, ast.Name)
        and node.id == name
        and isinstance(node.ctx, ast.Store)
        or isinstance(node, ast.arg)
        and node.arg == name
        for node in ast.walk(facts.module.tree)
    )


RULE = Rule(
    id="AF25",
    title="a Function is used in a way that torch refuses",
    why=(
        "Defining both vjp and backward raises when it is differentiated. Double(x) makes "
        "an object, which cannot be called: Functions are used through apply."
    ),
    bad="""\
class Double(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2


def double(x):
    return Double()(x)
""",
    good="""\
class Double(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2


def double(x):
    return Double.apply(x)
""",
    each=find,
    fixes=True,
)
