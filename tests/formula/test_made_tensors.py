"""What the tensor is that an `__init__` makes: its sizes, its elements."""

import ast

import pytest

from scaffold.formula.made_tensors import elements_of, sizes_of

KNOWN = {
    "mask": ast.parse("torch.tril(torch.ones(n, n))", mode="eval").body,
    "mask2": ast.parse("mask.view(1, n, n)", mode="eval").body,
    "mask3": ast.parse("mask3.bool()", mode="eval").body,
}


@pytest.mark.parametrize(
    ("made", "sizes", "elements"),
    [
        ("torch.ones(n, n).tril().bool()", "n, n", "bool"),
        ("torch.tril(torch.ones(n, n)) == 0", "n, n", "bool"),
        (
            "torch.triu(torch.ones((n, 4), dtype=torch.bool), diagonal=1)",
            "n, 4",
            "bool",
        ),
        ("torch.ones(n).to(torch.bool)", "n", "bool"),
        ("torch.ones(n).bool().to(device)", "", "bool"),
        ("~torch.eye(n, dtype=torch.bool) & torch.ones(n, n).bool()", "", "bool"),
        ("torch.tensor([True, False])", "", "bool"),
        ("torch.isfinite(torch.rand(n))", "n", "bool"),
        ("(torch.rand(n) > 0.5).view(1, n)", "1, n", "bool"),
        ("mask2 > 0", "1, n, n", "bool"),
        ("mask3", "", "bool"),
        ("mask.bool().float()", "n, n", ""),
        ("torch.zeros(n, dtype=torch.int64)", "n", "int"),
        ("torch.arange(n).unsqueeze(0)", "", "int"),
        ("torch.arange(n)[:, None] - torch.arange(n)[None]", "", "int"),
        ("torch.arange(0, n, 2).float() / n", "", ""),
        ("torch.arange(0.0, n)", "", ""),
        ("torch.arange(n / 2)", "", ""),
        ("torch.tensor(0)", "", "int"),
        ("torch.tensor([[0, -1], [n, 0]][0])", "", ""),
        ("torch.tensor([[0, -1], [1, 0]])", "", "int"),
        ("torch.tensor([1, 0.5])", "", ""),
        ("torch.cat((torch.arange(n), torch.rand(n)))", "", ""),
        ("torch.where(torch.rand(n) > 0.5, 0.0, -1.0)", "n", ""),
        ("torch.where(torch.rand(n) > 0.5, 0, 1)", "n", "int"),
        ("torch.ones(n).add(torch.ones(m, n))", "", ""),
        ("torch.arange(n).mul(0.5)", "", ""),
        ("torch.maximum(torch.arange(n), torch.arange(n))", "", "int"),
        ("torch.tensor(m)", "", ""),
        ("torch.rand(n) * 0.5", "n", ""),
        ("made(n)", "", ""),
        ("made(torch.arange(n))", "", ""),  # of an unknown function nothing is known
        ("torch.arange(n).unheard_of()", "", ""),
    ],
)
def test_sizes_and_elements(made: str, sizes: str, elements: str) -> None:
    node = ast.parse(made, mode="eval").body
    assert ", ".join(map(ast.unparse, sizes_of(node, KNOWN))) == sizes
    assert elements_of(node, KNOWN) == elements
