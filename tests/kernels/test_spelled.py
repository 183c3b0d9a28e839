"""Every spelling in Triton computes the same as PyTorch, at zeros, halves, infinities and NaN too."""

from typing import Any

import pytest

from tests.kernels.running import told_by
from tests.kernels.spellings import spelled_ops

pytestmark = pytest.mark.triton
OPS = spelled_ops()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Return the findings of a process with the interpreter, by op."""
    pytest.importorskip("triton")
    directory = tmp_path_factory.mktemp("ops")
    lines = told_by("spelled", directory, OPS.values(), interpreted=True)
    return {item["name"]: item for item in lines}


@pytest.mark.parametrize("name", OPS)
def test_a_spelling_computes_the_same_as_pytorch(
    name: str, told: dict[str, dict[str, Any]]
) -> None:
    assert told[name]["wrong"] == []
    assert told[name]["count"]
