"""`[tool.scaffold.testing]`: the module that tests share is one of the project, and no test."""

from typing import Any

import pytest

from scaffold.errors import Location
from scaffold.spec.config_values import Stated
from scaffold.spec.problems import Problems
from scaffold.spec.testing_settings import BESIDE, read_testing


def read(value: dict[str, Any]) -> tuple[str | None, list[str]]:
    problems = Problems(lambda path, *, key=False: Location("pyproject.toml"))
    found = read_testing(Stated(value, "testing", problems, "root", "root"))
    return found.file, [problem.message for problem in problems.found]


@pytest.mark.parametrize(
    ("value", "file"),
    [("tests/op_testing.py", "tests/op_testing.py"), ("lib/../shared.py", "shared.py")],
)
def test_a_module_of_the_project(value: str, file: str) -> None:
    assert read({"file": value}) == (file, [])


def test_nothing_said_is_the_module_beside_the_tests() -> None:
    assert read({}) == (BESIDE.file, []) == (None, [])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"file": "tests/test_shared.py"},
            "'file' must name a module that is not a test",
        ),
        ({"file": "shared_test.py"}, "'file' must name a module that is not a test"),
        ({"file": 3}, "'file' must name a module that is not a test"),
        ({"file": "../shared.py"}, "'file' must name a file of the project"),
        ({"file": "pytest.py"}, "'pytest.py' would hide the installed module"),
        ({"files": "a.py"}, "unknown key 'files' in [tool.scaffold.testing]"),
        ({"devices": ["cpu", "meta"]}, "'meta' is not a device for tests"),
        ({"devices": []}, "'devices' must list devices of PyTorch"),
        ({"devices": "cuda"}, "'devices' must list devices of PyTorch"),
        ({"dtypes": ["float8"]}, "'dtypes' has an unknown value"),
        ({"checks": "checkpoint"}, "'checks' has an unknown value"),
    ],
)
def test_what_is_refused(value: dict[str, Any], message: str) -> None:
    assert read(value) == (None, [message])


def test_what_every_op_is_asked_is_chosen() -> None:
    problems = Problems(lambda path, *, key=False: Location("pyproject.toml"))
    value = {"devices": ["cuda:1", "cpu"], "dtypes": [], "checks": ["deterministic"]}
    found = read_testing(Stated(value, "testing", problems, "root", "root"))
    assert not problems.found
    assert found.devices == ("cuda:1", "cpu")
    assert (found.dtypes, found.checks) == ((), ("deterministic",))
    assert read_testing(Stated({}, "testing", problems, "root", "root")) == BESIDE
