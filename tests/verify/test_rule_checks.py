"""A table of rules in a process of its own: what is found, and what becomes of a process that gives no answer."""

from pathlib import Path

import pytest

from scaffold.verify import rule_checks
from scaffold.verify.rule_checks import check_rules

TABLE = """\
[square]
call = "torch.square(x)"
category = "elementwise"
grad.x = "FORMULA"
samples = ["x[3, 4]"]
complex = false
"""


def words(formula: str) -> str:
    """What is wrong with a formula of the gradient of `x * x`."""
    found = check_rules([("rules.toml", TABLE.replace("FORMULA", formula))])
    assert found.runs == 1 and not found.died
    return found.problems[0].words if found.problems else ""


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("2 * grad * x", ""),
        ("-2 * grad * x", "wrong sign"),
        ("grad * x", "factor 0.5"),
        ("sum(grad * x)", "differs from autograd's by up to"),
        ("mT(grad * x)", "RuntimeError: "),
    ],
)
def test_what_is_wrong_is_said(formula: str, expected: str) -> None:
    found = words(formula)
    assert found.startswith(expected) and bool(found) == bool(expected)


MASK = """\
[among]
call = "torch.isin(x, y)"
category = "constant"
kind = "bool"
nondiff = ["x", "y"]
samples = ["x[3, 4], y[2]"]
complex = false
"""
TURNED = """\
[turned]
call = "torch.linalg.tensorinv(x)"
category = "linalg"
value = "reshape(inv(flatten(flatten(x, 2), 0, 1)), (*shape(x)[2:], *shape(x)[:2]))"
differentiable = ["x"]
samples = ["x[2, 3, 6, 1]"]
complex = false
"""


@pytest.mark.parametrize("table", [MASK, TURNED], ids=["a mask", "a star"])
def test_what_is_right_has_no_problems(table: str) -> None:
    found = check_rules([("rules.toml", table)])
    assert not found.problems and not found.died


def test_a_process_that_takes_too_long_is_given_up() -> None:
    found = check_rules([("rules.toml", TABLE)], limit=0.01)
    assert found.died == "still running after 0.01 seconds"


def test_a_process_without_an_answer_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = tmp_path / "runner.py"
    runner.write_text("raise SystemExit('no torch today')\n")
    monkeypatch.setattr(rule_checks, "RUNNER", str(runner))
    assert check_rules([("rules.toml", TABLE)]).died == "no torch today"
    runner.write_text("print('[]')\n")
    assert check_rules([("rules.toml", TABLE)]).died == "it ended without an answer"
