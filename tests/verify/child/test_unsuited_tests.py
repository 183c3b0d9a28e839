"""What generated tests cannot pass though the op is right is told, and nothing is said of those that pass."""

from pathlib import Path
from typing import Any

import pytest

from tests.derive.building import spec_of
from tests.executed.proving import write_op
from tests.executed.suites import Suites
from tests.sweeps import in_every_run

UNFIT: dict[str, tuple[dict[str, Any], str, str]] = {
    "seeds": (  # other sizes would be other numbers
        {
            "inputs": "pred[2, 3], label[2; const]",
            "forward": "F.cross_entropy(pred, label.long())",
        },
        "test_vmap_of_grad cannot pass: for other numbers the forward raised IndexError",
        "test_vmap_of_grad",
    ),
    "slopes": (
        {"inputs": "x[8], n[8; int]", "forward": "(x / n).masked_select(n > 0).mean()"},
        "the tests' case 'base' cannot pass: the gradient of the forward is not finite there",
        "test_gradients_match_reference[base-clone]",
    ),
    "digits": (
        {"inputs": "x[N], w[N]", "forward": "x * 1e9 + w * 1e-3"},
        "test_gradcheck cannot pass in the tests' case 'base': outputs up to 2e+09 leave no digits",
        "test_gradcheck[base-clone]",
    ),
    "curvature": (  # at 0 the slope is 0
        {"inputs": "x[N]", "forward": "(x * torch.tensor(0.0)).pow(1.5)"},
        "test_gradcheck cannot pass in the tests' case 'base': a second derivative",
        "test_gradcheck[base-clone]",
    ),
    "closed": (
        {
            "inputs": "x[N, D], mask[N, D; bool]",
            "forward": "p = torch.softmax(x.masked_fill(~mask, float('-inf')), -1)\n"
            "return torch.where(p.isnan(), torch.zeros_like(p), p)",
            "save_policy": "recompute",
        },
        "test_gradcheck cannot pass in the tests' case 'closed-mask': a second",
        "test_gradcheck[closed-mask-clone]",
    ),
    "autocast": (  # where the output is in low precision, and x is not
        {
            "inputs": "x[N, D], w[H, D], b[H]?",
            "forward": "x @ w.t() + b",
            "grad": {
                "x": "grad_output @ w",
                "w": "torch.tensordot(grad_output, x, dims=([0], [0]))",
                "b": "grad_output.sum(0)",
            },
        },
        "test_autocast[torch.bfloat16] cannot pass: the op raised RuntimeError: both",
        "test_autocast[torch.bfloat16]",
    ),
    "elements": (
        {"inputs": "x[N], w[D], k: int = 9", "forward": "w[k:] * x.sum()"},
        "test_jacrev cannot pass in the tests' case 'base': every result",
        "test_jacrev",
    ),
    "own": (
        {
            "inputs": "x[N, 4, 3], weight[4]?, bias[4]?",
            "forward": "F.group_norm(x, 2, weight, bias)",
        },
        "PyTorch's own backward raised RuntimeError: tensor does not have a device",
        "test_gradients_match_reference[without-weight-clone]",
    ),
}


def told(name: str, directory: Path) -> None:
    """The proof fails, and says which test it is."""
    raw, words, _ = UNFIT[name]
    found = write_op(directory, lambda said: spec_of(name=name, derive=True, **raw))
    wanted = "give the tests inputs of your own: --samples '@file.py:function'"
    failure = found["failure"]
    if name == "own":  # that is told alone
        note = found["notes"][-1]
        assert failure is None and note.startswith(words) and note.endswith(wanted)
        return
    assert failure["subject"] == "tests" and failure["words"].startswith(words)
    assert failure["hint"] == wanted


@pytest.mark.parametrize("name", UNFIT)
def test_a_test_that_cannot_pass_is_a_failure(name: str, tmp_path: Path) -> None:
    told(name, tmp_path)


@pytest.mark.parametrize("name", in_every_run(UNFIT, ["digits"]))
def test_a_test_that_is_told_fails(name: str, tmp_path: Path, suites: Suites) -> None:
    told(name, tmp_path)
    failing = UNFIT[name][2]
    report = suites.run(tmp_path, "-k", failing.partition("[")[0])
    assert f"test_{name}::{failing}" in report.named("failed")


def test_nothing_is_said_of_tests_that_pass(tmp_path: Path) -> None:
    raw: dict[str, Any] = {"inputs": "x[N], w[N]", "forward": "x * 1e3 * w"}
    found = write_op(tmp_path, lambda said: spec_of(**raw))
    assert not found["notes"] and found["failure"] is None


def test_rounding_that_is_small_by_luck_is_no_limit(
    tmp_path: Path, suites: Suites
) -> None:
    """Which rows are the largest, a rounding may say, of some numbers."""
    raw: dict[str, Any] = {
        "inputs": "x[T, D], wg[D, E], capacity: int = 2",
        "forward": "G, I = torch.topk(torch.softmax(x @ wg, -1).t(), capacity, -1)\n"
        "rows = (G.unsqueeze(-1) * x[I]).reshape(-1, x.shape[-1])\n"
        "return torch.zeros_like(x).index_add(0, I.reshape(-1), rows)",
    }
    found = write_op(tmp_path, lambda said: spec_of(**raw, derive=True))
    assert not found["notes"]
    assert not suites.run(tmp_path, "-k", "autocast").named("failed")


def test_a_gradient_that_is_off_whatever_the_numbers_is_found(
    tmp_path: Path, suites: Suites
) -> None:
    raw: dict[str, Any] = {"inputs": "x[N, D], w[D]", "forward": "x @ w"}
    write_op(tmp_path, lambda said: spec_of(name="op", derive=True, **raw))
    file = tmp_path / "op.py"
    text = file.read_text()
    assert "return grad_x, grad_w" in text
    file.write_text(text.replace("return grad_x,", "return 1.05 * grad_x,"))
    report = suites.run(tmp_path, "-k", "test_autocast")
    assert "test_op::test_autocast[torch.float16]" in report.named("failed")


def test_what_autograd_makes_no_number_of_may_be_one_here(tmp_path: Path) -> None:
    raw: dict[str, Any] = {"inputs": "x[N]", "forward": "(x.cumsum(0) * 0).pow(1.5)"}
    found = write_op(tmp_path, lambda said: spec_of(**raw))
    assert not found["notes"] and found["failure"] is None


def test_a_case_that_is_not_finite_is_a_failure(tmp_path: Path) -> None:
    """Though others are: of no columns, an empty sum."""
    raw: dict[str, Any] = {
        "inputs": "x[N], s[T]",
        "forward": "for i in range(s.shape[0] - 1):\n    x = x * torch.log(s[i])\nreturn x * 2",
        "derive": True,
    }
    failure = write_op(tmp_path, lambda said: spec_of(**raw))["failure"]
    assert failure["subject"] == "tests"
    assert failure["words"] == "the forward is not finite in the case 'base'"
    assert (
        failure["hint"] == "declare the range of the values in --inputs: 's[...; unit]'"
    )
