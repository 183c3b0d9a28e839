# mypy: ignore-errors
"""Triton kernels of the custom operator fused_cross_entropy.

Forward, of each row::

    log_probs = torch.log_softmax(logits, dim=-1)
    kept = target != ignore_index
    index = torch.where(kept, target, 0).unsqueeze(-1)
    nll = -log_probs.gather(-1, index).squeeze(-1)
    loss = (1 - smoothing) * nll - smoothing * log_probs.mean(-1)
    output = torch.where(kept, loss, 0.0)

Backward, of each row, with lse saved by the forward::

    kept = target != ignore_index
    index = torch.where(kept, target, 0).unsqueeze(-1)
    onehot = torch.zeros_like(logits).scatter(-1, index, 1)
    grad_logits = torch.where(
        kept,
        grad_output
        * (torch.exp(logits - lse) - smoothing / V - (1 - smoothing) * onehot),
        0.0,
    )
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
INDICES = (torch.int32, torch.int64)
MOST_COLUMNS = 65536  # of a block, which holds a row
TILE = 1024  # numbers in a block of short rows
MOST_WARPS = 16 if torch.version.hip else 32  # 1,024 threads: a warp of ROCm has 64


@triton.jit(do_not_specialize=["rows"])
def forward_kernel(
    logits_ptr,
    logits_stride,
    target_ptr,
    output_ptr,
    lse_ptr,
    rows,
    V,
    smoothing,
    one_minus_smoothing,
    IGNORE_INDEX: tl.constexpr,
    DTYPE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows) & (cols < V)
    target = tl.load(target_ptr + row, mask=row < rows, other=0)
    kept = target != IGNORE_INDEX
    logits_row = logits_ptr + row * logits_stride
    logits = tl.load(logits_row + cols, mask=mask & kept, other=0.0).to(DTYPE)

    row_max = tl.max(tl.where(mask, logits, float("-inf")), axis=1, keep_dims=True)
    exp = tl.exp(logits - row_max)
    lse = row_max + tl.log(tl.sum(tl.where(mask, exp, 0.0), axis=1, keep_dims=True))
    in_range = (target >= 0) & (target < V)
    # NaN stands for PyTorch's error of an index out of range.
    picked = tl.load(
        logits_row + target, mask=(row < rows) & in_range, other=float("nan")
    ).to(DTYPE)
    nll = lse - picked
    mean = tl.sum(logits, axis=1, keep_dims=True) / V
    loss = one_minus_smoothing * nll - smoothing * (mean - lse)
    output = tl.where(kept, loss, 0.0)
    tl.store(output_ptr + row, output, mask=row < rows)
    tl.store(lse_ptr + row, lse, mask=row < rows)


@triton.jit(do_not_specialize=["rows"])
def backward_kernel(
    grad_output_ptr,
    logits_ptr,
    logits_stride,
    target_ptr,
    lse_ptr,
    grad_logits_ptr,
    rows,
    V,
    one_minus_smoothing,
    smoothing_over_V,
    IGNORE_INDEX: tl.constexpr,
    DTYPE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows) & (cols < V)
    grad_output = tl.load(grad_output_ptr + row, mask=row < rows, other=0.0).to(DTYPE)
    target = tl.load(target_ptr + row, mask=row < rows, other=0)
    lse = tl.load(lse_ptr + row, mask=row < rows, other=0.0).to(DTYPE)
    kept = target != IGNORE_INDEX
    logits_row = logits_ptr + row * logits_stride
    logits = tl.load(logits_row + cols, mask=mask & kept, other=0.0).to(DTYPE)

    in_range = (target >= 0) & (target < V)
    # NaN stands for PyTorch's error of an index out of range.
    onehot = tl.where(in_range, (cols == target).to(DTYPE), float("nan"))
    grad_logits = grad_output * (
        tl.exp(logits - lse) - smoothing_over_V - one_minus_smoothing * onehot
    )
    tl.store(
        grad_logits_ptr + row * V + cols, tl.where(kept, grad_logits, 0.0), mask=mask
    )


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


@torch.library.custom_op(
    "custom_ops::fused_cross_entropy_forward_triton", mutates_args=()
)
def fused_cross_entropy_forward(
    logits: Tensor,
    target: Tensor,
    smoothing: float,
    ignore_index: int,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Launch the kernel on rows of unit last stride; its outputs are contiguous."""
    V = logits.shape[-1]
    rows = logits.numel() // V
    tile = blocks(V)
    programs = triton.cdiv(rows, tile["ROWS"])
    compute_dtype = precision(logits)
    if compute_dtype == torch.float64:
        # Triton passes floats as float32: exact constants, but a kernel for each value.
        smoothing = tl.constexpr(smoothing)
    output = torch.empty(logits.shape[:-1], dtype=dtype, device=logits.device)
    lse = logits.new_empty(logits.shape[:-1], dtype=compute_dtype)
    logits_rows = as_rows(logits)
    with torch.cuda.device_of(logits):
        forward_kernel[(programs,)](
            logits_rows,
            logits_rows.stride(0),
            target.contiguous(),
            output,
            lse,
            rows,
            V,
            smoothing,
            1 - smoothing,
            IGNORE_INDEX=ignore_index,
            DTYPE=PRECISION[compute_dtype],
            **tile,
        )
    return output, lse


@fused_cross_entropy_forward.register_fake
def _(logits, target, smoothing, ignore_index, dtype):
    compute_dtype = precision(logits)
    return (
        torch.empty(logits.shape[:-1], dtype=dtype, device=logits.device),
        logits.new_empty(logits.shape[:-1], dtype=compute_dtype),
    )


@torch.library.custom_op(
    "custom_ops::fused_cross_entropy_backward_triton", mutates_args=()
)
def fused_cross_entropy_backward(
    grad_output: Tensor,
    logits: Tensor,
    target: Tensor,
    lse: Tensor,
    smoothing: float,
    ignore_index: int,
) -> Tensor:
    """Launch the kernel on rows of unit last stride; its outputs are contiguous."""
    V = logits.shape[-1]
    rows = logits.numel() // V
    tile = blocks(V)
    programs = triton.cdiv(rows, tile["ROWS"])
    compute_dtype = precision(grad_output, logits)
    if compute_dtype == torch.float64:
        # Triton passes floats as float32: exact constants, but a kernel for each value.
        smoothing = tl.constexpr(smoothing)
    grad_logits = logits.new_empty(logits.shape)
    logits_rows = as_rows(logits)
    with torch.cuda.device_of(grad_output):
        backward_kernel[(programs,)](
            grad_output.contiguous(),
            logits_rows,
            logits_rows.stride(0),
            target.contiguous(),
            lse.contiguous(),
            grad_logits,
            rows,
            V,
            1 - smoothing,
            smoothing / V,
            IGNORE_INDEX=ignore_index,
            DTYPE=PRECISION[compute_dtype],
            **tile,
        )
    return grad_logits


@fused_cross_entropy_backward.register_fake
def _(grad_output, logits, target, lse, smoothing, ignore_index):
    return logits.new_empty(logits.shape)


def as_more_rows(op: Any, info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
    """Call an op once for a batch, as more rows."""
    given = [*args]
    for at, (arg, dim) in enumerate(zip(args, in_dims, strict=True)):
        if dim is not None:
            given[at] = arg.movedim(dim, 0)
        elif isinstance(arg, Tensor):
            given[at] = arg.expand(info.batch_size, *arg.shape)
    outputs = op(*given)
    if isinstance(outputs, Tensor):
        return outputs, 0
    return outputs, (0,) * len(outputs)


fused_cross_entropy_forward.register_vmap(
    partial(as_more_rows, fused_cross_entropy_forward)
)
fused_cross_entropy_backward.register_vmap(
    partial(as_more_rows, fused_cross_entropy_backward)
)


def why_not(logits: Tensor, target: Tensor) -> str:
    """Return why the kernels cannot run on such inputs, or ""."""
    if logits.device.type not in DEVICES:
        return f"logits is on {logits.device.type}"
    if target.device != logits.device:
        return "the inputs are on several devices"
    if logits.dtype not in DTYPES:
        return f"logits has dtype {logits.dtype}"
    if target.dtype not in INDICES:
        return f"target has dtype {target.dtype}"
    if logits.shape[-1] > MOST_COLUMNS:
        return "a row of logits is too long for one block"
    return ""


def takes(logits: Tensor, target: Tensor) -> bool:
    """Return whether the kernels can run on such inputs; warn if not."""
    if logits.numel() == 0:
        return False
    # Under autocast on a CPU PyTorch returns float32 from other functions.
    if logits.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        return False
    why = why_not(logits, target)
    if why and not torch.compiler.is_compiling():
        # At the call of fused_cross_entropy, four functions up.
        warnings.warn(
            f"fused_cross_entropy runs without its kernels: {why}", stacklevel=5
        )
    return not why


def forward(
    logits: Tensor, target: Tensor, smoothing: float, ignore_index: int
) -> tuple[Tensor, Tensor]:
    dtype = logits.dtype
    # Under autocast PyTorch returns float32 here.
    if torch.is_autocast_enabled(logits.device.type):
        dtype = torch.promote_types(dtype, torch.float32)
    return fused_cross_entropy_forward(logits, target, smoothing, ignore_index, dtype)
