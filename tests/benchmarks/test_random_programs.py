"""What counts the fate of random programs sees what is wrong, broken or refused."""

from pathlib import Path

import pytest

from benchmarks import random_programs
from benchmarks.random_programs import Op, Tally, judge, run, ways_of
from scaffold.spec.toml import op_table
from tests.derive.building import op_text


def written(op: Op) -> str:
    keys = {key.replace("-", "_"): value for key, value in op.keys.items()}
    return op_text(name=op.name, **keys)


def first() -> Op:
    return next(iter(ways_of(0)))


def test_a_program_is_written_down_in_four_ways() -> None:
    ops = list(ways_of(0))
    assert [op.keys["save-policy"] for op in ops] == ["recompute", "balanced"] * 2
    assert ["[" in op.keys["inputs"] for op in ops] == [True, True, False, False]
    assert len({op.name for op in ops}) == 4


def test_what_is_right_counts_by_how_it_came_about() -> None:
    tally = Tally()
    judge(first(), written(first()), tally)
    assert not tally.failed
    assert tally.ways == {"direct": 1}


def test_a_planted_mistake_is_seen() -> None:
    text = written(first())
    lines = [line for line in text.splitlines() if "            grad_" in line]
    broken = text.replace(lines[-1], f"{lines[-1].replace(' = ', ' = 2 * (')})")
    tally = Tally()
    judge(first(), broken, tally)
    assert list(tally.wrong) == [first().name]
    judge(first(), "import (", tally)
    assert list(tally.broken) == [first().name]


def test_what_is_refused_is_left_out_and_the_rest_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad, also = list(ways_of(0))[:3]
    asked: list[list[str]] = []

    def sync(directory: Path, ops: list[Op], tally: Tally) -> dict[str, object]:
        asked.append([op.name for op in ops])
        (directory / "ops").mkdir(exist_ok=True)
        for op in ops:
            (directory / "ops" / f"{op.name}.py").write_text(written(op))
        if bad not in ops:
            return {"problems": []}
        (directory / "ops" / f"{bad.name}.py").unlink()
        second = op_table(good.name, good.keys).count("\n") + 3
        return {"problems": [{"line": second, "message": "grad_x: wrong"}]}

    monkeypatch.setattr(random_programs, "sync", sync)
    tally = Tally()
    run(tmp_path, [good, bad, also], tally)
    assert tally.refused == {bad.name: "grad_x: wrong"}
    assert asked[1] == [good.name, also.name]
    assert tally.ways.total() == 2
