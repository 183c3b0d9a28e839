"""Import of a user's file by its dotted name; if a package around it cannot be imported, without that package's own code.

The checks of hand-written Functions and of references import the user's module by it (`hand_written.py`, `original.py`).
In: the name, the file, the directory that the import starts from. Out: the module; `NotLoadedError` if the file itself cannot run here,
with the place and a hint. Invariant: the module is of that file, and `notes_on` tells if packages were left out.
Words: packages are *left out* if they are replaced by empty ones; `own` is the error of the file without them.
"""

import os
import sys
import traceback
from importlib import import_module
from types import ModuleType
from typing import Any

from scaffold.verify.child.refusals import TOLD, first_line

LEFT_OUT: dict[str, str] = {}  # by the name of a module: why its packages are not run


class NotLoadedError(Exception):
    """The reason why a file cannot be imported, or lacks the requested name."""

    def __init__(self, words: str, hint: str = "") -> None:
        super().__init__(words)
        self.hint = hint


def import_file(name: str, file: str, root: str) -> Any:
    """Import a module by its dotted name from the directory `root`, and return it; raise NotLoadedError if that is not `file`.

    A module of the same name and another directory, imported for an earlier request, is forgotten first. If a package around the module
    cannot be imported, as its `__init__.py` needs what is not installed, it is left out.
    """
    sys.path.insert(0, root)
    # TOLD has the files imported here: no other module of that name is touched.
    if getattr(sys.modules.get(name), "__file__", None) in TOLD - {file}:
        del sys.modules[name]  # of another directory
    module, error = _imported(name)
    if error is not None and _bare_packages(name, root):
        module, own = _imported(name)  # `own`: the error of the file alone
        LEFT_OUT[name] = _in_words(error, root)
        # Of the two errors, with and without the packages, this one names what the file itself lacks.
        if isinstance(own, ModuleNotFoundError):
            error = own
    if module is None:
        assert error is not None
        words = f"cannot be imported: {_in_words(error, root)}"
        raise NotLoadedError(words, install(error)) from error
    TOLD.add(str(module.__file__))
    # An installed module of the same name was found first.
    if not os.path.samefile(str(module.__file__), file):
        raise NotLoadedError(f"cannot be imported: '{name}' is {module.__file__}")
    return module


def _imported(name: str) -> tuple[ModuleType | None, BaseException | None]:
    """Return the module, or None and the exception that ended its import: user code may even call `sys.exit`."""
    try:
        return import_module(name), None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 (whatever ends an import)
        return None, error


def notes_on(name: str) -> list[str]:
    """Return a note if a module's packages were left out."""
    if name not in LEFT_OUT:
        return []
    return [f"imported without its package, which cannot be: {LEFT_OUT[name]}"]


def install(error: BaseException) -> str:
    """Return advice on a module that is not installed, or not built; "" for any other error."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return ""
    missing = error.name.partition(".")[0]
    if (
        missing in sys.modules
    ):  # a part of it is missing, such as an extension that is not built
        return f"is {error.name} built?"
    return f"install {missing} where PyTorch is, or name an interpreter that has both: --python"


def _in_words(error: BaseException, root: str) -> str:
    """Return an error in words, with the last line it passed in the user's files: `ImportError: no x (ops/a.py:3)`."""
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{os.path.relpath(x.filename)}:{x.lineno}" for x in frames]
    own = [
        place
        for place, frame in zip(places, frames, strict=True)
        if os.path.realpath(frame.filename).startswith(os.path.realpath(root) + os.sep)
    ]
    words = f"{type(error).__name__}: {first_line(error)}"
    return f"{words} ({own[-1]})" if own else words


def _bare_packages(name: str, root: str) -> bool:
    """Replace the packages around a module by empty ones, so only its own file runs; return whether there are any.

    Modules of the package that are loaded already are forgotten.
    A package of another place than `root`, such as an installed one, is left as it is.
    """
    above = name.split(".")[:-1]
    # The directories of the outermost package, if it was imported at all.
    known = getattr(sys.modules.get(above[0]) if above else None, "__path__", [root])
    if not above or not any(str(path).startswith(root) for path in known):
        return False
    for loaded in [one for one in sys.modules if one.split(".")[0] == above[0]]:
        del sys.modules[loaded]
    for depth in range(1, len(above) + 1):
        package = ModuleType(".".join(above[:depth]))
        package.__path__ = [os.path.join(root, *above[:depth])]
        sys.modules[package.__name__] = package
    return True
