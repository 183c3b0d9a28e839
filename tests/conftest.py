"""A default run is the same every time; an exhaustive one searches, and can be played slice by slice.

In: `-m exhaustive`, `--slice K/N`. Out: the tests that are chosen. Invariant: which slice a test belongs to is told from
its name alone, so that a slice can be played again anywhere.
"""

from __future__ import annotations

import compileall
import gc
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Hashable, Iterator
from inspect import isfunction
from pathlib import Path
from types import SimpleNamespace
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

from scaffold.verify import processes
from tests.executed.suites import Suites
from tests.seeds import seed_this_device_alone
from tests.sweeps import NOT_COLLECTED
from tests.warm import running_server

# The tensors of tests are small, and tests share the cores: threads would only wait for each other, which costs as much as
# work. torch heeds it when it is imported, here and in processes that tests start.
os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")

# The markers of a default run.
NOT_ASKED = "not exhaustive and not each_commit and not triton"
SLICE = re.compile(r"(\d+)/(\d+)")
ROOT = Path(__file__).resolve().parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slice",
        metavar="K/N",
        type=read_slice,
        help="of the tests that are chosen, the K-th of N parts (K from 0)",
    )


def read_slice(text: str) -> tuple[int, int]:
    """The `K/N` of an option."""
    found = SLICE.fullmatch(text)
    if not found or int(found[1]) >= int(found[2]):
        raise pytest.UsageError(f"--slice: {text!r} is no K/N with K from 0 to N-1")
    return int(found[1]), int(found[2])


def pytest_configure(config: pytest.Config) -> None:
    # A random search that finds a bug in one run of two fails whoever comes by; it belongs where its seed is printed.
    # Nor does a test fail because the machine is busy.
    patient = settings(
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.register_profile("default run", patient, derandomize=True)
    settings.register_profile("exhaustive run", patient)
    searching = config.option.markexpr == "exhaustive"
    settings.load_profile("exhaustive run" if searching else "default run")
    # Hundreds of processes start `scaffold`. Where PYTHONDONTWRITEBYTECODE is set, as in many images, each of them would
    # compile it again, which takes longer than what it is started for.
    sys.dont_write_bytecode = False
    if config.option.markexpr == NOT_ASKED:
        NOT_COLLECTED.update(NOT_ASKED.removeprefix("not ").split(" and not "))
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(ROOT / "scaffold", quiet=2)


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(obj: object) -> list[pytest.Item] | None:
    """No test of a function whose marker leaves it out: that of thousands of parameters is quicker not made than taken away."""
    if not isfunction(obj):
        return None
    markers = {mark.name for mark in getattr(obj, "pytestmark", ())}
    return [] if markers & NOT_COLLECTED else None


@pytest.hookimpl(tryfirst=True)  # before what the markers leave out is left out
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    leave_some_to_each_commit(items)
    if not config.option.slice:
        return
    part, parts = config.option.slice
    chosen: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        (chosen if part_of(item.nodeid, parts) == part else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = chosen


def pytest_collection_finish() -> None:
    seed_this_device_alone()
    # Torch and twenty thousand tests live to the end: to look for garbage among them takes a tenth of the run.
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def leave_some_to_each_commit(items: list[pytest.Item]) -> None:
    """Of a test that is marked `one_of(2)`, every second case: of several parameters by turns, so that each value stays."""
    seen = defaultdict[Hashable, dict[Hashable, int]](dict)
    for item in items:
        step = item.get_closest_marker("one_of")
        left = {mark.name for mark in item.iter_markers()} & {
            "exhaustive",
            "each_commit",
        }
        if isinstance(item, pytest.Function) and step and not left:
            turn = 0
            for mark in item.iter_markers("parametrize"):
                names = mark.args[0]
                several = re.findall(r"\w+", names) if isinstance(names, str) else names
                values = tuple(id(item.callspec.params[name]) for name in several)
                known = seen[item.parent, item.originalname, *several]
                turn += known.setdefault(values, len(known))
            if turn % step.args[0]:
                item.add_marker(pytest.mark.each_commit)


def part_of(name: str, parts: int) -> int:
    """The part that a test of this name belongs to."""
    return crc32(name.encode()) % parts


@pytest.fixture(autouse=True, scope="session")
def warm_processes() -> Iterator[SimpleNamespace]:
    """What `scaffold.verify` starts in this process has torch from the start: to import it takes longer than most proofs."""
    with pytest.MonkeyPatch.context() as patch, running_server() as warm:
        patch.setattr(processes, "subprocess", warm)
        yield warm


@pytest.fixture(scope="session")
def suites(
    warm_processes: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory
) -> Suites:
    """Runs generated tests."""
    return Suites(warm_processes.Popen, tmp_path_factory.mktemp("reports"))


@pytest.fixture
def cold_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are started as a user's are."""
    monkeypatch.setattr(processes, "subprocess", subprocess)


@pytest.fixture(scope="session")
def mypy_cache() -> Path:
    """What the type checker knows of torch, read once for all its runs, all workers and the runs after this one."""
    return ROOT / ".mypy_cache" / "generated"
