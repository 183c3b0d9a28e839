"""Each rule finds its bad cases, and finds nothing in its good ones."""

import ast
from collections import Counter

import pytest

from scaffold.lint import RULES, Finding, Unreadable, lint_text
from scaffold.lint.formats import explain
from scaffold.lint.model import UNREAD
from scaffold.lint.registry import select
from tests.lint.cases import HEAD, Case, cases

ALL = cases()


def findings(case: Case) -> tuple[Finding, ...]:
    found = lint_text(case.text, "case.py", [RULES[case.rule]])
    assert not isinstance(found, Unreadable), found
    return found


@pytest.mark.parametrize("case", ALL, ids=str)
def test_a_bad_case_is_found_and_a_good_one_is_not(case: Case) -> None:
    ast.parse(case.text)
    assert bool(findings(case)) == (case.kind == "bad"), findings(case)
    if case.kind == "good":
        check_no_error_of_another_rule(case)


def test_every_rule_has_its_cases() -> None:
    counts = Counter((case.rule, case.kind) for case in ALL)
    for rule in RULES.keys() - {UNREAD}:
        assert counts[rule, "bad"] >= 4 and counts[rule, "good"] >= 4, rule


def check_no_error_of_another_rule(case: Case) -> None:
    """What the syntax tells for sure is not in a file that was written to be right in one respect."""
    rule = RULES[case.rule]
    others = [RULES[name] for name in ("AF21", "AF24", "AF25", "AF27", "AF28")]
    found = lint_text(
        case.text, "case.py", [other for other in others if other != rule]
    )
    assert found == ()


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: str(rule.id))
def test_a_rule_explains_itself(rule: object) -> None:
    assert rule in RULES.values()
    known = next(r for r in RULES.values() if r is rule)
    text = explain(known)
    assert known.id in text and known.why in text
    assert "Bad:" in text and "Good:" in text
    assert not known.title.endswith(".") and known.why.endswith(".")


def test_the_ids_are_in_order_and_the_file_names_are_theirs() -> None:
    assert list(RULES) == [f"AF{number:02}" for number in range(len(RULES))]


@pytest.mark.parametrize(
    ("rule", "number", "level"),
    [
        ("AF33", 7, "error"),
        ("AF33", 8, "advice"),
        ("AF21", 1, "advice"),
        ("AF21", 7, "error"),
    ],
)
def test_what_the_text_does_not_settle_is_advice(
    rule: str, number: int, level: str
) -> None:
    (case,) = (c for c in ALL if (c.rule, c.number) == (rule, number))
    assert {finding.level for finding in findings(case)} == {level}


LEVELS = {"AF42": "advice"}  # of an example that is not sure
ADVICE = ("AF37", "AF38", "AF39", "AF40", "AF43", "AF44", "AF45")


@pytest.mark.parametrize("rule", [x for x in RULES if x >= "AF37"])
def test_the_level_of_a_rule_is_that_of_its_example(rule: str) -> None:
    """AF43 is about `.item()` in forward."""
    found = findings(Case(rule, 0, "bad", HEAD + RULES[rule].bad))
    level = "advice" if rule in ADVICE else "error"
    assert RULES[rule].level == level
    assert {one.level for one in found} == {LEVELS.get(rule, level)}


def test_what_cannot_be_parsed_is_no_finding_but_is_not_linted() -> None:
    rule = RULES[UNREAD]
    assert lint_text(HEAD + rule.good, "case.py", select((), ())) == ()
    found = lint_text(HEAD + rule.bad, "case.py", RULES.values())
    assert isinstance(found, Unreadable)
    assert (found.line, found.finding("advice").rule) == (12, UNREAD)


@pytest.mark.parametrize("rule", ["AF10", "AF12"])
def test_a_tensor_is_reported_once(rule: str) -> None:
    text = HEAD + """\
class Case(Function):
    @staticmethod
    def forward(ctx, x, flag):
        ctx.save_for_backward(x)
        if flag:
            ctx.mark_dirty(x)
        else:
            ctx.mark_dirty(x)
        return x.add_(1), x.sum()

    @staticmethod
    def backward(ctx, g, h):
        (x,) = ctx.saved_tensors
        x += 1
        x.view(-1).mul_(2)
        return g, None
"""
    assert len(findings(Case(rule, 0, "bad", text))) == 1


MESSAGES = [
    (
        "AF13",
        "return x.view_as(x)",
        "return g",
        "'x.view_as(x)' is a view of an input: a later change of the output in place is refused; clone it",
    ),
    (
        "AF31",
        "return torch.ops.lib.sort(x)",
        "order = torch.ops.lib.order(g)\n        checked = torch.ops.lib.check(g)\n        return torch.ops.lib.take(g, order)",
        "torch.ops.lib.take is a kernel: a second derivative may be silently wrong; add @once_differentiable",
    ),
    (
        "AF34",
        "n = x.sum(0)\n        ctx.save_for_backward(x, n, w)\n        return x * w, w",
        (
            "x, n, w = ctx.saved_tensors\n        gx = gw = None\n        if ctx.needs_input_grad[0]:\n            gx = g * w\n"
            "        if ctx.needs_input_grad[1]:\n            gw = g * x / n\n        return gx, gw"
        ),
        "'x', 'n' are only read for the gradient of input 1: save them only if that gradient is needed",
    ),
]


@pytest.mark.parametrize(("rule", "forward", "backward", "message"), MESSAGES)
def test_a_message_names_what_is_at_fault(
    rule: str, forward: str, backward: str, message: str
) -> None:
    text = f"""{HEAD}\
class Case(Function):
    @staticmethod
    def forward(ctx, x, w=None):
        {forward}

    @staticmethod
    def backward(ctx, g):
        {backward}
"""
    first = findings(Case(rule, 0, "bad", text))[0]
    assert first.message == message
