"""A process of its own for kernels, which are interpreted or compiled by how triton is imported.

In: a module of this directory, and where the modules of the ops go. Out: what it prints, line by line.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scaffold.derive import derive
from scaffold.render.files import drafts
from scaffold.render.layout import Directories
from scaffold.spec import OpSpec

ROOT = Path(__file__).parent.parent.parent


def told_by(
    program: str, directory: Path, specs: Iterable[OpSpec], *, interpreted: bool
) -> list[dict[str, Any]]:
    """Return the lines the process prints about some ops."""
    for spec in specs:
        for path, text in drafts(spec, derive(spec), Directories()).items():
            (directory / path).write_text(text)
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(directory / "cache")
    run = subprocess.run(
        [sys.executable, "-m", f"tests.kernels.{program}", str(directory)],
        cwd=ROOT,
        env=environment | {"TRITON_INTERPRET": "1"} if interpreted else environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return [json.loads(line) for line in run.stdout.splitlines()]
