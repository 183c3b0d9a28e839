"""The statements that a formula runs, whatever they were written in."""

import ast

from scaffold.errors import Location
from scaffold.formula import Scope, Text, function_in
from scaffold.formula.program import program_of

FILE = """\
def half(x, by=2):
    return x / by


def forward(x, eps=1e-5, mode="mean"):
    # scaled
    y = half(x)
    if mode == "mean":
        return y.mean() + eps
    return y
"""


def run(source: str, names: str) -> str:
    scope = Scope(frozenset(names.split()), tensors=frozenset({"x"}))
    found = program_of(function_in(source, "ops.py", "forward", "forward").text, scope)
    assert not found.problems
    return ast.unparse(ast.Module(found.body, []))


def test_a_text_of_its_own_is_cut_and_keeps_its_comments() -> None:
    text = Text("    a = x  # twice\n    a * 2", Location("--forward"))
    found = program_of(text, Scope(frozenset({"x"})))
    assert found.text.value == "a = x  # twice\na * 2"
    assert found.comments == {1: ("twice",)}


def test_functions_of_a_text_are_written_out_where_they_are_called() -> None:
    lines = """
def half(y, by=2):
    return y / by
twice = lambda y: y * 2
return half(x.exp()) + twice(half(x, 3))
"""
    scope = Scope(frozenset({"x"}), tensors=frozenset({"x"}))
    found = program_of(Text(lines, Location("--forward")), scope)
    assert not found.problems
    body = ast.unparse(ast.Module(found.body, []))
    assert body == "return x.exp() / 2 + x / 3 * 2"


def test_calls_are_replaced_and_what_is_no_input_has_its_default() -> None:
    assert run(FILE, "x") == "y = x / 2\nreturn y.mean() + 1e-05"


def test_an_input_is_no_constant() -> None:
    assert run(FILE, "x mode eps").startswith("y = x / 2\nif mode == 'mean':")


def test_positions_are_those_of_the_file() -> None:
    scope = Scope(frozenset({"x"}), tensors=frozenset({"x"}))
    text = function_in(FILE, "ops.py", "forward", "forward").text
    found = program_of(text, scope)
    assert found.text.value == FILE and found.comments[7] == ("scaled",)


def test_a_default_that_is_no_constant_is_a_problem_at_its_place() -> None:
    source = "def forward(x, w=make()):\n    return x * w\n"
    text = function_in(source, "ops.py", "forward", "forward").text
    (problem,) = program_of(text, Scope(frozenset({"x"}))).problems
    assert str(problem).startswith("ops.py:1:18: the default of 'w' is not a constant")
