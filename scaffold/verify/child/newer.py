"""Names that the shipped table of operators does not have: whether the PyTorch that runs has an operator there.

In: dotted names of formulas. Out: a failure, or None. Invariant: it is asked before anything of the op runs.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import torch
from torch.overrides import get_overridable_functions


def no_operator(names: Sequence[str]) -> dict[str, Any] | None:
    """What fails for the first name of something that is there and no operator; what is not there says so itself."""
    for name in names:
        space, _, last = name.rpartition(".")
        try:
            module = reduce(getattr, space.split(".")[1:], torch)
            found = getattr(module, last)
        except AttributeError:
            continue
        if not _is_operator(found, last):
            words = f"'{name}' is no operator of PyTorch {torch.__version__}"
            return {"subject": "forward", "words": words}
    return None


def _is_operator(found: Any, name: str) -> bool:
    """Whether PyTorch lists it among its operators, or as what a tensor's class may take over."""
    if hasattr(torch._C._VariableFunctions, name):
        return True
    known = get_overridable_functions().values()
    return any(found is one for several in known for one in several)
