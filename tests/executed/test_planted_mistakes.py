"""Mistakes that reviewers plant in the class of a generated op are found, each by the question that is there for it."""

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.examples.examples import EXAMPLES
from tests.executed.generation import new_op
from tests.executed.suites import Suites


class Planted(NamedTuple):
    """A mistake: the example, what is replaced in its text, the question that finds it."""

    op: str
    mistake: str
    question: str
    changes: tuple[tuple[str, str], ...]


def planted(op: str, mistake: str, question: str, *changes: tuple[str, str]) -> Planted:
    return Planted(op, mistake, question, changes)


CONSTANTS = "test_other_constants"
PASSED = "test_module_passes_constants"
DTYPE = "test_autocast_dtype"
LOW = "test_dtype_of_gradients"
SAVED = "test_saves_what_backward_needs"
KINKS = "test_gradients_at_kinks"
MARKED = "test_marks_outputs_without_gradient"
MISTAKES = (
    planted(
        "focal",
        "a constant in the backward",
        CONSTANTS,
        ("ctx.gamma * grad_weight", "2.0 * grad_weight"),
    ),
    planted(
        "layer_norm",
        "a constant in the forward",
        CONSTANTS,
        (
            "+ eps)\n        normalized = centred * rstd\n        scaled = normalized * weight if",
            "+ 1e-5)\n        normalized = centred * rstd\n        scaled = normalized * weight if",
        ),
    ),
    planted(
        "focal",
        "a constant of the wrapper",
        CONSTANTS,
        ("        logits, target, gamma\n", "        logits, target, 2.0\n"),
    ),
    planted(
        "layer_norm",
        "a module that passes no constant",
        PASSED,
        ("self.weight, self.bias, self.eps)", "self.weight, self.bias)"),
    ),
    planted(
        "focal",
        "a module that keeps another constant",
        PASSED,
        ("self.gamma = gamma", "self.gamma = 2.0"),
    ),
    planted(
        "layer_norm",
        "another dtype under autocast",
        DTYPE,
        (
            "    return output\n",
            (
                '    low = torch.get_autocast_dtype("cpu")\n'
                '    return output.to(low) if torch.is_autocast_enabled("cpu") else output'
            ),
        ),
    ),
    planted(
        "linear_derived",
        "another dtype under autocast, of a region",
        DTYPE,
        (
            "    return LinearDerivedFunction.apply(input, weight, bias)",
            (
                "    output = LinearDerivedFunction.apply(input, weight, bias)\n"
                '    return output.float() if torch.is_autocast_enabled("cpu") else output'
            ),
        ),
    ),
    planted(
        "sigmoid",
        "a float32 gradient of bfloat16",
        LOW,
        (
            "        return grad_output * output * (1 - output)",
            "        grad_x = grad_output * output * (1 - output)\n        return grad_x.float() if grad_x.dtype == torch.bfloat16 else grad_x",
        ),
    ),
    planted(
        "swish",
        "a factor where the backward is recorded",
        "test_recorded_gradients",
        ("return grad_output * sigmoid", "return 1.5 * grad_output * sigmoid"),
    ),
    planted(
        "swish",
        "a factor where the backward is not recorded",
        "test_recorded_gradients",
        ("silu_backward(grad_output, x)", "silu_backward(1.5 * grad_output, x)"),
    ),
    planted(
        "linear_derived",
        "a tensor on ctx that nothing reads",
        SAVED,
        ("        ctx.save_for", "        ctx.input = input\n        ctx.save_for"),
    ),
    planted(
        "linear_derived",
        "tensors in a tuple on ctx",
        SAVED,
        ("        ctx.save_for", "        ctx.all = inputs\n        ctx.save_for"),
    ),
    planted(
        "layer_norm",
        "a saved tensor that nothing needs",
        SAVED,
        (
            "for_backward(x, weight, mean, rstd)",
            "for_backward(x, weight, mean, rstd, bias)",
        ),
        ("mean, rstd = ctx.saved_tensors", "mean, rstd, _ = ctx.saved_tensors"),
    ),
    planted(
        "sign_ste",
        "the mask of a straight-through gradient",
        KINKS,
        ("grad_output * (x.abs() <= 1)", "grad_output * (x.abs() < 1)"),
    ),
    planted(
        "layer_norm",
        "a mean as a sum that overflows",
        "test_means_of_large_numbers",
        (
            "        mean = x.mean(-1, keepdim=True)",
            "        mean = x.sum(-1, keepdim=True) / x.shape[-1]",
        ),
    ),
    planted(
        "sort_last",
        "an output that is not marked",
        MARKED,
        ("        ctx.mark_non_differentiable(indices)\n", ""),
    ),
)
BY_NAME = {example.op: example for example in EXAMPLES}


@pytest.mark.parametrize("one", MISTAKES, ids=lambda one: f"{one.op}: {one.mistake}")
def test_the_question_finds_the_mistake(
    one: Planted, tmp_path: Path, suites: Suites
) -> None:
    example = BY_NAME[one.op]
    text = example.op_file.read_text()
    for old, new in one.changes:
        assert text.count(old) == 1, f"{old!r}: {text.count(old)} times"
        text = text.replace(old, new)
    example.copy(tmp_path)
    (tmp_path / example.op_file.name).write_text(text)
    report = suites.run(tmp_path, "--tb=no", "-k", one.question)
    assert set(report.counts) == {"failed"}, report.output


PLAIN = ("--save-policy", "recompute")  # else PyTorch's own gradient is called
KINKED = (
    ("x", "x.clamp(-1, 1)", (), "x >= -1", "x > -1"),
    ("x", "torch.relu(x)", PLAIN, "output <= 0", "output < 0"),
    ("x[N], y[N]", "torch.maximum(x, y)", (), "x < y", "x <= y"),
    ("x, t: float = 0.5", "torch.where(x > t, x, 0 * x)", PLAIN, "> ctx.t", ">= ctx.t"),
    (
        *("x", "torch.sign(x)"),
        ("--grad", "x=grad_output * (x.abs() <= 1)", "--surrogate"),
        *("x.abs() <= 1", "x.abs() < 1"),
    ),
)


@pytest.mark.parametrize(("inputs", "forward", "options", "old", "new"), KINKED)
def test_a_comparison_at_a_kink_is_found(
    inputs: str,
    forward: str,
    options: tuple[str, ...],
    old: str,
    new: str,
    tmp_path: Path,
    suites: Suites,
) -> None:
    """Of a gradient that is stated, by its formula; of a derived one, by autograd."""
    new_op(tmp_path, "kinked", "--inputs", inputs, "--forward", forward, *options)
    file, asked = tmp_path / "kinked.py", ("--tb=no", "-k", f"{KINKS} or stated")
    assert set(suites.run(tmp_path, *asked).counts) == {"passed"}
    text = file.read_text()
    assert old in text.replace("self.", "")
    file.write_text(text.replace(old, new))
    assert suites.run(tmp_path, *asked).counts["failed"]


def test_a_surrogate_without_a_stand_in_is_held_against_its_formula(
    tmp_path: Path, suites: Suites
) -> None:
    inputs, clipped = "x, c: float = 0.5", "x=grad_output.clamp(-c, c)"
    options = ("--inputs", inputs, "--forward", "x * 1", "--grad", clipped)
    new_op(tmp_path, "clipped", *options, "--surrogate", "--no-verify")
    file, asked = tmp_path / "clipped.py", ("--tb=no", "-k", "stated")
    assert set(suites.run(tmp_path, *asked).counts) == {"passed"}
    text = file.read_text()
    assert text.count("clamp(-ctx.c, ctx.c)") == 1
    file.write_text(text.replace("clamp(-ctx.c, ctx.c)", "clamp(-1, 1)"))
    assert suites.run(tmp_path, *asked).counts["failed"]


def test_the_tests_pass_where_warnings_are_errors(suites: Suites) -> None:
    """Also those of PyTorch's compiler."""
    report = suites.run(BY_NAME["linear_derived"].directory, "-W", "error")
    assert set(report.counts) == {"passed"}, report.output


def test_a_case_that_is_skipped_says_why(suites: Suites) -> None:
    report = suites.run(BY_NAME["gated_recurrence"].directory, "-rs", "-k", "forward")
    assert report.counts["skipped"]
    assert "refused: IndexError('index 0 is out of bounds" in report.output
