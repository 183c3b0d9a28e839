"""What the installed PyTorch says of names that the shipped table does not have."""

import pytest

from scaffold.verify.child.newer import no_operator


@pytest.mark.parametrize(
    "name",
    [
        "torch.save",
        "torch.os",
        "torch.hub",
        "torch.nn.functional.warnings",
        "torch.seed",
    ],
)
def test_what_is_there_and_no_operator_fails(name: str) -> None:
    found = no_operator(["torch.exp", name])
    assert found is not None
    assert found["words"].startswith(f"'{name}' is no operator of PyTorch 2")


@pytest.mark.parametrize(
    "name",
    ["torch.exp", "torch.nn.functional.pad", "torch.linalg.norm", "torch.newest"],
)
def test_operators_and_what_is_not_there_run(name: str) -> None:
    assert no_operator([name]) is None
