"""Names for values of the backward, by the role they play.

In: an op. Out: an identifier. Invariant: no name is taken twice, and none is a builtin's or a keyword's.
"""

import builtins
import keyword
from collections.abc import Mapping

from scaffold.derive.names import fresh
from scaffold.derive.vjp.ir import Op, pulled_args
from scaffold.derive.vjp.rewrites import is_one_hot

ROLES = {
    "add": "total",
    "lead_dims": "leading",
    "sub": "difference",
    "mul": "product",
    "div": "quotient",
    "neg": "negative",
    "matmul": "product",
    "contracted": "product",
    "grown": "grad_matrix",
    "softmax": "probs",
    "log_softmax": "log_probs",
    "sum": "total",
    "where": "selected",
    "pow": "power",
    "pow_exponent": "power",
    "pow_base": "power",
    "slice": "part",
    "select": "part",
    "index": "picked",
    "expanded": "expanded",
    "reshaped": "reshaped",
    "summed_to": "summed",
    "zeros": "zeros",
    "cond": "chosen",
    "call": "value",
    "abs": "magnitude",
    "amax": "largest",
    "amin": "smallest",
    "getitem": "picked",
    "rsqrt": "inverse_root",
    "sqrt": "root",
    "reciprocal": "inverse",
    "cat": "joined",
    "stack": "stacked",
    "einsum": "product",
    "vector_norm": "norm",
}
MASKS = frozenset(
    {
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "bitwise_and",
        "bitwise_or",
        "bitwise_not",
        "logical_not",
    }
)


class Namer:
    """Gives each op a name that is free."""

    def __init__(
        self, taken: set[str], held: Mapping[Op, str], of: Mapping[Op, Op]
    ) -> None:
        self.taken, self.held, self.of = taken, held, of

    def name(self, op: Op) -> str:
        """A name for the op's value."""
        stems = self._stems(op)
        stem = next((item for item in stems if self._is_free(item)), None)
        chosen = stem or fresh(stems[-1], self.taken)
        self.taken.add(chosen)
        return chosen

    def free(self, stem: str) -> str:
        """The stem, with a number if it is taken."""
        chosen = fresh(stem, self.taken)
        self.taken.add(chosen)
        return chosen

    def _is_free(self, name: str) -> bool:
        reserved = hasattr(builtins, name) or keyword.iskeyword(name)
        return name not in self.taken and not reserved

    def _stems(self, op: Op) -> list[str]:
        if op.rule == "item" and op.args[0].rule == "vjp":
            word = self._word(pulled_args(op.args[0])[int(str(op.data))])
            return [f"pulled_{word or 'back'}"]
        if op in self.of:
            primal = self.of[op]
            known = self.held.get(primal)
            stem = known or self._role(primal)
            return [
                f"grad_{stem}",
                *(f"grad_{item}" for item in self._qualified(primal)),
            ]
        return [self._role(op), *self._qualified(op)]

    def _role(self, op: Op) -> str:
        if op.rule in MASKS:
            return "mask"
        if is_one_hot(op):
            return "onehot"
        return ROLES.get(op.rule, op.rule.lower())

    def _qualified(self, op: Op) -> list[str]:
        """The role with what it is of: `exp_x`."""
        words = [self._word(arg) for arg in op.args if arg.kind != "static"]
        return [f"{self._role(op)}_{word}" for word in words if word] or [
            f"{self._role(op)}_part"
        ]

    def _word(self, op: Op) -> str:
        if op in self.held:
            return self.held[op].removeprefix("grad_")
        if op.rule in ("input", "cotangent"):
            return str(op.data).removeprefix("grad_")
        inner = [self._word(arg) for arg in op.args if arg.kind != "static"]
        return next((word for word in inner if word), "")
