"""Values for the samples of rules.

In: a rule and a sample of it. Out: a value for each argument that the sample gives. Invariant: tensors lie in the domain of
their parameter, away from its kinks, and are the same on every run.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from scaffold.derive.rules.samples import Argument, Domain, Drawn, Several, read_domain
from scaffold.derive.rules.table import Rule, Table
from scaffold.formula import Node
from scaffold.verify.child.rule_values import Interpreter, Values, defaults


def draw(
    drawn: Drawn, domain: Domain, dtype: torch.dtype, generator: torch.Generator
) -> Tensor:
    """A tensor of a sample, in its domain but for the kinks."""
    sizes, low, high = drawn.sizes, *domain.bounds
    if domain.within == "bool":
        return torch.rand(sizes, generator=generator) > 0.5
    if domain.within == "index":
        return torch.randint(int(high), sizes, generator=generator)
    normal = torch.randn(sizes, dtype=dtype, generator=generator)
    uniform = torch.rand(sizes, dtype=torch.float64, generator=generator)
    if domain.within in ("positive", "unit", "interval"):
        if domain.within != "interval":
            low, high = 0, 2 if domain.within == "positive" else 1
        real = (low + (high - low) * (0.05 + 0.9 * uniform)).to(dtype)
        return real + 0.3j * normal.imag if dtype.is_complex else real
    if domain.within == "sign":
        return normal.real.sign().to(dtype)
    if domain.within == "nonzero":
        return normal + 0.3 * normal.sgn()
    if domain.within == "distinct":
        order = torch.randperm(max(normal.numel(), 1), generator=generator)
        return (0.7 * order[: normal.numel()].reshape(sizes) - 1.9).to(dtype)
    if domain.within == "simplex":
        return normal.real.softmax(-1).to(dtype)
    eye = torch.eye(sizes[-1], dtype=dtype) if len(sizes) > 1 else normal
    if domain.within == "spd":
        return normal @ normal.mH + eye
    if domain.within == "invertible":
        return normal + 3 * eye
    return (normal + 3 * eye).tril() if domain.within == "lower" else normal


def drawn_values(
    table: Table,
    rule: Rule,
    sample: Mapping[str, Argument],
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> Values:
    """Values for the arguments of a sample; only those that it gives."""
    generator = torch.Generator().manual_seed(seed)
    names = frozenset(item.name for item in rule.parameters)
    values: Values = defaults(table, rule)
    domains = {
        name: read_domain(text, names, table.graph)
        for name, text in rule.domain.items()
    }

    def value(name: str, argument: Argument) -> Any:
        domain = domains.get(name) or Domain()
        if isinstance(argument, Several):
            return tuple(value(name, item) for item in argument.items)
        if isinstance(argument, Drawn):
            return draw(argument, domain, dtype, generator)
        return Interpreter(table, {})(argument)

    for name, argument in sample.items():
        values[name] = value(name, argument)
    for name, domain in domains.items():
        for kink in domain.kinks if domain else ():
            values[name] = away(values[name], Interpreter(table, values), kink)
    return {name: values[name] for name in sample}


def away(value: Any, interpret: Interpreter, kink: Node) -> Any:
    """The value, moved away from a kink."""
    try:
        place = interpret(kink)
    except TypeError:  # of a parameter that is None
        return value
    if place is None or not isinstance(value, Tensor):
        return value
    near = (value - place).abs() < 0.1
    return (
        torch.where(near, value + 0.27, value) if near.shape == value.shape else value
    )
