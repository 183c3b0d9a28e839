"""Every rule of the table against autograd of the call it is about."""

import re
from collections.abc import Hashable, Iterator
from contextlib import suppress
from inspect import signature
from types import FunctionType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from scaffold.derive.graph.application import KEYWORDS
from scaffold.derive.rules.call_bindings import Spelling, spelling
from scaffold.derive.rules.sample_calls import Sample
from scaffold.derive.rules.table import Rule, built_in
from scaffold.verify.child.rule_runs import (
    Run,
    drawn_values,
    dtypes,
    of_value,
    tuple_of,
)
from scaffold.verify.child.rule_runs import runs as runs_of
from scaffold.verify.child.rule_runs import samples as samples_of
from scaffold.verify.child.rule_values import Interpreter, Values, called, defaults
from tests.sweeps import in_every_run, one_of_each

TABLE = built_in()
RULES = [TABLE.rule(name) for name in TABLE.names()]
WITH_FORMULAS = [rule for rule in RULES if rule.formulas]
NOT_BY_DIFFERENCES = {
    *("half", "bfloat16", "float"),  # too coarse
    "embedding_padded",  # autograd has none of the padding
    "fake_quantize",  # autograd passes its gradient through the steps
}


def samples(rule: Rule) -> list[Sample]:
    return samples_of(TABLE, rule)


def runs(rule: Rule) -> Iterator[tuple[str, Run]]:
    return runs_of(TABLE, rule)


def kind(rule: Rule) -> tuple[Hashable, ...]:
    """What the interpreter of formulas goes by, and how the values of a rule's samples are drawn."""
    facts = rule.facts
    several = len(facts.results) > 1, len(rule.formulas) > 1
    domain = tuple(map(str, rule.domain.values()))
    return rule.category, facts.complex, facts.dtype, facts.kinds, *several, *domain


of_each_kind = pytest.mark.parametrize(
    "rule",
    in_every_run(WITH_FORMULAS, one_of_each(WITH_FORMULAS, kind)),
    ids=lambda rule: rule.name,
)


def check_precision(rule: Rule) -> None:
    """The gradients have that of the arguments: a `where` of two numbers, or an index, must not make it another."""
    for dtype in dtypes(rule):
        single = {torch.float64: torch.float32, torch.complex128: torch.complex64}
        for sample in samples(rule):
            given = drawn_values(TABLE, rule, sample, single[dtype])
            run = Run(TABLE, rule, given)
            for formula, got, wanted in (*run.variants(), *run.fused()):
                assert got.dtype == wanted.dtype, f"[{rule.name}] {formula}"


def same(got: Tensor, wanted: Tensor, where: str) -> None:
    def message(told: str) -> str:
        return f"{where}\n{told}"

    torch.testing.assert_close(got, wanted, msg=message)


def test_what_a_function_is_called_its_method_is_called_too() -> None:
    """`x.absolute()` beside `torch.absolute(x)`: who forgets one sends a forward to autograd."""
    lacking = [
        name
        for name, method in vars(torch.Tensor.__mro__[1]).items()
        if callable(method) and not name.startswith("_")
        if TABLE.find("function", f"torch.{name}") and not TABLE.find("method", name)
    ]
    assert not lacking


def torchs_parameters(name: str) -> list[list[str]]:
    """The positional parameters of a function: of one in Python, or of each overload of one in ATen."""
    root, *path = name.split(".")
    owner = {"torch": torch, "F": torch.nn.functional}.get(root)
    function = getattr(owner, path[0], None) if len(path) == 1 else None
    if isinstance(function, FunctionType):
        return [list(signature(function).parameters)]
    schemas = torch._C._jit_get_schemas_for_operator("aten::" + "_".join(path))
    return [
        [item.name for item in one.arguments if not item.kwarg_only] for one in schemas
    ]


def is_misplaced(rule: Rule, torchs: list[str]) -> bool:
    """Whether a parameter of the rule stands in the place of another one."""
    places = [item.name for item in rule.spelled.parameters if not item.keyword]
    alone = {item.name for item in rule.spelled.parameters if item.default is None}
    names = ["input" if name == "self" else name for name in torchs]
    names = [name for name in names if name in places or name not in alone]
    usual = [name if name in places else KEYWORDS.get(name, name) for name in names]
    return any(
        name in places and places.index(name) != at for at, name in enumerate(usual)
    )


def test_no_argument_is_taken_for_another() -> None:
    """`reduction` is no third parameter of `F.mse_loss`, and the `input` of `torch.atan2` is the first of its two."""
    every = [rule for rule in RULES if rule.spelled.kind == "function"]
    wrong = {
        rule.name
        for rule in every
        if (torchs := torchs_parameters(rule.spelled.name))
        if all(is_misplaced(rule, one) for one in torchs)
    }
    assert wrong == set()


def test_what_follows_a_flag_has_the_name_that_torch_gives_it() -> None:
    """A flag is written with its name, `is_result=False`, and so is each argument after it."""
    wrong = {}
    for rule in RULES:
        if rule.spelled.name.startswith("torch.ops.aten."):
            name = rule.spelled.name.rpartition(".")[2]
            arguments = getattr(torch.ops.aten, name).default._schema.arguments
            flags = [
                at for at, item in enumerate(arguments) if str(item.type) == "bool"
            ]
            first = flags[0] if flags else len(arguments)
            names = [item.name for item in rule.spelled.parameters][first:]
            if names != [item.name for item in arguments][first:][: len(names)]:
                wrong[rule.name] = names
    assert not wrong


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_is_what_torch_says(rule: Rule) -> None:
    """One test a rule: thousands of small ones take longer to count than to run."""
    check_samples(rule)
    if rule.formulas:
        check_gradients(rule)
    check_spellings(rule)
    if rule.facts.nondiff and rule.category != "backward":
        check_without_gradient(rule)


@of_each_kind
def test_a_rule_of_each_kind_is_precise_and_smooth(rule: Rule) -> None:
    check_precision(rule)
    if not rule.undifferentiated:  # held against differences in any case
        check_domain(rule)
    if not calls_once(rule):
        check_twice(rule)


def calls_once(rule: Rule) -> bool:
    """Whether a formula calls what is differentiated once."""
    texts = (text for several in rule.formulas.values() for text in several)
    called = {word for text in texts for word in re.findall(r"\w+", text)}
    rules = [TABLE.rule(name) for name in called if name in TABLE]
    return any(item.ends_derivatives for item in rules)


def check_samples(rule: Rule) -> None:
    assert rule.samples
    assert len(samples(rule)) == len(rule.samples)
    for sample in samples(rule):
        values = defaults(TABLE, rule) | drawn_values(TABLE, rule, sample)
        condition = TABLE.condition(rule)
        assert condition is None or Interpreter(TABLE, values)(condition) is True


def check_gradients(rule: Rule) -> None:
    """They are those of autograd."""
    checked = set()
    for place, run in runs(rule):
        checked |= set(run.active)
        for formula, got, wanted in (*run.variants(), *run.fused()):
            where = f"[{rule.name}] {formula}\non {place}"
            assert got.shape == wanted.shape, where
            assert got.dtype == wanted.dtype, where
            same(got, wanted, where)
    assert checked == set(rule.formulas), "no sample asks for the other gradients"


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES if rule.value], ids=lambda rule: rule.name
)
def test_a_value_is_what_the_call_computes(rule: Rule) -> None:
    """Its gradients too: those of autograd, since there are no formulas of them."""
    for place, formula, got, wanted, _ in of_value(TABLE, rule):
        same(got, wanted, f"[{rule.name}] {formula}\non {place}")


@pytest.mark.parametrize(
    "rule", [rule for rule in RULES if rule.parts], ids=lambda rule: rule.name
)
def test_the_parts_of_a_call_compute_it(rule: Rule) -> None:
    """In place of the dots stand other arguments than those that the parts name; parts without dots name all of a sample's."""
    assert rule.parts is not None
    if "..." not in rule.parts:
        for sample in samples(rule):
            given = drawn_values(TABLE, rule, sample)
            known = {"torch": torch, **defaults(TABLE, rule), **given}
            got = eval(rule.parts, known)
            same(got, called(rule.spelled, given), rule.parts)
        return
    named = "input, target" if "target" in rule.parts else "x"
    dims = {"x": (2, 3, 6, 5, 4), "input": (2, 3, 6)}
    for more in ("2",) if named == "x" else ("reduction='sum'", "ignore_index=1"):
        first = dims[named.partition(",")[0]]
        rank = int(rule.name[-2]) + 2 if named == "x" else len(first)
        values = [torch.randn(first[:rank]), torch.randint(0, 3, (2, 6))]
        known = dict(zip(named.split(", "), values, strict=False), F=F, torch=torch)
        parts = rule.parts.replace("class_dim(input)", "1").replace("...", more)
        whole = f"{rule.spelled.name}({named}, {more})"
        same(eval(parts, known), eval(whole, known), parts)


def check_twice(rule: Rule) -> None:
    """The gradient of the gradient, for the cotangent and the arguments, is the one that autograd has, if it has one."""
    for place, run in runs(rule):
        over = [*run.inputs, *run.grads]
        for formula, got, wanted in run.variants():
            where = f"[{rule.name}] {formula}\non {place}"
            weight = torch.randn_like(wanted)
            try:
                of_autograd = again(wanted, over, weight)
            except RuntimeError:  # PyTorch does not differentiate hardsigmoid twice
                continue
            for name, mine, theirs in zip(
                [*run.active, *rule.cotangents],
                again(got, over, weight),
                of_autograd,
                strict=False,
            ):
                same(mine, theirs, f"{where}, by {name}")


def again(grad: Tensor, over: list[Tensor], weight: Tensor) -> list[Tensor]:
    if not grad.requires_grad:
        return [torch.zeros_like(item) for item in over]
    found = torch.autograd.grad(
        grad, over, weight, retain_graph=True, allow_unused=True
    )
    return [
        torch.zeros_like(item) if value is None else value
        for item, value in zip(over, found, strict=True)
    ]


def halved(rule: Rule, name: str, x: Tensor) -> Tensor:
    """A matrix that PyTorch reads half of: autograd takes the other half along, or does not see that it does not count."""
    if rule.domain.get(name) == "spd":
        return (x + x.mH) / 2
    return x.tril() if rule.domain.get(name) == "lower" else x


def check_domain(rule: Rule) -> None:
    """Finite differences and autograd agree: no sample lies on a kink, outside of the domain, or at a tie."""
    for place, run in runs(rule):

        def call(*inputs: Tensor, run: Run = run) -> Any:
            values = dict(zip(run.active, inputs, strict=True))
            values = {name: halved(rule, name, x) for name, x in values.items()}
            outputs = tuple_of(called(rule.spelled, run.given | values))
            return tuple(out for out in outputs if out.requires_grad)

        inputs = [item.detach().requires_grad_() for item in run.inputs]
        if rule.name in NOT_BY_DIFFERENCES:
            continue
        assert torch.autograd.gradcheck(call, inputs, fast_mode=True), place


def check_spellings(rule: Rule) -> None:
    """Every spelling is the same call."""
    for head in TABLE.heads[rule.name]:
        spelled = spelling(head, TABLE.heads[rule.name][0], TABLE.graph)
        assert spelled is not None, head
        assert (rule, spelled) in TABLE.find(spelled.kind, spelled.name), head
        names = {item.name for item in spelled.parameters}
        tried = 0
        for sample in samples(rule):
            values = drawn_values(TABLE, rule, sample, dtypes(rule)[0])
            fits = required(spelled) <= values.keys() <= names
            if fits and callable_on(values, spelled):
                tried += 1
                if rule.name.startswith("empty"):
                    continue
                for mine, theirs in zip(
                    tuple_of(called(rule.spelled, values)),
                    tuple_of(called(spelled, values)),
                    strict=True,
                ):
                    torch.testing.assert_close(mine, theirs, msg=head)
        assert tried, head


def required(spelled: Spelling) -> set[str]:
    return {item.name for item in spelled.parameters if item.default is None}


def callable_on(values: Values, spelled: Spelling) -> bool:
    """A method needs a tensor to hang on, and a function of torch's one tensor for its first argument."""
    first = values.get(spelled.parameters[0].name)
    return isinstance(first, Tensor) or spelled.kind in ("function", "operator")


def check_without_gradient(rule: Rule) -> None:
    """What is said to have no gradient has none; in the formulas of others it is differentiated by autograd."""
    for sample in samples(rule):
        given = drawn_values(TABLE, rule, sample)
        tensors = [
            value.requires_grad_()
            for name in rule.facts.nondiff
            if isinstance(value := given.get(name), Tensor)
            and value.is_floating_point()
        ]
        with suppress(RuntimeError):  # derivative is not implemented
            for out in tuple_of(called(rule.spelled, given)):
                if isinstance(out, Tensor) and out.requires_grad:
                    grads = torch.autograd.grad(out.sum(), tensors, allow_unused=True)
                    assert all(grad is None or not grad.any() for grad in grads)


PLANTED = [
    ("exp", "x", "-grad * conj(result)"),
    ("sin", "x", "grad * conj(sin(x))"),
    ("bessel_j0", "x", "grad * bessel_j1(x)"),  # of which autograd says nothing
    ("log", "x", "grad / x"),
    ("sub", "y", "grad"),
    ("div", "y", "grad * conj(result / y)"),
    ("mean", "x", "expand_back(grad, x, dim, keepdim)"),
    ("sum", "x", "grad"),
    ("softmax", "x", "result * (grad + sum(grad * result, dim, True))"),
    ("cumsum", "x", "cumsum(grad, dim)"),
    ("tril", "x", "triu(grad, diagonal)"),
    ("permute", "x", "permute(grad, dims)"),
    ("expand", "x", "reshape_as(grad, x)"),
    ("mm", "x", "grad @ y"),
    ("mm", "y", "mT(x) @ grad"),
    ("inv", "x", "mH(result) @ grad @ mH(result)"),
    ("gather", "x", "scatter(zeros(grad, x), dim, index, grad)"),
    ("hinge_embedding_loss", "input", "grad * where(target == 1, 1.0, -1.0)"),
]


@pytest.mark.parametrize(("name", "parameter", "formula"), PLANTED)
def test_a_planted_bug_is_noticed(name: str, parameter: str, formula: str) -> None:
    right = TABLE.rule(name)
    wrong = right._replace(
        formulas={**right.formulas, parameter: (formula,)},
        name=f"wrong_{name}",
        op=f"wrong_{name}",
    )
    with pytest.raises((AssertionError, RuntimeError)):
        check_gradients(wrong)
