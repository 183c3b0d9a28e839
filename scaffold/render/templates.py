"""Where the built-in templates are.

In: nothing. Out: their directory.
Invariant: the same files, whether installed, installed as editable, or run from a clone.
"""

from pathlib import Path


def template_root() -> Path:
    """The directory of the built-in templates: a wheel holds it, a checkout has it beside the package."""
    package = Path(__file__).resolve().parent.parent
    shipped = package / "templates"
    return shipped if shipped.is_dir() else package.parent / "templates"
