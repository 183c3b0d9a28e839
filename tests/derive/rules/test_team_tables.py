"""A team's rule may be called anything: no name of the engine's, and no built-in rule's, is taken for it."""

import ast
import inspect
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from scaffold.derive import derive
from scaffold.derive.rules import formulas
from scaffold.derive.rules.formula_words import WORDS
from scaffold.derive.rules.table import built_in
from scaffold.derive.simplify import algebra
from scaffold.derive.simplify import constructors as make
from scaffold.derive.write import printer
from scaffold.spec import RuleFile
from tests.derive.building import draft_of, importable, load, spec_of
from tests.derive.checking import check_op, is_once
from tests.executed.proving import write_op

TABLE = """\
[{name}]
call = "triple(x, y)"
from = "kernels"
category = "elementwise"
grad.x = "grad * 3 * cos(x) * exp(y)"
grad.y = "grad * 3 * sin(x) * exp(y)"
samples = ["x[3, 4], y[4]"]
"""
OWN = """\
[{name}]
call = "{name}_of_mine(x)"
from = "kernels"
category = "elementwise"
grad.x = "-7 * grad"
samples = ["x[3, 4]"]
"""


def triple(x: Tensor, y: Tensor) -> Tensor:
    return 3 * x.sin() * y.exp()


def words_of_the_engine() -> set[str]:
    """The names of functions and methods, of words in formulas, and of ops that are no primitives."""
    members = {
        name.strip("_")
        for owner in (algebra, make.Maker, printer.Printer, formulas.FormulaEvaluator)
        for name, _ in inspect.getmembers(owner)
    } | WORDS.keys()
    for path in Path(make.__file__).parent.glob("*.py"):
        members |= set(re.findall(r'\.op\(\s*"(\w+)"', path.read_text()))
    return {name for name in members if name.isidentifier()}


READ = {"exp", "sin", "cos"}  # which the formulas above mean
NAMES = sorted(
    (words_of_the_engine() | {*built_in().names()} | {"is", "foo_like"}) - READ
)


def check(name: str, tables: tuple[str, ...], forward: str) -> None:
    spec = spec_of("x, y", forward=forward, import_=["kernels:triple"])
    files = (RuleFile(f"{at}.toml", text) for at, text in enumerate(tables))
    spec = replace(spec, rules=tuple(files))
    derivation = derive(spec)
    assert not derivation.missing, derivation.notes
    text = draft_of(spec, derivation)
    backward = ast.unparse(ast.parse(text)).partition("def backward")[2]
    assert "torch.func.vjp" not in backward
    module = load(text, kernels={"triple": triple})

    def plain(x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = eval(
            forward, {"triple": triple, "torch": torch, "x": x, "y": y}
        )
        return found

    torch.manual_seed(2)
    values = [torch.randn(shape, dtype=torch.double) for shape in ((3, 4), (4,))]
    with importable(kernels={"triple": triple}):
        check_op(
            module.SomeOpFunction,
            module.some_op,
            plain,
            values,
            once=derivation.once_differentiable,
            subset_limit=2,
        )


def test_the_names_that_were_tracebacks_are_among_them() -> None:
    assert {"signed", "call", "cond", "input", "list"} <= {*NAMES}


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", NAMES[::27] + ["product", "signed", "call", "static"])
def test_a_rule_of_any_name(name: str) -> None:
    check(name, (TABLE.format(name=name),), "triple(x, y) * x + triple(x, y).sum()")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_a_rule_of_every_name(name: str) -> None:
    check(name, (TABLE.format(name=name),), "triple(x, y) * x + triple(x, y).sum()")


@pytest.mark.parametrize("name", ["exp", "sum", "mul", "cos", "softmax"])
def test_a_name_of_the_team_s_means_nothing_to_built_in_formulas(name: str) -> None:
    """`exp` of another function than PyTorch's: the gradient of a built-in softmax does not call it."""
    forward = "(x * y).log_softmax(-1) * x.exp().cos()"
    check(name, (OWN.format(name=name),), forward)


def test_a_rule_for_the_same_call_takes_the_place_of_the_built_in_one() -> None:
    text = """\
[exp]
call = "torch.exp(x)"
category = "elementwise"
grad.x = "grad * exp(x) * 2"
samples = ["x[3, 4]"]
"""
    spec = replace(
        spec_of("x", forward="x.exp().sum()"), rules=(RuleFile("a.toml", text),)
    )
    assert "2 * " in draft_of(spec)


def test_the_last_of_several_tables_goes_first() -> None:
    wrong = TABLE.replace("grad * 3", "grad * 5")
    for names in (("call", "call"), ("call", "other"), ("tan", "tan")):
        tables = (wrong.format(name=names[0]), TABLE.format(name=names[1]))
        check(names[1], tables, "triple(x, y) * x")


@pytest.mark.parametrize(
    ("said", "written"),
    [("", "mine(grad_output) * z"), ('memory = "fresh"', "mine(grad_output).mul_(z)")],
)
def test_what_a_function_of_ones_own_returns_is_written_over_only_if_it_is_said_to_be_fresh(
    said: str, written: str
) -> None:
    """It may return its argument, here the gradient that autograd gave."""
    table = f"""\
[mine]
call = "mine(x)"
from = "kernels"
category = "elementwise"
{said}
grad.x = "mine(grad)"
samples = ["x[3, 4]"]
"""
    inputs = "x[N, D], y[N, D; const], z[N, D; const]"
    forward = "mine(torch.exp(x * y) * z)"
    spec = spec_of(
        inputs, forward=forward, import_=["kernels:mine"], once_differentiable=True
    )
    spec = replace(spec, rules=(RuleFile("rules.toml", table),))
    assert written in draft_of(spec)


BESSEL = """\
[bessel_j0]
call = "torch.special.bessel_j0(x)"
category = "elementwise"
complex = false
grad.x = "-grad * bessel_j1(x)"
samples = ["x[3, 4]"]

[bessel_j1]
call = "torch.special.bessel_j1(x)"
category = "elementwise"
complex = false
grad.x = "grad * (bessel_j0(x) - result / x)"
samples = ["x[3, 4]"]
"""


@pytest.mark.parametrize("rules", [(), (RuleFile("rules.toml", BESSEL),)])
def test_a_rule_for_what_autograd_takes_for_a_constant_is_proven_by_differences(
    tmp_path: Path, rules: tuple[RuleFile, ...]
) -> None:
    """Autograd neither tells what the gradient is, nor differentiates it: a rule of the built-in table, or of the team's."""
    forward = "torch.special.bessel_j0(x) * x"
    spec = replace(spec_of("x[N]", forward=forward, derive=True), rules=rules)
    found = write_op(tmp_path, lambda said: spec)
    assert not found["failure"] and not found["notes"]
    assert not derive(spec).notes
    text = draft_of(spec)
    assert "bessel_j1" in text and is_once(text)
    assert "def reference" not in (tmp_path / "test_some_op.py").read_text()
