"""tangent-ad (PyPI) on the same forward, where it is installed and accepts it.

In: the source of a plain function. Out: a step that gives its gradients, or why there is none. Invariant: a step that gives
other gradients than autograd is none.
"""

import importlib
import importlib.util
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

Step = Callable[[Tensor], Sequence[Tensor]]


def is_there() -> bool:
    """Whether it can be imported; torch alone is no rival."""
    return importlib.util.find_spec("tangent") is not None


def rival(
    text: str,
    name: str,
    arguments: Sequence[Any],
    leaves: Sequence[Tensor],
    right: Step,
) -> Step | str:
    """A step for the leaves among the arguments; else why it has none."""
    tangent: Any = importlib.import_module("tangent")

    function = getattr(_imported(text, name), name)
    wanted = [
        position
        for position, value in enumerate(arguments)
        if any(value is leaf for leaf in leaves)
    ]
    bare = [item.detach() if isinstance(item, Tensor) else item for item in arguments]
    try:
        derived = tangent.grad(function, wrt=tuple(wanted))

        def step(grad: Tensor) -> Sequence[Tensor]:
            found = derived(*bare, grad)
            return found if isinstance(found, tuple) else (found,)

        grad = torch.randn_like(function(*bare))
        for one, two in zip(step(grad), right(grad), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)
    except AssertionError:
        return "gives another gradient"
    except Exception as error:  # noqa: BLE001 - whatever it is, the op is not taken
        return f"refuses: {type(error).__name__}"
    return step


def _imported(text: str, name: str) -> Any:
    """The text as a module in a file, which is where it reads a function's source."""
    path = Path(tempfile.mkdtemp()) / f"{name}_plain.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
