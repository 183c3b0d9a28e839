"""What a call of PyTorch does, by the last word of what it calls: `exp` of `torch.exp(x)` and of `x.exp()`.

In: a word. Out: facts of the built-in table, and of `functions.toml`, which has those of functions that are no primitives.
Invariant: several primitives may be called so, as `torch.max(x)` and `torch.max(x, dim)`: what is said to be always so holds of
each of them, what may be so of one at least. A word that nobody knows has no facts.
"""

from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path

from scaffold.primitives.facts import MOVING, Facts, Memory, facts_of
from scaffold.primitives.sections import built_in_primitives
from scaffold.primitives.spelling import parameters


@cache
def facts_of_call(word: str) -> tuple[Facts, ...]:
    """The facts of each function and method of that name; none for a word that nobody knows."""
    other = functions().get(word)
    return (*built_in_primitives().called(word), *((other,) if other else ()))


@lru_cache(maxsize=1)
def functions() -> Mapping[str, Facts]:
    """The functions that are no primitives, by name."""
    import tomllib

    text = Path(__file__).with_name("functions.toml").read_text("utf-8")
    return {
        name: facts_of(section)
        for section in tomllib.loads(text).values()
        for name in section["names"].split()
    }


def is_in_place(word: str) -> bool:
    """Whether PyTorch calls so what changes its tensor: `exp_`."""
    return word.endswith("_") and not word.endswith("__")


@cache
def facts_of_attribute(word: str) -> tuple[Facts, ...]:
    """The facts of the primitives that are written as an attribute: `x.mT`."""
    return built_in_primitives().named("attribute", word)


def may_be(word: str, flag: str) -> bool:
    """Whether one of what is called so has a flag of `facts.FLAGS`."""
    return any(flag in facts.flags for facts in facts_of_call(word))


@cache
def is_untyped(word: str) -> bool:
    """Whether PyTorch declares no type for the result of what is called so."""
    return any(word in facts.untyped for facts in facts_of_call(word))


@cache
def is_unbatched(word: str) -> bool:
    """Whether the vmap of gradcheck's `check_batched_grad`, which is not torch.func's, refuses what is called so."""
    return any(word in facts.unbatched for facts in facts_of_call(word))


@cache
def has_shape(word: str, shape: str) -> bool:
    """Whether the table says so of the shape of what a call returns, always: `reshaped` of `view`."""
    known = facts_of_call(word)
    return bool(known) and all(facts.shape == shape for facts in known)


@cache
def draws_random(word: str) -> bool:
    """Whether a call may draw random numbers, in place or not."""
    return may_be(word, "random") or may_be(word.removesuffix("_"), "random")


@cache
def rearranges(word: str) -> bool:
    """Whether a call only rearranges the elements of a tensor, always: `transpose`, `reshape`."""
    known = facts_of_call(word)
    return bool(known) and all(facts.category == "view" for facts in known)


@cache
def casts_like(word: str) -> bool:
    """Whether a call may give a tensor the dtype and device of another: `type_as`, and `to` of a tensor."""
    return any(facts.dtype == 1 for facts in facts_of_call(word))


@cache
def may_share_memory(word: str) -> bool:
    """Whether the result of a call may have the memory of what it is given."""
    return any(facts.memory != "fresh" for facts in facts_of_call(word))


@cache
def may_be_argument(word: str) -> bool:
    """Whether a call may return the very tensor that it is given."""
    return any(facts.memory == "same" for facts in facts_of_call(word))


@cache
def is_one_tensor(word: str) -> bool:
    """Whether a call returns one tensor, always."""
    known = facts_of_call(word)
    return bool(known) and all(facts.is_one_tensor for facts in known)


@cache
def is_several_tensors(word: str) -> bool:
    """Whether a call returns several tensors, always: `topk`, and not `max`, which does with a dim."""
    known = facts_of_call(word)
    return bool(known) and all(f.results and not f.is_one_tensor for f in known)


@cache
def is_tuple(word: str) -> bool:
    """Whether a call returns a tuple, always, of as many tensors as it is asked for: `chunk`, `unbind`."""
    known = facts_of_call(word)
    return bool(known) and all(f.results[:1] and f.results[0][0] == "*" for f in known)


@cache
def may_be_several_tensors(word: str) -> bool:
    """Whether a call returns several tensors for some arguments: `max`."""
    return any(f.results and not f.is_one_tensor for f in facts_of_call(word))


@cache
def by_shape(word: str, creates: bool) -> str:
    """What does the same with a shape in the place of the tensor that has it, of what `creates` a tensor or of a method: `expand` of `expand_as`."""
    known = reversed(facts_of_call(word))  # what `functions.toml` says goes first
    several = (item for item in known if ("creates" in item.flags) == creates)
    return next((item.by_shape for item in several if item.by_shape), "")


@cache
def has_memory(word: str, memory: Memory) -> bool:
    """Whether a call returns one tensor and that memory, always: `fresh`, or a `view` of what it is given."""
    return is_one_tensor(word) and all(
        facts.memory == memory for facts in facts_of_call(word)
    )


@cache
def is_constant(word: str) -> bool:
    """Whether a call has a gradient of zero everywhere, if any: `argmax`, `zeros_like`."""
    known = facts_of_call(word)
    return bool(known) and all(facts.category == "constant" for facts in known)


@cache
def is_made_of_numbers(word: str) -> bool:
    """Whether what a function of PyTorch's is called so makes a tensor of Python values alone: `zeros`, not `zeros_like`."""
    return may_be(word, "creates") and not word.endswith("_like")


@cache
def is_whole(word: str) -> bool:
    """Whether a call returns integers or booleans, always."""
    known = facts_of_call(word)
    return bool(known) and all({*facts.kinds} <= {"int", "bool"} for facts in known)


@cache
def moves(word: str) -> bool:
    """Whether a call returns elements of what it is given, always: `view`."""
    known = facts_of_call(word)
    return bool(known) and {facts.category for facts in known} <= MOVING


@cache
def is_mask(word: str) -> bool:
    """Whether a call returns booleans, always: `isnan`, `gt`."""
    known = facts_of_call(word)
    return bool(known) and all({*facts.kinds} == {"bool"} for facts in known)


@cache
def may_compute_lower(word: str) -> bool:
    """Whether autocast may compute it in its own dtype: `matmul`."""
    return any(facts.autocast in ("lower", "region") for facts in facts_of_call(word))


@cache
def singularities(word: str, constants: frozenset[str]) -> frozenset[str]:
    """Where the gradient of a call with these constants may have no bound: `zero`, `length`, `rank`."""
    return frozenset(
        facts.singular
        for facts in facts_of_call(word)
        if facts.singular and (not facts.chosen_by or facts.chosen_by in constants)
    )


@cache
def computes_in_given_dtype(word: str) -> bool:
    """Whether a call with a `dtype` computes as if its tensor had that one: sums, running sums, softmax."""
    known = facts_of_call(word)
    categories = {facts.category for facts in known}
    return bool(known) and categories <= {"reduction", "same_shape"}


@cache
def optional_tensors(word: str) -> frozenset[tuple[int, str]]:
    """The tensors of a call that may be None, each with its position and its name: the bias of `linear`."""
    return frozenset(item for facts in facts_of_call(word) for item in facts.optional)


@cache
def position_of(word: str, parameter: str) -> int | None:
    """Where what is called so has a parameter, its tensor counted: 1 for `dim` of `x.sum(dim)`; None where it has none."""
    table = built_in_primitives()
    calls = [parameters(table.heads[name][0]) for name in table.names_called(word)]
    found = (call.index(parameter) for call in calls if parameter in call)
    return next(found, None)


@cache
def changed_tensors(word: str) -> frozenset[tuple[int, str]]:
    """The tensors that a call writes into where they are given, each with its position and its name."""
    return frozenset(item for facts in facts_of_call(word) for item in facts.changes)


@cache
def constant_tensors(word: str) -> frozenset[tuple[int, str]]:
    """The tensors that have no gradient in a call, whichever of those that are called so it is: each with its position and its name."""
    several = [frozenset(facts.constants) for facts in facts_of_call(word)]
    return frozenset.intersection(*several) if several else frozenset()


@cache
def name_alone(name: str) -> str:
    """What a function of one argument is called: `torch.where(mask)` is where the mask holds."""
    return {"where": "nonzero"}.get(name, name)


def kinds(word: str) -> frozenset[str]:
    """What says the kinds of the results of a call, of all that is called so."""
    return frozenset(kind for facts in facts_of_call(word) for kind in facts.kinds)


@cache
def takes_index(word: str) -> bool:
    """Whether one of the arguments of a call is positions: `gather`, `index_add_`."""
    return any(facts.indices for facts in _in_place_or_not(word))


@cache
def takes_mask(word: str) -> bool:
    """Whether a call chooses elements by a mask: `where`, `masked_fill_`."""
    known = _in_place_or_not(word)
    return any(facts.masks and facts.category != "constant" for facts in known)


@cache
def mask_positions(word: str) -> frozenset[int]:
    """Where a call has the mask that it chooses elements by, its tensor counted: 0 of `torch.where(mask, x, y)`, 1 of `x.masked_fill_(mask, 0)`."""
    if not takes_mask(word):
        return frozenset()
    names = {name for facts in _in_place_or_not(word) for name in facts.masks}
    plain = word if facts_of_call(word) else word.removesuffix("_")
    found = (position_of(plain, name) for name in names)
    return frozenset(at for at in found if at is not None)


def _in_place_or_not(word: str) -> tuple[Facts, ...]:
    return facts_of_call(word) or facts_of_call(word.removesuffix("_"))


@cache
def changes_in_place(word: str) -> bool:
    """Whether what is called so, if there is such a thing, changes the elements of its tensor: `exp_`, `copy_`."""
    if not is_in_place(word):
        return False
    return word in functions() or any(
        facts.memory == "fresh" and facts.is_one_tensor
        for facts in facts_of_call(word.removesuffix("_"))
    )
