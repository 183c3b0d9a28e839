# mypy: ignore-errors
"""Triton kernels of the custom operator fused_layer_norm.

Forward, of each row::

    mean = x.mean(-1, keepdim=True)
    var = x.var(-1, correction=0, keepdim=True)
    rstd = torch.rsqrt(var + eps)
    x_hat = (x - mean) * rstd
    output = x_hat * weight + bias

Backward, of each row, with mean and rstd saved by the forward::

    x_hat = (x - mean) * rstd
    grad_x_hat = grad_output * weight
    inner = (grad_x_hat * x_hat).mean(-1, keepdim=True)
    mean_grad = grad_x_hat.mean(-1, keepdim=True)
    grad_x = rstd * (grad_x_hat - inner * x_hat - mean_grad)
    grad_weight = (grad_output * x_hat).sum_to_size(weight.shape)
    grad_bias = grad_output.sum_to_size(weight.shape)
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
    weight_ptr,
    bias_ptr,
    output_ptr,
    mean_ptr,
    rstd_ptr,
    rows,
    D,
    eps,
    DTYPE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows) & (cols < D)
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(DTYPE)
    weight = tl.load(weight_ptr + cols, mask=cols < D, other=0.0).to(DTYPE)
    bias = tl.load(bias_ptr + cols, mask=cols < D, other=0.0).to(DTYPE)

    mean = tl.sum(x, axis=1, keep_dims=True) / D
    centred = x - mean
    var = tl.sum(tl.where(mask, centred * centred, 0.0), axis=1, keep_dims=True) / D
    rstd = tl.rsqrt(var + eps)
    x_hat = centred * rstd
    output = x_hat * weight + bias
    tl.store(output_ptr + row * D + cols, output, mask=mask)
    tl.store(mean_ptr + row, mean, mask=row < rows)
    tl.store(rstd_ptr + row, rstd, mask=row < rows)


@triton.jit(do_not_specialize=["rows"])
def backward_kernel(
    grad_output_ptr,
    grad_output_stride,
    x_ptr,
    x_stride,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    grad_x_ptr,
    grad_weight_ptr,
    grad_bias_ptr,
    rows,
    D,
    NEEDS_GRAD_X: tl.constexpr,
    NEEDS_GRAD_WEIGHT: tl.constexpr,
    NEEDS_GRAD_BIAS: tl.constexpr,
    DTYPE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)[None, :]
    grad_weight = tl.zeros((ROWS, BLOCK), dtype=DTYPE)
    grad_bias = tl.zeros((ROWS, BLOCK), dtype=DTYPE)
    for start in range(program * ROWS, rows, tl.num_programs(0) * ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        mask = (row < rows) & (cols < D)
        grad_output_row = grad_output_ptr + row * grad_output_stride
        grad_output = tl.load(grad_output_row + cols, mask=mask, other=0.0).to(DTYPE)
        x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(DTYPE)
        mean = tl.load(mean_ptr + row, mask=row < rows, other=0.0).to(DTYPE)
        rstd = tl.load(rstd_ptr + row, mask=row < rows, other=0.0).to(DTYPE)

        centred = x - mean
        x_hat = centred * rstd
        if NEEDS_GRAD_X:
            # loaded each time: kept over the loop, long rows would spill more
            weight = tl.load(weight_ptr + cols, mask=cols < D, other=0.0).to(DTYPE)
            grad_x_hat = grad_output * weight
            inner = tl.sum(grad_x_hat * x_hat, axis=1, keep_dims=True) / D
            mean_grad = tl.sum(grad_x_hat, axis=1, keep_dims=True) / D
            grad_x = rstd * (grad_x_hat - inner * x_hat - mean_grad)
            tl.store(grad_x_ptr + row * D + cols, grad_x, mask=mask)
        if NEEDS_GRAD_WEIGHT:
            grad_weight += grad_output * x_hat
        if NEEDS_GRAD_BIAS:
            grad_bias += grad_output
    if NEEDS_GRAD_WEIGHT:
        grad_weight = tl.sum(grad_weight, axis=0, keep_dims=True)
        tl.store(grad_weight_ptr + program * D + cols, grad_weight, mask=cols < D)
    if NEEDS_GRAD_BIAS:
        grad_bias = tl.sum(grad_bias, axis=0, keep_dims=True)
        tl.store(grad_bias_ptr + program * D + cols, grad_bias, mask=cols < D)


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


def programs_of(rows: int, tile: dict[str, int], device: torch.device) -> int:
    """Give each multiprocessor 16 warps: more programs leave more sums to add up.

    That is one program for rows of 8,192, as in Liger-Kernel; not measured.
    """
    count = 1
    if device.type == "cuda":
        count = torch.cuda.get_device_properties(device).multi_processor_count
    tiles = triton.cdiv(rows, tile["ROWS"])
    return min(tiles, count * max(16 // tile["num_warps"], 1))


@torch.library.custom_op("custom_ops::fused_layer_norm_forward_triton", mutates_args=())
def fused_layer_norm_forward(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Launch the kernel on rows of unit last stride; its outputs are contiguous."""
    D = x.shape[-1]
    rows = x.numel() // D
    tile = blocks(D)
    programs = triton.cdiv(rows, tile["ROWS"])
    compute_dtype = precision(x, weight, bias)
    if compute_dtype == torch.float64:
        # Triton passes floats as float32: exact constants, but a kernel for each value.
        eps = tl.constexpr(eps)
    output = torch.empty(x.shape, dtype=dtype, device=x.device)
    mean = x.new_empty(x.shape[:-1], dtype=compute_dtype)
    rstd = x.new_empty(x.shape[:-1], dtype=compute_dtype)
    x_rows = as_rows(x)
    with torch.cuda.device_of(x):
        forward_kernel[(programs,)](
            x_rows,
            x_rows.stride(0),
            weight.contiguous(),
            bias.contiguous(),
            output,
            mean,
            rstd,
            rows,
            D,
            eps,
            DTYPE=PRECISION[compute_dtype],
            **tile,
        )
    return output, mean, rstd


@fused_layer_norm_forward.register_fake
def _(x, weight, bias, eps, dtype):
    compute_dtype = precision(x, weight, bias)
    return (
        torch.empty(x.shape, dtype=dtype, device=x.device),
        x.new_empty(x.shape[:-1], dtype=compute_dtype),
        x.new_empty(x.shape[:-1], dtype=compute_dtype),
    )


@torch.library.custom_op(
    "custom_ops::fused_layer_norm_backward_triton", mutates_args=()
)
def fused_layer_norm_backward(
    grad_output: Tensor,
    x: Tensor,
    weight: Tensor,
    mean: Tensor,
    rstd: Tensor,
    bias_dtype: torch.dtype,
    needs_grad_x: bool,
    needs_grad_weight: bool,
    needs_grad_bias: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Launch the kernel on rows of unit last stride; its outputs are contiguous.

    Each program writes a row of partial sums, which are added up here.
    """
    D = grad_output.shape[-1]
    rows = grad_output.numel() // D
    tile = blocks(D)
    programs = (
        programs_of(rows, tile, grad_output.device)
        if needs_grad_weight or needs_grad_bias
        else triton.cdiv(rows, tile["ROWS"])
    )
    compute_dtype = precision(grad_output, x, weight)
    grad_x = x.new_empty(x.shape if needs_grad_x else 0)
    grad_weight = grad_output.new_empty(
        (programs, D) if needs_grad_weight else (0, 0), dtype=compute_dtype
    )
    grad_bias = grad_output.new_empty(
        (programs, D) if needs_grad_bias else (0, 0), dtype=compute_dtype
    )
    grad_output_rows = as_rows(grad_output)
    x_rows = as_rows(x)
    with torch.cuda.device_of(grad_output):
        backward_kernel[(programs,)](
            grad_output_rows,
            grad_output_rows.stride(0),
            x_rows,
            x_rows.stride(0),
            weight.contiguous(),
            mean.contiguous(),
            rstd.contiguous(),
            grad_x,
            grad_weight,
            grad_bias,
            rows,
            D,
            NEEDS_GRAD_X=needs_grad_x,
            NEEDS_GRAD_WEIGHT=needs_grad_weight,
            NEEDS_GRAD_BIAS=needs_grad_bias,
            DTYPE=PRECISION[compute_dtype],
            **tile,
        )
    return grad_x, grad_weight.sum(0).to(weight.dtype), grad_bias.sum(0).to(bias_dtype)


@fused_layer_norm_backward.register_fake
def _(
    grad_output,
    x,
    weight,
    mean,
    rstd,
    bias_dtype,
    needs_grad_x,
    needs_grad_weight,
    needs_grad_bias,
):
    return (
        x.new_empty(x.shape if needs_grad_x else 0),
        weight.new_empty(weight.shape if needs_grad_weight else 0),
        grad_output.new_empty(
            (grad_output.shape[-1],) if needs_grad_bias else 0, dtype=bias_dtype
        ),
    )


def each_sample(op: Any, info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
    """Call an op for each sample of a batch, with weights or sums of its own."""
    pairs = [*zip(args, in_dims, strict=True)]
    samples = [
        op(*(arg if dim is None else arg.select(dim, at) for arg, dim in pairs))
        for at in range(info.batch_size)
    ]
    outputs = tuple(map(torch.stack, zip(*samples, strict=True)))
    return outputs, (0,) * len(outputs)


def as_more_rows(
    op: Any, shared: Any, info: Any, in_dims: tuple[Any, ...], *args: Any
) -> Any:
    """Call an op once for a batch, as more rows."""
    if any(in_dims[at] is not None for at in shared):
        return each_sample(op, info, in_dims, *args)
    given = [*args]
    for at, (arg, dim) in enumerate(zip(args, in_dims, strict=True)):
        if dim is not None:
            given[at] = arg.movedim(dim, 0)
    outputs = op(*given)
    return outputs, (0,) * len(outputs)


fused_layer_norm_forward.register_vmap(
    partial(as_more_rows, fused_layer_norm_forward, {1, 2})
)
fused_layer_norm_backward.register_vmap(partial(each_sample, fused_layer_norm_backward))


def why_not(x: Tensor, weight: Tensor, bias: Tensor) -> str:
    """Return why the kernels cannot run on such inputs, or ""."""
    if x.device.type not in DEVICES:
        return f"x is on {x.device.type}"
    if any(tensor.device != x.device for tensor in (weight, bias)):
        return "the inputs are on several devices"
    if x.dtype not in DTYPES:
        return f"x has dtype {x.dtype}"
    if weight.dtype not in DTYPES:
        return f"weight has dtype {weight.dtype}"
    if bias.dtype not in DTYPES:
        return f"bias has dtype {bias.dtype}"
    if x.shape[-1] > MOST_COLUMNS:
        return "a row of x is too long for one block"
    return ""


def takes(x: Tensor, weight: Tensor, bias: Tensor) -> bool:
    """Return whether the kernels can run on such inputs; warn if not."""
    if x.numel() == 0:
        return False
    # Under autocast on a CPU PyTorch returns float32 from other functions.
    if x.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        return False
    why = why_not(x, weight, bias)
    if why and not torch.compiler.is_compiling():
        # At the call of fused_layer_norm, four functions up.
        warnings.warn(f"fused_layer_norm runs without its kernels: {why}", stacklevel=5)
    return not why


def forward(
    x: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    dtype = x.dtype
    # Under autocast PyTorch returns float32 here.
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.promote_types(dtype, torch.float32)
    return fused_layer_norm_forward(x, weight, bias, eps, dtype)
