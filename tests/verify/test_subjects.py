"""Which file a test file is about: found as a test runner would, without importing anything."""

from contextlib import chdir
from pathlib import Path

import pytest

from scaffold.errors import ScaffoldError
from scaffold.verify.subjects import find_subject
from tests.verify.written import RELU

ARRANGEMENTS: dict[str, tuple[dict[str, str], str]] = {
    "beside the test": (
        {"ops.py": RELU, "test_it.py": "from ops import Relu"},
        "ops.py",
    ),
    "as a whole module": ({"ops.py": RELU, "test_it.py": "import ops"}, "ops.py"),
    "in the test itself": ({"test_it.py": RELU}, "test_it.py"),
    "above the test": (
        {"pkg/ops.py": RELU, "tests/unit/test_it.py": "from pkg.ops import Relu"},
        "pkg/ops.py",
    ),
    "below src": (
        {"src/pkg/ops.py": RELU, "tests/test_it.py": "from pkg import ops"},
        "src/pkg/ops.py",
    ),
    "re-exported": (
        {
            "pkg/__init__.py": "from .ops import Relu",
            "pkg/ops.py": RELU,
            "test_it.py": "from pkg import Relu",
        },
        "pkg/ops.py",
    ),
    "by a relative import": (
        {"pkg/ops.py": RELU, "pkg/tests/test_it.py": "from ..ops import Relu"},
        "pkg/ops.py",
    ),
    "inside a function": (
        {"ops.py": RELU, "test_it.py": "def test_it():\n    from ops import Relu"},
        "ops.py",
    ),
    "among other imports": (
        {
            "ops.py": RELU,
            "other.py": "raise SystemExit",
            "test_it.py": "import other, torch\nfrom ops import Relu",
        },
        "ops.py",
    ),
}


@pytest.mark.parametrize("name", ARRANGEMENTS)
def test_the_file_is_found(name: str, tmp_path: Path) -> None:
    files, expected = ARRANGEMENTS[name]
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    (test,) = tmp_path.rglob("test_it.py")
    with chdir(tmp_path):
        assert find_subject(test.relative_to(tmp_path)).resolve() == tmp_path / expected


def test_one_of_several_is_not_chosen(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text(RELU)
    test = tmp_path / "test_it.py"
    test.write_text("import one, two")
    with chdir(tmp_path), pytest.raises(ScaffoldError, match="imports several"):
        find_subject(test)
