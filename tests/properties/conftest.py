"""As in tests/cli: runs in this process need not wait for the disk."""

from collections.abc import Iterator

import pytest

from scaffold.workspace import disk


@pytest.fixture(autouse=True, scope="module")
def without_syncing() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "sync", lambda descriptor: None)
        yield
