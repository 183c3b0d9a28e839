"""The report of derived ops: what it calls missed, and that no candidate drops out unseen."""

from benchmarks.derive_native import Frozen
from benchmarks.derive_report import COMPILED, Row, mean_lines, missed, notes


def row(time: float, size: float, *frozen: Frozen, **refused: str) -> Row:
    times = {"eager": 1.0, "recompute": 1.0, "balanced": time, COMPILED: 0.5}
    saved = {"eager": 1.0, "recompute": 0.5, "balanced": size, COMPILED: 0.8}
    return Row("some_op", 1.0, 1.0, times, saved, frozen, refused)


def test_what_meets_its_targets_is_not_missed() -> None:
    fine = Frozen("x", 100, {"recompute": 100, "balanced": 60})
    assert missed([row(0.5, 0.4, fine), row(1.2, 0.9)]) == []


def test_means_and_frozen_inputs_are_missed() -> None:
    more = Frozen("x", 100, {"recompute": 100, "balanced": 125})
    found = missed([row(1.5, 0.9, more)])
    assert [item.split(":")[0] for item in found] == [
        "balanced time",
        "balanced bytes",
        "balanced bytes of some_op without x",
    ]


def test_anything_is_more_than_nothing() -> None:
    assert Frozen("x", 0, {"balanced": 8}).missed == ("balanced",)


def test_means_are_also_those_over_torch_compile() -> None:
    _, beside = mean_lines([row(0.5, 0.4)], ["balanced"])
    assert beside.split("|")[1].split() == ["1.00", "0.50"]


def test_who_takes_no_part_is_named_with_the_reason() -> None:
    compiled, rival = notes([row(1, 1, compiled="no compiler")], with_rival=False)
    assert compiled == "n/a: compiled, no compiler: some_op"
    assert "not installed" in rival
