"""The examples as they are committed.

In: `generated_examples/`. Out: one `Example` a directory. Invariant: what the command writes is told from what it reads.
"""

import shlex
import shutil
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "generated_examples"


@dataclass(frozen=True)
class Example:
    """A directory with a command and the files that it makes."""

    directory: Path

    @property
    def command(self) -> str:
        return (self.directory / "command").read_text().removesuffix("\n")

    @property
    def arguments(self) -> list[str]:
        """The arguments after `scaffold new-op`."""
        words = shlex.split(self.command)[len(self.environment) :]
        program, command, *arguments = words
        assert (program, command) == ("scaffold", "new-op")
        return arguments

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the command begins with: `SCAFFOLD_TYPING=strict scaffold`."""
        assigned = takewhile(lambda word: "=" in word, shlex.split(self.command))
        return dict(word.split("=", 1) for word in assigned)

    @property
    def op(self) -> str:
        return self.arguments[0]

    @property
    def op_file(self) -> Path:
        return self.directory / f"{self.op}.py"

    @property
    def test_file(self) -> Path:
        return self.directory / f"test_{self.op}.py"

    @property
    def kernel_file(self) -> Path:
        return self.directory / f"{self.op}_triton.py"

    @property
    def generated(self) -> list[Path]:
        kernels = [self.kernel_file] if "fused" in self.op else []
        return [self.op_file, *kernels, self.test_file]

    @property
    def given(self) -> list[Path]:
        """What the user wrote: the command and what it reads."""
        return sorted(
            path
            for path in self.directory.iterdir()
            if path not in self.generated and not path.name.endswith("__pycache__")
        )

    @property
    def skeleton(self) -> bool:
        return "NotImplementedError" in self.op_file.read_text()

    def copy_given(self, directory: Path) -> None:
        """Put the user's files there."""
        for path in self.given:
            shutil.copy(path, directory)

    def copy(self, directory: Path) -> None:
        """Put all files there."""
        for path in (*self.given, *self.generated):
            shutil.copy(path, directory)


EXAMPLES = [
    Example(path) for path in sorted(ROOT.iterdir()) if (path / "command").is_file()
]
