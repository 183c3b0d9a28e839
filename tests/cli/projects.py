"""Small projects for tests: a directory with a configuration and a manifest.

In: a directory and the texts. Out: the directory, and what it holds.
"""

from pathlib import Path

CONFIGURATION = '[tool.scaffold]\nsource = "ops"\ntests = "tests"\n'
SCALE = """[ops.scale]
inputs = 'x[..., D], factor: float = 2.0'
forward = 'x * factor'
grad.x = 'grad_output * factor'
"""
SHIFT = """[ops.shift]
inputs = 'x[..., D], bias[D]'
forward = 'x + bias'
grad.x = 'grad_output'
grad.bias = 'grad_output.sum_to_size(bias.shape)'
"""


def project(root: Path, *tables: str, configuration: str = CONFIGURATION) -> Path:
    """A project whose manifest has those tables."""
    (root / "pyproject.toml").write_text(configuration)
    (root / "ops.toml").write_text("\n".join(tables))
    return root


def contents(root: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def edit(path: Path, old: str, new: str) -> None:
    """Replace a text that is there."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
