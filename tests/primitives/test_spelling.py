"""What a call is looked up by, and what its parameters are called."""

import pytest

from scaffold.primitives.spelling import (
    full_name,
    is_bare,
    key_of,
    normalized,
    parameters,
)


def test_a_long_name_and_its_short_one() -> None:
    assert normalized("torch.nn.functional.silu") == "F.silu"
    assert normalized("nn.functional.silu") == "F.silu"
    assert normalized("torch.exp") == full_name("torch.exp") == "torch.exp"
    assert full_name("F.silu") == "torch.nn.functional.silu"


@pytest.mark.parametrize(
    ("head", "key"),
    [
        ("torch.exp(x)", ("function", "torch.exp")),
        ("torch.nn.functional.silu", ("function", "F.silu")),
        ("method", ("method", "exp")),
        ("x.sum(dim=None)", ("method", "sum")),
        ("x.mT", ("attribute", "mT")),
        ("cube(x)", ("function", "cube")),
        ("x + y", ("operator", "+")),
        ("x // y", ("operator", "//")),
        ("-x", ("operator", "-")),
        ("x[index]", ("subscript", "[]")),
        ("", None),
        ("x y", None),
    ],
)
def test_what_an_entry_is_looked_up_by(head: str, key: tuple[str, str] | None) -> None:
    assert key_of(head, "torch.exp(x)") == key


@pytest.mark.parametrize(
    ("call", "names"),
    [
        ("torch.add(x, y, *, alpha=1)".replace("*, ", ""), ("x", "y", "alpha")),
        ("x.sum(dim=None, keepdim=False)", ("x", "dim", "keepdim")),
        ("torch.stack(*xs, dim=0)", ("xs", "dim")),
        ("y - x", ("y", "x")),
        ("F.silu(x)", ("x",)),
    ],
)
def test_the_names_of_parameters_come_in_order(
    call: str, names: tuple[str, ...]
) -> None:
    assert parameters(call) == names


def test_an_entry_without_parentheses_has_the_parameters_of_the_call() -> None:
    assert is_bare("method") and is_bare("torch.ops.aten.exp")
    assert not is_bare("torch.exp(x)") and not is_bare("x + y")
