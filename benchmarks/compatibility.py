"""What of PyTorch works with generated ops: a table of checks by styles, and with forward mode, in Markdown.

In: `python -m benchmarks.compatibility [NAME ...] [--style STYLE ...] [--inductor]`, in an environment with torch: the examples that are named, else all with a
gradient. Each is generated in every style that it can have, with its test, which says how inputs are made.
Out: for each check how many ops pass of those that it applies to, then each op that does not, with PyTorch's own message.
"""

import argparse
import copy
import importlib
import shlex
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._dynamo import symbolic_convert
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, jacrev, jvp, vjp, vmap
from torch.utils.checkpoint import checkpoint

from tests.examples.examples import ROOT
from tests.executed.generation import run_new_op

STYLES: dict[str, tuple[str, ...]] = {
    "setup-context": ("--style", "setup-context"),
    "combined": ("--style", "combined"),
    "library": ("--style", "library"),
    "forward-ad": ("--style", "setup-context", "--forward-ad"),
}
UNSAID: dict[str, Any] = {
    "supports_gradcheck": True,
    "supports_double_backward": True,
    "surrogate": None,
    "gradcheck_options": {},
    "layouts": (torch.clone,),
    "empty_cases": {},
}


class Op:
    """An op by its generated test."""

    def __init__(self, tests: Any, module: Any) -> None:
        self.tests, self.module = tests, module

    def says(self, name: str) -> Any:
        """What the test says of its op; one that stands alone leaves out what does not apply."""
        return getattr(self.tests, name, UNSAID[name])

    def inputs(self, **options: Any) -> tuple[Any, ...]:
        made: tuple[Any, ...] = self.tests.inputs(**options)
        return made

    def run(self, *inputs: Any) -> tuple[Tensor, ...]:
        outputs: tuple[Tensor, ...] = self.tests.run(*inputs)
        return outputs

    def loss(self, *inputs: Any) -> Tensor:
        total = torch.zeros((), dtype=torch.double)
        for output in self.run(*inputs):
            total = total + output.sum()
        return total

    def gradients(self, inputs: Sequence[Any]) -> tuple[Tensor | None, ...]:
        needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
        return torch.autograd.grad(self.loss(*inputs), needed, allow_unused=True)

    @property
    def first(self) -> int:
        """The position of an input that has a gradient."""
        inputs = self.inputs()
        flags = [isinstance(x, Tensor) and x.requires_grad for x in inputs]
        return flags.index(True)

    def of_first(self) -> tuple[Callable[[Tensor], Tensor], Tensor]:
        """The loss as a function of that input alone, and its value."""
        inputs = [x.detach() if isinstance(x, Tensor) else x for x in self.inputs()]
        at = self.first

        def loss(x: Tensor) -> Tensor:
            return self.loss(*inputs[:at], x, *inputs[at + 1 :])

        return loss, inputs[at]


Check = Callable[[Op], None]
CHECKS: dict[str, Check] = {}
Needs = Callable[[Op], bool]
NEEDS: dict[str, Needs] = {}


def check(name: str, needs: Needs = lambda op: True) -> Callable[[Check], Check]:
    def noted(function: Check) -> Check:
        CHECKS[name], NEEDS[name] = function, needs
        return function

    return noted


def numeric(op: Op) -> bool:
    return bool(op.says("supports_gradcheck") and op.says("surrogate") is None)


def twice(op: Op) -> bool:
    return numeric(op) and bool(op.says("supports_double_backward"))


def inductor(_op: Op) -> bool:
    """Whether it was asked for: it takes two minutes more."""
    return "--inductor" in sys.argv


def mapped(op: Op) -> bool:
    """Whether it changes no input in place, for which PyTorch has no generated rule."""
    return not getattr(op.tests, "changed_in_place", ())


@check("gradcheck, slow", numeric)
def _(op: Op) -> None:
    assert gradcheck(op.run, op.inputs(), **op.says("gradcheck_options"))


@check("gradcheck, fast", numeric)
def _(op: Op) -> None:
    assert gradcheck(
        op.run, op.inputs(), fast_mode=True, **op.says("gradcheck_options")
    )


@check("non-contiguous inputs", lambda op: numeric(op) and len(op.says("layouts")) > 1)
def _(op: Op) -> None:
    for layout in op.says("layouts"):
        inputs = op.inputs(layout=layout)
        assert gradcheck(op.run, inputs, **op.says("gradcheck_options"))


@check("sizes of 0", lambda op: bool(op.says("empty_cases")))
def _(op: Op) -> None:
    for case in op.says("empty_cases").values():
        op.gradients(op.inputs(**case))


@check("an expanded grad_output")
def _(op: Op) -> None:
    inputs = op.inputs()
    needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    outputs = op.run(*inputs)
    ones = [torch.ones((), dtype=x.dtype).expand(x.shape) for x in outputs]
    got = torch.autograd.grad(outputs, needed, ones, allow_unused=True)
    assert_same(got, op.gradients(op.inputs()))


@check("each input alone needs a gradient")
def _(op: Op) -> None:
    for name in op.tests.differentiable:
        op.gradients(op.inputs(needs=(name,)))


@check("check_batched_grad", numeric)
def _(op: Op) -> None:
    options = {**op.says("gradcheck_options"), "check_batched_grad": True}
    assert gradcheck(op.run, op.inputs(), **options)


@check("gradgradcheck", twice)
def _(op: Op) -> None:
    assert gradgradcheck(op.run, op.inputs(), **op.says("gradcheck_options"))


@check("a second derivative raises", lambda op: numeric(op) and not twice(op))
def _(op: Op) -> None:
    inputs = op.inputs()
    needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    try:
        found = torch.autograd.grad(op.loss(*inputs), needed, create_graph=True)
        torch.autograd.backward(sum(x.square().sum() for x in found))  # type: ignore[arg-type]
    except RuntimeError as error:
        assert "once" in str(error), error
    else:
        raise AssertionError("it was dropped")


@check("torch.func.grad, vjp, jacrev")
def _(op: Op) -> None:
    loss, x = op.of_first()
    expected = op.gradients(op.inputs(needs=(op.tests.differentiable[0],)))
    assert_same((grad(loss)(x),), expected[:1])
    assert_same((vjp(loss, x)[1](torch.ones_like(loss(x)))[0],), expected[:1])
    assert_same((jacrev(loss)(x),), expected[:1])


@check("vmap(grad)", mapped)
def _(op: Op) -> None:
    loss, x = op.of_first()
    got = vmap(grad(loss))(x.expand(2, *x.shape))
    assert_same((got[1],), op.gradients(op.inputs(needs=(op.tests.differentiable[0],))))


@check("vmap", mapped)
def _(op: Op) -> None:
    loss, x = op.of_first()
    assert_same((vmap(loss)(x.expand(2, *x.shape))[1],), (loss(x),))


@check("forward mode (torch.func.jvp)")
def _(op: Op) -> None:
    loss, x = op.of_first()
    steps = torch.linspace(1, 2, x.numel()).reshape(x.shape).to(x)
    tangent = jvp(loss, (x,), (steps,))[1]
    (slope,) = op.gradients(op.inputs(needs=(op.tests.differentiable[0],)))
    assert slope is not None
    assert_same((tangent,), ((slope * steps).sum(),))


@check("torch.compile(fullgraph), aot_eager")
def _(op: Op) -> None:
    compiles(op, "aot_eager", op.inputs())


@check("the same under autocast")
def _(op: Op) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        compiles(op, "aot_eager", [_single(x) for x in op.inputs()])


@check("torch.compile(fullgraph), inductor", inductor)
def _(op: Op) -> None:
    compiles(op, "inductor", op.inputs())


@check("the same under autocast, inductor", inductor)
def _(op: Op) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        compiles(op, "inductor", [_single(x) for x in op.inputs()])


def compiles(op: Op, backend: str, inputs: Sequence[Any]) -> None:
    """See that the compiled op has the gradients of the eager one."""
    torch._dynamo.reset()
    _forget_modules()
    compiled = torch.compile(op.loss, fullgraph=True, backend=backend)
    needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    got = torch.autograd.grad(compiled(*inputs), needed, allow_unused=True)
    again = [_copy(x) for x in inputs]
    exact = needed[0].dtype == torch.double
    assert_same(got, op.gradients(again), 1e-6 if exact else 0.03)


@check("torch.export, not strict")
def _(op: Op) -> None:
    class Exported(nn.Module):
        def forward(self, *inputs: Any) -> Tensor:
            return op.loss(*inputs)

    inputs = tuple(x.detach() if isinstance(x, Tensor) else x for x in op.inputs())
    program = torch.export.export(Exported(), inputs, strict=False)
    assert_same((program.module()(*inputs),), (op.loss(*op.inputs()),))


@check("checkpoint, saved_tensors_hooks, anomaly mode")
def _(op: Op) -> None:
    inputs, expected = op.inputs(), op.gradients(op.inputs())
    needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    again = checkpoint(op.loss, *inputs, use_reentrant=False)
    assert_same(torch.autograd.grad(again, needed, allow_unused=True), expected)
    hooks = torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone)
    with hooks, torch.autograd.set_detect_anomaly(True):
        assert_same(op.gradients(op.inputs()), expected)


@check("autocast, bfloat16")
def _(op: Op) -> None:
    inputs = [_single(x) for x in op.inputs()]
    needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    with torch.autocast("cpu", torch.bfloat16):
        loss = op.loss(*inputs)
    got = torch.autograd.grad(loss, needed, allow_unused=True)
    for one, x in zip(got, needed, strict=True):
        assert one is None or one.dtype == x.dtype


@check("the module: state_dict, deepcopy", lambda op: op.module is not None)
def _(op: Op) -> None:
    tests, module = op.module(), op.module.build()
    copied = copy.deepcopy(module)
    copied.load_state_dict(module.state_dict())
    assert_same(
        (tests.call(copied, tests.inputs()),), (tests.call(module, tests.inputs()),)
    )


def _forget_modules() -> None:
    """See that Dynamo imports the op's module again: that of the style before has the same name."""
    symbolic_convert._import_module.cache_clear()
    for name in [name for name in globals() if name.startswith("__import_")]:
        del globals()[name]


def _copy(x: Any) -> Any:
    """A tensor of its own: an op may change it in place."""
    if isinstance(x, Tensor):
        return x.detach().clone().requires_grad_(x.requires_grad)
    return x


def _single(x: Any) -> Any:
    if isinstance(x, Tensor) and x.dtype == torch.double:
        return x.detach().float().requires_grad_(x.requires_grad)
    return x


def assert_same(
    got: Sequence[Any], expected: Sequence[Any], near: float = 1e-6
) -> None:
    for one, other in zip(got, expected, strict=False):
        if other is not None:
            torch.testing.assert_close(one, other, rtol=near, atol=near)


class Row(NamedTuple):
    """A check: by style how many pass, of how many, and why the others do not."""

    name: str
    passed: dict[str, int]
    asked: dict[str, int]
    failures: dict[str, list[str]]  # the ops by style and message


def ops(names: Sequence[str], style: str, directory: Path) -> Iterator[tuple[str, Op]]:
    """The examples in a style; those that have no gradient or refuse the style are left out."""
    for example in sorted(path for path in ROOT.iterdir() if path.is_dir()):
        command = example / "command"
        if not command.is_file() or (names and example.name not in names):
            continue
        words = shlex.split(
            command.read_text().strip().partition("\n")[0], comments=True
        )
        where = directory / style / example.name
        where.mkdir(parents=True)
        for file in example.iterdir():
            if file.is_file() and not file.name.startswith(
                ("test_", example.name + ".py")
            ):
                (where / file.name).write_bytes(file.read_bytes())
        if run_new_op(where, *words[2:], *STYLES[style], "--no-verify").exit_code:
            continue
        found = imported(where)
        tests = next((v for k, v in found.items() if _is_tests(k, "OpTests", v)), None)
        module = next(
            (v for k, v in found.items() if _is_tests(k, "ModuleTests", v)), None
        )
        if tests is not None and tests.has_gradient and tests.reference:
            yield example.name, Op(tests(), module)


def imported(directory: Path) -> dict[str, Any]:
    """What the test in a directory defines: of its own name, by which Dynamo imports what it traces."""
    names = [path.stem for path in directory.glob("*.py")]
    for name in names:
        sys.modules.pop(name, None)
    sys.path.insert(0, str(directory))
    importlib.invalidate_caches()
    (test,) = (name for name in names if name.startswith("test_"))
    return vars(importlib.import_module(test))


def _is_tests(name: str, base: str, value: Any) -> bool:
    bases = [item.__name__ for item in getattr(value, "__mro__", ())]
    return name.startswith("Test") and base in bases


def rows(names: Sequence[str], styles: Iterable[str], directory: Path) -> list[Row]:
    found = {name: Row(name, {}, {}, {}) for name in CHECKS}
    for style in styles:
        for op_name, op in ops(names, style, directory):
            for name, function in CHECKS.items():
                if not NEEDS[name](op):
                    continue
                row = found[name]
                row.asked[style] = row.asked.get(style, 0) + 1
                problem = _problem(function, op)
                row.passed[style] = row.passed.get(style, 0) + (not problem)
                if problem:
                    told = f"{name}, {style}: {problem}"
                    row.failures.setdefault(told, []).append(op_name)
            print(f"{style}: {op_name}", file=sys.stderr, flush=True)
    return list(found.values())


def _problem(function: Check, op: Op) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(op)
    except Exception as error:  # noqa: BLE001 (whatever PyTorch raises is reported)
        return (
            f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:120]}"
        )
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--inductor", action="store_true", help="compile with it too")
    parser.add_argument("--style", action="append", choices=STYLES)
    asked = parser.parse_args()
    styles = asked.style or list(STYLES)
    with tempfile.TemporaryDirectory() as directory:
        table = rows(asked.names, styles, Path(directory))
    print(f"| check | {' | '.join(styles)} |\n|---|{'---|' * len(styles)}")
    for row in table:
        cells = [
            (
                f"{row.passed.get(style, 0)} of {row.asked[style]}"
                if row.asked.get(style)
                else "-"
            )
            for style in styles
        ]
        print(f"| {row.name} | {' | '.join(cells)} |")
    print()
    for row in table:
        for failure, names in row.failures.items():
            print(f"- {failure} ({', '.join(names)})")


if __name__ == "__main__":
    main()
