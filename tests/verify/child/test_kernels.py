"""The proof runs the kernels: a mistake planted in one of them does not pass."""

import pytest

from scaffold.derive import derive
from scaffold.render.kernel_file import kernel_modules
from scaffold.render.verification import verification
from scaffold.verify import Request
from scaffold.verify.prover import Prover, Verdict
from tests.kernels.ops import OPS

pytestmark = pytest.mark.triton
MISTAKES = {
    "a column too few": ("rms_norm", "& (cols < D)", "& (cols < D - 1)"),
    "a row stride left out": ("rms_norm", "row * x_stride", "row * D"),
    "a partial sum left out": ("rms_norm", "grad_weight.sum(0)", "grad_weight[0]"),
    "a factor left out": ("rms_norm", "x_hat = x * ", "x_hat = 1 * "),
    "every other row left out": (
        "rms_norm",
        "rows, tl.num_programs(0) * ROWS",
        "rows, 2 * tl.num_programs(0) * ROWS",
    ),
    "a mask left out": ("softmax", "tl.where(mask, exp, 0.0)", "exp"),
    "a wrong part": ("swiglu", "x_row + half + cols", "x_row + cols"),
    "a wrong neutral element": ("normalize", "other=0.0", "other=1.0"),
}


def proven(name: str, before: str = "", after: str = "") -> Verdict:
    """Prove an op with a change in its kernels."""
    pytest.importorskip("triton")
    spec = OPS[name].spec(name)
    derivation = derive(spec)
    texts = verification(spec, derivation, derivation.derived)
    ((module, text),) = kernel_modules(spec)
    assert before in text
    changed = text.replace(before, after) if before else text
    prover = Prover(limit=120)
    try:
        kernels = ((module, changed),)
        return prover.prove(Request(texts.op, texts.checks, kernels=kernels))
    finally:
        prover.close()


@pytest.mark.parametrize("name", ["rms_norm", "softmax", "swiglu", "normalize"])
def test_kernels_are_proven(name: str) -> None:
    verdict = proven(name)
    assert verdict.failure is None, verdict.failure
    assert verdict.kernels > 10


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: str) -> None:
    verdict = proven(*MISTAKES[mistake])
    assert verdict.failure is not None
    assert verdict.failure.words.startswith("with its kernels: ")
