"""As in tests/cli: runs of commands in this process."""

from tests.cli.conftest import (
    cache,
    interruptible,
    proven_at_once,
    synced,
    without_syncing,
    written,
)

__all__ = [
    "cache",
    "interruptible",
    "proven_at_once",
    "synced",
    "without_syncing",
    "written",
]
