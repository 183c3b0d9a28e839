"""What `benchmarks.derive` measures, on the smallest of its ops."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from benchmarks.derive import compiled, generated, measured, prepared
from benchmarks.derive_native import frozen_one_by_one
from benchmarks.derive_ops import OPS, POLICIES
from benchmarks.derive_report import COMPILED

BY_NAME = {op.name: op for op in OPS}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_frozen_inputs_save_no_more_than_the_native_op(op: Any) -> None:
    functions = {policy: generated(op, policy) for policy in POLICIES}
    arguments, leaves = prepared(op)
    cases = list(frozen_one_by_one(op, functions, arguments, leaves))
    assert [case for case in cases if case.missed] == []
    assert len(cases) == (len(leaves) if op.native and len(leaves) > 1 else 0)


def test_without_a_compiler_the_column_is_empty_and_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            raise RuntimeError("no compiler\nand more")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    op = BY_NAME["rotary"]
    arguments, leaves = prepared(op)
    reason = "RuntimeError: no compiler"
    assert compiled(op, arguments, list(leaves.values())) == reason
    row = measured(op, 1, with_compiled=True)
    assert row.refused[COMPILED] == reason
    assert COMPILED not in row.times
