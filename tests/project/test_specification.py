"""What an option says and what the same key of a file says mean the same: every option, byte for byte."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from scaffold.cli.op_options import SPECIFICATION
from scaffold.spec.keys import KEYS
from tests.cli.running import listing, new_op
from tests.sweeps import in_every_run

BASE = ("--inputs", "x, w")
BASE_TOML = "inputs = 'x, w'\n"
PYTHON = """
import torch


def forward(x, w):
    y = x * w
    return y


def make():
    return [(torch.ones(2), torch.ones(2))]
"""


@dataclass(frozen=True)
class Case:
    """A key both ways; `rest` is the op around it, in both ways too."""

    options: tuple[str, ...]
    toml: str
    rest: tuple[str, ...] = BASE
    rest_toml: str = BASE_TOML
    files: dict[str, str] = field(default_factory=dict)
    tests: bool = False  # what the key does shows in the tests


PRODUCT = (*BASE, "--forward", "x * w")
PRODUCT_TOML = BASE_TOML + "forward = 'x * w'\n"
BUFFER = ("--inputs", "x[N, D], m[D; const]", "--forward", "x - m")
BUFFER_TOML = "inputs = 'x[N, D], m[D; const]'\nforward = 'x - m'\n"

CASES = {
    "inputs": Case(
        ("--inputs", "x[..., D], weight[D]?, eps: float = 1e-6"),
        "inputs = 'x[..., D], weight[D]?, eps: float = 1e-6'",
        (),
        "",
    ),
    "outputs": Case(("--outputs", "y, i[N; int]"), "outputs = 'y, i[N; int]'"),
    "schema": Case(
        ("--schema", "mul(Tensor x, Tensor? w=None) -> Tensor"),
        "schema = 'mul(Tensor x, Tensor? w=None) -> Tensor'",
        (),
        "",
    ),
    "class-name": Case(("--class-name", "FOO"), "class-name = 'FOO'"),
    "doc": Case(("--doc", "What 'it' does."), "doc = \"What 'it' does.\""),
    "forward": Case(("--forward", "x * w"), "forward = 'x * w'"),
    "forward, lines": Case(
        ("--forward", "\n  y = x * w\n  return y\n"),
        "forward = '''\ny = x * w\nreturn y\n'''",
    ),
    "forward, file": Case(
        ("--forward", "@maths.py:forward"),
        "forward = '@maths.py:forward'",
        files={"maths.py": PYTHON},
    ),
    "grad": Case(
        ("--grad", "x=grad_output * w", "--grad", "w = grad_output * x"),
        "grad.x = 'grad_output * w'\ngrad.w = 'grad_output * x'",
        PRODUCT,
        PRODUCT_TOML,
    ),
    "grad, lines": Case(
        ("--grad", "x=\n  y = w\n  return grad_output * y"),
        "grad.x = '''\ny = w\nreturn grad_output * y\n'''",
        PRODUCT,
        PRODUCT_TOML,
    ),
    "backward": Case(
        ("--backward", "grad_x = grad_output * w; grad_w = grad_output * x"),
        "backward = '''\ngrad_x = grad_output * w\ngrad_w = grad_output * x\n'''",
        PRODUCT,
        PRODUCT_TOML,
    ),
    "surrogate": Case(
        ("--surrogate", "--grad", "x=grad_output", "--grad", "w=grad_output"),
        "surrogate = true\ngrad = { x = 'grad_output', w = 'grad_output' }",
        PRODUCT,
        PRODUCT_TOML,
    ),
    "surrogate, stated": Case(
        *(("--surrogate-forward", "x + w"), "surrogate = 'x + w'"),
        *((*PRODUCT, "--grad", "x=grad_output", "--grad", "w=grad_output"),),
        PRODUCT_TOML + "grad = { x = 'grad_output', w = 'grad_output' }\n",
        tests=True,
    ),
    "import": Case(
        ("--import", "kernels:mul", "--import", "kernels:add as plus"),
        "import = ['kernels:mul', 'kernels:add as plus']",
        (*BASE, "--forward", "mul(x, plus(w, w))", "--no-derive"),
        BASE_TOML + "forward = 'mul(x, plus(w, w))'\nderive = false\n",
    ),
    "optional": Case(("--optional", "w"), "optional = ['w']"),
    "nondiff": Case(("--nondiff", "x, w"), "nondiff = ['x', 'w']"),
    "nondiff, twice": Case(
        ("--nondiff", "x", "--nondiff", "w"), "nondiff = ['x', 'w']"
    ),
    "dirty": Case(
        ("--dirty", "x"),
        "dirty = ['x']",
        ("--inputs", "x", "--forward", "x.exp_()"),
        "inputs = 'x'\nforward = 'x.exp_()'\n",
    ),
    "reason": Case(
        ("--reason", "the kernel is"),
        "reason = 'the kernel is'",
        (*PRODUCT, "--once-differentiable"),
        PRODUCT_TOML + "once-differentiable = true\n",
    ),
    "require": Case(
        ("--require", "H % G == 0", "--require", "H > G"),
        "require = ['H % G == 0', 'H > G']",
        ("--inputs", "x[H], w[G]"),
        "inputs = 'x[H], w[G]'\n",
        tests=True,
    ),
    "samples": Case(
        ("--samples", "@maths.py:make"),
        "samples = '@maths.py:make'",
        files={"maths.py": PYTHON},
        tests=True,
    ),
    "derive": Case(("--no-derive",), "derive = false", PRODUCT, PRODUCT_TOML),
    "once-differentiable": Case(
        *(("--once-differentiable",), "once-differentiable = true"),
        *(PRODUCT, PRODUCT_TOML),
    ),
    "transforms": Case(("--no-transforms",), "transforms = false"),
    "shape-checks": Case(
        ("--no-shape-checks",),
        "shape-checks = false",
        ("--inputs", "x[N, D], w[N, D]", "--forward", "x * w"),
        "inputs = 'x[N, D], w[N, D]'\nforward = 'x * w'\n",
    ),
    "materialize-grads": Case(("--no-materialize-grads",), "materialize-grads = false"),
    "forward-ad": Case(
        *(("--forward-ad",), "forward-ad = true"),
        ("--inputs", "x", "--forward", "torch.exp(x)"),
        "inputs = 'x'\nforward = 'torch.exp(x)'\n",
    ),
    "kernels": Case(
        *(("--kernels", "triton"), "kernels = ['triton']"),
        ("--inputs", "x", "--forward", "torch.exp(x)"),
        "inputs = 'x'\nforward = 'torch.exp(x)'\n",
    ),
    "amp": Case(("--amp", "region"), "amp = 'region'"),
    "sharding": Case(
        *(("--sharding", "m_, n_ -> mn"), "sharding = 'm_, n_ -> mn'"),
        ("--inputs", "x, w", "--forward", "x @ w.t()", "--style", "library"),
        "inputs = 'x, w'\nforward = 'x @ w.t()'\nstyle = 'library'\n",
    ),
    "style": Case(("--style", "combined"), "style = 'combined'"),
    "namespace": Case(
        ("--namespace", "mylib"),
        "namespace = 'mylib'",
        (*BASE, "--style", "library"),
        BASE_TOML + "style = 'library'\n",
    ),
    "save-policy": Case(
        *(("--save-policy", "recompute"), "save-policy = 'recompute'"),
        *(BASE + ("--forward", "torch.tanh(x * w) * w"),),
        BASE_TOML + "forward = 'torch.tanh(x * w) * w'\n",
    ),
    "tolerance": Case(
        ("--tolerance", "eps=1e-5, atol = 0.01,nondet_tol=0, fast_mode=true"),
        "tolerance = { eps = 1e-5, atol = 0.01, nondet_tol = 0, fast_mode = true }",
        (*PRODUCT, "--grad", "x=grad_output * w", "--grad", "w=grad_output * x"),
        PRODUCT_TOML + "grad = { x = 'grad_output * w', w = 'grad_output * x' }\n",
        tests=True,
    ),
    "module": Case(("--no-module",), "module = false"),
    "params": Case(("--params", "w"), "params = ['w']"),
    "buffers": Case(("--buffers", "m"), "buffers = ['m']", BUFFER, BUFFER_TOML),
    "update": Case(
        ("--update", "m=torch.lerp(m, x.mean(0), 0.1)"),
        "update.m = 'torch.lerp(m, x.mean(0), 0.1)'",
        (*BUFFER, "--buffers", "m"),
        BUFFER_TOML + "buffers = ['m']\n",
    ),
    "init": Case(
        ("--init", "w=uniform(-0.1, 0.1)"),
        "init.w = 'uniform(-0.1, 0.1)'",
        (*BASE, "--params", "w"),
        BASE_TOML + "params = ['w']\n",
    ),
    "test-shapes": Case(
        ("--test-shapes", "x[N], w[N]"),
        "test-shapes = 'x[N], w[N]'",
        *(PRODUCT, PRODUCT_TOML),
        tests=True,
    ),
    "test": Case(("--no-test",), "test = false", tests=True),
}
ALONE = {  # the op around it is not the same op, or none at all
    *("import", "dirty"),
}


def generated(
    directory: Path, files: dict[str, str], *arguments: str
) -> dict[str, bytes]:
    directory.mkdir()
    for name, text in files.items():
        (directory / name).write_text(text)
    outcome = new_op(directory, *arguments, "--no-verify")
    assert outcome.code == 0, outcome.err
    return {
        name: data for name, data in listing(directory).items() if name not in files
    }


@pytest.mark.parametrize(
    "name", in_every_run(CASES, [*CASES][::2], pytest.mark.each_commit)
)
def test_an_option_and_its_key_mean_the_same(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    rest = case.rest if case.tests else (*case.rest, "--no-test")
    by_option = generated(tmp_path / "a", case.files, *rest, *case.options)
    switch = "" if case.tests else "test = false\n"
    toml = f"[ops.foo]\n{switch}{case.rest_toml}{case.toml}\n"
    files = case.files | {"ops.toml": toml}
    by_file = generated(tmp_path / "b", files, "--spec", "ops.toml")
    assert by_option == by_file
    mixed = case.files | {"ops.toml": f"[ops.foo]\n{switch}{case.rest_toml}"}
    arguments = ("--spec", "ops.toml", *case.options)
    assert generated(tmp_path / "c", mixed, *arguments) == by_option
    if case.rest and name not in ALONE:
        assert by_option != generated(tmp_path / "d", case.files, *rest)


def test_every_key_has_a_case_and_an_option() -> None:
    keys = {name.split(",")[0] for name in CASES}
    assert keys == set(KEYS)
    assert {option.name for option in SPECIFICATION} - {"surrogate-forward"} == keys


@pytest.mark.parametrize(
    ("switch", "toml"),
    [
        ("--derive", "derive = false"),
        ("--no-once-differentiable", "once-differentiable = true"),
        ("--transforms", "transforms = false"),
        ("--materialize-grads", "materialize-grads = false"),
        ("--no-forward-ad", "forward-ad = true"),
        ("--module", "module = false"),
        ("--test", "test = false"),
        ("--no-surrogate", "surrogate = true"),
    ],
)
def test_a_switch_can_be_turned_back(tmp_path: Path, switch: str, toml: str) -> None:
    plain = f"[ops.foo]\n{PRODUCT_TOML}grad.x = 'grad_output * w'\n"
    over = generated(
        tmp_path / "a", {"ops.toml": f"{plain}{toml}\n"}, "--spec", "ops.toml", switch
    )
    assert over == generated(tmp_path / "b", {"ops.toml": plain}, "--spec", "ops.toml")


def test_options_override_a_file_entry_by_entry(tmp_path: Path) -> None:
    """One gradient replaced, the other kept; a list replaced whole."""
    toml = f"[ops.foo]\n{PRODUCT_TOML}nondiff = ['x']\ngrad.x = 'w'\ngrad.w = 'x'\n"
    over = generated(
        tmp_path / "a",
        {"ops.toml": toml.replace("nondiff = ['x']\n", "")},
        *("--spec", "ops.toml", "--grad", "w=2 * x"),
    )
    whole = toml.replace("nondiff = ['x']\n", "").replace("= 'x'\n", "= '2 * x'\n")
    assert over == generated(tmp_path / "b", {"ops.toml": whole}, "--spec", "ops.toml")
    listed = generated(
        tmp_path / "c",
        {"ops.toml": f"[ops.foo]\n{BASE_TOML}nondiff = ['x']\n"},
        *("--spec", "ops.toml", "--nondiff", "w"),
    )
    assert listed == generated(tmp_path / "d", {}, *BASE, "--nondiff", "w")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--grad", "w=q"), "--grad:1:3: unknown name 'q'"),
        (("--grad", "w =  q"), "--grad:1:6: unknown name 'q'"),
        (("--grad", "w=\n  y = x\n  return q"), "--grad:3:10: unknown name 'q'"),
        (("--grad", "v=x"), "--grad: 'v' is not an input"),
        (("--nondiff", "x,  q"), "--nondiff:1:5: 'q' is not an input"),
        (("--tolerance", "eps=1,  epz=2"), "--tolerance:1:9: "),
        (("--doc", "x"), "sub/ops.toml:4:10: unknown name 'r'"),
        (("--forward", "x"), "sub/ops.toml:4:10: unknown name 'r'"),
        (("--style", "a"), "--style: unknown value 'a'"),
        (("--import", "a b"), "--import: 'a b' is not an import"),
    ],
)
def test_a_problem_has_the_place_of_whoever_said_it(
    tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    """`grad.x` of the file is wrong as well; what the option says replaces nothing else."""
    (tmp_path / "sub").mkdir()
    path = tmp_path / "sub" / "ops.toml"
    path.write_text("[ops.foo]\ninputs = 'x, w'\nforward = 'x * w'\ngrad.x='r'\n")
    path.write_text(path.read_text().replace("grad.x='r'", "grad.x= 'r'"))
    outcome = new_op(tmp_path, "--spec", "sub/ops.toml", *arguments)
    assert outcome.code == 2
    assert any(line.startswith(complaint) for line in outcome.err.splitlines())
    assert set(listing(tmp_path)) == {"sub/ops.toml"}


def test_files_are_named_from_the_file_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "maths.py").write_text("def f(x, w):\n    return x * q\n")
    path = tmp_path / "sub" / "ops.toml"
    path.write_text("[ops.foo]\ninputs = 'x, w'\nforward = '@maths.py:f'\n")
    outcome = new_op(tmp_path, "--spec", "sub/ops.toml")
    assert outcome.err.startswith("sub/maths.py:2:16: unknown name 'q'")
    outcome = new_op(tmp_path, *BASE, "--forward", "@sub/maths.py:f")
    assert outcome.err.startswith("sub/maths.py:2:16: unknown name 'q'")


def test_an_option_over_a_file_names_files_from_here(tmp_path: Path) -> None:
    """What is typed in a shell counts from where the shell is."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "ops.toml").write_text("[ops.foo]\ninputs = 'x, w'\n")
    (tmp_path / "maths.py").write_text(PYTHON)
    outcome = new_op(
        tmp_path, "--spec", "sub/ops.toml", "--forward", "@maths.py:forward"
    )
    assert outcome.code == 0, outcome.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--grad", "x"), "--grad: 'x' does not begin with a name and '='"),
        (("--grad", "=x"), "--grad: '=x' does not begin with a name and '='"),
        (("--grad", "x=1", "--grad", "x=2"), "--grad: 'x' is given twice"),
        (("--tolerance", "eps"), "--tolerance: 'eps' is not name=number"),
        (("--tolerance", "eps=1,"), "--tolerance:1:7: '' is not name=number"),
        (("--tolerance", "eps=1,eps=2"), "--tolerance:1:7: 'eps' is given twice"),
        (("--tolerance", "eps=１"), "--tolerance: 'eps=１' is not name=number"),
        (("--tolerance", "eps=nan"), "--tolerance: 'eps=nan' is not name=number"),
        (("--tolerance", "eps=" + "9" * 999), "--tolerance: 'eps"),
        (
            ("--surrogate-forward", "x", "--no-surrogate"),
            "--surrogate-forward: --surrogate-forward and --no-surrogate exclude each other",
        ),
    ],
)
def test_options_that_no_file_could_hold(
    tmp_path: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    outcome = new_op(tmp_path, "--inputs", "x", *arguments)
    assert outcome.code == 2
    assert outcome.err.startswith(complaint)
    assert not listing(tmp_path)


def test_windows_newlines_in_an_option_are_newlines(tmp_path: Path) -> None:
    dos = generated(tmp_path / "a", {}, *BASE, "--forward", "y = x\r\nreturn y * w")
    unix = generated(tmp_path / "b", {}, *BASE, "--forward", "y = x\nreturn y * w")
    assert dos == unix
