"""Patterns of names: what passes gives every op files and classes that Python and pytest can find."""

from fnmatch import fnmatch
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaffold.errors import Location
from scaffold.spec.names import Patterns, read_patterns
from scaffold.spec.problems import KeyPath, Problems

COLLECTED = ("test_*.py", "*_test.py")  # what pytest takes for tests


def read(**table: object) -> Patterns | None:
    """The patterns of a table; None where something is amiss."""

    def locate(path: KeyPath, *, key: bool = False) -> Location:
        return Location("/".join(path))

    problems = Problems(locate)
    found = read_patterns(table, ("names",), problems)
    return None if problems else found


def is_collected(path: str) -> bool:
    return any(fnmatch(PurePosixPath(path).name, one) for one in COLLECTED)


@pytest.mark.parametrize(
    ("key", "pattern", "name"),
    [
        ("file", "{op}.py", "rms_norm.py"),
        ("file", "_{op}.py", "_rms_norm.py"),
        ("file", "op_{op}_v2.py", "op_rms_norm_v2.py"),
        ("test", "test_{op}.py", "test_rms_norm.py"),
        ("test", "test_{op}_op.py", "test_rms_norm_op.py"),
        ("test", "{op}_test.py", "rms_norm_test.py"),
        ("test", "op_{op}_unit_test.py", "op_rms_norm_unit_test.py"),
        ("test", "{op}/test_{op}.py", "rms_norm/test_rms_norm.py"),
        ("test", "a-b/c/{op}_x/test_{op}.py", "a-b/c/rms_norm_x/test_rms_norm.py"),
        ("function", "{Op}Function", "RMSNormFunction"),
        ("function", "_{Op}", "_RMSNorm"),
        ("module", "{Op}", "RMSNorm"),
        ("module", "Fast{Op}Layer", "FastRMSNormLayer"),
    ],
)
def test_a_pattern_names_files_and_classes(key: str, pattern: str, name: str) -> None:
    found = read(**{key: pattern})
    assert found is not None
    makes = {
        "file": found.op_file("rms_norm"),
        "test": found.test_file("rms_norm"),
        "function": found.function_class("RMSNorm"),
        "module": found.module_class("RMSNorm"),
    }
    assert makes[key] == name


@pytest.mark.parametrize(
    ("key", "pattern"),
    [
        *(("file", text) for text in ("", "x.py", "{op}", "{op}.pyi", "{Op}.py")),
        *(("file", text) for text in ("test_{op}.py", "{op}_test.py", "2{op}.py")),
        *(("file", text) for text in ("a/{op}.py", "a-{op}.py", "{op}.py\n", " {op}.py")),
        *(("file", text) for text in ("{op}{op}.py", "a_{op}_test.py", "{op}é.py")),
        *(("test", text) for text in ("{op}.py", "test{op}.py", "test_.py", "tests.py")),
        *(("test", text) for text in ("../test_{op}.py", "/test_{op}.py", "./{op}_test.py")),
        *(("test", text) for text in ("{op}//test_{op}.py", "a/../test_{op}.py", "test_{op}")),
        *(("test", text) for text in ("test_{op}.py/test_x.py", "a\\test_{op}.py")),
        *(("function", text) for text in ("Function", "{op}Function", "2{Op}", "{Op}-F")),
        *(("function", text) for text in ("{Op}", "{Op}{Op}", "{Op}.F", "{Op}\n", 3)),
        *(("module", text) for text in ("{Op}Function", "", "class {Op}", "{Op")),
        ("tests", "test_{op}.py"),
    ],
)  # fmt: skip
def test_a_pattern_that_names_nothing_is_refused(key: str, pattern: object) -> None:
    assert read(**{key: pattern}) is None


PIECES = st.lists(
    st.sampled_from(["{op}", "{Op}", "test", "_", "a", "9", "/", ".py", "-", "."]),
    max_size=7,
).map("".join)


@given(PIECES, PIECES, st.sampled_from(["f", "rms_norm", "_x", "tester"]))
def test_what_passes_can_be_found(file: str, test: str, op: str) -> None:
    of_op, of_test = read(file=file), read(test=test)
    if of_op is not None:
        name = of_op.op_file(op)
        assert name.removesuffix(".py").isidentifier() and name.endswith(".py")
        assert not is_collected(of_op.op_file("f"))
        assert of_op.op_file("a") != of_op.op_file("b")
    if of_test is not None:
        assert is_collected(of_test.test_file(op))
        assert ".." not in of_test.test_file(op).split("/")
        assert PurePosixPath(of_test.test_file("a")) != PurePosixPath(
            of_test.test_file("b")
        )
