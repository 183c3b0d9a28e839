"""Right ops that the proof takes: gradients that clip, what PyTorch itself has wrong, shapes that share a dim before `...`."""

from contextlib import chdir
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scaffold.cli.app import application
from tests.executed.generation import new_op

SIGN = "grad_output * (x.abs() <= 1)"
CLIPPED = (
    "grad_output.clamp(-c, c)",
    "grad_output * (c / grad_output.norm()).clamp(max=1)",
    "torch.sign(grad_output)",
)


@pytest.mark.parametrize("gradient", CLIPPED)
def test_a_surrogate_need_not_be_linear(gradient: str, tmp_path: Path) -> None:
    options = ("--forward", "x", "--grad", f"x={gradient}", "--surrogate")
    said = new_op(tmp_path, "clipped", "--inputs", "x[N, D], c: float = 0.5", *options)
    assert "the values of a surrogate are not proven" in said.stderr
    assert "those of PyTorch's autograd" not in said.stderr


def test_what_a_surrogate_was_held_against_is_said(tmp_path: Path) -> None:
    stand_in = ("--surrogate-forward", "x.clamp(-1, 1)")
    options = ("--inputs", "x", "--forward", "torch.sign(x)", "--grad", f"x={SIGN}")
    said = new_op(tmp_path, "signed", *options, *stand_in)
    assert "are those of PyTorch's autograd of the surrogate's forward" in said.stderr


@pytest.mark.parametrize(
    ("inputs", "forward"),
    [
        (
            "x[N, C, H, W], weight[O, C, 3, 3], bias[O]",
            "F.conv2d(x, weight, bias, padding=1)",
        ),
        ("x[N, C, L], weight[O, C, 3]", "F.conv1d(x, weight)"),
        (
            "a[N, D], b[N, D], eps: float = 1e-8",
            "F.cosine_similarity(a, b, dim=-1, eps=eps)",
        ),
        ("x[B, ...], y[B, ...]", "x - y"),
        # What is computed in float32 is compared in its precision.
        ("x[N, D]", "torch.softmax(x.float() * 30, -1).to(x.dtype)"),
        ("x[N, D], y[N, D]", "torch.exp(x.float() - y.float()).double().sum()"),
    ],
)
def test_what_pytorch_has_wrong_is_not_asked(
    inputs: str, forward: str, tmp_path: Path
) -> None:
    said = new_op(tmp_path, "right", "--inputs", inputs, "--forward", forward)
    assert "those of PyTorch's autograd" in said.stderr


def test_a_table_is_taken_for_a_surrogate_where_a_command_is(tmp_path: Path) -> None:
    table = (
        f"[ops.signed]\ninputs = 'x'\nforward = 'torch.sign(x)'\ngrad.x = '{SIGN}'\n"
    )
    (tmp_path / "pyproject.toml").write_text("[tool.scaffold]\n")
    (tmp_path / "ops.toml").write_text(table)
    with chdir(tmp_path):
        runner = CliRunner()
        assert runner.invoke(application("sync"), ["sync"]).exit_code == 0
        assert runner.invoke(application("check"), ["check"]).exit_code == 0
    assert "is a surrogate" in (tmp_path / "signed.py").read_text()
