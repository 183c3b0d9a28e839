"""Of inputs without a shape, one that the forward takes is proposed."""

import pytest

from tests.verify.ops import verdict

PROPOSED = {
    "a @ b": ("a, b", "a[N, D], b[D, K]"),
    "torch.einsum('ij,jk->ik', y, y)": ("y", "y[N, N]"),
    "torch.einsum('bhsd,bhtd->bhst', q, k)": ("q, k", "q[N, D, K, M], k[N, D, H, M]"),
    "x @ w[2:] + x.sum()": ("x, w[D, D]", ""),
    "x.reshape(7, 11)": ("x", ""),
    "w @ x": ("w[N, D], x", ""),
    "torch.logsumexp(q, 1) - q.gather(1, i[:, None])[:, 0]": (
        "q, i[...; int]",
        "q[N, D], i[N]",
    ),
}


@pytest.mark.parametrize("forward", PROPOSED)
def test_a_shape_that_the_forward_takes_is_proposed(forward: str) -> None:
    inputs, proposed = PROPOSED[forward]
    found = verdict(inputs=inputs, forward=forward, derive=True).failure
    assert found is not None
    words = "declare in --inputs the shapes that it takes"
    assert found.hint == (words + f", for instance '{proposed}'" if proposed else words)


@pytest.mark.parametrize("forward", ["a @ b", "torch.einsum('ij,jk->ik', a, b)"])
def test_what_is_proposed_is_taken(forward: str) -> None:
    found = verdict(inputs="a, b", forward=forward, derive=True).failure
    assert found is not None
    shapes = found.hint.split("'")[1]
    assert verdict(inputs=shapes, forward=forward, derive=True).failure is None
