"""AF09: a tensor marked dirty is not returned.

apply raises a RuntimeError then. The fix returns the input where forward returns `x.clone()`, or removes the mark.

Words: a *root* is the origin of a tensor's memory: "parameter" with its name, or "fresh" if it is newly made; None if unknown;
`facts` are what is known of one autograd.Function.
"""

import ast
from collections.abc import Iterator

from scaffold.formula.optionality import is_none
from scaffold.inspect.facts import ContextCall, Facts, Returned
from scaffold.inspect.functions import Method
from scaffold.inspect.imported_names import method_call, torch_call
from scaffold.lint.model import Edit, Found, Rule, span
from scaffold.lint.questions import for_own
from scaffold.primitives.calls import has_memory


@for_own("forward")
def find(facts: Facts, forward: Method) -> Iterator[Found]:
    """Yield mark_dirty of an input surely missing from all outputs returned after it."""
    values = facts.values(forward)
    for item in facts.context_calls(forward, "mark_dirty"):
        for argument in (a for a in item.call.args if isinstance(a, ast.Name)):
            root = values.root(argument, item.step)
            if root is None or root.origin != "parameter" or root.views:
                continue
            after = [
                r for r in facts.outputs if forward.flow.may_follow(item.step, r.step)
            ]
            # Without a return that surely follows nothing is known.
            if after and all(_lacks(facts, forward, root.name, r) for r in after):
                message = (
                    f"'{root.name}' is marked dirty and not returned: RuntimeError"
                )
                edits = _returned(facts, forward, root.name, after)
                edits = edits or _unmarked(facts, forward, item)
                yield Found(item.call, message, edits)


def _returned(
    facts: Facts, forward: Method, name: str, after: list[Returned]
) -> tuple[Edit, ...]:
    """Return the edit to return the tensor itself instead of `x.clone()`; () unless this is the only output."""
    call = after[0].node
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return ()
    owner = call.func.value
    root = facts.values(forward).root(owner, after[0].step)
    if len(facts.outputs) != 1 or method_call(call, facts.names) != "clone":
        return ()
    # An argument, `x.clone(memory_format=f)`, may ask for other strides.
    if call.args or call.keywords or root is None or root.views or root.name != name:
        return ()
    return (Edit("replace", span(call), ast.unparse(owner)),)


def _unmarked(facts: Facts, forward: Method, item: ContextCall) -> tuple[Edit, ...]:
    """Return the edit to remove the mark if nothing can have changed the tensor: every use only reads it, for a new tensor."""
    argument, *others = item.call.args
    if others or not isinstance(argument, ast.Name):
        return ()
    if not isinstance(item.step.statement, ast.Expr):
        return ()  # the call is part of another statement
    nodes = list(ast.walk(forward.node))
    harmless = {id(node) for other in nodes for node in _only_read(facts, other)}
    reads = [n for n in nodes if isinstance(n, ast.Name) and n.id == argument.id]
    if any(id(node) not in harmless for node in reads if node is not argument):
        return ()
    return (Edit("remove", span(item.step.statement)),)


def _only_read(facts: Facts, node: ast.AST) -> tuple[ast.AST, ...]:
    """Return the operands of an expression that makes a new tensor from them, and so changes none; () for any other node."""
    if isinstance(node, ast.BinOp):
        return node.left, node.right
    if isinstance(node, ast.Compare):
        return node.left, *node.comparators
    if not isinstance(node, ast.Call) or any(k.arg == "out" for k in node.keywords):
        return ()
    if has_memory(torch_call(node, facts.names), "fresh"):
        return tuple(node.args)
    owned = has_memory(method_call(node, facts.names), "fresh")
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    return (*node.args, owner) if owned and owner is not None else ()


def _lacks(facts: Facts, forward: Method, name: str, item: Returned) -> bool:
    """Return whether no value of a return is the input `name`; False if the origin of one is unknown."""
    if item.values is None:
        return False
    values = facts.values(forward)
    roots = [values.root(v, item.step) for v in item.values if not is_none(v)]
    return all(
        r is not None
        and (r.origin == "fresh" or r.origin == "parameter" and r.name != name)
        for r in roots
    )


RULE = Rule(
    id="AF09",
    title="a tensor that is marked dirty is not returned",
    why=(
        "Everything that mark_dirty names must be an output: otherwise apply raises a "
        "RuntimeError."
    ),
    bad="""\
class Double(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2
""",
    good="""\
class Double(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2
""",
    each=find,
    fixes=True,
)
