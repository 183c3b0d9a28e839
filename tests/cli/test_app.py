"""The command itself: help, version, and what it does when the world is against it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import scaffold as package
from scaffold.cli.app import MEANT
from scaffold.cli.help import COMMANDS
from tests.cli.running import COMMAND, QUICK, environment, listing, new_op, run
from tests.cli.running import scaffold as scaffold_


def test_the_version_is_shown(tmp_path: Path) -> None:
    outcome = scaffold_(tmp_path, "--version")
    assert (outcome.code, outcome.out) == (0, f"scaffold {package.__version__}\n")


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_on_stdout(tmp_path: Path, flag: str) -> None:
    outcome = scaffold_(tmp_path, "new-op", flag)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith("Usage: scaffold new-op ")
    assert "--inputs TEXT" in outcome.out and "--on-conflict" not in outcome.out
    every = scaffold_(tmp_path, "new-op", "--help-all")
    assert (every.code, every.err) == (0, "")
    assert "--on-conflict POLICY" in every.out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "Write an op:"),
        (["new-ops"], "no such command 'new-ops'"),
        (["new-op"], "missing argument 'NAME'"),
        (["new-op", "foo", "--input", "x"], "no such option: --input"),
        (["new-op", "foo", "--inputs"], "'--inputs' requires an argument"),
        (["new-op", "foo", "bar"], "unexpected extra argument(s) (bar)"),
        (["new-op", "foo", "--inputs", "x", "--dry-run=1"], "does not take a value"),
    ],
)
def test_a_usage_error_is_on_stderr(
    tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    outcome = scaffold_(tmp_path, *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert complaint in outcome.err
    assert not listing(tmp_path)


@pytest.mark.parametrize("asked", sorted(MEANT))
def test_an_option_by_another_name_is_answered_with_ours(
    tmp_path: Path, asked: str
) -> None:
    outcome = scaffold_(tmp_path, "new-op", "foo", asked, "x")
    written = outcome.err.partition("hint: write: ")[2].strip()
    assert (outcome.code, written) == (2, MEANT[asked])
    told = scaffold_(tmp_path, "new-op", "foo", written.partition(" ")[0])
    assert "no such option" not in told.err  # the answer is one


def test_an_answer_names_no_option_that_the_command_has_not(tmp_path: Path) -> None:
    outcome = scaffold_(tmp_path, "lint", "--no-tests", ".")
    assert outcome.err.endswith("hint: see scaffold lint --help\n")


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_is_130_and_leaves_nothing(tmp_path: Path) -> None:
    """Interrupted while the op is proven, which calls a function that does not end."""
    begun = tmp_path / "begun"
    (tmp_path / "slow.py").write_text(
        f"import time\n\n\ndef slow(x):\n    open({str(begun)!r}, 'w').close()\n    time.sleep(60)\n"
    )
    op = ("--inputs", "x", "--import", "slow:slow", "--forward", "slow(x)")
    process = subprocess.Popen(
        [*COMMAND, "new-op", "foo", *op, "--grad", "x=grad_output"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    patience = time.monotonic() + 60
    while not begun.exists() and time.monotonic() < patience:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["begun", "slow.py"]


def test_an_interrupt_while_the_application_is_imported_is_no_traceback(
    tmp_path: Path,
) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    program = "from scaffold.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "list"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("arguments", [QUICK, (*QUICK, "--stdout")], ids=["", "stdout"])
def test_a_reader_that_goes_away_is_no_traceback(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    receiver, sender = os.pipe()
    os.close(receiver)
    done = subprocess.run(
        [*COMMAND, "new-op", "foo", *arguments],
        cwd=tmp_path,
        env=environment(),
        stdout=sender,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(sender)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr and "Error" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_under_stdout_is_a_message(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "new-op", "foo", *QUICK, "--stdout"],
            cwd=tmp_path,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    last = done.stderr.splitlines()[-1]
    assert last == "error: cannot write the output: No space left on device"
    assert done.returncode == 2


@pytest.mark.parametrize("closed", [0, 1, 2], ids=["stdin", "stdout", "stderr"])
def test_closed_streams_are_no_traceback(tmp_path: Path, closed: int) -> None:
    shell = f'exec "$@" {closed}>&-'
    for expected in (0, 1):  # the second run meets the first one's file
        done = subprocess.run(
            ["sh", "-c", shell, "sh", *COMMAND, "new-op", "foo", *QUICK]
            + ["--doc", str(expected)],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == expected, done.stderr
        assert "Traceback" not in done.stderr


def test_a_working_directory_that_is_gone_is_a_message(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    done = subprocess.run(
        ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", *COMMAND, "new-op", "foo"],
        cwd=here,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "error: the working directory does not exist any more" in done.stderr
    assert "Traceback" not in done.stderr


def test_names_that_are_not_utf8_can_be_shown(tmp_path: Path) -> None:
    """A directory whose name is latin-1: on stdout it is what it is on the disk."""
    outcome = new_op(tmp_path, *QUICK, "--out-dir", "caf\udce9")
    assert (outcome.code, outcome.out) == (0, "create  caf\udce9/foo.py\n")


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "ascii"}])
def test_a_poor_locale_prints_the_same_bytes(
    tmp_path: Path, locale: dict[str, str]
) -> None:
    arguments = ("new-op", "foo", *QUICK, "--doc", "Größe", "--stdout")
    assert run(tmp_path, *arguments, **locale) == run(tmp_path, *arguments)


def test_control_characters_of_the_user_do_not_reach_the_terminal(
    tmp_path: Path,
) -> None:
    outcome = new_op(tmp_path, "--inputs", "x", name="a\x1b[31m\nb")
    assert outcome.code == 2
    first, *rest = outcome.err.splitlines()
    assert first.startswith(r"NAME: 'a\x1b[31m\nb' cannot name an op")
    assert all(line.startswith("hint: ") for line in rest)


def test_python_m_and_the_command_are_one() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from scaffold.cli import main; main()", "--version"],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"scaffold {package.__version__}\n"


def test_no_garbage_is_looked_for_on_the_way_out() -> None:
    """It is a sixth of a run that has black and Jinja in memory."""
    program = """
import atexit, gc
atexit.register(lambda: print(sum(map(len, map(gc.get_objects, range(3))))))
from scaffold.cli import main
main()
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "--version"],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout.splitlines()[-1]) < 100


@pytest.mark.parametrize("name", COMMANDS)
def test_help_says_of_a_command_what_it_says_of_itself(
    name: str, tmp_path: Path
) -> None:
    own = scaffold_(tmp_path, name, "--help").out
    assert COMMANDS[name] in own
    assert f"{name:11}{COMMANDS[name]}" in scaffold_(tmp_path, "--help").out
