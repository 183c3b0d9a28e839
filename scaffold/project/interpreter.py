"""Which interpreter runs a proof, since the tool's own often has no PyTorch, and the process of the proof.

In: `--python`, `--limit`, `[tool.scaffold] python`, the environment and the working directory. Out: an `Interpreter`, or None; verdicts; of
many ops, how they are to be proven and what is known of that.
Invariant: torch is looked for, not imported; an interpreter that the user names is used or refused, never passed over in silence.
Nothing is looked for and no process is started before it is asked for; none is left when the command ends.
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

# Most runs prove nothing, and the process of one that does starts before all this is imported.
if TYPE_CHECKING:
    from scaffold.project.specification import Values
    from scaffold.project.survey import Op
    from scaffold.verify import Prover, Request, Verdict
    from scaffold.workspace.records import Proof


NONE_FOUND = "no PyTorch found"
ANOTHER = "name an interpreter that has it: --python PATH"
UNPROVEN = f"not proven: {NONE_FOUND} ({ANOTHER})"
OPTION = "--python"


class Interpreter(NamedTuple):
    """An interpreter that has torch."""

    path: str
    origin: str = ""  # what led to it; nothing where it runs the tool too

    def note(self, done: str = "proven") -> tuple[str, ...]:
        """What a run says of it: nothing where it is the tool's own."""
        if not self.origin:
            return ()
        return (f"{done} with {self.shown} (from {self.origin})",)

    @property
    def shown(self) -> str:
        """The path as it is best read from here."""
        near = os.path.relpath(self.path)
        return self.path if near.startswith(os.pardir) else near


def find_interpreter(given: str | None = None) -> Interpreter | None:
    """The first that has torch: the one given, the configured, our own, then those around; None where none has.

    One that is given or configured and has none is an error.
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
        if path != sys.executable and not lacks_torch(path):
            return Interpreter(path, origin)
    return None


def need_interpreter(given: str | None, option: str) -> Interpreter:
    """The same for what cannot be done without."""
    found = find_interpreter(given)
    if found is None:
        raise ScaffoldError(NONE_FOUND, Location(option), ANOTHER)
    return found


def _named(text: str, root: Path, origin: str, place: Location) -> Interpreter:
    """An interpreter that the user names: a path as seen from the root, or a command."""
    from scaffold.verify import lacks_torch

    if os.sep in text or text in (os.curdir, os.pardir):
        path = os.path.normpath(root / Path(text).expanduser())
    else:
        path = next(_commands(text), text)
    lacks = lacks_torch(path)
    if lacks:
        hint = "name another with --python PATH"
        if origin == OPTION:
            hint = "name one that has PyTorch: --python .venv/bin/python"
        raise ScaffoldError(f"'{text}' {lacks}", place, hint)
    return Interpreter(path, origin)


def _place_of_key() -> Location:
    """Where the configuration names an interpreter: its file, or a variable."""
    from scaffold.spec.config import find_sources

    said = find_sources(working_directory(), os.environ).said["python"]
    return said.locate(("python",))


def _around() -> Iterator[tuple[str, str]]:
    """The interpreters that a shell here would use, and what leads to each."""
    active = os.environ.get("VIRTUAL_ENV")
    if active:
        yield from ((path, "VIRTUAL_ENV") for path in _of_environment(Path(active)))
    here = working_directory()
    for directory in (here, *here.parents):
        yield from ((path, ".venv") for path in _of_environment(directory / ".venv"))
        if (directory / ".git").exists():
            break  # what lies above a checkout is no part of it
    yield from ((path, "PATH") for path in _commands("python"))


def _of_environment(directory: Path) -> Iterator[str]:
    path = directory / "bin" / "python"
    if path.is_file():
        yield str(path)


def _commands(name: str) -> Iterator[str]:
    """What a shell would start by that name; never what lies in the working directory by chance."""
    for directory in os.environ.get("PATH", "").split(os.pathsep):
        path = Path(directory, name)
        if path.is_absolute() and path.is_file() and os.access(path, os.X_OK):
            yield str(path)
            return


@dataclass(frozen=True, slots=True)
class Run:
    """How proofs are to be run, and what this run has proven already: it may have to start again."""

    python: str | None
    limit: int
    every: bool = False  # also of what has none and does not change
    insists: str = ""  # the option by which not to prove is an error
    done: "dict[str, Proof]" = field(default_factory=dict)

    def known(self, op: "Op") -> "tuple[Proof, ...]":
        """The proofs of an op: the one on record, and the one of this run."""
        on_record = op.record.proof if op.record else None
        return tuple(filter(None, (on_record, self.done.get(op.listed.name))))


class Proofs(NamedTuple):
    """What became of the proofs of a run."""

    found: "Mapping[str, Proof]"
    notes: tuple[str, ...] = ()


class Proving:
    """An interpreter that has torch, and a process of it; both are there when they are needed."""

    def __init__(self, settings: "Values", console: Console) -> None:
        self._console = console
        self._python: str | None = settings.get("python")
        self._limit: int | None = settings.get("limit")
        self._asked = bool(settings.get("verify"))
        self._prover: Prover | None = None

    @cached_property
    def interpreter(self) -> Interpreter | None:
        """The one that runs the proof; None where none has torch."""
        return find_interpreter(self._python)

    def start(self) -> list[ScaffoldError]:
        """Let torch be imported while the op is still being made; what stands in the way."""
        found = check_limit(self._limit) if self._limit is not None else []
        try:
            missing = self.interpreter is None
        except ScaffoldError as error:
            return [*found, *error.problems]
        if missing and self._asked:
            place = Location("--verify")
            found.append(ScaffoldError(NONE_FOUND, place, ANOTHER))
        if not found and not missing:
            self._started().start()
        return found

    def prove(self, name: str, request: "Request") -> "Verdict":
        """The verdict on an op."""
        with self._console.proving([name], "verifying"):
            return self._started().prove(request)

    def _started(self) -> "Prover":
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
    """The problem with a number of seconds, if it is none."""
    if limit >= 1:
        return []
    message = f"'{limit}' is no number of seconds"
    return [ScaffoldError(message, Location("--limit"), "write: --limit 60")]


@contextmanager
def proving(settings: "Values", console: Console) -> "Iterator[Proving]":
    """What a command proves with that has these options."""
    with closing(Proving(settings, console)) as found:
        yield found
