"""What a failed proof tells: the derived gradient beside the stated one, and names that PyTorch does not have."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from scaffold.derive import Derivation, derive
from scaffold.errors import Location
from scaffold.project import proof_errors as module
from scaffold.project.proof_errors import Subject, beside, error_of, misnamed
from scaffold.spec import OpSpec
from scaffold.verify import Failure, Verdict
from tests.cli.running import new_op
from tests.derive.building import spec_of

RIGHT = {"x": "grad_output @ w", "w": "grad_output.t() @ x"}
WRONG = {"x": "grad_output @ w", "w": "x.t() @ grad_output"}


def product(**grad: str) -> OpSpec:
    return spec_of("x[N, I], w[O, I]", forward="x @ w.t()", grad=grad)


def derived(spec: OpSpec) -> Derivation:
    """What an engine would derive: as if the right formulas had been written."""
    assert (spec.gradients, spec.backward, spec.derive) == ((), None, True)
    return derive(replace(spec, gradients=product(**RIGHT).gradients))


def test_both_lines_are_shown() -> None:
    with patch.object(module, "derive", derived):
        assert beside(product(**WRONG), "grad_w") == (
            "written: grad_w = x.t() @ grad_output",
            "derived: grad_w = grad_output.t() @ x",
        )


def test_of_a_whole_backward_the_derived_line_is_shown() -> None:
    backward = "grad_x = grad_output @ w; grad_w = x.t() @ grad_output"
    spec = spec_of("x[N, I], w[O, I]", forward="x @ w.t()", backward=backward)
    with patch.object(module, "derive", derived):
        assert beside(spec, "grad_w") == ("derived: grad_w = grad_output.t() @ x",)


def test_a_none_is_told_how_to_declare_it(tmp_path: Path) -> None:
    """With it the backward is right: `--surrogate` would not take a None either."""
    maths = ("--forward", "x * w", "--backward", "return grad_output * w, None")
    done = new_op(tmp_path, "--inputs", "x, w", *maths, "--dry-run")
    assert "grad_w: None, but needed" in done.err
    assert "declare it in --inputs: 'w[; const]'\n" in done.err
    done = new_op(tmp_path, "--inputs", "x, w[; const]", *maths, "--dry-run")
    assert done.code == 0, done.err


def test_what_the_user_did_not_write_has_nothing_beside_it() -> None:
    with patch.object(module, "derive", derived):
        assert beside(product(x=RIGHT["x"]), "grad_w") == ()
        assert beside(product(**WRONG), "forward") == ()


def test_what_cannot_be_derived_has_nothing_beside_it() -> None:
    none = Derivation(forward=(), missing=frozenset({"x", "w"}))
    with patch.object(module, "derive", return_value=none):
        assert beside(product(**WRONG), "grad_w") == ()


TORCH = "raised AttributeError: module 'torch' has no attribute"
TENSOR = "raised AttributeError: 'Tensor' object has no attribute"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (f"{TORCH} 'sofmax'", "did you mean 'softmax'?"),
        (f"{TORCH} 'gelu'", "write: F.gelu(...)"),
        (f"{TORCH} 'qqqq'", "see: scaffold rules list"),
        (
            "raised AttributeError: module 'torch.nn.functional' has no attribute 'sofplus'",
            "did you mean 'softplus'?",
        ),
        (
            "raised AttributeError: module 'torch.linalg' has no attribute 'solv'",
            "did you mean 'solve'?",
        ),
        (
            "raised AttributeError: module 'math' has no attribute 'sqr'",
            "did you mean 'sqrt'?",
        ),
        (f"{TENSOR} 'sofmax'", "did you mean 'softmax'?"),
        (f"{TENSOR} 'gelu'", "write: F.gelu(...)"),
        (f"{TENSOR} 'sofplus'", "did you mean 'F.softplus'?"),
    ],
)
def test_what_was_meant(words: str, hint: str | None) -> None:
    found = misnamed(spec_of("x", forward="x"), words)
    assert found is not None
    assert found.hint == hint


def test_other_complaints_are_none_of_its_own() -> None:
    spec = spec_of("x", forward="x")
    assert misnamed(spec, "raised RuntimeError: no attribute 'sofmax'") is None
    assert misnamed(spec, "None, but needed") is None


@pytest.mark.parametrize(
    ("formulas", "place"),
    [
        ({"forward": "y = x.b\nreturn y.newest(-1) + x.newest(0)"}, "--forward:2:8"),
        ({"forward": "x", "grad": {"x": "grad_output * x.newest(0)"}}, "--grad:1:15"),
        ({"forward": "x * 2", "backward": "grad_x = x.newest(0)"}, "--backward:1:10"),
        (
            {"forward": "while x.any(): x = torch.newest(x, 0)\nreturn x"},
            "--forward:1:20",
        ),
        ({"forward": "x"}, "None"),
    ],
)
def test_where_it_stands(formulas: dict[str, str], place: str) -> None:
    found = misnamed(spec_of("x", **formulas), f"{TENSOR} 'newest'")
    assert found is not None
    assert str(found.place) == place


@pytest.mark.parametrize(("torch", "told"), [("2.4.1+cpu", True), ("2.5.0", False)])
def test_library_style_needs_what_came_with_2_5(torch: str, told: bool) -> None:
    words = (
        "raised AttributeError: 'CustomOpDef' object has no attribute 'register_vmap'"
    )
    subject = Subject(
        spec_of("x", forward="x * 2", style="library"),
        frozenset({"x"}),
        lambda *_, **__: Location("ops.toml"),
        "x",
    )
    verdict = Verdict(0, Failure("import", words), torch=torch)
    hint = error_of(subject, verdict).hint or ""
    assert ("needs PyTorch 2.5" in hint) is told


HUBER = "torch.where(x.abs() < beta, 0.5 * x**2 / beta, x.abs() - 0.5 * beta)"
CLAMPED = "x=grad_output * (x / beta).clamp(-1, 1)"


def test_a_gradient_wrong_for_a_negative_attribute_alone_says_what_to_assert(
    tmp_path: Path,
) -> None:
    asked = ("--inputs", "x, beta: float = 1.0", "--grad", CLAMPED, "--dry-run")
    done = new_op(tmp_path, *asked, "--forward", HUBER)
    told = "hint: right for beta=1.0, wrong for beta=-1.0: if beta is never negative, `assert beta > 0` in the forward; if the gradient is meant"
    assert told in done.err
    done = new_op(tmp_path, *asked, "--forward", f"assert beta > 0; return {HUBER}")
    assert done.code == 0, done.err


def test_a_gradient_wrong_for_every_value_has_no_such_hint(tmp_path: Path) -> None:
    asked = ("--inputs", "x, beta: float = 1.0", "--grad", "x=x", "--dry-run")
    done = new_op(tmp_path, *asked, "--forward", HUBER)
    assert done.code == 1 and "hint: if the gradient is meant" in done.err
