"""Calls of PyTorch's with a formula for a row, and means and sums over everything.

In: an `OpSpec`. Out: the op with `F.layer_norm(x, ...)` as its formula, and without the reduction of its result, a `Total`. Invariant:
both compute the same; a call with arguments that no formula stands for is left as it is.

Words: a call is *bound* if the rule table knows it: its arguments are then *given* by name, as text; *steps* are assignments before a line,
for values that a formula reads twice; the `Total` of an op is the mean or sum of everything at its end, and its *losses* are the numbers
that this reduces, whatever the op is for.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from scaffold.derive.derivation import Forward
from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.op import Program
from scaffold.derive.graph.static_values import UnsupportedError, dotted
from scaffold.derive.lower.expressions import declared
from scaffold.derive.lower.statements import Lowered, lower
from scaffold.derive.rules.table import Table
from scaffold.derive.rules.team_tables import table_of
from scaffold.errors import Location
from scaffold.formula import (
    Assign,
    Graph,
    Lines,
    Node,
    Scope,
    Statement,
    Text,
    arguments_of,
    emit,
    parse,
    rewritten,
    written,
)
from scaffold.formula.names import fresh
from scaffold.spec import OpSpec, is_leading

# The arguments of a call as text, without those that are None; defaults are among them, except for `_reduced_loss`.
Given = Mapping[str, str]
Bound = tuple[str, dict[str, str]]
FUNCTIONAL = "torch.nn.functional."
WEIGHTS = {"weight", "pos_weight"}  # of losses: FORMULAS have none
DIFF, LENGTH = "({input} - {target})", "norm(dim=-1, keepdim=True).clamp(min={eps})"
# A call, the arguments it has, and its formula.
FORMULAS = {
    "F.gelu approximate='tanh'": "{input} * torch.sigmoid((2 * math.sqrt(2 / math.pi)) * ({input} + 0.044715 * {input} ** 3))",
    "F.gelu approximate='none'": "0.5 * {input} * (1 + torch.erf({input} / math.sqrt(2)))",
    "F.glu dim=-1": "{input}[..., :{input}.shape[-1] // 2] * torch.sigmoid({input}[..., {input}.shape[-1] // 2:])",
    "F.silu": "{input} * torch.sigmoid({input})",
    "F.softmin": "torch.softmax(-{input}, {dim})",
    "F.normalize p=2.0": f"{{input}} / {{input}}.{LENGTH}",
    "F.cosine_similarity": f"(({{x1}} / {{x1}}.{LENGTH}) * ({{x2}} / {{x2}}.{LENGTH})).sum(-1)",
    "F.pairwise_distance p=2.0": "({x1} - {x2} + {eps}).norm(dim=-1, keepdim={keepdim})",
    "F.mse_loss reduction='none'": f"{DIFF} ** 2",
    "F.l1_loss reduction='none'": f"{DIFF}.abs()",
    "F.huber_loss reduction='none'": f"torch.where({DIFF}.abs() <= {{delta}}, 0.5 * {DIFF} ** 2, {{delta}} * ({DIFF}.abs() - 0.5 * {{delta}}))",
    "F.smooth_l1_loss reduction='none'": f"torch.where({DIFF}.abs() < {{beta}}, 0.5 * {DIFF} ** 2 / {{beta}}, {DIFF}.abs() - 0.5 * {{beta}})",
}
ALONG = {"F.normalize": "input", "F.cosine_similarity": "x1"}  # whose last dim it is
CLASSES = ("F.cross_entropy", "F.nll_loss")
LAST = r"(?P<owner>.+)\.(?:shape\[-1\]|size\(-1\))"
FLAT = re.compile(rf"(.+)\.(?:(?:view|reshape)\(-1, {LAST}\)|flatten\(0, (-2|1)\))")
FLAT_TARGET = re.compile(r"(\w+)\.(?:flatten\(\)|(?:view|reshape)\(-1\))")


class Total(NamedTuple):
    """The reduction removed from the end of an op: of a sum `over` is None; of a mean it is the count as code, "" of all losses."""

    over: str | None = None

    @property
    def read(self) -> set[str]:
        """Return the inputs whose numbers the count is computed from: `mask` of `mask.sum()`, none of `x.shape[0]`."""
        # The shape of a tensor is no number of it.
        summed = re.sub(r".*\.shape\[0\]", "", self.over or "")
        return {*re.findall(r"\b[A-Za-z_]\w*\b(?!\()", summed)}


def bound(table: Table, node: Node, whole: bool = False) -> Bound | None:
    """Return the function of a call, as the rule table prints it, and its arguments as text; None for a call the table does not have.

    `F.mse_loss(x, y)` -> `("F.mse_loss", {"input": "x", "target": "y", "reduction": "'mean'"})`; arguments of None are left out. `whole`:
    with all defaults.
    """
    if node.kind != "call":
        return None
    name = (dotted(node.args[0]) or "").replace(FUNCTIONAL, "F.")
    several = [item.rule for item in table.find("function", name)]
    if not several:
        return None
    # Of several overloads the one that names the most arguments.
    rule = max(several, key=lambda item: len(item.parameters))
    parameters = {item.name: item for item in rule.parameters}
    positional = [item.name for item in rule.parameters if not item.keyword]
    count = len(node.args) - 1 - len(node.keywords)
    given = arguments_of(node, positional)
    # The table does not know such a call. PyTorch calls `input` what the table may call `x`.
    if count > len(positional) or given.keys() - parameters.keys() - {"input"}:
        return None
    texts = {key: emit(value) for key, value in given.items()}
    if "reduction" in parameters:
        # PyTorch's default, which readers ask for also without `whole`.
        texts.setdefault("reduction", "'mean'")
    if "x" in texts:
        texts["input"] = texts.pop("x")
    if whole:
        pairs = ((x.name, x.default) for x in rule.parameters)
        texts = {name: emit(node) for name, node in pairs if node is not None} | texts
    known = {key: text for key, text in texts.items() if text != "None"}
    return table.head(rule.name).partition("(")[0], known


class Steps:
    """The assignments to put before a line, as the formula of a call in it needs named values: `steps("mean", "x.mean(-1)")` -> "mean"."""

    def __init__(self, spec: OpSpec, taken: set[str]) -> None:
        """Start without lines; `taken`: the names of an op, and later of its new lines."""
        self.spec, self.taken = spec, taken
        self.before: list[Statement] = []  # the lines of the op so far
        self.lines: list[Assign] = []

    def rank(self, text: str) -> int | None:
        """Return the number of dims of an expression, computed from the lines so far; None if it is not known."""
        node = parsed(self.spec, text, self.taken)
        lines, applier = (*self.before, *self.lines), applier_of(self.spec)
        try:
            found = lower_lines(self.spec, lines, (node,), applier)
        except UnsupportedError:
            return None
        return found.results[0].shape.rank

    def __call__(self, word: str, text: str) -> str:
        """Add the assignment of an expression, and return its name: the word, with a number if it is taken."""
        graph, name = graph_of(self.spec), fresh(word, self.taken)
        value = parsed(self.spec, text, self.taken)
        self.taken.add(name)
        self.lines.append(Assign(graph.name(name), value))
        return name


def written_out(spec: OpSpec) -> OpSpec:
    """Return the op with formulas in place of calls without a primitive: `F.rms_norm(x, ...)` -> `rstd = torch.rsqrt(...)` and `x * rstd`.

    Calls with no formula stay; UnsupportedError if a call in a branch needs lines before it.
    """
    formula, graph = spec.forward, graph_of(spec)
    assert formula is not None
    taken = {item.name for item in spec.inputs} | {*formula.names()}
    taken |= written(*formula.statements)
    steps, table = Steps(spec, taken), table_of(spec)

    def change(node: Node) -> Node | None:
        """Return the formula of a call, its arguments' calls replaced first; None for any other node."""
        if bound(table, node) is None:
            return None
        # The calls among its arguments.
        inner = graph.rewrite(node, lambda arg: None if arg is node else change(arg))
        found = bound(table, inner, whole=True)
        text = found and _formula(spec, *found, steps)
        return parsed(spec, text, taken) if text else inner

    lines = steps.before
    for line in formula.statements:
        changed = rewritten(graph, (line,), change)
        # Its steps would stand before the `if`, and so run in either case.
        if steps.lines and not isinstance(line, Assign):
            raise UnsupportedError("a call inside a branch")
        lines += [*steps.lines, *changed]
        steps.lines = []
    result = formula.result and graph.rewrite(formula.result, change)
    lines += steps.lines
    return replace(spec, forward=replace(formula, statements=(*lines,), result=result))


def graph_of(spec: OpSpec) -> Graph:
    """Return the graph of a forward."""
    assert spec.forward is not None  # or else it was refused
    return spec.forward.graph


def applier_of(spec: OpSpec) -> Applier:
    """Return an `Applier`, which makes ops of primitives, with an empty graph of the op's inputs."""
    table = table_of(spec)
    return Applier(Program(graph_of(spec), table.facts, declared(spec)), table)


def lower_lines(
    spec: OpSpec, lines: Lines, results: tuple[Node, ...], applier: Applier
) -> Lowered:
    """Return some lines and results as a graph of primitives; no input is active, as no gradient is asked of it."""
    forward = Forward(lines, results, (), {}, {}, {})
    return lower(spec, forward, applier, frozenset())


def parsed(spec: OpSpec, text: str, names: Iterable[str]) -> Node:
    """Return the expression of some text, in the op's graph; `names`: the known variables."""
    known = frozenset(names) - {"torch", "F", "math"}
    node = parse(Text(text, Location("formula")), Scope(known), graph_of(spec)).result
    assert node is not None
    return node


def _formula(spec: OpSpec, name: str, given: Given, steps: Steps) -> str | None:
    """Return the text of a call's formula, with lines it needs added to `steps`; None if it has none, or not for such arguments."""
    if name in CLASSES and given["reduction"] == "'none'" and "weight" not in given:
        return _class_loss(spec, name, given, steps)
    if name in ("F.layer_norm", "F.rms_norm"):
        return _norm(spec, name, given, steps)
    if name in ALONG and not _is_last_dim(spec, given, given[ALONG[name]]):
        return None
    # So that `p=2` counts as `p=2.0`, as FORMULAS has it.
    said = {f"{key}={x}{end}" for key, x in given.items() for end in ("", ".0")}
    for call, text in FORMULAS.items():
        known, *wanted = call.split()
        if known == name and said.issuperset(wanted) and not given.keys() & WEIGHTS:
            return text.format_map({key: f"({text})" for key, text in given.items()})
    return None


def _norm(spec: OpSpec, name: str, given: Given, steps: Steps) -> str | None:
    """Return the text of `F.layer_norm` or `F.rms_norm` over each row; None for a norm over more dims."""
    x, eps = f"({given['input']})", given.get("eps")
    if not _is_last(spec, given["normalized_shape"], given["input"]):
        return None
    weight = f" * ({given['weight']})" if "weight" in given else ""
    if name == "F.rms_norm":
        # The default, which depends on the dtype of x; that of `layer_norm` is a number.
        if eps is None:
            raise UnsupportedError("rms_norm without eps")
        mean = f"{x}.square().mean(-1, keepdim=True)"
        return f"{x} * {steps('rstd', f'torch.rsqrt({mean} + {eps})')}{weight}"
    bias = f" + ({given['bias']})" if "bias" in given else ""
    mean = steps("mean", f"{x}.mean(-1, keepdim=True)")
    var = steps("var", f"{x}.var(-1, correction=0, keepdim=True)")
    rstd = steps("rstd", f"torch.rsqrt({var} + {eps})")
    return f"{steps('x_hat', f'({x} - {mean}) * {rstd}')}{weight}{bias}"


def _is_last(spec: OpSpec, shape: str, x: str) -> bool:
    """Return whether `shape`, an argument of a norm, is just the last dim: `x.shape[-1:]`, `(x.size(-1),)`, or `w.shape` of a `w[D]`."""
    whole = [x, *(item.name for item in spec.tensors)]
    rows = [x.name for x in spec.tensors if len(spec.dims(x.name) or ()) == 1]
    ends = {f"{name}.shape" for name in rows} | {f"{name}.shape[-1:]" for name in whole}
    sizes = [f"{name}.{size}" for name in whole for size in ("shape[-1]", "size(-1)")]
    return shape in ends | {text for x in sizes for text in (f"[{x}]", f"({x},)")}


def _is_last_dim(spec: OpSpec, given: Given, x: str) -> bool:
    """Return whether the argument `dim` is the last dim of `x`: -1, or its number if the declared rank is known."""
    dim, known = given.get("dim"), {item.name for item in spec.tensors}
    dims = spec.dims(x) if x in known else None
    # Behind `...` a dim has no number from the left.
    last = dims is not None and not is_leading(dims[0]) and dim == str(len(dims) - 1)
    return dim == "-1" or last


def _class_loss(spec: OpSpec, name: str, given: Given, steps: Steps) -> str | None:
    """Return the text of the cross entropy or `nll_loss` of each row, 0 for a row with the ignored target; None if it has no formula.

    Targets are indices, or, if declared float, the probabilities of all classes.
    """
    x, target = f"({given['input']})", f"({given['target']})"
    # `_reduced_loss` writes so for `x.view(-1, x.size(-1))`: the classes are the last dim of x.
    if given["input"].endswith(".movedim(-1, 1)"):
        x = f"({given['input'].removesuffix('.movedim(-1, 1)')})"
    # With more dims the classes are dim 1, not the last one.
    elif steps.rank(x) != 2:
        return None
    if given["target"] in _floats(spec):  # the probabilities of the classes
        smoothed = given.get("label_smoothing") != "0.0"
        if name != CLASSES[0] or steps.rank(target) != 2 or smoothed:
            return None
        log_probs = steps("log_probs", f"torch.log_softmax({x}, -1)")
        return f"-({target} * {log_probs}).sum(-1)"
    kept = steps("kept", f"{target} != {given['ignore_index']}")
    index = steps("index", f"torch.where({kept}, {target}, 0).unsqueeze(-1)")
    if name == "F.cross_entropy":
        x = steps("log_probs", f"torch.log_softmax({x}, -1)")
    loss = steps("nll", f"-{x}.gather(-1, {index}).squeeze(-1)")
    if (smoothing := given.get("label_smoothing", "0.0")) != "0.0":
        text = f"(1 - ({smoothing})) * {loss} - ({smoothing}) * {x}.mean(-1)"
        loss = steps("smoothed", text)
    return f"torch.where({kept}, {loss}, 0.0)"


def _floats(spec: OpSpec) -> set[str]:
    return {item.name for item in spec.tensors if item.dtype == "float"}


# --- Reductions of everything.


def without_total(spec: OpSpec) -> tuple[OpSpec, Total | None]:
    """Return the op without a mean or sum of everything at its end, and that reduction: `F.mse_loss(x, y)` -> `reduction='none'`, `Total("")`.

    The op as it is, and None, if its result is no such reduction: a kernel computes losses, and PyTorch adds them up.
    """
    formula = spec.forward
    if formula is None or formula.result is None or len(spec.outputs) != 1:
        return spec, None
    graph, lines, result = formula.graph, formula.statements, formula.result
    last = lines[-1] if lines else None
    # `loss = x.mean()` and then `return loss`; `loss += y` reads the loss above it too.
    if isinstance(last, Assign) and last.target is result and not last.operator:
        lines, result = lines[:-1], last.value
    found = _reduced(spec, graph, result)
    if found is None:
        return spec, None
    result, total = found
    formula = replace(formula, statements=lines, result=result)
    return replace(spec, forward=formula), total


def _reduced(spec: OpSpec, graph: Graph, node: Node) -> tuple[Node, Total] | None:
    """Return the expression of the losses in a reduction of everything, and how they are reduced; None for anything else.

    `2 * x.sum()` -> `2 * x`, a sum: a sum's or mean's factor may go to each loss. `(x * m).sum() / m.sum()` -> `x * m`, over `m.sum()`.
    """
    tensors = {item.name for item in spec.tensors} | _bound(spec)
    if node.kind == "unary" and node.label == "-":
        found = _reduced(spec, graph, node.args[0])
        return found and (graph.node("unary", "-", (found[0],)), found[1])
    if node.kind == "binary" and node.label in "*/":
        one, other = node.args
        if node.label == "/" and _counts(spec, graph, other):  # a mean by hand
            found = _reduced(spec, graph, one)
            # A sum, divided: its mean.
            if found is not None and found[1].over is None:
                return found[0], Total(emit(other))
        # `x.sum() / 2` or `2 * x.sum()`, but not `2 / x.sum()`.
        for at in (0, 1) if node.label == "*" else (0,):
            operands = [*node.args]
            # The other operand must be a number, the same for all losses.
            if operands[1 - at].names() & tensors:
                continue
            found = _reduced(spec, graph, operands[at])
            if found is not None:
                operands[at], total = found
                return graph.node("binary", node.label, (*operands,)), total
        return None
    if node.kind != "call":
        return None
    callee, *args = node.args
    known = bound(table_of(spec), node)
    if known is not None and "reduction" in known[1]:
        return _reduced_loss(spec, graph, *known)
    if callee.kind == "attribute" and callee.label in ("mean", "sum"):
        of_torch = dotted(callee.args[0]) == "torch" and not node.keywords
        items = args if of_torch else [callee.args[0], *args]
        # Without a dim, so it reduces everything.
        if len(items) == 1:
            return items[0], Total("" if callee.label == "mean" else None)
    return None


def _counts(spec: OpSpec, graph: Graph, node: Node) -> bool:
    """Return whether a divisor is `x.shape[0]` or arithmetic on sums of inputs without a gradient, like `mask.sum()`.

    These are the same for all losses, so that a sum divided by one is their mean. The x must have as many dims as any input: the launch
    of the kernel reads `shape[0]` of its first tensor instead, and a `weight[D]` has another one.
    """
    most = max(len(item.dims or ()) for item in spec.tensors)
    largest = (item.name for item in spec.tensors if len(item.dims or ()) == most)
    if emit(node) in {f"{name}.shape[0]" for name in largest}:
        return True
    inputs = {x.name for x in spec.tensors} - {x.name for x in spec.differentiable}

    def summed(item: Node) -> Node | None:
        name = emit(item).removesuffix(".sum()")
        # Not of the bare name `mask`, which has no arguments.
        return graph.constant("1") if name in inputs and item.args else None

    rest = graph.rewrite(node, summed)
    # Some sum is in it, and no name besides.
    return rest is not node and not rest.names()


def _bound(spec: OpSpec) -> set[str]:
    """Return the names a forward assigns."""
    assert spec.forward is not None
    return {*written(*spec.forward.statements)}


def _is_flat(spec: OpSpec, flat: re.Match[str]) -> bool:
    """Return whether a match of `FLAT` makes one dim of all but the last: `x.view(-1, x.shape[-1])`, `x.flatten(0, -2)`; `(0, 1)` of three dims."""
    # `flat[1]` is x, `flat[3]` the last of the dims that `flatten` joins.
    if flat[3] == "1":
        dims = next((x.dims for x in spec.tensors if x.name == flat[1]), None)
        return dims is not None and len(dims) == 3 and not any(map(is_leading, dims))
    # `x.view(-1, y.shape[-1])` may change the last dim; without an owner it is `flatten`.
    return flat["owner"] in (None, flat[1])


def _reduced_loss(
    spec: OpSpec, graph: Graph, name: str, given: Given
) -> tuple[Node, Total] | None:
    """Return a loss call with `reduction='none'`, and its own reduction; None if this is 'none', or the loss has weights.

    `F.cross_entropy(x.view(-1, x.size(-1)), t.view(-1))` is read without the views. A mean over classes counts targets not ignored.
    """
    kind = given["reduction"].strip("'")
    if kind == "none" or given.keys() & WEIGHTS:
        return None
    rest = {key: text for key, text in given.items() if key != "reduction"}
    flat = FLAT.fullmatch(given.get("input", ""))
    flat_target = FLAT_TARGET.fullmatch(given.get("target", ""))
    if name in CLASSES and flat and flat_target and _is_flat(spec, flat):
        given = {**given, "target": flat_target[1]}
        rest |= {"input": f"{flat[1]}.movedim(-1, 1)", "target": flat_target[1]}
    words = [f"{key}={text}" for key, text in rest.items()]
    names = {item.name for item in spec.inputs} | _bound(spec)
    node = parsed(spec, f"{name}({', '.join(words)}, reduction='none')", names)
    if kind == "sum":
        return node, Total()
    # `kl_div` alone has it: the sum over everything, divided by the size of dim 0.
    if kind == "batchmean":
        return node, Total(f"{given['input']}.shape[0]")
    if kind != "mean":
        return None
    # Of other losses, and of probabilities as targets, none is ignored.
    if name not in CLASSES or given["target"] in _floats(spec):
        return node, Total("")
    target, ignored = given["target"], given.get("ignore_index", "-100")
    if not target.isidentifier():
        raise UnsupportedError(f"the mean over targets that are {target}")
    return node, Total(f"({target} != {ignored}).sum()")
