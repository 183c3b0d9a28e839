"""The gradient doctor: every kind of wrong gradient is named, and a right one is never accused."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from scaffold.verify.child.diagnosis import Scene, diagnose

SHAPE = (3, 4)


def draw(*sizes: int, seed: int = 0, dtype: torch.dtype = torch.double) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(sizes, generator=generator, dtype=dtype)


def scene(value: Tensor, **others: Tensor) -> Scene:
    factors = {"x": draw(*value.shape, seed=1), "w": draw(value.shape[-1], seed=2)}
    return Scene("grad_x", value=value, factors=factors, others=others)


EXPECTED = draw(*SHAPE)
X, W = draw(*SHAPE, seed=1), draw(SHAPE[-1], seed=2)
SIMPLE: dict[str, Callable[[Tensor], Tensor | None]] = {
    "wrong sign": lambda g: -g,
    "factor 2": lambda g: 2 * g,
    "factor 1/3": lambda g: g / 3,
    "factor -1/2": lambda g: -g / 2,
    "factor 0.1235": lambda g: g * 0.12345,
    "always 0": lambda g: 0 * g,
    "None, but needed": lambda g: None,
    "missing factor x": lambda g: g / X,
    "missing factor w": lambda g: g / W,
    "missing factor -w": lambda g: -g / W,
    "factor x too many": lambda g: g * X,
    "factor w too many": lambda g: g * W,
    "summed over dim 0 and expanded again": lambda g: g.sum(0).expand(SHAPE),
    "averaged over dim 1": lambda g: g.mean(1, keepdim=True).expand(SHAPE),
    "wrong only at index 2 of dim 0: wrong sign there": lambda g: torch.cat(
        [g[:2], -g[2:]]
    ),
    "not finite: inf": lambda g: g / 0,
    "dtype float32 instead of float64": lambda g: g.float(),
}
LONG = (2, 12)
X2, W2 = draw(*LONG, seed=1), draw(LONG[-1], seed=2)
SOMEWHERE: dict[str, Callable[[Tensor], Tensor]] = {
    "wrong only where x > 0: factor 2 there": lambda g: torch.where(X2 > 0, 2 * g, g),
    "wrong only where x < 0: wrong sign there": lambda g: torch.where(X2 < 0, -g, g),
    "wrong only where |x| > 1: 0 there": lambda g: torch.where(X2.abs() > 1, 0, g),
    "wrong only where w > 0: 0 there": lambda g: torch.where(W2 > 0, 0, g),
    "not finite: nan where x < 0": lambda g: torch.where(X2 < 0, torch.nan, g),
}
SHAPES: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed: shape (4, 3) instead of (3, 4)": lambda g: g.mT,
    "not reshaped: shape (12,) instead of (3, 4)": lambda g: g.flatten(),
    "missing sum over dim 0: shape (2, 3, 4) instead of (3, 4)": lambda g: torch.stack(
        [0.25 * g, 0.75 * g]
    ),
    "missing sum over dim 1: shape (3, 2, 4) instead of (3, 4)": lambda g: torch.stack(
        [3 * g, -2 * g], 1
    ),
    "summed over dim 0, which the input has: shape (4,) instead of (3, 4)": (
        lambda g: g.sum(0)
    ),
    "summed over dim 1, which the input has: shape (3, 1) instead of (3, 4)": (
        lambda g: g.sum(1, keepdim=True)
    ),
    "shape (5,) instead of (3, 4)": lambda g: draw(5),
}


@pytest.mark.parametrize("words", SOMEWHERE)
def test_a_condition_on_values_is_named_if_many_elements_show_it(words: str) -> None:
    expected = draw(*LONG)
    wrong = SOMEWHERE[words](expected)
    assert diagnose(wrong, expected, scene(expected)) == words
    few = slice(None), slice(3)
    values = Scene("grad_x", expected[few], {"x": X2[few], "w": W2[:3]})
    told = diagnose(wrong[few], expected[few], values)
    assert told is not None
    assert not any(condition in told for condition in (" x ", "|x|", " w "))


@pytest.mark.parametrize("words", SIMPLE)
def test_a_wrong_gradient_is_named(words: str) -> None:
    assert diagnose(SIMPLE[words](EXPECTED), EXPECTED, scene(EXPECTED)) == words


@pytest.mark.parametrize("words", SHAPES)
def test_a_wrong_shape_is_named(words: str) -> None:
    assert diagnose(SHAPES[words](EXPECTED), EXPECTED, scene(EXPECTED)) == words


def test_a_square_transpose_is_named() -> None:
    expected = draw(3, 3)
    assert diagnose(expected.mT, expected, scene(expected)) == "transposed"


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ((0, 2, 1), "transposed: dims 1 and 2 are swapped"),
        ((1, 2, 0), "transposed: permute(2, 0, 1) is missing"),
    ],
)
def test_permuted_dims_are_named(order: tuple[int, ...], words: str) -> None:
    expected = draw(3, 3, 3)
    assert diagnose(expected.permute(order), expected, scene(expected)) == words


def test_a_swap_is_named() -> None:
    other = draw(*SHAPE, seed=5)
    found = diagnose(other, EXPECTED, scene(EXPECTED, grad_input=other))
    assert found == "swapped with grad_input"


def test_an_unexpanded_gradient_is_named() -> None:
    expected = draw(1, 4).expand(3, 4)
    found = diagnose(expected[:1], expected, scene(expected))
    assert found == "not expanded: shape (1, 4) instead of (3, 4)"


def test_a_missing_conjugate_is_named() -> None:
    expected = draw(3, dtype=torch.cdouble)
    assert diagnose(expected.conj(), expected, scene(expected)) == "conjugated"


def test_what_nothing_explains_is_measured() -> None:
    actual = EXPECTED.clone()
    actual[0, 1] += 2
    actual[2, 3] -= 3
    found = diagnose(actual, EXPECTED, scene(EXPECTED))
    wanted, got = EXPECTED[2, 3].item(), actual[2, 3].item()
    assert found == f"largest difference 3 at (2, 3): {got:.4g} instead of {wanted:.4g}"


def test_a_single_element_is_not_overexplained() -> None:
    expected = torch.tensor([0.7], dtype=torch.double)
    quiet = Scene("grad_x", value=expected, factors={"x": expected + 1})
    found = diagnose(expected * 1.2345, expected, quiet)
    assert found is not None and found.startswith("largest difference")
    assert diagnose(-expected, expected, quiet) == "wrong sign"


def test_shape_and_dtype_are_judged_where_no_value_is_known() -> None:
    assert diagnose(EXPECTED, None, scene(EXPECTED)) is None
    found = diagnose(EXPECTED[0], None, scene(EXPECTED))
    assert found == "shape (4,) instead of (3, 4)"


@given(
    st.lists(st.integers(0, 4), max_size=4),
    st.integers(0, 1000),
    st.sampled_from([torch.double, torch.cdouble]),
)
@settings(max_examples=80)
def test_a_right_gradient_is_never_accused(
    sizes: list[int], seed: int, dtype: torch.dtype
) -> None:
    expected = draw(*sizes, seed=seed, dtype=dtype)
    strided = torch.stack([expected] * 2, -1)[..., 0]
    assert diagnose(strided, expected, scene_of(expected)) is None


@given(st.lists(st.integers(0, 3), max_size=4), st.lists(st.integers(0, 3), max_size=4))
@settings(max_examples=150)
def test_every_pair_of_shapes_gets_words(one: list[int], two: list[int]) -> None:
    """Whatever backward returns, the doctor says something and does not fail."""
    actual, expected = draw(*one, seed=3), draw(*two)
    found = diagnose(actual, expected, scene_of(expected))
    same = one == two and torch.equal(actual, expected)
    assert (found is None) == same


def scene_of(value: Tensor) -> Scene:
    return Scene("grad_x", value=value, factors={"x": value + 1, "w": draw(3)})
