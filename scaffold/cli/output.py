"""Output of commands: one verb a file, notes, the diff, progress, questions; or all as JSON.

Every command reports through it, so that all look alike and --quiet, --verbose and --format json mean the same in each.

Words: a *verb* says what happens to a file: create, update, ...; `settled` is the outcome of writing files, or of planning it, with its
`refusal`, the error for which nothing was written; a *note* is a remark on stderr, a *hint* advice, *details* are for --verbose.

In: results and outcomes. Out: stdout for the requested result, stderr for messages about it; an exit code.
Invariant: with `--format json` stdout is one JSON object, whatever happens. Every object has a `version`, and a problem looks the
same in all of them. Errors propagate to the code that prints them for people, so stderr and the exit code are the same in every format.
"""

import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import typer

from scaffold.cli import terminal
from scaffold.cli.excerpts import excerpt
from scaffold.errors import ConflictError, ScaffoldError, ScaffoldErrors
from scaffold.project.console import Console, Update, from_here

if TYPE_CHECKING:
    from scaffold.project.rendering import Generated
    from scaffold.project.update import Outcome
    from scaffold.project.writing import Settled
    from scaffold.workspace import Answer, Ask, Change, Plan


# Verbosity of a run: "" by default, "little" with --quiet, "much" with --verbose.
SAYING = ContextVar("SAYING", default="")


# --- For programs.


JSON_VERSION = 1
NOTHING_MORE: Mapping[str, Any] = {}


def show_object(content: Mapping[str, Any]) -> None:
    """Print the object, with the version of its format."""
    import json  # most runs write text

    typer.echo(json.dumps({"version": JSON_VERSION, **content}, indent=2))


def as_problem(problem: ScaffoldError) -> dict[str, Any]:
    """Return a problem as a JSON object."""
    place = problem.location
    return {
        "source": place.source if place else None,
        "line": place.line if place else None,
        "column": place.column if place else None,
        "message": problem.message,
        "hint": problem.hint,
    }


def telling(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with its errors printed as JSON if `--format json` is given; they are still raised, for the exit code."""

    @functools.wraps(command)
    def told(*arguments: object, **options: object) -> None:
        """Run the command; an error of stdout itself cannot be printed there."""
        try:
            command(*arguments, **options)
        except (ScaffoldError, OSError) as error:
            if options.get("format_") == "json" and not _of_output(error):
                show_refusal(as_ours(error))
            raise

    return told


def leave(refusal: ScaffoldError) -> NoReturn:
    """Print an error on stderr and exit with its code; used where its JSON is on stdout already, so raising would repeat it."""
    say_error(refusal)
    sys.exit(refusal.exit_code)


def say_error(error: ScaffoldError) -> None:
    """Print an error on stderr: each of its problems with the line it is about, carets below the place, and its hint; then notes."""
    for problem in error.problems:
        head, *hint = str(problem).split("\n")
        _say(head)
        if shown := excerpt(problem):
            carets = terminal.paint(shown[2], "error", sys.stderr)
            colours = terminal.has_colours(sys.stderr) or None
            typer.echo(f"{shown[0]}\n{shown[1]}{carets}", err=True, color=colours)
        for advice in hint:
            _say(advice)
    show_notes(error.details)


@contextmanager
def beside(notes: Iterable[str], left: Sequence[ScaffoldError] = ()) -> Iterator[None]:
    """Attach the errors `left` and the notes to an error raised within, to be printed after it; without one the caller prints them."""
    try:
        yield
    except ScaffoldError as error:
        joined = ScaffoldErrors([error, *left]) if left else error
        joined.details = (*joined.details, *notes)
        raise joined from None


@contextmanager
def noting(notes: Sequence[str]) -> Iterator[None]:
    """Print the notes at the end; after an error raised within."""
    with beside(notes):
        yield
    show_notes(notes)


def say_hint(text: str) -> None:
    """Print advice about the output, on stderr."""
    _say(f"hint: {text}")


def _say(text: str) -> None:
    """Print a line on stderr, coloured and wrapped if it is a terminal."""
    colours = terminal.has_colours(sys.stderr) or None
    typer.echo(terminal.message(text, sys.stderr), err=True, color=colours)


def as_ours(error: ScaffoldError | OSError) -> ScaffoldError:
    """Return an error of the system (a full disk, no permission) as one of ours, with the file's name; ours as they are."""
    if isinstance(error, ScaffoldError):
        return error
    about = "cannot write the output" if _of_output(error) else f"'{error.filename}'"
    return ScaffoldError(f"{about}: {error.strerror or error}")


def _of_output(error: ScaffoldError | OSError) -> bool:
    """Return whether the error is about stdout or stderr: then nothing can be printed there."""
    return isinstance(error, OSError) and not error.filename


def show_refusal(error: ScaffoldError) -> None:
    """Print an error as a JSON object."""
    told = {
        "written": False,
        "notes": list(error.details),
        "problems": [as_problem(problem) for problem in error.problems],
    }
    show_object(told)


# --- For a terminal, during a run.


OFTEN = 16  # steps between two updates of the progress line


class Terminal(Console):
    """A console on a terminal, if there is one: progress and questions on stderr."""

    @property
    def ask(self) -> "Ask | None":
        """Return the dialogue about a conflict, or None without a terminal."""
        return _ask if has_terminal() else None

    def progress(
        self, total: int, things: str = "files"
    ) -> AbstractContextManager[Update]:
        """Show a line with the number done, if `total` is large enough; the context yields the function to update it."""
        # Few things are done before anyone could read the line.
        if total <= OFTEN:
            return super().progress(total, things)

        def words(done: int) -> str:
            """Return the line for a number done, "" between two updates."""
            is_shown = done % OFTEN == 0 or done == total
            text = terminal.bar(done, total, f"{done}/{total} {things}")
            return text if is_shown else ""

        return line(words)

    def proving(
        self, names: Sequence[str], verb: str = "proving"
    ) -> AbstractContextManager[Update]:
        """Show a line with the op being proven, or of several the number done; the context yields the function to update it."""

        def words(done: int) -> str:
            """Return the line for a number done."""
            total = len(names)
            if total > 1:
                return terminal.bar(done, total, f"{verb} {done}/{total} ops")
            return f"{verb} {names[0]} ..."

        return line(words, begin=True)


TERMINAL = Terminal()


@contextmanager
def line(words: Callable[[int], str], begin: bool = False) -> Iterator[Update]:
    """Show a line on the terminal, made by `words` of the number done; each update overwrites it, and the end removes it.

    Without a terminal nothing is shown. With `begin` it is shown at once.
    """
    shown = is_terminal()

    def update(done: int) -> None:
        """Overwrite the line by that for a number done."""
        text = words(done)
        if shown and text:
            typer.echo(f"\r{text}", nl=False, err=True)

    if begin:
        update(0)
    try:
        yield update
    finally:
        if shown:
            # Back to the first column, and clear the line.
            typer.echo("\r\x1b[K", nl=False, err=True)


def is_terminal() -> bool:
    """Return whether stderr is a terminal, and --quiet is not given."""
    return terminal.is_terminal(sys.stderr) and SAYING.get() != "little"


def has_terminal() -> bool:
    """Return whether questions can be asked: stdin and stderr are terminals; a closed stream is None."""
    return all(map(terminal.is_terminal, (sys.stdin, sys.stderr)))


def _ask(change: "Change") -> "Answer":
    """Ask about a conflict on a terminal; the questions go to stderr."""
    from scaffold.workspace import converse

    return converse(change, prompt, lambda text: typer.echo(text, nl=False, err=True))


def prompt(question: str) -> str:
    """Print a question on stderr and return the line typed; raise EOFError at the end of the input."""
    typer.echo(question, nl=False, err=True)
    line = sys.stdin.readline()
    if not line:
        typer.echo(err=True)  # end the line of the unanswered question
        raise EOFError
    return line


# --- Reports on written files.


def show_notes(notes: Iterable[str]) -> None:
    """Print remarks about the result on stderr, unless --quiet is given."""
    if SAYING.get() != "little":
        for note in notes:
            _say(f"note: {note}")


def show_proven(said: str) -> None:
    """Print on stderr what a proof covered (`said`), unless it is empty or --quiet is given."""
    if said and SAYING.get() != "little":
        typer.echo(f"proven: {said}", err=True)


def show_details(lines: Iterable[str]) -> None:
    """Print details on stderr, if --verbose is given."""
    if SAYING.get() == "much":
        for line in lines:
            typer.echo(f"scaffold: {line}", err=True)


def show_plan(plan: "Plan") -> None:
    """Print one line for each file, with its verb."""
    _show_verbs(plan, plan.changes)


def _show_verbs(plan: "Plan", changes: Sequence["Change"]) -> None:
    """Print the changes, each with its verb and path, unless --quiet is given."""
    if SAYING.get() == "little":
        return
    width = max((len(change.verb) for change in changes), default=0)
    for change in changes:
        verb = terminal.verb(change.verb, width, sys.stdout)
        _print(f"{verb}  {from_here(plan.root, change.path)}\n")


def show_diff(plan: "Plan") -> None:
    """Print the diff of a plan, as `git apply` takes it in the root of the project."""
    from scaffold.workspace import diff

    _print(terminal.difference(diff(plan), sys.stdout))


def show_texts(generated: "Generated", format_: str) -> None:
    """Print the op's files instead of writing them, each below its name if there are several; or as JSON."""
    files = generated.files.items()
    if format_ == "json":
        told = [_text(generated.root, path, text) for path, text in files]
        _show_json(told, False, generated.notes, of_op=of_op(generated))
        return
    show_notes(generated.notes)
    for path, text in files:
        header = f"# {from_here(generated.root, path)}\n"
        _print(header + text if len(files) > 1 else text)


def _print(text: str) -> None:
    """Write text to stdout as UTF-8 in any locale; bytes of a path not decodable go out unchanged."""
    typer.echo(text.encode(errors="surrogateescape"), nl=False)


def tell(
    settled: "Settled",
    showing: "Showing",
    notes: Iterable[str] = (),
    more: Mapping[str, Any] = NOTHING_MORE,
    left: Sequence[ScaffoldError] = (),
) -> None:
    """Report the files of a run, as verbs, a diff or JSON, which has the entries `more` too, and the errors `left`.

    Raise the refusal of the run, if nothing could be written (with JSON, exit instead); exit with 1 if a conflict is left, unless the
    caller does: by `left`, errors about what is no part of the run.
    """
    said = [*notes, *settled.notes]
    if showing.format_ == "json":
        told = _changes(settled.plan, showing.diff)
        _show_json(told, settled.written, said, [*settled.problems, *left], more)
        if settled.refusal:
            leave(ScaffoldErrors([settled.refusal, *left]))
    else:
        with beside(said, left):
            if settled.refusal:
                raise settled.refusal
        show_notes(said)
        (show_diff if showing.diff else show_plan)(settled.plan)
    # With `left` the caller exits, after it has told these errors.
    if not left:
        exit_on_conflict(settled.plan)


def show_next(commands: Sequence[str]) -> None:
    """Print the commands a user may type next, unless --quiet is given."""
    if SAYING.get() != "little":
        _print("".join(["next:\n", *(f"  {command}\n" for command in commands)]))


class Showing(NamedTuple):
    """The form of output: dry run, diff, stdout, format."""

    dry_run: bool = False
    diff: bool = False
    stdout: bool = False
    format_: str = "text"


def put(
    files: dict[str, str],
    root: Path,
    policy: str,
    showing: Showing,
    notes: Sequence[str] = (),
    left: Sequence[ScaffoldError] = (),
) -> None:
    """Write the files below `root`, or print or plan them, as `showing` says; report them with the notes, and `left` as `tell` does.

    `policy` is that of --on-conflict for a file that exists with another text.
    """
    from scaffold.project.writing import NOTHING, look, write

    if showing.stdout and showing.format_ == "json":
        texts = [_text(root, path, text) for path, text in files.items()]
        _show_json(texts, False, notes, left)
    elif showing.stdout:
        show_notes(notes)
        typer.echo("\n".join(files.values()).encode(errors="surrogateescape"), nl=False)
    else:
        settle = look if showing.dry_run or showing.diff else write
        with beside(notes, left):
            settled = settle(files, root, policy, NOTHING, TERMINAL)  # type: ignore[arg-type]
        tell(settled, showing, notes, left=left)


def exit_on_conflict(plan: "Plan") -> None:
    """Exit with 1 if a conflict is left."""
    if plan.conflicts:
        sys.exit(ConflictError.exit_code)


def of_op(generated: "Generated") -> dict[str, Any]:
    """Return the entries of an op for JSON: the parts left to write, and whether it is proven."""
    proven = generated.proof is not None
    return {"missing": list(generated.missing), "proven": proven}


def _text(root: Path, path: str, text: str) -> dict[str, Any]:
    """Return a file that is not written as a JSON object."""
    return {"path": from_here(root, path), "text": text}


def _changes(plan: "Plan", with_diff: bool) -> list[dict[str, Any]]:
    """Return the changes of the files as JSON objects."""
    from scaffold.workspace.changes import diff_change

    files: list[dict[str, Any]] = []
    for change in plan.changes:
        one: dict[str, Any] = {"path": from_here(plan.root, change.path)}
        one["verb"] = change.verb
        # Their number after a merge; other changes have no such entry.
        if change.conflicts:
            one["conflicts"] = change.conflicts
        if with_diff:
            one["diff"] = diff_change(change)
        files.append(one)
    return files


def _show_json(
    files: list[dict[str, Any]],
    written: bool,
    notes: Iterable[str],
    problems: Iterable[ScaffoldError] = (),
    of_op: Mapping[str, Any] = NOTHING_MORE,
) -> None:
    """Print the files of a run as one JSON object, with the entries `of_op`, notes and problems."""
    told = {"written": written, "files": files, **of_op, "notes": list(notes)}
    show_object({**told, "problems": [as_problem(problem) for problem in problems]})


# --- A run over the ops of a project.


SAID = 20  # at most so many notes are shown, without --verbose


def say_outcome(run: "Callable[[], Outcome]", format_: str, diff: bool) -> None:
    """Carry out a run over a project's ops and report its outcome, as text or JSON.

    Exit with 1 if a conflict, or an op that needed an update but was edited, is left.
    """
    from scaffold.project.writing import undisturbed

    outcome = undisturbed(run)
    (_for_programs if format_ == "json" else _for_people)(outcome, diff)
    if outcome.left:
        leave(ScaffoldErrors(outcome.left))
    exit_on_conflict(outcome.settled.plan)


def _for_people(outcome: "Outcome", diff: bool) -> None:
    """Print an outcome as text; raise its refusal, if it has one. With --verbose all notes and files are shown.

    A look (--dry-run) at a plan with conflicts has an `obstacle` instead: its plan is shown all the same, then that error.
    """
    notes = (*outcome.settled.notes, *outcome.notes)
    every = SAYING.get() == "much"
    count = len(notes) if every else SAID
    more = (f"and {len(notes) - count} more",) * (len(notes) > count)
    with noting((*notes[:count], *more)):
        if outcome.settled.refusal:
            raise outcome.settled.refusal
    plan = outcome.settled.plan
    if diff:
        show_diff(plan)
    else:
        shown = (item for item in plan.changes if every or item.verb != "identical")
        _show_verbs(plan, [*shown])
        files = f"{outcome.files} file{'s' * (outcome.files != 1)}"
        if SAYING.get() != "little":
            typer.echo(f"{outcome.counts or 'no ops'} ({files})")
    if outcome.settled.obstacle:
        say_error(outcome.settled.obstacle)


def _for_programs(outcome: "Outcome", diff: bool) -> None:
    """Print an outcome as one JSON object; exit if it has a refusal."""
    from scaffold.workspace.changes import diff_change

    settled, files = outcome.settled, []
    for change in settled.plan.changes:
        one = {"path": change.path, "verb": change.verb}
        if diff:
            one["diff"] = diff_change(change)
        files.append(one)
    told = {
        "written": settled.written,
        "ops": outcome.verbs,
        "files": files,
        "notes": [*settled.notes, *outcome.notes],
        "problems": [as_problem(item) for item in (*settled.problems, *outcome.left)],
    }
    show_object(told)
    if settled.refusal:
        leave(settled.refusal)
