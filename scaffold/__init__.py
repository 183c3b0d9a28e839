"""Write custom PyTorch operators: Function, wrapper, Module and tests from one specification.

    import scaffold

    swish = scaffold.derive("x * torch.sigmoid(x)", name="swish")
    swish.function(x)    # an autograd.Function with the derived backward

Production code runs the files scaffold writes; they import nothing from scaffold.
"""

import sys
from types import ModuleType

from scaffold.version import __version__ as __version__

TYPE_CHECKING = False  # not from `typing`, whose import takes longer than this module
if TYPE_CHECKING:  # at run time they are imported where they are asked for
    from scaffold.api import Derived, derive  # noqa: TC004
    from scaffold.errors import ScaffoldError  # noqa: TC004
    from scaffold.notebook import Shell

__all__ = ["Derived", "ScaffoldError", "derive", "load_ipython_extension"]


def load_ipython_extension(shell: "Shell") -> None:
    """Register the cell magic `%%scaffold`; IPython calls this by name for `%load_ext scaffold`."""
    from scaffold.notebook import register

    register(shell)


class _Package(ModuleType):
    """A module type with lazy attributes, so `import scaffold` costs nothing until one is used.

    `scaffold.derive` is the function, though a package has the same name, and Python would bind the attribute to the
    package once it is imported. Modules write `from scaffold.derive import ...`, which still finds the package.
    """

    @property
    def derive(self) -> object:
        from scaffold.api import derive

        return derive

    @derive.setter
    def derive(self, package: object) -> None:
        """Ignore Python's binding of the imported subpackage `derive`."""

    def __getattr__(self, name: str) -> object:
        """Import and return `Derived` or `ScaffoldError`; Python calls this for a name the module does not have."""
        if name == "Derived":
            from scaffold.api import Derived

            return Derived
        if name == "ScaffoldError":
            from scaffold.errors import ScaffoldError

            return ScaffoldError
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


sys.modules[__name__].__class__ = _Package
