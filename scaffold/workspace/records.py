"""What a project remembers of an op: what its files were made from, their texts as they were written, and their proof.

In: the files below `.scaffold/`. Out: a `Record` for each op, and the text of one that is to be written. Invariant: a record that was
itself lost or changed is told as such, never trusted (whether a generated file was edited is asked of `reconcile`); a proof counts for just the specification and the Function that were proven.
"""

import ast
import base64
import copy
import hashlib
import json
import os
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from scaffold.errors import Location, ScaffoldError, raise_all
from scaffold.files import read_bytes

# --- The proof of an op that is on record: what was proven, by what, and whether it is what stands in the file.
#
# In: the record's `Proof`, the digest of the op's specification as it is now, the text of the op's file. Out: whether the
# proof still holds.
# Invariant: a proof is of a specification and of the code of the Function and its wrapper, with whatever else of the file
# they name; formatting, comments, docstrings, the Module and the names of unrelated imports are no part of it, and neither are
# the versions of the tool and of PyTorch, which are kept for information.


By = Literal["proof", "tests"]
_UNSAID = frozenset({"ctx", "kind", "type_comment"})  # of a syntax tree
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_DOCUMENTED, ast.alias, ast.Assign, ast.AnnAssign)


class Proof(NamedTuple):
    """What was proven of an op; where `lacks` says something, why that could not be done."""

    spec: str  # digest of what the specification says of the maths
    function: str  # digest of the code that ran
    text: str = ""  # digest of the file that was written with that code
    # Of the generated code; or the op's tests passed, of what stood in the file.
    by: By = "proof"
    tool: str = ""
    torch: str = ""
    lacks: str = ""


def function_digest(text: str, names: Collection[str]) -> str:
    """The fingerprint of the definitions with these names, and of what they name in the file; "" where it is not Python.

    It is the same in every version of Python. A file that defines none of them counts as a whole.
    """
    parts = _cut(text)
    if parts is None:
        return ""
    reached = {id(part) for part in _reached(parts, set(names))}
    meant = [part for part in parts if id(part) in reached] or parts
    said: list[str] = []
    for imports, run in groupby(meant, lambda part: isinstance(part.node, ast.alias)):
        texts = (part.said for part in run)
        said += sorted(texts) if imports else texts
    return hashlib.sha256("\n".join(said).encode("utf-8", "replace")).hexdigest()


def meaning_digest(text: str) -> str:
    """The fingerprint of all that a text says as Python, comments and docstrings left out; of the text itself where it is none."""
    return (
        function_digest(text, ())
        or hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    )


def adds_only(base: str, text: str) -> bool:
    """Whether a file still holds every statement of its base, and beside them definitions of names that are new to it.

    Those of classes count too: a method may be added.
    """
    cuts = _cut(base), _cut(text)
    if cuts[0] is None or cuts[1] is None:
        return False
    before, after = (
        [one for part in cut or () for one in _opened(part)] for cut in cuts
    )
    waiting = Counter(part.said for part in before)
    taken = {name for part in before for name in (*part.binds, *part.reads)}
    for part in after:
        if waiting[part.said]:
            waiting[part.said] -= 1
        elif part.binds & taken or not isinstance(part.node, _DEFINITIONS):
            return False
    return not waiting.total()


def _opened(part: "_Part") -> Iterator["_Part"]:
    """A class as its head and its statements, whose names are told by it; anything else as it is."""
    if not isinstance(part.node, ast.ClassDef):
        yield part
        return
    head = copy.copy(part.node)
    head.body = []
    yield part._replace(node=head)
    for statement in _without_docstring(part.node.body):
        for one in _parts(statement):
            binds = {f"{part.node.name}.{name}" for name in one.binds}
            origin = f"{part.node.name}.{one.origin}"
            yield one._replace(binds=binds, origin=origin)


def _cut(text: str) -> list["_Part"] | None:
    """The parts of a file, docstrings left out; None where it is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Python thinks of the code's escapes
            statements = _without_docstring(ast.parse(text).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return [part for statement in statements for part in _parts(statement)]


class _Part(NamedTuple):
    """A statement of the file, or one name of an import: sorting and splitting these changes nothing."""

    node: ast.AST
    binds: set[str]  # the names that have a meaning by it
    reads: set[str]
    origin: str = ""  # of an imported name

    @property
    def said(self) -> str:
        return f"{self.origin}{_said(self.node)}"


def _parts(statement: ast.stmt) -> Iterator[_Part]:
    read = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    match statement:
        case ast.Import(names) | ast.ImportFrom(names=names):
            origin = ""
            if isinstance(statement, ast.ImportFrom):
                origin = "." * statement.level + (statement.module or "")
            for alias in names:
                yield _Part(alias, {_binding(alias)}, set(), f"import {origin} ")
        case ast.ClassDef(name) | ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
            yield _Part(statement, {name}, read)
        case ast.Assign(targets):
            bound = {_root(each) for each in _flat(targets)}
            yield _Part(statement, bound, read)
        case ast.AnnAssign(target) | ast.AugAssign(target):
            yield _Part(statement, {_root(target)}, read)
        case _:  # whatever it does, it does to what it names
            yield _Part(statement, read | set(_defined(statement)), read)


def _binding(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _root(target: ast.expr) -> str:
    """`torch` of `torch.backends.cudnn.enabled = True`; "" of what binds nothing."""
    while isinstance(target, (ast.Attribute, ast.Subscript, ast.Starred)):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""


def _defined(statement: ast.stmt) -> Iterator[str]:
    """What a compound statement defines: `if TYPE_CHECKING:` imports."""
    for node in ast.walk(statement):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from map(_binding, node.names)
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name


def _reached(parts: list[_Part], wanted: set[str]) -> Iterator[_Part]:
    """The parts that bind a wanted name, or one that those read."""
    waiting = parts
    while found := [part for part in waiting if part.binds & wanted]:
        yield from found
        waiting = [part for part in waiting if not part.binds & wanted]
        for part in found:
            wanted = wanted | part.reads


def _said(value: object) -> str:
    """A syntax tree as text: without what is empty, which is what versions of Python differ in."""
    match value:
        case ast.Delete(targets):
            return f"Delete({_said(list(_flat(targets)))})"
        case ast.AST():
            fields = []
            for name in value._fields:
                item = getattr(value, name, None)
                if name == "body" and isinstance(value, _DOCUMENTED):
                    item = _without_docstring(value.body)
                if name not in _UNSAID and item is not None and item != []:
                    fields.append(f"{name}={_said(item)}")
            return f"{type(value).__name__}({', '.join(fields)})"
        case list():
            return f"[{', '.join(map(_said, value))}]"
    return repr(value)


def _flat(targets: list[ast.expr]) -> Iterator[ast.expr]:
    """The targets one by one: `del (a, b)` deletes the same as `del a, b`, as formatters write it."""
    for target in targets:
        if isinstance(target, (ast.Tuple, ast.List)):
            yield from _flat(target.elts)
        else:
            yield target


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    match body:
        case [ast.Expr(ast.Constant(str())), *rest]:
            return rest
    return body


# --- What a project remembers of an op: what its files were made from, and their texts as they were written.


DIRECTORY = ".scaffold"
# 2 had digests in base 16, each value however often, and packed texts without what they have in common.
VERSION = 3
# Bytes of a text: no generated file is longer, and a record that unpacks to more was tampered with.
MOST = 1 << 24
PIECE = 12_000  # bytes that are packed by themselves, beside WINDOW of what they repeat
WINDOW = 32_000  # bytes; zlib looks back 32,506
UNREADABLE = (
    "take the file from version control; or remove it, and 'scaffold sync' asks"
)
_ORIGIN = ("spec", "configuration", "templates")  # digests
_PROVEN = ("spec", "function", "text")
SHARED = "op-testing"  # the record of what all tests import; no op is spelt like that
FORMER = ".base"  # version 1 had the text of each file in one of its own, OP.ROLE.base


class Origin(NamedTuple):
    """What the files of an op follow from: the version of this tool, and digests of the rest."""

    tool: str
    spec: str
    configuration: str
    templates: str
    reads: tuple[tuple[str, str], ...] = ()  # files that the formulas name

    def changed_since(self, before: "Origin") -> tuple[str, ...]:
        """Name the parts that differ, as a sentence does."""
        names = ("the tool", "the specification", "the configuration", "a template")
        pairs = zip(names, self[:4], before[:4], strict=True)
        changed = [name for name, now, then in pairs if now != then]
        if self.reads != before.reads:
            changed.append(names[1])
        return tuple(dict.fromkeys(changed))


class Kept(NamedTuple):
    """One file as it was written last: its part in the op, its path, digests of draft and text, and the text, packed."""

    role: str  # "op" or "test"; "op_testing" of what tests share
    path: str
    draft: str  # before it was formatted; "" once the op has no such file any more
    text: str
    base: str  # what a merge of the file starts from; see `pack`

    @property
    def written(self) -> str | None:
        """The text that was written last; None where it is lost, or not the one that the record means."""
        text = unpack(self.base)
        return text if text is not None and digest(text.encode()) == self.text else None


class Record(NamedTuple):
    """What is known of an op's files."""

    op: str
    manifest: str
    origin: Origin
    files: tuple[Kept, ...]
    proof: Proof | None = None
    former: tuple[str, ...] = ()  # files of version 1 that go once this is written

    def kept(self, role: str) -> Kept | None:
        """The file with that part in the op."""
        return next((item for item in self.files if item.role == role), None)


def digest(data: bytes) -> str:
    """The fingerprint of a file, whatever its line ends."""
    return hashlib.sha256(data.replace(b"\r\n", b"\n")).hexdigest()


def record_path(op: str) -> str:
    """Where the record of an op is, below the root."""
    return f"{DIRECTORY}/{op}.json"


def state_paths(record: Record) -> tuple[str, ...]:
    """Every file that a record consists of, in this version or an earlier one."""
    return (record_path(record.op), *record.former)


def kept_file(
    role: str, path: str, draft: str, text: str, before: Kept | None = None
) -> Kept:
    """The record of a file with this text; what the one from `before` says in the same words stays as it is.

    Two builds of zlib may pack a text differently, and a record shall change only where what it says does.
    """
    meant = digest(text.encode())
    if before is not None and before.text == meant and before.written is not None:
        return Kept(role, path, draft, meant, before.base)
    return Kept(role, path, draft, meant, pack(text))


def pack(text: str) -> str:
    """A text in a sixth of its length, as one line of ASCII: zlib that knows what generated files have in common, then base 85."""
    data = text.encode()
    packed = b""
    for start in range(0, len(data) or 1, PIECE):
        packing = zlib.compressobj(9, zdict=_common(start))
        packed += packing.compress(data[start : start + PIECE]) + packing.flush()
    return base64.b85encode(packed).decode()


def unpack(packed: str) -> str | None:
    """The text that was packed; None where that was changed since."""
    text = b""
    try:
        data = base64.b85decode(packed)
        while True:
            unpacking = zlib.decompressobj(zdict=_common(len(text)))
            piece = unpacking.decompress(data, MOST)
            data, text = unpacking.unused_data, text + piece
            if not unpacking.eof or data and len(piece) != PIECE or len(text) > MOST:
                return None
            if not data:
                return text.decode()
    except (ValueError, zlib.error):
        return None


@lru_cache(maxsize=8)
def _common(start: int) -> bytes:
    """What a piece of a text that begins there likely repeats: any op and its test, and that place of what tests share."""
    common = read_bytes(Path(__file__).with_name("common_text.txt"))
    ops, shared = common.replace(b"\r\n", b"\n").split(b"\f")
    around = WINDOW - len(ops)
    first = max(start - (around - PIECE) // 2, 0)
    return shared[first : first + around] + ops


def read_state(root: Path) -> dict[str, bytes]:
    """The files of all records of a project, by path below the root, as they stand."""
    try:
        names = sorted(os.listdir(root / DIRECTORY))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    found: dict[str, bytes] = {}
    problems: list[ScaffoldError] = []
    ours = (name for name in names if name.endswith((".json", FORMER)))
    for path in (f"{DIRECTORY}/{name}" for name in ours):
        try:
            found[path] = read_bytes(f"{root}/{path}")
        except OSError as error:
            if not os.path.lexists(root / path):
                continue  # another run has just removed the op
            message = f"cannot be read: {error.strerror}"
            problems.append(ScaffoldError(message, Location(path), UNREADABLE))
    raise_all(problems)
    return found


def decode_records(state: Mapping[str, bytes]) -> dict[str, Record]:
    """Every record of a project, by op."""
    found: dict[str, Record] = {}
    problems: list[ScaffoldError] = []
    for path, data in state.items():
        if not path.endswith(".json"):
            continue
        try:
            record = _record(data, path, state)
            found[record.op] = record
        except ScaffoldError as error:
            problems.append(error)
    raise_all(problems)
    return found


def _record(data: bytes, shown: str, state: Mapping[str, bytes]) -> Record:
    op = os.path.basename(shown).removesuffix(".json")
    try:
        return _decoded(json.loads(data), op, state)
    except json.JSONDecodeError as error:
        place = Location(shown, error.lineno, error.colno)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        place = Location(shown)
    raise ScaffoldError("is no record of an op", place, UNREADABLE)


def _decoded(raw: Any, op: str, state: Mapping[str, bytes]) -> Record:
    if raw["version"] > VERSION:
        message = (
            f"is a record of version {raw['version']}, this tool reads up to {VERSION}"
        )
        hint = (
            f"install the torch-scaffold that wrote it, {raw['tool']}, or a later one"
        )
        raise ScaffoldError(message, Location(record_path(op)), hint)
    said = _digest if raw["version"] > 2 else _hexadecimal
    reads = tuple(sorted((k, said(v)) for k, v in raw.get("reads", {}).items()))
    former = {
        role: path
        for role in raw["files"]
        if (path := f"{DIRECTORY}/{op}.{role}{FORMER}") in state
    }
    files = tuple(
        Kept(
            role,
            _below(file["path"]),
            said(file.get("draft", file["text"])),
            said(file["text"]),
            _text(file["base"]) if raw["version"] > 1 else _former(role, former, state),
        )
        for role, file in raw["files"].items()
    )
    spec, configuration, templates = (said(raw[key]) for key in _ORIGIN)
    origin = Origin(_text(raw["tool"]), spec, configuration, templates, reads)
    proof = _proof(raw.get("proof"), said)
    paths = tuple(former.values())
    return Record(op, _text(raw["manifest"]), origin, files, proof, paths)


def _former(role: str, former: Mapping[str, str], state: Mapping[str, bytes]) -> str:
    """What version 1 kept in a file of its own; "" where that is lost."""
    data = state[former[role]] if role in former else b""
    try:
        return pack(data.decode("utf-8").replace("\r\n", "\n"))
    except UnicodeDecodeError:
        return ""


def _proof(raw: Any, said: Callable[[Any], str]) -> Proof | None:
    """The proof of a record; those of earlier versions have none."""
    if raw is None:
        return None
    by, tool, torch = raw["by"], _text(raw["tool"]), _text(raw["torch"])
    if by not in get_args(By):
        raise ValueError
    spec, function, text = (said(raw[key]) for key in _PROVEN)
    return Proof(spec, function, text, by, tool, torch, _text(raw.get("lacks", "")))


def _below(value: Any) -> str:
    """A path below the root: what a record names may be moved and removed."""
    path = _text(value)
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError
    return path


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _shown(digest: str) -> str:
    """A digest in two thirds of its digits."""
    return base64.b85encode(bytes.fromhex(digest)).decode()


@lru_cache(maxsize=64)  # those of configuration and templates are in every record
def _digest(value: Any) -> str:
    return base64.b85decode(_text(value)).hex()


def _hexadecimal(value: Any) -> str:
    return bytes.fromhex(_text(value)).hex()


def encode(record: Record) -> str:
    """The text of a record; the same record is the same text. What most say alike is left out."""
    origin, proof = record.origin, record.proof
    told: dict[str, Any] = {"version": VERSION, "manifest": record.manifest}
    told["tool"] = origin.tool
    told |= {key: _shown(getattr(origin, key)) for key in _ORIGIN}
    if origin.reads:
        told["reads"] = {path: _shown(value) for path, value in origin.reads}
    told["files"] = {item.role: _encoded(item) for item in record.files}
    if proof is not None:
        told["proof"] = {key: _shown(getattr(proof, key)) for key in _PROVEN}
        told["proof"] |= {"by": proof.by, "tool": proof.tool, "torch": proof.torch}
        told["proof"] |= {"lacks": proof.lacks} if proof.lacks else {}
    return json.dumps(told, indent=2) + "\n"


def _encoded(kept: Kept) -> dict[str, str]:
    draft = {"draft": _shown(kept.draft)} if kept.draft != kept.text else {}
    return {"path": kept.path, **draft, "text": _shown(kept.text), "base": kept.base}


def written_record(record: Record) -> dict[str, str | None]:
    """The path and the text of a record; None for what an earlier version had beside it."""
    return {record_path(record.op): encode(record), **dict.fromkeys(record.former)}
