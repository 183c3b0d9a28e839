"""What is known of values without computing them: sums that are zero; what a mask hides is not divided by in second derivatives."""

import pytest
import torch
from torch import Tensor

from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import backward_of, draft_of, load, spec_of
from tests.sweeps import in_every_run

FORWARDS = {
    "before a factor": "(x * y).clamp(min=0).sqrt().gather(-1, index)",
    "before a factor and its gradient": "h = (1 - x * y**2) / 2\nreturn h.clamp(min=0).sqrt().gather(-1, index) * y[:, :1]",
    "where few are picked": "r = (x * y).clamp(min=0).sqrt()\nreturn (x - r.gather(-1, index)).clamp(min=0) ** 2",
}


def second(op: object, x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, ...]:
    """The second derivative, along fixed directions."""
    output = op(x, y, index)  # type: ignore[operator]
    weight = torch.arange(1.0, output.numel() + 1).view_as(output)
    first = torch.autograd.grad((output * weight).sum(), (x, y), create_graph=True)
    total = sum((item * item.detach().sin()).sum() for item in first)
    assert isinstance(total, Tensor)
    return torch.autograd.grad(total, (x, y))


@pytest.mark.parametrize("forward", FORWARDS.values(), ids=FORWARDS)
def test_second_derivatives_are_those_of_autograd(forward: str) -> None:
    signature = "x[N, C], y[N, C], index[N, 1; index(C)]"
    op = load(draft_of(spec_of(signature, forward=forward, derive=True))).some_op
    skeleton = draft_of(spec_of(signature, forward=forward, derive=False))
    plain = load(skeleton).SomeOpFunction.forward
    x = torch.tensor([[0.5, -1, 2], [-0.3, 0.7, -2]], dtype=torch.double)
    y = torch.tensor([[0.9, 1, 0.4], [0.8, 1.1, 1]], dtype=torch.double)
    tensors = (x.requires_grad_(), y.requires_grad_(), torch.tensor([[0], [1]]))
    right = second(plain, *tensors)
    assert all(item.isfinite().all() for item in right)
    torch.testing.assert_close(second(op, *tensors), right)


ENTROPY = "F.cross_entropy(x * y, index, reduction='none')"
IGNORING = {
    "a root": f"{ENTROPY}.sqrt().sum()",
    "a root, the loss in parts": "F.nll_loss(F.log_softmax(x * y, 1), index, reduction='none').sqrt().sum()",
    "a negative power": f"e = {ENTROPY}\nreturn ((1 - torch.exp(-e)) ** 0.5 * e).mean()",
    "a quotient": f"(1 / (1 + {ENTROPY}.sqrt())).sum()",
}


@pytest.mark.parametrize("forward", IGNORING.values(), ids=IGNORING)
def test_second_derivatives_of_ignored_targets_are_zero(forward: str) -> None:
    """The derivative of the loss is infinite there, behind the mask of the targets."""
    signature = "x[N, C], y[N, C], index[N; int]"
    op = load(draft_of(spec_of(signature, forward=forward, derive=True))).some_op
    skeleton = draft_of(spec_of(signature, forward=forward, derive=False))
    plain = load(skeleton).SomeOpFunction.forward
    x, y = (tensor(3, 4).detach().requires_grad_() for _ in "xy")
    index = torch.tensor([1, -100, 3])
    right = second(plain, x, y, index)
    assert all(item.isfinite().all() for item in right)
    torch.testing.assert_close(second(op, x, y, index), right)


# What is subtracted has no gradient: of each forward what the backward must not have.
CENTRED = {
    "the mean before a softmax, scaled": (
        "s = x * w\nreturn torch.softmax(2 * (s - s.mean(-1, keepdim=True)), 1) * v",
        (".mean(-1, keepdim=True) -", "grad.mean"),
    ),
    "a mean along the first dim": (
        "c = x - x.mean(0)\nreturn (c**2).mean(0) * w[0] + v[0]",
        (".sum(0", "grad.mean"),
    ),
    "the means of a covariance of two": (
        "c = x - x.mean(1, keepdim=True)\nd = w - w.mean(1, True)\nreturn (c * d).mean(1) * v[:, 0]",
        ("d.mean", "c.mean"),
    ),
    "the part of a mean that is centred": (
        "c, r = x - x.mean(1, keepdim=True), w - w.mean(1, keepdim=True)\nreturn (c - (c * r).sum(1, keepdim=True) * r) * v",
        (").mean(",),
    ),
}


@pytest.mark.parametrize("name", CENTRED)
@pytest.mark.parametrize(
    "dims", in_every_run(["[N, D]", "[..., D]"], ["[N, D]"], pytest.mark.each_commit)
)
def test_what_sums_to_zero_is_not_computed(name: str, dims: str) -> None:
    forward, absent = CENTRED[name]
    inputs = ", ".join(f"{item}{dims}" for item in "xwv")
    shapes = [(3, 4), (1, 4), (3, 1), (2, 5)]
    calls = [tuple(tensor(*shape) + at / 2 for at in range(3)) for shape in shapes]
    calls.append(tuple(tensor(4, 3).t() + at for at in range(3)))
    text = backward_of(check_forward(inputs, forward, calls))
    if dims == "[N, D]":
        assert not [word for word in absent if word in text], text


@pytest.mark.parametrize(
    "forward",
    [
        "s = x * w\nreturn torch.softmax(s - s.max(-1, keepdim=True).values, -1) * v",
        "s = x * w\nreturn torch.log_softmax(s - s.amax(1, keepdim=True), -1) * v",
        "c = x - x.mean(0)\nreturn c.t() @ c * w[0] + v[0]",
        "c = x - x.mean(1, keepdim=True)\nreturn c @ c.t() @ w * v",
        "s = x * w\nreturn torch.softmax(s - s.max(0, keepdim=True).values, -1) * v",
        "s = x * w\nreturn torch.softmax((s - s.amax(-1, keepdim=True)) * v, -1) * v",
        "p = torch.softmax(x, 0)\nreturn p - p.mean(-1, keepdim=True) * w + v",
        "s = x * w\nreturn torch.log_softmax(s - s.amax(0, keepdim=True), -1) * v",
        "c = x - w.mean(0)\nreturn (c**2).sum(0) * w[0] + (c * v).sum(0)",
        "c = x - x.mean(0)\nreturn (c**2).sum(1) * w[:, 0] + (c * v).sum(1)",
        "c = x - x.mean(0)\nreturn c @ c.t() @ w * v",
        "c = x - x.mean(1, keepdim=True)\nreturn c.t() @ c * w[0] + v[0]",
        "c = x - x.mean(0)\nreturn (c * w).mean(1) * v[:, 0]",
        "c = v[0] - v[0].mean(0)\nreturn (x @ c).sum(0) * w",
    ],
)
def test_what_sums_to_something_is_summed(forward: str) -> None:
    calls = [tuple(tensor(3, 4) + at / 2 for at in range(3)), (tensor(1, 4),) * 3]
    check_forward("x[N, D], w[N, D], v[N, D]", forward, calls)


ATTENTION = "q[*batch, T, D], k[*batch, S, D], v[*batch, S, E]"
SCORES = "torch.softmax(q @ k.mT, -1)"


def of_attention(forward: str, inputs: str = ATTENTION) -> str:
    shapes = [((2, 3, 4), (2, 5, 4), (2, 5, 6)), ((1, 4), (1, 4), (1, 1))]
    shapes.append(((0, 3, 4), (0, 5, 4), (0, 5, 6)))
    calls = [tuple(tensor(*shape) / 2 for shape in call) for call in shapes]
    calls.append(tuple(tensor(2, cols, rows).mT for _, rows, cols in shapes[0]))
    return backward_of(check_forward(inputs, forward, calls))


@pytest.mark.parametrize(
    "forward", [f"{SCORES} @ v", f"p = {SCORES}\nreturn torch.matmul(p, v)"]
)
def test_the_sum_over_the_values_of_an_attention_reads_its_output(forward: str) -> None:
    text = of_attention(forward)
    assert "(grad_output * output).sum(-1, keepdim=True)" in text
    assert text.count("@ v.mT") == 1


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        # The product is no output: to have it again costs more than the sum.
        (f"({SCORES} @ v).tanh()", ATTENTION),
        # Batches that are broadcast: each line of scores belongs to several lines of values.
        (f"{SCORES} @ v", "q[..., T, D], k[..., S, D], v[..., S, E]"),
    ],
    ids=["no output", "broadcast"],
)
def test_the_sum_over_the_values_is_that_of_scores_elsewhere(
    forward: str, inputs: str
) -> None:
    text = of_attention(forward, inputs)
    assert "(grad_output * output)" not in text
    assert ".sum(-1, keepdim=True)" in text


PARTS = {
    "of two dims": "R = x.new_zeros(x.size(0), 2, 2)\nR[:, 0, 0] = x[:, 0] * y\nR[:, 0, 1] = -y * x[:, 1]\nR[:, 1, 0] = x[:, 0] + y\nreturn R",
    "slices": "R = torch.zeros_like(x)\nR[:, :1] = x[:, :1] * y[:, None]\nR[:, 1:] = x[:, 1:] / y[:, None]\nreturn R",
    "every second": "R = torch.zeros_like(x)\nR[:, ::2] = x[:, 1::2] * y[:, None]\nR[:, 1::2] = -x[:, ::2]\nreturn R",
    "a slice and an index": "R = torch.empty_like(x)\nR[:, 0] = x[:, 1] * y\nR[:, 1:] = x[:, 1:].exp()\nreturn R",
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_that_are_put_one_after_another_have_gradients(name: str) -> None:
    x, y = tensor(3, 4), tensor(3) + 1.5
    calls = [(x, y), (tensor(4, 5).t()[:, :2], tensor(5) + 2), (tensor(0, 2), y[:0])]
    text = backward_of(check_forward("x[N, D], y[N]", PARTS[name], calls))
    if name == "of two dims":  # each gradient is read where it was put
        assert "grad_output[:, 1, 0]" in text
        assert "scatter(grad_output" not in text


@pytest.mark.parametrize(
    "forward",
    [
        "R = x * y[:, None]\nR[:, 0] = x[:, 1] * y\nR[:, -1] = y\nreturn R",
        "R = x * y[:, None]\nR[:, 0] = x[:, 1] * y\nR[:, 0] = R[:, 0] + y\nreturn R",
        "R = x * y[:, None]\nR[:, :2] = x[:, 1:] * y[:, None]\nR[:, 1:] = R[:, 1:] - x[:, :-1]\nreturn R",
        "R = x * y[:, None]\nR[:, 0] = x[:, 1] * y\nR[0] = x[1]\nreturn R",
        "R = torch.empty_like(x)\nR[:, -1] = x[:, 0] * y\nR[:, :-1] = x[:, :-1].exp()\nreturn R",
    ],
    ids=["from the end", "twice", "overlapping", "two dims", "the last"],
)
def test_parts_that_may_overlap_are_put_one_into_another(forward: str) -> None:
    sizes = ((3, 2), (2, 2), (5, 2)) if ":2" not in forward else ((3, 3),)
    calls = [(tensor(*size), tensor(size[0]) + 1.5) for size in sizes]
    check_forward("x[N, D], y[N]", forward, calls)


PICKED = "x[N, C], target[N; index(C)]"


@pytest.mark.parametrize("dim", [1, -1])
def test_the_one_number_of_each_line_has_the_gradient_of_a_softmax(dim: int) -> None:
    forward = (
        f"logp = F.log_softmax(x, {dim})\nreturn logp.gather(1, target[:, None])[:, 0]"
    )
    spec = spec_of(PICKED, forward=forward, derive=True, save_policy="recompute")
    text = backward_of(draft_of(spec))
    assert "grad_output.unsqueeze(1) * (" in text
    assert "select_scatter" not in text, "a line has one place"
    assert ".sum(" not in text, "the ones of a line are one"
    target = torch.tensor([2, 0, 0])
    check_forward(PICKED, forward, [(tensor(3, 4), target)])


def test_one_place_of_several_is_put_among_zeros() -> None:
    forward = "x.gather(1, index)[:, 0]"
    signature = "x[N, C], index[N, 2; index(C)]"
    text = backward_of(draft_of(spec_of(signature, forward=forward, derive=True)))
    assert "unsqueeze" not in text
    index = torch.tensor([[2, 0]] * 3)
    check_forward(signature, forward, [(tensor(3, 4), index)])


@pytest.mark.parametrize("dim", [1, -1])
def test_the_probabilities_of_a_line_are_one_together(dim: int) -> None:
    signature = "student[N, C], teacher[N, C; const]"
    forward = (
        f"q = F.softmax(teacher, {dim})\nreturn -(q * F.log_softmax(student, -1)).sum()"
    )
    text = backward_of(draft_of(spec_of(signature, forward=forward, derive=True)))
    assert ".sum(" not in text
    both = signature.replace("; const", "")
    check_forward(both, forward, [(tensor(3, 4), tensor(3, 4))])


OR_A_NUMBER = {
    "beside its shape": "x.sum(1) / d",
    "computed with": "x.sum(1) * -(2 * d)",
    "beside a number": "x.sum() * d",
    "added": "x.pow(2).sum(1) - d",
    "of its own": "x.sum(1) * d + d.sum() if w is not None else x.sum(1) * d",
}


ENDINGS = ("return ({}).mean()", "y = {}\nreturn y.sum() / y.numel()")


@pytest.mark.one_of(2)
@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("body", OR_A_NUMBER.values(), ids=OR_A_NUMBER)
def test_a_number_in_place_of_a_tensor_broadcasts_nothing(
    body: str, ending: str
) -> None:
    forward = f"d = w.exp() if w is not None else 3.0\n{ending.format(body)}"
    calls = [(tensor(3, 4), tensor(3)), (tensor(3, 4), None)]
    check_forward("x[B, N], w[B]?", forward, calls)


SQUARED = [
    "x.norm(dim=-1) ** 2",
    "x.norm(dim=-1) ** 3",
    "torch.norm(x, dim=-1).pow(2)",
    "torch.linalg.vector_norm(x, dim=(0, 1)).square() * y.sum(-1)",
    "torch.linalg.vector_norm(x, dim=-1, keepdim=True) ** 2 * y",
    "x.norm() ** 2 * y",
]


@pytest.mark.parametrize("value", SQUARED)
def test_a_length_that_is_squared_has_no_slope_at_zero(value: str) -> None:
    text = check_forward(
        "x[N, D], y[N, D]", f"return {value} + 1", [(tensor(3, 4), tensor(3, 4).cos())]
    )
    op = load(text).some_op
    x = torch.zeros(3, 4, dtype=torch.double, requires_grad=True)
    (grad,) = torch.autograd.grad(op(x, torch.ones_like(x)).sum(), x)
    assert torch.equal(grad, torch.zeros_like(x))


@pytest.mark.parametrize(
    "value",
    [
        "x * (x.norm(dim=-1, keepdim=True) / torch.where(y == 0, 1, y))",
        "x * (x.std(-1, keepdim=True) / torch.where(x.std(-1, keepdim=True) == 0, 1, x.std(-1, keepdim=True)))",
        "y * (x.norm(dim=-1, keepdim=True) / torch.where(x.norm(dim=-1, keepdim=True) == 0, 1, x.norm(dim=-1, keepdim=True)))",
    ],
)
def test_what_else_is_guarded_stays_so(value: str) -> None:
    text = check_forward(
        "x[N, D], y[N, D]", f"return {value} + 1", [(tensor(3, 4), tensor(3, 4).cos())]
    )
    assert "where" in text


def test_a_quotient_goes_where_its_divisor_is_divided_by_again() -> None:
    forward = "r = x / y\nreturn torch.log(r) * x"
    text = check_forward(
        "x[N, D], y[N, D]", forward, [(tensor(3, 4).exp(), tensor(3, 4).cos() + 2)]
    )
    assert "/ r" not in text.partition("ctx.needs_input_grad[1]:")[2], text


MASKED = {
    "of one element each": "return -(x * y)[m].mean()",
    "of lines": "return ((x - y) ** 2)[m[:, 0]].sum() / 2",
    "of what is constant": "return x[m].sum() * y[m[:, 0]].sum()",
    "of the sum of lines": "return F.log_softmax(x, -1)[m[:, 0]].sum() + y.sum()",
    "by a comparison": "return x[y > 0].sum() / (y > 0).sum()",
}


@pytest.mark.parametrize("forward", MASKED.values(), ids=MASKED)
def test_the_mean_of_what_a_mask_picks_has_no_tensor_of_that(forward: str) -> None:
    mask = tensor(3, 4) > 0
    calls = [(tensor(3, 4), tensor(3, 4).cos(), mask)]
    text = check_forward("x[N, D], y[N, D], m[N, D; bool]", forward, calls)
    assert "index_put" not in text
    assert "torch.where(" in text


def test_what_differs_by_element_is_put_where_a_mask_holds() -> None:
    calls = [(tensor(3, 4).exp(), tensor(3, 4) > 0)]
    text = check_forward("x[N, D], m[N, D; bool]", "return x[m].log()", calls)
    assert "index_put" in text


def test_opposite_sides_of_a_mask_are_one_difference_and_its_negative() -> None:
    forward = """
margin = torch.where(target, logits, -logits)
weight = torch.sigmoid(-margin) ** gamma
return -(weight * F.logsigmoid(margin)).mean()
"""
    inputs = "logits[..., N], target[..., N; bool], gamma: float = 2.0"
    text = backward_of(draft_of(spec_of(inputs, forward=forward)))
    assert "torch.where(target, grad_margin, -grad_margin)" in text


@pytest.mark.parametrize("sign", ["", "-"])
def test_an_infinite_gradient_of_the_one_number_leaves_the_others_zero(
    sign: str,
) -> None:
    forward = f"{sign}x.gather(1, target[:, None])[:, 0].log()"
    text = check_forward(
        PICKED, forward, [(tensor(3, 4).abs(), torch.tensor([2, 0, 1]))]
    )
    x = torch.tensor([[0.0, 2.0]], requires_grad=True)
    load(text).some_op(x, torch.tensor([0])).sum().backward()
    right = torch.tensor([[-torch.inf if sign else torch.inf, 0.0]])
    torch.testing.assert_close(x.grad, right)


def test_a_line_of_a_softmax_that_has_a_gradient_is_summed() -> None:
    """A masked line has the sum NaN, an empty one 0: autograd's gradient shows it."""
    forward = "(torch.softmax(x, -1) * y.unsqueeze(-1)).sum(-1)"
    calls = [(tensor(2, 3), tensor(2)), (tensor(2, 0), tensor(2))]
    check_forward("x[N, D], y[N]", forward, calls)
    op = load(draft_of(spec_of("x[N, D], y[N]", forward=forward, derive=True))).some_op
    x = torch.full((1, 3), -torch.inf, dtype=torch.float64)
    y = torch.ones(1, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(op(x, y).sum(), y)
    assert found.isnan().all()


SMOOTHED = {
    "one mean over two dims of one size": (
        "x[B, N, N], t[B, N; index(N)], eps: float",
        "smooth = -lp.mean((-2, -1))",
        "((1 - eps) * nll.sum(-1) + eps * smooth).sum()",
        (tensor(2, 4, 4), torch.tensor([[0, 3, 1, 2], [1, 1, 0, 3]]), 0.1),
    ),
    "divided by the size again": (
        "x[N, C], t[N; index(C)], eps: float",
        "smooth = -lp.mean(-1) / x.shape[-1]",
        "((1 - eps) * nll + eps * smooth).sum()",
        (tensor(3, 4), torch.tensor([0, 3, 1]), 0.1),
    ),
}


@pytest.mark.parametrize(
    "log_probs", ["x - x.logsumexp(-1, keepdim=True)", "x.log_softmax(-1)"]
)
@pytest.mark.parametrize("case", SMOOTHED.values(), ids=SMOOTHED)
def test_a_divisor_with_the_number_of_classes_twice_loses_none(
    case: tuple[str, str, str, tuple[object, ...]], log_probs: str
) -> None:
    inputs, smooth, loss, arguments = case
    nll = "nll = -lp.gather(-1, t.unsqueeze(-1)).squeeze(-1)"
    forward = "\n".join([f"lp = {log_probs}", nll, smooth, f"return {loss}"])
    check_forward(inputs, forward, [arguments])
