"""The kernels of an op against its formula, in Triton's interpreter.

`runner.py` calls both functions for an op with `--kernels`: `withhold` before the proof of its formula, `check_kernels` after it.
In: the text of their module, and the checks of the op, which has been proven without them. Out: how many calls ran with them, the first
failure in words, or why none ran. Invariant: the interpreter is asked for before triton is imported; a call that the kernels are not
for runs the formula, and counts too.
"""

import os
import sys
import warnings
from typing import Any

from scaffold.verify.child.cases import layouts, list_cases
from scaffold.verify.child.modules import load


def withhold(request: dict[str, Any]) -> None:
    """Make the op's imports of its kernels fail: first it is proven without them, by its formula.

    The interpreter is chosen now, before triton can be imported.
    """
    for name, _ in request["kernels"]:
        os.environ["TRITON_INTERPRET"] = "1"
        # None: an import raises ImportError, and the op falls back to its formula.
        sys.modules[name] = None  # type: ignore[assignment]
        warnings.filterwarnings("ignore", ".*runs without its kernels")


def check_kernels(request: dict[str, Any], checks: Any) -> dict[str, Any]:
    """Run every case once more, with the kernels; return the number of these calls, a failure, or a note if the kernels cannot be loaded."""
    from scaffold.verify.child.checking import Run, ask_further, check_case

    found: dict[str, Any] = {"kernels": 0}
    for name, text in request["kernels"]:
        del sys.modules[name]  # the None of `withhold`
        try:
            module = load(name, text)
        except ImportError as error:
            return {"notes": [f"the kernels were not run: {error}"]}
        # The interpreter computes what lies behind the end of a row, too.
        warnings.filterwarnings("ignore", category=RuntimeWarning)
        # Few numbers and programs: a small case has several blocks, and a program walks over more than one.
        vars(module).update(TILE=8, programs_of=lambda *_: 2)
        setattr(sys.modules["verified_op"], name, module)  # now the op calls them
        run = Run()
        for case in list_cases(checks):
            for words, layout in layouts(checks):
                if run.failure is None:
                    check_case(checks, case, layout, words, run)
        if run.failure is None:
            ask_further(checks, run)
        if run.failure is not None:
            words = f"with its kernels: {run.failure['words']}"
            return {"failure": run.failure | {"words": words}}
        found["kernels"] += run.cases
    return found
