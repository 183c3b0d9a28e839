"""Where an op's files lie, and from where a test imports the op."""

import pytest

from scaffold.render.layout import Directories, Layout, OpTesting, layout


def test_beside_each_other_nothing_is_searched() -> None:
    expected = Layout("foo", "foo.py", "test_foo.py", triton_path="foo_triton.py")
    assert layout("foo", Directories()) == expected


@pytest.mark.parametrize(
    ("directories", "module", "paths"),
    [
        (Directories("src", "tests"), "foo", ("../src",)),
        (Directories("src/ops", "tests", "team.ops"), "team.ops.foo", ("..",)),
        (Directories("src/ops", "tests", "ops"), "ops.foo", ("../src",)),
        (Directories("src/ops", "tests", "ops", importable=True), "ops.foo", ()),
        (Directories(".", ".", beside=False), "foo", (".",)),
    ],
)
def test_the_import_starts_where_the_package_does(
    directories: Directories, module: str, paths: tuple[str, ...]
) -> None:
    found = layout("foo", directories)
    assert (found.module, found.search_paths) == (module, paths)


def test_a_shared_module_that_lies_elsewhere_is_searched_first() -> None:
    shared = OpTesting("testing.shared", "lib/testing/shared.py", "lib", beside=False)
    found = layout("foo", Directories("src", "tests", op_testing=shared))
    assert found.op_testing == "testing.shared"
    assert found.search_paths == ("../lib", "../src")
