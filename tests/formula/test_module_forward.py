"""The forward of a module is read, and modules of PyTorch as the reader has them are what PyTorch's are."""

import ast
from inspect import signature

import pytest
import torch
from torch import nn

from scaffold.errors import ScaffoldError
from scaffold.formula import Graph, Scope, emit, function_in, parse
from scaffold.formula.module_forward import (
    layers,
    member_class,
    module_forward,
    modules_named,
    starts,
)
from tests.derive.building import load

IMPORTS = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
X = torch.linspace(-2, 2, 12).reshape(3, 4)


IMAGE = torch.linspace(-2, 2, 2 * 4 * 6 * 6).reshape(2, 4, 6, 6)
LABELS = torch.tensor([0, 3, 1])
# The text of a call, and what the module takes.
LAYERS = {
    "Linear(4, 5)": (X,),
    "Linear(4, 5, bias=False)": (X,),
    "LayerNorm(4)": (X,),
    "LayerNorm(4, 0.1, bias=False)": (X,),
    "LayerNorm((3, 4))": (X,),
    "LayerNorm(4, 1e-3, False)": (X,),
    "LayerNorm(4, elementwise_affine=False)": (X,),
    "RMSNorm(4)": (X,),
    "RMSNorm(4, eps=0.1)": (X,),
    "GroupNorm(2, 4)": (IMAGE,),
    "GroupNorm(2, 4, 0.1, False)": (IMAGE,),
    "Conv1d(6, 3, 3, 2, 1, 1, 3)": (IMAGE[0],),
    "Conv2d(4, 8, 3, 2, 1, 1, 4, bias=False)": (IMAGE,),
    "Conv2d(4, 5, (3, 1), padding='same')": (IMAGE,),
    "PReLU(4, init=0.1)": (IMAGE,),
    "LeakyReLU(0.3)": (X,),
    "Dropout(0.5)": (X,),
    "MaxPool1d(2, 1, 1)": (IMAGE[0],),
    "MaxPool2d(2)": (IMAGE,),
    "AvgPool1d(3, padding=1)": (IMAGE[0],),
    "AvgPool2d(3, 2, 1)": (IMAGE,),
    "AdaptiveAvgPool1d(2)": (IMAGE[0],),
    "AdaptiveAvgPool2d((2, 1))": (IMAGE,),
    "Embedding(5, 3)": (LABELS,),
    "Flatten()": (IMAGE,),
    "Flatten(2)": (IMAGE,),
    "CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)": (X, LABELS),
    "BCELoss(reduction='sum')": (X.sigmoid(), (X > 0).float()),
    "BCEWithLogitsLoss()": (X, (X > 0).float()),
    "Identity()": (X,),
}


def test_each_layer_has_a_case() -> None:
    assert {name.partition("(")[0] for name in LAYERS} == layers().keys() - {
        "Sequential"
    }


@pytest.mark.parametrize("call", LAYERS)
def test_they_have_the_parameters_and_results_of_pytorch(call: str) -> None:
    """And the parameters of their constructors, in their order, as far as they go."""
    text = "\n\n".join(map(ast.unparse, layers().values()))
    # The start of a bias, and a size of two dims, are words of this tool's own.
    text = text.replace("nn.init.fan_in_uniform_", "str")
    text = text.replace("Identity:", "Identity(nn.Module):")
    helper = "def pair(x): return x if type(x) is tuple else (x, x)\n"
    module = vars(load(f"import math\n{IMPORTS}{helper}{text}"))
    ours, theirs = eval(call, module), eval(f"nn.{call}", {"nn": nn})
    taken = [
        item
        for item in signature(type(ours).__init__).parameters.values()
        if item.kind is item.POSITIONAL_OR_KEYWORD
    ]
    names = [*signature(type(theirs).__init__).parameters]
    assert names[: len(taken)] == [item.name for item in taken] or call == "Identity()"
    assert {name: item.shape for name, item in ours.named_parameters()} == {
        name: item.shape for name, item in theirs.named_parameters()
    }
    with torch.no_grad():
        for item in theirs.parameters():
            item.uniform_()
    ours.load_state_dict(theirs.state_dict())
    results = []
    for each in (ours, theirs):
        torch.manual_seed(0)
        results.append(each(*LAYERS[call]))
    torch.testing.assert_close(*results)


FILE = """
class Scale(nn.Module):
    def __init__(self, dim, start=1.0, *, shift=False):
        super().__init__()
        self.w = nn.Parameter(torch.full((dim,), start))
        if shift:
            self.b = nn.Parameter(torch.zeros(dim))
        else:
            self.b = None

    def forward(self, x):
        return x * self.w


class Sequential(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.own = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x + self.own
"""


@pytest.mark.parametrize(
    ("call", "line"),
    [
        ("Scale(n)", "self.w = nn.Parameter(torch.full((n,), 1.0))"),
        ("Scale(2 * n, 0.1)", "self.w = nn.Parameter(torch.full((2 * n,), 0.1))"),
        ("Scale(n, shift=True)", "self.b = nn.Parameter(torch.zeros(n))"),
        ("Scale(n)", "self.b = None"),
        ("nn.Linear(n, 3, False)", "self.bias = None"),
        ("nn.Sequential(Scale(n), nn.ReLU())", "self.1 = nn.ReLU()"),
        ("nn.Sequential(Scale(n), nn.ReLU())", "return self.1(self.0(input))"),
        ("torch.nn.Sequential()", "return input"),
        ("Sequential(n)", "return x + self.own"),
    ],
)
def test_a_call_stands_in_the_constructor(call: str, line: str) -> None:
    found = made(call)
    assert found is not None
    assert line in ast.unparse(found)
    assert "def __init__(self, n):" in ast.unparse(found)


@pytest.mark.parametrize(
    "call",
    [
        "Scale()",
        "Scale(n, 1.0, True)",
        "Scale(*n)",
        "Scale(n, other=1)",
        "Other(n)",
        "nn.Conv1d(n, n, 3, padding_mode='circular')",
        "nn.CrossEntropyLoss(weights)",
        "nn.Embedding(n, n, 0)",
        "nn.MultiheadAttention(n, 4)",
        "nn.Linear(n, n, device='cpu')",
        "other.Linear(n, n)",
        "nn.Sequential(*layers)",
    ],
)
def test_what_a_call_does_not_tell_is_not_known(call: str) -> None:
    assert made(call) is None


def made(call: str) -> ast.ClassDef | None:
    (around,) = ast.parse("def __init__(self, n): pass").body
    node = ast.parse(call, mode="eval").body
    assert isinstance(around, ast.FunctionDef) and isinstance(node, ast.Call)
    return member_class(node, ast.parse(FILE), around)


NORM = """
import torch
from torch import nn


class Norm(nn.Module):
    power = 2

    def __init__(self, dim: int, eps: float = 1e-6, affine=True, mode: str = "rms"):
        super().__init__()
        self.eps, self.unused = eps, 1
        self.eps = eps
        self.mode = mode
        self.scale = dim**-0.5
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim)) if affine else None
        self.register_buffer("mean", torch.zeros(dim))
        self.register_parameter("gain", None)
        if affine:
            self.gain = nn.Parameter(torch.ones(dim))
        self.table = torch.arange(dim)

    def _root(self, x, eps):
        return torch.rsqrt(x.square().mean(-1) + eps) * self.scale

    def forward(self, x, shift=None):
        weight = self.weight
        y = (x - self.mean) * self._root(x, self.eps) * weight * self.power
        if self.bias is not None and self.training:
            y = y + self.bias * self.gain + self.table
        return y
"""


def converted(source: str) -> ast.FunctionDef:
    file = ast.parse(source)
    owner, *_ = reversed(modules_named(file, None))
    return module_forward(owner, file).function


def test_what_is_read_of_self_becomes_parameters_as_init_says() -> None:
    function = converted(NORM)
    assert ast.unparse(function.args) == (
        "x, shift=None, *, weight: Parameter[dim], mean: Buffer[dim], eps: float=1e-06, power=2, "
        "bias: Parameter[dim]=None, training: bool, gain: Parameter[dim]=None, table: LongTensor"
    )
    assert ast.unparse(function.body[0]) == "scale = weight.shape[0] ** (-0.5)"
    assert function.name == "Norm.forward"
    assert "self" not in ast.unparse(function)


def test_numbers_come_in_the_order_of_init_not_of_the_reads() -> None:
    """`Scaled(8, 1e-5, 2)` means the same of the class and of the op's module."""
    source = """
class Scaled(nn.Module):
    def __init__(self, dim, eps=1e-5, groups=1, *, power=2):
        super().__init__()
        self.exponent = power
        self.groups = groups
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return (x * self.weight) ** self.exponent / self.groups + self.eps
"""
    assert ast.unparse(converted(source).args) == (
        "x, *, weight: Parameter[dim], eps=1e-05, groups=1, exponent=2"
    )


def test_methods_get_what_they_read_by_keyword() -> None:
    file = ast.parse(NORM)
    (owner,) = modules_named(file, "Norm")
    made = module_forward(owner, file)
    assert [*made.methods] == ["Norm._root"]
    assert ast.unparse(made.methods["Norm._root"].args) == "x, eps, *, scale: Number"
    assert "Norm._root(x, eps, scale=scale)" in ast.unparse(made.function)


@pytest.mark.parametrize("name", [None, "forward", "Norm", "Norm.forward"], ids=str)
def test_how_it_may_be_named(name: str | None) -> None:
    found = function_in(NORM, "ops.py", name, "forward")
    assert found.parameters[:4] == ("x", "shift", "weight", "mean")


def body(*lines: str, init: str = "self.w = nn.Parameter(torch.ones(3))") -> str:
    text = "\n        ".join(lines)
    return (
        f"class N(nn.Module):\n    def __init__(self):\n        {init}\n"
        f"    def forward(self, x):\n        {text}\n"
        "    def again(self, x):\n        return self.again(x)\n"
        "    @staticmethod\n    def plain(x):\n        return x\n"
    )


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (body("self.last = x", "return x"), "5:9: the forward changes 'self.last'"),
        (
            body("return x + self.x", init="self.x = nn.Parameter(torch.ones(3))"),
            "4:23: 'x' and 'self.x' differ, but both would be called 'x'",
        ),
        (
            body("return super().forward(x)"),
            "5:16: the forward uses 'super' as a value",
        ),
        (body("return f(self, x)"), "5:18: the forward uses 'self' as a value"),
        (body("return self.gone(x)"), "5:16: 'self.gone' is not a method"),
        (body("return self.again(x)"), "7:16: 'self.again' calls itself"),
        (body("return self.plain(x)"), "5:16: 'self.plain' does not take 'self'"),
        (
            body("return self.norm(x)", init="self.norm = nn.BatchNorm1d(3)"),
            "5:16: 'self.norm' is another module: nn.BatchNorm1d(3)",
        ),
        (
            body("return self.linear(x)", init="self.linear = nn.Linear(3, 4, *a)"),
            "5:16: 'self.linear' is another module: nn.Linear(3, 4, *a)",
        ),
        (
            body("return self.inner(x)", init="self.inner = N()"),
            "5:16: 'self.inner' is another module: N()",
        ),
        (
            body("return self.act(x)", init="self.act = nn.GELU(approximate=mode)"),
            "5:16: 'self.act' is another module: nn.GELU(approximate=mode)",
        ),
        (
            body(
                "return self.act(x)",
                init="self.act = nn.GELU(); self.act = nn.ReLU()",
            ),
            "5:16: 'self.act' is another module: nn.GELU() or nn.ReLU()",
        ),
        (
            body("return self.act(x)", init="self.act = nn.GELU() if mode else None"),
            "5:16: 'self.act' is another module: nn.GELU()",
        ),
        (
            body(
                "return self.up(x)", init="self.up = nn.Linear(3, 3); self.up_bias = 1"
            ),
            "5:16: the 'bias' of 'self.up' would be called 'up_bias', but another",
        ),
        (
            body(
                "return self.a(self.a_0(x))",
                init="self.a = nn.Sequential(nn.Linear(3, 3)); self.a_0 = nn.Linear(3, 3)",
            ),
            "5:16: the '0_weight' of 'self.a' would be called 'a_0_weight'",
        ),
        (
            body(
                "return self.a(self.b(x))",
                init="self.a = nn.Linear(3, 3); self.b = nn.Linear(3, 3); self.b.weight = self.a.weight",
            ),
            "5:23: 'self.b' is another module: nn.Linear(3, 3)",
        ),
        (body("return x") + body("return x").replace("N(", "M("), "several classes"),
    ],
)
def test_what_no_function_can_do_is_refused_at_its_place(
    source: str, said: str
) -> None:
    with pytest.raises(ScaffoldError) as caught:
        function_in(source, "ops.py", None, "forward")
    assert said in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("lines", "shapes"),
    [
        ("self.w = nn.Parameter(torch.ones(n, 2 * n, 3))", "n, n_2, 3"),
        ("h = n // 2; self.w = nn.Parameter(torch.ones(h, h - 1))", "h, h_less_1"),
        ("h = h or 4 * n; self.w = nn.Parameter(torch.ones(h))", "h"),
        ("self.n = n; self.w = nn.Parameter(torch.ones(self.n))", "n"),
        ("self.n = 2 * n; self.w = nn.Parameter(torch.ones(self.n))", "n_2"),
        ("self.h = n; self.w = nn.Parameter(torch.ones(self.h))", "n"),
        ("self.m = 2 * n; self.w = nn.Parameter(torch.ones(self.m))", "m"),
        ("self.w = nn.Parameter(torch.ones(n)); n = 2 * n", ""),  # n is another one
        ("n_2 = 3 * n; self.w = nn.Parameter(torch.ones(2 * n))", ""),
        ("self.w = nn.Parameter(torch.ones(n * (h // 2)))", ""),
        ("self.w = Inner(n)", "n_2, n"),
        ("h = 3 * n; self.w = Inner(h)", "h_2, h"),
        ("self.w = Inner(d=7)", ""),
        ("self.w = Inner(n); n = 2 * n", None),
    ],
)
def test_a_size_has_one_name_and_a_name_one_size(
    lines: str, shapes: str | None
) -> None:
    source = f"""
class Inner(nn.Module):
    def __init__(self, d):
        super().__init__()
        h = 2 * d
        self.h = h
        self.weight = nn.Parameter(torch.ones(self.h, d))

    def forward(self, x):
        return x @ self.weight.t()


class Layer(nn.Module):
    def __init__(self, n, h=None):
        {lines}

    def forward(self, x):
        return self.w(x)
"""
    if "Inner(" not in lines:
        source = source.replace("self.w(x)", "x * self.w")
    if shapes is None:
        with pytest.raises(ScaffoldError, match="'self.w' is another module"):
            function_in(source, "ops.py", "Layer", "forward")
        return
    (kind,) = (
        ast.unparse(item.annotation)
        for item in converted(source).args.kwonlyargs
        if item.annotation
    )
    assert kind == (f"Parameter[{shapes}]" if shapes else "Parameter")


def test_a_module_without_parameters_is_read_as_what_it_computes() -> None:
    source = body(
        "return self.act(x) + self.soft(x)",
        init="self.act = nn.GELU(approximate='tanh'); self.soft = nn.Softmax(-1)",
    )
    found = function_in(source, "ops.py", None, "forward")
    assert found.parameters == ("x",)
    formula = parse(found.text, Scope(frozenset({"x"}), kept=True), Graph())
    assert (
        formula.result
        and emit(formula.result)
        == "F.gelu(x, approximate='tanh') + F.softmax(x, dim=-1)"
    )


def test_a_function_of_that_name_goes_first() -> None:
    source = f"{NORM}\ndef forward(x):\n    return x * 2\n"
    assert function_in(source, "ops.py", None, "forward").parameters == ("x",)
    assert function_in(source, "ops.py", "forward", "forward").parameters == ("x",)


def test_a_method_is_no_backward() -> None:
    with pytest.raises(ScaffoldError, match="is a method of 'Norm'"):
        function_in(NORM, "ops.py", "Norm.forward", "backward")


@pytest.mark.parametrize(
    ("lines", "start"),
    [
        ("self.w = nn.Parameter(torch.zeros(n))", "zeros"),
        ("self.w = Parameter(torch.ones(n)) if affine else None", "ones"),
        ("self.w = nn.Parameter(0.1 * torch.ones(n))", "constant(0.1)"),
        ("self.w = nn.Parameter(torch.randn(n) * 0.02)", "normal(0.0, 0.02)"),
        ("self.w = nn.Parameter(torch.full((n,), 2.0))", "constant(2.0)"),
        ("self.register_buffer('w', torch.ones(n))", "ones"),
        ("self.register_parameter('w', nn.Parameter(torch.rand(n)))", "uniform"),
        ("self.w = nn.Parameter(torch.empty(n)); nn.init.normal_(self.w)", "normal"),
        (
            "self.w = nn.Parameter(torch.empty(n)); self.reset()",
            "kaiming_uniform(a=5**0.5)",
        ),
        ("self.w = nn.Parameter(torch.ones(n)); self.w.data.fill_(3)", "constant(3)"),
        ("self.w = nn.Parameter(torch.empty(n))", None),
        ("self.w = nn.Parameter(table(n))", "?"),
        ("self.w = nn.Parameter(torch.ones(n)); self.w.data.mul_(0.5)", "?"),
        ("self.w = nn.Parameter(torch.ones(n)); self.w.requires_grad_()", "ones"),
        (
            "self.w = nn.Parameter(torch.ones(n)); [p.zero_() for p in self.parameters()]",
            "?",
        ),
        ("self.w = nn.Parameter(torch.ones(n)); self.apply(start)", "?"),
        (
            "self.w = nn.Parameter(torch.ones(n)); self.v.apply(start)",
            "ones",
        ),
        ("self.register_buffer('w', torch.tril(torch.ones(n, n)))", "?"),
        ("self.w = nn.Parameter(torch.zeros(n) * affine)", "zeros"),
        ("self.w = nn.Parameter(torch.ones(n)); self.w.data[0] = 2", "?"),
        ("self.w = nn.Parameter(torch.ones(n)); self.w += 1", "?"),
        ("self.w = nn.Parameter(torch.ones(n)); self.w.data = table(n)", "?"),
        ("self.w = nn.Parameter(torch.ones(n)); trunc_normal_(self.w, std=0.02)", "?"),
        ("self.w = nn.Parameter(torch.ones(n)); start(self)", "?"),
        ("self.w = nn.Parameter(torch.ones(n)); self.fill(0.5)", "?"),
        ("self.w = nn.Parameter(torch.ones(n)); nn.init.zeros_(self.w).add_(1)", "?"),
        ("self.w = nn.Parameter(torch.ones(n)); nn.init.zeros_(tensor=self.w)", "?"),
        ("self.w = nn.Parameter(torch.ones(n)); m = self.w.shape[0]", "ones"),
        ("self.w = nn.Parameter(torch.ones(n)); self.b = self.n // n", "ones"),
        (
            "self.w = nn.Parameter(torch.ones(n)); nn.init._calculate_fan_in_and_fan_out(self.w)",
            "ones",
        ),
        (
            "self.w = nn.Parameter(torch.ones(n))\n        if affine: nn.init.zeros_(self.w)",
            "?",
        ),
        (
            "self.w = nn.Parameter(torch.ones(n)) if affine else None\n        if affine: nn.init.zeros_(self.w)",
            "zeros",
        ),
        (  # `n` is no setting on which the parameter depends
            "self.w = nn.Parameter(torch.ones(n)) if affine else None\n        if n: nn.init.zeros_(self.w)",
            "?",
        ),
        (
            "if affine: self.w = nn.Parameter(torch.ones(n))\n        if affine: nn.init.zeros_(self.w)",
            "zeros",
        ),
        (
            "if affine: self.w = nn.Parameter(torch.ones(n))\n        else: self.w = nn.Parameter(torch.ones(2))\n        if affine: nn.init.zeros_(self.w)",
            "?",
        ),
        (
            "self.w = nn.Parameter(torch.ones(n))\n        if self.w is not None: nn.init.zeros_(self.w)",
            "zeros",
        ),
        (
            "if affine: self.w = nn.Parameter(torch.ones(n))\n        else: self.w = nn.Parameter(torch.zeros(n))",
            "?",
        ),
        ("self.w = 3", None),
    ],
)
def test_how_a_class_starts_a_parameter(lines: str, start: str | None) -> None:
    text = f"""
class Layer(nn.Module):
    def __init__(self, n, affine=True):
        super().__init__()
        {lines}

    def reset(self):
        torch.nn.init.kaiming_uniform_(self.w, a=math.sqrt(5))

    def fill(self, value):
        self.w.data.fill_(value).mul_(2)
"""
    file = ast.parse(text)
    (owner,) = file.body
    assert isinstance(owner, ast.ClassDef)
    assert starts(owner, file).get("w") == start


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ("", "Parameter"),
        (", requires_grad=False", "Buffer"),
        (", False", "Buffer"),
        (", requires_grad=True", "Parameter"),
    ],
)
def test_a_parameter_that_is_not_trained_is_a_buffer(more: str, kind: str) -> None:
    init = f"self.w = nn.Parameter(torch.ones(3){more})"
    (taken,) = converted(body("return x * self.w", init=init)).args.kwonlyargs
    assert taken.annotation and ast.unparse(taken.annotation) == f"{kind}[3]"


MEMBERS = """
import torch
import torch.nn as tnn
import numpy as np
from math import cos
from torch import nn
from torch.nn import CrossEntropyLoss, Linear


class Layer(nn.Module):
    def __init__(self, dim, drop=0.1, config=None, device=None, dtype=None):
        kwargs = {"device": device, "dtype": dtype}
        super().__init__()
        self.v, self.p = nn.Parameter(torch.ones(dim)), drop
        self.head_dim = dim // config.heads
        INIT

    def forward(self, x, labels=None):
        BODY
"""


@pytest.mark.parametrize(
    ("init", "body", "arguments", "result"),
    [
        (
            "self.up = Linear(dim, 2, bias=False, **kwargs)",
            "return self.up(x)",
            "up_weight: Parameter[2, dim]",
            "return Layer.up.forward(x, weight=up_weight)",
        ),
        (
            "self.up = tnn.Linear(dim, 2, False, device=device, dtype=None)",
            "return self.up(x)",
            "up_weight: Parameter[2, dim]",
            "return Layer.up.forward(x, weight=up_weight)",
        ),
        (
            "self.up = nn.Linear(config.n_embd, 3 * config.n_embd, bias=False)",
            "return self.up(x)",
            "up_weight: Parameter[n_embd_3, n_embd]",
            "return Layer.up.forward(x, weight=up_weight)",
        ),
        (
            "self.dropout = nn.Dropout(drop); self.rest = nn.Dropout(drop)",
            "return self.rest(self.dropout(x))",
            "drop=0.1, training: bool",
            "return Layer.rest.forward(Layer.dropout.forward(x, p=drop, training=training), p=drop, training=training)",
        ),
        (
            "self.net = nn.Sequential(nn.Dropout(drop))",
            "return self.net(x)",
            "drop=0.1, training: bool",
            "return Layer.net.forward(x, drop=drop, training=training)",
        ),
        (
            "self.drop = nn.Dropout(config.rate)",
            "return self.drop(x)",
            "rate: Number, training: bool",
            "return Layer.drop.forward(x, p=rate, training=training)",
        ),
        (
            "self.drop = nn.Dropout(drop)",
            "drop = 2 * x\n        return self.drop(drop)",
            "drop=0.1, training: bool",
            "drop2 = 2 * x\nreturn Layer.drop.forward(drop2, p=drop, training=training)",
        ),
        (
            "pass",
            "v = self.v.view(1, -1)\n        return v * self.v",
            "v: Parameter[dim]",
            "v2 = v.view(1, -1)\nreturn v2 * v",
        ),
        (
            "pass",
            "v, p = self.v, self.p\n        return x * v + p",
            "v: Parameter[dim], p=0.1",
            "return x * v + p",
        ),
        (
            "pass",
            "v = self.v\n        v = v * 2\n        return v * self.v",
            "v: Parameter[dim]",
            "v2 = v\nv2 = v2 * 2\nreturn v2 * v",
        ),
        (
            "pass",
            "return x.view(-1, self.head_dim)",
            "head_dim: Number",  # of an op's argument `dim` means an axis
            "return x.view(-1, head_dim)",
        ),
        (
            "self.rows = config.wide // config.heads",
            "return x.view(-1, self.rows)",
            "heads: Number, wide: Number",
            "rows = wide // heads\nreturn x.view(-1, rows)",
        ),
        (
            "pass",
            "return self.v.view(-1, self.head_dim)",
            "v: Parameter[dim], heads: Number",
            "head_dim = v.shape[0] // heads\nreturn v.view(-1, head_dim)",
        ),
        (
            "wide = 2 * dim; self.wide = wide; self.scale = self.head_dim**-0.5",
            "return x * self.scale + self.wide + self.v",
            "v: Parameter[dim], heads: Number",
            "scale = (v.shape[0] // heads) ** (-0.5)\nwide = 2 * v.shape[0]\nreturn x * scale + wide + v",
        ),
        (
            "self.conv = nn.Conv2d(dim, dim, 7, padding=3, groups=dim, bias=False)",
            "return self.conv(x)",
            "conv_weight: Parameter[dim, 1, 7, 7]",
            "conv_groups = conv_weight.shape[0]\nreturn Layer.conv.forward(x, weight=conv_weight, groups=conv_groups)",
        ),
        (
            "self.sizes = (dim, dim); self.conv = nn.Conv2d(3, 4, self.sizes, stride=self.sizes, bias=False)",
            "return self.conv(x)",
            "conv_weight: Parameter[4, 3, dim, dim]",
            "conv_stride = (conv_weight.shape[2], conv_weight.shape[2])\nreturn Layer.conv.forward(x, weight=conv_weight, stride=conv_stride)",
        ),
        (
            "self.heads = 2 * drop",  # what is called heads is another number
            "return self.v.view(self.head_dim) + self.heads",
            "v: Parameter[dim], head_dim: Number, drop=0.1",
            "heads = 2 * drop\nreturn v.view(head_dim) + heads",
        ),
        (
            "pass",
            "torch._assert(x.ndim == 2, 'rank')\n        return x * self.v",
            "v: Parameter[dim]",
            "assert x.ndim == 2, 'rank'\nreturn x * v",
        ),
        (
            "pass",
            "return self.__class__.__name__, type(self).__name__",
            "",
            "return ('Layer', 'Layer')",
        ),
        (
            "self.loss = CrossEntropyLoss()",
            "return self.loss(x, labels)",
            "",
            "return F.cross_entropy(x, labels)",
        ),
        (
            "self.act = nn.Sequential(nn.Linear(dim, 2, False), nn.ReLU(inplace=True))",
            "return self.act(x)",
            "act_0_weight: Parameter[2, dim]",
            "return Layer.act.forward(x, 0_weight=act_0_weight)",
        ),
        (
            "self.angle = math.cos(drop); self.low = max(math.pi - drop, 0.0)",
            "return x * self.angle + self.low",
            "drop=0.1",
            "angle = math.cos(drop)\nlow = max(math.pi - drop, 0.0)\nreturn x * angle + low",
        ),
        (
            "self.angle, self.last = cos(drop), np.sqrt(drop)",
            "return x * self.angle + self.last",
            "drop=0.1",
            "angle = math.cos(drop)\nlast = math.sqrt(drop)\nreturn x * angle + last",
        ),
        (
            "self.margin = drop; self.angle = math.cos(drop)",
            "return x * self.angle - self.margin",
            "margin=0.1",
            "angle = math.cos(margin)\nreturn x * angle - margin",
        ),
        (
            "mask = torch.ones(dim, dim); mask = mask.triu(1).bool(); self.register_buffer('mask', mask)",
            "return x.masked_fill(self.mask, 0.0)",
            "mask: BoolBuffer[dim, dim]",
            "return x.masked_fill(mask, 0.0)",
        ),
        (  # the first one is read, too
            "hide = torch.ones(dim); self.kept = Buffer(hide); hide = hide.to(torch.bool); self.mask = Buffer(hide)",
            "return x.masked_fill(self.mask, 0.0) * self.kept",
            "mask: Buffer, kept: Buffer",
            "return x.masked_fill(mask, 0.0) * kept",
        ),
        (
            "self.register_buffer('mask', torch.full((dim, 2), True).tril())",
            "return x.masked_fill(self.mask, 0.0)",
            "mask: BoolBuffer[dim, 2]",
            "return x.masked_fill(mask, 0.0)",
        ),
        (
            "self.count = len(config.sizes); self.root = (self.wide // 8) ** -0.5; self.wide = config.wide",
            "return x * self.count * self.root",
            "count: Number, root: Number",
            "return x * count * root",
        ),
        (
            "self.start = torch.tensor(drop).exp().item(); self.turned = torch.tensor(drop)",
            "return x * self.start + self.turned",
            "start: Number, turned",
            "return x * start + turned",
        ),
        ("self.size = -1", "return x.sum(self.size)", "size=-1", "return x.sum(size)"),
    ],
)
def test_a_module_as_it_is_published_is_read(
    init: str, body: str, arguments: str, result: str
) -> None:
    text = MEMBERS.replace("INIT", init).replace("BODY", body)
    found = function_in(text, "ops.py", None, "forward").text.origin
    assert found is not None and found.function is not None
    function = found.definitions.functions[found.function]
    assert isinstance(function, ast.FunctionDef)
    taken = "x, labels=None" + (f", *, {arguments}" if arguments else "")
    assert ast.unparse(function.args) == taken
    assert "\n".join(map(ast.unparse, function.body)) == result
    for name, inner in found.definitions.functions.items():
        assert "inplace" not in ast.unparse(inner), name


IN_A_METHOD = """import math
import torch
from torch import nn

class Margin(nn.Module):
    def __init__(self, m=0.5, size=4):
        super().__init__()
        self.m = m
        self.set_angle()
        self.set_mask(size)

    def set_angle(self):
        self.angle = math.cos(self.m)

    def set_mask(self, size):
        self.other = size

    def forward(self, x):
        return x * self.angle
"""


def test_attributes_may_be_set_by_a_method_that_the_constructor_calls() -> None:
    found = function_in(IN_A_METHOD, "ops.py", None, "forward").text.origin
    assert found and found.function
    function = found.definitions.functions[found.function]
    assert isinstance(function, ast.FunctionDef)
    assert ast.unparse(function.args) == "x, *, m=0.5"
    assert ast.unparse(function.body[0]) == "angle = math.cos(m)"


def test_a_name_that_is_bound_again_keeps_its_meaning() -> None:
    source = "from math import e, pi\n" + body("e = x * 2\n        return e * pi")
    found = function_in(source, "ops.py", None, "forward").text.origin
    assert found and found.function
    function = found.definitions.functions[found.function]
    assert ast.unparse(function).endswith("return e * math.pi")


def test_what_nothing_reads_may_be_taken_by_a_function() -> None:
    source = "def f(x, **kwargs):\n    return x * 2\n"
    assert function_in(source, "ops.py", None, "forward").parameters == ("x",)


@pytest.mark.parametrize(
    ("made", "hint"),
    [
        ("nn.BatchNorm2d(3)", "write F.batch_norm(x, None, None, self.weight, self.b"),
        ("nn.ModuleList([nn.Linear(3, 3)])", "give each module a name, self.first = n"),
        (
            "nn.ModuleDict({'a': nn.Linear(3, 3)})",
            "give each module a name, self.first",
        ),
        (
            "nn.Dropout(0.5) if wide else nn.Identity()",
            "write: self.out = nn.Dropout(0.5), which returns its input if p is 0",
        ),
        (
            "nn.LayerNorm(3) if wide else nn.Identity()",
            "let __init__ make one of them, for one op each: self.out = nn.LayerNorm(3)",
        ),
        ("nn.GRU(3, 3)", "call it outside and pass the forward its result; or"),
    ],
)
def test_of_a_module_that_is_not_read_the_hint_says_what_is(
    made: str, hint: str
) -> None:
    source = body("return self.out(x)", init=f"self.out = {made}")
    with pytest.raises(ScaffoldError) as raised:
        function_in(source, "ops.py", None, "forward")
    assert (raised.value.hint or "").startswith(hint)


def test_of_modules_that_are_chosen_the_message_says_what_they_are() -> None:
    source = body(
        "return self.out(x)",
        init="self.out = nn.Linear(3, 3) if wide else nn.Identity()",
    )
    with pytest.raises(ScaffoldError, match="'self.out' is another module: nn.Linear"):
        function_in(source, "ops.py", None, "forward")
    given = source.replace("__init__(self)", "__init__(self, act)")
    given = given.replace("nn.Linear(3, 3) if wide else nn.Identity()", "act()")
    with pytest.raises(ScaffoldError, match="'self.out' is unknown: 'act' makes it"):
        function_in(given, "ops.py", None, "forward")
