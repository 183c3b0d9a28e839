# mypy: ignore-errors
"""Triton kernels of the custom operator fused_swish.

Forward, element by element::

    output = x * torch.sigmoid(x)

Backward, element by element::

    sigmoid = torch.sigmoid(x)
    grad_x = grad_output * sigmoid * (1 + x * (1 - sigmoid))
"""

import os
import warnings
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

INTERPRETED = os.getenv("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes")
DEVICES = ("cuda", "cpu") if INTERPRETED else ("cuda",)
# The dtypes to compute in, as Triton has them.
PRECISION = {torch.float32: tl.float32, torch.float64: tl.float64}
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
ELEMENTS = 1024  # of a program


@triton.jit
def forward_kernel(
    x_ptr,
    output_ptr,
    size,
    DTYPE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(DTYPE)

    output = x * tl.sigmoid(x)
    tl.store(output_ptr + offsets, output, mask=mask)


@triton.jit
def backward_kernel(
    grad_output_ptr,
    x_ptr,
    grad_x_ptr,
    size,
    DTYPE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    grad_output = tl.load(grad_output_ptr + offsets, mask=mask, other=0.0).to(DTYPE)
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(DTYPE)

    sigmoid = tl.sigmoid(x)
    grad_x = grad_output * sigmoid * (1 + x * (1 - sigmoid))
    tl.store(grad_x_ptr + offsets, grad_x, mask=mask)


def precision(*tensors: Tensor) -> torch.dtype:
    """Return the dtype to compute in: for half precision it is float32."""
    double = any(tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if double else torch.float32


@torch.library.custom_op("custom_ops::fused_swish_forward_triton", mutates_args=())
def fused_swish_forward(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Launch the kernel; its outputs are contiguous."""
    programs = triton.cdiv(x.numel(), ELEMENTS)
    compute_dtype = precision(x)
    output = torch.empty(x.shape, dtype=dtype, device=x.device)
    with torch.cuda.device_of(x):
        forward_kernel[(programs,)](
            x.contiguous(),
            output,
            x.numel(),
            DTYPE=PRECISION[compute_dtype],
            BLOCK=ELEMENTS,
            num_warps=4,
        )
    return output


@fused_swish_forward.register_fake
def _(x, dtype):
    return torch.empty(x.shape, dtype=dtype, device=x.device)


@torch.library.custom_op("custom_ops::fused_swish_backward_triton", mutates_args=())
def fused_swish_backward(grad_output: Tensor, x: Tensor) -> Tensor:
    """Launch the kernel; its outputs are contiguous."""
    programs = triton.cdiv(grad_output.numel(), ELEMENTS)
    compute_dtype = precision(grad_output, x)
    grad_x = x.new_empty(x.shape)
    with torch.cuda.device_of(grad_output):
        backward_kernel[(programs,)](
            grad_output.contiguous(),
            x.contiguous(),
            grad_x,
            grad_output.numel(),
            DTYPE=PRECISION[compute_dtype],
            BLOCK=ELEMENTS,
            num_warps=4,
        )
    return grad_x


@fused_swish_backward.register_fake
def _(grad_output, x):
    return x.new_empty(x.shape)


def as_more_rows(op: Any, info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
    """Call an op once for a batch, as more rows."""
    given = [*args]
    for at, (arg, dim) in enumerate(zip(args, in_dims, strict=True)):
        if dim is not None:
            given[at] = arg.movedim(dim, 0)
        elif isinstance(arg, Tensor):
            given[at] = arg.expand(info.batch_size, *arg.shape)
    return op(*given), 0


fused_swish_forward.register_vmap(partial(as_more_rows, fused_swish_forward))
fused_swish_backward.register_vmap(partial(as_more_rows, fused_swish_backward))


def why_not(x: Tensor) -> str:
    """Return why the kernels cannot run on such inputs, or ""."""
    if x.device.type not in DEVICES:
        return f"x is on {x.device.type}"
    if x.dtype not in DTYPES:
        return f"x has dtype {x.dtype}"
    return ""


def takes(x: Tensor) -> bool:
    """Return whether the kernels can run on such inputs; warn if not."""
    if x.numel() == 0:
        return False
    why = why_not(x)
    if why and not torch.compiler.is_compiling():
        # At the call of fused_swish, four functions up.
        warnings.warn(f"fused_swish runs without its kernels: {why}", stacklevel=5)
    return not why


def forward(x: Tensor) -> Tensor:
    return fused_swish_forward(x, x.dtype)
