"""Claims: attributes of the test's class, naming the op's function and its differences from the defaults.

The questions of all ops' tests read these attributes: `supports_vmap = False` leaves out the tests of vmap, `kinks = (0.0,)` adds values.
In: an `OpSpec`, its `Derivation`, the way the test makes its inputs. Out: assignments, in their order in the file.
Invariant: no claim repeats a default; the defaults are those of `OpTests` in the template of `op_testing.py`.

Words: the op is `compared` if there is a reference, the forward in plain PyTorch, else only finite differences tell of a wrong gradient; a
stated gradient is one by the user's formula; a surrogate is a function whose gradient the op has instead of its derivative; gradcheck
compares gradients with finite differences; a *kept* forward stays as the user wrote it, and autograd differentiates the whole; an *opaque*
one leaves PyTorch; *ends* are the outputs with a gradient; a surrogate has *stood in* for the reference if its formula is known.
"""

from collections.abc import Iterator, Mapping
from math import isfinite, prod
from typing import NamedTuple

from scaffold.derive import Derivation, live_forward
from scaffold.derive.analysis.activity import calls, leaves_torch
from scaffold.derive.forward.body import writes_in_place
from scaffold.formula import Node, expressions
from scaffold.formula.constant_folding import evaluated, literal_value
from scaffold.primitives.calls import is_unbatched, may_be
from scaffold.render.fused import fused, module_of
from scaffold.render.library import has_vmap_rule
from scaffold.render.reference import stated_lines
from scaffold.render.second_order import decorated
from scaffold.render.shape_checks import refused
from scaffold.render.testcases import (
    BATCH,
    Making,
    leading_arguments,
    size_arguments,
    takes_shape,
    tuple_of,
)
from scaffold.render.testlimits import (
    TOLERANCES,
    is_its_derivative,
    maps,
    precision,
    singular,
    takes_any_layout,
)
from scaffold.render.testsizes import allows, choose_sizes, input_dims
from scaffold.render.testvalues import attribute_value, enlarged, other_constants
from scaffold.spec import OpSpec, is_leading
from scaffold.spec.op_spec import SHARDING


class Claim(NamedTuple):
    """An attribute of the test's class: its name, its value as source, and its type if it must be declared."""

    name: str
    value: str
    type: str = ""

    @property
    def line(self) -> str:
        """Return the assignment."""
        annotation = f": ClassVar[{self.type}]" if self.type else ""
        return f"{self.name}{annotation} = {self.value}"


def claims(
    spec: OpSpec, derivation: Derivation, making: Making, compared: bool
) -> tuple[Claim, ...]:
    """Return all claims but the op itself, the cases and the functions; `compared` is true if there is a reference."""
    found = [*_inputs(spec, making)]
    # The test of means compares with the reference.
    forward = live_forward(spec, spec.forward) if compared and spec.forward else None
    if forward and any(_averages(node) for node in forward.expressions()):
        found.append(Claim("takes_means", "True"))
    if spec.differentiable:
        found += _gradient(spec, derivation, making, compared)
    else:
        found.append(Claim("has_gradient", "False"))
    return (*found, *_calls(spec, derivation, compared))


def tupled(names: tuple[str, ...]) -> str:
    """Return names as the source of a tuple."""
    return tuple_of(f'"{name}"' for name in names)


def _averages(node: Node) -> bool:
    """Return whether an expression calls a function taking a mean, such as `x.mean()`."""
    return any(may_be(name, "averages") for name in calls(node))


def _hides_reads(spec: OpSpec, node: Node) -> bool:
    """Return whether reads of a tensor are invisible to Python, as in a kernel or a transform."""
    return leaves_torch(node, spec.foreign) or "vjp" in calls(node)


def ends_of(spec: OpSpec) -> tuple[int, ...]:
    """Return the positions of the outputs with a gradient."""
    listed = enumerate(spec.outputs)
    return tuple(index for index, output in listed if output.differentiable)


def _inputs(spec: OpSpec, making: Making) -> Iterator[Claim]:
    """Yield the claims on the op's Function or registration, and on the inputs with a gradient."""
    if spec.is_library:
        yield from _registered(spec)
    elif spec.differentiable:
        yield Claim("function", spec.function_name)
    if making.names:
        yield Claim("differentiable", tupled(making.names))


def _registered(spec: OpSpec) -> Iterator[Claim]:
    """Yield the claims on the op's registration with PyTorch."""
    yield Claim("registered", spec.function_name)
    if spec.sharding:
        yield Claim("sharding", f"staticmethod({SHARDING})")
    if any(item.variadic for item in spec.tensors):
        yield Claim("listed_from", str(len(spec.inputs) - 1))


def _gradient(
    spec: OpSpec, derivation: Derivation, making: Making, compared: bool
) -> Iterator[Claim]:
    """Yield the claims on the gradient: features of PyTorch it does not support, so their tests are left out, and more to ask."""
    ends = ends_of(spec)
    if len(ends) < len(spec.outputs):
        yield Claim("ends", str(ends))
    numeric = not compared or is_its_derivative(spec)  # finite differences would agree
    # A surrogate known as a function stands in for the reference.
    stood_in = spec.surrogate is not None and spec.surrogate.forward is not None
    if (compared or stood_in) and (larger := enlarged(spec)):
        yield Claim("enlarged", tupled(larger))
    # At kinks a gradient is compared with the stated one, or, if derived, with autograd's.
    stated = bool(stated_lines(spec, derivation))
    derived = not (spec.gradients or spec.backward)
    if (stated or (derived and compared)) and (numbers := kinks(spec, derivation)):
        yield Claim("kinks", tuple_of(map(repr, numbers)))
    if not takes_any_layout(spec):
        yield Claim("layouts", "(torch.clone,)")  # not permuted
    if spec.surrogate is None and numeric:
        yield from _gradcheck(spec, derivation, making)
    elif not stood_in:  # the class has no `surrogate`, which leaves gradcheck out too
        yield Claim("supports_gradcheck", "False")
    if derivation.once_differentiable:
        yield Claim("supports_double_backward", "False")
        if decorated(derivation):
            yield Claim("decorated_once", "True")
    if derivation.missing or any(_hides_reads(spec, x) for x in _nodes(derivation)):
        yield Claim("reads_saved", "False")  # an unwritten gradient reads nothing
    if derivation.jvp and not derivation.jvp.missing:
        yield Claim("supports_forward_ad", "True")
    # torch.func takes only a Function with `setup_context`.
    transforms = derivation.transforms and derivation.style == "setup-context"
    if not (transforms and maps(spec)):
        yield Claim("supports_vmap", "False")
    if not transforms or _is_complex(spec):  # jacrev takes real tensors alone
        yield Claim("supports_jacrev", "False")
    if not derivation.compiles:
        yield Claim("supports_compile", "False")
    if compared and derivation.amp != "off" and not _is_complex(spec):
        yield Claim("autocast", f'"{derivation.amp}"')  # complex tensors are not cast
    if rounded := TOLERANCES[precision(spec)]:
        yield Claim(", ".join(rounded), ", ".join(rounded.values()))


def _gradcheck(spec: OpSpec, derivation: Derivation, making: Making) -> Iterator[Claim]:
    """Yield the claims on gradcheck: its options, and the checks left out, of all cases or of those without elements."""
    batched = is_batched(spec, derivation)
    if not batched:
        yield Claim("supports_batched_gradcheck", "False")
    empty: tuple[str, ...] = ()
    if making.empty and batched and not first_of_empty(derivation):
        empty += ("batched_gradcheck",)
    # An op differentiable once has no such test to leave out.
    if making.empty and singular(spec) and not derivation.once_differentiable:
        empty += ("double_backward",)
    if empty:
        yield Claim("unsupported_of_empty", tupled(empty))
    stated = options(spec, making)
    if stated:
        listed = ", ".join(f'"{name}": {value}' for name, value in stated.items())
        yield Claim("gradcheck_options", f"{{{listed}}}", "Options")


def _calls(spec: OpSpec, derivation: Derivation, compared: bool) -> Iterator[Claim]:
    """Yield claims about calls of the op: random, in place, kernels, attributes.

    `supports_forward_vmap` is of vmap over calls of the op itself, `supports_vmap` of vmap over `torch.func.grad`. A Function is
    tested for the second, which runs its forward, too; a registered op is not for `torch.func.grad`, so for the first.
    """
    if spec.is_library and not has_vmap_rule(spec, derivation):
        yield Claim("supports_forward_vmap", "False")
    if derivation.random:
        yield Claim("random", "True")
    if spec.dirty:
        yield Claim("changed_in_place", tupled(tuple(spec.dirty)))
    if spec.kernels:
        yield from _kernels(spec)
    stood_in = spec.surrogate is not None and spec.surrogate.forward is not None
    # The test of them compares values and gradients with the reference or the surrogate.
    if (compared or stood_in) and (others := other_constants(spec)):
        listed = ", ".join(f'"{name}": {value!r}' for name, value in others.items())
        yield Claim("constants", f"{{{listed}}}", "Case")
    wrong = refused(spec, derivation)
    if wrong:
        yield Claim("refused", f"({', '.join(item.shown for item in wrong)},)")


LEAST_SIZE = 17  # of a row: prime, and one more than a power of 2


def _kernels(spec: OpSpec) -> Iterator[Claim]:
    """Yield the claims on the kernels: their module, and more cases for them.

    For kernels of rows, longer ones, and a row of 1, but not with indices, as 1 lies outside of that. For kernels element by element, more
    elements than the 1024 that one program computes.
    """
    yield Claim("kernels", f'"{module_of(spec)}"')
    found, usual = fused(spec), choose_sizes(spec)
    if found and found.pair.shapes.width:
        width = found.pair.shapes.width
        chosen = [choose_sizes(spec, first=LEAST_SIZE)]
        indices = any(item.dtype in ("int", "index") for item in spec.tensors)
        # A width may be a number, which cannot be changed.
        if width in usual and allows(spec, usual | {width: 1}) and not indices:
            chosen.append({width: 1})
        words = (", ".join(f"{k}={v}" for k, v in one.items()) for one in chosen)
        cases = [*zip(words, map(size_arguments, chosen), strict=True)]
    elif takes_shape(spec):
        cases = [("two programs", '"shape": (5, 207)')]
    else:
        # Times a named size, which is 3 or more, if there is one.
        leading = leading_arguments(spec, (345,) if usual else (5, 207))
        cases = [("two programs", leading or size_arguments(_many(spec, usual)))]
    # Without a size to choose there are no arguments: it would be the base case.
    listed = ", ".join(f'"{name}": {{{text}}}' for name, text in cases if text)
    yield Claim("kernel_cases", f"{{{listed}}}", "Cases")


def _many(spec: OpSpec, usual: Mapping[str, int]) -> dict[str, int]:
    """Return a size of more than 1024 for one dim, which stands once in a tensor; {} if the op takes none."""
    dims = max((input_dims(spec, item.name) for item in spec.tensors), key=len)
    once = (name for name in usual if dims.count(name) == 1)
    return next(({x: 1035} for x in once if allows(spec, {**usual, x: 1035})), {})


def _is_complex(spec: OpSpec) -> bool:
    """Return whether a tensor of the op is complex."""
    inputs = {item.dtype for item in spec.tensors}
    return "complex" in inputs | {item.dtype for item in spec.outputs}


# --- The options and limits of gradcheck and gradgradcheck in the generated test.
#
# In: an `OpSpec`, its `Derivation`, and the way the test makes its inputs. Out: yes or no; keyword arguments of the two.
# Invariant: a tolerance stated by the user takes precedence over one derived from the op.


MANY = 250  # elements; for more, the derivative of each by each takes minutes


def kinks(spec: OpSpec, derivation: Derivation) -> tuple[float, ...]:
    """Return the numbers compared with values in the backward, their negatives, and 0; () if it compares nothing.

    There the gradient may jump, so it is compared at each of them with the reference's.
    """
    nodes = [*_nodes(derivation), *derivation.results]
    compared = {
        x
        for node in nodes
        for x in node.walk()
        if x.kind == "compare" and x.label not in ("is", "is not", "in", "not in")
    }
    labels = {x.label for node in compared for x in node.walk()}
    values = [evaluated(x) for node in compared for x in node.walk()]
    values += [
        literal_value(attribute_value(spec, item))
        for item in spec.attributes
        # A default is a literal; the tests' own value may be none: `torch.tanh`.
        if item.name in labels and item.default is not None
    ]
    numbers = {abs(float(x)) for x in values if isinstance(x, int | float)}
    found = {0.0, *numbers, *(-x for x in numbers)} if compared else set()
    return tuple(sorted(filter(isfinite, found)))


def is_batched(spec: OpSpec, derivation: Derivation) -> bool:
    """Return whether gradcheck can run the backward under vmap (`check_batched_grad`).

    False if a gradient is unwritten or opaque, if a call in it has no rule for vmap (`x.item()` raises there), or if a kept forward writes in
    place.
    """
    nodes = _nodes(derivation)
    called = {name for node in nodes for name in calls(node)}
    unbatched = "item" in called or any(map(is_unbatched, called))
    unbatched = unbatched or any(map(_slices_all, nodes))
    written = spec.kept is not None and writes_in_place(spec.kept)
    return not (derivation.opaque or derivation.missing or unbatched or written)


def first_of_empty(derivation: Derivation) -> bool:
    """Return whether gradcheck can batch the backward for empty tensors too: no slice from 0 to a number, as `x[:, :1]`, is in it."""
    return not any(map(_takes_the_first, _nodes(derivation)))


def options(spec: OpSpec, making: Making) -> dict[str, str]:
    """Return the options of gradcheck and gradgradcheck, as code by name: the user's, and `fast_mode` for many elements."""
    fast = {"fast_mode": "True"} if _elements(spec, making) > MANY else {}
    return fast | dict(spec.tolerance)


def _elements(spec: OpSpec, making: Making) -> int:
    """Return the number of elements in the inputs with a gradient, as far as their sizes are numbers: the cost of gradgradcheck."""
    count = 0
    for item in spec.differentiable:
        sizes = (
            making.sizes.get(str(dim), BATCH if is_leading(dim) else dim)
            for dim in input_dims(spec, item.name)
        )
        # With the user's samples a size is an expression: `inputs[0].shape[-1]`.
        known = [int(size) for size in sizes if str(size).isdecimal()]
        count += prod(known)
    return count


def _nodes(derivation: Derivation) -> list[Node]:
    """Return the expressions of the backward, and those of a forward it runs as a whole (a result of the kind "body")."""
    several = (item for element in derivation.elements for item in element.statements)
    nodes = [*expressions(*derivation.lines, *several)]
    nodes += [element.value for element in derivation.elements]
    return nodes + [item for item in derivation.results if item.kind == "body"]


def _takes_the_first(node: Node) -> bool:
    """Return whether a slice begins at 0 and ends early, like `x[:, :1]`: of an empty dim it takes all, as in `_slices_all`."""
    return any(
        # The label of an absent bound is "".
        item.args[0].label in ("", "0") and item.args[1].kind == "constant"
        for item in node.walk()
        if item.kind == "slice"
    )


def _slices_all(node: Node) -> bool:
    """Return whether a slice may take a whole dim: it is then an alias, and gradcheck's vmap has no rule for one."""
    bounds = (arg for item in node.walk() if item.kind == "slice" for arg in item.args)
    # A bound that is no number, `x[:n]`, may be the whole size.
    return any(bound.kind not in ("absent", "constant", "unary") for bound in bounds)
