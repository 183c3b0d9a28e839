"""Text imported as a module of a name, without a file.

In: a name and a module's source. Out: the module, imported under that name.
Invariant: nothing is written; a traceback shows the lines of the text.
"""

import linecache
import sys
from importlib.abc import ExecutionLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType


class TextLoader(ExecutionLoader):
    """Loads one module, whose source it holds."""

    def __init__(self, text: str, place: str) -> None:
        self.text, self.place = text, place

    def get_source(self, fullname: str) -> str:
        return self.text

    def get_filename(self, fullname: str) -> str:
        return self.place


def load(name: str, text: str) -> ModuleType:
    """The module, which others may import by its name from now on."""
    place = f"<{name}>"
    spec = spec_from_loader(name, TextLoader(text, place), origin=place)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    linecache.cache[place] = (len(text), None, text.splitlines(True), place)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
