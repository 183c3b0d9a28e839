"""Mutants of generated and hand-written Functions: each has its one mistake, and the rest of the text."""

import ast
import difflib

import pytest

from scaffold.verify.mutants import mutants
from tests.examples.examples import EXAMPLES
from tests.verify.written import RELU, SCALED

TEXTS = {
    **{item.op: item.op_file.read_text() for item in EXAMPLES if not item.skeleton},
    "relu": RELU,
    "scaled": SCALED,
}


def changed(before: str, after: str) -> set[str]:
    """The lines of the original that are not in the mutant."""
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return {line[2:].strip() for line in lines if line.startswith("- ")}


@pytest.mark.parametrize("name", TEXTS)
def test_a_mutant_parses_and_differs(name: str) -> None:
    text = TEXTS[name]
    plain = ast.dump(ast.parse(text))
    found = mutants(text)
    assert len({mutant.text for mutant in found}) == len(found)
    for mutant in found:
        assert ast.dump(ast.parse(mutant.text)) != plain, mutant.name


def test_the_mutants_of_a_hand_written_function() -> None:
    assert [mutant.name for mutant in mutants(RELU)] == [
        "wrong_transpose: grad_x",
        "detach: grad_output",
        "view_for_reshape: forward, x",
        "grad_output_view: grad_output",
        "tensor_on_ctx: x",
        "factor_2: grad_x",
        "sign: grad_x",
    ]


def test_a_function_without_annotations_and_with_a_nested_return() -> None:
    names = {mutant.name for mutant in mutants(SCALED)}
    assert {"factor_2: grad_x", "missing_branch: ctx.needs_input_grad[0]"} <= names


def test_what_is_not_changed_stays_as_it_was_written() -> None:
    for mutant in mutants(RELU):
        assert "# not formatted   at all" in mutant.text
        assert "def   helper( a ): return a" in mutant.text
        assert changed(RELU, mutant.text) <= {
            line.strip() for line in RELU.splitlines()[8:]
        }


def test_each_function_of_a_module_has_its_mutants() -> None:
    both = f"{RELU}\n{SCALED}"
    functions = [mutant.function for mutant in mutants(both)]
    assert functions == sorted(functions, key=["Relu", "Scaled"].index)
    assert len(functions) == len(mutants(RELU)) + len(mutants(SCALED))


def test_a_module_without_a_function_has_none() -> None:
    assert (
        mutants("class Function:\n    pass\n\nclass Foo(Function):\n    pass\n") == ()
    )
