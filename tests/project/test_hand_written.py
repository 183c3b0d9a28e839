"""By which name a file is imported."""

from pathlib import Path

import pytest

from scaffold.project.hand_written import dotted
from scaffold.spec import Configuration


def tree(root: Path, files: dict[str, str]) -> None:
    """Files with their texts."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


PACKAGE = {"megatron/core/__init__.py": "", "megatron/core/ops.py": ""}


@pytest.mark.parametrize(
    ("files", "path", "expected"),
    [
        ({"ops.py": ""}, "ops.py", ("ops", ".")),
        ({"src/ops.py": ""}, "src/ops.py", ("ops", "src")),
        ({"pkg/__init__.py": ""}, "pkg/__init__.py", ("pkg", ".")),
        (
            {"src/pkg/__init__.py": "", "src/pkg/sub/__init__.py": "", "src/pkg/sub/ops.py": ""},
            "src/pkg/sub/ops.py",
            ("pkg.sub.ops", "src"),
        ),
        (PACKAGE, "megatron/core/ops.py", ("core.ops", "megatron")),
        (
            PACKAGE | {"megatron/core/ops.py": "from megatron.core import parallel"},
            "megatron/core/ops.py",
            ("megatron.core.ops", "."),
        ),
        (
            PACKAGE | {"megatron/core/other.py": "import megatron.core.ops as ops"},
            "megatron/core/ops.py",
            ("megatron.core.ops", "."),
        ),
        (
            PACKAGE | {"megatron/core/ops.py": "from ..training import x"},
            "megatron/core/ops.py",
            ("megatron.core.ops", "."),
        ),
        (
            PACKAGE | {"megatron/core/ops.py": "from core.other import x"},
            "megatron/core/ops.py",
            ("core.ops", "megatron"),
        ),
        (
            {"lib/fast/kernels/ops.py": "from lib.fast.kernels.base import x", "lib/fast/kernels/base.py": ""},
            "lib/fast/kernels/ops.py",
            ("lib.fast.kernels.ops", "."),
        ),
        (
            {"lib/fast/ops.py": "from fast.base import x", "lib/fast/base.py": ""},
            "lib/fast/ops.py",
            ("fast.ops", "lib"),
        ),
        (
            {"torch/mine/__init__.py": "", "torch/mine/ops.py": "import torch\nimport torch.nn.functional as F"},
            "torch/mine/ops.py",
            ("mine.ops", "torch"),
        ),
    ],
    ids=[
        *("file", "directory", "init", "package", "no evidence", "its own import"),
        *("a neighbour's", "relative", "from within", "bare", "bare within", "torch"),
    ],
)  # fmt: skip
def test_a_file_is_imported_as_the_code_does(
    tmp_path: Path, files: dict[str, str], path: str, expected: tuple[str, str]
) -> None:
    tree(tmp_path, files)
    (tmp_path / "pyproject.toml").touch()
    name, start = dotted(str(tmp_path / path))
    assert (name, start) == (expected[0], tmp_path / expected[1])


def test_a_project_ends_the_search(tmp_path: Path) -> None:
    """What is above a project is another one's, whatever the code imports."""
    tree(
        tmp_path, {"outer/inner/pkg/__init__.py": "", "outer/inner/pyproject.toml": ""}
    )
    tree(tmp_path, {"outer/inner/pkg/ops.py": "from outer.inner import pkg"})
    name, start = dotted(str(tmp_path / "outer/inner/pkg/ops.py"))
    assert (name, start) == ("pkg.ops", tmp_path / "outer/inner")


def test_the_configuration_knows_best(tmp_path: Path) -> None:
    tree(tmp_path, PACKAGE)
    said = Configuration(str(tmp_path), source="megatron/core", package="megatron.core")
    found = dotted(str(tmp_path / "megatron/core/ops.py"), said)
    assert found == ("megatron.core.ops", tmp_path)
    found = dotted(str(tmp_path / "megatron/core/__init__.py"), said)
    assert found == ("megatron.core", tmp_path)


def test_a_neighbour_that_cannot_be_read_tells_nothing(tmp_path: Path) -> None:
    tree(
        tmp_path,
        PACKAGE | {"megatron/core/a.py": "from megatron.core import ops\nx = = 1"},
    )
    name, _ = dotted(str(tmp_path / "megatron/core/ops.py"))
    assert name == "core.ops"
