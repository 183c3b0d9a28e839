"""What git knows of files, where there is git.

In: a directory and paths below it. Out: those that git could not bring back. Invariant: nothing is written; where there is no git,
no repository or no answer in time, nothing is said. Hooks and monitors that the repository names are not started.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path

PATIENCE = 5.0  # seconds for a large repository
_QUIET = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
_LIST = ("ls-files", "-z", "--modified", "--others", "--exclude-standard", "--")


def uncommitted(root: Path, paths: Sequence[str]) -> tuple[str, ...]:
    """The paths whose content git does not hold: changed since they were added, or never added."""
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
    listed = {
        name.decode(errors="surrogateescape") for name in done.stdout.split(b"\0")
    }
    return tuple(path for path in paths if path in listed)
