# mypy: ignore-errors
"""Triton kernels of the custom operator fused_kl_div.

Forward, element by element::

    output = F.kl_div(input=log_q, target=p, reduction='none').sum() / log_q.shape[0]

Backward, element by element::

    grad_output = grad_output / p.shape[0]
    grad_log_q = -grad_output * p
    grad_p = grad_output * (torch.log(p) - log_q + 1)
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
    log_q_ptr,
    p_ptr,
    output_ptr,
    size,
    DTYPE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    log_q = tl.load(log_q_ptr + offsets, mask=mask, other=0.0).to(DTYPE)
    p = tl.load(p_ptr + offsets, mask=mask, other=0.0).to(DTYPE)

    output = tl.where(p == 0, 0.0, p * tl.log(p)) - p * log_q
    tl.store(output_ptr + tl.program_id(0), tl.sum(tl.where(mask, output, 0.0), axis=0))


@triton.jit
def backward_kernel(
    grad_output_ptr,
    log_q_ptr,
    p_ptr,
    grad_log_q_ptr,
    grad_p_ptr,
    size,
    NEEDS_GRAD_LOG_Q: tl.constexpr,
    NEEDS_GRAD_P: tl.constexpr,
    DTYPE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < size
    grad_output = tl.load(grad_output_ptr)
    p = tl.load(p_ptr + offsets, mask=mask, other=0.0).to(DTYPE)

    if NEEDS_GRAD_LOG_Q:
        grad_log_q = -grad_output * p
        tl.store(grad_log_q_ptr + offsets, grad_log_q, mask=mask)
    if NEEDS_GRAD_P:
        log_q = tl.load(log_q_ptr + offsets, mask=mask, other=0.0).to(DTYPE)
        grad_p = grad_output * (tl.log(p) - log_q + 1)
        tl.store(grad_p_ptr + offsets, grad_p, mask=mask)


def precision(*tensors: Tensor | None) -> torch.dtype:
    """Return the dtype to compute in: for half precision it is float32."""
    double = any(
        tensor.dtype == torch.float64 for tensor in tensors if tensor is not None
    )
    return torch.float64 if double else torch.float32


@torch.library.custom_op("custom_ops::fused_kl_div_forward_triton", mutates_args=())
def fused_kl_div_forward(log_q: Tensor, p: Tensor, dtype: torch.dtype) -> Tensor:
    """Launch the kernel; its outputs are contiguous."""
    programs = triton.cdiv(log_q.numel(), ELEMENTS)
    compute_dtype = precision(log_q, p)
    output = log_q.new_empty(programs, dtype=compute_dtype)
    with torch.cuda.device_of(log_q):
        forward_kernel[(programs,)](
            log_q.contiguous(),
            p.contiguous(),
            output,
            log_q.numel(),
            DTYPE=PRECISION[compute_dtype],
            BLOCK=ELEMENTS,
            num_warps=4,
        )
    return (output.sum() / log_q.shape[0]).to(dtype)


@fused_kl_div_forward.register_fake
def _(log_q, p, dtype):
    return torch.empty((), dtype=dtype, device=log_q.device)


@torch.library.custom_op("custom_ops::fused_kl_div_backward_triton", mutates_args=())
def fused_kl_div_backward(
    grad_output: Tensor,
    log_q: Tensor | None,
    p: Tensor,
    log_q_dtype: torch.dtype,
    needs_grad_log_q: bool,
    needs_grad_p: bool,
) -> tuple[Tensor, Tensor]:
    """Launch the kernel; its outputs are contiguous."""
    programs = triton.cdiv(p.numel(), ELEMENTS)
    compute_dtype = precision(grad_output, log_q, p)
    grad_log_q = p.new_empty(p.shape if needs_grad_log_q else 0, dtype=log_q_dtype)
    grad_p = p.new_empty(p.shape if needs_grad_p else 0)
    grad_output_each = grad_output.to(compute_dtype) / p.shape[0]
    with torch.cuda.device_of(grad_output):
        backward_kernel[(programs,)](
            grad_output_each,
            None if log_q is None else log_q.contiguous(),
            p.contiguous(),
            grad_log_q,
            grad_p,
            p.numel(),
            NEEDS_GRAD_LOG_Q=needs_grad_log_q,
            NEEDS_GRAD_P=needs_grad_p,
            DTYPE=PRECISION[compute_dtype],
            BLOCK=ELEMENTS,
            num_warps=4,
        )
    return grad_log_q, grad_p


@fused_kl_div_backward.register_fake
def _(grad_output, log_q, p, log_q_dtype, needs_grad_log_q, needs_grad_p):
    return (
        p.new_empty(p.shape if needs_grad_log_q else 0, dtype=log_q_dtype),
        p.new_empty(p.shape if needs_grad_p else 0),
    )


def each_sample(op: Any, info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
    """Call an op for each sample of a batch, with weights or sums of its own."""
    pairs = [*zip(args, in_dims, strict=True)]
    samples = [
        op(*(arg if dim is None else arg.select(dim, at) for arg, dim in pairs))
        for at in range(info.batch_size)
    ]
    if isinstance(samples[0], Tensor):
        return torch.stack(samples), 0
    outputs = tuple(map(torch.stack, zip(*samples, strict=True)))
    return outputs, (0,) * len(outputs)


fused_kl_div_forward.register_vmap(partial(each_sample, fused_kl_div_forward))
fused_kl_div_backward.register_vmap(partial(each_sample, fused_kl_div_backward))


def why_not(log_q: Tensor, p: Tensor) -> str:
    """Return why the kernels cannot run on such inputs, or ""."""
    if log_q.device.type not in DEVICES:
        return f"log_q is on {log_q.device.type}"
    if p.device != log_q.device:
        return "the inputs are on several devices"
    if log_q.dtype not in DTYPES:
        return f"log_q has dtype {log_q.dtype}"
    if p.dtype not in DTYPES:
        return f"p has dtype {p.dtype}"
    return ""


def takes(log_q: Tensor, p: Tensor) -> bool:
    """Return whether the kernels can run on such inputs; warn if not."""
    if log_q.numel() == 0:
        return False
    # Under autocast on a CPU PyTorch returns float32 from other functions.
    if log_q.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        return False
    why = why_not(log_q, p)
    if why and not torch.compiler.is_compiling():
        # At the call of fused_kl_div, four functions up.
        warnings.warn(f"fused_kl_div runs without its kernels: {why}", stacklevel=5)
    return not why


def forward(log_q: Tensor, p: Tensor) -> Tensor:
    dtype = torch.promote_types(log_q.dtype, p.dtype)
    # Under autocast PyTorch returns float32 here.
    if torch.is_autocast_enabled(log_q.device.type):
        dtype = torch.promote_types(dtype, torch.float32)
    return fused_kl_div_forward(log_q, p, dtype)
