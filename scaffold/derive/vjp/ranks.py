"""How many dims a tensor has at least, as far as the forward tells.

In: a program. Out: the least rank of each shape that says more than itself. Invariant: PyTorch refuses every call in which a tensor
has fewer dims.
"""

from scaffold.derive.vjp.ir import Op, Program, literal
from scaffold.derive.vjp.shapes import Shape

MATRICES = {"mT": 2, "mH": 2, "mm": 2, "bmm": 3, "addmm": 2, "baddbmm": 3, "tril": 2}
MATRICES |= {"triu": 2, "mv": 1, "dot": 1, "matmul": 1}
ALONG = frozenset({"dim", "dim0", "dim1", "start_dim", "end_dim"})


class Ranks:
    """What is known of the ranks in one program."""

    def __init__(self, program: Program) -> None:
        self.known: dict[Shape, int] = {}
        for op in program.ops:
            if op.is_tensor:
                self._learn(op)

    def least(self, shape: Shape) -> int:
        """The least rank that a tensor of the shape can have."""
        parts = shape.key[1] if shape.key[:1] == ("broadcast",) else ()
        inner = max(map(self.least, parts), default=0)
        return max(shape.least, self.known.get(shape, 0), inner)

    def _note(self, shape: Shape, rank: int) -> None:
        if shape.dims is None and rank > self.known.get(shape, 0):
            self.known[shape] = rank

    def _learn(self, op: Op) -> None:
        """Facts of one op: of its arguments, then of its result."""
        for arg in op.args:
            if arg.is_tensor and op.rule in MATRICES:
                self._note(arg.shape, MATRICES[op.rule])
        given = [arg for arg in op.args if arg.is_tensor]
        if op.rule in ("transpose", "select", "slice", "softmax", "log_softmax"):
            for arg in op.args[1 : 3 if op.rule == "transpose" else 2]:
                dim = literal(arg)
                if isinstance(dim, int) and not -1 <= dim <= 0:
                    self._note(given[0].shape, -dim if dim < 0 else dim + 1)
        least = [self.least(arg.shape) for arg in given]
        if op.rule in ("mT", "mH", "transpose", "tril", "triu"):
            self._note(op.shape, least[0])
        if op.rule == "matmul" and min(least) >= 2:
            self._note(op.shape, max(least))
        if op.rule == "unsqueeze":
            self._note(op.shape, least[0] + 1)
        if op.rule in ("select",):
            self._note(op.shape, least[0] - 1)
