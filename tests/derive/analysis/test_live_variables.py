"""Forwards that refuse to run with something: derived as if they did not, and they still refuse."""

from itertools import cycle, product
from typing import Any

import pytest
import torch
from torch import Tensor

from scaffold.derive import derive
from scaffold.render.reference import reference_lines
from scaffold.render.testlimits import is_its_derivative
from tests.derive.building import draft_of, load, reference, spec_of
from tests.derive.checking import check_needs, is_once
from tests.sweeps import pairs_in_every_run

INPUTS = "x[N, D], y[N, D], weight[D]?, mode: str = 'mean', p: float = 2.0"
MODES = """
loss = (x - y) ** 2
if mode == 'none':
    loss = loss * y
elif mode == 'mean':
    loss = loss.mean()
elif mode == 'sum':
    loss = loss.sum()
else:
    raise NotImplementedError(f"Invalid mode: {mode}")
return loss
"""
DERIVED = {
    "an assert": "assert x.shape == y.shape and p > 0, 'no match'\nreturn x * y",
    "the last of several modes": MODES,
    "a raise in the middle": """
if weight is None:
    h = x.exp()
elif mode == 'none':
    raise ValueError('no weight for none')
else:
    h = x * weight
return h * y
""",
    "before anything else": """
if not isinstance(x, torch.Tensor):
    raise TypeError(f"Input type is not a torch.Tensor. Got {type(x).__name__}")
if not x.dim() == 2 or x.size(1) != y.size(1):
    raise ValueError(f"got {tuple(x.shape)!r} and {y.shape}")
return x.tanh() * y
""",
    "with returns": """
if mode == 'none':
    return x * y
if mode == 'mean':
    return (x * y).mean(1, keepdim=True)
raise ValueError(mode)
""",
    "where nothing is returned": """
if mode == 'none':
    return x * y
elif mode in ('mean', 'sum'):
    return (x * y).sum(1, keepdim=True)
""",
    "of an input that has to be there": "if weight is None:\n    raise ValueError\nreturn x * weight + y",
    "asserted to be there": "assert weight is not None\nreturn x * weight + y",
    "a value that only the check reads": "total = x.shape[0] + 1\nassert total > 0, total\nreturn x * y",
    "of a local that comes again": """
h = x.sigmoid()
if mode == 'mean':
    h = h * y
else:
    raise ValueError(f'unknown {mode}')
assert h.dim() == 2
return h * h.cos()
""",
}
REFUSED: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "an assert": ({"p": -1.0}, AssertionError),
    "the last of several modes": ({"mode": "max"}, NotImplementedError),
    "a raise in the middle": ({"mode": "none"}, ValueError),
    "with returns": ({"mode": "max"}, ValueError),
    "where nothing is returned": ({"mode": "max"}, ValueError),
    "of an input that has to be there": ({"weight": None}, ValueError),
    "asserted to be there": ({"weight": None}, AssertionError),
    "of a local that comes again": ({"mode": "none"}, ValueError),
}


def made(forward: str, policy: str = "recompute") -> tuple[Any, Any, str]:
    options: dict[str, Any] = {"forward": forward, "save_policy": policy}
    spec = spec_of(INPUTS, derive=True, **options)
    derivation = derive(spec)
    assert not derivation.missing, derivation.notes
    plain = load(draft_of(spec_of(INPUTS, forward=forward, derive=False)))
    text = draft_of(spec, derivation)
    return load(text), plain.SomeOpFunction.forward, text


POLICIES = ("recompute", "balanced")
RUNS = [*product(DERIVED, POLICIES)]
IN_TURN = [*zip(DERIVED, cycle(POLICIES), strict=False)]


def values(**other: Any) -> tuple[Any, ...]:
    torch.manual_seed(3)
    x, y = torch.randn(2, 3, 4, dtype=torch.double)
    known = {"x": x, "y": y, "weight": x[0] + 1, "mode": "mean", "p": 2.0} | other
    return tuple(known.values())


@pytest.mark.parametrize(
    ("name", "policy"), pairs_in_every_run(RUNS, IN_TURN, pytest.mark.each_commit)
)
def test_the_gradient_is_that_of_autograd(name: str, policy: str) -> None:
    forward = DERIVED[name]
    module, plain, text = made(forward, policy)
    assert "torch.func.vjp" not in text
    given = values()
    for needs in ((True,) * 3, (True, False, False), (False, True, True)):
        check_needs(
            *(module.SomeOpFunction, module.some_op, plain, given),
            *((*needs, False, False), is_once(text), False),
        )


@pytest.mark.parametrize("name", REFUSED)
def test_the_forward_still_refuses(name: str) -> None:
    other, error = REFUSED[name]
    module, _, text = made(DERIVED[name])
    with pytest.raises(error):
        module.some_op(*values(**other))
    backward = text[text.index("def backward") : text.index("def some_op")]
    raised = [line for line in backward.splitlines() if "raise " in line]
    assert all("must be real" in line for line in raised)
    assert "assert " not in backward


def test_a_check_of_the_data_is_no_step_of_vmap() -> None:
    derivation = derive(spec_of("x[N]", forward="assert (x > 0).all()\nreturn x.log()"))
    assert not derivation.transforms and not derivation.compiles


def test_a_number_read_out_of_a_tensor_is_a_constant() -> None:
    forward = "scale = x.detach().abs().max().item()\nreturn x * scale * y"
    module, plain, text = made(forward)
    assert "torch.func.vjp" in text and "generate_vmap_rule" not in text
    given = values()
    needs = (True, True, False, False, False)
    check_needs(module.SomeOpFunction, module.some_op, plain, given, needs, False, True)


@pytest.mark.parametrize("dtype", [torch.double, torch.float16])
def test_a_dtype_is_fixed_for_a_call(dtype: torch.dtype) -> None:
    forward = "h = x.float() if x.dtype == torch.float16 else x\nreturn h.sin() * y"
    module, _, text = made(forward)
    assert "torch.func.vjp" not in text
    x: Tensor = torch.ones(2, 3, dtype=dtype, requires_grad=True)
    y = torch.full((2, 3), 2.0, dtype=dtype)
    module.some_op(x, y, None, "mean", 2.0).sum().backward()
    assert x.grad is not None and x.grad.dtype == dtype
    torch.testing.assert_close(x.grad, (2 * x.double().cos()).detach().to(dtype))


@pytest.mark.parametrize(
    ("forward", "steady"),
    [
        ("x[x > 0].sum()", False),
        ("m = (x > 0) & ~y.isnan()\nreturn x[m].sum()", False),
        ("m = x > 0\nreturn x.exp()[..., m[0]].sum()", False),
        ("x.masked_select(x > 0).sum()", False),
        ("torch.combinations(x[0]).sum() * y", False),
        ("rows = (x > 0).nonzero()\nreturn x[rows[:, 0], rows[:, 1]].sum()", False),
        ("h = x * y\nh[x > 0] = 0\nreturn h", False),
        ("m = x > 0\nreturn x[:, None][..., 0] * m[:, 1:].sum()", True),
        ("h = x[0] if weight is None else x[1]\nreturn h * (x > 0)[0]", True),
        ("torch.where(x > 0, x, y)[:, [0, 1]]", True),
    ],
)
def test_what_a_mask_selects_has_no_fixed_length(forward: str, steady: bool) -> None:
    derivation = derive(spec_of(INPUTS, forward=forward, derive=True))
    assert derivation.compiles == steady == derivation.transforms


def test_a_number_read_out_is_held_against_autograd() -> None:
    spec = spec_of("x[N, D]", forward="x / x.max().item()", derive=True)
    derivation = derive(spec)
    assert reference_lines(spec, derivation) is not None
    assert not is_its_derivative(spec)


@pytest.mark.parametrize(
    "forward",
    ["torch.clamp(x, *p)", "F.softplus(x, *p)", "x.pow(*p[:1])", "torch.roll(x, *q)"],
)
def test_arguments_under_a_star_are_left_to_autograd(forward: str) -> None:
    inputs = "x[N, D], p: tuple[float, ...], q: tuple[int, ...]"
    text = draft_of(spec_of(inputs, forward=forward, derive=True))
    assert "torch.func.vjp(lambda" in text
    x = torch.rand(2, 3, dtype=torch.double, requires_grad=True)
    module, values = load(text), (x, (0.5, 0.75), (1, 0))
    plain = reference(["x", "p", "q"], forward)(*values)
    found = torch.autograd.grad(module.some_op(*values).sum(), x)
    torch.testing.assert_close(found, torch.autograd.grad(plain.sum(), x))
