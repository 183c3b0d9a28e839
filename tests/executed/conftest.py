"""What tests that execute generated code share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.executed.suites import Suites, running_suites


@pytest.fixture(scope="session")
def suites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suites]:
    """Runs generated tests."""
    with running_suites(tmp_path_factory.mktemp("reports")) as server:
        yield server


@pytest.fixture(scope="session")
def mypy_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the type checker knows of torch, read once for all its runs."""
    return tmp_path_factory.getbasetemp() / "mypy_cache"
