"""Where an op's files are and how they refer to each other.

In: an op's name and the directories. Out: paths and import names. Invariant: every path is relative.
"""

import posixpath
from typing import NamedTuple

from scaffold.spec.names import DEFAULT, Patterns


class Directories(NamedTuple):
    """Where files go: relative paths with forward slashes."""

    source: str = "."
    tests: str = "."
    package: str | None = None  # the dotted name of the source directory
    importable: bool = False  # the package is installed or on the test runner's path
    beside: bool = True  # the test runner puts a test's own directory on the path
    line_length: int = 88
    patterns: Patterns = DEFAULT
    op_testing: str | None = (
        None  # the module that tests import, dots and all; None: it is put into each
    )


class Layout(NamedTuple):
    """The places of one op's files."""

    module: str  # dotted import of the op's file: `linear`, `myops.linear`
    op_path: str
    test_path: str
    line_length: int = 88
    search_path: str | None = (
        None  # where the tests find the op, relative to their own directory
    )
    op_testing: str | None = (
        None  # what the test imports its questions from; None: it holds them
    )


def layout(name: str, directories: Directories) -> Layout:
    """The files of an op, by the patterns of the project."""
    package, patterns = directories.package, directories.patterns
    op_file = patterns.op_file(name)
    stem = op_file.removesuffix(".py")
    test_path = posixpath.normpath(f"{directories.tests}/{patterns.test_file(name)}")
    return Layout(
        module=f"{package}.{stem}" if package else stem,
        op_path=posixpath.normpath(f"{directories.source}/{op_file}"),
        test_path=test_path,
        line_length=directories.line_length,
        search_path=_search_path(directories, posixpath.dirname(test_path) or "."),
        op_testing=directories.op_testing,
    )


def _search_path(directories: Directories, tests: str) -> str | None:
    """The directory that the import starts from, unless the test runner finds it by itself."""
    if directories.importable:
        return None
    source = posixpath.normpath(directories.source)
    if source == tests and directories.beside:
        return None
    levels = len(directories.package.split(".")) if directories.package else 0
    start = posixpath.normpath(posixpath.join(directories.source, *[".."] * levels))
    return posixpath.relpath(start, tests)
