"""Calls of PyTorch's with a formula for a row, and means and sums over everything.

In: an `OpSpec`. Out: the op with `F.layer_norm(x, ...)` as its formula, and without the reduction of its result, a `Total`. Invariant:
both compute the same; a call with arguments that no formula stands for is left as it is.
"""

import re
from collections.abc import Callable, Iterable, Mapping
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

# The arguments of a call as text, without those that are None.
Given = Mapping[str, str]
FUNCTIONAL = "torch.nn.functional."
GELU = "(2 * math.sqrt(2 / math.pi))"
SINGULAR = ("weight", "pos_weight")  # of losses: left alone
CLASSES = ("F.cross_entropy", "F.nll_loss")
LAST = r"(?P<owner>.+)\.(?:shape\[-1\]|size\(-1\))"
FLAT = re.compile(rf"(.+)\.(?:(?:view|reshape)\(-1, {LAST}\)|flatten\(0, (-2|1)\))")
FLAT_TARGET = re.compile(r"(\w+)\.(?:flatten\(\)|(?:view|reshape)\(-1\))")


class Total(NamedTuple):
    """What is done with the losses of all rows: their sum, over a count if it is a mean."""

    over: str | None = None  # of a mean: "" of all losses; else code


def bound(table: Table, node: Node) -> tuple[str, dict[str, str]] | None:
    """Return the function of a known call, as the table prints it, and its arguments."""
    if node.kind != "call":
        return None
    name = (dotted(node.args[0]) or "").replace(FUNCTIONAL, "F.")
    several = [item.rule for item in table.find("function", name)]
    if not several:
        return None
    rule = max(several, key=lambda item: len(item.parameters))
    parameters = {item.name: item for item in rule.parameters}
    positional = [item.name for item in rule.parameters if not item.keyword]
    count = len(node.args) - 1 - len(node.keywords)
    given = arguments_of(node, positional)
    if count > len(positional) or given.keys() - parameters.keys() - {"input"}:
        return None
    texts = {key: emit(value) for key, value in given.items()}
    if "reduction" in parameters:
        texts.setdefault("reduction", "'mean'")
    if "x" in texts:
        texts["input"] = texts.pop("x")
    known = {key: text for key, text in texts.items() if text != "None"}
    return table.head(rule.name).partition("(")[0], known


class Steps:
    """The lines to come before a line with a call."""

    def __init__(self, spec: OpSpec, taken: set[str]) -> None:
        self.spec, self.taken = spec, taken
        self.before: list[Statement] = []  # the lines of the op so far
        self.lines: list[Assign] = []

    def rank(self, text: str) -> int | None:
        """Return the number of dims of a value at this line; None if it is not known."""
        node = _parsed(self.spec, text, self.taken)
        lines, applier = (*self.before, *self.lines), applier_of(self.spec)
        try:
            found = lower_lines(self.spec, lines, (node,), applier)
        except UnsupportedError:
            return None
        return found.results[0].shape.rank

    def __call__(self, word: str, text: str) -> str:
        """Add a line, and return its name."""
        graph, name = graph_of(self.spec), fresh(word, self.taken)
        value = _parsed(self.spec, text, self.taken)
        self.taken.add(name)
        self.lines.append(Assign(graph.name(name), value))
        return name


def written_out(spec: OpSpec) -> OpSpec:
    """Return the op with formulas in place of some calls."""
    formula, graph = spec.forward, graph_of(spec)
    assert formula is not None
    taken = {item.name for item in spec.inputs} | {*formula.names()}
    taken |= written(*formula.statements)
    steps, table = Steps(spec, taken), table_of(spec)

    def change(node: Node) -> Node | None:
        if bound(table, node) is None:
            return None
        node = rewritten_node(graph, node, change)  # the calls among its arguments
        found = bound(table, node)
        text = found and _formula(spec, *found, steps)
        if not text:
            return node
        return rewritten_node(graph, _parsed(spec, text, taken), change)

    lines = steps.before
    for line in formula.statements:
        changed = rewritten(graph, (line,), change)
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
    """Return an applier of the rules to a program of its own."""
    table = table_of(spec)
    return Applier(Program(graph_of(spec), table.facts, declared(spec)), table)


def lower_lines(
    spec: OpSpec, lines: Lines, results: tuple[Node, ...], applier: Applier
) -> Lowered:
    """Lower some lines and results to a graph without active inputs."""
    forward = Forward(lines, results, (), {}, {}, {})
    return lower(spec, forward, applier, frozenset())


def rewritten_node(
    graph: Graph, node: Node, change: Callable[[Node], Node | None]
) -> Node:
    """Return an expression with its parts changed, too."""
    return graph.rewrite(node, lambda item: None if item is node else change(item))


def _parsed(spec: OpSpec, text: str, names: Iterable[str]) -> Node:
    known = frozenset(names) - {"torch", "F", "math"}
    node = parse(Text(text, Location("formula")), Scope(known), graph_of(spec)).result
    assert node is not None
    return node


def _formula(spec: OpSpec, name: str, given: Given, steps: Steps) -> str | None:
    """Return the formula of a call, after some steps; None if it has none."""
    x = f"({given.get('input', '')})"
    match name:
        case "F.layer_norm" | "F.rms_norm":
            if not _is_last(spec, given.get("normalized_shape", ""), given["input"]):
                return None
            weight = f" * ({given['weight']})" if "weight" in given else ""
            if name == "F.rms_norm":
                if "eps" not in given:
                    raise UnsupportedError("rms_norm without eps")
                mean = f"{x}.square().mean(-1, keepdim=True)"
                rstd = steps("rstd", f"torch.rsqrt({mean} + {given['eps']})")
                return f"{x} * {rstd}{weight}"
            bias = f" + ({given['bias']})" if "bias" in given else ""
            mean = steps("mean", f"{x}.mean(-1, keepdim=True)")
            var = steps("var", f"{x}.var(-1, correction=0, keepdim=True)")
            rstd = steps("rstd", f"torch.rsqrt({var} + {given.get('eps', '1e-05')})")
            x_hat = steps("x_hat", f"({x} - {mean}) * {rstd}")
            return f"{x_hat}{weight}{bias}"
        case "F.normalize" if given.get("p", "2") in ("2", "2.0"):
            if _is_last_dim(spec, given, given["input"]):
                return f"{x} / {_length(x, given.get('eps', '1e-12'))}"
        case "F.cosine_similarity" if _is_last_dim(spec, given, given["x1"]):
            one, two, eps = f"({given['x1']})", f"({given['x2']})", given.get("eps")
            first, second = (_length(item, eps or "1e-08") for item in (one, two))
            return f"(({one} / {first}) * ({two} / {second})).sum(-1)"
        case "F.pairwise_distance" if given.get("p", "2") in ("2", "2.0"):
            eps, keepdim = given.get("eps", "1e-06"), given.get("keepdim", "False")
            diff = f"(({given['x1']}) - ({given['x2']}) + {eps})"
            return f"{diff}.norm(dim=-1, keepdim={keepdim})"
    if given.get("reduction") == "'none'":
        return _loss(spec, name, given, steps)
    return _activation(name, given, x)


def _activation(name: str, given: Given, x: str) -> str | None:
    match name:
        case "F.gelu" if given.get("approximate") == "'tanh'":  # (1 + tanh(u)) / 2
            return f"{x} * torch.sigmoid({GELU} * ({x} + 0.044715 * {x} ** 3))"
        case "F.gelu" if given.get("approximate", "'none'") == "'none'":
            return f"0.5 * {x} * (1 + torch.erf({x} / math.sqrt(2)))"
        case "F.glu" if given.get("dim", "-1") == "-1":
            half = f"{x}.shape[-1] // 2"
            return f"{x}[..., :{half}] * torch.sigmoid({x}[..., {half}:])"
        case "F.silu":
            return f"{x} * torch.sigmoid({x})"
        case "F.softmin":
            return f"torch.softmax(-{x}, {given.get('dim', '')})"
    return None


def _is_last(spec: OpSpec, shape: str, x: str) -> bool:
    """Return whether it is the shape of the last dim of a value."""
    whole = [x, *(item.name for item in spec.tensors)]
    rows = [x.name for x in spec.tensors if len(spec.dims(x.name) or "12") == 1]
    ends = {f"{name}.shape" for name in rows} | {f"{name}.shape[-1:]" for name in whole}
    sizes = [f"{name}.{size}" for name in whole for size in ("shape[-1]", "size(-1)")]
    return shape in ends | {text for x in sizes for text in (f"[{x}]", f"({x},)")}


def _is_last_dim(spec: OpSpec, given: Given, x: str) -> bool:
    """Return whether `dim`, 1 if not given, is the last one of an input."""
    dim, known = given.get("dim", "1"), {item.name for item in spec.tensors}
    dims = spec.dims(x) if x in known else None
    whole = dims is not None and not is_leading(dims[0]) and dim == str(len(dims) - 1)
    return dim == "-1" or whole


def _length(x: str, eps: str) -> str:
    return f"{x}.norm(dim=-1, keepdim=True).clamp(min={eps})"


def _loss(spec: OpSpec, name: str, given: Given, steps: Steps) -> str | None:
    """Return the formula of a loss without a reduction."""
    if any(item in given for item in SINGULAR):
        return None
    x = f"({given.get('input', '')})"
    diff = f"({x} - ({given.get('target', '')}))"
    match name:
        case "F.mse_loss":
            return f"{diff} ** 2"
        case "F.l1_loss":
            return f"{diff}.abs()"
        case "F.huber_loss" | "F.smooth_l1_loss":
            size = f"{diff}.abs()"
            if name == "F.huber_loss":
                delta = f"({given.get('delta', '1.0')})"
                far = f"{delta} * ({size} - 0.5 * {delta})"
                return f"torch.where({size} <= {delta}, 0.5 * {diff} ** 2, {far})"
            beta = f"({given.get('beta', '1.0')})"
            near = f"0.5 * {diff} ** 2 / {beta}"
            return f"torch.where({size} < {beta}, {near}, {size} - 0.5 * {beta})"
        case "F.cross_entropy" | "F.nll_loss":
            return _class_loss(spec, name, given, steps)
    return None


def _class_loss(spec: OpSpec, name: str, given: Given, steps: Steps) -> str | None:
    """Return the formula of the loss of each row of a matrix, 0 for an ignored target."""
    x, target = f"({given['input']})", f"({given['target']})"
    if given["input"].endswith(".movedim(-1, 1)"):  # the classes are dim 1
        x = f"({given['input'].removesuffix('.movedim(-1, 1)')})"
    elif steps.rank(x) != 2:
        return None
    if given["target"] in _floats(spec):  # the probabilities of the classes
        if name != CLASSES[0] or steps.rank(target) != 2 or "label_smoothing" in given:
            return None
        log_probs = steps("log_probs", f"torch.log_softmax({x}, -1)")
        return f"-({target} * {log_probs}).sum(-1)"
    kept = steps("kept", f"{target} != {given.get('ignore_index', '-100')}")
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
    """Return the op of the losses, and what is done with them; None if its result is no reduction."""
    formula = spec.forward
    if formula is None or formula.result is None or len(spec.outputs) != 1:
        return spec, None
    graph, lines, result = formula.graph, formula.statements, formula.result
    last = lines[-1] if lines else None
    if isinstance(last, Assign) and last.target is result and not last.operator:
        lines, result = lines[:-1], last.value
    found = _reduced(spec, graph, result)
    if found is None:
        return spec, None
    result, total = found
    formula = replace(formula, statements=lines, result=result)
    return replace(spec, forward=formula), total


def _reduced(spec: OpSpec, graph: Graph, node: Node) -> tuple[Node, Total] | None:
    """Return what is reduced, and how; a factor goes to each loss."""
    tensors = {item.name for item in spec.tensors} | _bound(spec)
    if node.kind == "unary" and node.label == "-":
        found = _reduced(spec, graph, node.args[0])
        return found and (graph.node("unary", "-", (found[0],)), found[1])
    if node.kind == "binary" and node.label in "*/":
        one, other = node.args
        if node.label == "/" and _counts(spec, graph, other):
            found = _reduced(spec, graph, one)
            if found is not None and found[1].over is None:
                return found[0], Total(emit(other))
        for at, (one, other) in enumerate((node.args, node.args[::-1])):
            if at and node.label == "/" or other.names() & tensors:
                continue
            found = _reduced(spec, graph, one)
            if found is not None:
                pair = (found[0], other) if not at else (other, found[0])
                return graph.node("binary", node.label, pair), found[1]
        return None
    if node.kind != "call":
        return None
    callee, *args = node.args
    known = bound(table_of(spec), node)
    if known is not None and "reduction" in known[1]:
        return _reduced_loss(spec, graph, *known)
    if callee.kind == "attribute" and callee.label in ("mean", "sum"):
        item = None
        if not args and dotted(callee.args[0]) not in ("torch", "math"):
            item = callee.args[0]
        if len(args) == 1 and not node.keywords and dotted(callee.args[0]) == "torch":
            item = args[0]
        if item is not None:
            return item, Total("" if callee.label == "mean" else None)
    return None


def _counts(spec: OpSpec, graph: Graph, node: Node) -> bool:
    """Return whether it is a number of rows, or one like `mask.sum()`, of inputs without a gradient."""
    longest = max(len(item.dims or ()) for item in spec.tensors)
    whole = (item.name for item in spec.tensors if len(item.dims or ()) == longest)
    if emit(node) in {f"{name}.shape[0]" for name in whole}:
        return True
    inputs = {x.name for x in spec.tensors} - {x.name for x in spec.differentiable}

    def summed(item: Node) -> Node | None:
        name = emit(item).removesuffix(".sum()")
        return graph.constant("1") if name in inputs and item.args else None

    rest = graph.rewrite(node, summed)
    return rest is not node and not rest.names()


def _bound(spec: OpSpec) -> set[str]:
    """Return the names that a forward binds, also to tensors."""
    assert spec.forward is not None
    return {*written(*spec.forward.statements)}


def _is_flat(spec: OpSpec, flat: re.Match[str]) -> bool:
    """Return whether all dims but the last one become one."""
    if flat[3] == "1":
        dims = next((x.dims for x in spec.tensors if x.name == flat[1]), None)
        return dims is not None and len(dims) == 3 and not any(map(is_leading, dims))
    return flat["owner"] in (None, flat[1])


def _reduced_loss(
    spec: OpSpec, graph: Graph, name: str, given: Given
) -> tuple[Node, Total] | None:
    kind = given["reduction"].strip("'")
    if kind == "none" or any(item in given for item in SINGULAR):
        return None
    rest = {key: text for key, text in given.items() if key != "reduction"}
    flat = FLAT.fullmatch(given.get("input", ""))
    flat_target = FLAT_TARGET.fullmatch(given.get("target", ""))
    if name in CLASSES and flat and flat_target and _is_flat(spec, flat):
        given = {**given, "target": flat_target[1]}
        rest |= {"input": f"{flat[1]}.movedim(-1, 1)", "target": flat_target[1]}
    words = [f"{key}={text}" for key, text in rest.items()]
    names = {item.name for item in spec.inputs} | _bound(spec)
    node = _parsed(spec, f"{name}({', '.join(words)}, reduction='none')", names)
    if kind == "sum":
        return node, Total()
    if kind == "batchmean":
        return node, Total(f"{given['input']}.shape[0]")
    if kind != "mean":
        return None
    if name not in CLASSES:
        return node, Total("")
    target, ignored = given["target"], given.get("ignore_index", "-100")
    if target in _floats(spec):
        return node, Total("")
    if not target.isidentifier():
        raise UnsupportedError(f"the mean over targets that are {target}")
    return node, Total(f"({target} != {ignored}).sum()")
