"""Expressions: which are taken, what is said of the others, and where an optional may stand untested in a call."""

import ast

import pytest

from scaffold.errors import Location
from tests.formula.parsing import again, problems

ELSEWHERE = "put it into a function of your own and use --import 'module:name'"
LISTED = "list the values: [f(a), f(b)]"


@pytest.mark.parametrize(
    "source",
    [
        "x[..., :2, None, 1:, ::2, p:w:y]",
        "x[1,]",
        "x[()]",
        "x[*(1, 2), 0]",
        "x[p]",
        "f(x, *y, dim=1, **w)",
        "f(*x)",
        "x.sum(-1, keepdim=True)",
        "(x, y)[0]",
        "[x, y, *w][p]",
        "()",
        "x < y <= w != p",
        "x is y is not w",
        "x in y not in w",
        "not x and (y or w)",
        "(x if y else w) if p else (x if w else y)",
        "x if y else w if p else y",
        "~x & y | w ^ x << 1 >> 2",
        "(-x) ** -y ** 2",
        "-(x**2)",
        "x // y % w / p @ x",
        "x - (y - w) - p",
        "(1).real + 1.5.real + 1j.real + .5.real",
        "'a' 'b'.join(x)",
        "1e-6 + 0x1F + 1_000 + 0b11 + 1.",
        "torch.nn.functional.relu(x)",
        "F.relu(x) + math.pi",
        "len(x) + abs(y) + max(x, y) + sum([x, y])",
    ],
)
def test_expressions_that_are_taken(source: str) -> None:
    written = again(source, names="x y w p f", optional="")
    assert ast.dump(ast.parse(written)) == ast.dump(ast.parse(f"return {source}"))


@pytest.mark.parametrize(
    ("source", "place", "kind", "hint"),
    [
        ("lambda: x", 1, "a lambda", "write what it returns in its place"),
        ("[k for k in x]", 1, "a comprehension", LISTED),
        ("sum(k for k in x)", 4, "a comprehension", LISTED),
        ("{k for k in x}", 1, "a comprehension", LISTED),
        ("{k: k for k in x}", 1, "a comprehension", LISTED),
        ("f'{x}'", 1, "an f-string", ELSEWHERE),
        (
            "(h := x)",
            2,
            "an assignment expression",
            "assign the name on a line above",
        ),
        (
            "{1: x}",
            1,
            "a dict",
            "use names: weight_a = ..., or if and elif for modes",
        ),
        ("{x}", 1, "a set", "write a tuple"),
        ("await x", 1, "await", ELSEWHERE),
        ("x + (yield)", 6, "yield", "return a list"),
        ("(yield from x)", 2, "yield", "return a list"),
    ],
)
def test_expressions_that_are_not(
    source: str, place: int, kind: str, hint: str
) -> None:
    message = f"{Location('--forward', 1, place)}: {kind} is not allowed in a formula"
    assert problems(source)[0] == f"{message}\nhint: {hint}"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "x.__class__",
            "--forward: dunder attribute '__class__' is not allowed in a formula",
        ),
        (
            "x.sum().__init__()",
            "--forward: dunder attribute '__init__' is not allowed in a formula",
        ),
        ("b'x'", "--forward: bytes are not allowed in a formula"),
        ("*x", "--forward: a star must stand in a call, a list or a tuple"),
        ("x + f(1, a=2, a=3)", "--forward:1:15: 'a' is given twice"),
        ("eval('x')", "--forward: unknown name 'eval'"),
        ("__import__('os')", "--forward: unknown name '__import__'"),
        ("open('x')", "--forward: unknown name 'open'"),
        ("getattr(x, 'y')", "--forward: unknown name 'getattr'"),
    ],
)
def test_what_could_reach_out_of_the_formula(source: str, message: str) -> None:
    assert problems(source, names="x f", optional="")[0].split("\n")[0] == message
