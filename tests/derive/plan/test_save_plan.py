"""`--save-policy balanced`: the development cases again, what is saved, and what is written over."""

import re
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from scaffold.derive import Derivation, derive
from scaffold.derive.plan.save_plan import Flow
from scaffold.verify.child.measuring import saved_bytes
from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import (
    backward_of,
    draft_of,
    load,
    op_text,
    reference,
    spec_of,
)
from tests.derive.checking import check_needs
from tests.derive.ops_of_others import OPS
from tests.derive.published import PUBLISHED
from tests.derive.random_forwards import drawn
from tests.derive.test_cases import (
    BY_NAME,
    NAMES,
    Made,
    may_need,
    non_contiguous,
    runs,
    samples,
    without_rows,
)
from tests.sweeps import in_every_run, pairs_in_every_run


@cache
def made(name: str, style: str) -> Made:
    case = BY_NAME[name]
    options: dict[str, Any] = {"forward": case.forward, "outputs": case.outputs}
    plain_text = draft_of(spec_of(case.inputs, derive=False, **options))
    spec = spec_of(
        case.inputs, derive=True, save_policy="balanced", style=style, **options
    )
    derivation = derive(spec)
    text = draft_of(spec, derivation)
    module, skeleton = load(text), load(plain_text)
    plain = getattr(skeleton, spec.function_name)
    function = getattr(module, spec.function_name)
    return Made(spec, derivation, text, function, getattr(module, spec.name), plain)


# What is saved is the same in both styles, and so is the backward but for what the forward of one can keep.
IN_STYLES = [(name, style) for name in NAMES for style in ("combined", "setup-context")]
IN_ONE = [(name, style) for name, style in IN_STYLES if style == "combined"]


APART = [(name, style) for name, style in IN_STYLES if style != "combined"]


# A third that `test_cases.py` does not ask in every run; the graph and its gradients are the same under both policies.
@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("name", "style"),
    pairs_in_every_run(IN_ONE, IN_ONE[2::3], pytest.mark.each_commit)
    + pairs_in_every_run(APART, APART[::6]),
)
def test_gradients_are_those_of_autograd(name: str, style: str) -> None:
    """Each choice of the inputs that need one, and all with other strides."""
    op = made(name, style)
    assert not op.derivation.missing, op.derivation.notes
    once = op.derivation.once_differentiable
    for inputs in samples(BY_NAME[name]):
        may = tuple(may_need(op, inputs))
        choices = [(True, False) if can else (False,) for can in may]
        calls = [(inputs, needs) for needs in product(*choices) if any(needs)]
        calls.append((tuple(map(non_contiguous, inputs)), may))
        for given, needs in calls:
            reference = op.plain.forward
            check_needs(op.function, op.wrapper, reference, given, needs, once, False)


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "name", in_every_run(NAMES, NAMES[::3], pytest.mark.each_commit)
)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    op = made(name, "combined")
    for inputs in samples(BY_NAME[name]):
        tensors = [
            item.detach().requires_grad_() if need else item
            for item, need in zip(inputs, may_need(op, inputs), strict=True)
        ]
        assert gradcheck(op.wrapper, tensors, fast_mode=True)


@pytest.mark.parametrize(
    "name", in_every_run(NAMES, NAMES[::3], pytest.mark.each_commit)
)
def test_no_elements(name: str) -> None:
    op = made(name, "combined")
    empty = without_rows(samples(BY_NAME[name])[0])
    if empty is None or not runs(op, empty):
        pytest.skip("the forward wants elements")
    once = op.derivation.once_differentiable
    needs = tuple(may_need(op, empty))
    check_needs(op.function, op.wrapper, op.plain.forward, empty, needs, once, False)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", NAMES)
def test_the_incoming_gradient_is_not_changed(name: str) -> None:
    """Nor an input, nor what is saved: the backward runs twice and gives the same."""
    op = made(name, "combined")
    for inputs in samples(BY_NAME[name]):
        needs = may_need(op, inputs)
        given = [
            item.detach().clone().requires_grad_() if need else item
            for item, need in zip(inputs, needs, strict=True)
        ]
        leaves = [item for item, need in zip(given, needs, strict=True) if need]
        results = op.function.apply(*given)
        first = results[0] if isinstance(results, tuple) else results
        if not first.requires_grad:
            continue
        grad = torch.randn_like(first)
        before = [item.detach().clone() for item in (grad, *leaves)]
        once = backward(first, leaves, grad)
        again = backward(first, leaves, grad)
        torch.testing.assert_close([grad, *leaves], before, rtol=0, atol=0)
        torch.testing.assert_close(again, once, rtol=0, atol=0)


def backward(output: Tensor, leaves: list[Tensor], grad: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(
        output, leaves, grad, retain_graph=True, allow_unused=True
    )
    return [torch.zeros(()) if item is None else item.clone() for item in found]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("seeds", [range(12), range(12, 25)], ids=str)
def test_random_programs(seeds: range) -> None:
    for seed in seeds:
        check_random(seed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(25, 2000, 25))
def test_many_random_programs(first: int) -> None:
    for seed in range(first, first + 25):
        check_random(seed)


@pytest.mark.parametrize("seed", [485])
def test_what_changes_in_place_is_written_once(seed: int) -> None:
    """The gradient of a slice reads what it puts among zeros for its dtype as well."""
    check_random(seed)


def check_random(seed: int) -> None:
    program = drawn(seed)
    options: dict[str, Any] = {"forward": program.forward}
    spec = spec_of(
        program.inputs, derive=True, save_policy="balanced", style="combined", **options
    )
    derivation = derive(spec)
    module = load(draft_of(spec, derivation))
    skeleton = load(draft_of(spec_of(program.inputs, derive=False, **options)))
    count = len(program.values)
    alone = [tuple(at == only for at in range(count)) for only in range(count)]
    try:
        for needs in {(True,) * count, *alone}:
            check_needs(
                getattr(module, spec.function_name),
                getattr(module, spec.name),
                getattr(skeleton, spec.function_name).forward,
                program.values,
                needs,
                derivation.once_differentiable,
                False,
            )
    except Exception as error:
        error.add_note(f"seed {seed}: {program.inputs}\n{program.forward}")
        raise


@pytest.mark.parametrize("at", [0, 1])
def test_of_several_gradients_one_alone_may_come_in_batches(at: int) -> None:
    forward = "return torch.sin(x) * w, torch.sigmoid(w * x) * x"
    options: dict[str, Any] = {"outputs": "a, b", "save_policy": "balanced"}
    spec = spec_of("x[N], w[N]", forward=forward, derive=True, **options)
    function = getattr(load(draft_of(spec)), spec.name)
    x, w = (torch.randn(3).double().requires_grad_() for _ in range(2))
    plain = (torch.sin(x) * w, torch.sigmoid(w * x) * x)
    expected = torch.autograd.grad(plain[at], (x, w), torch.ones(3).double())
    batch = torch.eye(3).double()
    output = function(x, w)[at]
    found = torch.autograd.grad(output, (x, w), batch, is_grads_batched=True)
    for one, rows in zip(expected, found, strict=True):
        torch.testing.assert_close(rows.sum(0), one)


def balanced(inputs: str, forward: str, **raw: Any) -> tuple[Derivation, str]:
    spec = spec_of(inputs, forward=forward, derive=True, save_policy="balanced", **raw)
    derivation = derive(spec)
    return derivation, draft_of(spec, derivation)


def saved(inputs: str, forward: str, **raw: Any) -> list[str]:
    return [item.origin for item in balanced(inputs, forward, **raw)[0].saved]


def test_the_cut_is_the_cheapest_and_nearest_to_the_source() -> None:
    flow = Flow()
    for one, two, capacity in (
        ("s", "a", 3),
        ("s", "b", 2),
        ("a", "b", 5),
        ("a", "t", 2),
        ("b", "t", 3),
    ):
        flow.edge(one, two, capacity)
    assert flow.source_side("s", "t") == {"s"}


def test_a_cut_of_one_edge_in_a_chain() -> None:
    flow = Flow()
    for one, two, capacity in (("s", "a", 9), ("a", "b", 1), ("b", "t", 9)):
        flow.edge(one, two, capacity)
    assert flow.source_side("s", "t") == {"s", "a"}


def test_what_is_dear_is_saved_and_what_is_cheap_computed_again() -> None:
    names = saved("x", "h = torch.tanh(x)\nreturn (h + 1) * torch.exp(h)")
    assert "h" in names
    assert "x" not in names


def test_a_value_inside_an_expression_gets_a_name() -> None:
    derivation, text = balanced(
        "q[N, D], k[M, D], v[M, E]", "torch.softmax(q @ k.t(), dim=-1) @ v"
    )
    assert "probs" in derivation.intermediates
    assert "probs = torch.softmax(q @ k.t(), dim=-1)" in text
    assert "return probs @ v, probs" in text
    assert not derivation.once_differentiable


@pytest.mark.parametrize(
    ("inputs", "forward", "name"),
    [
        (
            "x[B, S, D], w[E, D], u[D, E]",
            "h = F.mish(x @ w.t())\nreturn h @ u.t()",
            "h",
        ),
        (
            "q[B, S, T], k[B, T, S], v[B, S, T]",
            "p = torch.softmax(torch.lgamma(q * k.mT), dim=-1)\nreturn p * v",
            "p",
        ),
        (
            "q[B, S, D], k[B, T, D], v[B, S, T]",
            "p = torch.softmax(q @ k.mT, dim=-1)\nreturn p * v",
            "p",
        ),
    ],
)
def test_what_is_dear_is_saved_however_large_it_is(
    inputs: str, forward: str, name: str
) -> None:
    assert name in saved(inputs, forward)


def test_a_value_that_comes_twice_is_computed_once() -> None:
    _, text = balanced("x", "torch.exp(torch.lgamma(x)) * torch.lgamma(x)")
    forward, _ = text.split("def backward")
    assert forward.count("torch.lgamma") == 1


@pytest.mark.parametrize(
    ("inputs", "forward"),
    [
        ("x[N, K], w[M, K]", "x @ w.t()"),
        ("x, y", "x * y"),
        ("x", "torch.exp(x)"),
    ],
)
def test_where_nothing_is_gained_the_op_is_twice_differentiable(
    inputs: str, forward: str
) -> None:
    derivation, text = balanced(inputs, forward)
    assert not derivation.once_differentiable
    assert not derivation.intermediates
    function = load(text).SomeOpFunction
    given = [
        torch.rand(3, 3, dtype=torch.double, requires_grad=True)
        for _ in inputs.split(", ")
        if "=" not in _
    ]
    count = len(spec_of(inputs).inputs)
    assert gradgradcheck(function.apply, given[:count])


@pytest.mark.parametrize("forward", ["torch.tanh(x) * torch.erf(x)", "F.silu(x * 2)"])
def test_what_is_saved_leads_a_second_derivative_on(forward: str) -> None:
    _, text = balanced("x", forward)
    assert "_(" not in backward_of(text)
    x = torch.randn(4, dtype=torch.double, requires_grad=True)
    assert gradgradcheck(load(text).some_op, (x,))


def test_nothing_is_written_over_under_torch_func() -> None:
    """A batched gradient does not fit into memory that is not batched."""
    forward = "torch.erf(x) * torch.exp(-x) + x ** 3"
    _, text = balanced("x", forward, style="setup-context")
    assert ".mul_(" not in text
    op, x = load(text).some_op, torch.randn(3, 4, dtype=torch.double)
    ours = torch.func.vmap(torch.func.grad(lambda x: op(x).sum()))(x)
    plain = load(draft_of(spec_of("x", forward=forward, derive=False)))
    theirs = torch.func.grad(lambda x: plain.SomeOpFunction.forward(x).sum())(x)
    torch.testing.assert_close(ours, theirs)


def test_memory_is_taken_only_where_the_precision_is_the_results() -> None:
    """Inputs of two precisions: what has the lower one must not hold the higher one's gradient."""
    forward = "h = torch.erf(x) * torch.exp(x)\nreturn h * w + torch.sin(w) * x"
    _, text = balanced("x[N], w[N]", forward)
    op = load(text).some_op
    plain = load(draft_of(spec_of("x[N], w[N]", forward=forward, derive=False)))
    low = torch.randn(7, dtype=torch.float32)
    high = torch.randn(7, dtype=torch.float64)
    for pair in ((low, high), (high, low)):
        ours, theirs = (
            gradients(call, *pair) for call in (op, plain.SomeOpFunction.forward)
        )
        for one, two in zip(ours, theirs, strict=True):
            assert one.dtype == two.dtype
            torch.testing.assert_close(one, two)


def test_softmax_of_a_lower_precision_takes_a_gradient_of_a_higher_one() -> None:
    forward = "torch.softmax(x, dim=-1) * w"
    _, text = balanced("x[N, D], w[N, D]", forward, amp="off")
    assert "_softmax_backward_data" in text
    low, high = torch.randn(3, 4), torch.randn(3, 4, dtype=torch.double)
    grads = gradients(load(text).some_op, low, high)
    reference = gradients(lambda x, w: torch.softmax(x, dim=-1) * w, low, high)
    torch.testing.assert_close(grads, reference)


def gradients(call: Any, *inputs: Tensor) -> list[Tensor]:
    given = [item.clone().requires_grad_() for item in inputs]
    return list(torch.autograd.grad(call(*given).sum(), given))


def test_no_tensor_is_saved_for_its_shape() -> None:
    derivation, text = balanced(
        "x[N, C, L], groups: int = 2",
        "xg = x.reshape(x.shape[0], groups, -1)\nreturn (xg * 2).exp().reshape(x.shape)",
    )
    assert [item.origin for item in derivation.saved] in (["output"], ["exp"])
    assert "ctx.xg_shape" in text or not re.search(r"\bxg\b", backward_of(text))


def test_a_value_of_a_branch_is_not_saved_by_another_name() -> None:
    """What is computed only under a test must not be computed always."""
    derivation, text = balanced(
        "x, w?", "torch.tanh(x) * torch.log(w) if w is not None else torch.tanh(x)"
    )
    op = load(text).some_op
    x = torch.randn(4, dtype=torch.double, requires_grad=True)
    assert not derivation.missing
    (grad,) = torch.autograd.grad(op(x, None).sum(), x)
    torch.testing.assert_close(grad, 1 - torch.tanh(x) ** 2)


def test_what_has_a_statement_of_its_own_is_not_computed_twice() -> None:
    """A product with a name must not be taken apart where it is added."""
    forward = """
a = torch.tanh(x) + torch.log1p(x ** 2)
b = torch.erf(a / (2 + a ** 2))
return -b * 2
"""
    _, text = balanced("x", forward)
    plain = load(draft_of(spec_of("x", forward=forward, derive=False)))
    x = torch.randn(5, 2, dtype=torch.double)
    ours = gradients(load(text).some_op, x)
    torch.testing.assert_close(ours, gradients(plain.SomeOpFunction.forward, x))


def test_what_a_line_for_a_shape_computes_is_not_computed_twice() -> None:
    """The mean reads the size of `snr`, whose line comes again with the two before it."""
    forward = """
dot = torch.sum(x * y, dim=-1, keepdim=True)
target = dot * y / (torch.sum(y**2, dim=-1, keepdim=True) + 0.1)
noise = x - target
snr = torch.log10((torch.norm(target, dim=-1) ** 2 + 0.1) / (torch.norm(noise, dim=-1) ** 2 + 0.1))
return -snr.mean()
"""
    calls = [(tensor(3, 4) + 1, tensor(3, 4) + 2), (tensor(1, 4) + 1, tensor(1, 4) + 2)]
    text = backward_of(check_forward("x[N, D], y[N, D]", forward, calls))
    assert text.count("y**2") == 1, text


@pytest.mark.parametrize(
    "forward",
    [
        "torch.erf(x) * torch.exp(-x) + x ** 3",
        "torch.log_softmax(x, -1).gather(-1, x.argmax(-1, keepdim=True)).mean()",
        "(torch.sigmoid(x) * torch.sin(x)).mean()",
    ],
)
def test_gradients_come_in_batches(forward: str) -> None:
    """`is_grads_batched`, as `jacobian(vectorize=True)` has it."""
    _, text = balanced("x[N, D]", forward)
    op = load(text).some_op
    plain = load(draft_of(spec_of("x[N, D]", forward=forward, derive=False)))
    x = torch.randn(3, 4, dtype=torch.double)
    ours, theirs = (
        torch.autograd.functional.jacobian(  # type: ignore[no-untyped-call]
            call, x, vectorize=True
        )
        for call in (op, plain.SomeOpFunction.forward)
    )
    torch.testing.assert_close(ours, theirs)


def test_an_op_that_is_differentiable_once_is_combined() -> None:
    forward, once = "torch.tanh(x) * torch.erf(x)", {"once_differentiable": True}
    assert balanced("x", forward)[0].style == "setup-context"
    assert balanced("x", forward, **once)[0].style == "combined"
    asked, _ = balanced("x", forward, style="setup-context", **once)
    assert asked.style == "setup-context"


def test_a_forward_that_falls_back_whole_does_so() -> None:
    derivation, text = balanced("x", "x * 2 if x.mean() > 0 else torch.exp(x)")
    assert derivation.notes
    x = torch.randn(4, dtype=torch.double)
    reference = gradients(lambda x: x * 2 if x.mean() > 0 else torch.exp(x), x)
    torch.testing.assert_close(gradients(load(text).some_op, x), reference)


def test_a_style_that_stands_in_the_way_is_told() -> None:
    forward = "x * 2 if x.mean() > 0 else torch.exp(x)"
    spec = spec_of("x", forward=forward, derive=True, style="combined")
    derivation = derive(spec)
    assert derivation.missing
    assert 'with style = "setup-context" autograd diff' in derivation.notes[0]


def test_a_sign_is_one_of_the_number_beside_it() -> None:
    forward = """
h = x - y
if p:
    loss = h ** 2
else:
    loss = -F.logsigmoid(a * h) - F.logsigmoid(-a * h) * b
return loss.mean()
"""
    inputs = "x[N], y[N], a: float, b: float, p: bool"
    _, text = balanced(inputs, forward.strip(), once_differentiable=True)
    assert "neg_()" not in text
    assert "(ctx.a * h).sigmoid_()" in text and "(-ctx.a * h).sigmoid_()" in text


@pytest.mark.parametrize("inputs", ["x[B, N], w[B, N]?", "x, w?"])
@pytest.mark.parametrize(
    "chosen",
    [
        "d = w.detach().sum(1, keepdim=True) if w is not None else 4.0",
        "d = (w.exp().sum() if w is not None else 2) ** 2",
        "d = 2.0\nif w is not None:\n    d = d + w.exp().sum()\nd = d * 3 + 1",
    ],
)
def test_what_may_be_a_number_is_computed_again(chosen: str, inputs: str) -> None:
    """`save_for_backward` takes tensors and None alone."""
    forward = f"{chosen}\nreturn (x / d).sum(1).mean()"
    x = tensor(3, 4)
    check_forward(inputs, forward, [(x, x.exp()), (x, None)])


def test_what_no_line_reads_is_not_returned() -> None:
    """Of the sum only the shape was read, and that another value has."""
    forward = "b = y.sum((-2, -1))\nc = b / (2 + y ** 2)\nreturn c"
    derivation, text = balanced("x, y[C, D]", forward)
    assert {local for _, local in derivation.incoming.handed} == {
        *derivation.intermediates
    }
    y = torch.randn(2, 3, dtype=torch.double, requires_grad=True)
    op = load(text).some_op
    assert gradgradcheck(lambda y: op(torch.zeros(()), y), (y,))


@pytest.mark.parametrize("style", ["setup-context", "combined", "library"])
@pytest.mark.parametrize("name", ["hyena_fftconv", "mla_absorb"])
def test_a_gradient_is_handed_in_for_what_is_returned_alone(
    name: str, style: str
) -> None:
    """A combined forward keeps a shape on ctx, and saves no tensor for it."""
    case = next(item for item in (*OPS, *PUBLISHED) if item.name == name)
    said = {"outputs": case.outputs, "style": style}
    derivation, _ = balanced(case.inputs, case.forward, **said)
    assert {local for _, local in derivation.incoming.handed} <= {
        *derivation.intermediates
    }


RANKED = {
    "sort": "v, i = x.sort(-1)\nreturn v * y",
    "part of a sort": "return torch.sort(x, dim=0)[0] * y",
    "topk": "h = torch.exp(x)\nreturn torch.topk(h, 2, dim=-1)[0]",
    "max": "return x.max(-1).values",
    "max that is a local": "v = x.max(-1)[0]\nreturn v * y.sum(-1)",
    "max below": "z = x - x.max(dim=1, keepdim=True)[0]\nreturn z.exp() * y",
    "both results": "v, i = torch.min(x * y, 1)\nreturn v * (i + 1)",
    "in two places": "return x.max(-1)[0] + y.min(-1)[0] * x.max(-1)[0]",
}
RANKING = re.compile(r"\b(sort|topk|max|min)\(")


@pytest.mark.parametrize("style", ["setup-context", "combined"])
@pytest.mark.parametrize("name", RANKED)
def test_nothing_is_ranked_twice(name: str, style: str) -> None:
    """The positions are saved, and one line of the forward gives a name to both results."""
    forward = RANKED[name]
    calls = [(tensor(3, 4), tensor(3, 4) + 2)]
    check_forward("x[N, D], y[N, D]", forward, calls, style=style)
    text = op_text("x[N, D], y[N, D]", forward=forward, style=style)
    before, after = text.split("    def backward")
    code = before.split("    def forward")[1]
    assert not RANKING.search(after.split("\n\n\ndef")[0])
    assert len(RANKING.findall(code)) == len({*RANKING.findall(forward)})


def test_a_shape_that_sizes_tell_needs_no_value() -> None:
    """The forward is not repeated for `x.shape`; an attribute is a size."""
    forward = """
b, c, h, w = x.shape
x = x.reshape(b, c, h // p, p, w // p, p)
x = torch.einsum("nchpwq->nhwpqc", x)
return x.reshape(b, h * w // p**2, p * p * c)
"""
    text = op_text("x[B, C, H, W], p: int = 2", forward=forward)
    assert "save_for_backward" not in text
    assert text.count("torch.einsum") == 3  # forward, backward, docstring
    check_forward("x[B, C, H, W], p: int = 2", forward, [(tensor(2, 3, 4, 6), 2)])


def test_what_is_saved_does_not_bring_back_what_it_is_made_of() -> None:
    """The mask is saved, so the scores are read for their shape alone, and that is told by sizes."""
    forward = """
s = q @ k.mT * q.shape[-1] ** -0.5
mask = s < s.topk(2, dim=-1).values[..., -1:]
return torch.softmax(s.masked_fill(mask, float("-inf")), -1) @ k
"""
    text = op_text("q[B, T, D], k[B, S, D]", forward=forward)
    backward = backward_of(text)
    assert "q @ k.mT" not in backward and "mask" in backward
    calls = [(tensor(2, 3, 4), tensor(2, 5, 4))]
    check_forward("q[B, T, D], k[B, S, D]", forward, calls)


def test_a_square_is_not_saved_for_the_shape_of_its_sum() -> None:
    """Which dims are left is told by what is squared, of dims that only the call has."""
    forward = "x.pow(2).sum(dim).add(1).rsqrt()"
    inputs = "x[N, C, D], dim: tuple[int, ...] = (-1,)"
    assert saved(inputs, forward) == ["x", "output"]


QUOTIENTS = {
    "a quotient": ("x[N, D], y[N, D]", "x / y"),
    "over a sum": ("x[N, D]", "x / x.sum(-1, keepdim=True)"),
    "with a name": ("x[N, D], y[N, D]", "h = x / y\nreturn h"),
    # Like a softmax with one more class, whose probability is left out.
    "over a larger sum": (
        "x[N, D], y[N, D]",
        "e = torch.exp(x)\nreturn e / (e.sum(-1, keepdim=True) + y.exp())",
    ),
}


@pytest.mark.parametrize("style", ["setup-context", "combined"])
@pytest.mark.parametrize("name", QUOTIENTS)
def test_an_output_that_autograd_does_not_keep_is_not_kept(
    name: str, style: str
) -> None:
    """It is computed again of what is kept, and so may be changed in place behind the op."""
    inputs, forward = QUOTIENTS[name]
    assert not {"output", "h"} & {*saved(inputs, forward, style=style)}
    names = re.findall(r"(\w+)\[", inputs)
    given = [tensor(2, 3).abs().add(1).requires_grad_() for _ in names]
    y = load(op_text(inputs, forward=forward, style=style)).some_op(*given)
    y.mul_(2)
    found = torch.autograd.grad(y.sum(), given)
    wanted = reference(names, forward)(*given)
    torch.testing.assert_close(found, torch.autograd.grad(2 * wanted.sum(), given))


@pytest.mark.parametrize(
    ("forward", "kept"),
    [
        ("p = x @ w.t()\nreturn torch.cat([p.sin(), p.cos()], -1)", "p"),
        # The product keeps both, for a gradient each.
        ("p = x @ w.t()\nreturn p.sin() * p.cos()", "sin"),
    ],
)
def test_no_more_memory_is_taken_than_by_autograd(forward: str, kept: str) -> None:
    """Autograd computes a sine and a cosine again, of the one tensor it keeps."""
    assert kept in saved("x[N, D], w[M, D]", forward)
    op = load(op_text("x[N, D], w[M, D]", forward=forward)).some_op
    given = [tensor(2, 3).requires_grad_(), tensor(5, 3).requires_grad_()]
    plain = reference(["x", "w"], forward)
    assert saved_bytes(op, given) <= saved_bytes(plain, given)
    assert gradcheck(op, given) and gradgradcheck(op, given)


@pytest.mark.parametrize(
    "forward",
    ["x / y", "x / y + 1", "torch.relu(x / y)", "x / y if flag else y / x"],
)
def test_a_quotient_of_the_forward_stays_whole(forward: str) -> None:
    """The product `g * x` may overflow where `x / y` does not."""
    text = op_text("x[N], y[N], flag: bool = True", forward=forward)
    assert "grad_output * x" not in text
    x = torch.full((2,), 6e4, dtype=torch.float16)
    y = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(load(text).some_op(x, y), y, torch.full_like(x, 16))
    assert grad.isfinite().all() and grad.all()


POOLED = {
    "alone": "F.max_pool2d(x, 2)",
    "with more arguments": "F.max_pool2d(x, (2, 3), stride=1, padding=(1, 0)) * 2",
    "of a computed value": "y = torch.max_pool2d(x.exp(), 2)\nreturn y * y",
    "one of another": "F.max_pool2d(F.max_pool2d(x, 2, 1), 2)",
    "with a flag": "F.max_pool2d(x, 2, ceil_mode=True, return_indices=False)",
    "with a flag by position": "F.max_pool2d(x, 2, None, 0, 1, False, False)",
    "written over": "y = F.max_pool2d(x, 2)\ny.mul_(2)\nreturn y",
    "adaptive": "F.adaptive_max_pool2d(x, (2, 1))",
    "twice": "F.max_pool2d(x, 2) + F.max_pool2d(x, 2).sin()",
}


@pytest.mark.parametrize("style", ["setup-context", "combined"])
@pytest.mark.parametrize("name", POOLED)
def test_nothing_is_pooled_twice(name: str, style: str) -> None:
    """The positions are saved, of a call that says no `return_indices`; one that says it by position stays as it is."""
    calls = [(tensor(2, 3, 5, 6),)]
    check_forward("x[B, C, H, W]", POOLED[name], calls, style=style)
    text = op_text("x[B, C, H, W]", forward=POOLED[name], style=style)
    backward = backward_of(text).split("\n\n\ndef")[0]
    kept = name in ("with a flag by position", "written over")
    assert kept == ("max_pool2d(" in backward), text


def test_a_call_whose_parts_nobody_saves_stays_whole() -> None:
    said = {"forward": "x.detach().max(), F.max_pool2d(y, 2)", "outputs": "a, b"}
    for more in ({"save_policy": "recompute"}, {"once_differentiable": False}):
        text = op_text("x[B, C, H, W], y[B, C, H, W; const]", **said, **more)
        assert "return_indices" not in text


@pytest.mark.parametrize("more", ["", ", reduction='sum'", ", ignore_index=1"])
@pytest.mark.parametrize("amp", ["off", "float32"])
def test_cross_entropy_saves_what_its_parts_share(amp: str, more: str) -> None:
    """Where autocast computes the parts as the whole: on a CPU it leaves `log_softmax` alone."""
    inputs, forward = "x[N, C], t[N; index(C)]", f"F.cross_entropy(2 * x, t{more})"
    calls = [(tensor(3, 4), torch.tensor([1, 3, 2]))]
    check_forward(inputs, forward, calls, amp=amp)
    text = op_text(inputs, forward=forward, amp=amp)
    assert "log_probs = F.log_softmax(2 * x, 1)" in text
    assert f"F.nll_loss(log_probs, t{more})".replace("'", '"') in text
    assert "softmax(" not in backward_of(text).split("\n\n\ndef")[0]
    assert (
        "log_softmax" not in op_text(inputs, forward=forward).split("def backward")[0]
    )


@pytest.mark.parametrize(
    ("inputs", "forward"),
    [
        ("x[B, H, Q, K], mask[B, 1, 1, K; bool]", "x.masked_fill(~mask, -9.0).exp()"),
        ("x", "torch.where(x > 0, x ** 3, x.sin())"),
    ],
)
def test_a_mask_that_takes_a_step_is_not_saved(inputs: str, forward: str) -> None:
    """It is computed again from what is saved."""
    derivation = derive(spec_of(inputs, forward=forward, derive=True))
    assert not derivation.intermediates
