"""Suppressions: `# noqa: AF08, AF11` comments, and a baseline of the findings in old code.

A team with old code starts with `--write-baseline`; later runs report only what is new. A line is excused by a comment.

In: the text of a file, or of a baseline; findings. Out: for each line the rules switched off on it; the findings not in a baseline.
Invariant: a comment with only other tools' codes switches none of ours off. Lines may move: a baseline identifies a finding by its
file, rule, Function and message, and counts how often it occurs.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable

from scaffold.errors import Location, ScaffoldError
from scaffold.lint.model import UNREAD, Finding

COMMENT = re.compile(
    r"#\s*noqa(?P<codes>:\s*[A-Z]+[0-9]*(?:[,\s]+[A-Z]+[0-9]+)*)?", re.IGNORECASE
)
ALL = frozenset({"*"})


def read_noqa(text: str) -> dict[int, frozenset[str]]:
    """Return the codes in noqa comments by line, from 1; a comment without codes switches off all of them (ALL)."""
    off: dict[int, frozenset[str]] = {}
    if "noqa" not in text.lower():
        return off
    for number, line in enumerate(text.splitlines(), 1):
        found = COMMENT.search(line)
        if found:
            # `# noqa: see below` matches with no code in it: then nothing is switched off.
            codes = re.findall(r"[A-Z]+[0-9]+", (found["codes"] or "").upper())
            off[number] = frozenset(codes) if found["codes"] else ALL
    return off


def is_off(rule: str, line: int, off: dict[int, frozenset[str]]) -> bool:
    """Return whether a rule is switched off on a line; `off` are the codes by line, as `read_noqa` returns them."""
    codes = off.get(line, frozenset())
    return codes == ALL or rule in codes


VERSION = 1
Key = tuple[str, str, str, str]  # path, rule, Function, message


def write_baseline(findings: Iterable[Finding]) -> str:
    """Return the text of a baseline with these findings, each with the number of times it occurs."""
    counts = Counter(_key(finding) for finding in findings)
    rows = [[*key, count] for key, count in sorted(counts.items())]
    return json.dumps({"version": VERSION, "findings": rows}, indent=1) + "\n"


def read_baseline(text: str, path: str) -> Counter[Key]:
    """Return how often a baseline allows each finding; raise ScaffoldError if the text is no baseline. `path` is for the message."""
    try:
        data = json.loads(text)
        if data["version"] != VERSION:
            raise ValueError
        return Counter(
            {
                (str(p), str(r), str(f), str(m)): int(n)
                for p, r, f, m, n in data["findings"]
            }
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        hint = "write one with --write-baseline"
        raise ScaffoldError("is not a baseline of lint", Location(path), hint) from None


def without_known(
    findings: Iterable[Finding], known: Counter[Key]
) -> tuple[Finding, ...]:
    """Return the findings not in a baseline; of equal ones, as many are left out as the baseline counts."""
    allowed = Counter(known)
    unknown = []
    for finding in findings:
        key = _key(finding)
        if allowed[key] > 0:
            allowed[key] -= 1
        else:
            unknown.append(finding)
    return tuple(unknown)


def _key(finding: Finding) -> Key:
    """Return the key by which a baseline knows a finding: it stays the same if lines move."""
    if finding.rule == UNREAD:  # each Python version words it differently
        return (finding.path, UNREAD, "", "")
    message = re.sub(r"\bline \d+", "line _", finding.message)
    return (finding.path, finding.rule, finding.function, message)
