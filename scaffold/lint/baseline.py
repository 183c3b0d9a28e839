"""A baseline: the findings of an old code base that are to be left alone, so that it starts clean.

In: findings, or the text of a baseline. Out: its text, or the findings that are not in it.
Invariant: lines may move: a finding is known by its file, rule, Function and message, as often as it was there.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable

from scaffold.errors import Location, ScaffoldError
from scaffold.lint.model import UNREAD, Finding

VERSION = 1
Key = tuple[str, str, str, str]


def write_baseline(findings: Iterable[Finding]) -> str:
    """The text of a baseline that holds these findings."""
    counts = Counter(_key(finding) for finding in findings)
    rows = [[*key, count] for key, count in sorted(counts.items())]
    return json.dumps({"version": VERSION, "findings": rows}, indent=1) + "\n"


def read_baseline(text: str, path: str) -> Counter[Key]:
    """How often a baseline allows each finding."""
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
        hint = "write it with --write-baseline"
        raise ScaffoldError("is no baseline", Location(path), hint) from None


def without_known(
    findings: Iterable[Finding], known: Counter[Key]
) -> tuple[Finding, ...]:
    """The findings that a baseline does not hold."""
    left = Counter(known)
    fresh = []
    for finding in findings:
        key = _key(finding)
        if left[key] > 0:
            left[key] -= 1
        else:
            fresh.append(finding)
    return tuple(fresh)


def _key(finding: Finding) -> Key:
    if finding.rule == UNREAD:  # each Python has its own words for it
        return (finding.path, UNREAD, "", "")
    message = re.sub(r"\bline \d+", "line _", finding.message)
    return (finding.path, finding.rule, finding.function, message)
