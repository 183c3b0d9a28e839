"""Comments that switch rules off: `# noqa`, `# noqa: AF08, AF11`.

In: the text of a file. Out: for each line the rules that are off on it, or all of them.
Invariant: a comment that names other tools' codes only switches nothing of ours off.
"""

import re

COMMENT = re.compile(
    r"#\s*noqa(?P<codes>:\s*[A-Z]+[0-9]*(?:[,\s]+[A-Z]+[0-9]+)*)?", re.IGNORECASE
)
ALL = frozenset({"*"})


def read_noqa(text: str) -> dict[int, frozenset[str]]:
    """What is switched off, by line from 1."""
    off: dict[int, frozenset[str]] = {}
    if "noqa" not in text.lower():
        return off
    for number, line in enumerate(text.splitlines(), 1):
        found = COMMENT.search(line)
        if found:
            codes = re.findall(r"[A-Z]+[0-9]+", (found["codes"] or "").upper())
            off[number] = frozenset(codes) if found["codes"] else ALL
    return off


def is_off(rule: str, line: int, off: dict[int, frozenset[str]]) -> bool:
    """Whether a rule is switched off on a line."""
    codes = off.get(line, frozenset())
    return codes == ALL or any(rule == code for code in codes)
