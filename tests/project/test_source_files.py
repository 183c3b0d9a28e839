"""Python files at or below paths: which are found, how they are read."""

from pathlib import Path

import pytest

from scaffold.errors import ScaffoldError
from scaffold.project.source_files import (
    find_sources,
    is_plain_utf8,
    look_through,
    read_source,
)

FUNCTION = "from torch.autograd import Function\n\n\nclass Twice(Function):\n    pass\n"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("b.py", "a.py", "deep/c.py", "notes.txt", ".hidden/d.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x = 1\n")
    (tmp_path / "env").mkdir()
    (tmp_path / "env/pyvenv.cfg").touch()
    (tmp_path / "env/e.py").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_file_is_found_once_in_order(tree: Path) -> None:
    assert find_sources(["."]) == ("a.py", "b.py", "deep/c.py")
    assert find_sources(["deep", "./deep/c.py", "b.py"]) == ("deep/c.py", "b.py")


def test_what_is_named_is_taken_wherever_it_lies(tree: Path) -> None:
    assert find_sources([".hidden/d.py", "notes.txt"]) == (".hidden/d.py", "notes.txt")


def test_every_path_that_is_not_there_is_told(tree: Path) -> None:
    with pytest.raises(ScaffoldError) as caught:
        find_sources(["none.py", "a.py", "nor.py"])
    assert "'none.py' does not exist" in str(caught.value)
    assert "'nor.py' does not exist" in str(caught.value)


def test_a_file_is_read_in_the_encoding_that_it_declares(tree: Path) -> None:
    (tree / "a.py").write_bytes("# coding: latin-1\r\nx = 'é'\r\n".encode("latin-1"))
    assert read_source("a.py") == "# coding: latin-1\nx = 'é'\n"
    assert not is_plain_utf8("a.py")
    (tree / "b.py").write_bytes(b"x = '\xe9'\n")
    with pytest.raises(ScaffoldError, match="not in the encoding that it declares"):
        read_source("b.py")


@pytest.mark.parametrize(
    ("data", "plain"),
    [(b"x = 1\n", True), (b"x = 1\r\n", True), (b"x = 1\r", False)]
    + [(b"\xef\xbb\xbfx = 1\n", False), (b"x = '\xe9'\n", False)],
)
def test_only_plain_utf8_is_written_again(tree: Path, data: bytes, plain: bool) -> None:
    (tree / "a.py").write_bytes(data)
    assert is_plain_utf8("a.py") is plain


def test_files_that_can_hold_nothing_are_not_parsed(tree: Path) -> None:
    (tree / "deep/c.py").write_text(FUNCTION)
    found = look_through(["."])
    assert (found.relevant, found.named) == (("deep/c.py",), frozenset())
    assert "Twice" in found.known
    named = look_through(["a.py"])
    assert named.relevant == ("a.py",) and named.named == {"a.py"}
