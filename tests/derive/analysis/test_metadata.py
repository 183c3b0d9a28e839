"""Reads that need no tensor, and the same from what is on ctx."""

import pytest

from scaffold.derive.analysis.metadata import (
    Read,
    kept_form,
    kept_name,
    metadata_read,
    reads,
)
from scaffold.formula import Graph, Node, emit
from tests.formula.parsing import formula

NAMES = "x y w bias n tensors"


def node(source: str, graph: Graph | None = None) -> Node:
    result = formula(source, names=NAMES, optional="", graph=graph).result
    assert result is not None
    return result


def read(source: str) -> set[tuple[str, tuple[str, ...]]]:
    return {(item.name, item.facets) for item in reads(node(source))}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x.shape[0]", {("x", ("shape",))}),
        ("x.size(n)", {("x", ("shape",)), ("n", ())}),
        ("x.ndim + x.dim()", {("x", ("ndim",))}),
        ("x.numel()", {("x", ("shape",))}),
        ("x.dtype", {("x", ("dtype",))}),
        ("x.device", {("x", ("device",))}),
        ("len(x)", {("x", ("length",))}),
        ("bias is None", {("bias", ("presence",))}),
        ("bias is not None", {("bias", ("presence",))}),
        ("y.expand_as(x)", {("x", ("shape",)), ("y", ())}),
        ("x.expand_as(x)", {("x", ("shape",)), ("x", ())}),
        ("torch.zeros_like(x)", {("x", ("shape", "dtype", "device"))}),
        ("torch.zeros_like(x, dtype=n)", {("torch", ()), ("x", ()), ("n", ())}),
        ("x.t().shape", {("x", ())}),
        ("x[0].shape", {("x", ("shape",))}),
        ("tensors[n].size(0)", {("tensors", ("shape",)), ("n", ())}),
        ("x.sum(dim=n)", {("x", ()), ("n", ())}),
        ("x == None", {("x", ())}),
    ],
)
def test_what_is_read_of_a_name(source: str, expected: set[object]) -> None:
    assert read(source) == expected


def test_an_element_is_told_from_the_whole() -> None:
    assert metadata_read(node("tensors[0].shape")) == Read("tensors", ("shape",), True)
    assert metadata_read(node("tensors.shape")) == Read("tensors", ("shape",), False)
    assert metadata_read(node("x.exp()")) is None


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
