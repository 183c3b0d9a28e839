"""Of sizes that the forward refuses it is found out how they depend on each other."""

import pytest

from tests.verify.ops import verdict

CONDITIONS = {
    "W == 2 * D": ("h[N, D], a[W]", "torch.cat((h, h.exp()), 1) @ a"),
    "G == 3 * H": ("x[N, G], h[N, H]", "sum(x.chunk(3, 1)) * h"),
    "H == G * n_rep": (
        "q[B, H, T], k[B, G, T], n_rep: int = 2",
        "q * k.repeat_interleave(n_rep, 1)",
    ),
    "C == A + B": ("a[A], b[B], c[C]", "torch.cat((a, b)) * c"),
    "M == N + 2": ("x[N], w[M]", "F.pad(x, (1, 1)) * w"),
    "T >= N": ("x[B, T], w[N]", "x.unfold(1, w.shape[0], 1) @ w"),
    "T % 4 == 0": ("x[B, T]", "x.t().reshape(4, -1, x.shape[0]).exp()"),
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_what_the_forward_wants_is_found(condition: str) -> None:
    inputs, forward = CONDITIONS[condition]
    found = verdict(inputs=inputs, forward=forward, derive=True)
    assert found.wanted == (condition,)


def test_two_sizes_may_depend_on_others_at_once() -> None:
    forward = "torch.cat((x, x, x)) * a + torch.cat((x, x)).repeat(3)[: b.shape[0]].sum() * torch.cat((x, x)) @ b"
    found = verdict(inputs="x[N], a[A], b[B]", forward=forward, derive=True)
    assert set(found.wanted) == {"A == 3 * N", "B == 2 * N"}


@pytest.mark.parametrize(
    ("inputs", "forward"),
    [
        ("x[N], y[N]", "x * y"),
        ("x[N]", "x.reshape(7, 11, 13)"),
        ("x[N], y[M]", "torch.nothing(x) * y"),
    ],
)
def test_where_nothing_is_wrong_or_no_size_mends_it_nothing_is_wanted(
    inputs: str, forward: str
) -> None:
    assert verdict(inputs=inputs, forward=forward, derive=True).wanted == ()
