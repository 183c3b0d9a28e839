"""Gradients of parts of a tensor, which are joined only where no index is filled twice."""

from itertools import product

import pytest
import torch

from tests.derive.building import draft_of, load, reference, spec_of
from tests.sweeps import in_every_run

PARTS = {
    "select": "{}.select(0, 1)",
    "another line": "{}[0]",
    "the same line": "{}[1]",
    "the last line": "{}[-1]",
    "first rows": "{}[:n]",
    "last rows": "{}[n:]",
    "first row": "{}[:1]",
    "even rows": "{}[::2]",
    "odd rows": "{}[1::2]",
    "column": "{}[..., 0]",
    "another column": "{}[..., 1]",
    "first columns": "{}[:, :n]",
    "last columns": "{}[:, n:]",
    "narrow": "{}.narrow(0, 0, 1)",
    "unbind": "{}.unbind(0)[1]",
    "chunk": "{}.chunk(2, -1)[1]",
}
# Of one tensor, or of a sum in which it counts twice: then its gradient has a term twice.
TENSORS = (("x", "x"), ("(x + a)", "x"), ("(x + a)", "a"), ("(x + a)", "(x - a)"))


@pytest.mark.parametrize(
    "first",
    in_every_run(PARTS, ["select"], pytest.mark.each_commit),
)
def test_two_parts_have_the_gradient_of_autograd(first: str) -> None:
    torch.manual_seed(0)
    x, y = (torch.randn(4, 4, dtype=torch.double, requires_grad=True) for _ in "xy")
    for second, (one, two) in product(PARTS.values(), TENSORS):
        p, q = PARTS[first].format(one), second.format(two)
        forward = f"a = x - y\np = {p}\nq = {q}\nreturn (2 * p).sum() + (q * q).sum()"
        op = load(draft_of(spec_of("x[B, D], y[B, D], n: int = 1", forward=forward)))
        plain = reference(["x", "y", "n"], forward)
        found, wanted = (
            torch.autograd.grad(
                function(x, y, 1), (x, y), allow_unused=True, materialize_grads=True
            )
            for function in (op.some_op, plain)
        )
        torch.testing.assert_close(found, wanted, msg=forward)
