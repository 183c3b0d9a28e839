"""Explanations of a derivation: the rules used, the saved tensors, and plain autograd's saved tensors.

In: an `OpSpec` with a forward, and its `Derivation`. Out: an `Explanation`. Invariant: it reports the result of
`derive` and changes nothing; sizes are those of the declared shapes.

For the user, who asks why a backward is as it is, and for diagrams. The forward is read into a graph once more here.
Words: an op is one application of a primitive in it; `lowered.held` names its ops by locals; `active`: a gradient
passes through it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from scaffold.derive.derivation import Derivation, Saved
from scaffold.derive.forward.body import write_forward
from scaffold.derive.graph import sizes
from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.op import Op, Program, tensors
from scaffold.derive.graph.shapes import Dim, LeadingDims, NamedSize, Shape, UnnamedSize
from scaffold.derive.graph.static_values import UnsupportedError
from scaffold.derive.lower.autograd_saved import retained, storage
from scaffold.derive.lower.expressions import declared
from scaffold.derive.lower.statements import Lowered, lower
from scaffold.derive.plan.costs import BYTES
from scaffold.derive.rules.team_tables import table_of
from scaffold.formula import emit
from scaffold.spec import OpSpec


class Used(NamedTuple):
    """A formula of the rule table used by the derivation."""

    rule: str
    argument: str
    formula: str


class Tensors(NamedTuple):
    """A tensor kept for the backward: its name and size."""

    name: str
    size: str  # the number of its elements: `N*D`
    item: int  # bytes of an element


class Explanation(NamedTuple):
    """The facts behind a derivation."""

    shapes: Mapping[str, str]  # of locals of the forward
    rules: tuple[Used, ...]
    saved: tuple[tuple[Saved, Tensors], ...]
    eager: tuple[Tensors, ...]  # tensors saved by plain autograd


def explain(spec: OpSpec, derivation: Derivation) -> Explanation | None:
    """Return the explanation of an op, or None if a primitive of its forward is not understood.

    If locals are saved, the derived forward is explained: it has names for them, the user's may not.
    """
    assert spec.forward is not None
    table = table_of(spec)
    program = Program(spec.forward.graph, table.facts, declared(spec))
    applier = Applier(program, table)
    wanted = frozenset(item.name for item in spec.differentiable)
    forward = write_forward(spec, spec.forward)
    if derivation.intermediates and derivation.forward is not None:
        # The derived forward has names for them.
        lines, results = derivation.forward, derivation.results
        forward = forward._replace(statements=lines, results=results)
    try:
        lowered = lower(spec, forward, applier, wanted)
    except UnsupportedError:
        return None
    return _Explainer(spec, applier, lowered).explanation(derivation)


class _Explainer:
    """Facts about the ops of one forward, by name."""

    def __init__(self, spec: OpSpec, applier: Applier, lowered: Lowered) -> None:
        """Give every op of the forward a name: the user's, or `exp_1` for an unnamed value, and find shapes of the named ones."""
        self.spec, self.applier, self.lowered = spec, applier, lowered
        self.program = applier.program
        self.names = {op: item for item, op in lowered.inputs.items()}
        for op, name in lowered.held.items():
            self.names.setdefault(op, name)
        for output, op in zip(spec.outputs, lowered.results, strict=True):
            self.names.setdefault(op, output.name)
        found = {op for result in lowered.results for op in result.walk()}
        # Tensors that the forward computes, in order, and calls with several results.
        self.ops = [
            op
            for op in sorted(found, key=lambda op: op.serial)
            if op.kind != "static" and op.rule not in ("list", "range", "input")
        ]
        self.shapes = {
            self.names[op]: _shape(op) for op in self.ops if op in self.names
        }
        unnamed = [op for op in self.ops if op not in self.names]
        self.names |= {op: f"{op.rule}_{at}" for at, op in enumerate(unnamed, 1)}

    def explanation(self, derivation: Derivation) -> Explanation:
        """Return an op's shapes, rules, saved tensors, and the tensors plain autograd would keep.

        `retained` are the values that autograd saves for an op; of several views of one tensor only its `storage`
        counts.
        """
        by_name = {name: op for op, name in self.names.items()}
        outputs = zip(self.spec.outputs, self.lowered.results, strict=True)
        by_name |= {output.name: op for output, op in outputs}
        saved = [
            (item, self._tensor(by_name[item.origin]))
            for item in derivation.saved
            if item.origin in by_name
        ]
        table = self.applier.table
        active = (op for op in self.ops if op.active)
        kept = {storage(table, part) for op in active for part in retained(table, op)}
        eager = [self._tensor(op) for op in sorted(kept, key=lambda op: op.serial)]
        return Explanation(
            self.shapes,
            tuple(dict.fromkeys(self._rules())),
            tuple(saved),
            tuple(eager),
        )

    def _rules(self) -> Iterator[Used]:
        """Yield each formula of the table used for a gradient of the op, with its rule and parameter: `exp`, `x`, `grad * result`."""
        for op in self.ops:
            rule = self.applier.table.of_op(op.rule)
            if rule is None or not op.active:
                continue
            for item, arg in zip(rule.parameters, op.args, strict=False):
                if any(part.active for part in tensors((arg,))):
                    formula = rule.formulas.get(item.name, ("(written in code)",))[0]
                    # It reads names that `let` defines in the table: write their values.
                    if rule.let and item.name in rule.formulas:
                        table = self.applier.table.home(rule)
                        formula = emit(table.gradients(rule, item.name)[0])
                    yield Used(rule.name, item.name, " ".join(formula.split()))

    def _tensor(self, op: Op) -> Tensors:
        """Return an op's value by its name, its size and the bytes of an element: 4 unless its kind says another."""
        return Tensors(self.names[op], self._size(op), BYTES.get(op.kind, 4))

    def _size(self, op: Op) -> str:
        """Return the number of elements as text: `N*D`; if a size is unknown, `numel(x)`, of an input x of that shape if there is one."""
        dims = ["?"] if op.shape.dims is None else _sizes(op.shape)
        if "?" not in dims:
            return "*".join(dims) or "1"
        for name, item in self.lowered.inputs.items():
            if item.shape == op.shape:
                return f"numel({name})"
        return f"numel({self.names[op]})"


def _shape(op: Op) -> str:
    """Return a shape as text, `[N, 2*D]`, as far as it is known; "?" if its rank is not."""
    dims = op.shape.dims if op.is_tensor else None
    return "?" if dims is None else f"[{', '.join(map(_dim, dims))}]"


def _sizes(shape: Shape) -> list[str]:
    """Return the sizes of a shape except 1, as factors of its number of elements; named leading dims count as one size."""
    return [_dim(dim).removeprefix("*") for dim in shape.dims or () if dim != 1]


def _dim(dim: Dim) -> str:
    """Return a dim as text for the user: its name, `*batch` or `...` for leading dims, "?" if unknown."""
    match dim:
        case NamedSize(name):
            return name
        case LeadingDims(name, named):
            return f"*{name}" if named else "..."
        case UnnamedSize():
            return sizes.said(dim) or "?"
    return str(dim)


def total(tensors_: Iterable[Tensors]) -> str:
    """Return the bytes of tensors as text: `4 * (2*N*D + N)`, one sum for each size of an element."""
    counts: dict[int, dict[str, int]] = {}
    for tensor in tensors_:
        of_item = counts.setdefault(tensor.item, {})
        of_item[tensor.size] = of_item.get(tensor.size, 0) + 1
    sums = []
    for item, of_item in sorted(counts.items(), reverse=True):
        terms = [
            size if count == 1 else f"{count}*{size}" for size, count in of_item.items()
        ]
        sums.append(f"{item} * ({' + '.join(terms)})")
    return " + ".join(sums) or "0"
