# mypy: ignore-errors
"""Triton kernels of the custom operator fused_geglu.

Forward, of each row::

    gate, value = x.chunk(2, dim=-1)
    output = (
        gate
        * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3))
        * value
    )

Backward, of each row::

    gate, value = x.chunk(2, dim=-1)
    total = gate + 0.044715 * gate**3
    sigmoid = torch.sigmoid(2 * math.sqrt(2 / math.pi) * total)
    grad_product = grad_output * value
    grad_preactivation = grad_product * gate * sigmoid * (1 - sigmoid)
    grad_total = 2 * math.sqrt(2 / math.pi) * grad_preactivation
    scaled_grad = grad_preactivation * gate**2
    grad_gate_via_power = 3 * (2 * 0.044715 * math.sqrt(2 / math.pi)) * scaled_grad
    grad_gate = grad_product * sigmoid + grad_total + grad_gate_via_power
    grad_value = grad_output * gate * sigmoid
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
    output_ptr,
    rows,
    half,
    DTYPE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # 1.5957691216057308 stands for 2 * sqrt(2 / pi)
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows) & (cols < half)
    x_row = x_ptr + row * x_stride
    gate = tl.load(x_row + cols, mask=mask, other=0.0).to(DTYPE)
    value = tl.load(x_row + half + cols, mask=mask, other=0.0).to(DTYPE)

    output = (
        gate
        * tl.sigmoid(1.5957691216057308 * (gate + 0.044715 * (gate * gate * gate)))
        * value
    )
    tl.store(output_ptr + row * half + cols, output, mask=mask)


@triton.jit(do_not_specialize=["rows"])
def backward_kernel(
    grad_output_ptr,
    grad_output_stride,
    x_ptr,
    x_stride,
    grad_x_ptr,
    rows,
    half,
    DTYPE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # 1.5957691216057308 stands for 2 * sqrt(2 / pi)
    # 0.21406444881780073 stands for 3 * (2 * 0.044715 * sqrt(2 / pi))
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows) & (cols < half)
    grad_output_row = grad_output_ptr + row * grad_output_stride
    grad_output = tl.load(grad_output_row + cols, mask=mask, other=0.0).to(DTYPE)
    x_row = x_ptr + row * x_stride
    gate = tl.load(x_row + cols, mask=mask, other=0.0).to(DTYPE)
    value = tl.load(x_row + half + cols, mask=mask, other=0.0).to(DTYPE)

    total = gate + 0.044715 * (gate * gate * gate)
    sigmoid = tl.sigmoid(1.5957691216057308 * total)
    grad_product = grad_output * value
    grad_preactivation = grad_product * gate * sigmoid * (1 - sigmoid)
    grad_total = 1.5957691216057308 * grad_preactivation
    scaled_grad = grad_preactivation * (gate * gate)
    grad_gate = grad_product * sigmoid + grad_total + 0.21406444881780073 * scaled_grad
    grad_value = grad_output * gate * sigmoid
    tl.store(grad_x_ptr + row * (2 * half) + cols, grad_gate, mask=mask)
    tl.store(grad_x_ptr + row * (2 * half) + half + cols, grad_value, mask=mask)


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


@torch.library.custom_op("custom_ops::fused_geglu_forward_triton", mutates_args=())
def fused_geglu_forward(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Launch the kernel on rows of unit last stride; its outputs are contiguous."""
    half = x.shape[-1] // 2
    rows = x.numel() // x.shape[-1]
    tile = blocks(half)
    programs = triton.cdiv(rows, tile["ROWS"])
    compute_dtype = precision(x)
    output = torch.empty((*x.shape[:-1], half), dtype=dtype, device=x.device)
    x_rows = as_rows(x)
    with torch.cuda.device_of(x):
        forward_kernel[(programs,)](
            x_rows,
            x_rows.stride(0),
            output,
            rows,
            half,
            DTYPE=PRECISION[compute_dtype],
            **tile,
        )
    return output


@fused_geglu_forward.register_fake
def _(x, dtype):
    return torch.empty((*x.shape[:-1], x.shape[-1] // 2), dtype=dtype, device=x.device)


@torch.library.custom_op("custom_ops::fused_geglu_backward_triton", mutates_args=())
def fused_geglu_backward(grad_output: Tensor, x: Tensor) -> Tensor:
    """Launch the kernel on rows of unit last stride; its outputs are contiguous."""
    half = x.shape[-1] // 2
    rows = x.numel() // x.shape[-1]
    tile = blocks(half)
    programs = triton.cdiv(rows, tile["ROWS"])
    compute_dtype = precision(grad_output, x)
    grad_x = x.new_empty(x.shape)
    grad_output_rows = as_rows(grad_output)
    x_rows = as_rows(x)
    with torch.cuda.device_of(grad_output):
        backward_kernel[(programs,)](
            grad_output_rows,
            grad_output_rows.stride(0),
            x_rows,
            x_rows.stride(0),
            grad_x,
            rows,
            half,
            DTYPE=PRECISION[compute_dtype],
            **tile,
        )
    return grad_x


@fused_geglu_backward.register_fake
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


fused_geglu_forward.register_vmap(partial(as_more_rows, fused_geglu_forward))
fused_geglu_backward.register_vmap(partial(as_more_rows, fused_geglu_backward))


def why_not(x: Tensor) -> str:
    """Return why the kernels cannot run on such inputs, or ""."""
    if x.device.type not in DEVICES:
        return f"x is on {x.device.type}"
    if x.dtype not in DTYPES:
        return f"x has dtype {x.dtype}"
    if x.shape[-1] // 2 > MOST_COLUMNS:
        return "a row of x is too long for one block"
    return ""


def takes(x: Tensor) -> bool:
    """Return whether the kernels can run on such inputs; warn if not."""
    if x.numel() == 0:
        return False
    why = why_not(x)
    if why and not torch.compiler.is_compiling():
        # At the call of fused_geglu, four functions up.
        warnings.warn(f"fused_geglu runs without its kernels: {why}", stacklevel=5)
    return not why


def forward(x: Tensor) -> Tensor:
    return fused_geglu_forward(x, x.dtype)
