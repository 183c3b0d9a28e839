"""The table of what works with generated ops says what does, and what does not."""

from pathlib import Path

import pytest
import torch

from benchmarks.compatibility import CHECKS, STYLES, rows


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks that take no compiler."""
    for name in list(CHECKS):
        if "compile" in name or "export" in name or "same" in name:
            monkeypatch.delitem(CHECKS, name)


@pytest.mark.each_commit
@pytest.mark.usefixtures("few")
def test_the_default_style_passes_and_the_others_are_not_for_transforms(
    tmp_path: Path,
) -> None:
    table = {
        row.name: row for row in rows(["linear", "exp_in_place"], STYLES, tmp_path)
    }
    assert table["gradcheck, slow"].passed == {
        "setup-context": 2,
        "combined": 2,
        "library": 1,
        "forward-ad": 1,
    }
    assert table["vmap"].passed == {
        "setup-context": 1,
        "combined": 0,
        "library": 1,
        "forward-ad": 1,
    }
    assert table["forward mode (torch.func.jvp)"].passed["forward-ad"] == 1
    (why,) = table["vmap"].failures
    assert why.startswith("vmap, combined: RuntimeError")
    assert table["gradgradcheck"].asked == {
        "setup-context": 2,
        "combined": 2,
        "library": 1,
        "forward-ad": 1,
    }


@pytest.mark.usefixtures("few")
def test_a_wrong_gradient_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "tensordot", lambda *_, **__: torch.ones(4, 3).double())
    table = {row.name: row for row in rows(["linear"], STYLES, tmp_path)}
    assert table["gradcheck, slow"].passed["setup-context"] == 0
