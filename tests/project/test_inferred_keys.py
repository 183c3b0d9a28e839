"""What options leave out: outputs, what changes in place, which input a gradient is of, that it is a surrogate."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.running import new_op

SURROGATE = "the derivative by x is zero everywhere: the stated gradient counts as a surrogate (--surrogate)"


@pytest.mark.parametrize(
    ("name", "arguments", "note", "line"),
    [
        (
            "sin_and_cos",
            ["--inputs", "x", "--forward", "torch.sin(x), torch.cos(x)"],
            "outputs taken from the forward: y1, y2",
            "return torch.sin(x), torch.cos(x)",
        ),
        (
            "halves",
            ["--forward", "a, b = x.chunk(2, -1); return a, b"],
            "outputs taken from the forward: a, b",
            "torch.cat((grad_a, grad_b), -1)",
        ),
        (
            "exp_",
            ["--inputs", "x", "--forward", "x.exp_()"],
            "exp_ changes x in place, as its name says: --dirty x",
            "return grad_output * output",
        ),
        (
            "add_",
            ["--inputs", "x[N], y[N], alpha=1.0", "--forward", "x += alpha * y; return x"],
            "add_ changes x in place, as its name says: --dirty x",
            "grad_y = ctx.alpha * grad_output",
        ),
        (
            "rounded",
            ["--inputs", "x", "--forward", "x.round()", "--grad", "grad_output"],
            "the gradient is taken for that of x",
            "return grad_output",
        ),
        (
            "rounded",
            ["--inputs", "x, n=2", "--forward", "x.round()", "--backward", "grad_output, None"],
            SURROGATE,
            "return grad_output, None",
        ),
        (
            "clipped",
            ["--inputs", "x", "--forward", "x.sign()", "--grad", "x=grad_output * (x.abs() <= 1)"],
            SURROGATE,
            "return grad_output * (x.abs() <= 1)",
        ),
    ],
)  # fmt: skip
def test_what_is_taken_for_meant_is_told(
    name: str, arguments: list[str], note: str, line: str, tmp_path: Path
) -> None:
    outcome = new_op(tmp_path, *arguments, "--no-verify", name=name)
    assert outcome.code == 0, outcome.err
    assert f"note: {note}" in outcome.err
    assert line in (tmp_path / f"{name}.py").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--inputs", "x, w", "--forward", "x * w", "--grad", "grad_output"],
            "'grad_output' does not begin with a name and '='",
        ),
        (
            ["--inputs", "x", "--forward", "x.exp_()"],  # whose name does not say so
            "the forward changes its input 'x' in place",
        ),
        (
            ["--inputs", "x, w", "--forward", "x * w", "--backward", "x, w, x"],
            "the backward assigns no gradient",
        ),
    ],
)
def test_what_may_mean_two_things_is_asked(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    outcome = new_op(tmp_path, *arguments, "--no-verify")
    assert outcome.code == 2
    assert message in outcome.err


def test_a_gradient_in_place_that_needs_what_was_there_is_left_to_write(
    tmp_path: Path,
) -> None:
    arguments = ["--inputs", "x", "--forward", "x.square_()"]
    outcome = new_op(tmp_path, *arguments, "--no-verify", name="square_")
    assert outcome.code == 1, "a forward was given, and its gradient is not there"
    assert "needs what 'x' held before it changed in place" in outcome.err
    assert "left for you to write: grad_x" in outcome.err


def test_a_proof_says_what_it_ran(tmp_path: Path) -> None:
    arguments = ["--inputs", "x", "--forward", "torch.sin(x)"]
    assert not new_op(tmp_path, *arguments, "-q", name="one").proven
    assert not new_op(tmp_path, *arguments, "--no-verify", name="two").proven
    said = new_op(tmp_path, *arguments, name="three").proven
    assert re.fullmatch(
        r"proven: \d+ calls and gradients .*, torch \d+\.\d+\.\d+\n", said
    )
    told = [
        json.loads(new_op(tmp_path, *arguments, *more, "--format", "json").out)
        for more in ((), ("--no-verify",))
    ]
    assert [one["proven"] for one in told] == [True, False]


@pytest.mark.parametrize("name", ["x", "input"])  # "np" is a part of "input"
def test_numpy_is_imported_where_the_gradient_is_stated(
    name: str, tmp_path: Path
) -> None:
    forward = f"torch.from_numpy(np.log1p({name}.detach().numpy()))"
    arguments = [
        "--inputs",
        name,
        "--forward",
        forward,
        "--grad",
        f"grad_output / (1 + {name})",
    ]
    outcome = new_op(tmp_path, *arguments, "--no-verify")
    assert outcome.code == 0, outcome.err
    assert "import numpy as np" in next(tmp_path.glob("[!t]*.py")).read_text()


def test_a_backward_returns_what_a_function_returns(tmp_path: Path) -> None:
    arguments = ["--inputs", "x, w", "--import", "kernels:fwd, bwd"]
    arguments += ["--forward", "fwd(x, w)", "--backward", "bwd(grad_output, x, w)"]
    outcome = new_op(tmp_path, *arguments, "--no-verify")
    assert outcome.code == 0, outcome.err
    text = next(tmp_path.glob("[!t]*.py")).read_text()
    assert "grad_x, grad_w = bwd(grad_output, x, w)" in text
