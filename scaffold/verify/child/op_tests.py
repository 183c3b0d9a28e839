"""The class of an op's tests in a proof: inputs, calls and gradients, without pytest and its cost.

The module of checks has a class like that of the op's test file, but it derives from `OpTests` here, and calls these functions to make its
`make`, `gradients` and the rest. In: that class. Out: functions of inputs in call order.
Words: `tests` is the class, whose attributes state facts of the op; names of inputs are those of `tests.make()`, with `tensors[0]`,
`tensors[1]` for a variadic `*tensors`.
Invariant: inputs, calls and grad_outputs are those of `OpTests` in `op_testing.py`.
"""

from collections.abc import Callable, Collection, Sequence
from functools import wraps
from itertools import chain, combinations, repeat
from typing import Any

import torch
from torch import Tensor

from scaffold.verify.child.fast_torch import seed_generator, seeded_grad

Case = dict[str, Any]
Cases = dict[str, Case]
Options = dict[str, Any]
ALL_SUBSETS = 4  # number of inputs up to which every subset of them may need gradients


def permuted(tensor: Tensor) -> Tensor:
    """Return a copy in memory that is neither contiguous nor in the order of the dims."""
    order = tuple(reversed(range(tensor.ndim)))
    return torch.stack([tensor.permute(order)] * 2, dim=-1)[..., 0].permute(order)


class OpTests:
    """The properties of an op's tests, with their defaults; `op_testing.py.jinja` explains each."""

    op: Callable[..., Any]
    function: Any = None
    registered: Any = None
    sharding: Callable[..., Any] | None = None
    make: Callable[..., dict[str, Any]]
    reference: Callable[..., Any] | None = None
    surrogate: Callable[..., Any] | None = None
    differentiable: tuple[str, ...] = ()
    cases: Cases = {"base": {}}  # noqa: RUF012 (as in the test)
    empty_cases: Cases = {}  # noqa: RUF012
    has_gradient = True
    ends: tuple[int, ...] = ()
    enlarged: tuple[str, ...] = ()
    changed_in_place: tuple[str, ...] = ()
    random = False
    supports_gradcheck = True
    supports_double_backward = True
    decorated_once = False
    supports_vmap = True
    autocast = ""
    unsupported_of_empty: tuple[str, ...] = ()


def needs_of(tests: type[OpTests]) -> list[tuple[str, ...]]:
    """Return the sets of inputs for which a call may need gradients: all subsets of a few; of many each alone, all but one, and all."""
    names = tests.differentiable
    few = len(names) <= ALL_SUBSETS
    counts = range(1, len(names) + 1) if few else (1, len(names) - 1, len(names))
    return [group for count in counts for group in combinations(names, count)]


def making(tests: type[OpTests]) -> Callable[..., tuple[Any, ...]]:
    """Return the function to make the inputs of a call, from the `make` of the tests.

    Of its arguments `needs` names inputs requiring grad, `absent` those to be None, `closed` masks to be all False; `layout` copies a tensor.
    """

    @wraps(tests.make)
    def make(
        *,
        absent: Collection[str] = (),
        closed: Collection[str] = (),
        needs: Collection[str] = tests.differentiable,
        layout: Callable[[Tensor], Tensor] = torch.clone,
        seed: int = 0,
        **arguments: Any,
    ) -> tuple[Any, ...]:
        """Return the inputs in call order, drawn from the seed; only those in `needs` require grad."""
        seed_generator(seed)
        made = tests.make(**arguments) | dict.fromkeys(absent)
        # By default each tensor of `*tensors` requires grad, however many there are.
        stems = _stems(needs) if tuple(needs) == tests.differentiable else ()
        for name, value in made.items():
            if isinstance(value, Tensor):
                value = value & False if name in closed else value
                needed = name in needs or name.partition("[")[0] in stems
                made[name] = layout(value).requires_grad_(needed)
        return tuple(made.values())

    return make


def _stems(names: Collection[str]) -> frozenset[str]:
    """Return the inputs to which tensors belong: `tensors` for `tensors[0]` and `tensors[1]`."""
    return frozenset(name.partition("[")[0] for name in names)


def on_copy(tests: type[OpTests], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with no effect on its inputs: it gets copies of the ones the op changes in place."""
    if not tests.changed_in_place:
        return function
    names = tests.make()
    changed = [name.partition("[")[0] in tests.changed_in_place for name in names]

    def call(*inputs: Any) -> Any:
        # Of `*tensors`, the last input, a call may have more than `names`: the last name's answer is theirs.
        pairs = zip(inputs, chain(changed, repeat(changed[-1])), strict=False)
        return function(*(x.clone() if copied else x for x, copied in pairs))

    return call


def prepared(tests: type[OpTests], function: Callable[..., Any] | None) -> Any:
    """Return the function such that it changes none of its inputs, and draws the same random numbers in every call; None for None, a reference that an op lacks."""
    if function is None:
        return None
    called = on_copy(tests, function)
    if not tests.random:
        return called

    def seeded(*inputs: Any) -> Any:
        """Seed the generator, then call the function."""
        seed_generator(2)
        return called(*inputs)

    return seeded


def backpropagating(
    tests: type[OpTests], attached: bool
) -> Callable[..., tuple[Tensor, ...]]:
    """Return a function for gradients of a call's outputs, with random grad_outputs, the same in every call.

    `attached`: an output that depends on no input is a leaf in its place, so that autograd does not refuse it. `laid` copies each grad_output
    to a memory layout.
    """

    def gradients(
        outputs: Any, inputs: Sequence[Any], laid: Callable[[Tensor], Tensor] = permuted
    ) -> tuple[Tensor, ...]:
        """Return the gradients of a call's outputs, or of the one tensor, by the inputs requiring grad."""
        needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
        several = outputs if isinstance(outputs, tuple) else (outputs,)
        # No `ends`: all outputs have a gradient.
        ends = [several[index] for index in tests.ends] if tests.ends else [*several]
        if attached:
            ends = [
                end if end.requires_grad else end.detach().requires_grad_()
                for end in ends
            ]
        seed_generator(1)
        # The numbers drawn depend on the layout, so all ends have the same one.
        weights = [laid(torch.randn_like(end.contiguous())) for end in ends]
        found: tuple[Tensor, ...] = seeded_grad(
            ends, needed, weights, materialize_grads=True
        )
        return found

    return gradients


def recording(
    tests: type[OpTests], declared: int | None, single: bool
) -> Callable[[Any, tuple[Any, ...]], Any]:
    """Return a function to call a subclass of the Function, and keep only the first `declared` outputs.

    A proof records what backward returns in such a subclass (`derivatives.returned_gradients`). The Function may return more, for its
    backward; None: it does not. `single`: the one declared output is returned as a tensor, not a tuple.
    """

    def call_recorder(recorder: Any, inputs: tuple[Any, ...]) -> Any:
        """Call a subclass of the Function, and return its declared outputs."""
        outputs = on_copy(tests, recorder.apply)(*inputs)
        if declared is None:
            return outputs
        return outputs[0] if single else outputs[:declared]

    return call_recorder
