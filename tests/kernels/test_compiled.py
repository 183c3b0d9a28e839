"""The kernels compile for GPUs that are not here, read and write each row once, and keep it in registers."""

from typing import Any

import pytest

from scaffold.errors import Location
from scaffold.kernels.row_program import Name, RowProgram, Value, inner
from scaffold.kernels.triton import triton_kernels
from tests.kernels.ops import OPS
from tests.kernels.running import told_by
from tests.kernels.test_row_program import reads

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
    whole = [item for item in mine if not item["alone"]]
    assert len(whole) == 3 * sum(program is not None for program in programs.values())
    for item in whole:
        program = programs[item["direction"]]
        assert program is not None
        assert item["cubin"]
        assert item["loads"] == reads(program), item
        assert item["stores"] == sum(len(one.pieces) for one in program.results), item
        assert item["spilled"] == 0, item


def reached(program: RowProgram, value: Value) -> set[str]:
    """The names that a value is computed of."""
    if isinstance(value, Name):
        lines = (x.value for x in program.lines if x.name == value.text)
        return {value.text}.union(*(reached(program, x) for x in lines))
    return set().union(*(reached(program, item) for item in inner(value)))


@pytest.mark.parametrize("name", OPS)
def test_a_gradient_alone_reads_and_writes_only_what_it_needs(
    name: str, told: list[dict[str, Any]]
) -> None:
    pair, _ = triton_kernels(OPS[name].spec(name), Location(name))
    alone = {x["alone"]: x for x in told if x["name"] == name and x["alone"]}
    results = pair.backward.results if pair.backward else ()
    assert len(alone) == (len(results) if len(results) > 1 else 0)
    for item in results if alone else ():
        assert pair.backward is not None
        names = {x for _, v in item.pieces for x in reached(pair.backward, v)}
        loads = [x for x in pair.backward.loads if x.name in names]
        found = alone[f"NEEDS_{item.name.upper()}"]
        assert found["loads"] == len(loads), item.name
        assert found["stores"] == len(item.pieces), item.name


def test_a_float_is_an_argument_and_exact_in_float64(
    told: list[dict[str, Any]],
) -> None:
    (found,) = (item for item in told if item["name"] == "floats")
    assert found == {
        "name": "floats",
        "torch.float32": 1,  # a kernel for all numbers
        "argument of torch.float32": True,
        "constant of torch.float32": False,
        "torch.float64": 2,
        "argument of torch.float64": False,
        "constant of torch.float64": True,
    }


def test_another_number_of_rows_needs_no_other_kernel(
    told: list[dict[str, Any]],
) -> None:
    (found,) = (item for item in told if item["name"] == "rows")
    assert found["kernels"] == 1
