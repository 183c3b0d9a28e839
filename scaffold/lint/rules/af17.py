"""AF17: forward returns a list or a dict.

autograd looks at a tensor, or a tuple of them: tensors in a list or a dict do not require grad, so no gradient ever arrives. The
fix makes a tuple of a list.

Words: `facts` are what is known of one autograd.Function; a binding is *definite* if it alone reaches a statement, and has an
`element` if it is a part of an unpacked value.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Method
from scaffold.lint.model import Edit, Found, Rule, span
from scaffold.lint.questions import for_own

LISTS = (ast.List, ast.ListComp)


@for_own("forward", trivial=False)
def find(facts: Facts, forward: Method) -> Iterator[Found]:
    """Yield returns of forward that surely are a list or a dict, by their text or under a name; a list with the edit to make a tuple."""
    for item in facts.outputs:
        value = item.node
        if isinstance(value, ast.Name):
            bound = forward.flow.definite(value.id, item.step)
            # Of `a, b = [x], y` the text of the right side is not that of `a`.
            is_whole = bound is not None and bound.element is None
            value = bound.value if bound is not None and is_whole else None
        kind = _kind(value)
        if kind and item.node is not None:
            edits = _as_tuple(facts, item.node) if kind == "list" else ()
            yield Found(
                item.node,
                f"forward returns a {kind}: the tensors in it do not require grad; return a tuple",
                edits,
            )


def _kind(node: ast.expr | None) -> str:
    """Return "list" or "dict" if an expression surely makes one, else ""."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id if node.func.id in ("list", "dict") else ""
    if isinstance(node, ast.Dict | ast.DictComp):
        return "dict"
    return "list" if isinstance(node, LISTS) else ""


def _as_tuple(facts: Facts, node: ast.expr) -> tuple[Edit, ...]:
    """Return the edit to make a tuple of a list: `[a, b]` -> `(a, b)`, any other -> `tuple(...)`."""
    text = ast.get_source_segment(facts.module.text, node) or ast.unparse(node)
    # `[a]` would become `(a)`, which is no tuple.
    if isinstance(node, ast.List) and len(node.elts) > 1:
        return (Edit("replace", span(node), f"({text[1:-1]})"),)
    return (Edit("replace", span(node), f"tuple({text})"),)


RULE = Rule(
    id="AF17",
    title="forward returns a list or a dict",
    why=(
        "Only a tensor, or a tuple of them, is looked at: tensors in a list or a dict "
        "do not require grad, so no gradient ever arrives (pytorch#87713)."
    ),
    bad="""\
class Split(Function):
    @staticmethod
    def forward(ctx, x):
        return [x * 2, x * 3]

    @staticmethod
    def backward(ctx, grad_double, grad_triple):
        return grad_double * 2 + grad_triple * 3
""",
    good="""\
class Split(Function):
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
