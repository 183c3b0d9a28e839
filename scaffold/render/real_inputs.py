"""The refusal of complex inputs by gradients derived for real ones.

The gradient of `x * y` by x is `grad * y` for real numbers, and `grad * y.conj()` for complex ones: a gradient that was simplified for
real inputs has to refuse others. In: an `OpSpec` and its `Derivation`, whose `real` names such inputs. Out: lines of `backward`, if the
incoming gradient reveals a complex input; else of `setup_context`. Invariant: an op with gradients correct for complex inputs has no such
line.
"""

from collections.abc import Iterable, Sequence

from scaffold.derive import Derivation, grad_name
from scaffold.derive.derivation import indent_of
from scaffold.render.shape_checks import INDENTED, rows, string
from scaffold.spec import OpSpec


def refused_in_backward(
    spec: OpSpec, derivation: Derivation, line_length: int
) -> list[str]:
    """Return lines raising TypeError for a complex output gradient: it is complex only if an input is."""
    if derivation.real is None or not derivation.real.shown:
        return []
    name = grad_name(spec, spec.outputs[0].name)
    names = derivation.real.names
    # In the forward's region of autocast it stands a level deeper.
    room = line_length - (indent_of("region") if derivation.region else 0)
    return _raised(spec, f"{name}.dtype.is_complex", names, room)


def refused_in_context(
    spec: OpSpec, derivation: Derivation, line_length: int
) -> list[str]:
    """Return lines raising TypeError for complex inputs not revealed by output gradients: those of `(x * y).abs()`."""
    if derivation.real is None or derivation.real.shown:
        return []
    names = derivation.real.names
    if not names:  # complex inputs are fine, if all of a group are complex
        return [
            x for one in derivation.real.alike for x in _alike(spec, one, line_length)
        ]
    named = (item for item in spec.tensors if item.name in names)
    tests = (
        (
            f"any(item.dtype.is_complex for item in {item.name})"
            if item.variadic
            else f"{item.name} is not None and " * item.optional
            + f"{item.name}.dtype.is_complex"
        )
        for item in named
    )
    return _raised(spec, " or ".join(tests), names, line_length)


def _alike(spec: OpSpec, names: Sequence[str], line_length: int) -> list[str]:
    """Return lines raising TypeError if some of several inputs are complex and others real.

    Two inputs, one of them optional at most, are compared by `!=`; more, by the set of their answers.
    """
    items = [item for item in spec.tensors if item.name in names]
    optional = [item.name for item in items if item.optional]
    if any(item.variadic for item in items) or len(items) > 2 or len(optional) > 1:
        several = ", ".join(f"*{x.name}" if x.variadic else x.name for x in items)
        # A group of one is a variadic input: a tuple already.
        several = names[0] if len(items) == 1 else f"({several})"
        there = " if item is not None" if optional else ""
        test = f"len({{item.dtype.is_complex for item in {several}{there}}}) > 1"
    else:
        test = "".join(f"{name} is not None and " for name in optional)
        test += " != ".join(f"{item.name}.dtype.is_complex" for item in items)
    be = "must all be real, or all complex"
    return _raised(spec, test, names, line_length, be)


def _raised(
    spec: OpSpec,
    test: str,
    names: Iterable[str],
    line_length: int,
    be: str = "must be real",
) -> list[str]:
    """Return lines raising TypeError if the test holds, "linear: x and weight must be real"; `be` ends the message."""
    *several, last = names
    listed = f"{', '.join(several)} and {last}" if several else last
    parts = rows(f"{spec.name}: {listed} {be}", line_length - INDENTED)
    return [f"if {test}:", f"    raise TypeError({' '.join(map(string, parts))})"]
