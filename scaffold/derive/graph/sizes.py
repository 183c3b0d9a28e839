"""Arithmetic on sizes: sums, products and quotients of named sizes, each in a normal form.

In: sizes. Out: a size, equal to another exactly if both are known to be the same number. Invariant: a result holds
for all sizes; nonnegativity is used only where requested, since a Python value may be negative.

For shapes of results: `torch.cat([x, x[1:]])` has `2*N - 1` rows. Words: a named size is a dim declared under a name,
`N`; an unnamed one is identified by its origin, as a sum of others. `terms` maps each product of sizes in a sum to
its factor; a sum is kept so as a `Polynomial`. A `Dim` is a size of any kind. A size is `said` if it is written as
text; an atom is a size that is no sum and no product.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import gcd

from scaffold.derive.graph.shapes import Dim, NamedSize, UnnamedSize, is_lead

Monomial = tuple[Dim, ...]  # sorted by their text
# Integer multiples of products; the empty product is 1.
Terms = Mapping[Monomial, int]


@dataclass(frozen=True, slots=True, repr=False)
class Polynomial(UnnamedSize):
    """A sum of integer multiples of products of sizes: `3*D`, `H - H//2`."""

    terms: tuple[tuple[Monomial, int], ...]


@dataclass(frozen=True, slots=True, repr=False)
class Quotient(UnnamedSize):
    """A size divided by another, rounded down."""

    size: Dim
    by: Dim


class Share(Quotient):
    """A quotient known by a condition to be exact: `H/2`, so `H` is twice it."""

    __slots__ = ()


def terms_of(size: Dim) -> Terms:
    """Return a size as a sum of products with their counts: `3*D + 1` -> `{(D,): 3, (): 1}`."""
    if isinstance(size, Polynomial):
        return dict(size.terms)
    if isinstance(size, int):
        return {(): size} if size else {}
    return {(size,): 1}


def size_of(terms: Terms) -> Dim:
    """Return the size of a sum of products, simplified to an int or a single size: `{(): 4}` -> 4, `{(N,): 1}` -> N."""
    left = {product: count for product, count in terms.items() if count}
    if not left.keys() - {()}:
        return left.get((), 0)
    if len(left) == 1:
        ((product, count),) = left.items()
        if count == 1 and len(product) == 1:
            return product[0]
    return Polynomial(tuple(sorted(left.items(), key=repr)))


def plus(one: Dim, two: Dim, factor: int = 1) -> Dim:
    """Return `one + factor * two` for sizes: `H + 1`, H, -1 -> 1."""
    terms = dict(terms_of(one))
    for product, count in terms_of(two).items():
        terms[product] = terms.get(product, 0) + factor * count
    return size_of(terms)


def minus(one: Dim, two: Dim) -> Dim:
    """Return `one - two`."""
    return plus(one, two, -1)


def times(one: Dim, two: Dim) -> Dim:
    """Return `one * two`."""
    terms: dict[Monomial, int] = {}
    for left, count in terms_of(one).items():
        for right, other in terms_of(two).items():
            product = tuple(sorted((*left, *right), key=repr))
            terms[product] = terms.get(product, 0) + count * other
    return size_of(terms)


def added(sizes: Iterable[Dim]) -> Dim:
    """Return the sum of sizes."""
    total: Dim = 0
    for size in sizes:
        total = plus(total, size)
    return total


def multiplied(sizes: Iterable[Dim]) -> Dim:
    """Return the product of sizes."""
    product: Dim = 1
    for size in sizes:
        product = times(product, size)
    return product


def divided(size: Dim, by: Dim) -> Dim | None:
    """Return `size / by` if the division is certainly exact: `6*N*D`, `2*D` -> `3*N`; None otherwise, as by most sums."""
    # A sum divides only itself, `(N + 1) / (N + 1)`; of numbers, 0 / 0 must not be 1.
    if not isinstance(by, int) and size == by:
        return 1
    divisor = terms_of(by)
    if len(divisor) != 1:
        return None
    ((factors, count),) = divisor.items()  # one product of sizes, times a number
    found: dict[Monomial, int] = {}
    for product, times_in_size in terms_of(size).items():
        rest = _without(product, factors)
        if rest is None or times_in_size % count:
            return None
        found[rest] = times_in_size // count
    return size_of(found)


def _without(product: Monomial, factors: Monomial) -> Monomial | None:
    """Return a product of sizes without the given factors: `(D, N)`, `(N,)` -> `(D,)`; None if one is missing."""
    left = list(product)
    for factor in factors:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


def quotient(size: Dim, by: Dim) -> Dim:
    """Return `size // by`: of two numbers a number, a simpler size if the division is exact, otherwise a `Quotient` of the two."""
    if isinstance(size, int) and isinstance(by, int) and by:  # 0 fails in the call
        return size // by
    exact = divided(size, by)
    return Quotient(size, by) if exact is None else exact


def is_never_negative(size: Dim) -> bool:
    """Return whether a size is certainly at least 0: a sum of sizes, or a size minus parts of itself, as `H - H//2`."""
    return all(
        count >= 0 and all(map(_is_size, product))
        for product, count in _least(size).items()
    )


def _least(size: Dim) -> Terms:
    """Return a lower bound of a sum, by `H // 2 <= H` for subtracted quotients: `H - H//2` -> `H - H`.

    A bound of -1 stands for no bound: of a Python value, which may be negative, `n // 2` is not below n.
    """
    found: Dim = 0
    for product, count in terms_of(size).items():
        term = size_of({product: count})
        match product:
            # A subtracted quotient, `-(H // 2)`; one that is added is at least 0 anyway.
            case (Quotient(whole, int(by)),) if count < 0 < by:
                if not _is_size(whole):
                    return {(): -1}
                # Rounded down, so a lower bound: `-1 // 2` is -1, and `-(H // 2)` is at least `-H`.
                term = times(count // by, whole)
        found = plus(found, term)
    return terms_of(found)


def _is_size(dim: Dim) -> bool:
    """Return whether it is certainly the size of a dim, or a part of one, and so not negative; leading dims are no single size."""
    match dim:
        case int() as number:
            return number >= 0
        # By a negative number the quotient is below zero.
        case Quotient(size, by):
            return _is_size(size) and _is_size(by)
        case Polynomial():
            return is_never_negative(dim)
        case UnnamedSize():
            return dim.is_of_dim
    return not is_lead(dim)


def replaced(size: Dim, old: Dim, new: Dim) -> Dim:
    """Return a size with another size in place of `old`: `2*H + 1`, H, `3*D` -> `6*D + 1`. So an equation solved for `old` is used."""
    return added(
        times(count, multiplied(new if item == old else item for item in product))
        for product, count in terms_of(size).items()
    )


def solved(one: Dim, two: Dim) -> tuple[NamedSize, Dim] | None:
    """Return a size's name and its value by the equation `one == two`: `E == 3 * D` -> `(E, 3*D)`.

    None if no name can be solved for, or its value might be negative. A condition of the user's (`require`) tells the
    equation.
    """
    terms = terms_of(minus(one, two))  # they add up to 0
    found: list[tuple[NamedSize, Dim]] = []
    for product, count in terms.items():
        rest = size_of({key: of for key, of in terms.items() if key != product})
        match product:
            case (NamedSize() as name,) if name not in _names(rest):
                value = divided(times(-1, rest), count)
                # Not of `N == 0`, which is for empty tensors alone.
                if value is not None and rest != 0:
                    found.append((name, value))
    # Of `E == D - 1` not E, which may be negative there, but `D`, which is `E + 1`.
    return next((item for item in found if is_never_negative(item[1])), None)


def divisible(size: Dim, by: Dim) -> tuple[Dim, Dim] | None:
    """Return the size restricted by `size % by == 0`, and its new value: `H % 2 == 0` -> `(H, 2*(H/2))`, with an exact `H/2`.

    None if `size` is not a multiple of one size, or `by` contains it.
    """
    terms = terms_of(size)
    if len(terms) != 1:
        return None
    (((*atoms,), count),) = terms.items()  # one product of sizes, times a number
    if len(atoms) != 1 or atoms[0] in _names(by):
        return None
    if isinstance(by, int):
        # `4*H % 6 == 0` says that H is divisible by 3.
        by = by // gcd(by, count)
    # A name as divisor: a factor of `2*H` may be part of it or not.
    elif count != 1:
        return None
    return atoms[0], times(by, Share(atoms[0], by))


def _names(size: Dim) -> set[Dim]:
    """Return all sizes a size is computed from, named or not, also inside quotients: N and D of `N*(D//2)`."""
    found: set[Dim] = set()
    for product in terms_of(size):
        for item in product:
            found.add(item)
            if isinstance(item, Quotient):
                found |= _names(item.size) | _names(item.by)
    return found


def is_made_of_named_sizes(size: Dim) -> bool:
    """Return whether it is computed from named sizes alone, so it can be written as text."""
    return is_made_of(size, lambda item: isinstance(item, NamedSize | Quotient))


def is_made_of(size: Dim, known: Callable[[Dim], bool]) -> bool:
    """Return whether the predicate `known` holds for all sizes it is computed from."""
    return all(map(known, _names(size)))


def said(size: Dim) -> str | None:
    """Return a size as text, `3*D` or `(H - H//2)`; None if a part has no name."""
    if not is_made_of_named_sizes(size):
        return None
    match size:
        case int() as number:
            return str(number)
        case NamedSize(name):
            return name
        case Share(whole, by):
            return f"{said(whole)}/{said(by)}"
        case Quotient(whole, by):
            return f"({said(whole)}//{said(by)})"
    # Those with a minus last, so that the text does not begin with one if it need not.
    terms = sorted(terms_of(size).items(), key=lambda item: item[1] < 0)
    text = " + ".join(_term_said(*item) for item in terms).replace("+ -", "- ")
    return f"({text})" if len(terms) > 1 else text


def _term_said(product: Monomial, count: int) -> str:
    """Return a product times its count as text, `-3*N*D`; twice the exact half of a size, `2*(H/2)`, is `H` again.

    All parts have a text, as `said` asks first whether they are named.
    """
    for item in product:
        if isinstance(item, Share):
            left = divided(size_of({product: count}), times(item.by, item))
            if left is not None:
                return said(times(left, item.size)) or ""
    factors = [item for item in map(said, product) if item]
    if count not in (1, -1) or not factors:
        factors.insert(0, str(abs(count)))
    return ("-" if count < 0 else "") + "*".join(factors)
