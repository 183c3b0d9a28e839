"""What statements read and bind."""

import pytest

from scaffold.formula import (
    Node,
    Read,
    Statement,
    data_read,
    free_names,
    free_reads,
    metadata_read,
    reads,
    surely_written,
    written,
)
from tests.formula.parsing import formula

NAMES = "x y w p h bias n tensors grad_output"


def node(source: str) -> Node:
    result = formula(source, names=NAMES, optional="").result
    assert result is not None
    return result


def statements(source: str) -> tuple[Statement, ...]:
    targets = "grad_x grad_y"
    return formula(source, names=NAMES, optional="", targets=targets).statements


def statement(source: str) -> Statement:
    (only,) = formula(f"{source}\nreturn x", names=NAMES, optional="").statements
    return only


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("h = x", {"h"}),
        ("a, (b, *c) = x", {"a", "b", "c"}),
        ("h[x] = y", {"h"}),
        ("h += x", {"h"}),
        ("h.mul_(x)", {"h"}),
        ("k = h.mul_(x)", {"h", "k"}),
        ("if p:\n    h = x\nelse:\n    k = x", {"h", "k"}),
    ],
)
def test_what_a_statement_writes(source: str, names: set[str]) -> None:
    assert written(statement(source)) == names


@pytest.mark.parametrize(
    ("source", "sure"),
    [
        ("grad_x = y", {"grad_x"}),
        ("grad_x, h = y", {"grad_x", "h"}),
        ("grad_x = y\ngrad_x += y", set()),
        ("grad_x = y\ngrad_x[0] = y", set()),
        ("grad_x = y\ngrad_x = grad_x.mul_(y)", set()),
        ("if p:\n    grad_x = y", set()),
        ("if p:\n    grad_x = y\nelse:\n    grad_x, h = y", {"grad_x"}),
    ],
)
def test_what_a_statement_surely_writes(source: str, sure: set[str]) -> None:
    assert surely_written(statements(source)[-1]) == sure


def test_reads_of_names_from_outside() -> None:
    source = "h = x + y\nx = h\nif p:\n    w = x\n    k = w\nelse:\n    k = w\ngrad_x = x + w"
    found = [(read.name, position) for read, position in free_reads(statements(source))]
    assert sorted(found) == [("p", 2), ("w", 2), ("w", 3), ("x", 0), ("y", 0)]
    assert free_names(statements(source)) == {"p", "w", "x", "y"}


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


def test_names_that_are_read_for_their_data() -> None:
    line = statement("h = y.expand_as(x) + tensors[n].shape[0]")
    assert data_read(line) == {"y", "n"}
    assert data_read(line, elements=True) == {"y", "n", "tensors"}
