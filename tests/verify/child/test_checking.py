"""What a verification finds: right ops pass, and of wrong ones the first failing case is told in words."""

from typing import Any

import pytest

from scaffold.verify.child import shape_search
from scaffold.verify.child.checking import no_operator
from tests.verify.ops import LINEAR, LINEAR_GRAD, failure, judged, texts, verdict


def linear(**changed: str) -> dict[str, Any]:
    return {**LINEAR, "grad": {**LINEAR_GRAD, **changed}}


def test_a_right_op_passes_every_case() -> None:
    found = verdict(**linear())
    assert found.failure is None
    # four shapes and absences, two sizes of each dim and three empty tensors, in two layouts,
    # each with the forward and up to seven subsets of the inputs
    assert found.cases > 100
    assert found.notes == found.skipped == ()


WRONG: dict[str, dict[str, Any]] = {
    "grad_input: factor 2": linear(input="2 * grad_output @ weight"),
    "grad_input: wrong sign": linear(input="-(grad_output @ weight)"),
    "grad_bias: missing sum over dim 0: shape (2, 4) instead of (4,)": linear(
        bias="grad_output"
    ),
    "grad_weight: transposed: shape (3, 4) instead of (4, 3)": linear(
        weight="input.t() @ grad_output"
    ),
    "forward: output: factor 2": {
        "inputs": "x",
        "forward": "2 * torch.sin(x)",
        "grad": {"x": "2 * grad_output * x.cos()"},
    },
    "grad_x: dtype float32 instead of float64": {
        "inputs": "x",
        "forward": "x * 2",
        "grad": {"x": "(grad_output * 2).float()"},
    },
    "grad_x: missing factor y": {
        "inputs": "x, y",
        "forward": "x * y",
        "grad": {"x": "grad_output", "y": "grad_output * x"},
    },
    "grad_x: swapped with grad_y": {
        "inputs": "x, y",
        "forward": "x * y",
        "grad": {"x": "grad_output * x", "y": "grad_output * y"},
    },
    "grad_x: missing factor output": {
        "inputs": "x",
        "forward": "x.exp()",
        "grad": {"x": "grad_output"},
    },
    "grad_x: conjugated": {
        "inputs": "x[N; complex], y[N; complex]",
        "forward": "x * y",
        "grad": {"x": "(grad_output * y.conj()).conj()", "y": "grad_output * x.conj()"},
    },
    "grad_x: not expanded: shape (2, 1) instead of (2, 3)": {
        "inputs": "x[N, D]",
        "forward": "x.sum(-1, keepdim=True)",
        "grad": {"x": "grad_output"},
    },
    "grad_y: summed over dim 0, which the input has: shape (3,) instead of (2, 3)": {
        "inputs": "x[..., D], y[..., D]",
        "forward": "x + y",
        "grad": {"x": "grad_output.sum_to_size(x.shape)", "y": "grad_output.sum(0)"},
    },
}


def with_wrong_forward(raw: dict[str, Any]) -> tuple[str, str]:
    """The op computes half of what its reference does."""
    op, checks = texts(**raw)
    return op.replace("2 * ", "4 * ", 1), checks


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_op_is_named(words: str) -> None:
    raw = WRONG[words]
    if words.startswith("forward"):
        found = judged(*with_wrong_forward(raw)).failure
        assert found and f"{found.subject}: {found.words}" == words
    else:
        assert failure(**raw) == words


IN_ORDER = "torch.as_strided({}, x.shape, (x.shape[1], 1))"


@pytest.mark.parametrize(
    ("read", "words"),
    [
        ("grad_output", "wrong where grad_output is not contiguous"),
        ("y", "wrong where an input is not contiguous"),
    ],
)
def test_what_reads_memory_in_order_is_told_so(read: str, words: str) -> None:
    factors = {"grad_output": "grad_output", "y": "y"}
    factors[read] = IN_ORDER.format(read)
    grad = {"x": " * ".join(factors.values()), "y": "grad_output * x"}
    found = verdict(inputs="x[N, D], y[N, D]", forward="x * y", grad=grad).failure
    assert found and found.words == words
    assert "needs .contiguous()" in found.hint


def test_the_case_is_told() -> None:
    found = verdict(**linear(input="2 * grad_output @ weight")).failure
    assert found is not None
    assert found.lines[:3] == (
        "case: base",
        "inputs: input (2, 3), weight (4, 3), bias (4,)",
        "needed: input, weight, bias",
    )
    assert found.lines[3].startswith("expected: (2, 3) float64 [")
    assert found.lines[4].startswith("actual: (2, 3) float64 [")


@pytest.mark.parametrize(
    ("raw", "case", "words"),
    [
        pytest.param(
            {
                "inputs": "x[..., D], y[..., D]",
                "forward": "x * y",
                "grad": {"x": "grad_output * y", "y": "grad_output * x"},
            },
            "base, x without its leading dims",
            "missing sum over dim 0",
            id="broadcast",
        ),
        pytest.param(
            {
                "inputs": "x[..., D]",
                "forward": "x * 2",
                "grad": {"x": "(grad_output * 2).reshape(2, x.shape[-1])"},
            },
            "higher-rank",
            "raised RuntimeError",
            id="rank",
        ),
        pytest.param(
            {
                "inputs": "x[N, D]",
                "forward": "x * 2",
                "grad": {"x": "2 * grad_output if x.shape[1] > 1 else grad_output"},
            },
            "D=1",
            "factor 1/2",
            id="size 1",
        ),
        pytest.param(
            {
                "inputs": "x[N, D]",
                "forward": "x * 2",
                "grad": {"x": "2 * grad_output if x.shape[1] < 7 else grad_output"},
            },
            "larger-sizes",
            "factor 1/2",
            id="other size",
        ),
        pytest.param(
            {
                "inputs": "x[N, D]",
                "forward": "x * 2",
                "grad": {"x": "2 * grad_output.view(-1).view(x.shape)"},
            },
            "base",
            "raised RuntimeError: view size is not compatible",
            id="layout of grad_output",
        ),
        pytest.param(
            {
                "inputs": "x[N, D]",
                "forward": "x * x",
                "grad": {"x": "2 * grad_output * x.view(-1).view(x.shape)"},
            },
            "base, not contiguous",
            "raised RuntimeError: view size is not compatible",
            id="layout of an input",
        ),
    ],
)
def test_a_mistake_in_one_kind_of_call_is_found(
    raw: dict[str, Any], case: str, words: str
) -> None:
    found = verdict(**raw).failure
    assert found is not None
    assert words in found.words
    if "grad_output.view" not in str(raw):
        assert found.case == case


def test_shapes_that_are_not_declared_broadcast_only_where_derived() -> None:
    raw: dict[str, Any] = {
        "inputs": "x, y",
        "forward": "x + y",
        "grad": {"x": "grad_output", "y": "grad_output"},
    }
    assert verdict(**raw).failure is None
    found = verdict(frozenset({"x", "y"}), **raw).failure
    assert found is not None and "instead of ()" in found.words


def test_an_input_whose_shape_was_searched_for_has_more_dims_too() -> None:
    raw: dict[str, Any] = {"inputs": "x, w[C]", "forward": "x * w", "derive": True}
    op, checks = texts(**raw, test_shapes="x[N, C]")
    assert judged(op, checks).failure is None
    narrow = op.replace(
        "(grad_output * x).sum_to_size(w.shape)", "(grad_output * x).sum(0)"
    )
    found = judged(narrow, checks).failure
    assert found is not None and found.subject == "grad_w"
    assert found.case == "x with one more dim"


def test_tensors_without_dims_have_some_where_the_forward_takes_that() -> None:
    raw: dict[str, Any] = {
        "inputs": "x, a, b",
        "forward": "x * a.reshape(-1).mean() * b.reshape(-1).mean()",
        "test_shapes": "x[N], a[], b[]",
    }
    derived = frozenset("xab")
    assert verdict(derived, **raw, derive=True).failure is None
    for size, words in (("a", ""), ("b", "grad_a: factor 3")):
        grad = f"((grad_output * x).sum() * b.mean() / {size}.numel()).expand(a.shape)"
        found = verdict(derived, **raw, derive=True, grad={"a": grad}).failure
        assert (f"{found.subject}: {found.words}" if found else "") == words
        assert not found or found.lines[0] == "case: base, a with one dim"


def test_shapes_that_nobody_declared_may_raise_but_not_be_wrong() -> None:
    product: dict[str, Any] = {
        "inputs": "x, y",
        "forward": "x @ y.transpose(0, -1)",
        "grad": {
            "x": "grad_output @ y.transpose(0, -1).mT",
            "y": "(x.mT @ grad_output).transpose(0, -1)",
        },
    }
    found = verdict(frozenset({"x", "y"}), **product)
    assert found.failure is None
    assert found.cases > 8
    assert found.notes[0].startswith(
        "not for x (3,), y (2, 3): backward raised Runtime"
    )
    product["grad"]["y"] = "grad_output @ x"  # of the transposed
    wrong = verdict(frozenset({"x", "y"}), **product).failure
    assert wrong is not None and wrong.subject == "grad_y"


def test_where_pytorch_itself_is_wrong_the_note_names_it() -> None:
    found = verdict(
        inputs="a[N, D], b[N, D], eps: float = 1e-8",
        forward="F.cosine_similarity(a, b, dim=-1, eps=eps)",
        derive=True,
    )
    assert found.failure is None
    assert found.notes[0].endswith(
        ": PyTorch's own grad_b differs from finite differences"
    )


def test_a_forward_that_takes_no_shape_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shape_search, "RUNS", 300)  # none is found by more
    found = verdict(inputs="x", forward="x.reshape(7, 11)", grad={"x": "grad_output"})
    assert found.cases == 0 and found.failure is not None
    assert found.failure.words == "accepts none of the 300 shapes tried"
    assert "raised RuntimeError: shape '[7, 11]'" in found.failure.tried[-1]
    assert found.failure.expression == "x.reshape(7, 11)"
    declared = verdict(
        inputs="x[N, D]", forward="x.reshape(7, 11)", grad={"x": "grad_output"}
    ).failure
    assert declared is not None
    assert declared.words.startswith("raised RuntimeError: shape '[7, 11]' is invalid")


def test_an_error_of_pytorch_s_own_backward_is_none_of_the_op_s() -> None:
    inputs = "x[N, C, L], weight[C]?, bias[C]?, groups: int = 2"
    found = verdict(
        inputs=inputs, forward="F.group_norm(x, groups, weight, bias)", derive=True
    )
    own = "PyTorch's own backward raised RuntimeError: tensor does not have a device"
    assert found.failure is None
    note, of_tests = found.notes
    assert "weight absent" in note and note.endswith(f": {own}")
    assert of_tests.startswith(f"{own} in the tests' case 'without-weight'")


def test_a_matrix_that_has_no_inverse_at_another_size_is_noted() -> None:
    matrix = "(x.shape[0] - 1) * torch.eye(x.shape[0], dtype=x.dtype)"
    found = verdict(
        inputs="x[N]",
        forward="2 * x",
        grad={"x": f"2 * grad_output + 0 * torch.linalg.inv({matrix}).sum()"},
    )
    assert found.failure is None
    assert "raised _LinAlgError" in "".join(found.notes)


def test_a_size_of_1_that_only_broadcasts_may_be_refused_by_the_backward() -> None:
    """`sum_to_size` cannot expand; D is no size that one may choose."""
    found = verdict(
        inputs="a[A; const], b[B; const], q[D], w[6; const]",
        forward="q * w[:4] * a.sum() * b.sum()",
        grad={"q": "(grad_output * w[:4] * a.sum() * b.sum()).view(q.shape)"},
    )
    assert found.failure is None
    grad = {"q": "2 * (grad_output if q.shape[0] > 1 else grad_output[5])"}
    stays = verdict(inputs="q[D]", forward="q * 2", grad=grad)
    assert stays.failure is not None and stays.failure.case == "D=1"


SAMPLES = "give the tests inputs it accepts: --samples '@file.py:function'"


@pytest.mark.parametrize(
    ("inputs", "forward", "stated"),
    [
        (
            "x[N, D], u[N, D; const]",
            "x + torch.log(u) - torch.log1p(-u)",
            "u[...; unit]",
        ),
        ("x[N, D], p[N, D; const]", "x / (p.sign() + 1)", "p[...; unit]"),
        ("x[N, D], p[N, D; const]", "x * torch.log(p - 0.4)", "p[...; positive]"),
        (
            "x[N, D], a[N; const], b[N; const]",
            "x * (a * b).sum() / 0",
            "",
        ),
        ("x, y", "torch.log(x - 5) * torch.log(y)", ""),  # no shape mends it
    ],
)
def test_where_the_result_is_finite_is_found(
    inputs: str, forward: str, stated: str
) -> None:
    found = verdict(inputs=inputs, forward=forward, derive=True)
    assert found.failure is not None and found.failure.words == "is not finite"
    wanted = f"declare the range of the values in --inputs: '{stated}'"
    assert found.failure.hint == (wanted if stated else SAMPLES)


def test_of_sizes_that_nothing_mends_inputs_are_asked_for() -> None:
    found = verdict(inputs="x[N]", forward="x.reshape(7, 11, 13)", derive=True).failure
    assert found is not None
    assert (
        found.hint == "give the tests inputs it accepts: --samples '@file.py:function'"
    )
    broken = verdict(inputs="x[N]", forward="torch.nothing(x)", derive=True).failure
    assert broken is not None and broken.hint == ""


@pytest.mark.parametrize("divisor", ["0.0", "F.relu(x)"])
def test_a_gradient_that_is_not_finite_is_no_mistake_of_the_op(divisor: str) -> None:
    text = f"torch.nan_to_num(x / {divisor}) + 1"
    found = verdict(inputs="x[N]", forward=text, derive=True).failure
    assert found is not None
    assert found.words == "autograd's own gradient is not finite"
    assert found.hint.startswith("the forward divides by 0, or overflows: change it")


def test_a_gradient_that_is_wrong_beside_one_that_is_not_finite_is_found() -> None:
    text = "torch.nan_to_num(x / F.relu(x)) + x"
    found = verdict(inputs="x[N]", forward=text, grad={"x": "3 * grad_output"}).failure
    assert found is not None and found.subject == "grad_x"
    assert "not finite" not in found.words


def test_memory_that_the_tests_do_not_try_may_be_refused() -> None:
    found = verdict(
        inputs="x[N, D]",
        forward="x.view(-1) * 2",
        grad={"x": "(2 * grad_output).view_as(x)"},
    )
    assert found.skipped and found.notes == ()


@pytest.mark.parametrize(
    "forward",
    [
        "x.view(N, 2, -1).sum(1) / D",
        "x = x.view(N, 2, -1); x = x * D; return x.view(N, D)",
        "for i in range(D): x = x + x.roll(i, -1) / N\nreturn x",
    ],
)
def test_a_formula_may_read_declared_sizes(forward: str) -> None:
    found = verdict(
        inputs="x[N, D]", forward=forward, require=["D % 2 == 0"], derive=True
    )
    assert found.failure is None and found.cases > 10


def test_a_case_of_the_tests_that_the_forward_refuses_is_noted() -> None:
    found = verdict(
        inputs="x[..., D]", forward="x.mT * 2", grad={"x": "2 * grad_output.mT"}
    )
    assert found.failure is None
    assert found.notes == (
        (
            "the forward refuses the tests' case 'no-batch', so that test fails: it "
            "raised RuntimeError: tensor.mT is only supported on matrices or batches "
            "of matrices. Got 1-D tensor; name the leading dims it takes: x[B, T, D] "
            "instead of x[..., D]"
        ),
    )


def test_sizes_that_divide_are_found_though_the_tests_first_sizes_fit() -> None:
    forward = "a, b = (x @ w).chunk(2, -1); return a * b"
    found = verdict(inputs="x[..., D], w[D, H]", forward=forward, derive=True)
    assert found.failure is None and found.cases > 2
    assert (found.shapes, found.conditions) == ({}, ("H % 2 == 0",))
    assert found.notes[0].endswith("it accepts: --require 'H % 2 == 0'")


@pytest.mark.parametrize(
    ("forward", "shapes", "conditions"),
    [
        # halves of the tests' 3 elements, 2 and 1, fit by broadcasting
        ("a, b = x.chunk(2, -1); return a * b", {"x": "N, D"}, ("D % 2 == 0",)),
        ("a, b, c = x.chunk(3, -1); return a * b * c", {}, ()),
        ("torch.cat([part.sin() for part in x.chunk(2, -1)], -1)", {}, ()),
    ],
)
def test_chunks_that_fit_by_broadcasting_alone_are_no_test(
    forward: str, shapes: dict[str, str], conditions: tuple[str, ...]
) -> None:
    found = verdict(inputs="x", forward=forward, derive=True)
    assert found.failure is None
    assert (found.shapes, found.conditions) == (shapes, conditions)


def test_a_view_that_takes_no_strides_is_not_noted() -> None:
    found = verdict(
        inputs="x[N, H, W]",
        forward="x.view(x.shape[0], -1) * 2",
        grad={"x": "2 * grad_output.reshape(x.shape)"},
    )
    assert found.failure is None and found.cases > 2
    assert found.notes == ()


def test_a_gradient_that_nobody_needs_is_found() -> None:
    op, checks = texts(**linear())
    always = op.replace("if ctx.needs_input_grad[2]:", "if True:")
    found = judged(always, checks).failure
    assert found is not None
    assert found.subject in ("grad_bias", "backward")


def test_a_gradient_that_is_missing_is_found() -> None:
    op, checks = texts(**linear())
    never = op.replace("if ctx.needs_input_grad[0]:", "if False:")
    found = judged(never, checks).failure
    assert found is not None
    assert (found.subject, found.words) == ("grad_input", "None, but needed")


def test_a_case_that_the_forward_refuses_is_skipped() -> None:
    found = verdict(inputs="x[N, D]", forward="x.amax(-1)", outputs="output[N; const]")
    assert found.failure is None
    assert found.skipped == ("D=0",)


def test_an_output_may_depend_on_some_inputs_only() -> None:
    forward = "x * y, torch.tanh(x)"
    found = verdict(inputs="x[N], y[N]", outputs="a, b", forward=forward)
    assert found.failure is None


def test_without_a_reference_differences_decide() -> None:
    raw: dict[str, Any] = {
        "inputs": "x[N], y[N]",
        "forward": "torch.from_numpy(x.detach().numpy() * y.detach().numpy())",
        "grad": {"x": "grad_output * y", "y": "grad_output * x"},
    }
    assert verdict(**raw).failure is None
    raw["grad"] = {"x": "grad_output * y", "y": "-grad_output * x"}
    assert failure(**raw) == "grad_y: wrong sign"


STE: dict[str, Any] = {
    "inputs": "x",
    "forward": "torch.sign(x)",
    "grad": {"x": "grad_output * (x.abs() <= 1)"},
}


def test_a_surrogate_is_no_mistake_but_a_note() -> None:
    found = verdict(**STE, surrogate="x.clamp(-1, 1)")
    assert found.failure is None
    (note,) = found.notes
    assert note == "surrogate: grad_x differs from the derivative where |x| < 1"
    assert verdict(**STE, surrogate=True).notes == (note,)


def test_a_surrogate_may_differ_only_where_an_attribute_is_not_its_default() -> None:
    clamped = {"x": "grad_output.clamp(-limit, limit)"}
    inputs = "x, limit: float = 1.0"
    found = verdict(inputs=inputs, forward="x", grad=clamped, surrogate=True)
    (note,) = found.notes
    words = "surrogate: grad_x differs from the derivative in 2 of 6 places"
    assert note == f"{words}, in the case limit=0.5"


@pytest.mark.parametrize("inputs", ["x[3]", "x[5]", "x[2, N]"])
@pytest.mark.parametrize("kept", ["> 0.5", "< 0.5"])
def test_where_grad_output_decides_the_sign_of_an_input_is_not_named(
    inputs: str, kept: str
) -> None:
    grad = {"x": f"grad_output * (grad_output {kept})"}
    (note,) = verdict(inputs=inputs, forward="x", grad=grad, surrogate=True).notes
    assert " places" in note and "where" not in note


@pytest.mark.parametrize(
    ("forward", "surrogate"),
    [
        ("torch.sign(x).t().contiguous().t()", "x.clamp(-1, 1)"),
        ("torch.sign(x)", "x.t().contiguous().t().clamp(-1, 1)"),
    ],
)
def test_where_a_surrogate_lies_in_memory_is_no_mistake(
    forward: str, surrogate: str
) -> None:
    raw = {**STE, "inputs": "x[N, D]", "forward": forward, "surrogate": surrogate}
    assert verdict(**raw).failure is None


def test_a_surrogate_that_is_not_its_own_is_a_mistake() -> None:
    wrong = verdict(**STE, surrogate="x.clamp(-2, 2)").failure
    assert wrong is not None and wrong.subject == "grad_x"


def test_random_ops_draw_the_same_numbers() -> None:
    raw: dict[str, Any] = {
        "inputs": "x[N, D]",
        "forward": "mask = torch.rand_like(x) > 0.5; return x * mask",
        "grad": {"x": "grad_output * mask"},
    }
    assert verdict(**raw).failure is None


def test_an_op_in_place_gets_copies() -> None:
    raw: dict[str, Any] = {
        "inputs": "x",
        "dirty": ["x"],
        "forward": "x.exp_()",
        "grad": {"x": "grad_output * output"},
    }
    assert verdict(**raw).failure is None
    raw["grad"] = {"x": "2 * grad_output * output"}
    assert failure(**raw) == "grad_x: factor 2"


@pytest.mark.parametrize(
    ("attribute", "forward", "case"),
    [
        ("flip: bool = False", "-x if flip else x", "flip=True"),
        ("n: int = 1", "-x if n == 2 else x", "n=2"),
        ("alpha: float = 1.0", "x if alpha >= 0 else 2 * x", "alpha=-1.0"),
        ("scale: float | None = 2.0", "2 * x if scale is None else x", "scale=None"),
    ],
)
def test_a_branch_that_the_default_does_not_take_is_tried(
    attribute: str, forward: str, case: str
) -> None:
    raw: dict[str, Any] = {"inputs": f"x[N], {attribute}", "forward": forward}
    wrong = verdict(grad={"x": "grad_output"}, **raw).failure
    assert wrong is not None
    assert (wrong.subject, wrong.case.split(",")[0]) == ("grad_x", case)
    assert verdict(derive=True, **raw).failure is None


def test_a_value_that_the_forward_refuses_says_nothing() -> None:
    forward = "if n == 2:\n    raise ValueError('two')\nreturn n * x"
    assert verdict(inputs="x, n: int = 3", forward=forward, derive=True).failure is None


@pytest.mark.parametrize(
    "name",
    [
        "torch.save",
        "torch.os",
        "torch.hub",
        "torch.nn.functional.warnings",
        "torch.seed",
    ],
)
def test_what_is_there_and_no_operator_fails(name: str) -> None:
    found = no_operator(["torch.exp", name])
    assert found is not None
    assert found["words"].startswith(f"'{name}' is not an operator of PyTorch 2")


@pytest.mark.parametrize(
    "name",
    ["torch.exp", "torch.nn.functional.pad", "torch.linalg.norm", "torch.newest"],
)
def test_operators_and_what_is_not_there_run(name: str) -> None:
    assert no_operator([name]) is None


def test_a_branch_that_no_call_reaches_is_told() -> None:
    raw: dict[str, Any] = {"inputs": "x[N, D]", "derive": True}
    reached = "x * 2 if x.sum() > 100 else x * 3"
    assert verdict(frozenset("x"), forward=reached, **raw).notes == ()
    beyond = "x * 2 if x.numel() * 2 == 7 else x * 3"
    (note,) = verdict(frozenset("x"), forward=beyond, **raw).notes
    assert note.startswith("'x.numel() * 2 == 7' was never true in the calls tried: ")


def test_a_stated_gradient_that_forgets_a_branch_is_refused() -> None:
    forward = "x * 2 if x.sum() > 100 else x * 3"
    raw: dict[str, Any] = {"inputs": "x[N, D]", "forward": forward}
    found = verdict(grad={"x": "grad_output * 3"}, **raw).failure
    assert found is not None
    assert found.words == "wrong where all values of x are about 30"


def test_a_number_with_which_pytorchs_own_backward_raises_is_left_alone() -> None:
    """`index_select` of an empty dim raises, in autograd's backward too."""
    found = verdict(
        inputs="x[N, D], segment[N; index(3)], count: int = 3",
        forward="x.new_zeros(count, x.shape[1]).index_add(0, segment, x)",
        derive=True,
    )
    assert found.failure is None and found.notes == ()


def test_a_number_that_makes_the_result_complex_is_no_case() -> None:
    found = verdict(
        inputs="x, beta: float = 0.9, step: int = 3",
        forward="x.exp() / (1 - beta**step) ** 0.5",
        derive=True,
    )
    assert found.failure is None
    assert any("step=" in case for case in found.skipped)


@pytest.mark.parametrize(
    "returned", ["x * 2, None", "F.cross_entropy(x, x), None", "None, x[:, 1:].sum()"]
)
def test_of_a_none_beside_tensors_the_hint_says_to_leave_it_out(returned: str) -> None:
    """No size mends it: `V >= 2` was proposed."""
    found = verdict(
        inputs="x[N, V]", outputs="a, b", forward=f"return {returned}", derive=True
    )
    assert found.failure is not None and not found.conditions
    assert found.failure.hint == "return the tensors alone, without the None"
