"""Verification: prove an op, run its tests; the only package to start processes.

To *prove* an op is to run it in a process with PyTorch and to compare its gradients with autograd's: `scaffold new-op` does it before
it writes a file, `scaffold verify` for files on disk.
In: the texts of an op and of what verification calls, or a test file. Out: a `Verdict`, or a `Report` of each file.
Invariant: code run there can neither hang, crash nor change this process, and nothing is written to the user's folders.
"""

from scaffold.verify.processes import processes_for
from scaffold.verify.prover import (
    Failure,
    Original,
    Prover,
    Request,
    Verdict,
    has_torch,
    import_path,
    lacks_torch,
    verify_many,
)

__all__ = [
    "Failure",
    "Original",
    "Prover",
    "Request",
    "Verdict",
    "has_torch",
    "import_path",
    "lacks_torch",
    "processes_for",
    "verify_many",
]
