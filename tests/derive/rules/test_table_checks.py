"""Tables of rules as text: the built-in one, and what is said of a team's that is wrong."""

import re

import pytest

from scaffold.derive.rules.call_bindings import Spelling, bind, spelling
from scaffold.derive.rules.table import BUILDERS, built_in
from scaffold.derive.rules.table_checks import checked_table
from scaffold.errors import ScaffoldError
from scaffold.formula import Graph
from scaffold.primitives import built_in_text
from scaffold.verify.child.rule_values import REFERENCE

BUILT_IN = built_in_text()
SQUASH = """\
[squash]
call = "squash(x, gain=1.0)"
category = "elementwise"
grad.x = "grad * gain * (1 - result * result)"
samples = ["x[3, 4]", "x[3], gain=2.0"]
"""


def test_the_built_in_table_is_right() -> None:
    whole = checked_table(BUILT_IN, "rules.toml")
    assert len(whole.names()) >= 200


def test_reading_lazily_is_reading() -> None:
    whole, lazy = checked_table(BUILT_IN, "rules.toml"), built_in()
    assert whole.heads == lazy.heads
    for name in whole.names():
        assert whole.rule(name)._replace(spelled=lazy.rule(name).spelled) == lazy.rule(
            name
        )


def test_each_word_of_formulas_has_a_reference() -> None:
    assert BUILDERS.keys() == REFERENCE.keys()


def test_a_rule_is_found_by_each_spelling() -> None:
    table = built_in()
    for kind, name, rule in [
        ("function", "torch.exp", "exp"),
        ("function", "torch.special.expit", "sigmoid"),
        ("function", "torch.nn.functional.silu", "silu"),
        ("function", "F.silu", "silu"),
        ("function", "abs", "abs"),
        ("method", "sum", "sum"),
        ("attribute", "mT", "mT"),
        ("operator", "@", "matmul"),
        ("subscript", "[]", "getitem"),
    ]:
        assert rule in [found.rule.name for found in table.find(kind, name)], name
    assert not table.find("function", "torch.no_such_thing")
    assert not table.find("method", "silu")


def test_a_team_s_table_stands_above_the_built_in_one() -> None:
    table = checked_table(SQUASH, "team.toml", built_in())
    assert "squash" in table
    assert "exp" in table
    assert table.rule("squash").formulas == {
        "x": ("grad * gain * (1 - result * result)",)
    }


def test_each_name_of_let_is_read() -> None:
    whole = checked_table(BUILT_IN, "rules.toml")
    for name in whole.names():
        rule = whole.rule(name)
        read = str([rule.let, rule.formulas, rule.fused, rule.tangents])
        for let in rule.let:
            assert len(re.findall(rf"\b{let}\b", read)) > 1, (name, let)


def test_a_name_of_let_stands_for_its_expression() -> None:
    grad = 'grad.x = "grad * gain * (1 - result * result)"'
    named = """\
let.scaled = "grad * gain"
let.grad_x = "scaled * (1 - result * result)"
grad.x = "grad_x"
"""
    plain = checked_table(SQUASH, "team.toml", built_in())
    table = checked_table(SQUASH.replace(grad, named), "team.toml", built_in())
    wanted = plain.gradients(plain.rule("squash"), "x")
    assert table.gradients(table.rule("squash"), "x") == wanted


def bound(call: str, positional: list[int], **keywords: int) -> dict[str, int] | None:
    spelled = spelling(call, call, Graph())
    assert isinstance(spelled, Spelling)
    return bind(spelled, positional, keywords, lambda items: sum(items))


def test_arguments_are_bound_as_python_does() -> None:
    assert bound("x.sum(dim=None, keepdim=False)", [1, 2]) == {"x": 1, "dim": 2}
    assert bound("x.sum(dim=None)", [1], dim=3) == {"x": 1, "dim": 3}
    assert bound("x.view(*shape)", [1, 2, 3]) == {"x": 1, "shape": 5}
    assert bound("torch.add(x, y, alpha=...)", [1, 2], alpha=3) is not None


def test_a_call_that_does_not_fit_is_not_bound() -> None:
    assert bound("torch.exp(x)", [1, 2]) is None
    assert bound("torch.exp(x)", [1], out=2) is None
    assert bound("torch.exp(x)", [1], x=2) is None
    assert bound("torch.exp(x)", []) is None
    assert bound("torch.add(x, y, alpha=...)", [1, 2]) is None
    assert bound("torch.add(x, y, alpha=...)", [1, 2, 3]) is None


@pytest.mark.parametrize(
    ("line", "instead", "said"),
    [
        ("category", 'categori = "view"', "unknown key 'categori'"),
        ("category", "", "'category' is missing"),
        ("category", 'category = "pointwise"', "unknown category 'pointwise'"),
        ("category", 'category = "constant"', "of category constant has no gradient"),
        ("call", 'call = "squash x"', "'squash x' is not a call"),
        ("call", "call = 3", "'call' must be a string"),
        ("samples", "samples = []", "'samples' is missing"),
        ("samples", 'samples = ["x[3], gian=1"]', "'x[3], gian=1' is not a sample"),
        ("samples", 'samples = ["x[n]"]', "'x[n]' is not a sample"),
        ("samples", 'samples = ["2.0"]', "no sample has a tensor for 'x'"),
        ("grad.x", "", "no gradient is given"),
        ("grad.x", 'grad.z = "grad"', "'z' is not a parameter"),
        ("grad.x", 'grad.x = "grad * gian"', "unknown name 'gian'"),
        ("grad.x", 'grad.x = "grad *"', "not valid Python"),
        ("grad.x", 'grad.x = "y = grad; y"', "a formula is one expression"),
        ("grad.x", 'grad.x = "torch.exp(grad)"', "a call of torch in a formula"),
        ("grad.x", 'grad.x = "tanh(grad, 1)"', "tanh takes 1 arguments"),
        ("grad.x", 'grad.x = "gain(grad)"', "'gain' is not a primitive"),
        ("grad.x", 'grad.x = "a"\nlet.a = "b"\nlet.b = "grad"', "unknown name 'b'"),
        ("grad.x", 'grad.x = "a"\nlet.a = "grad * a"', "unknown name 'a'"),
        ("grad.x", 'grad.x = "a"\nlet.a = "grad *"', "not valid Python"),
        ("grad.x", 'grad.x = "grad"\nlet.x = "grad"', "'x' has a meaning already"),
        ("grad.x", 'grad.x = "grad"\nlet.exp = "x"', "'exp' has a meaning already"),
        ("grad.x", 'grad.x = "grad"\nlet.lambda = "x"', "'lambda' has a meaning"),
        ("grad.x", 'grad.x = "grad"\nlet.len = "x"', "'len' has a meaning already"),
        ("grad.x", 'grad.x = "grad"\nlet.grad = "x"', "'grad' has a meaning"),
        ("grad.x", 'grad.x = "grad"\nlet.a = "tangent"', "unknown name 'tangent'"),
        ("grad.x", 'grad.x = "grad"\nlet.a = 1', "'let' must be a table"),
        ("grad.x", 'grad.x = "a"\nlet.a = "grad"\nwhen = "a > 0"', "name 'a'"),
        ("grad.x", 'grad.x = "grad"\nnondiff = ["x"]', "has a gradient and is in"),
        ("grad.x", 'grad.x = "grad"\nnondiff = ["y"]', "'y' is not a parameter"),
        ("grad.x", 'grad.x = "grad"\noptional = ["y"]', "'y' is not a parameter"),
        ("grad.x", 'grad.x = "grad"\noperands = ["x"]', "'x' are not operands"),
        ("grad.x", 'grad.x = "grad"\noperands = ["y[N]"]', "'y' is not a parameter"),
        ("grad.x", 'grad.x = "grad"\nwhen = "gian > 0"', "unknown name 'gian'"),
        ("grad.x", 'grad.x = "grad"\ndomain.x = "nice"', "'nice' is not a domain"),
        ("category", 'category = "view"\nkind = "floats"', "'floats' is not a kind"),
        ("category", 'category = "view"\nkind = ["int", "int"]', "as many kinds as"),
        ("category", 'category = "view"\nshape = "tall"', "'tall' is not a shape"),
        (
            "category",
            'category = "view"\nshape = "(*x, y)"',
            "'(*x, y)' is not a shape",
        ),
        (
            "category",
            'category = "view"\nshape = "folded(x)"',
            "'folded(x)' is not a shape",
        ),
        ("category", 'category = "view"\ndtype = "half"', "'half' is not a dtype"),
        ("category", 'category = "view"\npasses = -1', "'passes' is negative"),
        ("category", 'category = "view"\npasses = 1.5', "must be a whole number"),
        ("category", 'category = "view"\nin_place = true', "no method is among"),
        ("category", 'category = "view"\nwords = ["a b"]', "'a b' is not a name"),
        ("category", 'category = "view"\nkind = 3', "'kind' must be a string, or an"),
        ("grad.x", 'grad.x = "grad"\nvalue = "x"', "its value has a gradient"),
        ("grad.x", 'value = "tanh(gain * x)"', "'value' and 'differentiable' go"),
        (
            "grad.x",
            'value = "expand_as(x, x)"\ndifferentiable = ["x"]',
            "expand_as has no gradient",
        ),
        ("grad.x", 'value = "y"\ndifferentiable = ["x"]', "unknown name 'y'"),
        ("grad.x", 'value = "x"\ndifferentiable = ["y"]', "'y' is not a parameter"),
        ("grad.x", 'grad.x = "grad"\nalso = ["x +"]', "'x +' is not a spelling"),
        ("grad.x", 'grad.x = "grad"\nalso = ["x.f(y)"]', "'y' is not a parameter"),
    ],
)
def test_what_is_wrong_is_said(line: str, instead: str, said: str) -> None:
    kept = [item for item in SQUASH.splitlines() if not item.startswith(line)]
    with pytest.raises(ScaffoldError) as caught:
        checked_table("\n".join([*kept, instead]), "team.toml", built_in())
    assert any(said in str(item) for item in caught.value.problems), str(caught.value)
    assert all(item.location for item in caught.value.problems)


def test_all_problems_are_said_at_their_places() -> None:
    text = SQUASH.replace("gain * (", "gian * (") + '\n[other]\ncall = "o(x)"\nx = 1\n'
    with pytest.raises(ScaffoldError) as caught:
        checked_table(text, "team.toml", built_in())
    assert str(caught.value).splitlines()[:2] == [
        "team.toml:4:18: unknown name 'gian'",
        "hint: did you mean 'gain'?",
    ]
    assert "team.toml:9:1: rule 'other': unknown key 'x'" in str(caught.value)


def test_a_table_holds_tables() -> None:
    with pytest.raises(ScaffoldError, match="'exp' is not a rule"):
        checked_table("exp = 1", "team.toml")


def test_a_rule_for_a_built_in_call_has_its_facts() -> None:
    """What it does not say itself; in another category it has that one's defaults."""
    text = """\
[softmax]
call = "torch.softmax(x, dim)"
category = "{category}"
grad.x = "grad"
samples = ["x[3, 4], -1"]
complex = false
"""
    same = checked_table(text.format(category="same_shape"), "team.toml", built_in())
    assert same.facts("softmax") == built_in().facts("softmax")
    other = checked_table(text.format(category="view"), "team.toml", built_in())
    facts = other.facts("softmax")
    assert facts and (facts.words, facts.passes) == ((), 0)
    assert other.facts("exp") == built_in().facts("exp")


def test_a_rule_states_its_facts() -> None:
    """A shape that follows from those of two arguments, and the method that writes over the first."""
    text = """\
[addmm]
call = "x.addmm(y, n)"
category = "contraction"
shape = "(*x[:-1], y[-1], n)"
kind = "real"
in_place = true
grad.x = "grad"
samples = ["x[3, 4], y[4, 2], 5"]
"""
    facts = checked_table(text, "team.toml").facts("addmm")
    assert facts and facts.shape == "(*x[:-1], y[-1], n)"
    assert (facts.kinds, facts.in_place) == (("real",), "addmm_")
