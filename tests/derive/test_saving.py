"""What forward hands to backward: as little as serves, under names that do not clash."""

from typing import Any

import pytest
import torch

from scaffold.derive import Derivation, derive
from scaffold.derive.saving import OF_CTX, ContextNames
from tests.derive.building import backward_of, op_text, spec_of


def derived(inputs: str, **raw: Any) -> Derivation:
    return derive(spec_of(inputs, **raw))


def saved(found: Derivation) -> dict[str, set[str]]:
    return {item.name: set(item.serves) for item in found.saved}


def kept(found: Derivation) -> dict[str, str]:
    return {item.name: item.expression for item in found.kept}


def test_a_tensor_is_saved_for_the_gradients_that_read_it() -> None:
    found = derived(
        "x, w, bias?",
        forward="x @ w + bias",
        grad={
            "x": "grad_output @ w.t()",
            "w": "x.t() @ grad_output",
            "bias": "grad_output.sum(0)",
        },
    )
    assert saved(found) == {"x": {"w"}, "w": {"x"}}
    assert kept(found) == {}


@pytest.mark.parametrize("policy", ["balanced", "recompute"])
@pytest.mark.parametrize(
    ("inputs", "always"),
    [
        ("x[N, D], w", {"w": False}),
        ("x[N, D], w[N, D]", {"w": False}),
        ("x[N, D], w[D]", {"w": True}),
        ("x[N, D], w[]", {"w": True}),
        ("x[N, D], w[...]", {"w": False}),
        ("x[N, D], w[D]?", {"w": True}),
    ],
)
def test_a_vector_is_saved_whichever_gradients_are_asked_for(
    inputs: str, always: dict[str, bool], policy: str
) -> None:
    forward = "x if w is None else x * w" if "?" in inputs else "x * w"
    found = derived(inputs, forward=forward, save_policy=policy)
    assert {item.name: item.always for item in found.saved} == {"x": False} | always


def test_so_is_a_local_that_is_one_number() -> None:
    found = derived("x[N, D], y[N, D]", forward="x * y.exp().sum()")
    assert {item.name: item.always for item in found.saved if item.name != "x"} == {
        "exp": False,
        "total": True,
    }


def test_a_shape_needs_no_tensor() -> None:
    found = derived(
        "x, w",
        forward="x.sum() * w.sum()",
        grad={
            "x": "(grad_output * w.sum()).expand(x.shape)",
            "w": "(grad_output * x.sum()).expand(w.shape)",
        },
    )
    assert saved(found) == {"x": {"w"}, "w": {"x"}}
    assert kept(found) == {"x_shape": "x.shape", "w_shape": "w.shape"}


def test_a_tensor_that_is_there_tells_its_shape_itself() -> None:
    text = op_text(
        "x",
        forward="x.sum() ** 2",
        grad={"x": "(2 * grad_output * x.sum()).expand(x.shape)"},
    )
    assert "expand(x.shape)" in backward_of(text)
    assert "x_shape" not in text


def test_a_branch_on_an_optional_needs_no_tensor() -> None:
    found = derived(
        "x, bias?",
        forward="x + bias",
        grad={
            "x": "grad_output if bias is None else grad_output * 1",
            "bias": "grad_output.sum(0)",
        },
    )
    assert saved(found) == {}
    assert kept(found) == {"has_bias": "bias is not None"}


def test_what_is_kept_of_an_optional_is_none_where_it_is() -> None:
    found = derived(
        "x, bias?",
        forward="x + bias",
        grad={
            "x": "grad_output",
            "bias": "grad_output.sum_to_size(bias.shape) * len(bias)",
        },
    )
    assert kept(found) == {
        "bias_shape": "bias.shape if bias is not None else None",
        "bias_count": "len(bias) if bias is not None else None",
    }


def test_the_shape_of_an_output_is_that_of_its_gradient() -> None:
    text = op_text(
        "x", forward="x * 2", grad={"x": "2 * grad_output.reshape(output.shape)"}
    )
    assert backward_of(text) == "return 2 * grad_output.reshape(grad_output.shape)"


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (
            {
                "backward": "grad_output = grad_output[None]\ngrad_x = grad_output.view(output.shape)"
            },
            "output_shape",
        ),
        (
            {
                "outputs": "values, indices[...; int]",
                "forward": "torch.sort(x)",
                "grad": {"x": "grad_values.new_zeros(indices.shape)"},
                "materialize_grads": False,
            },
            "indices_shape",
        ),
    ],
)
def test_unless_that_is_not_there(raw: dict[str, Any], name: str) -> None:
    text = op_text("x", **{"forward": "x * 2", **raw})
    assert f"ctx.{name}" in backward_of(text)
    assert f"ctx.{name} = " in text


def test_what_is_kept_of_several_tensors_is_a_list() -> None:
    found = derived(
        "*tensors",
        forward="torch.stack([tensors[0].sum(), tensors[1].sum()])",
        grad={"tensors": "grad_output[i].expand(tensors[i].shape)"},
    )
    assert kept(found) == {"tensors_shape": "[tensor.shape for tensor in tensors]"}


def test_variadic_tensors_are_saved_last() -> None:
    found = derived(
        "w, *tensors",
        forward="w * sum(tensors)",
        grad={"w": "grad_output * sum(tensors) * output", "tensors": "grad_output * w"},
    )
    assert [item.name for item in found.saved] == ["w", "output", "tensors"]


def test_what_forward_changes_is_not_saved_for_a_gradient_that_is_to_be_written() -> (
    None
):
    forward = "x.mul_(g).clamp_(-1, 1)"
    found = derived("x, g", forward=forward, dirty=["x"], derive=True)
    assert found.missing == {"x", "g"} and saved(found) == {"g": {"x", "g"}}


def test_names_on_ctx_are_its_own() -> None:
    names = ContextNames(
        spec_of("x, x_shape: float, shape_of_x: int, saved_tensors: int")
    )
    assert names.attribute("x_shape") == "x_shape"
    assert names.attribute("saved_tensors") == "saved_tensors_value"
    assert names.facet("x", "shape") == "shape_of_x_2"
    assert names.facet("x", "shape") == "shape_of_x_2"
    assert names.facet("x", "dtype") == "x_dtype"
    assert names.facet("x", "presence") == "has_x"


def test_the_list_of_what_ctx_has_is_complete() -> None:
    seen: set[str] = set()

    class Probe(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            seen.update(dir(ctx))
            return x * 1

    Probe.apply(torch.ones(1))  # type: ignore[no-untyped-call]
    assert {name for name in seen if not name.startswith("__")} <= OF_CTX
