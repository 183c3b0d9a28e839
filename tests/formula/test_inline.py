"""Functions that a forward calls are put in its place, and compute what Python computes."""

import re
from pathlib import Path

import pytest
import torch
from hypothesis import strategies as st

from scaffold.errors import ScaffoldError
from scaffold.formula import Graph, Scope, emit, emit_lines, function_in, parse
from tests.formula.files import HEADER, assert_same, lines_of
from tests.properties.budgets import holds_for

X = torch.linspace(-2, 3, 6, dtype=torch.float64).reshape(2, 3)
Y = torch.linspace(1, 2, 6, dtype=torch.float64).reshape(2, 3)

CASES = Path(__file__).parent


def cases(name: str) -> list[tuple[str, str]]:
    """Sources, and what is wanted of them; paragraphs of a file, after its first."""
    _, *parts = (CASES / f"inline_{name}.txt").read_text().strip().split("\n\n")
    pairs = (part.partition("\n->\n") for part in parts)
    return [(source, wanted) for source, _, wanted in pairs]


def titles(pairs: list[tuple[str, str]]) -> list[str]:
    return [source.split("\n", 1)[0].strip("# ") for source, _ in pairs]


READ, RUN = cases("read"), cases("run")


@pytest.mark.parametrize(("source", "wanted"), READ, ids=titles(READ))
def test_how_it_reads(source: str, wanted: str) -> None:
    assert lines_of(f"{HEADER}{source}", "f") == wanted


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize(
    "source", [one for one, _ in READ + RUN], ids=titles(READ + RUN)
)
def test_it_does_what_the_file_does(source: str, flag: bool) -> None:
    words = re.findall(r"\w+", source.rpartition("def f(")[2].partition(")")[0])
    inputs = {"x": X, "y": Y, "flag": flag}
    assert_same(source, "f", **{key: inputs[key] for key in inputs if key in words})


@pytest.mark.parametrize(("source", "message"), cases("refused"))
def test_what_is_refused(source: str, message: str) -> None:
    with pytest.raises(ScaffoldError) as caught:
        lines_of(f"{HEADER}{source}", "f")
    assert str(caught.value) == message


def test_an_optional_input_is_asked_for_in_the_function_and_a_tensor_is_not() -> None:
    source = (
        "def g(t, scale=None, bias=None):\n    if scale is None:\n        scale = 2.0\n"
        "    t = t * scale\n    if bias is not None:\n        t = t + bias\n    return t\n"
        "def f(x, y): return g(x, y, x)"
    )
    found = lines_of(source, "f", "x y", optional="y", tensors="x y")
    assert found == (
        "if y is None:\n    scale = 2.0\nelse:\n    scale = y\n"
        "t = x * scale\nt = t + x\nreturn t"
    )
    assert (
        lines_of(source, "f", "x y", tensors="x y") == "t = x * y\nt = t + x\nreturn t"
    )


def test_a_whole_backward_calls_functions_too() -> None:
    source = (
        "def turned(g):\n    a, b = g.chunk(2, -1)\n    return torch.cat((b, -a), -1)\n"
        "def backward(g, x):\n    grad_x = turned(g) * x\n    return grad_x"
    )
    function = function_in(source, "ops.py", None, "backward")
    scope = Scope(frozenset({"g", "x"}), targets=("grad_x",))
    lines = emit_lines(parse(function.text, scope, Graph()).statements)
    assert lines == ["a, b = g.chunk(2, -1)", "grad_x = torch.cat((b, -a), -1) * x"]


def test_a_call_that_changes_its_own_tensor_stands_in_a_call_of_torch() -> None:
    source = (
        "import torch\ndef fill(s):\n    f = s.clone()\n    f.mul_(2)\n    return f\n"
        "def f(x): return torch.tanh(fill(x))"
    )
    assert lines_of(source, "f") == "f = x.clone()\nf.mul_(2)\nreturn torch.tanh(f)"


def test_people_are_shown_what_a_call_comes_to() -> None:
    source = (
        "def g(t): return t * 2\ndef f(x):\n    y = g(x)  # twice\n    return (y, x)"
    )
    function = function_in(source, "ops.py", "f", "forward")
    formula = parse(function.text, Scope(frozenset({"x"})), Graph())
    assert formula.text == "# twice\ny = x * 2\nreturn y, x"
    plain = function_in("def f(x):\n    return (x * 2)", "ops.py", "f", "forward")
    scope = Scope(frozenset({"x"}))
    assert parse(plain.text, scope, Graph()).text == "return (x * 2)"


def test_what_the_op_imports_stays_a_call() -> None:
    source = (
        "import other\ndef g(t): return other.f(t)\ndef forward(x): return g(x) * 2"
    )
    function = function_in(source, "ops.py", None, "forward", frozenset({"g"}))
    assert function.imports == ()
    scope = Scope(frozenset({"x", "g"}), imported=frozenset({"g"}))
    formula = parse(function.text, scope, Graph())
    assert formula.result is not None and emit(formula.result) == "g(x) * 2"


def test_an_argument_that_is_read_in_a_loop_is_evaluated_before_it() -> None:
    source = (
        "def g(t, s):\n    for k in range(2):\n        t = t * s\n    return t\n"
        "def f(x): return g(x, x.exp())"
    )
    text = lines_of(source, "f", kept=True)
    assert "s = x.exp()\n" in text
    assert text.count("exp") == 1


def test_calls_that_double_at_every_step_end() -> None:
    steps = [f"def g{k}(t): return g{k - 1}(t) + g{k - 1}(t)\n" for k in range(1, 40)]
    source = f"{HEADER}def g0(t): return t * t\n{''.join(steps)}def f(x): return g39(x)"
    with pytest.raises(ScaffoldError, match="more than 300 calls"):
        lines_of(source, "f")


def test_comments_come_along_once() -> None:
    source = (
        "def g(t):\n    # of g\n    h = t.exp()  # and so\n    return h * h\n# of none\n\n"
        "def f(x):\n    # first\n    y = g(x) + g(x * 2)\n    # last\n    return y"
    )
    function = function_in(source, "ops.py", "f", "forward")
    formula = parse(function.text, Scope(frozenset({"x"})), Graph())
    found = [item.comments for item in formula.statements]
    assert found == [("of g", "and so"), (), ("first",)]
    assert formula.comments == ("last",)


POOL = ("a", "b", "x", "h", "g0_a")


@st.composite
def expressions(draw: st.DrawFn, names: tuple[str, ...], calls: int, depth: int) -> str:
    """An expression over tensors; `calls` functions can be called."""
    kinds = (
        ["name"]
        if depth == 0
        else ["name", "sum", "random", "choice", "in place", "call", "call"]
    )
    kind = draw(st.sampled_from(kinds))
    inner = expressions(names, calls, depth - 1)
    if kind == "sum":
        return f"({draw(inner)} {draw(st.sampled_from('+-*'))} {draw(inner)})"
    if kind == "random":
        return f"F.dropout({draw(inner)})"
    if kind == "in place":
        return f"({draw(inner)} * 2).add_({draw(inner)})"
    if kind == "choice":
        return f"({draw(inner)} if {draw(st.sampled_from(['flag', 'mode == 1']))} else {draw(inner)})"
    if kind == "call" and calls:
        which = draw(st.integers(0, calls - 1))
        mode = draw(st.sampled_from(["", ", mode=1", ", mode=mode"]))
        return f"g{which}({draw(inner)}, {draw(inner)}, flag{mode})"
    return draw(st.sampled_from(names))


@st.composite
def bodies(draw: st.DrawFn, names: tuple[str, ...], calls: int) -> list[str]:
    """The statements of a function, its return at the end."""
    lines: list[str] = []
    for _ in range(draw(st.integers(0, 3))):
        value, kind = draw(expressions(names, calls, 2)), draw(st.integers(0, 5))
        target = draw(st.sampled_from(POOL if kind else names))
        if kind == 0:
            lines.append(f"{target} += {value}")
        elif kind == 1:
            lines += ["if flag:", f"    {draw(st.sampled_from(names))} = {value}"]
            continue
        elif kind == 2:
            lines += ["if mode == 1:", f"    return {value}"]
            continue
        else:
            lines.append(f"{target} = {value}")
        names = (*names, target)
    return [*lines, f"return {draw(expressions(names, calls, 2))}"]


@st.composite
def programs(draw: st.DrawFn) -> str:
    count = draw(st.integers(1, 3))
    text = ""
    for number in range(count + 1):
        first, second = draw(st.permutations(POOL))[:2]
        head = f"def g{number}({first}, {second}, flag, mode=0):"
        if number == count:
            first, second, head = "x", "y", "def f(x, y, flag, mode=0):"
        body = draw(bodies((first, second), number))
        text += "\n".join([head, *(f"    {line}" for line in body)]) + "\n"
    return text


DRAWS = (  # the value of the call draws after what stands in front of it
    "def g0(a, b, flag, mode=0):\n    return (a + F.dropout(a))\n"
    "def f(x, y, flag, mode=0):\n    return (F.dropout(x) * 2).add_(g0(x, x, flag))\n"
)


@holds_for(st.tuples(programs(), st.booleans()), 50, (DRAWS, False))
def test_programs(drawn: tuple[str, bool]) -> None:
    source, flag = drawn
    try:
        lines_of(f"{HEADER}{source}", "f")
    except ScaffoldError as refused:
        assert "several statements" in str(refused) or "would run too early" in str(
            refused
        )
        return
    assert_same(source, "f", x=X, y=Y, flag=flag)
