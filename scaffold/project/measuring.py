"""Benchmarks of an op against plain autograd of its text, torch.compile of it, and another operator.

The service of `scaffold bench`. In: a `Specified` (an op's keys and its spec), the text of the other operator, sizes, dtypes. Out:
a `Table` for each choice of sizes and dtype.
Invariant: another operator is written like a forward; if the op or the other operator cannot be measured, an error is raised.

Words: a *variant* is one of the things compared, each timed on the same inputs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from scaffold.derive import derive
from scaffold.errors import Location, ScaffoldError
from scaffold.formula import Formula
from scaffold.project.explanation import read_shapes
from scaffold.project.rendering import inferred_note, missing_of, notes_of
from scaffold.project.specification import Specified
from scaffold.render.large_sizes import Sizes, large_sizes, make_arguments
from scaffold.render.testdomains import with_domains
from scaffold.render.verification import verification
from scaffold.spec.build import SIGNATURE, build
from scaffold.spec.imports import runs_code_of
from scaffold.spec.problems import KeyPath
from scaffold.verify import import_path
from scaffold.verify.bench import Bench, Results, Setting, Variant

OP, PLAIN, COMPILED = "op", "plain autograd", "torch.compile"
STATED = {*SIGNATURE, "import", "require"}  # for the other operator too


class Table(NamedTuple):
    """The results for one choice of sizes and dtype."""

    sizes: Sizes
    dtype: str
    found: Results

    @property
    def title(self) -> str:
        """Return the sizes and the dtype: `...=8x64, D=512, float32`."""
        return _title(self.sizes, self.dtype)


class Workload(NamedTuple):
    """All known before the first measurement: the variants, the sizes, and where their code is found."""

    variants: tuple[Variant, ...]
    sizes: tuple[tuple[Sizes, Mapping[str, Any]], ...]  # with the arguments of a call
    path: tuple[str, ...]  # searched for the user's modules
    notes: tuple[str, ...]


def workload(
    found: Specified, sizes: Sequence[str], against: str | None, compiled: bool
) -> Workload:
    """Return the variants to measure: the op, plain autograd of its forward, and on request torch.compile and the operator `against`.

    `sizes` are texts such as "N=32, D=512", one for each table; without any, usual large sizes are taken. Raise ScaffoldError if a
    gradient of the op is left to write: there would be nothing to measure.
    """
    spec, derivation = found.spec, derive(found.spec)
    if missing := missing_of(spec, derivation):
        message = f"the op lacks {', '.join(missing)}: there is nothing to measure"
        raise ScaffoldError(
            message, found.locate(("name",)), "state the missing gradients with --grad"
        )
    other = _other(found, against) if against is not None else None
    texts = verification(spec, derivation, derivation.derived, other)
    variants = [Variant(OP, "OPERATOR", *texts), Variant(PLAIN, "PLAIN", *texts)]
    if compiled:
        variants.append(Variant(COMPILED, "PLAIN", *texts, compiled=True))
    if against is not None:
        variants.append(Variant(against, "OTHER", *texts))
    seen = with_domains(spec, derivation)
    chosen = [large_sizes(seen, read_shapes(text)) for text in sizes or ("",)]
    arguments = [(one, make_arguments(seen, one)) for one in chosen]
    path = import_path(Path.cwd(), found.places.root / found.places.directories.source)
    imported = runs_code_of(spec, "the measurement")
    notes = (*inferred_note(found), *notes_of(spec, derivation), imported)
    return Workload(tuple(variants), tuple(arguments), path, tuple(filter(None, notes)))


def _other(found: Specified, text: str) -> Formula:
    """Return the other operator, the text of `--against`, as a formula over the op's inputs, read like its forward.

    An op of the same inputs is built with it; its problems are placed at `--against`.
    """

    def locate(path: KeyPath, *, key: bool = False) -> Location:
        """Return the place of a key: the other operator takes the forward's."""
        stated = path[:1] == ("forward",)
        return Location("--against") if stated else found.locate(path, key=key)

    raw = {key: value for key, value in found.raw.items() if key in STATED}
    raw |= {"forward": text, "derive": False}
    known, package = found.configuration, found.places.directories.package
    spec = build(found.spec.name, raw, locate, known, found.reads, package)
    assert spec.forward is not None
    return spec.forward


def measure(
    work: Workload,
    bench: Bench,
    dtypes: Sequence[str],
    setting: Setting,
    rounds: int,
    tell: Callable[[], None],
) -> Iterator[Table]:
    """Yield a table of times and memory for each choice of sizes and dtype; `tell` is called after each measured step, for a bar.

    Raise ScaffoldError if the op or the other operator cannot be measured; autograd and torch.compile may fail: the table says so.
    """
    for (sizes, arguments), dtype in product(work.sizes, dtypes):
        chosen = setting._replace(arguments=arguments, dtype=dtype)
        found = bench.measure(work.variants, chosen, rounds, tell)
        problem = f"cannot be measured with {_title(sizes, dtype)} on {setting.device}"
        for name, reason in found.refused.items():
            # These two may fail, and the table says why; the others are what the user asked for.
            if name not in (PLAIN, COMPILED):
                raise _refused(name, f"{problem}: {reason}")
        yield Table(sizes, dtype, found)


def _refused(name: str, words: str) -> ScaffoldError:
    """Return the error for a variant without a measurement; `words` are the reason."""
    if name == OP:
        hint = "use sizes that it accepts: --sizes 'N=32, D=512, ...=8x64'"
        # The process says so of a value that is too large (`verify.child.measuring`).
        if "undeclared" in words:
            hint = f"declare the shapes, as --inputs 'x[N, D]', or {hint}"
        return ScaffoldError(f"the op {words}", Location("--sizes"), hint)
    hint = "write an operator over the inputs, as in: --against 'F.silu(x)'"
    return ScaffoldError(f"'{name}' {words}", Location("--against"), hint)


def _title(sizes: Sizes, dtype: str) -> str:
    """Return the sizes and the dtype of a table, as in its title."""
    shown = (f"{name}={'x'.join(map(str, size))}" for name, size in sizes.items())
    return ", ".join((*shown, dtype))
