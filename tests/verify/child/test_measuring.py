"""One call: its bytes, and when the clock is read."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function

from scaffold.verify.child.measuring import (
    Call,
    TooLargeError,
    refuse_too_large,
    saved_bytes,
)

CHECKS = """
import torch
DIFFERENTIABLE = ("x",)
LOOSE = False
class TESTS:
    random = False
def make(*, needs):
    z = torch.ones(2, 3, dtype=torch.complex128).requires_grad_("x" in needs)
    return z, torch.arange(3), 2.0, None
def several(z, index, factor, nothing):
    return z.abs() * factor, index * 2, torch.view_as_real(z)
"""


def call(**changes: Any) -> Call:
    asked = {
        "op": "",
        "checks": CHECKS,
        "path": (),
        "modules": (),
        "calls": "several",
        "threads": 1,
        "device": "cpu",
        "dtype": "float32",
        "arguments": {},
        "create_graph": False,
        "compiled": False,
    }
    return Call(asked | changes)


class Keeping(Function):
    """Keeps tensors where no hook of saved tensors sees them, and one where it does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.kept = [x.exp(), 3]
        ctx.alone = x.sin()
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


def test_what_waits_on_ctx_is_counted_however_it_is_kept() -> None:
    x = torch.ones(5, requires_grad=True)
    apply: Any = Keeping.apply
    assert saved_bytes(apply, [x]) == 3 * 5 * 4
    assert saved_bytes(lambda x: apply(x).view(1, 5)[:, 1:], [x]) == 3 * 5 * 4
    assert saved_bytes(lambda x: x.detach() * 2, [x]) == 0


def test_inputs_and_outputs_of_several_kinds() -> None:
    made = call(dtype="float64")
    z, index, factor, nothing = made.inputs
    assert (z.dtype, index.dtype, factor, nothing) == (
        *(torch.complex128, torch.long),
        *(2.0, None),
    )
    assert [grad.shape for grad in made.grads] == [(2, 3), (2, 3, 2)]
    assert len(made.described()["figures"]) == 3 + 1  # the outputs and a gradient


def test_another_device_has_finished_before_a_clock_is_read() -> None:
    made = call()
    events: list[str] = []
    held = iter((100, 164))
    made.memory = SimpleNamespace(
        synchronize=lambda: events.append("finished"),
        memory_allocated=lambda device: next(held),
        max_memory_allocated=lambda device: next(held),
        reset_peak_memory_stats=lambda device: events.append("reset"),
    )
    made.clock = lambda: events.append("read") or 0.0  # type: ignore[func-returns-value]
    made.step()
    assert events == ["finished", "read"] * 3
    assert made.described()["peak_bytes"] == 64
    made.memory = SimpleNamespace(synchronize=lambda: None)
    assert made.described()["peak_bytes"] is None


@pytest.mark.parametrize("threads", [1, 2])
def test_the_time_of_one_thread_is_the_processors(threads: int) -> None:
    before = torch.get_num_threads()
    try:
        name = call(threads=threads).clock.__name__
    finally:
        torch.set_num_threads(before)
    assert name == ("process_time" if threads == 1 else "perf_counter")


def test_shapes_that_broadcast_to_far_more_than_the_inputs_are_refused() -> None:
    x, y = torch.ones(512, 768), torch.ones(512, 768)

    def distances(x: Tensor, y: Tensor) -> Tensor:
        return (x.unsqueeze(1) - y).abs().sum(-1)

    with pytest.raises(TooLargeError, match="broadcast to 512x512x768"):
        refuse_too_large(distances, [x, y])
    refuse_too_large(distances, [x[:9], y[:9]])
    refuse_too_large(torch.mul, [x.expand(200, 512, 768), 2.0])  # as large as stated
    refuse_too_large(lambda x: x.tolist(), [x])  # no shape without values
