"""Ops in library style: what is registered, what is refused, and that PyTorch's own questions pass."""

import itertools
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.library import opcheck

from scaffold.derive import derive
from scaffold.errors import ScaffoldError
from tests.derive.building import draft_of, load, op_text, spec_of

LINEAR = {
    "inputs": "input[..., D], weight[E, D], bias[E]?",
    "forward": "input @ weight.t() + bias",
}
VALUES = torch.linspace(0.3, 1.4, 12, dtype=torch.double)
COUNT = itertools.count()
X = VALUES.reshape(3, 4).t().requires_grad_()  # not contiguous
OPS: dict[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    "optional": (LINEAR, (X, X.detach()[:2].clone().requires_grad_(), None)),
    "two outputs": (
        {
            "inputs": "x[..., N; distinct]",
            "outputs": "values[..., N], indices[..., N; int]",
            "forward": "torch.sort(x, dim=-1)",
        },
        (X,),
    ),
    "any number": (
        {"inputs": "*tensors", "forward": "sum(tensors)"},
        ([X, (X * 2).detach().requires_grad_()],),
    ),
    "a view": ({"inputs": "x[N, D]", "forward": "x.t()"}, (X,)),
    "the input itself": ({"inputs": "x", "forward": "x"}, (X,)),
    "a value and a view of it": (
        {
            "inputs": "x[N]",
            "outputs": "y[N], z[N]",
            "forward": "y = x * x\nreturn y, y",
        },
        (X,),
    ),
    "NumPy": (
        {
            "inputs": "x[..., D]",
            "outputs": "y[..., 1], shifted[..., D]",
            "forward": "y = torch.from_numpy(x.detach().numpy().sum(-1, keepdims=True))\n"
            "z = torch.from_numpy(x.detach().numpy() + 1)\nreturn y, z",
            "grad": {"x": "grad_y + grad_shifted + 0 * x"},
        },
        (X,),
    ),
    "attributes": (
        {
            "inputs": "x, k: int = 2, on: bool = True, how: Literal['a', 'b'] = 'a', "
            "sizes: tuple[int, ...] = (4, 3), dtype: dtype = torch.float64",
            "forward": "x.pow(k).reshape(sizes) if on else x.to(dtype)",
        },
        (X, 2, True, "a", (4, 3), torch.float64),
    ),
}


def registered(**table: Any) -> Any:
    """The op as PyTorch knows it, by another name each time: it remembers the schema of a name."""
    name = f"op_{next(COUNT)}"
    text = draft_of(spec_of(**table, name=name, style="library"))
    return getattr(load(text), f"{name}_op")


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", OPS)
def test_an_op_passes_the_questions_of_pytorch(name: str) -> None:
    table, inputs = OPS[name]
    op = registered(**table)
    opcheck(op, inputs)
    flat = [x for item in inputs for x in (item if isinstance(item, list) else [item])]

    def call(*values: Any) -> Any:
        found = op(list(values)) if name == "any number" else op(*values)
        several = found if isinstance(found, tuple) else (found,)
        return tuple(value for value in several if value.requires_grad)

    assert gradcheck(call, flat)
    assert gradgradcheck(call, flat)


def test_the_forward_is_the_fake_and_defaults_stand_in_the_wrapper() -> None:
    text = op_text(**LINEAR, style="library")
    assert "register_fake(_forward)" in text
    assert "def _forward(input: Tensor, weight: Tensor, bias: Tensor | None) ->" in text
    assert "weight: Tensor, bias: Tensor | None = None) -> Tensor:" in text
    assert '"custom_ops::some_op"' in text


def test_a_rule_for_vmap_stacks_the_outputs_by_their_names() -> None:
    table, _ = OPS["two outputs"]
    text = op_text(**table, style="library")
    assert "values, indices = zip(" in text
    assert "(torch.stack(values), torch.stack(indices)), (0, 0)" in text


def test_what_leaves_pytorch_is_made_contiguous_and_says_why() -> None:
    table, _ = OPS["NumPy"]
    text = op_text(**table, style="library")
    assert text.count("# Contiguous, as the fake says: a kernel may return") == 1


def test_an_op_has_the_namespace_that_is_said() -> None:
    keys = {"forward": "x * 2", "sharding": "n -> n", "namespace": "mylib"}
    text = op_text("x[N]", style="library", **keys)
    assert '"mylib::some_op"' in text
    assert "torch.ops.mylib.some_op.default" in text


@pytest.mark.parametrize(
    ("style", "namespace", "message"),
    [
        ("library", "my-lib", "'my-lib' is not a namespace"),
        ("library", "class", "'class' is not a namespace"),
        ("setup-context", "mylib", "only an op in library style"),
    ],
)
def test_a_namespace_that_cannot_be(style: str, namespace: str, message: str) -> None:
    with pytest.raises(ScaffoldError, match=message):
        spec_of("x", forward="x * 2", style=style, namespace=namespace)


def test_a_batch_is_mapped_without_a_warning_and_keeps_a_stated_gradient() -> None:
    table = {"inputs": "x", "forward": "x * x", "grad": {"x": "7 * grad_output"}}
    op = registered(**table, surrogate=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (found,) = torch.autograd.grad(torch.vmap(op)(X).sum(), [X])
    assert (found == 7).all()


def test_a_second_derivative_that_is_not_there_is_an_error() -> None:
    op = registered(
        inputs="x[N]", forward="torch.sin(x).exp()", once_differentiable=True
    )
    (first,) = torch.autograd.grad(op(X).sum(), [X])
    assert torch.allclose(first, (X.sin().exp() * X.cos()).detach())
    with pytest.raises(RuntimeError, match="differentiable once"):
        torch.autograd.grad(op(X).sum(), [X], create_graph=True)
    compiled: Any = torch.compile(op, fullgraph=True, backend="aot_eager")
    assert torch.autograd.grad(compiled(X).sum(), [X])[0].equal(first)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"inputs": "x", "dirty": ["x"], "forward": "x.exp_()"}, "changed in place"),
        ({"inputs": "x, f: object", "forward": "x * 2"}, "no type for 'f: object'"),
        (
            {"inputs": "x[N, D]", "outputs": "*ys", "forward": "x.unbind(0)"},
            "a fixed number",
        ),
        ({"inputs": "output", "forward": "output * 2"}, "'output'"),
        (
            {"inputs": "x", "forward": "x[x > 0].sum()"},
            "depends on the values of a tensor",
        ),
        (
            {
                "inputs": "x[N, D]",
                "outputs": "y[N]",
                "import": ["k:fwd"],
                "forward": "y, rstd = fwd(x)\nreturn y",
                "grad": {"x": "grad_output[:, None] * rstd"},
            },
            "the shape of 'rstd', which is saved",
        ),
        (
            {
                "inputs": "x[N, D]",
                "outputs": "y[K]",
                "import": ["k:fwd"],
                "forward": "fwd(x)",
                "grad": {"x": "grad_output.sum() * x"},
            },
            "so the shape of 'y' is unknown",
        ),
    ],
)
def test_what_cannot_be_registered_is_refused(
    table: dict[str, Any], message: str
) -> None:
    with pytest.raises(ScaffoldError, match=message):
        derive(spec_of(**table, style="library"))


ATTENTION = {
    "inputs": "query[B, S, D], key[B, T, D], value[B, T, E]",
    "forward": "torch.softmax(query @ key.mT, dim=-1) @ value",
}


def test_under_autocast_a_compiled_op_computes_what_the_eager_one_does() -> None:
    spec = spec_of(**ATTENTION, name="attention_op", style="library")
    op = load(draft_of(spec)).attention_op
    low = torch.linspace(-1, 1, 24).reshape(2, 3, 4).bfloat16()
    inputs = (low, low.float(), low.float() * 2)
    compiled: Any = torch.compile(op, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual, expected = compiled(*inputs), op(*inputs)
    assert actual.dtype == expected.dtype == torch.float
    assert torch.allclose(actual, expected)
    with pytest.raises(ScaffoldError, match="under the caller's autocast"):
        spec_of(**ATTENTION, style="library", amp="region")


# --- The rule for DTensor.


def splits(given: tuple[Any, ...], **table: Any) -> list[str]:
    """What the rule says of some inputs: the placements of the outputs, then theirs."""
    name = f"op_{next(COUNT)}"
    rule = load(draft_of(spec_of(**table, name=name, style="library")))._sharding
    return [
        " ".join("-" if p is None else LETTERS[type(p)](p) for p in (*outputs, *placed))
        for outputs, placed in rule(*given)
    ]


LETTERS: dict[type, Any] = {
    Replicate: lambda _: "R",
    Partial: lambda _: "P",
    Shard: lambda placement: f"S{placement.dim}",
}


def test_an_output_without_an_index_is_a_sum() -> None:
    found = splits((X, X), inputs="x, w", forward="x @ w.t()", sharding="mk, nk -> mn")
    assert found == ["R R R", "S0 S0 R", "P S1 S1", "S1 R S0"]


def test_leading_dims_are_as_many_as_there_are() -> None:
    said = {**LINEAR, "sharding": "..._, n_, n -> ...n"}
    cube, bias = torch.ones(2, 3, 4), torch.ones(4)
    assert splits((cube, X, None), **said) == [
        *("R R R -", "S0 S0 R -", "S1 S1 R -", "S2 R S0 -")
    ]
    assert splits((bias, X, bias), **said) == ["R R R R", "S0 R S0 S0"]


def test_nothing_is_split_where_leading_dims_broadcast() -> None:
    said = {"inputs": "x, y", "forward": "x * y", "sharding": "..., ... -> ..."}
    assert splits((X, X), **said) == ["R R R", "S0 S0 S0", "S1 S1 S1"]
    assert splits((X, X[0]), **said) == ["R R R"]


def test_what_is_saved_has_indices_too() -> None:
    norm = "x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)"
    said: dict[str, Any] = {"inputs": "x[B, D], eps: float", "forward": norm}
    said["once_differentiable"] = True
    found = splits((X, 1e-6), **said, sharding="b_ -> b_, b_")
    assert found == ["R R R -", "S0 S0 S0 -"]
    with pytest.raises(
        ScaffoldError,
        match="indices are given for 1 of 2 results of forward: output, inv_rms",
    ):
        splits((X, 1e-6), **said, sharding="b_ -> b_")


def test_the_tangent_of_a_registered_op_is_zero_as_is_documented() -> None:
    """PyTorch gives a custom_op no forward mode, and no error: docs/library.md says so."""
    op = registered(inputs="x", forward="x * x")
    x = torch.ones(3, dtype=torch.double)
    value, tangent, *_ = torch.func.jvp(op, (x,), (x,))
    assert torch.equal(value, x) and not tangent.any()
    pages = Path(__file__).parents[2] / "docs"
    assert "jacfwd`, `hessian` | the tangent is 0" in (pages / "library.md").read_text()
