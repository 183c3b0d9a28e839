"""Errors with a place and a hint: every expected failure of the tool is one of these.

Any package raises them; `cli` prints them and exits with their code. Readers collect several, to report all problems of an input at once.
In: a message, its place, and a hint. Out: exceptions with text ready to print.
Invariant: nothing but a `ScaffoldError` leaves the package for bad input.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A place in the user's input: a file, option (`--inputs`), command or argument (`NAME`), with line and column from 1."""

    source: str
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        """Return `ops.toml:3:5` for a file, `--inputs` for a whole option, `--inputs:1:4` for a part of it."""
        # Others: --inputs, %%scaffold, [tool.scaffold], scaffold new-op, SCAFFOLD_STYLE, NAME.
        of_file = (
            not self.source.startswith(("-", "%", "[", "scaffold ", "SCAFFOLD_"))
            and self.source != "scaffold"
            and not self.source.isupper()
        )
        if of_file or (self.line, self.column) != (1, 1):
            return f"{self.source}:{self.line}:{self.column}"
        return self.source  # an option, a command or an argument as a whole

    def shifted(self, line: int, column: int) -> "Location":
        """Return the place in a text that starts here, `line` lines below and `column` columns into that line (both from 0).

        Only on the first line does the text's own column count.
        """
        if line == 0:
            return replace(self, column=self.column + column)
        return replace(self, line=self.line + line, column=column + 1)


class ScaffoldError(Exception):
    """Bad input: a message, its place, and a hint on how to fix it."""

    exit_code = 2
    details: tuple[str, ...] = ()  # further facts to print, one a line

    def __init__(
        self, message: str, location: Location | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.location = location
        self.hint = hint

    @property
    def problems(self) -> tuple["ScaffoldError", ...]:
        """Return the single errors in this one, to collect or print them: here itself alone."""
        return (self,)

    def __str__(self) -> str:
        """Return the text to print: `ops.toml:3:5: message`, then a line `hint: ...`."""
        place = str(self.location) if self.location else "error"
        hint = f"\nhint: {_on_one_line(self.hint)}" if self.hint else ""
        return f"{_on_one_line(f'{place}: {self.message}')}{hint}"

    def _render_traceback_(self) -> list[str]:
        """Return the lines a notebook shows instead of a traceback (IPython calls this): the input is to blame, not our frames."""
        return [f"ScaffoldError: {self}"]


class ScaffoldErrors(ScaffoldError):
    """Several problems of one run, in order of discovery, without duplicates (two readers of a file may report the same one)."""

    def __init__(self, problems: Iterable[ScaffoldError]) -> None:
        """Join one problem or more; message and place are those of the first, the exit code is the highest."""
        single = [inner for problem in problems for inner in problem.problems]
        flat = [*{str(problem): problem for problem in single}.values()]
        self._problems = tuple(flat)
        self.details = tuple(line for problem in flat for line in problem.details)
        super().__init__(flat[0].message, flat[0].location, flat[0].hint)
        self.exit_code = max(problem.exit_code for problem in flat)

    @property
    def problems(self) -> tuple[ScaffoldError, ...]:
        return self._problems

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self._problems)


class ConflictError(ScaffoldError):
    """Findings or a conflict rather than bad input: exit code 1."""

    exit_code = 1


class ConflictErrors(ScaffoldErrors, ConflictError):
    """Several conflicts of one run: caught as a ConflictError, printed as ScaffoldErrors."""


class VerificationError(ScaffoldError):
    """A failed proof: the op does not do what its forward says; exit code 1."""

    exit_code = 1

    def __init__(
        self,
        message: str,
        location: Location | None = None,
        hint: str | None = None,
        details: tuple[str, ...] = (),
    ) -> None:
        """Keep `details`, the failing case and the formulas compared, one fact a line."""
        super().__init__(message, location, hint)
        self.details = details


def _on_one_line(text: str) -> str:
    """Escape line ends and control characters of the user's text, for printing on one line."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def raise_all(problems: list[ScaffoldError]) -> None:
    """Raise the collected problems: nothing for none, a single one itself, several as one ScaffoldErrors.

    If all are conflicts it is a ConflictErrors, with exit code 1: callers may catch conflicts alone.
    """
    if len(problems) == 1:
        raise problems[0]
    if problems and all(isinstance(problem, ConflictError) for problem in problems):
        raise ConflictErrors(problems)
    if problems:
        raise ScaffoldErrors(problems)


def why_unread(error: OSError | ValueError) -> str:
    """Return the reason of a failed `read_text`, to put behind "cannot be read: "; a ValueError is one of decoding."""
    return (error.strerror if isinstance(error, OSError) else "") or "not UTF-8"


def did_you_mean(word: str, known: Iterable[str], alike: float = 0.6) -> str | None:
    """Return a hint with the known word closest to a misspelt one, "did you mean 'inputs'?"; None if none is similar enough.

    `alike` is the least similarity, from 0 to 1.
    """
    close = get_close_matches(word, list(known), n=1, cutoff=alike)
    return f"did you mean '{close[0]}'?" if close else None
