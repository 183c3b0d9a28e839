"""The names that formulas may say, and those that are refused at their place."""

import ast
import inspect
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from scaffold.errors import ScaffoldError
from scaffold.formula.operators import (
    FUNCTIONS,
    judged,
    judged_value,
    table,
    with_functions,
)
from scaffold.primitives import built_in_primitives, full_name
from scaffold.spec.imports import newer_of
from tests.derive.building import spec_of
from tests.derive.cases import CASES
from tests.derive.test_ops_of_others import BY_NAME
from tests.formula import make_torch_names

ELSEWHERE = "put it into a function of your own and use --import 'module:name'"
MODULES = [
    ("torch.os.system('x')", "'torch.os' is not an operator of PyTorch"),
    ("F.torch.os.system('x')", "'F.torch' is not an operator of PyTorch"),
    ("torch.save(x, 'f')", "'torch.save' is not an operator of PyTorch"),
    ("torch.load('f')", "'torch.load' is not an operator of PyTorch"),
    ("torch.hub.load('a', 'b')", "'torch.hub' is not an operator of PyTorch"),
    ("torch.serialization.load('f')", "'torch.serialization' is not an operator of PyTorch"),
    ("torch.from_file('f')", "'torch.from_file' is not an operator of PyTorch"),
    ("torch.classes.load_library('f')", "'torch.classes' is not an operator of PyTorch"),
    ("torch.utils.cpp_extension.load('f')", "'torch.utils' is not an operator of PyTorch"),
    ("torch.set_default_dtype(x)", "'torch.set_default_dtype' is not an operator of PyTorch"),
    ("torch.manual_seed(0)", "'torch.manual_seed' is not an operator of PyTorch"),
    ("torch._C._nn.gelu(x)", "'torch._C' is not an operator of PyTorch"),
    ("x.numpy().tofile('f')", "'.tofile' is not an operator of a tensor"),
    ("x.share_memory_()", "'.share_memory_' is not an operator of a tensor"),
    ("(x + 1).untyped_storage()", "'.untyped_storage' is not an operator of a tensor"),
    ("torch.Tensor.storage(x)", "'.storage' is not an operator of a tensor"),
    ("x.T.exp()[0].set_(x)", "'.set_' is not an operator of a tensor"),
    ("torch.ops.aten.from_file('f')", "'torch.ops.aten.from_file' is not an operator of PyTorch"),
]  # fmt: skip
OTHERS = [
    ("torch.ops.load_library('f')", "'torch.ops.load_library' is not an operator of PyTorch\nhint: write: torch.ops.<library>.<operator>"),
    ("torch.ops.aten.add.default.op(x)", "'torch.ops.aten.add.default.op' is not an operator of PyTorch\nhint: write: torch.ops.<library>.<operator>"),
    ("x.data", "'.data' is not an operator of a tensor\nhint: write: x.detach()"),
    ("x.map_(x, x)", "'.map_' is not an operator of a tensor\nhint: it calls Python for each element: write it with operators of tensors"),
    ("torch", "'torch' is a module, and no value\nhint: a formula names operators: torch.exp(...)"),
    ("torch.linalg", "'torch.linalg' is a module, and no value\nhint: a formula names operators: torch.exp(...)"),
    ("torch.sigmiod(x)", "PyTorch has no 'torch.sigmiod'\nhint: did you mean 'sigmoid'?"),
    ("torch.gelu(x)", "PyTorch has no 'torch.gelu'\nhint: write: F.gelu(...)"),
    ("F.sofplus(x)", "PyTorch has no 'F.sofplus'\nhint: did you mean 'softplus'?"),
    ("torch.linag.solve(x, x)", "PyTorch has no 'torch.linag'\nhint: did you mean 'torch.linalg'?"),
    ("math.sqr(2) * x", "Python's math has no 'math.sqr'\nhint: did you mean 'sqrt'?"),
    ("x.gelu()", "a tensor has no 'gelu'\nhint: write: F.gelu(...)"),
    ("x.sigmiod()", "a tensor has no 'sigmiod'\nhint: did you mean 'sigmoid'?"),
]  # fmt: skip


def complaint(**keys: Any) -> str | None:
    try:
        spec_of("x", **keys)
    except ScaffoldError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        *((forward, f"{words}\nhint: {ELSEWHERE}") for forward, words in MODULES),
        *OTHERS,
    ],
)
def test_what_is_no_operator_is_refused_where_it_stands(
    forward: str, words: str
) -> None:
    assert complaint(forward=forward) == f"--forward: {words}"


@pytest.mark.parametrize(
    "forward",
    [
        "torch.newest(x)",
        "x.newest()",
        "F.newest(x)",
        "torch.linalg.norm(x).T.sum(-1)",
        "torch.ops.aten.gelu_backward(x, x, approximate='none')",
        "torch.ops.mine.kernel.default(x)",
        "torch.Tensor.relu(x)",
        "torch.finfo(x.dtype).eps * x",
        "torch.nn.GELU()(x)",
        "torch.nn.grad.conv1d_input(x.shape, x, x)",
        "x.detach().numpy().astype('f4')",
        "x.max(-1).values",
        "x.svd().U",
        "x * math.pi",
        "x[0].mT.topk(2).indices",
        "isinstance(x, torch.Tensor) * x",
        "rows = []\nfor row in x: rows.append(row)\nreturn torch.stack(rows)",
        "y: 'anything.at.all' = x\nreturn y",
    ],
)
def test_operators_stand(forward: str) -> None:
    assert complaint(forward=forward) is None


SAVE = "torch.save(grad_output, 'f')"
REFUSED = "'torch.save' is not an operator of PyTorch"


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        ({"grad": {"x": SAVE}}, "--grad"),
        ({"backward": f"grad_x = {SAVE}"}, "--backward:1:10"),
        ({"surrogate": "torch.save(x, 'f')"}, "--surrogate"),
        ({"forward": "for a in x: torch.save(a, 'f')\nreturn x"}, "--forward:1:13"),
        ({"forward": "y = [torch.save(a, 'f') for a in x]\nreturn y[0]"}, "--forward:1:6"),
        ({"forward": "assert x is x, f'{torch.save(x)}'\nreturn x"}, "--forward:1:19"),
        ({"forward": "y = x * 2; y += torch.save(x)\nreturn y"}, "--forward:1:17"),
        ({"forward": "x", "require": ["torch.save(1) > 0"]}, "--require"),
        ({"inputs": "x, s", "buffers": ["s"], "update": {"s": "torch.save(s)"}}, "--update"),
    ],
)  # fmt: skip
def test_every_formula_is_looked_at(keys: Mapping[str, Any], place: str) -> None:
    found = {"forward": "x * 2", **keys}
    said = complaint_of(found.pop("inputs", "x"), found)
    assert said is not None
    assert said.startswith(f"{place}: {REFUSED}"), said


def complaint_of(inputs: str, keys: Mapping[str, Any]) -> str | None:
    try:
        spec_of(inputs, **keys)
    except ScaffoldError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    "source",
    [
        "from torch import os\ndef f(x): return os.system('x')",
        "from torch import os as t\ndef f(x): return t.system('x')",
        "import torch as t\ndef f(x): return t.os.system('x')",
        "import torch\nSYSTEM = torch.os\ndef f(x): return SYSTEM.system('x')",
        "import torch\ndef g(t): return t.os.system('x')\ndef f(x): return g(torch)",
        "from torch.nn import functional as fn\ndef f(x): return fn.torch.os.system('x')",
        "import torch\ndef f(x):\n  g = lambda y: torch.save(y, 'f')\n  return g(x)",
        "from torch import save\ndef f(x): return save(x, 'f')",
        "import numpy as np\ndef f(x): return np.load('f')",
        "from numpy import memmap\ndef f(x): return memmap('f')",
        "import numpy\ndef f(x): return numpy.ctypeslib.load_library('f')",
    ],
)
def test_a_file_says_the_same_by_other_names(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("f.py").write_text(source)
    said = complaint(forward="@f.py:f")
    assert said is not None
    assert "is not an operator of" in said or "is a module, and no value" in said, said
    assert said.startswith("f.py:"), said


@pytest.mark.parametrize("name", ["load", "fromfile", "memmap", "save", "lib", "f2py"])
def test_numpy_is_maths_alone(name: str) -> None:
    said = complaint(forward=f"np.{name}('f') * x", **{"import": ["numpy as np"]})
    assert said and f"'numpy.{name}' is not an operator of NumPy" in said


@pytest.mark.parametrize(
    ("imports", "forward"),
    [
        (["kernels:f"], "f(x)"),
        (["kernels"], "kernels.torch.os.f(x).anything"),
        (["values"], "values.f(x).anything"),
        (["kernels:f"], "y, _ = f(x)\nz = y[0]\nreturn z.lse + x"),
        (["torch.distributed as dist"], "dist.all_reduce(x)"),
        (["torch:newest"], "newest(x)"),
        (["torch:sigmiods"], "sigmiods(x)"),
        (["numpy as np"], "np.exp(x.numpy()) * np.linalg.norm(x)"),
        (["scipy.special as sp"], "sp.erf(x)"),
    ],
)
def test_what_is_imported_is_the_users_own(imports: list[str], forward: str) -> None:
    assert complaint(forward=forward, **{"import": imports}) is None


def test_a_gradient_reads_what_the_users_own_function_returned() -> None:
    keys = {"import": ["kernels:f"], "forward": "h = f(x)\nreturn h.out"}
    assert complaint(**keys, grad={"x": "grad_output * h.lse"}) is None


def test_values_of_the_users_own_types_have_any_attribute() -> None:
    spec_of("x, c: my_config.Config, m: object", forward="x * c.scales.first * m.rate")


@pytest.mark.parametrize("name", ["save", "os", "hub"])
def test_an_import_of_torch_is_judged(name: str) -> None:
    said = complaint(forward=f"{name}.x(x)", **{"import": [f"torch:{name}"]})
    assert said and f"'torch.{name}' is not an operator of PyTorch" in said


@pytest.mark.one_of(4)
@pytest.mark.parametrize("part", range(4))
def test_the_known_ops_say_nothing_else(part: int) -> None:
    for case in [*CASES, *BY_NAME.values()][part::4]:
        spec_of(case.inputs, forward=case.forward, outputs=case.outputs)


def test_every_rule_is_of_operators() -> None:
    for kind, name in built_in_primitives().spelled():
        if kind == "function" and "." in name:
            assert judged(full_name(name))[0] is None, name
        if kind in ("method", "attribute"):
            assert judged_value(name) is None, name


def test_the_operators_of_pytorchs_own_samples_stand() -> None:
    pytest.importorskip("expecttest")  # which PyTorch's own module of samples imports
    from torch.testing._internal.common_methods_invocations import op_db

    spaces = {"linalg", "special", "fft", "nn.functional", "masked", "sparse"}
    spaces |= {"signal.windows", "nested"}
    for op in op_db:
        space, _, name = f"torch.{op.name}".rpartition(".")
        known = space == "torch" or space.removeprefix("torch.") in spaces
        if known and name.isidentifier() and not name.startswith("__"):
            method = not all(map(judged_value, (name, f"{name}_")))
            assert method or judged(f"{space}.{name}")[0] is None, op.name


def test_the_table_is_what_the_script_makes() -> None:
    """Of the versions that it names."""
    import numpy
    import torch

    text = make_torch_names.TABLE.read_text("utf-8")
    there = f"of PyTorch {torch.__version__.partition('+')[0]} and NumPy {numpy.__version__}."
    if there not in text.splitlines()[0]:
        pytest.skip("the table is of other versions")
    assert text == make_torch_names.table()


def test_a_newer_name_is_told_apart() -> None:
    spec = spec_of(
        "x",
        forward="torch.newest(torch.linalg.norm(x)) + F.newest(x) + torch.ops.a.b(x)",
        grad={"x": "torch.special.newest(torch.Tensor.relu(x))"},
        import_=["torch:latest", "kernels:f"],
    )
    latest, one, two, three = newer_of(spec)
    assert latest == "torch.latest" and one == "torch.newest"
    assert two == "torch.nn.functional.newest"
    assert three == "torch.special.newest"
    assert newer_of(spec_of("x", forward="F.relu(x) * torch.pi")) == ()


def test_no_name_is_both() -> None:
    for space, names in table().items():
        assert not names.operators & names.others, space
    assert table()["math"].operators >= {"pi", "sqrt"} and math.pi


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_module_without_parameters_is_its_function(name: str) -> None:
    (item,) = with_functions(ast.parse(f"nn.{name}()(x)").body, ())
    call = item.value.func  # type: ignore[attr-defined]
    function = getattr({"F": F, "torch": torch}[call.value.id], call.attr)
    module = inspect.signature(getattr(nn, name)).parameters.values()
    words = {
        item.name: item.default
        for item in module
        if item.kind != item.VAR_KEYWORD and item.kind != item.VAR_POSITIONAL
    }
    torch.manual_seed(0)
    several = (
        3
        if "Triplet" in name
        else 2 if name.endswith(("Loss", "Similarity", "Distance")) else 1
    )
    values = [torch.rand(3, 4) for _ in range(several)]
    if name in ("CosineEmbeddingLoss", "MarginRankingLoss"):
        values.append(
            torch.tensor([1, -1, 1]) if "Cosine" in name else torch.ones(3, 4)
        )
    if name == "NLLLoss":
        values[1] = torch.tensor([0, 3, 1])
    with warnings.catch_warnings(action="ignore"):
        torch.testing.assert_close(
            function(*values, **words), getattr(nn, name)()(*values)
        )


@pytest.mark.parametrize(
    ("source", "straight"),
    [
        ("c = nn.MSELoss(reduction='sum')\ny = c(a, b) + c(b, a)", "y = F.mse_loss(a, b, reduction='sum') + F.mse_loss(b, a, reduction='sum')"),
        ("y = torch.nn.Softmax(-1)(x)", "y = F.softmax(x, dim=-1)"),
        ("y = nn.Softplus(beta=b)(x) * nn.Tanh()(x)", "y = F.softplus(x, beta=b) * F.tanh(x)"),
    ],
)  # fmt: skip
def test_modules_are_called_as_functions(source: str, straight: str) -> None:
    body = with_functions(ast.parse(source).body, ("x",))
    assert "\n".join(map(ast.unparse, body)) == straight


@pytest.mark.parametrize(
    "source",
    ["y = nn.Linear(3, 4)(x)", "y = nn.Softplus(2)(x)", "c = nn.GELU()\ny = f(c)", "y = nn.Dropout()(x)"],
)  # fmt: skip
def test_other_modules_stay(source: str) -> None:
    body = with_functions(ast.parse(source).body, ("x",))
    assert "\n".join(map(ast.unparse, body)) == source
