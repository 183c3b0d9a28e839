"""The test file for the Functions of a file: what their text tells is in it, the rest is a reason to skip.

In: the Functions of a file, and from where a test imports it. Out: Python source, not formatted yet.
Invariant: a test that is not skipped calls the Function with the number, order and kind of arguments that it takes;
one that needs values says which, and is never green.
"""

from typing import NamedTuple

from scaffold.inspect.facts import Facts
from scaffold.inspect.model import Function, Module
from scaffold.inspect.names import snake_case
from scaffold.inspect.stub_tests import plan, tests

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


def tensor(*shape: int) -> torch.Tensor:
    """A tensor that gradcheck can use: double, of a fixed seed, away from zero and from one."""
    generator = torch.Generator().manual_seed(sum(shape))
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


def write_stub(module: Module, functions: tuple[Function, ...], source: Source) -> Stub:
    """The tests of some Functions of a file."""
    parts, waiting = [], []
    ready: list[str] = []
    tried: list[str] = []
    names: dict[str, int] = {}
    for function in functions:
        facts = Facts(function, module)
        stem = snake_case(function.name) or "function"
        names[stem] = names.get(stem, 0) + 1
        stem = stem if names[stem] == 1 else f"{stem}_{names[stem]}"
        call = plan(facts)
        parts.append("\n".join(tests(facts, stem, call)))
        if call.waits:
            waiting.append((function.qualname, call.needs))
        else:
            (tried if call.choices else ready).append(function.qualname)
    body = "\n\n".join(parts)
    head = HEAD.format(
        module=source.module, imports=_imports(body, source), path=_path(source)
    )
    head += FITTING if "fitting(" in body else ""
    head += COPIES if "on_copies(" in body else ""
    return Stub(f"{head}\n\n{body}\n", tuple(ready), tuple(tried), tuple(waiting))


def _imports(body: str, source: Source) -> str:
    checks = [name for name in ("gradcheck", "gradgradcheck") if f"{name}(" in body]
    lines = ["from importlib import import_module", "from operator import attrgetter"]
    if "fitting(" in body or "on_copies(" in body:
        lines.insert(0, "from collections.abc import Callable")
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
