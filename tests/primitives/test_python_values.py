"""What is a Python value of a tensor is one in torch, and nothing stands in two of the sets."""

import torch

from scaffold.primitives.calls import facts_of_call
from scaffold.primitives.python_values import (
    ATTRIBUTES,
    DTYPES,
    FUNCTIONS,
    METADATA,
    METADATA_METHODS,
    METHODS,
    READ_OUT,
)

ARGUMENTS = {"allclose": 1, "equal": 1, "is_same_size": 1, "is_set_to": 1}


def test_no_method_or_attribute_gives_a_tensor() -> None:
    x = torch.ones(1)
    for name in METHODS:
        value = getattr(x, name)(*[x] * ARGUMENTS.get(name, 0))
        assert not isinstance(value, torch.Tensor), name
    for name in ATTRIBUTES:
        value = getattr(x, name)
        assert not callable(value) and not isinstance(value, torch.Tensor), name


def test_each_stands_in_one_set() -> None:
    assert not METHODS & ATTRIBUTES
    assert not any(hasattr(torch.Tensor, name) for name in FUNCTIONS - {"device"})
    assert all(hasattr(torch, name) for name in FUNCTIONS)
    assert {*METADATA_METHODS.values()} <= METADATA <= ATTRIBUTES
    assert READ_OUT <= METHODS


def test_none_of_them_is_in_the_table() -> None:
    assert not [name for name in METHODS | ATTRIBUTES if facts_of_call(name)]


def test_dtypes_have_the_kind_that_torch_says() -> None:
    for name, kind in DTYPES.items():
        dtype = getattr(torch, name)
        real = "real" if dtype.is_floating_point else "int"
        found = "complex" if dtype.is_complex else real
        assert kind == ("bool" if dtype is torch.bool else found), name
