"""AF09: a tensor marked dirty is not returned.

apply raises a RuntimeError then. The fix returns the input where forward returns `x.clone()`, or removes the mark.

Words: a *root* is the origin of a tensor's memory: "parameter" with its name, or "fresh" if it is newly made; None if unknown;
`facts` are what is known of one autograd.Function; `own` are the methods that its class itself defines, as a mistake in an
inherited one is reported for the parent.
"""

import ast
from collections.abc import Iterator

from scaffold.formula.optionality import is_none
from scaffold.inspect.facts import ContextCall, Facts, Returned
from scaffold.inspect.imported_names import method_call, torch_call
from scaffold.lint.model import Edit, Found, Rule, span
from scaffold.primitives.calls import has_memory


def find(facts: Facts) -> Iterator[Found]:
    """Yield mark_dirty of an input surely missing from all outputs returned after it."""
    forward = facts.function.forward
    if forward is None or forward.ctx is None or forward not in facts.function.own:
        return  # not its own: reported for the parent class
    values = facts.values(forward)
    for item in facts.context_calls(forward, "mark_dirty"):
        for argument in item.call.args:
            root = (
                values.root(argument, item.step)
                if isinstance(argument, ast.Name)
                else None
            )
            if root is None or root.origin != "parameter" or root.views:
                continue
            after = [
                r for r in facts.outputs if forward.flow.may_follow(item.step, r.step)
            ]
            # Without a return that surely follows nothing is known.
            if after and all(_lacks(facts, root.name, r) for r in after):
                message = (
                    f"'{root.name}' is marked dirty and not returned: RuntimeError"
                )
                edits = _returned(facts, root.name, after) or _unmarked(facts, item)
                yield Found(item.call, message, edits)


def _returned(facts: Facts, name: str, after: list[Returned]) -> tuple[Edit, ...]:
    """Return the edit to return the tensor itself instead of `x.clone()`; () unless this is the only output."""
    forward, calls = facts.function.forward, [item.node for item in after]
    assert forward is not None
    if len(facts.outputs) != 1 or len(calls) != 1:
        return ()
    (call,) = calls
    if not isinstance(call, ast.Call) or method_call(call, facts.names) != "clone":
        return ()
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    root = facts.values(forward).root(owner, after[0].step) if owner else None
    # An argument, `x.clone(memory_format=f)`, may ask for other strides.
    if call.args or call.keywords or root is None or root.views or root.name != name:
        return ()
    return (Edit("replace", span(call), ast.unparse(owner or call)),)


def _unmarked(facts: Facts, item: ContextCall) -> tuple[Edit, ...]:
    """Return the edit to remove the mark if nothing can have changed the tensor: every use only reads it, for a new tensor."""
    forward, (argument, *others) = facts.function.forward, item.call.args
    if forward is None or others or not isinstance(argument, ast.Name):
        return ()
    nodes = list(ast.walk(forward.node))
    harmless = {id(node) for other in nodes for node in _only_read(facts, other)}
    reads = [n for n in nodes if isinstance(n, ast.Name) and n.id == argument.id]
    if not isinstance(item.step.statement, ast.Expr):
        return ()
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


def _lacks(facts: Facts, name: str, item: Returned) -> bool:
    """Return whether no value of a return is the input `name`; False if the origin of one is unknown."""
    forward = facts.function.forward
    if item.values is None or forward is None:
        return False
    values = facts.values(forward)
    roots = [None if is_none(v) else values.root(v, item.step) for v in item.values]
    known = all(
        r is not None or is_none(v) for r, v in zip(roots, item.values, strict=True)
    )
    return known and all(
        r is None or r.origin == "fresh" or (r.origin == "parameter" and r.name != name)
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
