"""What the interpreter has that runs the tool: some commands run code that needs torch.

In: the option that needs it. Out: problems, which are none where torch is.
Invariant: torch is looked for, not imported.
"""

import sys

from scaffold.errors import Location, ScaffoldError


def without_torch(option: str) -> list[ScaffoldError]:
    """What stands in the way of an option that runs code."""
    from scaffold.verify import has_torch  # most runs start no process

    if has_torch():
        return []
    message = f"'{sys.executable}' has no torch"
    hint = "install it there: pip install 'torch-scaffold[torch]'"
    return [ScaffoldError(message, Location(option), hint)]
