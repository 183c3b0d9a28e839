"""A picture of times, where matplotlib is installed."""

import pytest

from scaffold.render.plots import bars, lacks_matplotlib

TIMES = {
    "N=4, float32": {"op": (1e-3, 3e-3, 2.9e-3, 3.2e-3), "F.silu(x)": (1e-3,) * 4},
    "N=8, float32": {"op": (2e-3, 6e-3, 5.9e-3, 6.1e-3)},
}


@pytest.mark.skipif(lacks_matplotlib(), reason="matplotlib is an extra")
def test_the_same_times_give_the_same_picture() -> None:
    found = bars("swish", TIMES)
    assert found == bars("swish", TIMES)
    assert found.startswith("<?xml") and "Date" not in found
    assert "<script" not in found and "<image" not in found
