"""The report of derived ops: what it calls missed, and that no candidate drops out unseen."""

from benchmarks.derive_report import Figures, Row, mean_line, missed, notes, row_line


def row(name: str = "some_op", **figures: Figures) -> Row:
    return Row(name, 1.0, figures, {})


def test_what_meets_its_targets_is_not_missed() -> None:
    fine = Figures(0.8, 1.0, 0.6, 1.0)
    assert missed([row(balanced=fine, recompute=fine, once=fine)]) == []


def test_means_and_single_ops_are_missed() -> None:
    found = missed(
        [
            row("one", balanced=Figures(1.3, 1.0, 0.6)),
            row("two", balanced=Figures(0.8, 1.0, 0.6, 1.04)),
            row("rms_norm", balanced=Figures(0.8, 1.0, 0.6, 1.04)),
        ]
    )
    assert found == [
        "balanced time of one: 1.30 > 1.2",
        "balanced frozen of two: 1.04 > 1.0",
    ]
    (mean,) = missed([row(once=Figures(1.0))])
    assert mean == "once time: 1.00 > 0.85, some_op 1.00"


def test_a_mean_is_over_the_ops_that_have_the_figure() -> None:
    rows = [row(once=Figures(0.5, saved=2.0)), row(once=Figures(2.0)), row()]
    assert mean_line(rows, ["once"]).split("|")[1].split() == ["1.00", "-", "2.00", "-"]
    assert row_line(rows[2], ["once"]).split("|")[1].strip() == ""


def test_who_takes_no_part_is_named_with_the_reason() -> None:
    (told,) = notes([Row("some_op", 1.0, {}, {"torch.compile": "no compiler"})])
    assert told == "n/a: torch.compile, no compiler: some_op"
