"""A name that PyTorch does not have, which a verification has come upon.

In: an `OpSpec` and what it raised. Out: where a formula says the name, and what may have been meant. Invariant: what is
proposed is a spelling that the table of rules has, or one of `math`.
"""

import math
import re
from typing import NamedTuple

from scaffold.derive.vjp.spelling import normalized
from scaffold.derive.vjp.tables import table_of
from scaffold.errors import Location, did_you_mean
from scaffold.spec import OpSpec

MISSING = re.compile(
    r"raised AttributeError: (?:module '([\w.]+)'|'Tensor' object) has no attribute '(\w+)'"
)


class Misnamed(NamedTuple):
    """Where the name stands, and a hint."""

    place: Location | None
    hint: str | None


def misnamed(spec: OpSpec, words: str) -> Misnamed | None:
    """What can be said of an attribute that is not there; None if the words are about something else."""
    found = MISSING.match(words)
    if found is None:
        return None
    module, name = found.groups()
    stated = (spec.forward, spec.backward, *dict(spec.gradients).values())
    places = (formula.locate(name) for formula in stated if formula)
    return Misnamed(next(filter(None, places), None), _meant(spec, module, name))


def _meant(spec: OpSpec, module: str | None, name: str) -> str | None:
    """The function of that name elsewhere, else what is called much like it."""
    spelled = table_of(spec).spelled()
    paths = {text for kind, text in spelled if kind == "function" and "." in text}
    paths |= {f"math.{text}" for text in dir(math) if not text.startswith("_")}
    same = [path for path in paths if path.rpartition(".")[2] == name]
    if same:
        return f"write: {min(same)}(...)"
    own = normalized(f"{module}.").rstrip(".")
    near = {path.rpartition(".")[2] for path in paths if path.startswith(f"{own}.")}
    if module is None:
        near = {text for kind, text in spelled if kind in ("method", "attribute")}
    return did_you_mean(name, sorted(near)) or did_you_mean(name, sorted(paths))
