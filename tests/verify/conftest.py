"""What tests of verification share."""

import pytest

from tests.cli.conftest import interruptible, without_syncing

__all__ = ["interruptible", "without_syncing"]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of tests share a machine."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
