"""Calls of einops, as those of PyTorch that do the same."""

import ast

import pytest

from scaffold.formula.einops import with_patterns_written_out

HEAD = "import einops\nfrom einops import einsum, rearrange, reduce as red, repeat\n"
CASES = [
    (
        "rearrange(x, 'b n (h d) -> b h n d', h=8)",
        "x.unflatten(2, (8, -1)).transpose(1, 2)",
    ),
    (
        "einops.rearrange(x, 'b h n d -> b n (h d)')",
        "x.transpose(1, 2).flatten(2, 3)",
    ),
    ("rearrange(x, 'a b c -> c a b')", "x.permute(2, 0, 1)"),
    (
        "rearrange(x, 'b (h p) (w q) -> b (h w) (p q)', p=2, q=n)",
        "x.unflatten(2, (-1, n)).unflatten(1, (-1, 2)).transpose(2, 3).flatten(3, 4).flatten(1, 2)",
    ),
    ("rearrange(x, 'b c ... -> b (...) c')", "x.movedim(1, -1).flatten(1, -2)"),
    ("rearrange(x, '... d -> d ...')", "x.movedim(-1, 0)"),
    ("rearrange(x, 'a b ... -> b ... a')", "x.movedim((1, 0), (0, -1))"),
    ("rearrange(x, 'b (c l) ... -> b c l ...', l=n)", "x.unflatten(1, (-1, n))"),
    (
        "rearrange(x, '... h (k d) -> ... (h k) d', k=2)",
        "x.unflatten(-1, (2, -1)).flatten(-3, -2)",
    ),
    ("rearrange(x, '... -> (...)')", "x.flatten(0, -1)"),
    ("rearrange(x, 'a 1 b -> b a 1')", "x.squeeze(1).transpose(0, 1).unsqueeze(2)"),
    ("rearrange([x, y], 'k n -> n k')", "torch.stack([x, y]).transpose(0, 1)"),
    (
        "repeat(x, 'b d -> (b r) d', r=2)",
        "x.unsqueeze(1).expand(-1, 2, -1).flatten(0, 1)",
    ),
    (
        "repeat(x, '... d -> ... d e', e=t)",
        "x.unsqueeze(-1).repeat_interleave(t, -1)",
    ),
    ("red(x, 'b n d -> b d', 'mean')", "x.mean(1)"),
    (
        "red(x, 'b (h p) (w q) -> b h w', 'max', p=2, q=2)",
        "x.unflatten(2, (-1, 2)).unflatten(1, (-1, 2)).amax((2, 4))",
    ),
    ("red(x, 'b ... -> b', 'sum')", "x.unsqueeze(1).flatten(1, -1).sum(1)"),
    ("red(x, 'b ... d -> d', 'max')", "x.unsqueeze(1).flatten(1, -2).amax((0, 1))"),
    (
        "einsum(x, y, 'batch i, batch j -> batch i j')",
        "torch.einsum('ab,ac->abc', x, y)",
    ),
    ("einsum(x, y, '... i, ... i -> ...')", "torch.einsum('...a,...a->...', x, y)"),
]


def written(call: str, head: str = HEAD, *kept: str) -> str:
    module = with_patterns_written_out(ast.parse(f"{head}y = {call}"), kept)
    return ast.unparse(module.body[-1]).removeprefix("y = ")


@pytest.mark.parametrize(("call", "wanted"), CASES)
def test_a_pattern_is_written_out(call: str, wanted: str) -> None:
    assert written(call) == wanted


@pytest.mark.parametrize(
    "call",
    [
        "rearrange(x, pattern)",
        "rearrange(x, 'b (h w) -> b h w')",  # which of them is how long
        "rearrange(x, 'b n d -> b d')",
        "rearrange(x, 'b n -> b n d', d=2)",
        "rearrange(x, 'b n n -> b n')",
        "rearrange(x, 'b (n d -> b n d')",
        "repeat(x, 'b n -> b n d')",
        "red(x, 'b n d -> b d', 'prod')",
        "einops.pack(x, 'b *')",
        "rearrange(x, 'b n -> n b', **sizes)",
    ],
)
def test_else_the_call_stays(call: str) -> None:
    assert written(call) == ast.unparse(ast.parse(call))


def test_a_function_of_the_file_stays() -> None:
    own = f"{HEAD}def rearrange(x, p):\n    return x\n"
    assert written("rearrange(x, 'a b -> b a')", own) == "rearrange(x, 'a b -> b a')"


def test_what_the_op_imports_stays() -> None:
    call = "rearrange(x, 'a b -> b a')"
    assert written(call, HEAD, "rearrange") == call
