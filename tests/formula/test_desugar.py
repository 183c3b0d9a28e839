"""Statements that assign one target each, and return once."""

import ast

import pytest

from scaffold.formula.desugar import (
    plain,
    straightened,
    with_modes_closed,
    with_one_return,
)

CASES = [
    ("v[0] = x", "v[0] = x"),
    ("a, b = x, y", "a, b = x, y"),
    ("v[0], v[-1] = x, y", "v_part, v_part_2 = x, y\nv[0] = v_part\nv[-1] = v_part_2"),
    ("v[0], w = x, y", "v_part, w = x, y\nv[0] = v_part"),
    ("v[0], *w = x", "v_part, *w = x\nv[0] = v_part"),
    ("*v[0], w = x", "*v_part, w = x\nv[0] = v_part"),
    ("(v[0], w), z = x", "(v_part, w), z = x\nv[0] = v_part"),
    ("[v[0], w] = x", "v_part, w = x\nv[0] = v_part"),
    # A name that is assigned beside a part is read by it before, or after.
    ("v[i], i = x, 1", "v_part, i_part = x, 1\nv[i] = v_part\ni = i_part"),
    ("i, v[i] = 1, x", "i_part, v_part = 1, x\ni = i_part\nv[i] = v_part"),
    # Imports of the names that every formula has.
    ("import math\na = x", "a = x"),
    ("if t:\n    import torch\n    a = x", "if t:\n    a = x"),
    ("from torch.nn import functional as F\na = x", "a = x"),
    ("import numpy as np\na = x", "import numpy as np\na = x"),
    ("a = b = x", "a = x\nb = a"),
    ("a = v[0] = x", "a = x\nv[0] = a"),
    ("v[0] = a = x", "value = x\nv[0] = value\na = value"),
    ("a, b = c = x", "value = x\na, b = value\nc = value"),
    ("v[0], v_part = x", "v_part_2, v_part = x\nv[0] = v_part_2"),
    # The sizes of a star among others, but not where a name is read that is assigned.
    ("b, t, n = *x.shape, 2", "b, t = x.shape\nn = 2"),
    ("k, *b, n = 2, *x.shape, y.shape[0]", "k, *b, n = 2, *x.shape, y.shape[0]"),
    ("k, b, t, n = 2, *x.shape, y.shape[0]", "k = 2\nb, t = x.shape\nn = y.shape[0]"),
    ("b, t, n = *x.shape, b", "b, t, n = *x.shape, b"),
    ("b, t = (*x.shape,)", "b, t = x.shape"),
    ("if t:\n    v[0], w = x\n", "if t:\n    v_part, w = x\n    v[0] = v_part"),
]


@pytest.mark.parametrize(("text", "wanted"), CASES)
def test_each_statement_assigns_one_target(text: str, wanted: str) -> None:
    found = plain(ast.parse(text).body)
    tree = ast.fix_missing_locations(ast.Module(found, []))
    assert ast.unparse(tree) == ast.unparse(ast.parse(wanted))


STRAIGHT = [
    (
        "with torch.no_grad():\n    m = x.amax(-1)\n    n = m - 1",
        "m = x.amax(-1).detach()\nn = (m - 1).detach()",
    ),
    (
        "with torch.no_grad():\n    q = torch.min(x, y)",
        "q = torch.min(x, y).detach()",
    ),
    (
        "with torch.no_grad():\n    v, i = x.topk(2)",
        "v, i = x.topk(2)\nv = v.detach()\ni = i.detach()",
    ),
    (
        "with torch.no_grad():\n    h = torch.zeros_like(x).scatter_(1, i, 1)\n    h[0] = x[1]",
        "h = torch.zeros_like(x).scatter_(1, i, 1).detach()\nh[0] = x[1].detach()",
    ),
    (
        "with torch.no_grad():\n    h = torch.zeros(2)\n    h.scatter_(0, i, 1)",
        "h = torch.zeros(2).detach()\nh.scatter_(0, i, 1)",
    ),
    (
        "with torch.no_grad():\n    h = torch.zeros(2)\n    h.add_(y)",
        "h = torch.zeros(2).detach()\nh.add_(y)\nh = h.detach()",
    ),
    (
        "with torch.no_grad():\n    h = x.exp()\n    h /= h.sum(0)\n    h += 1\n    h -= h",
        "h = x.exp().detach()\nh /= h.sum(0)\nh += 1\nh -= h",
    ),
    (
        "with torch.no_grad():\n    h = x\n    k = h.exp()",
        "h = x\nk = h.exp().detach()",
    ),
    (
        "with torch.no_grad():\n    h = x + 1 if t else (x * 2).float()\n    k = h",
        "h = (x + 1 if t else (x * 2).float()).detach()\nk = h.detach()",
    ),
    (
        "if t:\n    with torch.no_grad():\n        if u:\n            k = 1",
        "if t:\n    if u:\n        k = 1",
    ),
    ("rows = []\nrows.append(x)", "rows = []\nrows = [*rows, x]"),
    ("with torch.enable_grad():\n    y = x + 1", "y = x + 1"),
    (
        "with torch.autocast(x.device.type, enabled=False):\n    y = x.float().exp()",
        "y = x.float().exp()",
    ),
    (
        "with torch.cuda.amp.autocast(enabled=False):\n    y = float(n) * x",
        "y = float(n) * x",
    ),
]


@pytest.mark.parametrize(("text", "wanted"), STRAIGHT)
def test_what_says_the_same_is_an_assignment(text: str, wanted: str) -> None:
    tree = ast.fix_missing_locations(ast.Module(straightened(ast.parse(text).body), []))
    assert ast.unparse(tree) == ast.unparse(ast.parse(wanted))


@pytest.mark.parametrize(
    "text",
    [
        # Of these the value is a tensor that autograd recorded before.
        "with torch.no_grad():\n    y = torch.max(x, dim)",
        "with torch.no_grad():\n    y = torch.max(x, -1)",
        "with torch.no_grad():\n    y = x.float()",
        "with torch.no_grad():\n    y = x if t else z",
        "with torch.no_grad():\n    y = x.real",
        # These change one.
        "with torch.no_grad():\n    h[0] = x",
        "with torch.no_grad():\n    h.mul_(x)",
        "with torch.no_grad():\n    y = h.mul_(2)",
        "with torch.no_grad():\n    y = x * h.mul_(2)",
        "with torch.no_grad():\n    h += 1",
        # Several tensors under one name.
        "with torch.no_grad():\n    parts = x.chunk(2)",
        "with torch.no_grad():\n    if t:\n        y = x.real",
        # One way it is another name of a tensor.
        "with torch.no_grad():\n    if t:\n        y = x\n    else:\n        y = x + 1\n    y.mul_(2)",
        "with torch.no_grad():\n    with torch.enable_grad():\n        y = x + 1",
        "with torch.autocast('cpu'):\n    y = x + 1",
        "with torch.autocast('cpu', enabled=on):\n    y = x + 1",
        # Under the caller's autocast it would be of another dtype.
        "with torch.autocast('cpu', enabled=False):\n    y = x @ w",
        "with torch.autocast('cpu', enabled=False):\n    y = F.linear(x, w)",
        "with torch.autocast('cpu', enabled=False):\n    y = f(x)",
        # A list that has two names, or is none.
        "rows = []\nsame = rows\nrows.append(x)",
        "rows.append(x)",
        "rows = []\nif t:\n    rows.append(x)",
        "rows = [x, y]\nboth = (rows, 1)\nrows.append(n)",
        "rows = [x, y]\nboth = [rows]\nrows.append(n)",
        "rows = both = [x, y]\nrows.append(n)",
        "rows = [x, y]\nboth = rows if a else [z]\nrows.append(n)",
    ],
)
def test_what_may_say_something_else_stays(text: str) -> None:
    body = ast.parse(text).body
    assert ast.dump(ast.Module(straightened(body), [])) == ast.dump(
        ast.Module(body, [])
    )


def test_what_is_given_stays_as_it_is() -> None:
    body = ast.parse("v[0], w = x, y").body
    before = ast.dump(body[0])
    plain(body)
    assert ast.dump(body[0]) == before


RETURNS = [
    (
        "if t:\n    return a\nreturn b",
        "if t:\n    result = a\nelse:\n    result = b\nreturn result",
    ),
    (
        "if t:\n    return a, b\nc = d\nreturn c, d",
        "if t:\n    result_0, result_1 = (a, b)\nelse:\n    c = d\n    "
        + "result_0, result_1 = (c, d)\nreturn (result_0, result_1)",
    ),
    # Nothing follows the last test: an unknown mode is an error.
    (
        "if mode == 'a':\n    return x",
        "if mode == 'a':\n    result = x\nelse:\n    raise ValueError(f'unknown mode: {mode}')\nreturn result",
    ),
    # So is an unknown rank.
    (
        "if len(x.shape) == 4:\n    return a\nelif x.ndim == 5:\n    return b",
        "if len(x.shape) == 4:\n    result = a\nelif x.ndim == 5:\n    result = b\nelse:\n    "
        + "raise ValueError(f'unknown x.ndim: {x.ndim}')\nreturn result",
    ),
    ("result = x\nif t:\n    return a\nreturn result", None),
]


@pytest.mark.parametrize(("text", "wanted"), RETURNS)
def test_one_return_stands_at_the_end(text: str, wanted: str | None) -> None:
    done = ast.unparse(ast.Module(with_one_return(ast.parse(text).body), []))
    if wanted is None:
        assert "result_value" in done, "the name is taken"
    else:
        assert done == ast.unparse(ast.parse(wanted))


@pytest.mark.parametrize(
    "text",
    [
        "if t:\n    return a\nb = c",  # not every way returns
        "if t:\n    return a, b\nreturn c",  # not as many
        "if t:\n    if u:\n        return a\n    v = b\nelse:\n    w = c\nreturn v",  # `return v` would stand twice
    ],
)
def test_what_would_repeat_a_statement_stays(text: str) -> None:
    body = ast.parse(text).body
    assert list(map(ast.dump, with_one_return(body))) == list(map(ast.dump, body))


def test_a_choice_between_modes_raises_in_another_mode() -> None:
    text = "if mode == 'a':\n    y = x\nelif mode == 'b':\n    y = -x\nreturn y"
    found = with_modes_closed(ast.parse(text).body, {"mode == 'b'"})
    closed = text.replace(
        "\nreturn", "\nelse:\n    raise ValueError(f'unknown mode: {mode}')\nreturn"
    )
    assert ast.unparse(ast.Module(found, [])) == closed
    # One test alone may have lost its `else`: that is said.
    alone = "if mode == 'b':\n    y = x\nreturn y"
    found = with_modes_closed(ast.parse(alone).body, {"mode == 'b'"})
    assert ast.unparse(ast.Module(found, [])) == alone
