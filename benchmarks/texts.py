"""The texts of all known ops, so that two revisions can be compared: a refactoring of the engine changes none of them.

In: `python -m benchmarks.texts save DIR [--programs N]` writes them; after a change, `python -m benchmarks.texts compare DIR` derives
them again, or with `--every K` one op in K, for a first look. The ops are the development cases, the published forwards, the ops of others and N random programs, each under both save
policies with its shapes as they are declared, and under the default one with none of them. DIR holds a file for each: the op's file and its notes. The
explanation that an older revision saved below them is not compared.
Out: a unified diff of each text that differs, and their number. Exit 1 where there is one.

The cases are Python with torch in it, so torch is imported; nothing of it runs.
"""

import argparse
import difflib
import gc
import re
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from scaffold.derive import derive
from scaffold.errors import ScaffoldError
from scaffold.spec.build import build
from tests.derive.building import locate, text_of
from tests.derive.cases import CASES
from tests.derive.ops_of_others import OPS
from tests.derive.published import PUBLISHED
from tests.derive.random_forwards import drawn

POLICIES = ("recompute", "balanced")
DIMS = re.compile(r"\[(?![^\]]*;)[^\]]*\]")  # `x[N, D]`, but not `index[N; int]`
SHOWN = 400  # lines of a difference
EXPLAINED = re.compile(  # where an older revision saved an explanation
    r"^# (?:the forward as primitives;|no forward is stated|the forward is not understood).*\Z",
    re.MULTILINE | re.DOTALL,
)


def known(programs: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The name and the table of each op."""
    groups = {"cases": CASES, "published": PUBLISHED, "others": OPS}
    for group, cases in groups.items():
        for at, case in enumerate(cases):  # two groups of lists have a name in common
            table = {"inputs": case.inputs, "outputs": case.outputs}
            yield f"{group}-{at}-{case.name}", table | {"forward": case.forward}
    for seed in range(programs):
        program = drawn(seed)
        table = {"inputs": program.inputs, "forward": program.forward}
        yield f"random-{seed}", table


def ways(table: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """An op under each policy, with the shapes of its inputs and without."""
    bare = table | {"inputs": DIMS.sub("", table["inputs"]), "outputs": "output"}
    for policy in POLICIES:
        yield f"declared-{policy}", table | {"derive": True, "save-policy": policy}
    if bare["inputs"] != table["inputs"] and table.get("outputs") in (None, "output"):
        yield "undeclared", bare | {"derive": True}


def text(name: str, table: dict[str, Any], times: list[float]) -> str:
    """All that is written of an op, or why nothing is."""
    try:
        spec = build(re.sub(r"\W", "_", name.lower()), table, locate)
        gc.disable()  # nor what was derived before
        start = time.process_time()
        derivation = derive(spec)
        times.append(time.process_time() - start)
        gc.enable()
        notes = "".join(f"# note: {note}\n" for note in derivation.notes)
        return f"{text_of(spec, derivation)}{notes}"
    except ScaffoldError as error:
        return f"{type(error).__name__}: {error}\n"


def texts(programs: int, every: int, times: list[float]) -> Iterator[tuple[str, str]]:
    """Each text by the name of its file."""
    for name, table in islice(known(programs), 0, None, every):
        for way, keys in ways(table):
            yield f"{name}-{way}", text(name, keys, times)
            if sys.stderr.isatty():
                print(f"\r\x1b[K{name}", end="", file=sys.stderr, flush=True)


def compare(directory: Path, found: Iterator[tuple[str, str]], whole: bool) -> int:
    """Print what differs from the saved texts; how many do."""
    saved = directory.glob("*.txt") if whole else ()
    different, left = 0, {path.stem for path in saved}
    for name, now in found:
        path = directory / f"{name}.txt"
        before = EXPLAINED.sub("", path.read_text("utf-8")) if path.exists() else ""
        left.discard(name)
        if now != before:
            different += 1
            lines = difflib.unified_diff(
                before.splitlines(), now.splitlines(), name, name, lineterm=""
            )
            print(*list(lines)[:SHOWN], sep="\n")
    for name in sorted(left):
        print(f"{name}: derived no longer")
    return different + len(left)


def main() -> None:
    parser = argparse.ArgumentParser(description="Texts of all known ops.")
    parser.add_argument("command", choices=["save", "compare"])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    times: list[float] = []
    gc.freeze()  # a run of the tool has no torch to collect
    found = texts(options.programs, options.every, times)
    if options.command == "save":
        options.directory.mkdir(parents=True, exist_ok=True)
        for name, now in found:
            (options.directory / f"{name}.txt").write_text(now, "utf-8")
        different = 0
    else:
        different = compare(options.directory, found, options.every == 1)
        print(f"{different} of {len(times)} texts differ")
    mid, worst = median(times) * 1e3, max(times) * 1e3
    print(f"derived {len(times)}: median {mid:.1f} ms, worst {worst:.0f} ms")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
