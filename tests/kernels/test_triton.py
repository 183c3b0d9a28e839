"""The text of kernels, line by line, and the spelling of every primitive in the table."""

import ast
import importlib
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from scaffold.derive import derive
from scaffold.derive.rules.table import built_in
from scaffold.errors import Location, ScaffoldError
from scaffold.kernels.triton import triton_kernels
from scaffold.kernels.written_out import Total
from scaffold.render.files import drafts
from scaffold.render.kernel_file import kernel_draft
from scaffold.render.layout import Directories
from tests.derive.building import draft_of, spec_of
from tests.kernels.interpreted import plain
from tests.kernels.ops import OPS, FusedOp, rows


def lines_of(name: str, direction: str = "forward") -> list[str]:
    _, view = triton_kernels(OPS[name].spec(name), Location(name))
    kernel = view.forward if direction == "forward" else view.backward
    assert kernel is not None
    return [line.strip() for line in kernel.lines if line]


def test_a_norm_reads_as_its_formula() -> None:
    assert lines_of("rms_norm")[-4:] == [
        "inv_rms = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / D + eps)",
        "output = x * inv_rms * weight",
        "tl.store(output_ptr + row * D + cols, output, mask=mask)",
        "tl.store(inv_rms_ptr + row, inv_rms, mask=row < rows)",
    ]


def test_a_gradient_of_all_rows_is_summed_by_each_program() -> None:
    lines = lines_of("rms_norm", "backward")
    walk = "program * ROWS, rows, tl.num_programs(0) * ROWS"
    assert f"for start in range({walk}):" in lines
    # Within the loop: held in registers, the weight would spill of long rows.
    (load,) = (at for at, x in enumerate(lines) if x.startswith("weight = "))
    assert load > lines.index(f"for start in range({walk}):")
    assert "grad_weight = tl.zeros((ROWS, BLOCK), dtype=DTYPE)" in lines
    at = lines.index("grad_weight += grad_output * x_hat")
    assert lines[at - 1] == "if NEEDS_GRAD_WEIGHT:"
    assert lines[-3:-1] == [
        "if NEEDS_GRAD_WEIGHT:",
        "grad_weight = tl.sum(grad_weight, axis=0, keep_dims=True)",
    ]
    assert lines[-1].startswith("tl.store(grad_weight_ptr + program * D + cols")


def test_what_one_gradient_alone_reads_is_loaded_and_saved_for_it_alone() -> None:
    spec = OPS["kl_div"].spec("op")
    _, view = triton_kernels(spec, Location("op"))
    assert view.backward is not None
    lines = [line.strip() for line in view.backward.lines]
    (load,) = (at for at, x in enumerate(lines) if x.startswith("log_q = "))
    assert load > lines.index("if NEEDS_GRAD_P:")
    assert "log_q: Tensor | None, p: Tensor, log_q_dtype" in view.backward.signature
    assert "log_q if ctx.needs_input_grad[1] else None, p" in draft_of(spec)


def test_parts_that_are_each_for_one_gradient_begin_their_row_under_its_flag() -> None:
    lines = lines_of("weighted_halves", "backward")
    begins = [at for at, line in enumerate(lines) if line.startswith("x_row = ")]
    flags = ("if NEEDS_GRAD_P:", "if NEEDS_GRAD_Q:")
    assert [lines[at - 1] for at in begins] == [*flags]


def test_a_sum_of_rows_in_parts_is_as_long_as_a_part() -> None:
    _, view = triton_kernels(OPS["weighted_halves"].spec("op"), Location("op"))
    assert view.backward is not None
    assert "(x.shape[-1] // 2,) if needs_grad_bias else 0" in view.backward.fake


@pytest.mark.parametrize(
    ("count", "read"),
    [
        ("mask.sum()", {"mask"}),
        ("(target != -100).sum()", {"target"}),
        ("2 * one.sum() + two.sum()", {"one", "two"}),
        ("x.shape[0]", set()),
        ("F.log_softmax(x / scale, -1).shape[0]", set()),
        ("", set()),
        (None, set()),
    ],
)
def test_the_count_of_a_mean_is_of_the_numbers_of_some_inputs(
    count: str | None, read: set[str]
) -> None:
    assert Total(count).read == read


def test_what_a_mean_divides_by_is_always_there() -> None:
    _, view = triton_kernels(OPS["offset_mean"].spec("op"), Location("op"))
    assert view.backward is not None
    assert "weight: Tensor," in view.backward.signature
    assert view.backward.shares == ["grad_output = grad_output / weight.sum()"]


def test_what_lies_past_the_last_row_has_no_part_in_a_sum_over_rows() -> None:
    lines = lines_of("rms_norm", "backward")  # 0 there, and finite
    assert "grad_weight += grad_output * x_hat" in lines
    (added,) = (x for x in lines_of("shares", "backward") if "grad_weight +=" in x)
    assert added.startswith("grad_weight += tl.where(mask, ")  # 0 / 0
    (added,) = (x for x in lines_of("scored", "backward") if "grad_bias +=" in x)
    assert added.startswith("grad_bias += tl.where(mask & (cols == 0), ")


def test_what_only_one_gradient_needs_stands_under_its_test() -> None:
    lines = lines_of("rms_norm", "backward")
    start = lines.index("if NEEDS_GRAD_X:")
    assert lines[start + 2 : start + 7] == [
        "weight = tl.load(weight_ptr + cols, mask=cols < D, other=0.0).to(DTYPE)",
        "grad_x_hat = grad_output * weight",
        "inner = tl.sum(grad_x_hat * x_hat, axis=1, keep_dims=True) / D",
        "grad_x = inv_rms * (grad_x_hat - inner * x_hat)",
        "tl.store(grad_x_ptr + row * D + cols, grad_x, mask=mask)",
    ]


def test_a_primitive_of_several_steps_is_a_function_of_the_file() -> None:
    _, view = triton_kernels(OPS["first_maximum"].spec("op"), Location("op"))
    assert [item.name for item in view.helpers] == ["_nan_max", "_power"]
    assert any(
        "_power(total, GAMMA)" in x for x in lines_of("first_maximum", "backward")
    )


def test_a_gradient_has_the_dtype_of_an_input_that_the_backward_does_not_read() -> None:
    _, view = triton_kernels(OPS["layer_norm"].spec("op"), Location("op"))
    assert view.backward is not None
    assert "bias_dtype: torch.dtype" in view.backward.signature
    assert view.backward.told[1:] == [("bias_dtype", "bias.dtype")]
    assert view.backward.result.endswith("grad_bias.sum(0).to(bias_dtype)")
    _, view = triton_kernels(OPS["optional_norm"].spec("op"), Location("op"))
    assert view.backward is not None
    value = "None if bias is None else bias.dtype"
    assert view.backward.told[-1] == ("bias_dtype", value)


def test_a_class_loss_reads_as_its_formula() -> None:
    lines = lines_of("cross_entropy", "backward")
    assert any("(cols == target).to(DTYPE)" in line for line in lines)
    assert lines[-2:] == [
        "grad_logits = grad_output * (tl.exp(logits - lse) - onehot)",
        "tl.store(grad_logits_ptr + row * V + cols, tl.where(kept, grad_logits, 0.0), mask=mask)",
    ]


@pytest.mark.parametrize("smoothing", ["0.1", "0.3"])
def test_a_literal_is_factored_as_an_attribute_is(smoothing: str) -> None:
    loss = f"F.cross_entropy(logits, target, label_smoothing={smoothing})"
    op = OPS["cross_entropy"]._replace(forward=loss)
    pair, view = triton_kernels(op.spec("op"), Location("op"))
    assert view.backward is not None
    rest = f"{1 - float(smoothing)} * onehot"
    (line,) = (x for x in view.backward.lines if x.startswith("grad_logits = "))
    share = f"{smoothing} / tl.cast(V, DTYPE)"
    assert line.endswith(f"grad_output * (tl.exp(logits - lse) - {share} - {rest})")
    # The header has the same.
    rest = f"torch.exp(logits - lse) - {smoothing} / V - {rest}"
    product = f"torch.where(kept, grad_output * ({rest}), 0.0)"
    assert pair.gradient[-1] == f"grad_logits = {product}"
    assert [x.partition(" = ")[0] for x in pair.gradient[:-1]] == [
        "kept",
        "index",
        "onehot",
    ]


def test_a_choice_within_a_sum_over_rows_is_one_choice() -> None:
    (line,) = (
        x for x in lines_of("weighted_classes", "backward") if "grad_weight +=" in x
    )
    assert line == "grad_weight += tl.where(mask & kept, grad_logits * x, 0.0)"


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_nan_of_an_index_out_of_range_has_a_comment(direction: str) -> None:
    lines = lines_of("cross_entropy", direction)
    (at,) = (at for at, line in enumerate(lines) if "float('nan')" in line)
    assert lines[at - 1].startswith("# NaN stands for")


def test_a_gradient_is_a_product_with_the_incoming_one_of_its_row() -> None:
    assert lines_of("smoothed", "backward")[-2] == (
        "grad_logits = grad_output * "
        "(tl.exp(logits - lse) - smoothing_over_V - one_minus_smoothing * onehot)"
    )
    op = FusedOp("x[N, D]", "x.mean(-1) - torch.logsumexp(x, -1)", rows(1))
    _, view = triton_kernels(op.spec("op"), Location("op"))
    assert view.backward is not None
    (line,) = (x for x in view.backward.lines if x.startswith("grad_x = "))
    assert line.startswith("grad_x = grad_output * (1 / tl.cast(D, DTYPE) - ")


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_the_logits_of_an_ignored_target_are_not_read(direction: str) -> None:
    lines = lines_of("cross_entropy", direction)
    (load,) = (x for x in lines if x.startswith("logits = tl.load("))
    assert "mask=mask & kept, " in load
    before = lines[: lines.index(load)]
    assert "kept = target != -100" in before
    assert any(x.startswith("target = tl.load(") for x in before)
    assert not any("index = " in x for x in lines)  # target is the same there


@pytest.mark.parametrize(
    ("inputs", "forward"),
    [
        ("x[N, D], t[N; int]", "torch.where((t > 0)[:, None], x * x, 1.0)"),
        ("x[N, D]", "torch.where(x > 0, x * x, 0.0)"),  # not by rows
        ("x[N, D], t[N; int]", "torch.where(t > 0, x.amax(-1), 1.0)"),
        ("x[N, D]", "torch.where(x.sum(-1) > 0, x.amax(-1), 0.0)"),  # asked of x
    ],
)
def test_rows_are_read_if_their_result_is_not_selected_away(
    inputs: str, forward: str
) -> None:
    _, view = triton_kernels(
        FusedOp(inputs, forward, rows(1)).spec("op"), Location("op")
    )
    assert not any("mask & " in x for x in view.forward.lines)


def test_the_mean_of_logarithms_of_a_softmax_is_no_second_pass() -> None:
    lines = lines_of("smoothed")
    assert "mean = tl.sum(logits, axis=1, keep_dims=True) / V" in lines
    assert lines[-3].endswith("smoothing * (mean - lse)")
    assert not any(line.startswith("log_probs = ") for line in lines)


def test_the_number_at_an_index_is_read_alone() -> None:
    lines = lines_of("weighted_classes")
    given = "mask=(row < rows) & in_range, other=float('nan')).to(DTYPE)"
    assert f"picked = tl.load(x_row + target, {given}" in lines
    assert f"picked_weight = tl.load(weight_ptr + target, {given}" in lines
    assert "nll = lse - picked * picked_weight" in lines
    assert not any(
        line.startswith("log_probs = ") for line in lines
    )  # nothing reads it


def test_the_number_at_an_index_of_an_input_that_may_be_absent() -> None:
    op = OPS["weighted_classes"]._replace(
        inputs="x[N, C], bias[C]?, target[N; int]",
        forward="h = x + bias if bias is not None else x\n"
        "return F.cross_entropy(h, target, reduction='none')",
    )
    _, view = triton_kernels(op.spec("op"), Location("op"))
    (line,) = (x for x in view.forward.lines if x.startswith("picked_bias = "))
    assert line.endswith(".to(DTYPE) if bias_ptr is not None else 0.0")


def test_the_sum_of_a_row_of_ones_at_an_index_is_no_reduction() -> None:
    lines = lines_of("smoothed", "backward")
    assert not any("tl.sum" in line for line in lines)


def test_a_cast_to_the_dtype_of_a_local() -> None:
    op = FusedOp(
        "logits[..., V], noise[..., V; const]",
        "soft = torch.softmax(logits + noise, -1)\n"
        "hard = (soft == soft.amax(-1, keepdim=True)).to(soft.dtype)\n"
        "return soft + (hard - soft).detach()",
        OPS["swish"].make,
    )
    _, view = triton_kernels(op.spec("op"), Location("op"))
    promoted = "torch.promote_types(logits.dtype, noise.dtype)"
    assert view.dtype[0] == f"dtype = {promoted}"


def test_a_number_of_math_is_told() -> None:
    lines = lines_of("geglu")
    assert lines[0] == "# 1.5957691216057308 stands for 2 * sqrt(2 / pi)"
    assert sum(line.startswith("#") for line in lines) == 1


def functions_of(name: str, *functions: str, **scope: Any) -> tuple[Any, ...]:
    """Some functions of an op's file, with others in place of Triton's."""
    _, view = triton_kernels(OPS[name].spec("op"), Location("op"))
    tree = ast.parse(kernel_draft(view))
    wanted = [x for x in tree.body if isinstance(x, ast.FunctionDef)]
    wanted = [x for x in wanted if x.name in functions]
    scope |= {
        "torch": torch,
        "triton": SimpleNamespace(
            cdiv=lambda x, y: -(-x // y),
            next_power_of_2=lambda x: 1 << (x - 1).bit_length(),
        ),
    }
    code = ast.unparse(ast.Module([*wanted], []))
    exec(compile(code, name, "exec"), scope)  # noqa: S102
    return tuple(scope[function] for function in functions)


def test_the_number_of_rows_in_a_block_follows_from_that_of_columns() -> None:
    (blocks,) = functions_of("softmax", "blocks", TILE=1024, MOST_WARPS=32)
    told = {
        x: (*blocks(x).values(),)
        for x in (1, 100, 1024, 1025, 4096, 8192, 16384, 65536)
    }
    assert told == {
        1: (1024, 1, 4),
        100: (8, 128, 4),
        1024: (1, 1024, 4),
        1025: (1, 2048, 4),
        4096: (1, 4096, 8),
        8192: (1, 8192, 16),
        16384: (1, 16384, 32),
        65536: (1, 65536, 32),
    }


def test_a_row_of_several_parts_has_the_block_of_all_its_numbers() -> None:
    (blocks,) = functions_of("rotary_heads", "blocks", TILE=512, MOST_WARPS=32)
    assert (*blocks(100).values(),) == (4, 128, 4)
    assert (*blocks(1024).values(),) == (1, 1024, 4)
    assert (*blocks(4096).values(),) == (1, 4096, 16)
    _, view = triton_kernels(OPS["rotary_heads"].spec("op"), Location("op"))
    assert "\nTILE = 512  #" in kernel_draft(view)


@pytest.mark.parametrize(
    ("rows", "columns", "programs"),
    [(3, 4096, 3), (1000, 4096, 20), (1000, 1024, 40), (16, 64, 1), (2000, 64, 40)],
)
def test_few_programs_sum_many_rows(
    rows: int, columns: int, programs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"TILE": 1024, "MOST_WARPS": 32}
    blocks, count = functions_of("rms_norm", "blocks", "programs_of", **given)
    device = SimpleNamespace(multi_processor_count=10)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: device)
    assert count(rows, blocks(columns), torch.device("cuda")) == programs


@pytest.mark.parametrize(("name", "width"), [("rotary_heads", "R"), ("softmax", "D")])
def test_short_rows_share_a_program(name: str, width: str) -> None:
    for direction in ("forward", "backward"):
        lines = lines_of(name, direction)
        at = "tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)"
        assert lines[:3] == [
            f"row = {at}[:, None]",
            "cols = tl.arange(0, BLOCK)[None, :]",
            f"mask = (row < rows) & (cols < {width})",
        ]
    _, view = triton_kernels(OPS[name].spec("op"), Location("op"))
    text = kernel_draft(view)
    assert f"    tile = blocks({width})\n" in text
    assert '    programs = triton.cdiv(rows, tile["ROWS"])\n' in text
    assert "forward_kernel[(programs,)](" in text


def test_the_precision_of_a_launch_is_asked_once() -> None:
    _, view = triton_kernels(OPS["layer_norm"].spec("op"), Location("op"))
    assert view.backward is not None
    for kernel, read in ((view.forward, "x, weight, bias"), (view.backward, "")):
        asked = f"compute_dtype = precision({read or 'grad_output, x, weight'})"
        # The fake of a backward asks not: its gradients have others.
        assert kernel_draft(view).count(f"    {asked}\n") == (2 if read else 1)


def test_the_precision_has_another_name_beside_an_input_called_compute() -> None:
    op = FusedOp("x[..., D], compute[D]", "x * 2 + compute", rows(1, 1))
    _, view = triton_kernels(op.spec("op"), Location("op"))
    assert view.backward is not None
    assert "compute_dtype: torch.dtype" in view.backward.signature
    assert "kernel_dtype = precision(grad_output)" == view.backward.computed


@pytest.mark.parametrize(
    ("name", "fixed", "given"),
    [
        ("rms_norm", [], ["eps"]),
        ("smoothed", [], ["smoothing"]),
        ("first_maximum", ["gamma"], []),  # whether it is even decides a spelling
        ("quantize", ["bits"], []),
        ("flat_names", [], ["dtype"]),
    ],
)
def test_a_new_float_compiles_no_other_kernel(
    name: str, fixed: list[str], given: list[str]
) -> None:
    _, view = triton_kernels(OPS[name].spec("op"), Location("op"))
    kernel = view.forward
    names = [item.name for item in OPS[name].spec("op").attributes]
    assert [*kernel.body.constants] == fixed
    known = kernel.body.constants.items()
    assert all(
        f"{constant}: tl.constexpr" in kernel.parameters for _, constant in known
    )
    assert [x for x in names if x in kernel.parameters] == given
    assert all(f"{constant}={name}" in kernel.launch for name, constant in known)
    assert [x for x in names if x in kernel.launch] == given
    assert kernel.floats == given  # constants in float64: Triton passes float32


def test_what_float32_would_spoil_is_computed_before_the_launch() -> None:
    _, view = triton_kernels(OPS["smoothed"].spec("op"), Location("op"))
    assert view.backward is not None
    for kernel, end in ((view.forward, ""), (view.backward, "_over_V")):
        at = kernel.parameters.index("one_minus_smoothing")
        assert f"smoothing{end}" in kernel.parameters[at - 1 : at + 2]
        at = kernel.launch.index("1 - smoothing")
        assert (
            f"smoothing{end.replace('_over_', ' / ')}" in kernel.launch[at - 1 : at + 2]
        )
        assert any("one_minus_smoothing * " in line for line in kernel.lines)
        assert kernel.floats == ["smoothing"]
    other = OPS["smoothed"]._replace(
        forward="torch.softmax(logits, -1) * (2 * smoothing - 1)"
    )
    spec = other._replace(inputs="logits[N, V], smoothing=0.1").spec("op")
    _, view = triton_kernels(spec, Location("op"))
    assert "SMOOTHING: tl.constexpr" in view.forward.parameters


def test_one_gradient_for_all_is_cast_by_the_launch_alone() -> None:
    _, view = triton_kernels(OPS["square_root_mean"].spec("op"), Location("op"))
    assert view.backward is not None
    assert "grad_output = tl.load(grad_output_ptr)" in view.backward.lines
    each = "grad_output_each = grad_output.to(compute_dtype) / x.numel()"
    assert each in view.backward.outputs


def test_a_second_value_of_a_word_is_told_by_its_input() -> None:
    lines = lines_of("two_softmaxes")
    assert "scores = teacher / temperature" in lines
    assert "scores_student = student / temperature" in lines
    assert "exp_student = tl.exp(scores_student - row_max_student)" in lines
    assert not any(line.partition(" = ")[0].endswith("_2") for line in lines)


def test_the_row_of_an_input_without_dims_in_the_middle_has_two_terms() -> None:
    lines = lines_of("biased_softmax")
    assert "bias_row = bias_ptr + (row // (H * Q) * Q + row % Q) * bias_stride" in lines


def test_an_optional_input_is_read_if_it_is_there() -> None:
    lines = lines_of("optional_norm")
    at = lines.index("if weight_ptr is not None:")
    assert lines[at + 1].startswith("weight = tl.load(weight_ptr + cols")
    assert lines[at + 3] == "weight = tl.full((1, BLOCK), 1.0, DTYPE)"


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        ("x + bias if bias is not None else x * 2", "neither 0 nor 1 can replace it"),
        ("torch.exp(x) * (bias if bias is not None else x)", "can replace"),
    ],
)
def test_an_optional_input_that_no_number_stands_for_is_refused(
    forward: str, reason: str
) -> None:
    op = FusedOp("x[..., D], bias[D]?", forward, OPS["swish"].make)
    with pytest.raises(ScaffoldError, match=reason):
        triton_kernels(op.spec("op"), Location("op"))


def test_an_input_that_is_read_with_more_dims_has_rows_of_its_own() -> None:
    lines = lines_of("rotary_usual")
    assert "cos_row = cos_ptr + (row // H % T) * cos_stride" in lines


def test_a_change_that_is_detached_is_not_rounded() -> None:
    assert lines_of("quantize")[-2] == (
        "output = _round(_divide(x, scale, DTYPE)) * scale"
    )


def test_a_quotient_that_is_rounded_is_exact() -> None:
    """Of float32 Triton's `/` is not, and one level of a quantizer is a large error."""
    op = OPS["quantize"]._replace(
        forward="scale = x.abs().amax(-1, keepdim=True) / 7\n"
        "level = torch.floor(x / scale + 0.5)\n"
        "return x + (level - x).detach() / bits"
    )
    _, view = triton_kernels(op.spec("op"), Location("op"))
    text = "\n".join(view.forward.lines)
    assert "scale = _divide(" in text
    assert "tl.floor(_divide(x, scale, DTYPE) + 0.5)" in text
    assert " / BITS" in text  # after rounding
    (helper,) = (item for item in view.helpers if item.name == "_divide")
    assert "tl.div_rn(x, y)" in helper.lines[-1]
    assert not any("_divide" in line for line in lines_of("softmax"))


def test_what_lies_behind_a_row_has_no_part_in_a_sum() -> None:
    lines = lines_of("layer_norm")
    assert "mean = tl.sum(x, axis=1, keep_dims=True) / D" in lines  # where it is 0
    assert any("tl.where(mask, centred * centred, 0.0)" in line for line in lines)
    assert any(
        "tl.where(mask, scores, float('-inf'))" in x for x in lines_of("softmax")
    )
    lines = lines_of("cross_entropy")
    total = "tl.sum(tl.where(mask, exp, 0.0), axis=1, keep_dims=True)"
    assert f"lse = row_max + tl.log({total})" in lines


def test_a_product_with_a_number_of_the_row_needs_no_mask() -> None:
    """The product is 0 past the end, or no number of the row is finite."""
    lines = lines_of("rms_norm", "backward")
    assert "inner = tl.sum(grad_x_hat * x_hat, axis=1, keep_dims=True) / D" in lines
    squares = OPS["rms_norm"]._replace(
        forward="x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight"
    )
    _, view = triton_kernels(squares.spec("op"), Location("op"))
    mean = "tl.sum(x * x, axis=1, keep_dims=True) / D"
    assert f"inv_rms = tl.rsqrt({mean} + eps)" in view.forward.lines
    lines = lines_of("shares", "backward")  # a quotient may be 0 / 0 there alone
    assert any("tl.where(mask, grad_ratio * ratio, 0.0)" in line for line in lines)


def test_a_product_with_a_number_that_may_overflow_keeps_its_mask() -> None:
    """Past the end of the row, 0 times infinity is NaN."""
    forward = "(x * torch.exp(x.mean(-1, keepdim=True))).square().sum(-1)"
    spec = OPS["softmax"]._replace(inputs="x[*B, D]", forward=forward).spec("op")
    _, view = triton_kernels(spec, Location("op"))
    lines = [line.strip() for line in view.forward.lines]
    assert any("tl.where(mask, " in line for line in lines)
    assert view.backward is not None
    lines = [line.strip() for line in view.backward.lines]
    assert any(line.startswith("exp = tl.load(exp_ptr") for line in lines)
    assert any("tl.sum(tl.where(mask, " in line for line in lines)


def test_a_dtype_that_is_an_inputs_own_needs_no_name() -> None:
    _, view = triton_kernels(OPS["swiglu"].spec("op"), Location("op"))
    assert kernel_draft(view).endswith("    return op_forward(x, x.dtype)\n")
    _, view = triton_kernels(OPS["layer_norm"].spec("op"), Location("op"))
    end = "    return op_forward(x, weight, bias, eps, dtype)\n"  # autocast changes it
    assert kernel_draft(view).endswith(end)


def test_names_of_the_user_stay_and_the_kernels_own_are_others() -> None:
    lines = lines_of("masked_softmax")
    assert "in_row = (row_index < rows) & (cols < D)" in lines
    assert any(line.startswith("mask = tl.load(mask_") for line in lines)
    assert any(line.startswith("row = tl.load(row_row + cols") for line in lines)
    assert "row_row = row_ptr + row_index * row_stride" in lines


def test_kernels_take_the_dtypes_that_they_compute() -> None:
    """PyTorch computes integers in place of real numbers otherwise, and refuses a target of real numbers."""
    spec = OPS["cross_entropy"].spec("loss")
    _, view = triton_kernels(spec, Location("ops.toml"))
    assert view.dtypes == [("logits", "DTYPES", False), ("target", "INDICES", False)]
    text = kernel_draft(view)
    assert "if logits.dtype not in DTYPES:" in text
    assert "if target.dtype not in INDICES:" in text
    assert "each_sample" not in text  # each batch is more rows


def test_without_a_sum_over_rows_each_block_has_a_program() -> None:
    """Also a backward without the gradient of a weight, in which nothing is added up."""
    _, view = triton_kernels(OPS["rms_norm"].spec("op"), Location("op"))
    text = " ".join(kernel_draft(view).split())
    few = "programs = programs_of(rows, tile, grad_output.device)"
    assert f"{few} if needs_grad_weight else triton.cdiv(rows, tile[" in text
    assert text.count("a row of partial sums, which are added up here") == 1


def test_the_tests_of_a_call_ask_only_what_can_differ() -> None:
    text = {}
    for name in ("rms_norm", "layer_norm", "optional_norm", "swiglu"):
        _, view = triton_kernels(OPS[name].spec("op"), Location("op"))
        text[name] = kernel_draft(view)
    assert "    if weight.device != x.device:\n" in text["rms_norm"]
    several = "any(tensor.device != x.device for tensor in (weight, bias))"
    assert f"    if {several}:\n" in text["layer_norm"]
    assert "for tensor in (weight, bias) if tensor is not None" in text["optional_norm"]
    assert "    if x.shape[-1] > MOST_COLUMNS:\n" in text["rms_norm"]
    assert "    if x.shape[-1] // 2 > MOST_COLUMNS:\n" in text["swiglu"]


def test_a_batch_of_outputs_has_dim_0_but_for_gradients_without_a_use() -> None:
    spec = OPS["swish"]._replace(inputs="x[*B, D], y[*B, D]", forward="x * y")
    texts = [
        kernel_draft(triton_kernels(given.spec("op"), Location("op"))[1])
        for given in (OPS["rms_norm"], spec)
    ]
    assert ["(0,) * len(outputs)" in text for text in texts] == [True, False]
    assert ["0 if len(output) else None" in text for text in texts] == [False, True]


@pytest.mark.parametrize("given", ["1", "true", "ON", "0", ""])
def test_the_interpreter_is_told_as_triton_is(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", given)
    _, view = triton_kernels(OPS["softmax"].spec("op"), Location("op"))
    (line,) = (
        x for x in kernel_draft(view).splitlines() if x.startswith("INTERPRETED")
    )
    scope: dict[str, Any] = {"os": os}
    exec(line, scope)  # noqa: S102
    assert scope["INTERPRETED"] is bool(given.strip("0"))


@pytest.mark.parametrize(
    ("forward", "promoted"),
    [
        ("F.gelu(x, approximate='tanh')", False),  # its formula has a power
        ("x ** 3", True),
        ("F.silu(x)", False),
        ("F.layer_norm(x, x.shape[-1:])", True),
        ("F.mse_loss(x, y, reduction='none')", True),
        ("F.softmin(x, -1)", True),
        ("x / y", False),
        ("1 / x", True),
        ("(x.float() ** 2).to(x.dtype)", False),
        ("torch.exp(x).type_as(x)", False),
        ("x.type_as(torch.exp(x))", True),
        ("torch.exp(x).to(torch.float16)", False),
        ("a, b = x.chunk(2, -1)\nreturn torch.cat([a, torch.exp(b)], -1)", True),
        ("torch.where(torch.exp(x) > 2, x, 1.0)", False),
        ("(x * y).sum()", True),
        ("(x * y).mean()", False),
    ],
)
def test_autocast_gives_the_dtype_of_the_formula_as_written(
    forward: str, promoted: bool
) -> None:
    inputs = "x[..., D], y[..., D]" if " y" in forward else "x[..., D]"
    op = FusedOp(inputs, forward, OPS["swish"].make)
    _, view = triton_kernels(op.spec("op"), Location("op"))
    test = "if torch.is_autocast_enabled(x.device.type):"
    assert (test in view.dtype) == promoted


def test_the_header_of_a_backward_has_no_line_of_parts_that_it_does_not_read() -> None:
    op = OPS["rotated_half"]._replace(
        inputs="x[B, T, D], cos[T, D; const], sin[T, D; const]"
    )
    pair, _ = triton_kernels(op.spec("op"), Location("op"))
    assert pair.formula[0] == "a, b = x.chunk(2, -1)"
    assert "a, b = x.chunk(2, -1)" not in pair.gradient


@pytest.mark.parametrize(
    ("name", "computed", "given"),
    [
        ("layer_norm", {"mean", "var", "rstd"}, ["mean", "rstd"]),
        ("smoothed", set(), ["lse"]),
        ("swiglu", set(), []),
    ],
)
def test_the_header_of_a_backward_shows_nothing_that_it_is_given(
    name: str, computed: set[str], given: list[str]
) -> None:
    spec = OPS[name]._replace(
        forward=OPS[name].forward.replace(
            "x_hat = (x - mean) * torch.rsqrt(var + eps)",
            "rstd = torch.rsqrt(var + eps)\nx_hat = (x - mean) * rstd",
        )
    )
    pair, view = triton_kernels(spec.spec("op"), Location("op"))
    assert computed <= {line.partition(" = ")[0] for line in pair.formula}
    assert not computed & {line.partition(" = ")[0] for line in pair.gradient}
    assert {f"grad_{x.name}" for x in spec.spec("op").differentiable} <= {
        line.partition(" = ")[0] for line in pair.gradient
    } | {
        "grad_x"
    }  # its parts stand for it
    assert not any("softmax" in line for line in pair.gradient)
    said = f", with {' and '.join(given)} saved by the forward" if given else ""
    assert f"\nBackward, of each row{said}::\n" in kernel_draft(view)


CALLS = {
    "rms_norm": "F.rms_norm(x, x.shape[-1:], y, 1e-6)",
    "layer_norm": "F.layer_norm(x, x.shape[-1:], y, eps=0.1) * 2",
    "layer_norm_of_a_sum": "F.layer_norm(x + y, x.shape[-1:], y)",
    "huber_loss": "F.huber_loss(x, y, reduction='none')",
    "l1_loss": "F.l1_loss(x, y, reduction='none')",
    "binary": "F.binary_cross_entropy_with_logits(x, y, reduction='none')",
    "softmax": "torch.softmax(x, -1, dtype=torch.float32) * y",
    "local": "dtype = x.dtype\nreturn (x.float() * y).to(dtype)",
}


def test_a_part_of_a_gradient_has_no_name_of_its_own() -> None:
    lines = lines_of("geglu", "backward")
    assert any(line.startswith("grad_gate = ") for line in lines)
    assert not any("_via_" in line for line in lines)


def test_a_number_that_cannot_be_computed_is_named() -> None:
    forward = "torch.logsumexp(x, -1) - math.log(x.shape[-1])"
    spec = FusedOp("x[..., D]", forward, OPS["swish"].make).spec("op")
    with pytest.raises(ScaffoldError, match=r"the number math.log\(x.shape\[-1\]\)"):
        triton_kernels(spec, Location("op"))


def test_each_output_has_its_own_dtype() -> None:
    spec = spec_of(
        "x[..., D], y[..., D], weight[D]",
        "op",
        outputs="normed[..., D], summed[..., D], same[..., D]",
        forward="h = x + y\nreturn torch.softmax(h, -1) * weight, h, x * 2",
        kernels=["triton"],
    )
    _, view = triton_kernels(spec, Location("op"))
    half, whole = torch.bfloat16, torch.float32
    x, y, weight = torch.ones(2, 3, dtype=half), torch.ones(2, 3), torch.ones(3)
    for given, expected in (
        ((x, y, weight), (whole, whole, half)),
        ((x, y.to(half), weight), (whole, half, half)),
        ((x, y.to(half), weight.to(half)), (half, half, half)),
    ):
        names = ("x", "y", "weight")
        scope = {"torch": torch, **dict(zip(names, given, strict=True))}
        exec("\n".join(view.dtype), scope)  # noqa: S102
        found = [scope[f"{name}_dtype"] for name in ("normed", "summed", "same")]
        assert found == [*expected]
    (made,) = (x for x in view.forward.outputs if x.startswith("summed = "))
    assert "dtype=summed_dtype" in made
    assert "dtype=summed_dtype" in view.forward.fake
    assert view.forward_arguments == ["x", "y", "weight"]


@pytest.mark.parametrize(
    "forward", ["x.to(torch.bfloat16) * 2", "x + (x.to(torch.float16).to(x.dtype) - x)"]
)
def test_a_cast_that_rounds_within_a_formula_is_refused(forward: str) -> None:
    spec = FusedOp("x[..., D]", forward, OPS["swish"].make).spec("op")
    with pytest.raises(
        ScaffoldError, match=r"a cast to torch\.\w+ inside of the formul"
    ):
        triton_kernels(spec, Location("op"))


def test_a_result_may_be_rounded() -> None:
    op = FusedOp("x[..., D]", "(x * 2).to(torch.bfloat16)", OPS["swish"].make)
    _, view = triton_kernels(op.spec("op"), Location("op"))
    assert view.dtype == ["dtype = torch.bfloat16"]


MIXED = OPS | {
    f"call_of_{name}": FusedOp(
        "x[..., D], y[D]" if "norm" in name else "x[..., D], y[..., D]",
        forward,
        lambda lead, size, norm="norm" in name: (  # type: ignore[misc]
            torch.rand(*lead, size),
            torch.rand(size) if norm else torch.rand(*lead, size),
        ),
    )
    for name, forward in CALLS.items()
}


@pytest.mark.filterwarnings("ignore:Mismatch dtype")
@pytest.mark.parametrize("name", MIXED)
def test_a_result_has_the_dtype_that_the_formula_gives_it(name: str) -> None:
    """Of inputs in several precisions."""
    op, half, whole = MIXED[name], torch.bfloat16, torch.float32
    spec = op.spec("op")
    _, view = triton_kernels(spec, Location("op"))
    for first, rest in ((half, whole), (whole, half)):
        given = [*op.make((7,), 16)]
        for at, value in enumerate(given):
            if isinstance(value, Tensor) and value.is_floating_point():
                given[at] = value.to(rest if at else first)
        try:
            expected = plain(op)(*given).dtype
        except RuntimeError:  # a function of PyTorch's wants one dtype
            continue
        names = (item.name for item in spec.inputs)
        scope: dict[str, Any] = {"torch": torch, **dict(zip(names, given, strict=True))}
        exec("\n".join(view.dtype), scope)  # noqa: S102
        assert scope[view.own.dtype] == expected


def test_an_op_of_one_tensor_asks_not_how_many_it_returns() -> None:
    _, view = triton_kernels(OPS["swish"].spec("op"), Location("op"))
    text = kernel_draft(view)
    assert "return op(*given), 0" in text
    assert "isinstance(outputs, Tensor)" not in text
    assert "shared" not in text


def test_a_name_of_the_block_is_also_that_of_its_launch() -> None:
    op = FusedOp(
        "x[..., D], BLOCK[D]", "torch.softmax(x, -1) * BLOCK", OPS["swish"].make
    )
    _, view = triton_kernels(op.spec("op"), Location("op"))
    assert '"BLOCK_SIZE": block' in kernel_draft(view)


@pytest.mark.triton
def test_a_warning_shows_the_call_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    spec = OPS["swish"].spec("warned")
    for path, text in drafts(spec, derive(spec), Directories()).items():
        (tmp_path / path).write_text(text)
    op = importlib.import_module("warned")
    with pytest.warns(UserWarning, match="x is on cpu") as told:
        op.warned(torch.randn(2, 3))
    assert told[0].filename == __file__


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
