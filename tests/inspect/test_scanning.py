"""One walk over a file: everything in its order, with what stands around it."""

import ast

from scaffold.inspect.imported_names import Names
from scaffold.inspect.scanning import aliases, applications, local_names, scan

TREE = ast.parse("""\
import torch

Base = torch.autograd.Function


class Outer:
    class Inner(Base):
        def forward(self):
            import math


square = Square.apply


def call(x):
    local = Square.apply
    return square(x) + Square.apply(x) + other.kernel(x)
""")
FOUND = scan(TREE)


def test_definitions_come_in_order_with_those_around_them() -> None:
    within = [
        (getattr(node, "name", ""), [getattr(outer, "name", "") for outer in around])
        for node, around in (*FOUND.classes, *FOUND.functions)
    ]
    assert within == [
        ("Outer", []),
        ("Inner", ["Outer"]),
        ("forward", ["Outer", "Inner"]),
        ("call", []),
    ]
    assert len(FOUND.imports) == 2


def test_apply_is_found_by_both_names() -> None:
    (calls,) = applications(FOUND).items()
    name, found = calls
    assert (name, len(found)) == ("Square", 2)


def test_only_the_module_s_own_names_are_aliases() -> None:
    assert aliases(FOUND) == {"Square": ["square"]}
    local = local_names(FOUND, Names(TREE))
    assert local == {"Base": "torch.autograd.Function", "square": "Square.apply"}
