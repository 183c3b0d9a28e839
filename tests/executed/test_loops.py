"""Forwards with loops and conditions on data: generated, tested by their own tests, and read by the tools."""

from pathlib import Path

import pytest

from tests.executed.checks import findings_of_black, findings_of_mypy, findings_of_ruff
from tests.executed.generation import new_op
from tests.executed.suites import Suites
from tests.sweeps import in_every_run

OPS = {
    "recurrence": (
        "a[B, T], x[B, T]",
        """
h = torch.zeros_like(x[:, 0])
states = []
for t in range(x.shape[1]):
    h = a[:, t] * h + x[:, t]  # the state
    states.append(h)
return torch.stack(states, 1)
""",
    ),
    "moving_average": (
        "x[B, T], alpha: float = 0.5",
        """
out = torch.empty_like(x)
out[:, 0] = x[:, 0]
for t in range(1, x.size(1)):
    out[:, t] = alpha * x[:, t] + (1 - alpha) * out[:, t - 1].clone()
return out
""",
    ),
    "until_small": (
        "x[N], w[N]",
        """
if x.ndim != 1:
    raise ValueError(f"{x.ndim} dims")
y = x
while y.abs().sum() > 0.5:
    y = y * 0.5
return y * w
""",
    ),
    "clipped": (
        "x[N, D], limit: float = 1.0",
        """
n = x.norm()
if n > limit:
    x = x * (limit / n)
return x * 2
""",
    ),
    "summed": (
        "x[N, D]",
        """
total = 0
for row in x.unbind(0):
    total = total + row
return total
""",
    ),
    "damped": (
        "x[B, T, D], h0[B, D]?, bias[D]?, decay: float = 0.5",
        """
h = h0 if h0 is not None else torch.zeros_like(x[:, 0])
states = []
for t in range(x.shape[1]):
    z = x[:, t] + decay * h
    if bias is not None:
        z = z + bias
    h = torch.tanh(z)
    states.append(h)
return torch.stack(states, 1)
""",
    ),
    "added": ("x[N, K], w[N]", "sum(x[:, k] * w for k in range(x.shape[1]))"),
}

ON_DATA = {"until_small", "clipped"}  # whose steps depend on it


def generate(directory: Path, name: str) -> None:
    inputs, forward = OPS[name]
    new_op(directory, name, "--inputs", inputs, "--forward", forward, "--no-verify")


@pytest.mark.parametrize("name", in_every_run(OPS, ["recurrence", "until_small"]))
def test_their_own_tests_pass(name: str, tmp_path: Path, suites: Suites) -> None:
    generate(tmp_path, name)
    report = suites.run(tmp_path)
    assert set(report.counts) <= {"passed", "skipped"}, report.output
    assert report.counts["passed"] >= 10
    mapped = "test_vmap_of_grad" in (tmp_path / f"test_{name}.py").read_text()
    assert mapped is (name not in ON_DATA)


@pytest.mark.each_commit
def test_tools_have_nothing_to_say(tmp_path: Path, mypy_cache: Path) -> None:
    for name in OPS.keys() - {"summed"}:  # a checker takes its total for a number
        generate(tmp_path, name)
    assert not findings_of_ruff(tmp_path)
    assert not findings_of_black(tmp_path)
    assert not findings_of_mypy(tmp_path, mypy_cache)
