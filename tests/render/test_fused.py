"""The Function of an op with kernels: its import, its calls, its formula without them."""

import ast
import sys
import warnings
from types import ModuleType

import pytest
import torch

from tests.derive.building import draft_of, spec_of, text_of

NORM = (
    "rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)\nreturn x * rstd * w"
)
SPEC = spec_of(
    "x[..., D], w[D], eps: float = 1e-6", "norm", forward=NORM, kernels=["triton"]
)


def loaded(monkeypatch: pytest.MonkeyPatch, kernels: object) -> ModuleType:
    """Import the op, with a module in the place of its kernels."""
    monkeypatch.setitem(sys.modules, "norm_triton", kernels)
    module = ModuleType("norm")
    exec(draft_of(SPEC), module.__dict__)  # noqa: S102
    return module


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return (
        torch.randn(2, 3, dtype=torch.double, requires_grad=True),
        torch.randn(3, dtype=torch.double, requires_grad=True),
    )


def test_without_triton_a_warning_says_why_and_the_formula_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.warns(UserWarning, match="norm runs without its kernels"):
        module = loaded(monkeypatch, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.autograd.gradcheck(module.norm, inputs())


class Kernels:
    """Kernels to be seen in the result: those of twice the function."""

    def __init__(self, *, taking: bool) -> None:
        self.taking = taking
        self.calls: list[str] = []

    def takes(self, *tensors: torch.Tensor) -> bool:
        return self.taking

    def forward(
        self, x: torch.Tensor, w: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls.append("forward")
        return 2 * x * w, x[..., 0]

    def norm_backward(
        self,
        grad: torch.Tensor,
        x: torch.Tensor,
        w: torch.Tensor,
        rstd: torch.Tensor,
        *needed: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.calls.append("backward")
        self.needed = needed
        return 2 * grad * w, (2 * grad * x).sum(0)


def test_kernels_are_called_unless_the_backward_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernels = Kernels(taking=True)
    module = loaded(monkeypatch, kernels)
    x, w = inputs()
    output = module.norm(x, w)
    assert torch.equal(output, 2 * x * w)
    torch.autograd.grad(output.sum(), (x, w), retain_graph=True)
    assert kernels.calls == ["forward", "backward"]
    torch.autograd.grad(output.sum(), (x, w), create_graph=True)
    assert kernels.calls == ["forward", "backward"]


def test_a_gradient_that_is_not_needed_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = Kernels(taking=True)
    module = loaded(monkeypatch, kernels)
    x, w = inputs()
    seen: list[tuple[object, ...]] = []
    own = module.NormFunction.backward

    def backward(ctx: object, *grads: object) -> object:
        seen.append(own(ctx, *grads))
        return seen[-1]

    module.NormFunction.backward = staticmethod(backward)
    module.norm(x, w.detach()).sum().backward()
    assert [item is None for item in seen[0]] == [False, True, True]
    assert kernels.needed == (True, False)  # nor does the kernel compute it


def test_inputs_that_kernels_do_not_take_run_the_formula(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernels = Kernels(taking=False)
    module = loaded(monkeypatch, kernels)
    assert torch.autograd.gradcheck(module.norm, inputs())
    assert not kernels.calls


def test_an_op_without_kernels_says_nothing_of_them() -> None:
    plain = spec_of("x[..., D], w[D], eps: float = 1e-6", "norm", forward=NORM)
    assert "kernel" not in text_of(plain)
    assert "in_kernels" in text_of(SPEC)


def test_the_backward_kernel_gets_a_saved_output_by_its_name_in_the_function() -> None:
    spec = spec_of(
        "x[..., D], residual[..., D]",
        "op",
        forward="residual = x + residual\nreturn residual * torch.sigmoid(residual), residual",
        outputs="y, new_residual",
        kernels=["triton"],
    )
    names = {
        node.id
        for node in ast.walk(ast.parse(draft_of(spec)))
        if isinstance(node, ast.Name)
    }
    assert "new_residual_2" in names  # what it is called in the backward
    call = draft_of(spec).partition(".op_backward(")[2].partition(")")[0]
    assert "new_residual_2" in call.replace("\n", " ").replace(",", " ").split()
