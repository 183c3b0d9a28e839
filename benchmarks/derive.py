"""What derived ops take and save, over plain autograd of the same forward.

In: `python -m benchmarks.derive [OP ...] [--rounds N] [--no-compile]`, with torch beside scaffold. Out: for each op, and as geometric means,
the CPU time of forward and backward, that with `create_graph=True`, the bytes that wait for the backward (inputs among them), and the most
of those where one input is frozen, all over plain autograd's: of each policy, of torch.compile, of PyTorch's own op.
One thread, a process each, which take turns: `scaffold.verify.bench`. Exit 1 where a target is missed, with the ops that miss it most.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.derive_ops import OPS, Op
from benchmarks.derive_report import (
    Figures,
    Row,
    head,
    mean_line,
    missed,
    notes,
    row_line,
)
from scaffold.derive import derive
from scaffold.errors import ScaffoldError
from scaffold.project.explanation import read_shapes
from scaffold.render.large_sizes import large_sizes, make_arguments
from scaffold.render.testdomains import with_domains
from scaffold.render.verification import Verification, verification
from scaffold.verify.bench import Bench, Measured, Results, Setting, Variant
from tests.derive.building import spec_of

PLAIN, COMPILED, NATIVE = "plain", "torch.compile", "native"
CANDIDATES: Mapping[str, Mapping[str, object]] = {
    "balanced": {"save_policy": "balanced"},
    "recompute": {"save_policy": "recompute"},
    "once": {"once_differentiable": True},
}


def texts(op: Op, **options: object) -> Verification:
    """The texts of an op as a user declares it, PyTorch's own op among them."""
    spec = spec_of(op.inputs, op.name, forward=op.forward, **options)
    other = None
    if op.native is not None:
        other = spec_of(op.inputs, op.name, forward=op.native, derive=False).forward
    derivation = derive(spec)
    return verification(spec, derivation, derivation.derived, other)


def variants(op: Op, compiled: bool) -> tuple[list[Variant], dict[str, str]]:
    """What is measured of an op, and why a candidate is not."""
    plain = texts(op)
    found, refused = [Variant(PLAIN, "PLAIN", *plain)], {}
    for name, options in CANDIDATES.items():
        try:
            found.append(Variant(name, "OPERATOR", *texts(op, **options)))
        except ScaffoldError as error:  # an option that comes or goes
            refused[name] = error.message
    if compiled:
        found.append(Variant(COMPILED, "PLAIN", *plain, compiled=True))
    if op.native is not None:
        found.append(Variant(NATIVE, "OTHER", *plain))
    return found, refused


def setting_of(op: Op) -> Setting:
    """The op's sizes."""
    spec = spec_of(op.inputs, op.name, forward=op.forward)
    seen = with_domains(spec, derive(spec))
    return Setting(make_arguments(seen, large_sizes(seen, read_shapes(op.sizes))))


def measured(bench: Bench, op: Op, rounds: int, compiled: bool) -> Row:
    """An op's figures over plain autograd's."""
    found, refused = variants(op, compiled)
    setting = setting_of(op)
    once = bench.measure(found, setting, rounds)
    again = [item for item in found if item.name in (PLAIN, *CANDIDATES)]
    graphs = bench.measure(again, setting._replace(create_graph=True), rounds)
    plain = once.measured.pop(PLAIN)
    refused |= once.refused
    for name, why in graphs.refused.items():
        refused.setdefault(name, f"with create_graph {why}")
    figures = {}
    for name, own in once.measured.items():
        if own.differs:
            refused[name] = "gives other gradients"
            continue
        figures[name] = Figures(
            own.over(plain)[0],
            over(graphs, name),
            own.saved_bytes / max(1, plain.saved_bytes),
            max(frozen(own, plain), default=None),
        )
    return Row(op.name, plain.both.median * 1e3, figures, refused)


def over(results: Results, name: str) -> float | None:
    """The time over plain autograd's, where it could be measured."""
    own = results.measured.get(name)
    return own.over(results.measured[PLAIN])[0] if own else None


def frozen(own: Measured, plain: Measured) -> Iterator[float]:
    """The bytes over plain autograd's, with each input in turn frozen."""
    for name, size in own.saved_bytes_without.items():
        yield max(1, size) / max(1, plain.saved_bytes_without[name])


def chosen(names: Sequence[str]) -> list[Op]:
    """The ops of these names; all of them if none is named."""
    return [op for op in OPS if not names or op.name in names]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ops", nargs="*", help="names of ops; all of them if none")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    compiled = not options.no_compile
    names = [*CANDIDATES, *[COMPILED] * compiled, NATIVE]
    print("over plain autograd: time, with create_graph, bytes, one input frozen")
    print(head(names))
    rows = []
    with Bench([PLAIN, *names]) as bench:
        for op in chosen(options.ops):
            rows.append(measured(bench, op, options.rounds, compiled))
            print(row_line(rows[-1], names), flush=True)
    print(mean_line(rows, names), *notes(rows), sep="\n")
    targets = missed(rows)
    print(*(f"missed: {item}" for item in targets), sep="\n")
    return bool(targets)


if __name__ == "__main__":
    sys.exit(main())
