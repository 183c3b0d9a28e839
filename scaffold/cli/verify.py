"""`scaffold verify`: run the generated tests.

Words: a *suite* is a test file to run, its *report* the outcome; a file's *standing* is its status compared with the manifest: stale,
edited, ...; an op is *proven* if its tests passed for the code as it is; `for_programs` means JSON.

In: ops of the manifest, or test files; Functions, shown by `verify_functions`. Out: a table on stdout, one line a file, then the failures; an exit code.
Invariant: all missing names are reported together as errors. A test that could not run, failed or is not written yet is never
reported as passed; exit 0 means that all passed. No file is changed; passed tests go on record.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from scaffold.cli.options import FORMAT, FORMATS, PYTHON, check_choice, offer_ops
from scaffold.cli.output import (
    TERMINAL,
    is_terminal,
    say_hint,
    show_notes,
    show_object,
)
from scaffold.cli.terminal import bar
from scaffold.errors import ConflictError, Location, ScaffoldError, raise_all
from scaffold.project.console import from_here
from scaffold.project.interpreter import OPTION, Interpreter, need_interpreter
from scaffold.verify import processes_for
from scaffold.verify.suites import Report, Suite, run_suites

# Modules that render ops are imported only by a run, not to show help.
if TYPE_CHECKING:
    from scaffold.project.file_status import Checked
    from scaffold.project.project import Project

OPS = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="OP...",
        help="Ops of the manifest (default: all), test files; FILE.py[:CLASS] or a directory of Functions.",
        autocompletion=offer_ops,
    ),
]
JOBS = Annotated[
    int | None,
    typer.Option("--jobs", help="How many test files run at a time.", metavar="NUMBER"),
]
LIMIT = Annotated[
    int | None,
    typer.Option(
        "--limit",
        help="Seconds for a test file (default: 600) or a Function (default: 60).",
        metavar="SECONDS",
        show_default=False,
    ),
]
REFERENCE = Annotated[
    str | None,
    typer.Option(
        "--reference",
        help="What a Function computes, in plain PyTorch: a function or a module.",
        metavar="FILE:NAME",
    ),
]
INPUTS = Annotated[
    str | None,
    typer.Option(
        "--inputs",
        help="What a Function takes: 'x[N, D], w[D], eps: float = 1e-6'.",
        metavar="TEXT",
    ),
]
SAMPLES = Annotated[
    str | None,
    typer.Option(
        "--samples",
        help="A function that returns arguments for it: '@file.py:make'.",
        metavar="@FILE:NAME",
    ),
]
COMPILE = Annotated[
    bool, typer.Option("--compile", help="Check torch.compile of a Function, too.")
]


def verify(
    ops: OPS = None,
    python: PYTHON = None,
    jobs: JOBS = None,
    limit: LIMIT = None,
    reference: REFERENCE = None,
    inputs: INPUTS = None,
    samples: SAMPLES = None,
    compile_: COMPILE = False,
    format_: FORMAT = "text",
) -> None:
    """Run the tests of ops, or check hand-written Functions.

    Tests run in a process of their own, and change no file. If the tests of an op pass, it is recorded as proven, in .scaffold/. A Function (FILE.py, FILE.py:CLASS, a directory) is called with suitable inputs, and its gradients are compared with finite differences, or with those of the reference. Exit code 1: something failed, or a part of an op is not written yet.

    Example: scaffold verify layers.py:FusedNorm --reference layers.py:plain_norm
    """
    names = tuple(ops or ())
    functions = tuple(name for name in names if names_functions(name))
    said = {"inputs": inputs, "reference": reference, "samples": samples}
    options = {**said, "compile": compile_}
    # Only faults of Functions have a line to annotate.
    words = (*FORMATS, "github") if functions else FORMATS
    problems = check_choice("--format", format_, words)
    problems += _numbers(limit, jobs)
    problems += _mixed(
        names, functions, [key for key, value in options.items() if value]
    )
    raise_all(problems)
    for_programs = format_ != "text"
    interpreter = _interpreter(python)
    if not for_programs and python is None:
        show_notes(interpreter.note("run"))
    used = interpreter.path
    if functions:
        from scaffold.cli.verify_functions import Run, show_verdicts

        seconds = FUNCTION_LIMIT if limit is None else limit
        stated = {**said, "compiled": compile_}
        show_verdicts(functions, stated, Run(used, jobs, seconds), format_)
        return
    seconds = TEST_LIMIT if limit is None else limit
    found = find_tests(names)
    show_proofs(found, Asked(used, jobs, seconds, for_programs))


TEST_LIMIT, FUNCTION_LIMIT = 600, 60  # seconds


def names_functions(name: str) -> bool:
    """Return whether an argument names hand-written Functions rather than an op or tests.

    It does as FILE.py:CLASS, as a directory, and as a file that holds Functions and is no test file.
    """
    path = name.rpartition(":")[0]
    if path.endswith(".py") or Path(name).is_dir():
        return True
    # A test file may define Functions to test: it is run all the same.
    test = re.search(r"(^|/)test_[^/]*$|_test\.py$", name)
    if test or not name.endswith(".py") or not Path(name).is_file():
        return False
    from scaffold.project.hand_written import holds_functions

    return holds_functions(name)


def _mixed(
    names: Sequence[str], functions: Sequence[str], said: Sequence[str]
) -> list[ScaffoldError]:
    """Return a problem if the names are of tests and of Functions, or if options for Functions (`said`) are given without any."""
    if functions and len(functions) < len(names):
        other = next(name for name in names if name not in functions)
        message = f"'{other}' is not a file of Functions, but '{functions[0]}' is"
        return [ScaffoldError(message, hint="verify them in two runs")]
    hint = "name one: scaffold verify layers.py:FusedNorm"
    return [
        ScaffoldError(
            "the option is for a hand-written Function", Location(f"--{key}"), hint
        )
        for key in said
        if not functions
    ]


def _numbers(limit: int | None, jobs: int | None) -> list[ScaffoldError]:
    """Return the problems of --limit and --jobs: each is at least 1, if it is given."""
    rows = (("--limit", limit, "seconds", 600), ("--jobs", jobs, "processes", 1))
    return [
        ScaffoldError(
            f"'{number}' is not a number of {things}",
            Location(option),
            f"write: {option} {valid}",
        )
        for option, number, things, valid in rows
        if number is not None and number < 1
    ]


def _interpreter(python: str | None) -> Interpreter:
    """Return the interpreter to run tests with; one given by --python is not checked here, as starting it shows its faults."""
    if python is not None:
        return Interpreter(python, OPTION)
    return need_interpreter(None, "scaffold verify")


APART = frozenset({"orphaned", "lost"})  # no test runs them
# As written: tests provide the proofs.
PLAIN = frozenset({"ok", "unproven", "unprovable"})
QUIET = PLAIN | {"missing"}  # for the test file, "missing" is reported anyway


class Tested(NamedTuple):
    """A test file, and the known facts about its op."""

    name: str  # the op's, or the path as typed
    directory: Path  # to run it from
    test: Path | None  # None: the op has no tests
    there: bool = True
    project: "Project | None" = None  # of the op
    # Paths and statuses of files other than ok.
    standing: tuple[tuple[str, str], ...] = ()


def find_tests(names: tuple[str, ...]) -> tuple[Tested, ...]:
    """Return the tests of the named ops and files, of all ops without names; raise if one is missing."""
    files = [name for name in names if _is_path(name)]
    ops = tuple(name for name in names if not _is_path(name))
    # By whether the path exists.
    absent = ("No such file or directory", "it is not a regular file")
    problems: list[ScaffoldError] = [
        ScaffoldError(
            f"cannot read '{name}': {absent[Path(name).exists()]}",
            hint="name ops of the manifest, or test files: scaffold verify test_linear.py",
        )
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


def _is_path(name: str) -> bool:
    """Return whether an argument is a path of a test file rather than the name of an op."""
    return name.endswith(".py") or "/" in name


def _of_project(names: tuple[str, ...]) -> Iterable[Tested]:
    """Yield the tests of the named ops of the project, or of all, each with its files' statuses other than ok."""
    from scaffold.project.file_status import check_project
    from scaffold.project.project import open_project

    # Named ops get an error of their own below if there is no manifest.
    project = open_project(may_lack=bool(names))
    if not project.texts:
        raise_all([_unlisted(name) for name in names])
    by_op: dict[str, dict[str, Checked]] = {op: {} for op in project.chosen(names)}
    for item in check_project(project, tuple(by_op), TERMINAL):
        if item.op in by_op and item.status not in APART:
            by_op[item.op].setdefault(item.role, item)  # unproven may follow
    for op, roles in by_op.items():
        yield _tested(project, op, roles)


def _unlisted(name: str) -> ScaffoldError:
    """Return the error for an argument outside a project: no op has a name there, so it must be a file."""
    tests = f"test_{name}.py"
    place = Path(tests)
    if not place.is_file():
        place = Path("PATH", tests)
    hint = f"name its test file: scaffold verify {place}"
    return ScaffoldError(f"no op '{name}': there is no manifest here", hint=hint)


def _tested(project: "Project", op: str, roles: "dict[str, Checked]") -> Tested:
    """Return the test of an op, with the statuses of its files a reader must know to trust the result.

    `roles` are its checked files by role.
    """
    test, file = roles.get("test"), roles.get("op")
    return Tested(
        op,
        project.root,
        Path(from_here(project.root, test.path)) if test else None,
        there=test is None or test.status != "missing",
        project=project,
        standing=tuple(
            (from_here(project.root, item.path), item.status)
            for item in roles.values()
            # A missing op file matters: the tests import it.
            if item.status not in QUIET or (item is file and item.status not in PLAIN)
        ),
    )


# --- Whether tests pass.


SHOWN = 5  # failures of a file
STATUSES = ("passed", "failed", "not implemented", "missing", "no tests", "untested")
PASSING = frozenset({"passed", "untested"})


class Asked(NamedTuple):
    """How to run the tests, and the form of the report."""

    python: str
    jobs: int | None
    limit: int
    for_programs: bool


class Proof(NamedTuple):
    """The outcome of an op's tests."""

    tested: Tested
    report: Report | None  # None: nothing to run

    @property
    def status(self) -> str:
        """Return one of STATUSES."""
        if self.report is not None:
            return self.report.status
        return "untested" if self.tested.test is None else "missing"

    @property
    def words(self) -> str:
        """Return the status in words, with numbers of tests or the reason for it."""
        if self.report is not None:
            return self.report.words
        if self.tested.test is None:
            return "has no tests, as its table says"
        return f"no test file: {self.tested.test} (scaffold sync)"


def show_proofs(found: Sequence[Tested], asked: Asked) -> None:
    """Run the tests, report the outcomes, and record an op whose tests passed as proven; exit with 1 unless all passed."""
    from scaffold.project.proofs import begin, record_passed

    stale = {
        item.name: "stale" in dict(item.standing).values()
        for item in found
        if item.project
    }
    # All ops are of one project; files named by the user are of none.
    project = next((item.project for item in found if item.project), None)
    begun = begin(project, stale) if project else {}
    width = max((len(item.name) for item in found), default=0)
    proofs = []
    for proof in _proofs(found, asked):
        proofs.append(proof)
        if not asked.for_programs:
            _show(proof, width)
    passed = {
        proof.tested.name: proof.report.torch
        for proof in proofs
        if proof.report is not None and proof.status == "passed"
    }
    unproven = record_passed(passed, begun)
    if asked.for_programs:
        _show_json(proofs, unproven)
    else:
        _show_failures(proofs)
        counted = Counter(proof.status for proof in proofs)
        counts = [f"{counted[name]} {name}" for name in STATUSES if counted[name]]
        typer.echo(", ".join(counts) or "no ops")
        show_notes(f"{name} passed, unproven: {why}" for name, why in unproven.items())
        _hint_of_uninstalled(proofs)
    if any(proof.status not in PASSING for proof in proofs):
        sys.exit(ConflictError.exit_code)


def _proofs(found: Sequence[Tested], asked: Asked) -> Iterator[Proof]:
    """Run the tests in several processes; yield the outcomes in the order of `found`, each as soon as its predecessors are done."""
    suites = [
        Suite(item.test.resolve(), item.directory)
        for item in found
        if item.test and item.there
    ]
    line = _Line(len(suites))
    jobs = asked.jobs or processes_for(len(suites))
    reports = run_suites(suites, asked.python, jobs, asked.limit, line.show)
    try:
        for item in found:
            runs = item.test is not None and item.there
            report = next(reports) if runs else None  # each suite has one
            line.clear(ended=1 if runs else 0)
            yield Proof(item, report)
    finally:
        line.clear()
        reports.close()  # end the tests still running


class _Line:
    """A progress line on the terminal, which results overwrite; nothing without a terminal.

    `files` is the number of test files, `done` how many have ended, `tests` the tests ended as last shown, -1 if cleared.
    """

    def __init__(self, files: int) -> None:
        self.files, self.done, self.tests = files, 0, -1
        self.shown = is_terminal()

    def show(self, tests: int) -> None:
        """Show how many tests have ended."""
        # Most answers of a process end no test.
        if self.shown and tests != self.tests:
            self.tests = tests
            said = f"{self.done}/{self.files} files, {tests} tests"
            text = bar(self.done, self.files, said) if self.files > 1 else said
            typer.echo(f"\r{text}", nl=False, err=True)

    def clear(self, ended: int = 0) -> None:
        """Clear the line, to print a result in its place; of its test files `ended` more count as done."""
        self.done += ended
        if self.shown:
            self.tests = -1
            typer.echo("\r\033[K", nl=False, err=True)


def _show(proof: Proof, width: int) -> None:
    """Print an outcome in one line, names padded to `width`, with unusual statuses of files at its end."""
    files = ", ".join(f"{path}: {status}" for path, status in proof.tested.standing)
    aside = f"  ({files})" if files else ""
    line = f"{proof.tested.name:{width}}  {proof.words}{aside}\n"
    typer.echo(line.encode(errors="surrogateescape"), nl=False)


def _show_failures(proofs: Sequence[Proof]) -> None:
    """Print the failures of each test file, the first `SHOWN`, each with the first line of its reason, and what the run said."""
    for proof in proofs:
        report = proof.report
        if report is None or not (report.failures or report.said):
            continue
        lines = [f"\n{proof.tested.test}"]
        lines += [f"  {item.test}: {item.words}" for item in report.failures[:SHOWN]]
        if len(report.failures) > SHOWN:
            lines.append(f"  and {len(report.failures) - SHOWN} more")
        lines += [f"  | {line}" for line in report.said]
        # A failure may quote half of a surrogate pair, which has no bytes.
        text = "\n".join(lines) + "\n"
        typer.echo(text.encode(errors="backslashreplace"), nl=False)
    if any(proof.report and proof.status == "failed" for proof in proofs):
        typer.echo()  # between the failures and the counts


def _hint_of_uninstalled(proofs: Sequence[Proof]) -> None:
    """Print a hint to install the project's package if tests cannot import it."""
    for proof in proofs:
        project = proof.tested.project
        package = project.configuration.package if project else None
        top = (package or "").partition(".")[0]
        # Without the closing quote: a missing module inside the package, 'ops.norm', counts, too.
        if project and package and f"No module named '{top}" in proof.words:
            say_hint(f"pip install -e {from_here(project.root, '.')}")
            return


def _show_json(proofs: Sequence[Proof], unproven: Mapping[str, str]) -> None:
    """Print the outcomes as JSON; `unproven` has, by op, why passed tests are no proof."""
    rows = []
    for proof in proofs:
        report, tested = proof.report, proof.tested
        rows.append(
            {
                "name": tested.name,
                "test": str(tested.test) if tested.test else None,
                "status": proof.status,
                "words": proof.words,
                "counts": dict(report.counts) if report else {},
                "unwritten": list(report.unwritten) if report else [],
                "failures": (
                    [item._asdict() for item in report.failures] if report else []
                ),
                "files": dict(tested.standing),
                "unproven": unproven.get(tested.name, ""),
            }
        )
    show_object({"tests": rows})
