"""What a method changes in place, and whether it is a tensor for sure."""

import pytest

from scaffold.inspect.facts import changes
from tests.inspect.test_flow import analysed


def found(body: str) -> list[tuple[str, bool]]:
    _, values = analysed(body)
    return [(change.how, change.sure) for change in changes(values)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x += 1", [("augmented assignment", True)]),
        ("n += 1", [("augmented assignment", False)]),
        ("x[0] = 1", [("item assignment", True)]),
        ("x.exp_()", [(".exp_()", True)]),
        ("torch.exp(x, out=y)", [("exp(out=...)", True)]),
        ("torch.nn.functional.relu(x, inplace=True)", [("relu(inplace=True)", True)]),
        ("torch.nn.functional.relu(x, inplace=False)", []),
        ("x.copy_(x)", []),
        ("x.copy_(y)", [(".copy_()", True)]),
        ("z = x + 1", []),
    ],
)
def test_changes(body: str, expected: list[tuple[str, bool]]) -> None:
    assert found(f"{body}\nreturn x") == expected
