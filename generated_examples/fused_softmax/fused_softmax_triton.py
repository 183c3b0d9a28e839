# mypy: ignore-errors
"""Triton kernels of the custom operator fused_softmax.

Forward, of each row::

    output = torch.softmax(x / temperature, dim=-1)

Backward, of each row::

    inner = (grad_output * output).sum(dim=-1, keepdim=True)
    grad_x = output * (grad_output - inner) / temperature
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
TILE = 1024  # numbers in a block of short rows
MOST_WARPS = 16 if torch.version.hip else 32  # 1,024 threads: a warp of ROCm has 64


@triton.jit(do_not_specialize=["rows"])
def forward_kernel(
    x_ptr,
    x_stride,
    output_ptr,
    rows,
    D,
    temperature,
    DTYPE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows) & (cols < D)
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(DTYPE)

    scores = x / temperature
    row_max = tl.max(tl.where(mask, scores, float("-inf")), axis=1, keep_dims=True)
    exp = tl.exp(scores - row_max)
    total = tl.sum(tl.where(mask, exp, 0.0), axis=1, keep_dims=True)
    output = exp / total
    tl.store(output_ptr + row * D + cols, output, mask=mask)


@triton.jit(do_not_specialize=["rows"])
def backward_kernel(
    grad_output_ptr,
    grad_output_stride,
    output_ptr,
    output_stride,
    grad_x_ptr,
    rows,
    D,
    temperature,
    DTYPE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows) & (cols < D)
    grad_output_row = grad_output_ptr + row * grad_output_stride
    grad_output = tl.load(grad_output_row + cols, mask=mask, other=0.0).to(DTYPE)
    output_row = output_ptr + row * output_stride
    output = tl.load(output_row + cols, mask=mask, other=0.0).to(DTYPE)

    inner = tl.sum(grad_output * output, axis=1, keep_dims=True)
    grad_x = output * (grad_output - inner) / temperature
    tl.store(grad_x_ptr + row * D + cols, grad_x, mask=mask)


def precision(*tensors: Tensor) -> torch.dtype:
    """Return the dtype to compute in: for half precision it is float32."""
    double = any(tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if double else torch.float32


def blocks(columns: int) -> dict[str, int]:
    """Hold one row in a block, or several that are short."""
    block = triton.next_power_of_2(columns)
    rows = max(TILE // block, 1)
    # 16 numbers a thread, as Liger-Kernel has for rows of 8,192; not measured
    warps = min(max(block // 512, 4), MOST_WARPS)
    return {"ROWS": rows, "BLOCK": block, "num_warps": warps}


def as_rows(tensor: Tensor) -> Tensor:
    """View it as rows with unit stride in the last dim; else copy it."""
    rows = tensor.reshape(-1, tensor.shape[-1])
    return rows if rows.stride(-1) == 1 else rows.contiguous()


@torch.library.custom_op("custom_ops::fused_softmax_forward_triton", mutates_args=())
def fused_softmax_forward(x: Tensor, temperature: float, dtype: torch.dtype) -> Tensor:
    """Launch the kernel on rows of unit last stride; its outputs are contiguous."""
    D = x.shape[-1]
    rows = x.numel() // D
    tile = blocks(D)
    programs = triton.cdiv(rows, tile["ROWS"])
    compute_dtype = precision(x)
    if compute_dtype == torch.float64:
        # Triton passes floats as float32: exact constants, but a kernel for each value.
        temperature = tl.constexpr(temperature)
    output = torch.empty(x.shape, dtype=dtype, device=x.device)
    x_rows = as_rows(x)
    with torch.cuda.device_of(x):
        forward_kernel[(programs,)](
            x_rows,
            x_rows.stride(0),
            output,
            rows,
            D,
            temperature,
            DTYPE=PRECISION[compute_dtype],
            **tile,
        )
    return output


@fused_softmax_forward.register_fake
def _(x, temperature, dtype):
    return torch.empty(x.shape, dtype=dtype, device=x.device)


@torch.library.custom_op("custom_ops::fused_softmax_backward_triton", mutates_args=())
def fused_softmax_backward(
    grad_output: Tensor, output: Tensor, temperature: float, x_dtype: torch.dtype
) -> Tensor:
    """Launch the kernel on rows of unit last stride; its outputs are contiguous."""
    D = grad_output.shape[-1]
    rows = grad_output.numel() // D
    tile = blocks(D)
    programs = triton.cdiv(rows, tile["ROWS"])
    compute_dtype = precision(grad_output, output)
    if compute_dtype == torch.float64:
        # Triton passes floats as float32: exact constants, but a kernel for each value.
        temperature = tl.constexpr(temperature)
    grad_x = grad_output.new_empty(grad_output.shape, dtype=x_dtype)
    grad_output_rows = as_rows(grad_output)
    output_rows = as_rows(output)
    with torch.cuda.device_of(grad_output):
        backward_kernel[(programs,)](
            grad_output_rows,
            grad_output_rows.stride(0),
            output_rows,
            output_rows.stride(0),
            grad_x,
            rows,
            D,
            temperature,
            DTYPE=PRECISION[compute_dtype],
            **tile,
        )
    return grad_x


@fused_softmax_backward.register_fake
def _(grad_output, output, temperature, x_dtype):
    return grad_output.new_empty(grad_output.shape, dtype=x_dtype)


def as_more_rows(op: Any, info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
    """Call an op once for a batch, as more rows."""
    given = [*args]
    for at, (arg, dim) in enumerate(zip(args, in_dims, strict=True)):
        if dim is not None:
            given[at] = arg.movedim(dim, 0)
        elif isinstance(arg, Tensor):
            given[at] = arg.expand(info.batch_size, *arg.shape)
    return op(*given), 0


fused_softmax_forward.register_vmap(partial(as_more_rows, fused_softmax_forward))
fused_softmax_backward.register_vmap(partial(as_more_rows, fused_softmax_backward))


def why_not(x: Tensor) -> str:
    """Return why the kernels cannot run on such inputs, or ""."""
    if x.device.type not in DEVICES:
        return f"x is on {x.device.type}"
    if x.dtype not in DTYPES:
        return f"x has dtype {x.dtype}"
    if x.shape[-1] > MOST_COLUMNS:
        return "a row of x is too long for one block"
    return ""


def takes(x: Tensor) -> bool:
    """Return whether the kernels can run on such inputs; warn if not."""
    if x.numel() == 0:
        return False
    # Under autocast on a CPU PyTorch returns float32 from other functions.
    if x.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        return False
    why = why_not(x)
    if why and not torch.compiler.is_compiling():
        # At the call of fused_softmax, four functions up.
        warnings.warn(f"fused_softmax runs without its kernels: {why}", stacklevel=5)
    return not why


def forward(x: Tensor, temperature: float) -> Tensor:
    dtype = x.dtype
    # Under autocast PyTorch returns float32 here.
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.promote_types(dtype, torch.float32)
    return fused_softmax_forward(x, temperature, dtype)
