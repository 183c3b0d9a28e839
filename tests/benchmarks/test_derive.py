"""What `benchmarks.derive` measures, on ops of a few elements."""

import pytest

from benchmarks.derive import (
    CANDIDATES,
    COMPILED,
    NATIVE,
    PLAIN,
    measured,
    setting_of,
    variants,
)
from benchmarks.derive_ops import OPS, POLICIES, Op
from scaffold.verify.bench import Bench
from scaffold.verify.child.measuring import Call

BY_NAME = {op.name: op for op in OPS}
NONE = {"threads": 1, "path": (), "modules": ()}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("op", [op for op in OPS if op.native], ids=lambda op: op.name)
def test_frozen_inputs_save_no_more_than_autograd(op: Op) -> None:
    """Of `recompute` than the native op. Nor is any other text than the op's measured."""
    setting = setting_of(op)._asdict()
    found, refused = variants(op, compiled=False)
    assert not refused
    calls = {
        item.name: Call({**item._asdict(), **setting, **NONE}).described()
        for item in found
        if item.name in (*POLICIES, PLAIN, NATIVE)
    }
    plain, native = (calls.pop(name) for name in (PLAIN, NATIVE))
    for name, call in calls.items():
        most = (native if name == "recompute" else plain)["saved_bytes_without"]
        for frozen, size in call["saved_bytes_without"].items():
            assert size <= 1.01 * most[frozen], (name, frozen)


@pytest.mark.each_commit
def test_a_row_has_each_candidates_figures() -> None:
    op = BY_NAME["rms_norm"]._replace(sizes="...=2, D=8")
    with Bench([PLAIN, *CANDIDATES, NATIVE]) as bench:
        row = measured(bench, op, 1, compiled=False)
    assert [*row.figures] == [*CANDIDATES, NATIVE]
    for name in ("recompute", "once"):
        figures = row.figures[name]
        assert figures.graph and figures.frozen and figures.saved
        assert figures.saved < 1


def test_what_is_not_compiled_is_told() -> None:
    with_it, _ = variants(BY_NAME["rotary"], compiled=True)
    assert [item.name for item in with_it] == [PLAIN, *CANDIDATES, COMPILED]
