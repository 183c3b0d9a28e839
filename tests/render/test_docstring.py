"""Docstrings of generated code say what a caller has to know."""

from tests.derive.building import op_text, spec_of


def test_conditions_on_sizes_are_told() -> None:
    spec = spec_of(
        inputs="x[N, G], h[N, H]",
        forward="x * torch.cat((h, h), 1)",
        require=["G == 2 * H", "N % 2 == 0"],
        derive=True,
    )
    assert "    Requires ``G == 2 * H``, ``N % 2 == 0``.\n" in op_text(spec)
