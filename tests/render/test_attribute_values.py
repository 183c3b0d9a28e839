"""Further values of attributes in a proof: each branch that asks for one is run."""

import pytest

from scaffold.render.attribute_values import further_values
from tests.derive.building import spec_of


@pytest.mark.parametrize(
    ("inputs", "forward", "values"),
    [
        ("x, flip: bool = False", "-x if flip else x", {1: (True,)}),
        ("x, flip: bool = True", "-x if flip else x", {1: (False,)}),
        ("x, n: int = 1", "-x if n == 2 else x", {1: (2, 3)}),
        ("x, n: int = 1", "-x if n == 0.5 else x", {1: (2,)}),
        (
            "x, a: float = 2.0",
            "x if a >= 0 else 2 * x",
            {1: (-1.0, 0.0, 1.0, 3.0, 2.25)},
        ),
        ("x, a: float | None = None", "x if a is None else a * x", {}),
        (
            "x, a: float | None = 2.0",
            "x if a is None else a * x",
            {1: (None, 3.0, 2.25)},
        ),
        ("x, n: int = 0", "-x if n else x", {1: (-1, 1)}),
        ("x, n: int = 0", "-x if not n else x", {1: (-1, 1)}),
        ("x, n: int = 0", "if n:\n    return -x\nreturn x", {1: (-1, 1)}),
        (
            "x, a: float = 1.0",
            "-x if a > 1 / 2 else x",
            {1: (-0.5, 0.5, 1.5, 2.0, 1.25)},
        ),
        ("x, a: float = 1.0", "-x if a == math.inf else x", {1: (2.0, 1.25)}),
        ("x, n: int = 1", "n * x", {1: (2,)}),
        ("x, how: str = 'a'", "-x if how == 'b' else x", {1: ("b",)}),
        ("x[N], i[N; index(k)], k: int = 3", "-x if k == 2 else x", {}),
        ("*xs, flip: bool = False", "-sum(xs) if flip else sum(xs)", {}),
    ],
)
def test_values_on_either_side_of_a_test_and_another_one(
    inputs: str, forward: str, values: dict[int, tuple[object, ...]]
) -> None:
    found = further_values(spec_of(inputs, forward=forward))
    assert found == values
    assert [*map(type, sum(found.values(), ()))] == [
        *map(type, sum(values.values(), ()))
    ]


def test_what_require_speaks_of_stays() -> None:
    spec = spec_of(
        "x[N], k: int = 2", forward="-x if k == 1 else x", require=["N % k == 0"]
    )
    assert further_values(spec) == {}
