"""Lint run: apply every selected rule to one file.

Words: *facts* are what `inspect` knows of one hand-written autograd.Function; a rule yields `Found`s, with a node and a message,
which become `Finding`s, with a place, for display.

In: the text of a file and the rules. Out: findings in the order of their places; or why the file was not linted.
Invariant: no text makes it fail: code that a rule does not understand is no finding. A file without findings was parsed.
"""

from collections.abc import Iterable, Iterator

from scaffold.inspect import Module, NotReadable, inspect_text, may_matter, parsed
from scaffold.inspect.facts import Facts
from scaffold.lint.model import Finding, Found, Rule, Span, Unreadable, span
from scaffold.lint.suppressions import is_off, read_noqa


def lint_text(
    text: str,
    path: str,
    rules: Iterable[Rule],
    known: frozenset[str] = frozenset(),
) -> tuple[Finding, ...] | Unreadable:
    """Return the findings of a file, or an Unreadable if it cannot be parsed.

    `known` are names of Functions defined in other files, so that subclasses of them are recognized. Findings on a line with a
    `# noqa` comment for their rule are left out.
    """
    try:
        if not may_matter(text, known):  # no word of it is about Functions
            parsed(text, path)  # raises NotReadable
            return ()
        module = inspect_text(text, path, known)
        found = sorted(set(_findings(module, tuple(rules))))
    except NotReadable as error:
        place = error.location
        assert place is not None
        return Unreadable(path, place.line, place.column, error.message)
    except RecursionError:
        return Unreadable(path, 1, 1, "cannot be read: it is nested too deeply")
    off = read_noqa(text) if found else {}
    # A `# noqa` may stand on the first or on the last line of a statement.
    return tuple(
        finding
        for finding in found
        if not any(
            is_off(finding.rule, line, off) for line in {finding.line, finding.end_line}
        )
    )


def _findings(module: Module, rules: tuple[Rule, ...]) -> Iterator[Finding]:
    """Yield the findings of each rule: first of the rules for a file as a whole, then of the rules for each Function in it."""
    lines = module.text.split("\n")
    for rule in rules:
        if rule.whole is not None:
            for found in rule.whole(module):
                yield _finding(module.path, lines, rule, found, found.function)
    each = [(rule, rule.each) for rule in rules if rule.each is not None]
    for function in module.functions:
        facts = Facts(function, module)
        for rule, check in each:
            for found in check(facts):
                yield _finding(module.path, lines, rule, found, function.qualname)


def _finding(
    path: str, lines: list[str], rule: Rule, found: Found, function: str
) -> Finding:
    """Return what a rule found with its place, its level and its source line, for display.

    `lines` are those of the file, `function` is the name of the Function, "" for a finding about the file.
    """
    line, column, end, _ = span(found.node)
    statement_end = getattr(found.node, "body", None)
    return Finding(
        path,
        line,
        column + 1,
        rule.id,
        found.level or rule.level,
        found.message,
        function,
        line if statement_end else end,  # of a definition, its first line
        found.edits,
        _shown(lines, span(found.node)),
    )


LONG = 200  # characters: longer lines are not shown


def _shown(lines: list[str], place: Span) -> str:
    """Return the first line of a place, and carets below it on a second one; "" if the line is empty or too long."""
    line, column, end, end_column = place
    text = lines[line - 1].rstrip() if line <= len(lines) else ""
    bytes_ = text.encode(errors="surrogateescape")
    before = bytes_[:column].decode(errors="ignore")
    # Of several lines the first is marked to its end.
    marked = bytes_[column : end_column if end == line else None]
    # A tab stays a tab, so that the carets stand below the mistake.
    below = "".join(letter if letter == "\t" else " " for letter in before)
    carets = "^" * max(1, len(marked.decode(errors="ignore")))
    return f"{text}\n{below}{carets}" if text and len(text) < LONG else ""
