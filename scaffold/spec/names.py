"""Names: allowed names, the function and class of an op, and a project's names for files and classes.

In: the user's text. Out: the op's names (`rms_norm` for the function and the file, `RMSNorm` for classes), or an error.
Invariant: a name accepted here is valid in generated code, and as a file name.

Words: a *pattern* is a project's form of a name, `{Op}Function`; `place` is where the name stands, for the error; `what` is the
named thing in a message, "an input".
"""

import keyword
import re
import sys
import unicodedata
from collections.abc import Mapping
from typing import Any, NamedTuple

from scaffold.errors import Location, ScaffoldError
from scaffold.spec.problems import KeyPath, Problems

# Names of inputs that hold labels: test values drawn for them are 0 and 1.
LABELS = re.compile(r"(.*_)?(targets?|labels?|gts?|truth|(y_)?true)(_.*)?")

# --- A project's names for the files and classes of its ops.
#
# In: the table `names` of [tool.scaffold]. Out: a `Patterns`, in which `{op}` is rms_norm and `{Op}` is RMSNorm.
# Invariant: an accepted pattern gives every op a name of its own that Python or pytest can find.


class Patterns(NamedTuple):
    """The names of an op's files and classes."""

    file: str = "{op}.py"
    test: str = "test_{op}.py"  # may begin with directories
    function: str = "{Op}Function"
    module: str = "{Op}"

    def op_file(self, op: str) -> str:
        """Return the op's file, relative to the source directory."""
        return self.file.replace("{op}", op)

    def test_file(self, op: str) -> str:
        """Return the op's test file, relative to the directory of tests."""
        return self.test.replace("{op}", op)

    def function_class(self, klass: str) -> str:
        """Return the name of the autograd.Function."""
        return self.function.replace("{Op}", klass)

    def module_class(self, klass: str) -> str:
        """Return the name of the nn.Module."""
        return self.module.replace("{Op}", klass)


DEFAULT = Patterns()
NAMESPACE = "custom_ops"  # for ops outside a package


def registered_name(op: str) -> str:
    """Return the Python name of the registered op, in the file of an op in library style: the op's own name is its wrapper's."""
    return f"{op}_op"


_END = r"$(?!\n)"  # in Python, `$` matches before a last line end too
_IDENTIFIER = "[A-Za-z_][A-Za-z0-9_]*"
_DIRECTORIES = r"(?:(?:[A-Za-z0-9_-]|\{op\})+/)*"
_FILE = rf"(?!test_)(?:{_IDENTIFIER})?\{{op\}}(?!\w*_test\.py$)[A-Za-z0-9_]*\.py"
_TEST = r"(?:test_[A-Za-z0-9_]*\{op\}[A-Za-z0-9_]*|[A-Za-z0-9_]*\{op\}[A-Za-z0-9_]*_test)\.py"
_CLASS = rf"(?:{_IDENTIFIER})?\{{Op\}}[A-Za-z0-9_]*"
EXPRESSIONS = {
    "file": rf"^{_FILE}{_END}",  # pytest must not collect it
    "test": rf"^{_DIRECTORIES}{_TEST}{_END}",  # pytest must collect it
    "function": rf"^{_CLASS}{_END}",
    "module": rf"^{_CLASS}{_END}",
}
EXAMPLES = {
    "file": "'{op}.py' or '{op}_op.py'",
    "test": "'test_{op}.py', '{op}_test.py' or '{op}/test_{op}.py'",
    "function": "'{Op}Function'",
    "module": "'{Op}' or '{Op}Module'",
}


def read_patterns(
    table: Mapping[str, Any], path: KeyPath, problems: Problems
) -> Patterns:
    """Return a project's patterns of names from a table, `{"function": "{Op}Function"}`, with defaults for missing ones.

    Report invalid ones, and a Function and a Module of one name; `path` leads to the table.
    """
    found = {}
    for key, value in table.items():
        place = (*path, key)
        if key not in EXPRESSIONS:
            problems.unknown_key(place, f"'{path[-1]}'", EXPRESSIONS)
        elif not isinstance(value, str) or not re.search(EXPRESSIONS[key], value):
            message = f"'{key}' must be a pattern of names"
            problems.at(place, message, f"such as {EXAMPLES[key]}")
        else:
            found[key] = value
    patterns = DEFAULT._replace(**found)
    if patterns.function == patterns.module:
        key = "function" if "function" in found else "module"
        message = "the Function and the Module would have the same name"
        hint = f"such as {EXAMPLES['function']} and '{{Op}}'"
        problems.at((*path, key), message, hint)
    return patterns


# --- Names: allowed names, and the two names of an op.


RESERVED = frozenset(
    {"ctx", "self", "cls", "torch", "Tensor", "nn", "F", "math", "Function"}
    | {"once_differentiable"}
)
# Reserved names allowed for a dim: code that has it as a parameter does not use the
# reserved name.
DIMENSIONS = frozenset({"F", "cls", "ctx"})
# Names that generated files import or define besides the class: a class of that name
# would hide them.
RESERVED_CLASSES = RESERVED | {"Any", "Callable", "Literal", "Module", "Sequence"}

# An op's file beside a test hides an installed module of its name; a test run imports
# these.
INSTALLED = frozenset(
    {"conftest", "filelock", "fsspec", "functorch", "hypothesis", "jinja2", "mpmath"}
    | {"networkx", "numpy", "pluggy", "pytest", "setuptools", "sympy", "torchgen"}
    | {"triton", "typing_extensions"}
)

# Short words separate from following capitals: MySTE is my_ste, but SiLU is silu.
WORDS = frozenset({"Add", "Exp", "Log", "Max", "Min", "Mul", "My", "New", "Sum"})

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")


def is_identifier(name: str) -> bool:
    """Return whether a name is an identifier Python reads as it is written.

    Python normalizes names (NFKC): a ligature `ﬁ` becomes `fi`, so the written name would not be found again.
    """
    return name.isidentifier() and unicodedata.normalize("NFKC", name) == name


def check_name(name: str, place: Location, what: str) -> ScaffoldError | None:
    """Return the error if an input, an output or a dimension cannot have this name, else None.

    Not allowed are keywords, names that generated code uses itself (RESERVED), and `grad_...`, the names of gradients.
    """
    if not is_identifier(name):
        message = f"'{name}' is not a valid name for {what}"
        hint = "take letters, digits and '_', and begin with a letter: x1"
        return ScaffoldError(message, place, hint)
    if keyword.iskeyword(name):
        return _refused(name, place, what, "is a keyword of Python")
    if name in RESERVED:
        return _refused(name, place, what, "has a meaning in generated code")
    if name.startswith("__"):
        return _refused(name, place, what, "is private to Python")
    if name.startswith("grad_"):
        return _refused(name, place, what, "is kept for gradients")
    return None


def _refused(name: str, place: Location, what: str, reason: str) -> ScaffoldError:
    """Return the error for an unusable name, with a similar one as a hint: `grad_x` -> `x_grad`, `lambda` -> `lambda_`, `__x` -> `x`.

    `reason` completes "it ...".
    """
    message = f"'{name}' cannot name {what}: it {reason}"
    other = name.strip("_")
    if other.startswith("grad_"):
        other = f"{other.removeprefix('grad_')}_grad"
    other = f"{other}_" if other == name else other  # `lambda` -> `lambda_`
    usable = other.isidentifier() and not keyword.iskeyword(other)
    hint = f"choose another name, such as '{other}'" if usable else None
    return ScaffoldError(message, place, hint)


def snake_name(camel: str) -> str:
    """Return a CamelCase name in snake_case: `RMSNorm` -> `rms_norm`, `L2Norm` -> `l2_norm`, `SiLU` -> `silu`."""
    words: list[str] = []
    for word in _WORD.findall(camel):
        if words and _continues(words[-1], word, first=len(words) == 1):
            words[-1] += word
        else:
            words.append(word)
    return "_".join(words).lower()


def _continues(before: str, word: str, first: bool) -> bool:
    """Return whether a piece of a CamelCase name belongs to the word `before` it: `Re` and `LU` are one word, `relu`.

    `first`: that word is the name's first. `_WORD` cuts before each capital that begins a word; this joins usual short forms again.
    """
    if word.isdigit() or (before[-1].isdigit() and (word.islower() or len(word) == 1)):
        return True  # L2, Conv2d, Conv2D
    if first and len(before) == 1 and before.isupper():
        return True  # PReLU, KMeans
    # `MySTE` is two words: `My` is one of the usual first ones (WORDS).
    short = len(before) <= 3 and before[-1].islower() and before not in WORDS
    return short and word.isupper() and len(word) <= 3  # ReLU, LoRA, SwiGLU


def camel_name(snake: str) -> str:
    """Return a snake_case name in CamelCase: `rms_norm` -> `RmsNorm`; a leading underscore stays."""
    lead = "_" if snake.startswith("_") else ""
    return lead + "".join(part[:1].upper() + part[1:] for part in snake.split("_"))


def op_names(
    name: str, place: Location, packaged: bool, patterns: Patterns = DEFAULT
) -> tuple[str, str]:
    """Return an op's function and class names, from either spelling, `rms_norm` or `RMSNorm`; raise if invalid.

    `packaged`: the op's file lies in a package, so it cannot hide an installed module. `patterns` name its file.
    """
    camel = re.fullmatch(r"[A-Z][A-Za-z0-9]*", name) is not None
    snake = snake_name(name) if camel else name
    klass = name if camel else camel_name(name)
    _check_spelling(name, snake, place)
    _check_module_name(snake, patterns.op_file(snake), place, packaged)
    return snake, klass


def _check_spelling(name: str, snake: str, place: Location) -> None:
    """Raise unless the name of an op is snake_case or CamelCase; `snake` is the name in snake_case.

    The hint is a usable name made of the user's: `rms-norm.py` -> `rms_norm`.
    """
    # Of underscores alone no name of a class could be made.
    if is_identifier(name) and snake == snake.lower() and snake.strip("_"):
        problem = check_name(snake, place, "an op")
        if problem and not snake.startswith("grad_"):  # grad_reverse is a fine op
            raise problem
        return
    words = re.sub(r"\W+", "_", name.removesuffix(".py")).strip("_")
    # `rmsNorm` has two words.
    words = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", words).lower()
    usable = is_identifier(words) and not keyword.iskeyword(words)
    if not usable:
        words = "scaled_tanh"
    start = "write" if usable else "call it for instance"
    hint = f"{start} '{words}' or '{camel_name(words)}'"
    message = f"'{name}' cannot name an op: neither snake_case nor CamelCase"
    raise ScaffoldError(message, place, hint)


def _check_module_name(snake: str, file: str, place: Location, packaged: bool) -> None:
    """Raise for an op `snake` if pytest would collect its file as a test, or the file would hide an installed module.

    In a package (`packaged`) no file hides another module: it is imported by the package's name.
    """
    # Also the function: the test file imports it, and pytest runs what is called `test...` there.
    if snake.startswith("test"):
        message = f"'{snake}' cannot name an op: pytest would collect it as a test"
        hint = "choose a name that does not begin with 'test'"
        raise ScaffoldError(message, place, hint)
    if packaged:
        return
    module = file.removesuffix(".py")
    hidden = "the standard library's" if module in sys.stdlib_module_names else None
    hidden = "the installed" if module in INSTALLED else hidden
    if hidden:
        message = f"'{snake}' cannot name an op outside a package: {file} would hide {hidden} module"
        hint = f"choose another name, such as '{snake}_op'"
        raise ScaffoldError(message, place, hint)


def check_class_name(name: str, place: Location) -> ScaffoldError | None:
    """Return the error if a class of the op cannot have this name, else None."""
    usable = is_identifier(name) and not keyword.iskeyword(name)
    if not usable or name.startswith("__"):
        hint = "take a name that begins with a letter"
        # A usable name that is refused here begins with two underscores.
        hint = hint if usable else "write it as in: --class-name RMSNorm"
        message = f"'{name}' is not a valid name for a class"
        return ScaffoldError(message, place, hint)
    if name in RESERVED_CLASSES:
        hint = f"choose another with class-name, such as '{name}Op'"
        message = f"the class '{name}' would hide a name of the generated code"
        return ScaffoldError(message, place, hint)
    return None
