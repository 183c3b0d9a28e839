"""A backward that leaves PyTorch is an op of its own where the op is registered: compilers call it, and second derivatives are refused."""

import itertools
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck
from torch.library import opcheck

from scaffold.derive import derive
from scaffold.errors import ScaffoldError
from tests.derive.building import draft_of, load, spec_of, text_of
from tests.sweeps import in_every_run

COUNT = itertools.count()
X = torch.linspace(0.3, 1.4, 12, dtype=torch.double).reshape(3, 4)
X = X.t().requires_grad_()  # not contiguous
W = torch.linspace(-1.0, 1.0, 3, dtype=torch.double).requires_grad_()
SQUARE: dict[str, Any] = {
    "inputs": "x[N, D], weight[D], k: float",
    "outputs": "y[N, D]",
    "forward": "torch.from_numpy((x * weight).detach().numpy() ** 2 * k)",
}
WAYS: dict[str, dict[str, Any]] = {
    "one for each": {
        "grad": {
            "x": "torch.from_numpy(2 * k * (x * weight * weight * grad_output).detach().numpy())",
            "weight": "torch.from_numpy(2 * k * (x * weight * x * grad_output).detach().numpy()).sum(0)",
        }
    },
    "a value that both read": {
        "backward": "inner = torch.from_numpy(2 * k * (x * weight * grad_output).detach().numpy())\n"
        "grad_x = inner * weight\ngrad_weight = (inner * x).sum(0)"
    },
    "the other one in PyTorch": {
        "grad": {
            "x": "torch.from_numpy(2 * k * (x * weight * weight * grad_output).detach().numpy())",
            "weight": "(2 * k * x * weight * x * grad_output).sum(0)",
        }
    },
}


def built(table: dict[str, Any]) -> tuple[Any, str]:
    name = f"numpy_op_{next(COUNT)}"
    text = draft_of(spec_of(**table, name=name, style="library"))
    return load(text), name


@pytest.mark.parametrize(
    "way", in_every_run(WAYS, ["a value that both read"], pytest.mark.each_commit)
)
def test_it_compiles_and_has_its_gradients(way: str) -> None:
    module, name = built({**SQUARE, **WAYS[way]})
    op, call = getattr(module, f"{name}_op"), getattr(module, name)
    opcheck(op, (X, W, 1.5))
    assert gradcheck(lambda x, w: call(x, w, 1.5), (X, W))
    compiled: Any = torch.compile(call, fullgraph=True, backend="aot_eager")
    for needs in ((True, True), (True, False), (False, True)):
        given = [
            v.detach().requires_grad_(n) for v, n in zip((X, W), needs, strict=True)
        ]
        wanted = [v for v in given if v.requires_grad]
        found = torch.autograd.grad(compiled(*given, 1.5).sum(), wanted)
        expected = torch.autograd.grad(call(*given, 1.5).sum(), wanted)
        assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("way", WAYS)
def test_a_second_derivative_is_an_error(way: str) -> None:
    module, name = built({**SQUARE, **WAYS[way]})
    with pytest.raises(RuntimeError, match="differentiable once"):
        torch.autograd.grad(
            getattr(module, name)(X, W, 1.5).sum(), X, create_graph=True
        )


def test_what_stays_in_pytorch_is_no_kernel() -> None:
    found = derive(
        spec_of(**SQUARE, **WAYS["the other one in PyTorch"], style="library")
    )
    assert [[x.name for x in item.spec.outputs] for item in found.kernels] == [
        ["grad_x"]
    ]


KERNELS: dict[str, Any] = {
    "import": ["k:fwd", "k:bwd"],
    "forward": "fwd(x)",
    "style": "library",
}


def test_the_fake_has_declared_shapes_where_the_input_is_not_read() -> None:
    text = text_of(
        spec_of(
            "x[N, K], w[M, K; const], b[M]?",
            **KERNELS,
            outputs="y[N, M]",
            grad={"x": "bwd(grad_output, x)", "b": "bwd(grad_output)"},
        )
    )
    assert "return x.new_empty(x.shape)" in text
    assert "return grad_output.new_empty((grad_output.shape[1],))" in text


@pytest.mark.parametrize(
    "table",
    [
        {
            "inputs": "x, b[N; const]",
            "outputs": "y[N]",
            "grad": {"x": "bwd(grad_output)"},
        },
        {
            "inputs": "x[N], b[N]?",
            "outputs": "y[N]",
            "backward": "grad_x, grad_b = bwd(grad_output, x)",
        },
    ],
)
def test_what_is_no_op_is_refused(table: dict[str, Any]) -> None:
    with pytest.raises(ScaffoldError, match="calls code outside PyTorch"):
        derive(spec_of(**table, **KERNELS))
