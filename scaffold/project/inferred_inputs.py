"""Inferred inputs of an op without stated ones: the parameters of its forward, or the free names of an expression.

`new-op --forward 'x * torch.sigmoid(beta * x)'` needs no `--inputs` then; of an nn.Module the parameters, buffers, their sizes and
initial values are found, too. In: the text of a forward, or '@file.py:function', and the op's imports. Out: the value of
`inputs`, in the order of the signature or of the text. Invariant: a name becomes a tensor only if PyTorch takes a tensor in its
place. A possible dim, eps or index is refused, with the complete `--inputs` to copy: a guess would give a number a gradient.

Words: an *entry* is one input as `inputs` has it, `x`, `i[; int]`, `eps: float`; a *use* is a place where a name occurs, with
what is expected there (`name_uses`); *owned* tensors are parameters and buffers of an nn.Module, whose reader annotates
them `Parameter[out, in]` or `Buffer[dim]`; *starts* are their initial values; `origin` is the file a function was read from.
"""

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import filterfalse
from typing import Any, NamedTuple

from scaffold.errors import Location, ScaffoldError, raise_all
from scaffold.formula import Scope, Text
from scaffold.formula.definitions import defaults, parameters, resolve
from scaffold.formula.module_forward import (
    NUMBER,
    attribute_names,
    constructor_names,
    modules_named,
    size_relations,
    starts,
)
from scaffold.formula.operators import not_operators, root_of
from scaffold.formula.optionality import is_none
from scaffold.formula.program import Program, program_of
from scaffold.formula.text import WELL_KNOWN, Meanings, Origin, place_in
from scaffold.inspect.declarations import type_by_name
from scaffold.inspect.trial_inputs import USUAL_VALUES
from scaffold.primitives.slots import Argument
from scaffold.project.name_uses import BY_INTEGERS, BY_VALUE, NameUses, Takes, Use
from scaffold.spec.config_keys import PARAMETER_NAMES
from scaffold.spec.grammar import Entry, parse_entries
from scaffold.spec.imports import parse_imports
from scaffold.spec.maths import read_reference, refuse_file
from scaffold.spec.module import parse_init
from scaffold.spec.op_spec import Dim, OpSpec, TensorInput
from scaffold.spec.problems import Locate
from scaffold.spec.signature import parse_inputs

Arguments = Mapping[Argument, ast.expr]
Names = Collection[str]
ByKind = Mapping[Takes, Use]
# The reason why an input is taken for integers, that is weaker than others: see `_entries`.
COMPARED = "it is only compared for equality, or turned into integers"
BUFFERS = {"Buffer": "const", "BoolBuffer": "bool", "IntBuffer": "int"}
# The annotations of tensors that a module owns, and the op's list (a key of the specification) of each.
OWNED = {"Parameter": "params", **dict.fromkeys(BUFFERS, "buffers")}
SEVERAL = {"list", "List", "tuple", "Tuple", "Sequence", "Iterable"}


class Unsaid(ScaffoldError):
    """An error for an input of unclear type; `proposal` is a complete value of `inputs`, for a terminal to ask the user about."""

    def __init__(
        self, message: str, location: Location, hint: str | None, proposal: str
    ) -> None:
        """Make the error of one input; `proposal` is the value for all inputs."""
        super().__init__(message, location, hint)
        self.proposal = proposal


class Inferred(NamedTuple):
    """The inputs inferred from a forward; for an nn.Module also the ones it owns, and their initial values."""

    inputs: str
    params: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    init: Mapping[str, str] = {}
    unkept: tuple[str, ...] = ()  # started in ways `init` cannot say
    lost: tuple[str, ...] = ()  # of `unkept`, the ones preventing a module
    of_members: tuple[str, ...] = ()  # owned by a submodule of the nn.Module
    entries: tuple[str, ...] = ()  # each input on its own
    # Sizes of owned tensors of an nn.Module: "out_features, in_features".
    shapes: Mapping[str, str] = {}
    relations: Mapping[str, str] = {}  # among these sizes: "dim_4" is "dim * 4"
    require: tuple[str, ...] = ()  # the same relations, as conditions of the op
    # The inputs with sizes of owned tensors only, and without any sizes.
    wider: tuple[str, ...] = ()
    made_by: tuple[str, ...] = ()  # parameters of the nn.Module's constructor
    stated: bool = False  # stated by the user: the rest is inferred
    notes: tuple[str, ...] = ()  # parts of an nn.Module omitted from stated inputs

    def without_starts(self, raw: Mapping[str, Any]) -> "Inferred":
        """Return the same with the field `lost`: owned tensors of unknown initial value, for which `init` in `raw` has none either.

        A module would initialize them differently than the user's does. Keys about the module show that the user knows.
        """
        if {"module", "params", "buffers", "update"} & raw.keys():
            return self
        lost = filterfalse(raw.get("init", {}).__contains__, self.unkept)
        return self._replace(lost=(*lost,))

    def added_to(self, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the op's keys, `raw`, with the inferred ones in front: inputs, owned tensors, their initial values, conditions on sizes.

        A stated key is not changed, only added to: `params` gets the ones in no list. No key of a module if there shall be none.
        """
        if self.require:
            raw = {**raw, "require": [*self.require, *raw.get("require", ())]}
        if raw.get("module") is False:
            return {"inputs": self.inputs, **raw}
        if self.lost:
            return {"inputs": self.inputs, "module": False, **raw}
        stated = {*raw.get("params", ()), *raw.get("buffers", ())}
        lists = {"params": self.params, "buffers": self.buffers}
        kept = {key: [*filterfalse(stated.__contains__, lists[key])] for key in lists}
        listed = {key: names for key, names in kept.items() if names}
        found = {"inputs": self.inputs, **listed, **raw}
        owned = {*found.get("params", ()), *found.get("buffers", ())}
        # The user may have made one of them an ordinary input: that is given, not initialized.
        init = {name: text for name, text in self.init.items() if name in owned}
        return found | ({"init": init | raw.get("init", {})} if init else {})


def inferred_inputs(
    raw: Mapping[str, Any], locate: Locate, read: Callable[[str], str]
) -> Inferred | None:
    """Return the inputs of an op whose keys, `raw`, state none; None if they are stated or there is no forward.

    An expression's free names become inputs, or a function's parameters. `locate` gives the place of a key, `read` the text of a
    file. Raise ScaffoldError if an input's type is unclear.
    """
    stated = raw.get("forward")
    if {"inputs", "schema"} & raw.keys() or not isinstance(stated, str):
        return None
    imported = frozenset(
        item.binding
        for position, text in enumerate(raw.get("import", ()))
        for item in parse_imports(text, locate(("import", str(position))))
    )
    place = locate(("forward",))
    refuse_file(stated, place)
    option = place.source.startswith("--")
    write = "--inputs " if option else "inputs="  # how a hint begins
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
    """Return the free names of an expression or of statements as inputs, in order of use, without `imported` ones.

    An op needs a tensor: if names such as `temperature` make numbers of all, they are judged again without regard to names. `write`
    is how hints name the option.
    """
    program = program_of(text, Scope(frozenset()))
    uses = NameUses(imported)
    uses.block(program.body)
    found = sorted(
        uses.of.items(), key=lambda item: min(use.position for use in item[1])
    )
    known = {name: _from_uses(name, used) for name, used in found}
    # `eps: float` is an attribute; the entry of a tensor has no colon.
    if all(": " in item.entry for item in known.values()):  # none is a tensor
        known = {name: _from_uses(name, used, by_name=False) for name, used in found}
    return _entries(known, program, write)


def _of_function(
    origin: Origin, name: str, text: Text, imported: Names, write: str
) -> Inferred:
    """Return the parameters of the function `name` as inputs, each by its annotation or default, else by its uses in the function."""
    node = origin.definitions.functions[name]
    function = resolve(name, node, origin.definitions, called=False)
    arguments, given = node.args, defaults(function.arguments)
    named = [*arguments.posonlyargs, *arguments.args]
    named += [arguments.vararg] if arguments.vararg else []  # before those by keyword
    named += arguments.kwonlyargs
    names = frozenset(item.arg for item in named)
    program = program_of(text, Scope(names))
    _refuse_none(program)
    uses = NameUses(imported, names)
    uses.block(program.body)
    known = {}
    own = _parameters_of_forward(origin, name) if "." in name else names
    for item in named:
        default = given.get(item.arg)
        _refuse_function(item, default, program.text)
        stated = _declared(item, default, item is arguments.vararg, origin)
        found = uses.of.get(item.arg, [Use("unclear", item, "")])  # if never read
        if item is arguments.vararg and stated is None:
            reason = f"the inputs in '*{item.arg}' are unknown"
            stated = _Judged(f"*{item.arg}", reason, item)
        if stated and stated.entry.rstrip("?") == item.arg:  # a tensor of any elements
            elements = _proven(item.arg, found, _annotation(item.annotation))
            if elements and not elements.is_value:
                many = "?" * stated.entry.endswith("?")
                entry = f"{item.arg}[; {elements.kind}]{many}"
                stated = stated._replace(entry=entry, evidence=elements.evidence)
        if stated and _annotation(item.annotation) == NUMBER:  # int or float?
            by_value = (use.type for use in found if use.takes == "value")
            kind = next(filter(None, by_value), "")
            stated = _Judged(_number(item.arg, kind, ""))
        # By any default but None `_declared` would have decided.
        if stated is None and default is not None:
            found = [*found, Use("optional", item, "")]
        judged = stated or _from_uses(item.arg, found)
        if item.arg not in own and {use.takes for use in found} == {"value"}:
            judged = judged._replace(question="")  # self.num_groups is no tensor there
        known[item.arg] = judged
    return _with_starts(_entries(known, program, write), origin, name)


def _refuse_function(item: ast.arg, default: ast.expr | None, text: Text) -> None:
    """Raise ScaffoldError for a parameter annotated as a callable: an unknown function has no gradient. `default` is its default."""
    if "Callable" in _annotation(item.annotation):
        shown = "the function" if default is None else ast.unparse(default)
        hint = f"call {shown} itself where '{item.arg}' is called"
        message = f"'{item.arg}' is a function: an op cannot take one"
        raise ScaffoldError(message, place_in(text, item), hint)


def _refuse_none(program: Program) -> None:
    """Raise ScaffoldError for a forward with an output of None: outputs are tensors."""
    for node in (inner for item in program.body for inner in ast.walk(item)):
        match node:
            case ast.Return(ast.Tuple(several)) if any(map(is_none, several)):
                hint = (
                    "return the tensors alone, and add the None where the op is called"
                )
                message = "an output is None"
                raise ScaffoldError(message, place_in(program.text, node), hint)


def _with_starts(
    inferred: Inferred,
    origin: Origin,
    name: str,
    dims: Mapping[str, tuple[Dim, ...] | None] = {},
) -> Inferred:
    """Return the inputs with what the class of the function `name` tells of owned tensors: initial values, relations of their sizes.

    A value that the key `init` cannot express makes its parameter `unkept`. `dims` are the declared dims of parameters, as some
    initializations are for matrices alone. Inputs without owned tensors stay as they are.
    """
    owned = (*inferred.params, *inferred.buffers)
    if not owned:
        return inferred
    # One: with several, reading the forward raised an error.
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
    relations = size_relations(layer, origin.module)
    starting = inferred._replace(init=init, unkept=tuple(unkept), of_members=below)
    return starting._replace(relations=relations, made_by=constructor_names(layer))


# --- Shapes of an nn.Module.


def with_shapes(
    inferred: Inferred, spec_of: Callable[[Inferred], OpSpec | None]
) -> Inferred:
    """Return the inputs of an nn.Module with sizes: all of an owned tensor, from `__init__`; of another tensor the last one, `x[..., D]`.

    That follows from the forward, as in `x @ weight.t()`: `spec_of` builds the op with a placeholder for it, and sizes that must be
    equal show its name. If it is not found for every tensor, the owned ones alone have sizes (`bare`). Each round may find one more.
    """
    owned = {*inferred.params, *inferred.buffers}
    names = [re.split(r"\W", entry, maxsplit=1)[0] for entry in inferred.entries]
    others = [name for name in names if name not in owned]
    tensors = [name for name in others if {name, f"{name}?"} & {*inferred.entries}]
    attributes = [entry for entry in inferred.entries if ": " in entry]
    sizes = set(re.findall(r"[A-Za-z_]\w*", " ".join(inferred.shapes.values())))
    if sizes & {*names}:  # it could not be told from the input
        return inferred
    relations = {
        name: text
        for name, text in inferred.relations.items()
        if {name, *re.findall(r"[A-Za-z_]\w*", text)} <= sizes
    }
    require = tuple(f"{name} == {text}" for name, text in relations.items())
    inferred = inferred._replace(require=require)
    bare = _shaped(inferred, {})._replace(wider=(inferred.inputs,))
    # Some owned tensor has no known sizes, or there is no other tensor to give one to.
    if inferred.shapes.keys() < owned or not tensors:
        return bare
    if len(owned) + len(tensors) + len(attributes) < len(names):
        return bare  # positions, masks, any number of tensors
    last = {name: f"last_of_{name}" for name in tensors}
    for _ in tensors:
        from scaffold.derive.enforced_sizes import met_sizes  # slow to import

        spec = spec_of(_shaped(inferred, last))
        for one, two in met_sizes(spec) if spec else ():
            for name in tensors:
                if last[name] in (one, two):
                    other = two if last[name] == one else one
                    # Two placeholders may be equal to each other: that names neither.
                    last[name] = other if other in sizes else last[name]
    wider = (bare.inputs, inferred.inputs)
    complete = _shaped(inferred, last)._replace(wider=wider)
    return complete if {*last.values()} <= sizes else bare


def _shaped(inferred: Inferred, last: Mapping[str, str]) -> Inferred:
    """Return the inputs with declared dims: all dims of an owned tensor, `..., size` of each tensor with its last size in `last`."""
    dims = {**inferred.shapes, **{name: f"..., {size}" for name, size in last.items()}}
    entries = tuple(with_dims(entry, dims) for entry in inferred.entries)
    return inferred._replace(inputs=", ".join(entries), entries=entries)


# --- An nn.Module with stated inputs.


def of_stated_inputs(
    raw: Mapping[str, Any], locate: Locate, read: Callable[[str], str]
) -> Inferred | None:
    """Return the facts an nn.Module tells of stated inputs: its parameters and buffers among them, their initial values, and notes.

    None unless the forward is a module of a file, `@file.py:Class`, and the inputs are stated. Errors in the inputs or the file are
    reported when the op is built. A module owns single tensors, none changed in place (`dirty`), no buffer that may be None.
    """
    stated, inputs = raw.get("forward"), raw.get("inputs")
    if not isinstance(stated, str) or not isinstance(inputs, str):
        return None
    if not stated.lstrip().startswith("@"):
        return None
    try:
        parsed = parse_inputs(inputs, locate(("inputs",)))
        names = frozenset(item.name for item in parsed)
        place = locate(("forward",))
        found = read_reference(stated, "forward", place, read, inputs=names)
    except ScaffoldError:
        return None
    origin = found.text.origin
    if origin is None or origin.function is None or "." not in origin.function:
        return None  # `Norm.forward` alone is a method
    # What forward reads of self is a keyword-only parameter of the function made from it.
    node = origin.definitions.functions[origin.function]
    kinds = {item.arg: _annotation(item.annotation) for item in node.args.kwonlyargs}
    owned = {name: owned_kind(kind) for name, kind in kinds.items()}
    changed = raw.get("dirty", ())
    tensors = [item for item in parsed if isinstance(item, TensorInput)]
    fitting = [one for one in tensors if not one.variadic and one.name not in changed]
    params = [item.name for item in fitting if item.differentiable]
    buffers = [item.name for item in fitting if not item.optional]
    params = [name for name in params if owned.get(name) == "Parameter"]
    buffers = [name for name in buffers if owned.get(name) in BUFFERS]
    if len({*params, *buffers}) == len(tensors):  # its forward must take one
        params, buffers = [], []
    notes = [
        *_unowned(owned, names - {*params, *buffers}),
        *_fixed(origin, origin.function, names),
    ]
    known = Inferred(inputs, (*params,), (*buffers,), stated=True, notes=(*notes,))
    dims = {item.name: item.dims for item in fitting}
    return _with_starts(known, origin, origin.function, dims)


def _unowned(owned: Mapping[str, str], names: Names) -> Iterator[str]:
    """Yield a note for each parameter or buffer of the user's module that stays an argument of the generated one.

    `owned` has the kind of each attribute in the file: "Parameter", "Buffer", or another one that is in no module's lists, "float".
    `names` are the stated inputs that the generated module does not own: a buffer stated as optional, say.
    """
    for name, kind in owned.items():
        if kind in OWNED and name in names:
            word = "parameter" if kind == "Parameter" else "buffer"
            yield f"{name} is a {word} in the file, and cannot be one as --inputs has it"


def _parameters_of_forward(origin: Origin, name: str) -> frozenset[str]:
    """Return the parameters of a class's `forward` as the user wrote it, with `self`, without the attributes that it reads.

    `name`, "Norm.forward", is the plain function made from it (`module_forward`), in which each attribute read from `self` is a
    parameter too: one that is not among the names returned is an attribute.
    """
    # One: with several, reading the forward raised an error.
    (layer,) = modules_named(origin.module, name)
    return frozenset(
        item.arg
        for method in layer.body
        if isinstance(method, ast.FunctionDef) and method.name == "forward"
        for item in parameters(method.args)
    )


def _fixed(origin: Origin, name: str, names: Names) -> Iterator[str]:
    """Yield a note for each attribute the stated inputs, `names`, leave out: in the op it always has the value of `__init__`."""
    node = origin.definitions.functions[name]
    given = defaults(node.args)
    own = _parameters_of_forward(origin, name)
    for item in node.args.kwonlyargs:
        # A parameter of the forward itself is no attribute; without a default nothing is fixed.
        if item.arg in names or item.arg in own or item.arg not in given:
            continue
        value = _source(given[item.arg], origin)
        yield f"self.{item.arg} is {value} always: --inputs leaves it out"


# --- Annotations and defaults.


class _Judged(NamedTuple):
    """One input as judged: its entry, as in `--inputs`, and, if that is no more than a guess, the reason to ask the user about it."""

    entry: str
    question: str = ""  # the reason, for a message; "" if the entry is sure
    node: ast.AST | None = None  # the place of the question in the forward
    owned: str = ""  # the nn.Module's list with it: params or buffers
    shape: str = ""  # its sizes in the `__init__`
    evidence: str = ""  # for its type, for a note


def _declared(
    item: ast.arg, default: ast.expr | None, variadic: bool, origin: Origin
) -> "_Judged | None":
    """Return the entry of a parameter by its annotation and default, `eps=1e-6` -> `eps: float = 1e-6`; None if they do not decide.

    A default of None alone does not: the input may be a tensor or a number. `variadic`: the parameter is `*args`.
    """
    none = isinstance(default, ast.Constant) and default.value is None
    kind = _annotation(item.annotation)
    word = owned_kind(kind)
    if word in OWNED:
        trait = f"[; {BUFFERS[word]}]" if word in BUFFERS else ""
        entry = f"{item.arg}{trait}{'?' if none else ''}"
        sizes = kind.partition("[")[2].removesuffix("]")
        return _Judged(entry, owned=OWNED[word], shape=sizes)
    if "Tensor" in kind:
        several = variadic or word in SEVERAL
        optional = "?" if none or "None" in kind or "Optional" in kind else ""
        return _Judged(f"*{item.arg}" if several else f"{item.arg}{optional}")
    if variadic:
        return None  # `*sizes: int`: only tensors can be a variadic input
    assigned = "" if default is None else f" = {_source(default, origin)}"
    if kind:
        return _Judged(f"{item.arg}: {kind}{assigned}")
    if default is None or none:
        return None
    try:
        value = ast.literal_eval(default)
    except (ValueError, TypeError):  # `eps=math.pi`: a value without a type in the text
        return _Judged(f"{item.arg}{assigned}")
    # Of another literal, as a tuple, no type is written: that is left to the reader of inputs.
    simple = type(value) in (int, float, bool, str)
    stated = f": {type(value).__name__}" if simple else ""
    return _Judged(f"{item.arg}{stated}{assigned}")


def owned_kind(annotation: str) -> str:
    """Return the name of an annotation without its module and brackets: `Parameter` of `Parameter[dim]`, which an owned tensor has."""
    return annotation.partition("[")[0].rpartition(".")[2]


def _annotation(node: ast.expr | None) -> str:
    """Return an annotation as text in today's form, without quotes: `Optional[float]` -> `float | None`; "" if there is none."""
    match node:
        case None:
            return ""
        case ast.Constant(str(text)):
            return text
        case ast.Subscript(ast.Name("Optional") | ast.Attribute(_, "Optional"), inner):
            return f"{_annotation(inner)} | None"
        case ast.Subscript(
            ast.Name("Union") | ast.Attribute(_, "Union"), ast.Tuple(several)
        ):
            return " | ".join(map(_annotation, several))
    return ast.unparse(node).removeprefix("typing.")


def _source(default: ast.expr, origin: Origin) -> str:
    """Return a default as the user wrote it, `1e-6`, not as Python prints it.

    If the reader put a value in its place, as of a constant `EPS`, the written text is another expression: then the value.
    """
    shown = ast.get_source_segment(origin.source, default) or ""
    try:
        same = ast.dump(ast.parse(shown, mode="eval").body) == ast.dump(default)
    except SyntaxError:
        same = False
    return shown if same else ast.unparse(default)


# --- Types from the uses of a name.


def _conclusive(uses: Sequence[Use]) -> dict[Takes, Use]:
    """Return the first use of each kind, without uses as an integer or a number that prove nothing.

    In `x[i] if on else x * i` the index proves nothing: `i` may be a float with a gradient, and that branch may never run. But if `x[i]`
    always runs, `i` has no gradient. So beside a use by value, uses as an index count only if one of them surely runs (not `doubtful`);
    uses as a number likewise.
    """
    left = [*uses]
    if any(use.takes in BY_VALUE for use in uses):
        sure = {use.takes for use in uses if not use.doubtful}
        for kind in (BY_INTEGERS, ("value",)):
            if sure.isdisjoint(kind):
                left = [use for use in left if use.takes not in kind]
    return {use.takes: use for use in reversed(left)}


class _Proven(NamedTuple):
    """The proven type of an input: of a tensor's elements, "int" or "bool", or of a value that is no tensor (`is_value`)."""

    kind: str
    evidence: str
    is_value: bool = False


def _from_uses(name: str, uses: Sequence[Use], by_name: bool = True) -> _Judged:
    """Return the entry of one name by its uses, the surest evidence first: `mask[; bool]` for `x.masked_fill(mask, 0)`.

    Without sure evidence it has a question for the user, also for uses as an index. `by_name`: a name like `eps` suggests a number.
    """
    first = {use.takes: use for use in reversed(uses)}
    proving = _conclusive(uses)
    # A use as a number stays, though it may prove nothing: it leads to a question only.
    by_kind = {
        takes: use
        for takes, use in first.items()
        if takes in proving or takes not in BY_INTEGERS
    }
    optional = "?" if "optional" in by_kind else ""
    # `i.view(-1)` tells that `i` is a tensor, so of an index most likely one of positions.
    is_tensor = {"tensor", "moved"} & by_kind.keys()
    if found := _integers_or_mask(name, by_kind):
        return _Judged(f"{name}[; {found.kind}]{optional}")
    if use := by_kind.get("index"):
        reason = f"'{name}' is used as an index: positions, a mask or a number"
        question = "" if is_tensor else reason
        return _Judged(f"{name}[; int]{optional}", question, use.node)
    if is_tensor and _is_only_compared(by_kind):
        return _Judged(f"{name}[; int]{optional}", evidence=COMPARED)
    if is_tensor:
        return _Judged(f"{name}{optional}")
    if use := by_kind.get("value"):
        reason = f"'{name}' is not a tensor: {use.where}"
        return _Judged(_number(name, use.type, optional), reason, use.node)
    if use := by_kind.get("operand") or by_kind.get("constant"):
        if by_name and _suggests_a_number(name):
            reason = f"'{name}' looks like a number, not a tensor"
            return _Judged(_number(name, "", optional), reason, use.node)
        return _Judged(f"{name}{optional}")
    use = uses[0]
    if optional and all(one.takes in ("optional", "unclear") for one in uses):
        return _Judged(f"{name}?")  # only tested for None: most likely a tensor
    reason = f"it is unknown whether '{name}' is a tensor"
    entry = _number(name, use.type, "") if use.type else name
    return _Judged(entry, f"{reason}: {use.where}" if use.where else reason, use.node)


# Words of names: `valid_mask` is a mask if it may be one, `mask_indices` is not.
OF_MASK = {"mask", "masks"}
OF_POSITIONS = {"id", "ids", "idx", "index", "indices", "pos", "position", "positions"}


def _integers_or_mask(name: str, by_kind: ByKind) -> _Proven | None:
    """Return the type of a name surely used as a tensor of positions, "int", or as a mask, "bool", by its uses; None for any other.

    `x[index]` takes either: then the name decides, if it has a word of masks (`keep_mask`) and none of positions.
    """
    # First: positions are surely integers, while `x[i]` alone leaves open what `i` is.
    if use := by_kind.get("positions"):
        return _Proven("int", f"it holds positions in {use.where}")
    words = {*name.lower().split("_")}
    use, index = by_kind.get("mask"), by_kind.get("index")
    if index and index.type != "positions" and words & OF_MASK:
        use = use or (None if words & OF_POSITIONS else index)
    return _Proven("bool", f"it is a mask in {use.where}") if use else None


def _is_only_compared(by_kind: ByKind) -> bool:
    """Return whether a tensor is only compared for equality (or moved, tested for None), so it needs no gradient: labels, probably."""
    known = by_kind.keys() <= {"constant", "moved", "optional"}
    return known and "constant" in by_kind


def _suggests_a_number(name: str) -> bool:
    """Return whether a name suggests a number rather than a tensor: `temperature`, or `norm_eps`, as a word of it is `eps`.

    `gamma`, `beta` and `scale` may be numbers too, but layers have parameters called so (PARAMETER_NAMES): these are taken for tensors.
    """
    if any(word in USUAL_VALUES for word in name.split("_")):
        return True
    return type_by_name(name) != "object" and name not in PARAMETER_NAMES


def _number(name: str, kind: str, optional: str) -> str:
    """Return the entry of an attribute, `eps: float`; if `kind` is "", of the type its name suggests. `optional` is "?" or ""."""
    known = kind or type_by_name(name)
    shown = "float" if known == "object" and not kind else known
    return f"{name}: {shown}{' | None = None' if optional else ''}"


def _without_inputs(program: Program, write: str) -> ScaffoldError:
    """Return the error for a forward without inputs; the hint says how to give a lambda, a `def` or a bare function instead."""
    message = "the forward uses no input"
    hint = f"name the inputs in call order: {write}'x, weight'"
    if program.text.value.lstrip().startswith("def "):
        hint = "write the body of the function alone; or put the function into a file: '@file.py:function'"
    match program.body:
        case [ast.Expr(ast.Lambda(_, body)) | ast.Return(ast.Lambda(_, body))]:
            hint = f"write what the function returns: {ast.unparse(body)}"
        case [
            ast.Expr(ast.Attribute() as named) | ast.Return(ast.Attribute() as named)
        ]:
            hint = f"call it: {ast.unparse(named)}(x)"
    return ScaffoldError(message, program.text.location, hint)


def _entries(known: Mapping[str, _Judged], program: Program, write: str) -> Inferred:
    """Return the judged inputs, those with a default last; raise for the ones to ask about, with a complete `--inputs` to copy.

    One that is only compared for equality stays a plain tensor if no other is floating: an op needs one with a gradient.
    """
    if not known:
        raise _without_inputs(program, write)
    # Parameters given by keyword may have one without a default last.
    known = dict(sorted(known.items(), key=lambda pair: " = " in pair[1].entry))
    floating = any({name, f"{name}?"} & {item.entry} for name, item in known.items())
    entries = [
        item.entry if floating or item.evidence != COMPARED else name
        for name, item in known.items()
    ]
    value = ", ".join(entries)
    unsure = [item for item in known.values() if item.question]
    if unsure:  # a misspelt operator is the real problem
        raise_all(
            [
                ScaffoldError(message, place_in(program.text, node), hint)
                for node, message, hint in not_operators(program.body, Meanings())
                if isinstance(node, ast.expr) and root_of(node) in WELL_KNOWN
            ]
        )
    plain = value.replace('"', "'")  # for a shell, in quotes of one kind
    quoted = f'"{plain}"' if "'" in plain else f"'{plain}'"
    problems: list[ScaffoldError] = []
    for item in unsure:
        assert item.node is not None  # the position for the message
        last = f"write: {write}{quoted}" if item is unsure[-1] else None
        place = place_in(program.text, item.node)
        problems.append(Unsaid(item.question, place, last, value))
    raise_all(problems)
    params, buffers = (
        tuple(name for name, item in known.items() if item.owned == kind)
        for kind in ("params", "buffers")
    )
    shapes = {name: item.shape for name, item in known.items() if item.shape}
    return Inferred(value, params, buffers, entries=(*entries,), shapes=shapes)


# --- Stated inputs without a type, used as something else than a floating tensor.


def of_stated_names(
    raw: Mapping[str, Any], locate: Locate, read: Callable[[str], str]
) -> tuple[str, tuple[str, ...]] | None:
    """Return the stated inputs with types added that a use or an annotation proves, `x[N], i` -> `x[N], i[; int]`, and a note on each.

    None if nothing is added. Errors in the inputs or the forward are reported when the op is built. A name in a list of the op
    (`params`, `grad`) is a floating tensor, so it stays.
    """
    stated, inputs = raw.get("forward"), raw.get("inputs")
    if not isinstance(stated, str) or not isinstance(inputs, str):
        return None
    text_of_inputs = " ".join(inputs.split())
    try:
        entries = parse_entries(text_of_inputs, Location("--inputs"))
        text = Text(stated, locate(("forward",)))
        if stated.lstrip().startswith("@"):
            given = frozenset(entry.name.text for entry in entries)
            place = text.location
            text = read_reference(stated, "forward", place, read, inputs=given).text
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
    # From the last on, so that earlier places in the text stay right.
    for entry in reversed(entries):
        name, found = entry.name.text, known.get(entry.name.text)
        # An op needs a floating tensor: what is only compared is one if no other is left.
        if found and (floating or found.evidence != COMPARED):
            end = entry.name.place.column - 1 + len(name)
            typed = f": {found.kind}" if found.is_value else f"[; {found.kind}]"
            added = typed
            if entry.dims is not None:
                end, added = text_of_inputs.index("]", end), f"; {found.kind}"
            text_of_inputs = f"{text_of_inputs[:end]}{added}{text_of_inputs[end:]}"
            notes.append(f"{name}{typed} in --inputs: {found.evidence}")
    return (text_of_inputs, (*reversed(notes),)) if notes else None


def _proven_of(entries: Sequence[Entry], text: Text) -> dict[str, _Proven]:
    """Return, by name, the proven type of each stated input without a type; the others are left out.

    `text` is the forward. Of labels that may also be probabilities (a `soft` use) the number of dims decides.
    """
    names = frozenset(entry.name.text for entry in entries)
    uses = NameUses((), names)
    uses.block(program_of(text, Scope(names)).body)
    kinds = dict[str, str]()
    if text.origin and text.origin.function:
        node = text.origin.definitions.functions[text.origin.function]
        for item in parameters(node.args):
            kinds[item.arg] = _annotation(item.annotation)
    known = dict[str, _Proven]()
    depths = [len(one.dims) if one.dims else 0 for one in entries if one.tensor]
    for entry in entries:
        name = entry.name.text
        used = uses.of.get(name, [])
        # `min(depths)` is 0 if some tensor has no declared dims: then numbers of dims tell nothing.
        if entry.dims and min(depths) and len(entry.dims) == max(depths):
            # Class labels have one dim less than the scores; with as many dims they are probabilities.
            used = [use for use in used if not use.soft]
        found = _proven(name, used, kinds.get(name, ""))
        # A tensor's declaration: `x[N]: int` would contradict itself.
        more = entry.dims is not None or entry.optional or entry.default
        fits = entry.tensor and not entry.variadic and not entry.traits
        if found and fits and not (found.is_value and more):
            known[name] = found
    return known


WHOLE_TENSORS = re.compile(
    r"(?:\w+\.)*(?:(?:Long|Int|Short)Tensor|IntBuffer.*|U?Int(?:eger)?\d*\[.*)"
)
MASKS = re.compile(r"(?:\w+\.)*(?:BoolTensor|BoolBuffer.*|Bool\[.*)")


def _annotated(kind: str) -> _Proven | None:
    """Return the type of a tensor's elements by an annotation, "int" of `torch.LongTensor` or `Int[Tensor, "n"]`; None if it says nothing."""
    evidence = f"it is annotated as {kind}"
    if owned_kind(kind) in BUFFERS:
        evidence = "it is a buffer of such elements"
    # Whether it may be None is said by the input, not by its elements.
    kind = kind.removesuffix(" | None")
    if WHOLE_TENSORS.fullmatch(kind):
        return _Proven("int", evidence)
    return _Proven("bool", evidence) if MASKS.fullmatch(kind) else None


def _proven(name: str, uses: Sequence[Use], annotation: str = "") -> _Proven | None:
    """Return the type of an input that uses or an annotation prove to be no floating tensor, with the evidence; else None."""
    by_kind = _conclusive(uses)
    value = by_kind.get("value")
    is_tensor = {"tensor", "moved", "positions", "mask"} & by_kind.keys()
    if value and value.type in ("int", "bool") and not is_tensor:
        return _Proven(value.type, value.where, is_value=True)
    # A number or a tensor, and an index too: the `n` of `x[i.clamp(-n, n) + n]`.
    either = by_kind.get("unclear")
    if "index" in by_kind and either and either.type and not is_tensor:
        return _Proven("int", either.where, is_value=True)
    if found := _annotated(annotation) or _integers_or_mask(name, by_kind):
        return found
    if use := by_kind.get("index"):
        if use.type == "positions":
            return _Proven("int", f"it holds positions in {use.where}")
        return _Proven("int", "it stands in an index (bool, if it is a mask)")
    return _Proven("int", COMPARED) if _is_only_compared(by_kind) else None


def with_dims(inputs: str, shapes: Mapping[str, str]) -> str:
    """Return a value of `inputs` with dims added to entries without: `x, mask[; const]` -> `x[B, T], mask[T; const]`.

    `shapes` has them by name: "B, T". The entries are changed from the last on, so that earlier places stay.
    """
    text = " ".join(inputs.split())
    for entry in reversed(parse_entries(text, Location("--inputs"))):
        dims = shapes.get(entry.name.text)
        if dims is None or entry.dims is not None:
            continue
        end = entry.name.place.column - 1 + len(entry.name.text)
        name, rest = text[:end], text[end:].lstrip()
        traits = rest.startswith("[")  # `mask[; const]`
        text = f"{name}[{dims}{rest[1:]}" if traits else f"{name}[{dims}]{text[end:]}"
    return text
