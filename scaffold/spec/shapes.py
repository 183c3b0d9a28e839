"""What stands in the brackets of an entry: dimensions, and traits after the `;`.

In: words with their places. Out: `Dim`s and `Traits`. Invariant: a shape holds `...` at most once and no size below 1.
"""

from collections.abc import Sequence
from typing import NamedTuple, get_args

from scaffold.errors import ScaffoldError, did_you_mean
from scaffold.spec.grammar import Trait
from scaffold.spec.model import Dim, Domain, DType
from scaffold.spec.tokens import Words

DOMAINS: tuple[Domain, ...] = get_args(Domain)[1:]
DTYPES: tuple[DType, ...] = ("int", "bool", "complex")
TRAITS = (*DTYPES, "index", "const", *DOMAINS)


class Traits(NamedTuple):
    """What the words after the `;` say of a tensor."""

    dtype: DType = "float"
    bound: Dim | None = None
    domain: Domain = "normal"
    const: bool = False


def read_dims(words: Sequence[Words]) -> tuple[Dim, ...]:
    """The dimensions of one shape."""
    dims = tuple(_dim(word) for word in words)
    if dims.count("...") > 1:
        second = [word for word in words if word.text == "..."][1]
        message = "a shape can hold '...' only once"
        raise ScaffoldError(message, second.place)
    return dims


def _dim(word: Words) -> Dim:
    if not word.text[0].isdigit() and not (word.text[0] == "." and word.text != "..."):
        return word.text
    if not word.text.isdecimal() or int(word.text) < 1:
        hint = "sizes are integers from 1; empty cases are tested anyway"
        raise ScaffoldError(f"{word.text} is not a size", word.place, hint)
    return int(word.text)


def read_traits(traits: Sequence[Trait], output: bool = False) -> Traits:
    """The traits of one tensor; two that contradict each other are an error at the second."""
    found = Traits()
    for trait in traits:
        found = _with(found, trait, output)
    for trait in traits:
        _check_domain(found, trait)
    return found


def _with(found: Traits, trait: Trait, output: bool) -> Traits:
    word = trait.word.text
    if trait.argument is not None and word != "index":
        raise ScaffoldError(f"'{word}' takes no argument", trait.argument.place)
    if word == "index":
        return _index(found, trait, output)
    for name in DTYPES:
        if word == name:
            return _once(found, trait, "dtype", "float")._replace(dtype=name)
    for domain in DOMAINS:
        if word == domain and not output:
            return _once(found, trait, "domain", "normal")._replace(domain=domain)
    if word == "const":
        return found._replace(const=True)
    raise _unknown(trait, output)


def _index(found: Traits, trait: Trait, output: bool) -> Traits:
    if output:
        hint = "write: indices[N; int]"
        message = "'index' says where test values come from: an output has none"
        raise ScaffoldError(message, trait.word.place, hint)
    if trait.argument is None:
        hint = "write: target[N; index(C)]"
        message = "'index' needs the size it counts below"
        raise ScaffoldError(message, trait.word.place, hint)
    bound = _dim(trait.argument)
    return _once(found, trait, "dtype", "float")._replace(dtype="index", bound=bound)


def _once(found: Traits, trait: Trait, field: str, default: str) -> Traits:
    before = getattr(found, field)
    if before != default:
        message = f"'{trait.word.text}' contradicts '{before}'"
        raise ScaffoldError(message, trait.word.place)
    return found


def _unknown(trait: Trait, output: bool) -> ScaffoldError:
    word = trait.word.text
    if word in DOMAINS:
        message = f"'{word}' says where test values come from: an output has none"
        return ScaffoldError(message, trait.word.place)
    known = [name for name in TRAITS if not output or name in (*DTYPES, "const")]
    hint = did_you_mean(word, known) or f"known: {', '.join(known)}"
    if word in ("float", "float32", "float64", "double"):
        hint = "tensors are floating unless they are declared int, bool or complex"
    if word in ("long", "int64", "int32"):
        hint = "write: int"
    return ScaffoldError(f"unknown trait '{word}'", trait.word.place, hint)


def _check_domain(found: Traits, trait: Trait) -> None:
    """Domains are those of floating tensors; of complex ones only `nonzero` has a meaning."""
    word = trait.word.text
    if word not in DOMAINS or found.dtype == "float":
        return
    if found.dtype != "complex" or word != "nonzero":
        kind = "integer" if found.dtype in ("int", "index") else found.dtype
        message = f"'{word}' has no meaning for a tensor of dtype {kind}"
        hint = "write index(C) for values from 0 below C" if kind == "integer" else None
        raise ScaffoldError(message, trait.word.place, hint)


def check_domain(dims: tuple[Dim, ...] | None, traits: Sequence[Trait]) -> None:
    """Complain of a shape that the domain cannot have."""
    words = {trait.word.text: trait.word for trait in traits}
    if "spd" in words:
        square = dims is not None and len(dims) >= 2 and dims[-1] == dims[-2]
        if not square or dims is None or dims[-1] == "...":
            message = "'spd' needs a shape whose last two sizes are equal"
            raise ScaffoldError(message, words["spd"].place, "write: [..., N, N; spd]")
    if "simplex" in words and dims is not None and dims in ((), ("...",)):
        message = "'simplex' needs a shape with a last size"
        raise ScaffoldError(message, words["simplex"].place, "write: [..., C; simplex]")
