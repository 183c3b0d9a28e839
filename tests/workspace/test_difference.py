import subprocess
from pathlib import Path

import pytest

from scaffold.workspace import diff, plan, resolve


def test_every_difference_is_shown_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "same.py").write_text("x\n")
    (tmp_path / "old.py").write_text("a\nb\nc\n")
    made = plan({"new.py": "x\n", "same.py": "x\n", "old.py": "a\nB\nc\n"}, tmp_path)
    expected = """\
--- /dev/null
+++ b/new.py
@@ -0,0 +1 @@
+x
--- a/old.py
+++ b/old.py
@@ -1,3 +1,3 @@
 a
-b
+B
 c
"""
    assert diff(made) == expected
    assert diff(resolve(made, "overwrite")) == expected
    assert "old.py" not in diff(resolve(made, "skip"))


def test_a_missing_last_newline_is_said(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("a")
    assert diff(plan({"f.py": "b"}, tmp_path)).endswith(
        "-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n"
    )


def test_line_endings_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_bytes(b"a\r\nb\r\n")
    assert diff(plan({"f.py": "a\nc\n"}, tmp_path)).endswith(" a\n-b\n+c\n")


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_bytes(b"\xff")
    made = plan({"f.py": "x\n"}, tmp_path)
    assert diff(made) == "Binary files a/f.py and b/f.py differ\n"


@pytest.mark.parametrize("name", ["f.py", "two words.py"])
@pytest.mark.parametrize("old", [None, "", "a\nb\x0cc\nd\u2028e\n", "a\n\nb"])
@pytest.mark.parametrize("new", ["a\n", "a\nb\x0cC\nd\u2028e", "\n\n"])
def test_git_applies_it(tmp_path: Path, name: str, old: str | None, new: str) -> None:
    if old is not None:
        (tmp_path / name).write_text(old)
    text = diff(plan({name: new}, tmp_path))
    subprocess.run(["git", "apply", "-"], input=text.encode(), cwd=tmp_path, check=True)
    assert (tmp_path / name).read_text() == new


def test_git_applies_a_removal(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("a\nb\n")
    text = diff(plan({"f.py": None}, tmp_path, ours=["f.py"]))
    assert text.startswith("--- a/f.py\n+++ /dev/null\n")
    subprocess.run(["git", "apply", "-"], input=text.encode(), cwd=tmp_path, check=True)
    assert not (tmp_path / "f.py").exists()
