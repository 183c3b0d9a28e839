"""What is known of shapes: broadcasts, reductions, products, and what fits what."""

import pytest

from scaffold.derive.graph import shapes
from scaffold.derive.graph.shapes import (
    SCALAR,
    Dim,
    Input,
    LeadingDims,
    NamedSize,
    Shape,
    unknown,
)
from tests.derive.building import op_text


def of(text: str) -> Shape:
    """`...x C 1` as a shape; `?` is one that is not known."""
    if text.startswith("?"):
        return unknown(Input(text))
    return Shape(tuple(map(size, text.split())))


def size(word: str) -> Dim:
    """One size."""
    if word.startswith("..."):
        return LeadingDims(word.removeprefix("..."))
    if word.startswith("*"):
        return LeadingDims(word.removeprefix("*"), named=True)
    return int(word) if word.isdigit() else NamedSize(word)


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        (("N C", "C"), "N C"),
        (("N C", "1"), "N C"),
        (("N 1", "1 C"), "N C"),
        (("...x D", "D"), "...x D"),
        (("...x 1", "D"), "...x D"),
        (("...x D", "...x 1"), "...x D"),
        (("*b S 1", "*b 1 T"), "*b S T"),
        (("", "...x D"), "...x D"),
        (("?x", ""), "?x"),
        (("?x", "?x"), "?x"),
    ],
)
def test_a_broadcast_that_is_known(parts: tuple[str, ...], whole: str) -> None:
    assert shapes.broadcast(*map(of, parts)) == of(whole)
    assert shapes.broadcast(*map(of, reversed(parts))) == of(whole)


@pytest.mark.parametrize(
    "parts",
    [
        ("N C", "M C"),
        ("...x D", "...y D"),
        ("*b D", "...b D"),
        ("*a D", "*b D"),
        ("?x", "?y"),
        ("...x D", "N S D"),
    ],
)
def test_a_broadcast_that_is_not_known(parts: tuple[str, ...]) -> None:
    found = shapes.broadcast(*map(of, parts))
    assert found.dims is None
    assert all(shapes.fits(of(part), found) for part in parts)
    assert found == shapes.broadcast(*map(of, reversed(parts)))


@pytest.mark.parametrize(
    ("small", "large", "fit"),
    [
        ("C", "N C", True),
        ("1 C", "N C", True),
        ("N", "N C", False),
        ("...x D", "...x D", True),
        ("1 D", "...x D", False),  # the leading dims may be none
        ("D", "...x D", True),
        ("...x D", "D", False),
        ("*b 1", "*b D", True),
        ("*a D", "*b D", False),
        ("", "?x", True),
        ("?x", "?y", False),
    ],
)
def test_what_fits(small: str, large: str, fit: bool) -> None:
    assert shapes.fits(of(small), of(large)) is fit


def test_a_reduction_broadcasts_back_to_what_it_was_of() -> None:
    kept = shapes.reduced(of("?x"), (-1,), True)
    gone = shapes.reduced(of("?x"), (-1,), False)
    assert shapes.fits(kept, of("?x")) and not shapes.fits(gone, of("?x"))
    assert shapes.unsqueezed(gone, -1) == kept
    assert shapes.unsqueezed(gone, -2) != kept


@pytest.mark.parametrize(
    ("shape", "dims", "keepdim", "result"),
    [
        ("N C L", (-1,), True, "N C 1"),
        ("N C L", (0, 2), False, "C"),
        ("...x D", (-1,), False, "...x"),
        ("N C", None, False, ""),
        ("", (-1,), True, ""),
    ],
)
def test_a_reduction(
    shape: str, dims: tuple[int, ...] | None, keepdim: bool, result: str
) -> None:
    assert shapes.reduced(of(shape), dims, keepdim) == of(result)


@pytest.mark.parametrize("dims", [(-1,), (-2,), (-2, -1)])
def test_a_reduction_of_what_broadcasts_is_what_the_reductions_broadcast_to(
    dims: tuple[int, ...],
) -> None:
    x, y = of("...x N D"), of("...y N D")
    apart = [shapes.reduced(shape, dims, False) for shape in (x, y)]
    whole = shapes.broadcast(x, y)
    assert shapes.reduced(whole, dims, False) == shapes.broadcast(*apart)


def test_what_broadcasts_and_gains_a_dim_broadcasts_back_to_what_it_was() -> None:
    x, y = of("...x D"), of("...y D")
    whole = shapes.broadcast(x, y)
    narrow = shapes.unsqueezed(shapes.reduced(whole, (-1,), False), -1)
    assert narrow == shapes.broadcast(of("...x 1"), of("...y 1"))
    assert shapes.squeezed(narrow, -1) == shapes.broadcast(of("...x"), of("...y"))
    assert shapes.broadcast(narrow, y) == whole


def test_a_1_before_leading_dims_is_no_size_at_the_end() -> None:
    first, second = of("1 ...x D"), of("...y N D")
    assert shapes.broadcast(first, second).origin == shapes.Broadcast((second, first))


def test_a_first_dim_behind_leading_ones_is_not_known() -> None:
    assert shapes.reduced(of("...x D"), (0,), False).dims is None
    assert shapes.position(of("...x D"), 0) is None
    assert shapes.position(of("...x D"), -1) == 1
    assert shapes.position(of("...x D"), -2) is None


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("N K", "K M", "N M"),
        ("...x K", "K M", "...x M"),
        ("B S D", "B D T", "B S T"),
        ("N K", "K", "N"),
        ("K", "K M", "M"),
        ("K", "K", ""),
        ("1 S D", "B D T", "B S T"),
    ],
)
def test_a_product(left: str, right: str, result: str) -> None:
    assert shapes.multiplied(of(left), of(right)) == of(result)


def test_a_product_that_is_not_known() -> None:
    assert shapes.multiplied(of("?x"), of("K M")) is None
    assert shapes.multiplied(of("...x D"), of("...y D")) is None


def test_two_transposes_are_none() -> None:
    once = shapes.transposed(of("?x"), -2, -1)
    assert once != of("?x")
    assert shapes.transposed(once, -1, -2) == of("?x")
    assert shapes.transposed(of("...x S D"), -2, -1) == of("...x D S")


def test_the_least_rank() -> None:
    assert of("...x S D").least == 2 and of("...x S D").rank is None
    assert SCALAR.rank == 0
    assert shapes.transposed(of("?x"), 0, 1).rank is None


@pytest.mark.parametrize(
    ("call", "kept"),
    [
        ("F.conv2d(x, weight, padding=1)", True),
        ("F.conv2d(x, weight, padding=(2, 2), dilation=2)", True),
        ("F.conv2d(x, weight)", False),
        ("F.conv2d(x, weight, stride=2, padding=1)", False),
        ("F.conv2d(x, weight, padding=(1, 0))", False),
    ],
)
def test_a_convolution_keeps_sizes_that_its_padding_makes_up_for(
    call: str, kept: bool
) -> None:
    forward = f"(x * torch.tanh({call})).sum()"
    text = op_text("x[B, C, H, W], weight[C, C, 3, 3]", forward=forward, derive=True)
    assert ("sum_to_size" not in text) == kept


def test_a_weight_of_channels_is_summed_to_as_it_is() -> None:
    forward = "F.group_norm(x, 2, weight, bias)"
    text = op_text("x[B, C, H, W], weight[C], bias[C]", forward=forward, derive=True)
    assert "grad_bias = grad_output.sum((0, 2, 3))\n" in text


def test_a_dim_behind_leading_ones_is_counted_from_the_end() -> None:
    plain, led = of("N K"), of("...x N K")
    assert [shapes.size(plain, at) for at in (0, -1, 2)] == [size("N"), size("K"), None]
    assert [shapes.size(led, at) for at in (-2, -1, 0)] == [size("N"), size("K"), None]
    assert shapes.with_dim(led, -2, 2, 3) == of("...x 2 3 K")
    assert shapes.with_dim(plain, 0) == of("K")
    assert shapes.with_dim(led, 1, 2) is None
    assert [shapes.from_end(plain, at) for at in (0, 1, -2)] == [-2, -1, -2]
    assert [shapes.from_end(led, at) for at in (0, -1)] == [None, -1]


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("2 3", "N K", True),
        ("*batch 2", "*batch 3", True),
        ("*batch 2", "*batch 2 3", False),
        ("...x 2", "...y 2", False),
        ("2 3", "...x 2", False),
        ("?x", "?x", True),
        ("?x", "?y", False),
    ],
)
def test_shapes_of_one_rank(one: str, two: str, same: bool) -> None:
    assert shapes.same_rank(of(one), of(two)) == same
