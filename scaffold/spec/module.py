"""The module of an op: the inputs it owns, their initialization and updates.

An op `linear(input, weight, bias)` gets a module `Linear(in_features, out_features)` that owns `weight` and `bias` as parameters.
In: `module`, `params`, `buffers`, `update` and `init` of a raw mapping. Out: a `ModuleSpec`, or None. Invariant: each name in a
list or table is an input the module can own, under a name not used by nn.Module; an initialization is a function of
torch.nn.init with valid arguments.

Words: *owned* inputs are the module's parameters and buffers, the others are arguments of its forward; an *update* is the new
value of a buffer in training, `running_mean = '0.9 * running_mean + 0.1 * mean'`.
"""

import ast
import re
import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from scaffold.errors import Location, ScaffoldError, did_you_mean, raise_all
from scaffold.formula import Formula, Scope, Text, parse
from scaffold.spec.arguments import Arguments, tensor_names
from scaffold.spec.config import Configuration
from scaffold.spec.config_values import Shapes
from scaffold.spec.imports import meanings
from scaffold.spec.maths import Maths
from scaffold.spec.op_spec import Attribute, Dim, Init, ModuleSpec, leading
from scaffold.spec.problems import Problems

# --- Initialization of a parameter: the functions of torch.nn.init.
#
# The key `init` states them: `init = { weight = "uniform(-0.1, 0.1)" }`.
# In: `uniform(-0.1, 0.1)`, or a bare `zeros`. Out: an `Init`. Invariant: the function exists, its arguments are
# arithmetic of numbers or one of its own words, and it accepts them.


CALL = re.compile(r"\s*(?P<name>\w+)\s*(?:\((?P<arguments>[^\n]*)\))?\s*")
WORDS = frozenset({"mode", "nonlinearity"})  # string arguments
EXAMPLE = "write: uniform(-0.1, 0.1), or another function of torch.nn.init"


class Function(NamedTuple):
    """A function of torch.nn.init: its arguments after the tensor, how many of them are required, the least and largest rank of a tensor."""

    arguments: tuple[str, ...] = ()
    needed: int = 0
    ranks: tuple[int, int] | None = None


NO_LIMIT = 99  # as the largest rank
KAIMING = Function(("a", "mode", "nonlinearity"), ranks=(2, NO_LIMIT))
XAVIER = Function(("gain",), ranks=(2, NO_LIMIT))
FUNCTIONS = {
    "constant": Function(("val",), needed=1),
    "dirac": Function(("groups",), ranks=(3, 5)),
    "eye": Function(ranks=(2, 2)),
    "fan_in_uniform": Function(),
    "kaiming_normal": KAIMING,
    "kaiming_uniform": KAIMING,
    "normal": Function(("mean", "std")),
    "ones": Function(),
    "orthogonal": Function(("gain",), ranks=(2, NO_LIMIT)),
    "sparse": Function(("sparsity", "std"), needed=1, ranks=(2, 2)),
    "trunc_normal": Function(("mean", "std", "a", "b")),
    "uniform": Function(("a", "b")),
    "xavier_normal": XAVIER,
    "xavier_uniform": XAVIER,
    "zeros": Function(),
}
OTHER_NAMES = {
    "glorot": "xavier_uniform",
    "he": "kaiming_normal",
    "kaiming": "kaiming_uniform",
    "rand": "uniform",
    "randn": "normal",
    "xavier": "xavier_uniform",
}


def parse_init(
    parameter: str, text: str, start: Location, dims: tuple[Dim, ...] | None
) -> Init:
    """Return the initialization that `text`, `normal(std=0.02)` or a bare `zeros`, states for a parameter.

    Raise, at a place in the text (which begins at `start`), for an unknown function, wrong arguments, or one not for this rank:
    some are for matrices alone. `dims` is the parameter's shape, None if unknown.
    """
    match = CALL.fullmatch(text)
    if match is None:
        message = f"'{' '.join(text.split())}' is not an initialisation"
        raise ScaffoldError(message, start, EXAMPLE)
    place = start.shifted(0, match.start("name"))
    name = match["name"]
    known = name if name in FUNCTIONS else name.removesuffix("_")  # torch: `zeros_`
    function = FUNCTIONS.get(known)
    if function is None:
        raise _unknown(name, place)
    # A place inside the brackets; at the name if there are none.
    written = (match["arguments"] or "").strip().removesuffix(",").rstrip()
    at = match.start("arguments") + _indent(match["arguments"] or "")
    inside = start.shifted(0, max(at, match.start("name")))
    _check_arguments(known, function, written, inside)
    # With leading dims, `w[*batch, N]`, the rank is not known.
    if function.ranks and dims is not None and leading(dims) is None:
        _check_rank(parameter, known, function.ranks, len(dims), place)
    return Init(parameter, known, written)


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _unknown(name: str, place: Location) -> ScaffoldError:
    """Return the error for an unknown function, with the one of torch.nn.init that is probably meant: `xavier` -> `xavier_uniform`."""
    other = OTHER_NAMES.get(name.lower())
    hint = f"did you mean '{other}'?" if other else did_you_mean(name, FUNCTIONS)
    hint = hint or f"one of: {', '.join(FUNCTIONS)}"
    return ScaffoldError(f"unknown initialisation '{name}'", place, hint)


def _check_arguments(
    name: str, function: Function, written: str, place: Location
) -> None:
    """Raise all problems of an initialization's arguments: each must be known, given once, and a number or a word.

    `name` is the function of torch.nn.init, `written` its arguments as text, found at `place`. `given` are the names of the
    arguments, in the order of their values: positional ones are named by their position.
    """
    call = _parsed_call(name, written, place)
    problems: list[ScaffoldError] = []
    given = list(function.arguments[: len(call.args)])
    for value in call.args[len(function.arguments) :]:
        message = f"{name} takes {_count(len(function.arguments), 'argument')}"
        problems.append(ScaffoldError(message, _at(value, place)))
    for keyword in call.keywords:
        # The keyword of `**x` has no name.
        label = keyword.arg or "**"
        if label not in function.arguments:
            hint = did_you_mean(label, function.arguments)
            message = f"{name} has no argument '{label}'"
            problems.append(ScaffoldError(message, _at(keyword, place), hint))
        elif label in given:
            message = f"{name} gets '{label}' twice"
            problems.append(ScaffoldError(message, _at(keyword, place)))
        given.append(label)
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    # A positional value too many has no name; it is reported above.
    for label, value in zip(given, values, strict=False):
        fits = _is_word(value) if label in WORDS else _is_number(value)
        if label in function.arguments and not fits:
            kind = "string" if label in WORDS else "number"
            message = f"{ast.unparse(value)} is not a {kind}"
            hint = "write numbers, as in a=5**0.5" if kind == "number" else None
            problems.append(ScaffoldError(message, _at(value, place), hint))
    for label in set(function.arguments[: function.needed]) - set(given):
        hint = f"write: {name}({label}=0.1)"
        problems.append(ScaffoldError(f"{name} needs '{label}'", place, hint))
    raise_all(problems)


def _parsed_call(name: str, written: str, place: Location) -> ast.Call:
    """Return the syntax of a call `f(...)` with the written arguments; raise if the text is more than arguments, or too long.

    `0.1) + g(2` would also be Python after `f(`; so the call must end where the text does. `name` is for the message. Arguments of
    thousands of operators would overflow the stack of the checks that follow.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # such as '\d'
            tree = ast.parse(f"f({written})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    # Nothing may follow, not even a comment. `ast` counts columns in bytes.
    length = len(f"f({written})".encode())
    match tree:
        case ast.Call(ast.Name("f"), end_col_offset=end) if end == length <= 200:
            return tree
    message = f"'{name}({written})' is not an initialisation"
    raise ScaffoldError(message, place, EXAMPLE)


def _at(node: ast.expr | ast.keyword, place: Location) -> Location:
    """Return the place of a node of `f(...)`, if the arguments begin at `place`."""
    return place.shifted(0, node.col_offset - len("f("))


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def _is_word(value: ast.expr) -> bool:
    """Return whether an expression is a string of one word: `"fan_in"`."""
    match value:
        case ast.Constant(str() as word):
            return word.isidentifier()
    return False


def _is_number(value: ast.expr) -> bool:
    """Return whether an expression is a number, or arithmetic of numbers, `5**0.5`: an argument of an initialization."""
    match value:
        case ast.Constant(int() | float() as number):
            return not isinstance(number, bool)
        case ast.UnaryOp(ast.USub() | ast.UAdd(), operand):
            return _is_number(operand)
        case ast.BinOp(
            left, ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.Pow(), right
        ):
            return _is_number(left) and _is_number(right)
    return False


def _check_rank(
    parameter: str, name: str, ranks: tuple[int, int], rank: int, place: Location
) -> None:
    """Raise if a function of torch.nn.init does not accept a parameter of this rank; `ranks` are the least and the largest accepted."""
    low, high = ranks
    if low <= rank <= high:
        return
    wanted = f"{low}" if low == high else f"{low} to {high}"
    wanted = f"at least {low}" if high == NO_LIMIT else wanted
    message = f"{name} is for {wanted} dimensions, '{parameter}' has {rank}"
    hint = "write uniform(...), normal(...), zeros or fan_in_uniform"
    raise ScaffoldError(message, place, hint)


# --- The module of an op: the inputs it owns, their initialization and updates.


Raw = Mapping[str, Any]
Names = tuple[str, ...]

# Names used by nn.Module, and names generated modules define or take.
TAKEN = frozenset(
    {
        *("T_destination", "add_module", "apply", "bfloat16", "buffers"),
        *("call_super_init", "children", "compile", "cpu", "cuda", "double"),
        *("dump_patches", "eval", "extra_repr", "float", "forward", "get_buffer"),
        *("get_extra_state", "get_parameter", "get_submodule", "half", "ipu"),
        *("load_state_dict", "modules", "mtia", "named_buffers", "named_children"),
        *("named_modules", "named_parameters", "parameters"),
        *("register_backward_hook", "register_buffer", "register_forward_hook"),
        *("register_forward_pre_hook", "register_full_backward_hook"),
        *("register_full_backward_pre_hook", "register_load_state_dict_post_hook"),
        *("register_load_state_dict_pre_hook", "register_module"),
        *("register_parameter", "register_state_dict_post_hook"),
        *("register_state_dict_pre_hook", "requires_grad_", "reset_parameters"),
        *("set_extra_state", "set_submodule", "share_memory", "state_dict", "to"),
        *("to_empty", "train", "training", "type", "xpu", "zero_grad", "_buffers"),
        *("_modules", "_parameters"),
    }
)
# Arguments of a module's constructor that say how its tensors are created.
FACTORY = frozenset({"device", "dtype"})


def read_module(
    raw: Raw,
    arguments: Arguments,
    maths: Maths,
    shapes: Shapes,
    configuration: Configuration,
    problems: Problems,
) -> ModuleSpec | None:
    """Return the nn.Module of the op: its parameters and buffers, their updates and initialization; None if `module` is false.

    Settings only a module needs are then reported. `raw` are the keys of the op, `maths` its formulas, in whose graph updates are
    parsed; `shapes` are the usual shapes of inputs declared without one.
    """
    if raw.get("module") is False:
        for key in ("params", "buffers", "update", "init"):
            if raw.get(key):
                problems.at((key,), f"'{key}' needs the module, but module is off")
        return None
    buffers = tensor_names("buffers", arguments.inputs, raw, problems)
    parameters = _parameters(raw, arguments, buffers, configuration, problems)
    _check_owned(arguments, parameters, buffers, raw, problems)
    _check_names(arguments, parameters, buffers, shapes, raw, problems)
    return ModuleSpec(
        parameters,
        buffers,
        _updates(raw, arguments, maths, buffers, problems),
        _inits(raw, arguments, (*parameters, *buffers), shapes, problems),
    )


def _parameters(
    raw: Raw,
    arguments: Arguments,
    buffers: Names,
    configuration: Configuration,
    problems: Problems,
) -> Names:
    """Return the inputs the module owns as parameters: inputs in the key `params`, else inputs with a usual name such as `weight`.

    By names alone it would own no input, if otherwise it owned every tensor: its forward would have none to take.
    """
    if "params" in raw:
        return tensor_names("params", arguments.inputs, raw, problems)
    # A buffer is no parameter, and a parameter cannot be changed in place.
    usual = set(configuration.parameter_names) - set(buffers) - set(arguments.dirty)
    named = [
        item.name
        for item in arguments.tensors
        if item.name in usual and item.differentiable and not item.variadic
    ]
    owned = {*named, *buffers}
    return tuple(named) if len(owned) < len(arguments.tensors) else ()


def _check_owned(
    arguments: Arguments,
    parameters: Names,
    buffers: Names,
    raw: Raw,
    problems: Problems,
) -> None:
    """Report owned inputs the module cannot own: parameters changed in place or without a gradient, optional buffers, names in both lists.

    A module owning every tensor is reported too: its forward would have no input.
    """
    known = {item.name: item for item in arguments.tensors}
    # A name of no tensor is reported already, and in neither `parameters` nor `buffers`.
    for position, name in enumerate(raw.get("params", ())):
        path = ("params", str(position))
        if name in buffers:
            hint = f"take '{name}' out of the parameters"
            if known[name].differentiable:  # without a gradient it cannot be one
                hint += ", or out of the buffers"
            problems.at(path, f"'{name}' is a parameter and a buffer", hint)
            continue
        if name in arguments.dirty:
            message = f"'{name}' is changed in place, which a parameter cannot be"
            problems.at(path, message)
        if name in parameters and not known[name].differentiable:
            message = f"'{name}' gets no gradient, so it is not a parameter"
            problems.at(path, message, f"make it a buffer: buffers = ['{name}']")
    for position, name in enumerate(raw.get("buffers", ())):
        if name in buffers and known[name].optional:
            path = ("buffers", str(position))
            problems.at(path, f"'{name}' may be None, which a buffer cannot be")
    if len({*parameters, *buffers}) == len(known):
        # By their names alone `_parameters` never takes all: a key did.
        key = "params" if raw.get("params") else "buffers"
        message = (
            "the module would own every input, so its forward would take no tensor"
        )
        hint = "leave out an input that its forward takes, or write no module"
        problems.at((key,), message, hint)


def _check_names(
    arguments: Arguments,
    parameters: Names,
    buffers: Names,
    shapes: Shapes,
    raw: Raw,
    problems: Problems,
) -> None:
    """Report attributes, parameters, buffers and sizes with a name nn.Module uses itself, such as `training` or `forward`.

    The module stores each of them as an attribute. Sizes of its parameters, declared or usual (`shapes`), are arguments of its
    constructor, which also takes `device` and `dtype` (FACTORY) if it owns tensors.
    """
    owned = {*parameters, *buffers}
    declared = {item.name: item.dims for item in arguments.tensors} | dict(shapes)
    attributes = {
        item.name: item for item in arguments.inputs if isinstance(item, Attribute)
    }
    sizes = {str(dim) for name in owned for dim in declared[name] or ()}
    taken = TAKEN | FACTORY if owned else TAKEN
    for name in sorted({*owned, *attributes, *sizes} & taken):
        if name == "training" and name in attributes:
            continue  # the module's own attribute is used
        message = f"the module cannot keep '{name}': nn.Module has that name"
        if name in FACTORY:
            message = f"the module cannot keep '{name}': its constructor takes it"
        key = "inputs" if "inputs" in raw else "schema"
        problems.at((key,), message, f"rename '{name}', or write no module")


def _updates(
    raw: Raw, arguments: Arguments, maths: Maths, buffers: Names, problems: Problems
) -> tuple[tuple[str, Formula], ...]:
    """Return for each buffer named in `update` the formula of its new value in training; report a name that is no buffer's.

    A formula may read the op's inputs and imports, and is parsed in the graph of the op's other formulas.
    """
    names = frozenset(item.name for item in arguments.inputs)
    names |= {item.binding for item in maths.imports}
    tensors = frozenset(item.name for item in arguments.tensors)
    optional = frozenset(item.name for item in arguments.tensors if item.optional)
    found = []
    for name, value in raw.get("update", {}).items():
        path = ("update", name)
        if name not in buffers:
            hint = did_you_mean(name, buffers)
            hint = hint or f"name it in buffers: buffers = ['{name}']"
            problems.at_key(path, f"'{name}' is not a buffer", hint)
            continue
        text = Text(value, problems.within(path))
        known = meanings(maths.imports, arguments.inputs)
        # None: it need not assign gradients, as a backward must.
        scope = Scope(names, optional, None, tensors, meanings=known)
        formula = problems.attempt(partial(parse, text, scope, maths.graph))
        found += [(name, formula)] if formula is not None else []
    return tuple(found)


def _inits(
    raw: Raw, arguments: Arguments, owned: Names, shapes: Shapes, problems: Problems
) -> tuple[Init, ...]:
    """Return the initializations stated by the key `init`; report invalid ones and leave them out.

    `owned` are the module's parameters and buffers: only they have one. `shapes` are usual shapes of inputs declared without.
    """
    dims = {item.name: item.dims for item in arguments.tensors} | dict(shapes)
    found = []
    for name, text in raw.get("init", {}).items():
        path = ("init", name)
        if name not in owned:
            hint = did_you_mean(name, owned)
            hint = hint or f"name it in params: params = ['{name}']"
            problems.at_key(path, f"'{name}' is not a parameter of the module", hint)
            continue
        place = problems.within(path)
        item = problems.attempt(partial(parse_init, name, text, place, dims[name]))
        found += [item] if item else []
    return tuple(found)
