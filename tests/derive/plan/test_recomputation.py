"""Which statements come again, where it is decided what is saved."""

import pytest

from scaffold.derive.plan.recomputation import Locals, plan, repeated_for
from scaffold.errors import Location
from scaffold.formula import (
    ValueKinds,
    emit_lines,
)
from tests.formula.parsing import formula

NOTHING = frozenset[str]()


def locals_of(forward: str, refused: str = "") -> Locals:
    """The statements of a forward; one that reads the name `refused` cannot come again."""
    parsed = formula(f"{forward}\nreturn x", names="x y p")
    kinds = ValueKinds(["p"]).after(parsed.statements)
    return Locals(
        parsed.statements,
        lambda item: refused not in emit_lines((item,))[0] if refused else True,
        kinds,
        NOTHING,
        Location("some_op"),
        parsed.graph,
    )


@pytest.mark.parametrize(
    ("forward", "wanted", "saved", "repeated", "left"),
    [
        # down to what is saved, and no further
        ("h = x.sin()\nk = h.exp()\nm = k * y", "m", "k", ["m = k * y"], "k"),
        # what nothing reads is not saved
        ("h = x.sin()\nk = x.cos()", "k", "h", ["k = x.cos()"], ""),
        # of several values those that are not saved
        (
            "a, b, c = x.sin(), x.cos(), x.exp()",
            "a b c",
            "b",
            ["a, c = x.sin(), x.exp()"],
            "b",
        ),
        ("a, b = x, x.cos()", "b", "", ["b = x.cos()"], ""),
        # what is written over is saved as it is in the end
        ("h = x.sin()\nh *= y", "h", "h", [], "h"),
        # by necessity
        ("h = torch.rand_like(x)\nk = h * x", "k", "", ["k = h * x"], "h"),
    ],
)
def test_statements_down_to_what_is_saved(
    forward: str, wanted: str, saved: str, repeated: list[str], left: str
) -> None:
    known = locals_of(forward, "rand_like")
    names = frozenset(wanted.split())
    found = repeated_for(known, names, frozenset(saved.split()))
    assert emit_lines(found.repeated) == repeated
    assert found.saved == tuple(left.split())


def test_an_earlier_value_is_not_read_by_the_name_of_the_one_that_is_saved() -> None:
    """Then it is planned by the statements, which tell the two apart."""
    known = locals_of("h = x.sin()\nk = h * y\nh += x")
    found = repeated_for(known, frozenset({"h", "k"}), frozenset({"h"}))
    assert found == plan(known, frozenset({"h", "k"}), frozenset({"h"}))
    assert "h" not in found.saved


def test_an_output_is_at_hand_and_not_saved_once_more() -> None:
    forward = locals_of("i = x.argmin(1)\nh = y[i]")._replace(results=frozenset("i"))
    found = repeated_for(forward, frozenset("h"), frozenset("i"))
    assert emit_lines(found.repeated) == ["h = y[i]"]
    assert found.saved == ()
