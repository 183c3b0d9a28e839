"""What the generated tests make inputs of, and in which cases."""

import ast
from dataclasses import replace

import pytest

from scaffold.errors import Location
from scaffold.formula import Formula, Graph, Scope, Text, parse
from scaffold.render.testcases import absences, plan_making
from scaffold.spec import Attribute, OpSpec, TensorInput
from tests.render.op_specs import EXAMPLES, tensor

SPECS = {example.spec.name: example.spec for example in EXAMPLES}


def op(*inputs: TensorInput | Attribute, require: tuple[Formula, ...] = ()) -> OpSpec:
    return OpSpec("op", "Op", inputs, require=require)


def read(items: tuple[str, ...]) -> dict[str, dict[str, object]]:
    """The items of a dict, as the file will read them."""
    value = ast.literal_eval(f"{{{', '.join(items)}}}")
    assert isinstance(value, dict)
    return value


def optionals(count: int) -> OpSpec:
    return op(*(tensor(f"x{index}", "D", optional=True) for index in range(count)))


def test_the_cases_of_linear() -> None:
    making = plan_making(SPECS["linear"])
    assert read(making.cases) == {
        "base": {},
        "without-bias": {"absent": ["bias"]},
        "higher-rank": {"batch": (2, 5)},
        "no-batch": {"batch": ()},
        "other-sizes": {"in_features": 4, "out_features": 5},
    }
    assert read(making.empty) == {
        "empty-batch": {"batch": (0,)},
        "in_features=0": {"in_features": 0},
        "out_features=0": {"out_features": 0},
    }


def test_what_has_no_dims_beside_what_has_some_is_a_number() -> None:
    making = plan_making(op(tensor("x", "N", "D"), TensorInput("scale")))
    assert "shape: tuple[int, ...] = ()" in making.parameters
    assert list(read(making.empty)) == ["N=0", "D=0"]


def test_leading_dims_alone_go_with_a_product_of_what_has_no_dims() -> None:
    making = plan_making(op(tensor("mask", "..."), TensorInput("q"), TensorInput("k")))
    assert "shape: tuple[int, ...] = (2, 3)" in making.parameters
    assert read(making.cases)["higher-rank"] == {"batch": (2, 2)}


def test_fixed_dims_have_neither_higher_rank_nor_a_batch() -> None:
    making = plan_making(SPECS["linear_2d"])
    assert list(read(making.cases)) == ["base", "without-bias", "other-sizes"]
    assert list(read(making.empty)) == ["N=0", "in_features=0", "out_features=0"]


@pytest.mark.parametrize(
    ("count", "expected"), [(1, 1), (2, 3), (3, 7), (4, 5), (6, 7)]
)
def test_optionals_are_left_out_in_all_combinations_of_a_few(
    count: int, expected: int
) -> None:
    groups = absences(optionals(count))
    assert len(groups) == len(set(groups)) == expected
    assert max(groups, key=len) == tuple(f"x{index}" for index in range(count))


@pytest.mark.parametrize(
    ("count", "expected"), [(2, ["0", "0 1"]), (4, ["0", "0 1", "2", "3", "0 1 2 3"])]
)
def test_what_comes_with_another_is_left_out_with_it(
    count: int, expected: list[str]
) -> None:
    spec = optionals(count)
    names = frozenset(item.name for item in spec.tensors)
    source = "if x0 is not None:\n    y = x0 @ x1\nelse:\n    y = 1\ny"
    scope = Scope(names, names, tensors=names, kept=True)
    forward = parse(Text(source, Location("--forward")), scope, Graph())
    groups = absences(replace(spec, forward=forward))
    assert [" ".join(group).replace("x", "") for group in groups] == expected


def test_the_bound_of_an_index_is_never_empty() -> None:
    making = plan_making(SPECS["nll"])
    assert read(making.empty) == {"N=0": {"N": 0}}
    assert '"target": torch.randint(C, (N,))' in making.items


def test_indices_may_count_below_an_attribute() -> None:
    ids = TensorInput("ids", ("N",), dtype="index", bound="buckets")
    making = plan_making(op(tensor("x", "N"), ids, Attribute("buckets", "int")))
    assert making.parameters == ("N: int = 2", "buckets: int = 3")
    assert making.items[1:] == (
        '"ids": torch.randint(buckets, (N,))',
        '"buckets": buckets',
    )
    given = plan_making(op(tensor("x", "N"), ids, Attribute("buckets", "int", "7")))
    assert given.parameters == ("N: int = 2", "buckets: int = 7")
    assert read(given.empty) == {"N=0": {"N": 0}}


def test_a_case_keeps_the_conditions() -> None:
    text = Text("D > 1", Location("--require"))
    condition = parse(text, Scope(frozenset({"D"})), Graph())
    making = plan_making(op(tensor("x", "N", "D"), require=(condition,)))
    assert read(making.empty) == {"N=0": {"N": 0}}


def test_every_choice_is_a_case() -> None:
    choice = Attribute("mode", "Literal['a', 'b', 3, None]", "'b'")
    making = plan_making(op(tensor("x", "D"), choice))
    assert list(read(making.cases).items())[1:] == [
        ("mode=a", {"mode": "a"}),
        ("mode=3", {"mode": 3}),
        ("mode=None", {"mode": None}),
        ("other-sizes", {"D": 3}),
    ]
    assert "mode: str = 'b'" in making.parameters


def test_a_size_has_another_one_unless_it_is_given() -> None:
    """A factor of 2 may stand for a size of 2, `x.shape[0]`, in every case but this one."""
    making = plan_making(op(tensor("x", "N", "D"), tensor("w", "D", 4)))
    assert read(making.cases)["other-sizes"] == {"N": 3, "D": 4}
    fixed = plan_making(op(tensor("w", 4, 3)))
    assert "other-sizes" not in read(fixed.cases)


def test_a_choice_cannot_leave_its_quotes() -> None:
    text = """x": 1}, "y": {"'"""
    choice = Attribute("mode", f"Literal['b', {text!r}]", "'b'")
    making = plan_making(op(tensor("x", "D"), choice))
    assert read(making.cases)[f"mode={text}"] == {"mode": text}
    assert len(making.cases) == 3


def test_tensors_of_unknown_shape_share_one() -> None:
    making = plan_making(op(tensor("x"), tensor("y")))
    assert making.parameters == ("shape: tuple[int, ...] = (2, 3)",)
    assert making.items == (
        '"x": torch.randn(shape, dtype=torch.double)',
        '"y": torch.randn(shape, dtype=torch.double)',
    )
    assert read(making.empty) == {"empty": {"shape": (0, 3)}}


def test_a_dim_gives_way_to_what_make_needs_itself() -> None:
    making = plan_making(op(tensor("x", "batch", "...", "needs")))
    assert making.parameters == (
        "batch: tuple[int, ...] = (2,)",
        "batch_size: int = 3",
        "needs_size: int = 4",
    )
    assert "torch.randn(batch_size, *batch, needs_size," in making.items[0]


def test_leading_dims_with_a_name_are_one_choice_for_all_that_have_it() -> None:
    making = plan_making(op(tensor("q", "*batch", "S"), tensor("k", "*batch", "T")))
    assert making.parameters == (
        "batch: tuple[int, ...] = (2,)",
        "S: int = 3",
        "T: int = 4",
    )
    assert '"k": torch.randn(*batch, T, dtype=torch.double)' in making.items
    cases = read(making.cases)
    assert cases == {
        "base": {},
        "higher-rank": {"batch": (2, 5)},
        "no-batch": {"batch": ()},
        "other-sizes": {"S": 4, "T": 5},
    }
    assert list(read(making.empty)) == ["empty-batch", "S=0", "T=0"]
    assert making.shapes == {"q": "(2, 3)", "k": "(2, 4)"}


def test_every_name_of_leading_dims_has_a_choice_beside_that_of_those_without() -> None:
    spec = op(
        tensor("x", "...", "D"),
        tensor("y", "*batch", "D"),
        tensor("z", "*count"),
        tensor("w", "*heads"),
    )
    making = plan_making(spec)
    assert [item.partition(":")[0] for item in making.parameters] == [
        "batch",
        "batch_dims",
        "count_dims",
        "heads",
        "D",
    ]
    assert '"z": torch.randn(count_dims, dtype=torch.double)' in making.items
    no_batch = read(making.cases)["no-batch"]
    assert no_batch == {"batch": (), "batch_dims": (), "count_dims": (), "heads": ()}


def test_an_attribute_that_names_a_dim_is_its_size() -> None:
    spec = op(tensor("x", "N", "classes"), Attribute("classes", "int"))
    assert '"classes": classes' in plan_making(spec).items


def test_tensors_without_gradient_are_not_asked_for_one() -> None:
    assert plan_making(SPECS["nll"]).names == ("logp",)
    assert plan_making(SPECS["top_class"]).names == ("scores",)


def test_a_variadic_input_is_several_tensors_and_one() -> None:
    making = plan_making(SPECS["sum_all"])
    assert making.names == ("tensors[0]", "tensors[1]", "tensors[2]")
    assert read(making.cases)["one-tensor"] == {"count": 1}
    spec = replace(SPECS["linear"], inputs=(tensor("x"), tensor("xs", variadic=True)))
    assert plan_making(spec).names == ("x", "xs[0]", "xs[1]", "xs[2]")


@pytest.mark.parametrize(
    ("inputs", "single"),
    [
        ([tensor("x"), tensor("y")], ["x", "y"]),
        ([tensor("x", "...", "D"), tensor("y", "...", "D")], ["x", "y"]),
        ([tensor("x", "..."), tensor("mask", "...", dtype="bool")], ["x"]),
        ([tensor("xs", variadic=True)], ["xs[0]"]),
        ([tensor("x", "...", "D"), tensor("w", "D")], []),  # nothing that is free
        ([tensor("x", "*batch", "D"), tensor("y", "*batch", "D")], []),
        ([tensor("x"), tensor("w", "D")], []),  # a number
        ([tensor("x")], []),
    ],
)
def test_each_of_several_free_shapes_broadcasts_once(
    inputs: list[TensorInput], single: list[str]
) -> None:
    cases = read(plan_making(op(*inputs)).broadcast)
    assert [*cases.values()] == [{"single": [name]} for name in single]
