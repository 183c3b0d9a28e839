"""Interpreters for tests.

In: a directory. Out: the path of an interpreter there.
"""

import venv
from importlib.util import find_spec
from pathlib import Path

NEEDED = ("torch", "torchgen", "functorch", "typing_extensions.py", "sympy", "mpmath")


def with_torch_alone(directory: Path) -> Path:
    """A virtual environment with torch and what it imports, and nothing that the tool requires."""
    venv.create(directory, symlinks=True)
    (packages,) = directory.glob("lib/python*/site-packages")
    torch = find_spec("torch")
    assert torch and torch.origin
    installed = Path(torch.origin).parents[1]
    for path in installed.iterdir():
        if path.name in NEEDED or path.name.startswith("torch-"):
            (packages / path.name).symlink_to(path)
    return directory / "bin" / "python"


def that_answers(path: Path, answer: str) -> Path:
    """A program that says of itself what an interpreter is asked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(0o755)
    return path
