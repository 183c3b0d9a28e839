"""A team's own tables of rules, as its pyproject.toml names them.

In: the value of `rules` in [tool.scaffold]. Out: the files with their text. Invariant: a file that cannot be read is an error
at its place in the pyproject.toml; what is wrong inside of it is said where it is used.
"""

import os
from pathlib import Path
from typing import Any

from scaffold.errors import ScaffoldError
from scaffold.spec.model import RuleFile
from scaffold.spec.problems import Problems

KEY = "rules"


def read_rule_files(
    value: Any, directory: str, shown: str, problems: Problems
) -> tuple[RuleFile, ...]:
    """The files, which count from the pyproject.toml's directory; messages have them below `shown`."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        hint = "write: rules = ['rules.toml']"
        problems.at((KEY,), f"'{KEY}' must be a list of files", hint)
        return ()
    found = []
    for position, name in enumerate(value):
        text = _text(Path(directory, name))
        if isinstance(text, str):
            path = os.path.normpath(os.path.join(shown, name))
            found.append(RuleFile(path, text))
        else:
            place = problems.within((KEY, str(position)))
            reason = getattr(text, "strerror", None) or "not UTF-8"
            problems.add(ScaffoldError(f"cannot read '{name}': {reason}", place))
    return tuple(found)


def _text(path: Path) -> str | Exception:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        return error
