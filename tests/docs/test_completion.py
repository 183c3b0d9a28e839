"""Completion in the shells: the script that Typer makes, asked as the shell asks it."""

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from scaffold.cli.help import COMMANDS
from scaffold.cli.new_op import CHOICES
from scaffold.cli.op_options import SETTINGS, SPECIFICATION
from scaffold.spec.config_keys import KEYS as CONFIGURATION
from scaffold.spec.keys import KEYS
from tests.sweeps import in_every_run, pairs_in_every_run

BASH = """
eval "$(_SCAFFOLD_COMPLETE=source_bash scaffold)"
COMP_WORDS=({words}); COMP_CWORD={last}
_scaffold_completion scaffold
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
# Outside of the line editor its functions are missing: these print what they are given.
ZSH = """
compdef() {{ : }}
_arguments() {{ print -r -- "$@" }}
eval "$(_SCAFFOLD_COMPLETE=source_zsh scaffold)"
words=({words}); CURRENT={count}
_scaffold_completion
"""
FISH = """
_SCAFFOLD_COMPLETE=source_fish scaffold | source
complete -C {line}
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def asked(
    shell: str, environment: dict[str, str], *words: str, cwd: Path | None = None
) -> str:
    """What the shell offers for the last of some words."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = SCRIPTS[shell].format(
        words=shlex.join(words),
        last=len(words) - 1,
        count=len(words),
        line=shlex.quote(" ".join(words)),
    )
    quiet = {"bash": "--norc", "zsh": "-f", "fish": "--no-config"}[shell]
    done = subprocess.run(
        [shell, quiet, "-c", script],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# What is typed, what a shell offers for its last word, and what it does not.
TYPED = {
    "ne": (["new-op"], ["lint"]),
    "new-op foo --style ''": (["setup-context", "combined", "library"], ["lint"]),
    "new-op foo --save-p": (["--save-policy"], ["--style"]),
    "lint --select AF3": (["AF30", "AF36"], ["AF29"]),
    "lint --format s": (["sarif"], ["github"]),
    "config line": (["line-length"], ["lint"]),
}
IN_SHELLS = [(shell, words) for words in TYPED for shell in SCRIPTS]


# The words are ours and the same in every shell; a shell's script is, in whatever is typed.
@pytest.mark.parametrize(
    ("shell", "words"),
    pairs_in_every_run(IN_SHELLS, IN_SHELLS[::4], pytest.mark.each_commit),
)
def test_a_shell_completes(shell: str, words: str, environment: dict[str, str]) -> None:
    offered, withheld = TYPED[words]
    found = asked(shell, environment, "scaffold", *shlex.split(words))
    for word in offered:
        assert word in found
    for word in withheld:
        assert word not in found


@pytest.mark.parametrize(
    "command",
    in_every_run(["check", "upgrade", "verify", "remove", "rename"], ["verify"]),
)
def test_the_ops_of_the_manifest_are_offered(
    command: str, environment: dict[str, str], tmp_path: Path
) -> None:
    words = ("scaffold", command, "rm")
    (tmp_path / "pyproject.toml").write_text("[tool.scaffold]\n")
    assert asked("bash", environment, *words, cwd=tmp_path) == "\n"
    (tmp_path / "ops.toml").write_text(
        "[ops.rms_norm]\ninputs = 'x'\n[ops.linear]\ninputs = 'x'\n"
    )
    assert asked("bash", environment, *words, cwd=tmp_path) == "rms_norm\n"
    (tmp_path / "ops.toml").write_text("[ops.rms_norm\n")
    assert asked("bash", environment, *words, cwd=tmp_path) == "\n"


def test_every_command_is_offered(environment: dict[str, str]) -> None:
    assert set(COMMANDS) <= set(asked("bash", environment, "scaffold", "").split())


def test_the_script_is_shown_and_installed(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """Typer finds out which shell it was called from."""
    here = environment | {"HOME": str(tmp_path)}
    run = ["bash", "--norc", "-c"]
    shown = subprocess.run(
        [*run, "scaffold --show-completion; true"],
        env=here,
        capture_output=True,
        check=True,
    )
    assert b"complete -o default -F _scaffold_completion scaffold" in shown.stdout
    subprocess.run(
        [*run, "scaffold --install-completion; true"],
        env=here,
        capture_output=True,
        check=True,
    )
    assert "scaffold" in (tmp_path / ".bashrc").read_text()


def test_the_words_that_are_offered_are_those_that_are_taken() -> None:
    offered = {row.name: row.choices for row in (*SPECIFICATION, *SETTINGS)}
    for name, words in offered.items():
        known = KEYS[name].kind.choices if name in KEYS else CHOICES.get(name, ())
        assert words == known, name
    assert offered["style"] == CONFIGURATION["style"].kind.choices
