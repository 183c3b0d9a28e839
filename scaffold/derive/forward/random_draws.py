"""Random draws on lines of their own, so the forward can save them.

In: the statements and results of a forward. Out: the same values from the same random numbers, with `noise =
torch.randn_like(x)` above the line that reads it, and dropout as a product with a mask. Invariant: numbers are drawn
in the order of the user's forward, and only if it draws them; a draw stays in its expression if it cannot be moved
out.

Why: the backward must read the very numbers of the forward, as drawing again would give others; only a value with a
name can be saved. Words: a draw is a call that draws random numbers. An `active` name carries a gradient; `kinds`
tells tensors from numbers. A draw is taken out of an expression if it gets a line and a name; a name is `chosen` if a
branch and another line assign it, and `shared` if another name sees its changes.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from scaffold.derive.analysis.activity import callee, carries_gradient, is_random
from scaffold.derive.analysis.input_kinds import kinds_of_inputs
from scaffold.derive.lower.mutation import changes_of_a_name, made_anew
from scaffold.formula import (
    Assign,
    Graph,
    If,
    Lines,
    Node,
    Statement,
    Trace,
    ValueKinds,
    assignments,
    changed_in_place,
    keywords,
    written,
)
from scaffold.formula.names import take
from scaffold.primitives.calls import facts_of_call, may_be
from scaffold.spec import OpSpec

LAZY = ("conditional", "boolean")  # not every operand of these is evaluated


def with_draws_apart(
    spec: OpSpec,
    graph: Graph,
    lines: Lines,
    results: tuple[Node, ...],
    taken: set[str],
) -> tuple[Lines, tuple[Node, ...]]:
    """Assign each draw inside an expression to a name on its own line; new names avoid `taken`.

    `y = x + torch.randn_like(x)` -> `noise = torch.randn_like(x)`, `y = x + noise`. Return the statements, and the
    results over these names.
    """
    active = frozenset(item.name for item in spec.differentiable)
    kinds, shared = kinds_of_inputs(spec), _shared(lines)
    apart = _Draws(graph, active, kinds, taken, _chosen(lines), shared)
    body = apart.block(lines)
    values = []
    for value in results:
        before, plain = apart.taken_out(value)
        body = (*body, *before)
        values.append(plain)
    return body, tuple(values)


def _chosen(lines: Lines) -> frozenset[str]:
    """Return the names assigned both in a branch and elsewhere: a draw needs a name assigned only once, to be saved under it."""
    counts = Counter(name for item in assignments(lines) for name in written(item))
    inside = frozenset[str]()
    for item in lines:
        if isinstance(item, If):
            inside |= written(item)
    return frozenset(name for name in inside if counts[name] > 1)


def _shared(lines: Lines) -> frozenset[str]:
    """Return the names whose tensor is changed in place while another name, or an input, has the same memory.

    Such a change cannot be written as a new value under the name: the other name would miss it.
    """
    changes = Trace(lines).changes
    return frozenset(
        item.name for item in changes if len(item.holders) > 1 or item.outside
    )


class _Draws:
    """A walk over statements; `active` names carry a gradient, `drawn` names are random and carry none."""

    def __init__(
        self,
        graph: Graph,
        active: frozenset[str],
        kinds: ValueKinds,
        taken: set[str],
        chosen: frozenset[str],
        shared: frozenset[str],
    ) -> None:
        """Begin with the `active` inputs; names in `chosen` are assigned both in a branch and elsewhere, in `shared` aliased.

        A line for a draw gets a name outside `taken`; `drawn` collects the names of the values drawn.
        """
        self.graph, self.active, self.kinds, self.taken = graph, active, kinds, taken
        self.chosen, self.shared = chosen, shared
        self.drawn: set[str] = set()

    def block(self, statements: Lines) -> Lines:
        """Return the lines for the statements of a body, or of a branch."""
        return tuple(line for item in statements for line in self._followed(item))

    def _followed(self, item: Statement) -> Lines:
        """Return the lines for a statement, after learning from them which names carry a gradient."""
        lines = self._statement(item)
        for line in lines:
            self._learn(line)
        return lines

    def _statement(self, item: Statement) -> Lines:
        """Return the lines for a statement: its random draws, then the statement over their names.

        A statement that is a draw alone stays as it is.
        """
        if isinstance(item, If):
            return (self._choice(item),)
        changed = self._changed_draw(item)
        if changed is not None:
            return (changed,)
        if not is_random(item.value):
            return (item,)
        # A draw in a way of `a if t else b` stands under an `if`, so that it is drawn only there.
        lazy = item.value.kind == "conditional" and item.target.kind == "name"
        if lazy and any(map(is_random, item.value.args[1:])):
            test, *ways = item.value.args
            body, orelse = ((Assign(item.target, way, item.operator),) for way in ways)
            return (self._choice(If(test, body, orelse, item.comments)),)
        if self._is_line_of_a_draw(item):
            return (item,)
        before, value = self.taken_out(item.value)
        return (*before, replace(item, value=value))

    def _choice(self, item: If) -> If:
        """Rewrite both branches, each starting from the facts known before the `if`; afterwards those of either branch hold.

        The facts are the `active` names, with a gradient, and the `drawn` ones, random without.
        """
        # `active` is a frozenset, which each line replaces; `drawn` is a set, which lines change in place.
        active, drawn = self.active, self.drawn.copy()
        body = self.block(item.body)
        active_after_body, drawn_after_body = self.active, self.drawn
        self.active, self.drawn = active, drawn
        orelse = self.block(item.orelse)
        self.active |= active_after_body
        self.drawn |= drawn_after_body
        return replace(item, body=body, orelse=orelse)

    def _learn(self, item: Statement) -> None:
        """Update `active` and `drawn` by a statement: the names with a gradient, and the random ones without. Note also the kinds of its values."""
        if isinstance(item, If):  # its lines are learnt one by one, in `_choice`
            self.kinds.after((item,))
            return
        names = written(item)
        if carries_gradient(item.value, self.active):
            self.active |= names
            self.drawn -= names
        # `h += 1` and `h[0] = 1` leave h with what it had.
        elif not item.operator and item.target.kind == "name":
            self.active -= names
            same = item.value.kind == "name" and item.value.label in self.drawn
            if same or is_random(item.value):
                self.drawn |= names
        self.kinds.after((item,))

    def _is_line_of_a_draw(self, item: Assign) -> bool:
        """Return whether a statement is a draw on a line of its own already: `noise = torch.randn_like(x)`, without a gradient.

        Not if its name is assigned elsewhere too (`chosen`): then it cannot be saved by that name.
        """
        is_alone = item.target.kind == "name" and not item.operator
        is_alone = is_alone and item.target.label not in self.chosen
        return is_alone and not carries_gradient(item.value, self.active)

    def _changed_draw(self, item: Assign) -> Assign | None:
        """Return `mask = mask.div(keep)` for `mask.div_(keep)` of a drawn mask; None for other statements.

        The mask is saved, and saved values must not change. An alias of the mask would miss the change, so a name in
        `shared` is left.
        """
        value, replaceable = item.value, self.drawn - self.shared
        if item.operator:  # `mask /= keep`
            if item.target.label not in replaceable:
                return None
            anew = self.graph.node("binary", item.operator, (item.target, value))
            return Assign(item.target, anew, "", item.comments)
        changed = changed_in_place(value)
        if len(changed) != 1 or changed[0] not in replaceable:
            return None
        # One change, on a line of its own; not `mask.div_(keep).sub_(1)`.
        if item.target.kind != "absent" or changes_of_a_name(item) != {value}:
            return None
        plain = made_anew(self.graph, value)
        name = self.graph.name(changed[0])
        return Assign(name, plain, "", item.comments) if plain else None

    def taken_out(self, value: Node) -> tuple[Lines, Node]:
        """Return lines for an expression's random draws, and the expression over their names.

        It stays whole if it changes a tensor in place.
        """
        if not is_random(value) or any(changed_in_place(value)):
            return (), value  # the order of evaluation matters
        lines: list[Assign] = []

        def named(node: Node) -> Node:
            """Replace the draws in an expression by names; a draw occurring twice is drawn twice, though it is one node."""
            if not is_random(node):
                return node
            if node.kind in LAZY:  # only the first operand is always evaluated
                first, *rest = node.args
                args = (named(first), *rest)
                return self.graph.node(node.kind, node.label, args)
            if not carries_gradient(node, self.active):
                return self._named(lines, node, self._word(node))
            # Dropout of an active value: only its mask is a draw of its own.
            args = tuple(map(named, node.args))
            plain = self.graph.node(node.kind, node.label, args, node.keywords)
            return self._product(lines, plain) if self._drops(node) else plain

        plain = named(value)
        return tuple(lines), plain

    def _drops(self, node: Node) -> bool:
        """Return whether a call multiplies its argument by random factors, as dropout does, so these can be drawn by themselves.

        Not in place: then the argument changes.
        """
        name = callee(node)
        if name is None or not may_be(name, "random_factor"):
            return False
        return "inplace" not in node.keywords and _argument(node) is not None

    def _product(self, lines: list[Assign], node: Node) -> Node:
        """Return `x * mask` for `F.dropout(x, p)`, and add the line `mask = F.dropout(torch.ones_like(x), p)`.

        So the mask is a draw without a gradient, to be saved, and the product has an ordinary one. An `x` that is no
        name gets one, "undropped".
        """
        value = _argument(node)
        assert value is not None
        if value.kind != "name":
            value = self._named(lines, value, "undropped")
        torch = self.graph.name("torch")
        ones_like = self.graph.node("attribute", "ones_like", (torch,))
        ones = self.graph.node("call", "", (ones_like, value))
        positional = len(node.args) > 1 + len(node.keywords)  # 1: the function
        at = 1 if positional else 1 + node.keywords.index("input")
        args = (*node.args[:at], ones, *node.args[at + 1 :])
        factors = self.graph.node("call", "", args, node.keywords)
        mask = self._named(lines, factors, self._word(node))
        return self.graph.node("binary", "*", (value, mask))

    def _named(self, lines: list[Assign], value: Node, stem: str) -> Node:
        """Add a line for a value, and return its name: the stem, or another free one."""
        name = take(self.taken, stem)
        lines.append(Assign(self.graph.name(name), value))
        return self.graph.name(name)

    def _word(self, node: Node) -> str:
        """Return the word to name a draw by: "mask" for a comparison, the primitive's own word, or "noise"."""
        # Not of `torch.rand(()).item() < 0.5`, a number.
        if self.kinds.of(node) == "tensor" and node.kind == "compare":
            return "mask"
        return next(_words(node), "noise")


def _argument(node: Node) -> Node | None:
    """Return the tensor argument of a function call, its first or `input=`, or None."""
    positional = node.args[1 : len(node.args) - len(node.keywords)]
    return positional[0] if positional else keywords(node).get("input")


def _words(node: Node) -> Iterator[str]:
    """Yield the table's words for the random primitives in an expression, to name its value: "mask" for `F.dropout`."""
    for item in node.walk():
        for facts in facts_of_call(callee(item) or ""):
            if "random" in facts.flags:
                yield from facts.words
