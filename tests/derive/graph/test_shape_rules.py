"""`@` of tensors whose ranks nobody declared: right for vectors, matrices and batches."""

import re
from functools import cache
from typing import Any

import pytest
import torch

from scaffold.derive.graph.op import Program
from scaffold.derive.graph.shape_rules import Slice, _rejoined_size, made_shape
from scaffold.derive.rules.table import built_in
from scaffold.errors import Location
from scaffold.formula import Graph, Scope, Text, parse
from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import draft_of, load, spec_of
from tests.sweeps import pairs_in_every_run

SHAPES = {
    "vector, batch": ((3,), (2, 3, 4)),
    "vector, square batch": ((3,), (3, 3, 3)),
    "batch, vector": ((2, 4, 3), (3,)),
    "square batch, vector": ((3, 3, 3), (3,)),
    "vector, matrix": ((3,), (3, 4)),
    "square matrix, vector": ((3, 3), (3,)),
    "matrix, vector": ((4, 3), (3,)),
    "one by one, vector": ((1, 1), (1,)),
    "vectors": ((3,), (3,)),
    "matrices": ((2, 3), (3, 4)),
    "batches": ((5, 1, 2, 3), (6, 3, 4)),
}
SIGNATURES = {
    "x, y": SHAPES,
    "x, y[K]": [name for name in SHAPES if len(SHAPES[name][1]) == 1],
    "x[K], y": [name for name in SHAPES if len(SHAPES[name][0]) == 1],
    "x, y[K, N]": [name for name in SHAPES if len(SHAPES[name][1]) == 2],
    "x[M, K], y": [name for name in SHAPES if len(SHAPES[name][0]) == 2],
    "x[..., K], y": SHAPES,
    "x, y[..., K, N]": [name for name in SHAPES if len(SHAPES[name][1]) > 1],
}
FORWARDS = ("x @ y", "torch.tanh((2 * x) @ y)", "x.sin() @ y.exp()")
CASES = [
    (signature, forward, name)
    for signature, names in SIGNATURES.items()
    for forward in FORWARDS
    for name in names
]


@cache
def derived(signature: str, forward: str) -> Any:
    spec = spec_of(signature, forward=forward, derive=True)
    text = draft_of(spec)
    assert "torch.func.vjp" not in text
    return load(text).some_op


def complex_(signature: str) -> str:
    """The signature of complex inputs."""
    bare = re.sub(r"\b([xy])(?!\[)", r"\1[...]", signature)
    return bare.replace("]", "; complex]")


@pytest.mark.parametrize(
    ("signature", "forward", "shapes"),
    pairs_in_every_run(CASES, CASES[::2], pytest.mark.each_commit),
)
def test_the_gradient_is_right(signature: str, forward: str, shapes: str) -> None:
    for needs in ((True, True), (True, False), (False, True)):
        for dtype in (torch.double, torch.cdouble):
            check_gradient(signature, forward, shapes, needs, dtype)


def check_gradient(
    signature: str,
    forward: str,
    shapes: str,
    needs: tuple[bool, bool],
    dtype: torch.dtype,
) -> None:
    torch.manual_seed(0)
    x, y = (
        torch.randn(shape, dtype=dtype).requires_grad_(need)
        for shape, need in zip(SHAPES[shapes], needs, strict=True)
    )
    wanted = [item for item in (x, y) if item.requires_grad]
    expected = eval(forward, {"torch": torch, "x": x, "y": y})
    cotangent = torch.randn_like(expected)
    right = torch.autograd.grad(expected, wanted, cotangent)
    apply = derived(complex_(signature) if dtype.is_complex else signature, forward)
    found = torch.autograd.grad(apply(x, y), wanted, cotangent)
    for one, two in zip(found, right, strict=True):
        torch.testing.assert_close(one, two)


def test_squeezed_dims_may_count_from_both_ends() -> None:
    check_forward(
        "x[2, 1, 1, 3], y[2, 3]",
        "x.squeeze((2, -3)) * y",
        [(tensor(2, 1, 1, 3), tensor(2, 3))],
    )


@pytest.mark.parametrize(("text", "rank"), [("2 * 3.5", 0), ("[1] * 3", None)])
def test_a_repeated_list_is_no_number(text: str, rank: int | None) -> None:
    program = Program(Graph(), built_in().facts)
    node = parse(Text(text, Location("a test")), Scope(frozenset()), program.graph)
    assert node.result is not None
    shape = made_shape(program, "tensor", (program.static(node.result),))
    assert (shape and shape.rank) == rank


def test_slices_with_a_step_are_not_together_as_long_as_the_tensor() -> None:
    program = Program(Graph(), built_in().facts)
    bound, step = program.read("k"), program.const(2)
    parts = Slice(5, step, bound, step), Slice(5, bound, step, step)
    assert _rejoined_size(*parts) is None


@pytest.mark.parametrize(
    "forward",
    [
        "x.reshape(-1).exp().mean() * y.reshape(-1).exp().mean()",
        "x.view(1, -1).exp().mean(-1) * y.view(1, -1).exp().mean(-1)",
        "u, v = x.reshape(-1), y.reshape(-1)\nreturn (u * u).mean() + v.sin().mean()",
        "(x.reshape(1, -1) + 1).sum(0).unsqueeze(-1) * (y.reshape(1, -1) * y.reshape(1, -1))",
    ],
)
def test_what_is_left_of_two_tensors_is_not_one_size(forward: str) -> None:
    shapes = [((4,), (3,)), ((2, 3), (5,)), ((1,), (3, 2)), ((2,), (1,))]
    calls = [(tensor(*one), tensor(*two)) for one, two in shapes]
    check_forward("x, y", forward, calls)


@pytest.mark.parametrize(
    ("inputs", "forward", "other"),
    [
        (
            "x[..., H, W], w[K, M]",
            "rows.view(rows.shape[0], x.shape[-2] * x.shape[-1]) @ w",
            (12, 2),
        ),
        (
            "x[..., H, W], w[R, K]",
            "rows.view(rows.shape[0], x.shape[-2] * x.shape[-1]) * w",
            (10, 12),
        ),
        ("x[..., H, W], w[K]", "rows.view(rows.shape[0], -1).mean(0) * w", (12,)),
    ],
)
def test_a_view_in_the_size_that_another_left_open(
    inputs: str, forward: str, other: tuple[int, ...]
) -> None:
    lines = f"rows = x.view(-1, x.shape[-2], x.shape[-1])\nreturn {forward}"
    check_forward(inputs, lines, [(tensor(2, 5, 3, 4), tensor(*other))])
