"""The command line: composes the other packages, and alone prints and exits.

In: arguments, the configuration and the files they name. Out: files through `workspace`, results on stdout, diagnostics
on stderr, an exit code: 0 fine, 1 findings or a conflict, 2 usage or bad input.
Invariant: a run imports the module of its command alone, and templates and formatter once there is something to render, so
`--help` stays fast.
"""

from scaffold.cli.app import main

__all__ = ["main"]
