"""Recording of calls: report what Functions are called with while tests run.

`scaffold test-stub --record` learns from them real arguments for the tests it writes (`verify/recordings.py`).
In: a function that sends an answer. Out: an answer for each call of `apply` unlike those before it.
Invariant: the calls do as ever; of a tensor its shape, dtype, stride and, for integers, their range are kept, never its values.
`testing.py` runs this file by its path: it stands alone and keeps to old syntax, as that one does.
"""

from __future__ import annotations

import inspect
import json
import math
import os
from typing import Any

import torch

MOST = 20  # different calls of one Function


def watch(tell: Any) -> None:
    """Replace `Function.apply`, to `tell` the arguments of each call unlike those before it, at most MOST of a Function.

    `tell` sends its keywords as an answer to the process that started the tests.
    """
    function: Any = torch.autograd.Function
    usual = function.apply.__func__
    seen: dict[str, set[str]] = {}  # by Function: its reported calls, as JSON

    def apply(cls: Any, *args: Any, **keywords: Any) -> Any:
        """Report a call unlike those before it, and make it; a call with an argument no text can make again is not reported."""
        file = _file(cls)
        calls = seen.setdefault(f"{file}:{cls.__qualname__}", set())
        # A reported call has positional arguments alone.
        if not keywords and len(calls) < MOST:
            given = [_described(value) for value in args]
            text = json.dumps(given)
            if None not in given and text not in calls:
                calls.add(text)
                tell(file=file, function=cls.__qualname__, given=given)
        return usual(cls, *args, **keywords)

    function.apply = classmethod(apply)


def _file(cls: Any) -> str:
    """Return the path of a class's source; "" if it has none."""
    try:
        return os.path.realpath(inspect.getfile(cls))
    except (OSError, TypeError):
        return ""


def _described(value: Any) -> dict[str, Any] | None:
    """Describe an argument; None for an object no text can make again."""
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    text = _literal(value)
    return None if text is None else {"value": text}


def _literal(value: Any) -> str | None:
    """Return a number, string, None, or a list or tuple of such, as code for a test: "(2, -1)"; None (no text) for any other value."""
    if type(value) in (list, tuple, torch.Size):
        items = [_literal(item) for item in value]
        if None in items:
            return None
        listed = ", ".join(str(item) for item in items)
        if type(value) is list:
            return f"[{listed}]"
        return f"({listed},)" if len(items) == 1 else f"({listed})"  # a size, too
    if type(value) is float and not math.isfinite(value):
        return f'float("{value}")'
    plain = value is None or type(value) in (bool, int, float, str)
    return repr(value) if plain else None


def _tensor(value: Any) -> dict[str, Any] | None:
    """Describe a dense tensor, without its values; None for others, such as sparse ones. Integers have their range: they may be indices."""
    # Inside vmap or grad of torch.func a tensor stands for others: its values cannot be read.
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(value)
    if value.layout != torch.strided or wrapped:
        return None
    found = {
        "shape": list(value.shape),
        "stride": list(value.stride()),
        "dtype": str(value.dtype)[6:],  # without "torch."
        "needed": value.requires_grad,
    }
    integral = not (value.is_floating_point() or value.is_complex())
    if integral and value.dtype != torch.bool and value.numel():
        found["range"] = [int(value.min()), int(value.max())]
    return found
