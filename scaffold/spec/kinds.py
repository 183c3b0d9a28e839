"""Kinds of values of TOML keys: their names, their tests, their JSON Schema.

The tables of keys (`keys`, `config_keys`) give each key a kind; by it values are checked, options parsed, and the schema for
editors written. In: a value from TOML. Out: whether it is of a kind, and a problem if not. Invariant: a value accepted by the
kind of an op's key validates against the kind's schema.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from scaffold.errors import did_you_mean
from scaffold.spec.problems import KeyPath, Problems

# --- Kinds of values: their names, their tests, their JSON Schema.


Schema = Mapping[str, Any]


class Kind(NamedTuple):
    """A kind of value: its name, its test, its allowed words."""

    what: str  # for messages: "must be a string"
    accepts: Callable[[Any], bool]
    schema: Schema = MappingProxyType({})  # for keys of an op only
    choices: tuple[str, ...] = ()
    metavar: str = "TEXT"  # the value in the help of an option


def _is_a(*types: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, types)


def _holds(outer: type, *types: type) -> Callable[[Any], bool]:
    """Return a test accepting a list or a table, as `outer` says (`list` or `dict`), with items of these types."""

    def accepts(value: Any) -> bool:
        items = value.values() if isinstance(value, dict) else value
        return isinstance(value, outer) and all(isinstance(x, types) for x in items)

    return accepts


_is_text, _is_texts = _is_a(str), _holds(list, str)


_STRING: Schema = {"type": "string"}
_STRINGS: Schema = {"type": "array", "items": _STRING}

TEXT = Kind("a string", _is_text, _STRING)
SWITCH = Kind("true or false", _is_a(bool), {"type": "boolean"})
EITHER = Kind(
    "true, false or a string",
    _is_a(bool, str),
    {"anyOf": [{"type": "boolean"}, _STRING]},
)
# `type(...) is`: to `isinstance` True is an int, too.
NUMBER = Kind("a number", lambda value: type(value) is int)
TEXTS = Kind("a list of strings", _is_texts, _STRINGS)
NAMES = TEXTS._replace(metavar="NAMES")  # of inputs
TEXT_OR_TEXTS = Kind(
    "a string or a list of strings", lambda value: _is_text(value) or _is_texts(value)
)
TABLE = Kind(
    "a table of strings",
    _holds(dict, str),
    {"type": "object", "additionalProperties": _STRING},
)
ANY_TABLE = Kind("a table", _is_a(dict))
TABLES = Kind("a list of tables", _holds(list, dict))
NUMBERS = Kind("a table of numbers", _holds(dict, int, float), {"type": "object"})


def choice(what: str, choices: tuple[str, ...]) -> Kind:
    """Return a kind for one of the words `choices`; `what` names it in messages, and its last word in help: "a style", `STYLE`."""
    metavar = what.split()[-1].upper()
    return Kind(what, _is_text, {"enum": list(choices)}, choices, metavar)


def choices(what: str, words: tuple[str, ...], metavar: str = "TEXT") -> Kind:
    """Return a kind for a list of some of `words`; `what` names it in messages, `metavar` in the help of an option."""
    schema = {"type": "array", "items": {"enum": list(words)}}
    return Kind(what, _is_texts, schema, words, metavar)


# --- Check of a value against its kind.
#
# In: the value of a key. Out: whether it is valid; the reason is reported at its place if not. Invariant: a valid
# value is of its kind, consists of allowed words, and contains no character a file or an editor would lose.


def check_value(
    path: KeyPath, value: Any, kind: Kind, problems: Problems, hint: str | None = None
) -> bool:
    """Return whether the value of a key is of its kind, and report all its problems if not.

    `hint` shows a valid value; without it one is made from the given value, if possible.
    """
    before = len(problems)
    if not kind.accepts(value):
        hint = hint or _respelt(path[-1], value, kind)
        problems.at(path, f"'{path[-1]}' must be {kind.what}", hint)
    elif kind.choices:
        _check_words(path, value, kind.choices, problems)
    for place, text in _texts(path, value):
        _check_characters(place, path[-1], text, problems)
    return len(problems) == before


# Words of other languages for a switch, as hints write them.
SAID = {"yes": "true", "on": "true", "true": "true"}
SAID |= {"no": "false", "off": "false", "false": "false"}


def _respelt(key: str, value: Any, kind: Kind) -> str | None:
    """Return a hint that shows a value of the wrong kind in the right one; None if it cannot be converted.

    `params = 'w'` -> `write: params = ['w']`; `module = 'no'` -> `write: module = false`; `grad = 'x=y'` -> a table of one key.
    """
    text = value if isinstance(value, str) else ""
    name, equals, formula = (part.strip() for part in text.partition("="))
    if _is_texts(value) and kind.accepts(joined := ", ".join(value)):
        return f"write: {key} = {_quoted(joined)}"
    if text.lower() in SAID and kind.accepts(True):
        return f"write: {key} = {SAID[text.lower()]}"
    if text and kind.accepts([text]):
        # Names hold no commas, as formulas and imports do.
        items = text.split(",") if kind.metavar == "NAMES" else [text]
        return f"write: {key} = {[item.strip() for item in items]}"
    if equals and kind.accepts({name: formula}):
        return f"write: {key} = {{ {name} = {_quoted(formula)} }}"
    return None


def _quoted(text: str) -> str:
    return f'"{text}"' if "'" in text else f"'{text}'"


def _check_words(
    path: KeyPath, value: Any, choices: tuple[str, ...], problems: Problems
) -> None:
    """Report each string in a value, or in its list, that is none of the allowed words, with a similar one as a hint."""
    for place, word in _texts(path, value):
        if word not in choices:
            hint = did_you_mean(word, choices) or f"one of: {', '.join(choices)}"
            problems.at(place, f"unknown value '{word}' for '{path[-1]}'", hint)


def _texts(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, str]]:
    """Yield every string in a value, with the path to report a problem of it at: `("grad", "x")` for the string at `grad.x`."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts((*path, str(key)), item)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _texts((*path, str(position)), item)


def _check_characters(path: KeyPath, key: str, text: str, problems: Problems) -> None:
    """Report the first character of a text no file can store (a surrogate) or no editor shows (a control character)."""
    for character in text:
        code = ord(character)
        # U+2028 and U+2029 end a line for some readers, though they are no control characters.
        control = code < 32 and character not in "\n\t" or 127 <= code < 160
        if control or code in (0x2028, 0x2029) or 0xD800 <= code < 0xE000:
            message = f"'{key}' holds the character U+{code:04X}"
            problems.at(path, message, "write text and line ends only")
            return
