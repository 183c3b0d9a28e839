"""Ranks are read from the text of a forward, by what the table says of the shapes of results."""

import ast
from collections.abc import Iterator

import pytest

from scaffold.verify.child.told_ranks import Ranks, told_ranks


def read(text: str, *inputs: str) -> Ranks:
    def tell(node: ast.AST, number: int) -> Iterator[tuple[ast.expr, tuple[str, ...]]]:
        yield from ()

    body = ast.parse(text).body
    return told_ranks(body, dict.fromkeys(inputs), (), {}, tell)


@pytest.mark.parametrize(
    "between",
    [
        *("x.exp()", "torch.special.expit(x)", "x.exp_()", "x.cumsum(-1)"),
        *("torch.fft.fftshift(x)", "x.sum(1).unsqueeze(1)", "x.norm(2, 1, True)"),
        *("x.topk(3)[0]", "x.chunk(2, -1)[0]", "x.max(2, keepdim=True)[0]"),
        *("F.one_hot(x, 3).sum(-1)", "F.conv2d(x, w)", "x.take_along_dim(i, 1)"),
        *("torch.addcmul(x, c, c)", "x.masked_fill(m, 0)", "torch.diag_embed(x)[0]"),
        *("x[0].expand_as(x)", "x.kthvalue(2, 1, True)[0]", "x.renorm(2, 0, 1.0)"),
    ],
)
def test_what_has_as_many_dims_as_its_tensor_is_told_by_the_table(between: str) -> None:
    found = read(f"c = 2.0\ny = {between}\na, b, d = y.shape", "x")
    assert len(found.told["x"]) == 3


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("x.softmax(-2)", 2),
        ("x.select(1, 5)", 2),
        ("x.topk(5)", 0),
        ("x.chunk(4)", 0),
        ("x.chunk(4, -1)", 1),
        ("x.norm(2, 1)", 2),
        ("x.flip(2)", 3),
        ("x.unsqueeze(3)", 3),
        ("x.transpose(1, 3)", 4),
        ("x.unflatten(2, (4, 5))", 3),
        ("x.shape[1:3]", 3),
        ("torch.gather(x, 1, i)", 2),
    ],
)
def test_a_dim_that_is_given_says_how_many_there_are_at_least(
    text: str, least: int
) -> None:
    assert read(text, "x").least.get("x", 0) == least


@pytest.mark.parametrize(
    "made", ["torch.rand(2, 3)", "x.new_empty((2, 3))", "torch.full((2, 3), 0.5)"]
)
def test_what_is_made_by_sizes_has_as_many_dims(made: str) -> None:
    assert len(read(f"y = {made}\nz = torch.cat([x, y])", "x").told["x"]) == 2


@pytest.mark.parametrize(
    "made", ["torch.tensor([2, 3])", "torch.randint(0, 2, (3,))", "x.nonzero()"]
)
def test_what_no_sizes_are_known_of_tells_nothing(made: str) -> None:
    assert "x" not in read(f"y = {made}\nz = torch.cat([x, y])", "x").told
