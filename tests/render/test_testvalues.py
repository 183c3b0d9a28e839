"""Expressions for test values: of the right kind, in the right domain."""

import pytest
import torch

from scaffold.formula import Formula, Graph
from scaffold.render.testvalues import (
    attribute_value,
    choices,
    further_values,
    tensor_expression,
)
from scaffold.spec import Attribute, OpSpec, TensorInput
from scaffold.spec.op_spec import Domain, DType
from tests.derive.building import spec_of
from tests.render.op_specs import HERE, tensor


def made(limit: str = "2", **traits: object) -> torch.Tensor:
    expression = tensor_expression(tensor("x", **traits), ("50", "4"), limit)
    value = eval(expression, {"torch": torch})
    assert isinstance(value, torch.Tensor)
    assert value.shape == (50, 4)
    return value


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float", torch.double),
        ("complex", torch.cdouble),
        ("int", torch.long),
        ("index", torch.long),
    ],
)
def test_a_value_has_its_dtype(dtype: DType, expected: torch.dtype) -> None:
    assert made(dtype=dtype).dtype == expected


def test_domains_are_kept() -> None:
    assert made(domain="positive").min() > 0
    assert 0 < made(domain="unit").min() < made(domain="unit").max() < 1
    torch.testing.assert_close(made(domain="simplex").sum(-1), torch.ones(50).double())
    assert set(made("7", dtype="index", bound=7).flatten().tolist()) == set(range(7))


@pytest.mark.parametrize("domain", ["nonzero", "spd", "distinct"])
def test_other_domains_have_a_maker(domain: Domain) -> None:
    assert (
        tensor_expression(tensor("x", domain=domain), ("*batch", "D"), "2")
        == f"{domain}(*batch, D)"
    )


def test_masks_have_a_maker() -> None:
    assert tensor_expression(tensor("x", dtype="bool"), ("N",), "2") == "mask(N)"


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((), "torch.randn((), dtype=torch.double)"),
        (("N",), "torch.randn(N, dtype=torch.double)"),
        (("*batch",), "torch.randn(batch, dtype=torch.double)"),
        (("*batch", "D"), "torch.randn(*batch, D, dtype=torch.double)"),
    ],
)
def test_a_shape_is_spelled_as_one_would(sizes: tuple[str, ...], expected: str) -> None:
    assert tensor_expression(tensor("x"), sizes, "2") == expected


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((), "()"),
        (("N",), "(N,)"),
        (("*batch",), "batch"),
        (("*batch", "N"), "(*batch, N)"),
    ],
)
def test_a_shape_of_integers_is_a_tuple(sizes: tuple[str, ...], expected: str) -> None:
    item = TensorInput("x", dtype="index", bound="C")
    assert tensor_expression(item, sizes, "C") == f"torch.randint(C, {expected})"


def value(item: Attribute) -> str:
    return attribute_value(OpSpec("op", "Op", (item,)), item)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("float", "0.5"),
        ("int", "2"),
        ("bool", "True"),
        ("torch.dtype", "torch.double"),
        ("tuple[int, float]", "(2, 0.5)"),
        ("tuple[int, ...]", "(2, 2)"),
        ("tuple[tuple[int, bool], float]", "((2, True), 0.5)"),
        ("list[float]", "[0.5, 0.5]"),
        ("float | None", "None"),
        ("int | float", "2"),
        ("dict[str, int]", "object()"),
        ("Literal['sum', 'mean']", "'sum'"),
        ("object", "object()"),
        ('"ProcessGroup"', "object()"),
        ("Callable[[Tensor], Tensor]", "torch.tanh"),
    ],
)
def test_an_attribute_without_default_gets_a_value(
    annotation: str, expected: str
) -> None:
    assert value(Attribute("a", annotation)) == expected


def test_a_default_is_the_value() -> None:
    assert value(Attribute("eps", "float", "1e-6")) == "1e-6"


def test_an_axis_is_the_last_one() -> None:
    assert value(Attribute("dim", "int")) == "-1"


def test_an_object_that_is_called_is_a_function() -> None:
    graph = Graph()
    call = graph.node("call", args=(graph.name("f"), graph.name("x")))
    forward = Formula((), call, "f(x)", HERE)
    function, other = Attribute("f", "object"), Attribute("g", "object")
    spec = OpSpec("op", "Op", (tensor("x"), function, other), forward=forward)
    assert attribute_value(spec, function) == "torch.tanh"
    assert attribute_value(spec, other) == "object()"


def test_choices_are_those_of_a_literal() -> None:
    assert choices(Attribute("mode", 'Literal["a", 1]')) == ("'a'", "1")
    assert choices(Attribute("mode", "str")) == ()


@pytest.mark.parametrize(
    ("inputs", "forward", "values"),
    [
        ("x, flip: bool = False", "-x if flip else x", {1: (True,)}),
        ("x, flip: bool = True", "-x if flip else x", {1: (False,)}),
        ("x, n: int = 1", "-x if n == 2 else x", {1: (2, 3, -2, 0, 5)}),
        ("x, n: int = 1", "-x if n == 0.5 else x", {1: (2, -2, 0, 5)}),
        (
            "x, a: float = 2.0",
            "x if a >= 0 else 2 * x",
            {1: (-1.0, 0.0, 1.0, 3.0, -2.0, 0.25, 2.25)},
        ),
        (
            "x, a: float | None = None",
            "x if a is None else a * x",
            {1: (0.5, 0.25, 1.5, -0.5, 0.0, 0.75)},
        ),
        (
            "x, a: float | None = 2.0",
            "x if a is None else a * x",
            {1: (None, 1.0, 3.0, -2.0, 0.0, 0.25, 2.25)},
        ),
        ("x, n: int = 0", "-x if n else x", {1: (-1, 1, 4)}),
        ("x, n: int = 0", "-x if not n else x", {1: (-1, 1, 4)}),
        ("x, n: int = 0", "if n:\n    return -x\nreturn x", {1: (-1, 1, 4)}),
        (
            "x, a: float = 1.0",
            "-x if a > 1 / 2 else x",
            {1: (-0.5, 0.5, 1.5, 2.0, -1.0, 0.0, 0.125, 1.25)},
        ),
        (
            "x, a: float = 1.0",
            "-x if a == math.inf else x",
            {1: (0.5, 2.0, -1.0, 0.0, 0.125, 1.25)},
        ),
        ("x, n: int = 1", "n * x", {1: (2, -2, 0, 5)}),
        ("x, how: str = 'a'", "-x if how == 'b' else x", {1: ("b", "none")}),
        (
            "x, how: str = 'a'",
            "-x if how in ('b', 'c') else x",
            {1: ("b", "c", "none")},
        ),
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
