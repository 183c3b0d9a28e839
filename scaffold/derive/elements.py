"""The gradient of a variadic input: what is computed for each of its tensors.

In: the lines of the backward. Out: `Element`s, and the other lines. Invariant: a line that reads the index `i` stands where
`i` is.
"""

from scaffold.derive.model import Element
from scaffold.derive.program import Line, read_names
from scaffold.formula import Assign, Statement, written
from scaffold.spec import OpSpec


def element_lines(
    spec: OpSpec, lines: tuple[Line, ...]
) -> tuple[tuple[Element, ...], tuple[Line, ...]]:
    """Formulas for one element of a variadic input, apart from the other lines."""
    if spec.backward:
        return (), lines
    several = {item.name for item in spec.differentiable if item.variadic}
    elements, rest, inside = [], list[Line](), list[Statement]()
    of_index = {"i"}
    for line in lines:
        item = line.statement
        (name,) = written(item) if len(written(item)) == 1 else ("",)
        target = name.removeprefix("grad_")
        if isinstance(item, Assign) and name != target and target in several:
            elements.append(Element(target, tuple(inside), item.value))
        elif line.serves <= several and read_names(item) & of_index:
            of_index |= written(item)
            inside.append(item)
        else:
            rest.append(line)
    return tuple(elements), tuple(rest)
