"""The keys of `[tool.scaffold]`, as data.

Out: `KEYS`, one row for each key: its kind, its default in TOML, its reader, its help. Invariant: a key is a field of
`Configuration`, with `_` for `-`; the default, once read, is the field's default. An entry of
`[tool.scaffold.defaults]` is a key of an op, with a value of its kind.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from scaffold.errors import ScaffoldError, did_you_mean
from scaffold.files import read_text
from scaffold.spec import config_values as values
from scaffold.spec.config_values import Stated
from scaffold.spec.keys import DEFAULTS as ALLOWED
from scaffold.spec.keys import SAVE_POLICY, STYLE, check_key
from scaffold.spec.kinds import (
    ANY_TABLE,
    NUMBER,
    SWITCH,
    TABLES,
    TEXT,
    TEXT_OR_TEXTS,
    TEXTS,
    Kind,
    choice,
    choices,
)
from scaffold.spec.lint_settings import read_lint
from scaffold.spec.names import DEFAULT
from scaffold.spec.op_spec import RuleFile
from scaffold.spec.other_tools import LINE_LENGTH, SHORTEST
from scaffold.spec.requirements import WANTED
from scaffold.spec.testing_settings import read_testing

ABOVE = ("style", "save-policy")


def read_defaults(stated: Stated) -> tuple[tuple[str, Any], ...]:
    """Return the entries of the table; report unknown keys and invalid values."""
    problems = stated.problems
    for key, value in stated.value.items():
        path = (stated.key, key)
        if key in ABOVE:
            hint = "write it in [tool.scaffold] itself"
            problems.at_key(path, f"'{key}' is no key of '{stated.key}'", hint)
        elif key not in ALLOWED:
            hint = did_you_mean(key, ALLOWED) or f"the keys: {', '.join(ALLOWED)}"
            problems.at_key(path, f"unknown key '{key}' in '{stated.key}'", hint)
        else:
            check_key(path, value, problems)
    return tuple(stated.value.items())


# --- A team's own tables of rules, named in its pyproject.toml.
#
# In: the value of `rules` in [tool.scaffold]. Out: the files with their text. Invariant: an unreadable file is an
# error at its place in the pyproject.toml; errors inside it are reported when it is used.


def read_rule_files(stated: Stated) -> tuple[RuleFile, ...]:
    """Read the files, with paths relative to the pyproject.toml."""
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


# --- The keys of `[tool.scaffold]`, as data.


Formatter = Literal["black", "ruff"]
Docstrings = Literal["google", "numpy", "sphinx"]
Typing = Literal["plain", "strict"]


class Key(NamedTuple):
    """A key of the configuration."""

    kind: Kind
    default: Any  # in TOML's form; None: not set
    read: Callable[[Stated], Any]
    help: str
    example: str | None = None  # its syntax, if the kind does not show it


PARAMETERS = ("weight", "weights", "bias", "gamma", "beta", "alpha", "scale")
KEYS: dict[str, Key] = {
    "source": Key(TEXT, ".", values.read_directory, "Where ops go."),
    "tests": Key(
        TEXT, None, values.read_directory, "Where their tests go; else beside them."
    ),
    "package": Key(
        TEXT, None, values.read_package, "The import path of the source directory."
    ),
    "manifest": Key(
        TEXT_OR_TEXTS,
        "ops.toml",
        values.read_manifests,
        "The files that hold the ops; '*' and '**' stand for any names.",
        "manifest = ['ops/*.toml']",
    ),
    "style": Key(STYLE, "setup-context", values.read_text, "How ops are written."),
    "namespace": Key(
        TEXT,
        None,
        values.read_namespace,
        "Where ops in library style are registered; else the package's name.",
        "namespace = 'mylib'",
    ),
    "save-policy": Key(
        SAVE_POLICY,
        "balanced",
        values.read_text,
        "What of a forward is saved for a derived backward.",
    ),
    "shape-checks": Key(
        SWITCH,
        True,
        values.read_text,
        "Raise where a declared shape is broken that the backward relies on.",
    ),
    "defaults": Key(
        ANY_TABLE,
        {},
        read_defaults,
        "Keys of every op that does not state them.",
        "defaults = { module = false }",
    ),
    "require": Key(
        choices("a list of features", WANTED),
        [],
        values.read_strings,
        "What every op must have.",
        "require = ['doc', 'shapes']",
    ),
    "parameter-names": Key(
        TEXTS,
        [*PARAMETERS],
        values.read_parameter_names,
        "Inputs that become parameters of the module.",
    ),
    "conventions": Key(
        TABLES,
        [
            {
                "input": "N, in_features",
                "weight": "out_features, in_features",
                "bias": "out_features",
            }
        ],
        values.read_conventions,
        "Shapes of inputs that declare none and occur together.",
        "conventions = [{ x = 'N, D', scale = 'D' }]",
    ),
    "rules": Key(
        TEXTS,
        [],
        read_rule_files,
        "Tables of rules of differentiation, beside the built-in one.",
        "rules = ['rules.toml']",
    ),
    "names": Key(
        ANY_TABLE,
        dict(DEFAULT._asdict()),
        values.read_names,
        "What files and classes are called.",
        "names = { file = '{op}.py', function = '{Op}Function' }",
    ),
    "template-dirs": Key(
        TEXTS,
        [],
        values.read_template_dirs,
        "Directories of templates that go before the built-in ones.",
        "template-dirs = ['templates']",
    ),
    "licence": Key(
        TEXT, None, values.read_text, "Comment lines on top of every generated file."
    ),
    "header": Key(
        SWITCH, True, values.read_text, "A line that names the manifest, on top."
    ),
    "docstrings": Key(
        choice("a convention", get_args(Docstrings)),
        "google",
        values.read_text,
        "How docstrings list arguments.",
    ),
    "typing": Key(
        choice("a mode of type checkers", get_args(Typing)),
        "plain",
        values.read_text,
        "How types are written: plain, or also what mypy --strict asks.",
    ),
    "exports": Key(
        SWITCH,
        False,
        values.read_text,
        "Keep the __init__.py of the source directory exporting the ops, sorted.",
    ),
    "formatter": Key(
        choice("a formatter", get_args(Formatter)),
        "black",
        values.read_text,
        "What formats generated files.",
    ),
    "line-length": Key(
        NUMBER._replace(what=f"a number from {SHORTEST} up"),
        LINE_LENGTH,
        values.read_length,
        "The length of lines; else that of [tool.black] or [tool.ruff].",
    ),
    "python": Key(
        TEXT,
        None,
        values.read_interpreter,
        "The interpreter that has PyTorch, for proofs and tests; a path counts from here.",
        "python = '.venv/bin/python'",
    ),
    "testing": Key(
        ANY_TABLE,
        {},
        read_testing,
        "What the tests of the project share.",
        "testing = { devices = ['cpu', 'cuda'] }",
    ),
    "lint": Key(
        ANY_TABLE,
        {},
        read_lint,
        "Which rules of the linter run where.",
        "lint = { ignore = ['AF08'] }",
    ),
}
