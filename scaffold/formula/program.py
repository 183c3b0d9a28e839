"""The statements of a formula: of an expression, a text of several lines, or a function of a file.

`parse` calls it first: afterwards a formula has one body of statements, whatever form the user gave, and calls no function of
the file.

Words: names are *resolved* as in `definitions`; a call is *inlined* if the statements of its function stand in its place.

In: a `Text` and the `Scope` of its names. Out: a `Program`. Invariant: every position in it lies in the program's text,
so that a problem in a called function is reported at that function's line.
"""

import ast
from collections.abc import Collection
from typing import NamedTuple

from scaffold.errors import Location, ScaffoldError, did_you_mean
from scaffold.formula.constant_folding import folded
from scaffold.formula.definitions import (
    Definitions,
    Function,
    defaults,
    definitions_of,
    dotted_name,
    parameters,
    resolve,
    statements_of,
)
from scaffold.formula.inline import Inliner, Report, constant
from scaffold.formula.names import names_in, reads, stored, stores
from scaffold.formula.substitution import named, substituted, versioned, with_sizes
from scaffold.formula.text import (
    TAKEN,
    WELL_KNOWN,
    Origin,
    Refusal,
    Scope,
    Text,
    check_depth,
    dedented,
    parse_source,
    with_plain_newlines,
)
from scaffold.formula.user_functions import (
    comments_above,
    comments_inside,
    program_of_file,
)


class Program(NamedTuple):
    """Statements, and the text of their positions."""

    body: list[ast.stmt]
    text: Text
    comments: dict[int, tuple[str, ...]]  # by the line of the statement below
    problems: list[ScaffoldError]  # calls that could not be inlined
    others: frozenset[str] = frozenset()  # non-constant names of the file


def program_of(text: Text, scope: Scope) -> Program:
    """Return the statements of a text, with names resolved, and calls of its file's and of nested functions inlined."""
    if text.origin is not None:
        return _of_file(text, text.origin, scope)
    text = dedented(with_plain_newlines(text))
    module = parse_source(text)
    # A text of no file: its own functions are nested ones.
    body, problems = with_sizes(module.body, scope), list[ScaffoldError]()
    comments = comments_above(text.value, body)
    if any(map(_defines, body)):
        body = _without_functions(body, text, scope, problems)
    return Program(body, text, comments, problems)


def _defines(item: ast.stmt) -> bool:
    """Return whether a statement defines a function, by `def` or as a named lambda."""
    match item:
        case ast.FunctionDef() | ast.Assign([ast.Name()], ast.Lambda()):
            return True
    return False


def _without_functions(
    statements: list[ast.stmt], text: Text, scope: Scope, problems: list[ScaffoldError]
) -> list[ast.stmt]:
    """Return the statements of a text with the calls of its nested functions inlined.

    A call that cannot be inlined is added to `problems`.
    """
    statements = _returning(statements) if scope.wants_result else statements
    definitions = definitions_of(ast.Module([], []))
    body = _as_function(statements, definitions).body
    names = scope.outer
    taken = TAKEN | {*names, *names_in(body)}
    # A name that the body assigns may be None after it.
    never_none = scope.tensors - scope.optional - {*stored(body)}
    inliner = Inliner(
        definitions,
        names.union(stored(body)),
        never_none,
        taken,
        lambda refusal: problems.append(refusal.within(text)),
    )
    inlined = inliner.block(body, {})
    check_depth(ast.Module(inlined, []), text)
    return inlined


def _returning(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return statements with a final expression turned into a `return`.

    A call that stands alone before it stays a statement, and is inlined without its value.
    """
    match body:
        case [*above, ast.Expr(value) as last]:
            return [*above, ast.copy_location(ast.Return(value), last)]
    return body


ALL_OF_THEM = (
    "add them to the inputs; new-op without --inputs takes all of them from the forward"
)


def _of_file(text: Text, origin: Origin, scope: Scope) -> Program:
    """Return the program of a file's function, with its calls of other functions inlined.

    Raise an error if a module's forward reads attributes of `self` that are not among the inputs: in the function made of the
    forward these are the keyword-only parameters (`of_self`).
    """
    file = Text(origin.source, Location(text.location.source), files=origin.files)
    problems: list[ScaffoldError] = []

    def report(refusal: Refusal) -> None:
        problems.append(refusal.within(file))

    definitions = origin.definitions.without(scope.imported)
    function = _entry(origin, definitions)
    parameter_names = {item.arg for item in parameters(function.arguments)}
    names = scope.outer
    with_value = names | defaults(function.arguments).keys()
    of_self = [item.arg for item in function.arguments.kwonlyargs]
    if lacking := [name for name in of_self if name not in with_value]:
        message = f"the forward also needs {', '.join(lacking)}"
        raise ScaffoldError(message, text.location, ALL_OF_THEM)
    body = _with_defaults(function, names, report)
    readable = names.union(stored(body))
    taken = TAKEN | {*names, *parameter_names, *names_in(body)}
    never_none = scope.tensors - scope.optional - {*stored(body)}
    inliner = Inliner(definitions, readable, never_none, taken, report)
    done = inliner.block(body, {})
    done = _with_functions_named(done, names | parameter_names)
    check_depth(ast.Module(done, []), file)
    parts = [statements_of(item) for item in definitions.functions.values()]
    bodies = [function.body] if origin.function is None else parts
    comments = comments_inside(file.value, bodies)
    return Program(done, file, comments, problems, definitions.others)


def _with_functions_named(
    body: list[ast.stmt], inputs: Collection[str]
) -> list[ast.stmt]:
    """Return statements with `F.relu(x)` for `act(x)` after `act = F.relu`, if `act` is bound once, and without that line.

    A formula cannot hold a function as a value. A name of an input stays.
    """
    nodes = [node for item in body for node in ast.walk(item)]
    bound = [node.id for node in stores(body)]
    calls = (node.func for node in nodes if isinstance(node, ast.Call))
    called = {node.id for node in calls if isinstance(node, ast.Name)}
    functions, kept = dict[str, ast.expr](), list[ast.stmt]()
    for item in body:
        match item:
            case ast.Assign([ast.Name(name)], ast.Attribute() as value) if (
                # Without a call of it, `scale = math.pi` is a value, and stays.
                name in called - {*inputs}
                and bound.count(name) == 1
                and (dotted_name(value) or "").partition(".")[0] in WELL_KNOWN
            ):
                functions[name] = value
            case _:
                kept.append(item)
    return [substituted(item, functions) for item in kept]


def _entry(origin: Origin, definitions: Definitions) -> Function:
    """Return the function to read, with resolved names; a file without functions is read as the body of one."""
    if origin.function is not None:
        chosen = origin.definitions.functions[origin.function]
        return resolve(origin.function, chosen, definitions, called=False)
    return _as_function(_returning(program_of_file(origin.module)), definitions)


def _as_function(statements: list[ast.stmt], definitions: Definitions) -> Function:
    """Return statements as a function around them, since names are resolved in functions."""
    (node,) = ast.parse("def body(): pass").body
    assert isinstance(node, ast.FunctionDef)
    node.body = statements
    return resolve("", node, definitions, called=False)


def _with_defaults(
    function: Function, names: Collection[str], report: Report
) -> list[ast.stmt]:
    """Return the body with defaults in place of parameters without an input.

    `def f(x, eps=1e-5)` without an input `eps` computes with 1e-5. `names` are those of the inputs and other names from outside.
    A default that is no constant is reported, and so is a parameter whose name resembles an input's: a misspelt input.
    """
    body, values = function.body, dict[str, ast.expr]()
    parameter_names = {item.arg for item in parameters(function.arguments)}
    for name, value in defaults(function.arguments).items():
        changed = name in stored(body)
        # An input has its value from the call; a parameter nobody reads needs none.
        if name in names or not (changed or reads(body, name)):
            continue
        meant = did_you_mean(name, set(names) - parameter_names)
        if meant is not None:
            message = f"parameter '{name}' has a default, but is not among the inputs"
            report(Refusal(value, message, meant))
        try:
            value = constant(value, name, "declare it in --inputs")
        except Refusal as refusal:
            report(refusal)
            value = ast.copy_location(ast.Constant(None), value)
        if changed:  # the body assigns the parameter: the default gets a name, too
            body = versioned(body, name, value, name) or [named(name, value), *body]
        else:
            values[name] = value
    return folded([substituted(item, values) for item in body])
