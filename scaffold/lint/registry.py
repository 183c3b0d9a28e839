"""Registry of rules: all rules by id, and the selection from the command line or configuration.

The command `lint` asks it which rules to run; a *code* is an id or the beginning of one: `AF0` means AF00 to AF09.

In: codes such as `AF08`, prefixes, `ALL`. Out: rules; for a file, the codes switched off by its path.
Invariant: one file a rule, in the order of the ids; an unknown code is an error with a hint, never ignored.
"""

import re
from collections.abc import Iterable
from fnmatch import fnmatch

from scaffold.errors import Location, ScaffoldError, did_you_mean
from scaffold.lint import rules
from scaffold.lint.model import Rule
from scaffold.lint.rules import (  # noqa: F401 (each is listed by its package)
    af00,
    af01,
    af02,
    af03,
    af04,
    af05,
    af06,
    af07,
    af08,
    af09,
    af10,
    af11,
    af12,
    af13,
    af14,
    af15,
    af16,
    af17,
    af18,
    af19,
    af20,
    af21,
    af22,
    af23,
    af24,
    af25,
    af26,
    af27,
    af28,
    af29,
    af30,
    af31,
    af32,
    af33,
    af34,
    af35,
    af36,
    af37,
    af38,
    af39,
    af40,
    af41,
    af42,
    af43,
    af44,
    af45,
    af46,
)

# The modules that are imported above, by the names that they have in their package.
RULES: dict[str, Rule] = {
    module.RULE.id: module.RULE
    for name, module in sorted(vars(rules).items())
    if re.fullmatch(r"af\d\d", name)
}
CALLED = "rules are called AF00, AF01 and so on"


def select(selected: Iterable[str], ignored: Iterable[str]) -> tuple[Rule, ...]:
    """Return the rules with a selected code (the default rules if none is selected) and no ignored one."""
    wanted, without = tuple(selected), tuple(ignored)
    chosen = [
        rule
        for rule in RULES.values()
        if (_matches(rule.id, wanted) if wanted else rule.default)
    ]
    return tuple(rule for rule in chosen if not _matches(rule.id, without))


def _matches(rule: str, codes: tuple[str, ...]) -> bool:
    """Return whether a rule's id begins with one of the codes, or one is ALL."""
    return any(code == "ALL" or rule.startswith(code) for code in codes)


def split_codes(values: Iterable[str]) -> tuple[str, ...]:
    """Return the codes in option values: `["AF01,af02", "AF03"]` -> `("AF01", "AF02", "AF03")`."""
    return tuple(
        code.strip().upper()
        for value in values
        for code in value.split(",")
        if code.strip()
    )


def check_codes(codes: Iterable[str], place: Location) -> list[ScaffoldError]:
    """Return a problem for each code that begins no rule's id, with a similar one; `place` is the option or setting with the codes."""
    problems = []
    for code in codes:
        if code != "ALL" and not any(rule.startswith(code) for rule in RULES):
            # `AF8` is most likely AF08.
            padded = re.sub(r"^AF(\d)$", r"AF0\1", code)
            near = f"did you mean '{padded}'?" if padded in RULES else None
            hint = near or did_you_mean(code, RULES) or CALLED
            problems.append(ScaffoldError(f"unknown rule '{code}'", place, hint))
    return problems


def ignored_in(
    path: str, per_file: Iterable[tuple[str, tuple[str, ...]]]
) -> tuple[str, ...]:
    """Return the codes switched off for a file by the setting `per-file-ignores` (`per_file`: patterns with their codes).

    A pattern matches the whole path of a file or its last part: `tests/*`, `test_*.py`.
    """
    return tuple(
        code
        for pattern, codes in per_file
        if fnmatch(path, pattern) or fnmatch(path.rsplit("/", 1)[-1], pattern)
        for code in codes
    )
