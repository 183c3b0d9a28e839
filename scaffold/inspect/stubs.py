"""The test file for the Functions of a file: what their text tells is in it, the rest is a reason to skip.

In: the Functions of a file, and from where a test imports it. Out: Python source, not formatted yet.
Invariant: a test that is not skipped calls the Function with the number, order and kind of arguments that it takes;
one that needs values says which, and is never green.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from scaffold.inspect.facts import Facts
from scaffold.inspect.model import Function, Module
from scaffold.inspect.samples import Argument, arguments, is_plain, is_rough

HEAD = '''"""Gradients of the Functions in {module}.

A test that is skipped says what it needs; give its arguments and take the mark away.
"""

{imports}


def load(name: str) -> Any:
    """The Function or wrapper of that name; skip where its module cannot be imported here."""
    {path}module = pytest.importorskip({module!r}, exc_type=ImportError)
    return attrgetter(name)(module)


def tensor(*shape: int) -> torch.Tensor:
    """A tensor that gradcheck can use: double, of a fixed seed, away from zero and from one."""
    generator = torch.Generator().manual_seed(sum(shape))
    x = torch.rand(*shape, dtype=torch.double, generator=generator)
    return (0.2 + 0.6 * x).requires_grad_()
'''


class Source(NamedTuple):
    """How a test finds the file."""

    module: str  # dotted
    search_path: str | None  # relative to the test; None where it is found anyway


class Stub(NamedTuple):
    """A test file."""

    text: str
    ready: tuple[str, ...]  # Functions whose test runs
    waiting: tuple[tuple[str, str], ...]  # the others, and what they need


def write_stub(module: Module, functions: tuple[Function, ...], source: Source) -> Stub:
    """The tests of some Functions of a file."""
    parts, ready, waiting = [], [], []
    names: dict[str, int] = {}
    for function in functions:
        facts = Facts(function, module)
        stem = _snake(function.name)
        names[stem] = names.get(stem, 0) + 1
        stem = stem if names[stem] == 1 else f"{stem}_{names[stem]}"
        needs = missing(facts)
        parts.append("\n".join(_tests(facts, stem, needs)))
        if needs:
            waiting.append((function.qualname, needs))
        else:
            ready.append(function.qualname)
    body = "\n\n".join(parts)
    head = HEAD.format(
        module=source.module, imports=_imports(body, source), path=_path(source)
    )
    return Stub(f"{head}\n\n{body}\n", tuple(ready), tuple(waiting))


def _imports(body: str, source: Source) -> str:
    checks = [name for name in ("gradcheck", "gradgradcheck") if f"{name}(" in body]
    lines = ["from operator import attrgetter"]
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


def missing(facts: Facts) -> str:
    """What a call needs that the text does not tell; '' if nothing."""
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
    tensors = [a.name for a in given if a.kind in ("tensor", "optional")]
    if not tensors and not lacking:
        return "arguments: which of them are tensors is not stated"
    if not is_plain(facts) and tensors:
        lacking.insert(0, f"shapes of {', '.join(tensors)}")
    return "; ".join(lacking)


def _tests(facts: Facts, stem: str, needs: str) -> Iterator[str]:
    function, given = facts.function, arguments(facts)
    forward = function.forward
    signature = ast.unparse(forward.node.args) if forward else ""
    yield f"# {function.qualname}: forward({signature})"
    yield _cases(facts, stem, given)
    yield ""
    yield ""
    rough = not needs and is_rough(facts)
    yield from _mark(needs)
    yield f'@pytest.mark.parametrize("needed", {_subsets(given)})'
    yield f'@pytest.mark.parametrize("case", range({len(_variants(given))}))'
    name = "shapes" if rough else "gradients"
    yield f"def test_{stem}_{name}(case: int, needed: tuple[int, ...]) -> None:"
    yield from _body(facts, stem, rough)
    if (
        not rough
        and not function.once_differentiable
        and not _keeps_intermediate(facts)
    ):
        yield ""
        yield ""
        yield from _mark(needs)
        yield f'@pytest.mark.parametrize("case", range({len(_variants(given))}))'
        yield f"def test_{stem}_second_gradients(case: int) -> None:"
        yield f"    apply = {_call(facts)}"
        yield f"    assert gradgradcheck(apply, {stem}_arguments()[case])"


def _mark(needs: str) -> Iterator[str]:
    if needs:
        yield f"@pytest.mark.skip(reason={'needs ' + needs!r})"


def _cases(facts: Facts, stem: str, given: tuple[Argument, ...]) -> str:
    comma = "," if len(given) == 1 else ""
    rows = ", ".join(
        f"({', '.join(_shown(a, absent) for a in given)}{comma})"
        for absent in _variants(given)
    )
    return (
        f"def {stem}_arguments() -> list[tuple[Any, ...]]:\n"
        f'    """What apply takes, each optional tensor given and left out."""\n'
        f"    return [{rows}]"
    )


def _variants(given: tuple[Argument, ...]) -> tuple[frozenset[str], ...]:
    """Which optional tensors are absent: none, and each."""
    optional = [a.name for a in given if a.kind == "optional"]
    return (frozenset(), *(frozenset({name}) for name in optional))


def _shown(argument: Argument, absent: frozenset[str]) -> str:
    if argument.kind in ("tensor", "optional"):
        return "None" if argument.name in absent else "tensor(3, 4)"
    if argument.kind == "value":
        return argument.text
    return "None"  # the test is skipped, and says what is to stand here


def _subsets(given: tuple[Argument, ...]) -> str:
    """Which tensors require grad: all, and each alone."""
    places = [n for n, a in enumerate(given) if a.kind in ("tensor", "optional")]
    alone = [(place,) for place in places] if len(places) > 1 else []
    return repr([tuple(places), *alone])


def _call(facts: Facts) -> str:
    """What the code base calls: the alias of apply, a wrapper with the same parameters, or apply."""
    function = facts.function
    if function.aliases:
        return f"load({function.aliases[0]!r})"
    wrapper = _wrapper(function)
    if wrapper:
        return f"load({wrapper!r})"
    return f"load({function.qualname!r}).apply"


def _wrapper(function: Function) -> str:
    """A function of the module that hands its own parameters to apply, in their order."""
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


def _body(facts: Facts, stem: str, rough: bool) -> Iterator[str]:
    yield f"    apply = {_call(facts)}"
    yield f"    given = {stem}_arguments()[case]"
    yield "    for place, value in enumerate(given):"
    yield "        if isinstance(value, torch.Tensor):"
    yield "            value.requires_grad_(place in needed)"
    if len(_variants(arguments(facts))) > 1:
        yield "    if all(given[place] is None for place in needed):"
        yield '        pytest.skip("the one input that needs a gradient is left out")'
    if not rough:
        yield "    assert gradcheck(apply, given)"
        return
    yield "    # forward is piecewise constant, so its gradient is a surrogate: not gradcheck's affair"
    yield "    output = apply(*given)"
    yield "    first = output[0] if isinstance(output, tuple) else output"
    yield "    first.sum().backward()"
    yield "    for place in needed:"
    yield "        if isinstance(given[place], torch.Tensor):"
    yield "            assert given[place].grad.shape == given[place].shape"
    yield "            assert given[place].grad.isfinite().all()"


def _keeps_intermediate(facts: Facts) -> bool:
    """Whether something that forward made and does not return is saved: the second gradient would be wrong."""
    forward = facts.function.forward
    if forward is None or forward.ctx is None:
        return False
    returned = {
        node.id
        for item in facts.outputs
        for node in item.values or ()
        if isinstance(node, ast.Name)
    }
    for item in facts.context_calls(forward, "save_for_backward"):
        for argument in item.call.args:
            root = facts.values(forward).root(argument, item.step)
            known = isinstance(argument, ast.Name) and argument.id in returned
            if not known and (root is None or root.origin == "fresh"):
                return True
    values = facts.values(forward)
    return any(values.is_tensor(k.value, k.step) for k in facts.kept(forward))


def _snake(name: str) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return re.sub(r"_+", "_", words).strip("_").lower() or "function"
