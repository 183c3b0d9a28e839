"""AF42: a collective changes a copy that nobody reads.

all_reduce and broadcast write into the tensor that they are given: if that is a copy without a name, the result is lost, and each
rank goes on with its own part.

Words: a *collective* is such a function of torch.distributed; the *root* of a value is the origin of its memory, "fresh" if
new; `facts` are what is known of one autograd.Function; `own` are the methods that its class itself defines, as a mistake in an
inherited one is reported for the parent.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.flow import Step
from scaffold.inspect.functions import Method
from scaffold.inspect.imported_names import method_call
from scaffold.lint.model import Found, Rule
from scaffold.lint.questions import COLLECTIVES
from scaffold.primitives.calls import may_be_argument

MODULES = {"comm", "dist", "distributed"}


def find(facts: Facts) -> Iterator[Found]:
    """Yield collectives in place on an unnamed copy, `dist.all_reduce(x * 2)`; advice if it may be no copy: `x.contiguous()`."""
    for method in facts.function.own:
        for step in method.flow.steps:
            call = _collective(facts, step)
            argument = call.args[0] if call and call.args else None
            if argument is None:
                continue
            text, base = ast.unparse(argument), _base(facts, argument)
            if base:
                message = f"the result is lost where {text} is a copy: name it first, or reduce '{base}' itself"
                yield Found(argument, message, level="advice")
            elif _is_copy(facts, method, argument, step):
                message = f"'{text}' is a new tensor that nobody reads: the result is lost; name it first"
                yield Found(argument, message)


def _collective(facts: Facts, step: Step) -> ast.Call | None:
    """Return the collective called by a statement, alone or as `handle = dist.all_reduce(x, async_op=True)`; None without one."""
    statement = step.statement
    value = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
    if not isinstance(value, ast.Call):
        return None
    *owners, name = facts.names.resolve(value.func).split(".")
    # `from mine import all_reduce` is another function.
    is_one = name in COLLECTIVES and owners[-1:] and owners[-1] in MODULES
    asked = any(keyword.arg == "async_op" for keyword in value.keywords)
    return value if is_one and (isinstance(statement, ast.Expr) or asked) else None


def _base(facts: Facts, node: ast.expr) -> str:
    """Return the name of x in `x.contiguous()` or another call that may return x itself; "" for any other expression."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        owner = node.func.value
        if may_be_argument(method_call(node, facts.names)):
            return owner.id if isinstance(owner, ast.Name) else ""
    return ""


def _is_copy(facts: Facts, method: Method, node: ast.expr, at: Step) -> bool:
    """Return whether an expression, other than a name, surely makes a new tensor."""
    root = None if isinstance(node, ast.Name) else facts.values(method).root(node, at)
    made = root is not None and root.origin == "fresh"
    return made and isinstance(node, ast.BinOp | ast.Call)


RULE = Rule(
    id="AF42",
    title="a collective changes a copy that nobody reads",
    why=(
        "all_reduce and broadcast write into the tensor that they are given. "
        "x.contiguous() is x itself, or a copy: then the result is lost, and each rank "
        "goes on with its own part."
    ),
    bad="""\
import torch.distributed as dist


class Reduce(Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        grad_input = grad_output * 2
        dist.all_reduce(grad_input.contiguous())
        return grad_input
""",
    good="""\
import torch.distributed as dist


class Reduce(Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        grad_input = (grad_output * 2).contiguous()
        dist.all_reduce(grad_input)
        return grad_input
""",
    each=find,
)
