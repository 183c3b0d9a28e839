"""The simplifications of all primitives, in the order in which they are asked.

In: the registries of the modules beside. Out: `SIMPLIFICATIONS`, for a `Maker`. Invariant: the first that finds a simpler op
makes it, and what it makes is simplified in turn.

Before all of them a maker asks the identities of the table: they bring signs and constants to the front, so that what follows
sees one spelling of a product.
"""

from scaffold.derive.simplify.algebra import ALGEBRA
from scaffold.derive.simplify.forward_products import REUNITED
from scaffold.derive.simplify.hoisting import HOISTED
from scaffold.derive.simplify.joined_sums import JOINED
from scaffold.derive.simplify.registry import in_order
from scaffold.derive.simplify.rewrites import ONE_HOTS, REWRITES

SIMPLIFICATIONS = in_order(
    (
        # `g * onehot / y` before it is taken for a product of the forward: nothing is divided by what `y` is elsewhere.
        ONE_HOTS,
        # Sums of products with a common factor, before these products change.
        ALGEBRA,
        REWRITES,
        # Only what is left as a product is looked up among those of the forward.
        REUNITED,
        JOINED,
        # Last what makes an op larger: a product inside a mask or below a sum is not met any more.
        HOISTED,
    )
)
