"""The keys of an op's table and the types of their values.

In: a raw mapping, as TOML or the command line gives it. Out: problems. Invariant: a mapping without problems holds
only known keys, each with a value of its kind.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from scaffold.errors import did_you_mean
from scaffold.spec.model import SavePolicy, Style
from scaffold.spec.problems import KeyPath, Problems


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: how to call it, how to tell it, the words it is limited to."""

    what: str
    accepts: Callable[[Any], bool]
    choices: tuple[str, ...] = ()


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(item, str) for item in value.values()
    )


def _is_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _is_number(item) or isinstance(item, bool) for item in value.values()
    )


TEXT = Kind("a string", _is_text)
SWITCH = Kind("true or false", _is_bool)
TEXTS = Kind("a list of strings", _is_texts)
TABLE = Kind("a table of strings", _is_table)
NUMBERS = Kind("a table of numbers", _is_numbers)

KEYS: dict[str, Kind] = {
    "inputs": TEXT,
    "outputs": TEXT,
    "schema": TEXT,
    "class-name": TEXT,
    "doc": TEXT,
    "forward": TEXT,
    "grad": TABLE,
    "backward": TEXT,
    "surrogate": Kind(
        "true, false or a string", lambda value: isinstance(value, bool | str)
    ),
    "import": TEXTS,
    "optional": TEXTS,
    "nondiff": TEXTS,
    "dirty": TEXTS,
    "require": TEXTS,
    "samples": TEXT,
    "derive": SWITCH,
    "once-differentiable": SWITCH,
    "transforms": SWITCH,
    "materialize-grads": SWITCH,
    "style": Kind("a style", _is_text, get_args(Style)),
    "save-policy": Kind("a policy", _is_text, get_args(SavePolicy)),
    "tolerance": NUMBERS,
    "module": SWITCH,
    "params": TEXTS,
    "buffers": TEXTS,
    "update": TABLE,
    "init": TABLE,
    "test": SWITCH,
}
TOLERANCES = ("eps", "atol", "rtol", "nondet_tol", "fast_mode")


def check_keys(op: str, raw: Mapping[str, Any], problems: Problems) -> None:
    """Note unknown keys and values of another kind."""
    for key, value in raw.items():
        kind = KEYS.get(key)
        if kind is None:
            hint = did_you_mean(key, KEYS) or f"the keys of an op: {', '.join(KEYS)}"
            problems.at_key((key,), f"unknown key '{key}' in op '{op}'", hint)
        elif not kind.accepts(value):
            problems.at((key,), f"'{key}' must be {kind.what}")
        elif kind.choices and value not in kind.choices:
            _unknown_word((key,), value, kind.choices, problems)
    tolerance = raw.get("tolerance")
    for name in tolerance if isinstance(tolerance, dict) else ():
        if name not in TOLERANCES:
            _unknown_word(("tolerance", name), name, TOLERANCES, problems)


def _unknown_word(
    path: KeyPath, word: str, choices: tuple[str, ...], problems: Problems
) -> None:
    hint = did_you_mean(word, choices) or f"one of: {', '.join(choices)}"
    problems.at(path, f"unknown value '{word}' for '{path[0]}'", hint)
