"""Tuples and lists of tensors in a forward: the gradient is that of the parts that are taken."""

from dataclasses import replace

import pytest
import torch

from scaffold.derive import derive
from scaffold.spec import RuleFile
from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import draft_of, load, spec_of
from tests.derive.checking import check_op

SIGNATURE = "x[N, D], y[N, D], k: int = 1"
DIRECT = (
    "(x.sin(), y)[0] * y",
    "p = [x.sin(), y]\nreturn p[-1] * p[0]",
    "p = [x.sin(), y, x * y]\nreturn torch.stack(p[1:], 0)",
    "p = (x.sin(), y)\nq = p[::-1]\nreturn q[0] * q[1].exp()",
    "p = [x.sin(), [y, x]]\nreturn p[1][0] * p[0]",
    "p = (x.sin(), y) if k > 0 else (y, x.cos())\nreturn p[0] * p[1].exp()",
    "if k > 0:\n    p = (x.sin(), y)\nelse:\n    p = (y, x.cos())\nreturn p[0] * p[1].exp()",
    "if k > 0:\n    p = [x.sin(), y]\nz = x\nif k > 0:\n    z = p[0] * p[1]\nreturn z * y",
    "p = [x.sin()] + [y]\nreturn p[0] * p[1]",
)
LEFT = (
    "p = [x.sin(), y]\nreturn p[k] * p[0]",
    "p = [x.sin(), y, x]\nreturn p[k:][0] * y",
    "p = (x.sin(), y) if k > 0 else (x, y, x)\nreturn p[0] * p[1].exp()",
    "p = (x.sin(), y) if k > 0 else x\nreturn p[0] * p[1].exp()",
)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("k", [0, 1])
@pytest.mark.parametrize("forward", DIRECT + LEFT)
def test_the_gradient_is_that_of_autograd(forward: str, k: int) -> None:
    torch.manual_seed(2)
    spec = spec_of(SIGNATURE, forward=forward, derive=True)
    text = draft_of(spec, derive(spec))
    assert ("torch.func.vjp" in text) == (forward in LEFT)
    module = load(text)
    plain = load(draft_of(spec_of(SIGNATURE, forward=forward))).SomeOpFunction
    values = [*(torch.randn(3, 4, dtype=torch.double) for _ in range(2)), k]
    check_op(module.SomeOpFunction, module.some_op, plain.forward, values)


SOLVED = """
[eigh]
call = "torch.linalg.eigh(x)"
category = "linalg"
results = ["values", "vectors"]
grad.x = "vectors @ solve(vectors, grad_vectors) + diag_embed(grad_values)"
domain.x = "spd"
samples = ["x[3, 3]"]
"""


HALVES = """
[halves]
call = "torch.split_with_sizes(x, split_sizes, dim=0)"
category = "view"
results = ["one", "other"]
grad.x = "cat((grad_one, grad_other), dim)"
samples = ["x[3, 4], (1, 2)"]
"""


def test_a_part_that_nobody_reads_is_not_joined_as_a_number() -> None:
    forward = "torch.split_with_sizes(x, (1, 2), 0)[0].exp()"
    spec = spec_of("x[N, D]", forward=forward, derive=True)
    found = derive(replace(spec, rules=(RuleFile("rules.toml", HALVES),)))
    assert "cat of the number 0" in found.notes[0]


def test_a_rule_of_a_team_s_that_needs_all_gradients_gives_way_where_one_is_missing() -> (
    None
):
    forward = "torch.linalg.eigh(x)[0]"
    rules = (RuleFile("team.toml", SOLVED),)
    spec = spec_of("x[N, N]", forward=forward, derive=True)
    found = derive(replace(spec, rules=rules))
    assert "solve of the number 0" in found.notes[0]
    assert derive(spec).notes == ()


@pytest.mark.parametrize(
    ("sizes", "forward", "wanted"),
    [
        (
            "w[N, 2]",
            "xs = x.split([1, 2, 3], -1)\nreturn torch.cat([xs[1] * w, xs[2], xs[0]], -1)",
            "(grad_output[..., 5:], grad_value, grad_output[..., 2:5])",
        ),
        (
            "w[N, 3]",
            "xs = x.split([1, 2, 3], -1)\nreturn xs[2] * w",
            "start=3\n",
        ),
        (
            "w[N, D], n: int = 2",
            "xs = x.split([1, n, 5 - n], -1)\nreturn torch.cat([xs[1].exp(), xs[2]], -1)",
            "",
        ),
    ],
)
def test_parts_of_said_sizes_are_taken_by_number(
    sizes: str, forward: str, wanted: str
) -> None:
    inputs = f"x[N, 6], {sizes}"
    width = 2 if sizes == "w[N, 2]" else 3
    numbers = (2, 3, 4) if "n:" in sizes else ()
    calls = [
        (x, tensor(len(x), width), *numbers[at : at + 1])
        for at, x in enumerate((tensor(4, 6), tensor(0, 6), tensor(6, 4).t()))
    ]
    text = check_forward(inputs, forward, calls)
    assert wanted in text


def test_the_parts_between_said_places_are_one_more_than_these() -> None:
    forward = "xs = x.tensor_split([1, 4], -1)\nreturn xs[1] * w + xs[0]"
    calls = [(tensor(n, 6), tensor(3)) for n in (2, 0)] + [
        (tensor(6, 2).t(), tensor(3))
    ]
    check_forward("x[N, 6], w[3]", forward, calls)
