"""Each primitive as an op of one call, on PyTorch's own samples: `python -m tests.derive.opinfo [--write FILE] [NAME ...]`.

In: the rule table and `op_db`. Out: a table of how many samples pass for each primitive, in float64 and complex128. Invariant: a
sample passes if forward, gradients, what backward returns and second derivatives are those of autograd; of what autograd has no
gradient of, if the gradients are those of differences.
"""

import argparse
import inspect
import math
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from scaffold.derive import derive
from scaffold.derive.rules.table import Rule, built_in
from tests.derive.building import draft_of, load, spec_of
from tests.derive.checking import check_by_differences, check_needs, tuple_of

TRAITS = {torch.int64: "int", torch.int32: "int", torch.bool: "bool"}
LETTERS = "ABCDEGIJKLMNOPQRSUVWXYZ"
ATTRIBUTES = (".T", ".H", ".mT", ".mH", ".real", ".imag")
VERDICTS = ("direct", "fallback", "refused", "wrong", "error")


class Unwritable(Exception):
    """A sample that no formula can be written for."""


class Call(NamedTuple):
    """A call as a user would write it, and the tensors in it."""

    inputs: str
    forward: str
    outputs: str
    values: list[Tensor]


@cache
def infos() -> dict[str, list[Any]]:
    """The entries of PyTorch's table, by the name that the rules have for it."""
    from torch.testing._internal.common_methods_invocations import op_db

    found: dict[str, list[Any]] = {}
    for info in op_db:
        for name in (info.name, *(alias.name for alias in info.aliases)):
            found.setdefault(spelled(name), []).append(info)
    return found


def spelled(name: str) -> str:
    """`F.silu` for `nn.functional.silu`, `torch.exp` for `exp`, `.expand` where there is only a method."""
    if name.startswith("nn.functional."):
        return "F." + name.removeprefix("nn.functional.")
    root: Any = torch
    for part in name.split("."):
        root = getattr(root, part, None)
    return f"torch.{name}" if callable(root) else f".{name}"


def names_of(rule: Rule) -> list[str]:
    """The functions and methods by which a rule may be found in PyTorch's table."""
    names = []
    table = built_in()
    for head in table.heads[rule.name]:
        word = head.partition("(")[0].strip()
        if word == "method":
            continue
        root, _, last = word.rpartition(".")
        named = root in ("torch", "F") or root.startswith("torch.")
        names.append(word if named else f".{last}")
        names.append(f"torch.{last}" if last.isidentifier() else "")
    names += [f"torch.{rule.name}", f"F.{rule.name}", f".{rule.name}"]
    return [name for name in dict.fromkeys(names) if name]


def literal(value: Any, tensors: list[Tensor]) -> str:
    """An argument as it is written; its tensors join the inputs."""
    if isinstance(value, Tensor):
        if value.layout != torch.strided:
            raise Unwritable
        tensors.append(value)
        return f"a{len(tensors) - 1}"
    if isinstance(value, torch.dtype | bool | int | str) or value is None:
        return repr(value)
    if isinstance(value, float | complex):
        if isinstance(value, complex) or math.isfinite(value):
            return repr(value)
        return f"float('{value}')"
    if isinstance(value, list | tuple):
        inner = ", ".join(literal(item, tensors) for item in value)
        if isinstance(value, list):
            return f"[{inner}]"
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    raise Unwritable


def call_of(name: str, sample: Any, typed: bool) -> Call:
    """The op of a sample."""
    tensors: list[Tensor] = []
    parts = [literal(item, tensors) for item in (sample.input, *sample.args)]
    parts += [f"{key}={literal(item, tensors)}" for key, item in sample.kwargs.items()]
    if name in ATTRIBUTES:
        text = f"{parts[0]}{name}"
    elif name.startswith("."):
        text = f"{parts[0]}{name}({', '.join(parts[1:])})"
    else:
        text = f"{name}({', '.join(parts)})"
    typed = typed or any(item.ndim == 0 for item in tensors)
    letters: dict[int, str] = {}
    entries = [
        entry(f"a{at}", value, letters, typed) for at, value in enumerate(tensors)
    ]
    scope = {f"a{at}": value for at, value in enumerate(tensors)}
    functional = {"torch": torch, "F": torch.nn.functional}
    try:
        results = _results(eval(text, {**functional, **scope}))
    except (TypeError, RuntimeError, ValueError) as error:  # its arguments are others
        raise Unwritable from error
    if not all(isinstance(item, Tensor) for item in results):
        raise Unwritable
    outputs, forward = "output", text
    if len(results) > 1:
        several = [f"r{at}" for at in range(len(results))]
        listed = ", ".join(several)
        forward = f"{listed} = {text}\nreturn {listed}"
        outputs = ", ".join(
            f"{one}[...; {TRAITS[item.dtype]}]" if item.dtype in TRAITS else one
            for one, item in zip(several, results, strict=True)
        )
    elif results[0].dtype in TRAITS:
        raise Unwritable
    return Call(", ".join(entries), forward, outputs, tensors)


def _results(found: Any) -> tuple[Any, ...]:
    """The tensors that a call gives, or more than one of them."""
    if isinstance(found, tuple | list) and len(found) < 2:
        raise Unwritable
    return tuple(found) if isinstance(found, list) else tuple_of(found)


def entry(name: str, value: Tensor, letters: dict[int, str], typed: bool) -> str:
    """An input of the signature; equal sizes share a letter."""
    trait = "complex" if value.is_complex() else TRAITS.get(value.dtype, "")
    if value.ndim == 0 and trait:
        raise Unwritable  # `a[; complex]` is of any shape
    if not typed:
        return f"{name}[; {trait}]" if trait else name
    dims = ", ".join(
        "1" if size == 1 else letters.setdefault(size, LETTERS[len(letters)])
        for size in value.shape
    )
    return f"{name}[{dims}; {trait}]" if trait else f"{name}[{dims}]"


@cache
def made(inputs: str, forward: str, outputs: str) -> Any:
    """The Function, its wrapper, the plain forward, the verdict if it is right, and whether it refuses a second derivative."""
    spec = spec_of(inputs, derive=True, forward=forward, outputs=outputs)
    derivation = derive(spec)
    if derivation.missing:
        return None
    text = draft_of(spec, derivation)
    module = load(text)
    plain = load(
        draft_of(spec_of(inputs, forward=forward, outputs=outputs, derive=False))
    )
    verdict = "fallback" if "torch.func.vjp" in text else "direct"
    function = getattr(module, spec.function_name)
    reference = getattr(plain, spec.function_name).forward
    once = derivation.once_differentiable
    return function, getattr(module, spec.name), reference, verdict, once


def finite(
    reference: Any, values: list[Tensor], needs: tuple[bool, ...], second: bool
) -> bool:
    """Whether the forward and autograd's gradients are numbers, second derivatives too."""
    inputs = [
        item.detach().clone().requires_grad_(need)
        for item, need in zip(values, needs, strict=True)
    ]
    results = tuple_of(reference(*inputs))
    ends = [item for item in results if item.requires_grad]
    if not ends:
        return False
    wanted = [item for item in inputs if item.requires_grad]
    grads = _gradients(ends, wanted, second)
    items = [*ends, *grads]
    if second:
        again = [item for item in grads if item.requires_grad]
        items += _gradients(again, wanted, False) if again else []
    return all(bool(torch.isfinite(item).all()) for item in items)


def _gradients(ends: list[Tensor], wanted: list[Tensor], graph: bool) -> list[Tensor]:
    ones = [torch.ones_like(item) for item in ends]
    found = torch.autograd.grad(
        ends, wanted, ones, allow_unused=True, create_graph=graph, retain_graph=True
    )
    return [item for item in found if item is not None]


def verdict_of(call: Call, once: bool, by_differences: bool) -> str | None:
    """How a call fares; None where eager itself has no gradient that is finite."""
    op = made(call.inputs, call.forward, call.outputs)
    if op is None:
        return "refused"
    function, wrapper, reference, verdict, only_once = op
    if by_differences:
        results = tuple_of(wrapper(*call.values))
        if not all(bool(item.isfinite().all()) for item in results):
            return None
        try:
            check_by_differences(wrapper, call.values, only_once)
        except (AssertionError, RuntimeError) as error:
            return f"wrong: {error}"
        return str(verdict)
    needs = tuple(item.requires_grad for item in call.values)
    try:
        if not any(needs) or not finite(reference, call.values, needs, False):
            return None
        once = once or not finite(reference, call.values, needs, True)
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
        return None
    try:
        check_needs(function, wrapper, reference, call.values, needs, once, False)
    except AssertionError as error:
        return f"wrong: {error}"
    return str(verdict)


def verdicts(
    name: str, info: Any, dtype: torch.dtype, limit: int | None, by_differences: bool
) -> Iterator[tuple[str, Call | None, str]]:
    """The verdict of each sample, typed and untyped in turns."""
    if by_differences and dtype != torch.float64:
        return
    if not by_differences and dtype not in info.supported_backward_dtypes("cpu"):
        return
    torch.manual_seed(0)
    samples = info.sample_inputs("cpu", dtype, requires_grad=True)
    for at, sample in enumerate(islice(samples, limit)):
        call = None
        try:
            call = call_of(name, sample, at % 2 == 0)
            found = verdict_of(call, not info.supports_gradgrad, by_differences)
        except Unwritable:
            continue
        except Exception as error:  # noqa: BLE001
            # any failure of ours is a line of the table
            yield "error", call, f"{type(error).__name__}: {error}"
            continue
        if found is not None:
            verdict, _, what = found.partition(": ")
            yield verdict, call, what


def measured(rule: Rule, limit: int | None) -> dict[str, Counter[str]]:
    """How many samples of a primitive have each verdict, by dtype; what is wrong goes to stderr."""
    done: set[int] = set()
    counts: dict[str, Counter[str]] = {"float64": Counter(), "complex128": Counter()}
    for name in names_of(rule):
        for info in infos().get(name, ()):
            if id(info) in done:
                continue
            done.add(id(info))
            for word, count in counts.items():
                dtype = getattr(torch, word)
                for verdict, call, what in verdicts(
                    name, info, dtype, limit, rule.undifferentiated
                ):
                    count[verdict] += 1
                    if verdict in ("wrong", "error", "refused"):
                        shown = f"{call.inputs} | {call.forward}" if call else name
                        print(
                            f"{rule.name} {word} {verdict}: {shown} {what[:200]!r}",
                            file=sys.stderr,
                        )
    return counts


def table_of(rules: list[Rule], limit: int | None) -> Iterator[str]:
    """The lines of the table."""
    total: Counter[str] = Counter()
    yield "| primitive | float64: direct | fallback | complex128: direct | fallback | refused | wrong | error |"
    yield "|---|---|---|---|---|---|---|---|"
    without = []
    for rule in rules:
        counts = measured(rule, limit)
        both = sum(counts.values(), Counter())
        if not both:
            without.append(rule.name)
            continue
        total += both
        numbers = [counts[word][verdict] for word in counts for verdict in VERDICTS[:2]]
        numbers += [both[verdict] for verdict in VERDICTS[2:]]
        yield f"| {rule.name} | {' | '.join(map(str, numbers))} |"
    yield ""
    yield "All: " + ", ".join(f"{total[item]} {item}" for item in VERDICTS) + "."
    yield ""
    yield f"Without samples in PyTorch's table: {', '.join(without)}."


def main() -> None:
    """Print the table, or write it to a file."""
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=inspect.getdoc(main))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    table = built_in()
    rules = [
        rule
        for rule in map(table.rule, options.names or table.names())
        if rule.category not in ("constant", "backward")
    ]
    lines = list(table_of(rules, options.limit))
    text = "\n".join([*HEAD, *lines]) + "\n"
    if options.write:
        options.write.write_text(text)
    else:
        print(text)


HEAD = (
    "# PyTorch's own samples",
    "",
    "For contributors: each primitive of the rule table, as an op of one call, on PyTorch's own samples for its operators (`op_db`), with and",
    "without declared shapes in turns. A sample passes if the forward, the gradients, what `backward` returns and the second",
    "derivatives are those of autograd, or of differences where autograd has none. *Direct* has a derived formula; in a *fallback* autograd differentiates the call. Samples whose",
    "value or gradient is not finite are left out. Written by `python -m tests.derive.opinfo --write docs/opinfo.md`, over all",
    "samples. It needs `expecttest`, which PyTorch imports for its own tests. An *error* raises: `torch.cat` passes over a tensor of",
    "shape (0,), whatever the shapes of the others; where no shape is declared, the backward of one such sample reads a dim of it",
    "that is not there.",
    "",
)


if __name__ == "__main__":
    main()
