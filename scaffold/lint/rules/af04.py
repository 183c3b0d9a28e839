"""AF04: backward does not take one gradient for each output.

The engine calls backward with one gradient for each value that forward returns: another number of parameters is a TypeError.
The fix adds or drops parameters that backward does not read.

Words: `facts` are what is known of one autograd.Function; `own` are the methods that its class itself defines, as a mistake in
an inherited one is reported for the parent; a Function is *trivial* if its backward gives no gradient; `marked` are the names
passed to a method of ctx such as mark_dirty, None if unknown.
"""

import ast
from collections.abc import Iterator

from scaffold.formula.names import names_in
from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Method
from scaffold.lint.model import Edit, Found, Rule, span


def find(facts: Facts) -> Iterator[Found]:
    """Yield a backward that takes fewer gradients than forward has outputs, or requires more."""
    function = facts.function
    backward, outputs = function.backward, facts.output_count
    if backward is None or outputs is None or facts.is_trivial:
        return  # trivial: backward gives no gradient
    if not any(method in function.own for method in (function.forward, backward)):
        return  # not its own: reported for the parent class
    if any(
        item.passing == "keyword" and item.default is None
        for item in backward.parameters
    ):
        return  # the engine passes no keywords: another mistake
    most = len(backward.positional)
    few = outputs > most and backward.variadic is None
    if few or outputs < backward.required:
        takes = f"{most} gradient{'s' * (most != 1)}"
        returns = f"{outputs} value{'s' * (outputs != 1)}"
        message = f"backward takes {takes}, but forward returns {returns}: TypeError"
        yield Found(backward.node, message, _fitted(facts, backward, outputs))


def _fitted(facts: Facts, backward: Method, outputs: int) -> tuple[Edit, ...]:
    """Return the edit for backward to take one gradient for each output; () if it would drop a gradient read.

    A gradient is only added for an output marked as non-differentiable: any other one has to be used.
    """
    given = [item.name for item in backward.positional]
    # No default, no `*grads`, no keyword: a list of names is the whole signature.
    plain = len(given) == backward.required == len(backward.parameters)
    if not plain or backward.ctx is None:
        return ()
    read = names_in([backward.node])
    names = [item.arg for item in backward.node.args.args]
    if len(given) > outputs:
        if read & set(given[outputs:]):
            return ()
        # `names` begins with ctx, so it is cut from its end.
        del names[outputs - len(given) :]
    else:
        missing = _constant_outputs(facts, len(given))
        # A parameter named as something backward reads would hide it.
        if missing is None or read & set(missing):
            return ()
        names += missing
    return (Edit("signature", span(backward.node), ", ".join(names)),)


def _constant_outputs(facts: Facts, start: int) -> list[str] | None:
    """Return names for the gradients of the outputs from position `start` on, if all are marked as non-differentiable; else None."""
    marked = facts.marked("mark_non_differentiable") or frozenset()
    found = set()
    for item in facts.outputs:
        last = (item.values or ())[start:]
        names = tuple(node.id for node in last if isinstance(node, ast.Name))
        if not last or len(names) < len(last) or not marked.issuperset(names):
            return None
        found.add(names)
    # One set of names: the returns of forward agree on them.
    return [f"_grad_{name}" for name in found.pop()] if len(found) == 1 else None


RULE = Rule(
    id="AF04",
    title="backward does not take one gradient for each output",
    why=(
        "The engine calls backward with one gradient for each value that forward "
        "returns: another number of parameters is a TypeError."
    ),
    bad="""\
class Both(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2
""",
    good="""\
class Both(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, grad_double, grad_triple):
        return grad_double * 2 + grad_triple * 3
""",
    each=find,
    fixes=True,
)
