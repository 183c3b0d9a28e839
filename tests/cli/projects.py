"""Small projects for tests: a directory with a configuration and a manifest.

In: a directory and the texts. Out: the directory, and what it holds.
"""

import base64
import json
from pathlib import Path

from scaffold.workspace.disk import fingerprint
from scaffold.workspace.records import SHARED, pack, record_path, unpack
from tests.cli.running import scaffold

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


def interrupted(root: Path, path: str, before: bytes) -> None:
    """Leave what a killed run leaves: its journal, one file replaced."""
    step = {
        "target": path,
        "staged": ".scaffold-0-0.new.tmp",
        "backup": ".scaffold-0-0.old.tmp",
        "after": fingerprint((root / path).read_bytes()),
    }
    journal = json.dumps({"steps": [step], "made": [], "emptied": []})
    (root / ".scaffold-journal.tmp").write_text(f"{journal}\n")
    (root / path).with_name(".scaffold-0-0.old.tmp").write_bytes(before)


def as_written(root: Path, op: str, role: str) -> str | None:
    """What the record of an op says that a file of it was written as."""
    record = json.loads((root / f".scaffold/{op}.json").read_text())
    return unpack(record["files"][role]["base"])


def lose(root: Path, op: str, role: str, *, gone: bool = True) -> None:
    """Take out of an op's record how a file was written, or put another text there."""
    path = root / f".scaffold/{op}.json"
    record = json.loads(path.read_text())
    other = "" if gone else pack(f"{as_written(root, op, role)}# more\n")
    record["files"][role]["base"] = other
    path.write_text(json.dumps(record, indent=2) + "\n")


def in_version_1(root: Path) -> None:
    """Write the records as version 1 had them: the text of each file in one of its own, and nothing of what tests share."""
    (root / record_path(SHARED)).unlink()
    for path in (root / ".scaffold").glob("*.json"):
        record = json.loads(path.read_text())
        record["version"] = 1
        for held, keys in [
            (record, ("spec", "configuration", "templates")),
            (record.get("reads", {}), tuple(record.get("reads", ()))),
            (record.get("proof") or {}, ("spec", "function", "text")),
            *((kept, ("text", "draft")) for kept in record["files"].values()),
        ]:
            held |= {
                key: base64.b85decode(held[key]).hex() for key in keys if key in held
            }
        for role, kept in record["files"].items():
            base = unpack(kept.pop("base"))
            assert base is not None
            path.with_name(f"{path.stem}.{role}.base").write_text(base)
        path.write_text(json.dumps(record, indent=2) + "\n")


COMMENTED = f"""# all of our ops

# how much
{SCALE}# and no more

# how far
{SHIFT}"""


def clean(root: Path) -> None:
    outcome = scaffold(root, "check", "--strict")
    assert outcome.code == 0, outcome.out
