"""Which values are tensors: what is saved is one of them."""

import pytest

from scaffold.formula import ValueKinds
from tests.formula.parsing import formula

NAMES = "x y p n f tensors np"


def kinds() -> ValueKinds:
    return ValueKinds(["p", "n"], ["tensors"], ["np"])


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("x", "tensor"),
        ("x + 1", "tensor"),
        ("-x[0]", "tensor"),
        ("x > 0", "tensor"),
        ("f(x)", "tensor"),
        ("f.method(p)", "tensor"),
        ("torch.tensor(p)", "tensor"),
        ("x.real", "tensor"),
        ("sum(tensors)", "tensor"),
        ("max(x, y)", "tensor"),
        ("x if p else 1.0", "tensor"),
        ("x.numpy() if p else x", "array"),
        ("p * 2 + n ** 2", "scalar"),
        ("x.shape", "scalar"),
        ("x.shape[0] // n", "scalar"),
        ("x.shape[:-1] + (1,)", "scalar"),
        ("x.size(0)", "scalar"),
        ("x.sum().item()", "scalar"),
        ("x.tolist()", "scalar"),
        ("math.sqrt(x.shape[0])", "scalar"),
        ("len(x)", "scalar"),
        ("float(x)", "scalar"),
        ("max(n, 1)", "scalar"),
        ("x is None", "scalar"),
        ("not x", "scalar"),
        ("torch.finfo(x.dtype).eps", "scalar"),
        ("list(range(x.ndim - 1))", "scalar"),
        ("2 * math.pi * p", "scalar"),
        ("torch.inf", "scalar"),
        ("math.pi * x", "tensor"),
        ("(1, 2)", "scalar"),
        ("'sum'", "scalar"),
        ("x.chunk(2)", "group"),
        ("torch.unbind(x)", "group"),
        ("x.topk(2)", "group"),
        ("torch.linalg.qr(x)", "group"),
        ("x.max(-1)", "group"),
        ("x.exp().max(dim=n)", "group"),
        ("torch.max(x, 1)", "group"),
        ("x.max()", "tensor"),
        ("torch.max(x)", "tensor"),
        ("torch.max(x, y)", "tensor"),
        ("x.max(y)", "tensor"),
        ("x.max(-1).values.exp()", "tensor"),
        ("torch.where(x > 0)", "group"),
        ("torch.where(x > 0, x, y)", "tensor"),
        ("x.nonzero()", "tensor"),
        ("x.nonzero(as_tuple=True)", "group"),
        ("(x, y)", "group"),
        ("[x] * n", "tensor"),
        ("tensors", "group"),
        ("tensors[0]", "tensor"),
        ("x.chunk(2)[0].exp()", "tensor"),
        ("x.numpy()", "array"),
        ("np.exp(x.numpy()) + 1", "array"),
        ("torch.from_numpy(np.exp(p))", "tensor"),
    ],
)
def test_the_kind_of_an_expression(source: str, kind: str) -> None:
    result = formula(source, names=NAMES, optional="").result
    assert result is not None
    assert kinds().of(result) == kind


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("h = x.shape[0]", {"h": "scalar"}),
        ("a, b = x.shape", {"a": "scalar", "b": "scalar"}),
        ("a, b = x.chunk(2)", {"a": "tensor", "b": "tensor"}),
        ("a, *b = x.unbind()", {"a": "tensor", "b": "group"}),
        ("a, b = x.shape[0], x.exp()", {"a": "scalar", "b": "tensor"}),
        ("h = x.shape[0]\nh += 1", {"h": "scalar"}),
        ("h = 1\nh = x", {"h": "tensor"}),
        ("if p:\n    h = x\nelse:\n    h = None", {"h": "tensor"}),
        ("if p:\n    h = None\nelse:\n    h = x", {"h": "tensor"}),
        ("if p:\n    h = 1\nelse:\n    h = 2", {"h": "scalar"}),
        ("if p:\n    h = x.chunk(2)", {"h": "group"}),
    ],
)
def test_the_kinds_of_names(source: str, expected: dict[str, str]) -> None:
    parsed = formula(f"{source}\nreturn x", names=NAMES, optional="")
    found = kinds().after(parsed.statements)
    assert {name: found.of_name(name) for name in expected} == expected
