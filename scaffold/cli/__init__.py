"""The command line: compose the other packages; the only package to print and exit.

In: arguments, the configuration and the files they name. Out: files through `workspace`, results on stdout, diagnostics
on stderr, an exit code: 0 fine, 1 findings or a conflict, 2 usage or bad input.
Invariant: a run imports only the module of its command, and templates and formatter only to render; the first page of help
imports not even Typer.
"""

import sys
from contextlib import suppress

from scaffold.cli.help import first_page

FIRST_PAGE = (["--help"], ["-h"], ["help"])


def main() -> None:
    """Run the typed command, or show the first page of help."""
    if sys.argv[1:] in FIRST_PAGE and _shown(first_page()):
        return
    try:
        from scaffold.cli.app import main as run

        run()
    except KeyboardInterrupt:  # during the import of the application
        sys.exit(130)


def _shown(text: str) -> bool:
    """Return whether a text was written to stdout; if not, the application runs and reports the failure."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
        return True
    return False


__all__ = ["main"]
