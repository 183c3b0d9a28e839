# mypy: ignore-errors
"""Triton kernels of the custom operator fused_quantize.

Forward, of each row::

    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-8) / (2 ** (bits - 1) - 1)
    output = x + (torch.round(x / scale) * scale - x).detach()
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


@triton.jit
def _nan_max(one, two):
    return tl.maximum(one, two, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _divide(x, y, dtype: tl.constexpr):
    # as PyTorch does; / of float32 is not rounded to the nearest
    return x / y if dtype == tl.float64 else tl.div_rn(x, y)


@triton.jit
def _round(x):
    # a half goes to the even number
    floored = tl.floor(x)
    rest = x - floored
    odd = floored - 2.0 * tl.floor(0.5 * floored)
    return floored + tl.where(rest == 0.5, odd, tl.where(rest > 0.5, 1.0, 0.0))


@triton.jit(do_not_specialize=["rows"])
def forward_kernel(
    x_ptr,
    x_stride,
    output_ptr,
    rows,
    D,
    BITS: tl.constexpr,
    DTYPE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows) & (cols < D)
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(DTYPE)

    magnitude = tl.abs(x)
    row_max = tl.reduce(magnitude, axis=1, combine_fn=_nan_max, keep_dims=True)
    scale = _divide(
        tl.maximum(row_max, 1e-08, propagate_nan=tl.PropagateNan.ALL),
        2 ** (BITS - 1) - 1,
        DTYPE,
    )
    output = _round(_divide(x, scale, DTYPE)) * scale
    tl.store(output_ptr + row * D + cols, output, mask=mask)


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


@torch.library.custom_op("custom_ops::fused_quantize_forward_triton", mutates_args=())
def fused_quantize_forward(x: Tensor, bits: int, dtype: torch.dtype) -> Tensor:
    """Launch the kernel on rows of unit last stride; its outputs are contiguous."""
    D = x.shape[-1]
    rows = x.numel() // D
    tile = blocks(D)
    programs = triton.cdiv(rows, tile["ROWS"])
    compute_dtype = precision(x)
    output = torch.empty(x.shape, dtype=dtype, device=x.device)
    x_rows = as_rows(x)
    with torch.cuda.device_of(x):
        forward_kernel[(programs,)](
            x_rows,
            x_rows.stride(0),
            output,
            rows,
            D,
            BITS=bits,
            DTYPE=PRECISION[compute_dtype],
            **tile,
        )
    return output


@fused_quantize_forward.register_fake
def _(x, bits, dtype):
    return torch.empty(x.shape, dtype=dtype, device=x.device)


def as_more_rows(op: Any, info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
    """Call an op once for a batch, as more rows."""
    given = [*args]
    for at, (arg, dim) in enumerate(zip(args, in_dims, strict=True)):
        if dim is not None:
            given[at] = arg.movedim(dim, 0)
    return op(*given), 0


fused_quantize_forward.register_vmap(partial(as_more_rows, fused_quantize_forward))


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
    why = why_not(x)
    if why and not torch.compiler.is_compiling():
        # At the call of fused_quantize, four functions up.
        warnings.warn(f"fused_quantize runs without its kernels: {why}", stacklevel=5)
    return not why


def forward(x: Tensor, bits: int) -> Tensor:
    return fused_quantize_forward(x, bits, x.dtype)
