"""The table of what works with generated ops says what does, and what does not."""

from pathlib import Path

import pytest
import torch

from benchmarks import compatibility
from benchmarks.compatibility import CHECKS, STYLES, printed, rows


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks that take no compiler and no processes."""
    for name in list(CHECKS):
        if any(word in name for word in ("compile", "export", "same", "DDP")):
            monkeypatch.delitem(CHECKS, name)


@pytest.mark.each_commit
@pytest.mark.usefixtures("few")
def test_the_default_style_passes_and_the_others_are_not_for_transforms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refused: dict[str, list[str]] = {}
    table = rows(["linear", "exp_in_place"], STYLES, tmp_path, refused)
    of = {row.name: row for row in table}
    one, two = ["linear"], ["exp_in_place", "linear"]
    assert of["gradcheck, slow"].passed == {
        "setup-context": two,
        "combined": two,
        "library": one,
        "forward-ad": one,
    }
    assert of["vmap"].passed == {
        "setup-context": one,
        "library": one,
        "forward-ad": one,
    }
    assert of["jacfwd, hessian"].passed == {"forward-ad": one}
    assert of["torch.library.opcheck"].passed == {"library": one}
    assert printed(table, [*STYLES], refused) == 0
    said = capsys.readouterr().out
    assert "- vmap, combined: torch.func takes no Function with forward(ctx" in said
    assert "(pytorch#91452). RuntimeError: " in said
    assert "'x' is changed in place: PyTorch computes wrong gradients" in said


@pytest.mark.each_commit
@pytest.mark.parametrize("style", ["setup-context", "library"])
def test_two_processes_have_one_gradient(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, style: str
) -> None:
    name = "DDP over gloo, two processes"
    monkeypatch.setattr(compatibility, "CHECKS", {name: CHECKS[name]})
    (row,) = rows(["linear"], [style], tmp_path, {})
    assert row.passed == {style: ["linear"]}


@pytest.mark.each_commit
@pytest.mark.usefixtures("few")
def test_a_wrong_gradient_is_a_failure(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It has no reason, and an op written by hand has none."""
    monkeypatch.setattr(torch, "tensordot", lambda *_, **__: torch.ones(4, 3).double())
    table = rows(["linear"], ["setup-context"], tmp_path, {})
    (slow,) = (row for row in table if row.name == "gradcheck, slow")
    assert slow.passed == {}
    assert slow.below("setup-context") == ["linear"]
    assert printed([slow], ["setup-context"], {}) == 2
    assert "NO REASON KNOWN" in capsys.readouterr().out
