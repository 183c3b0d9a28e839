"""Backwards that read as a person would write them: for each forward the text that is wanted, and its gradients against autograd's."""

import re

from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import backward_of


def backward(inputs: str, forward: str, *calls: tuple[object, ...]) -> str:
    """The body of the backward; forward and gradients are those of autograd, under both policies."""
    return backward_of(check_forward(inputs, forward, calls))


def locals_of(text: str) -> set[str]:
    return set(re.findall(r"(?m)^ *(\w+)(?:: \w+)? = ", text))


def test_values_are_called_by_their_operands() -> None:
    text = backward(
        "x1[N, D], x2[N, D], cos[D], sin[D]",
        "return torch.tanh(x1 * cos) + torch.sin(x2 * sin)",
        (tensor(3, 4), tensor(2, 4)[:1].expand(3, 4), tensor(4), tensor(4) + 1),
        (tensor(0, 4), tensor(0, 4), tensor(4), tensor(4) + 1),
    )
    assert locals_of(text) & {"grad_x1_cos", "grad_x2_sin"}


def test_parts_are_called_by_their_place() -> None:
    text = backward(
        "p[N, 4]",
        "return torch.exp(p[:, 2] * torch.sin(p[:, 0])) + torch.exp(p[:, -1])",
        (tensor(3, 4),),
        (tensor(0, 4),),
        (tensor(4, 6).t()[:, :4],),
    )
    assert {"grad_p2", "grad_p0"} < locals_of(text)


def test_a_product_with_the_cotangent_is_called_by_its_factor() -> None:
    text = backward(
        "q[N, D], k[N, D], v[N, D]",
        "s = torch.tanh(q * k)\nreturn (s * v + torch.sin(q * v)).sum(-1)",
        (tensor(3, 4), tensor(3, 4) + 1, tensor(3, 4) - 1),
        (tensor(3, 0), tensor(3, 0), tensor(3, 0)),
    )
    assert not locals_of(text) & {"weighted_grad", "slope", "grad_slope", "rest"}
