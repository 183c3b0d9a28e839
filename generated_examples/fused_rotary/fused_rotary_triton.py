# mypy: ignore-errors
"""Triton kernels of the custom operator fused_rotary.

Forward, of each row::

    first, second = x.chunk(2, dim=-1)
    cos_first = cos.chunk(2, -1)[0]
    cos_second = cos.chunk(2, -1)[1]
    sin_first = sin.chunk(2, -1)[0]
    sin_second = sin.chunk(2, -1)[1]
    output_first = first * cos_first - second * sin_first
    output_second = second * cos_second + first * sin_second

Backward, of each row::

    cos_first = cos.chunk(2, -1)[0]
    cos_second = cos.chunk(2, -1)[1]
    sin_first = sin.chunk(2, -1)[0]
    sin_second = sin.chunk(2, -1)[1]
    grad_first = grad_output_second * sin_second + grad_output_first * cos_first
    grad_second = grad_output_second * cos_second
    grad_second = grad_second - grad_output_first * sin_first
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
MOST_COLUMNS = 65536  # of a block, which holds a row
TILE = 512  # numbers in a block of short rows
MOST_WARPS = 16 if torch.version.hip else 32  # 1,024 threads: a warp of ROCm has 64


@triton.jit(do_not_specialize=["rows"])
def forward_kernel(
    x_ptr,
    x_stride,
    cos_ptr,
    cos_stride,
    sin_ptr,
    sin_stride,
    output_ptr,
    rows,
    half,
    T,
    DTYPE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows) & (cols < half)
    x_row = x_ptr + row * x_stride
    first = tl.load(x_row + cols, mask=mask, other=0.0).to(DTYPE)
    second = tl.load(x_row + half + cols, mask=mask, other=0.0).to(DTYPE)
    cos_row = cos_ptr + (row % T) * cos_stride
    cos_first = tl.load(cos_row + cols, mask=mask, other=0.0).to(DTYPE)
    cos_second = tl.load(cos_row + half + cols, mask=mask, other=0.0).to(DTYPE)
    sin_row = sin_ptr + (row % T) * sin_stride
    sin_first = tl.load(sin_row + cols, mask=mask, other=0.0).to(DTYPE)
    sin_second = tl.load(sin_row + half + cols, mask=mask, other=0.0).to(DTYPE)

    output_first = first * cos_first - second * sin_first
    output_second = second * cos_second + first * sin_second
    tl.store(output_ptr + row * (2 * half) + cols, output_first, mask=mask)
    tl.store(output_ptr + row * (2 * half) + half + cols, output_second, mask=mask)


@triton.jit(do_not_specialize=["rows"])
def backward_kernel(
    grad_output_ptr,
    grad_output_stride,
    cos_ptr,
    cos_stride,
    sin_ptr,
    sin_stride,
    grad_x_ptr,
    rows,
    half,
    T,
    DTYPE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows) & (cols < half)
    grad_output_row = grad_output_ptr + row * grad_output_stride
    grad_output_first = tl.load(grad_output_row + cols, mask=mask, other=0.0).to(DTYPE)
    grad_output_second = tl.load(
        grad_output_row + half + cols, mask=mask, other=0.0
    ).to(DTYPE)
    cos_row = cos_ptr + (row % T) * cos_stride
    cos_first = tl.load(cos_row + cols, mask=mask, other=0.0).to(DTYPE)
    cos_second = tl.load(cos_row + half + cols, mask=mask, other=0.0).to(DTYPE)
    sin_row = sin_ptr + (row % T) * sin_stride
    sin_first = tl.load(sin_row + cols, mask=mask, other=0.0).to(DTYPE)
    sin_second = tl.load(sin_row + half + cols, mask=mask, other=0.0).to(DTYPE)

    grad_first = grad_output_second * sin_second + grad_output_first * cos_first
    grad_second = grad_output_second * cos_second - grad_output_first * sin_first
    tl.store(grad_x_ptr + row * (2 * half) + cols, grad_first, mask=mask)
    tl.store(grad_x_ptr + row * (2 * half) + half + cols, grad_second, mask=mask)


def precision(*tensors: Tensor) -> torch.dtype:
    """Return the dtype to compute in: for half precision it is float32."""
    double = any(tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if double else torch.float32


def blocks(columns: int) -> dict[str, int]:
    """Hold one row in a block, or several that are short."""
    block = triton.next_power_of_2(columns)
    rows = max(TILE // block, 1)
    # 8 numbers a thread of each part, as in Triton's layer norm tutorial; not measured
    warps = min(max(block // 256, 4), MOST_WARPS)
    return {"ROWS": rows, "BLOCK": block, "num_warps": warps}


def as_rows(tensor: Tensor) -> Tensor:
    """View it as rows with unit stride in the last dim; else copy it."""
    rows = tensor.reshape(-1, tensor.shape[-1])
    return rows if rows.stride(-1) == 1 else rows.contiguous()


@torch.library.custom_op("custom_ops::fused_rotary_forward_triton", mutates_args=())
def fused_rotary_forward(
    x: Tensor, cos: Tensor, sin: Tensor, dtype: torch.dtype
) -> Tensor:
    """Launch the kernel on rows of unit last stride; its outputs are contiguous."""
    half = x.shape[-1] // 2
    rows = x.numel() // x.shape[-1]
    T = x.shape[-2]
    tile = blocks(half)
    programs = triton.cdiv(rows, tile["ROWS"])
    compute_dtype = precision(x, cos, sin)
    output = torch.empty(x.shape, dtype=dtype, device=x.device)
    x_rows = as_rows(x)
    cos_rows = as_rows(cos)
    sin_rows = as_rows(sin)
    with torch.cuda.device_of(x):
        forward_kernel[(programs,)](
            x_rows,
            x_rows.stride(0),
            cos_rows,
            cos_rows.stride(0),
            sin_rows,
            sin_rows.stride(0),
            output,
            rows,
            half,
            T,
            DTYPE=PRECISION[compute_dtype],
            **tile,
        )
    return output


@fused_rotary_forward.register_fake
def _(x, cos, sin, dtype):
    return torch.empty(x.shape, dtype=dtype, device=x.device)


@torch.library.custom_op("custom_ops::fused_rotary_backward_triton", mutates_args=())
def fused_rotary_backward(
    grad_output: Tensor, cos: Tensor, sin: Tensor, x_dtype: torch.dtype
) -> Tensor:
    """Launch the kernel on rows of unit last stride; its outputs are contiguous."""
    half = grad_output.shape[-1] // 2
    rows = grad_output.numel() // grad_output.shape[-1]
    T = grad_output.shape[-2]
    tile = blocks(half)
    programs = triton.cdiv(rows, tile["ROWS"])
    compute_dtype = precision(grad_output, cos, sin)
    grad_x = grad_output.new_empty(grad_output.shape, dtype=x_dtype)
    grad_output_rows = as_rows(grad_output)
    cos_rows = as_rows(cos)
    sin_rows = as_rows(sin)
    with torch.cuda.device_of(grad_output):
        backward_kernel[(programs,)](
            grad_output_rows,
            grad_output_rows.stride(0),
            cos_rows,
            cos_rows.stride(0),
            sin_rows,
            sin_rows.stride(0),
            grad_x,
            rows,
            half,
            T,
            DTYPE=PRECISION[compute_dtype],
            **tile,
        )
    return grad_x


@fused_rotary_backward.register_fake
def _(grad_output, cos, sin, x_dtype):
    return grad_output.new_empty(grad_output.shape, dtype=x_dtype)


def each_sample(op: Any, info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
    """Call an op for each sample of a batch, with weights or sums of its own."""
    pairs = [*zip(args, in_dims, strict=True)]
    samples = [
        op(*(arg if dim is None else arg.select(dim, at) for arg, dim in pairs))
        for at in range(info.batch_size)
    ]
    return torch.stack(samples), 0


fused_rotary_forward.register_vmap(partial(each_sample, fused_rotary_forward))
fused_rotary_backward.register_vmap(partial(each_sample, fused_rotary_backward))


def why_not(x: Tensor, cos: Tensor, sin: Tensor) -> str:
    """Return why the kernels cannot run on such inputs, or ""."""
    if x.device.type not in DEVICES:
        return f"x is on {x.device.type}"
    if any(tensor.device != x.device for tensor in (cos, sin)):
        return "the inputs are on several devices"
    if x.dtype not in DTYPES:
        return f"x has dtype {x.dtype}"
    if cos.dtype not in DTYPES:
        return f"cos has dtype {cos.dtype}"
    if sin.dtype not in DTYPES:
        return f"sin has dtype {sin.dtype}"
    if x.shape[-1] // 2 > MOST_COLUMNS:
        return "a row of x is too long for one block"
    return ""


def takes(x: Tensor, cos: Tensor, sin: Tensor) -> bool:
    """Return whether the kernels can run on such inputs; warn if not."""
    if x.numel() == 0:
        return False
    why = why_not(x, cos, sin)
    if why and not torch.compiler.is_compiling():
        # At the call of fused_rotary, four functions up.
        warnings.warn(f"fused_rotary runs without its kernels: {why}", stacklevel=5)
    return not why


def forward(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    dtype = torch.promote_types(torch.promote_types(x.dtype, cos.dtype), sin.dtype)
    return fused_rotary_forward(x, cos, sin, dtype)
