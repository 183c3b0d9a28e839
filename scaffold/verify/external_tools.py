"""External tools: git, to find uncommitted files; ruff, to format.

A three-way merge asks git what could be lost by it; a project with `formatter = "ruff"` gets its generated files as its own ruff writes
them. In: paths below a directory; {path: text} and the project's root. Out: the paths that git could not restore; the same texts as
`ruff format` writes them. Invariant: no file is written. Without git, a repository or an answer in time, nothing is reported; hooks,
monitors and filters named by the repository are not started. Ruff reads its configuration as for a file of that path.
"""

import hashlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.files import read_bytes

PATIENCE = 5.0  # seconds for a large repository
_QUIET = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"),
    *("-c", "safe.bareRepository=explicit"),  # a clone may hold one
)
_LIST = ("ls-files", "-z", "--stage", "--")  # --modified would start the filters
_HASHES = {40: "sha1", 64: "sha256"}  # of a repository, by their length


def uncommitted(root: Path, paths: Sequence[str]) -> tuple[str, ...]:
    """Return the paths not stored in git with their present content: changed or never added.

    A user is warned about these before a merge writes to them: git could not restore them. () without git, or if it does not answer.
    """
    if not paths:
        return ()
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *_QUIET, *_LIST, *paths],
            cwd=root,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    # After the last path comes a \0, too: the last part is empty.
    committed = dict(map(_path_and_hash, done.stdout.split(b"\0")[:-1]))
    return tuple(
        path for path in paths if not _in_git(root / path, committed.get(path, ""))
    )


def _path_and_hash(line: bytes) -> tuple[str, str]:
    """Return the path and the hash of a line of `git ls-files --stage`: `100644 HASH 0<TAB>PATH`."""
    about, _, path = line.partition(b"\t")
    return path.decode(errors="surrogateescape"), about.split()[1].decode()


def _in_git(path: Path, known: str) -> bool:
    """Return whether git has the file's content under the hash `known`, with its line ends or with \\n; False if the hash is "".

    Git stores a file as a blob and names it by the hash of `blob LENGTH\\0CONTENT`; with `autocrlf` it stores \\n for \\r\\n.
    """
    if not known:
        return False
    try:
        content = read_bytes(path)
    except OSError:
        return False
    texts = (content, content.replace(b"\r\n", b"\n"))
    blobs = (b"blob %d\0%b" % (len(text), text) for text in texts)
    return any(
        hashlib.new(_HASHES[len(known)], blob).hexdigest() == known for blob in blobs
    )


AT_ONCE = 4  # a thread waits for its process


def format_with_ruff(
    files: Mapping[str, str], line_length: int, root: Path
) -> dict[str, str]:
    """Return the texts by path as `ruff format` writes them; raise ScaffoldError if ruff cannot be run, or refuses one.

    `root` is the project's directory: ruff looks from there for the settings of each path, of which `line_length` overrides one.
    """
    from concurrent.futures import ThreadPoolExecutor  # 10 ms, not needed for git

    command = [_executable(), "format", "--line-length", str(line_length)]

    def formatted(path: str) -> str:
        return _formatted([*command, "--stdin-filename", path], files[path], root)

    with ThreadPoolExecutor(min(AT_ONCE, max(1, len(files)))) as pool:
        return dict(zip(files, pool.map(formatted, files), strict=True))


def _executable() -> str:
    """Return the ruff of our own environment, else the one on the shell's path."""
    beside = Path(sys.executable).with_name("ruff")
    return str(beside) if beside.is_file() else "ruff"


def _formatted(command: list[str], text: str, root: Path) -> str:
    """Return a text as the command formats it; raise ScaffoldError if ruff cannot be run, or refuses the text.

    The last word of `command` is the text's path (`--stdin-filename PATH`), for settings and messages; the text itself goes to stdin.
    """
    try:
        done = subprocess.run(
            [*command, "-"],
            cwd=root,
            input=text,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
    except OSError as error:
        raise ScaffoldError(
            f"cannot run ruff, the formatter of the project: {error.strerror}",
            hint="install it: pip install ruff; or write: formatter = 'black'",
        ) from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ScaffoldError(f"ruff does not format '{command[-1]}': {reason}")
    return done.stdout


def is_installed(module: str) -> bool:
    """Return whether a module is installed, without importing it."""
    return find_spec(module) is not None
