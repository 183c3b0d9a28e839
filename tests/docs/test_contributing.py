"""CONTRIBUTING is true: what it names is there, and its command regenerates the examples."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, read_code

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PATHS = r"(?:scaffold|templates|tests|benchmarks|generated_examples|docs|\.ci)/[\w./-]*"


def test_files_that_are_named_exist() -> None:
    commands = re.findall(r"^```sh\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
    named = re.findall(PATHS, " ".join([*read_code(TEXT), *commands]))
    assert len(named) > 15
    assert not [path for path in named if not (ROOT / path).exists()]


def test_definitions_that_are_named_exist() -> None:
    """`NAME` in `path`, `NAME` of or in the next path."""
    named = re.findall(rf"`(\w+)` in\s+`({PATHS}\.py)`", TEXT)
    assert len(named) >= 3
    for name, path in named:
        assert re.search(
            rf"^(def |class )?{name}\b", (ROOT / path).read_text(), re.MULTILINE
        )


def test_packages_of_the_table_exist() -> None:
    named = set(re.findall(r"^\| `scaffold/(\w+)`", TEXT, re.MULTILINE))
    packages = {path.parent.name for path in ROOT.glob("scaffold/*/__init__.py")}
    assert named == packages


@pytest.mark.each_commit
def test_its_command_regenerates_the_examples(
    environment: dict[str, str], tmp_path: Path
) -> None:
    block = re.search(
        r"^<!-- regenerate -->\n```sh\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE
    )
    assert block
    changed, missing = "linear", "sort_last"
    for name in (changed, missing):
        shutil.copytree(
            ROOT / "generated_examples" / name,
            tmp_path / "generated_examples" / name,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    examples = tmp_path / "generated_examples"
    (examples / changed / f"{changed}.py").write_text("# edited\n")
    (examples / missing / f"test_{missing}.py").unlink()
    script = block[1].replace("git diff", "true")
    subprocess.run(
        ["sh", "-ec", script],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        check=True,
    )
    for path in examples.glob("*/*"):
        committed = ROOT / path.relative_to(tmp_path)
        assert path.read_bytes() == committed.read_bytes()
    assert len(list(examples.glob("*/test_*.py"))) == 2
