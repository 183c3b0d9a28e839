"""The command line: composes the other packages, and alone prints and exits.

In: arguments, the configuration and the files they name. Out: files through `workspace`, results on stdout, diagnostics
on stderr, an exit code: 0 fine, 1 findings or a conflict, 2 usage or bad input.
Invariant: a command imports what it needs when it runs, so `--help` stays fast.
"""

from scaffold.cli.app import main

__all__ = ["main"]
