"""Results that may be an input, or one tensor twice: PyTorch saves no input that is returned as it is."""

from itertools import product

import pytest
import torch

from scaffold.derive import derive
from scaffold.errors import ScaffoldError
from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import spec_of
from tests.sweeps import pairs_in_every_run

# Of a vector of doubles each is the very tensor that it is of.
AS_IT_IS = (
    "y.flatten()",
    "torch.flatten(y)",
    "y.flatten().contiguous()",
    "y.real",
    "+y",
    "y.double()",
    "y.to(y.dtype)",
    "y.contiguous()",
    "y.expand(3)",
    "y.sum_to_size(3)",
    "y.squeeze()",
    "y.view(-1)",
    "y.reshape(3)",
    "torch.broadcast_tensors(y, y)[0]",
    "torch.atleast_1d(y)",
    "(y, y * 2)[0]",
    "(y.flatten() if y.ndim > 2 else y)",
    "y.to_dense()",
)


IN_STYLES = [*product(AS_IT_IS, ("setup-context", "combined"))]


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("value", "style"),
    pairs_in_every_run(
        IN_STYLES, [*IN_STYLES[::4], *IN_STYLES[1::8]], pytest.mark.each_commit
    ),
)
def test_an_input_that_comes_back(value: str, style: str) -> None:
    calls = [(tensor(3),)]
    check_forward("y", value, calls, style=style)
    for forward in (
        f"u = y * y\nreturn {value}, u",
        f"u = y.exp()\nreturn u, {value}",
        f"h = {value}\nreturn h, h * y",
    ):
        check_forward("y", forward, calls, outputs="a, b", style=style)


@pytest.mark.parametrize(
    "forward",
    [
        "p = (y, y * 2)\nreturn p[0], y * y",
        "p = [y, y * 2]\nreturn p[0], p[1] * y",
        "p = torch.broadcast_tensors(y, y)\nreturn p[0], p[1] * y",
        "a, b = torch.broadcast_tensors(y, y)\nreturn a, b * y",
    ],
)
def test_a_part_of_a_tuple(forward: str) -> None:
    check_forward("y", forward, [(tensor(3),)], outputs="a, b")


@pytest.mark.parametrize(
    "forward",
    [
        "h = +x\nh[0] = 1\nreturn h * y",
        "a, b = torch.broadcast_tensors(y, x)\nb[0] = 1\nreturn a * b",
        "a, b = torch.meshgrid(y, x)\nb[0] = 1\nreturn a * b",
    ],
)
def test_an_input_that_changes_by_another_name_is_refused(forward: str) -> None:
    with pytest.raises(ScaffoldError, match="changes its input 'x' in place"):
        derive(spec_of("x, y", forward=forward))


@pytest.mark.parametrize(
    ("value", "hint"), [("x.flatten()", "x.flatten()"), ("+x", "(+x)")]
)
def test_autograd_of_a_whole_forward_takes_no_input(value: str, hint: str) -> None:
    forward = f"h = x\nfor k in range(9):\n    h = h * 2\n    if h.sum() > 9:\n        return h\nreturn {value}"
    with pytest.raises(ScaffoldError, match="may return its input 'x' itself") as error:
        derive(spec_of("x", forward=forward))
    assert f"return a copy: {hint}.clone()" in str(error.value)
    copied = forward.replace(value, f"{hint}.clone()")
    check_forward("x", copied, [(tensor(3),), (-torch.ones(3).double(),)])
