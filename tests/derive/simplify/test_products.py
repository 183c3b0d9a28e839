"""Products taken apart into their factors."""

import pytest

from scaffold.derive import derive
from scaffold.derive.graph.op import Named, Program
from scaffold.derive.rules.table import built_in
from scaffold.derive.simplify.patterns import Matcher, pattern
from scaffold.formula import Graph
from tests.derive.building import spec_of


@pytest.mark.parametrize("forward", ["x ** 2.0", "(torch.pow(x, 2.0) * x).mean()"])
def test_an_exponent_may_be_a_float(forward: str) -> None:
    assert derive(spec_of("x", forward=forward, derive=True)).complete


def test_a_term_of_a_pattern_may_be_a_quotient_of_a_number() -> None:
    program = Program(Graph(), built_in().facts)
    x, y = (program.op("input", (), Named(name), kind="real") for name in "xy")
    quotient = program.op("div", (program.const(1), x), kind="real")
    total = program.op("add", (y, quotient), kind="real")
    assert {"x": x, "y": y} in list(Matcher()(pattern("1 / x + y"), total, {}))
