"""Lower the statements of a forward: which op each name means after each of them.

`y = x * 2`, `y = y.exp()` -> `y` means `exp(mul(2, x))`. The first step of the engine; `reverse` then walks the results back.

In: its statements and results, as they will stand. Out: a `Lowered`. Invariant: each name means the op that was last assigned to
it; a tensor that changes in place is refused, unless the new value can be expressed. To refuse is to raise `UnsupportedError`:
autograd then differentiates the whole forward.

Words: `env` maps each name to its op after the statements so far. A `stale` name has another value, when the backward runs, than
its op; a value is `held` if a name still has it in the backward. A tensor is `retained` if autograd keeps it for a gradient. The
line for results is counted as a statement, the last.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from scaffold.derive.analysis.activity import carries_gradient, is_random
from scaffold.derive.analysis.live_variables import without_checks
from scaffold.derive.derivation import Forward
from scaffold.derive.graph.application import Applier
from scaffold.derive.graph.conditions import under
from scaffold.derive.graph.op import Kind, Named, Op
from scaffold.derive.graph.static_values import UnsupportedError
from scaffold.derive.lower.autograd_saved import retained
from scaffold.derive.lower.expressions import (
    READ_LATER,
    Expressions,
    attributes_of,
    inputs_of,
)
from scaffold.derive.lower.forward_names import Place, respelled
from scaffold.derive.lower.mutation import (
    CHANGES,
    ChangedView,
    changes_of_a_name,
    changes_of_views,
    ended,
    put,
    put_view,
    set_value,
    unsteady,
    written_over,
)
from scaffold.formula import (
    Assign,
    If,
    Lines,
    Node,
    Trace,
    assignments,
    bound,
    changed_in_place,
    data_read,
    written,
)
from scaffold.spec import OpSpec


class Lowered(NamedTuple):
    """The forward as a graph, and the names of its values as the backward finds them."""

    results: tuple[Op, ...]
    inputs: dict[str, Op]
    held: dict[Op, str]  # a value -> a name that still has it in the backward
    held_in_branches: dict[Op, str]  # the same, if its branch was taken
    places: dict[Op, list[Place]]  # where values are written that are always computed
    forward: Forward  # calls in parts, for these to get names
    call_of_parts: dict[Node, Node]  # a call in parts -> the call as the user wrote it


def lower(
    spec: OpSpec,
    forward: Forward,
    applier: Applier,
    wanted: frozenset[str],
    saves: bool = False,
) -> Lowered:
    """Lower a forward to a graph; only the `wanted` inputs are active, so only they get gradients.

    With `saves`, the forward may save results of its calls, so that a call may be written in parts. Raise `UnsupportedError` for a
    kept forward, and for a step not understood.
    """
    if spec.kept is not None:
        raise UnsupportedError(spec.kept.reason)
    # The results as last lines, so that changes and reads in them are seen too.
    lines = (*forward.statements, *ended(forward.results))
    inputs = inputs_of(spec, applier.program, wanted)
    writes, results = checked(spec, lines), len(forward.results)
    lowering = Lowering(spec, applier, inputs, writes, lines, results)
    graph = applier.program.graph
    if saves:
        lowering.expressions.saves = True
        lowering.expressions.returned = _returned(forward)
    for item in forward.statements:  # one by one, since places are by position
        lowering.block(without_checks(graph, (item,)))
        lowering.position += 1
    ends = lowering.results(lines[lowering.position :])
    return Lowered(
        ends,
        lowering.inputs,
        lowering.held(),
        lowering.held_in_branches(),
        lowering.places_to_name(forward),
        lowering.in_parts(forward),
        {parts: call for call, parts in lowering.expressions.parts.items()},
    )


def _returned(forward: Forward) -> frozenset[Node]:
    """Return the expression of the only result, also if a statement gives it its name; none if there are several results.

    A set, to be joined with others. `y += 1` gives no name: it changes what has one.
    """
    lines = (x for x in forward.statements if isinstance(x, Assign) and not x.operator)
    named = {item.target: item.value for item in lines}
    result, *others = forward.results
    return frozenset() if others else frozenset({named.get(result, result)})


def checked(spec: OpSpec, statements: Lines) -> dict[str, int]:
    """Return how often each name is assigned; raise `UnsupportedError` for an in-place change the graph cannot express.

    A changed tensor must be the forward's own or declared dirty, and no other name may read its memory afterwards.
    """
    for change in Trace(statements).changes:
        others = change.holders - {change.name}
        # `outside`: the inputs among the tensors that share the changed memory.
        if change.outside.difference(spec.dirty) or others & _names_read_from(
            statements, change.position
        ):
            raise UnsupportedError(f"'{change.name}' changes in place")
    writes = Counter[str]()
    for item in assignments(statements):
        # `f(x)[0] = y`: the changed tensor has no name.
        inside = item.target.kind == "subscript" and item.target.args[0].kind != "name"
        known = changes_of_a_name(item) or changes_of_views(item)
        if inside or changed_in_place(item.value) and not known:
            raise UnsupportedError(CHANGES)
        writes.update(written(item))
    return writes


def _names_read_from(lines: Lines, position: int) -> frozenset[str]:
    """Return the names of data read from a line on; if it is an `if`, by all lines: those inside it have no numbers."""
    is_choice = isinstance(lines[position], If)
    return data_read(*lines) if is_choice else data_read(*lines[position:])


class Lowering:
    """The walk over the statements of a forward; `env` has the op of each name at the current one."""

    def __init__(
        self,
        spec: OpSpec,
        applier: Applier,
        inputs: dict[str, Op],
        writes: Mapping[str, int],
        lines: Lines,
        results: int,
    ) -> None:
        """Start with the op of each input; the last `results` of the `lines` are those for results. `writes` counts the assignments of names."""
        self.several_results = any(output.variadic for output in spec.outputs)
        self.applier, self.program, self.writes = applier, applier.program, writes
        self.lines = lines  # the results last
        self.inputs = inputs
        # The op of each name at the current statement; `expressions` reads the same dict.
        self.env = {**self.inputs, **attributes_of(spec, self.program)}
        self.expressions = Expressions(spec, applier, self.env, writes, self._note)
        self.position = 0  # the number of the current statement
        # The names with another value, when the backward runs, than their op has in the graph.
        self.stale = {*unsteady(lines, len(lines) - results), *spec.dirty}
        self.places: dict[Op, list[Place]] = {}

    def results(self, ends: Lines) -> tuple[Op, ...]:
        """Return the ops of the results; a single result may be an in-place change, as nothing reads the tensor afterwards.

        `ends` assigns each result. Raise `UnsupportedError` if one of several changes a tensor.
        """
        found = list[Op]()
        for item in assignments(ends):
            own = self._own_changes(item)
            # Another result might read the tensor before or after the change.
            if own and len(ends) > 1:
                raise UnsupportedError(CHANGES)
            for view in changes_of_views(item):  # the last of the views is the name
                self._refuse_retained(self.expressions.value(view.views[-1]))
            value = self.expressions.assigned_value(item.value, own)
            several = value.kind == "group" or value.rule == "list"
            # `x.chunk(1, 1)`, a tuple of one tensor: its gradient is that of the tensor.
            one = several and not self.several_results
            found.append(self.expressions.item(value, 0) if one else value)
        return tuple(found)

    def _own_changes(self, item: Assign) -> frozenset[Node]:
        """Return the in-place calls of a statement allowed, as they change only named tensors; none if it changes anything else."""
        views = changes_of_views(item)
        own = frozenset().union(*(view.calls for view in views))
        return own or changes_of_a_name(item)

    def _note(self, node: Node, op: Op) -> None:
        """Note the place of a value every call computes: the line and expression where it could get a name, to be saved."""
        placed = op.is_tensor or op.kind == "group" and op.rule != "input"
        if placed and node.kind != "name":  # which has one
            self.places.setdefault(op, []).append(Place(self.position, node))

    def places_to_name(self, forward: Forward) -> dict[Op, list[Place]]:
        """Return the places of each value that may get a name.

        A value whose memory changes later gets none: the name would mean the changed value.
        """
        taken = written_over(forward.statements, forward.results)
        rewrite, parts = self.program.graph.rewrite, self.expressions.parts
        return {
            op: [Place(at, rewrite(node, parts.get)) for at, node in places]
            for op, places in self.places.items()
            if all(place.node not in taken for place in places)
        }

    def in_parts(self, forward: Forward) -> Forward:
        """Return the forward with some calls written in parts, `F.max_pool2d(x, 2, return_indices=True)[0]`."""
        return respelled(self.program.graph, forward, self.expressions.parts)

    def held(self) -> dict[Op, str]:
        """Return a name for each value the backward can read after the last statement; of several names an input's."""
        found: dict[Op, str] = {}
        for name, op in self.env.items():
            is_right = name != "_" and name not in self.stale
            if op.rule not in ("const", "list") and is_right:
                # `env` begins with the inputs, so an input's name comes first.
                found.setdefault(op, name)
        return found

    def held_in_branches(self) -> dict[Op, str]:
        """Return a name for each value assigned in one branch of an `if` only; after the other branch the name is None.

        The backward may read it under the same test. A name in `stale` has another value by then.
        """
        found: dict[Op, str] = {}
        for name, op in self.env.items():
            # Assigned once, in one branch: after the other the name is None, a `const`.
            if op.rule != "cond" or name in self.stale or self.writes.get(name) != 1:
                continue
            for branch, other in (op.args, op.args[::-1]):
                made = branch.is_tensor and branch.rule != "input"
                if made and other.rule == "const":
                    found[branch] = name
        return found

    def block(self, statements: Lines) -> None:
        """Lower statements, in order; `env` changes with each."""
        for item in statements:
            if isinstance(item, If):
                self._choice(item)
            else:
                self._assign(item)

    def _assign(self, item: Assign) -> None:
        """Lower an assignment: set the op of its target, and of the names whose memory it changes."""
        value = item.value
        if self._lower_random(item):
            return
        if item.operator:
            value = self.program.graph.node(
                "binary", item.operator, (item.target, value)
            )
        views = changes_of_views(item)
        if self._only_sets(item, views):
            self.env[views[0].views[-1].label] = self._after_change_of(views[0])
            return
        op = self.expressions.assigned_value(value, self._own_changes(item))
        self.expressions.kinds.after((item,))
        # The names whose tensors have changed mean the new values.
        changed = {view.views[-1].label: self._after_change_of(view) for view in views}
        for name in changed_in_place(item.value):
            self.env[name] = changed[name] if views else op
        if item.target.kind == "subscript":
            self._put(item.target, op)
        elif item.target.kind != "absent":
            self._bind(item.target, op)

    def _only_sets(self, item: Assign, views: tuple[ChangedView, ...]) -> bool:
        """Return whether a statement only sets a view to a value, `h.diagonal().fill_(1)`, and does not use the result.

        Then the call itself, which may have no rule, is not lowered: only its effect on `h` is.
        """
        changes = [view.value for view in views]
        is_alone = item.target.kind == "absent" and changes == [item.value]
        return is_alone and set_value(self.program.graph, item.value) is not None

    def _after_change_of(self, view: ChangedView) -> Op:
        """Return the value of a named tensor after an in-place change of a view of it: of `h` after `h.t().add_(y)`.

        The view's new value is put into its base, and so on up to the name. A tensor not read again is returned as it was before,
        and its name is stale.
        """
        # Of `h.t().fill_(0)` the new value is 0, of any other change that of the call: `h.t().mul(y)`.
        given = set_value(self.program.graph, view.value) or view.value
        new, values = self.expressions.value(given), view.views
        root = self.expressions.value(values[-1])
        self._refuse_retained(root)
        name = values[-1].label
        # More than one: a view. A change of the name itself is simple.
        if len(values) > 1 and not self._is_read_again(name):
            self.stale.add(name)  # it is not worked out what it has become
            return root
        # Of `h.t()[0]`: into `h.t()`, and then into `h`.
        for node, inner in pairwise(values):
            whole, part = map(self.expressions.value, (inner, node))
            if node.kind != "subscript":
                new = put_view(self.expressions.make, whole, part, new)
                continue
            index = self._parts_of(node.args[1])
            if any(at.is_tensor or at.rule == "list" for at in index):
                return root  # `h[mask].pow_(2)` changes a copy
            new = put(self.applier, whole, index, new)
        return new

    def _is_read_again(self, name: str) -> bool:
        """Return whether a later line reads the data of a name, or may do so: lines inside an `if` have no numbers, so it is assumed."""
        if isinstance(self.lines[self.position], If):
            return True
        return name in data_read(*self.lines[self.position + 1 :])

    def _refuse_retained(self, op: Op) -> None:
        """Raise `UnsupportedError` for a change of a tensor autograd saves for a gradient, or of one that the forward has not made."""
        # An input, even a dirty one, is no tensor of the forward's own.
        if op.rule == "input" or not op.is_tensor:
            raise UnsupportedError(CHANGES)
        if op.active and op in retained(self.applier.table, op):
            raise UnsupportedError(READ_LATER)

    def _parts_of(self, index: Node) -> list[Op]:
        """Return the ops of the parts of an index: of `0, 1:` in `h[0, 1:]`."""
        several = index.args if index.kind == "tuple" else (index,)
        return [self.expressions.part(part) for part in several]

    def _put(self, target: Node, new: Op) -> None:
        """Lower `h[index] = new`: `h` means the tensor with the new part from here on."""
        container, index = target.args
        before = self.expressions.value(container)
        self._refuse_retained(before)
        whole = put(self.applier, before, self._parts_of(index), new)
        self.env[container.label] = whole

    def _bind(self, target: Node, op: Op) -> None:
        """Set the op each name of a target means: for `a, b = ...`, the parts of `op`.

        A Python value assigned once is written by its name in the backward.
        """
        if target.kind == "name":
            once = self.writes.get(target.label) == 1
            if op.kind == "static" and once and target.label not in self.stale:
                named = self.program.local(target, op)
                # A number or a size stays itself, so that it is known; others are read by their name.
                op = named if op.rule in ("static", "python") else op
            self.env[target.label] = op
            return
        # `item` writes the index of a call without a rule into the call itself.
        if op.is_tensor and op.rule != "call":  # `row, col = edge_index`
            op = self.applier.named("unbind", op, self.program.const(0))
        if op.kind == "group" and not bound(target) & self.stale:
            self.program.unpack(op)
        star = [at for at, item in enumerate(target.args) if item.kind == "starred"]
        if star:
            self._bind_around(target, op, star[0])
            return
        for position, inner in enumerate(target.args):
            self._bind(inner, self.expressions.item(op, position))

    def _bind_around(self, target: Node, op: Op, star: int) -> None:
        """Set the ops of `a, *rest, d = x.shape`, with the star at position `star`; names behind it are counted from the end.

        `rest` is bound only if it is read, as for a shape of unknown rank its value is an expression. Raise `UnsupportedError` for
        a value of unknown length other than a shape.
        """
        items = self.expressions.listed(op)
        rest = target.args[star].args[0]
        if items is None and op.rule != "shape":
            raise UnsupportedError("a starred target")
        # An unread `rest` must not mean what the name meant before.
        self.env.pop(rest.label, None)
        behind = len(target.args) - 1 - star
        if items is not None:
            end = len(items.args) - behind
            op = items
            self._bind(rest, self.program.op("list", items.args[star:end]))
        elif rest.label in data_read(*self.lines[self.position + 1 :]):
            self._bind(rest, self._starred_sizes(op, star, behind))
        for position, inner in enumerate(target.args):
            if position != star:
                at = position if position < star else position - len(target.args)
                self._bind(inner, self.expressions.item(op, at))

    def _starred_sizes(self, op: Op, star: int, behind: int) -> Op:
        """Return the value of `*rest` for a shape of unknown rank, `[*x.shape[1:-1]]`: `star` sizes stand before it, `behind` after."""
        program, node = self.program, self.program.graph.node
        absent, end = node("absent"), program.graph.constant
        ends = (
            end(str(star)) if star else absent,
            end(str(-behind)) if behind else absent,
        )
        part = program.static(node("slice", "", (*ends, absent)))
        sizes = program.python("subscript", "", op, part)
        return program.python("list", "", program.python("starred", "", sizes))

    def _lower_random(self, item: Assign) -> bool:
        """Lower a random draw, `mask = torch.rand_like(x) > p`, to a saved constant; return whether the line is one.

        A second draw would differ. It is none if a gradient passes through it, or if the name is assigned again. Its shape is known
        in `torch.rand_like(x) > p` if no tensor of the line has another shape than x.
        """
        active = frozenset(name for name, op in self.env.items() if op.active)
        name = item.target.label
        if not is_random(item.value) or carries_gradient(item.value, active):
            return False
        if item.operator or item.target.kind != "name" or self.writes.get(name) != 1:
            return False
        # The shape of `x` in `rand_like(x)`; then of all tensors in the line, as one may broadcast the draw.
        likes = [
            self.env[node.args[1].label].shape
            for node in item.value.walk()
            if node.kind == "call"
            and node.args[0].label.endswith("_like")
            and node.args[1].label in self.env
        ]
        others = [
            op.shape
            for label in item.value.names()
            if (op := self.env.get(label)) and op.is_tensor
        ]
        kind: Kind = "bool" if item.value.kind == "compare" else "real"
        shape = (
            likes[0] if likes and all(other == likes[0] for other in others) else None
        )
        self.env[name] = self.program.op(
            "drawn", (), Named(name), kind=kind, shape=shape
        )
        return True

    def _choice(self, item: If) -> None:
        """Lower an `if`: each name assigned in a branch becomes a choice between its values after both branches.

        A name that only one branch assigns, and no line before, counts as None after the other branch.
        """
        test = self.expressions.test(item.test)
        if isinstance(test, bool):  # only one branch is ever taken
            # A choice all the same: a line that names a value could only stand before the `if`.
            with self.expressions.choice():
                self.block(item.body if test else item.orelse)
            return
        before = dict(self.env)
        with self.expressions.choice():
            ends = [
                self._lower_branch(item.body, before, test, True),
                self._lower_branch(item.orelse, before, test, False),
            ]
        for name in {**ends[0], **ends[1]}:
            body, orelse = (end.get(name, before.get(name)) for end in ends)
            none = self.program.const(None)
            if body is orelse:  # both ways end with the same value
                self.env[name] = body or none
            else:
                self.env[name] = self.expressions.chosen(
                    test, body or none, orelse or none
                )

    def _lower_branch(
        self, branch: Lines, before: dict[str, Op], test: Op, holds: bool
    ) -> dict[str, Op]:
        """Lower a branch from the names `before` it; return the ops of the names it changes. `env` is the same afterwards.

        `holds` is the outcome of `test` for which the branch is taken: in it, a value chosen by the same test is known.
        """
        begun = {name: under(op, test, holds) for name, op in before.items()}
        self._set_env(begun)
        self.block(branch)
        ended = {name: op for name, op in self.env.items() if op is not begun.get(name)}
        self._set_env(before)
        return ended

    def _set_env(self, env: Mapping[str, Op]) -> None:
        """Set all names of `env`; the dict stays the same object, since `expressions` shares it."""
        self.env.clear()
        self.env.update(env)
