"""The test file for the Functions of a file: what their text tells is in it, the rest is a reason to skip.

In: the Functions of a file, and from where a test imports it. Out: Python source, not formatted yet.
Invariant: a test that is not skipped calls the Function with the number, order and kind of arguments that it takes;
one that needs values says which, and is never green.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from scaffold.inspect.declared_inputs import Entry, ways_to_declare
from scaffold.inspect.facts import Facts
from scaffold.inspect.functions import Function, Module
from scaffold.inspect.imported_names import snake_case
from scaffold.inspect.pure_torch import is_torch
from scaffold.inspect.stub_questions import LEFT_OUT, asking, questions_of
from scaffold.inspect.surrogates import is_rough
from scaffold.inspect.trial_inputs import (
    Argument,
    Shape,
    arguments,
    is_plain,
    shapes_for,
)

TENSORS = ("tensor", "optional", "constant")
PLAIN: Shape = (3, 4)
FEW = 3  # shapes that are tried with the other values of arguments
HOLDING = {"mask": ".detach() > 0.5", "int": ".detach().mul(3).long()", "": ".detach()"}


Rows = tuple[tuple[Argument, ...], ...]  # the text of each argument is an expression


class Call(NamedTuple):
    """What a test calls a Function with."""

    given: tuple[Argument, ...]
    needs: str  # what the text does not tell; '' if nothing
    # What is tried, where the text does not state it all: arguments, with shapes of the tensors.
    choices: tuple[tuple[tuple[Argument, ...], tuple[Shape, ...]], ...] = ()
    recorded: Rows = ()  # what the project's own tests call it with

    @property
    def waits(self) -> bool:
        """Return whether the test is skipped until it is filled in."""
        return bool(self.needs) and not self.choices

    @property
    def cases(self) -> int:
        """Return the number of calls that a test makes one after the other."""
        return len(self.recorded or _variants(self.given))


def plan(facts: Facts, recorded: Rows = ()) -> Call:
    """Return the arguments stated by the text; if some are missing, the candidates that `scaffold verify` tries."""
    if recorded and _can_be_called(facts):
        return Call(recorded[0], "", recorded=recorded)
    needs = missing(facts)
    if not needs:
        return Call(arguments(facts), "")
    ways = _ways(facts) if is_torch(facts) and _can_be_called(facts) else ()
    choices: list[tuple[tuple[Argument, ...], tuple[Shape, ...]]] = []
    for way in ways:
        tensors = [item.name for item in way if item.kind in TENSORS]
        shapes = shapes_for(tensors)
        choices += [(way, one) for one in (shapes[:FEW] if choices else shapes)]
    return Call(ways[0] if ways else arguments(facts), needs, tuple(choices))


def _ways(facts: Facts) -> tuple[tuple[Argument, ...], ...]:
    """Return the candidate arguments, all with the same inputs differentiable."""
    if any(item.passing != "positional" and not item.default for item in facts.inputs):
        return ()
    entries = [way for way in ways_to_declare(facts) if not any(e.called for e in way)]
    ways = [*dict.fromkeys(tuple(map(_argument, way)) for way in entries)]
    needed = [[item.kind in TENSORS[:2] for item in way] for way in ways]
    return tuple(
        way
        for way, alike in zip(ways, needed, strict=True)
        if any(alike) and alike == needed[0]
    )


def _argument(entry: Entry) -> Argument:
    """Return the argument for a declared input."""
    if entry.value:
        return Argument(entry.name, "value", entry.value)
    if entry.trait:
        holds = {"bool": "mask", "int": "int"}.get(entry.trait, "")
        absent = Argument(entry.name, "value", "None")
        return absent if entry.optional else Argument(entry.name, "constant", holds)
    return Argument(entry.name, "optional" if entry.optional else "tensor")


def _can_be_called(facts: Facts) -> bool:
    function = facts.function
    return function.forward is not None and not function.nested and not facts.is_trivial


def missing(facts: Facts) -> str:
    """Return the needs of a call that the text does not tell; '' if there are none."""
    function = facts.function
    if function.forward is None:
        return "its forward, which is inherited from another file"
    if function.nested:
        return (
            f"an instance of it: it is defined inside {function.qualname.split('.')[0]}"
        )
    if facts.is_trivial:
        return "a gradient: backward gives none"
    given = arguments(facts)
    lacking = [argument.text for argument in given if argument.kind == "missing"]
    tensors = [a.name for a in given if a.kind in TENSORS]
    if not tensors and not lacking:
        return "arguments: which of them are tensors is not stated"
    if not is_plain(facts) and tensors:
        lacking.insert(0, f"shapes of {', '.join(tensors)}")
    return "; ".join(lacking)


def tests(facts: Facts, stem: str, call: Call) -> Iterator[str]:
    """Yield the lines of a Function's tests."""
    function = facts.function
    signature = ast.unparse(function.forward.node.args) if function.forward else ""
    yield f"# {function.qualname}: forward({signature})"
    yield _cases(stem, call)
    rough = not call.waits and is_rough(facts)
    yield from _head(call, stem, "shapes" if rough else "gradients", _subsets(call))
    yield from _body(facts, stem, call, rough)
    asked = f"[{', '.join(questions_of(facts, rough))}]"
    yield from _head(call, stem, "in_training", ("asked", asked, "Asked"))
    yield f"    apply = {_applied(facts)}"
    yield f"    asked(apply, {_given(stem, call)})"


def _head(
    call: Call, stem: str, what: str, parameter: tuple[str, str, str]
) -> Iterator[str]:
    """Yield the marks and the signature of a test with a parameter: its name, its values and its type."""
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


def _given(stem: str, call: Call) -> str:
    """Return the arguments of a call, as an expression."""
    if call.choices:
        return f"fitting(apply, {stem}_arguments, {call.needs!r})"
    return f"{stem}_arguments()[case]"


def _cases(stem: str, call: Call) -> str:
    comma = "," if len(call.given) == 1 else ""
    if call.choices:
        doc = "Arguments of several shapes: the first that fit are used, the right ones go in their place."
        shown = [_tried(way, shapes) for way, shapes in call.choices]
    elif call.recorded:
        doc = "Arguments laid out as in recorded calls, with values of a fixed seed."
        shown = [[item.text for item in row] for row in call.recorded]
    else:
        doc = "What apply takes, each optional tensor given and left out."
        shown = [
            [_shown(item, absent, place) for place, item in enumerate(call.given)]
            for absent in _variants(call.given)
        ]
    rows = ", ".join(f"({', '.join(row)}{comma})" for row in shown)
    return (
        f"def {stem}_arguments() -> list[tuple[Any, ...]]:\n"
        f'    """{doc}"""\n'
        f"    return [{rows}]"
    )


def _variants(given: Sequence[Argument]) -> tuple[frozenset[str], ...]:
    """Return the sets of absent optional tensors: none, and each alone."""
    optional = [a.name for a in given if a.kind == "optional"]
    return (frozenset(), *(frozenset({name}) for name in optional))


def _shown(argument: Argument, absent: frozenset[str], place: int) -> str:
    if argument.kind in ("tensor", "optional"):
        return "None" if argument.name in absent else _tensor(PLAIN, place)
    if argument.kind == "value":
        return argument.text
    return "None"  # the test is skipped, and says what is to stand here


def _tried(given: Sequence[Argument], shapes: Sequence[Shape]) -> list[str]:
    """Arguments with tensors of these shapes, in their order."""
    left, row = list(shapes), []
    for place, item in enumerate(given):
        text = _tensor(left.pop(0), place) if item.kind in TENSORS else item.text
        if item.kind == "constant":
            text += HOLDING[item.text]
        row.append(text)
    return row


def _tensor(shape: Shape, place: int) -> str:
    """Write a tensor; by its seed it differs from the others of a call, or `a - b` would be 0."""
    return f"tensor({', '.join([*map(str, shape), f'seed={place}'])})"


def _subsets(call: Call) -> tuple[str, str, str]:
    """Return the parameter for the tensors that require grad: all, and each alone."""
    places = [n for n, a in enumerate(call.given) if a.kind in ("tensor", "optional")]
    alone = [(place,) for place in places] if len(places) > 1 else []
    return "needed", repr([tuple(places), *alone]), "tuple[int, ...]"


def _applied(facts: Facts) -> str:
    """Return the checked call; for a Function in place, on copies of its tensors."""
    dirty = facts.marked("mark_dirty") != frozenset()
    return f"on_copies({_call(facts)})" if dirty else _call(facts)


def _call(facts: Facts) -> str:
    """Return the name that the code base calls: an alias of apply, a wrapper with the same parameters, or apply."""
    function = facts.function
    if function.aliases:
        return f"load({function.aliases[0]!r})"
    wrapper = _wrapper(function)
    if wrapper:
        return f"load({wrapper!r})"
    return f"load({function.qualname!r}).apply"


def _wrapper(function: Function) -> str:
    """Return the function of the module that hands its own parameters to apply, in their order."""
    wanted = [item.name for item in function.inputs()]
    for item in function.applications:
        if len(item.within) != 1 or not isinstance(item.within[0], ast.FunctionDef):
            continue
        node = item.within[0]
        own = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
        given = [a.id for a in item.call.args if isinstance(a, ast.Name)]
        plain = not node.args.vararg and not node.args.kwonlyargs
        if plain and not node.decorator_list and own == wanted == given:
            last = node.body[-1]
            if isinstance(last, ast.Return) and last.value is item.call:
                return node.name
    return ""


def _body(facts: Facts, stem: str, call: Call, rough: bool) -> Iterator[str]:
    yield f"    apply = {_applied(facts)}"
    yield f"    given = {_given(stem, call)}"
    yield "    for place, value in enumerate(given):"
    yield "        if isinstance(value, torch.Tensor) and value.is_floating_point():"
    yield "            value.requires_grad_(place in needed)"
    if not call.choices and call.cases > 1:
        yield "    if all(given[place] is None for place in needed):"
        yield '        pytest.skip("the one input that needs a gradient is left out")'
    if not rough:
        yield "    assert gradcheck(apply, given)"
        return
    yield "    # its gradient is a surrogate, and not that of forward: not gradcheck's affair"
    yield "    output = apply(*given)"
    yield "    first = output[0] if isinstance(output, tuple) else output"
    yield "    first.sum().backward()"
    yield "    for place in needed:"
    yield "        if isinstance(given[place], torch.Tensor):"
    yield "            assert given[place].grad.shape == given[place].shape"
    yield "            assert given[place].grad.isfinite().all()"


HEAD = '''"""Gradients of the Functions in {module}.

A test that is skipped says what it needs; give its arguments and take the mark away.
"""

{imports}


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


def tensor(*shape: int, seed: int) -> torch.Tensor:
    """A tensor that gradcheck can use: double, of a fixed seed, away from zero and from one."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(shape, dtype=torch.double, generator=generator)
    return (0.2 + 0.6 * x).requires_grad_()
'''
FITTING = '''

def fitting(
    apply: Callable[..., Any], make: Callable[[], list[tuple[Any, ...]]], needs: str
) -> tuple[Any, ...]:
    """The first arguments that forward and backward take, else forward; skip where it takes none."""
    reason, taken = "", []
    for case, given in enumerate(make()):
        try:
            outputs = apply(*given)
            taken.append(case)
            several = outputs if isinstance(outputs, tuple) else (outputs,)
            tensors = [x for x in several if isinstance(x, torch.Tensor)]
            sum(x.sum() for x in tensors if x.requires_grad).backward()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".split("\\n")[0]
        else:
            return make()[case]
    if taken:
        return make()[taken[0]]
    pytest.skip(f"needs {needs}: nothing that was tried fits ({reason})")
'''
RECORDED = '''

def recorded(
    shape: tuple[int, ...],
    stride: tuple[int, ...],
    dtype: torch.dtype = torch.double,
    least: int = 0,
    most: int = 1,
    seed: int = 0,
) -> torch.Tensor:
    """A tensor of a recorded call, with other values: integers from `least` to `most`, others away from zero and from one."""
    generator = torch.Generator().manual_seed(seed)
    values = 0.2 + 0.6 * torch.rand(shape, dtype=torch.double, generator=generator)
    if not (dtype.is_floating_point or dtype.is_complex):
        values = torch.randint(least, most + 1, shape, generator=generator)
    return torch.empty_strided(shape, stride, dtype=dtype).copy_(values)
'''
COPIES = '''

def on_copies(apply: Callable[..., Any]) -> Callable[..., Any]:
    """A Function that changes its arguments, on copies of them."""

    def applied(*given: Any) -> Any:
        copied = (x.clone() if isinstance(x, torch.Tensor) else x for x in given)
        return apply(*copied)

    return applied
'''


class Source(NamedTuple):
    """How a test finds the file."""

    module: str  # dotted
    search_path: str | None  # relative to the test; None where it is found anyway


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
) -> Stub:
    """Return the tests of some Functions of a file; `recorded` are calls of some, by qualified name."""
    parts, waiting, left_out = [], [], []
    ready: list[str] = []
    tried: list[str] = []
    names: dict[str, int] = {}
    for function in functions:
        facts = Facts(function, module)
        stem = snake_case(function.name) or "function"
        names[stem] = names.get(stem, 0) + 1
        stem = stem if names[stem] == 1 else f"{stem}_{names[stem]}"
        call = plan(facts, recorded.get(function.qualname, ()))
        if not call.waits and is_rough(facts):
            left_out.append((function.qualname, LEFT_OUT))
        parts.append("\n".join(tests(facts, stem, call)))
        if call.waits:
            waiting.append((function.qualname, call.needs))
        else:
            (tried if call.choices else ready).append(function.qualname)
    body = "\n\n".join(parts)
    texts = [FITTING] * ("fitting(" in body) + [COPIES] * ("on_copies(" in body)
    texts += [RECORDED] * (" recorded(" in body or "(recorded(" in body)
    body = "\n\n\n".join((*(x.strip("\n") for x in texts), asking(body), body))
    head = HEAD.format(
        module=source.module, imports=_imports(body, source), path=_path(source)
    )
    text = f"{head}\n\n{body}\n"
    return Stub(text, tuple(ready), tuple(tried), tuple(waiting), tuple(left_out))


def _imports(body: str, source: Source) -> str:
    checks = [name for name in ("gradcheck", "gradgradcheck") if f"{name}(" in body]
    lines = [
        "from collections.abc import Callable",
        "from importlib import import_module",
        "from operator import attrgetter",
    ]
    if source.search_path is not None:
        lines = ["import sys", *lines, "from pathlib import Path"]
    lines += ["from typing import Any", "", "import pytest", "import torch"]
    if checks:
        lines.append(f"from torch.autograd import {', '.join(checks)}")
    return "\n".join(lines)


def _path(source: Source) -> str:
    if source.search_path is None:
        return ""
    place = f"str((Path(__file__).parent / {source.search_path!r}).resolve())"
    return f"place = {place}\n    if place not in sys.path:\n        sys.path.append(place)\n    "
