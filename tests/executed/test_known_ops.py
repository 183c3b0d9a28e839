"""The generated tests of all known ops pass, or the notes of the run that made them say which cannot and why.

In: the development cases, the published forwards and the ops of others. Out: for each the files that `scaffold new-op` writes, and
what became of its tests.

Run over everything, which takes most of an hour of one core, with a line for each failure at the end:

    pytest tests/executed/test_known_ops.py -m exhaustive --tb=no -q

`-k published`, `-k 'balanced and others'` or `--maxfail` take a part of it.
"""

import re
from pathlib import Path
from typing import Any

import pytest

from scaffold.derive import derive
from scaffold.render.files import render
from scaffold.render.layout import Directories
from scaffold.render.verification import verification
from scaffold.spec import OpSpec
from tests.derive.building import spec_of
from tests.derive.cases import CASES, Case
from tests.derive.ops_of_others import OPS
from tests.derive.published import PUBLISHED
from tests.executed.proving import prove
from tests.executed.suites import Suites

KNOWN = {
    **{f"cases-{case.name}": case for case in CASES},
    **{f"published-{case.name}": case for case in PUBLISHED},
    **{f"others-{case.name}": case for case in OPS},
}
SETTINGS: dict[str, dict[str, Any]] = {
    "recompute": {},
    "balanced": {"save_policy": "balanced"},
    "combined": {"style": "combined"},
}
REFUSED = re.compile(r"the forward refuses the tests' case '([^']+)'")


def known_spec(case: Case, setting: str, require: tuple[str, ...] = ()) -> OpSpec:
    options = SETTINGS[setting] | ({"require": list(require)} if require else {})
    return spec_of(
        case.inputs,
        name=case.name.lower(),
        forward=case.forward,
        outputs=case.outputs,
        derive=True,
        **options,
    )


def make_files(
    case: Case, setting: str, directory: Path
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Write what `new-op` writes, with sizes as its proof wants them; the answer of the proof, and what is left to write."""
    spec = known_spec(case, setting)
    found = _proved(spec)
    if found["wanted"]:
        spec = known_spec(case, setting, tuple(found["wanted"]))
        found = _proved(spec)
    derivation = derive(spec)
    for path, text in render(spec, derivation, Directories()).items():
        (directory / path).write_text(text)
    return found, tuple(derivation.missing)


def _proved(spec: OpSpec) -> dict[str, Any]:
    derivation = derive(spec)
    if derivation.missing:
        return {"failure": None, "notes": [], "wanted": []}
    texts = verification(spec, derivation, derivation.derived)
    return prove(texts.op, texts.checks)


@pytest.mark.exhaustive
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", KNOWN)
def test_generated_tests_pass(
    name: str, setting: str, tmp_path: Path, suites: Suites
) -> None:
    proof, missing = make_files(KNOWN[name], setting, tmp_path)
    if missing and setting == "combined":
        pytest.skip("autograd differentiates it, which wants setup-context")
    assert not missing
    assert not proof["failure"], f"refused: {proof['failure']}"
    report = suites.run(tmp_path, "--tb=short")
    told = {found[1] for note in proof["notes"] if (found := REFUSED.search(note))}
    failed = [
        test
        for outcome in ("failed", "error")
        for test in report.named(outcome)
        if not any(f"[{case}" in test or f"{case}]" in test for case in told)
    ]
    assert not failed, f"{failed}\n{proof['notes']}\n{report.output}"
    assert report.counts["passed"] >= 3
