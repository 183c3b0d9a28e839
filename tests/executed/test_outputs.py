"""Outputs and masks of every kind: the op agrees with autograd, and the tests that are generated pass."""

from pathlib import Path
from typing import Any

import pytest

from tests.derive.building import spec_of
from tests.executed.proving import write_op
from tests.executed.suites import Suites

Raw = dict[str, Any]
OPS: dict[str, Raw] = {
    "an_integer_before_others": {
        "inputs": "x[N]",
        "outputs": "a, i[N; int], s",
        "forward": "return x * 2, x.argsort(), x.sum()",
    },
    "an_integer_first": {
        "inputs": "x[N]",
        "outputs": "i[N; int], a",
        "forward": "return x.argsort(), x * 2",
    },
    "a_bool_last": {
        "inputs": "x[N], y[N]",
        "outputs": "a[N], b[N; bool]",
        "forward": "return x * y, x > y",
    },
    "a_bool_first_and_last": {
        "inputs": "x[N]",
        "outputs": "b[N; bool], a, c[N; bool]",
        "forward": "return x > 0, x * 2, x < 1",
    },
    "detached": {
        "inputs": "x, y",
        "outputs": "a, b",
        "forward": "return x * y, (x - y).detach()",
    },
    "all_detached": {"inputs": "x", "forward": "(x * 3).detach()"},
    "both_detached": {
        "inputs": "x, y",
        "outputs": "a, b",
        "forward": "return (x * 3).detach(), y.detach() * 2",
    },
    "detached_in_a_branch": {
        "inputs": "x, mode: Literal['a', 'b'] = 'a'",
        "outputs": "a, c",
        "forward": "return x * 2, (x * 3).detach() if mode == 'a' else x * 3",
    },
    "sole_and_detached_in_a_branch": {
        "inputs": "x, mode: Literal['a', 'b'] = 'a'",
        "forward": "(x * 3).detach() * 2 if mode == 'a' else x * 3",
    },
    "of_an_absent_input": {
        "inputs": "x, b?",
        "outputs": "a, c",
        "forward": "return x * 2, (b * 2 if b is not None else torch.zeros_like(x))",
    },
    "a_constant": {
        "inputs": "x, y",
        "outputs": "a, b",
        "forward": "return x * y, torch.ones_like(x)",
    },
    "flat": {
        "inputs": "x, y",
        "outputs": "a, b",
        "forward": "return x * y, torch.sign(x)",
    },
    "a_view_of_an_input": {
        "inputs": "x[N, D]",
        "outputs": "a[N, D], b[D, N]",
        "forward": "return x * 2, x.t()",
    },
    "detached_though_stated": {
        "inputs": "x, y",
        "outputs": "a, b",
        "forward": "return x * y, (x - y).detach()",
        "grad": {"x": "grad_a * y + 0 * grad_b", "y": "grad_a * x"},
    },
    "rounded_to_half": {"inputs": "x[N], w[N]", "forward": "(x * w).half()"},
    "one_in_single": {
        "inputs": "x[N], w[N]",
        "outputs": "a[N], b[N]",
        "forward": "return x * w, (x * w).float()",
    },
    "complex_and_real": {
        "inputs": "x[N; complex], w[N]",
        "outputs": "a[N; complex], m[N]",
        "forward": "return x * w, x.abs()",
    },
    "a_loss_of_nothing": {
        "inputs": "pred[N, C], target[N, C; const], beta: float = 0.5",
        "forward": "p = torch.sigmoid(pred)\ntp = (p * target).sum()\n"
        "fp = ((1 - target) * p).sum()\nfn = (target * (1 - p)).sum()\n"
        "return 1 - tp / (tp + (1 - beta) * fp + beta * fn)",
    },
    "a_mean_of_nothing": {"inputs": "x[N, D], y[N, D]", "forward": "F.mse_loss(x, y)"},
    "masked_softmax": {
        "inputs": "x[N, S], mask[N, S; bool]",
        "forward": "torch.softmax(x.masked_fill(~mask, float('-inf')), -1)",
    },
    "masked_softmax_the_other_way": {
        "inputs": "x[B, L, S], pad[B, S; bool]",
        "forward": "torch.softmax(x.masked_fill(pad[:, None], float('-inf')), -1)",
    },
    "masked_mean": {
        "inputs": "x[N, S], mask[N, S; bool]",
        "forward": "(x * mask).sum(-1) / mask.sum(-1)",
    },
    "masked_mean_or_zero": {
        "inputs": "x[B, T, D], mask[B, T; bool]",
        "forward": "(x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)",
    },
    "masked_max": {
        "inputs": "x[N, S], mask[N, S; bool]",
        "forward": "x.masked_fill(~mask, float('-inf')).amax(-1)",
    },
}
WHOLE: dict[str, Raw] = {  # a combined forward cannot hold them
    "detached_by_no_grad": {
        "inputs": "x, y",
        "outputs": "a, b",
        "forward": "with torch.no_grad():\n    d = x - y\nreturn x * y, d",
    },
    "detached_below_a_loop": {
        "inputs": "x, n: int = 3",
        "outputs": "a, b",
        "forward": "h = x\nwhile n > 0:\n    h = h * x\n    n = n - 1\n"
        "return h, h.detach().sum()",
    },
}
STYLES: dict[str, Raw] = {
    "": {},
    "combined": {"style": "combined"},
    "balanced": {"save_policy": "balanced", "style": "setup-context"},
    "combined balanced": {"save_policy": "balanced", "style": "combined"},
}
QUICK = {"an_integer_before_others", "rounded_to_half"}
VARIANTS = [
    pytest.param(
        name,
        style,
        marks=[] if name in QUICK and not style else pytest.mark.exhaustive,
    )
    for name in OPS
    for style in STYLES
] + [pytest.param(name, "", marks=pytest.mark.exhaustive) for name in WHOLE]


@pytest.mark.parametrize(("name", "style"), VARIANTS)
def test_generated_tests_pass(
    name: str, style: str, tmp_path: Path, suites: Suites
) -> None:
    raw = (OPS | WHOLE)[name] | STYLES[style]
    proof = write_op(tmp_path, lambda said: spec_of(name=name, **raw))
    assert not proof["missing"]
    assert not (proof["failure"] or proof["notes"])
    report = suites.run(tmp_path, "--tb=short")
    assert set(report.counts) <= {"passed", "skipped"}, report.output
    assert report.counts["passed"] >= 5


def test_a_mask_is_tried_without_a_true(tmp_path: Path, suites: Suites) -> None:
    raw = OPS["masked_mean_or_zero"]
    write_op(tmp_path, lambda said: spec_of(name="some_op", **raw))
    report = suites.run(tmp_path, "-k", "test_gradcheck")
    assert (
        report.outcomes["test_some_op::test_gradcheck[closed-mask-clone]"] == "passed"
    )


def test_of_what_has_no_value_without_a_true_nothing_is_said(
    tmp_path: Path, suites: Suites
) -> None:
    raw = OPS["masked_mean"]
    write_op(tmp_path, lambda said: spec_of(name="some_op", **raw))
    report = suites.run(tmp_path, "-k", "test_gradcheck")
    assert (
        report.outcomes["test_some_op::test_gradcheck[closed-mask-clone]"] == "skipped"
    )
