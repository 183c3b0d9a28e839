"""Tests of the custom operator rms_norm_registered."""

import copy
import gc
import itertools
import pickle
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from rms_norm_registered import (
    RMSNormRegistered,
    rms_norm_registered,
    rms_norm_registered_op,
)

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


def permuted(tensor: Tensor) -> Tensor:
    """Copy to memory that is neither contiguous nor in the order of the dimensions."""
    order = tuple(reversed(range(tensor.ndim)))
    return torch.stack([tensor.permute(order)] * 2, dim=-1)[..., 0].permute(order)


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
    registered: ClassVar[Any] = None  # what torch.library.custom_op made, if it did
    listed_from: ClassVar[int | None] = (
        None  # its last input is a list of all from there
    )
    make: ClassVar[Callable[..., dict[str, Any]]]  # inputs by name, in call order
    reference: ClassVar[Callable[..., Any] | None] = None  # the op in plain PyTorch
    surrogate: ClassVar[Callable[..., Any] | None] = None  # what has the op's gradient
    differentiable: ClassVar[tuple[str, ...]] = ()
    cases: ClassVar[Cases] = {"base": {}}  # arguments of `inputs`
    empty_cases: ClassVar[Cases] = {}  # those that PyTorch may refuse
    broadcast_cases: ClassVar[Cases] = {}  # one input broadcasts; an op may refuse
    refused: ClassVar[Sequence[tuple[Any, ...]]] = ()  # input, its change, the message
    constants: ClassVar[Case] = {}  # other values of attributes, which it may refuse

    has_gradient: ClassVar[bool] = True
    ends: ClassVar[tuple[int, ...]] = ()  # the outputs with a gradient, if not all
    changed_in_place: ClassVar[tuple[str, ...]] = ()
    random: ClassVar[bool] = False
    layouts: ClassVar[tuple[Callable[[Tensor], Tensor], ...]] = (torch.clone, permuted)

    supports_batched_gradcheck: ClassVar[bool] = True
    supports_double_backward: ClassVar[bool] = True
    # PyTorch's decorator raises where grad_output itself requires grad.
    decorated_once: ClassVar[bool] = False
    unsupported_of_empty: ClassVar[Sequence[str]] = ()
    supports_vmap: ClassVar[bool] = True
    supports_jacrev: ClassVar[bool] = True
    gradcheck_options: ClassVar[Options] = {}
    rtol: ClassVar[float | None] = None  # of all other comparisons
    atol: ClassVar[float | None] = None

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

    def test_differentiable_once(self) -> None:
        inputs = self.inputs()
        output = self.run(*inputs)[0]
        first = next(x for x in inputs if isinstance(x, Tensor) and x.requires_grad)
        grad_output = torch.ones_like(output, requires_grad=self.decorated_once)
        with pytest.raises(
            RuntimeError, match=r"differentiable once|differentiate twice"
        ):
            gradient: Any = torch.autograd.grad(
                output, first, grad_output, create_graph=True
            )[0]
            gradient.abs().sum().backward()

    def test_registered_backward_contract(
        self, case: Case, needs: tuple[str, ...]
    ) -> None:
        """Exact shape and dtype where a gradient is needed, None elsewhere.

        Autograd sums a gradient that is too large: gradcheck cannot see a missing sum.
        """
        inputs = self.inputs(**case, needs=needs, layout=self.layouts[-1])
        if any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
            self.check_registered_contract(inputs)

    def check_registered_contract(self, inputs: Inputs) -> None:
        """Look at what the backward that is registered gives."""
        own = self.registered._backward_fn
        returned: list[tuple[Any, ...]] = []

        def backward(ctx: Any, *grad_outputs: Any) -> Any:
            found = own(ctx, *grad_outputs)
            returned.append(found if isinstance(found, tuple) else (found,))
            return found

        outputs = self.run(*inputs)
        self.registered._backward_fn = backward
        try:
            gradients(outputs, inputs)
        finally:
            self.registered._backward_fn = own
        found = [
            x
            for item in returned[-1]
            for x in (item if isinstance(item, list) else [item])
        ]
        for at, (value, gradient) in enumerate(zip(inputs, found, strict=True)):
            needed = isinstance(value, Tensor) and value.requires_grad
            wanted = (value.shape, value.dtype) if needed else None
            given = None if gradient is None else (gradient.shape, gradient.dtype)
            assert given == wanted, f"gradient {at} is {given}, not {wanted}"

    def test_opcheck(self, case: Case, layout: Callable[[Tensor], Tensor]) -> None:
        """The schema holds, the fake has the shapes of the outputs, tracing agrees."""
        inputs = self.inputs(**case, layout=layout)
        if self.listed_from is not None:
            inputs = (*inputs[: self.listed_from], [*inputs[self.listed_from :]])
        asked = [
            "schema",
            "autograd_registration",
            "faketensor",
            "aot_dispatch_dynamic",
        ]
        # The last compares values: not random ones, nor NaN, which equals nothing.
        same = all(y.isfinite().all() for y in as_tuple(self.registered(*inputs)))
        compared = same and not self.random
        tests = tuple(f"test_{name}" for name in asked[: 4 if compared else 3])
        tolerances: dict[str, Any] = {}  # an argument that PyTorch 2.6 lacks
        if self.atol is not None or self.rtol is not None:
            tolerances = {"atol": self.atol, "rtol": self.rtol}
        torch.library.opcheck(self.registered, inputs, test_utils=tests, **tolerances)

    def test_vmap(self) -> None:
        """A batch gives what its samples do, and so do its gradients."""
        samples = [self.inputs(seed=seed) for seed in range(3)]
        in_dims = tuple(0 if isinstance(x, Tensor) else None for x in samples[0])
        columns = zip(*samples, strict=True)
        batch = [torch.stack(x) if isinstance(x[0], Tensor) else x[0] for x in columns]
        mapped = torch.func.vmap(self.op, in_dims)(*batch)
        each = zip(*(as_tuple(self.op(*sample)) for sample in samples), strict=True)
        expected = tuple(torch.stack(values) for values in each)
        self.assert_close(as_tuple(mapped), expected)
        if self.has_gradient:
            every = tuple(itertools.chain(*samples))
            found = gradients(self.differentiable_outputs(mapped), every)
            ends = self.differentiable_outputs(expected)
            self.assert_close(found, gradients(ends, every))

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

    def test_output_changed_after_forward(self) -> None:
        """The same of an output that has no gradient."""
        outputs = as_tuple(self.op(*self.inputs()))
        for position in set(range(len(outputs))) - set(self.ends):
            self.check_changed(lambda _, outputs, at=position: outputs[at])

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

    def test_compile(self) -> None:
        inputs = self.inputs()
        op = self.op
        compiled = torch.compile(op, fullgraph=True, backend="aot_eager")
        actual, expected = compiled(*inputs), op(*inputs)
        self.assert_close(actual, expected)
        found = gradients(self.differentiable_outputs(actual), inputs)
        ends = self.differentiable_outputs(expected)
        self.assert_close(found, gradients(ends, inputs))


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

    def test_module_on_meta(self) -> None:
        tensors = self.build(device="meta").state_dict().values()
        assert tensors and all(tensor.is_meta for tensor in tensors)

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


class TestRMSNormRegistered(OpTests):
    op = staticmethod(rms_norm_registered)
    registered = rms_norm_registered_op
    differentiable = ("x", "weight")
    ends = (0,)
    supports_batched_gradcheck = False
    supports_double_backward = False
    supports_vmap = False
    supports_jacrev = False
    refused = (("weight", lambda weight: torch.cat([weight] * 2, dim=-1)),)
    cases: ClassVar[Cases] = {
        "base": {},
        "higher-rank": {"batch": (2, 4)},
        "no-batch": {"batch": ()},
        "other-sizes": {"D": 4},
    }
    empty_cases: ClassVar[Cases] = {"empty-batch": {"batch": (0,)}, "D=0": {"D": 0}}

    @staticmethod
    def make(*, batch: tuple[int, ...] = (2,), D: int = 3) -> dict[str, Any]:
        return {
            "x": torch.randn(*batch, D, dtype=torch.double),
            "weight": torch.randn(D, dtype=torch.double),
            "eps": 1e-6,
        }


class TestRMSNormRegisteredModule(ModuleTests):
    op_tests = TestRMSNormRegistered
    owned = ("weight",)
    attributes = ("eps",)
    given = ("x",)
    constants = ("eps",)

    @staticmethod
    def build(*, eps: float = 1e-6, **options: Any) -> RMSNormRegistered:
        return RMSNormRegistered(D=3, eps=eps, dtype=torch.double, **options)
