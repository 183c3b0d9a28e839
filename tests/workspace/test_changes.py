"""What a run would do to files, and how that is shown as a difference."""

import os
import subprocess
from pathlib import Path

import pytest

from scaffold.errors import ScaffoldError, ScaffoldErrors
from scaffold.workspace import Plan, diff, disk, plan, resolve


def verbs(made: Plan) -> list[str]:
    return [change.verb for change in made.changes]


def refusal(files: dict[str, str], root: Path) -> ScaffoldError:
    with pytest.raises(ScaffoldError) as caught:
        plan(files, root)
    assert caught.value.exit_code == 2
    return caught.value


def test_each_file_is_classed_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "same.py").write_text("x = 1\n")
    (tmp_path / "other.py").write_text("x = 2\n")
    files = {"new.py": "x\n", "same.py": "x = 1\n", "other.py": "x = 1\n"}
    made = plan(files, tmp_path)
    assert verbs(made) == ["create", "identical", "conflict"]
    assert [change.path for change in made.changes] == list(files)
    assert sorted(os.listdir(tmp_path)) == ["other.py", "same.py"]


def test_a_path_may_be_absolute_and_may_name_new_directories(tmp_path: Path) -> None:
    made = plan({str(tmp_path / "a/b/c.py"): "", "d/e.py": ""}, tmp_path)
    assert verbs(made) == ["create", "create"]
    assert made.changes[0].target == tmp_path.resolve() / "a/b/c.py"


@pytest.mark.parametrize("old", [b"a\r\nb\r\n", b"a\r\nb\n"])
def test_line_endings_are_no_difference(tmp_path: Path, old: bytes) -> None:
    (tmp_path / "f.py").write_bytes(old)
    assert verbs(plan({"f.py": "a\nb\n"}, tmp_path)) == ["identical"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"a\r\nb\r\n", b"x\r\ny\r\n"),
        (b"a\r\nb\r\nc\n", b"x\r\ny\r\n"),
        (b"a\r\nb\nc\n", b"x\ny\n"),
        (b"a", b"x\ny\n"),
    ],
)
def test_most_line_endings_of_a_file_are_kept(
    tmp_path: Path, old: bytes, new: bytes
) -> None:
    (tmp_path / "f.py").write_bytes(old)
    (change,) = plan({"f.py": "x\ny\n"}, tmp_path).changes
    assert (change.verb, change.after) == ("conflict", new)


def test_a_file_that_is_not_text_is_a_conflict(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_bytes(b"\xff\xfe")
    assert verbs(plan({"f.py": "x\n"}, tmp_path)) == ["conflict"]


@pytest.mark.parametrize("path", ["../f.py", "a/../../f.py", "/f.py"])
def test_a_path_outside_the_root_is_refused(tmp_path: Path, path: str) -> None:
    assert f"'{path}' is outside" in str(refusal({path: ""}, tmp_path))


def test_the_root_must_be_a_directory(tmp_path: Path) -> None:
    error = refusal({"f.py": ""}, tmp_path / "missing")
    assert "missing' is not a directory" in str(error)


def test_a_directory_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f.py").mkdir()
    assert "'f.py' is a directory" in str(refusal({"f.py": ""}, tmp_path))
    assert "'.' is a directory" in str(refusal({".": ""}, tmp_path))


def test_a_file_where_a_directory_is_needed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ops").write_text("")
    error = refusal({"ops/f.py": ""}, tmp_path)
    assert "cannot use 'ops/f.py': Not a directory" in str(error)


def test_a_pipe_is_refused_and_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "f.py")
    assert "'f.py' is not a regular file" in str(refusal({"f.py": ""}, tmp_path))


def test_a_link_within_the_root_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.py").write_text("old\n")
    (tmp_path / "f.py").symlink_to("real.py")
    (change,) = plan({"f.py": "new\n"}, tmp_path).changes
    assert change.target == tmp_path.resolve() / "real.py"
    assert (change.path, change.verb) == ("f.py", "conflict")


def test_a_link_out_of_the_root_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "real.py").write_text("")
    (root / "f.py").symlink_to("../real.py")
    (root / "ops").symlink_to("..")
    for path in ("f.py", "ops/real.py", "ops/new.py"):
        error = refusal({path: "x"}, root)
        assert f"'{path}' is a link that leads outside" in str(error)


def test_a_dangling_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f.py").symlink_to("missing.py")
    (tmp_path / "g.py").symlink_to("g.py")
    assert "'f.py' is a link that leads nowhere" in str(refusal({"f.py": ""}, tmp_path))
    assert "'g.py'" in str(refusal({"g.py": ""}, tmp_path))


def test_the_root_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    made = plan({"f.py": ""}, tmp_path / "link")
    assert made.changes[0].target == tmp_path.resolve() / "real/f.py"


def test_a_read_only_file_is_refused_only_if_it_differs(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("old\n")
    (tmp_path / "f.py").chmod(0o444)
    assert verbs(plan({"f.py": "old\n"}, tmp_path)) == ["identical"]
    error = refusal({"f.py": "new\n"}, tmp_path)
    assert "'f.py' is read-only and differs" in str(error)
    assert error.hint == "chmod u+w 'f.py'"


def test_a_read_only_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ops").mkdir(mode=0o555)
    for path in ("ops/f.py", "ops/deep/f.py"):
        error = refusal({path: ""}, tmp_path)
        assert f"'{path}' cannot be written" in str(error)


def test_a_file_in_a_read_only_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops/f.py").write_text("old\n")
    (tmp_path / "ops").chmod(0o555)
    assert verbs(plan({"ops/f.py": "old\n"}, tmp_path)) == ["identical"]
    error = refusal({"ops/f.py": "new\n"}, tmp_path)
    assert "'ops/f.py' cannot be written" in str(error)


def test_an_unreadable_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "f.py").write_text("old\n")
    monkeypatch.setattr(disk, "read", read)
    error = refusal({"f.py": "new\n"}, tmp_path)
    assert "cannot use 'f.py': Permission denied" in str(error)


@pytest.mark.parametrize(("old", "new"), [("Linear.py", "linear.py"), ("É", "é")])
def test_a_name_that_differs_in_case_is_refused(
    tmp_path: Path, old: str, new: str
) -> None:
    (tmp_path / old).mkdir()
    error = refusal({f"{new}/f.py": ""}, tmp_path)
    assert f"'{new}/f.py' differs only in case from the existing '{old}'" in str(error)
    assert verbs(plan({f"{old}/f.py": ""}, tmp_path)) == ["create"]


def test_names_that_are_both_there_already_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a")
    if (tmp_path / "A.py").exists():
        pytest.skip("the file system takes them for one")
    (tmp_path / "A.py").write_text("A")
    for name in ("a", "A"):
        assert verbs(plan({f"{name}.py": name}, tmp_path)) == ["identical"]


@pytest.mark.parametrize(
    "other", ["Linear.py", "./linear.py", "x/../linear.py", "link.py"]
)
def test_two_paths_of_one_file_are_refused(tmp_path: Path, other: str) -> None:
    (tmp_path / "linear.py").write_text("")
    (tmp_path / "link.py").symlink_to("linear.py")
    if other == "Linear.py":
        (tmp_path / "linear.py").unlink()
        (tmp_path / "link.py").unlink()
    error = refusal({"linear.py": "a", other: "b"}, tmp_path)
    assert f"'linear.py' and '{other}' would be the same file" in str(error)


def test_a_file_that_is_another_ones_directory_is_refused(tmp_path: Path) -> None:
    error = refusal({"a": "", "a/b.py": ""}, tmp_path)
    assert "'a' would be a file and the directory of 'a/b.py'" in str(error)


@pytest.mark.parametrize("path", ["a\0b.py", "x" * 300, "\ud800.py"])
def test_what_is_no_path_is_refused(tmp_path: Path, path: str) -> None:
    refusal({path: ""}, tmp_path)


def test_text_that_has_no_encoding_is_refused(tmp_path: Path) -> None:
    error = refusal({"f.py": "\ud800"}, tmp_path)
    assert "the text of 'f.py' cannot be written as UTF-8" in str(error)


def test_all_problems_are_reported(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    error = refusal({"d": "", "../x": "", "a.py": "", "A.py": ""}, tmp_path)
    assert isinstance(error, ScaffoldErrors)
    assert len(error.problems) == 3


def test_what_a_record_says_decides(tmp_path: Path) -> None:
    for name in ("ours", "theirs", "kept", "goes", "stays"):
        (tmp_path / f"{name}.py").write_text("old\n")
    files: dict[str, str | None] = {
        f"{name}.py": "new\n" for name in ("ours", "theirs", "kept")
    }
    files |= dict.fromkeys(("goes.py", "stays.py", "none.py"))
    made = plan(files, tmp_path, ours={"ours.py", "goes.py"}, kept={"kept.py"})
    assert verbs(made) == [
        *("update", "conflict", "skip", "remove", "conflict", "identical"),
    ]
    assert [change.path for change in made.writes] == ["ours.py", "goes.py"]


def test_a_file_that_is_kept_may_hold_anything(tmp_path: Path) -> None:
    (tmp_path / "f.py").mkdir()
    assert verbs(plan({"f.py": "new\n"}, tmp_path, kept=["f.py"])) == ["skip"]


def test_a_file_of_ours_keeps_the_formatting_of_its_team(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_bytes(b"f('a',\r\n  b)\r\nx = 1\r\n")
    base, new = 'f("a", b)\nx = 1\n', 'f("a", b)\nx = 2\n'
    (change,) = plan(
        {"f.py": new}, tmp_path, ours=["f.py"], bases={"f.py": base}
    ).changes
    assert (change.verb, change.after) == ("update", b"f('a',\r\n  b)\r\nx = 2\r\n")


@pytest.mark.parametrize("old", [b"\xff\n", b"x = 3\n"])
def test_a_file_of_ours_that_cannot_be_merged_is_written_anew(
    tmp_path: Path, old: bytes
) -> None:
    """Whoever says that it is ours has to know."""
    (tmp_path / "f.py").write_bytes(old)
    bases = {"f.py": "x = 1\n"}
    (change,) = plan({"f.py": "x = 2\n"}, tmp_path, ours=["f.py"], bases=bases).changes
    assert (change.verb, change.after) == ("update", b"x = 2\n")


def removal(root: Path, path: str) -> ScaffoldError:
    with pytest.raises(ScaffoldError) as caught:
        plan({path: None}, root, ours=[path])
    return caught.value


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real.py").write_text("x")
    (tmp_path / "f.py").symlink_to("real.py")
    (change,) = plan({"f.py": None}, tmp_path, ours=["f.py"]).changes
    assert (change.verb, change.target) == ("remove", tmp_path.resolve() / "f.py")
    assert change.before == b"x"


def test_what_is_refused_where_a_file_is_written_is_where_one_goes(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    (root / "locked").mkdir(parents=True)
    (root / "d.py").mkdir()
    (root / "read.py").write_text("x")
    (root / "read.py").chmod(0o444)
    (root / "Case.py").write_text("x")
    (root / "locked/f.py").write_text("x")
    (root / "locked").chmod(0o555)
    (root / "nowhere.py").symlink_to("missing.py")
    (tmp_path / "out.py").write_text("x")
    (root / "out.py").symlink_to("../out.py")
    os.mkfifo(root / "pipe")
    for path, reason in {
        "../out.py": "is outside",
        "out.py": "is a link that leads outside",
        "nowhere.py": "is a link that leads nowhere",
        "d.py": "is a directory",
        "pipe": "is not a regular file",
        "read.py": "is read-only and would be removed",
        "locked/f.py": "cannot be written",
        "case.py": "differs only in case from the existing 'Case.py'",
    }.items():
        assert f"'{path}' {reason}" in str(removal(root, path))


def test_a_file_cannot_go_and_come(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    for other in ("./a", "a/b.py"):
        with pytest.raises(ScaffoldError):
            plan({"a": None, other: "x"}, tmp_path, ours=["a"])


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
