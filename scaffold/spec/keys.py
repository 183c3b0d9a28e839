"""The keys of an op's table and the types of their values.

In: a raw mapping, as TOML or the command line gives it. Out: its sound part; the rest is noted as problems.
Invariant: a mapping that comes out holds only known keys, each with a value of its kind.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, get_args

from scaffold.errors import did_you_mean
from scaffold.spec.model import SavePolicy, Style
from scaffold.spec.problems import KeyPath, Problems


class Kind(NamedTuple):
    """A kind of value: how to call it, how to tell it, the words it is limited to."""

    what: str
    accepts: Callable[[Any], bool]
    choices: tuple[str, ...] = ()


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_either(value: Any) -> bool:
    return isinstance(value, bool | str)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


def _is_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(item, int | float) for item in value.values()
    )


TEXT = Kind("a string", _is_text)
SWITCH = Kind("true or false", _is_bool)
TEXTS = Kind("a list of strings", _is_texts)
TABLE = Kind("a table of strings", _is_table)

KEYS: dict[str, Kind] = {
    "inputs": TEXT,
    "outputs": TEXT,
    "schema": TEXT,
    "class-name": TEXT,
    "doc": TEXT,
    "forward": TEXT,
    "grad": TABLE,
    "backward": TEXT,
    "surrogate": Kind("true, false or a string", _is_either),
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
    "tolerance": Kind("a table of numbers", _is_numbers),
    "module": SWITCH,
    "params": TEXTS,
    "buffers": TEXTS,
    "update": TABLE,
    "init": TABLE,
    "test": SWITCH,
}
TOLERANCES = ("eps", "atol", "rtol", "nondet_tol", "fast_mode")


def check_keys(op: str, raw: Mapping[str, Any], problems: Problems) -> dict[str, Any]:
    """The keys that are known and whose values are of their kind; the others are noted."""
    sound = {}
    for key, value in raw.items():
        kind, before = KEYS.get(key), len(problems)
        if kind is None:
            hint = did_you_mean(key, KEYS) or f"the keys of an op: {', '.join(KEYS)}"
            problems.at_key((key,), f"unknown key '{key}' in op '{op}'", hint)
        elif not kind.accepts(value):
            problems.at((key,), f"'{key}' must be {kind.what}")
        elif kind.choices and value not in kind.choices:
            _unknown_word((key,), value, kind.choices, problems)
        elif key == "tolerance":
            _check_tolerance(value, problems)
        for path, text in _texts((key,), value):
            _check_characters(path, text, problems)
        if len(problems) == before:
            sound[key] = value
    return sound


def _unknown_word(
    path: KeyPath, word: str, choices: tuple[str, ...], problems: Problems
) -> None:
    hint = did_you_mean(word, choices) or f"one of: {', '.join(choices)}"
    problems.at(path, f"unknown value '{word}' for '{path[0]}'", hint)


def _check_tolerance(table: Mapping[str, float], problems: Problems) -> None:
    for name, value in table.items():
        path = ("tolerance", name)
        if name not in TOLERANCES:
            hint = did_you_mean(name, TOLERANCES) or f"one of: {', '.join(TOLERANCES)}"
            problems.at_key(path, f"gradcheck has no argument '{name}'", hint)
        elif name == "fast_mode":
            if not isinstance(value, bool):
                problems.at(path, "'fast_mode' must be true or false")
        elif isinstance(value, bool) or not math.isfinite(value) or value < 0:
            problems.at(path, f"'{name}' must be a number from 0 up")
        elif name == "eps" and value == 0:
            problems.at(path, "'eps' must be above 0")


def _texts(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts((*path, str(key)), item)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _texts((*path, str(position)), item)


def _check_characters(path: KeyPath, text: str, problems: Problems) -> None:
    """No file can hold half a character, and no editor shows a control character."""
    for character in text:
        code = ord(character)
        control = code < 32 and character not in "\n\t" or 127 <= code < 160
        if control or code in (0x2028, 0x2029) or 0xD800 <= code < 0xE000:
            message = f"'{path[0]}' holds the character U+{code:04X}"
            problems.at(path, message, "write text and line ends only")
            return
