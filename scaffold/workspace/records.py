"""Records: the sources of an op's files, their texts as written, and the op's proof.

By a record a run knows which files are ours, which were edited by hand, and the text a merge of edits starts from. In: the files
below `.scaffold/`. Out: a `Record` for each op, and the text of one to be written. Invariant: a lost or changed record is
reported as such, never trusted (`reconcile` tells whether a generated file was edited); a proof counts only for the specification
and the Function proven.

Words: a *digest* is a hash by which a text is recognized; a *draft* is a generated text before formatting; a file's *base* is its
text as written last, packed; a file's *role* is "op" or "test"; a statement *binds* the names it defines or changes. What a part of a file
*said* is its syntax tree as text, to compare; *kept* is the record of one file; *former* files are those beside a record of version 1.
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
from scaffold.workspace.statements import flat, module_of

# --- The recorded proof of an op: its subject, its method, and whether it applies to the present file.
#
# In: the record's `Proof`, the digest of the op's present specification, the text of the op's file. Out: whether the
# proof still holds.
# Invariant: a proof is of a specification and of the code of the Function and its wrapper, with everything else they name in
# the file; formatting, comments, docstrings, the Module and the names of unrelated imports are no part of it, and neither are
# the versions of the tool and of PyTorch, kept for information.


By = Literal["proof", "tests"]
# Fields of a syntax tree that say nothing of the code's meaning.
_UNSAID = frozenset({"ctx", "kind", "type_comment"})  # of a syntax tree
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_DOCUMENTED, ast.alias, ast.Assign, ast.AnnAssign)


class Proof(NamedTuple):
    """The subject of an op's proof; or, in `lacks`, the reason there is none."""

    spec: str  # digest of the mathematical part of the specification
    function: str  # digest of the code as run
    text: str = ""  # digest of the file written with this code
    # "proof": the generated code was proven; "tests": the op's tests passed with the file's code.
    by: By = "proof"
    tool: str = ""
    torch: str = ""
    lacks: str = ""  # why no proof can be made: a part is left to write, say


def function_digest(text: str, names: Collection[str]) -> str:
    """Return the digest of the definitions with these names and of all they read in the file, directly or not; "" unless it is Python.

    A proof is of this code: it stays valid while the digest is the same. Imports count in any order, comments and docstrings not at
    all; every version of Python gives the same. If none of the names is defined, the whole file counts.
    """
    parts = _cut(text)
    if parts is None:
        return ""
    reached = {id(part) for part in _reached(parts, set(names))}
    meant = [part for part in parts if id(part) in reached] or parts
    lines: list[str] = []
    # Adjacent imports are sorted here: a sorter of imports may have changed their order.
    for imports, run in groupby(meant, lambda part: isinstance(part.node, ast.alias)):
        texts = (part.said for part in run)
        lines += sorted(texts) if imports else texts
    return hashlib.sha256("\n".join(lines).encode("utf-8", "replace")).hexdigest()


def meaning_digest(text: str) -> str:
    """Return a digest of a file that a formula comes from, of its code without comments and docstrings; of its text if it is no Python."""
    return (
        function_digest(text, ())
        or hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    )


def adds_only(base: str, text: str) -> bool:
    """Return whether edited tests, `text`, still ask all questions of the generated `base`: then passing them can count as a proof.

    They do with every statement of `base` and besides only definitions of new names: a class may get new methods. An added name that
    `base` reads, or a statement that is no definition, may change what is asked.
    """
    cuts = _cut(base), _cut(text)
    if cuts[0] is None or cuts[1] is None:
        return False
    before, after = (
        [one for part in cut or () for one in _members(part)] for cut in cuts
    )
    waiting = Counter(part.said for part in before)  # statements to be found
    taken = {name for part in before for name in (*part.binds, *part.reads)}
    for part in after:
        # A `Counter` gives 0 for a text that `base` does not have, or that was found as often already.
        if waiting[part.said]:
            waiting[part.said] -= 1
        elif part.binds & taken or not isinstance(part.node, _DEFINITIONS):
            return False
    return not waiting.total()


def _members(part: "_Part") -> Iterator["_Part"]:
    """Yield a class as several parts, its head without a body and each statement inside as `Class.name`; any other part as it is."""
    if not isinstance(part.node, ast.ClassDef):
        yield part
        return
    head = copy.copy(part.node)
    head.body = []
    yield part._replace(node=head)
    for statement in _without_docstring(part.node.body):
        for one in _parts(statement):
            # So a new method `T.test_b` may have the name of a function elsewhere in the file.
            binds = {f"{part.node.name}.{name}" for name in one.binds}
            origin = f"{part.node.name}.{one.origin}"
            yield one._replace(binds=binds, origin=origin)


def _cut(text: str) -> list["_Part"] | None:
    """Return the parts of a file, its statements and the single names of its imports, without docstrings; None unless it is Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about the code's escapes
            statements = _without_docstring(ast.parse(text).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return [part for statement in statements for part in _parts(statement)]


class _Part(NamedTuple):
    """A statement of a file, or a single name of an import, so sorting and splitting imports changes nothing."""

    node: ast.AST
    binds: set[str]  # the names it defines or changes
    reads: set[str]  # the names in it
    origin: str = ""  # of an imported name, the module it is from

    @property
    def said(self) -> str:
        """Return the part as text, to compare and to digest."""
        return f"{self.origin}{_said(self.node)}"


def _parts(statement: ast.stmt) -> Iterator[_Part]:
    """Yield a statement as one part, an import as one for each name, also inside `try: import ... except`.

    A part binds the names it defines or assigns; a statement of any other kind, such as a loop, all it mentions: it may change them.
    """
    read = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
    match statement:
        case ast.Import(names) | ast.ImportFrom(names=names):
            origin = module_of(statement) or ""
            for alias in names:
                yield _Part(alias, {_binding(alias)}, set(), f"import {origin} ")
        case ast.Try([ast.Import() | ast.ImportFrom() as imported], handlers, [], []):
            # What lies beside the file, if it is there: in which package is no part of what the file says.
            for alias in imported.names:
                yield _Part(alias, {_binding(alias)}, set(), "beside ")
            for handler in handlers:
                yield _Part(handler, read | set(_defined(handler)), read)
        case ast.ClassDef(name) | ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
            yield _Part(statement, {name}, read)
        case ast.Assign(targets):
            bound = {_root(each) for each in flat(targets)}
            yield _Part(statement, bound, read)
        case ast.AnnAssign(target) | ast.AugAssign(target):
            yield _Part(statement, {_root(target)}, read)
        case _:  # it may change anything it names
            yield _Part(statement, read | set(_defined(statement)), read)


def _binding(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _root(target: ast.expr) -> str:
    """Return the name an assignment to this target binds or changes: `torch` of `torch.backends.cudnn.enabled`; "" if it is none's."""
    while isinstance(target, (ast.Attribute, ast.Subscript, ast.Starred)):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""


def _defined(statement: ast.AST) -> Iterator[str]:
    """Yield the names that imports, classes and functions inside a compound statement define, as under `if TYPE_CHECKING:`."""
    for node in ast.walk(statement):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from map(_binding, node.names)
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name


def _reached(parts: list[_Part], wanted: set[str]) -> Iterator[_Part]:
    """Yield the parts binding a wanted name, then the parts binding a name these read, and so on: all the wanted code depends on."""
    waiting = parts
    while found := [part for part in waiting if part.binds & wanted]:
        yield from found
        waiting = [part for part in waiting if not part.binds & wanted]
        for part in found:
            wanted = wanted | part.reads


def _said(value: object) -> str:
    """Return a syntax tree as text to compare, without docstrings and empty fields: by the latter versions of Python differ."""
    match value:
        # Before the case of any other node: `del (a, b)` and `del a, b` are different trees.
        case ast.Delete(targets):
            return f"Delete({_said(list(flat(targets)))})"
        case ast.AST():
            fields = []
            for name in value._fields:
                item = getattr(value, name, None)
                if name == "body" and isinstance(value, _DOCUMENTED):
                    item = _without_docstring(value.body)
                # An empty list, as `type_params`, is a field of newer versions of Python alone.
                if name not in _UNSAID and item is not None and item != []:
                    fields.append(f"{name}={_said(item)}")
            return f"{type(value).__name__}({', '.join(fields)})"
        case list():
            return f"[{', '.join(map(_said, value))}]"
    return repr(value)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a body after its docstring."""
    match body:
        case [ast.Expr(ast.Constant(str())), *rest]:
            return rest
    return body


# --- The records of a project: the sources of an op's files, and their texts as written.


DIRECTORY = ".scaffold"
# Version 2 had digests in base 16, repeated values, and texts packed without a common dictionary.
VERSION = 3
# Bytes of a text: no generated file is longer, and a record unpacking to more was tampered with.
MOST = 1 << 24
PIECE = 12_000  # bytes packed as one, beside WINDOW of dictionary
WINDOW = 32_000  # bytes; zlib looks back 32,506
UNREADABLE = "restore it from version control; or remove it and run 'scaffold sync', which then asks"
# Fields of an `Origin` and a `Proof` that are digests.
_ORIGIN = ("spec", "configuration", "templates")
_PROVEN = ("spec", "function", "text")
SHARED = "op-testing"  # the record of `op_testing`; no op is spelt like this
FORMER = ".base"  # version 1 had the text of each file in one of its own, OP.ROLE.base


class Origin(NamedTuple):
    """The sources of an op's files: the version of this tool, and digests of the rest."""

    tool: str
    spec: str
    configuration: str
    templates: str
    reads: tuple[tuple[str, str], ...] = ()  # files named by the formulas

    def changed_since(self, before: "Origin") -> tuple[str, ...]:
        """Return which sources of the files have changed since an earlier origin, in words for a sentence: "the specification", "a template"."""
        names = ("the tool", "the specification", "the configuration", "a template")
        pairs = zip(names, self[:4], before[:4], strict=True)
        changed = [name for name, now, then in pairs if now != then]
        # A file with a formula is a part of the specification.
        if self.reads != before.reads:
            changed.append("the specification")
        return tuple(dict.fromkeys(changed))


class Kept(NamedTuple):
    """The record of one file: its role in the op, its path, digests of its text before and after formatting, and the packed text."""

    role: str  # "op" or "test"; "op_testing" for the shared code
    path: str
    draft: str  # before formatting; "" once the op no longer has this file
    text: str
    base: str  # the base of a merge; see `pack`

    @property
    def written(self) -> str | None:
        """Return the text written last; None if it is lost or does not match its digest."""
        text = unpack(self.base)
        return text if text is not None and digest(text.encode()) == self.text else None


class Record(NamedTuple):
    """The record of an op's files."""

    op: str
    manifest: str
    origin: Origin
    files: tuple[Kept, ...]
    proof: Proof | None = None
    former: tuple[str, ...] = ()  # files of version 1, removed once this is written

    def kept(self, role: str) -> Kept | None:
        """Return the record of the file in this role ("op", "test"); None if the op has no such file."""
        return next((item for item in self.files if item.role == role), None)


def digest(data: bytes) -> str:
    """Return the digest of a file's content, the same for both kinds of line ends."""
    return hashlib.sha256(data.replace(b"\r\n", b"\n")).hexdigest()


def record_path(op: str) -> str:
    """Return the path of an op's record, below the root."""
    return f"{DIRECTORY}/{op}.json"


def state_paths(record: Record) -> tuple[str, ...]:
    """Return the paths of all files of a record, in this version or an earlier one."""
    return (record_path(record.op), *record.former)


def kept_file(
    role: str, path: str, draft: str, text: str, before: Kept | None = None
) -> Kept:
    """Return the record of a file written with this text, which it holds packed; `draft` is the digest of the draft.

    `before`, the file's record so far, gives the packed text if the text is unchanged: builds of zlib pack it differently, and a
    record must change only with its content.
    """
    written = digest(text.encode())
    # A damaged packed text (`written` is None) is packed anew.
    if before is not None and before.text == written and before.written is not None:
        return Kept(role, path, draft, written, before.base)
    return Kept(role, path, draft, written, pack(text))


def pack(text: str) -> str:
    """Return a text as one line of ASCII, a sixth of its length: base 85 of zlib's output, with a dictionary of text common to ops.

    It is packed in pieces, since a dictionary near the piece's place in the text finds more in common.
    """
    data = text.encode()
    packed = b""
    # `or 1`: of an empty text there is one piece too, as `unpack` reads one at least.
    for start in range(0, len(data) or 1, PIECE):
        packing = zlib.compressobj(9, zdict=_common(start))
        packed += packing.compress(data[start : start + PIECE]) + packing.flush()
    return base64.b85encode(packed).decode()


def unpack(packed: str) -> str | None:
    """Return the text `pack` packed; None if it was altered, or is longer than any we write.

    Piece by piece: each but the last must have the full length, and what follows it is the next one.
    """
    text = b""
    try:
        data = base64.b85decode(packed)
        while True:
            unpacking = zlib.decompressobj(zdict=_common(len(text)))
            # At most MOST bytes: a record that was tampered with could unpack to any length.
            piece = unpacking.decompress(data, MOST)
            data, text = unpacking.unused_data, text + piece
            # Cut off; a piece in the middle that is not of full length; longer than any file we write.
            if not unpacking.eof or data and len(piece) != PIECE or len(text) > MOST:
                return None
            if not data:
                return text.decode()
    except (ValueError, zlib.error):
        return None


@lru_cache(maxsize=8)
def _common(start: int) -> bytes:
    """Return zlib's dictionary for the piece at byte `start` of a text: common text of ops, and of the shared tests the part around there."""
    common = read_bytes(Path(__file__).with_name("common_text.txt"))
    # The file has two parts with a form feed between: text common to ops, and the shared tests.
    ops, shared = common.replace(b"\r\n", b"\n").split(b"\f")
    around = WINDOW - len(ops)
    # The piece lies in the middle of the part taken, so text before and after it is found.
    first = max(start - (around - PIECE) // 2, 0)
    return shared[first : first + around] + ops


def read_state(root: Path) -> dict[str, bytes]:
    """Return the files of all records of a project as read, by path below the root; raise ScaffoldError for unreadable ones."""
    try:
        names = sorted(os.listdir(root / DIRECTORY))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    found: dict[str, bytes] = {}
    problems: list[ScaffoldError] = []
    # Files of another name are none of a record, and are not read.
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
    """Return the records in a project's files, by op; `state` has the bytes by path. Raise ScaffoldError for invalid ones, all at once."""
    found: dict[str, Record] = {}
    problems: list[ScaffoldError] = []
    for path, data in state.items():
        # A text beside a record of version 1: `_former` reads it for that record.
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
    """Return the record in a file's bytes; raise ScaffoldError if it is none. `shown` is its path, `state` has all files of records."""
    op = os.path.basename(shown).removesuffix(".json")
    try:
        return _decoded(json.loads(data), op, state)
    except json.JSONDecodeError as error:
        place = Location(shown, error.lineno, error.colno)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        place = Location(shown)
    raise ScaffoldError("is not a valid record of an op", place, UNREADABLE)


def _decoded(raw: Any, op: str, state: Mapping[str, bytes]) -> Record:
    """Return the record of an op in a parsed JSON object of any version so far; raise KeyError, TypeError or ValueError for an invalid one.

    `state` has the files beside it, in which version 1 kept texts; `digest_of` decodes a digest, as the version spells it.
    """
    if raw["version"] > VERSION:
        message = (
            f"is a record of version {raw['version']}, this tool reads up to {VERSION}"
        )
        hint = (
            f"install the torch-scaffold that wrote it, {raw['tool']}, or a later one"
        )
        raise ScaffoldError(message, Location(record_path(op)), hint)
    digest_of = _digest if raw["version"] > 2 else _hexadecimal
    reads = tuple(sorted((k, digest_of(v)) for k, v in raw.get("reads", {}).items()))
    # Of version 1: the path of each file's text, by role.
    former = {
        role: path
        for role in raw["files"]
        if (path := f"{DIRECTORY}/{op}.{role}{FORMER}") in state
    }
    files = tuple(
        Kept(
            role,
            _below(file["path"]),
            # A draft equal to the text is left out (`_encoded`): formatting changed nothing.
            digest_of(file.get("draft", file["text"])),
            digest_of(file["text"]),
            _text(file["base"]) if raw["version"] > 1 else _former(role, former, state),
        )
        for role, file in raw["files"].items()
    )
    spec, configuration, templates = (digest_of(raw[key]) for key in _ORIGIN)
    origin = Origin(_text(raw["tool"]), spec, configuration, templates, reads)
    proof = _proof(raw.get("proof"), digest_of)
    paths = tuple(former.values())
    return Record(op, _text(raw["manifest"]), origin, files, proof, paths)


def _former(role: str, former: Mapping[str, str], state: Mapping[str, bytes]) -> str:
    """Return the text of a file, packed, from a record of version 1, with the text in a file beside it; "" if this is lost.

    `former` has the paths of these files by role, `state` their bytes.
    """
    data = state[former[role]] if role in former else b""
    try:
        return pack(data.decode("utf-8").replace("\r\n", "\n"))
    except UnicodeDecodeError:
        return ""


def _proof(raw: Any, digest_of: Callable[[Any], str]) -> Proof | None:
    """Return the proof in a record's JSON; None if it has none. `digest_of` decodes a digest, as the record's version spells it.

    Raise ValueError if the proof is by an unknown command, KeyError or TypeError for JSON of another form.
    """
    if raw is None:
        return None
    by, tool, torch = raw["by"], _text(raw["tool"]), _text(raw["torch"])
    if by not in get_args(By):
        raise ValueError
    spec, function, text = (digest_of(raw[key]) for key in _PROVEN)
    return Proof(spec, function, text, by, tool, torch, _text(raw.get("lacks", "")))


def _below(value: Any) -> str:
    """Return a recorded path; raise ValueError unless it lies below the root: runs move and remove recorded files, and may not outside it."""
    path = _text(value)
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError
    return path


def _text(value: Any) -> str:
    """Return a JSON value if it is a string; raise TypeError for any other."""
    if not isinstance(value, str):
        raise TypeError
    return value


def _base85(digest: str) -> str:
    """Return a hexadecimal digest in base 85, two thirds as long; `_digest` reads it."""
    return base64.b85encode(bytes.fromhex(digest)).decode()


@lru_cache(maxsize=64)  # configuration and templates recur in every record
def _digest(value: Any) -> str:
    """Return the hexadecimal digest of one in base 85, as a record has it."""
    return base64.b85decode(_text(value)).hex()


def _hexadecimal(value: Any) -> str:
    """Return the hexadecimal digest in a record of version 1 or 2; raise ValueError for another text."""
    return bytes.fromhex(_text(value)).hex()


def encode(record: Record) -> str:
    """Return the JSON text of a record, to be written to `.scaffold/OP.json`; equal for equal records, so version control is quiet."""
    origin, proof = record.origin, record.proof
    raw: dict[str, Any] = {"version": VERSION, "manifest": record.manifest}
    raw["tool"] = origin.tool
    raw |= {key: _base85(getattr(origin, key)) for key in _ORIGIN}
    if origin.reads:
        raw["reads"] = {path: _base85(value) for path, value in origin.reads}
    raw["files"] = {item.role: _encoded(item) for item in record.files}
    if proof is not None:
        raw["proof"] = {key: _base85(getattr(proof, key)) for key in _PROVEN}
        raw["proof"] |= {"by": proof.by, "tool": proof.tool, "torch": proof.torch}
        raw["proof"] |= {"lacks": proof.lacks} if proof.lacks else {}
    return json.dumps(raw, indent=2) + "\n"


def _encoded(kept: Kept) -> dict[str, str]:
    """Return the JSON object of one file; its draft's digest is left out if formatting changed nothing."""
    draft = {"draft": _base85(kept.draft)} if kept.draft != kept.text else {}
    return {"path": kept.path, **draft, "text": _base85(kept.text), "base": kept.base}


def written_record(record: Record) -> dict[str, str | None]:
    """Return the files to write for a record, by path: its JSON, and None, for removal, for each file of version 1 beside it."""
    return {record_path(record.op): encode(record), **dict.fromkeys(record.former)}
