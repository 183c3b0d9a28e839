"""What PyTorch can do with an op: said of its forward and backward, before either runs."""

from typing import Any

import pytest

from scaffold.derive import derive
from tests.derive.building import spec_of
from tests.derive.published.training import TRAINING


@pytest.mark.parametrize(
    ("forward", "steady"),
    [
        ("x * 2", True),
        ("x * (x > 0)", True),
        ("x[x > 0].sum()", False),  # how many there are depends on the data
        ("x.sum() if x.sum() > 0 else x.mean()", False),
    ],
)
def test_what_depends_on_data_is_not_compiled(forward: str, steady: bool) -> None:
    found = derive(spec_of("x", forward=forward, grad={"x": "grad_output"}))
    assert (found.compiles, found.transforms) == (steady, steady)


def test_a_tensor_of_numbers_that_is_written_into_has_no_batch() -> None:
    forward = "torch.zeros(4).index_add_(0, torch.arange(4), x)"
    found = derive(spec_of("x", forward=forward, grad={"x": "grad_output"}))
    assert found.compiles
    assert not found.transforms


def test_what_is_as_long_as_its_data_say_is_not_compiled() -> None:
    forward = "x / torch.bincount(i, minlength=3)"
    found = derive(spec_of("x[3], i[N; index(3)]", forward=forward, derive=True))
    assert found.transforms
    assert not found.compiles


def test_a_combined_forward_is_not_transformed() -> None:
    options: dict[str, Any] = {"forward": "x * 2", "grad": {"x": "grad_output * 2"}}
    assert derive(spec_of("x", **options)).transforms
    assert not derive(spec_of("x", style="combined", **options)).transforms


def test_a_local_of_which_only_the_shape_is_read_cuts_off_no_second_derivative() -> (
    None
):
    """`n` is read of a matrix that cannot be computed again, since a view of it may be written over."""
    forward = next(x.forward for x in TRAINING if x.name == "vicreg_covariance")
    spec = spec_of("x, y", forward=forward, derive=True, once_differentiable=False)
    assert not derive(spec).once_differentiable
