"""How long a derivation takes, over the development cases, and whether its text is the same in every run.

In: `python -m benchmarks.derive_speed [--runs N] [--seeds N]`, with torch for the cases' inputs.
Out: CPU milliseconds of each policy, the median and the worst case, of the least of N runs each; whether processes with other
hash seeds derive the same bytes. Exit 1 where a target is missed.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from statistics import median

from benchmarks.derive_ops import POLICIES
from scaffold.derive import derive
from scaffold.spec import OpSpec
from tests.derive.building import spec_of, text_of
from tests.derive.cases import CASES, Case

MEDIAN, WORST = 10.0, 80.0  # milliseconds
DIGEST = "from benchmarks.derive_speed import digest; print(digest({every}))"


def declared(case: Case, policy: str) -> OpSpec:
    """The case as a user declares it."""
    return spec_of(
        case.inputs,
        case.name.lower(),
        forward=case.forward,
        outputs=case.outputs,
        derive=True,
        save_policy=policy,
    )


def derivation_times(policy: str, runs: int) -> dict[str, float]:
    """The milliseconds of each case; the first derivation, which reads the rules, does not count."""
    specs = [declared(case, policy) for case in CASES]
    derive(specs[0])
    return {spec.name: min(_milliseconds(spec) for _ in range(runs)) for spec in specs}


def _milliseconds(spec: OpSpec) -> float:
    begin = time.process_time()
    derive(spec)
    return (time.process_time() - begin) * 1e3


def reported(policy: str, times: Mapping[str, float]) -> str:
    """The median and the worst of the times."""
    worst = max(times, key=lambda name: times[name])
    middle = median(times.values())
    met = middle <= MEDIAN and times[worst] <= WORST
    return (
        f"derivation, {policy}: {len(times)} cases, median {middle:.1f} ms, "
        f"worst {times[worst]:.1f} ms ({worst}); targets {MEDIAN:.0f} and {WORST:.0f} ms"
        + ("" if met else ": missed")
    )


def digest(every: int = 1) -> str:
    """What all cases, or every third, become under both policies, as one number."""
    found = hashlib.sha256()
    for policy in POLICIES:
        for case in CASES[::every]:
            found.update(text_of(declared(case, policy)).encode())
    return found.hexdigest()


def digests(seeds: int, every: int = 1) -> Iterator[str]:
    """That number from processes whose sets and dicts of strings are in another order each."""
    for seed in range(seeds):
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        command = [sys.executable, "-c", DIGEST.format(every=every)]
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        yield done.stdout.strip()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    lines = [
        reported(policy, derivation_times(policy, options.runs)) for policy in POLICIES
    ]
    print(*lines, sep="\n")
    texts = set(digests(options.seeds))
    print(
        f"same bytes with {options.seeds} hash seeds: {'yes' if len(texts) <= 1 else 'no'}"
    )
    return 1 if len(texts) > 1 or any("missed" in line for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
