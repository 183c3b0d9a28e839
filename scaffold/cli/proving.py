"""Whether the tests of ops pass: `scaffold verify`; what they prove goes on record.

In: test files, the interpreter that runs them. Out: a table on stdout, one line a file, then the failures; an exit code.
Invariant: what could not be run, failed or is not written yet is never said to have passed; exit 0 means that all passed.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import typer

from scaffold.cli.programs import show_object
from scaffold.cli.report import show_notes
from scaffold.errors import ConflictError

if TYPE_CHECKING:
    from scaffold.cli.tested import Tested
    from scaffold.verify.reports import Report

SHOWN = 5  # failures of a file
STATUSES = ("passed", "failed", "not implemented", "missing", "no tests", "untested")
PASSING = frozenset({"passed", "untested"})


class Asked(NamedTuple):
    """How the tests are to be run, and what is said of it."""

    python: str
    jobs: int | None
    limit: int
    for_programs: bool


class Proof(NamedTuple):
    """What became of the tests of an op."""

    tested: "Tested"
    report: "Report | None"  # None: there was nothing to run

    @property
    def status(self) -> str:
        """One of STATUSES."""
        if self.report is not None:
            return self.report.status
        return "untested" if self.tested.test is None else "missing"

    @property
    def words(self) -> str:
        """The same in words."""
        if self.report is not None:
            return self.report.words
        if self.tested.test is None:
            return "has no tests, as its table says"
        return f"no test file: {self.tested.test} (scaffold sync)"


def show_proofs(found: "Sequence[Tested]", asked: Asked) -> None:
    """Run the tests, say what became of them and record what they prove; exit with 1 unless all passed."""
    from scaffold.cli.passed import begin, record_passed

    begun = begin(found)
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
    if any(proof.status not in PASSING for proof in proofs):
        sys.exit(ConflictError.exit_code)


def _proofs(found: "Sequence[Tested]", asked: Asked) -> Iterator[Proof]:
    """In the order of what was asked for, each as soon as it is known."""
    from scaffold.verify.suites import Suite, jobs_for, run_suites

    suites = [
        Suite(item.test.resolve(), item.directory)
        for item in found
        if item.test and item.there
    ]
    line = _Line(len(suites))
    jobs = asked.jobs or jobs_for(len(suites))
    reports = run_suites(suites, asked.python, jobs, asked.limit, line.show)
    try:
        for item in found:
            runs = item.test is not None and item.there
            report = next(reports) if runs else None
            line.clear(done=runs)
            yield Proof(item, report)
    finally:
        line.clear()
        reports.close()  # whatever still runs ends now


class _Line:
    """A line on the terminal that says how far a run is; nothing where there is no terminal."""

    def __init__(self, files: int) -> None:
        self.files, self.done, self.tests = files, 0, -1
        self.shown = bool(sys.stderr and sys.stderr.isatty())

    def show(self, tests: int) -> None:
        """Show how many tests have ended."""
        if self.shown and tests != self.tests:
            self.tests = tests
            text = f"\r{self.done}/{self.files} files, {tests} tests"
            typer.echo(text, nl=False, err=True)

    def clear(self, done: bool = False) -> None:
        """Make room for what is said of a file."""
        self.done += done
        if self.shown:
            self.tests = -1
            typer.echo("\r\033[K", nl=False, err=True)


def _show(proof: Proof, width: int) -> None:
    files = ", ".join(f"{path}: {status}" for path, status in proof.tested.standing)
    aside = f"  ({files})" if files else ""
    line = f"{proof.tested.name:{width}}  {proof.words}{aside}\n"
    typer.echo(line.encode(errors="surrogateescape"), nl=False)


def _show_failures(proofs: Sequence[Proof]) -> None:
    """The tests that failed, each with the first line of why."""
    for proof in proofs:
        report = proof.report
        if report is None or not (report.failures or report.said):
            continue
        lines = [f"\n{proof.tested.test}"]
        lines += [f"  {item.test}: {item.words}" for item in report.failures[:SHOWN]]
        if len(report.failures) > SHOWN:
            lines.append(f"  and {len(report.failures) - SHOWN} more")
        lines += [f"  | {line}" for line in report.said]
        text = "\n".join(lines) + "\n"
        typer.echo(text.encode(errors="backslashreplace"), nl=False)
    if any(proof.report and proof.status == "failed" for proof in proofs):
        typer.echo()


def _show_json(proofs: Sequence[Proof], unproven: Mapping[str, str]) -> None:
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
