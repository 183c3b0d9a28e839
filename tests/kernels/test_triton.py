"""The text of kernels, line by line, and the spelling of every primitive in the table."""

import ast

import pytest

from scaffold.derive.rules.table import built_in
from scaffold.errors import Location
from scaffold.kernels.triton import triton_kernels
from scaffold.render.kernel_file import kernel_draft
from tests.kernels.ops import OPS


def lines_of(name: str, direction: str = "forward") -> list[str]:
    _, view = triton_kernels(OPS[name].spec(name), Location(name))
    kernel = view.forward if direction == "forward" else view.backward
    assert kernel is not None
    return [line.strip() for line in kernel.lines if line]


def test_a_norm_reads_as_its_formula() -> None:
    assert lines_of("rms_norm")[-2:] == [
        "output = x * tl.rsqrt(tl.sum(x * x, axis=0) / D + eps) * weight",
        "tl.store(output_ptr + row * D + cols, output, mask=mask)",
    ]


def test_a_gradient_of_all_rows_is_summed_by_each_program() -> None:
    lines = lines_of("rms_norm", "backward")
    assert "for row in range(program, rows, tl.num_programs(0)):" in lines
    assert "grad_weight += grad_output * product" in lines or any(
        line.startswith("grad_weight += ") for line in lines
    )
    assert lines[-1].startswith("tl.store(grad_weight_ptr + program * D + cols")


def test_what_lies_behind_a_row_has_no_part_in_a_sum() -> None:
    lines = lines_of("layer_norm")
    assert "mean = tl.sum(x, axis=0) / D" in lines  # where it is 0
    assert any("tl.where(mask, centred * centred, 0.0)" in line for line in lines)
    assert any(
        "tl.where(mask, scores, float('-inf'))" in x for x in lines_of("softmax")
    )


def test_names_of_the_user_stay_and_the_kernels_own_are_others() -> None:
    lines = lines_of("masked_softmax")
    assert "in_row = cols < D" in lines
    assert any(line.startswith("mask = tl.load(mask_") for line in lines)
    assert any(line.startswith("row = tl.load(row_row + cols") for line in lines)
    assert "row_row = row_ptr + row_index * row_stride" in lines


def test_kernels_take_the_dtypes_that_they_compute() -> None:
    """PyTorch computes integers in place of real numbers otherwise, and refuses a target of real numbers."""
    spec = OPS["cross_entropy"].spec("loss")
    _, view = triton_kernels(spec, Location("ops.toml"))
    assert view.dtypes == (("logits", "DTYPES"), ("target", "INDICES"))
    text = kernel_draft(view)
    assert "if logits.dtype not in DTYPES:" in text
    assert "if target.dtype not in INDICES:" in text
    assert "each_sample" not in text  # each batch is more rows


SPELLED = [name for name in built_in().names() if built_in().rule(name).triton]


@pytest.mark.parametrize("name", SPELLED)
def test_a_spelling_reads_parameters_and_its_own_steps(name: str) -> None:
    rule = built_in().rule(name)
    tree = ast.parse(rule.triton.strip().partition("  # ")[0])
    *steps, last = tree.body
    assert isinstance(last, ast.Expr)
    known = {item.name for item in rule.parameters} | {"tl", "float"}
    for step in tree.body:
        read = {node.id for node in ast.walk(step) if isinstance(node, ast.Name)}
        assert read <= known | ({ast.unparse(step.targets[0])} if step in steps else set())  # type: ignore[attr-defined]
        if isinstance(step, ast.Assign):
            known.add(ast.unparse(step.targets[0]))
