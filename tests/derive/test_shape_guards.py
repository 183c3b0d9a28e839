"""A declared shape that a caller breaks: the gradient is right, or the call is refused."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from scaffold.derive import derive
from scaffold.render.shape_checks import check_lines, refused
from scaffold.render.testsizes import choose_sizes
from tests.derive.broken_shapes import Outcome, broken_calls, given, outcome
from tests.derive.building import draft_of, load, op_text, spec_of
from tests.derive.cases import CASES, Case, r
from tests.derive.ops_of_others import OPS
from tests.derive.published import PUBLISHED

pytestmark = pytest.mark.filterwarnings("ignore:Using a target size")
QUATERNION = ["q.shape[-1] != 4", "v.shape != (*q.shape[:-1], 3)"]
NAMED_LEADING: dict[str, tuple[str, str, tuple[tuple[int, ...], ...]]] = {
    "sum": ("x[*b, D], y[*b, D]", "x + x * y", ((4,), (4,))),
    "outer": ("x[*b, D], y[*b, E]", "x[..., None] * y[..., None, :]", ((4,), (5,))),
    "apart": ("x[*b, D], y[*b, K, D]", "x.unsqueeze(-2) * y", ((4,), (3, 4))),
    "apart the other way": (
        "y[*b, K, D], x[*b, D]",
        "x.unsqueeze(-2) * y",
        ((3, 4), (4,)),
    ),
    "planes": ("w[*b], x[*b, S, D]", "x * w[..., None, None]", ((), (3, 4))),
    "attention": (
        "q[*b, S, D], k[*b, T, D], v[*b, T, E]",
        "torch.softmax(q @ k.mT, -1) @ v",
        ((3, 4), (5, 4), (5, 2)),
    ),
    "weighted": ("x[*b, D], w[*b]", "(x * x).sum(-1) * w", ((4,), ())),
    "scores": ("q[*b, S, D], k[*b, T, D]", "q @ k.mT", ((3, 4), (5, 4))),
}
DECLARED = [case for case in (*CASES, *OPS, *PUBLISHED) if "[" in case.inputs]


def guards(inputs: str, forward: str, **raw: Any) -> list[str]:
    """The lines of forward that ask for shapes."""
    return check_lines(derive(spec_of(inputs, forward=forward, **raw)), 88)


def conditions(inputs: str, forward: str, **raw: Any) -> list[str]:
    """The tests alone."""
    lines = guards(inputs, forward, **raw)
    return [line.removeprefix("if ")[:-1] for line in lines if line.startswith("if ")]


def function_of(inputs: str, forward: str, **raw: Any) -> Any:
    apply = load(op_text(inputs, forward=forward, **raw)).SomeOpFunction.apply

    def op(*inputs: Any) -> Any:
        outputs = apply(*inputs)
        return outputs[0] if isinstance(outputs, tuple) else outputs

    return op


def test_it_is_one_statement_that_names_the_input_and_both_shapes() -> None:
    assert guards("x[N, D], y[N, D]", "F.mse_loss(x, y)") == [
        "if y.shape != x.shape:",
        '    raise ValueError(f"y[N, D] has shape {[*y.shape]}, not {[*x.shape]}")',
    ]


@pytest.mark.parametrize(
    ("inputs", "forward", "tests"),
    [
        ("x[N, D], y[N, D]", "(x - y).mean(-1)", ["y.shape != x.shape"]),
        ("x[N, D], y[D]", "x * y", ["x.ndim != 2", "y.shape != (x.shape[-1],)"]),
        ("x[..., D], y[D]", "x * y", ["y.shape != (x.shape[-1],)"]),
        ("x[B, T, D], y[T, D]", "x * y", ["x.ndim != 3", "y.shape != x.shape[-2:]"]),
        (
            "x[N, D], y[N, D]?",
            "x if y is None else x * y",
            ["y is not None and y.shape != x.shape"],
        ),
        ("x[N, D]", "x.mean(1)", ["x.ndim != 2"]),
        ("x[*b, D], y[*b, D]", "x * y", ["y.shape != x.shape"]),
        ("x[*b], y[*b]", "x * y", ["y.shape != x.shape"]),
        ("x[*b, D], m[*b]", "x * m[..., None]", ["m.shape != x.shape[:-1]"]),
        ("m[*b], x[*b, D]", "x * m[..., None]", ["x.shape[:-1] != m.shape"]),
        (
            "x[*b, S, D], y[*b, S, E]",
            "x.sum(-1) * y.sum(-1)",
            ["y.shape[:-1] != x.shape[:-1]"],
        ),
        (
            "y[*b, K, D], x[*b, D]",
            "x.unsqueeze(-2) * y",
            ["y.ndim < 2", "x.shape != (*y.shape[:-2], y.shape[-1])"],
        ),
        (
            "w[*b], x[*b, S, D]",
            "x * w[..., None, None]",
            ["x.ndim < 2 or x.shape[:-2] != w.shape"],
        ),
        (
            "w[*b], x[*b, S, D]",
            "x.sum((-2, -1)) * w",
            ["x.shape[:-2] != w.shape"],
        ),
        (
            "q[*b, S, D], k[*b, T, D], v[*b, T, E]",
            "torch.softmax(q @ k.mT, -1) @ v",
            [
                "q.ndim < 2",
                "k.shape[:-2] != q.shape[:-2]",
                "v.shape[:-1] != k.shape[:-1]",
            ],
        ),
        (
            "q[*b, S, D], k[*b, T, D], m[*b, S, T; bool]",
            "(q @ k.mT).masked_fill(m, 0.0)",
            [
                "q.ndim < 2",
                "k.shape[:-2] != q.shape[:-2]",
                "m.shape != (*q.shape[:-1], k.shape[-2])",
            ],
        ),
        (
            "x[*b, S, D], y[*b, S, 2]",
            "x * y[..., :1]",
            ["y.shape != (*x.shape[:-1], 2)"],
        ),
        ("q[*b, 4], v[*b, 3]", "q[..., :3] * v", QUATERNION),
        (
            "x[*b, D], y[*b, D]?",
            "x if y is None else x * y",
            ["y is not None and y.shape != x.shape"],
        ),
        (
            "x[B, N, D], y[B, N, E]",
            "x.mean(1) * y.sum(-1).mean(1, keepdim=True)",
            ["x.ndim != 3", "y.ndim != 3 or y.shape[:2] != x.shape[:2]"],
        ),
        ("x[N, N]", "x * x.t()", ["x.ndim != 2 or x.shape[-1] != x.shape[0]"]),
    ],
)
def test_what_the_backward_relies_on_is_asked(
    inputs: str, forward: str, tests: list[str]
) -> None:
    assert conditions(inputs, forward) == tests


@pytest.mark.parametrize(
    ("inputs", "forward"),
    [
        ("x, y", "x * y"),  # nothing is declared
        ("x", "F.mse_loss(x, x.exp())"),
        ("x[..., D]", "torch.softmax(x, -1)"),  # there is nothing to broadcast with
        ("x[N, D]", "torch.exp(x)"),  # right of any rank
        ("x[N, D]", "x.mean(-1)"),
        ("x[..., D], y[..., D]", "x * y"),  # it sums to each input's own shape
        ("x[..., I], weight[O, I]", "x @ weight.t()"),  # a product asks itself
        ("x[N, K], y[K, M]", "torch.mm(x, y)"),
        ("x[O, I], u", "torch.mv(x, x.t().mv(u))"),  # of a rank and no known sizes
        ("q[..., L, D], k[..., S, D], v[..., S, E]", "torch.softmax(q @ k.mT, -1) @ v"),
    ],
)
def test_where_nothing_relies_on_it_nothing_is_asked(inputs: str, forward: str) -> None:
    assert guards(inputs, forward) == []


@pytest.mark.parametrize("bias", ["bias[O]?", "bias[O]"])
def test_of_a_linear_layer_the_bias_alone_is_asked(bias: str) -> None:
    inputs, there = f"input[..., I], weight[O, I], {bias}", "bias is not None and "
    test = "bias.shape != (weight.shape[0],)"
    expected = [there + test if "?" in bias else test]
    assert conditions(inputs, "input @ weight.t() + bias") == expected
    assert conditions(inputs, "F.linear(input, weight, bias)") == expected


def test_a_shape_of_numbers_is_shown_as_it_is_declared() -> None:
    """`{[2]}` in a message would be a list to format."""
    _, error = guards("x[..., D], w[2]", "x * w[0] + x.square() * w[1]")
    assert error.strip() == (
        'raise ValueError(f"w[2] has shape {[*w.shape]}, not [2]")'
    )


def test_leading_dims_are_shown_in_the_place_of_their_name() -> None:
    assert guards("q[*batch, S, D], k[*batch, T, D]", "q @ k.mT") == [
        "if q.ndim < 2:",
        """\
    raise ValueError(f"q[*batch, S, D] has shape {[*q.shape]}, not at least 2-D")""",
        "if k.shape[:-2] != q.shape[:-2]:",
        """\
    raise ValueError(f"k[*batch, T, D] has shape {[*k.shape]}, " \
f"not [*{[*q.shape[:-2]]}, T, {q.shape[-1]}]")""",
    ]


def test_leading_dims_that_broadcast_are_refused() -> None:
    inputs, forward = "q[*batch, S, D], k[*batch, T, D]", "q @ k.mT"
    function = function_of(inputs, forward)
    q, k = torch.randn(2, 5, 3, 4), torch.randn(5, 7, 4)
    assert function(q, k.expand(2, 5, 7, 4)).shape == (2, 5, 3, 7)
    message = r"k\[\*batch, T, D\] has shape \[5, 7, 4\], not \[\*\[2, 5\], T, 4\]"
    for small in (k, k[0], k[None, :1]):
        with pytest.raises(ValueError, match=r"k\[\*batch, T, D\] has shape"):
            function(q, small)
    with pytest.raises(ValueError, match=message):
        function(q, k)


def test_a_stated_gradient_may_rely_on_all_that_is_declared() -> None:
    stated = {"x": "grad_output * y", "y": "grad_output * x"}
    assert conditions("x[N, D], y[N, D]", "x * y", grad=stated) == [
        "x.ndim != 2",
        "y.shape != x.shape",
    ]
    assert conditions("x, y", "x * y", grad=stated) == []


PRODUCT = "(x * sum(tensors)).mean(-1)"
OF_TENSORS = {"tensors": "grad_output.unsqueeze(-1) * x / x.shape[-1]"}
MEANS = "sum(tensors).mean(-1)"
OF_MEANS = {
    "tensors": "grad_output.unsqueeze(-1).expand(tensors[i].shape) / tensors[0].shape[-1]"
}
SEVERAL: dict[str, tuple[str, str, dict[str, str], tuple[tuple[int, ...], ...]]] = {
    "beside an input of their shape": (
        "x[N, D], *tensors[N, D]",
        PRODUCT,
        OF_TENSORS,
        ((3, 4),) * 3,
    ),
    "beside one with a dim of theirs": (
        "x[D], *tensors[N, D]",
        PRODUCT,
        OF_TENSORS,
        ((4,), (3, 4), (3, 4)),
    ),
    "beside one with leading dims": (
        "x[..., D], *tensors[D]",
        PRODUCT,
        {
            "tensors": "(grad_output.unsqueeze(-1) * x).flatten(0, -2).sum(0) / x.shape[-1]"
        },
        ((2, 3, 4), (4,), (4,)),
    ),
    "alone": ("*tensors[N, D]", MEANS, OF_MEANS, ((3, 4),) * 2),
    "all of them derived": ("x[N, D], *tensors[N, D]", PRODUCT, {}, ((3, 4),) * 3),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_no_call_that_breaks_the_shape_of_several_tensors_is_silently_wrong(
    name: str,
) -> None:
    inputs, forward, stated, shapes = SEVERAL[name]
    case = Case(name, inputs, forward, lambda: [tuple(r(*shape) for shape in shapes)])
    counts, wrong = outcomes([case], **({"grad": stated} if stated else {}))
    assert not wrong
    assert bool(counts["guard"]) is bool(stated)
    if stated:
        assert outcomes([case], grad=stated, shape_checks=False)[1]


@pytest.mark.parametrize(
    ("inputs", "tests"),
    [
        ("x[N, D], *tensors[N, D]", ["item.shape != x.shape"]),
        ("item[N, D], *tensors[N, D]", ["item_2.shape != item.shape"]),
        ("x, *tensors[3, 2]", ["item.shape != (3, 2)"]),
        ("x[N], *tensors[]", ["item.ndim != 0"]),
        ("x, *tensors[*b, D]", ["item.shape != tensors[0].shape"]),
        (
            "x[N, D], *tensors[M, D]",
            ["item.shape != (tensors[0].shape[0], x.shape[-1])"],
        ),
        (
            "x[D]?, *tensors[..., D]",
            [
                "item.shape[-1] != tensors[0].shape[-1]",
                "x is not None and item.shape[-1] != x.shape[0]",
            ],
        ),
        ("x[*b, K], *tensors[*b, 3]", ["item.shape != (*x.shape[:-1], 3)"]),
        ("x[N, D], *tensors", []),
    ],
)
def test_each_of_several_tensors_is_asked(inputs: str, tests: list[str]) -> None:
    lines = guards(inputs, "sum(tensors)", grad={"tensors": "grad_output"})
    assert [line for line in lines if line.startswith("for ")] == [
        f"for {'item_2' if 'item[' in inputs else 'item'} in tensors:" for _ in tests
    ]
    inner = [line.strip() for line in lines if line.startswith("    if ")]
    assert inner == [f"if {test}:" for test in tests]


def test_it_can_be_turned_off() -> None:
    inputs, forward = "x[N, D], y[N, D]", "F.mse_loss(x, y)"
    assert guards(inputs, forward, shape_checks=False) == []
    assert "ValueError" not in op_text(inputs, forward=forward, shape_checks=False)


def test_a_skeleton_asks_nothing() -> None:
    assert guards("x[N, D], y[N, D]", "x * y", derive=False) == []


def test_the_broken_call_of_mse_loss_is_refused() -> None:
    function = function_of("x[N, D], y[N, D]", "F.mse_loss(x, y)")
    message = r"^y\[N, D\] has shape \[3, 4\], not \[3, 1\]$"
    with pytest.raises(ValueError, match=message):
        function(torch.randn(3, 1, requires_grad=True), torch.randn(3, 4))


def test_scalars_and_tensors_on_meta_are_asked_too() -> None:
    function = function_of("x[], y[]", "x * y")
    assert function(torch.ones(()), torch.ones(())) == 1
    with pytest.raises(ValueError, match=r"y\[\] has shape \[1\], not 0-D"):
        function(torch.ones(()), torch.ones(1))
    function = function_of("x[N, D], y[N, D]", "F.mse_loss(x, y)")
    meta = partial(torch.empty, device="meta")
    assert function(meta(2, 3), meta(2, 3)).is_meta
    with pytest.raises(ValueError, match="has shape"):
        function(meta(2, 3), meta(2, 1))


def test_under_vmap_the_shapes_are_those_of_one_example() -> None:
    function = function_of("x[N, D], y[N, D]", "(x - y).square().mean(-1)")
    x, y = torch.randn(5, 2, 3), torch.randn(2, 3)
    found = torch.func.vmap(function, in_dims=(0, None))(x, y)
    torch.testing.assert_close(found, (x - y).square().mean(-1))
    with pytest.raises(ValueError, match=r"y\[N, D\] has shape \[3\], not \[2, 3\]"):
        torch.func.vmap(function)(x, torch.randn(5, 3))


def test_make_fx_traces_it_with_sizes_that_are_not_fixed() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    function = function_of("x[N, D], y[N, D]", "(x - y).square().mean(-1)")
    traced = make_fx(function, tracing_mode="symbolic")
    graph = traced(torch.randn(3, 4), torch.randn(3, 4))
    x, y = torch.randn(5, 2), torch.randn(5, 2)
    torch.testing.assert_close(graph(x, y), function(x, y))


class Calls(torch.nn.Module):
    """An op as a module, to be exported."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, y: Tensor) -> Any:
        return self.function(x, y)


@pytest.mark.exhaustive
def test_it_compiles_and_is_exported_with_dynamic_sizes() -> None:
    function = function_of("x[N, D], y[N, D]", "(x - y).square().mean(-1)")
    compiled: Any = torch.compile(
        function, fullgraph=True, dynamic=True, backend="aot_eager"
    )
    for rows in (3, 5):
        x = torch.randn(rows, 4, requires_grad=True)
        y = torch.randn(rows, 4)
        expected = torch.autograd.grad(function(x, y).sum(), x)
        torch.testing.assert_close(
            torch.autograd.grad(compiled(x, y).sum(), x), expected
        )
    with pytest.raises(Exception, match="ValueError|exception"):  # Dynamo's own
        compiled(torch.randn(3, 4), torch.randn(3, 1))
    batch = torch.export.Dim("batch")
    exported = torch.export.export(
        Calls(function),
        (torch.randn(3, 4), torch.randn(3, 4)),
        dynamic_shapes=({0: batch}, {0: batch}),
    )
    x, y = torch.randn(7, 4), torch.randn(7, 4)
    torch.testing.assert_close(exported.module()(x, y), function(x, y))


class OfRows(Calls):
    """... of rows that a mask chooses: how many there are only the data tell."""

    checked = False

    def forward(self, x: Tensor, y: Tensor) -> Any:
        some, others = x[x[:, 0] > 0], y[y[:, 0] > 0]
        if self.checked:
            torch._check(some.shape[0] == others.shape[0])  # type: ignore[no-untyped-call]
        return self.function(some, others)


@pytest.mark.parametrize("strict", [False, True])
def test_sizes_that_the_data_tell_are_exported_where_the_caller_checks_them(
    strict: bool,
) -> None:
    function = function_of("x[N, D], y[N, D]", "(x - y).square().mean(-1)")
    rows, x, y = OfRows(function), torch.ones(3, 4), torch.ones(3, 4)
    with pytest.raises(Exception, match="data-dependent expression"):
        torch.export.export(rows, (x, y), strict=strict)
    rows.checked = True
    exported = torch.export.export(rows, (x, y), strict=strict)
    torch.testing.assert_close(exported.module()(x, y), rows(x, y))


def outcomes(cases: Iterable[Case], **raw: Any) -> tuple[Counter[Outcome], list[str]]:
    """How many calls end how, and what is silently wrong."""
    counts, wrong = Counter[Outcome](), list[str]()
    for case in cases:
        options: dict[str, Any] = {"forward": case.forward, "outputs": case.outputs}
        spec = spec_of(case.inputs, **options, **raw)
        skeleton = replace(
            spec, derive=False, style="setup-context", shape_checks=False
        )
        plain = getattr(load(draft_of(skeleton)), spec.function_name).forward
        function = getattr(load(draft_of(spec)), spec.function_name)
        wanted = {item.name for item in spec.differentiable}
        several = any(item.variadic for item in spec.outputs)
        count = None if several else len(spec.outputs)
        torch.manual_seed(7)
        for inputs in case.samples():
            needs = [
                isinstance(value, Tensor) and item.name in wanted
                for item, value in given(spec, inputs)
            ]
            for call in broken_calls(spec, inputs):
                end, said = outcome(function, plain, call, needs, count)
                counts[end] += 1
                if end == "wrong" or end == "summed" and said != "(1,) for ()":
                    wrong.append(f"{case.name}: {call.how} {said}")
    return counts, wrong


def test_no_call_that_breaks_a_declaration_is_silently_wrong() -> None:
    counts, wrong = outcomes(DECLARED[::40])
    assert not wrong
    assert counts["guard"] > counts["right"] > 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("policy", ["recompute", "balanced"])
def test_no_call_of_any_known_op_is_silently_wrong(policy: str) -> None:
    counts, wrong = outcomes(DECLARED, save_policy=policy)
    print(dict(counts))
    assert not wrong


@pytest.mark.parametrize("leading", [(), (2,), (2, 3)])
@pytest.mark.parametrize("name", NAMED_LEADING)
def test_no_call_that_breaks_named_leading_dims_is_silently_wrong(
    name: str, leading: tuple[int, ...]
) -> None:
    inputs, forward, shapes = NAMED_LEADING[name]
    tensors = tuple(r(*leading, *shape) for shape in shapes)
    counts, wrong = outcomes([Case(name, inputs, forward, lambda: [tensors])])
    assert not wrong
    assert counts["guard"]


def test_without_the_checks_some_would_be() -> None:
    case = Case(
        "mse",
        "x[N, D], y[N, D]",
        "F.mse_loss(x, y)",
        lambda: [(torch.randn(3, 4), torch.randn(3, 4))],
    )
    assert outcomes([case], shape_checks=False)[1]
    assert not outcomes([case])[1]


# --- Conditions on sizes


def test_a_condition_is_asked_where_the_backward_relies_on_it() -> None:
    forward = """
D = x.shape[-1]
shift, scale = mod[:, :D], mod[:, D:]
return x * (1 + scale) + shift
"""
    inputs = "x[B, D], mod[B, E]"
    assert conditions(inputs, forward, require=["E == 2 * D"])[-1] == (
        "mod.shape[-1] != 2 * x.shape[-1]"
    )
    assert conditions(inputs, "x.sum(-1) * mod.sum(-1)", require=["E == 2 * D"]) == (
        conditions(inputs, "x.sum(-1) * mod.sum(-1)")
    )


def test_a_call_that_breaks_a_condition_is_refused() -> None:
    forward = "a, b = x.chunk(2, -1)\nreturn torch.sigmoid(a) * b"
    function = function_of("x[*batch, D]", forward, require=["D % 2 == 0"])
    with pytest.raises(
        ValueError, match=r"x\[\*batch, D\] has shape \[2, 3\], not one with D % 2 == 0"
    ):
        function(torch.ones(2, 3))
    assert function(torch.ones(2, 4)).shape == (2, 2)


def test_an_attribute_may_divide_a_size() -> None:
    forward = "return (x.view(x.shape[0], groups, -1) * w.view(groups, -1)).flatten(1)"
    inputs = "x[N, C], w[C], groups: int"
    asked = conditions(inputs, forward, require=["C % groups == 0"])
    assert asked[-1] in ("x.shape[-1] % groups != 0", "w.shape != (x.shape[-1],)")


def test_of_too_few_dims_no_size_is_read() -> None:
    forward = "return x[..., 0::2, :] * torch.sin(x[..., 1::2, :])"
    function = function_of("x[..., H, W]", forward, require=["H % 2 == 0"])
    with pytest.raises(ValueError, match="at least 2-D"):
        function(torch.ones(3))


@pytest.mark.parametrize(
    ("inputs", "forward", "require"),
    [
        ("x[*b, D]", "a, b = x.chunk(2, -1)\nreturn a * b.exp()", "D % 2 == 0"),
        (
            "x[N, E], y[N, D], z[P]",
            "x * torch.cat([y, y], 1) * z.sum()",
            "E == 2 * D and P >= D",
        ),
        (
            "x[N, E], y[N, D]",
            "torch.cat([x, x], 1) * y[:, : 2 * (y.shape[1] // 2)]",
            "E == D // 2",
        ),
    ],
)
def test_a_change_that_the_generated_test_makes_breaks_the_condition(
    inputs: str, forward: str, require: str
) -> None:
    """One that is met by larger sizes too, `P >= D`, is no such change."""
    spec = spec_of(inputs, forward=forward, require=[require])
    derivation = derive(spec)
    assert any(check.condition for check in derivation.checks)
    function = function_of(inputs, forward, require=[require])
    changes = refused(spec, derivation)
    assert len(changes) == len(derivation.checks)
    for first in (2, 5):
        sizes = {"*b": 2} | choose_sizes(spec, first)
        made = {
            item.name: torch.ones([sizes[str(dim)] for dim in item.dims or ()])
            for item in spec.tensors
        }
        function(*made.values())
        for change in changes:
            wrong = eval(change.value, {"torch": torch} | made)
            with pytest.raises(ValueError, match="has shape"):
                function(*(made | {change.name: wrong}).values())
