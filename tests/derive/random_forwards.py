"""Random forwards over distinct sizes, of any rank up to four.

In: a seed. Out: a `Drawn`: the signature and the forward of an op, and its inputs. Invariant: the forward is valid for the inputs,
and its result is finite.
"""

import math
import random
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

SIZES = {"A": 2, "B": 3, "C": 4, "D": 5}
UNARY = (
    *("torch.exp({0})", "torch.tanh({0})", "torch.sigmoid({0})", "F.softplus({0})"),
    *("torch.sin({0})", "{0} ** 2", "F.silu({0})", "torch.sqrt({0} ** 2 + 1)"),
    *("torch.rsqrt({0} ** 2 + 1)", "torch.log1p({0} ** 2)", "-{0}", "0.5 * {0}"),
    *("torch.atan({0})", "torch.erf({0})", "1 / (1 + {0} ** 2)", "torch.relu({0})"),
    *("{0}.abs()", "{0}.clamp(-1, 1)", "torch.where({0} > 0, {0}, 0.1 * {0})"),
    *("{0}.mean()", "{0}.sum()", "{0} / 3", "2 - {0}", "F.gelu({0})", "{0}.cos()"),
    *("torch.where({0} > 0.5, {0}, torch.exp({0}))", "{0}.detach() * {0}"),
)
ALONG = (
    *("torch.softmax({0}, dim={d})", "torch.log_softmax({0}, dim={d})"),
    *("{0}.mean({d}, keepdim=True)", "{0}.sum({d}, keepdim=True)", "{0}.sum({d})"),
    *("torch.cumsum({0}, {d})", "torch.logsumexp({0}, {d}, keepdim=True)"),
    *("{0}.amax({d}, keepdim=True)", "{0}.flip({d})", "{0}.mean({d})"),
    *(
        "torch.logsumexp({0}, {d})",
        "{0}.unsqueeze({d})",
        "({0}.var({d}, keepdim=True) + 1).sqrt()",
    ),
    *(
        "({0} ** 2 + 1).norm(dim={d}, keepdim=True)",
        "{0}.var({d}, keepdim=True, unbiased=False)",
    ),
    *(
        "{0}.amax({d})",
        "{0}.select({d}, 1)",
        "{0}.narrow({d}, 0, 2)",
        "{0}.roll(1, {d})",
    ),
    *("torch.cat([{0}, {0} * 2], {d})", "torch.stack([{0}, 2 * {0}], {d}).sum({d})"),
    *("{0}.softmax({d}).log()", "torch.prod({0}, {d})", "torch.sort({0}, dim={d})[0]"),
)
WIDE = (
    *(
        "{0}.mT",
        "{0}.transpose(-2, -1)",
        "{0}[..., :2, :]",
        "{0}[..., 1:]",
        "{0}[:, 0]",
    ),
    *("{0}[..., None]", "{0}[:, None]", "{0}.flatten(-2)", "{0}.tril()", "{0}[0]"),
    *("{0}.sum((-2, -1))", "{0}.mean((-2, -1), keepdim=True)", "{0}[..., -1]"),
    *("{0}.reshape(-1)", "{0} @ {0}.mT", "torch.einsum('...ij->...ji', {0})"),
)
BINARY = (
    *("{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} / (2 + {1} ** 2)", "{0} * {1} + {0}"),
    *("torch.maximum({0}, {1})", "torch.where({0} > {1}, {0}, {1} * {0})"),
    *(
        "torch.logaddexp({0}, {1})",
        "torch.hypot({0}, {1} + 3)",
        "torch.lerp({0}, {1}, 0.3)",
    ),
    *("torch.atan2({0}, {1} ** 2 + 1)", "{0}.masked_fill({1} > 0, 0.0)"),
)
PRODUCTS = ("{0} @ {1}", "{0} @ {1}.mT", "{0}.mT @ {1}", "torch.outer({0}, {1})")


class Drawn(NamedTuple):
    """An op, and inputs for it."""

    inputs: str
    forward: str
    values: tuple[Any, ...]


def drawn(seed: int) -> Drawn:
    """The op of a seed."""
    for attempt in range(1000):
        found = Drawer(random.Random(f"{seed} {attempt}"), seed).draw()
        if found is not None:
            return found
    raise AssertionError("no valid program")


class Drawer:
    """Draws statements over the values that it has."""

    def __init__(self, chance: random.Random, seed: int) -> None:
        self.chance = chance
        self.generator = torch.Generator().manual_seed(seed)
        self.values: dict[str, Tensor] = {}
        self.lines: list[str] = []

    def draw(self) -> Drawn | None:
        inputs = [
            self._input(name)
            for name in ("x", "y", "w")[: self.chance.choice((1, 2, 2, 3))]
        ]
        names = list(self.values)
        for name in ("a", "b", "c", "a")[: self.chance.randint(1, 4)]:
            if not self._statement(name):
                return None
        result = self.chance.choice(("{0}", "torch.tanh({0})", "{0} * 2")).format(
            self.lines[-1].split()[0]
        )
        if self._run(result) is None:
            return None
        forward = "\n".join([*self.lines, f"return {result}"])
        return Drawn(
            ", ".join(inputs), forward, tuple(self.values[name] for name in names)
        )

    def _input(self, name: str) -> str:
        rank = self.chance.choice((0, 1, 1, 2, 2, 2, 3, 3, 4))
        letters = list("ABCD")[-rank:] if rank else []
        if rank and self.chance.random() < 0.25:
            letters = [self.chance.choice("ABCD") for _ in letters]
        dims = [1 if self.chance.random() < 0.12 else letter for letter in letters]
        shape = [SIZES.get(str(dim), 1) for dim in dims]
        self.values[name] = torch.randn(
            shape, dtype=torch.double, generator=self.generator
        )
        style = self.chance.random()
        if style < 0.35:
            return name
        if style < 0.6 and rank > 1 and "1" not in map(str, dims[-1:]):
            return f"{name}[..., {dims[-1]}]"
        return f"{name}[{', '.join(map(str, dims))}]"

    def _statement(self, name: str) -> bool:
        for _ in range(12):
            text = self._expression(2)
            value = self._run(text)
            if value is not None:
                self.values[name] = value
                self.lines.append(f"{name} = {text}")
                return True
        return False

    def _expression(self, depth: int) -> str:
        if depth == 0 or self.chance.random() < 0.15:
            return self.chance.choice(list(self.values))
        kinds = (UNARY, UNARY, ALONG, ALONG, WIDE, BINARY, BINARY, PRODUCTS)
        template = self.chance.choice(self.chance.choice(kinds))
        parts = [
            self._expression(depth - 1) for _ in range(2 if "{1}" in template else 1)
        ]
        if "{d}" in template and self._rank(parts[0]) == 0:
            return parts[0]  # PyTorch takes a dim of a scalar, but no formula has one
        grouped = [part if part.isidentifier() else f"({part})" for part in parts]
        return template.format(*grouped, d=self.chance.choice((-1, -1, -2, 0, 1)))

    def _rank(self, text: str) -> int:
        value = self._run(text)
        return 0 if value is None else value.ndim

    def _run(self, text: str) -> Tensor | None:
        try:
            scope = {"torch": torch, "F": F, "math": math, **self.values}
            value = eval(text, scope)
        except (RuntimeError, IndexError, TypeError, ValueError):
            return None
        fine = bool(torch.isfinite(value).all()) and value.numel() < 3000
        return (
            value if fine and value.numel() and float(value.abs().max()) < 1e3 else None
        )
