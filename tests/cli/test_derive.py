"""`scaffold derive`: the Function on stdout, nothing on disk, and the steps."""

import json
from pathlib import Path
from unittest.mock import patch

import pytest

from scaffold.project.interpreter import Proving
from tests.cli.running import Outcome, listing, new_op, scaffold

SWISH = ("--inputs", "x", "--forward", "x * torch.sigmoid(x)")
NORM = (
    *("--inputs", "x[..., D], weight[D], eps: float = 1e-6"),
    *("--forward", "rstd = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)"),
)


def derive(directory: Path, *arguments: str) -> Outcome:
    return scaffold(directory, "derive", "foo", *arguments)


def test_the_function_is_printed_and_nothing_written(tmp_path: Path) -> None:
    outcome = derive(tmp_path, *SWISH)
    assert (outcome.code, outcome.err, listing(tmp_path)) == (0, "", {})
    assert outcome.out.startswith("class FooFunction(Function):\n")
    assert "return " in outcome.out
    assert "def foo" not in outcome.out
    whole = new_op(tmp_path, *SWISH, "--stdout", "--no-verify").out
    assert outcome.out in whole


def test_a_class_name_and_a_file_of_ops(tmp_path: Path) -> None:
    text = "[ops.foo]\ninputs = 'x'\nforward = 'x ** 3'\nmodule = false\n"
    (tmp_path / "ops.toml").write_text(text)
    outcome = derive(tmp_path, "--spec", "ops.toml", "--class-name", "Cube")
    assert outcome.out.startswith("class CubeFunction(Function):")
    assert "return " in outcome.out


def test_what_is_left_is_said(tmp_path: Path) -> None:
    outcome = derive(tmp_path, *SWISH, "--no-derive")
    assert outcome.err == "note: left for you to write: grad_x\n"
    assert 'raise NotImplementedError("foo: write grad_x")' in outcome.out


def test_the_steps_come_before_the_function(tmp_path: Path) -> None:
    forward = f"{NORM[3]}; return x * rstd * weight"
    policy = ("--save-policy", "recompute")
    outcome = derive(tmp_path, *NORM[:2], "--forward", forward, "--explain", *policy)
    steps, function = outcome.out.split("\nclass ")
    assert function.startswith("FooFunction")
    assert [" ".join(line.split()) for line in steps.splitlines()] == [
        "# rules",
        "mul grad.x = grad * conj(y)",
        "mul grad.y = grad * conj(x)",
        "mean grad.x = expand_back(grad, x, dim, keepdim) / count(x, dim)",
        "add grad.x = grad",
        "rsqrt grad.x = -0.5 * grad * conj(result ** 3)",
        "",
        "# kept for the backward",
        "x input for grad_weight, grad_x ...*D",
        "weight input for grad_weight, grad_x D",
        "eps on ctx no tensor: eps",
        "",
        "# bytes in single precision",
        "here 4 * (...*D + D)",
        "plain autograd 4 * (2*...*D + D + ...)",
    ]


def test_bytes_are_counted_for_sizes(tmp_path: Path) -> None:
    sizes = ("--explain", "--sizes", "N=10, D = 100")
    maths = ("--inputs", "x[N, D], y[D]", "--forward", "torch.exp(x * y)")
    lines = derive(tmp_path, *maths, *sizes).out.splitlines()
    start = lines.index("# bytes in single precision")
    assert lines[start + 1] == "here            4 * (2*N*D + D)  = 8,400"
    assert lines[start + 2] == "plain autograd  4 * (2*N*D + D)  = 8,400"
    lines = derive(tmp_path, *maths, "--explain", "--sizes", "N=10").out.splitlines()
    assert lines[start + 1].endswith("= ? (no size for D)")


@pytest.mark.parametrize("name", ["batch", "*batch"])
def test_leading_dims_with_a_name_count_as_one_size(tmp_path: Path, name: str) -> None:
    maths = ("--inputs", "x[*batch, S], y[*batch, T]", "--forward")
    forward = "x.exp().sum(-1) * y.sin().sum(-1)"
    policy = ("--save-policy", "recompute")
    sizes = ("--explain", "--sizes", f"S=2, T=5, {name}=3", *policy)
    lines = derive(tmp_path, *maths, forward, *sizes).out.splitlines()
    start = lines.index("# bytes in single precision")
    assert "4 * (batch*S + batch*T) " in lines[start + 1]
    assert lines[start + 1].endswith(" = 84")


def test_for_programs(tmp_path: Path) -> None:
    outcome = derive(tmp_path, *SWISH, "--format", "json", "--explain")
    found = json.loads(outcome.out)
    assert found["function"].startswith("class FooFunction")
    assert found["steps"].startswith("# rules")
    assert (found["derived"], found["missing"], found["notes"]) == (["x"], [], [])
    outcome = derive(tmp_path, "--inputs", "x[", "--format", "json")
    assert outcome.code == 2
    assert json.loads(outcome.out)["problems"]


@pytest.mark.parametrize(
    ("forward", "place"),
    [
        ("torch.from_numpy(x.numpy())", "--forward: "),
        ("h = x * 2\nreturn h.numpy()", "--forward: "),
    ],
)
def test_why_nothing_is_derived_is_a_note(
    forward: str, place: str, tmp_path: Path
) -> None:
    outcome = derive(tmp_path, "--inputs", "x", "--forward", forward)
    assert outcome.code == 0
    first, last = outcome.err.splitlines()
    assert first.startswith(f"note: {place}the backward is not derived: ")
    assert last == "note: left for you to write: grad_x"


@pytest.mark.parametrize(
    ("forward", "line"),
    [
        ((), "# no forward is stated"),
        (("--forward", "torch.frexp(x)[0]"), "# the forward is not"),
        (("--forward", "torch.special.airy_ai(2 * x) + 1"), "x_shape   on ctx "),
    ],
)
def test_the_steps_or_why_there_are_none(
    forward: tuple[str, ...], line: str, tmp_path: Path
) -> None:
    outcome = derive(tmp_path, "--inputs", "x", "--explain", *forward)
    assert any(shown.startswith(line) for shown in outcome.out.splitlines())


def test_nothing_is_started_where_no_proof_is_asked_for(tmp_path: Path) -> None:
    with patch.object(Proving, "start", side_effect=AssertionError):
        assert derive(tmp_path, *SWISH).code == 0
