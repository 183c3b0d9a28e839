"""A team's project as an earlier version of the tool wrote it, each test whole, some files edited: one command takes it over."""

import json
import re
import shutil
from pathlib import Path

import pytest

from scaffold.workspace.records import digest, pack, unpack
from tests.cli.projects import contents, edit
from tests.cli.running import scaffold
from tests.executed.suites import Suites

TREE = Path(__file__).parent.parent / "cli/tree_of_before"
FURTHER = tuple(f"shrink_{number}" for number in range(5))
BY_HAND = {
    "ops/linear.py": "# our kernel wants both of them at once\n",
    "ops/gate.py": 'raise ValueError("gate: x and y differ in shape")\n',
    "tests/test_linear.py": "def test_identity_of_ours() -> None:\n",
    "tests/test_gate.py": "def test_shapes_of_ours() -> None:\n",
}
COMMENT = "        # our kernel wants both of them at once\n"
SAVED = "        input, weight = ctx.saved_tensors\n"
OUTPUT = "        output = input @ weight.t()\n"
# Not where a wrapper calls the Function.
IN_WRAPPER = """    if x.shape != y.shape:
        raise ValueError("gate: x and y differ in shape")
"""
DECORATED = """def of_one_shape(op):
    def checked(x, y, *rest):
        if x.shape != y.shape:
            raise ValueError("gate: x and y differ in shape")
        return op(x, y, *rest)

    return checked


@of_one_shape
"""
ABOVE = ("def gate(", f"{DECORATED}def gate(")
SIZE = ("D: int = 7", "D: int = 3")  # in what makes the inputs of gate, by hand


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files of three ops, as they stood; and five more ops like one that nobody edited."""
    for path in TREE.rglob("*.txt"):
        target = tmp_path / path.relative_to(TREE).with_suffix("")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    manifest = tmp_path / "ops.toml"
    head, _, table = manifest.read_text().partition("[ops.soft_shrink]")
    for name in FURTHER:
        head += f"[ops.{name}]{table.rstrip()}\n\n"
        _copy(tmp_path, name)
    manifest.write_text(f"{head}[ops.soft_shrink]{table}")
    return tmp_path


def _copy(root: Path, name: str) -> None:
    """Another op that says what soft_shrink says."""

    def renamed(text: str) -> str:
        klass = name.title().replace("_", "")
        return text.replace("soft_shrink", name).replace("SoftShrink", klass)

    record = json.loads((root / ".scaffold/soft_shrink.json").read_text())
    for kept in record["files"].values():
        text = renamed(unpack(kept["base"]) or "")
        kept["path"] = renamed(kept["path"])
        kept |= {"text": digest(text.encode()), "base": pack(text)}
        (root / kept["path"]).write_text(text)
    (root / f".scaffold/{name}.json").write_text(json.dumps(record, indent=2) + "\n")


def weight(root: Path, *tops: str) -> int:
    """The bytes of the Python files in some directories, or of the records."""
    held = contents(root).items()
    return sum(len(data) for path, data in held if path.startswith(tops))


@pytest.mark.each_commit
def test_one_command_takes_it_over(tree: Path, suites: Suites) -> None:
    """Every edit is kept, what was written by hand runs, and the tree shrinks."""
    edit(tree / "tests/test_gate.py", *SIZE)
    # Not in a backward, which stands in a region of autocast now.
    edit(tree / "ops/linear.py", COMMENT + SAVED, SAVED)
    edit(tree / "ops/linear.py", OUTPUT, COMMENT + OUTPUT)
    edit(tree / "ops/gate.py", IN_WRAPPER, "")
    edit(tree / "ops/gate.py", *ABOVE)
    assert scaffold(tree, "check").code == 1
    tests, records = weight(tree, "tests/"), weight(tree, ".scaffold/")
    outcome = scaffold(tree, "upgrade", "--no-verify")
    assert outcome.code == 0, outcome.out + outcome.err
    assert ["create", "tests/op_testing.py"] in map(str.split, outcome.out.splitlines())
    for path, text in BY_HAND.items():
        assert text in (tree / path).read_text()
    # What is asked of every op stands once, whatever it grows to; of each op's own test a third is left.
    own = weight(tree, "tests/") - (tree / "tests/op_testing.py").stat().st_size
    assert own < 0.5 * tests
    assert weight(tree, ".scaffold/") < records
    of_ops = [path for path in contents(tree) if path.startswith(".scaffold/")]
    of_ops = [path for path in of_ops if not path.startswith(".scaffold/op-testing")]
    assert weight(tree, *of_ops) < weight(
        tree, "ops/"
    )  # that of what tests share has 17 kB
    told = json.loads(scaffold(tree, "check", "--format", "json").out)["files"]
    edited = {item["path"] for item in told if item["status"] == "edited"}
    assert edited == set(BY_HAND)
    assert {item["status"] for item in told} <= {"ok", "edited", "unproven"}
    before = contents(tree)
    assert scaffold(tree, "sync", "--no-verify").code == 0
    assert contents(tree) == before
    report = suites.run(tree)
    assert set(report.counts) <= {"passed", "skipped"}, report.output
    ours = {name.rpartition("::")[2] for name in report.named("passed")}
    assert {"test_identity_of_ours", "test_shapes_of_ours"} <= ours


def test_a_look_tells_the_truth(tree: Path) -> None:
    edit(tree / "tests/test_gate.py", *SIZE)
    before = contents(tree)
    looked = scaffold(tree, "upgrade", "--no-verify", "--dry-run")
    assert contents(tree) == before
    assert scaffold(tree, "upgrade", "--no-verify") == looked


def test_what_both_sides_changed_is_marked_and_nothing_else(tree: Path) -> None:
    """The inputs of gate were made in another size; how they are made is written otherwise now. So is what stands first in a backward."""
    outcome = scaffold(tree, "upgrade", "--no-verify")
    assert outcome.code == 1
    conflicts = [line for line in outcome.out.splitlines() if "conflict  " in line]
    changed = ("ops/gate.py", "ops/linear.py", "tests/test_gate.py")
    assert sorted(conflicts) == [f"conflict  {path}" for path in changed]
    gate = (tree / "ops/gate.py").read_text()
    ours, rest = gate.partition("<<<<<<< yours\n")[2].split("||||||| base\n")
    assert 'raise ValueError("gate: x and y differ in shape")' in ours
    resolved = (
        gate[: gate.index("<<<<<<<")]
        + ours
        + rest.partition(">>>>>>>")[2].partition("\n")[2]
    )
    (tree / "ops/gate.py").write_text(resolved)
    merged = (tree / "ops/linear.py").read_text()
    assert "<<<<<<< yours" in merged and merged.count("def backward(") == 1
    without_marks = re.sub(r"(?m)^(<{7}|[|]{7}|={7}|>{7}).*\n", "", merged)
    (tree / "ops/linear.py").write_text(without_marks)
    text = (tree / "tests/test_gate.py").read_text()
    start, end = text.index("<<<<<<< yours"), text.index(">>>>>>> scaffold")
    assert text[start:end].count("def make(") == 2
    assert "test_" not in text[start:end]
    for path, kept in BY_HAND.items():
        assert kept in (tree / path).read_text()
    (tree / "tests/test_gate.py").write_text(
        (text[:start] + text[end:].partition("\n")[2]).replace("D: int = 3", SIZE[0])
    )
    assert scaffold(tree, "check").code == 0


def test_a_new_op_there_brings_what_tests_share(tree: Path) -> None:
    """The tests of before are as they were: they hold what they ask."""
    before = contents(tree)
    outcome = scaffold(tree, "new-op", "one", "--inputs", "x")
    assert outcome.code == 0, outcome.err
    assert "create  tests/op_testing.py" in outcome.out
    held = contents(tree)
    assert {path for path in before if held[path] != before[path]} == {"ops.toml"}
