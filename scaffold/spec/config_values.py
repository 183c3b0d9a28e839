"""The values of `[tool.scaffold]`, read one by one.

`config_keys.KEYS` names one of these readers for each key. In: a `Stated` value, of its key's kind. Out: the value in the
`Configuration`. Invariant: a reader raises nothing: it reports a problem at its place; the returned value is then irrelevant,
as all reported problems are raised together.

Words: a *convention* is a table of tensors used together with their usual shapes, `input[N, I], weight[O, I]`.
"""

import os
from collections.abc import Container, Mapping, Sequence
from functools import partial
from keyword import iskeyword
from pathlib import Path
from typing import Any, NamedTuple

from scaffold.errors import Location, raise_all
from scaffold.spec.grammar import Entry, Words, parse_dims
from scaffold.spec.names import Patterns, check_name, is_identifier, read_patterns
from scaffold.spec.op_spec import Dim, Input, TensorInput
from scaffold.spec.other_tools import SHORTEST
from scaffold.spec.problems import KeyPath, Problems
from scaffold.spec.signature import dim_problems, read_dims

# --- The values of `[tool.scaffold]`, read one by one.


# Names of tensors used together, with their shapes.
Convention = tuple[tuple[str, tuple[Dim, ...]], ...]


class Stated(NamedTuple):
    """The value set for a key, and the collector of problems its reader reports to."""

    value: Any
    key: str
    problems: Problems
    root: str  # the directory paths are relative to
    shown: str  # the same, in messages

    def refuse(self, message: str, hint: str | None = None, *below: str) -> None:
        """Report a problem with the value, or with the part of it at the keys `below`."""
        self.problems.at((self.key, *below), message, hint)

    @property
    def path(self) -> KeyPath:
        return (self.key,)


def read_text(stated: Stated) -> Any:
    """Return the value as it is: the reader of keys with nothing left to check."""
    return stated.value


def read_strings(stated: Stated) -> tuple[str, ...]:
    """Return a list of strings, or a single one, as a tuple."""
    value = stated.value
    return (value,) if isinstance(value, str) else tuple(value)


def read_directory(stated: Stated) -> str | None:
    """Return a directory of the project, normalized: `./src/ops/` -> `src/ops`; report a path outside and give None."""
    return _inside(stated.value, stated, "be a directory of the project", "src/ops")


def read_manifests(stated: Stated) -> tuple[str, ...]:
    """Return paths of files of the project, or patterns of them with `*`; report others and leave them out.

    The key takes one string, or a list of them; in a list a problem is placed at its item (`below`).
    """
    found = []
    for position, item in enumerate(read_strings(stated)):
        below = (str(position),) if isinstance(stated.value, list) else ()
        path = _inside(item, stated, "name files of the project", "ops.toml", *below)
        if path is not None:
            found.append(path)
    return tuple(found)


def _inside(
    value: str, stated: Stated, what: str, example: str, *below: str
) -> str | None:
    """Return a path inside the project, normalized; report any other and give None.

    `what` and `example` are words of the message and the hint; `below` is the item's number in a list.
    """
    path = os.path.normpath(value)
    is_outside = os.path.isabs(value) or path.split(os.sep)[0] == ".."
    if not value or "\0" in value or is_outside:
        hint = f"write it relative to the project, such as '{example}'"
        stated.refuse(f"'{stated.key}' must {what}", hint, *below)
        return None
    return Path(path).as_posix()


def read_template_dirs(stated: Stated) -> tuple[str, ...]:
    """Return directories of templates, normalized, inside or outside the project; report a path that is a file.

    They need not exist yet: a missing one is reported when it is used.
    """
    for position, item in enumerate(stated.value):
        path = Path(stated.root, item)
        if "\0" in item or path.exists() and not path.is_dir():
            stated.refuse(f"'{item}' is not a directory", None, str(position))
    return tuple(Path(os.path.normpath(item)).as_posix() for item in stated.value)


def read_package(stated: Stated) -> str | None:
    """Return the import path of the source directory, `my.ops`; report any text but a dotted name and give None."""
    if not all(
        is_identifier(part) and not iskeyword(part) for part in stated.value.split(".")
    ):
        stated.refuse(f"'{stated.value}' is not a package", "write: package = 'myops'")
        return None
    return str(stated.value)


def read_namespace(stated: Stated) -> str | None:
    """Return the namespace of registered ops, the part before `::`; report any but a single identifier and give None."""
    if not is_identifier(stated.value) or iskeyword(stated.value):
        hint = "write: namespace = 'mylib'"
        stated.refuse(f"'{stated.value}' is not a namespace", hint)
        return None
    return str(stated.value)


def read_interpreter(stated: Stated) -> str | None:
    """Return a path or a command; whether it exists is checked when it is used. Report an empty one."""
    if not stated.value or "\0" in stated.value:
        stated.refuse(f"'{stated.key}' must name an interpreter")
        return None
    return str(stated.value)


def read_length(stated: Stated) -> int:
    """Return the line length of generated files; report one too short for a signature."""
    if stated.value < SHORTEST:
        stated.refuse(f"'{stated.key}' must be a number from {SHORTEST} up")
    return int(stated.value)


def read_parameter_names(stated: Stated) -> tuple[str, ...]:
    """Return the names of inputs to become parameters of a module, `weight`; report names no input can have."""
    for position, name in enumerate(stated.value):
        place = stated.problems.within((stated.key, str(position)))
        stated.problems.add(check_name(name, place, "a parameter"))
    return tuple(stated.value)


def read_names(stated: Stated) -> Patterns:
    """Read the patterns of names."""
    return read_patterns(stated.value, stated.path, stated.problems)


def read_conventions(stated: Stated) -> tuple[Convention, ...]:
    """Return the project's conventions: for each table the shapes of its tensors, `{ x = 'N, D' }` -> `(("x", ("N", "D")),)`."""
    return tuple(
        _convention(item, str(k), stated) for k, item in enumerate(stated.value)
    )


def _convention(table: Mapping[str, Any], position: str, stated: Stated) -> Convention:
    """Return the shape of each tensor in one convention's table, the one at `position` in the list; report invalid ones, and leave them out."""
    found: list[tuple[str, tuple[Dim, ...]]] = []
    problems = stated.problems
    for name, text in table.items():
        path = (stated.key, position, name)
        place = problems.within(path)
        if not isinstance(text, str):
            problems.at(path, f"the shape of '{name}' must be a string")
            continue
        problems.add(check_name(name, place, "a tensor"))
        read = partial(_shape, text, place, set(table))
        found.append((name, problems.attempt(read) or ()))
    return tuple(found)


def _shape(text: str, start: Location, names: set[str]) -> tuple[Dim, ...]:
    """Return the dims written in a shape, `"N, D"` -> `("N", "D")`; raise for invalid ones.

    `names` are the tensors': no dim can have one. The check takes entries of a signature, so the dims become those of one without
    a name.
    """
    words = parse_dims(text, start)
    raise_all(dim_problems([Entry(Words("", start), dims=words)], names, "a tensor"))
    return read_dims(words)


# --- Conventional shapes: the usual shapes of tensors with well-known names and no declared shape.
#
# So `new-op --inputs 'input, weight, bias?'` gets an nn.Module `Linear(in_features, out_features)` and a test of fitting sizes.
# In: the op's inputs and the configured conventions. Out: shapes for test inputs and for the sizes of the module.
# Invariant: a declared shape is never changed; derivation does not use these.


Shapes = tuple[tuple[str, tuple[Dim, ...]], ...]


def conventional_shapes(
    inputs: Sequence[Input], conventions: Sequence[Convention], tested: Container[str]
) -> Shapes:
    """Return the usual shapes of inputs without stated ones, by the first convention their names match; () if none does.

    `tested` are inputs with a shape stated for tests: they match none.
    """
    for convention in conventions:
        found = _shapes(inputs, convention, tested)
        if found:
            return found
    return ()


def _shapes(
    inputs: Sequence[Input], convention: Convention, tested: Container[str]
) -> Shapes:
    """Return a convention's shapes of the op's inputs; () unless its first tensor and another one are inputs without shapes.

    The first is decisive: `input, weight` is a linear map, but `x, weight` may also be a norm. () also if a dim of the convention
    is the name of an input, or if a name of it is an attribute of the op (`here`, but not in `tensors`). A `tested` input has
    a shape stated for the tests.
    """
    shapes = dict(convention)
    here = [item for item in inputs if item.name in shapes]
    tensors = [item for item in here if isinstance(item, TensorInput)]
    undeclared = all(
        item.dims is None and not item.variadic and item.name not in tested
        for item in tensors
    )
    has_attribute = len(tensors) < len(here)
    if len(tensors) < 2 or has_attribute or not undeclared:
        return ()
    dims = {dim for item in tensors for dim in shapes[item.name]}
    decisive = next(iter(shapes)) in {item.name for item in tensors}
    if not decisive or dims & {item.name for item in inputs}:
        return ()
    return tuple((item.name, shapes[item.name]) for item in tensors)
