"""`op_testing.py`, the code shared by the tests of all ops: a file in a project, elsewhere part of each test.

In: the team's style; the text of a test. Out: the text of the file, or the part of it a test needs.
Invariant: it depends on the templates and the style alone, and imports nothing of this package; a test with its own copy has the
same test methods as one importing the file.

Words: a test method, a *question*, is asked of an op if the attributes named in its decorator `@asked_if` are true of it; *stated* are the
attributes in the class of the op's own test, others have defaults in the shared class. The op's own test file is the `test`; the shared code
is the `text`, or its `tree`. Code is *kept* if it is copied into a test, else it is *cut*; a method is *found* if pytest looks for its
name, and *read* if other code names it; names in *never* are cut whatever reads them.
"""

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from scaffold.render.environment import render_block, with_imports
from scaffold.render.file_style import PLAIN, House
from scaffold.render.imports import import_block
from scaffold.render.layout import OpTesting
from scaffold.render.templates import OP_TESTING
from scaffold.render.testcases import LIBRARY, tuple_of
from scaffold.spec import Import
from scaffold.spec.testing_settings import BESIDE, CHECKS, Testing

KNOWN = (
    *(item for item in LIBRARY if item.binding != "once_differentiable"),
    Import("functools"),
    Import("torch.utils._python_dispatch", "TorchDispatchMode"),
)
CONDITION = "asked_if"  # decorator naming the class attribute a test method requires
LEFT_OUT = "Questions"  # class dropping test methods from collection
SKELETON = ("unwritten", "written")  # methods for ops with unwritten parts
Definition = ast.FunctionDef | ast.ClassDef
Truths = Mapping[str, bool]  # attributes of a class, and whether they are true


class Check(NamedTuple):
    """An optional check of every op, which a project turns on in its settings."""

    name: str
    asked: bool  # it is on


class OpTestingView(NamedTuple):
    """The template's data."""

    licence_lines: tuple[str, ...]
    header: str
    imports: str
    shared: bool  # the file of a project, with the team's checks
    module: str  # the name tests import it by
    devices: str
    dtypes: str
    checks: tuple[Check, ...]


def op_testing_draft(
    house: House,
    testing: Testing | None = BESIDE,
    module: str = OpTesting().module,
) -> str:
    """Render the code shared by tests, not formatted yet: the file of a project, or, without `testing`, the part for one test.

    A test's own copy has no optional checks, and no imports: they stand in the test.
    """
    single = house.single_line_imports

    def imports(code: str) -> str:
        if testing is None:
            return ""  # the test has its own imports
        return import_block(code, (), KNOWN, single)

    return with_imports(OP_TESTING, _view(house, testing, module), imports, house)


def _view(house: House, testing: Testing | None, module: str = "") -> OpTestingView:
    """Return the template's data: the project's devices, dtypes and checks; without `testing`, for a test's own copy."""
    asked = testing or Testing()
    return OpTestingView(
        licence_lines=house.licence,
        header=house.header,
        imports="",
        shared=testing is not None,
        module=module,
        devices=tuple_of(f'"{device}"' for device in asked.devices),
        dtypes=tuple_of(f"torch.{dtype}" for dtype in asked.dtypes),
        checks=tuple(Check(name, name in asked.checks) for name in CHECKS),
    )


def makers() -> str:
    """Render our functions making special tensors."""
    return render_block(OP_TESTING, "makers", _view(PLAIN, None))


# --- The part of the file a single test needs.
#
# In: the text of the file, and that of a test without it. Out: definitions, in their order, without imports.
# Invariant: everything cut is unreachable: test methods not run for this op, and definitions nothing else reads.


def needed(text: str, test: str, complete: bool, found: bool = True) -> str:
    """Return the part of the shared code, `text`, to copy into a test not importing the file: all it needs, directly or not.

    `test` is the test's text without it. A `complete` op needs nothing for unwritten parts. Test methods are `found` by pytest; if not, only
    those that the test calls are copied.
    """
    own = ast.parse(test)
    tree = _parsed(text)
    passed_through = _give_back_their_argument(tree, own)
    never = SKELETON if complete else ()
    kept = _Kept(own, (*never, *passed_through), found)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            kept.leave_out(_not_asked(node, _attributes(own, node.name)))
    kept.follow(tree.body)
    head = range(1, _lines(tree.body[0]).start)  # its licence: the test has its own
    cut = {*head, *kept.cut_lines(tree.body)}
    left_out = (
        *_calls_of(tree, passed_through),
        *((Place(n), Place(n + 1)) for n in cut),
    )
    # The class without the base that is cut as well.
    return _without(text, left_out).replace(f"({LEFT_OUT}):", ":")


class Place(NamedTuple):
    """A place in the text; lines count from 1."""

    line: int
    column: int = 0


def _without(text: str, ranges: Iterable[tuple[Place, Place]]) -> str:
    """Return a text without some ranges, even overlapping ones: calls and methods one op does not need."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    shown, end = [], 0
    for first, last in sorted(ranges):
        begin = starts[first.line - 1] + first.column
        if begin > end:
            shown.append(text[end:begin])
        end = max(end, starts[last.line - 1] + last.column)
    return "".join([*shown, text[end:]]).rstrip("\n")


def _give_back_their_argument(tree: ast.Module, own: ast.Module) -> frozenset[str]:
    """Return the methods with their argument as result for this op: `on_copy` if nothing changes in place, `seeded`, `prepared`.

    Calls of these are cut out of the code: `self.seeded(self.op)(x)` -> `self.op(x)`. `tree` is the shared code, `own` the test with the
    attributes of its class.
    """
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            # What the op's own class assigns goes before the default in the shared one.
            truths = dict(_truths(node.body)) | dict(_attributes(own, node.name))
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and _gives_back(
                    item, truths, found
                ):
                    found.add(item.name)
    return frozenset(found)


def _gives_back(method: ast.FunctionDef, truths: Truths, known: set[str]) -> bool:
    """Return whether a method returns its argument unchanged, given the `known` methods of this kind above it.

    Either its first line returns it because a flag is false (`truths`), or it only passes it through known methods.
    """
    if len(method.args.args) != 2:  # `self` and the argument
        return False
    match method.body[1:]:  # below the docstring
        case [
            ast.If(
                test=ast.UnaryOp(op=ast.Not(), operand=ast.Attribute(attr=flag)),
                body=[ast.Return(value=ast.Name(id=name))],
            ),
            *_,
            # An attribute that no class assigns may be true: then the method stays.
        ] if not truths.get(flag, True):
            # `if not self.random: return function`
            return name == method.args.args[1].arg
        case [ast.Return(value=ast.Call() as value)]:  # `return self.seeded(function)`
            inner: ast.expr = value
            # `self.seeded(self.on_copy(function))`: from call to call inwards.
            while isinstance(inner, ast.Call) and _calls(inner, known):
                inner = inner.args[0]
            return isinstance(inner, ast.Name) and inner.id == method.args.args[1].arg
    return False


def _calls(call: ast.Call, methods: Collection[str]) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in methods


@lru_cache(maxsize=8)  # most ops leave out the same ones
def _calls_of(
    tree: ast.Module, methods: frozenset[str]
) -> tuple[tuple[Place, Place], ...]:
    """Return the ranges to cut around the arguments of these methods: `self.seeded(` and `)`."""
    found = []
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and _calls(call, methods):
            (argument,) = call.args  # these methods have one parameter
            # Without brackets of its own: `self.seeded(self.op)(x)` -> `self.op(x)`.
            if isinstance(argument, ast.Name | ast.Attribute | ast.Call):
                found += [(_start(call), _start(argument))]
                found += [(_end(argument), _end(call))]
            else:  # its parentheses stay: `(expected or self.op)(x)`
                found += [(_start(call), _end(call.func))]
    return tuple(found)


def _start(node: ast.expr) -> Place:
    return Place(node.lineno, node.col_offset)


def _end(node: ast.expr) -> Place:
    return Place(node.end_lineno or 0, node.end_col_offset or 0)


@lru_cache(maxsize=2)
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def _attributes(test: ast.Module, base: str) -> Truths:
    """Return the attributes of the test's class extending `base`, each with its truth value; {} without such a class."""
    for node in test.body:
        if isinstance(node, ast.ClassDef) and base in map(ast.unparse, node.bases):
            return dict(_truths(node.body))
    return {}


def _truths(body: Iterable[ast.stmt]) -> Iterator[tuple[str, bool]]:
    """Yield the attributes assigned in a class body, each with its truth value; functions and computed values count as true.

    A method behind a false attribute is left out of the test.
    """
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, True
        for target in _targets(node):
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            try:
                # `op: ClassVar[...]` declares an attribute without a value: it counts as false.
                yield target, value is not None and bool(ast.literal_eval(value))
            except ValueError:
                yield target, True


def _targets(node: ast.stmt) -> list[str]:
    """Return the names a statement assigns."""
    match node:
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Assign(targets=[ast.Name(id=name)]):
            return [name]
        case ast.Assign(targets=[ast.Tuple(elts=elements)]):
            return [item.id for item in elements if isinstance(item, ast.Name)]
    return []


def _not_asked(node: ast.ClassDef, stated: Truths) -> Iterator[str]:
    """Yield the test methods of a class, `OpTests.test_vmap`, that are not run for an op with the attributes `stated` in its test."""
    truths = dict(_truths(node.body)) | dict(stated)
    for item in node.body:
        for condition in _conditions(item):
            name = condition.removeprefix("not ")
            wanted = name == condition  # without `not` in front
            if truths.get(name, False) is not wanted:
                yield f"{node.name}.{getattr(item, 'name', '')}"


def _conditions(item: ast.stmt) -> list[str]:
    """Return the conditions in a test method's decorator, `@asked_if("random")`: an attribute, perhaps after `not`."""
    if not isinstance(item, ast.FunctionDef):
        return []
    return [
        argument.value
        for one in item.decorator_list
        if _is_condition(one) and isinstance(one, ast.Call)  # a call: for mypy
        for argument in one.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def _is_condition(decorator: ast.expr) -> bool:
    """Return whether a decorator is `@asked_if(...)`."""
    match decorator:
        case ast.Call(func=ast.Name(id=name)):
            return name == CONDITION
    return False


class _Kept:
    """The definitions of the shared code a test needs, directly or through others; all others are cut."""

    def __init__(self, test: ast.Module, never: tuple[str, ...], found: bool) -> None:
        """Begin with the names read by the test; with `found`, all test methods and fixtures are kept, as pytest finds them."""
        self.read = set(_read(test))  # names, and attributes as `.name`
        self.never = never  # names of methods that are always cut
        self.collected = found  # by pytest, which looks for fixtures too
        # Prefixes of methods kept though nothing reads them.
        # `pytest_generate_tests` is called by pytest, `__init_subclass__` by Python.
        self.found = ("test_", "pytest", "__") if found else ("__",)
        self.out: set[str] = set()  # `Class.question`: questions not asked of this op

    def leave_out(self, questions: Iterable[str]) -> None:
        """Cut these test methods."""
        self.out |= {*questions}

    def keeps(self, node: ast.stmt, owner: str = "") -> bool:
        """Return whether a definition is kept: it is read, or found by pytest, and no question left out.

        `owner` is the class it stands in, "" outside of one; a statement there that defines nothing stays, unless it calls what is cut.
        """
        names = [node.name] if isinstance(node, Definition) else _targets(node)
        # What pytest looks for stands in a class; a definition outside of one has to be read.
        if not owner:
            return any(name in self.read for name in names) and not self._cut(names)
        if not names:  # no definition: a docstring, or a call
            return not self._calls_what_is_cut(node)
        found = any(name.startswith(self.found) for name in names)
        fixture = self.collected and _is_fixture(node)
        read = any(f".{name}" in self.read for name in names)
        unasked = any(f"{owner}.{name}" in self.out for name in names)
        return (found or fixture or read) and not unasked and not self._cut(names)

    def _cut(self, names: Iterable[str]) -> bool:
        return any(name in (*self.never, CONDITION, LEFT_OUT) for name in names)

    def _calls_what_is_cut(self, node: ast.stmt) -> bool:
        """Return whether a statement calls a method in `never`: it is cut from the code."""
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))):
                return name in self.never
        return False

    def follow(self, body: list[ast.stmt]) -> None:
        """Add the names read by kept definitions, again and again until no new definition is kept."""
        before = -1
        while len(self.read) != before:
            before = len(self.read)
            for node in filter(self.keeps, body):
                if not isinstance(node, ast.ClassDef):
                    self.read |= _read_by(node)
                    continue
                for item in node.body:
                    if self.keeps(item, node.name):
                        self.read |= _read_by(item)

    def cut_lines(self, body: list[ast.stmt]) -> Iterator[int]:
        """Yield the lines of all definitions not kept."""
        for node in body:
            if not self.keeps(node):
                yield from _lines(node)
            elif isinstance(node, ast.ClassDef):
                for item in node.body:
                    yield from self._cut_in_class(item, node.name)

    def _cut_in_class(self, item: ast.stmt, owner: str) -> Iterator[int]:
        """Yield the lines to cut of a definition in the class `owner`: all, or its `@asked_if` and its calls of methods left out."""
        if not self.keeps(item, owner):
            yield from _lines(item)
            return
        for one in _decorators(item):
            if _is_condition(one):
                yield from _lines(one)
        for inner in getattr(item, "body", ()):
            if self._calls_what_is_cut(inner):
                yield from _lines(inner)


def _decorators(node: ast.stmt) -> list[ast.expr]:
    return node.decorator_list if isinstance(node, Definition) else []


def _lines(node: ast.stmt | ast.expr) -> range:
    """Return the lines of a node, with those of its decorators."""
    above = _decorators(node) if isinstance(node, ast.stmt) else []
    first = min([node.lineno, *(item.lineno for item in above)])
    return range(first, (node.end_lineno or node.lineno) + 1)


@lru_cache(maxsize=512)  # the definitions of the file, for all ops of a run
def _read_by(node: ast.stmt) -> frozenset[str]:
    """Return the names a definition of the file reads; cached for the fixed-point iteration."""
    return frozenset(_read(node))


@lru_cache(maxsize=512)
def _is_fixture(node: ast.stmt) -> bool:
    """Return whether a definition is a fixture of pytest."""
    return "fixture" in " ".join(map(ast.unparse, _decorators(node)))


def _read(node: ast.AST) -> Iterator[str]:
    """Yield the names read by code, `torch`, and the attributes, each after a dot: `.shape`."""
    for item in ast.walk(node):
        match item:
            case ast.Name(id=name):
                yield name
            case ast.Attribute(attr=name):
                yield f".{name}"
            case ast.ClassDef(body=body):
                for inner in body:  # an attribute set by a test stays declared
                    yield from (f".{name}" for name in _targets(inner))
