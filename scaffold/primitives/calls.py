"""Facts about a call of PyTorch, by the last word of the callee: `exp` of `torch.exp(x)` and of `x.exp()`.

For readers of a text, who know a name and not yet which primitive it means (how many arguments, which types).

Words: a *word* is the last name of a callee; `known` are the facts of all functions of that name; a function *moves* elements if
its result has those of its arguments, unchanged.

In: a word. Out:
facts of the built-in table, and of `functions.toml`, with those of functions that are no primitives.
Invariant: several primitives may share a word, as `torch.max(x)` and `torch.max(x, dim)`: "always" means for each of
them, "may" for at least one. An unknown word has no facts.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from scaffold.primitives.facts import MOVING, Facts, Memory, facts_of
from scaffold.primitives.sections import built_in_primitives
from scaffold.primitives.spelling import parameters


@cache
def facts_of_call(word: str) -> tuple[Facts, ...]:
    """Return the facts of each function and method of this name; none for an unknown word."""
    other = functions().get(word)
    return (*built_in_primitives().called(word), *((other,) if other else ()))


@cache
def functions() -> Mapping[str, Facts]:
    """Return the facts of functions without a section in the table of primitives, by name."""
    import tomllib

    text = Path(__file__).with_name("functions.toml").read_text("utf-8")
    return {
        name: facts_of(section)
        for section in tomllib.loads(text).values()
        for name in section["names"].split()
    }


def _always(word: str, holds: Callable[[Facts], bool]) -> bool:
    """Return whether something holds of each function of this name; False for an unknown word, of which nothing is sure."""
    known = facts_of_call(word)
    return bool(known) and all(map(holds, known))


def is_in_place(word: str) -> bool:
    """Return whether a name marks an in-place method by PyTorch's convention: `exp_`."""
    # `x.__add__` is a special method of Python, and changes nothing.
    return word.endswith("_") and not word.endswith("__")


@cache
def facts_of_attribute(word: str) -> tuple[Facts, ...]:
    """Return the facts of the primitives spelled as an attribute of this name, `mT` of `x.mT`; () for any other attribute."""
    return built_in_primitives().named("attribute", word)


def may_be(word: str, flag: str) -> bool:
    """Return whether a function of this name may have a flag of `facts.FLAGS`, such as "creates"."""
    return any(flag in facts.flags for facts in facts_of_call(word))


@cache
def is_untyped(word: str) -> bool:
    """Return whether PyTorch declares no result type for a call, so a strict type checker must be told that it is a tensor."""
    return any(word in facts.untyped for facts in facts_of_call(word))


@cache
def is_unbatched(word: str) -> bool:
    """Return whether the vmap of gradcheck's `check_batched_grad` rejects a call, so a test must not ask for it.

    It is an older one than the vmap of torch.func.
    """
    return any(word in facts.unbatched for facts in facts_of_call(word))


@cache
def has_shape(word: str, shape: str) -> bool:
    """Return whether the result of a call always has a shape of this word of the table: "reshaped" for `view`."""
    return _always(word, lambda facts: facts.shape == shape)


@cache
def draws_random(word: str) -> bool:
    """Return whether a call may draw random numbers, in place (`normal_`) or not: two runs of it differ."""
    return may_be(word, "random") or may_be(word.removesuffix("_"), "random")


@cache
def rearranges(word: str) -> bool:
    """Return whether a call always only rearranges the elements of a tensor: `transpose`, `reshape`."""
    return _always(word, lambda facts: facts.category == "view")


@cache
def casts_like(word: str) -> bool:
    """Return whether a call may convert a tensor to the dtype and device of its second argument: `type_as`, and `to` with a tensor."""
    # The dtype of a result may be that of a parameter, given by its position: 1 is the second one.
    return any(facts.dtype == 1 for facts in facts_of_call(word))


@cache
def may_share_memory(word: str) -> bool:
    """Return whether the result of a call may share memory with an argument, so writing into one changes the other."""
    return any(facts.memory != "fresh" for facts in facts_of_call(word))


@cache
def may_be_argument(word: str) -> bool:
    """Return whether a call may return its argument itself, the same object: `contiguous`."""
    return any(facts.memory == "same" for facts in facts_of_call(word))


@cache
def is_one_tensor(word: str) -> bool:
    """Return whether a call always returns one tensor."""
    return _always(word, lambda facts: facts.is_one_tensor)


@cache
def is_several_tensors(word: str) -> bool:
    """Return whether a call always returns several tensors: `topk`, but not `max`.

    `max` does only with a dim.
    """
    # No results in the table (`results = []`): one tensor or several, as the caller asks; so not always several.
    return _always(word, lambda f: bool(f.results) and not f.is_one_tensor)


@cache
def is_tuple(word: str) -> bool:
    """Return whether a call always returns a tuple of a requested number of tensors: `chunk`, `unbind`."""
    return _always(word, lambda f: any(name.startswith("*") for name in f.results))


@cache
def may_be_several_tensors(word: str) -> bool:
    """Return whether a call returns several tensors for some arguments: `max`."""
    # No results in the table: one tensor or several, by an option that the caller knows, `return_indices=True`.
    return any(f.results and not f.is_one_tensor for f in facts_of_call(word))


@cache
def by_shape(word: str, creates: bool) -> str:
    """Return the call that takes a shape instead of a tensor of that shape: `expand` for `expand_as`, `zeros` for `zeros_like`.

    With it only a shape is saved for a backward, and no tensor. `creates` chooses functions that create a tensor, else the others;
    "" if there is none.
    """
    # Those of `functions.toml` first: `reshape_as` is a reshape there, and in the table a spelling of `view_as`.
    known = reversed(facts_of_call(word))
    several = (item for item in known if ("creates" in item.flags) == creates)
    return next((item.by_shape for item in several if item.by_shape), "")


@cache
def has_memory(word: str, memory: Memory) -> bool:
    """Return whether a call always returns one tensor with this memory: `fresh`, or a `view`."""
    return _always(word, lambda f: f.is_one_tensor and f.memory == memory)


@cache
def is_constant(word: str) -> bool:
    """Return whether a call has a zero or no gradient everywhere: `argmax`, `zeros_like`."""
    return _always(word, lambda facts: facts.category == "constant")


@cache
def is_made_of_numbers(word: str) -> bool:
    """Return whether a function may create a tensor from Python values alone: `zeros`, not `zeros_like`."""
    return may_be(word, "creates") and not word.endswith("_like")


@cache
def is_discrete(word: str) -> bool:
    """Return whether a call always returns integers or booleans."""
    return _always(word, lambda facts: {*facts.kinds} <= {"int", "bool"})


@cache
def moves(word: str) -> bool:
    """Return whether a call always returns elements of its arguments, unchanged, in whatever order: `view`, `cat`, `gather`."""
    return _always(word, lambda facts: facts.category in MOVING)


@cache
def is_mask(word: str) -> bool:
    """Return whether a call always returns booleans: `isnan`, `gt`."""
    return _always(word, lambda facts: {*facts.kinds} == {"bool"})


@cache
def may_compute_lower(word: str) -> bool:
    """Return whether autocast may run a call in its lower dtype, `matmul` in float16, whatever the dtype of the arguments."""
    return any(facts.autocast in ("lower", "region") for facts in facts_of_call(word))


@cache
def singularities(word: str, constants: frozenset[str]) -> frozenset[str]:
    """Return where a call's gradient is unbounded: `zero` (a root at 0), `length` (a norm of 0) or `rank` (a singular matrix).

    `constants` are the literal arguments of the call, as text: by them a norm of one kind is told from another.
    """
    return frozenset(
        facts.singular
        for facts in facts_of_call(word)
        if facts.singular and (not facts.chosen_by or facts.chosen_by in constants)
    )


@cache
def computes_in_given_dtype(word: str) -> bool:
    """Return whether a call with a `dtype` computes as if its tensor had it: sums, cumulative sums, softmax."""
    return _always(word, lambda facts: facts.category in ("reduction", "same_shape"))


@cache
def optional_tensors(word: str) -> frozenset[tuple[int, str]]:
    """Return the tensor parameters with None allowed, with their positions: the bias of `linear`."""
    return frozenset(item for facts in facts_of_call(word) for item in facts.optional)


@cache
def position_of(word: str, parameter: str) -> int | None:
    """Return the position of a parameter, a method's receiver counted: 1 of `dim` in `x.sum(dim)`; None if no such call has it."""
    table = built_in_primitives()
    calls = [parameters(table.heads[name][0]) for name in table.names_called(word)]
    found = (call.index(parameter) for call in calls if parameter in call)
    return next(found, None)


@cache
def changed_tensors(word: str) -> frozenset[tuple[int, str]]:
    """Return the tensor arguments a call writes to, with their positions: the running mean of `batch_norm`."""
    return frozenset(item for facts in facts_of_call(word) for item in facts.changes)


@cache
def constant_tensors(word: str) -> frozenset[tuple[int, str]]:
    """Return the tensor arguments without a gradient in every call of this name, with their positions."""
    several = [frozenset(facts.constants) for facts in facts_of_call(word)]
    return frozenset.intersection(*several) if several else frozenset()


def name_alone(name: str) -> str:
    """Return the equivalent of a function for one argument: `nonzero` for `torch.where(mask)`."""
    return {"where": "nonzero"}.get(name, name)


def kinds(word: str) -> frozenset[str]:
    """Return the words for the kinds of the results of all calls of this name."""
    return frozenset(kind for facts in facts_of_call(word) for kind in facts.kinds)


@cache
def takes_index(word: str) -> bool:
    """Return whether an argument of a call may be positions: `gather`, `index_add_`."""
    return any(facts.indices for facts in in_place_or_not(word))


@cache
def takes_mask(word: str) -> bool:
    """Return whether a call may choose elements by a mask: `torch.where`, `masked_fill_`."""
    known = in_place_or_not(word)
    # `bitwise_and(x, y)`, of the category constant, may get masks too, but chooses no elements by them.
    return any(facts.masks and facts.category != "constant" for facts in known)


@cache
def mask_positions(word: str) -> frozenset[int]:
    """Return the positions of the mask arguments of a call, a method's receiver counted.

    0 for `torch.where(mask, x, y)`, 1 for `x.masked_fill_(mask, 0)`.
    """
    if not takes_mask(word):
        return frozenset()
    names = {name for facts in in_place_or_not(word) for name in facts.masks}
    # The table has no head for most in-place forms: the parameters are those of `masked_fill`.
    plain = word if facts_of_call(word) else word.removesuffix("_")
    found = (position_of(plain, name) for name in names)
    return frozenset(at for at in found if at is not None)


def in_place_or_not(word: str) -> tuple[Facts, ...]:
    """Return the facts of a call, or of the one that `masked_fill_` is the in-place form of."""
    return facts_of_call(word) or facts_of_call(word.removesuffix("_"))


@cache
def changes_in_place(word: str) -> bool:
    """Return whether an in-place method of this name, if any, changes elements: `exp_`, `copy_`."""
    if not is_in_place(word):
        return False
    # Only `functions.toml` knows `copy_` and `normal_`: they have no form without the `_`.
    # `x.squeeze_()` only gives the same elements another shape: the result of `squeeze` is a view, not fresh.
    return word in functions() or any(
        facts.memory == "fresh" and facts.is_one_tensor
        for facts in facts_of_call(word.removesuffix("_"))
    )
