"""What is declared of outputs and samples is held against a call."""

from typing import Any

import pytest

from tests.verify.ops import verdict

FALSE: dict[str, dict[str, Any]] = {
    "outputs: s[D] is declared, but the forward returns s[N]": {
        "inputs": "x[N, D]",
        "forward": "x.sum(1)",
        "outputs": "s[D]",
    },
    "outputs: i[N] is declared, but the forward returns i[N, K]": {
        "inputs": "x[N, D], n: int = 2",
        "forward": "v, i = x.topk(n, dim=1)\nreturn v, i",
        "outputs": "v[N, K], i[N; int]",
    },
    "outputs: y[N] is declared, but the forward returns y[N, D]": {
        "inputs": "x[N, D]",
        "forward": "x * 2",
        "outputs": "y[N]",
    },
    "outputs: s[3] is declared, but the forward returns s[D]": {
        "inputs": "x[N, D]",
        "forward": "x.sum(0)",
        "outputs": "s[3]",
        "require": ["D >= 4"],
    },
    "outputs: y[..., D] is declared, but the forward returns y[5, 2, 3]": {
        "inputs": "x[..., D]",
        "forward": "torch.stack((x, x, x, x, x))",
        "outputs": "y[..., D]",
    },
    "outputs: s[*batch, S] is declared, but the forward returns s[2, 5]": {
        "inputs": "q[*batch, S, D], k[*batch, T, D]",
        "forward": "(q.sum(-2, keepdim=True) + k).sum(-1)",
        "outputs": "s[*batch, S]",
    },
    "outputs: s[*batch] is declared, but the forward returns s[S]": {
        "inputs": "x[*batch, S]",
        "forward": "x.flatten(0, -2).sum(0)",
        "outputs": "s[*batch]",
    },
    "outputs: m is declared as bools, but the forward returns integers": {
        "inputs": "x[N, D]",
        "forward": "return x * 2, (x > 0).long()",
        "outputs": "y[N, D], m[N, D; bool]",
    },
    "outputs: i has no trait, so it counts as floating-point numbers, but the forward returns integers": {
        "inputs": "x",
        "forward": "x.sort(-1)",
        "outputs": "v, i",
    },
    "outputs: output has no trait, so it counts as floating-point numbers, but the forward returns integers": {
        "inputs": "x",
        "forward": "x.argmax(-1)",
    },
    "outputs: 1 output is declared, but the forward returns 2": {
        "inputs": "x",
        "forward": "x.sort(-1)",
    },
}


@pytest.mark.parametrize("words", FALSE)
def test_a_false_declaration_of_an_output_is_refused(words: str) -> None:
    found = verdict(**FALSE[words], derive=True).failure
    assert found is not None
    assert f"{found.subject}: {found.words}" == words


TRUE: tuple[dict[str, Any], ...] = (
    {"inputs": "x[N, D]", "forward": "x.sum(0)", "outputs": "s[D]"},
    {"inputs": "x[..., D]", "forward": "x.norm(dim=-1)", "outputs": "n[...]"},
    {
        "inputs": "x[..., D], y[..., D]",
        "forward": "return x + y, x.sum(-1)",
        "outputs": "s[..., D], t[...]",
    },
    {
        "inputs": "x[N, D], n: int = 2",
        "forward": "v, i = x.topk(n, dim=1)\nreturn v, i",
        "outputs": "v[N, K], i[N, K; int]",
    },
    {
        "inputs": "x[N], y",
        "forward": "return x * 2, y * 3",
        "outputs": "a[N], b[...]",
    },
    {
        "inputs": "q[*batch, S, D], k[*batch, T, D], b[..., T]",
        "forward": "return q @ k.mT, q.sum((-2, -1)), b.sum(-1)",
        "outputs": "s[*batch, S, T], t[*batch], u[...]",
    },
    {"inputs": "*xs[N, D]", "forward": "sum(xs)", "outputs": "s[N, D]"},
)


@pytest.mark.parametrize("raw", TRUE, ids=lambda raw: str(raw["inputs"]))
def test_a_true_declaration_is_none_of_the_findings(raw: dict[str, Any]) -> None:
    found = verdict(**raw, derive=True)
    assert found.failure is None and found.cases > 0


def test_what_the_forward_returns_is_proposed() -> None:
    found = verdict(inputs="x", forward="x.sort(-1)", derive=True).failure
    assert found is not None and found.hint == "--outputs 'a, b[...; int]'"
    outputs = found.hint.split("'")[1]
    again = verdict(inputs="x", forward="x.sort(-1)", outputs=outputs, derive=True)
    assert again.failure is None
