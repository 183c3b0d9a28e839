"""Shapes that the forward takes are found where nobody declared any."""

import re

import pytest

from scaffold.project import proof_errors
from scaffold.project.inferred_inputs import with_dims
from scaffold.verify.child import shape_search
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
        "q[N, D, K], k[N, M, K], v[N, M, H]",
        (),
    ),
    "x @ w.t() + b + x.sum((1, 2))[:, None, None]": (
        "x, w, b",
        "x[N, D, K], w[M, K], b[M]",
        (),
    ),
    "h = F.linear(x, w)\nreturn h * b": ("x, w, b", "x[N, D], w[K, D], b[K]", ()),
    # A size is a multiple, large enough for a constant index, or one that no other will do for.
    "B, D = x.shape\nreturn x.reshape(B, 2, -1).transpose(1, 2).reshape(B, D) * x": (
        "x",
        "x[N, D]",
        ("D % 2 == 0",),
    ),
    "x[:, 4] * x.sum(1)": ("x", "x[N, D]", ("D >= 5",)),
    "x1, y1, x2, y2 = b.unbind(-1)\nreturn (x2 - x1) * (y2 - y1)": ("b", "b[4]", ()),
    "B, T, C = x.shape\nq, k = (x @ w).chunk(2, -1)\nreturn q.view(B, T, C) * k": (
        "x, w",
        "x[N, D, 4], w[4, 8]",
        (),
    ),
    "n, h = x.shape[-1], 1\nwhile h < n:\n    x = x.reshape(x.shape[0], n // (2 * h), 2, h)\n    x = torch.stack((x[:, :, 0], x[:, :, 1] - x[:, :, 0]), 2).reshape(-1, n)\n    h = 2 * h\nreturn x @ w": (
        "x, w",
        "x[N, 4], w[4, D]",
        (),
    ),
    "src, dst = edges\nreturn torch.zeros_like(x @ w).index_add(0, dst, (x @ w)[src])": (
        "x, edges[; int], w",
        "x[N, D], edges[2, K; int], w[D, M]",
        (),
    ),
    # A condition that is refused otherwise.
    "if x.shape[:-1] != i.shape:\n    raise ValueError('no')\nreturn torch.gather(x[:, 1:].log_softmax(-1), 2, i[:, 1:].unsqueeze(2)).squeeze(2)": (
        "x, i[; int]",
        "x[N, D, K], i[N, D; int]",
        (),
    ),
    # As many values as keys, which PyTorch does not ask for: it reads what lies behind them.
    "B, T, D = q.shape\nq = q.view(B, T, 2, D // 2).transpose(1, 2)\nk = k.view(B, k.shape[1], 2, D // 2).transpose(1, 2)\nv = v.view(B, v.shape[1], 2, D // 2).transpose(1, 2)\nreturn F.scaled_dot_product_attention(q, k, v)": (
        "q, k, v",
        "q[N, D, K], k[N, M, K], v[N, M, K]",
        ("K % 2 == 0",),
    ),
    # A weight may broadcast to more dims than x[N, D, K] has, and to no more than x[N, D, K, M].
    "return x.mean((1, 2), keepdim=True) * x * gamma": (
        "x, gamma[1, 1, 1, C]",
        "x[N, D, K, C], gamma[1, 1, 1, C]",
        (),
    ),
    # A mask takes some rows, or there is no tensor that is returned.
    "a = x.sum(2)[m]\nreturn a.exp().sum() if a.numel() > 0 else 0": (
        "x, m[; bool]",
        "x[N, D, K], m[N; bool]",
        (),
    ),
    # Two dims of a weight are equal where what it makes is added to what it is multiplied with.
    "y = torch.tanh(F.linear(x, w, b)) * (1 - x)\nreturn y * F.linear(x, v, b)": (
        "x, w, b, v",
        "x[N, D], w[D, D], b[D], v[D, D]",
        (),
    ),
    # A size that is declared may be the least, or the divisor, of another.
    "F.conv2d(x, w, stride=w.shape[2]) * x.sum()": (
        "x, w[O, C, K, K]",
        "x[C, N, D], w[O, C, K, K]",
        ("N >= K", "D >= K"),
    ),
    # Of what is declared the names are taken.
    "B, T, C = x.shape\nreturn x @ w + b": (
        "x[B, T, C], w, b",
        "x[B, T, C], w[C, N], b[N]",
        (),
    ),
}


@pytest.mark.parametrize("forward", TAKEN)
def test_shapes_that_the_forward_takes_are_found(forward: str) -> None:
    inputs, shapes, conditions = TAKEN[forward]
    found = verdict(inputs=inputs, forward=forward, derive=True)
    assert found.failure is not None
    assert with_dims(inputs, found.shapes) == shapes
    assert found.conditions == conditions
    word = r"[A-Za-z]\w*"  # conditions read dims alone
    names = {*re.findall(word, shapes)}
    assert {*re.findall(word, " ".join(found.conditions))} <= names


def test_what_is_found_is_taken() -> None:
    """Declared, with the conditions, it is proven."""
    forward = "B, D = x.shape\nreturn x.reshape(B, 2, -1).sum(1) @ w + b"
    found = verdict(inputs="x, w, b", forward=forward, derive=True)
    shapes = with_dims("x, w, b", found.shapes)
    require = list(found.conditions)
    again = verdict(inputs=shapes, forward=forward, derive=True, require=require)
    assert again.failure is None, (shapes, require)
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


def test_where_none_are_found_it_is_told_how_far_the_forward_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shape_search, "RUNS", 200)  # none is found by more
    forward = "y = x @ w.t()\nz = x.new_zeros(2, 3) @ x.new_zeros(2, 3)\nreturn y + z"
    found = verdict(inputs="x, w", forward=forward, derive=True)
    assert found.failure is not None and not found.shapes
    assert found.failure.words == "accepts none of the 200 shapes tried"
    ranks, furthest = found.failure.tried
    assert ranks == "tried: ranks 0 to 4 and sizes up to 12"
    assert furthest == (
        "closest: x[4, 4], w[4, 4], which fails at: z = x.new_zeros(2, 3) @ x.new_zeros(2, 3): "
        "raised RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)"
    )
    assert found.failure.hint == (
        "declare the shapes of x and w in --inputs, as in 'w[N, D]'; "
        "give inputs that reach it: --samples '@file.py:function'"
    )


QKV = (
    "B, T, C = x.shape\n"
    "q, k, v = (y.view(B, T, 2, C // 2).transpose(1, 2) for y in (x @ w).split(C, 2))\n"
    "weights = q @ k.transpose(-2, -1)\n"
)


@pytest.mark.parametrize(
    ("inputs", "lines", "shapes"),
    [
        (
            "x, w[dim, dim_3], mask[; int]?",
            "if mask is not None:\n    weights = weights.masked_fill(mask == 0, -1e9)",
            "x[N, D, dim], w[dim, dim_3], mask[D; int]?",
        ),
        (
            "x, w[dim, dim_3], mask[size, size; const]",
            "weights = weights.masked_fill(mask[:T, :T] == 0, -1e9)",
            "x[N, size, dim], w[dim, dim_3], mask[size, size; const]",
        ),
        (
            "x, w[dim, dim_3], mask",
            "weights = weights + mask.view(B, 1, 1, T)",
            "x[N, D, dim], w[dim, dim_3], mask[N, D]",
        ),
    ],
)
def test_sizes_that_depend_on_each_other_stay_as_they_are_declared(
    inputs: str, lines: str, shapes: str
) -> None:
    """A mask has dims of the data, the data perhaps the size of a buffer."""
    forward = f"{QKV}{lines}\nreturn weights.softmax(-1) @ v"
    require = ["dim_3 == 3 * dim", "dim % 2 == 0"]
    found = verdict(inputs=inputs, forward=forward, derive=True, require=require)
    assert with_dims(inputs, found.shapes) == shapes
    again = verdict(inputs=shapes, forward=forward, derive=True, require=require)
    assert again.failure is None


@pytest.mark.parametrize("heads", [4, 8])
def test_a_size_that_a_number_divides_is_told_with_it(heads: int) -> None:
    """Of `dim_3`, which is a multiple of `dim`, nothing more is asked; the width of a layer behind it is free."""
    forward = (
        "B, N, C = x.shape\n"
        "qkv = (x @ w).reshape(B, N, 3, heads, C // heads).permute(2, 0, 3, 1, 4)\n"
        "q, k, v = qkv.unbind(0)\n"
        "y = ((q @ k.mT).softmax(-1) @ v).transpose(1, 2).reshape(B, N, C)\n"
        "return (y @ up).relu() @ down"
    )
    weights = "w[dim, dim_3], up[dim, wide], down[wide, dim]"
    require = ["dim_3 == 3 * dim"]
    inputs = f"x, {weights}, heads: int = {heads}"
    found = verdict(inputs=inputs, forward=forward, derive=True, require=require)
    assert found.shapes == {"x": "N, D, dim"}
    assert found.conditions == ("dim % heads == 0",)
    require += found.conditions
    inputs = inputs.replace("x,", "x[N, D, dim],")
    again = verdict(inputs=inputs, forward=forward, derive=True, require=require)
    assert again.failure is None


@pytest.mark.parametrize(("inputs", "found_shapes"), [("x", True), ("x[N, 3]", False)])
def test_a_forward_that_divides_by_zero_is_refused_or_fitted(
    inputs: str, found_shapes: bool
) -> None:
    """It divides by zero for sizes that are tried, or for the declared one."""
    forward = "x.reshape(x.shape[0] // (x.shape[-1] - 3), -1)"
    found = verdict(inputs=inputs, forward=forward, derive=True)
    assert found.failure is not None and "ZeroDivisionError" in found.failure.words
    assert bool(found.shapes) is found_shapes
