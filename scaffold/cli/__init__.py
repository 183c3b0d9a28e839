"""The command line: composes the other packages, and alone prints and exits.

In: arguments, the configuration and the files they name. Out: files through `workspace`, results on stdout, diagnostics
on stderr, an exit code: 0 fine, 1 findings or a conflict, 2 usage or bad input.
Invariant: a run imports the module of its command alone, and templates and formatter once there is something to render; the first
page of help imports not even Typer.
"""

import sys
from contextlib import suppress

from scaffold.cli.help import first_page

FIRST_PAGE = (["--help"], ["-h"], ["help"])


def main() -> None:
    """Run what was typed: show the first page of help, or run a command."""
    if sys.argv[1:] in FIRST_PAGE and _shown(first_page()):
        return
    try:
        from scaffold.cli.app import main as run

        run()
    except KeyboardInterrupt:  # while the application is still imported
        sys.exit(130)


def _shown(text: str) -> bool:
    """Whether the text went to stdout; an output that is closed, full or gone is left to what tells of it."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
        return True
    return False


__all__ = ["main"]
