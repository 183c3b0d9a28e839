"""The facts of the table are what torch says of each primitive on its samples."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    FakeTensorMode,
    UnsupportedFakeTensorException,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from scaffold.derive.graph.op import Kind, Named, Op, Program
from scaffold.derive.graph.shape_rules import MADE, made_shape, shape_said
from scaffold.derive.graph.shapes import Shape
from scaffold.derive.rules.table import Rule, built_in
from scaffold.primitives import built_in_primitives
from scaffold.primitives.calls import functions, mask_positions
from scaffold.verify.child.rule_runs import drawn_values, samples, tuple_of
from scaffold.verify.child.rule_values import Values, called, defaults
from tests.sweeps import in_every_run

TABLE = built_in()
RULES = [TABLE.rule(name) for name in TABLE.names()]
REFUSED = (RuntimeError, TypeError, ValueError, IndexError)
DTYPES = {
    "real": torch.float32,
    "int": torch.int64,
    "bool": torch.bool,
    "complex": torch.complex64,
}


Question = Callable[[Rule], None]
QUESTIONS: list[Question] = []


def asked(question: Question) -> Question:
    """One of those that are asked of every rule, all in one test: thousands of tests would take longer to count than to run."""
    QUESTIONS.append(question)
    return question


@pytest.mark.parametrize(
    "rule",
    in_every_run(RULES, RULES[1::3], pytest.mark.each_commit),
    ids=lambda rule: str(rule.name),
)
def test_the_facts_are_what_torch_says(rule: Rule) -> None:
    for question in QUESTIONS:
        question(rule)


def kind_of(tensor: Tensor) -> Kind:
    if tensor.is_complex():
        return "complex"
    if tensor.is_floating_point():
        return "real"
    return "bool" if tensor.dtype == torch.bool else "int"


def _has_fractions(value: Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()


def converted(rule: Rule, name: str, value: Any, dtype: torch.dtype) -> Any:
    """The value of a sample in a dtype, but for an index, a mask or a class."""
    if isinstance(value, tuple):
        return tuple(converted(rule, name, item, dtype) for item in value)
    if not isinstance(value, Tensor):
        return value
    own = name not in rule.facts.nondiff and _has_fractions(value)
    if not own and rule.category != "constant":
        return value
    if dtype.is_floating_point or dtype.is_complex:
        return value.to(dtype)
    return (3 * value.real if value.is_complex() else 3 * value).to(dtype)


def calls(rule: Rule, kind: str) -> Iterator[tuple[Values, tuple[Any, ...]]]:
    """Each sample with tensors of a kind that the primitive takes, and its results."""
    for sample in samples(TABLE, rule):
        drawn = torch.complex128 if kind == "complex" else torch.float64
        if rule.facts.complex == "only":
            drawn = torch.complex128
        values = drawn_values(TABLE, rule, sample, drawn)
        values = {
            name: converted(rule, name, value, DTYPES[kind])
            for name, value in values.items()
        }
        with warnings.catch_warnings(), suppress(*REFUSED):
            warnings.simplefilter("ignore")
            yield values, tuple_of(called(rule.spelled, values))


def said(rule: Rule, position: int, kind: str, values: Values) -> str:
    """The kind of a result for arguments of a kind, as the header of the table has it."""
    word = rule.facts.kind(position)
    if isinstance(values.get("dtype"), torch.dtype):
        return kind_of(torch.empty(0, dtype=values["dtype"]))
    if word in values:
        return kind_of(values[word])
    if word in ("real", "complex", "int", "bool"):
        return word
    if kind == "complex":
        return "real" if word == "magnitude" else "complex"
    tensors = [item for item in values.values() if isinstance(item, Tensor)]
    fixed = rule.category == "backward" and any(map(torch.is_floating_point, tensors))
    if word == "float" or kind == "real" or fixed:
        return "real"
    return "int" if word == "number" else kind


def has_number(kind: str, values: Values) -> bool:
    """Whether a Python number may change the kind: `mask * 2` is an integer, `index * 0.5` a float."""
    dear = float if kind == "int" else int | float
    numbers = [item for item in values.values() if not isinstance(item, bool)]
    return kind in ("int", "bool") and any(isinstance(item, dear) for item in numbers)


@asked
def a_result_is_of_the_kind_that_is_said(rule: Rule) -> None:
    for kind in DTYPES:
        for values, results in calls(rule, kind):
            if rule.facts.kind() != "float" and has_number(kind, values):
                continue
            for position, result in enumerate(results):
                expected = said(rule, position, kind, values)
                assert kind_of(result) == expected, (kind, position, values)


@asked
def a_result_has_the_dtype_that_is_said(rule: Rule) -> None:
    """Of two precisions, one is that of a single argument."""
    names = [item.name for item in rule.parameters]
    for values, results in calls(rule, "real"):
        several = {
            name: value.float()
            for name, value in values.items()
            if isinstance(value, Tensor) and value.is_floating_point() and value.ndim
        }
        if not results or kind_of(results[0]) not in ("real", "complex"):
            continue
        for name, value in several.items():
            mixed = values | several | {name: value.double()}
            with suppress(*REFUSED):
                found = tuple_of(called(rule.spelled, mixed))[0]
                double = found.real.dtype == torch.float64
                said = rule.facts.dtype
                if said == "uniform":
                    assert len(several) == 1, "it takes several dtypes"
                elif said == "promoted":
                    assert double, name
                elif isinstance(said, int):
                    assert double == (names[said] == name), name


@asked
def a_result_is_written_in_place_where_torch_does(rule: Rule) -> None:
    """Into an argument of its shape and dtype."""
    name, tried = rule.facts.in_place, 0
    if name is None:
        return
    for values, results in calls(rule, "real"):
        first, *rest = (item.name for item in rule.parameters)
        (result,) = results
        own = values[first]
        if not isinstance(own, Tensor) or own.shape != result.shape:
            continue
        if own.dtype != result.dtype:
            continue
        tried += 1
        over = own.clone()
        keywords = {item.name for item in rule.parameters if item.default is not None}
        keywords |= {item.name for item in rule.parameters if item.keyword}
        plain = [values[item] for item in rest if item in values.keys() - keywords]
        named = {item: values[item] for item in keywords & values.keys()}
        written = getattr(over, name)(*plain, **named)
        assert written is over
        torch.testing.assert_close(over, result, equal_nan=True)
    assert tried, "no sample has a first argument of the shape and dtype of the result"


def lowered(program: Program, value: Any) -> Op:
    """A value as it comes to the engine: a tensor whose sizes are numbers, or a Python value."""
    if isinstance(value, Tensor):
        data = Named(f"input{len(program.ops)}")
        shape = Shape(tuple(value.shape))
        return program.op("input", data=data, kind=kind_of(value), shape=shape)
    if isinstance(value, tuple | list):
        return program.op("list", [lowered(program, item) for item in value])
    if value is None or isinstance(value, bool | int | float | complex | str):
        return program.const(value)
    return program.static(TABLE.graph.name("value"))


@asked
def a_result_has_the_shape_that_is_said(rule: Rule) -> None:
    kind = "complex" if rule.facts.complex == "only" else "real"
    for values, results in calls(rule, kind):
        program = Program(TABLE.graph, TABLE.facts)
        whole = defaults(TABLE, rule) | values
        args = {
            item.name: lowered(program, whole[item.name]) for item in rule.parameters
        }
        if rule.results[0].startswith("*"):
            continue
        for position, result in enumerate(results):
            number = len(results) > 1 and result.is_floating_point()
            if number and not rule.leads_back(rule.results[position]):
                continue  # as the mean of a norm: its shape is not known
            shape = shape_said(program, rule.facts.shape, args)
            if shape is not None and shape.dims is not None:
                numbers = [dim for dim in shape.dims if isinstance(dim, int)]
                if len(numbers) == len(shape.dims):
                    assert shape.dims == tuple(result.shape), (position, values)


def test_what_chooses_by_a_mask_says_where_the_mask_stands() -> None:
    places = {"where": {0}, "masked_fill": {1}, "masked_fill_": {1}}
    places |= {"masked_scatter": {1}, "exp": set(), "isnan": set()}
    assert {word: {*mask_positions(word)} for word in places} == places


# Calls of what makes a tensor of Python values, by the word for its shape.
MAKING: dict[str, list[tuple[Any, ...]]] = {
    "length": [(4,)],
    "length_twice": [(3,), (3, 4)],
    "listed": [([1.0, 2.0],)],
    "range": [(5,), (0, 5)],
    "sizes": [(2, 3), ((2, 3),), (4,)],
    "sizes_first": [((2, 3), 1.0)],
    "steps": [(0.0, 1.0, 5)],
}


@pytest.mark.parametrize(
    "name", [name for name, facts in functions().items() if facts.shape in MADE]
)
def test_what_is_made_of_python_values_has_the_shape_that_is_said(name: str) -> None:
    assert MAKING.keys() == MADE.keys()
    places = (torch, torch.fft, torch.ones(()))
    function = next(getattr(one, name) for one in places if hasattr(one, name))
    for args in MAKING[functions()[name].shape]:
        program = Program(TABLE.graph, TABLE.facts)
        ops = [lowered(program, value) for value in args]
        found = made_shape(program, name, ops)
        assert found == Shape(tuple(function(*args).shape)), args


@asked
def what_never_gets_a_name_is_a_view(rule: Rule) -> None:
    """Else it would be computed at each of its uses."""
    if rule.facts.inline == "always":
        assert rule.facts.memory == "view"
        assert not rule.facts.passes


def _numbers(values: Values, results: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    """All that a primitive is computed of in one row, and all that it gives; indices apart."""
    of = [item for item in values.values() if isinstance(item, Tensor)]
    return (
        torch.cat([item.flatten() for item in of if item.is_floating_point()]),
        torch.cat([item.flatten() for item in results if item.is_floating_point()]),
    )


@asked
def a_result_has_the_sign_that_is_said(rule: Rule) -> None:
    for values, results in calls(rule, "real"):
        if rule.facts.sign:
            _, given = _numbers(values, results)
            turned = -given if rule.facts.sign == "nonpositive" else given
            assert (turned >= 0).all(), values


@asked
def a_result_is_the_power_that_is_said(rule: Rule) -> None:
    if rule.facts.power != 1:
        for values, (result,) in calls(rule, "real"):
            (of,) = values.values()
            torch.testing.assert_close(result, of**rule.facts.power)


@asked
def nothing_is_larger_than_what_is_said_to_be_largest(rule: Rule) -> None:
    for values, results in calls(rule, "real"):
        if "largest" in rule.facts.flags:
            of, given = _numbers(values, results)
            assert given.max() >= of.max(), values


# --- Autocast. The lists of CUDA's are in every build of torch, and tensors that only claim to be on such a device go by them.


# Calls that have no tensors without values, and what PyTorch says of them.
UNSEEN = {
    "cov": "lower",  # a product, by its source and on the CPU
    "corrcoef": "lower",
    "nuclear_norm": "float32",  # by the list; of no matrix of bfloat16 without it
    "pinv": "region",  # a product in the end
}
# By CUDA's list in the dtypes that come; on the CPU it is a product.
ON_OTHER_DEVICES = {
    "affine_grid": "region",
    "tensordot": "region",
    "tensordot_equation": "region",
    "inner": "region",
}


class Casts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The dtypes that tensors are cast to, or that a call is told to compute in."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = set[torch.dtype]()

    def __torch_dispatch__(  # type: ignore[no-untyped-def]
        self, function, types, args=(), kwargs=None
    ):
        if (kwargs or {}).get("dtype") is not None:
            self.found.add(kwargs["dtype"])
        return function(*args, **(kwargs or {}))


def casts(rule: Rule, values: Values, dtype: torch.dtype) -> set[Any]:
    """What autocast for CUDA has a call cast tensors of a dtype to, or return."""
    found = dict[bool, set[Any]]()
    with FakeTensorMode(allow_non_fake_inputs=True):

        def moved(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            other = dtype if value.is_floating_point() else value.dtype
            return torch.empty(value.shape, dtype=other, device="cuda")

        there = tree_map(moved, values)
        for enabled in (False, True):
            torch.clear_autocast_cache()
            torch.set_autocast_enabled("cuda", enabled)
            torch.set_autocast_dtype("cuda", torch.bfloat16)
            try:
                with Casts() as mode:
                    results = called(rule.spelled, there)
                tensors = [x for x in tree_leaves(results) if isinstance(x, Tensor)]
                found[enabled] = mode.found | {(x.dtype,) for x in tensors}
            finally:
                torch.set_autocast_enabled("cuda", False)
    return {
        item[0] if isinstance(item, tuple) else item
        for item in found[True] - found[False]
    }


def policy(rule: Rule) -> str:
    """What autocast for CUDA does with the samples of a rule."""
    found, only, tensors = set[str](), True, False
    for sample in samples(TABLE, rule):
        given = drawn_values(TABLE, rule, sample, torch.float32)
        is_number = not isinstance(given.get(rule.parameters[0].name), Tensor)
        tensors |= not is_number
        for dtype, word, other in (
            (torch.float32, "lower", torch.bfloat16),
            (torch.bfloat16, "float32", torch.float32),
        ):
            with suppress(*REFUSED, AssertionError, UnsupportedFakeTensorException):
                if other in casts(rule, given, dtype):
                    found.add(word)
                    only &= rule.category == "elementwise" and is_number
    if only and tensors and found:
        return "number_first"
    return "region" if len(found) > 1 else "".join(found)


@pytest.mark.parametrize("every", in_every_run([8, 1], [8], pytest.mark.each_commit))
def test_autocast_does_what_the_table_says(
    capfd: pytest.CaptureFixture[str], every: int
) -> None:
    asked = [rule for rule in RULES if rule.category != "backward"][::every]
    logging.disable(logging.CRITICAL)  # of calls that take no bfloat16
    told = {rule.name: policy(rule) for rule in asked}
    logging.disable(logging.NOTSET)
    said = {name: TABLE.rule(name).facts.autocast for name in told}
    elsewhere = UNSEEN | ON_OTHER_DEVICES
    assert said == {name: elsewhere.get(name, told[name]) for name in told}
    assert every > 1 or elsewhere.keys() <= told.keys()


def test_autocast_of_the_cpu_casts_no_more() -> None:
    """What its list has and that of CUDA has not is no matter of precision, but a kernel that is missing."""
    for rule in RULES:
        for sample in samples(TABLE, rule):
            given = drawn_values(TABLE, rule, sample, torch.float32)
            with suppress(*REFUSED), torch.autocast("cpu"):
                results = tree_leaves(called(rule.spelled, given))
                lower = any(
                    isinstance(x, Tensor) and x.dtype == torch.bfloat16 for x in results
                )
                assert (
                    not lower
                    or rule.facts.autocast in ("lower", "region")
                    or rule.name == "bfloat16"
                ), rule.name


def test_a_negative_power_has_no_bound_at_zero() -> None:
    table = built_in_primitives()
    powers = {name: table.facts(name).power for name in table}
    found = [name for name, power in powers.items() if power and power < 0]
    assert {"reciprocal", "rsqrt"} <= {*found}
    for name in found:
        assert getattr(torch, name)(torch.zeros(1)).isinf().all(), name
