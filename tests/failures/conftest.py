"""Templates are tried on few ops, as in tests/cli; here without one that is not written, of which no message is."""

import pytest

from scaffold.cli import templates
from scaffold.render.sample_ops import sample_ops


@pytest.fixture
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = ("linear", "written_by_hand")
    few = [spec for spec in sample_ops() if spec.name in chosen]
    monkeypatch.setattr(templates, "sample_ops", lambda: few)
