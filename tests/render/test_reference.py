"""The reference of an op that changes an input is one that autograd can differentiate."""

import pytest

from scaffold.derive import derive
from scaffold.render.reference import reference_lines
from tests.derive.building import spec_of
from tests.verify.ops import failure


@pytest.mark.parametrize(
    ("forward", "lines"),
    [
        ("x.div_(1 + x.abs())", ("x = x.div(1 + x.abs())", "return x")),
        (
            "x.sub_(x.mean()).mul_(2)\nx",
            ("x = x.sub(x.mean()).mul(2)", "return x"),
        ),
        ("x.mul_(y)\nx", ("x.mul_(y)", "return x")),
        (
            "v = x.view(-1)\nx.mul_(x.abs())\nx + v.sum()",
            ("v = x.view(-1)", "x.mul_(x.abs())", "return x + v.sum()"),
        ),
    ],
)
def test_what_changes_by_what_it_was_is_made_anew(
    forward: str, lines: tuple[str, ...]
) -> None:
    spec = spec_of("x[N], y[N]", forward=forward, dirty=["x"])
    found = reference_lines(spec, derive(spec))
    assert found == lines


@pytest.mark.parametrize(
    ("gradient", "said"),
    [
        ("grad_output * (1 - output.abs()) ** 2", "no failure"),
        ("grad_output * (1 - output.abs())", "grad_x: largest difference "),
    ],
)
def test_the_gradient_of_a_change_that_autograd_refuses_is_proven(
    gradient: str, said: str
) -> None:
    raw = {"inputs": "x[N]", "forward": "x.div_(1 + x.abs())", "dirty": ["x"]}
    assert failure(**raw, grad={"x": gradient}).startswith(said)
