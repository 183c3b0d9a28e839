"""The line of an error, with carets below its place."""

from pathlib import Path

import pytest

from tests.cli.running import scaffold

FOO = ("new-op", "foo", "--no-module")


def shown(directory: Path, *arguments: str) -> list[str]:
    """The lines of an answer that are no message."""
    lines = scaffold(directory, *FOO, *arguments).err.splitlines()
    return [line for line in lines if " | " in line]


@pytest.mark.parametrize(
    "forward", [("--forward", "x * wieght"), ("--forward=x * wieght",)]
)
def test_a_name_in_an_option_is_underlined(
    forward: tuple[str, ...], tmp_path: Path
) -> None:
    assert shown(tmp_path, "--inputs", "x, weight", *forward) == [
        "    1 | x * wieght",
        "      |     ^^^^^^",
    ]


def test_a_place_in_a_file_is_shown_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "maths.py").write_text("def f(x):\n\treturn x * q  # é\n")
    assert shown(tmp_path, "--inputs", "x", "--forward", "@maths.py") == [
        "    2 |  return x * q  # é",
        "      |             ^",
    ]


def test_an_option_that_is_given_twice_is_told_apart_by_the_name(
    tmp_path: Path,
) -> None:
    inputs = ("--inputs", "x, m[; const], n[; const]", "--buffers", "m, n", "--module")
    updates = ("--update", "m=x + q", "--update", "n=x + r")
    assert shown(tmp_path, *inputs, *updates) == [
        *("    1 | m=x + q", "      |       ^"),
        *("    1 | n=x + r", "      |       ^"),
    ]


def test_a_place_that_may_be_in_either_has_no_line(tmp_path: Path) -> None:
    grads = ("--grad", "x=(grad_output +", "--grad", "w=(grad_output +")
    said = scaffold(tmp_path, *FOO, "--inputs", "x, w", "--forward", "x * w", *grads)
    assert "--grad:1:" in said.err and " | " not in said.err


def test_an_error_of_a_whole_text_has_no_line(tmp_path: Path) -> None:
    assert not shown(tmp_path, "--inputs", "x", "--style", "none")
    assert not shown(tmp_path, "--inputs", "x", "--forward", "y = x")


def test_of_a_long_line_a_part_is_shown(tmp_path: Path) -> None:
    many = " + ".join(["x"] * 60)
    line, carets = shown(
        tmp_path, "--inputs", "x", "--forward", f"({many}) * yy * ({many})"
    )
    at = carets.index("^^")
    assert line[at : at + 4] == "yy *" and carets.count("^") == 2
    assert len(line) < 150 and line.startswith("    1 | ... ") and line[-4:] == " ..."


def test_a_control_character_of_the_text_is_not_printed(tmp_path: Path) -> None:
    (tmp_path / "maths.py").write_text("def f(x):\n    return '\x1b[31m' + x * q\n")
    line, carets = shown(tmp_path, "--inputs", "x", "--forward", "@maths.py")
    assert "\x1b" not in line and line[carets.index("^")] == "q"


def test_json_says_nothing_of_it(tmp_path: Path) -> None:
    said = scaffold(
        tmp_path, *FOO, "--inputs", "x", "--forward", "x * q", "--format", "json"
    )
    assert " | " not in said.out and "      |     ^" in said.err
