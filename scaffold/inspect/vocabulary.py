"""Vocabulary: words of torch by effect: making a fresh tensor, changing one, giving no tensor.

The other modules of `inspect` see calls of unknown objects (`x.exp()`) in a user's text, and ask here, by the word alone, if the
result is a tensor or if the call changes its object.

In: the last word of a call or an attribute, `exp` for `torch.exp(x)`. Out: a bool.
Invariant: yes only if it is so for every tensor; a call that sometimes returns several tensors does not count as making one, and one
that may return its argument does not make a fresh one. The facts about each word stand in the table of primitives.
"""

from functools import cache

from scaffold.formula import is_torch_word
from scaffold.primitives.calls import (
    changes_in_place,
    facts_of_attribute,
    facts_of_call,
    is_one_tensor,
    may_be,
)
from scaffold.primitives.python_values import ATTRIBUTES, METHODS

# Cheap facts about a tensor, not tensors themselves.
SHAPELY = METHODS | ATTRIBUTES | {"type"}
NAMESPACES = (
    *("torch.", "torch.nn.functional.", "torch.special.", "torch.linalg."),
    "torch.ops.aten.",
)
# Categories of primitives for one tensor of any shape, or several of one shape.
ANY_SHAPE = frozenset({"elementwise", "reduction", "loss", "constant"})


@cache
def is_tensor_call(word: str) -> bool:
    """Return whether a call returns one tensor, perhaps its own argument, and changes none in place: `exp`, `reshape`.

    `requires_grad_` counts, although its name ends like a change: it leaves the values as they are.
    """
    return is_one_tensor(word) and not changes(word) or word == "requires_grad_"


@cache
def changes(word: str) -> bool:
    """Return whether a method changes the values of its own tensor: `add_`, `copy_`."""
    return changes_in_place(word) and is_torch_word(word)


def creates(word: str) -> bool:
    """Return whether a call makes a tensor without another one's values: `zeros`, `new_empty`."""
    return may_be(word, "creates")


def is_steady(word: str) -> bool:
    """Return whether a tensor-valued call gives the same values every time."""
    return not (may_be(word, "random") or may_be(word, "uninitialised"))


def is_view_attribute(word: str) -> bool:
    """Return whether an attribute is a view of its tensor: `x.mT`, `x.data`."""
    known = facts_of_attribute(word)
    return word == "data" or bool(known) and all(f.memory == "view" for f in known)


@cache
def is_of_any_shape(word: str) -> bool:
    """Return whether a call takes one tensor of any shape, or several of one shape: `exp`, `add`, `sum`, `clone`.

    A Function of such calls alone can be tested without shapes from the user. `word` may name several primitives, a function
    and a method of other meaning: then it must hold for all of them.
    """
    known = facts_of_call(word)
    return bool(known) and all(
        facts.is_one_tensor
        and "creates" not in facts.flags
        and (
            facts.category in ANY_SHAPE
            or facts.memory in ("same", "either")
            or facts.category == "same_shape"
            and len(facts.differentiable) == 1
        )
        for facts in known
    )
