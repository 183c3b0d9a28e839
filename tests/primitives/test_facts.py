"""The facts of the table are what torch says of each primitive on its samples."""

import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor

from scaffold.derive.rules.table import Rule, built_in
from scaffold.verify.child.rule_runs import samples, tuple_of
from scaffold.verify.child.rule_samples import drawn_values
from scaffold.verify.child.rule_values import Values, called

TABLE = built_in()
RULES = [TABLE.rule(name) for name in TABLE.names()]
REFUSED = (RuntimeError, TypeError, ValueError, IndexError)
DTYPES = {
    "real": torch.float32,
    "int": torch.int64,
    "bool": torch.bool,
    "complex": torch.complex64,
}


def kind_of(tensor: Tensor) -> str:
    if tensor.is_complex():
        return "complex"
    if tensor.is_floating_point():
        return "real"
    return "bool" if tensor.dtype == torch.bool else "int"


def converted(rule: Rule, name: str, value: Any, dtype: torch.dtype) -> Any:
    """The value of a sample in a dtype, but for an index, a mask or a class."""
    if isinstance(value, tuple):
        return tuple(converted(rule, name, item, dtype) for item in value)
    fixed = name in rule.facts.nondiff and rule.category != "constant"
    if not isinstance(value, Tensor) or fixed:
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


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_result_is_of_the_kind_that_is_said(rule: Rule) -> None:
    for kind in DTYPES:
        for values, results in calls(rule, kind):
            if rule.facts.kind() != "float" and has_number(kind, values):
                continue
            for position, result in enumerate(results):
                expected = said(rule, position, kind, values)
                assert kind_of(result) == expected, (kind, position, values)
