"""AF20: a forward with ctx as a parameter, refused by all transforms of torch.func.

torch.func (grad, vmap, jacrev) needs setup_context. The fix moves the statements with ctx from the end of forward to a
setup_context, and drops the parameter ctx:

    def forward(ctx, x):            def forward(x):
        ctx.save_for_backward(x)        return x * 2
        return x * 2            ->  def setup_context(ctx, inputs, output):
                                        (x,) = inputs
                                        ctx.save_for_backward(x)

Words: `facts` are what is known of one autograd.Function.
"""

import ast
from collections.abc import Iterator

from scaffold.formula.names import names_in
from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Method
from scaffold.lint.model import Edit, Found, Rule, span
from scaffold.lint.questions import is_ctx

PLAIN = {"forward", "backward"}
# Calls on ctx that can be made after forward has computed.
CALLS = {"save_for_backward", "set_materialize_grads"}


def find(facts: Facts) -> Iterator[Found]:
    """Yield the class of a Function whose own forward takes ctx, with all its bases known."""
    function = facts.function
    if (
        function.setup_context is None
        and function.complete
        and "forward" in function.methods
    ):
        yield Found(
            function.node,
            "forward takes ctx: torch.func refuses it; move what is saved to setup_context",
            _separated(facts, function.methods["forward"]),
        )


def _separated(facts: Facts, forward: Method) -> tuple[Edit, ...]:
    """Return the edits to move all statements with ctx to a setup_context; () if one reads more than inputs and the one output.

    Nor if the file calls forward itself, as that would pass ctx.
    """
    backward = facts.function.methods.get("backward")
    called = f"{facts.function.name}.forward(" in facts.module.text
    kept = [
        step.statement
        for step in forward.flow.steps
        if forward.ctx in names_in([step.statement])
    ]
    if backward is None or called or not _is_plain(facts, forward):
        return ()
    if not all(_can_wait(statement, forward) for statement in kept):
        return ()
    text = _setup_context(facts, forward, kept)
    parameters = ", ".join(
        (
            item.name
            if item.default is None
            else f"{item.name}={ast.unparse(item.default)}"
        )
        for item in forward.positional
    )
    if not text:
        return ()
    return (
        Edit("signature", span(forward.node), parameters),
        *(Edit("remove", span(statement)) for statement in kept),
        Edit("before", span(backward.node), text),
    )


def _setup_context(facts: Facts, forward: Method, kept: list[ast.stmt]) -> str:
    """Return the text of a setup_context with the statements `kept`, those with ctx, and reads of the inputs they need.

    "" if one reads a local of forward other than inputs and the output, or if a name is taken.
    """
    inputs = [item.name for item in forward.positional]
    (last,) = (item.node for item in facts.outputs)  # of one return: `_is_plain`
    named = isinstance(last, ast.Name) and last.id not in inputs
    output = last.id if isinstance(last, ast.Name) and named else "output"
    bindings = forward.flow.bindings
    known = {*inputs, forward.ctx} - bindings.keys()
    # Bound twice, it may be kept with another value than the one returned; so may a local `output` of `return output * 2`.
    if named and len(bindings.get(output, ())) == 1:
        known.add(output)
    read = names_in(kept)
    if read & (forward.flow.parameters | bindings.keys()) - known:
        return ""
    if {"inputs", output} & {*inputs, forward.ctx}:
        return ""
    rows = [ast.unparse(statement) for statement in kept]
    if read & set(inputs):
        listed = ", ".join(name if name in read else "_" for name in inputs)
        rows.insert(
            0, f"{listed} = inputs" if len(inputs) > 1 else f"({listed},) = inputs"
        )
    head = f"\n@staticmethod\ndef setup_context({forward.ctx}, inputs, {output}):"
    return head + "".join(f"\n    {row}" for row in rows or ["pass"])


def _is_plain(facts: Facts, forward: Method) -> bool:
    """Return whether a Function is simple enough to split.

    It has no base or subclass, a static forward with positional inputs and one return, and a backward.
    """
    function, count = facts.function, len(forward.positional)
    related = any(function in other.parents for other in facts.module.functions)
    sole = set(function.methods) == PLAIN and not function.parents and not related
    bare = forward.decorators == ("staticmethod",) and forward.ctx is not None
    if not sole or not bare or count != len(forward.parameters) or not count:
        return False
    # After a change in place setup_context would keep other values.
    if len(facts.outputs) != 1 or facts.changes(forward):
        return False
    # Defaults that a call omits are inputs of setup_context, and of backward.
    return all(item.length == count for item in facts.gradients)


def _can_wait(statement: ast.stmt, forward: Method) -> bool:
    """Return whether a statement only keeps something on ctx, `ctx.n = n` or `ctx.save_for_backward(x)`, and so may come last."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        return isinstance(target, ast.Attribute) and is_ctx(target.value, forward)
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    called = statement.value.func
    return (
        isinstance(called, ast.Attribute)
        and called.attr in CALLS
        and is_ctx(called.value, forward)
    )


RULE = Rule(
    id="AF20",
    title="forward and setup_context are one",
    why=(
        "torch.func (grad, vmap, jacrev) refuses a Function whose forward takes ctx; "
        "setup_context serves both worlds."
    ),
    bad="""\
class Double(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2
""",
    good="""\
class Double(Function):
    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2
""",
    each=find,
    level="advice",
    default=False,
    fixes=True,
)
