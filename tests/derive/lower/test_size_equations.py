"""What conditions on sizes tell of them."""

from collections.abc import Mapping
from typing import Any

import pytest

from scaffold.derive.graph import sizes
from scaffold.derive.graph.op import Program
from scaffold.derive.lower.size_equations import required_sizes
from tests.derive.building import spec_of


def told(inputs: str, *conditions: str) -> Mapping[str, Any]:
    """What each size is, as text."""
    forward = f"{inputs.partition('[')[0]}.sin()"
    spec = spec_of(inputs, forward=forward, require=list(conditions))
    program = Program(spec.forward.graph if spec.forward else None, lambda _: None)  # type: ignore[arg-type]
    found = required_sizes(spec, program)
    return {name: sizes.said(size) for name, size in found.items()}


@pytest.mark.parametrize(
    ("inputs", "conditions", "wanted"),
    [
        ("x[N, D], y[E]", ["E == 3 * D"], {"E": "3*D", "D": "D"}),
        ("x[N, D], y[E]", ["3 * D == E"], {"E": "3*D"}),
        ("x[N, D], y[E]", ["D == E"], {"D": "E", "E": "E"}),
        ("x[N, D], y[E], z[G]", ["E == 2 * D", "G == 2 * E"], {"G": "4*D"}),
        ("x[N, D], y[E], z[G]", ["G == 2 * E", "E == 2 * D"], {"G": "4*D"}),
        ("x[N, D], y[E]", ["E == 2 * D and N == D"], {"E": "2*N", "D": "N"}),
        ("x[N, D], y[E]", ["E >= 2 * D", "D > 1"], {"E": "E", "D": "D"}),
        ("x[N, D]", ["D % 2 == 1"], {"D": "D"}),
        ("x[N, D]", ["N == N * D"], {"N": "N"}),
        # Without the optional input nothing is said of D.
        ("x[N, D], y[E]?", ["D == 2 * E"], {"D": "D"}),
    ],
)
def test_equations(inputs: str, conditions: list[str], wanted: dict[str, str]) -> None:
    assert wanted.items() <= told(inputs, *conditions).items()


def test_what_leaves_nothing_is_a_multiple() -> None:
    assert told("x[N, D]", "D % 2 == 0") == {"N": "N", "D": "D"}
    spec = spec_of("x[N, D]", forward="x.sin()", require=["D % 2 == 0", "D % 6 == 0"])
    assert spec.forward is not None
    program = Program(spec.forward.graph, lambda _: None)
    whole = required_sizes(spec, program)["D"]
    assert sizes.divided(whole, 6) is not None
    assert sizes.divided(whole, 4) is None


def test_an_inequality_tells_a_difference_that_is_not_negative() -> None:
    spec = spec_of(
        "x[N, D], y[R]", forward="x.sin()", require=["R < D", "N >= 2 * R", "D == N"]
    )
    assert spec.forward is not None
    program = Program(spec.forward.graph, lambda _: None)
    required_sizes(spec, program)
    found = [sizes.said(size) for size in program.nonnegative]
    assert found == ["(N - R - 1)", "(N - 2*R)"]


def test_a_condition_of_numbers_alone_is_not_relied_on() -> None:
    """The forward does not check it: with k = -1 the length of x[:, :k] was taken for k."""
    conditions = ["k > 0", "k <= D"]
    spec = spec_of("x[N, D], k: int = 2", forward="x[:, :k]", require=conditions)
    assert spec.forward is not None
    program = Program(spec.forward.graph, lambda _: None)
    required_sizes(spec, program)
    assert len(program.nonnegative) == 1
