"""How exact gradients are for bfloat16 and float16 inputs, without autocast: derived ops beside PyTorch's own fused ones.

In: `python -m benchmarks.low_precision`, in an environment with torch. Out: for each op and dtype the largest relative error of a gradient
(of its norm, against the same op in float64) of the derived op, of the same text differentiated by autograd, and of PyTorch's own op.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.derive.building import draft_of, load, reference, spec_of

DTYPES = (torch.bfloat16, torch.float16)
ATTENTION = "torch.softmax(query @ key.mT / 8, dim=-1) @ value"
GROUP_NORM = """
h = x.reshape(x.shape[0], 4, -1)
mean = h.mean(-1, keepdim=True)
var = (h - mean).square().mean(-1, keepdim=True)
h = ((h - mean) * torch.rsqrt(var + 1e-5)).reshape(x.shape)
return h * weight[:, None] + bias[:, None]
"""
LAYER_NORM = """
mean = x.mean(-1, keepdim=True)
var = (x - mean).square().mean(-1, keepdim=True)
return (x - mean) * torch.rsqrt(var + 1e-5) * weight + bias
"""
RMS_NORM = "x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight"
SWIGLU = "F.silu(x @ gate.t()) * (x @ up.t())"


class Case(NamedTuple):
    """An op as a user writes it, the function of PyTorch's own that computes the same, and the sizes of its inputs."""

    forward: str
    own: Callable[..., Tensor]
    inputs: Mapping[
        str, tuple[int, ...]
    ]  # a name -> the shape; int targets are `target`

    @property
    def declared(self) -> str:
        """What `--inputs` says of them."""
        traits = {"target": "target[N; index(C)]", "logits": "logits[N, C]"}
        return ", ".join(traits.get(name, name) for name in self.inputs)


ROWS = {"x": (64, 256)}
PAIR = {"x": (64, 256), "y": (64, 256)}
AFFINE = {"x": (64, 256), "weight": (256,), "bias": (256,)}
CASES = {
    "rms_norm": Case(RMS_NORM, lambda x, w: F.rms_norm(x, (256,), w, 1e-6), {"x": (64, 256), "weight": (256,)}),
    "layer_norm": Case(LAYER_NORM, lambda x, w, b: F.layer_norm(x, (256,), w, b), AFFINE),
    "group_norm": Case(GROUP_NORM, lambda x, w, b: F.group_norm(x, 4, w, b), {"x": (16, 32, 64), "weight": (32,), "bias": (32,)}),
    "softmax": Case("torch.softmax(x, -1)", lambda x: torch.softmax(x, -1), ROWS),
    "softmax, written out": Case("e = torch.exp(x - x.amax(-1, keepdim=True))\nreturn e / e.sum(-1, keepdim=True)", lambda x: torch.softmax(x, -1), ROWS),
    "log_softmax": Case("torch.log_softmax(x, -1)", lambda x: torch.log_softmax(x, -1), ROWS),
    "cross_entropy": Case("F.cross_entropy(logits, target)", F.cross_entropy, {"logits": (64, 256), "target": (64,)}),
    "cross_entropy, written out": Case("-torch.log_softmax(logits, -1).gather(-1, target.unsqueeze(-1)).mean()", F.cross_entropy, {"logits": (64, 256), "target": (64,)}),
    "gelu": Case("F.gelu(x)", F.gelu, ROWS),
    "gelu, written out": Case("x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))", F.gelu, ROWS),
    "gelu, tanh": Case("F.gelu(x, approximate='tanh')", lambda x: F.gelu(x, approximate="tanh"), ROWS),
    "silu": Case("F.silu(x)", F.silu, ROWS),
    "silu, written out": Case("x * torch.sigmoid(x)", F.silu, ROWS),
    "swiglu": Case(SWIGLU, lambda x, gate, up: F.silu(x @ gate.t()) * (x @ up.t()), {"x": (64, 128), "gate": (96, 128), "up": (96, 128)}),
    "attention": Case(ATTENTION, lambda q, k, v: F.scaled_dot_product_attention(q, k, v), {"query": (4, 64, 64), "key": (4, 64, 64), "value": (4, 64, 64)}),
    "linear": Case("x @ weight.t() + bias", F.linear, {"x": (64, 256), "weight": (128, 256), "bias": (128,)}),
    "mse_loss": Case("(x - y).square().mean()", F.mse_loss, PAIR),
    "smooth_l1_loss": Case("d = (x - y).abs()\nreturn torch.where(d < 1, 0.5 * d * d, d - 0.5).mean()", F.smooth_l1_loss, PAIR),
    "huber_loss": Case("F.huber_loss(x, y)", F.huber_loss, PAIR),
    "logsumexp": Case("torch.logsumexp(x, -1)", lambda x: torch.logsumexp(x, -1), ROWS),
    "logsumexp, written out": Case("m = x.amax(-1, keepdim=True).detach()\nreturn (x - m).exp().sum(-1).log() + m.squeeze(-1)", lambda x: torch.logsumexp(x, -1), ROWS),
    "normalize": Case("x / x.norm(dim=-1, keepdim=True)", lambda x: F.normalize(x, dim=-1), ROWS),
    "cosine_similarity": Case("(x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1))", lambda x, y: F.cosine_similarity(x, y, dim=-1), PAIR),
    "softplus": Case("F.softplus(x)", F.softplus, ROWS),
    "mish": Case("x * torch.tanh(F.softplus(x))", F.mish, ROWS),
    "tanh": Case("torch.tanh(x)", torch.tanh, ROWS),
}  # fmt: skip


class Errors(NamedTuple):
    """The largest relative error of a gradient of each, and whether the derived ones have their inputs' dtypes."""

    case: str
    dtype: str
    derived: float
    written: float  # autograd of the same text
    own: float
    typed: bool

    @property
    def ratio(self) -> float:
        return self.derived / max(self.own, 1e-9)


def derived_op(case: Case, policy: str = "recompute") -> Callable[..., Tensor]:
    """The op as it is generated."""
    table = {"inputs": case.declared, "forward": case.forward, "save-policy": policy}
    op: Callable[..., Tensor] = load(draft_of(spec_of(**table))).some_op
    return op


def inputs_of(case: Case, dtype: torch.dtype) -> list[Tensor]:
    """Random inputs; weights of matrix products are scaled as initialized ones are."""
    torch.manual_seed(0)
    made = []
    for name, shape in case.inputs.items():
        if name == "target":
            made.append(torch.randint(case.inputs["logits"][1], shape))
            continue
        scale = shape[-1] ** -0.5 if name in ("gate", "up") else 1.0
        made.append((torch.randn(shape) * scale).to(dtype))
    return made


def gradients(
    op: Callable[..., Tensor], values: Iterable[Tensor], dtype: torch.dtype
) -> list[Tensor]:
    """The gradients of an op; what comes in is the same random tensor for each."""
    given = [
        value.to(dtype).requires_grad_() if value.is_floating_point() else value
        for value in values
    ]
    output = op(*given)
    torch.manual_seed(1)
    incoming = torch.randn(output.shape).to(torch.bfloat16).to(dtype)
    wanted = [value for value in given if value.requires_grad]
    return list(torch.autograd.grad(output, wanted, incoming.to(output.dtype)))


def _error(found: list[Tensor], exact: list[Tensor]) -> float:
    pairs = zip(found, exact, strict=True)
    return max(float((one.double() - two).norm() / two.norm()) for one, two in pairs)


def measured(
    names: Iterable[str] = CASES, dtypes: Iterable[torch.dtype] = DTYPES
) -> Iterator[Errors]:
    """The errors of each case in each dtype."""
    for name in names:
        case = CASES[name]
        ops = (derived_op(case), reference(case.inputs, case.forward), case.own)
        for dtype in dtypes:
            values = inputs_of(case, dtype)
            exact = gradients(case.own, values, torch.float64)
            every = [gradients(op, values, dtype) for op in ops]
            typed = all(one.dtype == dtype for one in every[0])
            shown = str(dtype).removeprefix("torch.")
            derived, written, own = (_error(one, exact) for one in every)
            yield Errors(name, shown, derived, written, own, typed)


def main() -> None:
    print(
        f"{'op':27} {'dtype':9} {'derived':>9} {'as text':>9} {'own':>9} {'ratio':>6}"
    )
    for found in measured(sys.argv[1:] or CASES):
        mark = "" if found.typed else "  not the inputs' dtype"
        errors = " ".join(f"{error:9.1e}" for error in found[2:5])
        print(
            f"{found.case:27} {found.dtype:9} {errors} {found.ratio:6.2f}{mark}",
            flush=True,
        )


if __name__ == "__main__":
    main()
