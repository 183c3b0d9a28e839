"""The test file for the Functions of a file: what their text tells is in it, the rest is a reason to skip.

`scaffold test-stub` writes it. For each Function it holds a list of arguments, a function that makes an `Asked` of them, a test of
the gradients, and one of further questions (`stub_questions`):

    def scale_arguments(): return [(tensor(3, 4), 0.5)]        def scale_asked(case): return Asked(load("Scale").apply, ...)
    def test_scale_gradients(case, needed): ...                def test_scale_in_training(case, question): ...

Words: a test is *ready* if the text states all arguments, *tried* if it takes those of several guesses (`choices`) that fit,
*waiting* if it is skipped until the user writes what it *needs*; *recorded* arguments are of calls in the project's own tests;
*rough* is a surrogate, a gradient meant to differ from the derivative; *stem* is the name for a Function in the file, `scale`.

In: the Functions of a file, and from where a test imports it. Out: Python source, not formatted yet.
Invariant: a test that is not skipped calls the Function with the number, order and kind of arguments that it takes;
one that needs values says which, and is never green.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from scaffold.formula.constant_folding import is_literal
from scaffold.formula.names import names_in, take
from scaffold.inspect.declared_inputs import Entry, other_arguments, ways_to_declare
from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Function, Module
from scaffold.inspect.imported_names import snake_case
from scaffold.inspect.pure_torch import is_torch
from scaffold.inspect.stub_questions import ASKED, LEFT_OUT, definitions, questions_of
from scaffold.inspect.surrogates import is_rough
from scaffold.inspect.trial_inputs import (
    Argument,
    Shape,
    arguments,
    enlarged,
    is_plain,
    least_size,
    shapes_for,
    with_vectors,
)
from scaffold.primitives.calls import may_be
from scaffold.spec.names import LABELS

TENSORS = ("tensor", "optional", "constant")  # kinds of arguments
PLAIN: Shape = (3, 4)
FEW = 4  # shapes to try with each way to give arguments but the first
ORDER = {"perm", "perms", "permutation", "order"}  # names of permutations

Rows = tuple[tuple[Argument, ...], ...]  # the text of each argument is an expression


class Call(NamedTuple):
    """How a test calls a Function: with known arguments, recorded ones, or guesses to try."""

    given: tuple[Argument, ...]
    needs: str  # the message on values the text does not tell; "" if it tells all
    # Guesses to try in order, if the text does not state all: arguments, with a shape for each tensor.
    choices: tuple[tuple[tuple[Argument, ...], tuple[Shape, ...]], ...] = ()
    recorded: Rows = ()  # what the project's own tests call it with

    @property
    def waits(self) -> bool:
        """Return whether the test is skipped until it is filled in."""
        return bool(self.needs) and not self.choices

    @property
    def cases(self) -> int:
        """Return the number of calls a test is run with, each a `case`: recorded ones, else one for each set of absent optionals."""
        return len(self.recorded or _variants(self.given))


def plan(facts: Facts, recorded: Rows = ()) -> Call:
    """Return the call of a Function's test: its arguments, or candidates to be tried if the text does not state them all.

    `recorded` are arguments of calls in the project's own tests, and are taken first. A Function is tried with guesses only
    if all its calls are of torch or NumPy: other code may have side effects. The first way to give arguments is tried with all
    shapes, each other way with a FEW.
    """
    if recorded and _can_be_called(facts):
        return Call(recorded[0], "", recorded=recorded)
    needs = missing(facts)
    given = arguments(facts)
    # All is stated, and one shape does for the tensors.
    if not needs and not _may_differ(given):
        return Call(given, "")
    ways = (
        _ways(facts) if is_torch(facts, ("numpy.",)) and _can_be_called(facts) else ()
    )
    choices: list[tuple[tuple[Argument, ...], tuple[Shape, ...]]] = []
    for way in ways:
        tensors = [item.name for item in way if item.kind in TENSORS]
        shapes = (*with_vectors(tensors), *shapes_for(tensors))
        # Larger ones, if an index is constant: after the usual ones, as they take longer.
        larger = enlarged(shapes, least_size(facts))
        choices += [(way, x) for x in (shapes[:FEW] if choices else shapes) + larger]
    return Call(ways[0] if ways else given, needs, tuple(choices))


def _may_differ(given: Sequence[Argument]) -> bool:
    """Return whether several tensors may need different shapes, so a test tries some; not if one is optional."""
    kinds = [item.kind for item in given]
    return kinds.count("tensor") > 1 and "optional" not in kinds


def _ways(facts: Facts) -> tuple[tuple[Argument, ...], ...]:
    """Return candidate arguments of a call, likeliest first; only those that differentiate the same inputs as the first.

    So one list of tensors to test fits all of them. () if an input by keyword or `*xs` has no default, or each needs a function.
    """
    if any(item.passing != "positional" and not item.default for item in facts.inputs):
        return ()
    entries = [way for way in ways_to_declare(facts) if not any(e.called for e in way)]
    ways = [*dict.fromkeys(tuple(map(_argument, way)) for way in entries)]
    # Kinds with a gradient: "tensor" and "optional".
    needed = [[item.kind in TENSORS[:2] for item in way] for way in ways]
    pairs = zip(ways, needed, strict=True)
    return tuple(way for way, own in pairs if any(own) and own == needed[0])


def _argument(entry: Entry) -> Argument:
    """Return the argument a test passes for an input declared in some way.

    `slope = 0.5` is passed as the value 0.5, `x` as a tensor with a gradient. `mask[; bool]` is a "constant", a tensor without a
    gradient: its text is the code behind a tensor of random numbers. Tests leave out an optional constant: `mask[; bool]?` is None.
    """
    if entry.value:
        return Argument(entry.name, "value", entry.value)
    if not entry.trait:
        return Argument(entry.name, "optional" if entry.optional else "tensor")
    if entry.optional:
        return Argument(entry.name, "value", "None")
    return Argument(entry.name, "constant", _from_random_numbers(entry))


def _from_random_numbers(entry: Entry) -> str:
    """Return the code that turns random numbers from 0.2 to 0.8 into values for an input without a gradient: ` > 0.5` for a mask."""
    if entry.trait == "bool":
        return ".detach() > 0.5"
    if entry.trait == "int":  # 0 and 1; of a permutation each index once
        permutes = not ORDER.isdisjoint(entry.name.split("_"))
        return ".detach().argsort()" if permutes else ".detach().mul(2).long()"
    # A `target` of floats is often a label, 0.0 or 1.0.
    return ".detach().round()" if LABELS.fullmatch(entry.name) else ".detach()"


def _can_be_called(facts: Facts) -> bool:
    """Return whether a test can call the Function and ask for a gradient: it has a forward, is importable, and gives one."""
    function = facts.function
    return function.forward is not None and not function.nested and not facts.is_trivial


def missing(facts: Facts) -> str:
    """Return the values for a call that the text does not state, as words of a message; "" if it states all.

    For example `shapes of x, weight; a value of size (by default SIZE * 2)`: then the test waits until its reader writes them.
    """
    function = facts.function
    if function.forward is None:
        return "its forward, which is inherited from another file"
    if function.nested:
        outer = function.qualname.partition(".")[0]
        return f"an instance of it: it is defined inside {outer}"
    if facts.is_trivial:
        return "a gradient: backward gives none"
    given = arguments(facts)
    lacking = [argument.text for argument in given if argument.kind == "missing"]
    tensors = [a.name for a in given if a.kind in TENSORS]
    # All arguments are numbers and the like: nothing to differentiate by.
    if not tensors and not lacking:
        return "arguments: which of them are tensors is not stated"
    if not is_plain(facts) and tensors:
        lacking.insert(0, f"shapes of {', '.join(tensors)}")
    return "; ".join(lacking)


def tests(facts: Facts, stem: str, call: Call, compiled: bool) -> Iterator[str]:
    """Yield the lines of a Function's tests, under names with `stem` in them: `test_scale_gradients`.

    They call it as `call` says. One test compares the gradients (of a surrogate only their shapes are asked), one asks all further
    questions; with `compiled` also one about torch.compile.
    """
    function = facts.function
    signature = ast.unparse(function.forward.node.args) if function.forward else ""
    yield f"# {function.qualname}: forward({signature})"
    yield _cases(stem, call)
    yield ("\n\n" + _asked(facts, stem, call))
    rough = not call.waits and is_rough(facts)
    yield from _head(call, stem, "shapes" if rough else "gradients", _subsets(call))
    if call.choices:
        yield "    def question(asked: Asked) -> None:"
        yield from (f"    {line}" for line in _body(call, rough))
        yield f"\n    ask_each({stem}_asked(), question)"
    else:
        yield f"    asked = {stem}_asked(case)"
        yield from _body(call, rough)
    asked = f"[{', '.join(questions_of(facts, rough, compiled))}]"
    yield from _head(call, stem, "in_training", ("question", asked, "Question"))
    if call.choices:
        yield f"    ask_each({stem}_asked(), question)"
    else:
        yield f"    question({stem}_asked(case))"


def _head(
    call: Call, stem: str, what: str, parameter: tuple[str, str, str]
) -> Iterator[str]:
    """Yield the decorators and the `def` line of a test; `parameter` is the name, the values and the type of its parameter.

    The test is `test_{stem}_{what}`, skipped if it waits for arguments. It has a parameter `case` too, the number of a call, unless
    arguments are guessed: then those that fit are the cases.
    """
    name, values, kind = parameter
    yield from ("", "")
    if call.waits:
        yield f"@pytest.mark.skip(reason={'needs ' + call.needs!r})"
    yield f'@pytest.mark.parametrize("{name}", {values})'
    parameters = [f"{name}: {kind}"]
    if not call.choices:
        yield f'@pytest.mark.parametrize("case", range({call.cases}))'
        parameters.insert(0, "case: int")
    yield f"def test_{stem}_{what}({', '.join(parameters)}) -> None:"


def _asked(facts: Facts, stem: str, call: Call) -> str:
    """Return the text of the test file's function to make an `Asked`, the object of all questions: `scale_asked(case)`.

    Of guessed arguments it makes one for each of the shapes that fit: `scale_asked()`. It has the arguments and what the questions
    must know of the Function: `changed`, it changes an input in place; `searched`, its arguments are found by trying; `limits`,
    arguments that clamp; `further`, other values of arguments.
    """
    names = [item.name or f"argument {place}" for place, item in enumerate(call.given)]
    function = f"load({facts.function.qualname!r})"
    given = f"apply, {stem}_arguments, case, {', '.join(names)!r}, {function}"
    # None, unknown, counts as changed, too.
    if facts.marked("mark_dirty") != frozenset():
        given += ", changed=True"
    given += ", searched=True" if call.choices else ""
    limits = sorted(_limits(facts).intersection(names))
    given += f", limits={limits}" if limits else ""
    further = [] if call.recorded else _further(facts, call.given)
    given += f", further={further}" if further else ""
    head, made = f"def {stem}_asked(case: int) -> Asked:", f"Asked({given})"
    if call.choices:
        needs = call.needs or "other shapes"  # for the skip, if no guess fits
        head = f"def {stem}_asked() -> list[Asked]:"
        made = f"[{made} for case in fitting(apply, {stem}_arguments, {needs!r})]"
    return f"{head}\n    apply = {_callee(facts)}\n    return {made}"


def _further(facts: Facts, given: Sequence[Argument]) -> list[tuple[str, Any]]:
    """Return other values for arguments, as (name, value), to test with too: the code may take another branch.

    `ignore_index` becomes 1, a label in the test's data, so that it ignores one.
    """
    literal = [x for x in given if x.kind == "value" and is_literal(x.text)]
    found = other_arguments(facts, [Entry(x.name, value=x.text) for x in literal])
    found |= {x.name: [1] for x in literal if x.name == "ignore_index"}
    return [(name, value) for name, values in found.items() for value in values]


def _limits(facts: Facts) -> set[str]:
    """Return the names in limits of forward's clamps, `low` of `x.clamp(min=low)`.

    Questions with negative values leave these positive: a negative limit would cross the other one.
    """
    forward, found = facts.function.forward, set[str]()
    for node in ast.walk(forward.node) if forward else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            # `torch.clamp(x, 0, 1)`: without its first argument, the tensor.
            limits = node.args[ast.unparse(node.func.value) == "torch" :]
            values = (*limits, *(item.value for item in node.keywords))
            name = node.func.attr.removesuffix("_")
            found |= names_in(values) if may_be(name, "bounded") else set()
    return found


def _cases(stem: str, call: Call) -> str:
    """Return the text of the test file's function to list the arguments of all calls.

    `stem` is the name of the op under test, as in `scale_arguments`. A row is a tuple: with one item it needs its comma.
    """
    comma = "," if len(call.given) == 1 else ""
    if call.choices:
        doc = "Arguments of several shapes: those that fit are used, the right ones go in their place."
        shown = [_tried(way, shapes) for way, shapes in call.choices]
    elif call.recorded:
        doc = "Arguments laid out as in recorded calls, with values of a fixed seed."
        shown = [[item.text for item in row] for row in call.recorded]
    else:
        doc = "Arguments of apply, with each optional tensor given and left out."
        shown = [
            [_shown(item, absent) for item in call.given]
            for absent in _variants(call.given)
        ]
    rows = ", ".join(f"({', '.join(row)}{comma})" for row in shown)
    return (
        f"def {stem}_arguments() -> list[tuple[Any, ...]]:\n"
        f'    """{doc}"""\n'
        f"    return [{rows}]"
    )


def _variants(given: Sequence[Argument]) -> tuple[frozenset[str], ...]:
    """Return the sets of optional tensors to leave out, one for each call: none of them, then each alone.

    For optional `mask` and `bias`: {}, {"mask"}, {"bias"}.
    """
    optional = [a.name for a in given if a.kind == "optional"]
    return (frozenset(), *(frozenset({name}) for name in optional))


def _shown(argument: Argument, absent: frozenset[str]) -> str:
    """Return the text of an argument in a call, `tensor(3, 4)` or `0.5`; None for a missing one, and an optional one in `absent`."""
    if argument.kind in ("tensor", "optional"):
        return "None" if argument.name in absent else _tensor(PLAIN)
    if argument.kind == "value":
        return argument.text
    return "None"  # the test is skipped, and says what is to stand here


def _tried(given: Sequence[Argument], shapes: Sequence[Shape]) -> list[str]:
    """Return the texts of candidate arguments, their tensors with these shapes, one for each: `tensor(3, 4)`, `0.5`.

    A tensor without a gradient has code behind it: `tensor(3, 4).detach() > 0.5` for a mask.
    """
    left = iter(shapes)
    return [
        _tensor(next(left)) + item.text if item.kind in TENSORS else item.text
        for item in given
    ]


def _tensor(shape: Shape) -> str:
    return f"tensor({', '.join(map(str, shape))})"


def _subsets(call: Call) -> tuple[str, str, str]:
    """Return the name, values and type of a test's parameter, the positions of inputs that require grad: all of them, then each alone.

    For `f(x, y, n)` that is `needed`, `[(0, 1), (0,), (1,)]`. A backward may be wrong only if it computes one gradient alone.
    """
    places = [n for n, a in enumerate(call.given) if a.kind in ("tensor", "optional")]
    # Of a single input it would be the first set again.
    alone = [(place,) for place in places] if len(places) > 1 else []
    return "needed", repr([tuple(places), *alone]), "tuple[int, ...]"


def _callee(facts: Facts) -> str:
    """Return the text of the function a test calls: an alias of apply, a wrapper with the same parameters, or apply."""
    function = facts.function
    name = function.aliases[0] if function.aliases else _wrapper(function)
    return f"load({name!r})" if name else f"load({function.qualname!r}).apply"


def _wrapper(function: Function) -> str:
    """Return the name of a module-level function to call in place of apply; "" without one.

    It must return `Scale.apply(x, n)` of its own parameters, in the order of forward: then it is the same call.
    """
    wanted = [item.name for item in function.inputs()]
    for item in function.applications:
        if len(item.within) != 1 or not isinstance(item.within[0], ast.FunctionDef):
            continue
        node = item.within[0]
        own = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
        given = [a.id for a in item.call.args if isinstance(a, ast.Name)]
        plain = not node.args.vararg and not node.args.kwonlyargs
        # A decorator may make another call of it.
        if plain and not node.decorator_list and own == wanted == given:
            last = node.body[-1]
            if isinstance(last, ast.Return) and last.value is item.call:
                return node.name
    return ""


def _body(call: Call, rough: bool) -> Iterator[str]:
    """Yield the lines that ask for gradients; `rough` ones are surrogates, so they are only asked to be finite."""
    yield "    given = asked.inputs(needs=[asked.names[place] for place in needed])"
    # A case that leaves an optional tensor out may leave out the one to differentiate by.
    if not call.choices and call.cases > 1:
        yield "    if all(given[place] is None for place in needed):"
        yield '        pytest.skip("the one input that needs a gradient is left out")'
    if not rough:
        yield "    asked.derivatives(given)"
        return
    yield "    # its gradient is a surrogate, and not that of forward: not gradcheck's affair"
    yield "    found = asked.gradients(given, contiguous)"
    yield "    assert all(x.isfinite().all() for x in found)"


HEAD = '''"""Gradients of the Functions in {module}.

A test that is skipped says what it needs; give its arguments and take the mark away.
"""


def load(name: str) -> Any:
    """The Function or wrapper of that name; skip where its module cannot be imported here."""
    {path}try:
        module = import_module({module!r})
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        reason = f"{{type(error).__name__}}: {{error}}".split("\\n")[0]
        pytest.skip(f"{module} cannot be imported: {{reason}}")
    return attrgetter(name)(module)


def tensor(*shape: int) -> torch.Tensor:
    """A tensor that gradcheck can use: double, away from zero and from one."""
    return (0.2 + 0.6 * torch.rand(shape, dtype=torch.double)).requires_grad_()
'''
FITTING = '''

@cache
def fitting(apply: Callable[..., Any], make: Callable[[], list[tuple[Any, ...]]], needs: str) -> list[int]:
    """The first arguments that forward and backward take, else forward, and a few of other shapes; skip where it takes none.

    Shapes may broadcast by chance. So those whose output has more dims than any input come second; and a gradient of another shape
    than its input counts only if forward takes twice the sizes, too. Of one element a gradient has any shape: that comes last.
    """
    torch.manual_seed(0)
    made, reason, ranked = make(), "", []
    for case, given in enumerate(made):
        copies = [x.clone() if isinstance(x, Tensor) else x for x in given]
        rank = 4
        try:
            outputs = [x for x in as_tuple(apply(*copies)) if isinstance(x, Tensor)]
            assert all(x.isfinite().all() for x in outputs), "not finite"
            rank = 2
            sum(x.sum() for x in outputs if x.requires_grad).backward()
            most = max(x.ndim for x in given if isinstance(x, Tensor))
            rank = int(any(x.ndim > most for x in outputs)) if most else 3
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".split("\\n")[0]
            chance = "invalid gradient" in reason and not takes_twice(apply, given)
            rank = 4 if chance or "non-complex" in reason else rank
        ranked.append((rank, case))
    rank, first = min(ranked)
    if rank == 4:
        pytest.skip(f"needs {needs}: nothing that was tried fits ({reason})")
    fits = [case for rank, case in ranked if not rank]
    others = of_other_shapes(made[first], [made[case] for case in fits])
    return [first, *(fits[at] for at in others)]


def takes_twice(apply: Callable[..., Any], given: tuple[Any, ...]) -> bool:
    """Whether forward takes tensors of twice these sizes."""
    try:
        apply(*(x.repeat([2] * x.ndim) if isinstance(x, Tensor) else x for x in given))
    except Exception:
        return False
    return True


# These questions try further shapes themselves.
RESHAPING = {"other_ranks", "other_sizes", "empty_inputs"}


def ask_each(several: list["Asked"], question: "Question") -> None:
    """Ask of each of the shapes that fit; a failure names them."""
    for place, asked in enumerate(several[:1] if question.__name__ in RESHAPING else several):
        try:
            question(asked)
        except pytest.skip.Exception:
            if not place:
                raise
        except (Exception, pytest.fail.Exception) as error:
            pairs = zip(asked.names, asked.inputs())
            call = ", ".join(f"{name} {tuple(x.shape)}" for name, x in pairs if isinstance(x, Tensor))
            raise AssertionError(f"called with {call}: {error}") from error
'''
RECORDED = '''

def recorded(
    shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype = torch.double, least: int = 0, most: int = 1
) -> torch.Tensor:
    """A tensor of a recorded call, with other values: integers from `least` to `most`, others away from zero and from one."""
    values = 0.2 + 0.6 * torch.rand(shape, dtype=torch.double)
    if not (dtype.is_floating_point or dtype.is_complex):
        values = torch.randint(least, most + 1, shape)
    return torch.empty_strided(shape, stride, dtype=dtype).copy_(values)
'''


class Source(NamedTuple):
    """How a test finds the file."""

    module: str  # its dotted name
    # Its directory, relative to the test's; None if the module is found without.
    search_path: str | None


class Stub(NamedTuple):
    """A test file."""

    text: str
    ready: tuple[str, ...]  # Functions whose test runs
    tried: tuple[str, ...]  # those whose test tries inputs that may fit
    waiting: tuple[tuple[str, str], ...]  # the others, and what they need
    left_out: tuple[tuple[str, str], ...] = ()  # those that are asked less, and why


def write_stub(
    module: Module,
    functions: tuple[Function, ...],
    source: Source,
    recorded: Mapping[str, Rows] = {},
    *,
    questions: str,
    compiled: bool = False,
) -> Stub:
    """Return the test file for some Functions of a module, and how far each of their tests runs; the caller adds its imports.

    `source` is how the test imports the module, `recorded` are calls by a Function's qualified name, `questions` is the source of
    all questions; with `compiled` torch.compile is tested too. A surrogate's gradient is not compared, and so its Function is
    listed as `left_out`. Two Functions of one name get the stems `scale` and `scale_2`.
    """
    parts, waiting, left_out = [], [], []
    ready: list[str] = []
    tried: list[str] = []
    stems = set[str]()
    for function in functions:
        facts = Facts(function, module)
        stem = take(stems, snake_case(function.name) or "function")
        call = plan(facts, recorded.get(function.qualname, ()))
        if not call.waits and is_rough(facts):
            left_out.append((function.qualname, LEFT_OUT))
        parts.append("\n".join(tests(facts, stem, call, compiled)))
        if call.waits:
            waiting.append((function.qualname, call.needs))
        else:
            (tried if call.choices else ready).append(function.qualname)
    body = "\n\n".join(parts)
    texts = [FITTING] * ("fitting(" in body)
    # Behind a comma, or first in its row; `my_recorded(x)` is another function.
    texts += [RECORDED] * (" recorded(" in body or "(recorded(" in body)
    asked = definitions(questions, "\n".join([*texts, ASKED, body]))
    head = HEAD.format(module=source.module, path=_path(source))
    parts = [head, *texts, ASKED, asked, body]
    text = "\n\n\n".join(part.strip("\n") for part in parts)
    return Stub(text, tuple(ready), tuple(tried), tuple(waiting), tuple(left_out))


def _path(source: Source) -> str:
    """Return the lines that put the file's directory on `sys.path`; "" if it is found without them."""
    if source.search_path is None:
        return ""
    place = f"str((Path(__file__).parent / {source.search_path!r}).resolve())"
    return f"place = {place}\n    if place not in sys.path:\n        sys.path.append(place)\n    "
