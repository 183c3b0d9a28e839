"""Forwards in files, run as Python runs them and as the formula that was made of them."""

import types
from typing import Any

import torch

from scaffold.formula import Graph, Scope, emit, emit_lines, function_in, parse

HEADER = """\
import math
import torch
import torch.nn.functional as F
"""


def lines_of(
    source: str,
    name: str | None = None,
    names: str = "x y flag",
    optional: str = "",
    tensors: str = "",
    kept: bool = False,
) -> str:
    """The formula of a function of a file, as code."""
    function = function_in(source, "ops.py", name, "forward")
    known = frozenset(
        [*names.split(), *(item[2] or item[1] or item[0] for item in function.imports)]
    )
    formula = parse(
        function.text,
        Scope(
            known,
            frozenset(optional.split()),
            tensors=frozenset(tensors.split()),
            kept=kept,
        ),
        Graph(),
    )
    lines = [*emit_lines(formula.statements)]
    if formula.result is not None:
        lines.append(f"return {emit(formula.result)}")
    return "\n".join(lines)


def in_python(source: str, name: str, **inputs: Any) -> Any:
    """What the file itself computes."""
    return run_in(f"{HEADER}{source}", name, inputs)


def in_place(source: str, name: str, **inputs: Any) -> Any:
    """What its formula computes."""
    body = lines_of(f"{HEADER}{source}", name, " ".join(inputs))
    text = "".join(f"\n    {line}" for line in body.split("\n"))
    return run_in(
        f"{HEADER}\ndef forward({', '.join(inputs)}):{text}\n", "forward", inputs
    )


def run_in(source: str, name: str, inputs: dict[str, Any]) -> Any:
    """The value, what became of the inputs, and how far the random numbers went."""
    given = {
        key: value.clone() if isinstance(value, torch.Tensor) else value
        for key, value in inputs.items()
    }
    module = types.ModuleType("ops")
    torch.manual_seed(0)
    exec(compile(source, "ops.py", "exec"), module.__dict__)  # noqa: S102
    value = getattr(module, name)(**given)
    values = value if isinstance(value, tuple) else (value,)
    changed = [item for item in given.values() if isinstance(item, torch.Tensor)]
    return [*values, *changed, torch.rand(())]


def assert_same(source: str, name: str, **inputs: Any) -> None:
    """The formula is the function."""
    wanted, made = in_python(source, name, **inputs), in_place(source, name, **inputs)
    assert len(wanted) == len(made), lines_of(f"{HEADER}{source}", name)
    for one, other in zip(wanted, made, strict=True):
        same = (
            one == other
            if not isinstance(one, torch.Tensor)
            else torch.equal(one, other)
        )
        assert same, f"{source}\n{lines_of(f'{HEADER}{source}', name)}"
