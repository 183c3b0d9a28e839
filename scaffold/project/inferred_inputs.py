"""The inputs of an op that states none: the parameters of its forward, or the free names of an expression.

In: the text of a forward, or '@file.py:function', and what the op imports. Out: the value of `inputs`, in the order of the
signature or of the text. Invariant: only a name that stands where PyTorch takes a tensor becomes one. What may be a dim, an
eps or an index is refused, with the whole of `--inputs` to copy: a guess would give a number a gradient.
"""

import ast
import re
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from itertools import count, dropwhile, filterfalse
from typing import Any, Literal, NamedTuple

from scaffold.errors import Location, ScaffoldError, raise_all
from scaffold.formula import BUILTINS, Scope, Text
from scaffold.formula.constant_folding import BINARY
from scaffold.formula.definitions import (
    RESERVED,
    defaults,
    dotted_name,
    parameters,
    resolve,
)
from scaffold.formula.module_forward import attribute_names, modules_named, starts
from scaffold.formula.operators import (
    ARRAYS,
    is_tensor_word,
    is_torch_word,
    judged_value,
    not_operators,
    root_of,
)
from scaffold.formula.program import Program, program_of
from scaffold.formula.text import WELL_KNOWN, Meanings, Origin, place_in
from scaffold.inspect.declarations import named_kind
from scaffold.inspect.trial_inputs import NAMED
from scaffold.primitives import normalized
from scaffold.primitives.calls import facts_of_call, is_constant, is_made_of_numbers
from scaffold.primitives.facts import MOVING
from scaffold.primitives.python_values import ATTRIBUTES, METHODS, READ_OUT
from scaffold.primitives.sections import built_in_primitives
from scaffold.primitives.slots import Argument, Call, Slot, Taken, calls_of
from scaffold.spec.config_keys import PARAMETERS
from scaffold.spec.grammar import Entry, parse_entries
from scaffold.spec.imports import parse_imports
from scaffold.spec.maths import read_reference, refuse_file
from scaffold.spec.module import parse_init
from scaffold.spec.op_spec import Dim, OpSpec, TensorInput
from scaffold.spec.problems import Locate
from scaffold.spec.signature import parse_inputs

Arguments = Mapping[Argument, ast.expr]
Names = Collection[str]
OWNED = {"Parameter": "params", "Buffer": "buffers"}
SEVERAL = {"list", "List", "tuple", "Tuple", "Sequence", "Iterable"}


class Unsaid(ScaffoldError):
    """What a forward leaves open of its inputs; `proposal` is a whole value of `inputs`."""

    def __init__(
        self, message: str, location: Location, hint: str | None, proposal: str
    ) -> None:
        super().__init__(message, location, hint)
        self.proposal = proposal


class Inferred(NamedTuple):
    """What a forward says of its inputs; of an nn.Module also which of them it owns, and how they start."""

    inputs: str
    params: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    init: Mapping[str, str] = {}
    unkept: tuple[str, ...] = ()  # those that start in a way that `init` cannot say
    of_members: tuple[str, ...] = ()  # those that a module in the nn.Module has
    entries: tuple[str, ...] = ()  # the inputs one by one
    # Of what an nn.Module owns: "out_features, in_features".
    shapes: Mapping[str, str] = {}
    stated: bool = False  # the inputs are the user's: the rest is said of them
    notes: tuple[str, ...] = ()  # what stated inputs leave out of an nn.Module

    def added_to(self, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        """A table with what it leaves out, which comes first in it; of a module only where there is one."""
        if raw.get("module") is False:
            return {"inputs": self.inputs, **raw}
        said = {*raw.get("params", ()), *raw.get("buffers", ())}
        lists = {"params": self.params, "buffers": self.buffers}
        kept = {key: [*filterfalse(said.__contains__, lists[key])] for key in lists}
        listed = {key: names for key, names in kept.items() if names}
        found = {"inputs": self.inputs, **listed, **raw}
        owned = {*found.get("params", ()), *found.get("buffers", ())}
        init = {name: text for name, text in self.init.items() if name in owned}
        return found | ({"init": init | raw.get("init", {})} if init else {})


def inferred_inputs(
    raw: Mapping[str, Any], locate: Locate, read: Callable[[str], str]
) -> Inferred | None:
    """The inputs that a table leaves out; None where there is no forward to tell them."""
    stated = raw.get("forward")
    if {"inputs", "schema"} & raw.keys() or not isinstance(stated, str):
        return None
    imported = frozenset(
        item.binding.split(".")[0]
        for position, text in enumerate(raw.get("import", ()))
        for item in parse_imports(text, locate(("import", str(position))))
    )
    place = locate(("forward",))
    refuse_file(stated, place)
    option = place.source.startswith("--")
    write = "--inputs " if option else "inputs="
    if not stated.lstrip().startswith("@"):
        return _of_text(Text(stated, place), imported, write)
    found = read_reference(stated, "forward", place, read, imported)
    imported |= {
        alias or name or module.split(".")[0] for module, name, alias in found.imports
    }
    origin = found.text.origin
    assert origin is not None  # it is the text of a file
    if origin.function is None:
        return _of_text(found.text, imported, write)
    return _of_function(origin, origin.function, found.text, imported, write)


def _of_text(text: Text, imported: Names, write: str) -> Inferred:
    """The free names of an expression or of statements, in their order."""
    program = program_of(text, Scope(frozenset()))
    uses = _Uses(imported)
    uses.block(program.body)
    found = sorted(uses.of.items(), key=lambda item: min(map(_position, item[1])))
    known = {name: _judged(name, used) for name, used in found}
    if all(": " in item.entry for item in known.values()):  # one of them is a tensor
        known = {name: _judged(name, used, by_name=False) for name, used in found}
    return _entries(known, program, write)


def _of_function(
    origin: Origin, name: str, text: Text, imported: Names, write: str
) -> Inferred:
    """The parameters of a function; how its body uses them tells what annotations and defaults do not."""
    node = origin.definitions.functions[name]
    function = resolve(name, node, origin.definitions, called=False)
    arguments, given = node.args, defaults(function.arguments)
    named = [*arguments.posonlyargs, *arguments.args]
    named += [arguments.vararg] if arguments.vararg else []
    named += arguments.kwonlyargs
    names = frozenset(item.arg for item in named)
    program = program_of(text, Scope(names))
    uses = _Uses(imported, names)
    uses.block(program.body)
    known = {}
    of_class = "." in name
    own = _parameters_of_forward(origin, name) if of_class else names
    for item in named:
        stated = _declared(item, given.get(item.arg), item is arguments.vararg, origin)
        found = uses.of.get(item.arg, [_Use("unclear", item, "")])
        default = given.get(item.arg)
        if item is arguments.vararg and stated is None:
            said = f"'*{item.arg}' does not say what it takes"
            stated = _Judged(f"*{item.arg}", said, item)
        if stated and stated.entry.rstrip("?") == item.arg:  # a tensor of whatever
            elements = _proven(item.arg, found, _annotation(item.annotation))
            if elements and not elements.is_value:
                many = "?" * stated.entry.endswith("?")
                entry = f"{item.arg}[; {elements.kind}]{many}"
                stated = stated._replace(entry=entry, said=elements.said)
        if stated is None and default is not None:  # it is None
            found = [*found, _Use("optional", item, "")]
        judged = stated or _judged(item.arg, found)
        if item.arg not in own and {use.takes for use in found} == {"value"}:
            judged = judged._replace(refused="")  # self.num_groups is no tensor there
        known[item.arg] = judged
    return _with_starts(_entries(known, program, write), origin, name)


def _with_starts(
    inferred: Inferred,
    origin: Origin,
    name: str,
    dims: Mapping[str, tuple[Dim, ...] | None] = {},
) -> Inferred:
    """The inputs of an nn.Module, with how its `__init__` starts those that it owns."""
    owned = (*inferred.params, *inferred.buffers)
    if not owned:
        return inferred
    (layer,) = modules_named(origin.module, name)
    init, unkept = dict[str, str](), list[str]()
    for parameter, text in starts(layer, origin.module).items():
        try:
            parse_init(parameter, text, Location("__init__"), dims.get(parameter))
        except ScaffoldError:
            unkept += [parameter] if parameter in owned else []
        else:
            init |= {parameter: text} if parameter in owned else {}
    below = tuple(name for name in owned if name not in attribute_names(layer))
    return inferred._replace(init=init, unkept=tuple(unkept), of_members=below)


# --- The shapes that an nn.Module says.


def with_shapes(
    inferred: Inferred, spec_of: Callable[[Inferred], OpSpec | None]
) -> Inferred:
    """The inputs of an nn.Module with the sizes that its `__init__` gives its parameters.

    The last size of every other tensor has to follow, from what the forward computes of it with the parameters; or else nothing
    is declared, since the tests could not tell which sizes go together.
    """
    owned = {*inferred.params, *inferred.buffers}
    names = [re.split(r"\W", entry, maxsplit=1)[0] for entry in inferred.entries]
    others = [name for name in names if name not in owned]
    tensors = [name for name in others if {name, f"{name}?"} & {*inferred.entries}]
    attributes = [entry for entry in inferred.entries if ": " in entry]
    sizes = set(re.findall(r"[A-Za-z_]\w*", " ".join(inferred.shapes.values())))
    if inferred.shapes.keys() < owned or sizes & {*names} or not tensors:
        return inferred
    if len(owned) + len(tensors) + len(attributes) < len(names):
        return inferred  # positions, masks, any number of tensors
    last = {name: f"last_of_{name}" for name in tensors}
    for _ in tensors:
        from scaffold.derive.enforced_sizes import met_sizes  # the engine

        spec = spec_of(_shaped(inferred, last))
        for pair in met_sizes(spec) if spec else ():
            for name, one, two in ((name, *pair) for name in tensors):
                if last[name] in (one, two):
                    other = two if last[name] == one else one
                    last[name] = other if other in sizes else last[name]
    return _shaped(inferred, last) if {*last.values()} <= sizes else inferred


def _shaped(inferred: Inferred, last: Mapping[str, str]) -> Inferred:
    dims = {**inferred.shapes, **{name: f"..., {size}" for name, size in last.items()}}
    entries = tuple(with_dims(entry, dims) for entry in inferred.entries)
    return inferred._replace(inputs=", ".join(entries), entries=entries)


# --- What an nn.Module says of inputs that are stated.


def of_stated_inputs(
    raw: Mapping[str, Any], locate: Locate, read: Callable[[str], str]
) -> Inferred | None:
    """Which of the stated inputs an nn.Module of a file owns, and how they start; None of any other forward.

    What is amiss in inputs or file is told when the op is built.
    """
    stated, inputs = raw.get("forward"), raw.get("inputs")
    if not isinstance(stated, str) or not isinstance(inputs, str):
        return None
    if not stated.lstrip().startswith("@"):
        return None
    try:
        found = read_reference(stated, "forward", locate(("forward",)), read)
        every = parse_inputs(inputs, locate(("inputs",)))
    except ScaffoldError:
        return None
    origin = found.text.origin
    if origin is None or "." not in (origin.function or ""):
        return None  # `Norm.forward` alone is a method
    assert origin.function is not None
    node = origin.definitions.functions[origin.function]
    kinds = {item.arg: _annotation(item.annotation) for item in node.args.kwonlyargs}
    said = {name: owned_kind(kind) for name, kind in kinds.items()}
    changed = raw.get("dirty", ())
    tensors = [item for item in every if isinstance(item, TensorInput)]
    fitting = [one for one in tensors if not one.variadic and one.name not in changed]
    params = [item.name for item in fitting if item.differentiable]
    buffers = [item.name for item in fitting if not item.optional]
    params = [name for name in params if said.get(name) == "Parameter"]
    buffers = [name for name in buffers if said.get(name) == "Buffer"]
    if len({*params, *buffers}) == len(tensors):  # the module has to take one
        params, buffers = [], []
    names = {item.name for item in every}
    notes = [
        *_unowned(said, names - {*params, *buffers}),
        *_fixed(origin, origin.function, names),
    ]
    known = Inferred(inputs, (*params,), (*buffers,), stated=True, notes=(*notes,))
    dims = {item.name: item.dims for item in fitting}
    return _with_starts(known, origin, origin.function, dims)


def _unowned(said: Mapping[str, str], names: Names) -> Iterator[str]:
    """What the inputs say is none of those that the module of the file owns."""
    for name, kind in said.items():
        if kind in OWNED and name in names:
            yield f"{name} is a {kind.lower()} in the file, and cannot be one as --inputs has it"


def _parameters_of_forward(origin: Origin, name: str) -> frozenset[str]:
    """What the forward of a class takes itself, beside what it reads of `self`."""
    (layer,) = modules_named(origin.module, name)
    return frozenset(
        item.arg
        for method in layer.body
        if isinstance(method, ast.FunctionDef) and method.name == "forward"
        for item in parameters(method.args)
    )


def _fixed(origin: Origin, name: str, names: Names) -> Iterator[str]:
    """The attributes that are left out of the inputs, and so have the value that `__init__` says."""
    node = origin.definitions.functions[name]
    given = defaults(node.args)
    own = _parameters_of_forward(origin, name)
    for item in node.args.kwonlyargs:
        if item.arg in names or item.arg in own or item.arg not in given:
            continue
        value = _source(given[item.arg], origin)
        yield f"self.{item.arg} is {value} always: --inputs leaves it out"


# --- What an annotation or a default says.


class _Judged(NamedTuple):
    """An entry of the inputs; `refused` says why it has to be stated, at a node of the forward."""

    entry: str
    refused: str = ""
    node: ast.AST | None = None
    owned: str = ""  # params or buffers: what an nn.Module has of it
    shape: str = ""  # and the sizes that its `__init__` gives it
    said: str = ""  # what proves what it is


def _declared(
    item: ast.arg, default: ast.expr | None, variadic: bool, origin: Origin
) -> "_Judged | None":
    """What the signature says of a parameter; None where that is nothing, or no more than that it may be None."""
    none = isinstance(default, ast.Constant) and default.value is None
    kind = _annotation(item.annotation)
    word = owned_kind(kind)
    if word in OWNED:
        trait = "[; const]" if word == "Buffer" else ""
        entry = f"{item.arg}{trait}{'?' if none else ''}"
        sizes = kind.partition("[")[2].removesuffix("]")
        return _Judged(entry, owned=OWNED[word], shape=sizes)
    if "Tensor" in kind:
        several = variadic or kind.rpartition(".")[2].partition("[")[0] in SEVERAL
        optional = "?" if none or "None" in kind or "Optional" in kind else ""
        return _Judged(f"*{item.arg}" if several else f"{item.arg}{optional}")
    if variadic:
        return None
    assigned = "" if default is None else f" = {_source(default, origin)}"
    if kind:
        return _Judged(f"{item.arg}: {kind}{assigned}")
    if default is None or none:
        return None
    try:
        value = ast.literal_eval(default)
    except (ValueError, TypeError):
        return _Judged(f"{item.arg}{assigned}")
    simple = type(value) in (int, float, bool, str)
    stated = f": {type(value).__name__}" if simple else ""
    return _Judged(f"{item.arg}{stated}{assigned}")


def owned_kind(annotation: str) -> str:
    """`Parameter` of `Parameter[dim]`, the annotation of what an nn.Module owns."""
    return annotation.partition("[")[0].rpartition(".")[2]


def _annotation(node: ast.expr | None) -> str:
    """The type as text: of one that is quoted what stands in the quotes, `float | None` for Optional[float]."""
    match node:
        case None:
            return ""
        case ast.Constant(str(text)):
            return text
        case ast.Subscript(ast.Name("Optional") | ast.Attribute(_, "Optional"), inner):
            return f"{_annotation(inner)} | None"
    return ast.unparse(node).removeprefix("typing.")


def _source(default: ast.expr, origin: Origin) -> str:
    """A default as it is written; what a constant of the file stands for is written anew."""
    shown = ast.get_source_segment(origin.source, default) or ""
    try:
        same = ast.dump(ast.parse(shown, mode="eval").body) == ast.dump(default)
    except SyntaxError:
        same = False
    return shown if same else ast.unparse(default)


# --- How the names of a forward are used.


Takes = (
    Taken
    | Literal[
        "index", "constant", "moved", "operand", "optional", "assigned", "unclear"
    ]
)


class _Use(NamedTuple):
    """What is taken where a name stands, and by what."""

    takes: Takes
    node: ast.AST
    where: str
    type: str = ""
    given: frozenset[str] = frozenset()  # the conditions under which it is used so


ByKind = Mapping[Takes, _Use]
Expected = Callable[[ast.expr], _Use]  # what is taken where an expression stands


def _position(use: _Use) -> tuple[int, int]:
    node = use.node
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def _used(takes: Takes, where: str = "") -> Expected:
    """What is taken by an expression that takes it wherever it stands."""
    return lambda node: _Use(takes, node, where)


_unclear, _tensor, _operand = _used("unclear"), _used("tensor"), _used("operand")
_moved = _used("moved")  # a tensor, whatever its elements are: `x.shape`, `x.long()`
_assigned = _used("assigned")  # what it is assigned to tells what it is
_constant, _optional = _used("constant"), _used("optional")
_index = _used("index", "an index")


def _condition(node: ast.expr) -> _Use:
    """What is true or not, as a number may be too."""
    given = frozenset(("condition",))
    return _Use("value", node, "it is a condition", "bool", given)


def _value(kind: str, where: str) -> Expected:
    return lambda node: _Use("value", node, where, kind)


class _Meaning(NamedTuple):
    """What a name may stand for: inputs themselves, or what has their elements, moved or computed with (`labels.view(-1)`).

    Those of `sure` are integers or booleans if it is; of the others only one has to be. What it is computed of by an operator is
    used by value there, and not again where the result is.
    """

    itself: frozenset[str] = frozenset()
    elements: frozenset[str] = frozenset()
    sure: frozenset[str] = frozenset()
    plain: frozenset[str] = frozenset()  # of the elements those as they were

    @property
    def moved(self) -> "_Meaning":
        """What has its elements."""
        return _Meaning(
            frozenset(),
            self.itself | self.elements,
            self.sure,
            self.itself | self.plain,
        )

    @property
    def doubted(self) -> "_Meaning":
        return self._replace(sure=frozenset())


def _itself(name: str) -> _Meaning:
    """An input that nothing was assigned to."""
    return _Meaning(frozenset((name,)), frozenset(), frozenset((name,)))


def _all_of(parts: Iterable[_Meaning]) -> _Meaning:
    """What is computed of several, which are of one kind."""
    return _Meaning(*(frozenset().union(*sets) for sets in zip(*parts, strict=True)))


def _one_of(ways: Sequence[_Meaning]) -> _Meaning:
    """What is one of several."""
    return _all_of(ways)._replace(
        sure=ways[0].sure.intersection(*(way.sure for way in ways))
    )


class _Uses:
    """Goes through statements, and notes each use of a name that nothing before it binds; `of` has them by name.

    Of what a condition chooses, a loop may leave out, or a function may never run, the use is noted with that.
    """

    def __init__(self, imported: Names, own: Names = ()) -> None:
        self.known = {*imported, *BUILTINS}  # what may be called
        self.own = {*own}
        self.bound = {*self.known, *RESERVED, *ARRAYS} - self.own
        self.of: dict[str, list[_Use]] = {}
        self.means: dict[str, _Meaning] = {}  # of names that are assigned
        self.rows = set[str]()  # what a name is unpacked to, which may be a tuple
        self.given: frozenset[str] = frozenset()  # the conditions here
        self.numbers = count()

    def fresh(self) -> str:
        """A condition of which nothing is known."""
        return f"#{next(self.numbers)}"

    def meaning(self, name: str) -> _Meaning:
        if name in self.bound:
            return self.means.get(name, _Meaning())
        return self.means.get(name) or _itself(name)

    def block(self, body: Sequence[ast.stmt]) -> None:
        given = self.given
        for item in body:
            self.statement(item)
            if not isinstance(item, ast.If) and _leaves(item, ast.Return):
                self.given |= {self.fresh()}
        self.given = given

    def statement(self, item: ast.stmt) -> None:
        match item:
            case ast.Return(value) | ast.Expr(value) if value is not None:
                self.expression(value, _tensor)
            case ast.Assign(targets, value):
                self.assign(targets, value)
            case ast.AnnAssign(target, _, value):
                if value is not None:
                    self.assign([target], value)
            case ast.AugAssign(target, operator, value):
                both = ast.BinOp(_as_loaded(target), operator, value)
                self.assign([target], ast.copy_location(both, target))
            case ast.If(test, body, orelse):
                self.expression(test, _condition)
                self.choice(test, body, orelse)
            case ast.While(test, body, orelse):
                self.loop([], body, test)
                self.block(orelse)
            case ast.For(target, iterated, body, orelse):
                self.expression(iterated, _unclear)
                self.loop([target], body)
                self.block(orelse)
            case ast.With(items, body):
                for one in items:
                    self.expression(one.context_expr, _unclear)
                    self.bind(*filter(None, [one.optional_vars]))
                self.block(body)
            case ast.Assert(test):
                self.expression(test, _condition)
            case _:  # of what a function or a `try` does only what it names is known
                own = {i.arg for i in ast.walk(item) if isinstance(i, ast.arg)}
                named = [i for i in ast.walk(item) if isinstance(i, ast.Name)]
                made = own | {i.id for i in named if isinstance(i.ctx, ast.Store)}
                for inner in named:
                    if inner.id not in made or inner.id in self.own | self.of.keys():
                        self.name(inner.id, _unclear(inner))
                if isinstance(item, ast.FunctionDef):
                    made = {item.name}
                self.means |= dict.fromkeys(made, _Meaning())

    def assign(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        """Names that are assigned mean what they get; of a name that gets another nothing is noted yet."""
        found = [pair for target in targets for pair in self.pairs(target, value)]
        rows = {name for name, meaning in found if meaning.itself}
        inside = any(isinstance(item, ast.Subscript) for item in targets)
        plain = all(isinstance(item, ast.Name) for item in targets)
        match targets, value:
            case _, ast.Name() if plain:
                rows = set()
            case [ast.Tuple()], ast.Name():  # `row, col = edge_index`
                pass
            case [ast.Tuple(names)], ast.Tuple(values) if len(names) == len(values):
                for one, item in zip(names, values, strict=True):  # `h, c = h0, c0`
                    kept = not isinstance(one, ast.Subscript | ast.Attribute)
                    if not (kept and isinstance(item, ast.Name)):
                        self.expression(item, _assigned if kept else _tensor)
                rows = set()
            case _:
                self.expression(value, _tensor if inside else _assigned)
        self.bind(*targets)
        self.means |= found
        self.rows = self.rows - {name for name, _ in found} | rows

    def pairs(
        self, target: ast.expr, value: ast.expr, position: int | None = None
    ) -> Iterator[tuple[str, _Meaning]]:
        """The names of a target, and what each of them gets."""
        match target, value:
            case ast.Name(name), ast.Name(other):
                yield name, self.meaning(other)
            case ast.Name(name), _:
                yield name, self.elements_of(value, position)
            case ast.Tuple(items) | ast.List(items), ast.Tuple(values) | ast.List(
                values
            ) if len(items) == len(values) and not _starred((*items, *values)):
                for one, part in zip(items, values, strict=True):
                    yield from self.pairs(one, part)
            case ast.Tuple(items) | ast.List(items), _:
                for at, one in enumerate(items):
                    if isinstance(one, ast.Name) and not _starred(items[:at]):
                        yield from self.pairs(one, value, at)
                        continue
                    for name, meaning in self.pairs(_inner(one), value):
                        yield name, meaning.doubted

    def choice(
        self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]
    ) -> None:
        """Blocks of which one runs."""
        before, given, condition = dict(self.means), self.given, self.condition(test)
        blocks = {condition: body, f"not {condition}": orelse}
        ways = dict[str, dict[str, _Meaning]]()
        for word, block in blocks.items():
            self.means, self.given = dict(before), given | {word}
            self.block(block)
            ways[word] = self.means
        self.given = given
        ends = [
            word
            for word, block in blocks.items()
            if block and isinstance(block[-1], ast.Return | ast.Raise)
        ]
        self.means = self.joined(
            [way for word, way in ways.items() if word not in ends] or [*ways.values()]
        )
        leaving = [
            word
            for word, block in blocks.items()
            if any(_leaves(item, LEAVING) for item in block)
        ]
        if len(leaving) == 1 and leaving == ends:
            self.given |= blocks.keys() - {*ends}
        elif leaving:
            self.given |= {self.fresh()}

    def condition(self, test: ast.expr) -> str:
        """A condition by its text, as long as it stays the same."""
        names = [one.id for one in ast.walk(test) if isinstance(one, ast.Name)]
        same = not self.means.keys() & {*names}
        called = any(isinstance(one, ast.Call) for one in ast.walk(test))
        return ast.unparse(test) if same and not called else self.fresh()

    def loop(
        self,
        targets: Sequence[ast.expr],
        body: Sequence[ast.stmt],
        test: ast.expr | None = None,
    ) -> None:
        """What may run any number of times: until what its names mean stays the same."""
        given = self.given
        self.given |= {self.fresh()}
        while True:
            before = dict(self.means)
            if test is not None:
                self.expression(test, _condition)
            self.bind(*targets)
            self.block(body)
            self.means = self.joined([before, self.means])
            if self.means == before:
                break
        self.given = given

    def joined(self, ways: Sequence[Mapping[str, _Meaning]]) -> dict[str, _Meaning]:
        """What each name may mean after one of several blocks; a name that is no input has been assigned by then."""
        inputs = self.own or self.of.keys()
        names = {name for way in ways for name in way}
        return {
            name: _one_of(
                [
                    way.get(name) or _itself(name)
                    for way in ways
                    if name in way or name in inputs
                ]
            )
            for name in names
        }

    def bind(self, *targets: ast.expr) -> None:
        """Names that are assigned; in `y[i] = x` the names are read."""
        for target in targets:
            match target:
                case ast.Name(name):
                    self.means[name] = _Meaning()
                case ast.Tuple(items) | ast.List(items):
                    self.bind(*items)
                case ast.Starred(inner):
                    self.bind(inner)
                case _:
                    self.expression(target, _unclear)

    def expression(self, node: ast.expr, expected: Expected) -> None:
        """Note the names of an expression that stands where something is expected."""
        use = expected(node)
        self.parts(node, use, expected)
        if isinstance(node, COMPUTED):
            self.computed(node, use)

    def parts(self, node: ast.expr, use: _Use, expected: Expected) -> None:
        match node:
            case ast.Name(name):
                self.name(name, use)
            case ast.Attribute():
                self.attribute(node)
            case ast.Call():
                self.call(node)
            case ast.BinOp(left, operator, right):
                self.binary(left, right, BINARY[type(operator)], use, expected)
            case ast.UnaryOp(ast.Invert(), inner):
                self.expression(inner, _taken_by("~", inner))
            case ast.UnaryOp(ast.Not(), inner):
                self.expression(inner, _condition)
            case ast.UnaryOp(_, inner):
                plain = use.takes in ("tensor", "assigned", "moved") or use == _unclear(
                    node
                )
                self.expression(inner, _operand if plain else expected)
            case ast.Compare(left, operators, others):
                self.compare([left, *others], operators)
            case ast.BoolOp() | ast.IfExp():
                self.chosen(node, expected)
            case ast.NamedExpr(target, value):
                self.assign([target], value)
                self.name(target.id, use)
            case ast.Subscript(value, index):
                self.expression(value, _moved)
                self.expression(index, _index)
            case ast.Slice():
                for part in (node.lower, node.upper, node.step):
                    if part is not None:
                        self.expression(part, _value("int", "it stands in a slice"))
            case ast.Tuple(items) | ast.List(items):
                for item in items:
                    self.expression(item, _element_of(expected))
            case ast.Starred(inner):
                self.expression(inner, expected)
            case _:
                self.other(node)

    def chosen(self, node: ast.BoolOp | ast.IfExp, expected: Expected) -> None:
        """What is computed only if something else is so."""
        given = self.given
        if isinstance(node, ast.BoolOp):
            for value in node.values:
                self.expression(value, _condition)
                self.given |= {self.fresh()}
        else:
            self.expression(node.test, _condition)
            condition = self.condition(node.test)
            for word, value in (
                (condition, node.body),
                (f"not {condition}", node.orelse),
            ):
                self.given = given | {word}
                self.expression(value, expected)
        self.given = given

    def computed(self, node: ast.expr, use: _Use) -> None:
        """Note what the elements of inputs are, where something is computed of them."""
        takes: Takes = use.takes
        if takes in WHOLE:
            takes = "mask" if takes == "mask" else "index"
        elif takes != "constant":
            if takes in ("assigned", "moved", "value"):
                return
            if isinstance(node, ast.BinOp | ast.UnaryOp):
                return  # which says itself what it takes
            takes = "unclear"
        meaning = self.elements_of(node)
        for name in meaning.plain if takes == "unclear" else meaning.elements:
            last = self.of.get(name, [use])[-1]
            kind = "positions" if use.takes == "positions" else ""
            noted = _Use(takes, last.node, use.where, kind, use.given)
            self.note(name, noted, name in meaning.sure)

    def name(self, name: str, use: _Use) -> None:
        """Note a use of what a name stands for; of rows that may be numbers of a tuple arithmetic says nothing."""
        if name in self.rows and use.takes == "operand" or use.takes == "assigned":
            use = use._replace(takes="unclear")
        meaning = self.meaning(name)
        for meant in meaning.itself:
            self.note(meant, use, meant in meaning.sure)
        for meant in meaning.elements:
            if use.takes == "positions":  # of a sum of several, one may be a number
                use = use._replace(takes="index", type="positions")
            if use.takes in (*WHOLE, "constant", "moved"):
                self.note(meant, use, meant in meaning.sure)
            elif meant in meaning.plain:
                self.note(meant, use._replace(takes="unclear"), False)

    def note(self, name: str, use: _Use, sure: bool) -> None:
        """A use here; where it is not sure that what it says of a name is so, it speaks of no other use."""
        given = self.given | use.given | (set() if sure else {self.fresh()})
        self.of.setdefault(name, []).append(use._replace(given=given))

    def elements_of(self, node: ast.expr, position: int | None = None) -> _Meaning:
        """The inputs whose elements a value has, and what it computes of them gives no other kind of number; \
of a call with several results those of one: the positions of a `topk` are not its values."""
        match node:
            case ast.Subscript(ast.Call() as call, ast.Constant(int(at))):
                return self.elements_of(call, at)
            case ast.Name(name):
                return self.meaning(name).moved
            case ast.Attribute(value, word) if word in MOVED:
                return self.elements_of(value)
            case ast.Subscript(value):
                return self.elements_of(value)
            case ast.UnaryOp(operator, value) if not isinstance(operator, ast.Not):
                return self.elements_of(value)._replace(plain=frozenset())
            case ast.Starred(value) | ast.NamedExpr(_, value):
                return self.elements_of(value)
            case ast.BinOp(left, operator, right) if not isinstance(operator, ast.Div):
                both = _all_of([self.elements_of(left), self.elements_of(right)])
                return both._replace(plain=frozenset())
            case ast.IfExp(_, left, right):
                return _one_of([self.elements_of(left), self.elements_of(right)])
            case ast.Tuple(items) | ast.List(items):
                return self.parts_of(items).doubted  # each is of its own kind
            case ast.Call():
                found = self.parsed(node)
                return _all_of(
                    [
                        _Meaning(),
                        *(
                            (
                                self.parts_of(_items(value))
                                if sure
                                else self.parts_of(_items(value)).doubted
                            )
                            for value, sure in (
                                found.elements(position) if found else ()
                            )
                        ),
                    ]
                )
        return _Meaning()

    def parts_of(self, items: Sequence[ast.expr]) -> _Meaning:
        """What is put together of parts."""
        return _all_of([_Meaning(), *map(self.elements_of, items)])

    def other(self, node: ast.expr) -> None:
        """A comprehension or a lambda: what it binds is bound inside of it."""
        before, given = dict(self.means), self.given
        generators = getattr(node, "generators", ())
        for part in generators[:1]:  # what stands for more is not known here
            self.expression(part.iter, _unclear)
        self.given |= {self.fresh()}
        found = dict[str, _Meaning]()
        for part in generators:
            match part.target, part.iter:  # `x.view(...) for x in (q, k, v)`
                case ast.Name(name), ast.Tuple(items) | ast.List(items):
                    plain = [item.id for item in items if isinstance(item, ast.Name)]
                    found[name] = _all_of([_Meaning(), *map(self.meaning, plain)])
        for inner in ast.walk(node):
            match inner:
                case ast.Name(name, ast.Store()) | ast.arg(name):
                    self.means[name] = found.get(name, _Meaning())
        for child in ast.iter_child_nodes(node):
            parts = ast.iter_child_nodes(child)
            for part in [child, *parts] if not isinstance(child, ast.expr) else [child]:
                first = generators and part is generators[0].iter
                if isinstance(part, ast.expr) and not first:
                    self.expression(part, _unclear)
        self.means, self.given = before, given

    def attribute(self, node: ast.Attribute) -> None:
        """`x.shape`; what no tensor has is read of an object."""
        if self._module(node) is None:
            what: Expected = _moved if node.attr in (*MOVED, *NO_TENSOR) else _tensor
            if not is_tensor_word(node.attr):
                what = _value("object", f"'.{node.attr}' is read")
            self.expression(node.value, what)

    def _module(self, node: ast.expr) -> str | None:
        """The dotted name of what a module has, as the table spells it."""
        if any(isinstance(inner, ast.Call) for inner in ast.walk(node)):
            return None
        dotted = dotted_name(node)
        root = (dotted or "").partition(".")[0]
        return normalized(dotted) if dotted and root in self.bound & KNOWN else None

    def binary(
        self,
        left: ast.expr,
        right: ast.expr,
        operator: str,
        use: _Use,
        expected: Expected,
    ) -> None:
        if use.takes in ("value", "index"):  # arithmetic with numbers
            self.expression(left, expected)
            self.expression(right, expected)
            return
        given: Arguments = {0: left, 1: right}
        if operator == "^" and any(
            isinstance(one, ast.Constant) for one in (left, right)
        ):
            for inner in (left, right):  # `x^2` is no mask, and is refused later
                self.expression(inner, _operand)
            return
        for argument, inner in given.items():
            self.expression(inner, _taken_by(operator, *given.values(), at=argument))

    def compare(self, values: list[ast.expr], operators: list[ast.cmpop]) -> None:
        literals = [item.value for item in values if isinstance(item, ast.Constant)]
        equal = all(isinstance(item, ast.Eq | ast.NotEq) for item in operators)
        what: Expected = _constant if equal else _operand
        if any(isinstance(item, ast.In | ast.NotIn) for item in operators):
            what = _unclear
        elif any(isinstance(value, str) for value in literals):
            what = _value("str", "it is compared with a string")
        elif any(value is None for value in literals):
            what = _optional
        for value in values:
            self.expression(value, what)

    def parsed(self, node: ast.Call) -> "_Parsed | None":
        """A call of PyTorch; None of any other."""
        given: dict[Argument, ast.expr] = dict(enumerate(node.args))
        function = self._module(node.func)
        words = {str(word.arg): word.value for word in node.keywords}
        kind, name, shown = "function", function or "", function or ""
        if function is None:
            if not isinstance(node.func, ast.Attribute):
                return None
            receiver, word = node.func.value, node.func.attr
            if isinstance(receiver, ast.Name) and _is_of_module(receiver, word):
                return None
            kind, name, shown = "method", word, f"Tensor.{word}"
            given = dict(enumerate([receiver, *node.args]))
        calls = calls_of(kind, name, len(given), words)
        calls = calls or calls_of(kind, name.removesuffix("_"), len(given), words)
        given.update(words)
        if _starred(node.args) or "None" in words:
            calls = tuple(call for call in calls if _is_spread(call, given))
        return _Parsed(given, calls, shown)

    def call(self, node: ast.Call) -> None:
        found = self.parsed(node)
        if found is None:
            self.own_call(node)
            return
        for argument, value in found.given.items():
            self.expression(value, found.taken(argument))

    def own_call(self, node: ast.Call) -> None:
        """A call of Python's or of the user's own: of a name that nobody knows others complain."""
        name = (dotted_name(node.func) or "").partition(".")[0]
        what: Expected = _unclear if name in self.known else _tensor
        if name in ("range", "int", "round"):  # an int of a float too
            what = _value("int" if name == "range" else "", f"{name} takes a number")
        for value in (*node.args, *(word.value for word in node.keywords)):
            self.expression(value, what)
        match node.func:  # what a tensor has that nobody knows
            case ast.Attribute(ast.Name(owner) as receiver) if owner in self.own:
                self.name(owner, _unclear(receiver))
            case ast.Attribute(ast.Name(owner) as receiver) if owner in self.means:
                self.name(owner, _unclear(receiver))
            case ast.Call() | ast.Subscript() | ast.Lambda() | ast.IfExp():
                self.expression(node.func, _unclear)


KNOWN = {"torch", "F", "math", "nn"}
COMPARED = "it is only compared for equality, or turned into integers"
OF_SIZES = ("empty", "eye", "ones", "rand", "randn", "zeros")  # take nothing else
MOVED = ("T", "mT", "data")  # attributes that have the elements of their tensor
NO_TENSOR = (METHODS | ATTRIBUTES) - READ_OUT
WHOLE = ("positions", "mask", "index")  # what takes integers or booleans alone
BY_VALUE = ("tensor", "operand", "unclear")  # what may have a gradient
COMPUTED = ast.Call | ast.BinOp | ast.UnaryOp | ast.Attribute | ast.Subscript
EQUAL = {"eq", "ne", "long", "int", "bool"}  # calls through which no gradient goes
WHOLE_DTYPE = re.compile(r"torch\.(u?int\d*|long|bool)")


class _Parsed(NamedTuple):
    """A call of PyTorch: what it is given, of a method the receiver first, and what it may mean."""

    given: Arguments
    calls: Sequence[Call]
    shown: str

    @property
    def word(self) -> str:
        return self.shown.rpartition(".")[2]

    def elements(self, position: int | None) -> Iterator[tuple[ast.expr, bool]]:
        """The arguments whose elements, or what is computed of them in their own dtype, the result has; \
and whether they are integers if it is."""
        called = built_in_primitives().called  # of other functions nothing is known
        known = called(self.word) or called(self.word.removesuffix("_"))
        kinds = {
            kind
            for facts in known
            for at, kind in enumerate(facts.kinds)
            if position in (None, at) or len(facts.kinds) == 1
        }
        if kinds != {"kept"} or self.creates or self.converts():
            return
        said = {
            slot.parameter
            for slots in self.calls
            for argument, slot in slots.items()
            if argument in self.given
        }
        if "dtype" in {*self.given, *said}:
            return
        moving = any(facts.category in MOVING for facts in known)
        others = {name for facts in known for _, name in facts.constants}
        plain = set[str]() if is_constant(self.word) else others
        for argument, value in self.given.items():
            slots = [item[argument] for item in self.calls if argument in item]
            takes = {slot.takes for slot in slots if slot.parameter not in plain}
            if takes & {"tensor", "either"}:
                yield value, takes == {"tensor"} and not (moving and argument != 0)

    @property
    def creates(self) -> bool:
        return any("creates" in facts.flags for facts in facts_of_call(self.word))

    def is_moved(self) -> bool:
        """Whether nothing but the elements of the first argument is in the result, which are followed, or none of them."""
        if self.creates or self.word in NO_TENSOR:
            return True
        followed = any(value is self.given[0] for value, _ in self.elements(None))
        return followed and _is_of_any(self.word)

    def converts(self) -> bool:
        """Whether it gives integers or booleans of any tensor: `x.long()`, `x.to(torch.int64)`."""
        values = map(ast.unparse, [*self.given.values()][1:])
        return self.word in EQUAL or any(map(WHOLE_DTYPE.fullmatch, values))

    def taken(self, argument: Argument) -> Expected:
        """What is taken where an argument stands."""
        receiver = argument == 0 and self.shown.startswith("Tensor.")
        slots = [item[argument] for item in self.calls if argument in item]
        tensor = receiver or any(slot.takes == "tensor" for slot in slots)
        if tensor and self.converts() and (argument == 0 or self.word in EQUAL):
            return _constant
        if tensor and argument == 0 and self.is_moved():
            return _moved
        if receiver:
            return _tensor
        return _taken(self.calls, argument, self.given, self.shown)


LEAVING = (ast.Return, ast.Break, ast.Continue)


def _leaves(item: ast.stmt, by: type[ast.stmt] | tuple[type[ast.stmt], ...]) -> bool:
    """Whether what follows a statement may not run."""
    inner = not isinstance(item, ast.FunctionDef | ast.ClassDef)
    return inner and any(isinstance(node, by) for node in ast.walk(item))


def _starred(items: Sequence[ast.expr]) -> bool:
    return any(isinstance(item, ast.Starred) for item in items)


def _is_spread(call: Call, given: Arguments) -> bool:
    """Whether what stands where is known in spite of a star: in `x.view(*dims, n)` all are sizes."""
    places = (at for at in given if isinstance(at, int))
    rest = dropwhile(lambda at: not isinstance(given[at], ast.Starred), places)
    found = [call[at].parameter for at in rest]
    return len(found) > 1 and len({*found}) == 1


def _inner(target: ast.expr) -> ast.expr:
    return target.value if isinstance(target, ast.Starred) else target


def _items(value: ast.expr) -> Sequence[ast.expr]:
    """The tensors of an argument: of `torch.cat([a, b])` two."""
    return value.elts if isinstance(value, ast.Tuple | ast.List) else (value,)


def _as_loaded(target: ast.expr) -> ast.expr:
    """What an assignment changes, as it is read."""
    read = ast.parse(ast.unparse(target), mode="eval").body
    return ast.copy_location(read, target)


def _is_of_module(receiver: ast.Name, word: str) -> bool:
    """Whether what is called hangs on a module that nobody imported, rather than on a tensor."""
    return (
        receiver.id in ARRAYS or judged_value(word) is None and not is_tensor_word(word)
    )


def _is_of_any(word: str) -> bool:
    """Whether what is called so says nothing of the elements of its tensor: `unsqueeze`."""
    return all(
        facts.category in MOVING or facts.memory == "same"
        for facts in facts_of_call(word)
    )


def _taken_by(operator: str, *values: ast.expr, at: Argument = 0) -> Expected:
    """What an operator takes; of integers `codes & 1` has the bits."""
    if operator in ("&", "|", "^", "~") and any(
        isinstance(item, ast.Constant) for item in values
    ):
        return _index
    calls = calls_of("operator", operator, len(values), ())
    return _taken(calls, at, dict(enumerate(values)), f"'{operator}'")


def _element_of(expected: Expected) -> Expected:
    """What is taken where an element of a tuple stands."""

    def element(node: ast.expr) -> _Use:
        use = expected(node)
        inner = use.type.removeprefix("tuple[").partition(",")[0]
        return use._replace(type=inner) if use.type.startswith("tuple[") else use

    return element


def _taken(
    calls: Sequence[Call], argument: Argument, given: Arguments, shown: str
) -> Expected:
    """What is taken where an argument stands, by all that the call may mean."""
    numbers = {at for at, value in given.items() if isinstance(value, ast.Constant)}
    may_be = [
        call
        for call in calls
        if not any(call[at].takes == "tensor" for at in numbers & call.keys())
    ]
    fitting = may_be or calls
    slots = [call[argument] for call in fitting if argument in call]
    takes = {slot.takes for slot in slots}

    def use(node: ast.expr) -> _Use:
        value = next((slot for slot in slots if slot.takes == "value"), None)
        if shown.startswith("math."):
            return _Use("value", node, f"{shown} takes a number", "float")
        if not slots:
            made = is_made_of_numbers(shown.rpartition(".")[2])
            where = f"{shown} takes numbers"
            if made:  # a size, or perhaps a float: `torch.full((2,), value)`
                size = shown.rpartition(".")[2] in OF_SIZES and argument != "dtype"
                given = frozenset(("numbers",) * (not size))
                return _Use("value", node, where, "int", given)
            known = is_torch_word(shown.rpartition(".")[2])
            return _unclear(node) if known else _tensor(node)  # others tell of it
        if slots[0].takes == "either":
            where = f"{shown} takes a tensor or a number"
            return _Use("unclear", node, where, slots[0].type)
        if value is slots[0] and len(takes) > 1:
            where = f"{shown} takes a tensor, or '{value.parameter}'"
            return _Use("unclear", node, where, value.type)
        if value is slots[0]:
            where = f"{shown} takes '{value.parameter}'"
            return _Use("value", node, where, value.type)
        if shown.startswith("'") and takes == {"tensor"}:
            return _operand(node)
        return _of_slots(slots, node, shown)

    return use


def _of_slots(slots: Sequence[Slot], node: ast.expr, shown: str) -> _Use:
    """What is taken by all of some slots; where positions are expected, perhaps something else in floats."""
    soft = [slot for slot in slots if slot.soft]
    if soft:
        where = f"{shown} (a float tensor, if it is probabilities)"
        return _Use(soft[0].takes, node, where, "", frozenset(("classes",)))
    if slots[0].takes in WHOLE and {slot.takes for slot in slots} != {slots[0].takes}:
        return _unclear(node)
    return _Use(slots[0].takes, node, shown)


# --- What that makes of a name.


def _proving(uses: Sequence[_Use]) -> dict[Takes, _Use]:
    """The first use of each kind. What takes no floats proves nothing where the name is used by value without it.

    `x[i] if on else x * i`: `i` may be a float that has a gradient. But wherever `x[i]` runs, `i` is none.
    """
    by_value = [use for use in uses if use.takes in BY_VALUE]
    numbers = [use for use in uses if use.takes == "value"]
    wholes = [use for use in uses if use.takes in WHOLE]
    doubted = [
        proofs
        for proofs in (numbers, wholes)
        if not all(any(one.given <= use.given for one in proofs) for use in by_value)
    ]
    left = [use for use in uses if not any(use in proofs for proofs in doubted)]
    return {use.takes: use for use in reversed(left)}


class _Proven(NamedTuple):
    """The type of an input, and what proves it; `is_value`: it is no tensor."""

    kind: str
    said: str
    is_value: bool = False


def _judged(name: str, uses: Sequence[_Use], by_name: bool = True) -> _Judged:
    """The entry of one of the inputs, and why it cannot be taken for that, if so; `by_name`: `eps` is rather a number."""
    every = {use.takes: use for use in reversed(uses)}
    proving = _proving(uses)
    by_kind = {
        takes: use
        for takes, use in every.items()
        if takes in proving or takes not in WHOLE
    }
    optional = "?" if "optional" in by_kind else ""
    is_tensor = {"tensor", "moved"} & by_kind.keys()
    if found := _whole(name, by_kind):
        return _Judged(f"{name}[; {found.kind}]{optional}")
    if use := by_kind.get("index"):
        said = f"'{name}' stands in an index: positions, a mask or a number"
        refused = "" if is_tensor else said
        return _Judged(f"{name}[; int]{optional}", refused, use.node)
    if is_tensor and _is_only_compared(by_kind):
        return _Judged(f"{name}[; int]{optional}", said=COMPARED)
    if is_tensor:
        return _Judged(f"{name}{optional}")
    if use := by_kind.get("value"):
        return _Judged(
            _number(name, use.type, optional), _is_value(name, use), use.node
        )
    if use := by_kind.get("operand") or by_kind.get("constant"):
        if by_name and _is_called_as_a_number(name):
            said = f"'{name}' is rather a number than a tensor"
            return _Judged(_number(name, "", optional), said, use.node)
        return _Judged(f"{name}{optional}")
    use = uses[0]
    if optional and all(one.takes in ("optional", "unclear") for one in uses):
        return _Judged(f"{name}?")
    said = f"whether '{name}' is a tensor cannot be told"
    entry = _number(name, use.type, "") if use.type else name
    return _Judged(entry, f"{said}: {use.where}" if use.where else said, use.node)


# Words of names: `valid_mask` is a mask where it may be one, `mask_indices` is none.
OF_MASK = {"mask", "masks"}
OF_POSITIONS = {"id", "ids", "idx", "index", "indices", "pos", "position", "positions"}


def _whole(name: str, by_kind: ByKind) -> _Proven | None:
    """What is surely a tensor of integers or booleans."""
    if use := by_kind.get("positions"):
        return _Proven("int", f"it holds positions in {use.where}")
    words = {*name.lower().split("_")}
    use, index = by_kind.get("mask"), by_kind.get("index")
    if index and index.type != "positions" and words & OF_MASK:
        use = use or (None if words & OF_POSITIONS else index)
    return _Proven("bool", f"it is a mask in {use.where}") if use else None


def _is_only_compared(by_kind: ByKind) -> bool:
    """Whether no gradient goes to an input, so that it is rather integers: labels."""
    known = by_kind.keys() <= {"constant", "moved", "optional"}
    return known and "constant" in by_kind


def _is_called_as_a_number(name: str) -> bool:
    """Whether a name is that of a number wherever it stands (`eps`, `temperature`), and of no parameter (`gamma`)."""
    if any(word in NAMED for word in name.split("_")):
        return True
    return named_kind(name) != "object" and name not in PARAMETERS


def _is_value(name: str, use: _Use) -> str:
    return f"'{name}' is no tensor: {use.where}"


def _number(name: str, kind: str, optional: str) -> str:
    """The entry of an attribute."""
    known = kind or named_kind(name)
    shown = "float" if known == "object" and not kind else known
    return f"{name}: {shown}{' | None = None' if optional else ''}"


def _without_inputs(program: Program, write: str) -> ScaffoldError:
    """That no input is read, and what was meant by a function in the place of a formula."""
    message = "the forward reads no name that is an input"
    hint = f"name its inputs in the order of the call: {write}'x, weight'"
    if program.text.value.lstrip().startswith("def "):
        hint = "a formula is the body of a function; a whole one stands in a file: '@file.py:function'"
    match program.body:
        case [ast.Expr(ast.Lambda(_, body)) | ast.Return(ast.Lambda(_, body))]:
            hint = f"a formula is what a function returns: {ast.unparse(body)}"
        case [
            ast.Expr(ast.Attribute() as named) | ast.Return(ast.Attribute() as named)
        ]:
            hint = f"call it: {ast.unparse(named)}(x)"
    return ScaffoldError(message, program.text.location, hint)


def _entries(known: Mapping[str, _Judged], program: Program, write: str) -> Inferred:
    """The value of `inputs`; what has to be stated is refused together with it."""
    if not known:
        raise _without_inputs(program, write)
    # Of parameters that are given by keyword one without a default may come last.
    ordered = sorted(known.items(), key=lambda pair: " = " in pair[1].entry)
    known = dict(ordered)
    floating = any({name, f"{name}?"} & {item.entry} for name, item in known.items())
    entries = [
        item.entry if floating or item.said != COMPARED else name
        for name, item in known.items()
    ]
    whole = ", ".join(entries)
    refused = [item for item in known.values() if item.refused]
    if refused:  # what is misspelt says nothing of what it takes
        raise_all(
            [
                ScaffoldError(message, place_in(program.text, node), hint)
                for node, message, hint in not_operators(program.body, Meanings())
                if isinstance(node, ast.expr) and root_of(node) in WELL_KNOWN
            ]
        )
    plain = whole.replace('"', "'")  # for a shell, in quotes of one kind
    quoted = f'"{plain}"' if "'" in plain else f"'{plain}'"
    problems: list[ScaffoldError] = []
    for item in refused:
        assert item.node is not None  # where it stands
        last = f"write: {write}{quoted}" if item is refused[-1] else None
        where = place_in(program.text, item.node)
        problems.append(Unsaid(item.refused, where, last, whole))
    raise_all(problems)
    params, buffers = (
        tuple(name for name, item in known.items() if item.owned == kind)
        for kind in ("params", "buffers")
    )
    shapes = {name: item.shape for name, item in known.items() if item.shape}
    return Inferred(whole, params, buffers, entries=(*entries,), shapes=shapes)


# --- Inputs that are stated without a type, and used as what is no floating tensor.


def of_stated_names(
    raw: Mapping[str, Any], locate: Locate, read: Callable[[str], str]
) -> tuple[str, tuple[str, ...]] | None:
    """Stated inputs in which each name without a type has that which its use, or an annotation, proves; and notes of it.

    None where that is a floating tensor always. What is amiss in inputs or forward is told when the op is built.
    """
    stated, inputs = raw.get("forward"), raw.get("inputs")
    if not isinstance(stated, str) or not isinstance(inputs, str):
        return None
    whole = " ".join(inputs.split())
    try:
        entries = parse_entries(whole, Location("--inputs"))
        text = Text(stated, locate(("forward",)))
        if stated.lstrip().startswith("@"):
            text = read_reference(stated, "forward", text.location, read).text
        known = _proven_of(entries, text)
    except ScaffoldError:
        return None
    keys = ("params", "buffers", "dirty", "nondiff", "grad")
    for name in {name for key in keys for name in raw.get(key, ())}:
        known.pop(name, None)
    floating = any(
        one.tensor and not one.traits and one.name.text not in known for one in entries
    )
    notes = list[str]()
    for entry in reversed(entries):
        name, found = entry.name.text, known.get(entry.name.text)
        if found and (floating or found.said != COMPARED):
            end = entry.name.place.column - 1 + len(name)
            typed = f": {found.kind}" if found.is_value else f"[; {found.kind}]"
            added = typed
            if entry.dims is not None:
                end, added = whole.index("]", end), f"; {found.kind}"
            whole = f"{whole[:end]}{added}{whole[end:]}"
            notes.append(f"{name}{typed} in --inputs: {found.said}")
    return (whole, (*reversed(notes),)) if notes else None


def _proven_of(entries: Sequence[Entry], text: Text) -> dict[str, _Proven]:
    """What is proven of the entries without a type."""
    every = frozenset(entry.name.text for entry in entries)
    uses = _Uses((), every)
    uses.block(program_of(text, Scope(every)).body)
    kinds = dict[str, str]()
    if text.origin and text.origin.function:
        node = text.origin.definitions.functions[text.origin.function]
        for item in parameters(node.args):
            kinds[item.arg] = _annotation(item.annotation)
    known = dict[str, _Proven]()
    for entry in entries:
        name = entry.name.text
        found = _proven(name, uses.of.get(name, ()), kinds.get(name, ""))
        more = entry.dims is not None or entry.optional or entry.default
        fits = entry.tensor and not entry.variadic and not entry.traits
        if found and fits and not (found.is_value and more):
            known[name] = found
    return known


WHOLE_TENSORS = re.compile(
    r"(?:\w+\.)*(?:(?:Long|Int|Short)Tensor|U?Int(?:eger)?\d*\[.*)"
)
MASKS = re.compile(r"(?:\w+\.)*(?:BoolTensor|Bool\[.*)")


def _annotated(kind: str) -> _Proven | None:
    """What an annotation says of the elements of a tensor: `torch.LongTensor`, `Int[Tensor, "n"]`."""
    said = f"it is annotated as {kind}"
    kind = kind.removesuffix(" | None")
    if WHOLE_TENSORS.fullmatch(kind):
        return _Proven("int", said)
    return _Proven("bool", said) if MASKS.fullmatch(kind) else None


def _proven(name: str, uses: Sequence[_Use], annotation: str = "") -> _Proven | None:
    """What is no floating tensor, though it is called one; None where it may be."""
    by_kind = _proving(uses)
    value = by_kind.get("value")
    is_tensor = {"tensor", "moved", "positions", "mask"} & by_kind.keys()
    if value and value.type in ("int", "bool") and not is_tensor:
        return _Proven(value.type, value.where, True)
    either = by_kind.get("unclear")  # `i.clamp(-n, n) + n` of positions
    if "index" in by_kind and either and either.type and not is_tensor:
        return _Proven("int", either.where, True)
    if found := _annotated(annotation) or _whole(name, by_kind):
        return found
    if use := by_kind.get("index"):
        if use.type == "positions":
            return _Proven("int", f"it holds positions in {use.where}")
        return _Proven("int", "it stands in an index (bool, if it is a mask)")
    return _Proven("int", COMPARED) if _is_only_compared(by_kind) else None


def with_dims(inputs: str, shapes: Mapping[str, str]) -> str:
    """A value of `inputs` whose entries without dims have those of `shapes`, by name: `x[B, T], mask[T; const]`."""
    whole = " ".join(inputs.split())
    for entry in reversed(parse_entries(whole, Location("--inputs"))):
        dims = shapes.get(entry.name.text)
        if dims is None or entry.dims is not None:
            continue
        end = entry.name.place.column - 1 + len(entry.name.text)
        name, rest = whole[:end], whole[end:].lstrip()
        traits = rest.startswith("[")  # `mask[; const]`
        whole = f"{name}[{dims}{rest[1:]}" if traits else f"{name}[{dims}]{whole[end:]}"
    return whole
