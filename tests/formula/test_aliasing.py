"""The memory that values share and names hold, and changes in place."""

import pytest

from scaffold.formula import Node, Trace, changed_in_place, copied, same_tensor, sharing
from tests.formula.parsing import formula


def value(source: str) -> Node:
    result = formula(source, names="x y w p h f", optional="").result
    assert result is not None
    return result


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


def trace(source: str) -> Trace:
    return Trace(
        formula(f"{source}\nreturn x", names="x y p", optional="").statements, sharing
    )


def outside(held: Trace, name: str) -> set[str]:
    return {part for part in held.of(name) if not part.startswith("@")}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("h = x", {"x"}),
        ("h = x.t()", {"x"}),
        ("h = x\nk = h[0]\nh = k", {"x"}),
        ("h = x + 1", set()),
        ("h = x\nh = h + 1", set()),
        ("a, h = y, x", {"x"}),
        ("a, h = x.chunk(2)", {"x"}),
        ("h = x if p else y", {"x", "y"}),
        ("if p:\n    h = x\nelse:\n    h = y + 1", {"x"}),
        ("h = y + 1\nif p:\n    h = x", {"x"}),
        ("h = x\nh += 1", {"x"}),
        ("h = (x + 1).t()", set()),
    ],
)
def test_memory_from_outside(source: str, expected: set[str]) -> None:
    assert outside(trace(source), "h") == expected


def test_what_is_made_inside_is_told_apart() -> None:
    held = trace("h = x + 1\nk = h.t()\ng = x + 1")
    assert held.of("h") == held.of("k")
    assert not held.of("h") & held.of("g")


@pytest.mark.parametrize(
    ("source", "name", "holders", "from_outside"),
    [
        ("h = x + 1\nh += 1", "h", {"h"}, set()),
        ("h = x + 1\nk = h[0]\nk += 1", "k", {"h", "k"}, set()),
        ("h = x\nh += 1", "h", {"h", "x"}, {"x"}),
        ("h = x.view(-1)\nh.mul_(2)", "h", {"h", "x"}, {"x"}),
        ("x = x + 1\nx += 1", "x", {"x"}, set()),
        ("h = x\nx = y + 1\nh += 1", "h", {"h"}, {"x"}),
        ("h = x + 1\nh[0] = y", "h", {"h"}, set()),
        ("k = x.exp_()", "x", {"x"}, {"x"}),
        ("if p:\n    h = x\nelse:\n    h = y + 1\nh += 1", "h", {"h", "x"}, {"x"}),
    ],
)
def test_a_change_in_place(
    source: str, name: str, holders: set[str], from_outside: set[str]
) -> None:
    (change,) = trace(source).changes
    assert change.name == name
    assert change.holders == holders
    assert change.outside == from_outside


def test_changes_in_branches_count() -> None:
    changes = trace("h = x + 1\nif p:\n    h += 1\nelse:\n    h *= 2").changes
    assert [change.position for change in changes] == [1, 1]


def test_copies_alone() -> None:
    parsed = formula("h = x\nk = x.contiguous()\nreturn h", names="x", optional="")
    held = Trace(parsed.statements, copied)
    assert outside(held, "h") == {"x"}
    assert not outside(held, "k")


def test_names_of_changed_memory() -> None:
    held = trace("h = x.view(-1)\nk = y + 1\nh.mul_(2)\nk += 1")
    assert held.changed == {"h", "x", "k"}
    assert held.changed_outside == {"x"}
