"""The generated tests of all known ops pass, or the notes of the run that made them say which cannot and why.

In: the development cases, the published forwards and the ops of others. Out: for each the files that `scaffold new-op` writes, and
what became of its tests.

Run over everything, which takes most of an hour of one core, with a line for each failure at the end:

    pytest tests/executed/test_known_ops.py -m exhaustive --tb=no -q

`-k published`, `-k 'balanced and others'` or `--maxfail` take a part of it.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from scaffold.errors import ScaffoldError
from scaffold.spec import OpSpec
from scaffold.spec.build import build
from tests.derive.building import locate
from tests.derive.cases import CASES, Case
from tests.derive.ops_of_others import OPS
from tests.derive.published import PUBLISHED
from tests.executed.proving import write_op
from tests.executed.suites import Suites

KNOWN = {
    **{f"cases-{case.name}": case for case in CASES},
    **{f"published-{case.name}": case for case in PUBLISHED},
    **{f"others-{case.name}": case for case in OPS},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "recompute": {"save-policy": "recompute"},
    "balanced": {},
    "combined": {"style": "combined"},
}
UNFIT = re.compile(r"refuses the tests' case|cannot pass")
SAMPLES = """
def make():
    torch.manual_seed(7)
    return torch.load({path!r})
"""


def known_spec(
    case: Case, setting: str, said: Mapping[str, Any], samples: str = ""
) -> OpSpec:
    raw: dict[str, Any] = {
        "inputs": case.inputs,
        "outputs": case.outputs,
        "forward": case.forward,
        "derive": True,
        **SETTINGS[setting],
        **said,
    }
    raw |= {"samples": "@samples.py:make"} if samples else {}
    return build(case.name.lower(), raw, locate, read=lambda path: samples)


def write_known(directory: Path, case: Case, setting: str) -> dict[str, Any]:
    """As a user does: where the run says that the tests want inputs of one's own, these are given."""
    found = write_op(directory, lambda said: known_spec(case, setting, said))
    if found["failure"] or any(map(UNFIT.search, found["notes"])):
        torch.manual_seed(7)
        path = directory / "samples.pt"
        torch.save(case.samples(), path)
        text = SAMPLES.format(path=str(path))
        found = write_op(directory, lambda said: known_spec(case, setting, said, text))
    return found


@pytest.mark.exhaustive
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", KNOWN)
def test_generated_tests_pass(
    name: str, setting: str, tmp_path: Path, suites: Suites
) -> None:
    try:
        found = write_known(tmp_path, KNOWN[name], setting)
    except ScaffoldError as error:
        if "a forward in combined style cannot" not in error.message:
            raise
        pytest.skip(error.message)
    if found["missing"] and setting == "combined":
        pytest.skip("autograd differentiates it, which wants setup-context")
    assert not (found["missing"] or found["failure"])
    assert not any(map(UNFIT.search, found["notes"])), found["notes"]
    report = suites.run(tmp_path, "--tb=short")
    failed = [*report.named("failed"), *report.named("error")]
    assert not failed, f"{failed}\n{report.output}"
    assert report.counts["passed"] >= 3
