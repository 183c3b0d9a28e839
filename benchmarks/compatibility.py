"""What of PyTorch works with generated ops: a table of checks by styles and with forward mode, in Markdown.

In: `python -m benchmarks.compatibility [NAME ...] [--style STYLE ...] [--check WORD] [--inductor]`, in an environment with torch: the examples that are named, else all with a
gradient. Each is generated in every style that it can have, with its test, which says how inputs are made.
Out: for each check how many ops pass of those that it applies to, and the oldest PyTorch that has it; then each failure with its reason, PyTorch's issue and
message, what cannot be generated in a style, and the cells below those of ops that were written by hand. Exit 1 where a failure has no reason, or a cell is below.
"""

import argparse
import copy
import importlib
import multiprocessing
import shlex
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils.checkpoint import checkpoint

from tests.examples.examples import ROOT
from tests.executed.generation import run_new_op

STYLES: dict[str, tuple[str, ...]] = {
    "setup-context": ("--style", "setup-context"),
    "combined": ("--style", "combined"),
    "library": ("--style", "library"),
    "forward-ad": ("--style", "setup-context", "--forward-ad"),
    "kernels": ("--style", "setup-context", "--kernels", "triton"),
}
INTERPRETED = "kernels"  # run with TRITON_INTERPRET=1, and only if asked for
UNSAID: dict[str, Any] = {
    "supports_gradcheck": True,
    "supports_double_backward": True,
    "surrogate": None,
    "gradcheck_options": {},
    "layouts": (torch.clone,),
    "empty_cases": {},
    "ends": (),
    "changed_in_place": (),
    "registered": None,
    "listed_from": None,
}


class Reason(NamedTuple):
    """Why a check fails in a style, whatever the op, or with an op that PyTorch cannot take there."""

    checks: tuple[str, ...]  # what their names begin with
    style: str  # none: any
    message: str  # part of PyTorch's
    text: str


FUNC = ("torch.func", "vmap", "forward mode", "jacfwd")
REASONS = (
    Reason(
        FUNC,
        "combined",
        "must override the setup_context",
        "torch.func takes no Function with forward(ctx, ...), by design (pytorch#91452)",
    ),
    Reason(
        ("forward mode", "jacfwd"),
        "",
        "must implement the jvp function",
        "that is written with --forward-ad; Dynamo refuses a Function with a jvp (pytorch#118397)",
    ),
    Reason(
        ("torch.func", "vmap(grad)"),
        "library",
        "must override the setup_context",
        "PyTorch makes no setup_context for a registered op (pytorch#168393, #170834, #179652)",
    ),
    Reason(
        ("forward mode", "jacfwd"),
        "library",
        "",
        "a registered op has no jvp: the tangent is 0, without an error (pytorch#131116, which was not merged)",
    ),
    Reason(
        ("torch.export",),
        "",
        "Unsupported input type",
        "torch.export takes no functions as inputs, by design (pytorch#147400)",
    ),
)

# The ops that were written by hand, one of each kind, and how many of them pass what not all of them do.
BY_HAND = {"linear", "mul_constant", "exp_in_place", "sort_last", "l2_normalize"}
BY_HAND |= {"sigmoid", "centre"}
NEVER = {
    "combined": FUNC,
    "library": ("torch.func", "vmap(grad)", "forward mode", "jacfwd"),
    "setup-context": ("forward mode", "jacfwd"),
}


class Op:
    """An op by its generated test."""

    def __init__(self, tests: Any, module: Any, directory: Path) -> None:
        self.tests, self.module, self.directory = tests, module, directory

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
        return _total(self.run(*inputs))

    def plain_loss(self, *inputs: Any) -> Tensor:
        """That of the op in plain PyTorch."""
        return _total(self.ends(self.tests.reference(*inputs)))

    def ends(self, found: Any) -> list[Tensor]:
        """What has a gradient of what a call returned."""
        outputs = found if isinstance(found, tuple) else (found,)
        return [outputs[at] for at in self.says("ends") or range(len(outputs))]

    def gradients(self, inputs: Sequence[Any]) -> tuple[Tensor | None, ...]:
        needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
        return torch.autograd.grad(self.loss(*inputs), needed, allow_unused=True)

    @property
    def in_place(self) -> bool:
        """Whether it changes what is given to it."""
        given = [_clone(x) for x in self.inputs()]
        with torch.no_grad():
            self.tests.op(*given)
        return any(isinstance(x, Tensor) and x._version > 0 for x in given)

    @property
    def first(self) -> int:
        """The position of an input that has a gradient."""
        inputs = self.inputs()
        flags = [isinstance(x, Tensor) and x.requires_grad for x in inputs]
        return flags.index(True)

    def of_first(
        self, of: Callable[..., Tensor] | None = None
    ) -> tuple[Callable[[Tensor], Tensor], Tensor]:
        """The loss, or another, as a function of that input alone, and its value."""
        inputs = [x.detach() if isinstance(x, Tensor) else x for x in self.inputs()]
        at, function = self.first, of or self.loss

        def loss(x: Tensor) -> Tensor:
            return function(*inputs[:at], x, *inputs[at + 1 :])

        return loss, inputs[at]


def _total(outputs: Iterable[Tensor]) -> Tensor:
    total = torch.zeros((), dtype=torch.double)
    for output in outputs:
        total = total + output.sum()
    return total


Check = Callable[[Op], None]
CHECKS: dict[str, Check] = {}
Needs = Callable[[Op], bool]
NEEDS: dict[str, Needs] = {}
SINCE: dict[str, str] = {}  # the oldest PyTorch in which generated ops pass
FLOOR = "2.4"  # of what is generated: whether autocast is on for a device can be asked
COMPILED = "2.5"


def check(
    name: str, needs: Needs = lambda op: True, since: str = FLOOR
) -> Callable[[Check], Check]:
    def noted(function: Check) -> Check:
        CHECKS[name], NEEDS[name], SINCE[name] = function, needs, since
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
    return not op.says("changed_in_place")


def registered(op: Op) -> bool:
    return op.says("registered") is not None


def parallel(op: Op) -> bool:
    """Whether its module has parameters: DDP takes no other."""
    there = torch.distributed.is_available() and torch.distributed.is_gloo_available()
    return bool(there and op.module and [*op.module.build().parameters()])


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
        try:
            op.plain_loss(*(_copy(x) for x in op.inputs(**case)))
        except (IndexError, RuntimeError):
            continue  # nor does plain PyTorch
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


@check("jacfwd, hessian", lambda op: twice(op) and mapped(op))
def _(op: Op) -> None:
    loss, x = op.of_first()
    plain, _ = op.of_first(op.plain_loss)
    assert_same((jacfwd(loss)(x),), (jacfwd(plain)(x),))
    assert_same((hessian(loss)(x),), (hessian(plain)(x),))


@check("torch.compile(fullgraph), aot_eager", since=COMPILED)
def _(op: Op) -> None:
    compiles(op, "aot_eager", op.inputs())


@check("torch.compile under autocast, aot_eager", since=COMPILED)
def _(op: Op) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        compiles(op, "aot_eager", [_single(x) for x in op.inputs()])


@check("torch.compile(fullgraph), inductor", inductor, COMPILED)
def _(op: Op) -> None:
    compiles(op, "inductor", op.inputs())


@check("torch.compile under autocast, inductor", inductor, COMPILED)
def _(op: Op) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        compiles(op, "inductor", [_single(x) for x in op.inputs()])


def _clone(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def compiles(op: Op, backend: str, inputs: Sequence[Any]) -> None:
    """See that the compiled op, without what its test does around it, has the gradients of the eager one."""
    torch._dynamo.reset()
    _forget_modules()

    def on_copies(*inputs: Any) -> Any:
        return op.tests.op(*map(_clone, inputs))

    alone = not op.in_place  # PyTorch 2.13 loses a backward there: docs/limits.md
    compiled: Any = torch.compile(
        op.tests.op if alone else on_copies, fullgraph=True, backend=backend
    )
    needed = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    given = map(_clone, inputs) if alone else inputs
    loss = _total(op.ends(compiled(*given)))
    got = torch.autograd.grad(loss, needed, allow_unused=True)
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


@check("torch.library.opcheck", registered, "2.5")
def _(op: Op) -> None:
    inputs, start = op.inputs(), op.says("listed_from")
    if start is not None:  # any number of tensors are one argument
        inputs = (*inputs[:start], [*inputs[start:]])
    torch.library.opcheck(op.tests.registered, tuple(inputs))


@check("DDP over gloo, two processes", parallel)
def _(op: Op) -> None:
    """Each process has inputs of its own; the gradients of the parameters are the means."""
    with tempfile.TemporaryDirectory() as directory:
        context = multiprocessing.get_context("forkserver")  # this one has threads
        context.set_forkserver_preload([__spec__.name])
        results = context.Queue()
        arguments = (op.directory, f"file://{directory}/store", results)
        runs = [context.Process(target=_ddp, args=(*arguments, k)) for k in range(2)]
        for run in runs:
            run.start()
        try:
            problems = [results.get(timeout=120) for _ in runs]
        finally:
            for run in runs:
                run.join(5)
                run.kill()
    assert not any(problems), problems


def _ddp(directory: Path, store: str, results: Any, rank: int) -> None:
    """One of the two processes."""
    op = op_in(directory)
    assert op is not None
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=2
    )
    try:
        tests, plain = op.module(), op.module.build()
        names = [*op.tests.make()]
        given = [
            dict(zip(names, op.inputs(needs=(), seed=seed), strict=True))
            for seed in range(2)
        ]
        for inputs in given:
            torch.autograd.backward(_outputs(tests.call(plain, inputs)) / 2)
        copied = copy.deepcopy(plain)
        copied.zero_grad()
        wrapped = nn.parallel.DistributedDataParallel(copied)
        torch.autograd.backward(_outputs(tests.call(wrapped, given[rank])))
        pairs = zip(copied.parameters(), plain.parameters(), strict=True)
        for one, other in pairs:
            assert_same((one.grad,), (other.grad,))
        results.put("")
    except Exception as error:  # noqa: BLE001 (it is told by the process that waits)
        results.put(f"{type(error).__name__}: {error}")
    finally:
        torch.distributed.destroy_process_group()


def _outputs(found: Any) -> Tensor:
    """A loss of what a module returned."""
    several = found if isinstance(found, tuple) else (found,)
    return _total(x.square() for x in several if x.requires_grad)


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
    from torch._dynamo import symbolic_convert  # seconds, which tests need not take

    cached = getattr(symbolic_convert, "_import_module", None)  # not in every version
    if cached is not None:
        cached.cache_clear()
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
    """A check: by style the ops that pass, those that were asked, and why the others do not."""

    name: str
    passed: dict[str, list[str]]
    asked: dict[str, list[str]]
    failures: dict[tuple[str, str], list[str]]  # the ops by style and message

    def cell(self, style: str) -> str:
        asked = len(self.asked.get(style, ()))
        return f"{len(self.passed.get(style, ()))} of {asked}" if asked else "-"

    def reason(self, style: str, message: str) -> str:
        """Why PyTorch cannot; none where nothing is known."""
        for item in REASONS:
            of_it = self.name.startswith(item.checks) and item.style in ("", style)
            if of_it and item.message in message:
                return item.text
        return ""

    def below(self, style: str) -> list[str]:
        """The ops that pass when they are written by hand, and do not as they are generated."""
        if self.name.startswith(NEVER.get(style, ("-",))):
            return []
        passed = self.passed.get(style, ())
        asked = (name for name in self.asked.get(style, ()) if name in BY_HAND)
        return [name for name in asked if name not in passed]


def ops(
    names: Sequence[str], style: str, directory: Path, refused: dict[str, list[str]]
) -> Iterator[tuple[str, Op]]:
    """The examples in a style that have a gradient which is the derivative; why others cannot be had is noted."""
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
        result = run_new_op(where, *words[2:], *STYLES[style], "--no-verify")
        if result.exit_code:
            message = _first_line(str(result.exception))
            refused.setdefault(f"{style}: {message}", []).append(example.name)
            continue
        op = op_in(where)
        if op is not None:
            yield example.name, op


def op_in(directory: Path) -> Op | None:
    """The op whose test stands in a directory, if its gradient is the derivative."""
    found = imported(directory)
    tests = next((v for k, v in found.items() if _is_tests(k, "OpTests", v)), None)
    module = next((v for k, v in found.items() if _is_tests(k, "ModuleTests", v)), None)
    if tests is None or not (tests.has_gradient and tests.reference):
        return None
    return Op(tests(), module, directory)


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


def rows(
    names: Sequence[str],
    styles: Iterable[str],
    directory: Path,
    refused: dict[str, list[str]],
) -> list[Row]:
    found = {name: Row(name, {}, {}, {}) for name in CHECKS}
    for style in styles:
        for op_name, op in ops(names, style, directory, refused):
            for name, function in CHECKS.items():
                if not NEEDS[name](op):
                    continue
                row = found[name]
                row.asked.setdefault(style, []).append(op_name)
                problem = _problem(function, op)
                if problem:
                    row.failures.setdefault((style, problem), []).append(op_name)
                else:
                    row.passed.setdefault(style, []).append(op_name)
            print(f"{style}: {op_name}", file=sys.stderr, flush=True)
    return list(found.values())


def _problem(function: Check, op: Op) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(op)
    except Exception as error:  # noqa: BLE001 (whatever PyTorch raises is reported)
        return f"{type(error).__name__}: {_first_line(str(error))}"
    return ""


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:180]


def printed(
    table: Iterable[Row], styles: Sequence[str], refused: dict[str, list[str]]
) -> int:
    """Print the table, and of all that fails why; how much has no reason or is below what is written by hand."""
    amiss = 0
    print(f"| check | {' | '.join(styles)} | since |\n|---|{'---|' * len(styles)}---|")
    for row in table:
        cells = " | ".join(map(row.cell, styles))
        print(f"| {row.name} | {cells} | {SINCE[row.name]} |")
    print()
    for row in table:
        for (style, message), names in row.failures.items():
            reason = row.reason(style, message)
            amiss += not reason
            said = f"{reason or 'NO REASON KNOWN'}. {message} ({', '.join(names)})"
            print(f"- {row.name}, {style}: {said}")
    for message, names in refused.items():
        print(f"- not in this style, {message} ({', '.join(names)})")
    for row in table:
        for style in styles:
            if names := row.below(style):
                amiss += 1
                print(f"- BELOW what is written by hand, {row.name}, {style}: {names}")
    return amiss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--inductor", action="store_true", help="compile with it too")
    parser.add_argument("--style", action="append", choices=STYLES)
    parser.add_argument("--check", default="", help="only those with this in the name")
    asked = parser.parse_args()
    for name in [name for name in CHECKS if asked.check not in name]:
        del CHECKS[name]
    styles = asked.style or [style for style in STYLES if style != INTERPRETED]
    refused: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as directory:
        table = rows(asked.names, styles, Path(directory), refused)
    sys.exit(bool(printed(table, styles, refused)))


if __name__ == "__main__":
    main()
