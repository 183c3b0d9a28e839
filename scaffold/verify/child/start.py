"""Start-up of every process of `scaffold.verify`: `processes.ChildProcess` runs this file.

In: as its argument a module of this package, "scaffold.verify.child.runner", or the path of a standalone file.
Out: its output. Invariant: it ends when the process that started it ends, however that ends, and so do all processes it has
started. The interpreter need not have the package, nor its dependencies: only `scaffold` is made importable from its folder, and
nothing else of the tool's environment.
"""

import os
import select
import signal
import sys
from typing import Any

HERE = os.path.dirname(os.path.realpath(__file__))
PACKAGE = os.path.dirname(os.path.dirname(HERE))
OFTEN = 1000  # milliseconds between two looks at our parent's id


class _Ended(Exception):
    """The working process has ended."""


def main() -> None:
    """Run the module named by the argument (its `main`), or the file, in a process ending with our parent."""
    # Python puts our directory first, whose modules would hide others of their names.
    sys.path[:] = [path for path in sys.path if os.path.realpath(path) != HERE]
    end_with_parent()
    (target,) = sys.argv[1:]
    if target.endswith(".py"):
        import runpy

        runpy.run_path(target, run_name="__main__")
        return
    _make_importable()
    from importlib import import_module

    import_module(target).main()


def end_with_parent() -> None:
    """Continue in a forked process; this one waits for it, and kills the group once our parent has ended.

    Our parent holds the other end of stdin. It closes with our parent, unless a copy of our parent has it too; then a change of the
    parent's id shows the end. Neither needs the working process, which may hang anywhere.
    """
    parent = os.getppid()
    signal.signal(signal.SIGCHLD, _raise_ended)
    try:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return
        closed = select.poll()
        # Stdin, for no event: poll reports its closing unrequested.
        closed.register(0, 0)
        while os.getppid() == parent and not closed.poll(OFTEN):
            pass
    except _Ended:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _end_as(os.wait()[1])
    os.killpg(0, signal.SIGKILL)  # our own group, this process too


def _raise_ended(number: int, frame: Any) -> None:
    raise _Ended


def _end_as(status: int) -> None:
    """End this process as the working one ended: by its signal, or with its exit code."""
    if os.WIFSIGNALED(status):
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


def _make_importable() -> None:
    """Make `scaffold` importable from its own folder; a path in sys.path would make all beside it importable, too."""
    from importlib.util import module_from_spec, spec_from_file_location

    file = os.path.join(PACKAGE, "__init__.py")
    spec = spec_from_file_location(
        "scaffold", file, submodule_search_locations=[PACKAGE]
    )
    assert spec is not None and spec.loader is not None
    module = sys.modules["scaffold"] = module_from_spec(spec)
    spec.loader.exec_module(module)


if __name__ == "__main__":
    main()
