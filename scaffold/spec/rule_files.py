"""A team's own tables of rules, as its pyproject.toml names them.

In: the value of `rules` in [tool.scaffold]. Out: the files with their text. Invariant: a file that cannot be read is an error
at its place in the pyproject.toml; what is wrong inside of it is said where it is used.
"""

import os
from pathlib import Path

from scaffold.errors import ScaffoldError
from scaffold.files import read_text
from scaffold.spec.config_values import Stated
from scaffold.spec.model import RuleFile


def read_rule_files(stated: Stated) -> tuple[RuleFile, ...]:
    """The files, which count from the pyproject.toml's directory."""
    found = []
    for position, name in enumerate(stated.value):
        text = _text(Path(stated.root, name))
        if isinstance(text, str):
            path = os.path.normpath(os.path.join(stated.shown, name))
            found.append(RuleFile(path, text))
        else:
            place = stated.problems.within((stated.key, str(position)))
            reason = getattr(text, "strerror", None) or "not UTF-8"
            stated.problems.add(ScaffoldError(f"cannot read '{name}': {reason}", place))
    return tuple(found)


def _text(path: Path) -> str | Exception:
    try:
        return read_text(path, "utf-8-sig")
    except (OSError, ValueError) as error:
        return error
