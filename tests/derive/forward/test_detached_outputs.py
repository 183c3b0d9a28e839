"""Outputs that the forward takes out of the graph are those that require no grad in plain PyTorch."""

from typing import Any

import pytest
import torch

from scaffold.derive import derive, perhaps_detached
from scaffold.derive.forward.detached_outputs import detached_outputs
from tests.derive.building import draft_of, load, reference, spec_of

FORWARDS = [
    ("return x * y, (x - y).detach()", {"b"}),
    ("d = (x - y).detach()\nreturn d * 2 * d, x * y", {"a"}),
    ("d = x.detach()\nd = d + y\nreturn d, x * y", set()),
    ("return x * y, torch.ones_like(x)", {"b"}),
    ("return x * y, x > y", {"b"}),
    ("return x * y, x.argsort(-1)", {"b"}),
    ("return x * y, torch.sign(x)", set()),  # requires grad, which is 0
    ("return x * y, x.round()", set()),
    ("return x.detach(), y.detach() * 2", set()),  # nothing would be left
    ("v = x.clone()\nv[0] = y[0]\nreturn v.detach(), v", {"a"}),
    ("v = torch.zeros_like(x)\nv[0] = y[0]\nreturn v, x * y", set()),
]


@pytest.mark.parametrize(("forward", "detached"), FORWARDS)
def test_outputs_without_a_gradient(forward: str, detached: set[str]) -> None:
    spec = spec_of("x, y", outputs="a, b", forward=forward)
    assert detached_outputs(spec) == detached


@pytest.mark.parametrize("style", ["setup-context", "combined"])
@pytest.mark.parametrize("forward", [forward for forward, _ in FORWARDS])
def test_an_output_requires_grad_where_the_forward_s_does(
    forward: str, style: str
) -> None:
    spec = spec_of("x, y", outputs="a, b", forward=forward, style=style)
    inputs = [torch.rand(2, 3, requires_grad=True) for _ in range(2)]
    expected = [item.requires_grad for item in reference("xy", forward)(*inputs)]
    actual = [item.requires_grad for item in load(draft_of(spec)).some_op(*inputs)]
    assert actual == expected or not any(expected)


@pytest.mark.parametrize(
    "raw",
    [
        {"grad": {"x": "grad_a * y + 0 * grad_b"}},
        {"backward": "grad_x = grad_a * y\ngrad_y = grad_b"},
        {"surrogate": True},
        {"derive": False},
    ],
)
def test_what_a_formula_may_read_has_a_gradient(raw: dict[str, Any]) -> None:
    forward = "return x * y, (x - y).detach()"
    assert not detached_outputs(spec_of("x, y", outputs="a, b", forward=forward, **raw))


def test_the_derivation_says_which_they_are() -> None:
    spec = spec_of("x, y", outputs="a, b", forward="return x * y, (x - y).detach()")
    assert derive(spec).detached == {"b"}


@pytest.mark.parametrize(
    ("inputs", "forward", "perhaps"),
    [
        ("x", "x * 2", False),
        ("x", "x.detach() * 2", True),
        ("x, flag: bool", "x if flag else x.detach()", True),
        ("x, flag: bool", "x if flag else x * 2", False),
        ("x, b?", "b * 2 if b is not None else torch.zeros_like(x)", True),
        ("x, b?", "x + b", False),
        ("x, flag: bool", "y = x * 2\nif flag:\n    y = y.detach()\nreturn y", True),
        ("x, flag: bool", "y = x.detach()\nif flag:\n    y = y * x\nreturn y", True),
        (
            "x, mode: str",
            "if mode == 'a':\n    y = x\nelse:\n    raise ValueError(mode)\nreturn y",
            False,
        ),
    ],
)
def test_outputs_that_are_detached_on_some_way(
    inputs: str, forward: str, perhaps: bool
) -> None:
    assert perhaps_detached(spec_of(inputs, forward=forward)) is perhaps
