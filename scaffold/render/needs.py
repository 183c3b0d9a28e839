"""Conditions on `ctx.needs_input_grad`.

In: the inputs that some code serves. Out: the test of the branch that it belongs under.
Invariant: code that serves every differentiable input has no branch, since backward runs only if one needs it.
"""

from collections.abc import Iterable

from scaffold.spec import OpSpec


def needed(spec: OpSpec, name: str) -> str:
    """The flag of an input, the slice of flags for a variadic one."""
    position = spec.index(name)
    item = spec.inputs[position]
    if getattr(item, "variadic", False):
        return (
            f"ctx.needs_input_grad[{position}:]" if position else "ctx.needs_input_grad"
        )
    return f"ctx.needs_input_grad[{position}]"


def any_needed(spec: OpSpec, names: Iterable[str]) -> str:
    """The test that one of the inputs needs its gradient, in call order."""
    listed = [item for item in spec.differentiable if item.name in set(names)]
    return " or ".join(
        f"any({needed(spec, item.name)})" if item.variadic else needed(spec, item.name)
        for item in listed
    )


def serves_all(spec: OpSpec, names: frozenset[str]) -> bool:
    """Whether every differentiable input is among the names."""
    return names >= {item.name for item in spec.differentiable}


def guard(
    spec: OpSpec, names: frozenset[str], lines: list[str], always: bool = False
) -> list[str]:
    """The lines under their branch, which is left out where it is idle, unless `always`."""
    if serves_all(spec, names) and not always:
        return lines
    return [f"if {any_needed(spec, names)}:", *(f"    {line}" for line in lines)]
