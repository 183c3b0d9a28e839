"""Choice of the interpreter for proofs, as the tool's own often lacks PyTorch, and the proof process.

`new-op` proves one op, with a `Proving`, whose process imports torch while the op is made; `sync` proves many (`proofs.prove_works`), by
the settings of a `Run`. `verify`, `bench` and others only ask for an interpreter.
In: `--python`, `--limit`, `[tool.scaffold] python`, the environment and the working directory. Out: an `Interpreter`, or None; verdicts; for
many ops, the settings of their proofs and the proofs made so far.
Invariant: torch is looked for, not imported; an interpreter named by the user is used or refused, never silently skipped.
Nothing is searched and no process starts before it is needed; none is left when the command ends.

Words: to *prove* an op is to run it in another process and compare its values and gradients with PyTorch's; a `Proof` is the
record of it, kept beside the files, so an unchanged op is not proven again.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from scaffold.errors import Location, ScaffoldError
from scaffold.project.configuration import configuration_here, working_directory
from scaffold.project.console import Console
from scaffold.spec.config import find_sources

# Most runs prove nothing, and a run with proofs starts the process before these imports.
if TYPE_CHECKING:
    from scaffold.project.specification import Values
    from scaffold.project.survey import Op
    from scaffold.verify import Prover, Request, Verdict
    from scaffold.workspace.records import Proof


NONE_FOUND = "no PyTorch found"
ANOTHER = "name an interpreter that has it: --python PATH, or pip install torch"
UNPROVEN = f"not proven: {NONE_FOUND} ({ANOTHER})"
OPTION = "--python"


class Interpreter(NamedTuple):
    """An interpreter with torch."""

    path: str
    origin: str = ""  # source of the choice; empty for the tool's own

    def note(self, done: str = "proven") -> tuple[str, ...]:
        """Return a note naming the interpreter, `done` before it: "proven with .venv/bin/python (from .venv)"; () for the tool's own."""
        if not self.origin:
            return ()
        return (f"{done} with {self.shown} (from {self.origin})",)

    @property
    def shown(self) -> str:
        """Return the path relative to here, or absolute if it lies outside."""
        near = os.path.relpath(self.path)
        return self.path if near.startswith(os.pardir) else near


def find_interpreter(given: str | None = None) -> Interpreter | None:
    """Return the interpreter to run proofs with: `given` by `--python`, or the configured one, or the first found to have torch.

    Searched are the tool's own, then those a shell here would start (`_around`); None if none has torch. Raise ScaffoldError if the given or
    configured one lacks torch: it is not replaced by another.
    """
    if given is not None:
        return _named(given, working_directory(), OPTION, Location(OPTION))
    configuration = configuration_here()
    if configuration.python is not None:
        root = working_directory() / configuration.root
        place = _place_of_key()
        return _named(configuration.python, root, "the configuration", place)
    from scaffold.verify import has_torch, lacks_torch  # most runs start no process

    if has_torch():
        return Interpreter(sys.executable)
    for path, origin in _around():
        # The tool's own was looked at already.
        if path != sys.executable and not lacks_torch(path):
            return Interpreter(path, origin)
    return None


def need_interpreter(given: str | None, option: str) -> Interpreter:
    """Return an interpreter with torch, for a command that cannot do without; raise ScaffoldError, at `option`, if there is none."""
    found = find_interpreter(given)
    if found is None:
        raise ScaffoldError(NONE_FOUND, Location(option), ANOTHER)
    return found


def _named(text: str, root: Path, origin: str, place: Location) -> Interpreter:
    """Return the interpreter the user names, by a path relative to `root` or as a command, `python3.12`; raise if it lacks torch.

    `origin` says in notes how it was named, "--python" or "the configuration"; `place` is the name's place, for the ScaffoldError.
    """
    from scaffold.verify import lacks_torch

    # A bare name is a command, as for a shell: `python3.12`.
    if os.sep in text or text in (os.curdir, os.pardir):
        path = os.path.normpath(root / Path(text).expanduser())
    else:
        path = next(_commands(text), text)  # not on PATH: lacks_torch says so
    lacks = lacks_torch(path)
    if lacks:
        hint = "name another with --python PATH"
        if origin == OPTION:
            hint = "name one that has PyTorch: --python .venv/bin/python"
        raise ScaffoldError(f"'{text}' {lacks}", place, hint)
    return Interpreter(path, origin)


def _place_of_key() -> Location:
    """Return the place of the key `python` of the configuration, for an error: a line of pyproject.toml, or an environment variable."""
    said = find_sources(working_directory(), os.environ).said["python"]
    return said.locate(("python",))


def _around() -> Iterator[tuple[str, str]]:
    """Yield the path and origin of each interpreter a shell here would use: VIRTUAL_ENV, `.venv` here or above, then PATH."""
    active = os.environ.get("VIRTUAL_ENV")
    if active:
        yield from ((path, "VIRTUAL_ENV") for path in _of_environment(Path(active)))
    here = working_directory()
    for directory in (here, *here.parents):
        yield from ((path, ".venv") for path in _of_environment(directory / ".venv"))
        if (directory / ".git").exists():
            break  # directories above a checkout do not belong to it
    yield from ((path, "PATH") for path in _commands("python"))


def _of_environment(directory: Path) -> Iterator[str]:
    """Yield the interpreter of a virtual environment; nothing if there is none."""
    path = directory / "bin" / "python"
    if path.is_file():
        yield str(path)


def _commands(name: str) -> Iterator[str]:
    """Yield the executable a shell would start by this name, or nothing; a relative entry of PATH could be anybody's, and is skipped."""
    for directory in os.environ.get("PATH", "").split(os.pathsep):
        path = Path(directory, name)
        if path.is_absolute() and path.is_file() and os.access(path, os.X_OK):
            yield str(path)
            return


@dataclass(frozen=True, slots=True)
class Run:
    """Settings of the proofs of many ops, and the proofs made so far: if another process interferes, the whole run starts again."""

    python: str | None  # `--python`
    limit: int  # seconds for one op
    every: bool = False  # `--prove`: prove also unchanged ops without a proof
    # The option that makes a missing interpreter an error, "--prove"; "": it is a note.
    insists: str = ""
    done: "dict[str, Proof]" = field(default_factory=dict)  # by op

    def known(self, op: "Op") -> "tuple[Proof, ...]":
        """Return the proofs of an op, none to two: the recorded one, and the one made in this run; either may be of older code."""
        on_record = op.record.proof if op.record else None
        return tuple(filter(None, (on_record, self.done.get(op.listed.name))))


class Proofs(NamedTuple):
    """The proofs of a run, by op."""

    found: "Mapping[str, Proof]"
    notes: tuple[str, ...] = ()


class Proving:
    """The interpreter and the process to prove one op in; both are found or started on first use."""

    def __init__(self, settings: "Values", console: Console) -> None:
        """Keep the settings `python`, `limit` (seconds) and `verify` (the user asked for the proof); progress goes to `console`."""
        self._console = console
        self._python: str | None = settings.get("python")
        self._limit: int | None = settings.get("limit")
        self._asked = bool(settings.get("verify"))
        self._prover: Prover | None = None

    @cached_property
    def interpreter(self) -> Interpreter | None:
        """Return the interpreter for the proof; None if none has torch."""
        return find_interpreter(self._python)

    def start(self) -> list[ScaffoldError]:
        """Start a process and its import of torch, seconds long, while the op is still being made; return the problems in the way, if any.

        Without an interpreter it is a problem only if the user asked for the proof (`--verify`); else nothing is started.
        """
        found = check_limit(self._limit) if self._limit is not None else []
        try:
            missing = self.interpreter is None
        except ScaffoldError as error:
            return [*found, *error.problems]
        if missing and self._asked:
            place = Location("--verify")
            found.append(ScaffoldError(NONE_FOUND, place, ANOTHER))
        if not found and not missing:
            self.prover.start()
        return found

    def prove(self, name: str, request: "Request") -> "Verdict":
        """Prove an op by its text and checks (`request`), and return the verdict; progress is shown under its `name`."""
        with self._console.proving([name], "verifying"):
            return self.prover.prove(request)

    @property
    def prover(self) -> "Prover":
        """Return the prover, made on first use; its process may be running already."""
        from scaffold.verify.prover import LIMIT, Prover

        assert self.interpreter is not None, "nothing is proven without"
        if self._prover is None:
            self._prover = Prover(self.interpreter.path, self._limit or LIMIT)
        return self._prover

    def close(self) -> None:
        """End the process, if there is one."""
        if self._prover is not None:
            self._prover.close()


def check_limit(limit: int) -> list[ScaffoldError]:
    """Return the error for a `--limit` below 1 second, to raise with others; [] for a valid one."""
    if limit >= 1:
        return []
    message = f"'{limit}' is not a number of seconds"
    return [ScaffoldError(message, Location("--limit"), "write: --limit 60")]


@contextmanager
def proving(settings: "Values", console: Console) -> "Iterator[Proving]":
    """Open a `Proving` for a command with these options; at the end of the context its process is ended."""
    with closing(Proving(settings, console)) as found:
        yield found
