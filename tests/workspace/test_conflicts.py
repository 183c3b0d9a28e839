from collections.abc import Callable
from pathlib import Path

import pytest

from scaffold.errors import ConflictError
from scaffold.workspace import Answer, Change, Plan, apply, converse, plan, resolve
from tests.workspace.test_changes import verbs


@pytest.fixture
def clashing(tmp_path: Path) -> Plan:
    """One file to create, three in conflict."""
    for name in "abc":
        (tmp_path / f"{name}.py").write_text("old\n")
    return plan({f"{name}.py": "new\n" for name in "nabc"}, tmp_path)


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
        "hint: see the difference with --diff; then use --on-conflict skip or overwrite"
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
    assert terminal.shown[1] == "'maybe' is not an answer: n, y, d, m, a or q\n"


BASE = "a = 1\nb = 1\nc = 1\n"
NEW = "a = 1\nb = 1\nc = 2\n"


def merged(root: Path, mine: bytes, new: str = NEW, base: str | None = BASE) -> Change:
    """The change of one file that a merge decides on."""
    (root / "f.py").write_bytes(mine)
    bases = {} if base is None else {"f.py": base}
    (change,) = resolve(plan({"f.py": new}, root, bases=bases), "merge").changes
    return change


def test_a_merge_keeps_both(tmp_path: Path) -> None:
    change = merged(tmp_path, b"a = 2\nb = 1\nc = 1\n")
    assert (change.verb, change.conflicts) == ("update", 0)
    assert change.after == b"a = 2\nb = 1\nc = 2\n"


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_merge_keeps_line_ends_and_the_byte_order_mark(
    tmp_path: Path, mark: bytes
) -> None:
    change = merged(tmp_path, mark + b"a = '\xc3\xa9'\r\nb = 1\r\nc = 1\r\n")
    assert change.after == mark + b"a = '\xc3\xa9'\r\nb = 1\r\nc = 2\r\n"


def test_a_merge_with_markers_is_written_and_stays_a_conflict(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_bytes(b"a = 1\nb = 1\nc = 3\n")
    made = resolve(plan({"f.py": NEW}, tmp_path, bases={"f.py": BASE}), "merge")
    (change,) = made.changes
    assert (change.verb, change.conflicts) == ("conflict", 1)
    assert (made.conflicts, made.unsettled, made.writes) == ((change,), (), (change,))
    apply(made)
    assert (tmp_path / "f.py").read_text() == (
        "a = 1\nb = 1\n<<<<<<< yours\nc = 3\n||||||| base\nc = 1\n"
        "=======\nc = 2\n>>>>>>> scaffold\n"
    )


def test_a_merge_that_brings_nothing_writes_nothing(tmp_path: Path) -> None:
    change = merged(tmp_path, b"a = 2\nb = 1\nc = 1\n", new=BASE)
    assert (change.verb, change.after) == ("identical", change.before)


@pytest.mark.parametrize(
    ("mine", "base", "reason", "hint"),
    [
        (b"mine\n", None, "there is no record of its generated text", "skip or over"),
        (b"\xff\n", BASE, "it is not UTF-8", "skip or overwrite"),
        (b"<<<<<<< yours\n", BASE, "it holds the markers of an earlier", "resolve"),
    ],
)
def test_what_cannot_be_merged_is_refused(
    tmp_path: Path, mine: bytes, base: str | None, reason: str, hint: str
) -> None:
    with pytest.raises(ConflictError) as caught:
        merged(tmp_path, mine, base=base)
    assert caught.value.message.startswith(f"'f.py' cannot be merged: {reason}")
    assert caught.value.message.endswith("; nothing was written")
    assert hint in str(caught.value.hint)


def test_all_that_cannot_be_merged_is_told(clashing: Plan) -> None:
    with pytest.raises(ConflictError) as caught:
        resolve(clashing, "merge")
    assert len(caught.value.problems) == 3
    assert caught.value.exit_code == 1


def test_a_removal_is_decided_on_but_not_merged(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("mine\n")
    made = plan({"f.py": None}, tmp_path, bases={"f.py": BASE})
    assert verbs(resolve(made, "skip")) == ["skip"]
    assert verbs(resolve(made, "overwrite")) == ["remove"]
    with pytest.raises(ConflictError, match="it is to be removed"):
        resolve(made, "merge")
    terminal = Terminal("y")
    assert terminal.answer(made.changes[0]) == "yes"
    assert terminal.shown[0].startswith("remove f.py? ")


def test_a_merge_may_be_the_answer(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("a = 2\nb = 1\nc = 1\n")
    made = plan({"f.py": NEW}, tmp_path, bases={"f.py": BASE})
    (change,) = resolve(made, "ask", Terminal("m").answer).changes
    assert change.after == b"a = 2\nb = 1\nc = 2\n"


def test_a_merge_that_is_impossible_is_no_answer(clashing: Plan) -> None:
    terminal = Terminal("m", "n")
    assert terminal.answer(clashing.conflicts[0]) == "no"
    assert terminal.shown[1] == (
        "a.py cannot be merged: there is no record of its generated text\n"
    )


def test_a_merge_is_named_where_one_is_possible(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text("mine\n")
    made = plan({"f.py": NEW}, tmp_path, bases={"f.py": BASE})
    with pytest.raises(ConflictError) as caught:
        resolve(made, "abort")
    assert str(caught.value.hint).endswith("--on-conflict skip, overwrite or merge")
