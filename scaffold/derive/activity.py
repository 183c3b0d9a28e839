"""What an expression is to the derivative: does it carry a gradient, may it be computed a second time?

In: expressions, and the names that carry a gradient. Out: yes or no. Invariant: in doubt it carries a gradient, and a
function from outside torch is not called twice.
"""

from collections.abc import Iterator

from scaffold.derive.metadata import metadata_read
from scaffold.formula import Node

RANDOM = frozenset(
    {"bernoulli", "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"}
    | {
        "feature_alpha_dropout",
        "gumbel_softmax",
        "multinomial",
        "normal",
        "poisson",
        "rand",
    }
    | {
        "rand_like",
        "randint",
        "randint_like",
        "randn",
        "randn_like",
        "randperm",
        "rrelu",
    }
    | {"bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_"}
    | {"random_", "uniform_", "fractional_max_pool2d", "fractional_max_pool3d"}
)
WITHOUT_GRADIENT = frozenset(
    {
        "all",
        "any",
        "arange",
        "argmax",
        "argmin",
        "argsort",
        "bool",
        "bucketize",
        "ceil",
        "detach",
    }
    | {
        "empty_like",
        "eq",
        "equal",
        "floor",
        "ge",
        "gt",
        "int",
        "isfinite",
        "isinf",
        "isnan",
        "le",
    }
    | {
        "logical_and",
        "logical_not",
        "logical_or",
        "logical_xor",
        "long",
        "lt",
        "ne",
        "nonzero",
    }
    | {
        "ones_like",
        "rand_like",
        "randint_like",
        "randn_like",
        "round",
        "searchsorted",
        "sgn",
    }
    | {"sign", "signbit", "trunc", "zeros_like"}
)
NUMPY = frozenset({"numpy", "from_numpy", "as_tensor", "tolist", "item"})


def callee(node: Node) -> str | None:
    """The last word of what a call calls."""
    if node.kind != "call":
        return None
    return node.args[0].label or None


def carries_gradient(node: Node, active: frozenset[str]) -> bool:
    """Whether the value depends on one of the `active` names in a differentiable way."""
    if metadata_read(node) or node.kind == "compare":
        return False
    if node.kind == "name":
        return node.label in active
    if callee(node) in WITHOUT_GRADIENT:
        return False
    return any(carries_gradient(arg, active) for arg in node.args)


def calls(node: Node) -> Iterator[str]:
    """The last word of every call in an expression."""
    return (name for item in node.walk() if (name := callee(item)))


def leaves_torch(node: Node, imported: frozenset[str]) -> bool:
    """Whether the expression goes through NumPy or through code of the user's."""
    return bool(node.names() & imported) or any(name in NUMPY for name in calls(node))


def repeatable(node: Node, imported: frozenset[str]) -> bool:
    """Whether computing it again gives the same at a fair price."""
    return not leaves_torch(node, imported) and not any(
        name in RANDOM for name in calls(node)
    )
