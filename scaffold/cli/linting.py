"""A run of the linter: configuration, files, processes, baseline, fixes.

In: paths and codes. Out: a `Run`; with `mend` also files.
Invariant: the findings are those of the files as they stand on the disk when the run ends.
"""

import os
from functools import partial
from pathlib import Path
from typing import NamedTuple

import typer

from scaffold.cli.here import configuration_here
from scaffold.cli.scanning import Tree, each, look_through
from scaffold.cli.sources import is_plain_utf8, read_source
from scaffold.errors import Location, ScaffoldError, raise_all
from scaffold.lint import Finding, Unreadable, lint_text
from scaffold.lint.baseline import read_baseline, without_known, write_baseline
from scaffold.lint.selection import check_codes, ignored_in, select, split_codes
from scaffold.spec.lint import LintConfiguration


class Choice(NamedTuple):
    """Which rules run where; what a process is told."""

    selected: tuple[str, ...]
    ignored: tuple[str, ...]
    per_file: tuple[tuple[str, tuple[str, ...]], ...]
    base: str  # what the patterns count from


class Run(NamedTuple):
    """What was found."""

    findings: tuple[Finding, ...]
    unread: tuple[Unreadable, ...]
    choice: Choice
    tree: Tree


def run(
    paths: tuple[str, ...], selected: tuple[str, ...], ignored: tuple[str, ...]
) -> Run:
    """Lint everything at or below the paths."""
    choice = _choice(split_codes(selected), split_codes(ignored))
    tree = look_through(paths)
    results = each(partial(_lint_file, choice, tree.known), tree)
    return _gathered(results, choice, tree)


def _gathered(
    results: list[tuple[Finding, ...] | Unreadable], choice: Choice, tree: Tree
) -> Run:
    unread = [_unread(error) for error in tree.unread]
    findings: list[Finding] = []
    for result in results:
        if isinstance(result, Unreadable):
            unread.append(result)
        else:
            findings += result
    return Run(tuple(findings), tuple(unread), choice, tree)


def _unread(error: ScaffoldError) -> Unreadable:
    place = error.location or Location("")
    return Unreadable(
        place.source, place.line, place.column, f"not linted: {error.message}"
    )


def _choice(selected: tuple[str, ...], ignored: tuple[str, ...]) -> Choice:
    """The command line's codes, over those of the configuration."""
    configuration = configuration_here()
    known: LintConfiguration = configuration.lint
    problems = [
        *check_codes(selected, Location("--select")),
        *check_codes(ignored, Location("--ignore")),
    ]
    place = Location("[tool.scaffold.lint]")
    listed = (known.select, known.ignore, *(codes for _, codes in known.per_file))
    for codes in listed:
        problems += check_codes(codes, place)
    raise_all(problems)
    return Choice(
        selected or known.select,
        (*known.ignore, *ignored),
        known.per_file,
        os.path.abspath(configuration.root),
    )


def _lint_file(
    choice: Choice, known: frozenset[str], path: str
) -> tuple[Finding, ...] | Unreadable:
    """One file; runs in any process."""
    try:
        text = read_source(path)
    except ScaffoldError as error:
        return _unread(error)
    below = Path(os.path.relpath(path, choice.base)).as_posix()
    ignored = (*choice.ignored, *ignored_in(below, choice.per_file))
    return lint_text(text, path, select(choice.selected, ignored), known)


def keep_baseline(run: Run, path: str) -> None:
    """Write the findings down, so that later runs leave them alone."""
    from scaffold.cli.settle import write

    target = Path(os.path.abspath(path))
    write({target.name: write_baseline(run.findings)}, target.parent, "overwrite")
    typer.echo(f"{len(run.findings)} findings are in {path}")


def without_baseline(run: Run, path: str) -> Run:
    """The findings that a baseline does not hold."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise ScaffoldError(
            f"cannot read '{path}': {reason}", Location("--baseline")
        ) from None
    return run._replace(findings=without_known(run.findings, read_baseline(text, path)))


def mend(run: Run, write: bool) -> Run:
    """Apply the edits, file by file; or show what they would change."""
    from scaffold.cli.report import show_diff, show_plan
    from scaffold.cli.settle import look
    from scaffold.cli.settle import write as write_files

    texts = {}
    for path in sorted({finding.path for finding in run.findings if finding.edits}):
        text = _mended(run, path)
        if text is not None:
            texts[path] = text
    if not texts:
        return run
    root = Path(
        os.path.commonpath([os.path.dirname(os.path.abspath(p)) for p in texts])
    )
    files = {
        os.path.relpath(os.path.abspath(path), root): text
        for path, text in texts.items()
    }
    if not write:
        show_diff(look(files, root, "overwrite").plan)
        return run
    show_plan(write_files(files, root, "overwrite").plan)
    again = {path: _lint_file(run.choice, run.tree.known, path) for path in texts}
    return _relinted(run, again)


def _relinted(run: Run, again: dict[str, tuple[Finding, ...] | Unreadable]) -> Run:
    """The findings after the fixes; those that a baseline took out stay out."""
    kept = {(f.path, f.rule, f.function, f.message) for f in run.findings}
    findings: list[Finding] = []
    for path in dict.fromkeys(finding.path for finding in run.findings):
        result = again.get(path)
        if result is None:
            findings += [f for f in run.findings if f.path == path]
        elif not isinstance(result, Unreadable):
            findings += [
                f for f in result if (f.path, f.rule, f.function, f.message) in kept
            ]
    return run._replace(findings=tuple(findings))


def _mended(run: Run, path: str) -> str | None:
    """The text of a file with its edits; None where it stays as it is."""
    from scaffold.lint.fixing import fix_text

    if not is_plain_utf8(path):
        typer.echo(f"note: {path}: not fixed: it is not plain UTF-8", err=True)
        return None
    text = read_source(path)
    edits = [f.edits for f in run.findings if f.path == path and f.edits]
    fixed = fix_text(text, edits)
    return fixed if fixed != text else None
