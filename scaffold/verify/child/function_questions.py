"""Questions about a hand-written Function: `scaffold verify` asks them, and so do the tests that `scaffold test-stub` writes.

In: an `Asked`, a Function with arguments that it takes. Out: nothing; a fault is told to `wrong`, `hold` or `raised`.
Words: an *end* is an output with a gradient; *weights* draw a grad_output for each end; `words` go into a message. A question's docstring
says the property that a right Function has, since it becomes the description of a written test.
Invariant: a question needs PyTorch, `Asked` and what `op_testing.py` has, no more: its source is copied into a test file. A call with a
special property is compared with one of the same numbers without it, so a gradient that is no derivative can be asked about, too.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from inspect import unwrap
from typing import Any, NoReturn, Protocol
from unittest.mock import MagicMock

import torch
from torch import Tensor

from scaffold.verify.child.op_tests import permuted


class Asked(Protocol):
    """The Function, and what becomes of an answer."""

    names: tuple[str, ...]  # of the inputs
    dirty: tuple[str, ...]  # those that it changes in place
    dtype: torch.dtype
    # Questions of every op, and what they are asked with.
    loss: Callable[..., Tensor]
    argnums: Callable[..., tuple[int, ...]]
    check_changed: Callable[..., None]
    test_recorded_gradients: Callable[[], None]
    test_output_is_freed_without_gc: Callable[[], None]
    test_jacrev: Callable[[], None]
    test_vmap_of_grad: Callable[[], None]
    test_checkpoint: Callable[[], None]
    test_compile: Callable[[], None]

    @property
    def single(self) -> bool:
        """Return whether it computes in float32, whatever it is given."""

    def inputs(self, *, seed: int = 0) -> Sequence[Any]:
        """Make the inputs of a call."""

    def run(self, *inputs: Any) -> Sequence[Tensor]:
        """Return the outputs that have a gradient."""

    def resized(self, empty: bool) -> Iterator[Sequence[Any]]:
        """Make inputs of other sizes, or empty ones."""

    def takes(self, inputs: Sequence[Any], backward: bool = False) -> bool:
        """Return whether the forward takes these inputs, with finite outputs, and its backward if requested."""

    def returned(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return what backward itself gives."""

    def derivative(self, inputs: Sequence[Any], words: str) -> None:
        """Compare gradients with the derivative; the words tell of the inputs."""

    def gradients(
        self, inputs: Sequence[Any], weights: Any, outputs: Any = None, **options: Any
    ) -> tuple[Tensor, ...]:
        """Return the gradients for the grad_outputs `weights` makes of the outputs."""

    def hold(
        self,
        inputs: Sequence[Any],
        found: Sequence[Tensor],
        expected: Sequence[Tensor],
        words: str,
        hint: str = "",
    ) -> None:
        """Compare gradients; `{}` in the words is the difference."""

    def wrong(self, words: str, place: str = "backward", hint: str = "") -> NoReturn:
        """Tell of a fault, and where it is: a method, or a gradient."""

    def raised(self, error: Exception, words: str) -> NoReturn:
        """Tell of an error that is a fault; `{}` in the words is the error."""

    def skip(
        self, reason: str, error: BaseException | None = None, hint: str = ""
    ) -> NoReturn:
        """Say why a question does not apply, perhaps since something raised."""

    def note(self, words: str, error: BaseException | None = None) -> None:
        """Tell of what is no fault, perhaps since something raised."""

    def answer(
        self,
        question: Callable[[], None],
        words: str,
        place: str = "backward",
        hint: str = "",
    ) -> None:
        """Ask a question of every op; the words tell of its failure."""


# --- grad_outputs.


def contiguous(end: Tensor) -> Tensor:
    """Draw a grad_output with contiguous memory."""
    seed = torch.Generator().manual_seed(1)
    drawn = torch.randn(end.shape, dtype=torch.double, generator=seed)
    return drawn.to(end.device, end.dtype)


def strided(end: Tensor) -> Tensor:
    """Draw the same numbers in another memory order."""
    return permuted(contiguous(end))


def ones(end: Tensor) -> Tensor:
    """Return a contiguous grad_output of ones."""
    return torch.ones(end.shape, dtype=end.dtype, device=end.device)


def expanded(end: Tensor) -> Tensor:
    """Return an expanded grad_output of ones, as `.sum()` makes it: one number in memory."""
    return ones(end.new_empty(())).expand(end.shape)


# --- Inputs.


def as_type(value: Any, dtype: torch.dtype) -> Any:
    """Cast a real tensor to a real dtype, or a complex one to a complex dtype; else return the value."""
    if not isinstance(value, Tensor):
        return value
    kind = value.is_complex() if dtype.is_complex else value.is_floating_point()
    if not kind or value.dtype == dtype:
        return value
    return value.detach().to(dtype).requires_grad_(value.requires_grad)


def with_layout(value: Any, layout: Callable[[Tensor], Tensor]) -> Any:
    """Lay out a tensor with strides; else return the value."""
    dense = isinstance(value, Tensor) and value.layout == torch.strided
    if not dense or not value.numel():
        return value
    return layout(value.detach()).requires_grad_(value.requires_grad)


def first_expanded(value: Tensor) -> Tensor:
    """Expand the first row in place of each other one."""
    return value[:1].expand_as(value) if value.ndim else value


def needing(names: Sequence[str], inputs: Sequence[Any]) -> list[str]:
    """Return the names of the inputs that require grad."""
    pairs = zip(names, inputs, strict=False)
    return [k for k, x in pairs if isinstance(x, Tensor) and x.requires_grad]


NOTICED = 1e-9  # relative change visible in double precision only


def computes_in_single(
    inputs: Sequence[Any], run: Callable[[Sequence[Any]], Sequence[Tensor]]
) -> bool:
    """Return whether it computes in float32, whatever the dtype of its inputs."""
    near = [
        x.detach() * (1 + NOTICED) if isinstance(x, Tensor) and x.requires_grad else x
        for x in inputs
    ]
    ends = [*zip(run(inputs), run(near), strict=True)]
    if any(x.dtype not in (torch.double, torch.cdouble) for x, _ in ends):
        return True
    return all(torch.equal(x, y) for x, y in ends)


def is_lost(function: Any, inputs: Sequence[Any]) -> bool:
    """Return whether autograd of the forward's own text, too, gives no number."""
    try:
        given = [with_layout(x, torch.clone) for x in inputs]
        old = function.setup_context is torch.autograd.Function.setup_context
        found = unwrap(function.forward)(*[MagicMock()] * old, *given)
        ends = found if isinstance(found, tuple) else (found,)
        total: Any = sum(x.sum() for x in ends if x.requires_grad)
        leaves = [x for x in given if isinstance(x, Tensor) and x.requires_grad]
        gradients = torch.autograd.grad(total, leaves, materialize_grads=True)
    except Exception:  # noqa: BLE001 (whatever the user's code raises)
        return False
    return any(bool(x.isnan().any()) for x in gradients)


# --- What a call changes.


def inputs_stay(asked: Asked) -> None:
    """Neither pass changes an input, in any precision."""
    for dtype in (asked.dtype, torch.float32):
        inputs = [as_type(x, dtype) for x in asked.inputs()]
        before = [with_layout(x, torch.clone) for x in inputs]
        if not asked.takes(inputs):
            continue
        outputs = asked.run(*inputs)
        check_unchanged(asked, inputs, before, "forward")
        with suppress(Exception):  # reported by the gradients
            asked.gradients(inputs, contiguous, outputs)
        check_unchanged(asked, inputs, before, "backward")


STATE = re.compile("running_|moving_|num_batches")  # names of what a norm counts


def check_unchanged(
    asked: Asked, inputs: Sequence[Any], before: Sequence[Any], method: str
) -> None:
    """Compare inputs with copies that were made before a pass."""
    for at, (name, one) in enumerate(zip(asked.names, inputs, strict=True)):
        if (
            not isinstance(one, Tensor)
            or one.layout != torch.strided
            or STATE.match(name)
        ):
            continue
        pair = (one.detach().nan_to_num(), before[at].detach().nan_to_num())
        if not (torch.equal(*pair) or is_average(asked, before, at)):
            kind = f" of {str(one.dtype)[6:]}" if one.dtype != asked.dtype else ""
            words = f"{method} changes {name}{kind} in place"
            asked.wrong(
                words, f"{method} changes", f"clone it first, or mark_dirty({name})"
            )


# `run` changes the inputs given to it, in place: so the old values of `is_average` differ by 1 before the
# two runs (`pairs`), and what is left of that after them (`stays`) is the part of the old value in the new
# one. An input that requires grad is no running mean: a change of it must be declared in any case
# (`mark_dirty`).
def is_average(asked: Asked, before: Sequence[Any], at: int) -> bool:
    """Return whether a part of the old value stays of an input no output reads, as of a running mean."""
    if before[at].requires_grad or not before[at].is_floating_point():
        return False
    copies, others = ([with_layout(x, torch.clone) for x in before] for _ in range(2))
    others[at] = others[at] + 1
    pairs = zip(asked.run(*copies), asked.run(*others), strict=True)
    stays = others[at] - copies[at]
    read = not all(torch.equal(x, y) for x, y in pairs)
    return not read and bool(((stays > 0) & (stays < 1 - NOTICED)).all())


def grad_output_stays(asked: Asked) -> None:
    """Backward writes to no grad_output, be it the values that are there."""
    kept: list[tuple[Tensor, Tensor, int]] = []

    def noted(end: Tensor) -> Tensor:
        weight = contiguous(end)
        kept.append((weight, weight.clone(), weight._version))
        return weight

    with suppress(Exception):  # reported by the gradients
        asked.gradients(asked.inputs(), noted)
    if not all(torch.equal(x, y) and x._version == at for x, y, at in kept):
        words = "backward changes grad_output in place"
        asked.wrong(words, "backward changes", "clone it first")


def outputs_are_freed(asked: Asked) -> None:
    """Nothing keeps an output alive."""
    words = "an output stays in memory: it is kept on ctx, in a reference cycle"
    asked.answer(
        asked.test_output_is_freed_without_gc,
        words,
        "saves",
        "ctx.save_for_backward(...)",
    )


# --- grad_outputs with a property.

IN_ORDER = "assumes contiguous memory; .contiguous() fixes it"


def strided_grad_output(asked: Asked) -> None:
    """The order of a grad_output in memory means nothing."""
    inputs = asked.inputs()
    expected = asked.gradients(inputs, contiguous)
    found = asked.gradients(inputs, strided)
    asked.hold(inputs, found, expected, f"wrong: {IN_ORDER} ({{}})")


def expanded_grad_output(asked: Asked) -> None:
    """An expanded grad_output is as good as a contiguous one."""
    inputs = asked.inputs()
    expected = asked.gradients(inputs, ones)
    found = asked.gradients(inputs, expanded)
    asked.hold(inputs, found, expected, f"wrong: {IN_ORDER} ({{}})")


def scaled_grad_output(asked: Asked) -> None:
    """Backward is linear in grad_output."""
    inputs = asked.inputs()
    usual = asked.gradients(inputs, contiguous)
    found = asked.gradients(inputs, lambda end: 2 * contiguous(end))
    names = needing(asked.names, inputs)
    for name, one, two in zip(names, found, usual, strict=True):
        if two.any() and torch.allclose(one, two, rtol=1e-4, atol=0.0):
            words = f"grad_{name}: ignores grad_output: doubling it changes nothing"
            asked.wrong(words, f"grad_{name}", "multiply by grad_output")
    expected = [2 * one for one in usual]
    asked.hold(inputs, found, expected, "{} for twice the grad_output")


def one_output_alone(asked: Asked) -> None:
    """An output that nothing uses, and one whose grad_output is 0, are the same."""
    inputs = asked.inputs()
    for at in range(len(asked.run(*inputs))):
        outputs = asked.run(*inputs)
        kept = iter(range(len(outputs)))

        def weights(end: Tensor, at: int = at, kept: Iterator[int] = kept) -> Tensor:
            return contiguous(end) * (next(kept) == at)

        expected = asked.gradients(inputs, weights, outputs)
        alone = [asked.run(*inputs)[at]]
        found = asked.gradients(inputs, contiguous, alone)
        asked.hold(inputs, found, expected, f"{{}}, if only output {at} is used")


# --- What backward returns.


def shapes_that_backward_returns(asked: Asked) -> None:
    """Autograd silently sums a gradient that is too large, and casts one of another dtype."""
    for dtype in (asked.dtype, torch.float32):
        inputs = [as_type(x, dtype) for x in asked.inputs()]
        if dtype == asked.dtype or asked.takes(inputs, backward=True):
            check_shapes(asked, inputs, asked.returned(inputs))


def check_shapes(asked: Asked, inputs: Sequence[Any], returned: Sequence[Any]) -> None:
    """Compare the shapes of gradients with those of the inputs; another dtype is worth a note."""
    cast = ""
    for name, value, gradient in zip(asked.names, inputs, returned, strict=False):
        if gradient is None or name not in needing((name,), (value,)):
            continue
        if gradient.shape != value.shape:
            sizes = f"{(*gradient.shape,)}, but {name} is {(*value.shape,)}"
            words = f"grad_{name}: {sizes}; autograd sums it silently"
            asked.wrong(words, f"grad_{name}", f"sum_to_size({name}.shape)")
        if gradient.dtype != value.dtype:
            types = f"{str(gradient.dtype)[6:]}, but {name} is {str(value.dtype)[6:]}"
            cast = cast or f"grad_{name}: {types}; autograd casts it silently"
    if cast:
        asked.note(cast)


# --- Several calls.


def two_calls_before_one_backward(asked: Asked) -> None:
    """Another call between forward and backward changes nothing."""
    inputs = asked.inputs()
    others = [with_layout(x, lambda x: drawn(x, x.shape)) for x in asked.inputs(seed=1)]
    expected = asked.gradients(inputs, contiguous)
    outputs = asked.run(*inputs)
    asked.run(*others)
    found = asked.gradients(inputs, contiguous, outputs)
    words = "{} if the op is called twice before backward: the calls share saved values"
    asked.hold(inputs, found, expected, words, "keep them on ctx")


def backward_twice(asked: Asked) -> None:
    """A second backward gives what the first one gave."""
    inputs = asked.inputs()
    outputs = asked.run(*inputs)
    first = asked.gradients(inputs, contiguous, outputs, retain_graph=True)
    first = tuple(one.clone() for one in first)
    words = "{} in a second backward, with retain_graph=True"
    try:
        again = asked.gradients(inputs, contiguous, outputs, retain_graph=True)
    except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
        asked.raised(error, words)
    asked.hold(inputs, again, first, words, "do not change saved tensors")


def input_changed_after_forward(asked: Asked) -> None:
    """Backward refuses a differentiable input changed since the forward, or gives the old gradient."""
    for at, name in enumerate(asked.names):
        if name in asked.dirty or name not in needing(asked.names, asked.inputs()):
            continue

        def pick(inputs: Sequence[Any], _: Any, at: int = at) -> Any:
            return inputs[at]

        words = f"silently wrong if {name} is changed after the forward: ctx keeps it unchecked"
        hint = f"ctx.save_for_backward({name}) checks it"
        asked.answer(partial(asked.check_changed, pick), words, "saves", hint)


# --- Derivatives of gradients.

ONCE = ("differentiable once", "differentiate twice", "once_differentiable", ".grad()")
TWICE = "mark it once_differentiable, or save only inputs and outputs"
SLOPES = 1e-3  # the relative error of differences, for a second derivative


def gradient_with_create_graph(asked: Asked) -> None:
    """A backward recorded gives the same."""
    question = asked.test_recorded_gradients
    asked.answer(question, "a different gradient with create_graph=True")


def second_derivative(asked: Asked) -> None:
    """The derivative of each gradient is right, or refused."""
    inputs = asked.inputs()

    def firsts(*called: Any) -> tuple[Tensor, ...]:
        given, weights = called[: len(inputs)], called[len(inputs) :]
        ends = asked.run(*given)
        with torch.enable_grad():
            needed = [x for x in given if isinstance(x, Tensor) and x.requires_grad]
            total: Any = sum((e * w).sum() for e, w in zip(ends, weights, strict=True))
            return torch.autograd.grad(
                total, needed, create_graph=True, materialize_grads=True
            )

    if asked.single:
        asked.skip("it computes in float32")
    ends = asked.run(*inputs)
    if any(isinstance(x, Tensor) and x.is_complex() for x in (*inputs, *ends)):
        asked.skip("it computes complex numbers")
    leaves = [*inputs, *(contiguous(end.detach()).requires_grad_() for end in ends)]
    needed = [x for x in leaves if isinstance(x, Tensor) and x.requires_grad]
    names = [*needing(asked.names, inputs), *["grad_output"] * len(ends)]
    try:
        first = firsts(*leaves)
        rounded = [as_type(x, torch.float32).to(x.dtype) for x in first]
        if all(map(torch.equal, first, rounded)):
            asked.skip("its gradients are computed in float32")
        found = [*seconds(first, needed)]
    except RuntimeError as error:
        if any(words in str(error) for words in ONCE):
            return
        raise
    for name, gradient, at in zip(names, found, range(len(found)), strict=True):
        differences = slope(firsts, leaves, needed[at])
        largest = float(differences.abs().max()) if differences.numel() else 0.0
        off = float((gradient - differences).abs().max()) if gradient.numel() else 0.0
        if off > SLOPES * (1 + largest):
            part = 100 * off / max(largest, float(gradient.abs().max()))
            words = f"silently wrong by {part:.0f}%, with respect to {name}"
            asked.wrong(words, "saves", TWICE)


def seconds(first: Sequence[Tensor], needed: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield the derivatives of the gradients.

    They come from `backward`, which runs into once_differentiable; `torch.autograd.grad` passes it by.
    """
    end = mixed(first)
    if end.requires_grad:
        end.backward()  # type: ignore[no-untyped-call]
    for leaf in needed:
        yield torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


def mixed(first: Sequence[Tensor]) -> Tensor:
    """Return a number that depends on every element of the gradients."""
    seed = torch.Generator().manual_seed(3)
    total = torch.zeros((), dtype=torch.double)
    for one in first:
        drawn = torch.randn(one.shape, dtype=torch.double, generator=seed)
        total = total + (one * drawn).sum()
    return total


def slope(firsts: Callable[..., Any], leaves: Sequence[Any], value: Tensor) -> Tensor:
    """Differentiate the mixed gradients by differences along each element."""
    found = torch.zeros(value.numel(), dtype=torch.double)
    step = 1e-5
    for index in range(value.numel()):
        sides = []
        for sign in (1, -1):
            moved = value.detach().clone(memory_format=torch.contiguous_format)
            moved.view(-1)[index] += sign * step
            moved.requires_grad_()
            called = [moved if x is value else x for x in leaves]
            sides.append(float(mixed(firsts(*called)).detach()))
        found[index] = (sides[0] - sides[1]) / (2 * step)
    return found.reshape(value.shape)


# --- Other inputs.


def strided_inputs(asked: Asked) -> None:
    """No memory order or expanded rows of an input change a gradient, or an output."""
    for words, layout in (("not contiguous", permuted), ("expanded", first_expanded)):
        for alone in ("", *needing(asked.names, asked.inputs())):
            pairs = zip(asked.names, asked.inputs(), strict=True)
            some = [with_layout(x, layout) if alone in ("", n) else x for n, x in pairs]
            same = [with_layout(x, torch.Tensor.contiguous) for x in some]
            if not (asked.takes(some) and asked.takes(same, backward=True)):
                continue
            expected = asked.gradients(same, contiguous)
            outputs = asked.run(*some)
            told = f"wrong where {alone or 'an input'} is {words}: {IN_ORDER} ({{}})"
            found = asked.gradients(some, contiguous, outputs)
            asked.hold(some, found, expected, told)
            pairs_of_outputs = zip(outputs, asked.run(*same), strict=True)
            for at, (one, two) in enumerate(pairs_of_outputs):
                near = 1e-3 if asked.single else 1e-6
                if not torch.allclose(one, two, near, near / 10, equal_nan=True):
                    asked.wrong(f"output {at} differs if inputs are {words}", "forward")


OF_SHAPES = r"Using a target size|The use of `x.T` on tensors|Tensor\.m?[TH] is dep"


def other_ranks(asked: Asked) -> None:
    """Data with more dims may be refused; their gradient may not be silently wrong.

    Tensors with fewer dims are parameters, and stay as they are. Does not apply to indices, whose meaning at another rank is unknown.
    """
    usual = asked.inputs()
    tensors = [x for x in usual if isinstance(x, Tensor)]
    rank = max(x.ndim for x in tensors)
    data = [x for x in tensors if x.ndim == rank]
    sizes = tuple(data[0].shape)
    whole = len(needing(asked.names, usual)) == len(tensors)
    if not whole or len({x.shape for x in data}) > 1:
        asked.skip("its data differ in shape, or a tensor has no gradient")
    tried = False
    alike = ((3,) * (rank + 1), (3,) * (rank + 2))
    for shape in alike if len(data) == len(tensors) else ((5, *sizes), (*sizes, 5)):
        inputs = [
            drawn(x, shape) if isinstance(x, Tensor) and x.ndim == rank else x
            for x in asked.inputs()
        ]
        with warnings.catch_warnings():
            warnings.filterwarnings("error", OF_SHAPES)
            if asked.takes(inputs, backward=True):
                tried = True
                asked.derivative(inputs, "more dims")
    if not tried:
        asked.skip("it takes no other ranks")


def other_sizes(asked: Asked) -> None:
    """The gradient is right for other sizes of dims, 1 among them."""
    tried = False
    for inputs in asked.resized(empty=False):
        if asked.takes(inputs):
            tried = True
            asked.derivative(inputs, "other sizes")
    if not tried:
        asked.skip("it takes no other sizes")


MOST = 2  # further shapes to ask of: each takes as long as the first
SMALL = 80  # elements of their tensors, as finite differences move each one


def of_other_shapes(usual: Sequence[Any], fits: Sequence[Sequence[Any]]) -> list[int]:
    """Return the places in `fits` of inputs to ask about, too: the first small ones of each pattern of equal sizes.

    Not those that may not be meant: tensors that broadcast, and data of fewer dims; `other_ranks` asks about more dims of all tensors
    alike. Of a tensor without a gradient nothing is known.
    """
    if not all(x.requires_grad for x in usual if isinstance(x, Tensor)):
        return []
    tried = [[x.shape for x in y if isinstance(x, Tensor)] for y in (usual, *fits)]
    rank, patterns = max(map(len, tried[0])), dict[tuple[int, ...], int]()
    for at, shapes in enumerate(tried):
        sizes = [n for shape in shapes for n in shape]
        most = max(shapes, key=len)
        inner = [most[len(most) - len(shape) :] == shape for shape in shapes]
        chance = all(inner) if len({*shapes}) > 1 else len(most) > rank
        chance = chance or len(most) < rank
        if not at or not chance and sum(shape.numel() for shape in shapes) <= SMALL:
            # The ranks, and where each size stands first: equal sizes have one place.
            pattern = (*map(len, shapes), *map(sizes.index, sizes))
            patterns.setdefault(pattern, at)
    return [at - 1 for at in patterns.values() if at][:MOST]


def empty_inputs(asked: Asked) -> None:
    """Empty inputs may be refused; what raises in backward alone is worth a note."""
    tried = False
    for inputs in asked.resized(empty=True):
        outputs = None
        with suppress(Exception):  # it may refuse them
            outputs = asked.run(*inputs)
        if outputs is None:
            continue
        try:
            found = asked.gradients(inputs, contiguous, outputs)
        except Exception as error:  # noqa: BLE001 (it may refuse them)
            asked.note("raises for empty inputs", error)
            continue
        tried = True
        names = needing(asked.names, inputs)
        for name, one in zip(names, found, strict=True):
            if one.numel() and not one.isfinite().all():
                asked.note(f"grad_{name} is not finite for empty inputs")
    if not tried:
        asked.skip("it takes no empty inputs")


def drawn(usual: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return values of a shape: the usual ones, repeated, each a little different.

    Whole numbers stay as they are, and a permutation becomes another one.
    """
    places = torch.arange(torch.Size(shape).numel()) % max(usual.numel(), 1)
    values = usual.detach().flatten()[places].reshape(shape)
    if usual.is_floating_point() and not torch.equal(usual, usual.round()):
        values = values * (1 + 0.1 * contiguous(values).cos())
    if usual.dtype == torch.long and torch.equal(usual, usual.argsort().argsort()):
        values = values.argsort()
    return values.requires_grad_(usual.requires_grad)


BITS_LESS = 2**16  # the rounding errors of bfloat16, in those of float32
FEW_DIGITS = 0.03  # the relative rounding of a gradient in a dtype of two digits


# An error about two dtypes; that one is not supported may be meant.
MIXED = re.compile(r"(?!.*([Nn]ot |[Uu]n)(supp|impl)).*(dtype|(scalar|weight) type)")


def in_float32(asked: Asked) -> None:
    """In float32 the gradients are the same, but for roundings."""
    if asked.dtype == torch.float32:
        asked.skip("the other checks use float32")
    inputs = [as_type(x, torch.float32) for x in asked.inputs()]
    if not asked.takes(inputs):
        asked.skip("it takes no float32")
    compare_roughly(asked, inputs, asked.run(*inputs), "float32", FEW_DIGITS / 10)


def in_bfloat16(asked: Asked) -> None:
    """In bfloat16 the gradients are the same, but for its few digits; it may refuse that."""
    inputs = [as_type(x, torch.bfloat16) for x in asked.inputs()]
    if asked.takes(inputs):
        try:
            asked.gradients(inputs, contiguous)
        except RuntimeError as error:
            if MIXED.match(str(error)):
                asked.raised(error, "{} in bfloat16, which forward takes")
    if not asked.takes(inputs, backward=True):
        asked.skip("it takes no bfloat16")
    single = [as_type(x, torch.float32) for x in inputs]
    exact = [as_type(x, asked.dtype) for x in inputs]
    if asked.takes(single, backward=True):
        found = asked.gradients(single, contiguous)
        expected = asked.gradients(exact, contiguous)
        pairs = zip(found, expected, strict=True)
        lost = max(float((x.to(y.dtype) - y).norm()) for x, y in pairs)
        if lost * BITS_LESS > FEW_DIGITS:
            asked.skip("rounding errors dominate")
    outputs = asked.run(*inputs)
    compare_roughly(asked, inputs, outputs, "bfloat16", 4 * FEW_DIGITS)


def under_autocast(asked: Asked) -> None:
    """Under autocast a Function raises, or has the gradients of its dtypes."""
    inputs = [as_type(x, torch.float32) for x in asked.inputs()]
    if not asked.takes(inputs):
        asked.skip("it takes no float32")
    try:
        with torch.autocast("cpu", torch.bfloat16):
            outputs = asked.run(*inputs)
        asked.gradients(inputs, contiguous, outputs)
    except Exception as error:  # noqa: BLE001 (it may refuse that)
        asked.skip("it raises under autocast", error, "use torch.amp.custom_fwd")
    with torch.autocast("cpu", torch.bfloat16):
        outputs = asked.run(*inputs)
    compare_roughly(asked, inputs, outputs, "autocast", 4 * FEW_DIGITS)


def compare_roughly(
    asked: Asked, inputs: Sequence[Any], outputs: Any, words: str, part: float
) -> None:
    """Compare gradients in few digits with those of the same numbers in full precision."""
    exact = [as_type(x, asked.dtype) for x in inputs]
    found = asked.gradients(inputs, contiguous, outputs)
    expected = asked.gradients(exact, contiguous)
    names = needing(asked.names, inputs)
    for name, one, two in zip(names, found, expected, strict=True):
        off = (one.to(two.dtype) - two).norm()
        if two.isfinite().all() and not off <= part * (two.norm() + 1):
            size = f"off by {off:.2g}, norm {two.norm():.2g}"
            asked.wrong(f"grad_{name}: wrong in {words}: {size}", f"grad_{name}")


# --- Transforms.


def func_grad(asked: Asked) -> None:
    """torch.func.grad, which calls setup_context, gives what autograd gives."""
    inputs = asked.inputs()
    needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    expected = torch.autograd.grad(asked.loss(*inputs), needed)
    given = [x.detach() if isinstance(x, Tensor) else x for x in inputs]
    found = torch.func.grad(asked.loss, asked.argnums(given))(*given)
    asked.hold(inputs, found, expected, "{} in torch.func.grad")


def func_jacrev(asked: Asked) -> None:
    """torch.func.jacrev, which maps over backward, gives what autograd gives."""
    asked.answer(asked.test_jacrev, "its gradient differs from autograd's")


def vmap_of_grad(asked: Asked) -> None:
    """A batch has the gradients of its samples."""
    asked.answer(asked.test_vmap_of_grad, "its gradient differs from each sample's")


def checkpointed(asked: Asked) -> None:
    """Under checkpoint the gradients are the same; it may raise, as `ctx.saved_tensors` is read once."""

    def question() -> None:
        try:
            asked.test_checkpoint()
        except AssertionError as error:
            if isinstance(error.__context__, RuntimeError):
                asked.skip("it raises under checkpoint", error.__context__)
            raise

    asked.answer(question, "its gradient differs under checkpoint")


def compiled(asked: Asked) -> None:
    """torch.compile gives the same."""
    asked.answer(asked.test_compile, "torch.compile gives a different result")
