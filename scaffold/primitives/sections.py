"""The sections of a table, found by name and by spelling, and parsed on first use.

The rule table as every other package sees it.

Words: a *head* is a spelling in a section, its `call` or an entry of `also`; `found` is the name of a primitive with a spelling that
was looked up.

In: the text of `rules.toml`, or the sections of a team's own table (the grammar is
the header of `rules.toml`). Out: `Primitives`. Invariant: unused sections are not parsed: to parse the whole table takes as long as
several derivations, and a derivation needs a few sections of two hundred.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from scaffold.primitives.facts import Facts, Section, facts_of
from scaffold.primitives.spelling import key_of, normalized

# Lines of the table that are read without parsing it as TOML.
_SECTION = re.compile(r"^\[(\w+)\]$", re.MULTILINE)
_HEADS = re.compile(r"^(?:call|also) = (.*)$", re.MULTILINE)
_COMPOSED = re.compile(r"^composed = (.*)$", re.MULTILINE)
_STRING = re.compile(r'"([^"]*)"')


class Primitives:
    """The primitives of a table, by name: `name in table`, `table.section(name)`, `table.facts(name)`, `table.find(...)`.

    `heads` are the spellings of each, `call` first; `composed` are the expressions of equal value of those that have any.
    """

    def __init__(
        self,
        heads: Mapping[str, tuple[str, ...]],
        read: Callable[[str], Section],
        composed: Mapping[str, tuple[str, ...]],
    ) -> None:
        """Index the spellings, `heads`, by kind and name; `read` parses the section of a primitive, later. The rest is made on demand."""
        self.heads, self.composed = heads, composed
        self._read = read
        self._sections: dict[str, Section] = {}
        self._facts: dict[str, Facts] = {}
        self._spelled: dict[tuple[str, str], list[tuple[str, str]]] = {}
        self._by_word: dict[str, list[str]] | None = None
        for name, spelled in heads.items():
            for head in spelled:
                # A team's spelling may be of a form that cannot be looked up, `a.b.f(x)`: then it has no key.
                if key := key_of(head, spelled[0]):
                    self._spelled.setdefault(key, []).append((name, head))

    def __contains__(self, name: str) -> bool:
        return name in self.heads

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names in the order of the table."""
        return iter(self.heads)

    def section(self, name: str) -> Section:
        """Return the section of a primitive, parsed when it is first asked for."""
        if name not in self._sections:
            self._sections[name] = self._read(name)
        return self._sections[name]

    def facts(self, name: str) -> Facts:
        """Return the facts of a primitive, with the defaults of its category."""
        if name not in self._facts:
            self._facts[name] = facts_of(self.section(name))
        return self._facts[name]

    def find(self, kind: str, name: str) -> tuple[tuple[str, str], ...]:
        """Return the primitives with this spelling in table order, each with its entry of the spelling.

        There may be several: `torch.max(x)` and `torch.max(x, dim)`. `kind` and `name`:
        ("function", "torch.exp"), ("method", "sum"), ("attribute", "mT"), ("operator", "+"),
        ("subscript", "[]").
        """
        return tuple(self._spelled.get((kind, normalized(name)), ()))

    def named(self, kind: str, name: str) -> tuple[Facts, ...]:
        """Return the facts of each primitive with this spelling, as `find` has them: ("method", "sum")."""
        return tuple(self.facts(found) for found, _ in self.find(kind, name))

    def called(self, word: str) -> tuple[Facts, ...]:
        """Return the facts of each primitive a call may mean, by its last word: `exp` of `torch.exp(x)`, `x.exp()`."""
        return tuple(map(self.facts, self.names_called(word)))

    def names_called(self, word: str) -> tuple[str, ...]:
        """Return the names of the primitives a call may mean, by its last word: `max` -> `max_all`, `max`."""
        if self._by_word is None:
            self._by_word = {}
            for (kind, name), several in self._spelled.items():
                if kind in ("function", "method"):
                    found = self._by_word.setdefault(name.rpartition(".")[2], [])
                    found += [one for one, _ in several if one not in found]
        return tuple(self._by_word.get(word, ()))

    def spelled(self) -> frozenset[tuple[str, str]]:
        """Return all spellings known to `find`."""
        return frozenset(self._spelled)


def read_primitives(text: str) -> Primitives:
    """Return the primitives of a table's text; a section is parsed as TOML when it is first asked for.

    Until then `[name]`, `call`, `also` and `composed`, each on a line of its own, are found by patterns: that is what lookups need.
    """
    import tomllib

    parts = _SECTION.split(text)
    # A split by a pattern with a group gives: the header, a name, its body, a name, its body, and so on.
    bodies = dict(zip(parts[1::2], parts[2::2], strict=True))
    heads = {name: _strings(_HEADS, body) for name, body in bodies.items()}
    composed = {name: _strings(_COMPOSED, body) for name, body in bodies.items()}
    return Primitives(
        heads,
        lambda name: tomllib.loads(bodies[name]),
        {name: several for name, several in composed.items() if several},
    )


def _strings(lines: re.Pattern[str], body: str) -> tuple[str, ...]:
    """Return the quoted strings of the lines of a section that match a pattern."""
    return tuple(word for line in lines.findall(body) for word in _STRING.findall(line))


def built_in_text() -> str:
    """Return the text of the built-in table."""
    return Path(__file__).with_name("rules.toml").read_text("utf-8")


@lru_cache(maxsize=1)
def built_in_primitives() -> Primitives:
    """Return the built-in table, read once in a process."""
    return read_primitives(built_in_text())
