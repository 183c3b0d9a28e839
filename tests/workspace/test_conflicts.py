from collections.abc import Callable
from pathlib import Path

import pytest

from scaffold.errors import ConflictError
from scaffold.workspace import Answer, Change, Plan, converse, plan, resolve


@pytest.fixture
def clashing(tmp_path: Path) -> Plan:
    """One file to create, three in conflict."""
    for name in "abc":
        (tmp_path / f"{name}.py").write_text("old\n")
    return plan({f"{name}.py": "new\n" for name in "nabc"}, tmp_path)


def verbs(made: Plan) -> list[str]:
    return [change.verb for change in made.changes]


def answers(*replies: Answer) -> Callable[[Change], Answer]:
    left = list(replies)
    return lambda change: left.pop(0)


def test_policies_that_decide(clashing: Plan) -> None:
    assert verbs(resolve(clashing, "skip")) == ["create"] + ["skip"] * 3
    assert verbs(resolve(clashing, "overwrite")) == ["create"] + ["update"] * 3


@pytest.mark.parametrize("policy", ["abort", "ask"])
def test_without_anyone_to_ask_all_conflicts_are_listed(
    clashing: Plan, policy: str
) -> None:
    with pytest.raises(ConflictError) as caught:
        resolve(clashing, policy)  # type: ignore[arg-type]
    assert caught.value.exit_code == 1
    assert str(caught.value) == (
        "error: 'a.py', 'b.py', 'c.py' exist and differ; nothing was written\n"
        "hint: see them with --diff, settle them with --on-conflict skip or overwrite"
    )


def test_abort_lets_a_plan_without_conflicts_pass(tmp_path: Path) -> None:
    made = plan({"n.py": ""}, tmp_path)
    assert resolve(made, "abort") == resolve(made, "ask") == made


def test_answers_hold_for_one_file(clashing: Plan) -> None:
    made = resolve(clashing, "ask", answers("no", "yes", "no"))
    assert verbs(made) == ["create", "skip", "update", "skip"]


def test_all_holds_for_the_rest_and_asks_no_more(clashing: Plan) -> None:
    made = resolve(clashing, "ask", answers("no", "all"))
    assert verbs(made) == ["create", "skip", "update", "update"]


def test_quit_writes_nothing_whatever_was_answered_before(clashing: Plan) -> None:
    with pytest.raises(ConflictError, match="nothing was written"):
        resolve(clashing, "ask", answers("yes", "quit"))


class Terminal:
    """Types the given lines, then closes; keeps what was shown."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.shown: list[str] = []

    def prompt(self, question: str) -> str:
        self.shown.append(question)
        if not self.lines:
            raise EOFError
        return self.lines.pop(0)

    def answer(self, change: Change) -> Answer:
        return converse(change, self.prompt, self.shown.append)


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("", "no"),
        ("n", "no"),
        ("y", "yes"),
        (" YES ", "yes"),
        ("a", "all"),
        ("q", "quit"),
    ],
)
def test_a_line_is_an_answer(clashing: Plan, line: str, answer: Answer) -> None:
    terminal = Terminal(line)
    assert terminal.answer(clashing.conflicts[0]) == answer
    assert terminal.shown == [
        "overwrite a.py? [n]o/[y]es/[d]iff/[m]erge/[a]ll/[q]uit (no): "
    ]


def test_a_closed_input_overwrites_nothing(clashing: Plan) -> None:
    with pytest.raises(ConflictError):
        resolve(clashing, "ask", Terminal("y", "y").answer)


def test_the_difference_is_shown_and_the_question_asked_again(clashing: Plan) -> None:
    terminal = Terminal("d", "y")
    assert terminal.answer(clashing.conflicts[0]) == "yes"
    question, difference, again = terminal.shown
    assert difference.endswith("-old\n+new\n")
    assert question == again


def test_anything_else_is_asked_again(clashing: Plan) -> None:
    terminal = Terminal("maybe", "n")
    assert terminal.answer(clashing.conflicts[0]) == "no"
    assert terminal.shown[1] == "'maybe' is no answer: n, y, d, m, a or q\n"
