"""What the engine makes of its own accord is in the table, under the name of the method."""

import inspect

import pytest

from scaffold.derive.graph.op import Op, Program
from scaffold.derive.graph.operations import Algebra
from scaffold.derive.rules.table import built_in
from scaffold.formula import Graph

METHODS = [name for name in vars(Algebra) if not name.startswith("_")]


class Recorded(Algebra):
    """Makes ops as they are, without a look at what they are of."""

    def __init__(self) -> None:
        self.program = Program(Graph(), built_in().facts)

    def __call__(self, name: str, *args: Op) -> Op:
        return self.program.op(name, args, kind="real")


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_the_primitive_of_its_name(name: str) -> None:
    make = Recorded()
    plain = [
        item
        for item in inspect.signature(getattr(make, name)).parameters.values()
        if item.kind is not inspect.Parameter.VAR_POSITIONAL
    ]
    args = [make.program.const(at) for at, _ in enumerate(plain)]
    assert getattr(make, name)(*args) is make(name, *args)
    assert name in built_in()
