"""Ops for tests of verification, right and wrong.

In: raw specs. Out: the two texts that a verification runs, and its verdict, which is found in this process.
"""

from typing import Any
from unittest.mock import patch

from scaffold.derive import derive
from scaffold.render.verification import OP_MODULE, Verification, verification
from scaffold.verify import Verdict
from scaffold.verify.child.checking import WATCHED, check
from scaffold.verify.child.modules import load
from scaffold.verify.prover import read_verdict
from tests.derive.building import draft_of, spec_of

LINEAR: dict[str, Any] = {
    "inputs": "input[..., I], weight[O, I], bias[O]?",
    "forward": "input @ weight.t() + bias",
}
LINEAR_GRAD = {
    "input": "grad_output @ weight",
    "weight": "grad_output.flatten(0, -2).t() @ input.flatten(0, -2) "
    "if input.ndim > 1 else torch.outer(grad_output, input)",
    "bias": "grad_output.sum_to_size(bias.shape)",
}


def texts(derived: frozenset[str] = frozenset(), **raw: Any) -> Verification:
    """What the verification of an op runs; the op is not formatted, which takes longer than to derive it."""
    spec = spec_of(**raw)
    with patch("scaffold.render.verification.op_file", lambda *op: draft_of(*op[:2])):
        return verification(spec, derive(spec), derived)


def verdict(derived: frozenset[str] = frozenset(), **raw: Any) -> Verdict:
    return judged(*texts(derived, **raw))


def judged(op: str, checks: str) -> Verdict:
    """What the process says that verifies an op, without starting it."""
    load(OP_MODULE, op)
    answer = check(load("verified_checks", checks, WATCHED))
    found = read_verdict(answer)
    assert found is not None, answer
    return found


def failure(**raw: Any) -> str:
    """The first failure in one line."""
    found = verdict(**raw).failure
    return f"{found.subject}: {found.words}" if found else "no failure"
