"""A Function is read without its autocast; one that refuses to be differentiated, as one that is decorated so."""

import ast

import pytest

from scaffold.inspect import inspect_text
from scaffold.inspect.computation import computation_of
from scaffold.inspect.functions import Function
from tests.derive.building import op_text

GATE = {"forward": "x * x * torch.sigmoid(y)", "once_differentiable": True}


def read(text: str) -> Function:
    found = inspect_text(text, "ops.py", frozenset())
    return found.functions[0]


@pytest.mark.parametrize("style", ["setup-context", "combined"])
@pytest.mark.parametrize("inputs", ["x[N], y[N]", "x[N], y[N; const]", "x[N]"])
def test_the_computation_is_that_of_an_op_that_refuses_nothing(
    inputs: str, style: str
) -> None:
    forward = GATE["forward"] if "y" in inputs else "x * torch.exp(x)"
    table = {**GATE, "forward": forward, "style": style}
    once = computation_of(read(op_text(inputs, **table)))
    twice = read(op_text(inputs, **{**table, "once_differentiable": False}))
    assert once.once_differentiable and not twice.once_differentiable
    assert computed(once) == computed(twice)


def computed(function: Function) -> list[str]:
    """The statements of backward, where a sole gradient is returned as such."""
    assert function.backward is not None
    lines = [ast.unparse(statement) for statement in function.backward.node.body]
    *before, last = lines
    if before and before[-1].startswith("grad_x") and last == "return grad_x":
        *before, value = before
        last = f"return {value.partition(' = ')[2]}"
    return [*before, last]


def test_another_branch_of_the_grad_mode_stays() -> None:
    text = op_text("x[N]", forward="torch.exp(x)", style="combined")
    text = text.replace(
        "        return grad_output",
        "        if torch.is_grad_enabled():\n            print(1)\n        return grad_output",
    )
    function = read(text)
    assert computation_of(function) is function


@pytest.mark.parametrize("style", ["setup-context", "combined"])
def test_the_computation_of_a_region_is_that_of_an_op_without_autocast(
    style: str,
) -> None:
    table = {"forward": "torch.softmax(x @ y, -1)", "style": style}
    region = read(op_text("x[N, D], y[D, M]", **table, amp="region"))
    plain = read(op_text("x[N, D], y[D, M]", **table, amp="off"))
    found = computation_of(region)
    for name, method in plain.methods.items():
        body = [ast.unparse(item) for item in found.methods[name].node.body]
        assert body == [ast.unparse(item) for item in method.node.body]
