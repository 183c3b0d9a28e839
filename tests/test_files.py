"""Files that are read are regular and of a sane size; all else is an error at once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scaffold.files import LARGEST, read_bytes, read_text
from tests.sweeps import pairs_in_every_run

OP = "[ops.foo]\ninputs = 'x'\nforward = '@maths.py:f'\n"
CONFIGURATION = """\
[tool.scaffold]
manifest = ["ops.toml"]
source = "ops"
template-dirs = ["t"]
rules = ["rules.toml"]
"""


def test_the_content_with_plain_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes("é\r\nb\rc\n".encode())
    assert read_bytes(path) == "é\r\nb\rc\n".encode()
    assert read_text(path) == "é\nb\nc\n"
    path.write_bytes(b"\xef\xbb\xbfa")
    assert read_text(path, "utf-8-sig") == "a"


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(OSError, match="it is not a regular file") as caught:
            read_bytes(path)
        assert caught.value.filename == path
    with pytest.raises(IsADirectoryError):
        read_bytes(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "none")


def test_a_file_without_end(tmp_path: Path) -> None:
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(LARGEST + 1)
    with pytest.raises(OSError, match="it has more than 10 MB"):
        read_bytes(path)
    endless = Path("/proc/kallsyms")  # says that it has 0 bytes
    if endless.exists():
        try:
            assert len(read_bytes(endless)) <= LARGEST
        except OSError as error:
            assert "10 MB" in str(error)


COMMANDS = [
    *(["check"], ["list"], ["rules", "list"], ["remove", "foo"]),
    ["new-op", "bar", "--inputs", "x", "--forward", "@maths.py:f", "--no-verify"],
    ["new-op", "bar", "--spec", "spec.toml", "--no-verify"],
    ["lint", "ops/extra.py"],
    ["lint", "ops", "--baseline", "base.json"],
]
PLACES = [
    *("pyproject.toml", "ops.toml", "maths.py", "t/op.py.jinja", "rules.toml"),
    *("ops/foo.py", ".scaffold/foo.json", "ops/extra.py", "spec.toml", "base.json"),
]
DEEP = {
    ".json": "[" * 100_000,
    ".toml": "a = " + "[" * 100_000,
    ".py": "x = " + "-" * 20_000 + "1\n",
    ".jinja": "{{ " + "(" * 5_000 + "1" + ")" * 5_000 + " }}",
}
RUN = """
import io, json, os, signal, sys
from contextlib import redirect_stderr, redirect_stdout
import black, jinja2, scaffold.derive.gradients, scaffold.render.files  # once for all commands
from scaffold.cli.app import main
signal.alarm(100)
for command in json.loads(sys.argv[1]):
    said = io.StringIO()
    child = os.fork()
    if not child:
        os.dup2(os.open("said", os.O_CREAT | os.O_WRONLY | os.O_TRUNC), 2)
        os.dup2(2, 1)
        sys.argv = ["scaffold", *command]
        signal.alarm(20)
        try:
            main()
        except SystemExit as stop:
            os._exit(int(stop.code or 0))
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(99)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    text = open("said").read()
    print(json.dumps([command, code, text]))
"""


EVERY = [(place, kind) for place in PLACES for kind in ("pipe", "deep")]


# Each kind in one place: all are read by the same function.
@pytest.mark.parametrize(
    ("place", "kind"), pairs_in_every_run(EVERY, [EVERY[0], EVERY[13]])
)
def test_no_command_waits_or_breaks(place: str, kind: str, tmp_path: Path) -> None:
    """Each command, with one of the files that it may read turned into what is none."""
    files = {"pyproject.toml": CONFIGURATION, "ops.toml": OP, "t/.keep": ""}
    files |= {"maths.py": "def f(x):\n    return x * 2\n", "rules.toml": ""}
    files |= {"ops/extra.py": ""}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_text(DEEP[path.suffix])
    done = subprocess.run(
        [sys.executable, "-c", RUN, json.dumps(COMMANDS)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == len(COMMANDS)
    for command, code, said in rows:
        assert code in (0, 1, 2), (command, code, said[-2000:])
        assert "Traceback" not in said, (command, said[-2000:])
    assert any(code for _, code, _ in rows), "nobody noticed"
    if kind == "pipe":
        assert any("it is not a regular file" in said for _, _, said in rows), rows
