"""One file linted: findings in the order of their places, comments heeded, and no text makes it fail."""

from scaffold.lint.model import Finding, Unreadable
from scaffold.lint.registry import RULES
from scaffold.lint.run import lint_text

BAD = """\
from torch.autograd import Function


class F(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * ctx.x * grad_output, None, None
"""


def lint(text: str) -> tuple[Finding, ...] | Unreadable:
    return lint_text(text, "ops.py", RULES.values())


def test_findings_come_in_the_order_of_their_places() -> None:
    found = lint(BAD)
    assert not isinstance(found, Unreadable)
    places = [(item.line, item.column) for item in found]
    assert places == sorted(places) and len(places) > 1
    assert {item.function for item in found} == {"F"}


def test_a_finding_shows_its_line() -> None:
    text = BAD.replace("ctx.x = x", "ctx.ä = 'ä', x")
    found = lint(text)
    assert not isinstance(found, Unreadable)
    shown = {item.rule: item.shown.split("\n") for item in found}
    assert shown["AF02"] == ["        ctx.ä = 'ä', x", f"{'':8}{'^' * 14}"]
    assert shown["AF20"] == ["class F(Function):", "^" * 18]
    long = lint(text.replace("'ä'", f"'{'ä' * 200}'"))
    assert not isinstance(long, Unreadable)
    assert "" in {item.shown for item in long}


def test_a_comment_takes_one_away() -> None:
    found = lint(BAD)
    assert not isinstance(found, Unreadable)
    lines = BAD.split("\n")
    for item in found:
        lines[item.line - 1] += "  # noqa"
    assert lint("\n".join(lines)) == ()


def test_a_file_that_does_not_mention_autograd_is_parsed_all_the_same() -> None:
    assert lint("def f(): ...") == ()
    found = lint("def (")
    assert isinstance(found, Unreadable) and found.line == 1


def test_what_is_nested_too_deeply_is_unreadable() -> None:
    text = f"{BAD}x = {'-' * 20_000}1\n"
    assert isinstance(lint(text), Unreadable)
