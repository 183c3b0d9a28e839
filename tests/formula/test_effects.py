"""What statements assign and change in place, and whose memory a value shares."""

import pytest

from scaffold.formula import (
    Assign,
    Node,
    Statement,
    arguments_of,
    changed_in_place,
    copied,
    keywords,
    same_tensor,
    sharing,
)
from tests.formula.parsing import formula


def value(source: str) -> Node:
    result = formula(source, names="x y w p h f", optional="").result
    assert result is not None
    return result


def statement(source: str) -> Statement:
    (only,) = formula(f"{source}\nreturn x", names="x y w p h", optional="").statements
    return only


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("x.exp_()", {"x"}),
        ("x.view(-1).exp_()", {"x"}),
        ("x[0].T.exp_()", {"x"}),
        ("x.exp().mul_(2)", set()),
        ("x.clone().mul_(2)", set()),
        ("torch.exp_(x)", {"x"}),
        ("torch.exp_(input=x)", {"x"}),
        ("torch.nn.init.uniform_(x[0])", {"x"}),
        ("torch.exp(y, out=x)", {"x"}),
        ("F.relu(x, inplace=True)", {"x"}),
        ("F.relu(x, inplace=False)", set()),
        ("F.relu(x.contiguous(), inplace=True)", {"x"}),
        ("(x if p else y).exp_()", {"x", "y"}),
        ("x.exp_().mul_(y)", {"x"}),
        ("x.is_floating_point()", set()),
        ("f(x)", set()),
    ],
)
def test_what_an_expression_changes_in_place(source: str, names: set[str]) -> None:
    assert set(changed_in_place(value(source))) == names


@pytest.mark.parametrize(
    ("source", "shared", "same", "copy"),
    [
        ("x", {"x"}, {"x"}, {"x"}),
        ("x + y", set(), set(), set()),
        ("x.t()", {"x"}, set(), set()),
        ("torch.t(x)", {"x"}, set(), set()),
        ("x[0]", {"x"}, set(), set()),
        ("x.T", {"x"}, set(), set()),
        ("x.shape", set(), set(), set()),
        ("x.contiguous()", {"x"}, {"x"}, set()),
        ("x.sum_to_size(y)", {"x"}, {"x"}, set()),
        ("F.dropout(x, p)", {"x"}, {"x"}, set()),
        ("x.contiguous().view(-1)", {"x"}, set(), set()),
        ("x if p else y", {"x", "y"}, {"x", "y"}, {"x", "y"}),
        ("x.exp_()", {"x"}, {"x"}, {"x"}),
        ("x.clone()", set(), set(), set()),
        ("(x, y)", {"x", "y"}, {"x", "y"}, {"x", "y"}),
        ("x.exp().t()", set(), set(), set()),
        ("torch.einsum('ij->ji', x)", {"x"}, set(), set()),
        ("torch.einsum('ij,jk->ik', x, y)", set(), set(), set()),
    ],
)
def test_whose_memory_a_value_shares(
    source: str, shared: set[str], same: set[str], copy: set[str]
) -> None:
    node = value(source)
    assert sharing(node) == shared
    assert same_tensor(node) == same
    assert copied(node) == copy


def test_calls_that_return_their_argument_as_it_is() -> None:
    """The sets are what PyTorch does."""
    torch = pytest.importorskip("torch")
    x = torch.randn(2, 3)
    for source in (
        "x.contiguous()",
        "x.to(x.dtype)",
        "x.sum_to_size(2, 3)",
        "x.float()",
    ):
        assert eval(source) is x
        assert same_tensor(value(source.replace("2, 3", "y"))) == {"x"}
    for source in (
        "x.reshape(2, 3)",
        "x.flatten()",
        "x.squeeze(0)",
        "x.view(6)",
        "x[0]",
        "x.T",
    ):
        shared = eval(source)
        assert shared.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        assert sharing(value(source)) == {"x"}


def test_keywords_of_a_call() -> None:
    found = keywords(value("f(x, dim=y, **w)"))
    assert {name: node.label for name, node in found.items()} == {"dim": "y", "**": "w"}


def test_a_statement_for_its_effect_alone() -> None:
    item = statement("h.mul_(x)")
    assert isinstance(item, Assign)
    assert item.target.kind == "absent"


def test_arguments_are_given_by_place_and_by_name() -> None:
    found = arguments_of(value("f(x, h=y)"), ("a", "h"))
    assert {key: node.label for key, node in found.items()} == {"a": "x", "h": "y"}
