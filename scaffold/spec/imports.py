"""Imports for the formulas of an op.

A formula may call functions of the user; the generated file then has to import them. In: `my_kernels:rms_norm_fwd`, `numpy as np`
of the key `import`, and the imports of a file that a formula is read from. Out: `Import`s. Invariant: no two of them bind one
name, and none hides an input or a name of the generated code.

Words: an import *binds* a name, `np`; a module is *judged* if the shipped table knows its names (torch and the like), so
that an unknown one is a mistake; the others are the user's *own*.
"""

import ast
import re
import sys
from collections.abc import Iterable, Mapping
from keyword import iskeyword

from scaffold.errors import Location, ScaffoldError
from scaffold.formula import Meanings, is_judged, is_newer, newer
from scaffold.spec.names import RESERVED, is_identifier
from scaffold.spec.op_spec import Attribute, Import, Input, OpSpec

# `module:name as alias`; a Python statement; `module:one, other`.
IMPORT = re.compile(
    r"(?P<module>[\w.]+)(?:\s*:\s*(?P<name>\w+))?(?:\s+as\s+(?P<alias>\w+))?"
)
PYTHON = re.compile(r"\s*(from|import)\s+(?P<module>[\w.]+)")
SEVERAL = re.compile(r"\s*(?P<module>[\w.]+):(?P<names>[^,]+(?:,[^,]+)+)")
# Imports present in any generated code; the file of a formula may have them too.
COMMON = frozenset(
    {
        Import("math"),
        Import("torch"),
        Import("torch", "Tensor"),
        Import("torch", "nn"),
        Import("torch.autograd", "Function"),
        Import("torch.nn", "functional", "F"),
        Import("torch.nn", None, "nn"),
        Import("torch.nn.functional", None, "F"),
    }
)
FORMS = "write 'module:name', 'module:name as other' or 'module as other'"


def parse_import(text: str, place: Location) -> Import:
    """Return one import, of `module:name`, `module:name as other` or `module as other`; raise for any other form.

    A name with two underscores first is refused: by it a formula could reach the rest of Python.
    """
    match = IMPORT.fullmatch(text.strip())
    # `ops.py:f` has the form of a module `ops.py`, but names a file.
    if match is None or match["module"].endswith(".py"):
        raise ScaffoldError(f"'{text}' is not an import", place, _hint(text))
    names = filter(None, (match["name"], match["alias"]))
    parts = [*match["module"].split("."), *names]
    if not all(is_identifier(part) and not iskeyword(part) for part in parts):
        raise ScaffoldError(f"'{text}' is not an import", place, _hint(text))
    if any(part.startswith("__") for part in parts):
        raise ScaffoldError(f"'{text}' is private to Python", place)
    return Import(match["module"], match["name"], match["alias"])


def parse_imports(text: str, place: Location) -> tuple[Import, ...]:
    """Return the imports of one value: `module:name`, or a Python import statement, with one or more names.

    `from m import a, b` and `m:a, b` both give `m:a` and `m:b`. Raise for a relative import, for `*` and for other forms.
    """
    found = PYTHON.match(text)
    if found is None and (listed := SEVERAL.fullmatch(text)):
        stems = (
            f"{listed['module']}:{one.strip()}" for one in listed["names"].split(",")
        )
        return tuple(parse_import(stem, place) for stem in stems)
    if found is None:
        return (parse_import(text, place),)
    try:
        # Two statements in one value are a ValueError here, and refused.
        (statement,) = ast.parse(text.strip()).body
    except (SyntaxError, ValueError):
        raise ScaffoldError(f"'{text}' is not an import", place, FORMS) from None
    match statement:
        case ast.ImportFrom(module, names, 0):  # 0: without leading dots
            several = [f"{module}:{_renamed(item)}" for item in names]
        case ast.Import(names):
            several = [_renamed(item) for item in names]
        case _:
            raise ScaffoldError(f"'{text}' is not an import", place, _hint(text))
    if any(item.name == "*" for item in names):
        hint = f"name what is used: 'from {found['module']} import name'"
        raise ScaffoldError(f"'{text}' does not say what it imports", place, hint)
    return tuple(parse_import(item, place) for item in several)


def _renamed(item: ast.alias) -> str:
    """Return one name of an import statement as `parse_import` reads it: `numpy as np`."""
    return item.name if item.asname is None else f"{item.name} as {item.asname}"


def _hint(text: str) -> str:
    """Return a hint for an invalid import: its probable form, `write 'my.ops:f'` for `./my/ops.py:f`, or the allowed forms."""
    module, suffix, name = text.strip().partition(".py:")
    if suffix and re.fullmatch(r"[\w./]+", module):
        return f"write '{module.strip('./').replace('/', '.')}:{name}'"
    # A relative import: `from .ops import f`, `.ops:f`.
    if re.match(r"\s*(from\s+)?\.", text):
        return "write the full name of the package"
    if "," in text:
        return "write 'module:one, other', or state one import at a time"
    return FORMS


def meanings(imports: Iterable[Import], inputs: Iterable[Input]) -> Meanings:
    """Return what the names in a formula mean to its parser: `{"F": "torch.nn.functional"}`, and the user's own values.

    The former are imports from PyTorch and the like, whose functions the table knows. Of the latter nothing is known, not even
    which attributes they have: all other imports, and inputs with a type such as `object` or one of another package.
    """
    found, own = dict[str, str](), set[str]()
    for item in imports:
        bare = not item.alias and item.name is None  # `import a.b` binds `a`
        module = item.module.split(".")[0] if bare else item.module
        if is_judged(module, item.name):
            found[item.binding] = f"{module}.{item.name}" if item.name else module
        else:
            own.add(item.binding)
    for one in inputs:
        if isinstance(one, Attribute) and (one.imported or _is_open(one.annotation)):
            own.add(one.name)
    return Meanings(found, frozenset(own))


def runs_code_of(spec: OpSpec, run: str = "the proof") -> str | None:
    """Return a note that a run executed the user's own code: "the proof ran code of mylib"; None if the op has none.

    So nobody is surprised that generating an op imported a module. It names imported modules, except Python's own, and the
    function that makes the op's samples. `run` begins the sentence.
    """
    own = (item.module for item in spec.imports if not is_judged(item.module, None))
    # No surprise in a proof: it runs PyTorch, and Python, in any case.
    known = sys.stdlib_module_names | {"torch"}
    found = [module for module in own if module.split(".")[0] not in known]
    if spec.samples:
        found.append(f"{spec.samples.function}()")
    listed = ", ".join(dict.fromkeys(found))
    return f"{run} ran code of {listed}" if found else None


def newer_of(spec: OpSpec) -> tuple[str, ...]:
    """Return the op's functions of PyTorch missing in the shipped table, `torch.new_function`: probably of a newer release.

    They are allowed, though nothing is known of them; so a note names them. All formulas of the op are searched.
    """
    shown = spec.surrogate.forward if spec.surrogate else None
    updates = spec.module.updates if spec.module else ()
    stated = (spec.forward, spec.backward, shown)
    formulas = (*stated, *(one for _, one in (*spec.gradients, *updates)))
    found = frozenset[str]().union(*(newer(one) for one in formulas if one))
    imports = (item for item in spec.imports if item.module.startswith("torch"))
    found |= {
        f"{item.module}.{item.name}"
        for item in imports
        if item.name and is_newer(item.module, item.name)
    }
    return tuple(sorted(found))


def _is_open(annotation: str) -> bool:
    """Return whether a type leaves the attributes of a value unknown: `object`, `Any`, a quoted type of another package."""
    return annotation[:1] in "'\"" or bool(re.search(r"\b(object|Any)\b", annotation))


class Imports:
    """A collection of imports that grows formula by formula, and refuses a name bound twice."""

    def __init__(self, hidden: Mapping[str, str], op: str) -> None:
        """Start without imports; `hidden` maps names no import may bind to their meaning ("input"), `op` is the op's own module."""
        self._hidden, self._op = hidden, op  # names with another meaning
        self._found: list[Import] = []

    @property
    def found(self) -> tuple[Import, ...]:
        return tuple(self._found)

    @property
    def names(self) -> frozenset[str]:
        """Return the names they bind."""
        return frozenset(item.binding for item in self._found)

    def add(self, item: Import, place: Location) -> None:
        """Add an import; raise an error if it collides with another name, or is the op's own module.

        An import of generated code itself (COMMON), or one added before, needs no entry. A colliding one is added all the same: else
        its uses would be reported as unknown names, too.
        """
        if item in COMMON:
            return
        name = item.binding
        stem = f"{item.module}{f':{item.name}' if item.name else ''}"
        hint = f"import it under another name: '{stem} as ...'"
        others = [known for known in self._found if known.binding == name]
        if item.module == self._op:
            message = f"'{item.module}' is the module of the op itself"
            hint = "keep your functions in a file of another name"
        elif name in RESERVED:
            message = f"'{name}' has a meaning in generated code"
        elif name in self._hidden:
            message = f"the import hides the {self._hidden[name]} '{name}'"
        elif any(known != item and not _one_package(known, item) for known in others):
            message = f"two imports bind '{name}'"
        else:
            if item not in others:
                self._found.append(item)
            return
        self._found.append(item)
        raise ScaffoldError(message, place, hint)


def _one_package(first: Import, second: Import) -> bool:
    """Return whether two imports may bind one name, as both bind one package: `import a.b` and `import a.c` both bind `a`."""
    return not (first.name or first.alias or second.name or second.alias)
