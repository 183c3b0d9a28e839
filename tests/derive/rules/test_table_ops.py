"""Every rule of the table through the whole engine: an op of one call, generated and run on the rule's samples."""

import math
import re
from collections.abc import Hashable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from scaffold.derive import derive
from scaffold.derive.rules.sample_calls import read_sample
from scaffold.derive.rules.table import Rule, built_in
from scaffold.errors import ScaffoldError
from scaffold.verify.child.rule_runs import drawn_values
from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import draft_of, load, spec_of
from tests.derive.checking import check_by_differences, check_needs
from tests.sweeps import in_every_run, one_of_each

TABLE = built_in()
RULES = [
    rule
    for rule in map(TABLE.rule, TABLE.names())
    if rule.category not in ("constant", "backward")
    and rule.spelled.kind != "subscript"
    and rule.name
    not in ("cross", "dropout_eval")  # a sample that torch does not take; random
]
TENSOR = re.compile(r"(?<![\w.'])([A-Za-z]\w*)\[([\d, ]*|\(\))\]")
MATRICES = {"matmul"}  # what is not declared is taken for a matrix
# A sample of these is no call of the rule: it takes an argument that the rule cannot tell before a call.
LEFT_TO_AUTOGRAD = {"norm", "tensordot", "det", "irfft", "ihfft"}
# Their rule is for tensors of some rank, which nobody knows of what is not declared.
BY_RANK = {rule.name for rule in RULES if "rank(" in f"{rule.when} {rule.value}"} | {
    "column_stack",
    "meshgrid",
    "solve",
    "solve_on_a_side",
    "take_along_dim",
}
TRAITS = {
    torch.int64: "int",
    torch.int32: "int",
    torch.bool: "bool",
    torch.cdouble: "complex",
}


class Op(NamedTuple):
    """An op of one call, and inputs for it."""

    inputs: str
    forward: str
    outputs: str
    values: list[Any]


def call_of(rule: Rule, text: str) -> str:
    """A sample as the user would write it."""
    spelled = rule.spelled
    args = TENSOR.sub(lambda match: match[1], text)
    if spelled.kind == "function":
        return f"{spelled.name}({args})"
    first, _, rest = args.partition(", ")
    if spelled.kind == "operator":
        return f"{first} {spelled.name} {rest}" if rest else f"{spelled.name}{first}"
    return f"{first}.{spelled.name}" + (f"({rest})" if spelled.kind == "method" else "")


def ops(rule: Rule, dtype: torch.dtype, typed: bool) -> Iterator[Op]:
    for text in rule.samples:
        sample = read_sample(text, rule.spelled, TABLE.graph)
        assert sample is not None
        values = drawn_values(TABLE, rule, sample, dtype)
        found = {name: value for name, value in flat(rule, values, text)}
        if not found or typed and any(0 in value.shape for value in found.values()):
            continue
        names = ", ".join(
            entry(rule, name, value, typed) for name, value in found.items()
        )
        results = eager(call_of(rule, text), found)
        several = [f"part_{at}" for at in range(len(results))]
        if len(several) == 1:
            yield Op(names, call_of(rule, text), "output", list(found.values()))
            continue
        traits = [TRAITS.get(item.dtype, "") for item in results]
        outputs = [
            f"{name}[...; {trait}]" if trait else name
            for name, trait in zip(several, traits, strict=True)
        ]
        forward = (
            f"{', '.join(several)} = {call_of(rule, text)}\nreturn {', '.join(several)}"
        )
        yield Op(names, forward, ", ".join(outputs), list(found.values()))


def flat(rule: Rule, values: dict[str, Any], text: str) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a sample by the names that they have in its text."""
    named = [match[1] for match in TENSOR.finditer(text)]
    tensors = [
        item
        for value in values.values()
        for item in (value if isinstance(value, tuple) else (value,))
        if isinstance(item, Tensor)
    ]
    yield from zip(named, tensors, strict=True)


def entry(rule: Rule, name: str, value: Tensor, typed: bool) -> str:
    trait = TRAITS.get(value.dtype, "const" if name in rule.facts.nondiff else "")
    dims = ", ".join(map(str, value.shape)) if typed else "..."
    if not trait and not typed:
        return name
    return f"{name}[{dims}; {trait}]" if trait else f"{name}[{dims}]"


def eager(call: str, values: dict[str, Tensor]) -> tuple[Tensor, ...]:
    scope = {"torch": torch, "math": math, "F": torch.nn.functional, **values}
    result = eval(call, scope)
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def check(op: Op, rule: Rule) -> None:
    options: dict[str, Any] = {"forward": op.forward, "outputs": op.outputs}
    spec = spec_of(op.inputs, derive=True, **options)
    derivation = derive(spec)
    assert not derivation.missing, derivation.notes
    ruled = not any("autograd differentiates" in note for note in derivation.notes)
    declared = "..." not in op.inputs and "[" in op.inputs
    left = LEFT_TO_AUTOGRAD | (set() if declared else BY_RANK)
    assert ruled or rule.name in left, derivation.notes
    module = load(draft_of(spec, derivation))
    if rule.undifferentiated:
        wrapper = getattr(module, spec.name)
        return check_by_differences(wrapper, op.values, derivation.once_differentiable)
    plain = getattr(load(draft_of(spec_of(op.inputs, **options))), spec.function_name)
    wanted = {item.name for item in spec.differentiable}
    can = [item.name in wanted for item in spec.inputs]
    alone = [tuple(at == only for at in range(len(can))) for only in range(len(can))]
    for needs in {tuple(can), *(item for item in alone if can[item.index(True)])}:
        if any(needs):
            function, wrapper = getattr(module, spec.function_name), getattr(
                module, spec.name
            )
            check_needs(
                function,
                wrapper,
                plain.forward,
                op.values,
                needs,
                derivation.once_differentiable,
                False,
            )


def kind(rule: Rule) -> tuple[Hashable, ...]:
    """What of a rule the engine goes by; its formulas are checked without the engine, in test_table.py."""
    facts = rule.facts
    own = bool(rule.code), bool(rule.formulas), bool(facts.nondiff)
    several = len(facts.results) > 1, rule.spelled.kind
    return rule.category, facts.memory, facts.dtype, facts.kinds, *own, *several


REAL = [rule.name for rule in RULES if rule.facts.complex != "only"]
COMPLEX = [rule for rule in RULES if rule.facts.complex]
BY_NAME = {rule.name: rule for rule in RULES}


ONE_OF_EACH = one_of_each(REAL, lambda name: kind(BY_NAME[name]))


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "name", in_every_run(ONE_OF_EACH, ONE_OF_EACH[::4], pytest.mark.each_commit)
)
def test_an_op_of_one_call(name: str) -> None:
    for op in ops(BY_NAME[name], torch.double, True):
        check(op, BY_NAME[name])


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [name for name in REAL if name not in ONE_OF_EACH])
def test_an_op_of_one_call_like_others(name: str) -> None:
    for op in ops(BY_NAME[name], torch.double, True):
        check(op, BY_NAME[name])


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", [name for name in REAL if name not in MATRICES])
def test_an_op_of_one_call_without_shapes(name: str) -> None:
    for op in ops(BY_NAME[name], torch.double, False):
        check(op, BY_NAME[name])


@pytest.mark.parametrize(
    "rule",
    in_every_run(COMPLEX, one_of_each(COMPLEX, lambda rule: kind(rule)[:3])),
    ids=lambda rule: str(rule.name),
)
def test_an_op_of_one_call_on_complex_values(rule: Rule) -> None:
    for op in ops(rule, torch.cdouble, True):
        check(op, rule)


def test_a_kernel_of_contiguous_memory_alone_is_given_it() -> None:
    check_forward("x[N, D]", "F.pdist(x)", [(tensor(4, 3).T,)], derive=True)


def other_ranks(text: str) -> Iterator[str]:
    """The inputs of a sample, one of them with fewer dims or more than the sample gives it."""
    given = {
        name: [dim.strip() for dim in dims.strip("()").split(",") if dim.strip()]
        for name, dims in TENSOR.findall(text)
    }
    for name, dims in given.items():
        fewer = [dims[:at] for at in range(len(dims))]
        for some in (*fewer, ["2", *dims], ["2", "3", *dims]):
            entries = {**given, name: some}.items()
            yield ", ".join(f"{one}[{', '.join(sizes)}]" for one, sizes in entries)


@pytest.mark.parametrize(
    "name",
    in_every_run(
        [rule.name for rule in RULES],
        ("cdist", "permute", "scaled_dot_product_attention", "tensordot_equation"),
    ),
)
def test_a_call_of_tensors_of_other_ranks_is_derived_or_refused(name: str) -> None:
    rule = BY_NAME[name]
    for text in rule.samples:
        for inputs in other_ranks(text):
            with suppress(ScaffoldError):
                derive(spec_of(inputs, forward=call_of(rule, text), derive=True))


def test_a_permutation_that_names_a_dim_twice_is_left_to_pytorch_to_refuse() -> None:
    text = draft_of(spec_of("x[N, D]", forward="x.permute(0, 0)", derive=True))
    assert "return x.permute(0, 0)" in text
