"""Statements under tests, arranged as an author would.

In: statements, and the tests that they stand under. Out: statements with `if`s. Invariant: every name has the same value after them.
"""

from scaffold.derive.negation import are_opposite, negated
from scaffold.formula import Assign, Graph, If, Node, Statement


def merged(lines: list[Statement]) -> list[Statement]:
    """Neighbours under the same test, or one and its opposite, as one `if`."""
    done: list[Statement] = []
    for line in lines:
        last = done[-1] if done else None
        if isinstance(line, If) and isinstance(last, If) and last.test is line.test:
            body = tuple(merged([*last.body, *line.body]))
            done[-1] = If(last.test, body, tuple(merged([*last.orelse, *line.orelse])))
        elif (
            isinstance(line, If)
            and isinstance(last, If)
            and not (last.orelse or line.orelse)
            and are_opposite(last.test, line.test)
        ):
            done[-1] = If(last.test, last.body, line.body)
        else:
            done.append(line)
    return done


def under(
    graph: Graph, tests: list[tuple[Node, int]], lines: list[Statement]
) -> list[Statement]:
    """Statements under tests, each of which holds (0) or does not (1)."""
    for test, at in reversed(tests):
        test = negated(graph, test) if at else test
        lines = [If(test, tuple(lines))]
    return lines


def without_copy(lines: list[Statement], sole: bool) -> tuple[Statement, ...]:
    """Statements whose last one copies what the one before has made: made under that name at once.

    Where the copy is the `sole` use, also in the branches of an `if`.
    """
    match lines:
        case [*before, Assign(made, value, "", comments), Assign(target, last)] if (
            last is made
        ):
            return (*before, Assign(target, value, "", comments))
        case [*before, If() as choice, Assign(target, last)] if sole:
            found = _assigned_in(choice, last, target)
            if found is not None:
                return (*before, found)
    return tuple(lines)


def _assigned_in(choice: If, made: Node, target: Node) -> If | None:
    """A choice that assigns another name, if all of its branches end with that assignment."""
    branches = list[tuple[Statement, ...]]()
    for body in (choice.body, choice.orelse):
        match body:
            case (*before, Assign(name, value, "", comments)) if name is made:
                branches.append((*before, Assign(target, value, "", comments)))
            case (*before, If() as inner):
                found = _assigned_in(inner, made, target)
                if found is None:
                    return None
                branches.append((*before, found))
            case _:
                return None
    return If(choice.test, branches[0], branches[1])
