"""Formulas in their scopes, and what they are taken from."""

import pytest

from scaffold.formula import emit, emit_lines
from scaffold.spec import Import
from tests.spec.written import complaints, op

FILE = '''\
"""Maths of foo."""
import numpy as np
import torch
from torch import Tensor
from my.pkg import op as other

def forward(x: Tensor, w: Tensor) -> Tensor:
    """What it is."""
    # the inner product
    y = other(np.abs(x))
    return y @ w

def backward(grad_output, x, w, y):
    grad_x = grad_output @ w.t()
    grad_w = y.t() @ grad_output
    return grad_x, grad_w, None
'''


def test_a_whole_op_from_a_file() -> None:
    text = "inputs = 'x, w'\nforward = '@f.py'\nbackward = '@f.py:backward'"
    found = op(text, {"f.py": FILE})
    assert found.forward is not None and found.backward is not None
    assert found.forward.statements[0].comments == ("the inner product",)
    assert emit(found.forward.result) == "y @ w"
    assert found.backward.result is None
    assert emit_lines(found.backward.statements) == [
        "grad_x = grad_output @ w.t()",
        "grad_w = y.t() @ grad_output",
    ]
    assert found.imports == (
        Import("numpy", None, "np"),
        Import("my.pkg", "op", "other"),
    )
    assert found.forward.graph is found.backward.graph
    assert found.doc == "What it is."
    assert op(f"{text}\ndoc = 'An op.'", {"f.py": FILE}).doc == "An op."


def test_conditions_joined_by_and_are_several() -> None:
    joined = "C == 4 * I and (K <= H and K <= W or K == 1) and not H > W"
    found = op(f"inputs = 'x[C, H, W], w[I, K]'\nrequire = ['{joined}', 'C > 4']")
    assert [emit(one.result) for one in found.require if one.result] == [
        *("C == 4 * I", "K <= H and K <= W or K == 1", "not H > W", "C > 4"),
    ]


def test_a_problem_in_a_file_has_its_place_there() -> None:
    files = {"f.py": "def f(x):\n    return x * q\n"}
    assert complaints("inputs = 'x'\nforward = '@f.py:f'", files) == [
        "f.py:2:16: unknown name 'q'\nhint: known here: x; if 'q' is an input, name it among the inputs"
    ]


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("@g.py", "3:12: cannot read 'g.py': No such file or directory\nhint: give its path from here: '@file.py:function'"),
        ("@f.txt", "3:12: '@f.txt' names no file\nhint: write '@file.py' or '@file.py:function'"),
        ("@f.py:forwrad", "f.py:1:1: no function 'forwrad' in the file\nhint: did you mean 'forward'?"),
    ],
)  # fmt: skip
def test_references_that_lead_nowhere(reference: str, message: str) -> None:
    text = f"inputs = 'x, w'\nforward = '{reference}'"
    assert complaints(text, {"f.py": FILE}) == [message]


def test_a_gradient_reads_inputs_locals_outputs_and_output_gradients() -> None:
    found = op("""
inputs = 'x, n: int'
outputs = 'y, i[; int], m'
import = ['a:f']
forward = '''
s = f(x)
return s, x.argmax(), x
'''
grad.x = 'grad_y * s * n * y + f(grad_m) * i * torch.pi'
""")
    assert found.gradients[0][0] == "x"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        # scopes
        ("inputs = 'x, y[D]?'\nforward = 'x / D'", ["3:16: unknown name 'D'\nhint: known here: x, y; if 'D' is an input, name it among the inputs"]),
        ("inputs = 'x[N, D]'\nforward = 'x = x.t(); return x.round()'\nsurrogate = 'x * D'", ["4:18: unknown name 'D'\nhint: known here: x; if 'D' is an input, name it among the inputs"]),
        ("inputs = 'x'\nforward = 'y'", ["3:12: unknown name 'y'\nhint: known here: x; if 'y' is an input, name it among the inputs"]),
        ("inputs = 'x'\ngrad.x = 'grad_y'", ["3:11: unknown name 'grad_y'\nhint: known here: grad_output, output, x"]),
        ("inputs = 'x'\noutputs = 'y, i[; int]'\ngrad.x = 'grad_i + grad_output'", ["4:11: unknown name 'grad_i'\nhint: did you mean 'grad_y'?", "4:20: unknown name 'grad_output'\nhint: known here: grad_y, i, x, y"]),
        ("inputs = 'x'\noutputs = '*ys'\ngrad.x = 'grad_output'", ["4:11: unknown name 'grad_output'\nhint: known here: grad_ys, x, ys"]),
        ("inputs = 'x'\nsurrogate = 'output'", ["3:14: unknown name 'output'\nhint: known here: x; if 'output' is an input, name it among the inputs"]),
        ("inputs = 'x[N, D]'\nrequire = ['D']", ["3:13: a condition compares sizes\nhint: write as in: 'D % 2 == 0'"]),
        ("inputs = 'x[N, D]'\nrequire = ['not D % 2 and N == 1']", ["3:13: a condition compares sizes\nhint: write as in: 'D % 2 == 0'"]),
        ("inputs = 'x[N, D], n: int, s: float'\nrequire = ['N % n == 0', 'D > s']", ["3:31: 's' is neither a size nor an int\nhint: check it in the forward: 'assert D > s', then its return"]),
        ("inputs = 'x[N]'\nrequire = ['''M = N\nM > 1''']", ["3:15: a condition is one expression"]),
        # a forward that is not in order is no reason to blame its gradients
        ("inputs = 'x'\nforward = '''\ns = x * q\nreturn s'''\ngrad.x = 's'", ["4:9: unknown name 'q'\nhint: known here: x; if 'q' is an input, name it among the inputs"]),
        # optional inputs
        ("inputs = 'x, b?'\nforward = 'x @ b'", ["3:16: 'b' may be None here\nhint: write: ... if b is not None else ..."]),
        ("inputs = 'x, b?'\ngrad.x = 'x @ b'\ngrad.b = 'x @ b'", ["3:15: 'b' may be None here\nhint: write: ... if b is not None else ..."]),
        # inputs that have no gradient
        ("inputs = 'x, n: int'\ngrad.n = '1'", ["3:6: 'n' is an attribute and gets no gradient"]),
        ("inputs = 'x, m[; int]'\ngrad.m = '1'", ["3:6: 'm' is declared without a gradient"]),
        ("inputs = 'x'\noutputs = 'y[; int]'\ngrad.x = '1'", ["4:6: no output of the op has a gradient"]),
        ("inputs = 'x, weight'\ngrad.wieght = '1'", ["3:6: 'wieght' is not an input\nhint: did you mean 'weight'?"]),
        ("inputs = 'x'\ngrad.grad_x = '1'", ["3:6: 'grad_x' is not an input\nhint: write: x"]),
        ("inputs = 'x[; int]'\nbackward = 'grad_x = 1'", ["3:13: no input of the op has a gradient"]),
        # a whole backward
        ("inputs = 'x'\ngrad.x = 'x'\nbackward = 'grad_x = x'", ["4:13: 'grad' and 'backward' state the same gradients\nhint: keep one of them"]),
        ("inputs = 'x, w'\nbackward = 'y = x'", ["3:13: the backward assigns no gradient\nhint: assign: grad_w, grad_x"]),
        ("inputs = 'x'\nbackward = '''\ngrad_x = x\nreturn grad_x * 2'''", ["4:1: a backward assigns its gradients and returns no other value\nhint: write: grad_x = ..."]),
        # variadic inputs
        ("inputs = '*xs'\ngrad.xs = '''\ny = xs[i]\nreturn y'''", ["4:1: the gradient of '*xs' must be one expression\nhint: write that of element i, as in: grad_output * xs[i]"]),
        ("inputs = 'i, *xs'\ngrad.xs = 'xs[i]'", ["3:12: 'i' counts the elements of '*xs', and is an input\nhint: rename the input 'i'"]),
        # as many values as outputs
        ("inputs = 'x'\nforward = 'x, x'", ["3:12: the forward returns 2 values, but 1 output is declared\nhint: declare them, as in: outputs = 'y1, y2'"]),
        ("inputs = 'x'\noutputs = 'y, z'\nforward = 'x, x, x'", ["4:12: the forward returns 3 values, but 2 outputs are declared\nhint: declare them, as in: outputs = 'y1, y2, y3'"]),
        ("inputs = 'x'\nforward = 'x,'", ["3:12: the forward returns a tuple of one value\nhint: return the tensor itself, without the comma"]),
        # syntax
        ("inputs = 'x'\nforward = 'x @'", ["3:15: not valid Python: invalid syntax\nhint: fix this line: x @"]),
        ("inputs = 'x'\nforward = ''", ["3:12: the formula is empty\nhint: write an expression, as in: 'x * torch.sigmoid(x)'"]),
        ("inputs = 'x'\nforward = 'x.__class__'", ["3:12: dunder attribute '__class__' is not allowed in a formula"]),
        ("inputs = 'x'\nforward = '''\nimport os\nreturn x'''", ["4:1: an import is not allowed in a formula\nhint: use --import 'module:name', or put it at the top of a file; torch, F, nn and math need none"]),
    ],
)  # fmt: skip
def test_formulas_that_are_amiss(text: str, found: list[str]) -> None:
    assert complaints(text) == found


def test_an_element_of_a_variadic_input_has_a_number() -> None:
    found = op("inputs = '*xs'\ngrad.xs = 'grad_output * i'")
    assert found.gradients[0][1].result is not None


@pytest.mark.parametrize("result", ["x.sort()", "(x, x) if n else (x, x)", "f(x)"])
def test_what_several_outputs_come_from_is_not_judged(result: str) -> None:
    text = f"inputs = 'x, n: int'\noutputs = 'a, b'\nimport = ['m:f']\nforward = '{result}'"
    assert op(text).forward is not None


@pytest.mark.parametrize(
    ("value", "surrogate"), [("true", True), ("'x'", True), ("false", False)]
)
def test_a_surrogate_is_stated_or_only_claimed(value: str, surrogate: bool) -> None:
    found = op(f"inputs = 'x'\nsurrogate = {value}").surrogate
    assert (found is not None) == surrogate
    assert found is None or (found.forward is not None) == (value == "'x'")


def test_samples_come_with_their_source_and_imports() -> None:
    make = "def make():\n    return [(t.ones(3),)]"
    files = {"s.py": f"import torch as t\n\n{make}\n"}
    found = op("inputs = 'x'\nsamples = '@s.py:make'", files)
    assert found.samples is not None
    assert (found.samples.function, found.samples.source) == ("make", make)
    assert found.imports == (Import("torch", None, "t"),)


@pytest.mark.parametrize(
    ("text", "value", "message"),
    [
        ("def make(n): return n", "@s.py", "3:12: the function that makes samples takes no argument"),
        ("x = 1", "@s.py", "3:12: the file holds no function that makes samples"),
        ("", "make", "3:12: 'make' names no file\nhint: write '@file.py' or '@file.py:function'"),
    ],
)  # fmt: skip
def test_samples_that_are_none(text: str, value: str, message: str) -> None:
    files = {"s.py": text}
    assert complaints(f"inputs = 'x'\nsamples = '{value}'", files) == [message]
