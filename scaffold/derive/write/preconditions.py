"""Which optional inputs must be given before a value can be computed.

In: ops, and which values may be absent. Out: the needs of each. Invariant: where all its needs are met, a value reads nothing
that is absent, whatever else the tests say.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from scaffold.derive.graph.conditions import decides, implies
from scaffold.derive.graph.op import Op, names_read
from scaffold.derive.graph.shapes import Product, Shape

# Ops that ask for a shape that another value has.
SHAPED = frozenset(
    {"zeros", "expanded", "reshaped", "summed_to", "fitted_to", "same", "unsliced"}
)
# A test, and the branch that it takes: 0 if it holds, 1 if not.
Outcome = tuple[Op, int]
# A name that is not None (a serial for what has none, which nothing tells), or a test that assigns what is read.
Need = str | Outcome


class Safety:
    """Says what must be there before an op is computed; `held` ones have names, `optional` ones may be absent."""

    def __init__(
        self,
        optional: Collection[Op],
        held: Collection[Op],
        takes_none: Callable[[Op, Op], bool],
        present: Mapping[int, str],
        ops: Iterable[Op] = (),
    ) -> None:
        self.optional, self.held, self.takes_none = optional, held, takes_none
        self.present = present  # a step that is taken only where that input is there
        self.absent = frozenset(_named(op) for op in optional if op.rule == "static")
        self.choices = tuple(op for op in held if op.rule == "cond")
        inside = {op: _assigning(op) for op in self.choices}
        self.inside = {op.args[0]: needs for op, needs in inside.items() if needs}
        self.known: dict[Op, frozenset[Need]] = {}
        self.tellers: dict[Shape, list[Op]] = {}  # the values that have such a shape
        for op in ops:
            if op.is_tensor and _is_product(op.shape) and not _asks(op):
                self.tellers.setdefault(op.shape, []).append(op)

    def there(self, steps: Collection[tuple[int, int]]) -> frozenset[Need]:
        """The inputs that are surely there after these steps."""
        return frozenset(self.present[step] for step, _ in steps if step < 0)

    def needs(self, op: Op) -> frozenset[Need]:
        """What must be there, or have been tested."""
        if op not in self.known:
            self.known[op] = self._needs(op)
        return self.known[op]

    def _needs(self, op: Op) -> frozenset[Need]:
        if op in self.optional:
            return self.inside.get(op) or frozenset({_named(op)})
        if op.rule == "static":
            return frozenset(op.expression.names() & self.absent)
        if op in self.held:
            return _assigning(op)
        if op.rule == "cond":
            return frozenset(
                need
                for at, arg in enumerate(op.args)
                for need in self.needs(arg)
                if not meets((op.test, at), need)
            )
        needed = (arg for arg in op.args if not self.takes_none(op, arg))
        asked = self._asked(op.shape) if op.rule in SHAPED else frozenset[Need]()
        return asked.union(*map(self.needs, needed))

    def _asked(self, shape: Shape) -> frozenset[Need]:
        """What must be there to know a shape that only a product of matrices has."""
        if not _is_product(shape):
            return frozenset()
        several = map(self.needs, self.tellers.get(shape, ()))
        return min(several, key=len, default=frozenset())


def _is_product(shape: Shape) -> bool:
    """Whether only a product of matrices has a shape."""
    return isinstance(shape.origin, Product)


def _asks(op: Op) -> bool:
    """Whether a value cannot be computed without the shape of another one."""
    return any(inner.rule in SHAPED for inner in op.walk())


def meets(outcome: Outcome, need: Need) -> bool:
    """Whether a need is met where a test took that branch."""
    if isinstance(need, str):
        return implies(*outcome, need)
    return outcome == need or decides(*outcome, *need)


def guard_of(need: Need, tests: Collection[Op]) -> Outcome | None:
    """The outcome of one of the tests that meets the need and asks for no more."""
    if not isinstance(need, str):
        return need if need[0] in tests else None
    for test in tests:
        if _asks_presence(test):
            for at in (0, 1):
                if implies(test, at, need):
                    return test, at
    return None


def guarded_by(guard: Outcome, need: Need, tests: Collection[Outcome]) -> list[Outcome]:
    """Tests and one more, before the first that reads what it is about."""
    found = list(tests)
    readers = (at for at, (test, _) in enumerate(found) if need in names_read(test))
    found.insert(next(readers, len(found)), guard)
    return found


def _assigning(op: Op) -> frozenset[Need]:
    """What must be there for a name to be assigned, where only one branch of a choice does it."""
    needed = frozenset[Need]()
    if op.rule != "cond":
        return needed
    test = op.test
    for at, arg in enumerate(op.args):
        if arg.rule == "const" and arg.value is None:
            implied = [name for name in names_read(test) if implies(test, 1 - at, name)]
            needed |= {
                implied[0] if implied and _asks_presence(test) else (test, 1 - at)
            }
    return needed.union(*map(_assigning, op.args))


def _asks_presence(test: Op) -> bool:
    """Whether a test is only whether a name is None."""
    return test.is_python("compare", "is", "is not")


def _named(op: Op) -> str:
    if op.rule == "static":
        return op.expression.label
    return op.name if op.rule == "input" else f"<{op.serial}>"
