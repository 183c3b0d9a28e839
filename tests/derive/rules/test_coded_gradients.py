"""Shapes that are not those of the rule: a size of 1 that is broadcast, an empty part. The gradient has its operand's shape, and is right."""

import pytest
import torch

from scaffold.derive import derive
from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import draft_of, load, op_text, reference, spec_of

Shapes = tuple[tuple[int, ...], ...]
CASES: tuple[tuple[str, str, tuple[Shapes, ...]], ...] = (
    ("y", "torch.einsum('ij,jk->ik', y, y)", (((3, 1),), ((3, 3),))),
    (
        "x, y",
        "torch.einsum('ij,jk->ik', x, y)",
        (((3, 1), (4, 2)), ((3, 4), (1, 2)), ((3, 4), (4, 2)), ((0, 4), (1, 2))),
    ),
    ("x, y", "torch.einsum('ij,jk', [x, y])", (((3, 1), (4, 2)), ((3, 4), (1, 2)))),
    ("x, y", "torch.einsum('ij,jk->k', x, y)", (((3, 1), (4, 2)), ((3, 4), (1, 2)))),
    ("x, y", "torch.einsum('i,i->', x, y)", (((3,), (1,)), ((1,), (3,)))),
    ("x, y", "torch.einsum('ij,ij->ij', x, y)", (((3, 1), (1, 4)),)),
    ("x[N], y[1]", "torch.einsum('i,i->', x, y)", (((3,), (1,)),)),
    ("x[N, 1]", "torch.einsum('ij,jk->ik', x, x)", (((3, 1),),)),
    ("x[N, N], y[1, D]", "torch.einsum('ii,ij->j', x, y)", (((3, 3), (1, 2)),)),
    (
        "x, y",
        "torch.einsum('bij,bjk->bik', x, y)",
        (((1, 3, 1), (2, 4, 5)), ((2, 3, 4), (1, 4, 5))),
    ),
    (
        "x, y, z",
        "torch.einsum('ij,jk,k->i', x, y, z)",
        (((3, 4), (4, 2), (1,)), ((3, 1), (4, 1), (2,)), ((3, 4), (4, 2), (2,))),
    ),
    # An empty tensor of one dim, which PyTorch skips.
    ("x, y", "torch.cat((x, y), 0)", (((0,), (2, 3)), ((2, 3), (0,)), ((2,), (3,)))),
    ("x, y", "torch.cat((2 * x, y), -1)", (((0,), (2, 3)), ((2, 3), (0,)))),
    ("x, w", "F.prelu(x, w)", (((), (1,)), ((3,), (1,)), ((2, 4), (4,)), ((2, 4), ()))),
    # Dims that dots stand for, behind a letter: of one operand they may be fewer.
    (
        "x, y",
        "torch.einsum('i...j,...jk->i...k', x, y)",
        (((3, 4), (3, 4, 5)), ((3, 2, 4), (4, 5)), ((3, 2, 4), (2, 4, 5))),
    ),
    (
        "x, y",
        "torch.einsum('i...,...->i', x, y)",
        (((3, 2, 4), (4,)), ((3, 1, 4), (2, 4))),
    ),
    ("x", "torch.einsum('ii->i', x).exp()", (((3, 3),), ((0, 0),), ((1, 1),))),
    ("x", "torch.einsum('bii->b', x).exp()", (((2, 3, 3),), ((0, 3, 3),))),
    ("x, y", "torch.einsum('ii,ij->j', x, y)", (((3, 3), (1, 2)), ((3, 3), (3, 2)))),
    (
        "x",
        "torch.einsum('...ii', x).exp()",
        (((3, 3),), ((2, 3, 3),), ((4, 2, 1, 1),), ((2, 0, 0),)),
    ),
    ("x[B, N, N]", "torch.einsum('...ii', x).exp()", (((2, 3, 3),), ((0, 3, 3),))),
    ("x", "torch.einsum('...akb->...k', x).exp()", (((2, 3, 4),), ((5, 2, 3, 4),))),
    (
        "x, y",
        "torch.einsum('...ii,...ij->...j', x, y)",
        (((2, 3, 3), (3, 2)), ((3, 3), (4, 1, 2)), ((1, 3, 3), (4, 3, 2))),
    ),
    ("x", "torch.take_along_dim(x, x.argsort(-1), dim=-1).exp()", (((3, 4),), ((4,),))),
    (
        "x, y",
        "torch.linalg.vecdot(x, y)",
        (((3, 4), (3, 1)), ((3, 1), (3, 4)), ((4,), (3, 4)), ((3, 4), (3, 4))),
    ),
    (
        "x, y",
        "torch.tensordot(x, y, dims=1)",
        (((3, 1), (4, 2)), ((3, 4), (1, 2)), ((3, 4), (4, 2))),
    ),
    (
        "x, y",
        "torch.einsum('ij,jk->ik', y, x.mT)",  # where x is read, j has 3, and 1 elsewhere
        (((4, 3), (2, 1)), ((4, 1), (2, 3))),
    ),
    ("x, y", "F.cosine_similarity(x, y, dim=-1)", (((4, 3), (4, 1)), ((1, 3), (4, 3)))),
    ("x, y", "torch.linalg.cross(x, y)", (((4, 3), (1, 3)),)),
)


@pytest.mark.parametrize(
    ("inputs", "forward", "shapes"), CASES, ids=[case[1] for case in CASES]
)
def test_the_gradient_is_that_of_autograd(
    inputs: str, forward: str, shapes: tuple[Shapes, ...]
) -> None:
    calls = [tuple(tensor(*shape) for shape in several) for several in shapes]
    check_forward(inputs, forward, calls)


@pytest.mark.parametrize(
    "index",
    [
        "s.argsort(-1)[:, :2, None]",
        "(s > 0).long()[:, :2, None] - 1",
        "s.argsort(-1)[:, 1:].unsqueeze(-1).expand(-1, -1, v.shape[-1])",
    ],
)
def test_an_index_that_is_broadcast(index: str) -> None:
    forward = f"v.take_along_dim({index}, dim=1).exp() * s.mean()"
    calls = [(tensor(2, 4, 3), tensor(2, 4)), (tensor(1, 3, 1), tensor(1, 3))]
    text = check_forward("v[B, N, D], s[B, N]", forward, calls, derive=True)
    assert "vjp" not in text


@pytest.mark.parametrize(
    "index", ["s.long().chunk(2, 1)[0]", "s.long().max(1, keepdim=True).values - 3"]
)
def test_a_part_of_an_index_may_count_from_the_end(index: str) -> None:
    calls = [(tensor(2, 4), torch.tensor([[-1.0, 0, 1, 2], [0, -2, 1, 1]]).double())]
    check_forward("x[N, D], s[N, D]", f"x.take_along_dim({index}, dim=1) * 2", calls)


def test_a_tensor_that_take_along_dim_broadcasts() -> None:
    forward = "v.take_along_dim(s.argsort(-1), dim=1).exp() * s.mean()"
    check_forward("v[1, N], s[B, N]", forward, [(tensor(1, 4), tensor(3, 4))])


@pytest.mark.parametrize("dims", [(3,), (2, 3), (4, 2, 3)])
def test_of_a_weight_of_one_dim(dims: tuple[int, ...]) -> None:
    declared = ", ".join("ABC"[-len(dims) :])
    calls = [(tensor(*dims), tensor(3))]
    text = check_forward(f"x[{declared}], w[C]", "F.linear(x, w)", calls)
    assert "torch.func.vjp" not in text


def test_of_declared_sizes_nothing_is_broadcast() -> None:
    forward = "torch.einsum('ij,jk->ik', x, y)"
    calls = [(tensor(3, 4), tensor(4, 2))]
    text = check_forward("x[N, D], y[D, K]", forward, calls)
    assert "broadcast_shapes" not in text and "sum_to_size" not in text


@pytest.mark.parametrize("inputs", ["x[N, D], y[N, D], dim: int", "x, y, dim: int"])
@pytest.mark.parametrize("join", ["cat", "stack"])
def test_of_a_join_along_a_dim_that_the_call_tells(inputs: str, join: str) -> None:
    forward = f"return torch.{join}((x, y.exp(), x * y), dim) ** 2"
    calls = [
        (tensor(*shape), tensor(*shape), dim)
        for shape in ((3, 4), (0, 4))
        for dim in (0, 1, -1)
    ]
    check_forward(inputs, forward, calls, derive=True)
    assert not derive(spec_of(inputs, forward=forward, derive=True)).notes


@pytest.mark.parametrize(
    ("inputs", "forward"),
    [
        ("x, w", "return F.layer_norm(x, x.shape[-1:], w)"),
        ("x, w", "return F.layer_norm(x, x.shape[-2:]) * w"),
        ("x[B, T, D], w[D]", "return F.layer_norm(x, w.shape, w)"),
        ("x, w, sizes: tuple[int, ...] = (4,)", "return F.layer_norm(x, sizes) * w"),
        ("x, w, sizes: tuple[int, ...] = (4,)", "return F.rms_norm(x, sizes, w, 1e-5)"),
    ],
)
def test_of_a_norm_over_sizes_that_are_read(inputs: str, forward: str) -> None:
    turned = tensor(4, 3, 2).permute(2, 1, 0)
    given = [(4,)] if "sizes" in inputs else []
    calls = [(x, tensor(4), *given) for x in (tensor(2, 3, 4), turned)]
    check_forward(inputs, forward, calls, derive=True)
    assert not derive(spec_of(inputs, forward=forward, derive=True)).notes


def test_of_a_norm_over_the_last_dim_of_a_sum_that_may_be_one_term() -> None:
    forward = (
        "if r is not None:\n    x = x + r\nreturn F.layer_norm(x, x.shape[-1:], w)"
    )
    calls = [(tensor(2, 3), tensor(3), tensor(3)), (tensor(4), None, None)]
    check_forward("x, r?, w?", forward, calls)
    text = draft_of(spec_of("x, r?, w?", forward=forward))
    assert "range(" not in text


def test_the_gradient_of_a_linear_with_a_vector_for_a_matrix_is_no_other_product() -> (
    None
):
    spec = spec_of("x, w, y", forward="y * F.linear(x * y, w)")
    function = load(draft_of(spec)).some_op
    x, w, y = (tensor(*sizes).requires_grad_() for sizes in ((2, 2), (2,), (2, 2)))
    with pytest.raises(RuntimeError, match="matrices"):
        function(x, w, y).sum().backward()


@pytest.mark.parametrize("mask", ["mask[T, S; bool]?", "mask[T, S]?"])
@pytest.mark.parametrize("causal", ["False", "True"])
def test_of_attention_with_a_mask_that_may_be_absent(mask: str, causal: str) -> None:
    forward = f"F.scaled_dot_product_attention(q, k, v, mask, is_causal={causal})"
    inputs = f"q[B, T, D], k[B, S, D], v[B, S, E], {mask}"
    values = tensor(2, 3, 4), tensor(2, 5, 4), tensor(2, 5, 6)
    hides = torch.tensor([[True] * 5, [True, False] * 2 + [True], [False] * 4 + [True]])
    given = hides if "bool" in mask else tensor(3, 5)
    calls = [
        (*values, item) for item in ((None,) if causal == "True" else (given, None))
    ]
    check_forward(inputs, forward, calls, derive=True)


@pytest.mark.parametrize("mode", ["conv1d", "conv2d", "conv3d"])
def test_a_convolution_of_no_channels_and_undeclared_rank(mode: str) -> None:
    spatial = (4,) * int(mode[4])
    whole = tensor(2, 3, *spatial), tensor(2, 3, *(2,) * len(spatial))
    alone = tensor(3, *spatial), tensor(2, 3, *(2,) * len(spatial))
    empty = tensor(2, 0, *spatial), tensor(2, 0, *(2,) * len(spatial))
    check_forward("x, w", f"F.{mode}(x, w).sin()", [whole, alone, empty])


@pytest.mark.parametrize("dim", ["0", "(-3, -2, -1)"])
def test_a_transform_of_two_dims_that_is_given_others_is_left_to_autograd(
    dim: str,
) -> None:
    forward = f"torch.fft.rfft2(x, dim={dim}).abs()"
    assert "vjp(" in check_forward("x[A, B, C]", forward, [(tensor(2, 3, 4),)])


@pytest.mark.parametrize(
    "forward",
    [
        "torch.einsum('bd,dn->bn', x.float(), w)",
        "torch.einsum('dn,bd->bn', w, x.to(w.dtype))",
        "torch.tensordot(x.float(), w, dims=1)",
        "x.float() @ w",
        "F.linear(x.type_as(w), w.t())",
    ],
)
def test_each_operand_of_a_product_keeps_its_dtype(forward: str) -> None:
    """The product is float32, the gradient of x is float64 again."""
    plain = reference(["x", "w"], forward)
    op = load(op_text("x[B, D], w[D, N]", forward=forward)).some_op
    given = tensor(2, 3).requires_grad_(), tensor(3, 4).float().requires_grad_()
    found = torch.autograd.grad(op(*given).square().sum(), given)
    right = torch.autograd.grad(plain(*given).square().sum(), given)
    torch.testing.assert_close(found, right)
    assert [item.dtype for item in found] == [torch.float64, torch.float32]
