"""AF30: gradcheck in single precision.

The tolerances of gradcheck assume double precision: in float32 a right gradient fails, or they were widened until a wrong one
passes. The fix adds `dtype=torch.double` where the input is made.

Words: a binding is *definite* if it alone reaches a statement, and has an `element` if it is a part of an unpacked value.
"""

import ast
from collections.abc import Iterator

from scaffold.inspect import Module
from scaffold.inspect.flow import Flow, Step
from scaffold.inspect.imported_names import torch_call
from scaffold.lint.model import Edit, Found, Rule, span

RANDOM = {"randn", "rand", "ones", "zeros", "tensor", "full", "linspace"}


def find(module: Module) -> Iterator[Found]:
    """Yield inputs of gradcheck made without a dtype in the same function."""
    if "set_default_dtype" in module.text or "set_default_tensor_type" in module.text:
        return  # the default dtype may be double
    for scope in module.scopes:
        if isinstance(scope, ast.FunctionDef):
            yield from _in_function(module, scope)


def _in_function(module: Module, scope: ast.FunctionDef) -> Iterator[Found]:
    """Yield the findings for each call of gradcheck or gradgradcheck in a function."""
    flow = Flow(scope, [])
    for step in flow.steps:
        for node in step.expressions():
            # The inputs are the second argument.
            if not isinstance(node, ast.Call) or len(node.args) < 2:
                continue
            name = module.names.resolve(node.func)
            if name.startswith("torch.") and name.split(".")[-1] in (
                "gradcheck",
                "gradgradcheck",
            ):
                yield from _single(module, flow, step, node)


def _single(module: Module, flow: Flow, step: Step, call: ast.Call) -> Iterator[Found]:
    """Yield arguments of a gradcheck (`call`, in the statement `step`) created without a dtype, with the edit to add double."""
    given = call.args[1]
    for item in given.elts if isinstance(given, ast.Tuple | ast.List) else [given]:
        made: ast.expr | None = item
        if isinstance(item, ast.Name):
            bound = flow.definite(item.id, step)
            made = bound.value if bound and bound.element is None else None
        if (
            not isinstance(made, ast.Call)
            or torch_call(made, module.names) not in RANDOM
        ):
            continue
        words = {keyword.arg: keyword.value for keyword in made.keywords}
        if (
            "dtype" in words
            or None in words  # `**options` may hold a dtype
            or torch_call(made, module.names) == "tensor"
            and "requires_grad" not in words
        ):
            continue  # without requires_grad, torch.tensor may be given integers
        text = ast.get_source_segment(module.text, made) or "#"
        # The text reads `torch`, and behind a comment it would be part of it.
        fixable = "torch" in module.names.imported and "#" not in text
        doubled = f"{text[:-1].rstrip().rstrip(',')}, dtype=torch.double)"
        edits = (Edit("replace", span(made), doubled),) if fixable else ()
        yield Found(
            made, "gradcheck of a float32 tensor: its tolerances assume double", edits
        )


RULE = Rule(
    id="AF30",
    title="gradcheck in single precision",
    why=(
        "The tolerances of gradcheck assume double precision: in float32 a right "
        "gradient fails, or they were widened until a wrong one passes."
    ),
    bad="""\
def test_double():
    x = torch.randn(3, requires_grad=True)
    assert gradcheck(torch.exp, (x,))


from torch.autograd import gradcheck
""",
    good="""\
def test_double():
    x = torch.randn(3, dtype=torch.double, requires_grad=True)
    assert gradcheck(torch.exp, (x,))


from torch.autograd import gradcheck
""",
    level="advice",
    whole=find,
    fixes=True,
)
