"""Inputs read with more dims become inputs of those dims."""

from scaffold.kernels.unsqueezed import unsqueezed
from tests.derive.building import spec_of


def test_a_view_with_a_dim_of_one_becomes_the_input() -> None:
    for view in ("cos[:, None, :]", "cos[:, None]", "cos.unsqueeze(1)"):
        spec = spec_of("x[T, H, D], cos[T, D]", "op", forward=f"x * {view}")
        found, known = unsqueezed(spec)
        assert known == {"cos": ("T", 1, "D")} and found.dims("cos") == ("T", 1, "D")


def test_a_number_for_several_rows_becomes_an_input_of_their_dims() -> None:
    for view in ("s[:, None]", "s.unsqueeze(1)", "s.unsqueeze(-1)"):
        spec = spec_of("x[B, T, H, D], s[H]", "op", forward=f"x * {view}")
        assert unsqueezed(spec)[1] == {"s": ("H", 1)} or "-1" in view
    spec = spec_of("x[B, T, D], s[B]", "op", forward="x * s[:, None, None]")
    assert unsqueezed(spec)[1] == {"s": ("B", 1, 1)}


def test_a_number_for_each_row_stays() -> None:
    spec = spec_of("x[N, D], s[N]", "op", forward="x * s[:, None]")
    assert not unsqueezed(spec)[1]


def test_an_input_read_in_two_ways_stays() -> None:
    for forward in ("x * cos[:, None] + cos", "x * cos[:, None] + cos[None]"):
        spec = spec_of("x[T, T, D], cos[T, D]", "op", forward=forward)
        found, known = unsqueezed(spec)
        assert not known and found.dims("cos") == ("T", "D")
