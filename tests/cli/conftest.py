"""Runs in this process need not wait for the disk: tests/workspace holds what syncing is for."""

import shutil
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from scaffold import verify
from scaffold.cli import templates
from scaffold.render.sample_ops import sample_ops
from scaffold.verify import Request, Verdict
from scaffold.workspace import disk
from tests.cli.projects import COMMENTED, SCALE, SHIFT, project
from tests.cli.running import scaffold


@pytest.fixture(autouse=True, scope="module")
def without_syncing() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "sync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory for what a run remembers, of each test alone."""
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(place))
        yield place


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `synced` and `commented` are copies of: to write a project anew takes as long as what most tests ask of it."""
    root = tmp_path_factory.mktemp("written")
    for name, tables in (("synced", (SCALE, SHIFT)), ("commented", (COMMENTED,))):
        (root / name).mkdir()
        project(root / name, *tables)
        assert scaffold(root / name, "sync").code == 0
    return root


@pytest.fixture
def synced(written: Path, tmp_path: Path) -> Path:
    """A project of two ops whose files are written."""
    return Path(shutil.copytree(written / "synced", tmp_path, dirs_exist_ok=True))


@pytest.fixture
def commented(written: Path, tmp_path: Path) -> Path:
    """The same with comments in its manifest."""
    return Path(shutil.copytree(written / "commented", tmp_path, dirs_exist_ok=True))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """What starts here heeds an interrupt, though a job in the background, as this may be, ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Templates are tried on three ops: one that is derived, one that is written by hand, and one that is not written."""
    chosen = ("linear", "unwritten", "written_by_hand")
    few = [spec for spec in sample_ops() if spec.name in chosen]
    monkeypatch.setattr(templates, "sample_ops", lambda: few)


@pytest.fixture
def proven_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every proof of a run over ops in this process succeeds, without PyTorch: for tests of what else such runs do."""

    def verdicts(requests: Iterable[Request], *_: object) -> Iterator[Verdict]:
        for _request in requests:
            yield Verdict(1, torch="0.0")

    monkeypatch.setattr(verify, "verify_many", verdicts)
