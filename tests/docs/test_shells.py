"""What the README and the pages of docs/ say to type reaches the tool as meant, typed into an interactive shell.

Interactive shells expand more than `sh -c` does: history in `!`, and in zsh and fish `?`, `[ ]` and `*` that match no
file are errors. Each shell runs on a terminal of its own, with a configuration that only records exit codes.
"""

import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.conftest import write_script
from tests.docs.pages import PAGES, Command, File, read_blocks, read_page, read_steps

STEPS = [
    step
    for page in PAGES
    for step in read_steps(page.read_text(encoding="utf-8"))
    if isinstance(step, File)
    or (isinstance(step, Command) and step.text.startswith("scaffold "))
]
STARTS = [b for b in read_blocks(read_page("README.md")) if b.role == "start"]

# Shell -> its arguments, the file that configures it and what stands in there: before each prompt, a line with $?.
SHELLS = {
    "bash": (
        ["--noprofile", "--rcfile", ".bashrc", "-i"],
        ".bashrc",
        "PS1='$(echo $? >>\"$CODES\")$ '",
    ),
    "zsh": (["-d", "-i"], ".zshrc", 'precmd() { echo $? >>"$CODES" }'),
    "fish": (
        ["-i"],
        "fish/config.fish",
        'function record --on-event fish_prompt; echo $status >>"$CODES"; end',
    ),
}
HOMES = ("HOME", "ZDOTDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")
# What goes wrong in each shell if it is interactive, and only then.
EXPANDED = {
    "bash": 'touch "made!nothing"',
    "zsh": "touch made?",
    "fish": "touch made*nothing",
}
TERMINAL = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]))"
PATIENCE = 60  # seconds for one command


@dataclass
class Terminal:
    """An interactive shell in a directory; it is typed at, and records exit codes."""

    process: subprocess.Popen[bytes]
    codes: Path
    screen: Path

    def type(self, text: str) -> int:
        """Type a command and wait for the next prompt; its exit code."""
        before = len(self.recorded())
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()
        return self.prompt(before + 1)

    def prompt(self, number: int) -> int:
        """Wait for a prompt; the exit code of what ran before it."""
        limit = time.monotonic() + PATIENCE
        while len(self.recorded()) < number:
            shown = self.screen.read_text(errors="replace")
            assert self.process.poll() is None, f"the shell ended:\n{shown}"
            assert time.monotonic() < limit, f"no prompt:\n{shown}"
            time.sleep(0.02)
        return self.recorded()[number - 1]

    def recorded(self) -> list[int]:
        """The exit codes so far; a line that is not yet whole does not count."""
        text = self.codes.read_text() if self.codes.exists() else ""
        return [int(line) for line in text.splitlines(True) if line.endswith("\n")]


@contextmanager
def terminal(
    shell: str, directory: Path, environment: dict[str, str], home: Path
) -> Iterator[Terminal]:
    """The shell on a pseudo-terminal, with `home` for its configuration and records."""
    arguments, name, configuration = SHELLS[shell]
    (home / name).parent.mkdir(parents=True, exist_ok=True)
    (home / name).write_text(configuration + "\n")
    here = dict.fromkeys(HOMES, str(home)) | {"CODES": str(home / "codes")}
    # where it is missing, fish runs python3 to fill it from the manual pages
    (home / "fish" / "generated_completions").mkdir(parents=True)
    arguments = [str(home / one) if one == name else one for one in arguments]
    with (home / "screen").open("wb") as screen:
        process = subprocess.Popen(
            [sys.executable, "-c", TERMINAL, shell, *arguments],
            cwd=directory,
            env=environment | here,
            stdin=subprocess.PIPE,
            stdout=screen,
            stderr=subprocess.STDOUT,
        )
        opened = Terminal(process, home / "codes", home / "screen")
        try:
            opened.prompt(1)
            yield opened
        finally:
            process.kill()
            process.communicate()


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    """A shell that is installed here."""
    name: str = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    return name


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where the shell keeps what is its own."""
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The empty directory that the reader works in."""
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


RECORD = 'printf "%s\\0" "$0" "$@" >>"$RECORD"; printf "\\n" >>"$RECORD"'


def recorded(path: Path) -> list[list[str]]:
    """The words that each program was started with, its own name first."""
    started = [line.split("\0") for line in path.read_text().split("\0\n")[:-1]]
    return [[Path(words[0]).name, *words[1:]] for words in started]


def test_commands_reach_the_tool_in_every_shell(
    shell: str, environment: dict[str, str], here: Path, home: Path, tmp_path: Path
) -> None:
    """In place of the tool stands a program that only records its arguments."""
    (tmp_path / "bin").mkdir()
    write_script(tmp_path / "bin" / "scaffold", RECORD)
    path = f"{tmp_path / 'bin'}:{environment['PATH']}"
    variables = environment | {"PATH": path, "RECORD": str(home / "record")}
    typed = []
    with terminal(shell, here, variables, home) as opened:
        for step in STEPS:
            if isinstance(step, File):
                (here / step.name).parent.mkdir(exist_ok=True)
                (here / step.name).write_text(step.text)
            else:
                typed.append(shlex.split(step.text.replace("\\\n", "")))
                assert opened.type(step.text) == 0
    assert recorded(home / "record") == typed


def test_start_commands_reach_their_programs_in_every_shell(
    shell: str, environment: dict[str, str], here: Path, home: Path, tmp_path: Path
) -> None:
    """In place of the programs stand some that only record their arguments."""
    (tmp_path / "bin").mkdir()
    write_script(tmp_path / "bin" / "recorder", RECORD)
    placed = "; ".join(
        f'cp "$(dirname "$0")/recorder" .venv/bin/{program}'
        for program in ("pip", "python", "scaffold")
    )
    write_script(
        tmp_path / "bin" / "python3", f"{RECORD}; mkdir -p .venv/bin; {placed}"
    )
    path = f"{tmp_path / 'bin'}:{environment['PATH']}"
    variables = environment | {"PATH": path, "RECORD": str(home / "record")}
    with terminal(shell, here, variables, home) as opened:
        codes = [opened.type(block.text.rstrip("\n")) for block in STARTS]
    assert codes == [0, 0]
    typed = [shlex.split(one) for block in STARTS for one in block.text.split(" && ")]
    assert recorded(home / "record") == [
        [Path(words[0]).name, *words[1:]] for words in typed
    ]


def test_the_shells_expand(
    shell: str, environment: dict[str, str], here: Path, home: Path
) -> None:
    """Were they not interactive, the tests above would prove nothing."""
    with terminal(shell, here, environment, home) as opened:
        opened.type(EXPANDED[shell])
        assert not list(here.iterdir())
        assert opened.type("touch made") == 0
        assert [path.name for path in here.iterdir()] == ["made"]
