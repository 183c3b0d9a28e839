"""Signatures: the entries of `--inputs` and `--outputs` -> inputs, outputs and attributes.

Second of two steps: `grammar` cut the text into entries; here each is read, and all are compared. In: entries. Out: the op's
inputs and outputs. Invariant: a type is one of the listed forms and a default is a literal of that type, so nothing else gets
into generated code; each problem is reported at its place, all of a signature together.

Words: an *entry* is one input or output as written; its *dims* stand in brackets, its *traits* after the `;`: `x[N, D; int]`.
A *domain* is a trait that limits the values drawn in tests, `positive`; a *bound* is the C of `index(C)`, integers below it. An
*attribute* is an input that is no tensor, `eps: float = 1e-6`; `words` are a part of the text with its place.
"""

import ast
import sys
import warnings
from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple, TypeVar, get_args

from scaffold.errors import Location, ScaffoldError, did_you_mean, raise_all
from scaffold.spec.grammar import Entry, Trait, Words, parse_entries
from scaffold.spec.names import DIMENSIONS, check_name
from scaffold.spec.op_spec import (
    ANY_DIMS,
    Attribute,
    Dim,
    Domain,
    DType,
    Input,
    Output,
    TensorInput,
    is_leading,
    is_variadic,
)

# --- The contents of an entry's brackets: dims, and traits after the `;`.
#
# In: words with their places. Out: `Dim`s and `Traits`. Invariant: a shape has `...` or `*batch` at most once, the
# latter first, and no size below 1.


ONE_LEADING = "write one: '*batch' for leading dims that are the same wherever the name stands, '...' for any"
DOMAINS: tuple[Domain, ...] = get_args(Domain)[1:]
DTYPES: tuple[DType, ...] = ("int", "bool", "complex")
TRAITS = (*DTYPES, "index", "const", *DOMAINS)


class Traits(NamedTuple):
    """The traits of a tensor, the words after the `;`, as fields; those not stated have their default."""

    dtype: DType = "float"
    bound: Dim | None = None
    domain: Domain = "normal"
    const: bool = False


LONGEST_SIZE = 20  # digits: more than any size of a tensor, an int64, can have
LONGEST = 4300  # digits of the longest number Python reads
MOST_ELEMENTS = 2**32  # in the product of a shape's numeric sizes: 32 GiB in float64


def read_dims(words: Sequence[Words]) -> tuple[Dim, ...]:
    """Return the dims written in one shape, `N, 3` -> `("N", 3)`; raise an error if they are invalid, or a tensor of them is too large."""
    dims = tuple(_dim(word) for word in words)
    _check_leading([word for word in words if is_leading(word.text)], words)
    if prod(size for size in dims if isinstance(size, int)) > MOST_ELEMENTS:
        largest = max(
            (w for w in words if w.text.isdecimal()), key=lambda w: int(w.text)
        )
        message = f"a tensor of {' * '.join(map(str, dims))} elements is too large"
        hint = "use a name, such as N, or a size that the tests can allocate"
        raise ScaffoldError(message, largest.place, hint)
    return dims


def _check_leading(found: Sequence[Words], words: Sequence[Words]) -> None:
    """Raise for a second `...` or `*batch` in a shape, or a `*batch` after another dim.

    `found` are those of the shape's dims, `words`, that are one of these.
    """
    for second in found[1:]:
        message = f"a shape can hold '{found[0].text}' only once"
        if second.text != found[0].text:
            message = f"a shape cannot hold both '{found[0].text}' and '{second.text}'"
        twice = second.text == ANY_DIMS == found[0].text
        hint = "keep one of them: 'x[..., D]'" if twice else ONE_LEADING
        raise ScaffoldError(message, second.place, hint)
    for word in found:
        if word.text != ANY_DIMS and word != words[0]:
            hint = "give each dim a name, or leave the shape out"
            raise ScaffoldError(f"'{word.text}' must stand first", word.place, hint)


def _dim(word: Words) -> Dim:
    """Return a dim as a name or a size, `"N"`, `"..."` or 4; raise for a size that is no integer, below 1, or too long for a tensor."""
    is_number = word.text[0] == "." or word.text[0].isdigit()
    if not is_number or word.text == ANY_DIMS:
        return word.text
    if len(word.text) > LONGEST_SIZE:
        hint = "use a name, such as N, or a size that the tests can allocate"
        raise ScaffoldError(f"{_short(word.text)} is too large", word.place, hint)
    if not word.text.isdecimal() or int(word.text) < 1:
        hint = "sizes are integers from 1; empty cases are tested anyway"
        raise ScaffoldError(f"{word.text} is not a size", word.place, hint)
    return int(word.text)


def read_traits(traits: Sequence[Trait], output: bool = False) -> Traits:
    """Return the traits of one tensor, the words after `;` in `x[N; int]`; raise for unknown and contradictory ones.

    An `output` cannot have traits about test values, such as `positive`. Domains are checked last: a dtype may follow them.
    `const` is dropped for integers, which have no gradient anyway.
    """
    found = Traits()
    for trait in traits:
        found = _add_trait(found, trait, output)
    for trait in traits:
        _check_domain(found, trait)
    return found._replace(const=found.const and found.dtype in ("float", "complex"))


def _add_trait(found: Traits, trait: Trait, output: bool) -> Traits:
    """Return the traits read so far, `found`, with one more; raise if it is unknown, or contradicts one before it.

    `output`: it is an output's; no test values are made for that, so a domain such as `positive` is unknown.
    """
    word = trait.word.text
    if trait.argument is not None and word != "index":
        raise ScaffoldError(f"'{word}' takes no argument", trait.argument.place)
    if word == "index":
        return _index(found, trait, output)
    # Loops, so that the type checker knows which words these are.
    for name in DTYPES:
        if word == name:
            return _once(found, trait, "dtype")._replace(dtype=name)
    for domain in DOMAINS:
        if word == domain and not output:
            return _once(found, trait, "domain")._replace(domain=domain)
    if word == "const":
        return found._replace(const=True)
    raise _unknown(trait, output)


def _index(found: Traits, trait: Trait, output: bool) -> Traits:
    """Return the traits `found` with `index(C)` added: integers from 0 below C, as class labels are; raise without C, and for an output."""
    if output:
        hint = "write: indices[N; int]"
        message = (
            "an output cannot be 'index': the trait describes test values of an input"
        )
        raise ScaffoldError(message, trait.word.place, hint)
    if trait.argument is None:
        hint = "write: target[N; index(C)]"
        message = "'index' needs a size: its values are integers below it"
        raise ScaffoldError(message, trait.word.place, hint)
    bound = _dim(trait.argument)
    return _once(found, trait, "dtype")._replace(dtype="index", bound=bound)


def _once(found: Traits, trait: Trait, field: str) -> Traits:
    """Return the traits `found` if their field `field` still has its default; raise if an earlier trait set it: `int, bool`."""
    before = getattr(found, field)
    if before != getattr(Traits(), field):
        message = f"'{trait.word.text}' contradicts '{before}'"
        hint = f"keep one of them: '; {before}' or '; {trait.word.text}'"
        raise ScaffoldError(message, trait.word.place, hint)
    return found


def _unknown(trait: Trait, output: bool) -> ScaffoldError:
    """Return the error for an unknown trait, or for one that only an input can have; the hint knows dtypes of PyTorch: `long` -> `int`."""
    word = trait.word.text
    if word in DOMAINS:
        message = (
            f"an output cannot be '{word}': the trait describes test values of an input"
        )
        return ScaffoldError(message, trait.word.place)
    known = [name for name in TRAITS if not output or name in (*DTYPES, "const")]
    hint = did_you_mean(word, known) or f"known: {', '.join(known)}"
    if word in ("float", "float32", "float64", "double"):
        hint = "tensors are floating unless they are declared int, bool or complex"
    if word in ("long", "int64", "int32"):
        hint = "write: int"
    if word in COMPLEX_TYPES:
        hint = "write: complex"
    return ScaffoldError(f"unknown trait '{word}'", trait.word.place, hint)


def _check_domain(found: Traits, trait: Trait) -> None:
    """Raise if a trait is a domain and the tensor has integers, booleans, or complex numbers: only `nonzero` has a meaning for the last."""
    word = trait.word.text
    if word not in DOMAINS or found.dtype == "float":
        return
    if found.dtype != "complex" or word != "nonzero":
        kind = "integer" if found.dtype in ("int", "index") else found.dtype
        message = f"'{word}' has no meaning for a tensor of dtype {kind}"
        hint = "write index(C) for values from 0 below C" if kind == "integer" else None
        raise ScaffoldError(message, trait.word.place, hint)


def check_domain(dims: tuple[Dim, ...] | None, traits: Sequence[Trait]) -> None:
    """Raise if a tensor of this shape cannot have values of its domain: `spd`, symmetric positive definite, or `simplex`, sums of 1.

    The former needs two equal sizes at the end, the latter a last size to sum over, which an undeclared shape may have.
    """
    words = {trait.word.text: trait.word for trait in traits}
    if "spd" in words and (dims is None or len(dims) < 2 or dims[-1] != dims[-2]):
        message = "'spd' needs a shape whose last two sizes are equal"
        raise ScaffoldError(message, words["spd"].place, "write: [..., N, N; spd]")
    if "simplex" in words and dims is not None and all(map(is_leading, dims)):
        message = "'simplex' needs a shape with a last size"
        raise ScaffoldError(message, words["simplex"].place, "write: [..., C; simplex]")


# --- Types and defaults of attributes.


PLAIN = ("float", "int", "bool", "str", "object")
# Short names of types of torch.
OF_TORCH = {"dtype": "torch.dtype", "device": "torch.device"}
KNOWN = (*PLAIN, *OF_TORCH, "tuple", "Literal")
TORCH_DTYPES = frozenset(
    {"bfloat16", "bool", "complex128", "complex32", "complex64", "double", "float"}
    | {"float16", "float32", "float64", "half", "int", "int16", "int32", "int64"}
    | {"int8", "long", "short", "uint16", "uint32", "uint64", "uint8"}
    | {"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"}
    | {"cdouble", "cfloat", "chalf"}
)
FORMATS = frozenset(
    {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"}
)
LAYOUTS = frozenset({"strided", "sparse_coo", "sparse_csr", "sparse_csc", "jagged"})
# Types no attribute can have -> the type to write instead.
SUGGESTED = {
    "Callable": "collections.abc.Callable",
    "Generator": "torch.Generator",
    "ProcessGroup": "torch.distributed.ProcessGroup",
    "Sequence": "tuple[int, ...]",
    "list": "tuple[int, ...]",
    "List": "tuple[int, ...]",
    "Tuple": "tuple[int, ...]",
    "Optional": "float | None",
    "Any": "object",
    "dict": "object",
    "string": "str",
    "double": "float",
    "boolean": "bool",
    "Scalar": "float",
}


# No attribute is complex: such a type is meant for a tensor.
COMPLEX_TYPES = frozenset(
    {"complex", "cfloat", "cdouble", "complex64", "complex128", "chalf"}
)


class Annotation(NamedTuple):
    """A type as in code; `imported` is the (module, name) it needs."""

    code: str
    imported: tuple[str, str] | None = None


class Value(NamedTuple):
    """A default: the literal's value, its text, and the type to use if none is stated."""

    value: object
    code: str
    inferred: str


class TorchConstant(NamedTuple):
    """Stands for the value of a default like `torch.float32`, a constant of torch of type `kind`: torch is not imported here."""

    kind: str


def parse_annotation(words: Words, default: Value | None) -> Annotation:
    """Return the type of an attribute as generated code has it: `dtype` -> `torch.dtype`, `float` with the default None -> `float | None`.

    Raise if any other default does not fit it. A type of another package is quoted, with the import it needs: generated code
    imports it for type checkers only. Raise for an unknown type, and for one with both kinds of quotes.
    """
    tree = _expression(words, "a type")
    reader = _TypeReader(words)
    code = reader.read(tree)
    # `default.value is None`: the default is the literal None; `default is None`: there is none.
    if default is not None and default.value is None and not fits(None, tree):
        code = f"{code} | None"
    elif default is not None and not fits(default.value, tree):
        message = f"the default {default.code} does not fit the type {words.text}"
        raise ScaffoldError(message, words.place, _default_hint(tree))
    if reader.imported is None:
        return Annotation(code)
    if '"' in code:
        message = (
            "this type has both kinds of quotes, so it cannot be written as a string"
        )
        raise ScaffoldError(message, words.place, "write: object")
    return Annotation(f'"{code}"', reader.imported)


def parse_default(words: Words, typed: bool) -> Value:
    """Return the value of a default, a literal or a constant of torch, with its type; the type is "" if one is stated (`typed`).

    Raise for anything else, for a list or another mutable value, and for a number larger than any float.
    """
    constant = _torch_constant(words)
    if constant is not None:
        return constant
    # Python reads no number of so many digits: `literal_eval` would say that it is no literal.
    if len(words.text) > LONGEST and words.text[:LONGEST].replace("_", "").isdigit():
        raise _huge(words)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # such as '\d'
            value = ast.literal_eval(words.text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        message = f"the default {_short(words.text)} is not a literal"
        hint = "write a number, a string, True, False, None or a tuple of these"
        raise ScaffoldError(message, words.place, hint) from error
    if isinstance(value, list | dict | set):
        hint = "write a tuple: (1, 2)"
        raise ScaffoldError("a default cannot be mutable", words.place, hint)
    if _is_huge(value):
        raise _huge(words)
    return Value(value, words.text, "" if typed else infer(value, words.place))


def _huge(words: Words) -> ScaffoldError:
    """Return the error for a default no float can hold."""
    message = f"the default {_short(words.text)} is larger than any float"
    return ScaffoldError(message, words.place, "write: 1e300")


def _is_huge(value: object) -> bool:
    """Return whether a literal is an integer larger than any float, or a tuple with one."""
    if isinstance(value, tuple):
        return any(map(_is_huge, value))
    return isinstance(value, int) and abs(value) > sys.float_info.max


def infer(value: object, place: Location) -> str:
    """Return the type of a default as in code, `int` for `2`; raise an error if there is none, as for `()`."""
    if isinstance(value, tuple):
        kinds = [infer(item, place) for item in value]
        if not kinds:
            hint = "write one: sizes: tuple[int, ...] = ()"
            raise ScaffoldError("the type of () is not known", place, hint)
        # Elements of one type are a tuple of any length: `(1, 2)` may become `(1, 2, 3)` in a call.
        same = len(set(kinds)) == 1
        return f"tuple[{kinds[0]}, ...]" if same else f"tuple[{', '.join(kinds)}]"
    if value is None:
        return "None"
    if not isinstance(value, bool | int | float | str):
        kind = type(value).__name__
        raise ScaffoldError(f"a default cannot be of type {kind}", place)
    return type(value).__name__


def fits(value: object, tree: ast.expr) -> bool:
    """Return whether a default is a value of a type, given as syntax: `None` of `float | None`, `1` of `float`, but no bool of `int`.

    False for a type with no literals, such as one of another package.
    """
    match tree:
        case ast.Constant(None):
            return value is None
        case ast.BinOp(left, ast.BitOr(), right):
            return fits(value, left) or fits(value, right)
        case ast.Subscript(ast.Name("Optional"), inner):
            return value is None or fits(value, inner)
        case ast.Name("object"):
            return True
        case ast.Name("float"):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.Name("int"):
            return isinstance(value, int) and not isinstance(value, bool)
        case ast.Name("bool" | "str" as name):
            return type(value).__name__ == name
        case ast.Name("tuple"):
            return isinstance(value, tuple)
        # `torch.float32` is a constant of torch of the kind "dtype".
        case ast.Name("dtype" as name) | ast.Attribute(ast.Name("torch"), name):
            return isinstance(value, TorchConstant) and value.kind == name
        case ast.Subscript(ast.Name("Literal"), choices):
            return any(_same(value, item) for item in _elements(choices))
        case ast.Subscript(ast.Name("tuple"), items):
            return isinstance(value, tuple) and _tuple_fits(value, _elements(items))
    return False


def _same(value: object, choice: ast.expr) -> bool:
    """Return whether a default is a value listed in `Literal[...]`: 1 is not True there."""
    stated = ast.literal_eval(choice)
    return type(stated) is type(value) and bool(stated == value)


def _tuple_fits(value: tuple[object, ...], items: list[ast.expr]) -> bool:
    """Return whether a tuple fits the types `items` in `tuple[...]`: one with `...` for all elements, or one for each."""
    if len(items) == 2 and _is_ellipsis(items[1]):
        return all(fits(item, items[0]) for item in value)
    return len(value) == len(items) and all(map(fits, value, items))


def _elements(node: ast.expr) -> list[ast.expr]:
    """Return the types or values inside the brackets of a type: a tuple's elements, or the single one."""
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _default_hint(tree: ast.expr) -> str | None:
    """Return the hint for a default that does not fit its type."""
    if isinstance(tree, ast.Name) and tree.id == "device":
        return "a device has no literal: write 'device | None = None'"
    return "write another default, or another type, as in: 'eps: float = 1e-6'"


def _torch_constant(words: Words) -> Value | None:
    """Return the value of a default such as `torch.float32` or `torch.strided`; None if it does not begin with `torch.`; raise if unknown."""
    # Blanks between the tokens mean nothing: `torch . float32`.
    compact = words.text.replace(" ", "")
    module, dot, name = compact.partition(".")
    if module != "torch" or not dot:
        return None
    for names, kind in (
        (TORCH_DTYPES, "dtype"),
        (FORMATS, "memory_format"),
        (LAYOUTS, "layout"),
    ):
        if name in names:
            return Value(TorchConstant(kind), compact, f"torch.{kind}")
    hint = did_you_mean(name, TORCH_DTYPES)
    raise ScaffoldError(f"torch has no dtype '{name}'", words.place, hint)


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


def _expression(words: Words, what: str) -> ast.expr:
    """Return the syntax of a text meant as `what`, "a type"; raise if it is no expression of Python, or too long to parse."""
    if len(words.text) > 1000:  # thousands of operators would overflow the stack below
        raise ScaffoldError(f"{_short(words.text)} is not {what}", words.place)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # such as '\d'
            return ast.parse(words.text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        message = f"{_short(words.text)} is not {what}"
        raise ScaffoldError(message, words.place, _listed()) from None


def _listed() -> str:
    """Return the hint that lists the known types."""
    return (
        f"write one of {', '.join(KNOWN)}, or a dotted name such as package.module.Name"
    )


class _TypeReader:
    """A writer of types as generated code has them: it knows their forms one by one, and raises for others.

    `imported` is the (module, name) of a type of another package, if it has met one.
    """

    def __init__(self, words: Words) -> None:
        """Begin without an imported type; `words` are the whole type as written, for places of errors."""
        self.words = words
        self.imported: tuple[str, str] | None = None

    def read(self, node: ast.expr) -> str:
        """Return a type as in code: `dtype` -> `torch.dtype`, `Optional[int]` -> `int | None`; raise for a form not listed here."""
        match node:
            case ast.Constant(None):
                return "None"
            case ast.Name("tuple"):
                return "tuple[object, ...]"
            case ast.Name(name) if name in PLAIN:
                return name
            case ast.Name(name) if name in OF_TORCH:
                return OF_TORCH[name]
            case ast.Attribute():
                return self.dotted(node)
            case ast.BinOp(left, ast.BitOr(), right):
                return f"{self.read(left)} | {self.read(right)}"
            case ast.Subscript(ast.Name("tuple"), items):
                return f"tuple[{self.items(_elements(items))}]"
            case ast.Subscript(ast.Name("Optional"), item):
                return f"{self.read(item)} | None"
            case ast.Subscript(ast.Name("Literal"), choices):
                return f"Literal[{self.choices(_elements(choices))}]"
        raise self.refusal(node)

    def dotted(self, node: ast.Attribute) -> str:
        """Return the last part of a dotted type and note its import; raise if it is a tensor, private or a second type to import.

        `numpy.random.Generator` -> `Generator`, with `imported` set to `("numpy.random", "Generator")`. `torch.dtype` stays whole.
        """
        parts = ast.unparse(node).split(".")
        # `f().x`, `a[0].x`: the part before a dot is no name.
        if not all(part.isidentifier() for part in parts):
            raise self.fail(node, "is not a type", _listed())
        if parts[-1] in ("Tensor", "Parameter"):
            # Refused as the bare name is, which has a hint of its own.
            raise self.refusal(ast.copy_location(ast.Name("Tensor"), node))
        if any(part.startswith("__") for part in parts):
            raise self.fail(node, "is private to Python")
        if parts[0] == "torch" and len(parts) == 2:
            return ".".join(parts)
        found = (".".join(parts[:-1]), parts[-1])
        # The same type may occur twice: `tuple[a.T, a.T]`.
        if self.imported not in (None, found):
            reason = "is a second imported type: an input can have one"
            raise self.fail(node, reason, "write: object")
        self.imported = found
        return parts[-1]

    def items(self, nodes: list[ast.expr]) -> str:
        """Return the types inside `tuple[...]` as in code; of none at all `()`."""
        if len(nodes) == 2 and _is_ellipsis(nodes[1]):
            return f"{self.read(nodes[0])}, ..."
        return ", ".join(self.read(node) for node in nodes) or "()"

    def choices(self, nodes: list[ast.expr]) -> str:
        """Return the values listed in `Literal[...]` as in code; raise for a value Literal cannot list."""
        written = []
        for node in nodes:
            try:
                value = ast.literal_eval(node)
            except (ValueError, TypeError):
                value = ...  # no value Literal can list, so refused below
            if not (value is None or isinstance(value, bool | int | str)):
                hint = "Literal lists strings, integers, True, False or None"
                raise self.fail(node, "cannot stand in Literal", hint)
            written.append(repr(value))
        return ", ".join(written)

    def refusal(self, node: ast.expr) -> ScaffoldError:
        """Return the error for a type no attribute can have, with the type to write instead: `tuple[int, ...]` for `List`.

        `name` is the type itself, or in `List[int]` the part before the bracket.
        """
        name = node.id if isinstance(node, ast.Name) else ""
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            name = node.value.id
        inside = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        if "Tensor" in inside:
            hint = "tensors are bare names: 'x', 'x?' where it may be None, '*xs' for any number of them"
            return self.fail(node, "is not the type of an attribute", hint)
        if isinstance(node, ast.List):
            hint = "a shape follows the name: 'x[N, D]'"
            return self.fail(node, "is not a known type", hint)
        if name in SUGGESTED:
            return self.fail(node, "is not a known type", f"write: {SUGGESTED[name]}")
        hint = (did_you_mean(name, KNOWN) if name else None) or _listed()
        return self.fail(node, "is not a known type", hint)

    def fail(
        self, node: ast.expr, reason: str, hint: str | None = None
    ) -> ScaffoldError:
        """Return an error about a part of a type, at its place."""
        # `ast` counts bytes, a place counts characters.
        before = self.words.text.encode()[: node.col_offset].decode(errors="ignore")
        place = self.words.place.shifted(0, len(before))
        return ScaffoldError(f"'{ast.unparse(node)}' {reason}", place, hint)


# --- Entries -> inputs and outputs.
#
# In: entries of the signature grammar or of a schema. Out: `Input`s and `Output`s with checked names, order and
# shapes. Invariant: all problems of a signature are raised together, each at its column.


Read = TypeVar("Read")
ANOTHER_NAME = "give one of them another name"
NO_LEADING = "'...' is any leading dims"


def parse_inputs(text: str, start: Location) -> tuple[Input, ...]:
    """Return the inputs in the text of `--inputs`, at the place `start`; raise the errors of all of them together."""
    return read_inputs(parse_entries(text, start))


def read_inputs(entries: Sequence[Entry]) -> tuple[Input, ...]:
    """Return the inputs of the entries of an op; raise the errors of all of them together.

    A variadic input, `*tensors`, becomes the last one, on which other modules rely; attributes written after it are keyword-only.
    """
    problems: list[ScaffoldError] = []
    entries = _keyword_only(entries)
    inputs = _read_each(entries, _input, problems)
    names = {entry.name.text for entry in entries}
    problems += _name_problems(entries, "an input")
    problems += _order_problems(entries)
    problems += dim_problems(entries, names, "an input")
    problems += _named_twice(entries)
    problems += _bound_problems(entries)
    if not problems and not any(entry.tensor for entry in entries):
        hint = "a bare name is a tensor: 'x, eps: float = 1e-6'"
        place = entries[0].name.place
        problems.append(ScaffoldError("an op needs a tensor", place, hint))
    raise_all(problems)
    # False comes before True, and the order is kept otherwise.
    return tuple(sorted(inputs, key=is_variadic))


def read_outputs(entries: Sequence[Entry]) -> tuple[Output, ...]:
    """Return the outputs of the entries of an op; raise the errors of all of them together. A variadic one must be written last."""
    problems: list[ScaffoldError] = []
    outputs = _read_each(entries, _output, problems)
    names = {entry.name.text for entry in entries}
    problems += _name_problems(entries, "an output")
    problems += dim_problems(entries, names, "an output")
    for entry in entries[:-1]:
        if entry.variadic:
            message = f"'*{entry.name.text}' must be the last output"
            problems.append(ScaffoldError(message, entry.name.place))
    raise_all(problems)
    return tuple(outputs)


def dim_problems(
    entries: Sequence[Entry], taken: set[str], what: str
) -> list[ScaffoldError]:
    """Return problems with names of dims: invalid in code, or in `taken`, the names of inputs or outputs (`what`: "an input").

    A dim becomes a local or a parameter of generated code. `F` for features and `ctx` for a context are allowed.
    """
    problems: list[ScaffoldError] = []
    first = {word.text: word for word in reversed(_dim_words(entries))}
    for word in reversed(first.values()):  # once each, at its first place
        name = word.text.removeprefix("*")
        if name in taken:
            message = f"the dimension '{word.text}' has the name of {what}"
            problems.append(ScaffoldError(message, word.place, ANOTHER_NAME))
        # A size, 4, or `...` is no name to check.
        elif _is_word(name) and name not in DIMENSIONS:
            problem = check_name(name, word.place, "a dimension")
            if problem is not None:
                problems.append(problem)
    return problems


def _named_twice(
    entries: Sequence[Entry], others: Sequence[Entry] = ()
) -> list[ScaffoldError]:
    """Return problems with a name used for one dim, `D`, and for leading dims, `*D`: both could not be one variable.

    `others` are further entries to compare with: for outputs, the inputs.
    """
    words, problems = _dim_words(entries), list[ScaffoldError]()
    known = {word.text for word in (*words, *_dim_words(others))}
    for word in words:
        if f"*{word.text}" in known:
            message = f"'{word.text}' and '*{word.text}' have the same name"
            problems.append(ScaffoldError(message, word.place, ANOTHER_NAME))
    return problems


def leading_problems(
    outputs: Sequence[Entry], inputs: Sequence[Entry]
) -> list[ScaffoldError]:
    """Return problems with named leading dims in outputs, `*batch`: an input must have the same ones, else their sizes are unknown."""
    # Only named ones: an output `y[..., D]` may have `...` of its own.
    known = {word.text for word in _dim_words(inputs) if word.text[0] == "*"}
    problems = _named_twice(outputs, inputs)
    for word in _dim_words(outputs):
        if word.text[0] == "*" and word.text not in known:
            listed = f"the inputs have: {', '.join(sorted(known))}"
            hint = did_you_mean(word.text, known) or (listed if known else NO_LEADING)
            message = f"no input has the leading dims '{word.text}'"
            problems.append(ScaffoldError(message, word.place, hint))
    return problems


def _is_word(text: str) -> bool:
    """Return whether a text is meant as a name, valid or not: no number, no `...`."""
    return text.replace("_", "a").isalnum() and not text[0].isdigit()


def _read_each(
    entries: Sequence[Entry],
    read: Callable[[Entry], Read],
    problems: list[ScaffoldError],
) -> list[Read]:
    """Return the results of `read` for the entries it accepts; add its errors for the others to `problems`, to raise all together."""
    found = []
    for entry in entries:
        try:
            found.append(read(entry))
        except ScaffoldError as error:
            problems.append(error)
    return found


def _input(entry: Entry) -> Input:
    return _tensor(entry) if entry.tensor else _attribute(entry)


def _tensor(entry: Entry) -> TensorInput:
    """Return the tensor input of an entry; raise for invalid dims, traits, or an optional `*tensors`.

    A default makes it optional: it can only be None.
    """
    if entry.variadic and (entry.optional or entry.default):
        message = f"'*{entry.name.text}' cannot be optional"
        raise ScaffoldError(message, entry.name.place, "it may be empty as it is")
    traits = read_traits(entry.traits)
    dims = None if entry.dims is None else read_dims(entry.dims)
    check_domain(dims, entry.traits)
    return TensorInput(
        entry.name.text,
        dims,
        dtype=traits.dtype,
        bound=traits.bound,
        domain=traits.domain,
        const=traits.const,
        optional=entry.optional or entry.default is not None,
        variadic=entry.variadic,
        keyword_only=entry.keyword_only,
    )


def _attribute(entry: Entry) -> Attribute:
    """Return the attribute of an entry with its type: the stated one, else that of its default, else `object`.

    Raise for a star, a shape, traits or a `?`: only tensors have these.
    """
    name, typed = entry.name, entry.annotation is not None
    if entry.variadic:
        message = f"'*{name.text}' can only be tensors"
        hint = f"write: {name.text}: tuple[int, ...]"
        raise ScaffoldError(message, name.place, hint)
    if entry.dims is not None or entry.traits:
        hint = "leave the type out" if typed else "the default of a tensor is None"
        part = "type" if typed else "default"
        message = (
            f"'{name.text}' has the shape of a tensor and the {part} of an attribute"
        )
        raise ScaffoldError(message, name.place, hint)
    if entry.optional:
        kind = entry.annotation.text if entry.annotation else "float"
        hint = f"write: {name.text}: {kind} | None = None"
        raise ScaffoldError("'?' is for tensors", name.place, hint)
    default = parse_default(entry.default, typed) if entry.default else None
    code = default.code if default else None
    if entry.annotation is None:
        kind = default.inferred if default else "object"
        return Attribute(name.text, kind, code, keyword_only=entry.keyword_only)
    # Also `torch.complex64`.
    if entry.annotation.text.rpartition(".")[2] in COMPLEX_TYPES:
        hint = f"write: '{name.text}[...; complex]'"
        message = f"'{entry.annotation.text}' is not the type of an attribute"
        raise ScaffoldError(message, entry.annotation.place, hint)
    found = parse_annotation(entry.annotation, default)
    return Attribute(name.text, found.code, code, found.imported, entry.keyword_only)


def _output(entry: Entry) -> Output:
    """Return the output of an entry; raise for a type, a default or a '?': only inputs have these."""
    if word := entry.annotation or entry.default:
        hint = f"an integer output is written '{entry.name.text}[N; int]'"
        message = "an output is a tensor: it has no type and no default"
        raise ScaffoldError(message, word.place, hint)
    if entry.optional:
        raise ScaffoldError("an output cannot be optional", entry.name.place)
    traits = read_traits(entry.traits, output=True)
    dims = None if entry.dims is None else read_dims(entry.dims)
    return Output(entry.name.text, dims, traits.dtype, traits.const, entry.variadic)


def _keyword_only(entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries with attributes after `*tensors` (from there `after` is true) marked as keyword-only, as in Python."""
    after, found = False, []
    for entry in entries:
        keyword = entry.keyword_only or (after and not entry.tensor)
        found.append(entry._replace(keyword_only=keyword))
        after = after or entry.variadic
    return found


def _name_problems(entries: Sequence[Entry], what: str) -> list[ScaffoldError]:
    """Return problems with invalid or repeated names; `what` is "an input" or "an output"."""
    problems: list[ScaffoldError] = []
    seen: set[str] = set()
    for name in (entry.name for entry in entries):
        problem = check_name(name.text, name.place, what)
        if name.text in seen:
            message = f"'{name.text}' occurs twice"
            problem = ScaffoldError(message, name.place, ANOTHER_NAME)
        if problem is not None:
            problems.append(problem)
        seen.add(name.text)
    return problems


def _order_problems(entries: Sequence[Entry]) -> list[ScaffoldError]:
    """Return problems with an order of inputs Python does not allow, `eps = 1e-6, x`, or in which a default is useless.

    It is useless before `*xs`, which takes all further positional arguments. An attribute after `*xs` can be given by keyword
    only, so its default may stand anywhere.
    """
    problems: list[ScaffoldError] = []
    defaulted: Words | None = None  # the last attribute with a default, so far
    starred: Words | None = None  # the input with a star, so far
    for entry in entries:
        name = entry.name
        if starred and entry.tensor:
            message = f"'*{starred.text}' must be the last tensor"
            hint = f"move '{name.text}' before '*{starred.text}'"
            if entry.variadic:
                message = "only one input can have a star"
                hint = f"give both as one: '*{starred.text}'"
            problems.append(ScaffoldError(message, starred.place, hint))
        elif defaulted and entry.variadic:
            message = f"the default of '{defaulted.text}' could not be used before '*{name.text}'"
            hint = f"move it behind: '*{name.text}, {defaulted.text} = ...'"
            problems.append(ScaffoldError(message, defaulted.place, hint))
        # Python itself would refuse the order: `def f(eps=1e-6, x)`.
        elif defaulted and not entry.keyword_only and _required(entry):
            message = f"'{name.text}' has no default but follows '{defaulted.text}', which has one"
            hint = f"move '{name.text}' before '{defaulted.text}'"
            problems.append(ScaffoldError(message, name.place, hint))
        if entry.variadic:
            starred = name
        if not entry.tensor and entry.default and not entry.keyword_only:
            defaulted = name
    return problems


def _required(entry: Entry) -> bool:
    """Return whether a call must give the input."""
    return not (entry.optional or entry.default or entry.variadic)


def _dim_words(entries: Sequence[Entry]) -> list[Words]:
    """Return the dims of all entries as written, those without a shape left out."""
    return [word for entry in entries for word in entry.dims or ()]


def _bound_problems(entries: Sequence[Entry]) -> list[ScaffoldError]:
    """Return problems with the C of `index(C)`: it must be a number, a dim of an input, or an integer attribute, to have a value in tests."""
    known = {word.text for word in _dim_words(entries) if not is_leading(word.text)}
    known |= {entry.name.text for entry in entries if _is_integer(entry)}
    arguments = [trait.argument for entry in entries for trait in entry.traits]
    problems = []
    for bound in arguments:
        # Other traits have no argument (None), and a number needs no declaration.
        if bound and not bound.text[0].isdigit() and bound.text not in known:
            declared = f"'logits[N, {bound.text}]' or '{bound.text}: int'"
            hint = did_you_mean(bound.text, known)
            hint = hint or f"declare it, as in {declared}, or write a number"
            message = f"no input has a dimension '{bound.text}'"
            problems.append(ScaffoldError(message, bound.place, hint))
    return problems


def _is_integer(entry: Entry) -> bool:
    """Return whether an entry is an integer attribute: `num_segments: int`, or `groups = 4`."""
    if entry.tensor:
        return False
    if entry.annotation is None:
        return entry.default is not None and entry.default.text.isdecimal()
    return entry.annotation.text == "int"
