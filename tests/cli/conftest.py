"""Runs in this process need not wait for the disk: tests/workspace holds what syncing is for."""

import signal
from collections.abc import Iterator

import pytest

from scaffold.workspace import disk


@pytest.fixture(autouse=True, scope="module")
def without_syncing() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "sync", lambda descriptor: None)
        yield


@pytest.fixture
def interruptible() -> Iterator[None]:
    """What starts here heeds an interrupt, though a job in the background, as this may be, ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
