"""The kernels in Triton's interpreter are right: each input alone, rows of many sizes, with strides, in three dtypes."""

from typing import Any

import pytest

from tests.kernels.ops import OPS
from tests.kernels.running import told_by

pytestmark = pytest.mark.triton
SPECS = [op.spec(name) for name, op in OPS.items()]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What a process with the interpreter says of each op."""
    pytest.importorskip("triton")
    lines = told_by(
        "interpreted", tmp_path_factory.mktemp("ops"), SPECS, interpreted=True
    )
    return {item["name"]: item for item in lines}


@pytest.mark.parametrize("name", OPS)
def test_kernels_compute_what_autograd_does(
    name: str, told: dict[str, dict[str, Any]]
) -> None:
    assert told[name]["wrong"] == []
    assert told[name]["calls"]


def test_nan_for_a_target_of_no_class_nothing_for_an_unwanted_gradient_and_each_in_its_dtype(
    told: dict[str, dict[str, Any]],
) -> None:
    assert told["beside"]["wrong"] == []
