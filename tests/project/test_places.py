"""Where files go, and that the tests there find the op: plain `pytest` runs in every arrangement."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from scaffold.project.places import find_places
from scaffold.spec import Configuration
from tests.cli.projects import SCALE, edit, project
from tests.cli.running import listing, new_op, scaffold
from tests.sweeps import in_every_run

FORWARD_ONLY = ("--inputs", "x", "--outputs", "y[...; int]", "--forward", "x.long()")


@dataclass(frozen=True)
class Arrangement:
    """A project, a command in it, and the files that come of it."""

    arguments: tuple[str, ...]
    created: tuple[str, str]
    module: str  # as the test imports it
    searched: bool  # the test adds a directory to the path itself
    files: dict[str, str] = field(default_factory=dict)
    here: str = "."  # where the command runs, from the project
    pytest: str = "."  # where pytest runs
    elsewhere: bool = False  # `{}` in the arguments is a directory outside the project

    def __str__(self) -> str:
        return self.created[0]


def table(*lines: str) -> str:
    return "\n".join(["[tool.scaffold]", *lines, ""])


SPLIT = table("source = 'src'", "tests = 'tests'")
IMPORTLIB = "[tool.pytest.ini_options]\naddopts = '--import-mode=importlib'\n"
ARRANGEMENTS = {
    "here": Arrangement((), ("foo.py", "test_foo.py"), "foo", False),
    "in a package": Arrangement(
        (),
        ("ops/deep/foo.py", "ops/deep/test_foo.py"),
        "ops.deep.foo",
        False,
        {"ops/__init__.py": "", "ops/deep/__init__.py": ""},
        here="ops/deep",
    ),
    "out-dir": Arrangement(
        ("--out-dir", "a/b"), ("a/b/foo.py", "a/b/test_foo.py"), "foo", False
    ),
    "out-dir and test-dir": Arrangement(
        ("--out-dir", "src", "--test-dir", "tests/unit"),
        ("src/foo.py", "tests/unit/test_foo.py"),
        "foo",
        True,
    ),
    "test-dir alone": Arrangement(
        ("--test-dir", "tests"), ("foo.py", "tests/test_foo.py"), "foo", True
    ),
    "test-dir above": Arrangement(
        ("--test-dir", ".."),
        ("src/foo.py", "test_foo.py"),
        "foo",
        True,
        {"src/x": ""},
        here="src",
    ),
    "spaces": Arrangement(
        ("--out-dir", "my ops", "--test-dir", "my tests/a b"),
        ("my ops/foo.py", "my tests/a b/test_foo.py"),
        "foo",
        True,
    ),
    "outside": Arrangement(
        ("--out-dir", "{}/ops", "--test-dir", "{}/tests"),
        ("ops/foo.py", "tests/test_foo.py"),
        "foo",
        True,
        elsewhere=True,
    ),
    "into a package": Arrangement(
        ("--out-dir", "ops", "--test-dir", "tests"),
        ("ops/foo.py", "tests/test_foo.py"),
        "ops.foo",
        True,
        {"ops/__init__.py": ""},
    ),
    "tests in a package": Arrangement(
        ("--out-dir", "ops", "--test-dir", "tests"),
        ("ops/foo.py", "tests/test_foo.py"),
        "foo",
        True,
        {"tests/__init__.py": ""},
    ),
    "configured": Arrangement(
        (),
        ("src/foo.py", "tests/test_foo.py"),
        "foo",
        True,
        {"pyproject.toml": SPLIT},
    ),
    "configured, from below": Arrangement(
        (),
        ("src/foo.py", "tests/test_foo.py"),
        "foo",
        True,
        {"pyproject.toml": SPLIT, "docs/guide/x": ""},
        here="docs/guide",
    ),
    "configured, an option over it": Arrangement(
        ("--test-dir", "checks"),
        ("src/foo.py", "checks/test_foo.py"),
        "foo",
        True,
        {"pyproject.toml": SPLIT},
    ),
    "configured, all options over it": Arrangement(
        ("--out-dir", "other"),
        ("other/foo.py", "other/test_foo.py"),
        "foo",
        False,
        {"pyproject.toml": SPLIT},
    ),
    "a source alone": Arrangement(
        (),
        ("ops/foo.py", "ops/test_foo.py"),
        "foo",
        False,
        {"pyproject.toml": table("source = 'ops'")},
    ),
    "a package with its __init__": Arrangement(
        (),
        ("src/myops/foo.py", "tests/test_foo.py"),
        "myops.foo",
        True,
        {
            "pyproject.toml": table("source = 'src/myops'", "tests = 'tests'"),
            "src/myops/__init__.py": "",
        },
    ),
    "a package that is not there yet": Arrangement(
        (),
        ("src/myops/foo.py", "tests/test_foo.py"),
        "myops.foo",
        True,
        {
            "pyproject.toml": table(
                "source = 'src/myops'", "tests = 'tests'", "package = 'myops'"
            )
        },
    ),
    "below the configured package": Arrangement(
        ("--out-dir", "src/myops/norm", "--test-dir", "tests"),
        ("src/myops/norm/foo.py", "tests/test_foo.py"),
        "myops.norm.foo",
        True,
        {"pyproject.toml": table("source = 'src/myops'", "package = 'myops'")},
    ),
    "a package that is not there yet, tests beside": Arrangement(
        (),
        ("src/myops/foo.py", "src/myops/test_foo.py"),
        "myops.foo",
        True,
        {"pyproject.toml": table("source = 'src/myops'", "package = 'myops'")},
    ),
    "the project is a package": Arrangement(
        (),
        ("foo.py", "test_foo.py"),
        "foo",
        True,
        {"pyproject.toml": table(), "__init__.py": ""},
    ),
    "a package of a project that is one": Arrangement(
        (),
        ("ops/foo.py", "ops/test_foo.py"),
        "ops.foo",
        True,
        {
            "pyproject.toml": table("source = 'ops'"),
            "__init__.py": "",
            "ops/__init__.py": "",
        },
    ),
    "pytest has the path": Arrangement(
        (),
        ("src/myops/foo.py", "tests/test_foo.py"),
        "myops.foo",
        False,
        {
            "pyproject.toml": table(
                "source = 'src/myops'", "tests = 'tests'", "package = 'myops'"
            )
            + "[tool.pytest.ini_options]\npythonpath = ['src']\n"
        },
    ),
    "pytest has another path": Arrangement(
        (),
        ("src/foo.py", "tests/test_foo.py"),
        "foo",
        True,
        {
            "pyproject.toml": SPLIT
            + "[tool.pytest.ini_options]\npythonpath = 'tools .'\n"
        },
    ),
    "importlib mode": Arrangement(
        (),
        ("ops/foo.py", "ops/test_foo.py"),
        "foo",
        True,
        {
            "pyproject.toml": "[tool.pytest.ini_options]\n"
            "addopts = '--tb=short --import-mode=importlib'\n",
            "ops/x": "",
        },
        here="ops",
    ),
    "importlib mode, in a package": Arrangement(
        ("--out-dir", "ops"),
        ("ops/foo.py", "ops/test_foo.py"),
        "ops.foo",
        True,
        {
            "pyproject.toml": "[tool.pytest.ini_options]\n"
            "addopts = ['--import-mode', 'importlib']\n",
            "ops/__init__.py": "",
        },
    ),
    "importlib mode, in a project": Arrangement(
        (),
        ("src/foo.py", "tests/test_foo.py"),
        "foo",
        True,
        {"pyproject.toml": SPLIT + IMPORTLIB},
    ),
    "importlib mode, tests of a project in a package": Arrangement(
        (),
        ("src/foo.py", "checks/unit/test_foo.py"),
        "foo",
        True,
        {
            "pyproject.toml": table("source = 'src'", "tests = 'checks/unit'")
            + IMPORTLIB,
            "checks/__init__.py": "",
            "checks/unit/__init__.py": "",
        },
    ),
    "tests of a project in a package": Arrangement(
        (),
        ("src/foo.py", "tests/test_foo.py"),
        "foo",
        True,
        {"pyproject.toml": SPLIT, "tests/__init__.py": "", "conftest.py": ""},
    ),
    "tests of a project below directories": Arrangement(
        (),
        ("src/foo.py", "tests/unit/foo/test_foo.py"),
        "foo",
        True,
        {
            "pyproject.toml": SPLIT + "names = { test = 'unit/{op}/test_{op}.py' }\n",
            "tests/conftest.py": "",
        },
    ),
    "what tests share elsewhere": Arrangement(
        (),
        ("src/foo.py", "tests/test_foo.py"),
        "foo",
        True,
        {
            "pyproject.toml": SPLIT + "testing = { file = 'lib/ours/op_testing.py' }\n",
            "lib/ours/__init__.py": "",
        },
    ),
    "what tests share beside ops": Arrangement(
        (),
        ("src/myops/foo.py", "tests/test_foo.py"),
        "myops.foo",
        True,
        {
            "pyproject.toml": table(
                "source = 'src/myops'",
                "tests = 'tests'",
                "package = 'myops'",
                "testing = { file = 'src/myops/op_testing.py' }",
            ),
        },
    ),
    "not installed": Arrangement(  # [project] alone is what `uv init` writes
        (),
        ("myops/foo.py", "tests/test_foo.py"),
        "myops.foo",
        True,
        {
            "pyproject.toml": "[project]\nname = 'myops'\nversion = '1'\n"
            + table("source = 'myops'", "tests = 'tests'"),
            "myops/__init__.py": "",
        },
    ),
}


def arrange(directory: Path, case: Arrangement) -> Path:
    """Make the project and run the command; the directory that the created files count from."""
    project, outside = directory / "project", directory / "else where"
    for path in (project, outside):
        path.mkdir(parents=True)
    for name, text in case.files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    before = set(listing(directory))
    arguments = [item.replace("{}", str(outside)) for item in case.arguments]
    outcome = new_op(project / case.here, *arguments, *FORWARD_ONLY)
    assert (outcome.code, outcome.err) == (0, "")
    top = outside if case.elsewhere else project
    created = {(top / path).relative_to(directory).as_posix() for path in case.created}
    assert files_of_ops(set(listing(directory)) - before) == created
    here = project / case.here
    shown = (Path(os.path.relpath(top / name, here)) for name in case.created)
    lines = [f"create  {path.as_posix()}" for path in shown]
    told = outcome.out.splitlines()
    others = ("ops.toml", "op_testing.py")
    assert [line for line in told if not line.endswith(others)] == lines
    return top


def files_of_ops(paths: set[str]) -> set[str]:
    """The paths without the manifest of a project, its records, and what its tests share."""
    others = ("ops.toml", "op_testing.py")
    return {
        path
        for path in paths
        if "/.scaffold/" not in path and not path.endswith(others)
    }


@pytest.fixture(scope="module")
def arranged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("places")
    return {
        name: arrange(base / str(number), case)
        for number, (name, case) in enumerate(ARRANGEMENTS.items())
    }


@pytest.fixture(scope="module")
def tested(
    arranged: dict[str, Path], request: pytest.FixtureRequest
) -> dict[str, tuple[int, str]]:
    """What plain `pytest` says in each of them: without the working directory on the path, as `pytest` is."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    environment.pop("PYTHONPATH", None)
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # faster
    script = Path(__file__).with_name("pytest_forked.py")
    asked = [
        item for item in request.session.items if isinstance(item, pytest.Function)
    ]
    names = [
        str(item.callspec.params["name"])
        for item in asked
        if item.originalname == test_plain_pytest_finds_the_op.__name__
    ]
    done = subprocess.run(
        [sys.executable, "-P", str(script), *(str(arranged[name]) for name in names)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(zip(names, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("name", ARRANGEMENTS)
def test_the_import_is_as_the_place_demands(
    arranged: dict[str, Path], name: str
) -> None:
    case = ARRANGEMENTS[name]
    text = (arranged[name] / case.created[1]).read_text()
    assert f"from {case.module} import " in text
    assert ("sys.path.insert" in text) == case.searched
    assert str(arranged[name]) not in text


@pytest.mark.parametrize(
    "name",
    in_every_run(ARRANGEMENTS, [*ARRANGEMENTS][::12], pytest.mark.each_commit),
)
def test_plain_pytest_finds_the_op(
    tested: dict[str, tuple[int, str]], name: str
) -> None:
    code, output = tested[name]
    assert code == 0, output
    assert " passed" in output


def test_an_installed_package_is_imported_as_it_is(tmp_path: Path) -> None:
    case = Arrangement(
        (),
        ("myops/foo.py", "tests/test_foo.py"),
        "myops.foo",
        False,
        {
            "pyproject.toml": "[build-system]\nrequires = []\n"
            + table("source = 'myops'", "tests = 'tests'", "package = 'myops'")
        },
    )
    text = (arrange(tmp_path, case) / "tests/test_foo.py").read_text()
    assert "from myops.foo import" in text
    assert "sys.path" not in text


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        (
            "--out-dir",
            "taken",
            "'taken' is not a directory\nhint: name the directory of the files: --out-dir ops",
        ),
        (
            "--test-dir",
            "taken",
            "'taken' is not a directory\nhint: name the directory of the files: --test-dir ops",
        ),
        ("--out-dir", "", "'' is not a path"),
        ("--test-dir", "a\0b", r"'a\x00b' is not a path"),
    ],
)
def test_a_directory_that_cannot_be(
    tmp_path: Path, option: str, value: str, complaint: str
) -> None:
    (tmp_path / "taken").touch()
    outcome = new_op(tmp_path, *FORWARD_ONLY, option, value)
    assert (outcome.code, outcome.err) == (2, f"{option}: {complaint}\n")
    assert set(listing(tmp_path)) == {"taken"}


def test_a_directory_below_a_file_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    outcome = new_op(tmp_path, *FORWARD_ONLY, "--out-dir", "taken/below")
    assert outcome.code == 2
    assert "Traceback" not in outcome.err
    assert set(listing(tmp_path)) == {"taken"}


def test_a_root_that_cannot_be_written_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal of a run lies in the root: from / one may still write into one's own directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    settings = {"out-dir": "mine/ops"}
    assert find_places(Configuration(), settings).root == tmp_path
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert find_places(Configuration(), settings).root == tmp_path / "mine"


def test_the_root_of_a_project_does_not_move_with_what_may_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its manifest and its records are there: `check` in a read-only checkout finds them."""
    project(tmp_path, SCALE)
    assert scaffold(tmp_path, "sync").code == 0
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    outcome = scaffold(tmp_path, "check")
    assert (outcome.code, outcome.out) == (0, "3 ok\n"), outcome.err


@pytest.mark.parametrize("inside", ["", "ops/"])
def test_what_a_checkout_is_called_is_no_part_of_what_is_written(
    tmp_path: Path, inside: str
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    (one / "__init__.py").touch()
    project(one, SCALE, configuration=table(f"source = '{inside or '.'}'"))
    (one / inside).mkdir(exist_ok=True)
    (one / inside / "__init__.py").touch()
    assert scaffold(one, "sync").code == 0
    one.rename(other)
    outcome = scaffold(other, "check", "--strict")
    assert (outcome.code, outcome.out) == (0, "3 ok\n")


def test_the_exports_of_a_project_that_is_a_package(tmp_path: Path) -> None:
    project(tmp_path, SCALE, configuration=table("exports = true"))
    (tmp_path / "__init__.py").touch()
    assert scaffold(tmp_path, "sync").code == 0
    assert "from .scale import" in (tmp_path / "__init__.py").read_text()
    assert scaffold(tmp_path, "check").code == 0


@pytest.mark.parametrize(
    "command", [("check",), ("list",), ("sync",), ("new-op", "foo", "--inputs", "x")]
)
def test_exports_of_what_is_no_package_are_refused_by_every_command(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Before anything is proven, at the line that asks for them; the hint is one that helps."""
    project(tmp_path, SCALE, configuration=table("", "exports = true"))
    outcome = scaffold(tmp_path, *command)
    assert outcome.code == 2
    assert outcome.messages == [
        "pyproject.toml:3:1: 'exports' is on, but '.' is not a package",
        "hint: give ops a directory: source = 'ops'",
    ]
    edit(tmp_path / "pyproject.toml", "exports", "source = 'ops'\nexports")
    assert scaffold(tmp_path, "sync").code == 0
    assert scaffold(tmp_path, "check").code == 0
