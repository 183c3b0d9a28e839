"""Tuples of parts of a tensor: their last one, some of them, and all of them put together again."""

from typing import Any

import pytest
import torch

from scaffold.derive import derive
from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import spec_of

CASES = [
    ("x[B, D]", "return x.split(2, dim=-1)[-1].exp()", (5, 3)),
    ("x[B, D]", "return x.chunk(2, -1)[-1].exp() * x.chunk(2, -1)[0].sum()", (3, 5)),
    ("x", "c = x.split(2, 0)\nreturn c[0].sum() * c[-1] ** 2", (5, 3)),
    ("x[B, D]", "return x.unbind(-1)[-2].exp()", (3, 4)),
    ("x[B, 4]", "a, *others = x.unbind(-1)\nreturn a * sum(others)", (3, 4)),
    (
        "x[B, 8]",
        "a, *b, c = x.chunk(4, -1)\nreturn torch.cat((c, *b), -1) * a.sum() + b[-1].sum()",
        (3, 8),
    ),
    (
        "x[B, D]",
        "p = x.split([1, 1, 2], -1)\nreturn torch.cat(p[1:], -1).exp() * p[0]",
        (3, 4),
    ),
    ("x[B, 6]", "return torch.cat(x.chunk(3, 1)[::-1], 1).exp()", (2, 6)),
    ("x[B, 5]", "return torch.cat(x.exp().chunk(4, 1)[1:], 1)", (2, 5)),
    ("x[B, D, E]", "return torch.stack(x.exp().unbind(1))", (3, 2, 4)),
    ("x[B, D, E]", "return torch.stack(x.exp().unbind(0), dim=-1)", (3, 2, 4)),
    ("x[B, D, E]", "return torch.cat(x.exp().unbind(1))", (3, 2, 4)),
    ("x[B, D, E]", "return torch.cat(torch.unbind(x.exp(), 1), -1)", (3, 2, 4)),
    ("x", "return torch.cat(x.exp().split(2, 1), 1) ** 2", (3, 5, 4)),
    ("x[B, D]", "return torch.cat(x.exp().chunk(2, -1), 1) ** 2", (3, 5)),
]


@pytest.mark.parametrize(("inputs", "forward", "shape"), CASES)
def test_parts_have_the_gradient_of_autograd(
    inputs: str, forward: str, shape: tuple[int, ...]
) -> None:
    turned = tensor(*reversed(shape)).permute(*reversed(range(len(shape))))
    calls: list[tuple[Any, ...]] = [(tensor(*shape),), (turned,)]
    check_forward(inputs, forward, calls, derive=True)
    assert not derive(spec_of(inputs, forward=forward, derive=True)).notes


@pytest.mark.parametrize(
    "forward",
    [
        "return x[..., i].sin()",
        "return x[None, i].sin() * x[i, None, :, None].mT.sum()",
        "return x[i, i, None].sin() * x[i, i, :, None].cos().mT",
        "return x[:, None, i, i].sin(), x[:, None, None, i, i, None, None].cos()",
        "return x[..., j, None, :].sin() * x[:, j, None, 1:2]",
        "return x[None, ..., None, i, 0, None].sin()",
        "return x[[1, 0], None].sin() * x[..., [1, 0], None].mT.sum()",
    ],
)
def test_new_dims_around_what_an_index_picks(forward: str) -> None:
    inputs = "x[A, B, C], i[K; index(2)], j[K, L; index(2)]"
    calls = [
        (tensor(2, 3, 4), torch.tensor([1, 0, 1]), torch.tensor([[0], [1], [1]])),
        (tensor(4, 3, 2).mT.mT, torch.tensor([0]), torch.tensor([[0, 1, 1]])),
    ]
    outputs = {"outputs": "a, b"} if "," in forward.split("sin()")[-1][:1] else {}
    check_forward(inputs, forward, calls, derive=True, **outputs)
    assert not derive(spec_of(inputs, forward=forward, derive=True, **outputs)).notes


@pytest.mark.parametrize(
    "forward",
    [
        "return x[None, i, :, i].sin()",
        "return x[None, 0, :, i].sin()",
        "return x[m, None].sin() * x[:, None, m2].sum()",
        "return x[..., m2, None].sin() + x[m2.any(1), :, None].cos().sum()",
    ],
)
def test_new_dims_beside_masks_and_indices_that_stand_apart(forward: str) -> None:
    masks = torch.tensor([[True, False], [True, True]])
    inputs = "x[A, A, A], i[K; index(2)], m[A, A; bool], m2[A, A; bool]"
    index = torch.tensor([1, 0, 1])
    check_forward(inputs, forward, [(tensor(2, 2, 2), index, masks, masks.t())])


@pytest.mark.parametrize(
    "forward",
    [
        "return x[()].sin() * torch.exp(x)[()]",
        "return x[[1, 0]].sin()",
        "return (x * x)[[-1, 0]].sin() * x[[0],].exp()",
        "at = (0, 1)\nreturn x[at].sin()",
        "at = [0, 1]\nreturn x[at].sin()",
        "at = [[0, 1], [1, 0]]\nreturn x[:, at[0]].sin() * x[:, at[-1]].exp()",
        "at = [[0, 1], 1]\nreturn x[:, at[1]].sin() * x[at[0]].sum()",
        "at = ((0, 1), (1, 0))\nreturn x[at[0]].sin() * x[:, at[1]].sum()",
        "at = [[0, 1], [1, 1]]\nreturn sum([x[:, at[i]].sin() for i in range(2)])",
        "h = x * 2\nh[[0, 1]] = 3\nreturn h * x",
        "h = x * 2\nh[[0, 1], 1:] *= x[[1, 0], 1:]\nreturn h * h",
    ],
)
def test_lists_as_indices(forward: str) -> None:
    check_forward("x[A, B, C]", forward, [(tensor(3, 3, 4),), (tensor(2, 2, 2),)])


@pytest.mark.parametrize(
    ("inputs", "forward"),
    [
        ("x[B, D]", "a, *b = x.chunk(4, -1)\nreturn a * sum(b)"),
        ("x[B, D]", "return torch.cat(x.chunk(2, -1)[1:], 1)"),
        ("x[B, D]", "return x.chunk(3, -1)[-2].exp()"),
        ("x[B, D]", "a, b = x.chunk(2, -1)\nreturn x.chunk(2, -1)[-1] * a + b"),
    ],
)
def test_what_depends_on_how_many_parts_there_are_is_left_to_autograd(
    inputs: str, forward: str
) -> None:
    check_forward(inputs, forward, [(tensor(3, 8),)], derive=True)
