"""What commands say: one verb a file, notes, the difference, lines of progress, questions; or all of it as JSON.

In: what was found, and what became of it. Out: stdout for what was asked for, stderr for what is said of it; an exit code.
Invariant: with `--format json` stdout is one JSON object, whatever happens. Every object has a `version`, and a problem looks the
same in all of them. What a command raises goes on to whoever prints it for people, so stderr and the exit code are the same in
every format.
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
from scaffold.errors import ConflictError, ScaffoldError, ScaffoldErrors
from scaffold.project.console import Console, Update, from_here

if TYPE_CHECKING:
    from scaffold.project.rendering import Generated
    from scaffold.project.update import Outcome
    from scaffold.project.writing import Settled
    from scaffold.workspace import Answer, Ask, Change, Plan


# How much a run says: "" as ever, "little" with --quiet, "much" with --verbose.
SAYING = ContextVar("SAYING", default="")


# --- To programs.


JSON_VERSION = 1
NOTHING_MORE: Mapping[str, Any] = {}


def show_object(content: Mapping[str, Any]) -> None:
    """Print the object, with the version of its form."""
    import json  # most runs speak to people

    typer.echo(json.dumps({"version": JSON_VERSION, **content}, indent=2))


def as_problem(problem: ScaffoldError) -> dict[str, Any]:
    """A problem as a JSON object."""
    place = problem.location
    return {
        "source": place.source if place else None,
        "line": place.line if place else None,
        "column": place.column if place else None,
        "message": problem.message,
        "hint": problem.hint,
    }


def telling(command: Callable[..., None]) -> Callable[..., None]:
    """The command, which tells programs of what it raises."""

    @functools.wraps(command)
    def told(*arguments: object, **options: object) -> None:
        try:
            command(*arguments, **options)
        except (ScaffoldError, OSError) as error:
            asked = options.get("format_", options.get("format"))
            if asked == "json" and not _of_output(error):
                show_refusal(as_ours(error))
            raise

    return told


def leave(refusal: ScaffoldError) -> NoReturn:
    """End with a refusal of which programs were told already: people are told, nothing is raised that would be told again."""
    say_error(refusal)
    sys.exit(refusal.exit_code)


def say_error(error: ScaffoldError) -> None:
    """Say what is wrong on stderr, then what is worth knowing beside it."""
    _say(str(error))
    show_notes(error.details)


@contextmanager
def beside(notes: Sequence[str]) -> Iterator[None]:
    """Give an error that is raised within the notes, which are said behind it."""
    try:
        yield
    except ScaffoldError as error:
        error.details = (*error.details, *notes)
        raise


@contextmanager
def noting(notes: Sequence[str]) -> Iterator[None]:
    """Show notes behind an error that is raised within, or at the end."""
    with beside(notes):
        yield
    show_notes(notes)


def say_hint(text: str) -> None:
    """What to do about what stdout tells, on stderr."""
    _say(f"hint: {text}")


def _say(text: str) -> None:
    colours = terminal.has_colours(sys.stderr) or None
    typer.echo(terminal.message(text, sys.stderr), err=True, color=colours)


def as_ours(error: ScaffoldError | OSError) -> ScaffoldError:
    """An error of the system's as one of ours: what the system says, and of which file."""
    if isinstance(error, ScaffoldError):
        return error
    about = "cannot write the output" if _of_output(error) else f"'{error.filename}'"
    return ScaffoldError(f"{about}: {error.strerror or error}")


def _of_output(error: ScaffoldError | OSError) -> bool:
    """Whether it is an output that cannot be written: nothing can be said there."""
    return isinstance(error, OSError) and not error.filename


def show_refusal(error: ScaffoldError) -> None:
    """What is wrong, for programs."""
    told = {
        "written": False,
        "notes": list(error.details),
        "problems": [as_problem(problem) for problem in error.problems],
    }
    show_object(told)


# --- To a terminal, while a run goes on.


OFTEN = 16  # things between two updates of the progress line


class Terminal(Console):
    """Whoever sits at the terminal, where there is one: lines of progress, questions; all of it on stderr."""

    @property
    def ask(self) -> "Ask | None":
        """The dialogue about a conflict."""
        return _ask if has_terminal() else None

    def progress(
        self, total: int, things: str = "files"
    ) -> AbstractContextManager[Update]:
        """A line that says how far a run is, where it has much to do."""
        if total <= OFTEN:
            return super().progress(total, things)

        def words(done: int) -> str:
            whole = done % OFTEN == 0 or done == total
            shown = terminal.bar(done, total, f"{done}/{total} {things}")
            return shown if whole else ""

        return line(words)

    def proving(
        self, names: Sequence[str], verb: str = "proving"
    ) -> AbstractContextManager[Update]:
        """A line that says which op is being proven, or how many are."""

        def words(done: int) -> str:
            total = len(names)
            if total > 1:
                return terminal.bar(done, total, f"{verb} {done}/{total} ops")
            return f"{verb} {names[0]} ..."

        return line(words, begin=True)


TERMINAL = Terminal()


@contextmanager
def line(words: Callable[[int], str], begin: bool = False) -> Iterator[Update]:
    """A line on a terminal that is written over, and gone at the end."""
    shown = is_terminal()

    def update(done: int) -> None:
        text = words(done)
        if shown and text:
            typer.echo(f"\r{text}", nl=False, err=True)

    if begin:
        update(0)
    try:
        yield update
    finally:
        if shown:
            typer.echo("\r\x1b[K", nl=False, err=True)


def is_terminal() -> bool:
    """Whether somebody reads what goes to stderr, and wants more than problems."""
    return terminal.is_terminal(sys.stderr) and SAYING.get() != "little"


def has_terminal() -> bool:
    """Whether there is someone to ask; a stream that was closed is None."""
    return all(map(terminal.is_terminal, (sys.stdin, sys.stderr)))


def _ask(change: "Change") -> "Answer":
    """The dialogue on a terminal; its questions go to stderr."""
    from scaffold.workspace import converse

    return converse(change, prompt, lambda text: typer.echo(text, nl=False, err=True))


def prompt(question: str) -> str:
    """The line that somebody answers on a terminal; EOFError where they leave."""
    typer.echo(question, nl=False, err=True)
    line = sys.stdin.readline()
    if not line:
        typer.echo(err=True)  # the question ends its line without an answer
        raise EOFError
    return line


# --- Of what was written, or would be.


def show_notes(notes: Iterable[str]) -> None:
    """Things worth knowing, on stderr."""
    if SAYING.get() != "little":
        for note in notes:
            _say(f"note: {note}")


def show_proven(said: str) -> None:
    """What a proof ran."""
    if said and SAYING.get() != "little":
        typer.echo(f"proven: {said}", err=True)


def show_details(lines: Iterable[str]) -> None:
    """What --verbose asks for, on stderr."""
    if SAYING.get() == "much":
        for line in lines:
            typer.echo(f"scaffold: {line}", err=True)


def show_plan(plan: "Plan") -> None:
    """What happens to each file, one line a file."""
    _show_verbs(plan, plan.changes)


def _show_verbs(plan: "Plan", changes: Sequence["Change"]) -> None:
    if SAYING.get() == "little":
        return
    width = max((len(change.verb) for change in changes), default=0)
    for change in changes:
        verb = terminal.verb(change.verb, width, sys.stdout)
        _print(f"{verb}  {from_here(plan.root, change.path)}\n")


def show_diff(plan: "Plan") -> None:
    """The difference, as `git apply` takes it in the root."""
    from scaffold.workspace import diff

    _print(terminal.difference(diff(plan), sys.stdout))


def show_texts(generated: "Generated") -> None:
    """The files themselves; a line names each where there are several."""
    for path, text in generated.files.items():
        header = f"# {from_here(generated.root, path)}\n"
        _print(header + text if len(generated.files) > 1 else text)


def _print(text: str) -> None:
    """Write to stdout as to a file: UTF-8 whatever the locale, odd bytes of a path as they are."""
    typer.echo(text.encode(errors="surrogateescape"), nl=False)


def tell(
    settled: "Settled",
    *,
    with_diff: bool,
    format_: str = "text",
    notes: Iterable[str] = (),
) -> None:
    """What became of each file; a refusal is raised, a conflict that is left ends with 1."""
    said = [*notes, *settled.notes]
    if format_ == "json":
        told = _changes(settled.plan, with_diff)
        _show_json(told, settled.written, said, settled.problems)
        if settled.refusal:
            leave(settled.refusal)
    else:
        with noting(said):
            if settled.refusal:
                raise settled.refusal
        (show_diff if with_diff else show_plan)(settled.plan)
    exit_on_conflict(settled.plan)


def show_next(commands: Sequence[str]) -> None:
    """Print what a user types next, unless little was asked for."""
    if SAYING.get() != "little":
        _print("".join(["next:\n", *(f"  {command}\n" for command in commands)]))


class Showing(NamedTuple):
    """What is to be shown, and to whom: a run that only shows writes nothing."""

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
) -> None:
    """Write the files, or show them, or what would become of them."""
    from scaffold.project.writing import NOTHING, look, write

    if showing.stdout and showing.format_ == "json":
        texts = [_text(root, path, text) for path, text in files.items()]
        _show_json(texts, False, notes)
    elif showing.stdout:
        show_notes(notes)
        typer.echo("\n".join(files.values()).encode(errors="surrogateescape"), nl=False)
    else:
        settle = look if showing.dry_run or showing.diff else write
        with beside(notes):
            settled = settle(files, root, policy, NOTHING, TERMINAL)  # type: ignore[arg-type]
        tell(settled, with_diff=showing.diff, format_=showing.format_, notes=notes)


def exit_on_conflict(plan: "Plan") -> None:
    """End with 1 where a conflict is left."""
    if plan.conflicts:
        sys.exit(ConflictError.exit_code)


def show_settled(generated: "Generated", settled: "Settled", with_diff: bool) -> None:
    """What became of each file of an op, for programs."""
    told = _changes(settled.plan, with_diff)
    notes = (*generated.notes, *settled.notes)
    of_op = _of_op(generated)
    _show_json(told, settled.written, notes, settled.problems, of_op)


def show_files(generated: "Generated") -> None:
    """The files themselves, for programs."""
    told = [_text(generated.root, path, text) for path, text in generated.files.items()]
    _show_json(told, False, generated.notes, of_op=_of_op(generated))


def _of_op(generated: "Generated") -> dict[str, Any]:
    """Which gradients an op lacks, and whether those that it has are proven."""
    proven = generated.proof is not None
    return {"missing": list(generated.missing), "proven": proven}


def _text(root: Path, path: str, text: str) -> dict[str, Any]:
    return {"path": from_here(root, path), "text": text}


def _changes(plan: "Plan", with_diff: bool) -> list[dict[str, Any]]:
    """What happens to each file."""
    from scaffold.workspace.changes import diff_change

    files: list[dict[str, Any]] = []
    for change in plan.changes:
        one: dict[str, Any] = {"path": from_here(plan.root, change.path)}
        one["verb"] = change.verb
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
    """What became of files; of an op also what it lacks."""
    told = {"written": written, "files": files, **of_op, "notes": list(notes)}
    show_object({**told, "problems": [as_problem(problem) for problem in problems]})


# --- Of a run over the ops of a project.


SAID = 20  # notes that are shown one by one


def say_outcome(run: "Callable[[], Outcome]", format_: str, diff: bool) -> None:
    """Say what became of a run that writes, and exit with 1 where a conflict is left."""
    from scaffold.project.writing import undisturbed

    outcome = undisturbed(run)
    (_for_programs if format_ == "json" else _for_people)(outcome, diff)
    if outcome.left:
        leave(ScaffoldErrors(outcome.left))
    exit_on_conflict(outcome.settled.plan)


def _for_people(outcome: "Outcome", diff: bool) -> None:
    notes = (*outcome.settled.notes, *outcome.notes)
    said = len(notes) if SAYING.get() == "much" else SAID
    more = (f"and {len(notes) - said} more",) * (len(notes) > said)
    with noting((*notes[:said], *more)):
        if outcome.settled.refusal:
            raise outcome.settled.refusal
    plan = outcome.settled.plan
    if diff:
        show_diff(plan)
    else:
        _show_changes(plan)
        if SAYING.get() != "little":
            typer.echo(f"{outcome.counts or 'no ops'} ({_files(outcome.files)})")
    if outcome.settled.obstacle:
        say_error(outcome.settled.obstacle)


def _files(count: int) -> str:
    return f"{count} file{'s' * (count != 1)}"


def _show_changes(plan: "Plan") -> None:
    """The files that are not as they were, one line each; with --verbose all of them."""
    every = SAYING.get() == "much"
    changes = [item for item in plan.changes if every or item.verb != "identical"]
    _show_verbs(plan, changes)


def _for_programs(outcome: "Outcome", diff: bool) -> None:
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
