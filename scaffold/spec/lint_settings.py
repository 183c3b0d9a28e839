"""The table `[tool.scaffold.lint]`: rules of the linter and their files.

`scaffold lint` reads them: which rules run, as `select = ["AF"]`, and which are off for some files. In: the table. Out: a
`LintConfiguration`. Invariant: an unknown key or a value of the wrong kind is a problem at its place.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from scaffold.spec.config_values import Stated
from scaffold.spec.problems import Problems

KEYS = ("select", "ignore", "per-file-ignores")


class LintConfiguration(NamedTuple):
    """A project's selection of lint rules, by their codes as written."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    per_file: tuple[tuple[str, tuple[str, ...]], ...] = ()  # pattern of paths -> codes


NOTHING_SAID = LintConfiguration()


def read_lint(stated: Stated) -> LintConfiguration:
    """Read the table `[tool.scaffold.lint]`; report unknown keys and values of the wrong kind, and leave them out."""
    value, problems = stated.value, stated.problems
    for key in value:
        if key not in KEYS:
            problems.unknown_key(("lint", key), "[tool.scaffold.lint]", KEYS)
    per_file = value.get("per-file-ignores", {})
    if not isinstance(per_file, dict):
        hint = "write: per-file-ignores = { 'tests/*' = ['AF30'] }"
        message = "'per-file-ignores' must be a table"
        problems.at(("lint", "per-file-ignores"), message, hint)
        per_file = {}
    return LintConfiguration(
        _codes(value, ("lint", "select"), problems),
        _codes(value, ("lint", "ignore"), problems),
        tuple(
            (pattern, _codes(per_file, ("lint", "per-file-ignores", pattern), problems))
            for pattern in per_file
        ),
    )


def _codes(
    table: Mapping[str, Any], path: tuple[str, ...], problems: Problems
) -> tuple[str, ...]:
    """Return the codes of rules listed in a table under the last key of `path`, in capitals: `["af08"]` -> `("AF08",)`; () without the key.

    Report anything but a list of strings, and give (). Whether such rules exist is for the linter to say.
    """
    value = table.get(path[-1], [])
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(item.upper() for item in value)
    problems.at(path, f"'{path[-1]}' must be a list of rules", "write: ['AF08']")
    return ()
