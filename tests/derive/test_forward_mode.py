"""The tangent of every rule: an op of one call, with a jvp, on the rule's samples, against dual numbers of plain PyTorch."""

import re
from collections.abc import Collection
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from scaffold.derive import derive
from scaffold.derive.rules.table import Rule
from tests.derive.building import draft_of, load, spec_of
from tests.derive.checking import with_needs
from tests.derive.rules.test_table import halved
from tests.derive.rules.test_table_ops import BY_NAME, COMPLEX, REAL, Op, eager, kind
from tests.derive.rules.test_table_ops import ops as ops_of
from tests.sweeps import in_every_run, one_of_each

# PyTorch has no forward mode of these, nor a second derivative.
NO_REFERENCE = {
    *("embedding_bag", "multi_margin_loss", "cdist", "cdist_any"),
    *("fake_quantize", "grid_sample", "zeta", "gammainc", "gammaincc"),
    "cholesky_inverse",  # its own is another than its differences
}
# What they give may be the argument as it is, which has no jvp.
MAY_BE_ITS_ARGUMENT = {
    *("resolve_conj", "atleast_1d", "atleast_2d"),
}
# What PyTorch says where it has no forward mode, or fails itself: of a view of what is not laid out in rows.
ITS_FAULT = ("Trying to use forward AD with", "!this_view_meta->has_fw_view()")
LEFT_OUT = NO_REFERENCE | MAY_BE_ITS_ARGUMENT
CALLED = "its gradient is differentiated"


def pushed(function: Any, values: list[Any], tangents: list[Any]) -> list[Any]:
    """The tangents of the outputs."""
    with forward_ad.dual_level():
        duals = [
            value if tangent is None else forward_ad.make_dual(value, tangent)  # type: ignore[no-untyped-call]
            for value, tangent in zip(values, tangents, strict=True)
        ]
        outputs = function(*duals)
        several = outputs if isinstance(outputs, tuple) else (outputs,)
        return [
            forward_ad.unpack_dual(output).tangent  # type: ignore[no-untyped-call]
            for output in several
            if isinstance(output, Tensor)
        ]


def directions(
    rule: Rule, values: dict[str, Any], wanted: Collection[str]
) -> list[Any]:
    """A tangent for each value that may have one."""
    torch.manual_seed(0)
    found = []
    for name, value in values.items():
        plain = isinstance(value, Tensor) and (
            value.is_floating_point() or value.is_complex()
        )
        asked = plain and name in wanted
        found.append(halved(rule, name, torch.randn_like(value)) if asked else None)
    return found


def check(op: Op, rule: Rule) -> str:
    """Compare the tangents of an op of one call; its text."""
    spec = spec_of(op.inputs, forward=op.forward, outputs=op.outputs, forward_ad=True)
    text = draft_of(spec, derive(spec))
    wrapper = load(text).some_op
    if rule.undifferentiated:
        needs = [item.is_floating_point() for item in op.values]
        given = with_needs(op.values, needs)
        ways = {"check_forward_ad": True, "check_backward_ad": False}
        assert torch.autograd.gradcheck(wrapper, given, **ways)
        return text
    names = [item.name for item in spec.inputs]
    wanted = {item.name for item in spec.differentiable}
    tangents = directions(rule, dict(zip(names, op.values, strict=True)), wanted)
    call = re.sub(r"^.* = (.*)\n.*", r"\1", op.forward)

    def plain(*values: Any) -> Any:
        return eager(call, dict(zip(names, values, strict=True)))

    try:
        expected = pushed(plain, op.values, tangents)
        got = pushed(wrapper, op.values, tangents)
    except RuntimeError as error:
        if str(error).startswith(ITS_FAULT):
            return text
        raise
    for one, two in zip(got, expected, strict=True):
        if two is None:
            assert one is None or not one.any()
        else:
            torch.testing.assert_close(one, two)
    return text


@pytest.mark.parametrize(
    "name",
    in_every_run(
        [name for name in REAL if name not in LEFT_OUT],
        one_of_each(
            [name for name in REAL if name not in LEFT_OUT],
            lambda name: kind(BY_NAME[name])[:2],
        ),
    ),
)
def test_the_tangent_of_one_call(name: str) -> None:
    for op in ops_of(BY_NAME[name], torch.double, True):
        check(op, BY_NAME[name])


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "rule",
    [rule for rule in COMPLEX if rule.name not in LEFT_OUT],
    ids=lambda rule: str(rule.name),
)
def test_the_tangent_of_one_call_on_complex_values(rule: Rule) -> None:
    for op in ops_of(rule, torch.cdouble, True):
        check(op, rule)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("matmul", "tangent_x @ y + x @ tangent_y"),
        ("softmax", "output * (tangent_x - "),
        ("amax", ".sum("),
        ("sin", "tangent_x * torch.cos(x)"),
        ("cross_entropy", "F.nll_loss(tangent_input - inner, target"),
        ("sort", "tangent_x.gather("),
    ],
)
def test_what_a_section_says_is_written(name: str, line: str) -> None:
    rule = BY_NAME[name]
    texts = [check(op, rule) for op in ops_of(rule, torch.double, True)]
    assert any(line in text for text in texts)
    assert not any(CALLED in text for text in texts)


def test_a_call_that_nothing_is_known_of() -> None:
    rule = BY_NAME["cumprod"]
    texts = [check(op, rule) for op in ops_of(rule, torch.double, True)]
    assert all(CALLED in text for text in texts)
