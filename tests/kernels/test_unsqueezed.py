"""Inputs read with more dims become inputs of those dims."""

from scaffold.kernels.unsqueezed import unsqueezed
from tests.derive.building import spec_of


def test_a_view_with_a_dim_of_one_becomes_the_input() -> None:
    for view in ("cos[:, None, :]", "cos[:, None]", "cos.unsqueeze(1)"):
        spec = spec_of("x[T, H, D], cos[T, D]", "op", forward=f"x * {view}")
        found, known = unsqueezed(spec)
        assert known == {"cos": ("T", 1, "D")} and found.dims("cos") == ("T", 1, "D")


def test_an_input_read_in_two_ways_stays() -> None:
    for forward in ("x * cos[:, None] + cos", "x * cos[:, None] + cos[None]"):
        spec = spec_of("x[T, T, D], cos[T, D]", "op", forward=forward)
        found, known = unsqueezed(spec)
        assert not known and found.dims("cos") == ("T", "D")
