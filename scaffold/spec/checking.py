"""A value against its kind.

In: the value of a key. Out: whether it is sound; if not, why is noted at its place.
Invariant: a value that passes is of the kind, in its words, and holds no character that a file or an editor would lose.
"""

from collections.abc import Iterator
from typing import Any

from scaffold.errors import did_you_mean
from scaffold.spec.kinds import Kind
from scaffold.spec.problems import KeyPath, Problems


def check_value(
    path: KeyPath, value: Any, kind: Kind, problems: Problems, hint: str | None = None
) -> bool:
    """Whether the value of a key is of its kind; the hint says how to write one."""
    before = len(problems)
    if not kind.accepts(value):
        problems.at(path, f"'{path[-1]}' must be {kind.what}", hint)
    elif kind.choices:
        _check_words(path, value, kind.choices, problems)
    for place, text in _texts(path, value):
        _check_characters(place, path[-1], text, problems)
    return len(problems) == before


def _check_words(
    path: KeyPath, value: Any, choices: tuple[str, ...], problems: Problems
) -> None:
    for place, word in _texts(path, value):
        if word not in choices:
            hint = did_you_mean(word, choices) or f"one of: {', '.join(choices)}"
            problems.at(place, f"unknown value '{word}' for '{path[-1]}'", hint)


def _texts(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, str]]:
    """Every string of a value, with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts((*path, str(key)), item)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _texts((*path, str(position)), item)


def _check_characters(path: KeyPath, key: str, text: str, problems: Problems) -> None:
    """No file can hold half a character, and no editor shows a control character."""
    for character in text:
        code = ord(character)
        control = code < 32 and character not in "\n\t" or 127 <= code < 160
        if control or code in (0x2028, 0x2029) or 0xD800 <= code < 0xE000:
            message = f"'{key}' holds the character U+{code:04X}"
            problems.at(path, message, "write text and line ends only")
            return
