"""Random programs through `scaffold sync` and its proof: what is written, what is refused, and whether any of it is wrong.

In: `python -m benchmarks.random_programs [--programs N] [--first SEED] [--keep DIR] [--in-turn]`, in an environment with torch. Each
program of `tests/derive/random_forwards.py` is four ops, or one of them in turn: both save policies, every shape declared and none.
They stand in manifests of 100. An interrupt ends it with what is known so far.
Out: how the gradients come about (direct, autograd of a call, autograd of the whole), then what must be none: wrong results or
gradients, by autograd of the forward's own text; files that cannot be compiled or imported; tracebacks; and the ops that are
refused, by reason. Exit 1 where something is wrong, broken or a traceback.

What the proof refuses is told of with its place; the run goes on without those ops.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from scaffold.derive.derivation import BY_AUTOGRAD as WHOLE
from scaffold.spec.toml import op_table
from tests.derive.building import load, reference
from tests.derive.checking import check_needs, is_once
from tests.derive.random_forwards import SIZES, Drawn, drawn

SCAFFOLD = "from scaffold.cli import main; main()"  # what the installed command does
CONFIGURATION = '[tool.scaffold]\nsource = "ops"\ntests = "tests"\n'
POLICIES = ("recompute", "balanced")
MANIFEST = 100  # ops
LIMIT = 3600  # seconds for a run over a manifest
SHOWN = 20
WAYS = 4  # to write a program down


class Op(NamedTuple):
    """One way to write a program down."""

    name: str
    program: Drawn
    keys: dict[str, Any]


@dataclass
class Tally:
    """What became of the ops."""

    ops: int = 0
    ways: Counter[str] = field(default_factory=Counter)
    refused: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    tracebacks: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return bool(self.wrong or self.broken or self.tracebacks)


def main() -> int:
    """Run the programs and say what became of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--keep", type=Path, help="where the projects stay")
    parser.add_argument(
        "--in-turn", action="store_true", help="one of the four ways for each program"
    )
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.programs)
    ops = [
        op
        for seed in seeds
        for number, op in enumerate(ways_of(seed))
        if not options.in_turn or number == seed % WAYS
    ]
    tally = Tally()
    with suppress(KeyboardInterrupt):  # what is known so far is worth telling
        for start in range(0, len(ops), MANIFEST):
            some = ops[start : start + MANIFEST]
            kept = options.keep and options.keep / f"{options.first}-{start}"
            place: Any = nullcontext(kept) if kept else tempfile.TemporaryDirectory()
            with place as directory:
                run(Path(directory), some, tally)
            tally.ops += len(some)
            print(f"{tally.ops}/{len(ops)} ops", file=sys.stderr)
    show(tally)
    return int(tally.failed)


def ways_of(seed: int) -> Iterator[Op]:
    """The ops of a program."""
    program = drawn(seed)
    names = [item.partition("[")[0].strip() for item in _inputs(program)]
    declared = [
        f"{name}[{', '.join(_dims(value))}]"
        for name, value in zip(names, program.values, strict=True)
    ]
    for shapes, inputs in (("declared", declared), ("undeclared", names)):
        for policy in POLICIES:
            keys = {
                "inputs": ", ".join(inputs),
                "forward": program.forward,
                "save-policy": policy,
                "module": False,
            }
            yield Op(f"p{seed}_{shapes}_{policy}", program, keys)


def _inputs(program: Drawn) -> list[str]:
    """The inputs, which have commas in their shapes."""
    found, depth = [""], 0
    for letter in program.inputs:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return found


def _dims(value: Tensor) -> Iterator[str]:
    letters = {size: letter for letter, size in SIZES.items()}
    return (letters.get(size, str(size)) for size in value.shape)


def run(directory: Path, ops: Sequence[Op], tally: Tally) -> None:
    """One manifest: refused ops are taken out until it is written, then every file is held against autograd."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "pyproject.toml").write_text(CONFIGURATION)
    left = list(ops)
    while left:
        told = sync(directory, left, tally)
        refused = {} if told is None else _refused(told, left)
        if told is None or not refused:
            break
        tally.refused |= refused
        left = [op for op in left if op.name not in refused]
    for op in left:
        path = directory / "ops" / f"{op.name}.py"
        if path.exists():
            judge(op, path.read_text(), tally)
        else:
            tally.broken[op.name] = "was neither written nor refused"


def sync(directory: Path, ops: Sequence[Op], tally: Tally) -> dict[str, Any] | None:
    """What the command says; None where it has nothing to say that a program reads."""
    tables = [op_table(op.name, op.keys) for op in ops]
    (directory / "ops.toml").write_text("\n".join(tables))
    done = subprocess.run(
        [sys.executable, "-c", SCAFFOLD, "sync", "--format", "json"],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    if "Traceback" in done.stderr or done.returncode not in (0, 1, 2):
        tally.tracebacks.append(done.stderr[-2000:] or f"exit code {done.returncode}")
        return None
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _refused(told: dict[str, Any], ops: Sequence[Op]) -> dict[str, str]:
    """Why an op is refused, by the line of the manifest."""
    tables = [op_table(op.name, op.keys) for op in ops]
    last, ends = 0, []
    for table in tables:
        last += table.count("\n") + 1
        ends.append(last)
    found: dict[str, str] = {}
    for problem in told["problems"]:
        number = next(k for k, end in enumerate(ends) if problem["line"] <= end)
        found.setdefault(ops[number].name, problem["message"])
    return found


def judge(op: Op, text: str, tally: Tally) -> None:
    """Hold what was written against autograd of the forward's own text, with the inputs that the program was drawn with."""
    tally.ways[_way(text)] += 1
    camel = "".join(part.capitalize() for part in op.name.split("_"))
    try:
        module = load(text)
        function = getattr(module, f"{camel}Function")
    except Exception as error:  # noqa: BLE001 (whatever is wrong with the file)
        tally.broken[op.name] = f"{type(error).__name__}: {error}"
        return
    values = op.program.values
    names = [item.partition("[")[0].strip() for item in _inputs(op.program)]
    forward = reference(names, op.program.forward)
    count = len(values)
    alone = [tuple(at == only for at in range(count)) for only in range(count)]
    once = is_once(text)
    try:
        for needs in {(True,) * count, *alone}:
            wrapper = getattr(module, op.name)
            check_needs(function, wrapper, forward, values, needs, once, False)
    except Exception as error:  # noqa: BLE001 (whatever the op does)
        tally.wrong[op.name] = f"{type(error).__name__}: {error}"


def _way(text: str) -> str:
    if WHOLE in text:
        return "whole"
    return "call" if "torch.func.vjp" in text else "direct"


def show(tally: Tally) -> None:
    """The figures, then the first of what there should be none of."""
    written = tally.ways.total()
    print(f"{tally.ops} ops, {written} written, {len(tally.refused)} refused")
    for way in ("direct", "call", "whole"):
        print(
            f"  {way:8s} {tally.ways[way]:6d}  {tally.ways[way] / max(written, 1):7.2%}"
        )
    counts = (len(tally.wrong), len(tally.broken), len(tally.tracebacks))
    print("{} wrong, {} broken files, {} tracebacks".format(*counts))
    for reason, count in Counter(tally.refused.values()).most_common(SHOWN):
        example = next(name for name, why in tally.refused.items() if why == reason)
        print(f"  refused {count:4d}  {reason[:150]}  ({example})")
    for title, found in (("wrong", tally.wrong), ("broken", tally.broken)):
        for name, why in list(found.items())[:SHOWN]:
            print(f"  {title} {name}: {why[:300]}")
    for said in tally.tracebacks[:SHOWN]:
        print(said)


if __name__ == "__main__":
    sys.exit(main())
