"""What `scaffold new-op` writes, without its start: proven in a child that is forked from this process, which has torch loaded.

In: a directory and the spec of an op. Out: its files there, and what the proof said. Invariant: nothing that the op does is seen here.
"""

import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from scaffold.derive import derive
from scaffold.render.layout import Directories
from scaffold.render.verification import verification
from scaffold.spec import OpSpec
from scaffold.verify.child.checking import check
from scaffold.verify.child.modules import load
from tests.render.formatted import op_files

LIMIT = 120  # seconds
# From what the proof wants of the tests: options as a spec has them, `require` or `test-shapes`.
Made = Callable[[Mapping[str, Any]], OpSpec]


def write_op(directory: Path, made: Made) -> dict[str, Any]:
    """Write an op's files, with the shapes and sizes that its proof wants; the answer of the proof, and what is `missing`."""
    spec = made({})
    found = _proved(spec)
    conditions = found.get("conditions", ())
    if found.get("shapes"):
        entries = (f"{name}[{dims}]" for name, dims in found["shapes"].items())
        text = "; ".join((", ".join(entries), *conditions))
        found = _proved(spec := made({"test-shapes": text}))
    elif conditions:
        found = _proved(spec := made({"require": [*conditions]}))
    derivation = derive(spec)
    for path, text in op_files(spec, derivation, Directories()).items():
        (directory / path).write_text(text)
    return {**found, "missing": derivation.missing}


def _proved(spec: OpSpec) -> dict[str, Any]:
    derivation = derive(spec)
    if not derivation.complete:
        return {"failure": None, "notes": []}
    texts = verification(spec, derivation, derivation.derived)
    return prove(texts.op, texts.checks)


def prove(op: str, checks: str) -> dict[str, Any]:
    """The fields of a verdict; without a failure where the op is what its forward says."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(LIMIT)
            torch.set_num_threads(1)
            load("verified_op", op)
            answer = check(load("verified_checks", checks))
            with os.fdopen(writing, "w", encoding="utf-8") as pipe:
                json.dump(answer, pipe)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    status = os.waitpid(child, 0)[1]
    assert said, f"the proof ended with status {status}"
    found: dict[str, Any] = json.loads(said)
    return found
