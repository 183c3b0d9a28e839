"""AF29: a custom operator returns an input or a view of one.

PyTorch raises a RuntimeError, since an operator's output must not share memory with an input. The fix clones it.

Words: a *root* is the origin of a tensor's memory, here a parameter of the operator.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect import Module, Values
from scaffold.inspect.flow import Flow
from scaffold.lint.model import Edit, Found, Rule, span


def find(module: Module) -> Iterator[Found]:
    """Yield returned values of custom operators that share memory with a parameter, with the edit to clone them."""
    for operator in module.operators:
        flow = Flow(operator.node, [item.name for item in operator.parameters])
        values = Values(flow, module.names, None)
        for step in flow.returns:
            assert isinstance(step.statement, ast.Return)
            node = step.statement.value
            parts = node.elts if isinstance(node, ast.Tuple) else [node] if node else []
            for part in parts:
                root = values.root(part, step)
                if root is not None and root.origin == "parameter":
                    text = ast.unparse(part)
                    edit = Edit("replace", span(part), f"{text}.clone()")
                    yield Found(
                        part,
                        f"'{text}' shares memory with an input: RuntimeError; clone it",
                        (edit,),
                        function=operator.name,
                    )


RULE = Rule(
    id="AF29",
    title="a custom operator returns an input or a view of one",
    why=(
        "An output must not share memory with an input: "
        "RuntimeError (pytorch#134278)."
    ),
    bad="""\
@torch.library.custom_op("lib::same", mutates_args=())
def same(x: Tensor) -> Tensor:
    return x
""",
    good="""\
@torch.library.custom_op("lib::same", mutates_args=())
def same(x: Tensor) -> Tensor:
    return x.clone()
""",
    level="advice",
    whole=find,
    fixes=True,
)
