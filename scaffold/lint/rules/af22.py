"""AF22: a Function defines jvp, which torch.compile(fullgraph=True) refuses.

The fix moves jvp to a subclass, whose apply is called where derivatives are taken forward, outside of compiled code.

Words: `facts` are what is known of one autograd.Function.
"""

import re
from collections.abc import Iterator
from textwrap import dedent, indent

from scaffold.inspect.facts import Facts
from scaffold.lint.model import Edit, Found, Rule, span


def find(facts: Facts) -> Iterator[Found]:
    """Yield the jvp of a Function that has a backward of its own, too."""
    function = facts.function
    if "jvp" in function.methods and "backward" in function.methods:
        message = (
            "jvp makes torch.compile(fullgraph=True) fail; define it in a subclass"
        )
        yield Found(function.methods["jvp"].node, message, _moved(facts))


def _moved(facts: Facts) -> tuple[Edit, ...]:
    """Return the edits to move jvp, with comments above it, to a subclass `...WithJvp` after the Function.

    () if the file uses forward-mode derivatives, if jvp is all of the class, or if the class is nested, decorated or defined twice.
    """
    function, text = facts.function, facts.module.text
    node, name = function.methods["jvp"].node, f"{function.name}WithJvp"
    alone = function.node.body == [node] or function.node.decorator_list
    used = re.search(rf"forward_ad|\.jvp\(|jacfwd|fwAD|\b{name}\b", text)
    if used or alone or function.nested or not function.unique:
        return ()
    lines = text.split("\n")
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
    while lines[first - 1].strip().startswith("#"):
        first -= 1
    body = dedent("\n".join(lines[first : node.end_lineno]))
    made = f"\n\nclass {name}({function.name}):\n{indent(body, '    ')}\n"
    return (Edit("drop", span(node)), Edit("after", span(function.node), made))


RULE = Rule(
    id="AF22",
    title="a Function defines jvp",
    why=(
        "torch.compile(fullgraph=True) fails on a Function that defines jvp where an "
        "input needs grad. Put it into a subclass, whose apply is called where "
        "derivatives are taken forward, outside of compiled code."
    ),
    bad="""\
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

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * 2
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
    level="advice",
    each=find,
    fixes=True,
)
