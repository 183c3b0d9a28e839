"""What calls do, by the words that they are called: held against PyTorch itself."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from scaffold.derive.rules.call_bindings import Spelling, spelling
from scaffold.derive.rules.table import Rule, built_in
from scaffold.primitives.calls import (
    by_shape,
    changed_tensors,
    changes_in_place,
    computes_in_given_dtype,
    draws_random,
    facts_of_attribute,
    facts_of_call,
    functions,
    has_memory,
    is_constant,
    is_discrete,
    is_in_place,
    is_mask,
    is_one_tensor,
    is_several_tensors,
    kinds,
    may_be,
    may_be_argument,
    may_be_several_tensors,
    may_share_memory,
    optional_tensors,
)
from scaffold.primitives.facts import Facts, facts_of
from scaffold.primitives.sections import built_in_primitives
from scaffold.verify.child.rule_runs import drawn_values, samples
from scaffold.verify.child.rule_values import called, defaults
from tests.sweeps import in_every_run

TABLE = built_in()
NAMES = [*TABLE.heads]
DTYPES = (torch.float64, torch.complex64)
MEMORY = {"fresh": {"fresh"}, "view": {"view"}, "either": {"fresh", "view"}}


def tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    parts = value if isinstance(value, tuple | list) else ()
    return [item for part in parts for item in tensors(part)]


def memories(rule: Rule, spelled: Spelling) -> Iterator[str]:
    """Whose memory the results of the samples have."""
    for sample in samples(TABLE, rule):
        for dtype in DTYPES:
            try:
                values = defaults(TABLE, rule) | drawn_values(
                    TABLE, rule, sample, dtype
                )
                results = tensors(called(spelled, values))
            except (RuntimeError, TypeError, ValueError, AttributeError):
                continue  # not of this dtype, or the method of a number
            given = [item for value in values.values() for item in tensors(value)]
            places = {item.untyped_storage().data_ptr() for item in given}
            for item in results:
                if any(item is other for other in given):
                    yield "same"
                elif item.numel():
                    place = item.untyped_storage().data_ptr()
                    yield "view" if place in places else "fresh"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", in_every_run(NAMES, NAMES[::3], pytest.mark.each_commit)
)
def test_the_memory_of_a_result_is_that_of_torch(name: str) -> None:
    rule, said = TABLE.rule(name), facts_of(TABLE.primitives.section(name)).memory
    for head in TABLE.heads[name]:
        spelled = spelling(head, TABLE.heads[name][0], TABLE.graph)
        assert spelled is not None
        found = set(memories(rule, spelled))
        if said in MEMORY and spelled.name != "reshape_as":
            assert found <= MEMORY[said], head


CALLS: list[tuple[str, Callable[[Tensor], Any]]] = [
    ("flatten", lambda x: x.flatten()),
    ("contiguous", lambda x: x.contiguous()),
    ("dropout", lambda x: torch.nn.functional.dropout(x, training=False)),
    ("dropout2d", lambda x: torch.nn.functional.dropout2d(x, training=False)),
    ("as_tensor", torch.as_tensor),
    ("atleast_1d", torch.atleast_1d),
    ("cpu", lambda x: x.cpu()),
    ("requires_grad_", lambda x: x.requires_grad_()),
    ("conj", torch.conj),
    ("conj_physical", torch.conj_physical),
    ("positive", torch.positive),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("word", "call"), CALLS, ids=[word for word, _ in CALLS])
def test_what_returns_its_argument(word: str, call: Callable[[Tensor], Any]) -> None:
    x = torch.ones(3)
    assert call(x) is x
    assert may_be_argument(word) or word == "requires_grad_"
    assert not has_memory(word, "fresh")


def test_a_view_that_is_never_the_argument_itself() -> None:
    x = torch.ones(3)
    assert x.expand(3) is not x and x.expand_as(x) is not x
    assert may_share_memory("expand") and not may_be_argument("expand")
    assert has_memory("expand", "view") and not has_memory("reshape", "view")


def test_a_copy_of_what_is_not_contiguous_is_no_view() -> None:
    x = torch.ones(2, 3).t()
    assert x.reshape_as(torch.ones(6)).data_ptr() != x.data_ptr()
    assert not has_memory("reshape_as", "view") and may_share_memory("reshape_as")
    assert has_memory("view_as", "view")


def test_a_word_of_several_primitives_is_what_they_all_are() -> None:
    assert not is_one_tensor("max"), "torch.max(x, dim) has two results"
    assert is_one_tensor("amax") and has_memory("amax", "fresh")
    assert not has_memory("unfold", "view"), "F.unfold copies"


def test_results() -> None:
    assert is_several_tensors("topk") and is_several_tensors("svd")
    assert may_be_several_tensors("max") and not is_several_tensors("max")
    for word in ("amax", "nonzero", "atleast_2d"):  # the last two: one, or several
        assert not is_several_tensors(word)


def test_aliases_are_constant_as_what_they_stand_for() -> None:
    x = torch.ones(3, requires_grad=True)
    for word in ("gt", "greater", "less_equal"):
        assert not getattr(torch, word)(x, 2).requires_grad
        assert is_constant(word) and not may_be(word, "recorded")


def test_zero_gradients_that_autograd_records() -> None:
    x = torch.ones(3, requires_grad=True)
    for word in ("floor", "fix", "sgn", "round"):
        assert getattr(torch, word)(x).requires_grad and may_be(word, "recorded")
    assert torch.floor_divide(x, 2).requires_grad and may_be("floor_divide", "recorded")


def test_a_word_that_nobody_knows_is_nothing() -> None:
    for ask in (is_one_tensor, is_constant, is_discrete, is_mask, may_share_memory):
        assert not ask("no_such_thing")


@pytest.mark.parametrize("word", ["rand_like", "dropout", "dropout_", "normal_"])
def test_random_numbers(word: str) -> None:
    assert draws_random(word)


def test_what_is_not_drawn() -> None:
    assert not draws_random("zeros_like") and may_be("zeros_like", "creates")
    assert may_be("empty", "uninitialised") and not draws_random("empty")


@pytest.mark.parametrize("word", ["exp_", "copy_", "masked_fill_", "addmm_", "tril_"])
def test_changes_in_place(word: str) -> None:
    assert changes_in_place(word)


@pytest.mark.parametrize("word", ["exp", "requires_grad_", "detach_", "t_", "float_"])
def test_what_changes_no_element(word: str) -> None:
    assert not changes_in_place(word)


def test_kinds() -> None:
    assert is_mask("isnan") and is_mask("greater") and not is_mask("argmax")
    assert is_discrete("argmax") and is_discrete("gt") and is_discrete("nonzero")
    assert not is_discrete("amax") and not is_discrete("zeros_like")


KINDS: list[tuple[str, Callable[[Tensor], Tensor]]] = [
    ("eigvals", torch.linalg.eigvals),
    ("rfftn", torch.fft.rfftn),
    ("ihfft2", torch.fft.ihfft2),
    ("hfft2", lambda x: torch.fft.hfft2(x.to(torch.complex64))),
    ("irfftn", lambda x: torch.fft.irfftn(x.to(torch.complex64))),
    ("fftfreq", lambda x: torch.fft.fftfreq(3)),
    ("randperm", lambda x: torch.randperm(3)),
    ("tril_indices", lambda x: torch.tril_indices(3, 3)),
]


@pytest.mark.parametrize(("word", "call"), KINDS, ids=[word for word, _ in KINDS])
def test_the_kind_of_a_result(word: str, call: Callable[[Tensor], Tensor]) -> None:
    result = call(torch.eye(3))
    kind = "complex" if result.is_complex() else "real"
    assert kinds(word) == {
        kind if result.is_floating_point() or kind == "complex" else "int"
    }


def test_tensors_that_pytorch_does_not_differentiate_by() -> None:
    assert (4, "weight") in {
        item for facts in facts_of_call("multi_margin_loss") for item in facts.constants
    }
    statistics = {(1, "running_mean"), (2, "running_var")}
    assert (
        changed_tensors("instance_norm") == changed_tensors("batch_norm") == statistics
    )
    assert changed_tensors("layer_norm") == frozenset()


def test_attributes() -> None:
    assert [facts.memory for facts in facts_of_attribute("mT")] == ["view"]
    assert [facts.memory for facts in facts_of_attribute("real")] == ["same"]


def test_what_is_no_primitive_is_not_said_twice() -> None:
    for word, facts in functions().items():
        primitives = facts_of_call(word)[:-1]
        assert facts not in primitives, f"'{word}' has a section: drop it here"
        said = {tensor for one in primitives for tensor in _of_tensors(one)}
        more = _of_tensors(facts) - said  # of tensors that no rule takes
        assert not primitives or more or word == "reshape_as", word


def _of_tensors(facts: Facts) -> set[tuple[str, int, str]]:
    """What is said of the tensors of a call alone."""
    told = ("optional", "constants", "changes")
    return {(key, *tensor) for key in told for tensor in getattr(facts, key)}


def test_what_is_no_primitive_is_of_pytorch() -> None:
    spaces = (torch, torch.Tensor, torch.nn.functional)
    modules = (torch.linalg, torch.special, torch.fft)
    for word in functions():
        assert any(hasattr(space, word) for space in (*spaces, *modules)), word
        assert is_in_place(word) == word.endswith("_")


def test_autograd_has_no_gradient_of_what_is_said_to_have_none_and_of_that_alone() -> (
    None
):
    found = set()
    for name in dir(torch.special):
        x = torch.full((2,), 0.3, requires_grad=True)
        for more in ((), (2,), (x,), (x, x)):
            with contextlib.suppress(Exception):  # it takes other arguments
                result = getattr(torch.special, name)(x, *more)
                if not result.requires_grad and result.is_floating_point():
                    found.add(name)
    heads = (
        head for several in built_in_primitives().heads.values() for head in several
    )
    words = {head.partition("(")[0].rpartition(".")[2] for head in heads}
    assert found == {
        name for name in (*functions(), *words) if may_be(name, "undifferentiated")
    }, "some are missing"


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("linear", "bias"),  # as its section says
        ("layer_norm", "weight bias"),  # what has a gradient and is None by default
        ("clamp", "min max"),
        ("conv_transpose2d", "bias"),
        ("diff", "prepend append"),  # what its rule does not name
        ("exp", ""),
        ("logsumexp", ""),
    ],
)
def test_tensors_that_may_be_none(word: str, names: str) -> None:
    assert {name for _, name in optional_tensors(word)} == {*names.split()}


def test_positions_of_tensors_that_may_be_none() -> None:
    assert optional_tensors("batch_norm") == {
        *((1, "running_mean"), (2, "running_var"), (3, "weight"), (4, "bias"))
    }


@pytest.mark.parametrize(
    "function",
    [
        *(torch.sum, torch.mean, torch.prod, torch.nansum, torch.nanmean),
        *(torch.cumsum, torch.cumprod, torch.softmax, torch.log_softmax),
        *(torch.nn.functional.softmin, torch.norm),
        *(torch.linalg.vector_norm, torch.linalg.matrix_norm),
    ],
    ids=lambda function: function.__name__,
)
def test_what_computes_in_a_given_dtype(function: Callable[..., Tensor]) -> None:
    word = function.__name__.removeprefix("linalg_")
    assert computes_in_given_dtype(word)
    x = torch.rand(3, 4)
    args: tuple[Any, ...] = (1,) if word.startswith(("cum", "soft", "log_")) else ()
    result = function(x, *args, dtype=torch.float64)
    torch.testing.assert_close(result, function(x.double(), *args))


def test_what_makes_or_casts_computes_in_no_given_dtype() -> None:
    assert not any(map(computes_in_given_dtype, ("to", "zeros_like", "full", "exp")))


@pytest.mark.parametrize(
    ("word", "same"),
    [("expand_as", "expand"), ("view_as", "view"), ("reshape_as", "reshape")],
)
def test_what_reads_the_shape_of_another_tensor_alone(word: str, same: str) -> None:
    assert by_shape(word, creates=False) == same and not by_shape(word, creates=True)
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    assert torch.equal(getattr(x, word)(y), getattr(x, same)(y.shape))


@pytest.mark.parametrize("word", ["zeros_like", "ones_like", "empty_like"])
def test_what_makes_a_tensor_of_the_shape_of_another(word: str) -> None:
    same, x = by_shape(word, creates=True), torch.randn(2, 3, dtype=torch.half)
    made = getattr(torch, same)(x.shape, dtype=x.dtype, device=x.device)
    like = getattr(torch, word)(x)
    assert (made.shape, made.dtype) == (like.shape, like.dtype)
    assert not by_shape(word, creates=False) and not by_shape(same, creates=True)


@pytest.mark.parametrize("word", ["clamp", "clip", "minimum", "hardtanh", "threshold"])
def test_an_argument_bounds_another_where_that_has_a_kink_at_it(word: str) -> None:
    assert may_be(word, "bounded")
    assert not any(may_be(other, "bounded") for other in ("relu", "mul", "l1_loss"))
