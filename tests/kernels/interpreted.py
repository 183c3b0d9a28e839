"""The kernels of all ops in Triton's interpreter, against autograd of their forwards in float64; run in a process of its own.

In: a directory with the modules of the ops, which the test has written. Out: a line of JSON for each op: how many calls ran, and what
went wrong.
"""

import importlib
import itertools
import json
import math
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from scaffold.spec import OpSpec
from tests.kernels.ops import OPS, FusedOp

LEADS = (((1,), False), ((7,), False), ((2, 3), True))  # whether with strides
SIZES = (1, 3, 17, 64)  # of 3 a program has two rows
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 3e-2}


def main() -> None:
    """Ask every op."""
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    sys.path.insert(0, sys.argv[1])
    for name, op in OPS.items():
        # Several rows in a block, and several blocks for a program.
        module = importlib.import_module(f"{name}_triton")
        vars(module).update(TILE=8, programs_of=lambda *_: 2)
        told: dict[str, Any] = {"name": name, "calls": 0, "wrong": []}
        for words in asked(name, op):
            told["calls"] += 1
            told["wrong"] += filter(None, [words])
        print(json.dumps(told), flush=True)
    beside = [*out_of_range(), *unwanted(), *mixed(), *not_a_number()]
    print(json.dumps({"name": "beside", "wrong": beside}))


def out_of_range() -> Iterator[str]:
    """What is wrong of targets that are no class: NaN stands for the error that PyTorch raises, in their rows alone."""
    for name in {"cross_entropy", "smoothed"} & OPS.keys():
        module = importlib.import_module(name)
        function, reference = vars(module)[name], plain(OPS[name])
        logits = torch.randn(4, 17, dtype=torch.float64, requires_grad=True)
        rest = [0.1] * (name == "smoothed")
        right, bad = torch.tensor([0, 16, 5, 8]), torch.tensor([0, 17, -5, 8])
        outputs = function(logits, bad, *rest), reference(logits, right, *rest)
        grads = [torch.autograd.grad(x.sum(), logits)[0] for x in outputs]
        for ours, true in (outputs, grads):
            if not ours[1:3].isnan().all():
                yield f"{name}: {ours[1:3]} of no class"
            if not torch.allclose(ours[[0, 3]], true[[0, 3]]):
                yield f"{name}: the rows beside are wrong"


def unwanted() -> Iterator[str]:
    """What is allocated for a gradient that nobody wants."""
    for name in {"rms_norm"} & OPS.keys():
        module = importlib.import_module(name)
        backward = vars(vars(module)[f"{name}_triton"])[f"{name}_backward"]
        x, weight, inv_rms = torch.randn(3, 17), torch.randn(17), torch.ones(3)
        for wanted in ((True, False), (False, True)):
            found = backward(x, x, weight, inv_rms, *wanted)
            if tuple(grad.numel() > 0 for grad in found) != wanted:
                yield f"{name}: {[grad.shape for grad in found]} for {wanted}"


def not_a_number() -> Iterator[str]:
    """What is wrong of the largest number of a row with two NaN: the gradient is that of the first."""
    for name in {"gated_maximum"} & OPS.keys():
        function, reference = vars(importlib.import_module(name))[name], plain(
            OPS[name]
        )
        x, w = torch.randn(2, 3, 17, dtype=torch.float64)
        x[1, [5, 9]] = math.nan
        x.requires_grad_()
        found = [
            torch.autograd.grad(f(x, w), x, torch.ones(3).double())[0]
            for f in (function, reference)
        ]
        if not torch.equal(*found) or not found[0][1, 5]:
            yield f"{name}: {found[0]} with NaN in a row, not {found[1]}"


def mixed() -> Iterator[str]:
    """What is wrong of the dtypes that the backward op returns, before autograd casts them."""
    for name in {"layer_norm", "softmax", "rotary_positions"} & OPS.keys():
        module = importlib.import_module(name)
        kernels, found = vars(module)[f"{name}_triton"], list[Any]()
        backward = vars(kernels)[f"{name}_backward"]

        def recorded(*args: Any, found: Any = found, backward: Any = backward) -> Any:
            grads = backward(*args)
            found += grads if isinstance(grads, tuple) else (grads,)
            return grads

        setattr(kernels, f"{name}_backward", recorded)
        for first, rest in itertools.permutations((torch.bfloat16, torch.float32), 2):
            made = (x for x in OPS[name].make((7,), 16) if isinstance(x, Tensor))
            inputs = [
                x.to(rest if at else first).requires_grad_()
                for at, x in enumerate(made)
            ]
            found.clear()
            vars(module)[name](*inputs).float().sum().backward()
            dtypes = [grad.dtype for grad in found]
            if dtypes != [x.dtype for x in inputs]:
                yield f"{name}: gradients of {dtypes} for x of {first}, others of {rest}"


def asked(name: str, op: FusedOp) -> Iterator[str]:
    """What is wrong of each call; "" where nothing is."""
    module = importlib.import_module(name)
    kernels = vars(module)[f"{name}_triton"]
    reference = plain(op)
    for (lead, strided), size, dtype in itertools.product(LEADS, SIZES, TOLERANCE):
        torch.manual_seed(0)
        inputs = [laid(x, dtype, strided) for x in op.make(lead, size)]
        title = f"{lead} rows of {size}, {dtype}{', strided' * strided}"
        given = inputs[: len(op.spec(name).tensors)]
        if kernels.why_not(*given):
            yield f"{title}: {kernels.why_not(*given)}"
            continue
        every, *alone = subsets(op.spec(name), inputs)
        # Which gradients are wanted does not depend on the dtype: one is enough.
        for needs in (every, *alone) if dtype == torch.float64 else (every,):
            yield from differing(title, module, name, reference, inputs, needs)


def plain(op: FusedOp) -> Any:
    """The forward as a function of PyTorch's."""
    names = [item.name for item in op.spec("op").inputs]
    body = op.forward if "return" in op.forward else f"return {op.forward}"
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    scope: dict[str, Any] = {"torch": torch, "F": F}
    exec(f"def forward({', '.join(names)}):\n{lines}", scope)  # noqa: S102
    return scope["forward"]


def laid(value: Any, dtype: torch.dtype, strided: bool) -> Any:
    """A tensor of the dtype, with something between its rows."""
    if not isinstance(value, Tensor) or not value.ndim:
        return value.to(dtype) if isinstance(value, Tensor) else value
    value = value.to(dtype) if value.is_floating_point() else value
    return torch.cat([value, value], -1)[..., : value.shape[-1]] if strided else value


def subsets(spec: OpSpec, inputs: list[Any]) -> list[tuple[int, ...]]:
    """Each input that may need a gradient alone, and all of them."""
    active = {item.name for item in spec.differentiable}
    real = [
        at
        for at, item in enumerate(spec.inputs)
        if item.name in active and inputs[at] is not None
    ]
    return [*dict.fromkeys([tuple(real), *((at,) for at in real)])]


def differing(
    title: str,
    module: Any,
    name: str,
    reference: Any,
    inputs: list[Any],
    needs: tuple[int, ...],
) -> Iterator[str]:
    """Compare the output and the gradients, also those that are recorded, which the formula gives."""
    leaves = [
        x.detach().requires_grad_(at in needs) if isinstance(x, Tensor) else x
        for at, x in enumerate(inputs)
    ]
    wide = [
        (
            x.detach().double().requires_grad_(at in needs)
            if isinstance(x, Tensor) and x.is_floating_point()
            else x
        )
        for at, x in enumerate(inputs)
    ]
    function = vars(module)[name]
    output, expected = function(*leaves), reference(*wide)
    weights = torch.randn(expected.shape, dtype=torch.float64).to(output.dtype)
    exact = torch.autograd.grad(expected, [wide[at] for at in needs], weights.double())
    wanted = [leaves[at] for at in needs]
    once = torch.autograd.grad(output, wanted, weights)
    twice = torch.autograd.grad(function(*leaves), wanted, weights, create_graph=True)
    allowed = TOLERANCE[inputs[needs[0]].dtype]
    pairs = [(output, expected), *zip(once, exact, strict=True)]
    if allowed < 1e-3:  # the formula computes in half precision
        pairs += zip(twice, exact, strict=True)
    for at, (ours, true) in enumerate(pairs):
        scale = true.nan_to_num().abs().max().clamp(min=1)
        both = ours.isnan() & true.isnan()  # the deviation of one number
        off = float((ours.double() - true).where(~both, 0).abs().max() / scale)
        same = ours.shape == true.shape and ours.dtype == inputs[needs[0]].dtype
        yield (
            ""
            if same and off <= allowed
            else f"{title}: value {at} is off by {off:.2g}"
        )


if __name__ == "__main__":
    main()
