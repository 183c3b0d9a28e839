"""The words of torch that the analysis asks about: what makes one fresh tensor, what changes one, what no tensor is.

In: the last word of a call or an attribute. Out: yes or no. Invariant: yes only where it is so for every tensor; a call that
sometimes returns several tensors makes none that is known, and one that may return its argument makes no fresh one. What is
known of each word stands in the table of primitives.
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

# Cheap to know of a tensor, and no tensor.
SHAPELY = METHODS | ATTRIBUTES | {"type"}
NAMESPACES = (
    *("torch.", "torch.nn.functional.", "torch.special.", "torch.linalg."),
    "torch.ops.aten.",
)
# Of one tensor in any shape, or of several in one shape.
ANY_SHAPE = frozenset({"elementwise", "reduction", "loss", "constant"})


@cache
def is_tensor_call(word: str) -> bool:
    """Whether a call returns one tensor, perhaps the very one that it is of."""
    return is_one_tensor(word) and not changes(word) or word == "requires_grad_"


@cache
def changes(word: str) -> bool:
    """Whether a method changes the tensor that it is called on."""
    return changes_in_place(word) and is_torch_word(word)


def creates(word: str) -> bool:
    """Whether a call makes a tensor of the values of no other one: `zeros`, `new_empty`."""
    return may_be(word, "creates")


def is_steady(word: str) -> bool:
    """Whether a call that returns a tensor returns the same in the next call."""
    return not (may_be(word, "random") or may_be(word, "uninitialised"))


def is_view_attribute(word: str) -> bool:
    """Whether an attribute is a view of its tensor: `x.mT`, `x.data`."""
    known = facts_of_attribute(word)
    return word == "data" or bool(known) and all(f.memory == "view" for f in known)


@cache
def is_of_any_shape(word: str) -> bool:
    """Whether a call is of one tensor in any shape, or of several in one shape: each element alone, or a sum of all."""
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
