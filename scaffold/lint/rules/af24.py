"""AF24: generate_vmap_rule where there can be no generated rule.

With a vmap of its own the two contradict each other, and vmap raises; after mark_dirty a generated rule raises too. The fix
removes the flag.

Words: `facts` are what is known of one autograd.Function; `marked` are the names passed to a method of ctx such as mark_dirty,
None if unknown.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect.facts import Facts
from scaffold.lint.model import Edit, Found, Rule, span


def find(facts: Facts) -> Iterator[Found]:
    """Yield a Function with generate_vmap_rule = True and a vmap of its own; as advice, one that may call mark_dirty."""
    function = facts.function
    if not function.generate_vmap_rule:
        return
    edits = tuple(
        Edit("remove", span(item))
        for item in function.node.body
        if isinstance(item, ast.Assign)
        and len(item.targets) == 1
        and isinstance(item.targets[0], ast.Name)
        and item.targets[0].id == "generate_vmap_rule"
    )
    if "vmap" in function.methods:
        message = "generate_vmap_rule and a vmap of its own: RuntimeError under vmap; remove the flag"
        yield Found(function.methods["vmap"].node, message, edits)
    # None, unknown, may be a mark as well.
    elif facts.marked("mark_dirty") != frozenset():
        yield Found(
            function.node,
            "generate_vmap_rule in an op that works in place: vmap raises",
            edits,
            "advice",
        )


RULE = Rule(
    id="AF24",
    title="generate_vmap_rule where there can be no generated rule",
    why=(
        "With a vmap of its own the two contradict each other, and vmap raises; with "
        "mark_dirty a generated rule raises too."
    ),
    bad="""\
class Double(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, x):
        return Double.apply(x), in_dims[0]
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
    def vmap(info, in_dims, x):
        return Double.apply(x), in_dims[0]
""",
    each=find,
    fixes=True,
)
