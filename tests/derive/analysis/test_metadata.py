"""Reads that need no tensor, and the same from what is on ctx."""

import pytest

from scaffold.derive.analysis.metadata import kept_form, kept_name
from scaffold.formula import Graph, Node, emit, metadata_read
from tests.formula.parsing import formula

NAMES = "x y w bias n tensors"


def node(source: str, graph: Graph | None = None) -> Node:
    result = formula(source, names=NAMES, optional="", graph=graph).result
    assert result is not None
    return result


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x.shape", "ctx.x_shape"),
        ("x.size()", "ctx.x_shape"),
        ("x.size(-1)", "ctx.x_shape[-1]"),
        ("x.size(dim=n)", "ctx.x_shape[n]"),
        ("x.numel()", "ctx.x_shape.numel()"),
        ("x.ndim", "ctx.x_ndim"),
        ("x.dim()", "ctx.x_ndim"),
        ("x.dtype", "ctx.x_dtype"),
        ("len(x)", "ctx.x_count"),
        ("bias is not None", "ctx.has_bias"),
        ("bias is None", "not ctx.has_bias"),
        ("y.expand_as(x)", "y.expand(ctx.x_shape)"),
        ("y.view_as(x)", "y.view(ctx.x_shape)"),
        ("y.reshape_as(other=x)", "y.reshape(ctx.x_shape)"),
        ("tensors[n].shape", "ctx.tensors_shape[n]"),
        ("tensors[n].size(0)", "ctx.tensors_shape[n][0]"),
        (
            "torch.zeros_like(x)",
            "torch.zeros(ctx.x_shape, dtype=ctx.x_dtype, device=ctx.x_device)",
        ),
        (
            "torch.ones_like(tensors[n])",
            "torch.ones(ctx.tensors_shape[n], dtype=ctx.tensors_dtype[n], device=ctx.tensors_device[n])",
        ),
    ],
)
def test_the_same_from_what_is_on_ctx(source: str, expected: str) -> None:
    graph = Graph()
    found = node(source, graph)
    what = metadata_read(found)
    assert what is not None
    assert emit(kept_form(graph, found, what, kept_name, None)) == expected


def test_zeros_are_made_beside_a_gradient() -> None:
    graph = Graph()
    found = node("torch.empty_like(x)", graph)
    what = metadata_read(found)
    assert what is not None
    assert emit(kept_form(graph, found, what, kept_name, "grad_output")) == (
        "grad_output.new_empty(ctx.x_shape, dtype=ctx.x_dtype, device=ctx.x_device)"
    )
