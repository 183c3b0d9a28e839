"""Slices of the tests: each test is in one of them, the same on every machine."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests import sweeps
from tests.conftest import part_of, read_slice
from tests.sweeps import in_every_run, one_of_each

ROOT = Path(__file__).parents[1]
TESTS = """
import pytest

@pytest.mark.parametrize("number", range(40))
def test_a(number):
    pass
"""
SWEEPS = TESTS + """
from tests.sweeps import in_every_run

@pytest.mark.exhaustive
@pytest.mark.parametrize("number", range(40))
def test_all(number):
    pass

@pytest.mark.parametrize("letter", in_every_run("abc", "b", pytest.mark.each_commit))
def test_b(letter):
    pass
"""


def test_a_test_belongs_to_the_same_part_everywhere() -> None:
    assert part_of("tests/derive/test_semantics.py::test_a[1]", 200) == 81
    found = {part_of(f"test_a[{number}]", 4) for number in range(40)}
    assert found == {0, 1, 2, 3}


def run(directory: Path, *options: str, tests: str = TESTS) -> str:
    (directory / "test_many.py").write_text(tests)
    (directory / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def test_a_slice_is_that_part(tmp_path: Path) -> None:
    wanted = sum(part_of(f"test_many.py::test_a[{n}]", 4) == 1 for n in range(40))
    said = run(tmp_path, "--slice", "1/4")
    assert f"{wanted} passed, {40 - wanted} deselected" in said, said


def test_what_is_no_slice() -> None:
    for text in ("4/4", "1", "-1/4", "a/b"):
        with pytest.raises(pytest.UsageError, match="is no K/N with K from 0 to N-1"):
            read_slice(text)


@pytest.mark.each_commit
def test_what_is_no_slice_is_said(tmp_path: Path) -> None:
    assert "'4/4' is no K/N with K from 0 to N-1" in run(tmp_path, "--slice=4/4")


def test_of_a_sweep_the_rest_is_exhaustive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "NOT_COLLECTED", set())
    assert one_of_each(["a", "bb", "c"], len) == ["a", "bb"]
    kept, left, other = in_every_run(["a", "bb", "c"], ["a"])
    assert kept == "a"
    assert [mark.name for mark in left.marks] == ["exhaustive"]
    assert other.values == ("c",)


@pytest.mark.each_commit
def test_of_cases_that_say_the_same_one_is_asked(tmp_path: Path) -> None:
    """Each value of each parameter stays."""
    tests = """
import pytest

@pytest.mark.one_of(2)
@pytest.mark.parametrize(("one", "two"), [(0, 0), (1, 1), (2, 2)])
@pytest.mark.parametrize("letter", ["a", "b"])
def test_c(letter, one, two):
    pass
"""
    said = run(tmp_path, "-v", "-m", "not each_commit", tests=tests)
    assert "3 passed, 3 deselected" in said, said
    asked = re.findall(r"test_c\[(\S+)\]", said)
    assert asked == ["a-0-0", "a-2-2", "b-1-1"], said


@pytest.mark.each_commit
def test_a_default_run_collects_no_more_than_it_runs(tmp_path: Path) -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]
    chosen = options["ini_options"]["addopts"][-2:]
    asked = run(tmp_path, "--collect-only", *chosen, tests=SWEEPS)
    assert "41 tests collected" in asked, asked
    every = run(tmp_path, "--collect-only", tests=SWEEPS)
    assert "83 tests collected" in every, every
    left = run(tmp_path, "--collect-only", "-m", "exhaustive", tests=SWEEPS)
    assert "40/83 tests collected (43 deselected)" in left, left
