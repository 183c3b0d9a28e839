"""What the table says of operands is what PyTorch does: it raises for any other sizes."""

from collections.abc import Iterator

import pytest
import torch

from scaffold.derive.rules.table import Rule, Wanted, built_in, operands

SIZES = {"B": 2, "N": 3, "K": 4, "M": 5}
RULES = [
    rule for name in built_in().names() if (rule := built_in().rule(name)).operands
]


def call(rule: Rule, shapes: dict[str, tuple[int, ...]]) -> object:
    """The primitive on zeros; what is no operand is as small as it may be."""
    spelled = rule.spelled
    values = {name: torch.ones(shape) for name, shape in shapes.items()}
    rest = [item for item in rule.parameters if item.name not in values]
    for item in rest:
        if item.default is None:
            values[item.name] = torch.ones(())
    names = [item.name for item in rule.parameters if item.name in values]
    code = {
        "operator": f"{' @ '.join(names)}",
        "function": f"{spelled.name}({', '.join(names)})",
        "method": f"{names[0]}.{spelled.name}({', '.join(names[1:])})",
    }[spelled.kind]
    scope = {"torch": torch, "F": torch.nn.functional}
    return eval(code, scope, values)


def shapes_of(wanted: Wanted) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(SIZES[size] for size in sizes if size != "...")
        for name, sizes in wanted.items()
    }


def broken(wanted: Wanted) -> Iterator[dict[str, tuple[int, ...]]]:
    """One of two equal sizes as 1."""
    plain = shapes_of(wanted)
    letters = [size for sizes in wanted.values() for size in sizes]
    for name, sizes in wanted.items():
        own = [size for size in sizes if size != "..."]
        for at, size in enumerate(own):
            if letters.count(size) > 1:
                shape = (*plain[name][:at], 1, *plain[name][at + 1 :])
                yield plain | {name: shape}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_operands_are_what_pytorch_takes(rule: Rule) -> None:
    taken = [operands(text) for text in rule.operands]
    for wanted in taken:
        call(rule, shapes_of(wanted))
        for shapes in broken(wanted):
            with pytest.raises((RuntimeError, IndexError)):
                call(rule, shapes)
    for name in taken[0]:
        if all(wanted[name][0] != "..." for wanted in taken):
            most = max(taken, key=lambda wanted: len(wanted[name]))
            shapes = shapes_of(most)
            shapes[name] = (2, *shapes[name])
            with pytest.raises((RuntimeError, IndexError)):
                call(rule, shapes)
