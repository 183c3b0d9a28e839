"""Shapes that the forward takes are found where nobody declared any."""

import re

import pytest

from scaffold.project import proof_errors
from scaffold.project.inferred_inputs import with_dims
from tests.sweeps import in_every_run
from tests.verify.ops import verdict

TAKEN = {
    "a @ b": ("a, b", "a[N, D], b[D, K]", ()),
    "torch.einsum('ij,jk->ik', y, y)": ("y", "y[N, N]", ()),
    "torch.einsum('bhsd,bhtd->bhst', q, k)": (
        "q, k",
        "q[N, D, K, M], k[N, D, H, M]",
        (),
    ),
    "torch.logsumexp(q, 1) - q.gather(1, i[:, None])[:, 0]": (
        "q, i[; int]",
        "q[N, D], i[N; int]",
        (),
    ),
    "B, T, H = q.shape\nreturn torch.softmax(q @ k.transpose(1, 2), -1) @ v * H**-0.5": (
        "q, k, v",
        "q[B, T, H], k[B, N, H], v[B, N, D]",
        (),
    ),
    "x @ w.t() + b + x.sum((1, 2))[:, None, None]": (
        "x, w, b",
        "x[N, D, K], w[M, K], b[M]",
        (),
    ),
    "B, D = x.shape\nreturn x.reshape(B, 2, -1).transpose(1, 2).reshape(B, D) * x": (
        "x",
        "x[B, D]",
        ("D % 2 == 0",),
    ),
    "x1, y1, x2, y2 = b.unbind(-1)\nreturn (x2 - x1) * (y2 - y1)": (
        "b",
        "b[N, 4]",
        (),
    ),
    "k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)\nreturn torch.einsum('bhsd,bhtd->bhst', q, k)": (
        "q, k",
        "q[N, D, K, M], k[N, H, W, M]",
        ("D % H == 0", "D > H"),
    ),
    "h = F.linear(x, w)\nreturn h * b": ("x, w, b", "x[N, D], w[K, D], b[K]", ()),
    # Rows of an integer input, and what two inputs of one kind of name have in common.
    "src, dst = edges\nreturn torch.zeros_like(x @ w).index_add(0, dst, (x @ w)[src])": (
        "x, edges[; int], w",
        "x[N, D], edges[2, M; int], w[D, H]",
        (),
    ),
    "total = 0.0 * next_value\nfor t in reversed(range(rewards.shape[0])):\n    total = rewards[t] + (1 - next_done) * (next_value if t == rewards.shape[0] - 1 else total)\nout = torch.zeros_like(rewards)\nout[0] = total\nreturn out": (
        "rewards, next_value, next_done",
        "rewards[N, D], next_value[D], next_done[D]",
        (),
    ),
    # A condition that is refused otherwise, positions of the leading dims, and what a docstring says.
    "if x.shape[:-1] != i.shape:\n    raise ValueError('no')\nreturn torch.gather(x[:, 1:].log_softmax(-1), 2, i[:, 1:].unsqueeze(2)).squeeze(2)": (
        "x, i[; int]",
        "x[N, D, K], i[N, D; int]",
        (),
    ),
    # Heads that are repeated, of a mask as well.
    "B, H, S, D = k.shape\nk = k[:, :, None].expand(B, H, 2, S, D).reshape(B, H * 2, S, D)\nreturn torch.softmax(torch.matmul(q, k.transpose(2, 3)) + mask, -1)": (
        "q, k, mask",
        "q[B, N, K, D], k[B, H, S, D], mask[B, N, K, S]",
        ("N == 2 * H",),
    ),
    # A mask has a size of 1, rather than two equal dims.
    "B, T, C = x.shape\nq, k = F.linear(x, wq), F.linear(x, wk)\ns = torch.softmax(q @ k.mT + mask.view(mask.shape[0], mask.shape[1]), -1)\nreturn s @ x": (
        "x, wq, wk, mask",
        "x[B, T, C], wq[N, C], wk[N, C], mask[1, T]",
        (),
    ),
    # An equation wants several dims equal at once, of what a function of the file makes too.
    "def sums(a):\n    return a.cumsum(-1)[..., :, None] - a.cumsum(-1)[..., None, :]\ny = torch.einsum('bclhn,bcshn,bhcls,bcshp->bclhp', c, b, sums(a).exp(), x)\nreturn y": (
        "x, a, b, c",
        "x[N, D, K, M, H], a[N, M, D, K], b[N, D, K, M, W], c[N, D, K, M, W]",
        (),
    ),
    # As many values as keys, which PyTorch does not ask for: it reads what lies behind them.
    "B, T, D = q.shape\nq = q.view(B, T, 2, D // 2).transpose(1, 2)\nk = k.view(B, k.shape[1], 2, D // 2).transpose(1, 2)\nv = v.view(B, v.shape[1], 2, D // 2).transpose(1, 2)\nreturn F.scaled_dot_product_attention(q, k, v)": (
        "q, k, v",
        "q[B, T, D], k[B, N, D], v[B, N, D]",
        ("D % 2 == 0",),
    ),
    # What a dim may be is no condition: a power of 2.
    "n, h = x.shape[-1], 1\nwhile h < n:\n    x = x.reshape(x.shape[0], n // (2 * h), 2, h)\n    x = torch.stack((x[:, :, 0], x[:, :, 1] - x[:, :, 0]), 2).reshape(-1, n)\n    h = 2 * h\nreturn x @ w": (
        "x, w",
        "x[N, 2], w[2, K]",
        (),
    ),
    # A mask takes some rows, or there is no tensor that is returned.
    "a = x.sum(2)[m]\nreturn a.exp().sum() if a.numel() > 0 else 0": (
        "x, m[; bool]",
        "x[N, D, K], m[N; bool]",
        (),
    ),
    # Numbers stand where a matrix of two equal dims would do too.
    "n = x.shape[0]\nlogits = (x / x.norm(dim=-1, keepdim=True)) @ y.t() * t.exp() + b\nlabels = 2 * torch.eye(n, dtype=x.dtype) - 1\nreturn -F.logsigmoid(labels * logits).sum() / n": (
        "x, y, t, b",
        "x[N, D], y[N, D], t[], b[]",
        (),
    ),
    # Two dims of a weight are equal where what it makes is added to what it is multiplied with.
    "y = torch.tanh(F.linear(x, w, b)) * (1 - x)\nreturn y + F.linear(x, v, c) * (1 - x)": (
        "x, w, b, v, c",
        "x[N, D], w[D, D], b[D], v[D, D], c[D]",
        (),
    ),
    "y = x\nfor i in range(u.shape[0]):\n    y = x * (y @ v[i].t() @ u[i].t() + b[i]) + y\nreturn y": (
        "x, u, v, b",
        "x[N, D], u[K, D, M], v[K, M, D], b[K, D]",
        (),
    ),
    "x1, x2 = x[..., ::2], x[..., 1::2]\nc = cos[None, :, None, :]\nreturn torch.stack((x1 * c, x2 * c), -1).flatten(-2)": (
        "x, cos",
        "x[N, D, K, M], cos[D, H]",
        ("M == 2 * H",),
    ),
    "F.conv1d(x, weight, bias, padding=1, groups=weight.shape[0])": (
        "x, weight, bias",
        "x[N, D, K], weight[D, 1, 3], bias[D]",
        (),
    ),
    "t = t.view(-1, 1)\nv = torch.cat([(1 - t) * x + t * y, t], -1) @ w.T + b\nreturn ((v - y + x) ** 2).mean()": (
        "x, y, t, w, b",
        "x[N, D], y[N, D], t[N], w[D, K], b[D]",
        ("D == K - 1",),
    ),
    # The text tells ranks, also of what is given another value, and of what values are made of.
    "T, H, M, D = q.shape\nassert k.shape == (T, H, D)\nk = k[:, :, None, :].expand(-1, -1, M, -1)\nreturn torch.einsum('qhmd,khmd->hmqk', q, k)": (
        "q, k",
        "q[T, H, M, D], k[T, H, D]",
        (),
    ),
    "a, b, g = F.linear(F.silu(c), w).chunk(3, dim=1)\nreturn x * (1 + a.unsqueeze(1)) + b.unsqueeze(1) + g.unsqueeze(1) * x": (
        "x, c, w",
        "x[N, D, K], c[N, M], w[H, M]",
        ("H == 3 * K",),
    ),
    "y = torch.zeros_like(x)\nfor i in range(w.shape[0]):\n    y = y + F.linear(F.silu(F.linear(x, w[i])), v[i])\nreturn y": (
        "x, w, v",
        "x[N, D], w[K, M, D], v[K, D, M]",
        (),
    ),
    "B, T, C = x.shape\nq, k = (x @ w).chunk(2, -1)\nreturn q.view(B, T, C) * k": (
        "x, w",
        "x[B, T, C], w[C, N]",
        ("N == 2 * C",),
    ),
}

# A second or more each.
SLOW = {
    forward
    for forward in TAKEN
    if forward.startswith(("B, T, C = x.shape\nq, k = F.linear(", "y = torch.tanh("))
}


@pytest.mark.parametrize(
    "forward", in_every_run(TAKEN, {*TAKEN} - SLOW, pytest.mark.each_commit)
)
def test_shapes_that_the_forward_takes_are_found(forward: str) -> None:
    inputs, shapes, conditions = TAKEN[forward]
    found = verdict(inputs=inputs, forward=forward, derive=True)
    assert found.failure is not None
    assert with_dims(inputs, found.shapes) == shapes
    assert set(found.wanted) == set(conditions)
    word = r"[A-Za-z]\w*"  # conditions read dims alone
    names = {*re.findall(word, " ".join(found.shapes.values()))}
    assert {*re.findall(word, " ".join(found.wanted))} <= names


def test_what_is_found_is_taken() -> None:
    """Declared, with the conditions, it is proven."""
    forward = "B, D = x.shape\nreturn x.reshape(B, 2, -1).sum(1) @ w + b"
    found = verdict(inputs="x, w, b", forward=forward, derive=True)
    shapes = with_dims("x, w, b", found.shapes)
    require = list(found.wanted)
    again = verdict(inputs=shapes, forward=forward, derive=True, require=require)
    assert again.failure is None, (shapes, found.wanted)
    tests = proof_errors.test_shapes(found)
    again = verdict(inputs="x, w, b", forward=forward, derive=True, test_shapes=tests)
    assert again.failure is None, tests


def test_a_wrong_gradient_is_found_with_shapes_of_the_tests_alone() -> None:
    """Other sizes are tried as of declared shapes."""
    forward = "B, T, D = x.shape\nreturn x @ w + b"
    shapes = "x[B, T, D], w[D, N], b[N]"
    for size, wrong in (("3", True), ("b.shape[0]", False)):
        grad = {"b": f"grad_output.sum((0, 1)) * {size} / b.shape[0]"}
        found = verdict(
            inputs="x, w, b", forward=forward, test_shapes=shapes, grad=grad
        )
        assert not found.skipped
        assert (found.failure is not None) == wrong


@pytest.mark.parametrize(
    ("inputs", "forward"),
    [
        ("x", "torch.nothing(x)"),
        ("x, y", "torch.exp(x) + math.exp(y)"),
        ("x[N], w[M]", "x * w"),  # they are declared
    ],
)
def test_where_no_shapes_mend_it_there_are_none(inputs: str, forward: str) -> None:
    assert not verdict(inputs=inputs, forward=forward, derive=True).shapes


def test_where_none_are_found_it_is_told_how_far_the_forward_came() -> None:
    forward = "y = x @ w.t()\nz = x.new_zeros(2, 3) @ x.new_zeros(2, 3)\nreturn y + z"
    found = verdict(inputs="x, w", forward=forward, derive=True)
    assert found.failure is not None and not found.shapes
    assert found.failure.hint == (
        "declare in --inputs the shapes that it takes: 'x[N, D], w[K, D]' came furthest, to: "
        "z = x.new_zeros(2, 3) @ x.new_zeros(2, 3): mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"
    )
