"""Tests of the custom operator nearest_code."""

import copy
import itertools
import pickle
from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from nearest_code import NearestCode, nearest_code

Case = dict[str, Any]
Cases = dict[str, Case]
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
    make: ClassVar[Callable[..., dict[str, Any]]]  # inputs by name, in call order
    reference: ClassVar[Callable[..., Any] | None] = None  # the op in plain PyTorch
    surrogate: ClassVar[Callable[..., Any] | None] = None  # what has the op's gradient
    differentiable: ClassVar[tuple[str, ...]] = ()
    cases: ClassVar[Cases] = {"base": {}}  # arguments of `inputs`
    empty_cases: ClassVar[Cases] = {}  # those that PyTorch may refuse
    broadcast_cases: ClassVar[Cases] = {}  # one input broadcasts; an op may refuse

    has_gradient: ClassVar[bool] = True
    ends: ClassVar[tuple[int, ...]] = ()  # the outputs with a gradient, if not all
    changed_in_place: ClassVar[tuple[str, ...]] = ()
    layouts: ClassVar[tuple[Callable[[Tensor], Tensor], ...]] = (torch.clone, permuted)

    # PyTorch's decorator raises where grad_output itself requires grad.
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

    def test_output_requires_no_grad(self, case: Case) -> None:
        outputs = as_tuple(self.op(*self.inputs(**case)))
        assert not any(output.requires_grad for output in outputs)


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


class TestNearestCode(OpTests):
    op = staticmethod(nearest_code)
    differentiable = ("x", "codes")
    has_gradient = False
    cases: ClassVar[Cases] = {"base": {}, "other-sizes": {"N": 3, "D": 4, "K": 5}}
    empty_cases: ClassVar[Cases] = {"N=0": {"N": 0}, "D=0": {"D": 0}, "K=0": {"K": 0}}

    @staticmethod
    def make(*, N: int = 2, D: int = 3, K: int = 4) -> dict[str, Any]:
        return {
            "x": torch.randn(N, D, dtype=torch.double),
            "codes": torch.randn(K, D, dtype=torch.double),
        }

    @staticmethod
    def reference(x: Tensor, codes: Tensor) -> Tensor:
        """nearest_code in plain PyTorch."""
        return torch.cdist(x, codes).argmin(-1)


class TestNearestCodeModule(ModuleTests):
    op_tests = TestNearestCode
    given = ("x", "codes")

    @staticmethod
    def build() -> NearestCode:
        return NearestCode()
