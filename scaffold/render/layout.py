"""The names of an op's files, and the paths to import them by.

The renderer writes imports by them, `workspace` files. In: an op's name and the directories. Out: paths and import names. Invariant:
every path is relative.
"""

import posixpath
from collections.abc import Iterator
from typing import NamedTuple

from scaffold.spec.names import DEFAULT, Patterns
from scaffold.spec.other_tools import LINE_LENGTH


class OpTesting(NamedTuple):
    """The module shared by the tests of a project: its import name and its path."""

    module: str = "op_testing"  # dotted
    path: str = "op_testing.py"
    start: str | None = None  # directory to import it from; None: all tests find it
    # Whether the test runner puts `start` on the path, though not for tests in directories below.
    beside: bool = True


class Directories(NamedTuple):
    """The directories of files: relative paths with forward slashes."""

    source: str = "."
    tests: str = "."
    package: str | None = None  # the dotted name of the source directory
    importable: bool = False  # the package is installed or on the test runner's path
    beside: bool = True  # the test runner puts a test's own directory on the path
    line_length: int = LINE_LENGTH
    patterns: Patterns = DEFAULT
    op_testing: OpTesting | None = None  # None: each test holds its code


class Layout(NamedTuple):
    """The paths of one op's files."""

    module: str  # dotted import of the op's file: `linear`, `myops.linear`
    op_path: str
    test_path: str
    line_length: int = LINE_LENGTH
    search_paths: tuple[str, ...] = ()  # as seen from the test file's directory
    # The module the test imports its test methods from; None: it holds them.
    op_testing: str | None = None
    triton_path: str = ""  # of the kernels, where there are any


def layout(name: str, directories: Directories) -> Layout:
    """Return the paths of an op's files, by the patterns of the project."""
    package, patterns = directories.package, directories.patterns
    op_file = patterns.op_file(name)
    stem = op_file.removesuffix(".py")
    test_path = posixpath.normpath(f"{directories.tests}/{patterns.test_file(name)}")
    return Layout(
        module=f"{package}.{stem}" if package else stem,
        op_path=posixpath.normpath(f"{directories.source}/{op_file}"),
        test_path=test_path,
        triton_path=posixpath.normpath(f"{directories.source}/{stem}_triton.py"),
        line_length=directories.line_length,
        search_paths=tuple(
            dict.fromkeys(_search_paths(directories, posixpath.dirname(test_path)))
        ),
        op_testing=directories.op_testing.module if directories.op_testing else None,
    )


def _search_paths(directories: Directories, tests: str) -> Iterator[str]:
    """Yield the directories for a test to add to `sys.path`, relative to its own, `tests`, unless the test runner finds them by itself.

    They are those of the shared test module and of the op: the directory that contains the op's package.
    """
    # The directory of `test_op.py` is "".
    shared, tests = directories.op_testing, tests or "."  # `shared`: of all tests
    if shared is not None and shared.start is not None:
        lies_there = tests == posixpath.normpath(directories.tests)
        # The test runner puts `start` on the path, but not for tests in a directory below.
        if not (shared.beside and lies_there):
            yield posixpath.relpath(shared.start, tests)
    source = posixpath.normpath(directories.source)
    # The op is found by itself: installed, or beside the test.
    if directories.importable or source == tests and directories.beside:
        return
    levels = len(directories.package.split(".")) if directories.package else 0
    start = posixpath.normpath(posixpath.join(directories.source, *[".."] * levels))
    yield posixpath.relpath(start, tests)
