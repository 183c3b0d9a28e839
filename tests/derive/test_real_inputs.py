"""Complex inputs of an op that was derived for real ones: its gradients are right, or it raises and names them."""

from typing import Any

import pytest
import torch
from torch import Tensor

from scaffold.derive.rules.table import Rule
from tests.derive.building import (
    backward_of,
    draft_of,
    load,
    op_text,
    reference,
    spec_of,
)
from tests.derive.rules.test_table_ops import RULES, call_of, eager, kind, ops
from tests.sweeps import in_every_run, one_of_each

TAKING_REAL = [rule for rule in RULES if rule.facts.complex != "only"]
LINEAR = ("input[N, K], weight[M, K], bias[M]?", "input @ weight.t() + bias")


def as_complex(value: Any) -> Any:
    if not (isinstance(value, Tensor) and value.is_floating_point()):
        return value
    return torch.complex(value, value.roll(1) + 0.25)


def gradients(call: Any, values: list[Any]) -> list[Tensor | None]:
    given = [
        (
            value.detach().requires_grad_(
                value.is_floating_point() or value.is_complex()
            )
            if isinstance(value, Tensor)
            else value
        )
        for value in values
    ]
    result = call(*given)
    one = result[0] if isinstance(result, tuple | list) else result
    wanted = [x for x in given if isinstance(x, Tensor) and x.requires_grad]
    cotangent = torch.linspace(1, 2, one.numel(), dtype=torch.double).reshape(one.shape)
    cotangent = (
        torch.complex(cotangent, cotangent - 1) if one.is_complex() else cotangent
    )
    found = torch.autograd.grad(one, wanted, cotangent, allow_unused=True)
    return [*found]


def check(text: str, plain: Any, values: list[Any]) -> None:
    """Ask for gradients of complex inputs; those that autograd itself does not have are none of ours."""
    try:
        right = gradients(plain, values)
    except (RuntimeError, ValueError):
        return
    try:
        found = gradients(load(text).some_op, values)
    except (TypeError, RuntimeError):
        return
    for got, wanted in zip(found, right, strict=True):
        if got is not None and wanted is not None:
            torch.testing.assert_close(got, wanted)
        else:
            rest = got if wanted is None else wanted
            assert rest is None or not rest.any()


@pytest.mark.parametrize(
    ("inputs", "forward", "named"),
    [
        (*LINEAR, "input, weight and bias"),
        ("x[N, D]", "x * torch.sigmoid(x)", "x"),
        ("x, y", "x * y", "x and y"),
        ("x", "x.mH * 2", "x"),
        ("x, y", "(x * y).abs()", "x and y"),
        ("x", "torch.fft.ifft(x)", "x"),
        ("x, y", "x.float() + y", "x"),
        ("x, y", "x.abs() + y", "x"),
        ("x, y", "x.to(torch.float32) + y", "x and y"),
        ("x, y", "x.sin().type_as(y) + y", "x and y"),
        ("x[...], c[...; const]", "x * c", "c"),
        ("*tensors", "torch.stack(tensors).square().sum(0)", "tensors"),
        # The backward of w's part refuses complex numbers, and runs only where w's gradient is asked for.
        ("x[N, K], w[K]", "x * x * torch.softmax(w, -1)", "x"),
        ("x[N, K], w[K]", "x.square() * torch.relu(w)", "x"),
    ],
)
def test_a_complex_input_of_wrong_gradients_is_named(
    inputs: str, forward: str, named: str
) -> None:
    assert f'raise TypeError("some_op: {named} must be real")' in op_text(
        inputs, forward=forward
    )


def test_it_is_refused_where_a_gradient_is_wanted() -> None:
    op = load(op_text(LINEAR[0], forward=LINEAR[1])).some_op
    x, w = torch.randn(3, 4, dtype=torch.cfloat), torch.randn(2, 4, dtype=torch.cfloat)
    torch.testing.assert_close(op(x, w), x @ w.t())
    for given in ((x.requires_grad_(), w), (x.real, w.clone().requires_grad_())):
        if given[0].dtype != given[1].dtype:
            continue  # PyTorch multiplies no real matrix by a complex one
        with pytest.raises(TypeError, match="input, weight and bias must be real"):
            op(*given).abs().sum().backward()


@pytest.mark.parametrize(
    "forward",
    [
        *(
            "x + y",
            "x - y.mT.mT",
            "2 * x + y / 3",
            "torch.cat((x, y), -1)",
            "x.sum(-1)",
        ),
        *(
            "x.abs() + 2 * y.abs()",
            "x[1:] - y[:-1]",
            "x.float() * 2.0",
            "x.masked_fill(y.abs() > 1, 0)",
        ),
    ],
)
def test_gradients_that_are_right_have_no_line(forward: str) -> None:
    text = op_text("x, y", forward=forward)
    assert "must be real" not in text
    values = [as_complex(torch.randn(3, 4).double()) for _ in range(2)]
    check(text, reference(["x", "y"], forward), values)


def test_a_product_of_a_real_and_a_complex_matrix_has_no_line() -> None:
    """PyTorch's own error comes first, in the forward."""
    text = op_text("x[N, K], v[K, D]", forward="torch.softmax(x, -1) @ v")
    assert "must be real" not in text
    v = torch.randn(3, 2, dtype=torch.cdouble)
    with pytest.raises(RuntimeError, match="same dtype"):
        load(text).some_op(torch.randn(4, 3, dtype=torch.double), v)


@pytest.mark.parametrize(
    ("inputs", "forward", "test", "named"),
    [
        ("x, y", "x + y", "x.dtype.is_complex != y.dtype.is_complex", "x and y"),
        (
            "x, y",
            "torch.cat((x, y))",
            "x.dtype.is_complex != y.dtype.is_complex",
            "x and y",
        ),
        (
            "x, c[; const]",
            "x - c",
            "x.dtype.is_complex != c.dtype.is_complex",
            "x and c",
        ),
        (
            "x, b?",
            "x if b is None else x + b",
            "b is not None and x.dtype.is_complex != b.dtype.is_complex",
            "x and b",
        ),
        (
            "x, y, b?",
            "x + y if b is None else x + y + b",
            "len({item.dtype.is_complex for item in (x, y, b) if item is not None}) > 1",
            "x, y and b",
        ),
        (
            "*xs",
            "torch.cat(xs, 0)",
            "len({item.dtype.is_complex for item in xs}) > 1",
            "xs",
        ),
        (
            "x, *xs",
            "x + torch.stack(xs).sum(0)",
            "len({item.dtype.is_complex for item in (x, *xs)}) > 1",
            "x and xs",
        ),
    ],
)
def test_a_real_input_beside_a_complex_one_is_refused(
    inputs: str, forward: str, test: str, named: str
) -> None:
    """Its gradient would be complex, of which autograd names no input."""
    text = op_text(inputs, forward=forward)
    assert f"if {test}:\n" in text
    said = f"some_op: {named} must all be real, or all complex"
    assert said in text.replace('"\n                "', "")


def test_it_names_inputs_at_the_call() -> None:
    op = load(op_text("x, y, z", outputs="a, b", forward="x + y, z")).some_op
    x, y = torch.randn(3, requires_grad=True), torch.randn(3, dtype=torch.cfloat)
    op(y, y, x)
    op(x, x, y)
    with pytest.raises(TypeError, match="x and y must all be real"):
        op(x, y, x)


def test_of_several_results_of_no_input_in_common_nothing_is_asked() -> None:
    assert "is_complex" not in op_text("x, y", outputs="a, b", forward="x * 2, y * 3")
    assert "is_complex" not in op_text("x, y", forward="x + (y > 0)")


def test_inputs_that_are_declared_complex_have_none() -> None:
    text = op_text("x[...; complex], y[...; complex]", forward="x * y.exp()")
    assert "is_complex" not in text and ".conj()" in backward_of(text)


@pytest.mark.parametrize(
    "policy", ["recompute", pytest.param("balanced", marks=pytest.mark.each_commit)]
)
@pytest.mark.parametrize(
    "rule",
    in_every_run(
        TAKING_REAL,
        one_of_each(TAKING_REAL, lambda rule: (*kind(rule)[:3], rule.facts.complex)),
    ),
    ids=lambda rule: str(rule.name),
)
def test_no_rule_is_silently_wrong_of_complex_values(rule: Rule, policy: str) -> None:
    for op in ops(rule, torch.double, False):
        if any(x.is_complex() for x in op.values):
            continue
        spec = spec_of(
            op.inputs,
            forward=op.forward,
            outputs=op.outputs,
            derive=True,
            save_policy=policy,
        )
        names = [item.name for item in spec.inputs]
        values = [*map(as_complex, op.values)]
        check(draft_of(spec), reference(names, op.forward), values)


@pytest.mark.parametrize(
    "rule",
    [rule for rule in RULES if rule.facts.complex is False],
    ids=lambda rule: str(rule.name),
)
def test_which_calls_pytorch_computes_of_complex_values(rule: Rule) -> None:
    found = False
    for text in rule.samples:
        for op in ops(rule._replace(samples=(text,)), torch.double, False):
            names = [item.name for item in spec_of(op.inputs, forward="0").inputs]
            for chosen in (*({name} for name in names), {*names}):
                given = {
                    name: as_complex(value) if name in chosen else value
                    for name, value in zip(names, op.values, strict=True)
                }
                if not any(value.is_complex() for value in given.values()):
                    continue
                try:
                    eager(call_of(rule, text), given)
                except (RuntimeError, TypeError, ValueError):
                    continue
                found = True
    assert found is ("takes_complex" in rule.facts.flags)
