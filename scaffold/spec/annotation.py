"""Types and defaults of attributes.

In: the text of a type, of a default, or both. Out: an annotation and a default as they stand in code.
Invariant: a type is one of the listed forms and a default is a literal that fits it, so nothing else can get in.
"""

import ast
import warnings
from typing import NamedTuple

from scaffold.errors import Location, ScaffoldError, did_you_mean
from scaffold.spec.tokens import Words

PLAIN = ("float", "int", "bool", "str", "object")
OF_TORCH = {"dtype": "torch.dtype", "device": "torch.device"}
KNOWN = (*PLAIN, *OF_TORCH, "tuple", "Literal")
DTYPES = frozenset(
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


class Annotation(NamedTuple):
    """A type as it stands in code; `imported` is the (module, name) that it needs."""

    code: str
    imported: tuple[str, str] | None = None


class Value(NamedTuple):
    """A default: the literal's value, its text, and the type to use where none is stated."""

    value: object
    code: str
    inferred: str


class TorchConstant(NamedTuple):
    """A default like `torch.float32`: an attribute of torch that has the type `kind`."""

    kind: str


def parse_annotation(words: Words, default: Value | None) -> Annotation:
    """Read a type; with `= None` it also admits None, and any other default must fit it."""
    tree = _expression(words, "a type")
    reader = _TypeReader(words)
    code = reader.read(tree)
    if default is not None and default.value is None and not _admits_none(tree):
        code = f"{code} | None"
    elif default is not None and not fits(default.value, tree):
        message = f"the default {default.code} does not fit the type {words.text}"
        raise ScaffoldError(message, words.place, _default_hint(tree))
    if reader.imported is None:
        return Annotation(code)
    if '"' in code:
        raise ScaffoldError("this type cannot be quoted", words.place, "write: object")
    return Annotation(f'"{code}"', reader.imported)


def parse_default(words: Words, typed: bool) -> Value:
    """Read a default: a literal, or a dtype of torch; its own type matters where none is stated."""
    constant = _torch_constant(words)
    if constant is not None:
        return constant
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # '\d' and the like
            value = ast.literal_eval(words.text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        message = f"the default {_short(words.text)} is not a literal"
        hint = "write a number, a string, True, False, None or a tuple of these"
        raise ScaffoldError(message, words.place, hint) from error
    if isinstance(value, list | dict | set):
        hint = "write a tuple: (1, 2)"
        raise ScaffoldError("a default cannot be mutable", words.place, hint)
    return Value(value, words.text, "" if typed else infer(value, words.place))


def infer(value: object, place: Location) -> str:
    """The type of a literal."""
    if isinstance(value, tuple):
        kinds = [infer(item, place) for item in value]
        if not kinds:
            hint = "write one: sizes: tuple[int, ...] = ()"
            raise ScaffoldError("the type of () is not known", place, hint)
        same = len(set(kinds)) == 1
        return f"tuple[{kinds[0]}, ...]" if same else f"tuple[{', '.join(kinds)}]"
    if value is None:
        return "None"
    if not isinstance(value, bool | int | float | str):
        kind = type(value).__name__
        raise ScaffoldError(f"a default cannot be of type {kind}", place)
    return type(value).__name__


def fits(value: object, tree: ast.expr) -> bool:
    """Whether a default may stand for a value of the type."""
    match tree:
        case ast.Constant(None):
            return value is None
        case ast.BinOp(left, ast.BitOr(), right):
            return fits(value, left) or fits(value, right)
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
        case ast.Name("dtype" as name) | ast.Attribute(ast.Name("torch"), name):
            return isinstance(value, TorchConstant) and value.kind == name
        case ast.Subscript(ast.Name("Literal"), choices):
            return any(_same(value, item) for item in _elements(choices))
        case ast.Subscript(ast.Name("tuple"), items):
            return isinstance(value, tuple) and _tuple_fits(value, _elements(items))
    return False


def _same(value: object, choice: ast.expr) -> bool:
    stated = ast.literal_eval(choice)
    return type(stated) is type(value) and bool(stated == value)


def _tuple_fits(value: tuple[object, ...], items: list[ast.expr]) -> bool:
    if len(items) == 2 and _is_ellipsis(items[1]):
        return all(fits(item, items[0]) for item in value)
    pairs = zip(value, items, strict=False)
    return len(value) == len(items) and all(fits(item, kind) for item, kind in pairs)


def _elements(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple) else [node]


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def _admits_none(tree: ast.expr) -> bool:
    return fits(None, tree)


def _default_hint(tree: ast.expr) -> str | None:
    if isinstance(tree, ast.Name) and tree.id == "device":
        return "a device has no literal: write 'device | None = None'"
    return None


def _torch_constant(words: Words) -> Value | None:
    compact = words.text.replace(" ", "")
    module, dot, name = compact.partition(".")
    if module != "torch" or not dot:
        return None
    for names, kind in (
        (DTYPES, "dtype"),
        (FORMATS, "memory_format"),
        (LAYOUTS, "layout"),
    ):
        if name in names:
            return Value(TorchConstant(kind), compact, f"torch.{kind}")
    hint = did_you_mean(name, DTYPES)
    raise ScaffoldError(f"torch has no dtype '{name}'", words.place, hint)


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


def _expression(words: Words, what: str) -> ast.expr:
    if len(words.text) > 1000:  # a chain of thousands would exhaust the stack below
        raise ScaffoldError(f"{_short(words.text)} is not {what}", words.place)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return ast.parse(words.text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        message = f"{_short(words.text)} is not {what}"
        raise ScaffoldError(message, words.place, _listed()) from None


def _listed() -> str:
    return (
        f"write one of {', '.join(KNOWN)}, or a dotted name such as package.module.Name"
    )


class _TypeReader:
    """Writes a type out again, form by form; what is not listed does not get through."""

    def __init__(self, words: Words) -> None:
        self.words = words
        self.imported: tuple[str, str] | None = None

    def read(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(None):
                return "None"
            case ast.Name(name) if name in PLAIN or name == "tuple":
                return name if name != "tuple" else "tuple[object, ...]"
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
        parts = ast.unparse(node).split(".")
        if not all(part.isidentifier() for part in parts):
            raise self.fail(node, "is not a type", _listed())
        if parts[-1] in ("Tensor", "Parameter"):
            raise self.refusal(ast.copy_location(ast.Name("Tensor"), node))
        if any(part.startswith("__") for part in parts):
            raise self.fail(node, "is private to Python")
        if parts[0] == "torch" and len(parts) == 2:
            return ".".join(parts)
        found = (".".join(parts[:-1]), parts[-1])
        if self.imported not in (None, found):
            raise self.fail(node, "is a second imported type", "write: object")
        self.imported = found
        return parts[-1]

    def items(self, nodes: list[ast.expr]) -> str:
        if len(nodes) == 2 and _is_ellipsis(nodes[1]):
            return f"{self.read(nodes[0])}, ..."
        return ", ".join(self.read(node) for node in nodes) or "()"

    def choices(self, nodes: list[ast.expr]) -> str:
        written = []
        for node in nodes:
            try:
                value = ast.literal_eval(node)
            except (ValueError, TypeError):
                value = ...
            if not (value is None or isinstance(value, bool | int | str)):
                hint = "Literal lists strings, integers, True, False or None"
                raise self.fail(node, "cannot stand in Literal", hint)
            written.append(repr(value))
        return ", ".join(written)

    def refusal(self, node: ast.expr) -> ScaffoldError:
        name = node.id if isinstance(node, ast.Name) else ""
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            name = node.value.id
        if name == "Tensor":
            hint = "a tensor is a bare name: 'x', or 'x?' where it may be None"
            return self.fail(node, "is not the type of an attribute", hint)
        if name in SUGGESTED:
            return self.fail(node, "is not a known type", f"write: {SUGGESTED[name]}")
        hint = (did_you_mean(name, KNOWN) if name else None) or _listed()
        return self.fail(node, "is not a known type", hint)

    def fail(
        self, node: ast.expr, reason: str, hint: str | None = None
    ) -> ScaffoldError:
        before = self.words.text.encode()[: node.col_offset].decode(errors="ignore")
        place = self.words.place.shifted(0, len(before))
        return ScaffoldError(f"'{ast.unparse(node)}' {reason}", place, hint)
