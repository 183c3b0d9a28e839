"""The keys of `[tool.scaffold]`, as data.

`config` reads a pyproject.toml by it, `scaffold config` lists it, the docs print it. Out: `KEYS`, one row for each key: its
kind, its default in TOML, its reader, its help. Invariant: a key is a field of `Configuration`, with `_` for `-`; the field's
default is the default of the row, read. An entry of `[tool.scaffold.defaults]` is a key of an op, with a value of its kind.

Words: a *reader* takes a `Stated` value of the right kind and returns the field's value, `"ops/*.toml"` -> `("ops/*.toml",)`.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from scaffold.errors import ScaffoldError, why_unread
from scaffold.files import read_text
from scaffold.spec import config_values as values
from scaffold.spec import keys as op
from scaffold.spec.config_values import Stated
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

ABOVE = ("style", "save-policy")  # keys of an op that are keys of [tool.scaffold] too
# Keys of an op that [tool.scaffold.defaults] may hold.
ALLOWED = tuple(key for key, row in op.KEYS.items() if row.default)


def read_defaults(stated: Stated) -> tuple[tuple[str, Any], ...]:
    """Return the entries of [tool.scaffold.defaults], `("module", False)`: keys of every op that does not state them.

    Report unknown keys and invalid values.
    """
    problems = stated.problems
    for key, value in stated.value.items():
        path = (stated.key, key)
        if key in ABOVE:
            hint = "write it in [tool.scaffold] itself"
            problems.at_key(path, f"'{key}' is not a key of '{stated.key}'", hint)
        elif key not in ALLOWED:
            problems.unknown_key(path, f"'{stated.key}'", ALLOWED)
        else:
            op.check_key(path, value, problems)
    return tuple(stated.value.items())


# --- A team's own tables of rules, named in its pyproject.toml.
#
# In: the value of `rules` in [tool.scaffold]. Out: the files with their text. Invariant: an unreadable file is an
# error at its place in the pyproject.toml; errors inside it are reported when it is used.


def read_rule_files(stated: Stated) -> tuple[RuleFile, ...]:
    """Return a team's files of differentiation rules with their texts, as named by the key `rules`.

    Their paths are relative to the pyproject.toml. Each file that cannot be read is reported, and left out.
    """
    found = []
    for position, name in enumerate(stated.value):
        path = os.path.normpath(os.path.join(stated.shown, name))
        try:
            text = read_text(Path(stated.root, name), "utf-8-sig")
        except (OSError, ValueError) as error:
            place = stated.problems.within((stated.key, str(position)))
            message = f"cannot read '{name}': {why_unread(error)}"
            stated.problems.add(ScaffoldError(message, place))
        else:
            found.append(RuleFile(path, text))
    return tuple(found)


# --- The keys of `[tool.scaffold]`, as data.


Formatter = Literal["black", "ruff"]
Docstrings = Literal["google", "numpy", "sphinx"]
Typing = Literal["plain", "strict"]


class Key(NamedTuple):
    """A key of the configuration."""

    kind: Kind
    help: str
    default: Any = None  # in TOML's form; None: not set
    read: Callable[[Stated], Any] = values.read_text
    example: str | None = None  # its syntax, if the kind does not show it


# Names of tensors that modules own, as those of PyTorch's layers.
PARAMETER_NAMES = ("weight", "weights", "bias", "gamma", "beta", "alpha", "scale")
LINEAR = {
    "input": "N, in_features",
    "weight": "out_features, in_features",
    "bias": "out_features",
}
KEYS: dict[str, Key] = {
    "source": Key(TEXT, "Where ops go.", ".", values.read_directory),
    "tests": Key(
        TEXT, "Where their tests go; else beside them.", read=values.read_directory
    ),
    "package": Key(
        TEXT, "The import path of the source directory.", read=values.read_package
    ),
    "manifest": Key(
        TEXT_OR_TEXTS,
        "The files that hold the ops; '*' and '**' stand for any names.",
        "ops.toml",
        values.read_manifests,
        "manifest = ['ops/*.toml']",
    ),
    "style": Key(op.STYLE, "How ops are written.", op.DEFAULT_STYLE),
    "namespace": Key(
        TEXT,
        "Where ops in library style are registered; else the package's name.",
        read=values.read_namespace,
        example="namespace = 'mylib'",
    ),
    "save-policy": Key(
        op.SAVE_POLICY, "The values that a derived backward saves.", op.DEFAULT_POLICY
    ),
    "shape-checks": Key(
        SWITCH,
        "Raise where a declared shape is broken that the backward relies on.",
        True,
    ),
    "defaults": Key(
        ANY_TABLE,
        "Keys of every op that does not state them.",
        {},
        read_defaults,
        "defaults = { module = false }",
    ),
    "require": Key(
        choices("a list of features", WANTED),
        "Requirements of every op.",
        [],
        values.read_strings,
        "require = ['doc', 'shapes']",
    ),
    "parameter-names": Key(
        TEXTS,
        "Inputs that become parameters of the module.",
        [*PARAMETER_NAMES],
        values.read_parameter_names,
    ),
    "conventions": Key(
        TABLES,
        "Shapes of inputs that declare none and occur together.",
        [LINEAR],
        values.read_conventions,
        "conventions = [{ x = 'N, D', scale = 'D' }]",
    ),
    "rules": Key(
        TEXTS,
        "Tables of rules of differentiation, beside the built-in one.",
        [],
        read_rule_files,
        "rules = ['rules.toml']",
    ),
    "names": Key(
        ANY_TABLE,
        "Names of files and classes.",
        dict(DEFAULT._asdict()),
        values.read_names,
        "names = { file = '{op}.py', function = '{Op}Function' }",
    ),
    "template-dirs": Key(
        TEXTS,
        "Directories of templates that go before the built-in ones.",
        [],
        values.read_template_dirs,
        "template-dirs = ['templates']",
    ),
    "licence": Key(TEXT, "Comment lines on top of every generated file."),
    "header": Key(SWITCH, "A line that names the manifest, on top.", True),
    "docstrings": Key(
        choice("a convention", get_args(Docstrings)),
        "How docstrings list arguments.",
        "google",
    ),
    "typing": Key(
        choice("a mode of type checkers", get_args(Typing)),
        "How types are written: plain, or also what mypy --strict asks.",
        "plain",
    ),
    "exports": Key(
        SWITCH,
        "Keep the __init__.py of the source directory exporting the ops, sorted.",
        False,
    ),
    "formatter": Key(
        choice("a formatter", get_args(Formatter)),
        "The formatter of generated files.",
        "black",
    ),
    "line-length": Key(
        NUMBER._replace(what=f"a number from {SHORTEST} up"),
        "The length of lines; else that of [tool.black] or [tool.ruff].",
        LINE_LENGTH,
        values.read_length,
    ),
    "python": Key(
        TEXT,
        "The interpreter that has PyTorch, for proofs and tests; a path counts from here.",
        read=values.read_interpreter,
        example="python = '.venv/bin/python'",
    ),
    "testing": Key(
        ANY_TABLE,
        "Settings that the tests of the project share.",
        {},
        read_testing,
        "testing = { devices = ['cpu', 'cuda'] }",
    ),
    "lint": Key(
        ANY_TABLE,
        "Rules of the linter, on or off by path.",
        {},
        read_lint,
        "lint = { ignore = ['AF08'] }",
    ),
}
