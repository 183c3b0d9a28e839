"""Write calls of the forward in parts, of which one is worth saving: `F.max_pool2d(x, 2, return_indices=True)[0]`.

For `F.max_pool2d(x, 2)`; the other part, the indices, is what the gradient needs. A rule may say such `parts` in the table.

In: a call whose rule says its parts. Out: the same value in these words. Invariant: the arguments are those of the call, each as
the user wrote it.

Words: an argument is `given` by the call of the user; it is `named` if it is passed by keyword; a parameter is `read` once the
parts have named it. To be `stated` is to stand by keyword in the parts.
"""

from collections.abc import Mapping

from scaffold.derive.graph.application import Bound
from scaffold.derive.graph.op import literal, literal_text
from scaffold.derive.graph.static_values import UnsupportedError
from scaffold.derive.rules.formulas import FormulaEvaluator
from scaffold.derive.rules.table import BUILDERS, Table
from scaffold.derive.simplify.constructors import Maker
from scaffold.formula import Graph, Node, keywords

REST = "..."  # in the parts: the arguments that they do not name


def in_parts(make: Maker, table: Table, bound: Bound, call: Node) -> Node | None:
    """Return `call` written in the parts of its rule; None if the rule has none, or the arguments of the call do not fit them.

    `bound` has the rule, and the op of each argument by parameter.
    """
    parts = table.parts(bound.rule)
    # Behind `*sizes` it is not known which parameter an argument belongs to.
    if parts is None or any(arg.kind == "starred" for arg in call.args):
        return None
    named = keywords(call)
    end = len(call.args) - len(named)  # of the arguments by position
    given = bound.rule.by_parameter(call.args[1:end]) | named
    evaluator = FormulaEvaluator(make, bound.args, table.home(bound.rule))
    try:
        return _Parts(make.program.graph, evaluator, given, {*named}).node(parts)
    except UnsupportedError:  # a rank that is not known
        return None


class _Parts:
    """A writer of a rule's parts over the arguments of one call."""

    def __init__(
        self,
        graph: Graph,
        evaluator: FormulaEvaluator,
        given: Mapping[str, Node],
        named: set[str],
    ) -> None:
        """Take the call's argument for each parameter, `given`, and the names of its keyword arguments, `named`.

        `read` collects the parameters that the parts name: `...` stands for all others.
        """
        self.graph, self.evaluator = graph, evaluator
        self.given, self.named = given, named
        self.read = set[str]()

    def node(self, part: Node) -> Node:
        """Return an expression of the parts, with each parameter replaced by the argument of the call, or by its default.

        A word such as `rank(x)` becomes its number; raise `UnsupportedError` if that is unknown.
        """
        if part.kind == "name" and part.label in self.evaluator.env:  # a parameter
            self.read.add(part.label)
            # Used only if the call leaves the parameter out: then its op is the literal of the default.
            default = literal_text(literal(self.evaluator.env[part.label]))
            return self.given.get(part.label) or self.graph.constant(default)
        if part.kind != "call":
            return self.graph.node(part.kind, part.label, (*map(self.node, part.args),))
        if part.args[0].label in BUILDERS:
            value = literal(self.evaluator.value(part))
            if not isinstance(value, int):
                raise UnsupportedError(part.args[0].label)
            return self.graph.constant(str(value))
        return self._call(part)

    def _call(self, part: Node) -> Node:
        """Return a call of the parts; its `...` stands for all arguments not used so far, by position or keyword as the user wrote.

        Raise `UnsupportedError` if the user passed by position what the parts pass by keyword.
        """
        stated = keywords(part)
        positional = part.args[: len(part.args) - len(stated)]
        args = [self.node(arg) for arg in positional if arg.label != REST]
        named = {key: self.node(arg) for key, arg in stated.items()}
        if any(arg.label == REST for arg in positional):
            rest = {k: v for k, v in self.given.items() if k not in self.read}
            # A user's `return_indices` by position would take the place of that by keyword in the parts.
            if (rest.keys() - self.named) & named.keys():
                raise UnsupportedError("it is given by position")
            args += [v for k, v in rest.items() if k not in self.named]
            named = {k: v for k, v in rest.items() if k in self.named} | named
        return self.graph.node("call", "", (*args, *named.values()), (*named,))
