"""Rules on samples: compare their formulas with autograd's gradients, or with differences.

The rule table states, for each primitive, the gradient of its result by each argument as text; a wrong text would make wrong ops. The tests
of our own table and `scaffold rules check`, for a user's, run every formula here.
In: a table and a rule of it. Out: for each sample and dtype a `Run`.
Words: a *sample* is an example call in a rule's section, `x[3, 4], dim=1`, whose tensors are *drawn*; a *domain* restricts their values; a
*kink* is a place without a derivative; a *cotangent* is the gradient that arrives at a result; a rule's `value` is a formula for the result.
Invariant: formulas are computed as written, on values of
the rule's domain away from its kinks, the same on every run.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scaffold.derive.rules.sample_calls import (
    Argument,
    Domain,
    Drawn,
    Sample,
    Several,
    read_domain,
    read_sample,
)
from scaffold.derive.rules.table import Rule, Table
from scaffold.formula import Node
from scaffold.verify.child.rule_values import (
    Interpreter,
    Values,
    called,
    defaults,
    is_zero,
    value_of,
)


def draw(
    drawn: Drawn, domain: Domain, dtype: torch.dtype, generator: torch.Generator
) -> Tensor:
    """Draw a tensor of a sample's sizes in the rule's domain, as "positive" or "spd" (symmetric positive definite).

    `away` moves values near a kink afterwards. The constants keep values off 0 and off the ends of an interval, and matrices well
    conditioned.
    """
    sizes = drawn.sizes
    if domain.within == "bool":
        return torch.rand(sizes, generator=generator) > 0.5
    if domain.within == "index":
        # Indices begin at 0, so the upper bound is enough.
        return torch.randint(int(domain.bounds[1]), sizes, generator=generator)
    normal = torch.randn(sizes, dtype=dtype, generator=generator)
    uniform = torch.rand(sizes, dtype=torch.float64, generator=generator)
    ranges = {"positive": (0, 2), "unit": (0, 1), "interval": domain.bounds}
    if domain.within in ranges:
        low, high = ranges[domain.within]
        real = (low + (high - low) * (0.05 + 0.9 * uniform)).to(dtype)
        return real + 0.3j * normal.imag if dtype.is_complex else real
    if domain.within == "sign":
        return normal.real.sign().to(dtype)
    if domain.within == "nonzero":
        return normal + 0.3 * normal.sgn()
    if domain.within == "distinct":
        order = torch.randperm(normal.numel(), generator=generator)
        return (0.7 * order.reshape(sizes) - 1.9).to(dtype)
    if domain.within == "simplex":
        return normal.real.softmax(-1).to(dtype)
    if domain.within not in ("spd", "invertible", "lower"):  # kinds of matrices
        return normal
    eye = torch.eye(sizes[-1], dtype=dtype)
    if domain.within == "spd":
        return normal @ normal.mH + eye
    dominant = normal + 3 * eye
    return dominant.tril() if domain.within == "lower" else dominant


def drawn_values(
    table: Table,
    rule: Rule,
    sample: Mapping[str, Argument],
    dtype: torch.dtype = torch.float64,
) -> Values:
    """Draw values for the arguments given in a sample, in their domains and away from kinks; the same on every run."""
    generator = torch.Generator().manual_seed(0)
    names = frozenset(item.name for item in rule.parameters)
    values: Values = defaults(table, rule)  # a kink may depend on any parameter
    domains = {
        name: read_domain(text, names, table.graph)
        for name, text in rule.domain.items()
    }

    def value(name: str, argument: Argument) -> Any:
        """Return an argument's value: tensors are drawn, anything else is computed from its text."""
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
    # Without the defaults: only what the sample says is passed in the call.
    return {name: values[name] for name in sample}


def away(value: Any, interpret: Interpreter, kink: Node) -> Any:
    """Return a tensor with elements near the kink moved away from it; another value, or one without the kink, as it is.

    `kink` is a formula of the place, maybe of parameters: `threshold`. `interpret` knows their values.
    """
    try:
        place = interpret(kink)
    except TypeError:  # the kink has a parameter that is None
        return value
    if place is None or not isinstance(value, Tensor):
        return value
    near = (value - place).abs() < 0.1
    # A kink with dims of its own makes `near` larger: it is no single place then.
    return (
        torch.where(near, value + 0.27, value) if near.shape == value.shape else value
    )


STEP = 1e-6


class Unsuited(Exception):
    """A rule lacks a required statement; the message says which."""


BROADCASTING = {"elementwise", "loss"}


def samples(table: Table, rule: Rule) -> list[Sample]:
    """Return the samples of a rule, read from their text, each a call's arguments by parameter.

    `table_checks` has refused a table with a sample that does not fit the call (None).
    """
    found = [read_sample(text, rule.spelled, table.graph) for text in rule.samples]
    return [item for item in found if item is not None]


def dtypes(rule: Rule) -> list[torch.dtype]:
    """Return the dtypes in which a rule is checked: double precision, and complex unless the rule says `complex = false`."""
    if rule.facts.complex == "only":
        return [torch.complex128]
    return [torch.float64, torch.complex128] if rule.facts.complex else [torch.float64]


def tuple_of(value: Any) -> tuple[Any, ...]:
    """Return the results of a call as a tuple."""
    return (value,) if isinstance(value, Tensor) else tuple(value)


class Run:
    """One sample of a rule: torch's gradients, and the values to compute the formulas from."""

    def __init__(
        self, table: Table, rule: Rule, given: Values, alone: str | None = None
    ) -> None:
        """Call torch and compute the expected gradients; `given` are the arguments, of which the differentiable ones become leaves.

        `alone`: the cotangent of the only result that is used; those of the others are then the number 0, as in the engine. The attribute
        `opaque`: autograd cannot differentiate the call, and the expected gradients are finite differences.
        """
        self.table, self.rule, self.given, self.alone = table, rule, given, alone
        self.active = _active(rule, given)  # the arguments with a gradient
        outputs = _results(rule, given)
        self.opaque = _is_opaque(rule, self.inputs, outputs)
        if self.opaque:
            outputs = tuple(map(_recordable, outputs))
        self.outputs = outputs
        grads = _cotangents(rule, outputs)
        differentiable = [out for out in outputs if out.requires_grad]
        if alone is not None:
            # Autograd is asked for this result only, the formulas for all: with the number 0 for the others.
            differentiable = [outputs[rule.cotangents.index(alone)]]
            grads = {name: g if name == alone else 0 for name, g in grads.items()}
        # The cotangents in a row, without those that are None or the number 0.
        self.grads = [
            item
            for value in grads.values()
            for item in (value if isinstance(value, tuple) else (value,))
            if isinstance(item, Tensor)
        ]
        self.wanted = (
            by_differences(self._outputs, self.inputs, self.grads)
            if self.opaque
            else torch.autograd.grad(
                differentiable,
                self.inputs,
                self.grads,
                create_graph=True,
                # One result alone need not depend on every argument: of others the gradient is 0.
                allow_unused=alone is not None,
                materialize_grads=alone is not None,
            )
        )
        values = defaults(table, rule) | given | _named(rule, outputs) | grads
        self.interpret = Interpreter(table, values)

    @property
    def inputs(self) -> list[Tensor]:
        return [self.given[name] for name in self.active]

    def _outputs(self) -> tuple[Tensor, ...]:
        """Return the results with a cotangent."""
        return tuple(filter(_is_smooth, _results(self.rule, self.given)))

    def variants(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Yield for each formula of a gradient its text, its value, and the expected gradient."""
        for name, wanted in zip(self.active, self.wanted, strict=True):
            for text, node in zip(
                self.rule.formulas[name],
                self.table.gradients(self.rule, name),
                strict=True,
            ):
                value = self._value(node, wanted)
                got = _fitted(self.rule, value, self.given[name])
                yield f"grad.{name} = {text}", got, wanted

    def _value(self, node: Node, wanted: Tensor) -> Tensor:
        """Return the value of a gradient's formula; raise Unsuited if it cannot compute with the number 0 for an unused cotangent."""
        try:
            value = self.interpret(node)
        except (TypeError, AttributeError) as error:
            if self.alone is None:
                raise
            said = str(error).partition("\n")[0]
            raise Unsuited(
                f"if only {self.alone} has a gradient, the others are the number 0: {said}; add them to zeros of their shapes"
            ) from None
        return torch.zeros_like(wanted) if is_zero(value) else value

    def fused(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Yield text, value and expected gradient, as `variants` does, for the other formulas of one fused call (`fused.x`).

        They are for real arguments alone, as `hardswish_backward(grad, x)`: complex ones are left out.
        """
        for name, wanted in zip(self.active, self.wanted, strict=True):
            node = self.table.fused(self.rule, name)
            if node is not None and not wanted.is_complex():
                got = _fitted(self.rule, self.interpret(node), self.given[name])
                yield f"fused.{name} = {self.rule.fused[name]}", got, wanted


def runs(table: Table, rule: Rule) -> Iterator[tuple[str, Run]]:
    """Yield a run of every sample in every dtype; with several results, also one for each alone."""
    for dtype in dtypes(rule):
        for text, sample in zip(rule.samples, samples(table, rule), strict=True):
            torch.manual_seed(1)
            given = drawn_values(table, rule, sample, dtype)
            run = Run(table, rule, given)
            yield f"{text} in {dtype}", run
            # A starred result, `*outputs`, has one cotangent, a tuple: none of it can be left out.
            if len(run.grads) > 1 and len(rule.cotangents) > 1 and not run.opaque:
                for name, out in zip(rule.cotangents, run.outputs, strict=True):
                    if out.requires_grad:
                        place = f"{text} in {dtype}, of {name} alone"
                        yield place, Run(table, rule, dict(given), name)


class Comparison(NamedTuple):
    """A formula's value on a sample, and the expected one."""

    sample: str
    formula: str
    got: Tensor
    wanted: Tensor
    opaque: bool  # expected by differences, as autograd has no gradient of the call


def comparisons(table: Table, rule: Rule) -> Iterator[Comparison]:
    """Yield the comparison of each formula of a rule on each sample; of a rule with a `value` that, and its gradients."""
    if rule.value is not None:
        yield from of_value(table, rule)
        return
    for place, run in runs(table, rule):
        for formula, got, wanted in (*run.variants(), *run.fused()):
            yield Comparison(place, formula, got, wanted, run.opaque)


def of_value(table: Table, rule: Rule) -> Iterator[Comparison]:
    """Yield comparisons of a rule's `value`, its formula for the result, with the call, and of the gradients of both.

    If autograd cannot differentiate the call (`opaque`), its gradients are finite differences.
    """
    assert rule.value is not None
    text = f"value = {' '.join(rule.value.split())}"
    for dtype in dtypes(rule):
        for said, sample in zip(rule.samples, samples(table, rule), strict=True):
            torch.manual_seed(1)
            values = drawn_values(table, rule, sample, dtype)
            given = {name: _recorded(rule, name, item) for name, item in values.items()}
            mine = tuple_of(value_of(table, rule, given))
            theirs = _results(rule, given)
            for got, wanted in zip(mine, theirs, strict=True):
                got, wanted = got.detach(), wanted.detach()
                yield Comparison(f"{said} in {dtype}", text, got, wanted, False)
            weights = [torch.randn_like(item) for item in theirs]
            # The tensors to differentiate by.
            over = [x for item in given.values() for x in _tensors(item)]
            gradients = partial(
                torch.autograd.grad,
                inputs=over,
                grad_outputs=weights,
                materialize_grads=True,
            )
            grads, opaque = gradients(mine), _is_opaque(rule, over, theirs)
            wanted_grads = (
                by_differences(partial(_results, rule, given), over, weights)
                if opaque
                else gradients(theirs)
            )
            for got, wanted in zip(grads, wanted_grads, strict=True):
                said_of = f"the gradient of {text}"
                yield Comparison(f"{said} in {dtype}", said_of, got, wanted, opaque)


def _recorded(rule: Rule, name: str, value: Any) -> Any:
    """Return the argument `name` as a leaf requiring grad if the rule declares it differentiable, else as it is; a tuple item by item."""
    if isinstance(value, tuple):
        return tuple(_recorded(rule, name, item) for item in value)
    if isinstance(value, Tensor) and name in rule.facts.differentiable:
        return value.detach().clone().requires_grad_()
    return value


def _tensors(value: Any) -> list[Tensor]:
    several = value if isinstance(value, tuple) else (value,)
    return [x for x in several if isinstance(x, Tensor) and x.requires_grad]


def _results(rule: Rule, given: Values) -> tuple[Any, ...]:
    return tuple_of(called(rule.spelled, given))


def _is_opaque(rule: Rule, inputs: list[Tensor], outputs: Sequence[Tensor]) -> bool:
    """Return whether autograd has no gradient of a call: no output requires grad.

    For PyTorch's functions the rule must say so (`undifferentiated = true`), else Unsuited is raised. A function of the user's
    (`rule.module`) may be anything.
    """
    if any(out.requires_grad for out in outputs):
        return False
    # Without inputs that have a formula there is nothing to differentiate, and nothing to state.
    if inputs and rule.module is None and not rule.undifferentiated:
        raise Unsuited(
            "autograd has no gradient of it; if there is one, write undifferentiated = true: differences check it"
        )
    return True


def by_differences(
    call: Callable[[], Sequence[Tensor]],
    inputs: Sequence[Tensor],
    weights: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    """Return the gradients of the weighted results by central differences, one for each input.

    An element is NaN if both it and a result are infinite or NaN: then a difference tells nothing.
    """
    found = tuple(torch.zeros_like(x) for x in inputs)
    for x, grad in zip(inputs, found, strict=True):
        for index in product(*map(range, x.shape)):
            middle = x.data[index].item()
            ends = []
            for step in (STEP, -STEP):
                x.data[index] = middle + step
                ends.append([out.detach().clone() for out in call()])
            x.data[index] = middle
            # An infinite input with finite results has a difference: 0.
            numbers = all(bool(out.isfinite().all()) for out in ends[0])
            # Otherwise nothing is known: NaN.
            known = numbers or math.isfinite(middle)
            total = sum(map(_weighted, *ends, weights), start=0.0)
            grad[index] = total / (2 * STEP) if known else math.nan
    return found


def _weighted(more: Tensor, less: Tensor, weight: Tensor) -> float:
    """Return the weighted sum of the differences of a result, at the larger and the smaller input; two equal infinities or NaNs differ by 0."""
    differs = (more != less) & ~(more.isnan() & less.isnan())
    return float(((more - less) * weight.detach())[differs].sum())


def _is_smooth(out: Tensor) -> bool:
    """Return whether a result may have a cotangent; positions and masks have none."""
    return out.is_floating_point() or out.is_complex()


def _recordable(out: Tensor) -> Tensor:
    return out.clone().requires_grad_() if _is_smooth(out) else out


def _active(rule: Rule, values: Values) -> list[str]:
    """Return the names of the parameters with gradient formulas and a tensor; replace these tensors in `values` by leaves."""
    found = [name for name in rule.formulas if isinstance(values.get(name), Tensor)]
    for name in found:
        values[name] = values[name].detach().clone().requires_grad_()
    return found


def _named(rule: Rule, outputs: tuple[Any, ...]) -> Values:
    """Return the results by name; a starred result, `*outputs`, is the whole tuple under one name."""
    if rule.results[0].startswith("*"):
        return {rule.results[0][1:]: outputs}
    return dict(zip(rule.results, outputs, strict=True))


def _cotangents(rule: Rule, outputs: tuple[Any, ...]) -> Values:
    """Draw a cotangent for each result, None if it has no gradient; return them by name, for a starred result as one tuple."""
    grads = tuple(
        (
            torch.randn(out.shape, dtype=out.dtype).requires_grad_()
            if out.requires_grad
            else None
        )
        for out in outputs
    )
    if rule.results[0].startswith("*"):
        return {rule.cotangents[0]: grads}
    return dict(zip(rule.cotangents, grads, strict=True))


def _fitted(rule: Rule, grad: Tensor, argument: Tensor) -> Tensor:
    """Shape a gradient as the engine does: broadcast and summed if elementwise, real for a real argument."""
    if rule.category in BROADCASTING:
        grad = grad.expand_as(grad.detach() + argument.detach())
        grad = grad.sum_to_size(argument.shape)
    if grad.is_complex() and not argument.is_complex():
        grad = grad.real
    return grad
