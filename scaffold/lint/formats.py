"""Findings as text, JSON, GitHub commands or SARIF.

`scaffold lint --format` chooses: text for people, JSON for programs, commands that GitHub shows beside lines of a pull request,
SARIF for code-scanning services.

In: findings and files that were not linted. Out: the text that goes to stdout.
Invariant: the same findings give the same bytes.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from scaffold.annotations import annotation
from scaffold.lint.model import Finding, Rule, Unreadable
from scaffold.lint.registry import RULES

Paint = Callable[[str, str], str]  # a text and the name of its style
JSON_VERSION = 1
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def unpainted(text: str, _style: str) -> str:
    """Return a text unchanged, for output without colours."""
    return text


def as_text(
    findings: Sequence[Finding],
    unread: Sequence[Unreadable],
    can_fix: bool = True,
    paint: Paint = unpainted,
) -> str:
    """Return one line for each finding, as ruff does, with the source below it, and a summary.

    `paint` colours a text by the name of a style. Without LibCST (`can_fix` is False) the summary says what --fix needs.
    """
    lines = [line for item in findings for line in _lines(item, paint)]
    counts = Counter(item.level for item in findings)
    errors, advice = counts["error"], counts["advice"]
    if not findings:
        return _without_findings(len(unread))
    total = f"Found {errors} error{'s' * (errors != 1)}, {advice} of advice."
    fixable = sum(bool(item.edits) for item in findings)
    hint = f" {_fixing(fixable, can_fix)}" if fixable else ""
    return "\n".join([*lines, total + hint]) + "\n"


def _lines(item: Finding, paint: Paint) -> Iterator[str]:
    """Yield the lines of one finding: place, rule and message, then the source with carets below the mistake."""
    style = "error" if item.level == "error" else "note"
    place = paint(f"{item.path}:{item.line}:{item.column}:", "place")
    advice = "" if item.level == "error" else "(advice) "
    yield f"{place} {paint(item.rule, style)} {advice}{item.message}"
    if item.shown:
        source, carets = item.shown.split("\n")
        yield f"{item.line:5} | {source}"
        yield f"{'':5} | {paint(carets, style)}"


def _fixing(count: int, can_fix: bool) -> str:
    """Return how many findings --fix can fix, and what it needs if LibCST is not installed (`can_fix` is False)."""
    if can_fix:
        return f"{count} can be fixed with --fix."
    return f"With libcst installed, --fix can fix {count}."


def _without_findings(unread: int) -> str:
    """Return the line for no findings, with the number of unread files."""
    if not unread:
        return "All checks passed.\n"
    return f"No findings, but {unread} file{'s' * (unread != 1)} could not be read.\n"


def as_json(findings: Sequence[Finding], unread: Sequence[Unreadable]) -> str:
    """Return the findings, and the files not read, as a JSON object; its "version" changes with its form."""
    data = {
        "version": JSON_VERSION,
        "findings": [
            {
                "path": item.path,
                "line": item.line,
                "column": item.column,
                "rule": item.rule,
                "level": item.level,
                "message": item.message,
                "function": item.function,
                "fixable": bool(item.edits),
            }
            for item in findings
        ],
        "unread": [item._asdict() for item in unread],
    }
    return json.dumps(data, indent=2) + "\n"


def as_github(findings: Sequence[Finding], unread: Sequence[Unreadable]) -> str:
    """Return workflow commands, shown by GitHub beside the lines of a pull request."""
    lines = (
        annotation(
            "error" if item.level == "error" else "notice",
            *(item.path, item.line, item.column, item.message),
            title=item.rule,
        )
        for item in findings
    )
    return "".join(f"{line}\n" for line in lines)


def as_sarif(findings: Sequence[Finding], unread: Sequence[Unreadable]) -> str:
    """Return the findings as SARIF 2.1.0, the format of code-scanning services."""
    used = sorted({item.rule for item in findings})
    run = {
        "tool": {
            "driver": {
                "name": "scaffold",
                "rules": [_described(RULES[rule]) for rule in used],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [_result(item, used.index(item.rule)) for item in findings],
    }
    return (
        json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)
        + "\n"
    )


def _described(rule: Rule) -> dict[str, Any]:
    """Return a rule as SARIF describes one, in the part of a run about the tool."""
    return {
        "id": rule.id,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "defaultConfiguration": {"level": _sarif_level(rule.level)},
    }


def _result(item: Finding, index: int) -> dict[str, Any]:
    """Return a finding as a SARIF result; `index` is its rule's among the rules of the run."""
    region = {"startLine": item.line, "startColumn": item.column}
    uri = quote(item.path.replace("\\", "/"), errors="surrogateescape")
    place = {"artifactLocation": {"uri": uri}, "region": region}
    return {
        "ruleId": item.rule,
        "ruleIndex": index,
        "level": _sarif_level(item.level),
        "message": {"text": item.message},
        "locations": [{"physicalLocation": place}],
    }


def _sarif_level(level: str) -> str:
    """Return SARIF's word for a level: advice is a "note"."""
    return "error" if level == "error" else "note"


def explain(rule: Rule) -> str:
    """Return the text of `scaffold lint --explain AF08`: a rule's title, its reason, a bad and a good example."""
    kind = "error" if rule.level == "error" else "advice"
    notes = [kind]
    if rule.fixes:
        notes.append("some are fixed by --fix")
    if not rule.default:
        notes.append("off unless it is selected")
    return (
        f"{rule.id}: {rule.title} ({', '.join(notes)})\n\n{rule.why}\n\n"
        f"Bad:\n\n{_indented(rule.bad)}\nGood:\n\n{_indented(rule.good)}"
    )


def _indented(code: str) -> str:
    return "".join(
        f"    {line}\n" if line else "\n" for line in code.rstrip("\n").split("\n")
    )


FORMATS: dict[str, Callable[[Sequence[Finding], Sequence[Unreadable]], str]] = {
    "text": as_text,
    "json": as_json,
    "github": as_github,
    "sarif": as_sarif,
}
