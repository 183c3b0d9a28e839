"""What a rule says of a place, as a finding; an unread file is one too."""

import ast

from scaffold.lint.model import Finding, Unreadable, span


def test_a_span_begins_and_ends_where_the_text_does() -> None:
    statement = ast.parse("\nx = (1,\n     2)").body[0]
    assert span(statement) == (2, 0, 3, 7)


def test_what_has_no_place_is_at_the_start() -> None:
    assert span(ast.parse("x")) == (1, 0, 1, 0)


def test_findings_are_shown_by_file_and_place() -> None:
    later = Finding("a.py", 10, 1, "AF01", "error", "", "", 10)
    sooner = Finding("a.py", 9, 5, "AF02", "advice", "", "", 9)
    other = Finding("b.py", 1, 1, "AF01", "error", "", "", 1)
    assert sorted([other, later, sooner]) == [sooner, later, other]


def test_an_unread_file_is_a_finding_of_its_own_rule() -> None:
    found = Unreadable("old.py", 3, 11, "invalid syntax").finding("advice")
    assert (found.path, found.line, found.column) == ("old.py", 3, 11)
    assert (found.rule, found.level) == ("AF00", "advice")
    assert (found.message, found.edits) == ("invalid syntax", ())
