"""What a call takes in each argument, as the sections of the table say it."""

import pytest

from scaffold.primitives.slots import calls_of


@pytest.mark.parametrize(
    ("call", "takes"),
    [
        (("function", "torch.softmax", 2, ()), ["tensor", "value"]),
        (("method", "gather", 3, ()), ["tensor", "value", "positions"]),
        (("method", "masked_fill", 3, ()), ["tensor", "mask", "either"]),
        (("function", "torch.cat", 1, ("dim",)), ["tensor", "value"]),
        (("function", "torch.einsum", 3, ()), ["value", "tensor", "tensor"]),
        (("operator", "@", 2, ()), ["tensor", "tensor"]),
        (("operator", "&", 2, ()), ["mask", "mask"]),
        (
            ("function", "F.layer_norm", 5, ()),
            ["tensor", "value", "tensor", "tensor", "value"],
        ),
    ],
    ids=lambda item: str(item[1]),
)
def test_each_argument_takes_what_the_section_says(
    call: tuple[str, str, int, tuple[str, ...]], takes: list[str]
) -> None:
    found, *_ = calls_of(*call)
    assert [slot.takes for slot in found.values()] == takes


def test_a_python_value_has_the_type_of_the_samples() -> None:
    (call,) = calls_of("method", "sum", 2, ("keepdim",))
    assert call[1].type == "int"
    assert call["keepdim"].type == "bool"
    (call,) = calls_of("method", "view", 3, ())
    assert call[1].type == "int"
    (call,) = calls_of("method", "view", 2, ())
    assert call[1].type == "tuple[int, ...]"


def test_a_call_that_may_mean_several_primitives_has_them_all() -> None:
    found = calls_of("method", "max", 2, ())
    assert [call[1].takes for call in found] == ["value", "tensor"]


@pytest.mark.parametrize(
    ("name", "count", "keywords"),
    [("F.no_such", 1, ()), ("torch.exp", 2, ()), ("torch.softmax", 1, ("axis",))],
)
def test_what_fits_no_primitive_has_no_slots(
    name: str, count: int, keywords: tuple[str, ...]
) -> None:
    assert calls_of("function", name, count, keywords) == ()


def test_a_keyword_that_no_section_has_has_no_slot() -> None:
    (call,) = calls_of("function", "F.softmax", 1, ("dim", "dtype"))
    assert [*call] == [0, "dim"]
