"""The kernels compile for GPUs that are not here, read and write each row once, and keep it in registers."""

from typing import Any

import pytest

from scaffold.errors import Location
from scaffold.kernels.triton import triton_kernels
from tests.kernels.ops import OPS
from tests.kernels.running import told_by

pytestmark = pytest.mark.triton
SPECS = [op.spec(name) for name, op in OPS.items()]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the compiler says of each kernel, for each GPU."""
    pytest.importorskip("triton")
    return told_by("compiled", tmp_path_factory.mktemp("ops"), SPECS, interpreted=False)


@pytest.mark.parametrize("name", OPS)
def test_each_kernel_compiles_and_reads_each_row_once(
    name: str, told: list[dict[str, Any]]
) -> None:
    pair, _ = triton_kernels(OPS[name].spec(name), Location(name))
    programs = {"forward": pair.forward, "backward": pair.backward}
    mine = [item for item in told if item["name"] == name]
    assert len(mine) == 2 * sum(program is not None for program in programs.values())
    for item in mine:
        program = programs[item["direction"]]
        assert program is not None
        assert item["cubin"]
        assert item["loads"] == len(program.loads), item
        assert item["stores"] == sum(len(one.pieces) for one in program.results), item
        assert item["spilled"] == 0, item
