"""A forward with a loop keeps its text, and every expression in it is known."""

import pytest

from scaffold.errors import Location, ScaffoldError
from scaffold.formula import Formula, Graph, Scope, Text, assignments, parse

SCOPE = Scope(frozenset(["x", "w", "n"]), tensors=frozenset(["x", "w"]), kept=True)


def kept(source: str) -> Formula:
    return parse(Text(source, Location("--forward")), SCOPE, Graph())


LOOP = "h = x\nfor i in range(n):\n    h = h * w[i]  # one step\nreturn h"


def test_the_text_stands_as_it_is() -> None:
    found = kept(LOOP)
    assert found.kept is not None and found.kept.reason == "there is a loop"
    assert found.kept.lines == LOOP.removesuffix("\nreturn h")
    assert found.kept.value == "h"


def test_the_sketch_runs_a_loop_twice() -> None:
    found = kept(LOOP)
    assert found.kept is not None
    targets = [item.target.label for item in assignments(found.kept.statements)]
    assert targets.count("h") == 3 and targets.count("i") == 2


def test_a_few_steps_are_a_straight_line() -> None:
    assert kept(LOOP.replace("range(n)", "range(2)")).kept is None


def test_a_list_that_grows_is_assigned_anew() -> None:
    found = kept("rows = []\nfor r in x:\n    rows.append(r)\nreturn torch.stack(rows)")
    assert found.kept is not None
    targets = [item.target.label for item in assignments(found.kept.statements)]
    assert targets.count("rows") == 3


def test_a_block_may_say_how_it_computes() -> None:
    block = (
        "with torch.autocast(x.device.type, enabled=False):\n    h = x @ x\nreturn h"
    )
    assert kept(block).kept is not None


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("with torch.autocast(z):\n    h = x\nreturn h", "unknown name 'z'"),
        ("for i in range(n):\n    h = i * z\nreturn h", "unknown name 'z'"),
        ("with open('f'):\n    h = x\nreturn h", "'open('f')' cannot stand in a with"),
        ("for i in range(n):\n    del x\nreturn x", "a del is not allowed"),
    ],
)
def test_what_acts_on_anything_else_is_refused(source: str, message: str) -> None:
    with pytest.raises(ScaffoldError) as caught:
        kept(source)
    assert message in "\n".join(map(str, caught.value.problems))
