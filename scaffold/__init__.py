"""Write custom PyTorch operators: Function, wrapper, Module and tests from one specification.

    import scaffold

    swish = scaffold.derive("x * torch.sigmoid(x)", name="swish")
    swish.function(x)    # an autograd.Function with the derived backward

What production code runs is what this writes; it imports nothing of it.
"""

import sys
from types import ModuleType

from scaffold.version import __version__ as __version__

TYPE_CHECKING = False  # as typing has it, whose import takes longer than all of this
if TYPE_CHECKING:
    from scaffold.api import Derived as Derived
    from scaffold.api import derive as derive
    from scaffold.errors import ScaffoldError as ScaffoldError
    from scaffold.notebook import Shell


def load_ipython_extension(shell: "Shell") -> None:
    """What `%load_ext scaffold` does: from then on there is the cell magic `%%scaffold`."""
    from scaffold.notebook import register

    register(shell)


class _Package(ModuleType):
    """Imports what it offers with the first use: `import scaffold` costs nothing.

    `scaffold.derive` is the function, though there is a package of that name, which Python would put in its place once it
    is imported. Modules say `from scaffold.derive import ...`, which finds the package all the same.
    """

    @property
    def derive(self) -> object:
        from scaffold.api import derive

        return derive

    @derive.setter
    def derive(self, package: object) -> None:
        """Python says that the package is imported."""

    def __getattr__(self, name: str) -> object:
        if name == "Derived":
            from scaffold.api import Derived

            return Derived
        if name == "ScaffoldError":
            from scaffold.errors import ScaffoldError

            return ScaffoldError
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


sys.modules[__name__].__class__ = _Package
