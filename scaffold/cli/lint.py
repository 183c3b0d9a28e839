"""`scaffold lint`: what is wrong with the Functions of a code base, and with --fix the mended files.

Words: a *code* is a rule's id or the beginning of one; a file is *unread* if it is no Python, or cannot be opened; a *baseline* is a
file with the findings of old code, which are left out; to *mend* is to apply fixes; `left` are the findings after that.

In: paths and codes of rules. Out: findings, or an exit code; with --fix also files.
Invariant: the findings are those of the files as they stand on the disk when the run ends. A file that no rule could look
at is told, whatever rules were asked for.
"""

import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from scaffold.cli.options import check_format, completing, format_option
from scaffold.cli.output import TERMINAL, show_diff, show_notes, show_plan
from scaffold.cli.terminal import paint
from scaffold.errors import (
    ConflictError,
    Location,
    ScaffoldError,
    did_you_mean,
    raise_all,
    why_unread,
)
from scaffold.files import read_text
from scaffold.lint import RULES, Finding, Rule, Unreadable, lint_text
from scaffold.lint.formats import FORMATS, as_text
from scaffold.lint.formats import explain as page_of
from scaffold.lint.model import UNREAD
from scaffold.lint.registry import (
    CALLED,
    check_codes,
    ignored_in,
    select,
    split_codes,
)
from scaffold.lint.suppressions import (
    Key,
    is_off,
    read_baseline,
    read_noqa,
    without_known,
    write_baseline,
)
from scaffold.project.configuration import configuration_here
from scaffold.project.source_files import each, is_plain_utf8, look_through, read_source
from scaffold.project.writing import look, write
from scaffold.spec.lint_settings import LintConfiguration
from scaffold.verify.external_tools import is_installed

PATHS = Annotated[
    list[str] | None,
    typer.Argument(metavar="PATH...", help="Files and directories (default: here)."),
]


SELECT = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        help="Only these rules: AF01,AF02 or ALL.",
        metavar="IDS",
        autocompletion=completing(RULES),
    ),
]
IGNORE = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore",
        help="All rules except these.",
        metavar="IDS",
        autocompletion=completing(RULES),
    ),
]
FIX = Annotated[
    bool, typer.Option("--fix", help="Fix what can be fixed (needs libcst).")
]
DIFF = Annotated[
    bool, typer.Option("--diff", help="Show what --fix would do, and write nothing.")
]
STRICT = Annotated[bool, typer.Option("--strict", help="Advice fails too.")]
EXPLAIN = Annotated[
    str | None,
    typer.Option(
        "--explain",
        help="Explain one rule.",
        metavar="ID",
        autocompletion=completing(RULES),
    ),
]
FORMAT = Annotated[str, format_option(FORMATS)]
BASELINE = Annotated[
    str | None,
    typer.Option(
        "--baseline", help="Ignore the findings in this file.", metavar="FILE"
    ),
]
WRITE_BASELINE = Annotated[
    str | None,
    typer.Option(
        "--write-baseline", help="Write today's findings to it.", metavar="FILE"
    ),
]


def lint(
    paths: PATHS = None,
    select: SELECT = None,
    ignore: IGNORE = None,
    fix: FIX = False,
    diff: DIFF = False,
    strict: STRICT = False,
    explain: EXPLAIN = None,
    format_: FORMAT = "text",
    baseline: BASELINE = None,
    write_baseline: WRITE_BASELINE = None,
) -> None:
    """Find mistakes in hand-written autograd.Functions.

    Errors are certain; advice is worth a look, and fails only with --strict.

    Example: scaffold lint src --ignore AF19
    """
    if explain is not None:
        typer.echo(_explanation(explain), nl=False)
        return
    check_format(format_, FORMATS)
    run = find(tuple(paths or ["."]), tuple(select or ()), tuple(ignore or ()))
    if write_baseline is not None:
        keep_baseline(run, write_baseline)
        return
    if baseline is not None:
        run = without_baseline(run, baseline)
    if diff:
        _show_rest(run.findings, mend(run, writes=False).findings)
    elif fix:
        run = mend(run, writes=True)
    if not diff:
        _show(format_, run)
    if any(strict or finding.level == "error" for finding in run.findings):
        sys.exit(ConflictError.exit_code)


def _explanation(code: str) -> str:
    """Return the page of a rule; raise ScaffoldError for an unknown code."""
    rule = RULES.get(code.upper())
    if rule is None:
        hint = did_you_mean(code.upper(), RULES) or CALLED
        raise ScaffoldError(f"unknown rule '{code}'", Location("--explain"), hint)
    return page_of(rule)


def _can_fix() -> bool:
    """Return whether LibCST is installed, an optional dependency with which fixes are made."""
    return is_installed("libcst")


def _show(name: str, run: Any) -> None:
    """Print the findings in the format of this name; as text, with a pointer to `scaffold verify`."""
    if name == "text":
        colours = partial(paint, stream=sys.stdout)
        text = as_text(run.findings, run.unread, _can_fix(), colours)
    else:
        text = FORMATS[name](run.findings, run.unread)
    typer.echo(text.encode(errors="surrogateescape"), nl=False)
    if name == "text":
        show_notes(_pointer_to_verify(run.findings))


def _pointer_to_verify(findings: "tuple[Finding, ...]") -> Iterator[str]:
    """Yield the advice to run the Functions with findings by `scaffold verify`: it judges the suspicions of lint."""
    paths = dict.fromkeys(item.path for item in findings if RULES[item.rule].each)
    if paths:
        path = shlex.quote(next(iter(paths))) if len(paths) == 1 else "FILE"
        yield f"scaffold verify {path} runs a Function and judges its gradients"


def _show_rest(findings: "tuple[Finding, ...]", left: "tuple[Finding, ...]") -> None:
    """Print on stderr, for --diff, the number of findings, and how many --fix would mend; `left` would remain."""
    # A fix may bring findings of its own.
    mended = max(0, len(findings) - len(left))
    if findings:
        counted = f"{len(findings)} finding{'s' * (len(findings) != 1)}"
        show_notes([f"{counted}, of which --fix can fix {mended}"])


class Choice(NamedTuple):
    """The choice of rules for each file."""

    selected: tuple[str, ...]
    ignored: tuple[str, ...]
    per_file: tuple[tuple[str, tuple[str, ...]], ...]
    base: str  # what the patterns count from
    known: frozenset[str]  # Functions that any file of the run defines
    named: frozenset[str]  # files that the user named

    def rules(self, path: str) -> tuple[Rule, ...]:
        """Return the rules to run on a file: the selected ones, without the ones ignored for all files or for its path."""
        below = Path(os.path.relpath(path, self.base)).as_posix()
        ignored = (*self.ignored, *ignored_in(below, self.per_file))
        return select(self.selected, ignored)


class Linted(NamedTuple):
    """The findings of a file, or why it was not read."""

    findings: tuple[Finding, ...]
    unread: Unreadable | None = None


class Run(NamedTuple):
    """The findings of all files."""

    findings: tuple[Finding, ...]
    unread: tuple[Unreadable, ...]
    choice: Choice
    known: Counter[Key]  # findings that a baseline leaves alone


def find(
    paths: tuple[str, ...], selected: tuple[str, ...], ignored: tuple[str, ...]
) -> Run:
    """Return the findings in all files at or below the paths.

    `selected` and `ignored` are codes of rules; with no selected ones, those of the configuration, or all by default. The files are read
    in several processes.
    """
    choice = _choice(split_codes(selected), split_codes(ignored))
    tree = look_through(paths)
    choice = choice._replace(known=tree.known, named=tree.named)
    linted = [_not_linted(choice, _unreadable(error)) for error in tree.unread]
    unread = {unread.path for file in linted if (unread := file.unread)}
    # Not the ones worth linting alone: a syntax error in any file is a finding (AF00).
    parsed = tree._replace(relevant=tuple(p for p in tree.paths if p not in unread))
    linted += each(partial(_lint_file, choice), parsed, TERMINAL)
    return Run(
        tuple(finding for file in linted for finding in file.findings),
        tuple(file.unread for file in linted if file.unread is not None),
        choice,
        Counter(),
    )


def _unreadable(error: ScaffoldError) -> Unreadable:
    """Return an error of reading a file as the linter's record of an unread file."""
    place = error.location or Location("")
    return Unreadable(place.source, place.line, place.column, error.message)


def _not_linted(choice: Choice, unread: Unreadable, text: str = "") -> Linted:
    """Return the finding AF00 for an unreadable file; no finding if AF00 is off for it.

    It is an error if the user named the file, advice if it was found in a directory. `text` is searched for a comment `noqa`.
    """
    off = is_off(UNREAD, unread.line, read_noqa(text))
    if off or all(rule.id != UNREAD for rule in choice.rules(unread.path)):
        return Linted((), unread)
    named = os.path.normpath(unread.path) in choice.named
    return Linted((unread.finding("error" if named else "advice"),), unread)


def _choice(selected: tuple[str, ...], ignored: tuple[str, ...]) -> Choice:
    """Return the chosen codes, the command line's over the configuration's; raise ScaffoldError for an unknown one."""
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
        # A selection replaces the configuration's; ignored rules are added to its own.
        selected or known.select,
        (*known.ignore, *ignored),
        known.per_file,
        os.path.abspath(configuration.root),
        known=frozenset(),
        named=frozenset(),
    )


def _lint_file(choice: Choice, path: str) -> Linted:
    """Return the findings of one file, or why it was not read; it runs in any of several processes."""
    try:
        text = read_source(path)
    except ScaffoldError as error:
        return _not_linted(choice, _unreadable(error))
    found = lint_text(text, path, choice.rules(path), choice.known)
    if isinstance(found, Unreadable):
        return _not_linted(choice, found, text)
    return Linted(found)


def keep_baseline(run: Run, path: str) -> None:
    """Write the findings to a baseline file, for later runs to leave out, and print their number."""
    target = Path(os.path.abspath(path))
    write({target.name: write_baseline(run.findings)}, target.parent, "overwrite")
    typer.echo(f"{len(run.findings)} findings are in {path}")


def without_baseline(run: Run, path: str) -> Run:
    """Return the run without the findings listed in a baseline."""
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read '{path}': {why_unread(error)}"
        raise ScaffoldError(message, Location("--baseline")) from None
    known = read_baseline(text, path)
    return run._replace(findings=without_known(run.findings, known), known=known)


ROUNDS = 20  # of edits to one file: what two findings would change is changed in turn


def mend(run: Run, writes: bool) -> Run:
    """Write all files with their fixes applied, or show the diff unless `writes`; return the run with the findings left."""
    paths = dict.fromkeys(finding.path for finding in run.findings)
    mended: dict[str, Mended] = {}
    with TERMINAL.progress(len(paths), "files edited") as update:
        for path in paths:
            mended[path] = _mended(run, path)
            update(len(mended))
    texts = {path: done.text for path, done in mended.items() if done.text is not None}
    if texts:
        root = Path(
            # Files are written below one directory that is above all of them.
            os.path.commonpath([os.path.dirname(os.path.abspath(p)) for p in texts])
        )
        files = {
            os.path.relpath(os.path.abspath(path), root): text
            for path, text in texts.items()
        }
        if writes:
            show_plan(write(files, root, "overwrite").plan)
        else:
            show_diff(look(files, root, "overwrite").plan)
    left = (finding for done in mended.values() for finding in done.left)
    return run._replace(findings=tuple(left))


class Mended(NamedTuple):
    """A file's text after all edits, None if unchanged, and the findings left."""

    text: str | None
    left: tuple[Finding, ...]


def _mended(run: Run, path: str) -> Mended:
    """Return a file's text with its fixes applied, and the findings left.

    Fixes and findings take turns until no fix is left, at most `ROUNDS` times: one fix may enable another.
    """
    left = tuple(finding for finding in run.findings if finding.path == path)
    if not _is_editable(path, left):
        return Mended(None, _without_edits(left))
    from scaffold.lint.fixing import fix_text

    before = text = read_source(path)
    for _ in range(ROUNDS):
        fixed = fix_text(text, [finding.edits for finding in left if finding.edits])
        found = lint_text(fixed, path, run.choice.rules(path), run.choice.known)
        # Nothing is left to fix; or a fix broke the file, and the text before it is kept.
        if fixed == text or isinstance(found, Unreadable):
            break
        # The findings of the baseline stay out.
        text, left = fixed, without_known(found, run.known)
    return Mended(text if text != before else None, _without_edits(left))


def _without_edits(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return the findings left after fixing without their edits: these could not be applied, so no output may offer them."""
    return tuple(finding._replace(edits=()) for finding in findings)


def _is_editable(path: str, findings: tuple[Finding, ...]) -> bool:
    """Return whether the findings in a file have edits, and it may be edited; print a note if it is no plain UTF-8.

    Raise a ScaffoldError if LibCST, which makes the edits, is not installed.
    """
    if not any(finding.edits for finding in findings):
        return False
    if not is_plain_utf8(path):
        show_notes([f"{path}: not fixed: it is not plain UTF-8"])
        return False
    if not _can_fix():
        hint = "pip install 'libcst>=1.4', beside scaffold"
        raise ScaffoldError("--fix needs libcst", hint=hint)
    return True
