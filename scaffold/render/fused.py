"""The kernels in the code of a Function: their import, their calls, and the tensors saved for them.

`--kernels triton` asks for them: a kernel for the forward, and one for all gradients. In: an `OpSpec` and its `Derivation` (the
formula's forward and backward). Out: lines for the template, and the `Derivation` with what the backward kernel reads. Invariant:
each call stands before the formula, which is what runs where kernels cannot, and where the backward is itself differentiated.

Words: a saved value is a tensor of `save_for_backward`, a kept one another value on ctx; *statistics* are numbers of each row that the
forward kernel computes and saves, as a mean; the *formula* is the op in plain PyTorch; a *flag* says whether a gradient is needed; an
argument is *told* if it is no tensor; a value is read *solely* by a gradient if no other one needs it.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from scaffold.derive import Derivation, Kept, Saved, grad_name
from scaffold.errors import Location
from scaffold.formula import Node, written
from scaffold.spec import OpSpec

if TYPE_CHECKING:
    from scaffold.kernels.pair import Pair
    from scaffold.kernels.triton import TritonView

IN_KERNELS = "in_kernels"  # on ctx: whether the kernels are for these inputs


class Fused(NamedTuple):
    """The kernels of an op."""

    pair: "Pair"  # the computation of each direction, and what the backward reads
    triton: "TritonView"  # the same as text for the template


@lru_cache(maxsize=8)  # of one op it is asked for each of its files
def fused(spec: OpSpec) -> Fused | None:
    """Return the kernels of an op, None if it wants none; raise ScaffoldError if they are not possible."""
    if not spec.kernels:
        return None
    from scaffold.kernels.triton import triton_kernels  # the engine, for few ops

    place = spec.forward.location if spec.forward else Location(spec.name)
    return Fused(*triton_kernels(spec, place))


def statistics(spec: OpSpec) -> tuple[str, ...]:
    """Return the names of the numbers of each row the kernels save, as "mean"; () for an op without kernels."""
    found = fused(spec)
    return found.pair.statistics if found else ()


def module_of(spec: OpSpec) -> str:
    """Return the name of the kernels' module in the op's file."""
    return f"{spec.patterns.op_file(spec.name).removesuffix('.py')}_triton"


def with_kernels(spec: OpSpec, derivation: Derivation) -> Derivation:
    """Return the derivation changed to save everything the backward kernel reads; unchanged for an op without one.

    One that the formula saves and one gradient alone reads (`sole`) stays as it is. For each statistic the formula returns an empty tensor.
    """
    found = fused(spec)
    if found is None or found.pair.backward is None:
        return derivation
    every = frozenset(item.name for item in spec.differentiable)
    outputs = {item.name for item in spec.outputs}
    assert found.triton.backward is not None
    sole = found.triton.backward.body.sole_readers
    read = {*found.pair.saved} - sole.keys()  # for several gradients
    saved = [
        x._replace(serves=every, always=True) if x.origin in read else x
        for x in derivation.saved
    ]
    there = {item.origin for item in saved}
    for name in found.pair.saved:
        if name not in there:
            source = "output" if name in outputs else "input"
            serves = frozenset({sole[name].source}) if name in sole else every
            saved.append(Saved(name, source, serves, name, serves == every))  # type: ignore[arg-type]
    kept = {item.name for item in derivation.kept}
    taken = written(*derivation.lines) | there
    # A forward that returns saved locals anyway (`extra`) is left so.
    for name in found.pair.statistics if not derivation.extra else ():
        word = f"saved_{name}" if name in taken else name  # a local's name
        saved.append(Saved(word, "intermediate", every, name))
    # The empty tensor, on the device of the first input.
    nothing = Node("name", f"{found.triton.first}.new_empty(0)")
    # `told`: (name, expression) of the arguments beside tensors.
    more = (Kept(*item) for item in found.triton.backward.told if item[0] not in kept)
    return replace(
        derivation,
        saved=tuple(saved),
        extra=derivation.extra or (nothing,) * len(found.pair.statistics),
        comments=(*derivation.comments, *_comments(found.pair.statistics)),
        kept=(*derivation.kept, *more),
    )


def _comments(statistics: tuple[str, ...]) -> tuple[str, ...]:
    """Return the comment on the statistics of rows: the formula does not return them, so backward computes them again."""
    if not statistics:
        return ()
    pronoun = "it" if len(statistics) == 1 else "them"
    return (f"No {' and no '.join(statistics)}: backward computes {pronoun} again.",)


def import_lines(spec: OpSpec, package: str) -> tuple[str, ...]:
    """Return the import of the kernels, with a warning if it fails: without them the formula runs."""
    if not spec.kernels:
        return ()
    module = module_of(spec)
    found = f"from {package} import {module}" if package else f"import {module}"
    said = f'f"{spec.name} runs without its kernels: {{error}}"'
    return (
        "try:",
        f"    {found}",
        "except (ImportError, AttributeError) as error:",
        f"    {module} = None  # type: ignore[assignment]",
        f"    warnings.warn({said}, stacklevel=2)",
    )


def _takes(spec: OpSpec) -> str:
    """Return the test for the kernels being importable, and for these inputs."""
    module, names = module_of(spec), ", ".join(item.name for item in spec.tensors)
    return f"{module} is not None and {module}.takes({names})"


def forward_call(spec: OpSpec) -> tuple[str, ...]:
    """Return the lines calling the forward kernel, under a test that it is for these inputs: `if k is not None and k.takes(x): ...`."""
    found = fused(spec)
    if found is None:
        return ()
    given = found.triton.forward_arguments
    called = f"{module_of(spec)}.forward({', '.join(given)})"
    return (f"if {_takes(spec)}:", f"    return {called}")


def context_call(spec: OpSpec) -> tuple[str, ...]:
    """Return the line keeping on ctx whether the forward ran in kernels, for backward to do so too; none without a backward kernel."""
    found = fused(spec)
    if found is None or found.pair.backward is None:
        return ()
    if found.pair.statistics:  # empty tensors if the formula ran
        return (f"ctx.{IN_KERNELS} = {found.pair.statistics[0]}.numel() > 0",)
    return (f"ctx.{IN_KERNELS} = {_takes(spec)}",)


def backward_call(spec: OpSpec, derivation: Derivation) -> Iterator[str]:
    """Yield the lines calling the backward kernel; none without one. They stand first in backward, before the formula.

    `if ctx.in_kernels and not torch.is_grad_enabled(): return kernel(...)`: while autograd records the backward, for a second derivative, the
    formula runs, as a kernel has no derivative.
    """
    found = fused(spec)
    if found is None or found.triton.backward is None:
        return
    kept = {item.name: f"ctx.{item.name}" for item in derivation.kept}
    kept |= {item.origin: item.name for item in derivation.saved}
    asked = {
        f"needs_grad_{item.name}": f"ctx.needs_input_grad[{spec.index(item.name)}]"
        for item in spec.differentiable
    }
    # A saved value by its local, a kept one on ctx, a flag for each wanted gradient; others are names of the backward.
    read = found.triton.backward.arguments.split(", ")
    given = [(kept | asked).get(name, name) for name in read]
    grads = [f"grad_{item.name}" for item in spec.differentiable]
    kernel = f"{module_of(spec)}.{found.triton.backward.name}"
    values = [
        f"{grads[at]} if ctx.needs_input_grad[{spec.index(item.name)}] else None"
        for at, item in enumerate(spec.differentiable)
    ]
    named = dict(zip((item.name for item in spec.differentiable), values, strict=True))
    called = f"{kernel}({', '.join(given)})"
    # Backward runs only if the one gradient is needed: no test.
    if len(grads) == 1:
        named = {spec.differentiable[0].name: grads[0]}
    returned = [named.get(item.name, "None") for item in spec.inputs]
    tests = [f"ctx.{IN_KERNELS}"]
    # A kernel takes no None; the formula, which then runs, fills in zeros.
    if derivation.incoming.may_be_none:
        incoming = (grad_name(spec, item.name) for item in spec.outputs)
        tests += [f"{name} is not None" for name in incoming if name in read]
    yield f"if {' and '.join(tests)} and not torch.is_grad_enabled():"
    if len(returned) == 1:
        yield f"    return {called}"
        return
    yield f"    {', '.join(grads)} = {called}"
    yield f"    return {', '.join(returned)}"
