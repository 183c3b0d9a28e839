"""The forward as it stands in the op."""

from typing import Any

import pytest

from scaffold.derive import derive
from scaffold.errors import ScaffoldError
from scaffold.formula import emit, emit_lines
from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import spec_of


def body(
    forward: str, inputs: str = "x, y, bias?, scale?, p: float = 1.0", **raw: Any
) -> str:
    """The statements of the forward, and its return."""
    found = derive(spec_of(inputs, forward=forward, derive=False, **raw))
    assert found.forward is not None
    results = [emit(node) for node in (*found.results, *found.extra)]
    return "\n".join([*emit_lines(found.forward), f"return {', '.join(results)}"])


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        # an absent optional, as statements
        (
            "x @ y + bias",
            "output = x @ y\nif bias is not None:\n    output = output + bias\nreturn output",
        ),
        (
            "x @ y * scale + bias",
            (
                "output = x @ y\nif scale is not None:\n    output = output * scale\n"
                "if bias is not None:\n    output = output + bias\nreturn output"
            ),
        ),
        (
            "bias - x.exp()",
            "return bias - x.exp() if bias is not None else -x.exp()",
        ),
        (
            "torch.relu(x @ y + bias) * 2",
            "total = x @ y\nif bias is not None:\n    total = total + bias\nreturn torch.relu(total) * 2",
        ),
        (
            "h = x @ y - bias\nreturn h",
            "h = x @ y\nif bias is not None:\n    h = h - bias\nreturn h",
        ),
        (
            "(x.exp() * scale) + torch.sum(y.exp() * scale)",
            (
                "product = x.exp()\nif scale is not None:\n    product = product * scale\n"
                "product_2 = y.exp()\nif scale is not None:\n    product_2 = product_2 * scale\n"
                "return product + torch.sum(product_2)"
            ),
        ),
        # as an expression where a name alone is left
        ("x + bias", "return x + bias if bias is not None else x.clone()"),
        # never what a branch would have left out, nor with a change of order
        (
            "(x.exp() + bias) if p > 2 else y",
            "return (x.exp() + bias if bias is not None else x.exp()) if p > 2 else y.clone()",
        ),
        (
            "h = x * 1\nreturn h.mul_(2) * (h.exp() + bias)",
            "h = x * 1\nreturn h.mul_(2) * (h.exp() + bias if bias is not None else h.exp())",
        ),
        # an input stays what it was, as far as anything reads it
        ("x = x * 2\nreturn x + 1", "x = x * 2\nreturn x + 1"),
        ("h = x\nx = x * 2\nreturn x + h", "h = x\nx = x * 2\nreturn x + h"),
        ("p = p * 2\nreturn x * p", "new_p = p * 2\nreturn x * new_p"),
        ("p *= 2\nreturn x * p", "new_p = p * 2\nreturn x * new_p"),
        (
            "if p > 2:\n    x = x * 2\nreturn x + 1",
            "if p > 2:\n    x = x * 2\nreturn x + 1",
        ),
        # and is not returned
        ("x", "return x.clone()"),
        ("h = x\nreturn h", "h = x\nreturn h.clone()"),
        ("x if p > 2 else y * 2", "return x.clone() if p > 2 else y * 2"),
        (
            "if p > 2:\n    h = x\nelse:\n    h = y * 2\nreturn h",
            "if p > 2:\n    h = x.clone()\nelse:\n    h = y * 2\nreturn h",
        ),
        ("h = x\nh = h * 2\nreturn h", "h = x\nh = h * 2\nreturn h"),
        # lines that nothing needs
        ("h = x * 2\nk = h\nreturn y * 1", "return y * 1"),
        ("h, k = x.sin(), x.cos()\nreturn h", "h, _k = x.sin(), x.cos()\nreturn h"),
        (
            "h = torch.rand_like(x)\nreturn y * 1",
            "_h = torch.rand_like(x)\nreturn y * 1",
        ),
        (
            "if p > 2:\n    k = x\nelse:\n    h = x\nreturn y * 1",
            "return y * 1",
        ),
        (
            "h = x * 1\nif p > 2:\n    k = x\nelse:\n    h = y\nreturn h * 1",
            "h = x * 1\nif not p > 2:\n    h = y\nreturn h * 1",
        ),
        ("h = x * 1\nh.mul_(2)\nreturn h", "h = x * 1\nh.mul_(2)\nreturn h"),
    ],
)
def test_the_body_of_forward(forward: str, expected: str) -> None:
    assert body(forward) == expected


@pytest.mark.parametrize(
    ("outputs", "forward", "expected"),
    [
        ("a, b", "x * 2, x", "return x * 2, x.clone()"),
        ("a, b", "torch.sort(x)", "a, b = torch.sort(x)\nreturn a, b"),
        ("a, b", "h = x * 2\nreturn h, h", "h = x * 2\nreturn h, h.clone()"),
        (
            "a, b",
            "h = x * 2\nreturn h, h.contiguous()",
            "h = x * 2\nreturn h, h.contiguous().clone()",
        ),
        (
            "a, b",
            "a = x * 2\nreturn a + 1, a * 3",
            "inner_a = x * 2\nreturn inner_a + 1, inner_a * 3",
        ),
        (
            "a, b",
            "a = x * 2\nb = x * 3\nreturn b, a",
            "inner_a = x * 2\ninner_b = x * 3\nreturn inner_b, inner_a",
        ),
        ("*parts", "x.chunk(2)", "return x.chunk(2)"),
        ("*parts", "[x * 2, x]", "return (x * 2, x.clone())"),
        ("*parts", "torch.meshgrid(x, y)", "return torch.meshgrid(x, y)"),
        ("*parts", "torch.sort(x)", "return tuple(torch.sort(x))"),
        ("a, *parts", "x.sum(), x.chunk(2)", "return x.sum(), x.chunk(2)"),
        ("a, *parts", "return x.sum(), *x.chunk(2)", "return x.sum(), x.chunk(2)"),
        ("a, *parts", "x.sum(), x * 1, y * 1", "return x.sum(), (x * 1, y * 1)"),
        ("a, *parts", "torch.sort(x)", "a, *parts = torch.sort(x)\nreturn a, parts"),
    ],
)
def test_several_outputs(outputs: str, forward: str, expected: str) -> None:
    assert body(forward, outputs=outputs) == expected


def test_an_input_that_is_changed_is_returned_itself() -> None:
    assert body("x.exp_()", dirty=["x"]) == "x.exp_()\nreturn x"
    assert body("x += y\nreturn x", dirty=["x"]) == "x += y\nreturn x"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("grad_x = x * 2\nreturn grad_x", "x_grad = x * 2\nreturn x_grad"),
        (
            "grad_output = x * 2\nreturn grad_output",
            "output_grad = x * 2\nreturn output_grad",
        ),
        ("sort = x * 2\nreturn sort", "sort = x * 2\nreturn sort"),
        ("sum = sum([x, y])\nreturn sum", "new_sum = sum([x, y])\nreturn new_sum"),
    ],
)
def test_locals_that_hide_something(names: str, expected: str) -> None:
    assert body(names) == expected


def test_comments_stay() -> None:
    text = body("# the scale\nh = x * 2\n# the result\nreturn h + 1")
    assert text == "# the scale\nh = x * 2\nreturn h + 1"
    found = derive(spec_of("x", forward="h = x\n# the result\nreturn h + 1"))
    assert found.comments == ("the result",)


def test_too_few_values_for_the_outputs() -> None:
    with pytest.raises(ScaffoldError):
        body("x * 2, x * 3", outputs="a, b, c")


NO_GRAD = """
batch, width = x.shape
with torch.no_grad():
    count = x.shape[0]
    weight = (x - t).abs()
    best, index = weight.topk(2)
    mask = torch.zeros_like(x)
    mask[:, 0] = 1.0
rows = x.shape[0]
if rows > 1:
    weight = weight / rows
parts = [weight * (x - t) ** 2]
parts.append(mask * x * count)
return torch.cat(parts, -1).sum() + best.sum() / width + x.gather(1, index).sum()
"""


def test_what_is_computed_without_autograd_is_constant() -> None:
    inputs = "x[B, D], t[B, D]"
    calls = [(tensor(3, 4), tensor(3, 4) * 2)]
    text = check_forward(inputs, NO_GRAD, calls, derive=True)
    assert "        count = x.shape[0]\n" in text
    assert "        weight = (x - t).abs().detach()\n" in text
    assert not derive(spec_of(inputs, forward=NO_GRAD, derive=True)).notes


REBOUND = """
if up:
    n //= 2
y = x * n
n += y.shape[0]
with torch.no_grad():
    q = y.exp()
    q /= q.sum(0)
    q += t
return x * n * q
"""


def test_a_number_is_rebound_and_a_constant_may_change() -> None:
    inputs = "x[B, D], t[B, D], n: int = 8, up: bool = True"
    calls = [(tensor(3, 4), tensor(3, 4) * 2, 5, up) for up in (True, False)]
    text = check_forward(inputs, REBOUND, calls, derive=True)
    assert "new_n // 2" in text and "        q += t.detach()\n" in text
    assert not derive(spec_of(inputs, forward=REBOUND, derive=True)).notes


ALIASES = """
m = n
m //= 2
k = x.shape[0]
last = k
if last > 2:
    k += 1
return x * m * n * last * k
"""


def test_of_a_number_with_two_names_one_goes_to_another_number() -> None:
    calls = [(tensor(rows, 4), 5) for rows in (2, 3)]
    text = check_forward("x[B, D], n: int = 8", ALIASES, calls, derive=True)
    assert "m = m // 2" in text and "k = k + 1" in text
    assert not derive(
        spec_of("x[B, D], n: int = 8", forward=ALIASES, derive=True)
    ).notes


def test_a_list_with_two_names_is_one_list() -> None:
    assert "b += [3]" in body("a = [1, 2]\nb = a\nb += [3]\nreturn x * len(a)")


def test_what_a_tensor_is_multiplied_into_has_no_second_name() -> None:
    """`n` is a tensor by then, of which `m` is another name."""
    forward = "n = x * n\nm = n\nn *= 2\nreturn m.exp() + x"
    check_forward("x[B], n: float = 2.0", forward, [(tensor(3), 3.0)], derive=True)
