"""The graph that a picture shows: its items are the lines of the Function, and each reads what stands before it."""

import pytest

from scaffold.derive import derive
from scaffold.derive.diagram import Diagram, diagram
from scaffold.errors import Location
from scaffold.spec.build import build
from tests.derive.cases import CASES, Case


def drawn(inputs: str, forward: str, **keys: object) -> Diagram:
    table = {"inputs": inputs, "forward": forward, **keys}
    spec = build("op", table, lambda *_, **__: Location("test"))
    return diagram(spec, derive(spec))


def edges(found: Diagram) -> list[str]:
    """`x -> output = x @ w`, an edge a line."""
    return [
        f"{found.items[one].lines[0]} -> {item.lines[0]}"
        for item in found.items
        for one in item.reads
    ]


def test_of_a_product() -> None:
    found = drawn("x[N, D], w[D, E]", "x @ w")
    assert [(item.part, item.kind, item.lines[0]) for item in found.items] == [
        ("forward", "input", "x"),
        ("forward", "input", "w"),
        ("forward", "output", "output = x @ w"),
        ("saved", "saved", "x"),
        ("saved", "saved", "w"),
        ("backward", "input", "grad_output"),
        ("backward", "gradient", "grad_x = grad_output @ w.mT"),
        ("backward", "gradient", "grad_w = x.mT @ grad_output"),
    ]
    assert found.items[3].detail == ("4 * (N*D) bytes", "for grad_w")
    assert (found.here, found.eager) == ("4 * (N*D + D*E)", "4 * (N*D + D*E)")
    assert "w -> grad_x = grad_output @ w.mT" in edges(found)
    assert edges(found).count("x -> x") == 1


def test_a_scalar_is_one_element() -> None:
    assert drawn("x[N, D]", "x / x.norm()").eager == "4 * (N*D + 1)"


def test_what_is_kept_of_a_shape_is_read_on_ctx() -> None:
    found = drawn("x[..., D], bias[D]", "x + bias")
    (kept,) = (item for item in found.items if item.lines[0].startswith("ctx."))
    assert kept.detail == ("no tensor",)
    assert any(
        line.startswith(f"{kept.lines[0]} -> grad_bias") for line in edges(found)
    )


def test_a_forward_that_stays_as_it_is_has_its_lines() -> None:
    loop = "h = x\nfor t in range(9):\n    h = torch.tanh(h)\nreturn h"
    found = drawn("x[N]", loop)
    assert any("for t in range(9):" in item.lines for item in found.items)
    assert found.here == ""


@pytest.mark.parametrize("case", CASES[::4], ids=lambda case: case.name)
def test_items_read_what_stands_before_them(case: Case) -> None:
    found = drawn(case.inputs, case.forward, outputs=case.outputs)
    for at, item in enumerate(found.items):
        assert all(one < at for one in item.reads)
        assert item.lines and all(item.lines)
    parts = [item.part for item in found.items]
    assert parts == sorted(parts, key=("forward", "saved", "backward").index)


def test_a_sole_gradient_has_its_name_in_the_backward() -> None:
    """Beside an input `output` it is not `grad_output`: that is the gradient of this input."""
    found = drawn("output[N]", "output * 2", outputs="y[N]")
    assert "grad_y -> grad_output = 2 * grad_y" in edges(found)
