"""The derived gradient stands beside a wrong one of the user's, where there is one."""

from dataclasses import replace
from unittest.mock import patch

from scaffold.derive import Derivation, derive
from scaffold.project import proof_errors as module
from scaffold.project.proof_errors import beside
from scaffold.spec import OpSpec
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


def test_what_the_user_did_not_write_has_nothing_beside_it() -> None:
    with patch.object(module, "derive", derived):
        assert beside(product(x=RIGHT["x"]), "grad_w") == ()
        assert beside(product(**WRONG), "forward") == ()


def test_what_cannot_be_derived_has_nothing_beside_it() -> None:
    none = Derivation(forward=(), missing=frozenset({"x", "w"}))
    with patch.object(module, "derive", return_value=none):
        assert beside(product(**WRONG), "grad_w") == ()
