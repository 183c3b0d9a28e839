"""The wheel: built, installed where there is no torch, used outside the checkout."""

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.each_commit

ROOT = Path(__file__).parent.parent
TEMPLATES = {
    path.relative_to(ROOT).as_posix() for path in (ROOT / "templates").rglob("*.jinja")
}


def run(*command: str | Path, cwd: Path) -> str:
    """What the command prints. It sees neither the checkout nor this environment."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sdist, and the wheel that was built from it."""
    directory = tmp_path_factory.mktemp("dist")
    python = sys.executable
    run(python, "-m", "build", "--no-isolation", "--outdir", directory, cwd=ROOT)
    return directory


def test_the_sdist_holds_what_builds_and_tests_it(built: Path) -> None:
    (archive,) = built.glob("torch_scaffold-*.tar.gz")
    with tarfile.open(archive) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    wanted = {"LICENSE", "README.md", "pyproject.toml", "scaffold/py.typed"}
    assert TEMPLATES
    assert wanted | TEMPLATES | {"tests/test_wheel.py"} <= names


def test_the_wheel_holds_package_and_templates_and_nothing_else(built: Path) -> None:
    (archive,) = built.glob("torch_scaffold-*.whl")
    with zipfile.ZipFile(archive) as wheel:
        names = set(wheel.namelist())
    assert {f"scaffold/{template}" for template in TEMPLATES} <= names
    assert {name.split("/")[0].partition("-")[0] for name in names} == {
        "scaffold",
        "torch_scaffold",
    }
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_it_generates_where_there_is_no_torch(built: Path, tmp_path: Path) -> None:
    (archive,) = built.glob("torch_scaffold-*.whl")
    constraints = ROOT / "constraints.txt"
    venv.create(tmp_path / "venv", symlinks=True)  # to put pip there takes seconds
    python = tmp_path / "venv/bin/python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-compile")
    run(*pip, "-q", "-c", constraints, archive, cwd=tmp_path)
    find = "import importlib.util as u; print(u.find_spec('torch'))"
    assert run(python, "-c", find, cwd=tmp_path) == "None\n"
    where = run(python, "-c", "import scaffold; print(scaffold.__file__)", cwd=tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path)

    ops = tmp_path / "ops"
    ops.mkdir()
    scaffold = (tmp_path / "venv/bin/scaffold",)
    inputs = ("--inputs", "input,weight,bias?")
    run(*scaffold, "new-op", "linear", *inputs, cwd=ops)
    assert sorted(path.name for path in ops.iterdir()) == [
        "linear.py",
        "test_linear.py",
    ]
    for path in ops.iterdir():
        compile(path.read_text(), path, "exec")

    assert "new-op" in run(python, "-m", "scaffold", "--help", cwd=ops)
