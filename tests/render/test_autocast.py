"""Generated ops under autocast, beside their forwards there."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from scaffold.spec import OpSpec
from tests.derive.building import draft_of, load, op_text, reference, spec_of

LOW = [torch.bfloat16, torch.float16]
OPS = {
    "linear": ("x[..., K], w[N, K], b[N]?", "x @ w.t() + b"),
    "swiglu": (
        "x[..., D], w1[H, D], w2[H, D], w3[D, H]",
        "(F.silu(x @ w1.t()) * (x @ w2.t())) @ w3.t()",
    ),
    "rms_norm": (
        "x[..., D], w[D]",
        "x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w",
    ),
    "softmax": ("x[..., D]", "torch.softmax(x, -1)"),
    "attention": (
        "q[..., S, D], k[..., T, D], v[..., T, E]",
        "torch.softmax(q @ k.mT, -1) @ v",
    ),
    "cross_entropy": ("x[N, C], target[N; index(C)]", "F.cross_entropy(x, target)"),
}
SIZES = {
    "K": 5,
    "N": 4,
    "D": 6,
    "H": 7,
    "S": 3,
    "T": 5,
    "E": 2,
    "C": 6,
    "B": 2,
    "W": 8,
    "...": 2,
}


def op_and_forward(name: str, **options: Any) -> tuple[OpSpec, Any, Any]:
    """An op as it is generated, and its forward in plain PyTorch."""
    inputs, forward = OPS[name]
    spec = spec_of(inputs, name, forward=forward, **options)
    names = [item.name for item in spec.inputs]
    return spec, getattr(load(draft_of(spec)), name), reference(names, forward)


def values(spec: OpSpec, dtype: torch.dtype) -> list[Tensor]:
    """Inputs that every dtype can represent."""
    torch.manual_seed(0)
    made = []
    for item in spec.tensors:
        sizes = [SIZES[str(dim)] for dim in item.dims or ()]
        if item.dtype == "index":
            made.append(torch.randint(SIZES["C"], sizes))
        elif item.dtype == "int":
            made.append(torch.arange(sizes[0]))
        else:
            x = (torch.randn(sizes) / 2).bfloat16().to(dtype)
            made.append(x.requires_grad_())
    return made


def gradients(output: Tensor, inputs: Sequence[Tensor], penalty: bool) -> list[Tensor]:
    needed = [x for x in inputs if x.requires_grad]
    loss = output.double().square().sum()
    if penalty:
        found = torch.autograd.grad(loss, needed, create_graph=True)
        loss = torch.stack([x.double().square().sum() for x in found]).sum()
    return [*torch.autograd.grad(loss, needed, retain_graph=True)]


def check(
    spec: OpSpec, op: Callable[..., Tensor], forward: Callable[..., Tensor], low: Any
) -> None:
    """The op errs at most twice as much as its forward does, and a few roundings."""
    for dtype in (torch.float32, low):
        exact, inputs = values(spec, torch.double), values(spec, dtype)
        with torch.autocast("cpu", dtype=low):
            actual, plain = op(*inputs), forward(*inputs)
        right = forward(*exact)
        penalties = (False, True) if spec.save_policy == "recompute" else (False,)
        tables = [[actual], [plain], [right]]
        for penalty in penalties:
            tables[0] += gradients(actual, inputs, penalty)
            tables[1] += gradients(plain, inputs, penalty)
            tables[2] += gradients(right, exact, penalty)
        for one, other, truth in zip(*tables, strict=True):
            error = (other.double() - truth).abs().max()
            rounding = 8 * torch.finfo(low).eps * truth.abs().max()
            assert (one.double() - truth).abs().max() <= 2 * error + rounding


@pytest.mark.parametrize("low", LOW, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_it_is_as_exact_as_its_forward(name: str, low: torch.dtype) -> None:
    check(*op_and_forward(name), low)


IMAGES = "x[B, D, H, W], w[N, D, K, K]"
MET = {  # products that meet float32 beside them, as its own list of the CPU has it, or which no autocast casts in a backward
    "masked": ("x[..., K], w[N, K]", "x @ (w * torch.tril(torch.ones(w.shape))).t()"),
    "weighted": ("x[N, K], w[K, H]", "((x > 0).float() * x) @ w"),
    "halved": ("x[N, K], w[K, H], m[K; int]", "(x * (m / m.shape[0])) @ w"),
    "spectrum": ("x[N, K], w[K, H]", "torch.fft.rfft(x @ w).abs()"),
    "middle": ("x[N, K], w[K, H]", "torch.quantile(x @ w, 0.5, dim=-1)"),
    "inverse": ("x[D, D], w[D, D]", "torch.linalg.inv(x) @ w"),
    "least": (
        "x[D, D], w[D, D]",
        "torch.linalg.lstsq(x + 3 * torch.eye(x.shape[0]), w)[0] @ w",
    ),
    "convolved": (IMAGES, "F.conv2d(x, w, padding=2).softmax(1)"),
    "transposed": (IMAGES, "F.conv_transpose2d(F.softmax(x, 1), w.transpose(0, 1))"),
    "padded": (IMAGES, "F.conv2d(F.pad(x, (2, 2, 2, 2), mode='reflect'), w)"),
    "averaged": (
        "x[B, D, H, W, S], w[N, D, T, T, T]",
        "F.adaptive_avg_pool3d(F.conv3d(x, w, padding=2), 2)",
    ),
    "sampled": (f"{IMAGES}, g[B, S, T, E]", "F.grid_sample(F.conv2d(x, w), g)"),
}


@pytest.mark.parametrize(
    ("name", "style"),
    [*((name, "setup-context") for name in MET), ("convolved", "library")],
)
def test_so_it_is_where_float32_meets_a_product(name: str, style: str) -> None:
    inputs, forward = MET[name]
    spec = spec_of(inputs, name, forward=forward, style=style)
    plain = reference([item.name for item in spec.inputs], forward)
    op = getattr(load(draft_of(spec)), name)
    for dtype in (torch.float32, torch.bfloat16):
        given, exact = values(spec, dtype), values(spec, torch.double)
        with torch.autocast("cpu"):
            output = op(*given)
        found = gradients(output, given, penalty=False)
        right = gradients(plain(*exact), exact, penalty=False)
        assert [one.dtype for one in found] == [dtype] * len(found)
        for one, truth in zip(found, right, strict=True):
            assert (one - truth).norm() <= 0.1 * truth.norm() + 0.01


@pytest.mark.parametrize("amp", ["float32", "region"])
@pytest.mark.parametrize("name", ["linear", "rms_norm", "attention"])
def test_so_it_is_with_any_word_that_is_stated(name: str, amp: str) -> None:
    check(*op_and_forward(name, amp=amp), torch.bfloat16)


@pytest.mark.parametrize(
    "options", [{"style": "combined"}, {"save_policy": "balanced"}]
)
@pytest.mark.parametrize("name", OPS)
def test_in_another_style_too(name: str, options: dict[str, str]) -> None:
    check(*op_and_forward(name, **options), torch.bfloat16)


def test_an_optional_tensor_may_be_absent() -> None:
    spec, op, _ = op_and_forward("linear")
    x, w, _ = values(spec, torch.float32)
    with torch.autocast("cpu"):
        output, plain = op(x, w), x @ w.t()
    assert output.dtype == torch.bfloat16
    output.sum().backward()
    assert x.grad is not None and x.grad.dtype == torch.float32
    assert_close(output, plain)


def test_float32_is_float32_on_every_device() -> None:
    """The lists of the CPU lack softmax, which those of CUDA have."""
    _, op, _ = op_and_forward("softmax", amp="float32")
    x = torch.randn(3, 4, dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("cpu"):
        output = op(x)
    assert output.dtype == torch.float32
    output.sum().backward()
    assert x.grad is not None and x.grad.dtype == torch.bfloat16
    assert op(x).dtype == torch.bfloat16  # not under autocast


def test_float32_takes_what_is_no_low_precision_as_it_is() -> None:
    text = op_text("x, i[N; int], b?, *rest", forward="(x @ x + b) * i", amp="float32")
    op = load(text).some_op
    i = torch.arange(2)
    with torch.autocast("cpu"):
        for dtype in (torch.float32, torch.float64, torch.complex64):
            x = torch.randn(2, 2, dtype=dtype)
            assert_close(op(x, i), (x @ x) * i if dtype != torch.float32 else op(x, i))
            assert op(x, i).dtype == dtype
        assert op(x.real.bfloat16(), i, x.real[0].half()).dtype == torch.float32


@pytest.mark.parametrize("low", LOW, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_a_region_gives_what_its_forward_gives(name: str, low: torch.dtype) -> None:
    """The same numbers in the same dtype, of inputs of any; also of complex ones, whose imaginary part stays."""
    spec, op, forward = op_and_forward(name)
    for dtype in (torch.float32, low, torch.float64):
        inputs = values(spec, dtype)
        with torch.autocast("cpu", dtype=low):
            assert_close(op(*inputs), forward(*inputs), rtol=0, atol=0)


def test_complex_inputs_stay_complex() -> None:
    _, op, forward = op_and_forward("linear")
    given = [torch.randn(s, dtype=torch.complex64) for s in ((2, 5), (4, 5), (4,))]
    with torch.autocast("cpu"):
        assert_close(op(*given), forward(*given), rtol=0, atol=0)


def test_weights_are_cast_once_in_a_region() -> None:
    """By autocast's own cache, if the forward calls what uses it."""
    spec = spec_of("x[N, D], w[H, D]", forward="F.linear(x, w)")
    op, x, w = load(draft_of(spec)).some_op, torch.randn(2, 3), torch.randn(4, 3)
    w.requires_grad_()
    with profile(activities=[ProfilerActivity.CPU]) as told, torch.autocast("cpu"):
        for _ in range(10):
            op(x, w)
    casts = sum(event.name == "aten::_to_copy" for event in told.events() or ())
    assert casts == 11  # of each input, and once of the weight


@pytest.mark.parametrize("name", ["linear", "rms_norm", "attention"])
def test_neither_float64_nor_a_nested_region_is_changed(name: str) -> None:
    spec, op, _ = op_and_forward(name)
    for dtype in (torch.float64, torch.float32):
        inputs = values(spec, dtype)
        off = torch.autocast("cpu", enabled=dtype == torch.float64)
        with torch.autocast("cpu"), off:
            output = op(*inputs)
        assert_close(output, op(*inputs), rtol=0, atol=0)
        assert_close(
            gradients(output, inputs, False), gradients(op(*inputs), inputs, False)
        )


def test_the_region_of_the_forward_is_that_of_the_backward() -> None:
    """Its dtype too, and whether it was on, wherever the backward is called."""
    spec, op, _ = op_and_forward("attention")
    inputs = values(spec, torch.float32)
    with torch.autocast("cpu"):
        output = op(*inputs)
    expected = gradients(output, inputs, False)
    with torch.autocast("cpu", dtype=torch.float16):
        assert_close(gradients(output, inputs, False), expected)
    plain = op(*inputs)
    without = gradients(plain, inputs, False)
    with torch.autocast("cpu"):
        assert_close(gradients(plain, inputs, False), without)


@pytest.mark.parametrize("name", OPS)
def test_tensors_without_autocast_are_taken(name: str) -> None:
    spec, op, _ = op_and_forward(name)
    inputs = [
        x.detach().to("meta").requires_grad_(x.requires_grad)
        for x in values(spec, torch.float32)
    ]
    with torch.autocast("cpu"):
        op(*inputs).sum().backward()
    assert all(x.grad is not None for x in inputs if x.requires_grad)


@pytest.mark.parametrize("name", OPS)
def test_no_older_compiler_breaks_the_graph_at_it(name: str) -> None:
    inputs, forward = OPS[name]
    text = op_text(inputs, name=name, forward=forward)
    assert "is_autocast_available" not in text, "Dynamo of PyTorch 2.5 to 2.9"


@pytest.mark.parametrize("names", ["device, dtype", "each, apply"])
def test_names_are_not_taken_twice(names: str) -> None:
    one, two = names.split(", ")
    text = op_text(f"{one}[N, K], {two}[K, M]", forward=f"{one} @ {two}")
    op = load(text).some_op
    x, y = torch.randn(2, 3, requires_grad=True), torch.randn(3, 4)
    with torch.autocast("cpu"):
        op(x, y).sum().backward()
    text = op_text(f"{one}[N, K], {two}[K, M]", forward=f"({one} @ {two}).softmax(-1)")
    with torch.autocast("cpu"):
        load(text).some_op(x, y).sum().backward()


def test_any_number_of_tensors_are_cast() -> None:
    text = op_text("*tensors", forward="torch.stack(tensors).sum(0)", amp="float32")
    op = load(text).some_op
    x = torch.randn(3, dtype=torch.bfloat16, requires_grad=True)
    with torch.autocast("cpu"):
        assert op(x, x).dtype == torch.float32
        with pytest.raises(RuntimeError):
            op()


def test_a_checkpoint_runs_the_region_again() -> None:
    spec, op, _ = op_and_forward("attention")
    inputs = values(spec, torch.float32)
    with torch.autocast("cpu", dtype=torch.float16):
        plain, again = op(*inputs), checkpoint(op, *inputs, use_reentrant=False)
    assert_close(again, plain, rtol=0, atol=0)
    assert_close(gradients(again, inputs, False), gradients(plain, inputs, False))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiler_keeps_the_dtype_of_the_region(backend: str) -> None:
    """Of a region of float16, which is not the default of a CPU."""
    spec, op, _ = op_and_forward("attention")
    compiled: Any = torch.compile(op, fullgraph=True, backend=backend)
    inputs = values(spec, torch.float32)
    with torch.autocast("cpu", dtype=torch.float16):
        actual, expected = compiled(*inputs), op(*inputs)
    found, wanted = (gradients(x, inputs, False) for x in (actual, expected))
    assert_close(found, wanted, rtol=0, atol=0)


def test_autograd_of_a_whole_runs_in_the_dtypes_of_its_forward() -> None:
    """As PyTorch's own backward does; a region around it would compute its products in low precision."""
    inputs, forward = MET["least"]
    spec = spec_of(inputs, forward=forward)
    op = load(draft_of(spec)).some_op
    plain = reference([item.name for item in spec.inputs], forward)
    given = values(spec, torch.float32)
    with torch.autocast("cpu"):
        outputs = op(*given), plain(*given)
    for penalty in (False, True):
        found, wanted = (gradients(output, given, penalty) for output in outputs)
        assert_close(found, wanted, rtol=1e-2, atol=1e-2)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", OPS)
def test_it_compiles_whole(name: str) -> None:
    """With both back ends, with and without autocast."""
    spec, op, _ = op_and_forward(name)
    for backend in ("aot_eager", "inductor"):
        torch.compiler.reset()
        compiled: Any = torch.compile(op, fullgraph=True, backend=backend)
        for enabled in (False, True):
            inputs = values(spec, torch.float32)
            with torch.autocast("cpu", enabled=enabled):
                actual, expected = compiled(*inputs), op(*inputs)
            off = 5e-2 if enabled else 1e-5
            assert_close(actual, expected, rtol=off, atol=off)
            found = gradients(actual, inputs, False)
            wanted = gradients(expected, inputs, False)
            assert_close(found, wanted, rtol=off, atol=off)
