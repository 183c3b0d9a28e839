"""Products taken apart into their factors."""

import pytest

from scaffold.derive import derive
from tests.derive.building import spec_of


@pytest.mark.parametrize("forward", ["x ** 2.0", "(torch.pow(x, 2.0) * x).mean()"])
def test_an_exponent_may_be_a_float(forward: str) -> None:
    assert derive(spec_of("x", forward=forward, derive=True)).complete
