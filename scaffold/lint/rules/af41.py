"""AF41: forward hands something to backward through the class.

The class is one for all calls: if a Function is applied twice before backward runs, as in any network with two such layers, the
first backward reads what the second forward left.

Words: `facts` are what is known of one autograd.Function; `own` are the methods that its class itself defines, as a mistake in
an inherited one is reported for the parent; `guards` are the branches around a statement.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.classes import parameters_of
from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Method
from scaffold.lint.model import Found, Rule


def find(facts: Facts) -> Iterator[Found]:
    """Yield class attributes set in each call of forward and read in backward: `Op.shape = x.shape`.

    An attribute set in a branch may be a cache, and is not reported.
    """
    backward = facts.function.backward
    if backward is None:
        return
    read = {node.attr for node in _of_class(facts, backward, ast.Load)}
    seen: set[str] = set()
    for method in (facts.function.forward, facts.function.setup_context):
        if method is None or method not in facts.function.own:
            continue  # not its own: reported for the parent class
        stored = {id(node): node for node in _of_class(facts, method, ast.Store)}
        for step in method.flow.steps:
            statement = step.statement
            if step.guards or not isinstance(statement, ast.Assign):
                continue
            for node in (stored.get(id(target)) for target in statement.targets):
                if node is None or node.attr not in read or node.attr in seen:
                    continue
                if _depends(method, statement.value):
                    seen.add(node.attr)
                    message = f"{ast.unparse(node)} is one for all calls: a second call before backward overwrites it; keep it on ctx"
                    sure = facts.values(method).is_tensor(statement.value, step)
                    yield Found(statement, message, level=None if sure else "advice")


def _of_class(
    facts: Facts, method: Method, use: type[ast.expr_context]
) -> Iterator[ast.Attribute]:
    """Yield the attributes of the class in a method, by its name or by `cls`: read (`use` is ast.Load) or set (ast.Store)."""
    named = {facts.function.name}
    if method.binding == "class":
        named |= {item.name for item in [*parameters_of(method.node)][:1]}  # cls
    for node in ast.walk(method.node):
        if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, use):
            continue
        if isinstance(node.value, ast.Name) and node.value.id in named:
            yield node


def _depends(method: Method, value: ast.expr) -> bool:
    """Return whether a value may differ from call to call, as it uses names of the method."""
    known = method.flow.parameters | method.flow.bindings.keys()
    return any(isinstance(n, ast.Name) and n.id in known for n in ast.walk(value))


RULE = Rule(
    id="AF41",
    title="forward hands something to backward through the class",
    why=(
        "The class is one for all calls: where a Function is applied twice before "
        "backward runs, as in any network with two such layers, the first backward "
        "reads what the second forward left."
    ),
    bad="""\
class Square(Function):
    @staticmethod
    def forward(ctx, x):
        Square.x = x
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * Square.x * grad_output
""",
    good="""\
class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x * grad_output
""",
    each=find,
)
