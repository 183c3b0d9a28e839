"""How one declared size follows from others is found out by running the forward."""

import pytest

from tests.verify.ops import verdict

RELATIONS = {
    "W == 2 * D": ("h[N, D], a[W]", "torch.cat((h, h.exp()), 1) @ a"),
    "G == 3 * H": ("x[N, G], h[N, H]", "sum(x.chunk(3, 1)) * h"),
    "H == n_rep * G": (
        "q[B, H, T], k[B, G, T], n_rep: int = 2",
        "q * k.repeat_interleave(n_rep, 1)",
    ),
    "C == A + B": ("a[A], b[B], c[C]", "torch.cat((a, b)) * c"),
    # Of the tests' sizes, which follow each other, E == A + D is true as well.
    "E == B + C": (
        "a[A], b[B], c[C], d[D], e[E]",
        "torch.cat((b, c)) * e * a.sum() * d.sum()",
    ),
    "M == N + 2": ("x[N], w[M]", "F.pad(x, (1, 1)) * w"),
}


@pytest.mark.parametrize("relation", RELATIONS)
def test_what_the_forward_wants_is_found(relation: str) -> None:
    inputs, forward = RELATIONS[relation]
    found = verdict(inputs=inputs, forward=forward, derive=True)
    assert (found.conditions, found.shapes) == ((relation,), {})


@pytest.mark.parametrize(
    ("inputs", "forward"),
    [
        ("x[N], y[N]", "x * y"),
        ("x[N], y[M]", "torch.nothing(x) * y"),
        ("x[N, D], w[K, D]", "x @ w"),  # that two names are equal is not assumed
        # Less is taken too: these sizes are a bound's.
        (
            "x[N, L], p[M], w[K]",
            "x[:, :-1].topk(w.shape[0]).values.sum() * w * p.sum()",
        ),
    ],
)
def test_where_nothing_is_wrong_or_no_size_mends_it_nothing_is_wanted(
    inputs: str, forward: str
) -> None:
    assert verdict(inputs=inputs, forward=forward, derive=True).conditions == ()


@pytest.mark.parametrize(
    ("inputs", "forward", "hint"),
    [
        (
            "input[N, I], weight[O, I], bias[O]?",
            "input @ weight + bias",
            "input[N, I], weight[I, O], bias[O]",
        ),
        (
            "x[N, C, L], weight[O, C, K], bias[O]",
            "F.conv1d(x.mT, weight, bias, padding=3)",
            "x[N, C, L], weight[O, L, K], bias[O]",
        ),
    ],
)
def test_of_sizes_that_no_relation_mends_shapes_and_conditions_are_told(
    inputs: str, forward: str, hint: str
) -> None:
    found = verdict(inputs=inputs, forward=forward, derive=True)
    assert found.failure is not None
    assert found.failure.hint == f"shapes it accepts, for example: {hint}"


@pytest.mark.parametrize(
    ("inputs", "forward", "conditions"),
    [
        (
            "x[N, C, H, W], weight[O, C, K, K], bias[O]",
            "torch.relu(F.conv2d(x, weight, bias, padding=1))",
            "K <= H + 2 and K <= W + 2",
        ),
        ("x[B, C, T], weight[O, C, K]", "F.conv1d(x, weight)", "K <= T"),
        ("x[N, D], w[K]", "x.topk(w.shape[0], dim=1).values * w", "K <= D"),
        ("x[N, C, H]", "F.avg_pool1d(x, 7)", "H >= 7"),
        (  # other multiples are taken too, so it is no equation
            "q[4, N, D, K], k[4, 4, M, K], v[4, 4, M, H]",
            "F.scaled_dot_product_attention(q, k, v, enable_gqa=True)",
            "N % 4 == 0",
        ),
        (
            "x[N, C, L], weight[C], bias[C]",
            "F.group_norm(x, 32, weight, bias)",
            "C % 32 == 0",
        ),
        (
            "x[N, C, L], weight[C], groups: int = 4",
            "F.group_norm(x, groups, weight)",
            "C % groups == 0",
        ),
        (
            "q[B, H, T, D], k[B, G, S, D], v[B, G, S, D]",
            "F.scaled_dot_product_attention(q, k, v, enable_gqa=True)",
            "H % G == 0",
        ),
        (
            "x[N, C, H, W], w[O, I, K, K2]",
            "F.conv2d(x, w, groups=4)",
            "C == 4 * I and K <= H and K2 <= W and O % 4 == 0",
        ),
        (
            "x[N, C, L], weight[O, C, K]",
            "F.conv1d(x, weight, dilation=2)",
            "L > 2 * (K - 1)",
        ),
        (
            "x[N, C, H, W], w[O, C, KH, KW], d: int = 2",
            "F.conv2d(x, w, dilation=d)",
            "H > d * (KH - 1) and W > d * (KW - 1)",
        ),
        (
            "x[N, C, T], w[O, C, K]",
            "F.conv1d(x, w, dilation=3, padding=2, stride=2)",
            "T > 3 * (K - 1) - 4",
        ),
    ],
)
def test_conditions_on_several_sizes_are_told_in_the_declared_names(
    inputs: str, forward: str, conditions: str
) -> None:
    found = verdict(inputs=inputs, forward=forward, derive=True)
    assert found.failure is not None
    hint = f"declare the sizes it accepts: --require '{conditions}'"
    assert found.failure.hint == hint
    factors = " % " in conditions and "==" not in conditions.replace("== 0", "")
    assert found.conditions == ((conditions,) if factors else ())  # which are added
    mended = verdict(inputs=inputs, forward=forward, require=[conditions], derive=True)
    assert mended.failure is None
