"""Docstrings of generated code say what a caller has to know."""

from tests.derive.building import op_text


def test_conditions_on_sizes_are_told() -> None:
    text = op_text(
        "x[N, G], h[N, H]",
        forward="x * torch.cat((h, h), 1)",
        require=["G == 2 * H", "N % 2 == 0"],
        derive=True,
    )
    assert "    Requires ``G == 2 * H``, ``N % 2 == 0``.\n" in text


def test_statements_in_one_line_are_shown_one_a_line() -> None:
    text = op_text("x", forward="y = torch.exp(x); return y * y", derive=True)
    assert "Computes::\n\n        y = torch.exp(x)\n        return y * y\n" in text


def test_a_surrogate_says_where_pytorch_drops_it() -> None:
    said = {"forward": "torch.sign(x)", "surrogate": True, "grad": {"x": "grad_output"}}
    text = op_text("x", **said)
    assert "not the derivative. Where the op is" in text
    assert "``make_fx``" in text
    registered = op_text("x", **said, style="library")
    assert "is a surrogate, not the derivative." in registered
    assert "make_fx" not in registered


def test_an_attribute_beside_a_number_of_any_shape_is_no_tensor() -> None:
    text = op_text("x, scale[], bits: int = 8", forward="x * scale**bits", derive=True)
    listed = ("x: Tensor.", "scale: Tensor of shape ``()``.", "bits: Integer.")
    assert "\n".join(f"        {line}" for line in listed) in text


def test_inputs_without_shapes_are_not_listed() -> None:
    text = op_text("x, bits: int = 8", forward="x * bits", derive=True)
    assert "Args:" not in text
