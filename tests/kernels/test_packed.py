"""Rows of several parts: the parts become inputs, and their places in the row stay known."""

import pytest

from scaffold.kernels.bound_once import bound_once
from scaffold.kernels.packed import unpacked
from scaffold.kernels.row_program import Part
from scaffold.kernels.written_out import written_out
from tests.derive.building import spec_of


def test_chunks_become_inputs() -> None:
    spec = spec_of("x[..., D]", "op", forward="a, b = x.chunk(2, -1)\nreturn a * b")
    found = unpacked(spec)
    assert [item.name for item in found.spec.inputs] == ["a", "b"]
    assert found.inputs == {"a": ("x", Part(0, 2)), "b": ("x", Part(1, 2))}
    assert found.spec.dims("a") == ("...", "half")
    assert found.lines == ("a, b = x.chunk(2, -1)",)


def test_slices_with_a_step_become_inputs() -> None:
    found = unpacked(spec_of("x[..., D]", "op", forward="x[..., ::2] * x[..., 1::2]"))
    parts = {"x_even": Part(0, 2, True), "x_odd": Part(1, 2, True)}
    assert found.inputs == {name: ("x", part) for name, part in parts.items()}


def test_an_output_of_parts_is_several() -> None:
    text = "a, b = x.chunk(2, -1)\nreturn torch.cat([a * c, b * c], -1)"
    found = unpacked(spec_of("x[..., D], c[..., H]", "op", forward=text))
    assert found.outputs == {
        "output_1": ("output", Part(0, 2)),
        "output_2": ("output", Part(1, 2)),
    }
    assert found.spec.dims("a") == ("...", "H")  # the name given by another input


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("F.glu(x)", 2),
        ("a, b = x.split(x.shape[-1] // 2, dim=-1)\nreturn a * b", 2),
        ("h = x.shape[-1] // 2\nreturn x[..., :h] * x[..., h:]", 2),
        ("a, b = x.chunk(2, -1)\nreturn x * c + torch.cat([-b, a], -1) * s", 6),
    ],
)
def test_halves_are_read_as_they_are_written(text: str, parts: int) -> None:
    spec = spec_of("x[T, D], c[T, D], s[T, D]", "op", forward=text)
    found = unpacked(bound_once(written_out(spec)))
    assert len(found.inputs) == parts
    assert {part.of for _, part in found.inputs.values()} == {2}


def test_an_output_of_pairs_is_interleaved() -> None:
    text = "torch.stack([x[..., ::2], x[..., 1::2] * 2], -1).flatten(-2)"
    found = unpacked(spec_of("x[..., D]", "op", forward=text))
    assert found.outputs["output_2"] == ("output", Part(1, 2, True))
    other = text.replace("flatten(-2)", "flatten(end_dim=-2)")  # the leading dims
    assert not unpacked(spec_of("x[..., D]", "op", forward=other)).outputs


def test_other_rows_stay_whole() -> None:
    spec = spec_of("x[..., D]", "op", forward="x * 2")
    assert unpacked(spec).spec is spec
