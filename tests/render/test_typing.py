"""What a type checker knows of an expression: in doubt it is annotated."""

import pytest

from scaffold.render.typing import (
    annotated_body,
    is_typed,
    typed_names,
    untyped_calls_ignored,
)
from tests.formula.parsing import formula

TENSORS = frozenset({"x", "y"})


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("x + y", True),
        ("torch.exp(x)", True),
        ("x.sum().exp()", True),
        ("x.norm()", False),  # its stub has no types
        ("torch.split(x, 2)", False),
        ("x if p else y", True),
        ("-x.mT", True),
    ],
)
def test_what_is_known(text: str, known: bool) -> None:
    node = formula(text, names="x y p").result
    assert node is not None
    assert is_typed(node, TENSORS) is known


def test_a_name_has_the_type_of_what_it_is_assigned_first() -> None:
    parsed = formula("a = x * 2\nb = x.norm()\nb = x + y\nreturn a * b")
    assert typed_names(parsed.statements, TENSORS) == TENSORS | {"a"}


def test_a_result_that_is_not_known_is_annotated() -> None:
    parsed = formula("a = x * 2\nreturn a.norm()")
    result = parsed.result
    assert result is not None
    lines, value = annotated_body(
        parsed.statements, result, TENSORS, "output", strict=True
    )
    assert (lines, value) == (["a = x * 2", "output: Tensor = a.norm()"], "output")


def test_a_local_that_is_returned_is_annotated_where_it_begins() -> None:
    parsed = formula("a = x.norm()\nreturn a")
    result = parsed.result
    assert result is not None
    lines, value = annotated_body(
        parsed.statements, result, TENSORS, "output", strict=True
    )
    assert (lines, value) == (["a: Tensor = x.norm()"], "a")


def test_a_long_call_is_broken_since_its_comment_keeps_a_formatter_from_it() -> None:
    shapes = ", ".join(f"projected_grad_{name}.shape" for name in "abc")
    line = f"    grad_x = grad_x.sum_to_size(torch.broadcast_shapes({shapes}))"
    assert untyped_calls_ignored([line], strict=True) == [
        "    shape = torch.broadcast_shapes(  # type: ignore[no-untyped-call]",
        f"        {shapes}",
        "    )",
        "    grad_x = grad_x.sum_to_size(shape)",
    ]
