"""Short loops over constants, written out."""

import ast

import pytest

from scaffold.derive import derive
from scaffold.formula.loop_unrolling import unrolled
from tests.derive.building import spec_of


def lines(source: str, *taken: str) -> str:
    return "\n".join(map(ast.unparse, unrolled(ast.parse(source).body, taken)))


@pytest.mark.parametrize(
    ("source", "straight"),
    [
        ("for i in range(3):\n    y = y * x", "y = y * x\ny = y * x\ny = y * x"),
        ("for i in range(2):\n    y = x[:, i + 1]", "y = x[:, 1]\ny = x[:, 2]"),
        ("for i in range(1, 4, 2):\n    y = x[i * 2]", "y = x[2]\ny = x[6]"),
        ("for i in range(1, -1, -1):\n    y = x[i - 1]", "y = x[0]\ny = x[-1]"),
        (
            "for c in (0.5, -1.5):\n    y = y * x + c",
            "y = y * x + 0.5\ny = y * x + -1.5",
        ),
        ("for w in (a, b):\n    y = y @ w", "y = y @ a\ny = y @ b"),
        ("for i, w in enumerate((a, b)):\n    y += w[i]", "y += a[0]\ny += b[1]"),
        ("for a, b in zip((p, q), (r, s)):\n    y += a * b", "y += p * r\ny += q * s"),
        ("for a, b in ((p, 1), (q, 2)):\n    y += a * b", "y += p * 1\ny += q * 2"),
        ("for i in reversed(range(2)):\n    y = x[i]", "y = x[1]\ny = x[0]"),
        (
            "for i in range(2):\n    for j in range(2):\n        y += x[i, j]",
            "y += x[0, 0]\ny += x[0, 1]\ny += x[1, 0]\ny += x[1, 1]",
        ),
        (
            "for i in range(2):\n    if i > 0:\n        y = y * 2\n    y = y + 1",
            "y = y + 1\ny = y * 2\ny = y + 1",
        ),
        (
            "for i in range(2):\n    for j in range(2):\n        if i == j:\n            continue\n        y += x[i, j]",
            "y += x[0, 1]\ny += x[1, 0]",
        ),
        ("for i in range(2):\n    y[i] = x[i]", "y[0] = x[0]\ny[1] = x[1]"),
        ("for i in range(2):\n    y += x if i == 0 else -x", "y += x\ny += -x"),
        (
            "y = torch.stack([x * i for i in range(2)])",
            "y = torch.stack([x * 0, x * 1])",
        ),
        ("y = sum(x ** k for k in (1, 2))", "y = sum([x ** 1, x ** 2])"),
        (
            "y = [f(x) * i for i in range(2) for f in (torch.sin, torch.cos)]",
            "y = [torch.sin(x) * 0, torch.cos(x) * 0, torch.sin(x) * 1, torch.cos(x) * 1]",
        ),
        ("a, b = (v.exp() for v in (x, y))", "a, b = (x.exp(), y.exp())"),
        # of anything else there are as many as there are names
        ("y = f(*(v.t() for v in (a, b)))", "y = f(*[a.t(), b.t()])"),
        (
            "xs = [x, y]\nfor a in xs:\n    z = z + a",
            "xs = [x, y]\nz = z + x\nz = z + y",
        ),
        (
            "xs = (x, y)\nfor i in range(len(xs)):\n    z = z + xs[i]",
            "xs = (x, y)\nz = z + xs[0]\nz = z + xs[1]",
        ),
        (
            "for i in range(2):\n    if p:\n        if i > 0:\n            y = x",
            "if p:\n    y = x",
        ),
        # What is None at first may be something within a choice.
        (
            "a = None\nfor x in (p, q):\n    if t:\n        a = x * 2\n        if a is not None:\n            y = y + a",
            (
                "a = None\nif t:\n    a = p * 2\n    if a is not None:\n        y = y + a\n"
                "if t:\n    a = q * 2\n    if a is not None:\n        y = y + a"
            ),
        ),
        # An expression gives a name a value, too.
        (
            "a = None\nz = (a := p) * 2\nfor x in (p, q):\n    if a is None:\n        z = x",
            "a = None\nz = (a := p) * 2\nif a is None:\n    z = p\nif a is None:\n    z = q",
        ),
        # what is read after the last step, and what a step gives another value
        (
            "for i in range(2):\n    y = y * x\nz = i",
            "y = y * x\ny = y * x\ni = 1\nz = i",
        ),
        (
            "for k in (p, q):\n    k = k.exp()\n    y += k",
            "k = p\nk = k.exp()\ny += k\nk = q\nk = k.exp()\ny += k",
        ),
        # dicts whose entries are written out, pairs in a list, and itertools
        (
            "if p:\n    for i in range(2):\n        y = y * x",
            "if p:\n    y = y * x\n    y = y * x",
        ),
    ],
)
def test_a_few_steps_are_written_out(source: str, straight: str) -> None:
    assert lines(source) == straight


@pytest.mark.parametrize(
    "source",
    [
        "for i in range(5):\n    y = y * x",
        "for i in range(0):\n    y = y * x",
        "for i in range(n):\n    y = y * x",
        "for i in range(True):\n    y = y * x",
        "for row in x:\n    y = y + row",
        "for a in (p, q):\n    q = a * 2",
        "for a in itertools.combinations((p, q)):\n    y += a[0]",
        'd = {"a": p}\nd["b"] = q\nfor k in d:\n    y += d[k]',
        'd = {"a": p}\nchange(d)\nfor k in d:\n    y += d[k]',
        "for i in range(2):\n    if y is None:\n        break",
        "for i in range(2):\n    y = y * x\nelse:\n    y = x",
        "for a, b in (p, q):\n    y = a * b",
        "for i in range(4):\n    a = x\n    b = a\n    c = b\n    d = c\n    e = d\n    f = e\n    g = f\n    h = g",
        "for i in range(2):\n    if y > i:\n        continue\n    x = x + y",
        "for i in range(2):\n    if y > i:\n        return x\n    x = x + y",
        "y = [x * i for i in range(5)]",
        "y = [x * i for i in range(2) if i]",
        "y = [x * i * j for i in range(2) for j in range(x.ndim)]",
        "xs = [x, y]\nxs.append(z)\nfor a in xs:\n    z = z + a",
        "xs = [x, y]\nxs[0] = z\nfor a in xs:\n    z = z + a",
        "a, b = map(f, x, y)",
        "a, *b = [v.exp() for v in x.chunk(2)]",
        "a, a = [v.exp() for v in x.chunk(2)]",
        "a, b = map(lambda v, *w: v, (x, y))",
        "y = max(x[i] for i in range(2))",
        "for i in range(2):\n    y = y * x\nfor row in x:\n    y = y * row",
        "for i in range(2):\n    y = [i for i in z]",
        "a, b = [v.exp() for v in x.chunk(2)]",
        "for n, h in zip((k, 2 * k), (x, y)):\n    z = z + f(n, h)",
        "n_0 = x\nfor n in (2 * k, 3 * k):\n    z = z + n * n_0",
        "ws = [0.4, 0.6]\nlast = len(ws) - 1\nfor i in range(last + 1):\n    if i < last:\n        y = y * ws[i]\n    z = z + y",
        'd = {"a": p, "b": q}\nfor k in d:\n    y += d[k]',
        'd = {"a": p}\nfor k, v in d.items():\n    y += v * e[k]',
        "xs = list(zip((p, q), (r, s)))\nfor i, (a, b) in enumerate(xs):\n    y += a * b * (i == len(xs) - 1)",
        "for p in itertools.permutations(range(2)):\n    y += x[:, list(p)]",
        "for i, j in itertools.product((0, 1), range(2)):\n    y += x[i, j]",
        "for a, b in itertools.combinations((p, q, r), 2):\n    y += a * b",
    ],
)
def test_else_everything_stays(source: str) -> None:
    body = ast.parse(source).body
    before = list(map(ast.dump, body))
    assert unrolled(body, ()) is body
    assert list(map(ast.dump, body)) == before


def test_a_name_that_is_no_builtin() -> None:
    source = "for i in range(2):\n    y = y * x"
    assert lines(source) != source == lines(source, "range")


def test_a_loop_whose_name_another_loop_has() -> None:
    source = "for i in range(2):\n    y += x[i]\nfor i in range(2):\n    y *= x[i]"
    assert lines(source) == "y += x[0]\ny += x[1]\ny *= x[0]\ny *= x[1]"


def test_a_test_that_is_settled_in_part() -> None:
    """What it came to stands nowhere in the text, from which the parser reads a literal."""
    forward = (
        "a = None\nfor i, v in enumerate((x, y)):\n    if a is not None and i > 0:\n        a = a * v\n"
        "    else:\n        a = v\nreturn a"
    )
    assert not derive(spec_of("x[N], y[N]", forward=forward, derive=True)).missing
