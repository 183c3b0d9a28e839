"""Hand-written Functions: present one with its inputs in place of an op and its tests.

`scaffold verify FILE` judges Functions that no specification describes. So that the cases and comparisons of generated ops serve them too,
a module of checks is made that declares inputs, and the Function is put into it where an op would be.
In: a class, its reference, and modules of checks that declare its inputs in several ways. Out: a `Subject`; or shapes for its
inputs; or the reason why it accepts none.
Words: `checks` is a module of checks, `checks.TESTS` its class of tests, LOOSE is true if some input has no declared shape; a *kind* is a
dtype and a range of values for all inputs; a shape is *searched* for if nobody declared it; *single*: float32; *surrogate*: a gradient
meant to differ from the derivative.
Invariant: the Function accepts the inputs forwards and backwards, if there are such inputs; its properties (differentiable outputs,
random numbers) were seen in a call.
"""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial, wraps
from inspect import unwrap
from itertools import compress, product
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function

from scaffold.verify.child.cases import Case, make_inputs, needs_gradient, sampled
from scaffold.verify.child.derivatives import (
    as_tuple,
    numeric_gradients,
    returned_gradients,
)
from scaffold.verify.child.diagnosis import Scene
from scaffold.verify.child.fast_torch import seed_generator, seeded_grad
from scaffold.verify.child.function_questions import (
    NOTICED,
    computes_in_single,
    contiguous,
    drawn,
    needing,
    of_other_shapes,
    with_layout,
)
from scaffold.verify.child.further_questions import Limits, Reductions
from scaffold.verify.child.op_tests import (
    backpropagating,
    making,
    needs_of,
    prepared,
    recording,
)
from scaffold.verify.child.refusals import raised
from scaffold.verify.child.shape_search import NoShapes, Shapes, shapes_taken

# A kind: the inputs' dtype, and the inputs whose values lie between 0.1 and 0.9, as a forward
# may take a logarithm. *Parameters* are the inputs with fewer dims than others.
# Each third kind, KINDS[::3], is a dtype with values as they are.
INSIDE = ("none", "parameters", "all")
KINDS = (*product((torch.double, torch.float32), INSIDE),)
# Complex kinds, tried if a refusal or the code speaks of complex numbers: all inputs are complex, the first
# alone, or the others (`Subject._typed`).
COMPLEX = (*product((torch.cdouble,), INSIDE),)
FIRST_COMPLEX = COMPLEX[:2]  # the first input is complex in these
OF_COMPLEX = {"conj", "conj_physical", "imag", "complex"}  # names in its code
OF_REAL = {"rfft", "real"}  # ... that takes the real part of a spectrum of real inputs
SEARCHED = 1.5  # seconds for the shapes of one way to declare the inputs
IN_ALL = 9  # seconds for those of all ways
WAYS = 4  # to declare the inputs, for which shapes are searched: the first ones
DOUBLE = {"rtol": 1e-4, "atol": 1e-5}  # for comparison with differences
SINGLE = {"rtol": 2e-2, "atol": 2e-2}
SAME, SAME_SINGLE = {"rtol": 1e-6, "atol": 1e-7}, {"rtol": 1e-3, "atol": 1e-4}
STEPS_OF_SINGLE = (1e-2, 3e-3)  # differences, where a forward computes in float32
# Indices in which no value stands twice.
PERMUTED = re.compile(r"(.*_)?(perm(utation)?s?|order|inverse)(_.*)?")
LARGE = 100  # times the usual inputs, to see clipping
NOT_FINITE = "its result is not finite"
UNSTABLE = "its result changes wholly with the last digits of the inputs"
NOTICED_SINGLE = 1e-6  # a relative change
LOST = 1e-2  # the relative change of a result by theirs
CROSSED = "its lower limit is above the upper one"
SEEDS = (1, 2)  # for other random inputs, above all indices
ABSENT = {"absent", "seed"}  # arguments of a case with the base's shapes
Weights = Callable[[Tensor], Tensor]


class Asked(NamedTuple):
    """The known facts about the Function besides its code."""

    names: tuple[str, ...]  # of its inputs, in the order of forward
    source: str  # its file
    dirty: tuple[str, ...] = ()  # inputs that it marks as changed in place
    numbers: tuple[float, ...] = ()  # in its text
    arguments: Mapping[str, Sequence[Any]] = {}  # other values that choose a branch
    surrogate_stated: bool = False  # the user says its gradient is no derivative
    declared: bool = False  # the user declared its inputs
    searched: bool = False  # the shapes were found by running it
    shapes: Sequence[Sequence[Sequence[int]]] = ()  # further ones to try
    compiled: bool = False
    questions: str = ""  # the text of op_testing.py


class Refused(NamedTuple):
    """The reason why no inputs were found."""

    words: str
    tried: tuple[str, ...] = ()


class Subject:
    """The Function, its inputs, and its observed properties."""

    def __init__(
        self,
        checks: Any,
        function: Any,
        asked: Asked,
        reference: Any = None,
        samples: "Samples | None" = None,
    ) -> None:
        """Put the Function in place of the op in the module of checks; call `look` next, once its inputs are accepted.

        `reference` is plain PyTorch with the gradients to expect, or None; `samples` are calls given by the user, instead of made-up inputs.
        """
        self.checks, self.function, self.asked = checks, function, asked
        self.dirty = asked.dirty
        self.names: tuple[str, ...] = ()
        self.constants: frozenset[str] = frozenset()  # declared without a gradient
        self.notes: list[str] = []
        self.stage = "forward"  # of the current or last call
        self.ran = False  # whether any forward has run
        self.dtype, self.inside = KINDS[0]
        self.surrogate = self.random = False
        self.symmetric = False  # its gradient is a symmetric matrix's
        self.binary: tuple[str, ...] = ()  # inputs with values 0 and 1 alone
        # Other shapes than those of the module of checks, by input.
        self.shapes: Mapping[str, Sequence[int]] = {}
        self.samples = samples
        if samples:
            _take_samples(checks, samples)
        self._stand_in(reference)

    def _stand_in(self, reference: Any) -> None:
        """Put the Function in the place of the op, with inputs in the order of its forward.

        Fields of the module of checks that only an op fills, such as the user's text as written, are emptied.
        """
        checks, tests = self.checks, self.checks.TESTS
        made, usual = tests.make, [*checks.NAMES]
        keys = [*made()]  # `tensors[0]`, `tensors[1]` for `*tensors`
        self.names = tuple(
            key
            for name in self.asked.names
            for key in keys
            if key.partition("[")[0] == name.removeprefix("*")
        )

        @wraps(made)
        def make(**arguments: Any) -> dict[str, Any]:
            """Return the inputs of the op's tests by name, each in the kind tried (`_typed`)."""
            values = self._reshaped(made(**arguments))
            ranks = [x.ndim for x in values.values() if isinstance(x, Tensor)]
            most = max(ranks, default=0)
            return {name: self._typed(name, values[name], most) for name in self.names}

        tests.make = staticmethod(make)
        tests.function = self.function
        tests.op = staticmethod(lambda *given: _tensors(self.function.apply(*given)))
        tests.changed_in_place = self.dirty
        tests.reference = staticmethod(reference) if reference else None
        self._settle()
        if self.asked.declared and not self.samples:
            # `x[N; const]` says that x has no gradient: None for it is then no forgotten one.
            self.constants = frozenset(self.names) - {*tests.differentiable}
        checks.NAMES = self.names
        # Their positions were those in NAMES before.
        checks.ATTRIBUTES = {
            self.names.index(usual[at]): x for at, x in checks.ATTRIBUTES.items()
        }
        checks.BROADCAST = {}
        checks.FORWARD = checks.OWN_FORWARD = checks.OWN_GRADIENT = None
        # VALUES and SCALED are filled by `look`; no formula of the user's is known.
        checks.VALUES, checks.SCALED, checks.ASKED_MORE = {}, (), False

    def _reshaped(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the inputs by name, the tensors in their other shapes, if there are any."""
        for name, shape in self.shapes.items():
            if isinstance(values[name], Tensor):
                values[name] = drawn(values[name], (*shape,))
        return values

    def _settle(self) -> None:
        """Rebuild the functions and names of the module of checks derived from its class of tests, after a change of the class."""
        checks, tests = self.checks, self.checks.TESTS
        checks.make = making(tests)
        checks.gradients = partial(backpropagating(tests, True), laid=torch.clone)
        record = recording(tests, None, False)
        checks.call_recorder = lambda *call: _tensors(record(*call))
        checks.OPERATOR = prepared(tests, tests.op)
        checks.REFERENCE = prepared(tests, tests.reference)
        checks.DIFFERENTIABLE = tests.differentiable
        checks.NEEDS = needs_of(tests)

    def _typed(self, name: str, value: Any, most: int) -> Any:
        """Return the value of the input `name` in the kind tried: in the dtype `self.dtype`, between 0.1 and 0.9 if `self.inside` says so.

        `most` is the largest rank of all inputs: tensors of fewer dims are parameters. A permutation gets its indices, a binary label 0
        and 1. The user's samples keep their indices and range.
        """
        if not isinstance(value, Tensor):
            # The tests have tanh for a function, of one tensor; `of_all` takes any number.
            return of_all if value is torch.tanh else value
        is_order = value.ndim == 1 and PERMUTED.fullmatch(name) and not self.samples
        if value.dtype == torch.long and is_order:
            return torch.arange(len(value)).roll(1)
        if not value.is_floating_point():
            return value
        if name in self.binary:
            return (value > 0).to(self.dtype)
        # `way` says which inputs are inside, none, parameters or all.
        way, first = INSIDE.index(self.inside), name == self.names[0]
        # Of a complex kind, `inside` also says which are complex: all inputs, the first alone, or the others.
        is_inside = (False, value.ndim < most, True)[way] and not self.samples
        is_complex = self.dtype.is_complex and (True, first, not first)[way]
        real = 0.1 + 0.8 * value.sigmoid() if is_inside else value
        if is_complex:
            return torch.complex(real, real.flip([*range(real.ndim)]))
        return real.to(self.dtype.to_real())

    # --- Calls.

    def inputs(self, seed: int = 0) -> tuple[Any, ...]:
        """Return the inputs of the base case, drawn from a seed."""
        return make_inputs(
            self.checks, Case("base", {"seed": seed} if seed else {}), None
        )

    def needed(self, inputs: Sequence[Any]) -> list[str]:
        """Return the names of a call's inputs requiring grad."""
        return needing(self.names, inputs)

    def call(self, inputs: Sequence[Any]) -> tuple[Tensor, ...]:
        """Call the Function and return its outputs as a tuple.

        `stage` tells which pass an error is of: "forward" if it is raised in here, else "backward".
        """
        self.stage = "forward"
        found = as_tuple(self.checks.OPERATOR(*inputs))
        self.stage, self.ran = "backward", True
        return found

    def ends(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the outputs with a gradient."""
        return [outputs[at] for at in self.positions]

    def takes(self, inputs: Sequence[Any], backward: bool = False) -> bool:
        """Return whether a call runs, with finite outputs, and its backward if requested."""
        try:
            outputs = self.call(inputs)
            if backward:
                backpropagate(outputs, inputs)
        except Exception:  # noqa: BLE001 (whatever the user's code raises)
            return False
        return bool(outputs) and all(bool(x.isfinite().all()) for x in outputs)

    def is_stable(self, inputs: Sequence[Any]) -> bool:
        """Return whether the outputs survive rounding errors of the inputs: those of a singular system lose every digit.

        An output loses them if more than half of its elements change by LOST. One that differs between equal calls is random, and does not
        count. Unstable inputs are not used: any gradient of such a call is noise.
        """
        noise = NOTICED if self.dtype == torch.double else NOTICED_SINGLE
        # `contiguous` lays nothing out: it draws random numbers in the shape of x, as for a grad_output, from
        # a fixed seed.
        near = [
            x * (1 + noise * contiguous(x)) if needs_gradient(x) else x for x in inputs
        ]
        runs: list[tuple[Tensor, ...]] = []
        for given in (inputs, near, inputs):
            seed_generator(2)
            try:
                with torch.no_grad():
                    runs.append(self.call([with_layout(x, torch.clone) for x in given]))
            except Exception:  # noqa: BLE001 (a system may be singular nearby)
                return False
        return not any(
            # Integers and booleans have no digits to lose; complex outputs are not asked about.
            # If two equal calls differ, the output is random: a change of it tells nothing.
            bool(x.numel() and x.is_floating_point() and torch.equal(x, again))
            and ((x - y).abs() > LOST * (1 + x.abs())).double().mean() > 1 / 2
            for x, y, again in zip(*runs, strict=True)
        )

    # --- Observed properties.

    def look(self) -> None:
        """Call the Function to learn its inputs and outputs with gradients, and whether it is random; set that in `self` and the module of checks.

        `self.positions` are the outputs with a gradient afterwards, () if backward gives none.
        """
        tests = self.checks.TESTS
        one, two = self.inputs(), self.inputs()
        torch.manual_seed(11)
        first = self.call(one)
        torch.manual_seed(12)  # equal inputs: only random numbers may differ
        second = self.call(two)
        self.random = tests.random = any(
            x.shape == y.shape
            and not torch.equal(x.detach().nan_to_num(), y.detach().nan_to_num())
            for x, y in zip(first, second, strict=True)
        )
        ends = tuple(at for at, x in enumerate(first) if x.requires_grad)
        # For now: `_with_gradients` calls backward for the gradients of these outputs.
        tests.ends = ends
        named = self._with_gradients() if ends else self.needed(one)
        tests.differentiable = tuple(named)
        self.positions = ends if named else ()
        # The tests write () for: all outputs have a gradient.
        tests.ends = self.positions if len(self.positions) < len(first) else ()
        tests.has_gradient = self.checks.HAS_GRADIENT = bool(self.positions)
        self._settle()
        # The inputs that further questions may change, and the numbers to try in them.
        places = map(self.names.index, named)
        self.checks.VALUES = dict.fromkeys(places, self.asked.numbers)
        self.checks.SCALED = tuple(self.checks.VALUES)

    def _with_gradients(self) -> list[str]:
        """Return the inputs requiring grad for which backward does not return None; all of them if backward fails.

        Only these count as differentiable: None for an index-like float tensor is no fault, and `check_none` asks about it by itself.
        """
        inputs = self.inputs()
        needed = self.needed(inputs)
        returned, error = returned_gradients(self.checks, inputs)
        if returned is None or error is not None:  # the check of gradients reports it
            return needed
        gradients = dict(zip(self.names, returned, strict=False))
        # `...`: backward returned too few; another check reports that.
        return [name for name in needed if gradients.get(name, ...) is not None]

    def with_other_shapes(self) -> Iterator[None]:
        """Give the inputs each of some other shapes that the Function takes, one after the other."""
        usual, fits, known = self.inputs(), list[Sequence[Any]](), []
        for shapes in self.asked.shapes:
            # Of `*tensors` there may be more names, and `zip` raises.
            with suppress(Exception):
                self.shapes = dict(zip(self.names, shapes, strict=True))
                inputs = self.inputs()
                _accept(self, True, *inputs)
                # If it reduces a dim by its number, it is not meant for more dims.
                if not self.reduces_last(inputs, usual):
                    fits.append(inputs)
                    known.append(self.shapes)
        for at in of_other_shapes(usual, fits):
            self.shapes = known[at]
            yield
        self.shapes = {}

    def copy_inputs(self) -> None:
        """Give every call copies of its inputs, since the Function changes them."""
        # The class of tests has one name for all of `*tensors`.
        inputs = tuple(name.removeprefix("*") for name in self.asked.names)
        self.checks.TESTS.changed_in_place = inputs
        self._settle()

    def note(self, words: str) -> None:
        """Add a note on a harmless observation."""
        if words not in self.notes:
            self.notes.append(words)

    @cached_property
    def single(self) -> bool:
        """Return whether it computes in float32, whatever the dtype of its inputs."""
        return computes_in_single(self.inputs(), lambda x: self.ends(self.call(x)))

    @cached_property
    def hands_on(self) -> bool:
        """Return whether its outputs equal its inputs, as those of a gradient reversal: then a gradient unlike the derivative may be meant.

        Inputs LARGE times as large, of both signs, are among those tried: a forward that clips does not pass them on.
        """
        usual = self.inputs()
        scaled = [
            [
                (by * x.detach()).requires_grad_() if needs_gradient(x) else x
                for x in usual
            ]
            for by in (LARGE, -LARGE)
        ]
        further = (Case(name, dict(x)) for name, x in self.checks.FURTHER_CASES.items())
        others = (make_inputs(self.checks, case, None) for case in further)
        return self._is_handed_on(usual) and all(
            self._is_handed_on(x) for x in (*scaled, *others) if self.takes(x)
        )

    @property
    def is_gated(self) -> bool:
        """Return whether some gradients are 0 for one sign of grad_output alone, as if backward let only that pass."""
        inputs = self.inputs()
        weights = (partial(torch.full_like, fill_value=sign) for sign in (1, -1))
        sides = [backpropagate(self.call(inputs), inputs, one) for one in weights]
        # Of each gradient: elements linear in grad_output, and those 0 for one sign.
        pairs = [(x == -y, x * y == 0) for x, y in zip(*sides, strict=True)]
        gated = all(bool((x | y).all()) for x, y in pairs)
        return gated and not all(bool(x.all()) for x, _ in pairs)

    @property
    def clamps_backward(self) -> bool:
        """Return whether its backward clamps values, and its forward does not: perhaps so that no infinite one comes out."""
        forward, backward, inputs = Limits(), Limits(), self.inputs()
        with forward:
            outputs = self.call(inputs)
        with backward:
            backpropagate(outputs, inputs)
        return backward.clamps and not forward.clamps

    def reduces_last(self, inputs: Sequence[Any], usual: Any = None) -> bool:
        """Return whether the forward reduces, for these inputs of another rank, the dim with the number of the usual inputs' last one.

        `x.sum(1)` of a forward for matrices: with one dim more, 1 is no longer the last dim, and the Function is not meant for that rank.
        """
        ranks = [
            max(x.ndim for x in given if isinstance(x, Tensor))
            for given in (usual or self.inputs(), inputs)
        ]
        seen = Reductions(ranks[1], ranks[0] - 1)
        with seen:
            self.call(inputs)
        return seen.reduced and ranks[0] != ranks[1]

    def _is_handed_on(self, inputs: Sequence[Any]) -> bool:
        """Return whether the forward only passes inputs on, as a gradient reversal does: each output with a gradient equals an input."""
        given = [x for x in inputs if needs_gradient(x)]
        return all(
            any(x.shape == y.shape and torch.equal(x, y) for x in given)
            for y in self.ends(self.call(inputs))
        )

    @property
    def transforms(self) -> bool:
        """Return whether torch.func may call it."""
        # torch.func needs a forward without ctx, and with it a `setup_context` of the Function's own.
        return self.function.setup_context is not Function.setup_context

    @property
    def maps(self) -> bool:
        own = self.function.vmap is not Function.vmap
        return own or bool(self.function.generate_vmap_rule)

    @property
    def tolerance(self) -> dict[str, float]:
        """Return the tolerance between two computations of the same values."""
        return SAME_SINGLE if self.single else SAME

    @property
    def cases(self) -> Iterator[Case]:
        """Yield the cases accepted by the Function: optional inputs given or absent, two sizes, other seeds.

        A property, as it depends on what was learned of the Function in between; each check goes through them anew.
        """
        further = {f"seed {seed}": {"seed": seed} for seed in SEEDS}
        for name, arguments in (self.checks.CASES | further).items():
            case = Case(name, dict(arguments))
            # "count": another number of tensors for `*tensors`, which `names` would not fit. LOOSE: no
            # shapes are declared, so other ones than the base's mean nothing.
            if "count" in arguments or (self.checks.LOOSE and {*arguments} - ABSENT):
                continue
            if self.takes(make_inputs(self.checks, case, None)):
                yield case

    def scene(self, name: str, inputs: Sequence[Any], exact: bool = True) -> Scene:
        """Return the context to judge the gradient of an input; without `exact`, with the tolerance of finite differences."""
        rough = SINGLE if self.single else DOUBLE
        return Scene(
            f"grad_{name}",
            value=inputs[self.names.index(name)].detach(),
            factors={
                n: x.detach()
                for n, x in zip(self.names, inputs, strict=False)
                if needs_gradient(x)
            },
            tolerance=self.tolerance if exact else rough,
        )

    def expected(
        self, inputs: Sequence[Any], weights: Weights, alone: int | None = None
    ) -> list[Tensor]:
        """Return gradients of the reference, or by differences; NaN where differences of two steps disagree.

        `weights` draws a grad_output, the same at each call; `alone` is the number of the one output used, among those with a gradient.
        """
        chosen = self.positions if alone is None else (self.positions[alone],)

        def with_chosen_outputs(function: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *given: tuple(as_tuple(function(*given))[at] for at in chosen)

        if self.checks.REFERENCE is not None:
            outputs = with_chosen_outputs(self.checks.REFERENCE)(*inputs)
            return [*backpropagate(outputs, inputs, weights)]
        to_differentiate = SimpleNamespace(  # as the module of a test names them
            OPERATOR=with_chosen_outputs(self.checks.OPERATOR),
            # Asked only for the gradients of leaves as outputs, which are the grad_outputs (`_grad_outputs`).
            gradients=lambda _, leaves: tuple(weights(x.detach()) for x in leaves),
        )
        by_differences = partial(numeric_gradients, to_differentiate, inputs)
        if not self.single:
            return by_differences()
        # In float32 a long step is wrong at a bend, a short one loses digits: keep where both agree.
        one, two = map(by_differences, STEPS_OF_SINGLE)
        return [
            x.where(torch.isclose(x, y, rtol=2e-2, atol=2e-2), torch.nan)
            for x, y in zip(one, two, strict=True)
        ]

    def is_surrogate(self, expected: Sequence[Tensor]) -> bool:
        """Decide whether a gradient other than the derivative may be meant; if so, set `surrogate`, note why, and return True.

        `expected` are the derivatives, by differences. It may if the derivative is 0, if the forward returns its input, if the sign of
        grad_output chooses, or if the Function's text says so; not if there is a reference, which says what is meant.
        """
        if self.checks.REFERENCE is not None:
            return False
        if any(one.numel() and not one.nan_to_num().any() for one in expected):
            why = " (the derivative is 0)"
        elif self.hands_on:
            why = " (the forward returns its input)"
        elif self.is_gated:
            why = " (the sign of grad_output chooses)"
        elif self.asked.surrogate_stated:
            why = ""
        else:
            return False
        self.surrogate = True
        self.note(
            f"the gradient is not the derivative of the forward{why}; if intended, give its own forward: --reference"
        )
        return True


def of_all(*tensors: Tensor) -> Tensor:
    """Stand in for a function a Function takes as an argument; return a value that depends on every tensor it is called with.

    Nobody knows what the real one is called with. The value has the shape of the first tensor, as of a function applied to it.
    """
    return torch.stack([x.tanh().sum() for x in tensors[1:]]).sum() + tensors[0].tanh()


def backpropagate(
    outputs: Sequence[Tensor], inputs: Sequence[Any], weights: Weights = torch.ones_like
) -> tuple[Tensor, ...]:
    """Return the gradients of inputs requiring grad, by all differentiable outputs; `weights` makes a grad_output of each."""
    ends = [x for x in outputs if x.requires_grad]
    needed = [x for x in inputs if needs_gradient(x)]
    if not ends:
        return tuple(map(torch.zeros_like, needed))
    given = [weights(x.detach()) for x in ends]
    return tuple(seeded_grad(ends, needed, given, materialize_grads=True))


def _tensors(outputs: Any) -> tuple[Tensor, ...]:
    """Keep only the tensors among a call's outputs: a Function may return other values."""
    several = outputs if isinstance(outputs, tuple | list) else (outputs,)
    return tuple(x for x in several if isinstance(x, Tensor))


def as_reference(found: Any) -> Callable[..., Any]:
    """Return a callable reference: a function as it is, a module in double precision, its class instantiated first."""
    if isinstance(found, type) and issubclass(found, nn.Module):
        found = found()
    return found.double() if isinstance(found, nn.Module) else found


Samples = list[dict[str, Any]]  # calls: the inputs by name


def samples_of(
    function: Callable[[], Any], names: Sequence[str], defaults: tuple[Any, ...]
) -> Samples:
    """Return the calls given by the user's function (`--samples`), each with its inputs by name; raise SamplesError if it gives none.

    It returns a list of calls, or the values of one call. Inputs with a default may be left out: `defaults` has the values of the last ones.
    """

    @wraps(function)
    def calls() -> Any:
        """Return the function's calls, each with the defaults of inputs left out."""
        found = function()
        # One call is a tuple with tensors in it, `(x, 2)`; several are tuples inside, `[(x, 2), (y, 3)]`.
        one = isinstance(found, tuple) and any(isinstance(x, Tensor) for x in found)
        several = [found] if one else found
        return [
            # The last inputs were left out, so they take the last of the defaults.
            (*x, *defaults[-lacks:]) if (lacks := len(names) - len(x)) > 0 else x
            for x in several
        ]

    return [_by_name(call, names) for call in sampled(calls, names)()]


def _by_name(values: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """Name the values of a call: `tensors[0]` and so on for `*tensors`."""
    keys = [name for name in names if not name.startswith("*")]
    # The values left over are those of the variadic input.
    rest = range(len(values) - len(keys))
    keys += [f"{name[1:]}[{n}]" for name in names if name[0] == "*" for n in rest]
    return dict(zip(keys, values, strict=True))


def _take_samples(checks: Any, samples: Samples) -> None:
    """Replace the inputs of all checks by the user's samples: the first is the base case, each other one a case."""

    def make(*, sample: int = 0) -> dict[str, Any]:
        return {name: _detached(value) for name, value in samples[sample].items()}

    checks.TESTS.make = staticmethod(make)
    further = {f"sample {at}": {"sample": at} for at in range(1, len(samples))}
    checks.CASES = {"base": {}, **further}
    checks.EMPTY_CASES, checks.FURTHER_CASES, checks.ATTRIBUTES = {}, {}, {}
    checks.LOOSE = False


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


# --- Search for inputs.


def with_inputs(subjects: Sequence[Subject]) -> tuple[int, Subject | Shapes | Refused]:
    """Return the index of the first subject with accepted inputs, and the subject; or shapes for its inputs; or a Refused.

    The subjects are one Function with its inputs declared in several ways. Inputs that the backward accepts, too, are tried first. Shapes
    are searched for once, or again if some forward ran: in one kind of each dtype (`KINDS[::3]`) that did not make the last search fail.
    """
    reasons, tried = list[str](), tuple[str, ...]()
    began = time.process_time()
    methods = subjects[0].function.forward, subjects[0].function.backward
    codes = (getattr(unwrap(one), "__code__", None) for one in methods)
    words = {name for x in codes for name in getattr(x, "co_names", ())}
    real = subjects[0].asked.declared or words >= OF_REAL  # declared floats are real
    first = COMPLEX * (not real and not OF_COMPLEX.isdisjoint(words))  # by the code
    for backward in (True, False):
        for kind, (at, subject) in product(
            (*first, *KINDS, *COMPLEX), enumerate(subjects)
        ):
            complex_kinds = first or COMPLEX * ("complex" in str(reasons).lower())
            if kind in COMPLEX and not complex_kinds:
                continue
            subject.dtype, subject.inside = kind
            reasons.append(_refusal(subject, backward))
            if not reasons[-1]:
                subject.look()
                return at, subject
        searches = backward or any(x.ran for x in subjects)
        if subjects[0].asked.searched or not searches:  # an earlier search gave shapes
            continue
        undeclared = (None in x.checks.INPUT_SHAPES.values() for x in subjects)
        likely = [*compress(enumerate(subjects), undeclared)][:WAYS]
        for kind, (at, subject) in product((*complex_kinds, *KINDS[::3]), likely):
            no_double = kind == KINDS[0] and "scalar type" in str(tried)
            no_complex = kind in FIRST_COMPLEX and "real input" in str(tried)
            if no_double or no_complex or time.process_time() - began > IN_ALL:
                continue
            subject.dtype, subject.inside = kind
            found = _shapes(subject, backward)
            if isinstance(found, Shapes):
                return at, found
            tried = found.tried if found else ()
    return 0, Refused(reasons[0], tried)


def _refusal(subject: Subject, backward: bool) -> str:
    """Return why a Function refuses its inputs; "" if it accepts them, or if its backward raises for any inputs.

    If it changes a leaf in place, it gets copies of its inputs from now on. `backward`: its backward has to accept them, too.
    """
    inputs = subject.inputs()
    try:
        outputs = subject.call(inputs)
    except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
        # If it gets copies already, the error has another cause.
        if IN_PLACE not in str(error) or subject.dirty == subject.names:
            return raised(error)
        subject.dirty = subject.names
        subject.copy_inputs()
        return _refusal(subject, backward)
    if not all(bool(x.isfinite().all()) for x in outputs):
        return NOT_FINITE
    if not subject.is_stable(inputs):
        return UNSTABLE
    # For no seed of `Subject.cases`: the gradient of a crossed clamp means nothing.
    if backward and any(_crosses(subject, seed) for seed in (0, *SEEDS)):
        return CROSSED
    try:
        backpropagate(outputs, inputs)
    except Exception as error:  # noqa: BLE001 (whatever the user's code raises)
        # With `backward`, other inputs are tried next: unless its code is wrong for any.
        # Without, an error of backward is no refusal, but a fault for the checks to report.
        mended = backward and not any(words in str(error) for words in OF_CODE)
        return raised(error) if mended or MISGUESSED.search(str(error)) else ""
    return _widened(subject, inputs) if backward and subject.checks.LOOSE else ""


def _crosses(subject: Subject, seed: int) -> bool:
    """Return whether a clamp in the forward has its lower limit above its upper one."""
    limits = Limits()
    with limits, suppress(Exception):
        subject.call(subject.inputs(seed))
    return limits.crossed


def _widened(subject: Subject, inputs: Sequence[Any]) -> str:
    """Return words for a gradient with more dims than its input, as if shapes broadcast by accident; "" without one."""
    returned, _ = returned_gradients(subject.checks, inputs)
    # Not strict: backward may return too few gradients, or none; that is for other checks.
    for name, value, one in zip(subject.names, inputs, returned or (), strict=False):
        if needs_gradient(value) and isinstance(one, Tensor) and one.ndim > value.ndim:
            return f"the gradient of {name} has more dims than {name}"
    return ""


# A made-up argument has the wrong type.
MISGUESSED = re.compile(r"'(float|int|bool)' object|'Tensor' object is not callable")
IN_PLACE = "a leaf Variable that requires grad"
OF_CODE = (  # errors of a backward whatever its inputs
    "number of gradients",
    "expected Variable or None",
    "must implement",
    "non-static",
)


def _accept(subject: Subject, backward: bool, *inputs: Any) -> tuple[Tensor, ...]:
    """Call the Function, and its backward if it has to accept the shapes; raise if they are accepted by accident."""
    tensors = [x for x in inputs if isinstance(x, Tensor)]
    # Even the largest input has a dim of size 1, or none: it may broadcast by accident.
    if min(max(tensors, key=Tensor.numel).shape, default=1) == 1:
        raise RuntimeError("of one element, whose gradient has any shape")
    with torch.enable_grad():
        given = [x.detach().requires_grad_() if _is_inexact(x) else x for x in inputs]
        outputs = subject.call(given)
        if backward:
            backpropagate(outputs, given)
            if widened := _widened(subject, given):
                raise RuntimeError(widened)
        if not subject.is_stable(given):
            raise RuntimeError(UNSTABLE)
    return outputs


def _is_inexact(x: Any) -> bool:
    """Return whether a value is a tensor that may have a gradient."""
    return isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())


def _shapes(subject: Subject, backward: bool) -> Shapes | NoShapes | None:
    """Search for shapes of the subject's undeclared inputs; return them, or how far the Function came; None if all are declared.

    `backward`: its backward has to accept them, too. The search needs a module of checks: `seen` is one, with the Function as the forward.
    """

    run = partial(_accept, subject, backward)
    checks = subject.checks
    seen = SimpleNamespace(
        OWN_FORWARD=run,
        FORWARD=None,
        OPERATOR=run,
        NAMES=subject.names,
        INPUT_SHAPES=checks.INPUT_SHAPES,
        make=checks.make,
    )
    return shapes_taken(seen, seconds=SEARCHED, source=subject.asked.source)
