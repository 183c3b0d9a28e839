"""The statements of a run that raises nothing.

In: the statements of a forward, with its checks. Out: the same without `assert`, `raise` and the tests before them. Invariant:
wherever the forward returns at all, they give what it gives.
"""

from dataclasses import replace

from scaffold.derive.negation import negated
from scaffold.formula import Graph, If, Statement, is_check, raises

Lines = tuple[Statement, ...]


def settled(graph: Graph, statements: Lines) -> Lines:
    """The statements without what they refuse to run with."""
    return tuple(line for item in statements for line in _settled(graph, item))


def _settled(graph: Graph, item: Statement) -> Lines:
    if not isinstance(item, If):
        return () if is_check(item) else (item,)
    body, orelse = settled(graph, item.body), settled(graph, item.orelse)
    if raises(item.body):
        return orelse
    if raises(item.orelse):
        return body
    if body:
        return (replace(item, body=body, orelse=orelse),)
    if orelse:
        test = negated(graph, item.test)
        return (replace(item, test=test, body=orelse, orelse=()),)
    return ()
