"""Find rules in the rule table: the spellings of each primitive, and the formulas of its gradients.

Every step of the engine asks it: which primitive is `torch.exp(x)`, what is its gradient, is it linear?

In: the text of `rules.toml`, or of a team's own table (its grammar is the header of `rules.toml`). Out: a `Table` that finds a
`Rule` by its spelling. Invariant: only used sections are parsed; a derivation reads a few rules of hundreds.

Words: a head is the spelling of a call in a section, `torch.exp(x)`; `base` is the built-in table below a team's own, `home` the
table of a rule. `facts` are the keys of a section that are no formulas: its category, its dtype, whether it is linear. A
primitive's ops have the name of its rule, but for those of a team's own rule (`_op_of`).
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple, TypeVar

from scaffold.derive.rules.call_bindings import Parameter, Spelling, spelling
from scaffold.errors import Location
from scaffold.formula import Formula, Graph, Node, Scope, Text, parse
from scaffold.primitives import (
    Facts,
    Primitives,
    Section,
    built_in_primitives,
    facts_of,
    inheriting,
)
from scaffold.primitives.calls import may_be
from scaffold.primitives.facts import several

Argument = TypeVar("Argument")
Wanted = dict[str, tuple[str, ...]]  # an operand of a primitive -> its sizes

_OPERAND = re.compile(r"(\w+)\[((?:\.\.\., )?\w+(?:, \w+)*)\]")
_OPERANDS = re.compile(rf"{_OPERAND.pattern}(?:, {_OPERAND.pattern})*")


class Rule(NamedTuple):
    """One primitive, read from its section. `formulas` are text; `Table.gradients` has them as nodes."""

    name: str
    spelled: Spelling  # as it is printed
    facts: Facts
    formulas: Mapping[str, tuple[str, ...]]  # parameter -> variants of equal value
    domain: Mapping[str, str] = {}
    samples: tuple[str, ...] = ()
    # A test fixed in each call: the rule is only for calls that pass it.
    when: str | None = None
    code: str | None = None  # the engine's function with the gradients
    # parameter -> its gradient as one call of PyTorch's: `silu_backward(grad, x)`
    fused: Mapping[str, str] = {}
    module: str | None = None  # for a function outside PyTorch
    op: str = ""  # the name of its ops: unknown to the engine for a team's rule
    simpler: tuple[str, ...] = ()  # identities: `-(-x) -> x`
    operands: tuple[str, ...] = ()  # the shapes accepted by PyTorch
    # Its value as primitives, instead of gradients of its own.
    value: str | None = None
    parts: str | None = None  # the call in parts, of which one can be saved
    tangents: Mapping[str, str] = {}  # parameter -> its term of the result's tangent
    let: Mapping[str, str] = {}  # names for expressions in its formulas, in order
    triton: str = ""  # its value in a Triton kernel, over its parameters

    @property
    def category(self) -> str:
        return self.facts.category

    @property
    def results(self) -> tuple[str, ...]:
        return self.facts.results

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return self.spelled.parameters

    def by_parameter(self, values: Iterable[Argument]) -> dict[str, Argument]:
        """Map the parameters to the arguments of a call, in their order; parameters without one are left out."""
        return dict(zip((item.name for item in self.parameters), values, strict=False))

    @property
    def tensors(self) -> frozenset[str]:
        """Return the parameters that may be tensors; any other is a Python value, fixed in each call."""
        return frozenset(self.facts.differentiable) | frozenset(self.facts.nondiff)

    @property
    def ends_derivatives(self) -> bool:
        """Return whether PyTorch cannot differentiate a call of it in a backward.

        An op whose backward has such a call is differentiable once.
        """
        return "once" in self.facts.flags or self.undifferentiated

    @property
    def undifferentiated(self) -> bool:
        """Return whether autograd has no gradient of it, and treats its result as a constant: `torch.special.bessel_j0`."""
        word = self.spelled.name.rpartition(".")[2]
        # By its name in PyTorch; a function of another module only shares the name.
        known = self.module is None and may_be(word, "undifferentiated")
        return known or "undifferentiated" in self.facts.flags

    def leads_back(self, result: str) -> bool:
        """Return whether some gradient formula reads the cotangent of a result.

        None reads that of a norm's mean: the mean is a constant.
        """
        # Without formulas (`code`, `value`) nothing is said, so it may lead back.
        texts = [*self.formulas.values(), *self.let.values()]
        return not self.formulas or f"grad_{result}" in str(texts)

    @property
    def cotangents(self) -> tuple[str, ...]:
        """Return the names of the results' cotangents in formulas: `grad`, or of several results `grad_values`, `grad_indices`."""
        if self.results == ("result",):
            return ("grad",)
        return tuple(f"grad_{name.lstrip('*')}" for name in self.results)


class SpelledRule(NamedTuple):
    """A rule, and one of its spellings: `torch.exp(x)` or `x.exp()`."""

    rule: Rule
    spelled: Spelling


class Table:
    """A finder of rules by name and by spelling; each is parsed on first use."""

    def __init__(self, primitives: Primitives, base: "Table | None" = None) -> None:
        """Take the sections of a table, and the built-in table below it if they are a team's; they are parsed on first use."""
        self.primitives, self.base = primitives, base
        self.graph: Graph = base.graph if base else Graph()
        # Parsed so far: rules by name, answers of `find`, formulas by op and text.
        self._rules: dict[str, Rule] = {}
        self._finds: dict[tuple[str, str], tuple[SpelledRule, ...]] = {}
        self._formulas: dict[tuple[str, str], Node] = {}
        self._values: dict[str, Formula] = {}
        self._lets: dict[str, dict[Node, Node]] = {}
        # The ops that this table's rules make, with the rules' names.
        self._ops = {self._op_of(name): name for name in primitives}

    @property
    def heads(self) -> Mapping[str, tuple[str, ...]]:
        """Return the spellings of each rule of this table, without the base's."""
        return self.primitives.heads

    def find(self, kind: str, name: str) -> tuple[SpelledRule, ...]:
        """Return the rules with this spelling, in the order of the table: the first one with fitting parameters applies.

        `kind` and `name`: ("function", "torch.exp"), ("method", "sum"), ("attribute", "mT"), ("operator", "+"), ("subscript",
        "[]"). A parameter outside `Rule.tensors` does not take a tensor, and `dim` no bool (the one argument of `x.var(False)` is
        `unbiased`); then `condition` must hold. The caller checks these.
        """
        key = (kind, name)
        if key not in self._finds:
            own = tuple(self._found(*item) for item in self.primitives.find(*key))
            self._finds[key] = own + (self.base.find(*key) if self.base else ())
        return self._finds[key]

    def _found(self, name: str, head: str) -> SpelledRule:
        """Return the rule `name` with its spelling `head`."""
        read = spelling(head, self.heads[name][0], self.graph)
        assert read is not None, f"{name}: {head}"
        return SpelledRule(self.rule(name), read)

    def __contains__(self, name: str) -> bool:
        return name in self.primitives or (self.base is not None and name in self.base)

    def names(self) -> tuple[str, ...]:
        """Return the names of all rules, the base's first."""
        return (self.base.names() if self.base else ()) + tuple(self.heads)

    def rule(self, name: str) -> Rule:
        """Return the rule of a name, of this table or of the one below it; a team's table stands over the built-in one."""
        if name not in self.heads and self.base:
            return self.base.rule(name)
        if name not in self._rules:
            read = read_rule(name, self.primitives.section(name), self.graph)
            op, facts = self._op_of(name), self._facts(name)
            self._rules[name] = read._replace(op=op, facts=facts)
        return self._rules[name]

    def facts(self, op: str) -> Facts | None:
        """Return the facts about the ops called `op`, as `memory` and `linear`; None if no table has them."""
        if op in self._ops:
            return self._facts(self._ops[op])
        return self.base.facts(op) if self.base else None

    def _facts(self, name: str) -> Facts:
        """Return a rule's facts; a team's rule for the same call as a built-in one inherits the facts it does not state."""
        # An underscore: a team's op of its own, of which the built-in rule of the name says nothing.
        if self.base is None or self._op_of(name).endswith("_"):
            return self.primitives.facts(name)
        return facts_of(self._section(name))

    def _section(self, name: str) -> Section:
        """Return the section of a rule as written, with keys inherited from the built-in rule for the same call.

        A team's rule of an op of its own, `exp_`, inherits none.
        """
        own = self.primitives.section(name) if name in self.primitives else None
        # The built-in table has no base, and is asked only for rules of its own.
        if self.base is None or (own is not None and self._op_of(name).endswith("_")):
            assert own is not None
            return own
        below = self.base._section(name)
        return below if own is None else inheriting(own, below)

    def of_op(self, op: str) -> Rule | None:
        """Return the rule of the ops called `op`; None if no table has one. The name of a team's op may end with an underscore."""
        if op in self._ops:
            return self.rule(self._ops[op])
        return self.base.of_op(op) if self.base else None

    def home(self, rule: Rule) -> "Table":
        """Return the table a rule is from: the names in its formulas are looked up there."""
        # `is`: the base may have another rule of that name.
        if self._rules.get(rule.name) is rule or self.base is None:
            return self
        return self.base.home(rule)

    def op_of(self, name: str) -> str:
        """Return the name of the ops `name` makes in a formula of this table: `exp`, or `exp_` for a team's own `exp`."""
        if self.base is None or name in self.heads:
            return self._op_of(name)
        return self.base.op_of(name)

    def _op_of(self, name: str) -> str:
        """Return the name of the ops of a rule of this table.

        A team's rule for the same call as the built-in one of that name replaces it, and its ops keep that name, known to the
        engine. Any other gets an underscore, `exp_`: a primitive unknown to the engine, whatever its name.
        """
        if self.base is None:
            return name
        if name not in self.base:
            return f"{name}_"
        op = self.base.rule(name).op
        return op if self.base.head(name) == self.heads[name][0] else f"{op}_"

    def head(self, name: str) -> str:
        """Return the spelling a rule is printed in, as written in its section: `torch.exp(x)`."""
        if name not in self.heads and self.base:
            return self.base.head(name)
        return self.heads[name][0]

    def gradients(self, rule: Rule, parameter: str) -> tuple[Node, ...]:
        """Return the formulas of a parameter's gradient: usually one, or several of the same value.

        The last is then for a call that was found as a composition.
        """
        return tuple(self._parsed(text, rule) for text in rule.formulas[parameter])

    def fused(self, rule: Rule, parameter: str) -> Node | None:
        """Return the formula of a parameter's gradient as one call of PyTorch's, `silu_backward(grad, x)`; None without one."""
        text = rule.fused.get(parameter)
        return None if text is None else self._parsed(text, rule)

    def tangent(self, rule: Rule, parameter: str) -> Node:
        """Return the formula of a parameter's term of the result's tangent, for forward mode; it reads `tangent`, the parameter's own."""
        return self._parsed(rule.tangents[parameter], rule, "tangent")

    def composed(self) -> tuple[tuple["Table", str, str], ...]:
        """Return all formulas that equal a rule's call, `x * sigmoid(x)`: for each the rule's table, its name, and the text."""
        own = tuple(
            (self, name, text)
            for name, texts in self.primitives.composed.items()
            for text in texts
        )
        return own + (self.base.composed() if self.base else ())

    def value(self, rule: Rule) -> Formula:
        """Return the `value` of a rule, the call written in primitives: steps, and the result."""
        assert rule.value is not None
        if rule.op not in self._values:
            text = Text(rule.value, Location(f"rule {rule.name}"))
            self._values[rule.op] = parse(text, Scope(self.scope(rule)), self.graph)
        return self._values[rule.op]

    def parts(self, rule: Rule) -> Node | None:
        """Return the call of a rule in parts, over its parameters; None without them."""
        return None if rule.parts is None else self._parsed(rule.parts, rule)

    def condition(self, rule: Rule) -> Node | None:
        """Return the test of a rule's `when`, over its parameters; None without one."""
        return None if rule.when is None else self._parsed(rule.when, rule)

    def scope(self, rule: Rule) -> frozenset[str]:
        """Return the names the formulas of a rule may read: its parameters, results and cotangents, those of `let`, primitives, words."""
        own = {item.name for item in rule.parameters}
        results = {name.lstrip("*") for name in rule.results}
        known = own | results | {*rule.cotangents, *rule.let}
        return frozenset(known | set(self.names()) | BUILDERS.keys())

    def _parsed(self, text: str, rule: Rule, *more: str) -> Node:
        """Return a formula of one line as a node, with the names of `let` expanded.

        Raise `ScaffoldError` for a name outside the rule's `scope`, but for those in `more`.
        """
        key = (rule.op, text)
        if key not in self._formulas:
            values, scope = self._let(rule), Scope(self.scope(rule).union(more))
            place = Location(f"rule {rule.name}")
            node = parse(Text(text, place), scope, self.graph).result
            assert node is not None  # without `targets` a formula has a result
            self._formulas[key] = self.graph.rewrite(node, values.get)
        return self._formulas[key]

    def _let(self, rule: Rule) -> Mapping[Node, Node]:
        """Return the expression of each name in a rule's `let`; one may read those above it."""
        if rule.op not in self._lets:
            values = self._lets[rule.op] = dict[Node, Node]()
            for name, text in rule.let.items():
                # Entered so far are those above it, by which it is expanded.
                values[self.graph.name(name)] = self._parsed(text, rule)
        return self._lets[rule.op]


def read_rule(name: str, raw: Section, graph: Graph) -> Rule:
    """Return the rule of a section; only of one that has passed all checks."""
    spelled = spelling(raw["call"], raw["call"], graph)
    assert spelled is not None, name
    formulas = {key: several(value) for key, value in raw.get("grad", {}).items()}
    return Rule(
        name,
        spelled,
        facts_of(raw),
        formulas,
        raw.get("domain", {}),
        tuple(raw["samples"]),
        raw.get("when"),
        raw.get("code"),
        raw.get("fused", {}),
        raw.get("from"),
        simpler=tuple(raw.get("simpler", ())),
        operands=tuple(raw.get("operands", ())),
        value=raw.get("value"),
        parts=raw.get("parts"),
        tangents=raw.get("tangent", {}),
        let=raw.get("let", {}),
        triton=raw.get("triton", ""),
    )


def operands(text: str) -> Wanted:
    """Return the sizes of each operand: `x[N, K], y[K, M]` -> `{"x": ("N", "K"), "y": ("K", "M")}`; empty for other text."""
    if not _OPERANDS.fullmatch(text):
        return {}
    return {
        name: tuple(size.strip() for size in sizes.split(","))
        for name, sizes in _OPERAND.findall(text)
    }


@lru_cache(maxsize=1)
def built_in() -> Table:
    """Return the built-in table."""
    return Table(built_in_primitives())


# --- The words of formulas that are no primitives: they depend on shapes. Each has a reference in torch, in
# `scaffold/verify/child/rule_values.py`, and an expansion by the known shapes, in `formula_words`.


class Builder(NamedTuple):
    """A word of formulas: its parameters in order, and whether its value is a tensor or a Python value."""

    parameters: tuple[str, ...]
    tensor: bool
    meaning: str
    in_values: bool = True  # its gradient is known


def _tensor(parameters: str, meaning: str) -> Builder:
    """Return a word of gradient formulas with a tensor as value; it has no gradient itself."""
    return Builder(tuple(parameters.split()), True, meaning, False)


def _primitives(parameters: str, meaning: str) -> Builder:
    """Return a word with a tensor as value, expanded into primitives, so a rule's `value` may use it too."""
    return Builder(tuple(parameters.split()), True, meaning)


def _python(parameters: str, meaning: str) -> Builder:
    """Return a word with a Python value."""
    return Builder(tuple(parameters.split()), False, meaning)


BUILDERS: dict[str, Builder] = {
    "expand_back": _tensor(
        "g x dim keepdim", "the g of a reduction, over x's shape again"
    ),
    "restore": _tensor(
        "g x dim keepdim", "the same with dimensions of size 1, which broadcast"
    ),
    "sum_to": _tensor("g x", "g summed to x's shape, which broadcasts to g's"),
    "fit_to": _tensor(
        "g x", "the same where x may be longer than g too, which is spread"
    ),
    "reshape_as": _tensor("g x", "g in x's shape"),
    "expand_as": _tensor("g x", "g broadcast to x's shape"),
    "zeros": _tensor("g x", "zeros of x's shape, of the dtype and device of g"),
    "cast_as": _tensor("g x", "g in x's dtype"),
    "cast_back": _tensor("g x", "g in x's dtype, as the gradient of a cast"),
    "widened": _tensor("x g", "x in the dtype of x and g together"),
    "count": _python("x dim", "how many elements a reduction over dim takes: an int"),
    "shape": _python("x", "x.shape"),
    "size": _python("x dim", "x.shape[dim]"),
    "dtype": _python("x", "x.dtype"),
    "rank": _python("x", "x.ndim"),
    "whole": _python("x", "whether x's elements are integers"),
    "excludes": _python(
        "x value",
        "whether surely no element of x is that number: those of torch.arange",
    ),
    "class_dim": _python("x", "the dim of classes: 1, and 0 of a vector"),
    "sum_repeats": _tensor("g x repeats", "g of x.repeat(*repeats), summed to x"),
    "channels": _tensor("weight x", "weight[:, None, None] beside x[N, C, H, W]"),
    "trailing": _python("sizes", "the last len(sizes) dimensions: (-2, -1)"),
    "leading": _python("x", "all dimensions of x but its last one: (0, 1)"),
    "moved": _tensor(
        "x dim by", "x moved by 1 or -1 along dim, a 1 where nothing came"
    ),
    "padding": _python(
        "x dim before after", "the pad of F.pad in one dimension, (before, after)"
    ),
    "negated": _python("numbers", "the negative of a number or of each in a tuple"),
    "inverse_permutation": _python("dims", "what undoes a permutation"),
    "number_at": _python(
        "numbers at", "one of several numbers, or the one for all dims"
    ),
    "asked": _python(
        "length", "how long a dim is to be; None for -1, by which it stays as it is"
    ),
    "default_eps": _python(
        "x", "the eps of rms_norm if none is given: of x's dtype, at most float32's"
    ),
    "equation": _python(
        "x y dims", "the equation of torch.einsum that torch.tensordot is"
    ),
    "chain": _primitives("tensors", "the product of matrices, from the first"),
    "grids": _primitives(
        "tensors indexing",
        "each of several vectors over the grid of all of them: torch.meshgrid",
    ),
    "batched": _primitives("x rank", "x with one dim before so many last ones"),
    "columns": _primitives(
        "tensors", "each of a tuple with a last dim of size 1, if 1-D"
    ),
    "at_least": _primitives(
        "tensors rank", "each of a tuple with that many dims at least: torch.atleast_2d"
    ),
}
