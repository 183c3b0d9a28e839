"""Ops that are hard on the engine, each checked as a whole: forward, gradients, what backward returns, second order."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from scaffold.derive import derive
from scaffold.errors import ScaffoldError
from tests.derive.building import draft_of, importable, load, op_text, spec_of
from tests.derive.checking import check_op, copying

Raw = dict[str, Any]
DROPOUT = """
if training:
    mask = torch.rand_like(x) > p
    y = x * mask / (1 - p)
else:
    y = x
return y
"""
KERNELS = {
    "kernels": {
        "forward": lambda x, w: (x * w, x + w),
        "backward": lambda grad, x, w, total: (grad * w, grad * x),
        "scale": lambda x: x * 2,
    }
}


def rand(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.double)


@dataclass(frozen=True)
class Op:
    """A spec, the function that it should be, and inputs for both."""

    raw: Raw
    reference: Callable[..., Any]
    inputs: Callable[[], list[Any]] = field(default=lambda: [rand(2, 3), rand(2, 3)])
    once: bool = False
    dirty: bool = False


def one() -> list[Any]:
    return [rand(2, 3)]


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    return x * (torch.rand_like(x) > p) / (1 - p) if training else x * 1


def relu_of_sum(x: Tensor, bias: Tensor | None) -> Tensor:
    return torch.relu(x + (1 if bias is None else bias))


OPS: dict[str, Op] = {
    # names
    "an input called output": Op(
        {
            "inputs": "output, target",
            "outputs": "loss",
            "forward": "((output - target) ** 2).mean()",
            "grad": {
                "output": "grad_output * 2 * (output - target) / output.numel()",
                "target": "grad_output * 2 * (target - output) / output.numel()",
            },
        },
        lambda output, target: ((output - target) ** 2).mean(),
    ),
    "an input called output, in a whole backward": Op(
        {
            "inputs": "output, target",
            "outputs": "loss",
            "forward": "output * target",
            "backward": "grad_target = grad_output * output\ngrad_output = grad_output * target",
        },
        lambda output, target: output * target,
    ),
    "an input called outputs": Op(
        {
            "inputs": "x, outputs",
            "outputs": "a, b",
            "forward": "x * outputs, x + outputs",
            "grad": {
                "x": "grad_a * outputs + grad_b",
                "outputs": "grad_a * x + grad_b",
            },
        },
        lambda x, outputs: (x * outputs, x + outputs),
    ),
    "inputs called like words of the generated code": Op(
        {
            "inputs": "inputs, apply",
            "forward": "inputs * apply",
            "grad": {"inputs": "grad_output * apply", "apply": "grad_output * inputs"},
        },
        lambda inputs, apply: inputs * apply,
    ),
    "an attribute called like what is kept of an input": Op(
        {
            "inputs": "x, x_shape: float, has_x: int",
            "forward": "x.sum() * x_shape",
            "grad": {"x": "(grad_output * x_shape + 0 * has_x).expand(x.shape)"},
        },
        lambda x, x_shape, has_x: x.sum() * x_shape,
        lambda: [rand(2, 3), 2.0, 3],
    ),
    "attributes called like what ctx has": Op(
        {
            "inputs": "x, saved_tensors: float, metadata: int, needs_input_grad: float",
            "forward": "x * saved_tensors * metadata * needs_input_grad",
            "grad": {"x": "grad_output * saved_tensors * metadata * needs_input_grad"},
        },
        lambda x, a, b, c: x * a * b * c,
        lambda: [rand(2, 3), 2.0, 3, 4.0],
    ),
    "locals called like gradients": Op(
        {
            "inputs": "x, w",
            "forward": "grad_x = w * 1\ngrad_w = x * 1\nreturn (x * w).sum()",
            "backward": "grad_x = grad_output * grad_x\ngrad_w = grad_output * grad_w",
        },
        lambda x, w: (x * w).sum(),
    ),
    "locals called like gradients, saved": Op(
        {
            "inputs": "x, w",
            "forward": "grad_x = w * 1\ngrad_w = x * 1\nreturn (x * w).sum()",
            "grad": {"x": "grad_output * grad_x", "w": "grad_output * grad_w"},
            "once_differentiable": True,
        },
        lambda x, w: (x * w).sum(),
        once=True,
    ),
    "a local called output that is not the output": Op(
        {
            "inputs": "x, w",
            "forward": "output = x * w\nreturn torch.relu(output)",
            "grad": {
                "x": "grad_output * w * (x * w > 0)",
                "w": "grad_output * x * (x * w > 0)",
            },
        },
        lambda x, w: torch.relu(x * w),
    ),
    "locals called like builtins": Op(
        {
            "inputs": "x",
            "forward": "max = x.max()\nsum = sum([max])\nreturn x - sum",
            "backward": "len = grad_output.sum()\ngrad_x = grad_output - len * (x == x.max()) + 0 * x.ndim",
        },
        lambda x: x - x.max(),
        one,
    ),
    "a local called like an import": Op(
        {
            "inputs": "x",
            "import_": ["kernels:scale"],
            "forward": "scale = scale(x)\nreturn scale",
            "grad": {"x": "grad_output * 2"},
        },
        lambda x: x * 2,
        one,
    ),
    # names assigned again
    "formulas that use a name for different things": Op(
        {
            "inputs": "x, y",
            "forward": "x * 2 * y",
            "grad": {
                "x": "h = grad_output * 2\nh = h * y\nreturn h",
                "y": "h = grad_output * 2\nreturn h * x",
            },
        },
        lambda x, y: x * 2 * y,
    ),
    "a formula that changes what another one has, too": Op(
        {
            "inputs": "x, y",
            "forward": "x * 2 * y",
            "grad": {
                "x": "h = grad_output * 2\nh *= y\nreturn h",
                "y": "h = grad_output * 2\nreturn h * x",
            },
        },
        lambda x, y: x * 2 * y,
    ),
    "a formula that assigns the incoming gradient": Op(
        {
            "inputs": "x, y",
            "forward": "x * 2 * y",
            "grad": {
                "x": "grad_output = grad_output * 2\nreturn grad_output * y",
                "y": "2 * grad_output * x",
            },
        },
        lambda x, y: x * 2 * y,
    ),
    "a formula that assigns a local of the forward": Op(
        {
            "inputs": "x, y",
            "forward": "s = torch.sigmoid(x)\nreturn s * y",
            "grad": {
                "x": "s = s * (1 - s)\nreturn grad_output * s * y",
                "y": "grad_output * s",
            },
        },
        lambda x, y: torch.sigmoid(x) * y,
    ),
    "a backward that assigns an input whose shape it reads": Op(
        {
            "inputs": "x, y",
            "forward": "x * y.sum()",
            "backward": "grad_x = grad_output * y.sum()\nk = (grad_output * x).sum()\n"
            "x = k * 1\ngrad_y = x.expand(y.shape) + 0 * len(x.shape)",
        },
        lambda x, y: x * y.sum(),
        lambda: [rand(2, 3), rand(4)],
    ),
    "a backward that assigns the gradient whose shape the output has": Op(
        {
            "inputs": "x",
            "forward": "x.sum(-1)",
            "backward": "grad_output = grad_output.unsqueeze(-1)\n"
            "grad_x = grad_output.expand(*output.shape, x.shape[-1])",
        },
        lambda x: x.sum(-1),
        one,
    ),
    "attributes assigned again, forward and backward": Op(
        {
            "inputs": "x, p: float",
            "forward": "p *= 2\nreturn x * p",
            "backward": "p *= 2\ngrad_x = grad_output * p",
        },
        lambda x, p: x * p * 2,
        lambda: [rand(2, 3), 2.0],
    ),
    "a local that is an early value of its name": Op(
        {
            "inputs": "x",
            "forward": "h = x.sin()\nc = h.shape[-1]\nk = h * c\nh = x.cos()\nreturn h * k",
            "grad": {"x": "grad_output * (h * x.cos() * c - x.sin() * k)"},
            "once_differentiable": True,
        },
        lambda x: x.cos() * x.sin() * 3,
        one,
        once=True,
    ),
    # optionals
    "an optional with a default that is made": Op(
        {
            "inputs": "x, bias?",
            "forward": "if bias is None:\n    bias = torch.ones_like(x)\nreturn torch.relu(x + bias)",
            "grad": {
                "x": "grad_output * (output > 0)",
                "bias": "grad_output * (output > 0)",
            },
        },
        relu_of_sum,
    ),
    "an optional with a default that is made, absent": Op(
        {
            "inputs": "x, bias?",
            "forward": "if bias is None:\n    bias = torch.ones_like(x)\nreturn torch.relu(x + bias)",
            "grad": {
                "x": "grad_output * (output > 0)",
                "bias": "grad_output * (output > 0)",
            },
        },
        relu_of_sum,
        lambda: [rand(2, 3), None],
    ),
    "an absent optional of which the size is kept": Op(
        {
            "inputs": "x, bias?",
            "forward": "x + bias",
            "grad": {
                "x": "grad_output",
                "bias": "grad_output.sum(0).reshape(len(bias))",
            },
        },
        lambda x, bias: x * 1 if bias is None else x + bias,
        lambda: [rand(2, 3), None],
    ),
    "a conditional that must stay lazy": Op(
        {
            "inputs": "a?, b?, x",
            "forward": "a.exp() + b if a is not None else x * 1",
            "grad": {
                "a": "grad_output * a.exp()",
                "b": "grad_output if a is not None else torch.zeros_like(b)",
                "x": "torch.zeros_like(x) if a is not None else grad_output",
            },
        },
        lambda a, b, x: x * 1,
        lambda: [None, None, rand(2, 3)],
    ),
    "a conditional that reads what it assigns": Op(
        {
            "inputs": "x, flag: bool = True",
            "forward": "h = x * 1\nh = h.exp() * h if flag else h.exp()\nreturn h",
            "grad": {
                "x": "grad_output * x.exp() * (x + 1) if flag else grad_output * x.exp()"
            },
        },
        lambda x, flag: x.exp() * x,
        lambda: [rand(2, 3), True],
    ),
    "eight optionals": Op(
        {
            "inputs": "x, " + ", ".join(f"b{k}?" for k in range(8)),
            "forward": "x + " + " + ".join(f"b{k}" for k in range(8)),
            "grad": {"x": "grad_output"}
            | {f"b{k}": "grad_output.sum(0)" for k in range(8)},
        },
        lambda x, *biases: sum((b for b in biases if b is not None), x),
        lambda: [rand(2, 3), *[rand(3), None] * 4],
    ),
    # what is saved
    "a mask that only training draws": Op(
        {"inputs": "x, p: float, training: bool", "forward": DROPOUT}
        | {"grad": {"x": "grad_output * mask / (1 - p) if training else grad_output"}},
        dropout,
        lambda: [rand(2, 3), 0.3, True],
    ),
    "a mask that evaluation does not draw": Op(
        {"inputs": "x, p: float, training: bool", "forward": DROPOUT}
        | {"grad": {"x": "grad_output * mask / (1 - p) if training else grad_output"}},
        dropout,
        lambda: [rand(2, 3), 0.3, False],
    ),
    "a mask made in steps": Op(
        {
            "inputs": "x, p: float",
            "forward": "mask = torch.rand_like(x)\nmask = (mask > p).to(x.dtype)\n"
            "mask = mask / (1 - p)\nreturn x * mask",
            "grad": {"x": "grad_output * mask"},
        },
        lambda x, p: x * (torch.rand_like(x) > p) / (1 - p),
        lambda: [rand(2, 3), 0.3],
    ),
    "a number of the forward": Op(
        {
            "inputs": "x",
            "forward": "s = math.sqrt(x.shape[-1])\nreturn x / s",
            "grad": {"x": "grad_output / s"},
            "once_differentiable": True,
        },
        lambda x: x / math.sqrt(3),
        one,
        once=True,
    ),
    "a number out of data": Op(
        {
            "inputs": "x",
            "forward": "s = x.sum().item()\nreturn x * s",
            "grad": {"x": "grad_output * s"},
        },
        lambda x: x * x.detach().sum(),
        one,
        once=True,
    ),
    "parts of a tensor": Op(
        {
            "inputs": "x",
            "forward": "parts = x.chunk(2, -1)\nreturn parts[0] * parts[1]",
            "grad": {
                "x": "torch.cat([grad_output * parts[1], grad_output * parts[0]], -1)"
            },
            "once_differentiable": True,
        },
        lambda x: x[:, :2] * x[:, 2:],
        lambda: [rand(2, 4)],
        once=True,
    ),
    "a saved local that may be the output": Op(
        {
            "inputs": "x",
            "forward": "h = x.exp()\ny = h.contiguous()\nreturn y",
            "grad": {"x": "grad_output * h"},
            "once_differentiable": True,
        },
        lambda x: x.exp(),
        one,
        once=True,
    ),
    "a saved local that is a view of the output": Op(
        {
            "inputs": "x",
            "forward": "buf = torch.zeros(2, x.shape[1], dtype=x.dtype)\nrow = buf[0]\n"
            "row += x.sum(0)\nbuf[1] = x.sum(0) * 2\nreturn buf",
            "grad": {
                "x": "(grad_output[0] + 2 * grad_output[1]).expand(x.shape) + 0 * (buf.sum() + row.sum())"
            },
        },
        lambda x: torch.stack([x.sum(0), x.sum(0) * 2]),
        one,
        once=True,
    ),
    "a saved local that may be an input": Op(
        {
            "inputs": "x, p: float",
            "forward": "d = F.dropout(x, p)\nreturn d.exp()",
            "grad": {"x": "grad_output * d.exp()"},
        },
        lambda x, p: x.exp(),
        lambda: [rand(2, 3), 0.0],
        once=True,
    ),
    "an output that may be an input, with both saved": Op(
        {
            "inputs": "x",
            "forward": "x.contiguous()",
            "grad": {"x": "grad_output + 0 * output + 0 * x"},
        },
        lambda x: x * 1,
        one,
    ),
    "one local as two outputs": Op(
        {
            "inputs": "x",
            "outputs": "a, b",
            "forward": "h = x * 2\nreturn h, h",
            "grad": {"x": "2 * grad_a + 2 * grad_b"},
        },
        lambda x: (x * 2, x * 2),
        one,
    ),
    "an input under another name": Op(
        {"inputs": "x", "forward": "y = x\nreturn y", "grad": {"x": "grad_output * 1"}},
        lambda x: x * 1,
        one,
    ),
    "sizes in every spelling": Op(
        {
            "inputs": "x, y",
            "forward": "x.mean() + y.sum()",
            "grad": {
                "x": "(grad_output / x.nelement()).expand_as(x) + torch.zeros_like(x)",
                "y": "grad_output.expand(y.size(0), y.size(dim=-1)).view_as(y) + 0 * (y.dim() + y.ndim + len(y) + y.ndimension() + y.shape.numel())",
            },
        },
        lambda x, y: x.mean() + y.sum(),
    ),
    "a gradient written into zeros": Op(
        {
            "inputs": "x",
            "forward": "x[0] * 2",
            "grad": {"x": "g = torch.zeros_like(x)\ng[0] = grad_output * 2\nreturn g"},
        },
        lambda x: x[0] * 2,
        one,
    ),
    # several outputs
    "an index before the values, None for gradients": Op(
        {
            "inputs": "x",
            "outputs": "indices[...; int], values",
            "forward": "values, indices = torch.sort(x)\nreturn indices, values",
            "grad": {"x": "torch.zeros_like(x).scatter(-1, indices, grad_values)"},
            "materialize_grads": False,
        },
        lambda x: torch.sort(x)[::-1],
        one,
    ),
    "the shape of an index, None for gradients": Op(
        {
            "inputs": "x",
            "outputs": "values, indices[...; int]",
            "forward": "torch.sort(x)",
            "grad": {
                "x": "grad_values.new_zeros(indices.shape).scatter(-1, indices, grad_values)"
            },
            "materialize_grads": False,
        },
        lambda x: tuple(torch.sort(x)),
        one,
    ),
    "outputs with None for gradients, sizes of expressions": Op(
        {
            "inputs": "x, y",
            "outputs": "a, b",
            "forward": "x * y, x + y",
            "grad": {"x": "grad_a * y + grad_b", "y": "grad_a * x + grad_b"},
            "materialize_grads": False,
            "style": "combined",
        },
        lambda x, y: (x * y, x + y),
    ),
    "an output without a gradient": Op(
        {
            "inputs": "x",
            "outputs": "a, b[...; const]",
            "forward": "x * 2, x * 3",
            "grad": {"x": "grad_a * 2"},
        },
        lambda x: (x * 2, (x * 3).detach()),
        one,
    ),
    "any number of outputs": Op(
        {
            "inputs": "x, n: int",
            "outputs": "*chunks",
            "forward": "(x * x).chunk(n)",
            "grad": {"x": "2 * x * torch.cat(grad_chunks) + 0 * torch.cat(chunks)"},
        },
        lambda x, n: (x * x).chunk(n),
        lambda: [rand(4, 3), 2],
    ),
    "any number of outputs, None for gradients": Op(
        {
            "inputs": "x, n: int",
            "outputs": "*chunks",
            "forward": "x.chunk(n)",
            "grad": {"x": "torch.cat(grad_chunks)"},
            "materialize_grads": False,
        },
        lambda x, n: x.chunk(n),
        lambda: [rand(4, 3), 2],
    ),
    "an output and any number more, None for gradients": Op(
        {
            "inputs": "x, n: int",
            "outputs": "total, *chunks",
            "forward": "return x.sum(), *x.chunk(n)",
            "grad": {"x": "torch.cat(grad_chunks) + grad_total"},
            "materialize_grads": False,
        },
        lambda x, n: (x.sum(), *x.chunk(n)),
        lambda: [rand(4, 3), 2],
    ),
    "any number of outputs beside a mask": Op(
        {
            "inputs": "x, n: int",
            "outputs": "*chunks",
            "forward": "mask = torch.rand_like(x) > 0.5\nreturn (x * mask).chunk(n)",
            "grad": {"x": "torch.cat(grad_chunks) * mask"},
            "materialize_grads": False,
        },
        lambda x, n: (x * (torch.rand_like(x) > 0.5)).chunk(n),
        lambda: [rand(4, 3), 2],
    ),
    # any number of inputs
    "any number of inputs, returned as they are": Op(
        {
            "inputs": "*tensors",
            "outputs": "*copies",
            "forward": "tensors",
            "grad": {"tensors": "grad_copies[i]"},
            "materialize_grads": False,
        },
        lambda *tensors: tuple(tensor * 1 for tensor in tensors),
        lambda: [rand(2, 3), rand(3)],
    ),
    "an input called needed beside any number": Op(
        {
            "inputs": "needed, *tensors",
            "forward": "needed * sum(tensors)",
            "grad": {
                "needed": "grad_output * sum(tensors)",
                "tensors": "grad_output * needed",
            },
        },
        lambda needed, *tensors: needed * sum(tensors),
        lambda: [rand(2, 3), rand(2, 3), rand(2, 3)],
    ),
    "sizes of any number of inputs": Op(
        {
            "inputs": "w, *tensors",
            "forward": "w * sum([tensors[0].sum(), tensors[1].sum()])",
            "grad": {
                "w": "grad_output * (tensors[0].sum() + tensors[1].sum())",
                "tensors": "(grad_output * w).sum().expand(tensors[i].shape) + 0 * len(tensors)",
            },
        },
        lambda w, a, b: w * (a.sum() + b.sum()),
        lambda: [rand(2, 3), rand(4), rand(2, 2)],
    ),
    "a whole backward for any number of inputs": Op(
        {
            "inputs": "w, *tensors",
            "forward": "w * sum(tensors)",
            "backward": "grad_w = grad_output * sum(tensors)\ng = grad_output * w\n"
            "grad_tensors = [g] * len(tensors)",
        },
        lambda w, *tensors: w * sum(tensors),
        lambda: [rand(2, 3), rand(2, 3), rand(2, 3)],
    ),
    "an optional factor of any number of inputs": Op(
        {
            "inputs": "w?, *tensors",
            "forward": "sum(tensors) * w",
            "grad": {
                "w": "grad_output * sum(tensors)",
                "tensors": "grad_output.clone() * w + 0 * tensors[i]",
            },
        },
        lambda w, *tensors: sum(tensors),
        lambda: [None, rand(2, 3), rand(2, 3)],
    ),
    # in place, outside of torch
    "an input changed in place, its old value kept": Op(
        {
            "inputs": "x, y",
            "dirty": ["x"],
            "forward": "old = x.clone()\nx.mul_(y)\nreturn x",
            "grad": {"x": "grad_output * y", "y": "grad_output * old"},
        },
        lambda x, y: x * y,
        once=True,
        dirty=True,
    ),
    "kernels over contiguous tensors": Op(
        {
            "inputs": "x, w",
            "import_": ["kernels:forward as run", "kernels:backward"],
            "forward": "x = x.contiguous()\ny, total = run(x, w)\nreturn y",
            "backward": "grad_output = grad_output.contiguous()\n"
            "grad_x, grad_w = backward(grad_output, x, w, total)",
        },
        lambda x, w: x * w,
        once=True,
    ),
    "kernels, combined": Op(
        {
            "inputs": "x, w",
            "import_": ["kernels:forward as run", "kernels:backward"],
            "forward": "y, total = run(x, w)\nreturn y",
            "backward": "grad_x, grad_w = backward(grad_output, x, w, total)",
            "style": "combined",
        },
        lambda x, w: x * w,
        once=True,
    ),
    "an array of NumPy that the backward reads": Op(
        {
            "inputs": "x",
            "import_": ["numpy as np"],
            "forward": "y = np.tanh(x.detach().numpy())\nreturn torch.from_numpy(y)",
            "grad": {"x": "grad_output * (1 - torch.from_numpy(y) ** 2)"},
        },
        lambda x: torch.tanh(x),
        one,
        once=True,
    ),
    "no gradient at all": Op(
        {"inputs": "index[N; int]", "forward": "index.double() * 2"},
        lambda index: index.double() * 2,
        lambda: [torch.arange(3)],
    ),
}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("style", ["setup-context", "combined"])
@pytest.mark.parametrize("name", OPS)
def test_the_op_is_the_function_that_it_should_be(name: str, style: str) -> None:
    op = OPS[name]
    torch.manual_seed(0)
    spec = spec_of(**{"style": style, **op.raw})
    derivation = derive(spec)
    with importable(**KERNELS):
        module = load(draft_of(spec, derivation))
    assert derivation.once_differentiable == op.once
    function, wrapper = module.SomeOpFunction, module.some_op
    check_op(
        function,
        copying(wrapper) if op.dirty else wrapper,
        op.reference,
        op.inputs(),
        once=op.once,
        on_copies=op.dirty,
    )


REFUSED: dict[str, tuple[Raw, str]] = {
    "an alias of an input, in place": (
        {"inputs": "x", "forward": "y = x\ny += 1\nreturn y"},
        "the forward changes its input 'x' in place",
    ),
    "an input by a function, in place": (
        {"inputs": "x", "forward": "torch.exp_(x)"},
        "the forward changes its input 'x' in place",
    ),
    "an input by a keyword, in place": (
        {"inputs": "x", "forward": "F.relu(x, inplace=True)"},
        "the forward changes its input 'x' in place",
    ),
    "an element of an input, in place": (
        {"inputs": "x", "forward": "x[0] += 1\nreturn x"},
        "the forward changes its input 'x' in place",
    ),
    "a view of an input, in place": (
        {"inputs": "x", "forward": "y = x.view(-1)\ny.mul_(2)\nreturn y.view_as(x)"},
        "the forward changes its input 'x' in place",
    ),
    "the incoming gradient, in place": (
        {"inputs": "x", "forward": "x * 2", "grad": {"x": "grad_output.mul_(2)"}},
        "the backward changes 'grad_output' in place, but did not create it",
    ),
    "a saved tensor, in place": (
        {"inputs": "x", "forward": "x * 2", "grad": {"x": "x.mul_(2)"}},
        "the backward changes 'x' in place, but did not create it",
    ),
    "a tensor of two names, in place": (
        {
            "inputs": "x",
            "forward": "x[0] * 2",
            "grad": {
                "x": "g = torch.zeros_like(x)\nrow = g[0]\nrow += grad_output\nreturn g"
            },
        },
        "'row' changes in place while 'g' shares its memory",
    ),
    "a dirty input that the backward reads": (
        {
            "inputs": "x, y",
            "dirty": ["x"],
            "forward": "x.mul_(y)",
            "grad": {"x": "grad_output * y", "y": "grad_output * x"},
        },
        "the backward reads 'x', which the forward has changed in place",
    ),
    "a dirty input that is assigned": (
        {"inputs": "x", "dirty": ["x"], "forward": "x = x * 2\nreturn x"},
        "'x' is declared dirty, but the forward assigns a new tensor to the name",
    ),
    "a name of two things": (
        {
            "inputs": "x",
            "forward": "output = x * 2\nreturn torch.relu(output)",
            "grad": {"x": "grad_output * (output > 0)"},
        },
        "'output' is a local of the forward and the name of an output",
    ),
    "a local called like the incoming gradient, beside one that is stated": (
        {
            "inputs": "x",
            "forward": "grad_output = x * 2\nreturn grad_output",
            "grad": {"x": "2 * grad_output"},
        },
        "the forward assigns 'grad_output', which is the gradient of an output",
    ),
    "a second derivative that would be wrong": (
        {
            "inputs": "x",
            "forward": "h = F.dropout(x)\nreturn h * h",
            "grad": {"x": "2 * grad_output * h"},
            "once_differentiable": False,
        },
        "'h' cannot be recomputed, so it is saved as a constant",
    ),
    "a number that cannot be had again": (
        {
            "inputs": "x",
            "forward": "p = torch.rand(()).item()\nreturn x * p",
            "grad": {"x": "grad_output * p"},
        },
        "the backward needs 'p', which is not a tensor and cannot be recomputed",
    ),
    "two tuples of tensors": (
        {
            "inputs": "*tensors",
            "outputs": "*parts",
            "forward": "tuple(tensors)",
            "grad": {"tensors": "grad_parts[i] * tensors[i] * parts[i]"},
        },
        "the backward reads both 'tensors' and 'parts', each of any number of tensors",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_go_wrong_is_refused(name: str) -> None:
    raw, message = REFUSED[name]
    with pytest.raises(ScaffoldError) as caught:
        op_text(**raw)
    assert caught.value.message == message
    assert caught.value.location is not None
    assert caught.value.location.source.startswith("--")
