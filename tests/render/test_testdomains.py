"""What the tests take for granted of inputs that the signature leaves open."""

import pytest

from scaffold.derive import derive
from scaffold.render.testdomains import with_domains
from tests.derive.building import spec_of


def shapes(inputs: str, forward: str) -> list[object]:
    spec = spec_of(inputs, forward=forward, derive=True)
    return [item.dims for item in with_domains(spec, derive(spec)).tensors]


@pytest.mark.parametrize(
    ("inputs", "forward"),
    [
        ("x, z[...; const]", "x * z"),
        ("z[...; complex], w", "z * w"),
        ("x, index[...; int]", "x.gather(-1, index)"),
        ("x, index[...; int]", "torch.scatter_add(x, 0, index, x)"),
    ],
)
def test_leading_dims_alone_are_those_of_what_has_no_shape(
    inputs: str, forward: str
) -> None:
    assert shapes(inputs, forward) == [None, None]


@pytest.mark.parametrize("forward", ["torch.linalg.inv(a)", "torch.logdet(a) * 2"])
def test_a_matrix_that_is_inverted_is_square(forward: str) -> None:
    assert shapes("a", forward) == [(3, 3)]
    assert shapes("a[..., D]", forward) == [("...", "D")]


@pytest.mark.parametrize(
    ("inputs", "forward"),
    [
        ("x, index[...; int]", "x.index_select(0, index)"),
        ("x, mask[...; bool]", "(x @ x.mT).masked_fill(mask, 0)"),
        ("x[N, D], z[...; const]", "x * z"),
        ("x[...], z[...; const]", "x * z"),
    ],
)
def test_other_dims_stand_as_they_are_stated(inputs: str, forward: str) -> None:
    spec = spec_of(inputs, forward=forward)
    assert shapes(inputs, forward) == [item.dims for item in spec.tensors]
