"""Names: which ones are allowed, and what the two names of an op are.

In: what the user typed. Out: the op's function and class name, or an error. Invariant: a name that passes here can
stand in generated code, as a file name included.
"""

import keyword
import re
import sys
import unicodedata

from scaffold.errors import Location, ScaffoldError
from scaffold.spec.patterns import DEFAULT, Patterns

RESERVED = frozenset(
    {"ctx", "self", "cls", "torch", "Tensor", "nn", "F", "math", "Function"}
    | {"once_differentiable"}
)
# Of these a dimension may have one: no code where it is a parameter reads it.
DIMENSIONS = frozenset({"F", "cls", "ctx"})
# What generated files import or define beside the class: a class of that name would hide it.
RESERVED_CLASSES = RESERVED | {"Any", "Callable", "Literal", "Module", "Sequence"}

# An op's file beside a test hides an installed module of its name: these are what a test run imports.
INSTALLED = frozenset(
    {"conftest", "filelock", "fsspec", "functorch", "hypothesis", "jinja2", "mpmath"}
    | {"networkx", "numpy", "pluggy", "pytest", "setuptools", "sympy", "torchgen"}
    | {"triton", "typing_extensions"}
)

# Short words that stay words before capitals: MySTE is my_ste, but SiLU is silu.
WORDS = frozenset({"Add", "Exp", "Log", "Max", "Min", "Mul", "My", "New", "Sum"})

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")


def is_identifier(name: str) -> bool:
    """Whether Python reads the name as an identifier, letter for letter (no compatibility characters)."""
    return name.isidentifier() and unicodedata.normalize("NFKC", name) == name


def check_name(name: str, place: Location, what: str) -> ScaffoldError | None:
    """The reason why an input, output or dimension cannot have this name, if there is one."""
    if not is_identifier(name):
        return ScaffoldError(f"'{name}' is not a valid name for {what}", place)
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
    message = f"'{name}' cannot name {what}: it {reason}"
    other = name.strip("_")
    if other.startswith("grad_"):
        other = f"{other.removeprefix('grad_')}_grad"
    other = f"{other}_" if other == name else other
    usable = other.isidentifier() and not keyword.iskeyword(other)
    hint = f"choose another name, such as '{other}'" if usable else None
    return ScaffoldError(message, place, hint)


def snake_name(camel: str) -> str:
    """`RMSNorm` -> `rms_norm`, `L2Norm` -> `l2_norm`, `SiLU` -> `silu`."""
    words: list[str] = []
    for word in _WORD.findall(camel):
        if words and _continues(words[-1], word, first=len(words) == 1):
            words[-1] += word
        else:
            words.append(word)
    return "_".join(words).lower()


def _continues(before: str, word: str, first: bool) -> bool:
    """Whether a piece belongs to the word before it."""
    if word.isdigit() or (before[-1].isdigit() and (word.islower() or len(word) == 1)):
        return True  # L2, Conv2d, Conv2D
    if first and len(before) == 1 and before.isupper():
        return True  # PReLU, KMeans
    short = len(before) <= 3 and before[-1].islower() and before not in WORDS
    return short and word.isupper() and len(word) <= 3  # ReLU, LoRA, SwiGLU


def camel_name(snake: str) -> str:
    """`rms_norm` -> `RmsNorm`."""
    lead = "_" if snake.startswith("_") else ""
    return lead + "".join(part[:1].upper() + part[1:] for part in snake.split("_"))


def op_names(
    name: str, place: Location, packaged: bool, patterns: Patterns = DEFAULT
) -> tuple[str, str]:
    """The function and the class that an op's name stands for: both spellings name both."""
    camel = re.fullmatch(r"[A-Z][A-Za-z0-9]*", name) is not None
    snake = snake_name(name) if camel else name
    klass = name if camel else camel_name(name)
    _check_spelling(name, snake, place)
    _check_module_name(snake, patterns.op_file(snake), place, packaged)
    return snake, klass


def _check_spelling(name: str, snake: str, place: Location) -> None:
    if is_identifier(name) and snake == snake.lower() and snake.strip("_"):
        problem = check_name(snake, place, "an op")
        if problem and not snake.startswith("grad_"):  # grad_reverse is a fine op
            raise problem
        return
    words = re.sub(r"\W+", "_", name).strip("_")
    words = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", words).lower()
    usable = is_identifier(words) and not keyword.iskeyword(words)
    hint = f"write '{words}' or '{camel_name(words)}'" if usable else None
    message = f"'{name}' cannot name an op: neither snake_case nor CamelCase"
    raise ScaffoldError(message, place, hint)


def _check_module_name(snake: str, file: str, place: Location, packaged: bool) -> None:
    hint = f"choose another name, such as '{snake}_op'"
    if snake.startswith("test"):
        message = f"'{snake}' cannot name an op: pytest would collect it as a test"
        raise ScaffoldError(message, place, "choose a name that starts otherwise")
    if packaged:
        return
    module = file.removesuffix(".py")
    hidden = "the standard library's" if module in sys.stdlib_module_names else None
    hidden = "the installed" if module in INSTALLED else hidden
    if hidden:
        message = f"'{snake}' cannot name an op outside a package: {file} would hide {hidden} module"
        raise ScaffoldError(message, place, hint)


def check_class_name(name: str, place: Location) -> ScaffoldError | None:
    """The reason why a class of the op cannot have this name, if there is one."""
    if not is_identifier(name) or keyword.iskeyword(name):
        return ScaffoldError(f"'{name}' is not a valid name for a class", place)
    if name.startswith("__"):
        return ScaffoldError(f"'{name}' is not a valid name for a class", place)
    if name in RESERVED_CLASSES:
        hint = f"choose another with class-name, such as '{name}Op'"
        message = f"the class '{name}' would hide a name of the generated code"
        return ScaffoldError(message, place, hint)
    return None
