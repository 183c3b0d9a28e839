"""A manifest of many ops, no two the same: as a code base has them.

In: how many. Out: the text of an `ops.toml`, with gradients written out or left to derive.
Invariant: the same number gives the same text.
"""

from collections.abc import Iterator
from typing import NamedTuple


class Kind(NamedTuple):
    """A kind of op: what it takes and computes, and its gradients; `{n}` is a number, `{a}` and `{b}` are names."""

    name: str
    inputs: str
    forward: str
    gradients: tuple[tuple[str, str], ...]
    more: str = ""  # further lines of the table


NAMES = ("x", "input", "query", "value", "logits", "state", "hidden", "scores")
OTHERS = ("weight", "scale", "gain", "factors", "kernel", "gate", "other")

KINDS = (
    Kind(
        "linear",
        "{a}[N, K], {b}[M, K], bias[M]?",
        "{a} @ {b}.t() * {n}.0 + bias",
        (
            ("{a}", "grad_output @ {b} * {n}.0"),
            ("{b}", "grad_output.t() @ {a} * {n}.0"),
            ("bias", "grad_output.sum(0)"),
        ),
    ),
    Kind(
        "power",
        "{a}[..., D; positive], exponent: float = {n}.0",
        "{a} ** exponent",
        (("{a}", "grad_output * exponent * {a} ** (exponent - 1)"),),
    ),
    Kind(
        "product",
        "{a}[N, D], {b}[N, D]",
        "{a} * {b} * {n}",
        (("{a}", "grad_output * {b} * {n}"), ("{b}", "grad_output * {a} * {n}")),
    ),
    Kind(
        "sigmoid",
        "{a}[..., D]",
        "1 / (1 + torch.exp(-{a} / {n}))",
        (("{a}", "grad_output * output * (1 - output) / {n}"),),
    ),
    Kind(
        "wave",
        "{a}, {b}, phase: float = 0.{n}",
        "{a} * torch.sin({b} + phase)",
        (
            ("{a}", "grad_output * torch.sin({b} + phase)"),
            ("{b}", "grad_output * {a} * torch.cos({b} + phase)"),
        ),
        "doc = 'A wave of kind {n}.'\nmodule = false\n",
    ),
    Kind(
        "mean",
        "{a}[B, T, D]",
        "{a}.mean(1) * {n}.5",
        (
            (
                "{a}",
                "(grad_output * {n}.5 / {a}.shape[1]).unsqueeze(1).expand_as({a})",
            ),
        ),
        "module = false\n",
    ),
    Kind(
        "swish",
        "{a}[..., D], beta: float = {n}.0",
        "gate = torch.sigmoid({a} * beta)\nreturn {a} * gate",
        (("{a}", "grad_output * (gate + {a} * beta * gate * (1 - gate))"),),
        "style = 'combined'\n",
    ),
    Kind(
        "rms",
        "{a}[..., D], {b}[D], eps: float = 1e-{n}",
        "rstd = torch.rsqrt(({a} * {a}).mean(-1, keepdim=True) + eps)\n"
        "return {a} * rstd * {b}",
        (
            (
                "{a}",
                (
                    "scaled = grad_output * {b}\n"
                    "along = (scaled * {a}).mean(-1, keepdim=True)\n"
                    "return rstd * (scaled - {a} * rstd * rstd * along)"
                ),
            ),
            ("{b}", "(grad_output * {a} * rstd).sum_to_size({b}.shape)"),
        ),
    ),
    Kind(
        "masked",
        "{a}[..., S], keep[S; bool], fill: float = -{n}.0",
        "torch.where(keep, {a}, fill)",
        (("{a}", "torch.where(keep, grad_output, 0)"),),
        "doc = 'Fill what is not kept with -{n}.'\n",
    ),
    Kind(
        "pair",
        "{a}[N, D], {b}[N, D]",
        "{a} + {b} * {n}, {a} * {b}",
        (
            ("{a}", "grad_total + grad_both * {b}"),
            ("{b}", "grad_total * {n} + grad_both * {a}"),
        ),
        "outputs = 'total[..., D], both[..., D]'\nmodule = false\n",
    ),
)


def manifest(count: int, *, derived: bool) -> str:
    """The text of a manifest of that many ops."""
    return "\n".join(_tables(count, derived))


def _tables(count: int, derived: bool) -> Iterator[str]:
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        turn = number // len(KINDS)
        words = {
            "n": str(2 + turn % 7),
            "a": NAMES[turn % len(NAMES)],
            "b": OTHERS[turn % len(OTHERS)],
        }
        yield _filled(_table(kind, f"{kind.name}_{number}", derived), words)


def _table(kind: Kind, name: str, derived: bool) -> str:
    lines = [f"[ops.{name}]", f"inputs = '{kind.inputs}'"]
    lines.append(f"forward = {_quoted(kind.forward)}")
    if derived:
        lines.append("derive = true")
    else:
        lines += [f"grad.{one} = {_quoted(text)}" for one, text in kind.gradients]
    return "\n".join(lines) + f"\n{kind.more}"


def _quoted(formula: str) -> str:
    return f"'''\n{formula}\n'''" if "\n" in formula else f"'{formula}'"


def _filled(text: str, words: dict[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(f"{{{word}}}", value)
    return text
