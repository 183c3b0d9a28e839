"""Every way of a call that is timed computes the same."""

import torch

from benchmarks.overhead import ways


def test_the_ways_compute_the_same() -> None:
    x = torch.randn(2, 4, requires_grad=True)
    y = torch.randn(4, requires_grad=True)
    plain, *others = ways().values()
    expected = torch.autograd.grad(plain(x, y).sum(), (x, y))
    for call in others:
        torch.testing.assert_close(call(x, y), plain(x, y))
        found = torch.autograd.grad(call(x, y).sum(), (x, y))
        torch.testing.assert_close(found, expected)
