"""Numbers of each row that the forward saves for the backward."""

import pytest

from scaffold.errors import Location
from scaffold.kernels.pair import kernel_pair
from scaffold.kernels.triton import triton_kernels
from tests.derive.building import draft_of, spec_of
from tests.kernels.ops import OPS

SAVED = {
    "layer_norm": ("mean", "var"),
    "rms_norm": ("inv_rms",),
    "cross_entropy": ("lse",),
    "smoothed_mean": ("lse",),
    "two_softmaxes": ("lse", "lse_student"),
    "softmax": (),  # its output is saved
    "swish": (),
}


@pytest.mark.parametrize("name", SAVED)
def test_what_both_directions_reduce_is_saved(name: str) -> None:
    pair = kernel_pair(OPS[name].spec(name))
    assert pair.statistics == SAVED[name]
    assert pair.backward is not None
    lines = {line.name for line in pair.backward.lines}
    assert not lines & {*pair.statistics}
    assert {*pair.statistics} <= {load.source for load in pair.backward.loads}


def test_a_number_that_an_output_is_rounded_from_is_computed_again() -> None:
    spec = spec_of("x[..., D]", forward="torch.logsumexp(x, -1)", kernels=["triton"])
    assert "lse" not in kernel_pair(spec).statistics


def test_it_is_saved_in_the_precision_of_the_kernel() -> None:
    _, view = triton_kernels(OPS["rms_norm"].spec("op"), Location("op"))
    made = "x.new_empty(x.shape[:-1], dtype=compute_dtype)"
    assert view.forward.computed == "compute_dtype = precision(x, weight)"
    assert f"inv_rms = {made}" in view.forward.outputs
    assert view.forward.fake.endswith(made)
    assert view.forward.result == "output, inv_rms"


def test_the_function_saves_it_under_a_name_that_the_formula_does_not_bind() -> None:
    text = draft_of(OPS["rms_norm"].spec("op"))
    assert "x, weight, saved_inv_rms = ctx.saved_tensors" in text
    assert "ctx.in_kernels = inv_rms.numel() > 0" in text
    assert "# No inv_rms: backward computes it again." in text


def test_a_number_that_only_a_saved_one_is_computed_of_is_no_parameter() -> None:
    spec = OPS["rms_norm"].spec("op")
    _, view = triton_kernels(spec, Location("op"))
    assert "eps" in view.forward.parameters
    assert view.backward is not None
    for given in (view.backward.parameters, view.backward.launch):
        assert not any(item.startswith("eps") for item in given)
    assert "eps" not in view.backward.arguments
    assert "eps" not in view.backward.signature
    assert (
        "ctx.eps" not in draft_of(spec).partition("op_backward(")[2].partition(")")[0]
    )


def test_a_number_that_a_backward_reads_is_a_parameter() -> None:
    _, view = triton_kernels(OPS["softmax"].spec("op"), Location("op"))
    assert view.backward is not None
    assert "temperature" in view.backward.parameters
