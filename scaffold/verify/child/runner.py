"""The process that verifies an op.

In: on stdin, as JSON: the op's text, that of its checks, and where the user's modules are.
Out: on stdout, as JSON: the fields of a `Verdict`. What the user's code prints goes to stderr.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Answer one request."""
    sys.dont_write_bytecode = True
    answer = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    sys.path.append(str(Path(__file__).resolve().parents[3]))
    import torch

    torch.set_num_threads(1)
    from scaffold.verify.child.checking import check
    from scaffold.verify.child.modules import load

    sys.path.extend(request["path"])
    try:
        load("verified_op", request["op"])
        checks = load("verified_checks", request["checks"])
    except Exception as error:  # noqa: BLE001 (whatever the user's modules raise)
        result = _not_loaded(error)
    else:
        result = check(checks)
    json.dump(result, answer)
    answer.close()


def _not_loaded(error: Exception) -> dict[str, Any]:
    words = f"cannot be imported: {type(error).__name__}: {error}"
    failure = {"subject": "the op", "words": words}
    nothing: dict[str, Any] = {"notes": [], "skipped": [], "wanted": []}
    return {"cases": 0, "failure": failure, **nothing}


if __name__ == "__main__":
    main()
