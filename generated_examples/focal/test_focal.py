"""Tests of the custom operator focal."""

import copy
import gc
import itertools
import pickle
import types
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from focal import FocalLoss, FocalLossFunction, focal

Case = dict[str, Any]
Cases = dict[str, Case]
Options = dict[str, Any]
Inputs = tuple[Any, ...]
WARNINGS = (  # of PyTorch's own, which `pytest -W error` would raise
    ".*should not be instantiated:DeprecationWarning",  # the compiler
    ".*torch.jit.script:DeprecationWarning",  # forward mode, when it is first used
    ".*degrees of freedom is <= 0:UserWarning",  # of a dim of size 0
    ".*not yet implemented the batching rule:UserWarning",  # vmap
    "ComplexHalf support is experimental:UserWarning",
)


def mask(*sizes: int) -> Tensor:
    """A mask that has both values along every dim of two or more."""
    place = torch.zeros(sizes, dtype=torch.long)
    for dim, size in enumerate(sizes, start=1):
        place += torch.randperm(size).reshape(size, *[1] * (len(sizes) - dim))
    return place % 2 == 0


def permuted(tensor: Tensor) -> Tensor:
    """Copy to memory that is neither contiguous nor in the order of the dimensions."""
    order = tuple(reversed(range(tensor.ndim)))
    return torch.stack([tensor.permute(order)] * 2, dim=-1)[..., 0].permute(order)


def is_real(value: Any) -> bool:
    """Whether it is a tensor of real numbers."""
    return isinstance(value, Tensor) and value.is_floating_point()


def as_tuple(outputs: Any) -> tuple[Tensor, ...]:
    """What a call returned, also where that is one tensor."""
    return tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)


def gradients(outputs: Sequence[Tensor], inputs: Inputs) -> tuple[Tensor, ...]:
    """Backpropagate grad_outputs that are not contiguous to the inputs that need it."""
    needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    torch.manual_seed(1)
    grad_outputs = [permuted(torch.randn_like(x.contiguous())) for x in outputs]
    return torch.autograd.grad(outputs, needed, grad_outputs, materialize_grads=True)


class OpTests:
    """Subclass it: say which op it is, and what differs from the defaults."""

    pytestmark: ClassVar = [pytest.mark.filterwarnings(f"ignore:{x}") for x in WARNINGS]

    op: ClassVar[Callable[..., Any]]  # called with every value in its place
    function: ClassVar[type[torch.autograd.Function]]
    make: ClassVar[Callable[..., dict[str, Any]]]  # inputs by name, in call order
    reference: ClassVar[Callable[..., Any] | None] = None  # the op in plain PyTorch
    surrogate: ClassVar[Callable[..., Any] | None] = None  # what has the op's gradient
    stated: ClassVar[Callable[..., Any] | None] = None  # its gradients, by formulas
    kinks: ClassVar[tuple[float, ...]] = ()  # what its gradients compare inputs with
    differentiable: ClassVar[tuple[str, ...]] = ()
    cases: ClassVar[Cases] = {"base": {}}  # arguments of `inputs`
    empty_cases: ClassVar[Cases] = {}  # those that PyTorch may refuse
    broadcast_cases: ClassVar[Cases] = {}  # one input broadcasts; an op may refuse
    refused: ClassVar[Sequence[tuple[Any, ...]]] = ()  # input, its change, the message
    constants: ClassVar[Case] = {}  # other values of attributes, which it may refuse

    takes_means: ClassVar[bool] = False
    has_gradient: ClassVar[bool] = True
    ends: ClassVar[tuple[int, ...]] = ()  # the outputs with a gradient, if not all
    changed_in_place: ClassVar[tuple[str, ...]] = ()
    layouts: ClassVar[tuple[Callable[[Tensor], Tensor], ...]] = (torch.clone, permuted)

    supports_batched_gradcheck: ClassVar[bool] = True
    supports_double_backward: ClassVar[bool] = True
    # PyTorch's decorator raises where grad_output itself requires grad.
    unsupported_of_empty: ClassVar[Sequence[str]] = ()
    gradcheck_options: ClassVar[Options] = {}
    rtol: ClassVar[float | None] = None  # of all other comparisons
    atol: ClassVar[float | None] = None
    autocast: ClassVar[str] = ""  # what the op does there: region or float32

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """The cases, the layouts, and the inputs that a call may need gradients of."""
        if "case" in metafunc.fixturenames:
            names = [*self.cases, *self.empty_cases, *self.broadcast_cases]
            metafunc.parametrize("case", names, indirect=True)
        if "layout" in metafunc.fixturenames:
            metafunc.parametrize("layout", self.layouts)
        if "needs" in metafunc.fixturenames:
            count = len(self.differentiable)
            counts = range(1, count + 1) if count <= 4 else (1, count - 1, count)
            groups = [itertools.combinations(self.differentiable, n) for n in counts]
            metafunc.parametrize("needs", [*itertools.chain(*groups)], ids="+".join)

    @pytest.fixture
    def case(self, request: pytest.FixtureRequest) -> Case:
        """Arguments of `inputs`; a case that may be refused is skipped where it is."""
        if request.param in self.cases:
            return self.cases[request.param]
        arguments = (self.empty_cases | self.broadcast_cases)[request.param]
        inputs = self.inputs(**arguments)
        expected = self.surrogate or self.reference
        try:
            if request.param in self.broadcast_cases:
                self.op(*inputs)
            values = as_tuple((expected or self.op)(*inputs))
            if not values:
                pytest.skip("forward returns nothing")
            if expected and self.has_gradient:
                values += self.expected_gradients(inputs)
        except (ArithmeticError, IndexError, RuntimeError, ValueError) as error:
            pytest.skip(f"refused: {error!r}")
        if not all(value.isfinite().all() for value in values):
            pytest.skip("not finite")
        return arguments

    def inputs(
        self,
        *,
        absent: Collection[str] = (),
        closed: Collection[str] = (),
        single: Collection[str] = (),
        needs: Collection[str] | None = None,
        layout: Callable[[Tensor], Tensor] = torch.clone,
        seed: int = 0,
        **arguments: Any,
    ) -> Inputs:
        """Make the inputs in call order; those in `needs` require grad.

        Masks in `closed` are False all over; those in `single` have a first dim of 1.
        """
        torch.manual_seed(seed)
        needed = self.differentiable if needs is None else needs
        made: dict[str, Any] = self.make(**arguments) | dict.fromkeys(absent)
        for name, value in made.items():
            if isinstance(value, Tensor):
                value = value & False if name in closed else value
                value = value[:1] if name in single else value
                made[name] = layout(value).requires_grad_(name in needed)
        return tuple(made.values())

    def changes(self, name: str) -> bool:
        """Whether the op changes an input in place, perhaps as one of several."""
        return name.partition("[")[0] in self.changed_in_place

    def differentiable_outputs(self, outputs: Any) -> tuple[Tensor, ...]:
        """The outputs that have a gradient."""
        every = as_tuple(outputs)
        return tuple(every[index] for index in self.ends) if self.ends else every

    def run(self, *inputs: Any) -> tuple[Tensor, ...]:
        """The outputs of the op that have a gradient."""
        return self.differentiable_outputs(self.op(*inputs))

    def expected_gradients(self, inputs: Inputs) -> tuple[Tensor, ...]:
        """Those of the reference, some of whose outputs may require no grad."""
        expected = self.surrogate or self.reference
        assert expected is not None
        outputs = self.differentiable_outputs(expected(*inputs))
        attached = [
            y if y.requires_grad else y.detach().requires_grad_() for y in outputs
        ]
        return gradients(attached, inputs)

    def assert_close(self, actual: Any, expected: Any) -> None:
        """Compare as closely as the op computes."""
        assert_close(actual, expected, rtol=self.rtol, atol=self.atol)

    def test_forward_matches_reference(self, case: Case) -> None:
        inputs = self.inputs(**case)
        assert self.reference is not None
        actual = self.op(*inputs)
        self.assert_close(actual, self.reference(*inputs))

    def other_constants(self) -> Iterator[tuple[str, Inputs]]:
        """Inputs with another value of one constant, where the op takes it."""
        usual = as_tuple(self.op(*self.inputs()))
        for name, value in self.constants.items():
            named = dict(zip(self.make(), self.inputs(), strict=True))
            inputs = tuple((named | {name: value}).values())
            try:
                outputs = as_tuple(self.op(*inputs))
            except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
                continue
            shapes = [x.shape for x in outputs]
            finite = all(bool(x.isfinite().all()) for x in outputs)
            if finite and shapes == [x.shape for x in usual]:
                yield name, inputs

    def test_other_constants(self) -> None:
        """Those of the other tests may stand in the code of the op."""
        for _, inputs in self.other_constants():
            if self.reference:
                expected = self.reference(*inputs)
                self.assert_close(self.op(*inputs), expected)
            if self.has_gradient:
                wanted = self.expected_gradients(inputs)
                if all(x.isfinite().all() for x in wanted):
                    self.assert_close(gradients(self.run(*inputs), inputs), wanted)

    def test_means_of_large_numbers(self) -> None:
        """They are within float16 where the sums are not."""
        assert self.reference is not None
        for size in (200, 30000):
            for at in self.argnums(self.inputs()):
                inputs = [x.half() if is_real(x) else x for x in self.inputs(needs=())]
                inputs[at] = size * (1 + inputs[at] / 100)
                try:
                    expected = as_tuple(self.reference(*inputs))
                except (RuntimeError, TypeError, ValueError) as error:
                    pytest.skip(f"not in float16: {error!r}")
                actual = as_tuple(self.op(*inputs))
                for one, other in zip(actual, expected, strict=True):
                    finite = other.isfinite()
                    assert_close(one[finite], other[finite], rtol=0.1, atol=0.1)

    def test_other_shapes_are_refused(self) -> None:
        """Backward is written for the declared shapes."""
        names = list(self.make())
        for name, change, *message in self.refused:
            wrong = [*self.inputs()]
            wrong[names.index(name)] = change(wrong[names.index(name)])
            with pytest.raises(ValueError, match="^" + (message or [rf"{name}\["])[0]):
                self.op(*wrong)

    def test_gradcheck(self, case: Case, layout: Callable[[Tensor], Tensor]) -> None:
        inputs = self.inputs(**case, layout=layout)
        empty = case in self.empty_cases.values()
        unsupported = self.unsupported_of_empty if empty else ()
        options = self.gradcheck_options
        batched = (
            self.supports_batched_gradcheck and "batched_gradcheck" not in unsupported
        )
        assert gradcheck(
            self.run,
            inputs,
            check_batched_grad=batched,
            check_grad_dtypes=True,
            **options,
        )
        if self.supports_double_backward and "double_backward" not in unsupported:
            assert gradgradcheck(self.run, inputs, **options)

    def test_gradients_match_reference(
        self, case: Case, layout: Callable[[Tensor], Tensor]
    ) -> None:
        inputs = self.inputs(**case, layout=layout)
        expected = self.expected_gradients(inputs)
        self.assert_close(gradients(self.run(*inputs), inputs), expected)

    def stated_gradients(self, inputs: Inputs) -> tuple[Tensor, ...]:
        """What the formulas give for the grad_output of `gradients`."""
        (output,) = self.run(*inputs)
        torch.manual_seed(1)
        grad_output = permuted(torch.randn_like(output.contiguous()))
        values = [x.detach() if isinstance(x, Tensor) else x for x in inputs]
        assert self.stated is not None
        needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
        pairs = zip(self.stated(*values, grad_output), needed, strict=True)
        return tuple(gradient.sum_to_size(x.shape) for gradient, x in pairs)

    def test_gradients_at_kinks(self) -> None:
        """Of inputs that are what they are compared with `>` is not `>=`."""
        for at in self.argnums(self.inputs()):
            values = self.inputs()
            shape = values[at].shape
            others = [x for x in values if isinstance(x, Tensor) and x.shape == shape]
            others.pop([x is values[at] for x in others].index(True))
            points: list[Any] = [*self.kinks, *(x.detach() for x in others)]
            for value in points:
                inputs = self.inputs()
                some = torch.arange(shape.numel()).reshape(shape) % 2 == 0
                with torch.no_grad():
                    mixed = torch.where(some.to(inputs[at].device), value, inputs[at])
                    inputs[at].copy_(mixed)
                stated = self.stated_gradients if self.stated else None
                expected = (stated or self.expected_gradients)(inputs)
                if all(x.isfinite().all() for x in expected):
                    self.assert_close(gradients(self.run(*inputs), inputs), expected)

    def test_recorded_gradients(self) -> None:
        """A backward that autograd records may go another way: it gives the same."""
        inputs = self.inputs()
        needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
        outputs = self.differentiable_outputs(self.op(*inputs))
        weights = [torch.randn_like(x) for x in outputs]
        found = (
            torch.autograd.grad(
                outputs,
                needed,
                weights,
                retain_graph=True,
                create_graph=recorded,
                materialize_grads=True,
            )
            for recorded in (False, True)
        )
        self.assert_close(*found)

    def test_backward_contract(self, case: Case, needs: tuple[str, ...]) -> None:
        """Exact shape and dtype where a gradient is needed, None elsewhere.

        Autograd sums a gradient that is too large: gradcheck cannot see a missing sum.
        """
        inputs = self.inputs(**case, needs=needs, layout=self.layouts[-1])
        if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
            return  # the input that is needed is absent
        self.check_contract(inputs)

    def test_dtype_of_gradients(self) -> None:
        """Autograd casts a gradient of another dtype."""
        inputs = self.rounded(torch.bfloat16)
        try:
            if all(x.dtype == torch.bfloat16 for x in self.run(*inputs)):
                self.check_contract(inputs)
        except (RuntimeError, TypeError, ValueError) as error:
            pytest.skip(f"not in bfloat16: {error!r}")

    def check_contract(self, inputs: Inputs) -> None:
        """Look at what `backward` itself gives: autograd sums and casts it."""
        function: Any = self.function
        returned: list[tuple[Any, ...]] = []

        def backward(ctx: Any, *grad_outputs: Any) -> Any:
            found = function.backward(ctx, *grad_outputs)
            returned.append(found if isinstance(found, tuple) else (found,))
            return found

        methods = {"backward": staticmethod(backward)}
        recorder: Any = type("Recorder", (function,), methods)
        declared = len(as_tuple(self.op(*inputs)))
        outputs = as_tuple(recorder.apply(*inputs))[:declared]
        gradients(self.differentiable_outputs(outputs), inputs)
        for at, (value, gradient) in enumerate(zip(inputs, returned[-1], strict=True)):
            needed = isinstance(value, Tensor) and value.requires_grad
            wanted = (value.shape, value.dtype) if needed else None
            found = None if gradient is None else (gradient.shape, gradient.dtype)
            assert found == wanted, f"gradient {at} is {found}, not {wanted}"

    def test_saves_what_backward_needs(self) -> None:
        """Backward reads each in some call; no tensor is an attribute of ctx."""
        cases = [x for x in self.cases.values() if "absent" not in x]
        calls = [self.inputs(**case) for case in cases]
        calls += [inputs for _, inputs in self.other_constants()]
        unread = set.intersection(*map(self.unread, calls))
        assert not unread, f"tensors that are saved for nothing: {sorted(unread)}"

    def unread(self, inputs: Inputs) -> set[tuple[int, int]]:
        """The places, of so many, of the saved tensors that backward does not read."""
        function: Any = self.function
        read, placed, held = set[type](), dict[tuple[int, int], Any](), list[str]()

        def noted(_: Any, func: Any, kinds: Any, args: Any, kwargs: Any = None) -> Any:
            read.update(kinds, map(type, args))  # `==` tells of its first alone
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))

        def backward(ctx: Any, *grad_outputs: Any) -> Any:
            held.extend(
                name
                for name, value in vars(ctx).items()
                if any(isinstance(x, Tensor) for x in as_tuple(value))
            )
            saved = [*ctx.saved_tensors]
            for at, x in enumerate(saved):
                if x is not None:
                    kind = {"__torch_function__": classmethod(noted)}
                    placed[len(saved), at] = type("Saved", (Tensor,), kind)
                    saved[at] = x.as_subclass(placed[len(saved), at])
            known = vars(ctx) | {"needs_input_grad": ctx.needs_input_grad}
            watched = types.SimpleNamespace(saved_tensors=tuple(saved), **known)
            return function.backward(watched, *grad_outputs)

        methods = {"backward": staticmethod(backward)}
        recorder: Any = type("Recorder", (function,), methods)
        declared = len(as_tuple(self.op(*inputs)))
        outputs = as_tuple(recorder.apply(*inputs))[:declared]
        gradients(self.differentiable_outputs(outputs), inputs)
        assert not held, f"ctx.{held[0]}: a tensor goes into save_for_backward"
        return {place for place, kind in placed.items() if kind not in read}

    def test_output_is_freed_without_gc(self) -> None:
        """An output on ctx would make a reference cycle."""
        gc.disable()
        try:
            outputs = as_tuple(self.op(*self.inputs()))
            alive = [weakref.ref(output) for output in outputs]
            del outputs
            assert all(output() is None for output in alive)
        finally:
            gc.enable()

    def test_input_changed_after_forward(self) -> None:
        """Backward refuses or gives the old gradient; a tensor on ctx does neither."""
        for position, name in enumerate(self.make()):
            if not self.changes(name):
                self.check_changed(lambda inputs, _, at=position: inputs[at])

    def check_changed(self, pick: Callable[..., Any]) -> None:
        """Change a tensor, picked of inputs and outputs, between the passes."""
        inputs = self.inputs()
        expected = gradients(self.run(*inputs), inputs)
        outputs = as_tuple(self.op(*inputs))
        changed = pick(inputs, outputs)
        if not isinstance(changed, Tensor):
            return
        with torch.no_grad():
            changed.copy_(changed == 0)
        try:
            actual = gradients(self.differentiable_outputs(outputs), inputs)
        except RuntimeError as error:
            assert "inplace" in str(error)
        else:
            self.assert_close(actual, expected)

    def loss(self, *inputs: Any) -> Tensor:
        """One number that depends on every output that has a gradient."""
        return torch.stack([x.abs().square().sum() for x in self.run(*inputs)]).sum()

    def argnums(self, inputs: Inputs) -> tuple[int, ...]:
        """The positions of the differentiable inputs."""
        named = zip(self.make(), inputs, strict=True)
        known = [k in self.differentiable and isinstance(x, Tensor) for k, x in named]
        return tuple(at for at, asked in enumerate(known) if asked)

    def test_vmap_of_grad(self) -> None:
        """Over the first dim, and over the last: a vmap rule has to heed in_dims."""
        samples = [self.inputs(needs=(), seed=seed) for seed in range(3)]
        gradient = torch.func.grad(self.loss, argnums=self.argnums(samples[0]))
        expected = zip(*(gradient(*sample) for sample in samples), strict=True)
        stacked = tuple(torch.stack(values) for values in expected)
        columns = [*zip(*samples, strict=True)]
        for dim in (0, -1):
            in_dims = tuple(dim if isinstance(x, Tensor) else None for x in samples[0])
            batch = [
                torch.stack(x, dim) if isinstance(x[0], Tensor) else x[0]
                for x in columns
            ]
            mapped = torch.func.vmap(gradient, in_dims, randomness="same")
            self.assert_close(mapped(*batch), stacked)

    def test_jacrev(self) -> None:
        def flat(*inputs: Any) -> Tensor:
            return torch.cat([output.flatten() for output in self.run(*inputs)])

        inputs = self.inputs()
        argnums = self.argnums(inputs)
        needed = [inputs[position] for position in argnums]
        rows = [
            torch.autograd.grad(y, needed, retain_graph=True) for y in flat(*inputs)
        ]
        actual = torch.func.jacrev(flat, argnums=argnums)(*inputs)
        expected = tuple(torch.stack(values) for values in zip(*rows, strict=True))
        self.assert_close(actual, expected)

    def test_compile(self) -> None:
        inputs = self.inputs()
        op = self.op
        compiled = torch.compile(op, fullgraph=True, backend="aot_eager")
        actual, expected = compiled(*inputs), op(*inputs)
        self.assert_close(actual, expected)
        found = gradients(self.differentiable_outputs(actual), inputs)
        ends = self.differentiable_outputs(expected)
        self.assert_close(found, gradients(ends, inputs))

    def rounded(self, *dtypes: torch.dtype, **arguments: Any) -> Inputs:
        """Inputs of these dtypes in turn, with no more digits than bfloat16 has."""
        inputs, turns = [*self.inputs(**arguments)], itertools.cycle(dtypes)
        for at, (x, dtype) in enumerate(zip(inputs, turns, strict=False)):
            if isinstance(x, Tensor) and x.is_floating_point():
                values = x.detach().bfloat16().to(dtype)
                inputs[at] = values.requires_grad_(x.requires_grad)
        return tuple(inputs)

    def rounded_gradients(
        self, outputs: Sequence[Tensor], inputs: Inputs
    ) -> tuple[Tensor, ...]:
        """The gradients of a loss in float64."""
        needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
        torch.manual_seed(1)
        weights = [torch.randn(x.shape).bfloat16().to(x.device) for x in outputs]
        pairs = zip(outputs, weights, strict=True)
        loss = torch.stack([(x.double() * weight).sum() for x, weight in pairs]).sum()
        return torch.autograd.grad(loss, needed, materialize_grads=True)

    def less_exact(
        self, results: Iterable[tuple[Tensor, Tensor, Tensor]], low: torch.dtype
    ) -> dict[int, str]:
        """Which err over three times as much as plain PyTorch, and some roundings."""
        least = 16 * torch.finfo(torch.float).eps  # of what is zero but for roundings
        low_eps = 8 * torch.finfo(low).eps
        found = {}
        for at, (one, other, right) in enumerate(results):
            fits = bool((right.abs() < torch.finfo(low).max).all())
            if right.numel() and fits and other.isfinite().all():
                error = (other.double() - right).abs().max()
                size = right.abs().max()
                roundings = least + low_eps * (size if size > least else 1)
                off, allowed = (one.double() - right).abs().max(), 3 * error + roundings
                if not off <= allowed:
                    found[at] = f"off by {off:.2g}, not {allowed:.2g}"
        return found

    def less_exact_under_autocast(
        self, low: torch.dtype, dtypes: Sequence[torch.dtype], case: Case
    ) -> dict[int, str]:
        """Which outputs and gradients, than those of plain PyTorch."""
        expected = self.surrogate or self.reference
        assert expected is not None
        function = expected
        inputs = self.rounded(*dtypes, **case)
        doubles = self.rounded(torch.double, **case)
        right = self.differentiable_outputs(function(*doubles))
        with torch.autocast("cpu", dtype=low):
            try:
                plain = self.differentiable_outputs(function(*inputs))
            except (AssertionError, RuntimeError, TypeError, ValueError) as error:
                pytest.skip(f"plain PyTorch raises: {error}")
            actual = self.run(*inputs)
        results = [] if self.surrogate else [*zip(actual, plain, right, strict=True)]
        try:
            wanted = self.rounded_gradients(plain, inputs)
            exact = self.rounded_gradients(right, doubles)
        except RuntimeError:  # plain PyTorch has no such derivative
            return self.less_exact(results, low)
        found = self.rounded_gradients(actual, inputs)
        results += zip(found, wanted, exact, strict=True)
        return self.less_exact(results, low)

    @pytest.mark.parametrize("low", [torch.bfloat16, torch.float16], ids=str)
    def test_autocast(self, low: torch.dtype) -> None:
        """Outputs and gradients are as exact as those of plain PyTorch."""
        cases = [x for x in self.cases.values() if {*x} <= {"absent", "sample"}]
        dtypes = [(torch.float,), (low,), (low, torch.float)]
        for case, given in itertools.product(cases, dtypes):
            off = self.less_exact_under_autocast(low, given, case)
            for seed in (1, 2) if off else ():  # PyTorch's error may be small by luck
                again = self.less_exact_under_autocast(
                    low, given, case | {"seed": seed}
                )
                off = {at: words for at, words in off.items() if at in again}
            assert not off, f"{case} of {given}: {off}"

    def test_autocast_dtype(self) -> None:
        """Outputs have the dtype that the op says it computes in there."""
        low, function = torch.bfloat16, (self.reference or self.op)
        for dtypes in ((torch.float,), (low,), (low, torch.float)):
            inputs = self.rounded(*dtypes)
            with torch.autocast("cpu", dtype=low):
                try:
                    expected = as_tuple(function(*inputs))
                except (AssertionError, RuntimeError, TypeError, ValueError) as error:
                    pytest.skip(f"plain PyTorch raises: {error!r}")
                actual = as_tuple(self.op(*inputs))
            if self.autocast == "float32":
                expected = as_tuple(function(*self.rounded(torch.float)))
            assert [x.dtype for x in actual] == [x.dtype for x in expected]


class ModuleTests:
    """Subclass it: say how the module is built, and what it owns of the op's inputs."""

    op_tests: ClassVar[type[OpTests]]
    build: ClassVar[Callable[..., nn.Module]]
    owned: ClassVar[tuple[str, ...]] = ()  # inputs that are parameters or buffers
    optional: ClassVar[tuple[str, ...]] = ()  # those that the constructor can leave out
    attributes: ClassVar[tuple[str, ...]] = ()  # what a copy has beside those
    given: ClassVar[tuple[str, ...]] = ()  # inputs of a call
    given_by_keyword: ClassVar[tuple[str, ...]] = ()
    updated: ClassVar[tuple[str, ...]] = ()  # buffers that a call in training changes
    constants: ClassVar[tuple[str, ...]] = ()  # arguments of `build` and of the op

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """With and without each input that is optional."""
        if "options" in metafunc.fixturenames:
            switches = itertools.product([True, False], repeat=len(self.optional))
            options = [dict(zip(self.optional, s, strict=True)) for s in switches]
            named = [" ".join(f"{k}={v}" for k, v in each.items()) for each in options]
            ids = [name or "default" for name in named]
            metafunc.parametrize("options", options, ids=ids)

    def inputs(self) -> dict[str, Any]:
        """Those of the op, by name, and copies of what it changes in place."""
        tests = self.op_tests()
        named = dict(zip(tests.make(), tests.inputs(), strict=True))
        return {k: v.clone() if tests.changes(k) else v for k, v in named.items()}

    def call(self, module: nn.Module, inputs: dict[str, Any]) -> Any:
        """What the module gives for the inputs that it does not own."""
        given = [v for k, v in inputs.items() if k.partition("[")[0] in self.given]
        named = {name: inputs[name] for name in self.given_by_keyword}
        return module(*given, **named)

    def test_module_copies(self, options: dict[str, bool]) -> None:
        module = self.build(**options)
        loaded = self.build(**options)
        loaded.load_state_dict(module.state_dict())
        copies = (loaded, copy.deepcopy(module), pickle.loads(pickle.dumps(module)))
        for copied in copies:
            assert_close(copied.state_dict(), module.state_dict())
            for name in self.attributes:
                assert getattr(copied, name) == getattr(module, name)

    def test_module_calls_op(self, options: dict[str, bool]) -> None:
        self.check_call(self.build(**options))

    def test_module_passes_constants(self) -> None:
        """With other values than those that the op has without them."""
        tests = self.op_tests()
        for name, _ in tests.other_constants():
            if name in self.constants:
                value = {name: tests.constants[name]}
                self.check_call(self.build(**value), **value)

    def check_call(self, module: nn.Module, **constants: Any) -> None:
        """The module gives what the op gives for its tensors and these constants."""
        tests, inputs = self.op_tests(), self.inputs()
        module.train(not self.updated)
        state = {name: inputs[name] for name in self.owned}
        module.load_state_dict(state, strict=not self.optional)
        owned = {name: getattr(module, name) for name in self.owned}
        operands = self.inputs() | owned | constants
        expected = tests.op(*operands.values())
        tests.assert_close(self.call(module, inputs), expected)


class TestFocalLoss(OpTests):
    op = staticmethod(focal)
    function = FocalLossFunction
    differentiable = ("logits",)
    takes_means = True
    kinks = (-2.0, 0.0, 2.0)
    autocast = "region"
    constants: ClassVar[Case] = {"gamma": 1.0}
    refused = (("target", lambda target: torch.cat([target] * 2, dim=-1)),)
    cases: ClassVar[Cases] = {"base": {}, "other-sizes": {"N": 3, "C": 4}}
    empty_cases: ClassVar[Cases] = {
        "closed-target": {"closed": ["target"]},
        "N=0": {"N": 0},
        "C=0": {"C": 0},
    }

    @staticmethod
    def make(*, N: int = 2, C: int = 3) -> dict[str, Any]:
        return {
            "logits": torch.randn(N, C, dtype=torch.double),
            "target": mask(N, C),
            "gamma": 2.0,
        }

    @staticmethod
    def reference(logits: Tensor, target: Tensor, gamma: float) -> Tensor:
        """focal in plain PyTorch."""
        margin = torch.where(target, logits, -logits)
        weight = torch.sigmoid(-margin) ** gamma
        return -(weight * F.logsigmoid(margin)).mean()


class TestFocalLossModule(ModuleTests):
    op_tests = TestFocalLoss
    attributes = ("gamma",)
    given = ("logits", "target")
    constants = ("gamma",)

    @staticmethod
    def build(*, gamma: float = 2.0) -> FocalLoss:
        return FocalLoss(gamma=gamma)
