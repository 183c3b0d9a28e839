"""Tensors that are taken apart by assignment, and the tuples of calls over no gradient."""

from itertools import product

import pytest
import torch

from scaffold.derive import derive
from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import draft_of, load, reference, spec_of
from tests.derive.checking import check_op
from tests.derive.forward.test_kept_forward import r
from tests.sweeps import pairs_in_every_run

ROWS = """
a, b, c = x
row, col = edges
return a * b[row] + c[col].sin()
"""
GRID = """
ys, xs = torch.meshgrid(torch.arange(x.shape[0]), torch.arange(x.shape[1]), indexing='ij')
i, j = torch.triu_indices(*x.shape, offset=1)
return (x * ys.to(x) - xs)[i, j]
"""


def test_a_constant_has_the_kind_of_the_dtype_that_it_is_given() -> None:
    forward = """
eye = torch.eye(x.shape[-1], dtype=x.dtype)
trace = torch.diagonal(x, 0, -2, -1).sum(-1).real[..., None, None]
return torch.linalg.solve(x @ x.mH + trace * trace * eye + eye, x)
"""
    spec = spec_of("x[N, D, D; complex]", forward=forward, derive=True)
    function = load(draft_of(spec, derive(spec))).SomeOpFunction
    torch.manual_seed(0)
    values = (torch.randn(2, 3, 3, dtype=torch.cdouble),)
    check_op(function, function.apply, reference(["x"], forward), values)


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize(
    ("inputs", "bare", "forward"),
    [
        ("x[3, D], edges[2, D; index(D)]", "x, edges[; int]", ROWS),
        ("x[H, W], edges[2, D; int]", "x, edges[; int]", GRID),
    ],
)
def test_the_parts_have_their_gradients(
    inputs: str, bare: str, forward: str, typed: bool
) -> None:
    torch.manual_seed(0)
    spec = spec_of(inputs if typed else bare, forward=forward, derive=True)
    derivation = derive(spec)
    assert not derivation.notes, derivation.notes
    function = load(draft_of(spec, derivation)).SomeOpFunction
    values = (r(3, 4), torch.randint(0, 4, (2, 4)))
    check_op(function, function.apply, reference(["x", "edges"], forward), values)


BOTH_WAYS = """
if up:
    y = x.sin()
    a, b, c = x.{0}
else:
    y = x.cos()
    a, b, c = x.{0}
return a * b * c * y.sum()
"""


@pytest.mark.one_of(2)
@pytest.mark.parametrize("call", ["chunk(3, -1)", "unbind(-1)"])
@pytest.mark.parametrize("inputs", ["x[B, 3], up: bool = True", "x, up: bool = True"])
def test_parts_that_both_ways_take(inputs: str, call: str) -> None:
    forward = BOTH_WAYS.format(call)
    calls = [(tensor(2, 3), up) for up in (True, False)]
    check_forward(inputs, forward, calls, derive=True)
    assert not derive(spec_of(inputs, forward=forward, derive=True)).notes


@pytest.mark.parametrize("inputs", ["x[B, D], i[N; index(B)]", "x, i[; int]"])
@pytest.mark.parametrize("index", ["i, ...", "i, :, ...", "i, ..., :"])
def test_an_ellipsis_behind_an_index_says_nothing(inputs: str, index: str) -> None:
    forward = f"return x[{index}].exp()"
    calls = [(tensor(3, 4), torch.tensor([2, 0, 2]))]
    text = check_forward(inputs, forward, calls, derive=True)
    assert "vjp" not in text


@pytest.mark.parametrize(
    "forward",
    [
        "b, *rest = x.shape\nreturn (x * y[:, None, None]).view(b, *rest, 1)",
        "*lead, d = x.shape\nh = x.reshape(-1, d)\nreturn (h.softmax(-1) * 2).view(*lead, d) * y[:, None, None]",
        "b, *rest, d = x.size()\nreturn y.view([b] + [1] * len(rest) + [1]) * x.reshape([b, *rest, d])",
    ],
)
@pytest.mark.parametrize("inputs", ["x[B, C, D], y[B]", "x, y"])
def test_sizes_that_a_star_takes(inputs: str, forward: str) -> None:
    calls = [(tensor(2, 3, 4), tensor(2)), (tensor(0, 3, 1), tensor(0))]
    calls.append((tensor(4, 3, 5).permute(1, 2, 0), tensor(3)))
    text = check_forward(inputs, forward, calls, derive=True)
    assert "vjp" not in text


@pytest.mark.parametrize(
    "forward",
    ["x.repeat(3, 1, n, 2)", "x.tile(n, 2)", "x.tile(2, 1, 1, n)", "x.tile(1)"],
)
def test_copies_of_what_has_any_number_of_dims(forward: str) -> None:
    calls = [(tensor(2, 3, 4), 2), (tensor(3), 1), (tensor(1, 0), 3)]
    calls.append((tensor(4, 3, 5).permute(1, 2, 0), 2))
    text = check_forward("x, n: int = 2", forward, calls, derive=True)
    assert "vjp" not in text


METHODS = [*product(["x[B, N, C], y[B, C, N]", "x, y"], ["view", "reshape"])]


# A view of declared shapes and a reshape of others: the sum is read the same way for both.
@pytest.mark.parametrize(
    "sizes",
    [
        "x.shape[:-1] + (n, -1)",
        "x.size()[:-1] + torch.Size([n, -1])",
        "[*x.shape[:-1]] + [n, -1]",
        "(x.shape[0],) + x.shape[1:-1] + (n, -1)",
        "(*x.shape[:-1], n, -1) if n > 1 else x.shape + (1,)",
    ],
)
@pytest.mark.parametrize(
    ("inputs", "method"),
    pairs_in_every_run(METHODS, METHODS[::3], pytest.mark.each_commit),
)
def test_a_sum_of_sizes_is_no_size(inputs: str, sizes: str, method: str) -> None:
    forward = f"h = x.{method}({sizes})\nreturn (h @ y.exp()[:, None]).tanh()"
    calls = [(tensor(2, 3, 4), tensor(2, 4 // n, 5), n) for n in (2, 4)]
    if "if" in sizes:
        calls.append((tensor(2, 3, 4), tensor(2, 1, 5), 1))
    text = check_forward(f"{inputs}, n: int = 2", forward, calls, derive=True)
    assert "vjp" not in text


GROWN = """
xs = {0}
for i in range(2):
    for f in (torch.sin, torch.cos):
        xs.append(f(x * 2**i))
return torch.cat(xs, -1)
"""


@pytest.mark.parametrize("start", ["[x]", "[x] if n > 1 else []", "list((x, x))"])
def test_a_list_that_grows_in_a_loop(start: str) -> None:
    forward = GROWN.format(start)
    text = check_forward("x, n: int = 1", forward, [(tensor(2, 3), 1), (tensor(3), 2)])
    assert ("vjp" in text) == (start != "[x]")


RANKS = """
flag = False
if len(x.shape) == 3:
    flag = True
    x = x.unsqueeze(1)
if w is not None:
    if w.dim() == 1:
        w = w.view(-1, 1)
    x = x * F.linear(w, v).view(-1, 1, 1, 1)
y = x.exp() if x.ndim == 4 else x
if flag:
    y = y.squeeze(1)
return y.reshape(y.shape[:-1] + (2, -1)).sum((-2, -1)) * scale
"""


def test_a_declared_rank_settles_a_choice() -> None:
    inputs = "x[N, C, D], w[N, K]?, v[1, K], scale: float = 2.0"
    x, w, v = tensor(2, 3, 4), tensor(2, 5), tensor(1, 5)
    calls = [(x, w, v, 2.0), (x, None, v, 2.0)]
    text = check_forward(inputs, RANKS, calls, derive=True, require=["D % 2 == 0"])
    assert "vjp" not in text and "ndim != 3" in text


@pytest.mark.parametrize(
    "forward",
    ["x.chunk(1, 1)", "x.split([3], -1)", "x.unbind()", "torch.broadcast_tensors(x)"],
)
@pytest.mark.parametrize("inputs", ["x[B, D]", "x"])
def test_a_tuple_of_one_tensor_has_the_gradient_of_that(
    inputs: str, forward: str
) -> None:
    module = load(draft_of(spec_of(inputs, forward=forward, derive=True)))
    x, weight = tensor(1, 3).requires_grad_(), tensor(1, 3)
    ends = [reference(["x"], forward)(x), module.some_op(x)]
    plain, own = (torch.autograd.grad((end[0] * weight).sum(), x)[0] for end in ends)
    torch.testing.assert_close(own, plain)


@pytest.mark.parametrize(
    "forward",
    [
        "out = [x]\nout += [x * 2, x.sin()]\nreturn torch.cat(out, -1)",
        "out = [x]\nfor i in range(n):\n    out += [torch.sin(x * i), torch.cos(x * i)]\nreturn torch.cat(out, -1)",
    ],
)
def test_a_list_that_grows_by_another_changes_none_of_its_tensors(forward: str) -> None:
    calls = [(tensor(2, 3), n) for n in (0, 1, 3)]
    check_forward("x[B, D], n: int", forward, calls, derive=True)
