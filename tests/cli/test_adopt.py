"""`scaffold adopt`: where an op goes that was hand-written, and what is left as it is."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import listing, scaffold
from tests.inspect.test_adopting import HEAD, LOOP, SCALE

OLD_OPS = Path(__file__).parents[2] / "docs" / "old_ops"


def test_in_a_project_the_op_goes_into_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.scaffold]\nsource = 'src/fast'\ntests = 'tests'\n"
    )
    (tmp_path / "src" / "fast").mkdir(parents=True)
    (tmp_path / "src" / "fast" / "__init__.py").touch()
    (tmp_path / "old.py").write_text(f"{HEAD}{SCALE}\n\n{LOOP}")
    outcome = scaffold(tmp_path, "adopt", "old.py::ScaleFunction")
    assert outcome.code == 0, outcome.err
    assert set(listing(tmp_path)) >= {
        "ops.toml",
        "src/fast/scale.py",
        "tests/test_scale.py",
    }
    outcome = scaffold(tmp_path, "adopt", "old.py::Rows")
    assert outcome.code == 0 and "the same values" in outcome.err, outcome.err
    manifest = (tmp_path / "ops.toml").read_text()
    assert "[ops.scale]" in manifest and "[ops.rows]" in manifest
    assert "'fast.rows_code:rows_forward, rows_backward'" in manifest
    text = (tmp_path / "src" / "fast" / "rows.py").read_text()
    assert "from fast.rows_code import rows_backward" in text
    assert scaffold(tmp_path, "check").code == 0
    assert scaffold(tmp_path, "sync").code == 0


def test_what_a_project_has_already_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.scaffold]\n")
    (tmp_path / "rows_code.py").write_text("# mine\n")
    (tmp_path / "old.py").write_text(f"import torch\n\n{LOOP}")
    before = listing(tmp_path)
    outcome = scaffold(tmp_path, "adopt", "old.py::Rows", "--on-conflict", "abort")
    assert outcome.code == 1 and "rows_code.py" in outcome.err, outcome.err
    assert listing(tmp_path) == before


def test_what_differs_from_the_function_is_not_written(tmp_path: Path) -> None:
    """What `scale` is when the module runs, the text of the class does not tell."""
    code = (
        SCALE
        + "\n\nScaleFunction.backward = staticmethod(lambda ctx, g: (g, g, None))\n"
    )
    (tmp_path / "ops.py").write_text(HEAD + code)
    outcome = scaffold(tmp_path, "adopt", "ops.py")
    assert outcome.code == 1 and "the op differs from it: grad_" in outcome.err
    assert list(listing(tmp_path)) == ["ops.py"]
    assert scaffold(tmp_path, "adopt", "ops.py", "--no-verify").code == 0


def test_a_wrong_gradient_is_refused_unless_it_is_said_to_be_meant(
    tmp_path: Path,
) -> None:
    """The mean of `LogCosh` is forgotten in its backward; `Round` has a surrogate by its text."""
    shutil.copytree(OLD_OPS, tmp_path / "old_ops")
    before = listing(tmp_path)
    asked = ("adopt", "old_ops/loss.py:LogCosh")
    outcome = scaffold(tmp_path, *asked)
    assert outcome.code == 1
    assert "differs from the derivative: grad_error: factor 6" in outcome.err
    assert "old_ops/loss.py:14:" in outcome.err and "--surrogate" in outcome.err
    assert listing(tmp_path) == before
    assert scaffold(tmp_path, *asked, "--surrogate").code == 0
    assert "surrogate = true" in (tmp_path / "log_cosh.toml").read_text()
    assert scaffold(tmp_path, "adopt", "old_ops/quantize.py").code == 0
    assert "surrogate = true" in (tmp_path / "round.toml").read_text()


def test_its_help_is_its_own(tmp_path: Path) -> None:
    """It was that of `test-stub`, with which it shares options."""
    page = scaffold(tmp_path, "adopt", "--help").out
    assert "The Function to adopt." in page and "not compared" in page
    assert " stub" not in page.lower()


BAD = SCALE.replace("ScaleFunction", "Bad").replace("ctx.factor", "ctx.x[0]")


def test_all_functions_of_a_directory_are_adopted(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "scale.py").write_text(HEAD + SCALE)
    (tmp_path / "old" / "rows.py").write_text(f"import torch\n\n{LOOP}")
    (tmp_path / "old" / "bad.py").write_text(HEAD + BAD)
    outcome = scaffold(tmp_path, "adopt", "old", "--all", "--no-verify")
    assert outcome.code == 1
    *notes, refused = outcome.messages
    assert refused.startswith("old/bad.py:") and "'Bad' cannot be" in refused
    assert [note.split()[-1] for note in notes] == ["rows.toml", "scale.toml"]
    bad, *adopted = outcome.out.splitlines()[-3:]
    assert re.fullmatch(r"old/bad\.py:\d+    Bad            not adopted: .+", bad)
    assert re.fullmatch(r"old/rows\.py:12  Rows           adopted as rows", adopted[0])
    assert re.fullmatch(
        r"old/scale\.py:\d  +ScaleFunction  adopted as scale", adopted[1]
    )
    wanted = {"rows.toml", "rows_code.py", "scale.toml", "scale_code.py"}
    assert set(listing(tmp_path)) >= wanted


KERNELS = """
import torch


def square(x, scale):
    return torch.from_numpy(x.detach().numpy() ** 2 * scale)


def square_backward(grad, x, scale):
    return torch.from_numpy(2 * scale * x.detach().numpy() * grad.detach().numpy())
"""
PAIR = """
from kernels import square, square_backward
from torch.autograd.function import once_differentiable


class Square(Function):
    @staticmethod
    def forward(ctx, x, scale: float = 2.0):
        ctx.scale = scale
        ctx.save_for_backward(x)
        return square(x, scale)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return square_backward(grad, x, ctx.scale), None
"""
MAPPED = """
import torch
from square import square

x = torch.randn(4, 3, dtype=torch.double, requires_grad=True)
y = torch.func.vmap(square)(x)
torch.testing.assert_close(y, 2 * x**2)
(gradient,) = torch.autograd.grad(y.sum(), x)
torch.testing.assert_close(gradient, 4 * x)
"""


def test_a_pair_of_kernels_gets_a_loop_for_vmap_in_library_style(
    tmp_path: Path,
) -> None:
    """NumPy knows nothing of vmap: without the loop the call fails."""
    (tmp_path / "pyproject.toml").write_text("[tool.scaffold]\n")
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "old.py").write_text(HEAD + PAIR)
    outcome = scaffold(tmp_path, "adopt", "old.py", "--style", "library")
    assert outcome.code == 0, outcome.err
    adds = "style library adds a name for torch.export and vmap as a loop; torch.compile takes it as one operator, if"
    assert f"note: {adds}" in outcome.err, outcome.err
    text = (tmp_path / "square.py").read_text()
    assert "square_op.register_vmap(_vmap)" in text
    program = [sys.executable, "-c", MAPPED]
    run = subprocess.run(
        program, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


ALL = ("adopt", "old", "--all", "--no-verify", "--format", "json")


@pytest.fixture(params=[True, False], ids=["project", "directory"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Two Functions that can be adopted, and one that cannot, in a project or in none."""
    if request.param:
        (tmp_path / "pyproject.toml").write_text("[tool.scaffold]\n")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "rows.py").write_text(f"import torch\n\n{LOOP}")
    (tmp_path / "old" / "scale.py").write_text(HEAD + SCALE)
    (tmp_path / "old" / "bad.py").write_text(HEAD + BAD)
    return tmp_path


def told(directory: Path, *words: str, code: int = 1) -> dict[str, Any]:
    """The one document of a run with --format json; what people hear has every problem of it."""
    outcome = scaffold(directory, *words)
    assert outcome.code == code, outcome.err
    found: dict[str, Any] = json.loads(outcome.out)
    for problem in found["problems"]:
        assert problem["message"] in outcome.err
    return found


FULL = ["version", "written", "files", "notes", "problems"]
REFUSED = ["version", "written", "notes", "problems"]


def test_json_of_several_is_one_document(old: Path) -> None:
    for looking in ("--dry-run", "--diff", "--stdout", None):
        found = told(old, *ALL, *([looking] if looking else []))
        assert list(found) == FULL and found["written"] == (looking is None)
        (problem,) = found["problems"]
        assert problem["source"] == "old/bad.py" and "'Bad'" in problem["message"]
        paths = [item["path"] for item in found["files"]]
        assert {"rows_code.py", "scale_code.py"} <= {*paths}
        assert len(paths) == len({*paths}), "each file once"
    assert {*paths} <= {*listing(old)}
    (old / "old" / "bad.py").unlink()
    found = told(old, *ALL, code=0)
    assert list(found) == FULL and not found["problems"]


def test_json_is_one_document_if_nothing_is_adopted(old: Path) -> None:
    found = told(old, "adopt", "old/bad.py", *ALL[2:])
    assert list(found) == REFUSED and len(found["problems"]) == 1
    found = told(old, *ALL, "--name", "x", code=2)
    assert list(found) == REFUSED and found["problems"][0]["source"] == "--name"


def test_if_one_op_is_in_conflict_none_is_written(old: Path) -> None:
    """It was written or not by its place in the alphabet, and the refused ones were not named."""
    (old / "scale_code.py").write_text("# mine\n")
    before = listing(old)
    found = told(old, *ALL, "--on-conflict", "abort")
    assert found["written"] is False and listing(old) == before
    messages = [problem["message"] for problem in found["problems"]]
    assert len(messages) == 2 and "exists and differs" in messages[0]
    assert scaffold(old, *ALL, "--on-conflict", "overwrite").code == 1
    assert "def rows_forward" in (old / "rows_code.py").read_text()


def test_an_op_that_is_not_compared_joins_one_that_is(tmp_path: Path) -> None:
    """Only the second is proven; the record of each says so."""
    (tmp_path / "pyproject.toml").write_text("[tool.scaffold]\n")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "scale.py").write_text(HEAD + SCALE)
    (tmp_path / "old" / "rows.py").write_text(f"import nowhere, torch\n\n{LOOP}")
    outcome = scaffold(tmp_path, "adopt", "old", "--all")
    assert outcome.code == 0, outcome.err
    assert "note: rows: not compared" in outcome.err
    assert "note: scale: compared with" in outcome.err
    checked = scaffold(tmp_path, "check").out
    assert checked == "unproven  rows.py: no proof is on record\n4 ok, 1 unproven\n"


SEVERAL = """

class _Twice(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


class _Thrice(_Twice):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, g):
        return g * 3


def times(x):
    return _Thrice.apply(_Twice.apply(x))


def test_once():
    class Once(_Twice):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g

    Once.apply(torch.ones(1))
"""


def test_functions_of_one_name_get_different_ones(tmp_path: Path) -> None:
    """By the class if a wrapper calls several; by the module if the classes are alike, too; a test names none."""
    for path in ("a.py", "b/layers.py", "c/layers.py", "c/scale.py"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(HEAD + SCALE)
    (tmp_path / "d.py").write_text(HEAD + SEVERAL)
    options = ("--all", "--no-verify", "--out-dir", "new")
    outcome = scaffold(tmp_path, "adopt", ".", *options)
    assert outcome.code == 0, outcome.err
    names = {path.stem for path in (tmp_path / "new").glob("*.toml")}
    alike = {"scale", "layers_scale", "c_layers_scale", "c_scale"}
    assert names == {*alike, "times", "thrice", "once"}
    told = "layers_scale: ScaleFunction of b/layers.py: 'scale' is the name of another"
    assert told in outcome.err
    code = (tmp_path / "new" / "c_scale_code.py").read_text()
    assert "def c_scale_forward(" in code


@pytest.mark.each_commit
def test_the_style_is_what_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(HEAD + SCALE)
    for style in ("combined", "setup-context", "library"):
        found = scaffold(tmp_path, "adopt", "ops.py", "--style", style, "--stdout")
        assert f"style = '{style}'" in found.out and "the same" in found.err, found.err
    found = scaffold(tmp_path, "adopt", "ops.py", "--style", "combine")
    assert found.code == 2 and "did you mean 'combined'" in found.err


def test_outside_of_a_project_a_note_says_what_makes_the_op(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text(f"{HEAD}{SCALE}")
    said = ("adopt", "old.py", "--no-verify", "--out-dir", "new")
    assert scaffold(tmp_path, *said, "--stdout").err == ""
    note = scaffold(tmp_path, *said).err.splitlines()[-1]
    assert note.startswith("note: next: scaffold ")
    words = note.removeprefix("note: next: scaffold ").split()
    assert scaffold(tmp_path, *words).code == 0
    assert (tmp_path / "new" / "scale.py").exists()


def test_a_note_names_what_is_computed_again(tmp_path: Path) -> None:
    text = f"{HEAD}{SCALE}".replace("ctx.factor = factor", "ctx.factor = x.exp()")
    (tmp_path / "old.py").write_text(text)
    outcome = scaffold(tmp_path, "adopt", "old.py", "--no-verify")
    note = "note: ctx.factor is computed again in backward: x.exp()"
    assert note in outcome.err.splitlines()
    (tmp_path / "old.py").write_text(
        f"{HEAD}{SCALE}".replace("ctx.factor = factor", "ctx.factor = x.size(0)")
    )
    outcome = scaffold(tmp_path, "adopt", "old.py", "--no-verify", "--stdout")
    assert outcome.code == 0 and "again" not in outcome.err


UNTOLD = f"""\
import torch
{HEAD}
class Move(Function):
    @staticmethod
    def forward(ctx, x, steps):
        ctx.steps = steps
        return x * steps

    @staticmethod
    def backward(ctx, g):
        return g * ctx.steps, None
"""


@pytest.mark.each_commit
def test_the_type_of_an_argument_is_found_as_verify_finds_a_value(
    tmp_path: Path,
) -> None:
    rolled = UNTOLD.replace("x * steps", "torch.roll(x, steps)")
    rolled = rolled.replace("g * ctx.steps", "torch.roll(g, -ctx.steps)")
    for code, kind in ((UNTOLD, "float"), (rolled, "int")):
        (tmp_path / "ops.py").write_text(code)
        found = scaffold(tmp_path, "adopt", "ops.py", "--stdout")
        assert f"steps: {kind}'" in found.out, found.out + found.err
        assert (
            "note: steps: the type is a guess; the Function runs with it" in found.err
        )
    # Only a run tells whether a guess is right.
    found = scaffold(tmp_path, "adopt", "ops.py", "--stdout", "--no-verify")
    assert "steps: object'" in found.out
    grouped = UNTOLD.replace("x * steps", "x * steps.amount")
    (tmp_path / "ops.py").write_text(grouped)
    found = scaffold(tmp_path, "adopt", "ops.py", "--stdout")
    assert "steps: object'" in found.out and "note: not compared" in found.err


def test_a_guess_does_not_hide_that_the_op_differs(tmp_path: Path) -> None:
    code = "\n\nMove.backward = staticmethod(lambda ctx, g: (g, None))\n"
    (tmp_path / "ops.py").write_text(UNTOLD + code)
    outcome = scaffold(tmp_path, "adopt", "ops.py", "--stdout")
    assert outcome.code == 1 and "the op differs from it: grad_" in outcome.err


CLIP = """
class Clip(Function):
    @staticmethod
    def forward(ctx, x, c):
        ctx.c = c
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        return CLIPPED, None


def clip(x, c=0.5):
    return Clip.apply(x, c)
"""


@pytest.mark.parametrize(
    "clipped",
    [
        "grad_output.clamp(-ctx.c, ctx.c)",
        "grad_output * (ctx.c / grad_output.norm()).clamp(max=1)",
        "torch.sign(grad_output)",
    ],
)
def test_a_gradient_that_is_clipped_is_adopted(clipped: str, tmp_path: Path) -> None:
    """It is not linear in grad_output, which is asked of no surrogate."""
    (tmp_path / "ops.py").write_text(HEAD + CLIP.replace("CLIPPED", clipped))
    outcome = scaffold(tmp_path, "adopt", "ops.py", "--surrogate")
    assert outcome.code == 0, outcome.err
    made = scaffold(tmp_path, "new-op", "clip", "--spec", "clip.toml", "--verify")
    assert made.code == 0, made.err
    assert "of a surrogate are not proven" in made.proven


VIEWS = """

class {name}(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        if grad_output.dtype == torch.bfloat16:
            raise TypeError("grad_output is bfloat16")
        return 2 * x * grad_output.{method}(-1).view(x.shape)
"""


# Its second derivative is wrong, in the op, too, unless that is once differentiable.
DETACHED = """

class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.y = y.detach()
        return y

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.y
"""


@pytest.mark.each_commit
def test_both_the_function_and_the_op_are_checked(tmp_path: Path) -> None:
    """A fault of the author's maths is in both, one of the old form in the Function alone; a refusal is a fault of neither."""
    shutil.copy(OLD_OPS / "norm.py", tmp_path)
    for method in ("view", "reshape"):
        text = HEAD + VIEWS.format(name=method.title(), method=method)
        (tmp_path / f"{method}.py").write_text(text)
    (tmp_path / "detached.py").write_text(HEAD + DETACHED)
    found = scaffold(tmp_path, "adopt", ".", "--all", "--out-dir", "new")
    assert found.code == 0, found.err
    words = [line.partition("; ")[2] for line in found.out.splitlines() if "; " in line]
    assert words == [
        "failed checks: 1, now 0",
        "failed checks: 1, now 0",
        "failed checks: 0, now 0",
        "failed checks: 1, now 1",
    ]
    assert "RowNorm, by hand: 1 of " in found.err
    fails = "1 of 24 checks fail (gradient of a strided grad_output)"
    assert f"view, as an op: {fails}" in found.err, found.err
