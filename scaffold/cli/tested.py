"""The test files that a user names: by their path, or by the op that they are about.

In: names as typed; without any, every op of the manifest is meant. Out: a `Tested` each.
Invariant: whatever is named and is not there is an error, all of them together; nothing is run or written.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scaffold.errors import Location, ScaffoldError, raise_all

if TYPE_CHECKING:
    from scaffold.cli.checking import Checked
    from scaffold.cli.project import Project

APART = frozenset({"orphaned", "lost"})  # no test runs them
PLAIN = frozenset(
    {"ok", "unproven", "unprovable"}
)  # as written: proofs are what tests are for
QUIET = PLAIN | {"missing"}  # of the test file, what is missing is said anyway


class Tested(NamedTuple):
    """A test file, and what is known of the op that it is about."""

    name: str  # of the op, or the path as it was typed
    directory: Path  # that it is run from
    test: Path | None  # None: the op has no tests
    there: bool = True
    op: Path | None = None  # its file
    place: Location | None = None  # of the op's table
    project: "Project | None" = None  # that the op is of
    standing: tuple[
        tuple[str, str], ...
    ] = ()  # paths of files that are not ok, and why


def find_tests(names: tuple[str, ...]) -> tuple[Tested, ...]:
    """What is to be tested."""
    files = [name for name in names if _is_path(name)]
    ops = tuple(name for name in names if not _is_path(name))
    problems: list[ScaffoldError] = [
        ScaffoldError(f"cannot read '{name}': No such file or directory")
        for name in files
        if not Path(name).is_file()
    ]
    found = {name: Tested(name, Path.cwd(), Path(name)) for name in files}
    if ops or not names:
        try:
            found |= {item.name: item for item in _of_project(ops)}
        except ScaffoldError as error:
            problems.append(error)
    raise_all(problems)
    return tuple(found[name] for name in dict.fromkeys(names or found))


def for_mutants(
    found: Iterable[Tested], op: Path | None
) -> list[tuple[Path, Path | None]]:
    """Test files, each with the file of its op where that is known; all of them must be there."""
    problems = []
    for item in found:
        if item.test is None or not item.there:
            lacks = "no tests" if item.test is None else "no test file yet"
            what = f"op '{item.name}' has {lacks}"
            hint = "scaffold sync" if item.test else "its table says: test = false"
            problems.append(ScaffoldError(what, item.place, hint))
    raise_all(problems)
    return [(item.test, op or item.op) for item in found if item.test]


def _is_path(name: str) -> bool:
    return name.endswith(".py") or "/" in name


def _of_project(names: tuple[str, ...]) -> "Iterable[Tested]":
    """The tests of ops, and how the files of these stand."""
    from scaffold.cli.checking import check_project
    from scaffold.cli.project import open_project

    project = open_project(may_lack=bool(names))
    if not project.texts:
        raise_all([_unlisted(name) for name in names])
    by_op: dict[str, dict[str, Checked]] = {op: {} for op in project.chosen(names)}
    for item in check_project(project, tuple(by_op)):
        if item.op in by_op and item.status not in APART:
            by_op[item.op].setdefault(item.role, item)  # after it may stand: unproven
    for op, roles in by_op.items():
        yield _tested(project, op, roles)


def _unlisted(name: str) -> ScaffoldError:
    """That an op is known by its name in a project alone."""
    tests = f"test_{name}.py"
    place = Path(tests)
    if not place.is_file():
        place = Path("PATH", tests)
    hint = f"name its test file: scaffold verify {place}"
    return ScaffoldError(f"no op '{name}': there is no manifest here", hint=hint)


def _tested(project: "Project", op: str, roles: "dict[str, Checked]") -> Tested:
    from scaffold.cli.places import from_here

    test, file = roles.get("test"), roles.get("op")
    return Tested(
        op,
        project.root,
        Path(from_here(project.root, test.path)) if test else None,
        there=test is None or test.status != "missing",
        op=Path(from_here(project.root, file.path)) if file else None,
        place=project.listed[op].entry.locate((), key=True),
        project=project,
        standing=tuple(
            (from_here(project.root, item.path), item.status)
            for item in roles.values()
            if item.status not in QUIET or (item is file and item.status not in PLAIN)
        ),
    )
