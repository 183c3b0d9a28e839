"""Formula text to statements: what is taken, and every complaint with its place."""

import pytest

from scaffold.errors import Location, ScaffoldError
from scaffold.formula import Graph, Scope, Text, parse
from tests.formula.parsing import again, formula, problems, text_of

IMPORT = "put it into a function of your own and use --import 'module:name'"
NOT = "is not allowed in a formula"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x + y", "return x + y"),
        ("return x + y", "return x + y"),
        ("h = x\nreturn h", "h = x\nreturn h"),
        ("h = x; return h", "h = x\nreturn h"),
        ("h = x\nh", "h = x\nreturn h"),
        ("h: int = x\nreturn h", "h = x\nreturn h"),
        ("(x\n + y)", "return x + y"),
        ("a, b = x\nreturn a", "a, b = x\nreturn a"),
        ("[a, b] = x\nreturn a", "a, b = x\nreturn a"),
        ("a, *b = x\nreturn a", "a, *b = x\nreturn a"),
        ("(a, (b, c)) = x\nreturn c", "a, (b, c) = x\nreturn c"),
        ("h = x * 1\nh[0] = y\nreturn h", "h = x * 1\nh[0] = y\nreturn h"),
        ("h = x * 1\nh -= y\nreturn h", "h = x * 1\nh -= y\nreturn h"),
        ("h = x * 1\nh @= y\nreturn h", "h = x * 1\nh @= y\nreturn h"),
        ("h = x * 1\nh.mul_(y)\nreturn h", "h = x * 1\nh.mul_(y)\nreturn h"),
        (
            "if p > 2:\n  h = x\nelif p:\n  h = y\nelse:\n  h = w\nreturn h",
            "if p > 2:\n    h = x\nelif p:\n    h = y\nelse:\n    h = w\nreturn h",
        ),
        ("return x, y", "return (x, y)"),
    ],
)
def test_what_is_taken(source: str, expected: str) -> None:
    assert again(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("\n    h = x\n\n    return h\n", "h = x\nreturn h"),
        ("\n\tif p:\n\t\th = x\n\telse:\n\t\th = y\n\treturn h", None),
        ("  x + y", "return x + y"),
        ("h = x\r\nreturn h\r\n", "h = x\nreturn h"),
        ("h = x\rreturn h", "h = x\nreturn h"),
    ],
)
def test_indentation_and_newlines_of_the_surroundings(
    source: str, expected: str | None
) -> None:
    assert again(source) == (expected or "if p:\n    h = x\nelse:\n    h = y\nreturn h")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "",
            [
                "--forward: the formula is empty\nhint: write an expression, as in: 'x * torch.sigmoid(x)'"
            ],
        ),
        (
            "# nothing",
            [
                "--forward: the formula is empty\nhint: write an expression, as in: 'x * torch.sigmoid(x)'"
            ],
        ),
        (
            "def f(x): return x * 2",
            [
                "--forward: the formula defines 'f' and returns nothing\nhint: end it with the call: f(x)"
            ],
        ),
        (
            "def f(x):\n    x * 2\nf(x)",
            [
                "--forward:2:5: 'f' returns nothing\nhint: end it with: return ..., or call it alone: f(...)"
            ],
        ),
        (
            "x +",
            [
                "--forward:1:4: not valid Python: invalid syntax\nhint: fix this line: x +"
            ],
        ),
        (
            "2(x + 1)",
            [
                "--forward: '2' is a number and cannot be called\nhint: to multiply: 2 * (...)"
            ],
        ),
        (
            "h = x\n  y",
            [
                "--forward:2:2: not valid Python: unexpected indent\nhint: fix this line: y"
            ],
        ),
        (
            "h = x",
            ["--forward: the formula returns nothing\nhint: end it with: return ..."],
        ),
        (
            "return",
            ["--forward: the formula returns nothing\nhint: end it with: return ..."],
        ),
        (
            "q + wieght",
            [
                (
                    "--forward: unknown name 'q'\n"
                    "hint: known here: bias, p, scale, w, x, y; if 'q' is an input, name it among the inputs"
                ),
                (
                    "--forward:1:5: unknown name 'wieght'\n"
                    "hint: known here: bias, p, scale, w, x, y; if 'wieght' is an input, name it among the inputs"
                ),
            ],
        ),
        (
            "length = x\nreturn lenght",
            ["--forward:2:8: unknown name 'lenght'\nhint: did you mean 'length'?"],
        ),
        (
            "h = k\nk = x\nreturn h",
            [
                "--forward:1:5: unknown name 'k'\nhint: known here: bias, p, scale, w, x, y; if 'k' is an input, name it among the inputs"
            ],
        ),
        (
            "if p:\n    return x\n    y = x\nreturn y",
            [
                (
                    "--forward:2:5: a return must be the last statement\n"
                    "hint: assign a name in each branch"
                )
            ],
        ),
        (
            "import os\nreturn x",
            [
                "--forward: an import is not allowed in a formula\nhint: use --import 'module:name', or put it at the top of a file; torch, F, nn and math need none"
            ],
        ),
        (
            "from os import path\nreturn x",
            [
                "--forward: an import is not allowed in a formula\nhint: use --import 'module:name', or put it at the top of a file; torch, F, nn and math need none"
            ],
        ),
        (
            "x.exp()\nreturn x",
            ["--forward: the result of 'x.exp()' is not used\nhint: write: name = ..."],
        ),
        (
            "[x]\nreturn x",
            ["--forward: '[x]' does nothing\nhint: write: name = ..."],
        ),
        (
            "print(x, bias, scale)\nreturn x",
            ["--forward: a print is not allowed in a formula\nhint: take it out"],
        ),
        (
            "for i in x:\n    y = i\nreturn y",
            [
                f"--forward: a loop {NOT}\nhint: only a forward can have loops: put this one into a function of your own and use --import 'module:name'"
            ],
        ),
        (
            "while x:\n    k = x\nreturn k",
            [
                f"--forward: a loop {NOT}\nhint: only a forward can have loops: put this one into a function of your own and use --import 'module:name'"
            ],
        ),
        (
            "try:\n    k = x\nexcept ValueError:\n    k = y\nreturn k",
            [
                f"--forward: a try {NOT}\nhint: use if to test for the case that would fail"
            ],
        ),
        (
            "match p:\n    case 1:\n        k = x\nreturn x",
            [f"--forward: a match {NOT}\nhint: write it as if and elif"],
        ),
        (
            "class A:\n    pass\nreturn x",
            [f"--forward: a class {NOT}\nhint: {IMPORT}"],
        ),
        (
            "a.b: float = x\nreturn x",
            [f"--forward: 'a.b: float = x' {NOT}\nhint: write: name = ..."],
        ),
        (
            "a.b = c = x\nreturn x",
            ["--forward: only names, tuples of names and name[...] can be assigned"],
        ),
        (
            "with x as k:\n    y = k\nreturn y",
            [f"--forward: a with {NOT}\nhint: {IMPORT}"],
        ),
        (
            "if x:\n    def f():\n        pass\nreturn x",
            [
                f"--forward:2:5: a function {NOT}\nhint: keep it in a file: '@file.py:function'"
            ],
        ),
        (
            "del x[0]\nreturn y",
            [
                f"--forward: a del {NOT}\nhint: remove it: tensors that are not saved are freed anyway"
            ],
        ),
        (
            "assert x\nreturn y",
            [f"--forward: an assert {NOT}\nhint: check inputs in the forward"],
        ),
        (
            "torch = x\nreturn x",
            [
                "--forward: 'torch' cannot be assigned\nhint: give it another name: torch_"
            ],
        ),
        (
            "ctx = x\nreturn x",
            ["--forward: 'ctx' cannot be assigned\nhint: give it another name: ctx_"],
        ),
        (
            "__h = x\nreturn x",
            ["--forward: '__h' cannot be assigned\nhint: give it another name: h_"],
        ),
        (
            "x.data = y\nreturn x",
            ["--forward: only names, tuples of names and name[...] can be assigned"],
        ),
        (
            "*a, *b = x\nreturn y",
            ["--forward:1:5: only one target can have a star"],
        ),
        (
            "h += x\nreturn h",
            [
                "--forward: unknown name 'h'\nhint: known here: bias, p, scale, w, x, y; if 'h' is an input, name it among the inputs"
            ],
        ),
    ],
)
def test_complaints(source: str, expected: list[str]) -> None:
    assert problems(source) == expected


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("3x² - 1", "write: 3 * x**2 - 1"),
        ("x² && (", "fix this line: x² && ("),
        (
            "where(x > 0 && y > 0 || z, x, y)",
            "write: where((x > 0) & (y > 0) | z, x, y)",
        ),
        ("y = 1\n!y && x", "fix this line: !y && x"),
    ],
)
def test_what_is_no_python_is_told_as_it_may_be_meant(source: str, hint: str) -> None:
    assert problems(source)[0].endswith(f"hint: {hint}")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("pass\nreturn x", "return x"),
        ("h: int\nh = x\nreturn h", "h = x\nreturn h"),
        ("a = b = x\nreturn a + b", "a = x\nb = a\nreturn a + b"),
        (
            "a = b, c = x\nreturn a",
            "a = x\nb, c = a\nreturn a",
        ),
        (
            "if p:\n    pass\nelse:\n    x = y\nreturn x",
            "if not p:\n    x = y\nreturn x",
        ),
        ("if p:\n    pass\nelif w:\n    h: int\nreturn x", "return x"),
        (
            "if p == 2:\n    pass\nelif not w:\n    pass\nelse:\n    x = y\nreturn x",
            "if p != 2:\n    if w:\n        x = y\nreturn x",
        ),
    ],
)
def test_what_says_nothing_is_left_out(source: str, text: str) -> None:
    assert again(source) == text


def test_all_problems_of_a_text_are_told_in_order() -> None:
    told = problems("a = q\nimport os\nb = r\nreturn a + b + s")
    assert [line.split(": ")[0] for line in told] == [
        "--forward:1:5",
        "--forward:2:1",
        "--forward:3:5",
        "--forward:4:16",
    ]


def test_places_count_from_where_the_text_stands() -> None:
    place = Location("ops.toml", 12, 11)
    with pytest.raises(ScaffoldError) as caught:
        formula("x + q", place=place)
    assert str(caught.value.location) == "ops.toml:12:15"
    with pytest.raises(ScaffoldError) as caught:
        formula("\n    h = x\n    return q", place=place)
    assert str(caught.value.location) == "ops.toml:14:12"


def test_places_count_characters_not_bytes() -> None:
    with pytest.raises(ScaffoldError) as caught:
        formula('torch.sum(x, "\N{GREEK SMALL LETTER ALPHA}", q)')
    assert caught.value.location == Location("--forward", 1, 19)


@pytest.mark.parametrize(
    "source",
    ["+".join(["x"] * 300), "-" * 500 + "x", "x" + "[0]" * 5000, "x" + ".sin()" * 4000],
    ids=lambda source: source[:8],
)
def test_deep_nesting_is_a_complaint(source: str) -> None:
    assert problems(source) == [
        (
            "--forward: the formula is nested too deeply\n"
            "hint: split it into statements: part = ..."
        )
    ]


@pytest.mark.parametrize(
    "source", ["+".join(["x"] * 115), "-" * 115 + "x", "x" + ".sin()" * 57]
)
def test_what_is_allowed_to_be_deep_can_be_written_out(source: str) -> None:
    assert again(source).replace(" ", "") == f"return{source}"


@pytest.mark.parametrize("source", ["x\0", "x + '\ud800'"])
def test_characters_that_python_does_not_take(source: str) -> None:
    (told,) = problems(source)
    assert told.startswith("--forward: not valid Python: ")


# -- optionals -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x + bias", "return x + bias if bias is not None else x"),
        ("bias + x", "return bias + x if bias is not None else x"),
        ("x - bias", "return x - bias if bias is not None else x"),
        ("bias - x", "return bias - x if bias is not None else -x"),
        ("x * bias", "return x * bias if bias is not None else x"),
        (
            "x if bias is None else bias.exp()",
            "return x if bias is None else bias.exp()",
        ),
        ("x + bias[:, None]", "return x + bias[:, None] if bias is not None else x"),
        (
            "x - bias.mT.view(1, -1)",
            "return x - bias.mT.view(1, -1) if bias is not None else x",
        ),
        ("bias is not None and bias.sum()", "return bias is not None and bias.sum()"),
        ("bias is None or bias.sum()", "return bias is None or bias.sum()"),
    ],
)
def test_an_absent_operand_is_dropped(source: str, expected: str) -> None:
    assert again(source) == expected


def test_an_absent_addend_in_place_is_skipped() -> None:
    assert again("h = x * 1\nh += bias\nreturn h") == (
        "h = x * 1\nif bias is not None:\n    h += bias\nreturn h"
    )
    assert "if bias is not None:\n    h += bias[:, None]\n" in again(
        "h = x * 1\nh += bias[:, None]\nreturn h"
    )


@pytest.mark.parametrize(
    "source",
    [
        "bias.exp()",
        "x + bias.exp()",
        "bias[:, None]",
        "x / bias",
        "bias + scale",
        "x @ bias",
        "bias",
        "torch.exp(bias)",
        "bias.exp() if bias is None else x",
        "x if bias is not None or p else bias",
        "bias.sum() if bias is not None or p else x",
        "if p:\n    bias = x\nreturn bias.exp()",
        "bias = None\nreturn bias.exp()",
        "bias = x if p else None\nreturn bias.exp()",
    ],
)
def test_any_other_use_must_be_guarded(source: str) -> None:
    told = problems(source)
    assert all("may be None here" in line for line in told)
    assert "hint: write: ... if bias is not None else ..." in told[0]


@pytest.mark.parametrize(
    "source",
    [
        "bias.exp() if bias is not None else x",
        "bias.exp() if bias is not None and p else x",
        "x if bias is None or p else bias.exp()",
        "x if not (bias is not None) else bias.exp()",
        "if bias is not None:\n    h = bias.exp()\nelse:\n    h = x\nreturn h",
        "if bias is None:\n    h = x\nelse:\n    h = bias.exp()\nreturn h",
        "if bias is None:\n    bias = x\nreturn bias.exp()",
        "if bias is not None:\n    k = x\nelse:\n    bias = x\nreturn bias.exp()",
        "bias = x if bias is None else bias\nreturn bias.exp()",
        "if p:\n    bias = x\nelse:\n    bias = y\nreturn bias / 2",
    ],
)
def test_what_settles_that_an_optional_is_there(source: str) -> None:
    formula(source)


# -- the whole backward ----------------------------------------------------------

TARGETS = "grad_x grad_y"
READABLE = "x y grad_output"


def test_a_backward_returns_nothing() -> None:
    parsed = formula(
        "grad_x = grad_output\ngrad_y = grad_x * x", targets=TARGETS, names=READABLE
    )
    assert parsed.result is None
    assert text_of(parsed) == "grad_x = grad_output\ngrad_y = grad_x * x"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "h = x",
            [
                "--forward: the backward assigns no gradient\nhint: assign: grad_x, grad_y"
            ],
        ),
        (
            "grad_x = grad_y\ngrad_y = x",
            ["--forward:1:10: 'grad_y' is read before it is assigned"],
        ),
        (
            "grad_x = x\ngrad_yy = x",
            [
                "--forward:2:1: 'grad_yy' is not a gradient of this op\nhint: did you mean 'grad_y'?"
            ],
        ),
        (
            "grad_x = x\ngrad_wholly_other = x",
            [
                (
                    "--forward:2:1: 'grad_wholly_other' is not a gradient of this op\n"
                    "hint: its gradients: grad_x, grad_y"
                )
            ],
        ),
    ],
)
def test_complaints_about_a_backward(source: str, expected: list[str]) -> None:
    assert problems(source, targets=TARGETS, names=READABLE) == expected


def test_an_intermediate_gradient_may_be_called_like_one() -> None:
    formula(
        "grad_z = grad_output * y\ngrad_x = grad_z * 2", targets=TARGETS, names=READABLE
    )


# -- comments ------------------------------------------------------------------


def test_comments_stay_with_their_statements() -> None:
    source = "# one\n# two\nh = x  # three\nif p:  # four\n    # five\n    k = h\nelse:\n    k = x\n# six\nreturn k  # seven"
    parsed = formula(source)
    assert text_of(parsed) == (
        "# one\n# two\n# three\nh = x\n# four\nif p:\n    # five\n    k = h\n"
        "else:\n    k = x\nreturn k"
    )
    assert parsed.comments == ("six", "seven")


def test_a_number_sign_in_a_string_is_no_comment() -> None:
    assert again("torch.einsum('#', x)") == "return torch.einsum('#', x)"


def test_the_text_is_kept_for_documentation() -> None:
    parsed = formula("\n    h = x  # so\n    return h\n")
    assert parsed.text == "h = x  # so\nreturn h"


def test_equal_expressions_of_one_graph_are_one_node() -> None:
    graph = Graph()
    one = formula("x.exp() + 1", graph=graph)
    two = formula("h = x.exp()\nreturn x.exp() + 1", graph=graph)
    assert one.result is two.result
    assert formula("x.exp() + 1").result is not one.result


def test_a_scope_decides_what_is_known() -> None:
    text = Text("k", Location("--update"))
    parse(text, Scope(frozenset({"k"})), Graph())
    with pytest.raises(ScaffoldError):
        parse(text, Scope(frozenset()), Graph())
