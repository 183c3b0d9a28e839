"""What each primitive costs, for the `passes` of the rule table: its time over that of a product of two tensors.

In: `python -m benchmarks.passes [NAME ...] [--device cuda]`. Out: for each primitive that works element by element the figure that is measured beside
the one that its section has, those first that differ most. Invariant: the sizes of a section's samples are made so large that memory counts, and
the best of many calls is taken, so that a loaded machine tells the same.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from scaffold.derive.rules.sample_calls import Argument, Drawn, Sample, Several
from scaffold.derive.rules.table import Rule, built_in
from scaffold.verify.child.rule_runs import drawn_values, samples
from scaffold.verify.child.rule_values import called

CATEGORIES = ("elementwise", "same_shape", "loss", "reduction", "backward")
NUMBERS = 1 << 19  # in the largest tensor: two megabytes
CALLS = 12
REFUSED = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)


def enlarged(argument: Argument, factor: float) -> Argument:
    """An argument of a sample, each of its sizes so many times as large."""
    if isinstance(argument, Several):
        return Several(tuple(enlarged(item, factor) for item in argument.items))
    if not isinstance(argument, Drawn):
        return argument
    sizes = tuple(
        size if size == 1 else round(size * factor) for size in argument.sizes
    )
    return Drawn(argument.name, sizes)


def large(sample: Sample) -> Sample | None:
    """A sample whose largest tensor has as many numbers as count; None if it has no tensor with sizes."""
    sizes = [
        item.sizes for item in sample.values() if isinstance(item, Drawn) and item.sizes
    ]
    if not sizes:
        return None
    most = max(sizes, key=lambda own: torch.Size(own).numel())
    real = [size for size in most if size != 1]
    if not real:
        return None
    factor = (NUMBERS / torch.Size(most).numel()) ** (1 / len(real))
    return {name: enlarged(item, factor) for name, item in sample.items()}


def calls(rule: Rule, device: str) -> Iterator[dict[str, Any]]:
    """The arguments of the samples of a rule, large and in single precision."""
    for sample in samples(built_in(), rule):
        wide = large(sample)
        if wide is not None:
            values = drawn_values(built_in(), rule, wide, torch.float32)
            yield {
                name: value.to(device) if isinstance(value, Tensor) else value
                for name, value in values.items()
            }


def seconds(rule: Rule, values: dict[str, Any], device: str) -> float:
    """The time of the fastest call."""
    best = 1e9
    for _ in range(CALLS):
        begin = time.perf_counter()
        called(rule.spelled, values)
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begin)
    return best


def passes(rule: Rule, unit: float, device: str) -> float | None:
    """What a rule costs for each number of its largest tensor; the cheapest of its samples, since others do more than one thing."""
    found = []
    for values in calls(rule, device):
        try:
            found.append(seconds(rule, values, device))
        except REFUSED:
            continue
    return min(found) / unit if found else None


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="of sections; all if none")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    table = built_in()
    product = table.rule("mul")
    one = torch.randn(NUMBERS, device=options.device)
    unit = min(
        seconds(product, {"x": one, "y": one.flip(0)}, options.device) for _ in range(5)
    )
    rows = []
    for name in options.names or table.names():
        rule = table.rule(name)
        if rule.category in CATEGORIES:
            own = passes(rule, unit, options.device)
            if own is not None:
                rows.append((own, rule.facts.passes, name, rule.category))
    rows.sort(
        key=lambda row: -max(row[0] / max(row[1], 0.5), row[1] / max(row[0], 0.5))
    )
    print(f"a product: {unit * 1e3:.3f} ms")
    for own, stated, name, category in rows:
        print(f"{name:28s} {category:12s} measured {own:7.2f}, stated {stated}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
