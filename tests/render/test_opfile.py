"""The op's file: formatted, typed, clean for the linter, and as a reviewer would want it."""

import ast
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import black
import pytest
from black.mode import TargetVersion

from scaffold.derive import derive
from scaffold.formula import emit_lines
from scaffold.render.layout import Layout
from scaffold.render.opfile import op_file
from tests.derive.building import op_text, spec_of, text_of
from tests.derive.programs import program
from tests.derive.test_ops import OPS
from tests.derive.test_semantics import options
from tests.executed.checks import findings_of_mypy, findings_of_ruff

Raw = dict[str, Any]
LINEAR = (
    "input[..., in_features], weight[out_features, in_features], bias[out_features]?"
)
LINEAR_MATHS: Raw = {
    "forward": "input @ weight.t() + bias",
    "grad": {
        "input": "grad_output @ weight",
        "weight": "grad_output.reshape(-1, weight.shape[0]).t() @ input.reshape(-1, weight.shape[1])",
        "bias": "grad_output.reshape(-1, weight.shape[0]).sum(0)",
    },
}
LONG = "a_rather_long_name_of_an_input_tensor"
SPECS: dict[str, Raw] = {
    "skeleton": {"inputs": "input, weight, bias?"},
    "skeleton_combined": {"inputs": "x, eps: float = 1e-6", "style": "combined"},
    "skeleton_of_one_gradient": {
        "inputs": "x, y",
        "forward": "x * y",
        "grad": {"x": "grad_output * y"},
        "derive": False,
    },
    "linear": {"inputs": LINEAR, **LINEAR_MATHS},
    "linear_combined": {"inputs": LINEAR, **LINEAR_MATHS, "style": "combined"},
    "linear_once": {"inputs": LINEAR, **LINEAR_MATHS, "once_differentiable": True},
    "linear_none": {"inputs": LINEAR, **LINEAR_MATHS, "materialize_grads": False},
    "long_names": {
        "inputs": f"{LONG}, {LONG}_too, and_{LONG}?",
        "forward": f"torch.relu({LONG} @ {LONG}_too) * torch.sigmoid({LONG}) + and_{LONG}",
        "grad": {
            LONG: f"grad_output * {LONG}_too * torch.sigmoid({LONG}) * (1 - torch.sigmoid({LONG}))",
            f"{LONG}_too": f"grad_output * {LONG} + torch.zeros_like({LONG}_too)",
            f"and_{LONG}": "grad_output",
        },
    },
    "untyped_result": {
        "inputs": "x, fn: object, derivative: object",
        "forward": "fn(x)",
        "grad": {"x": "grad_output * derivative(x)"},
    },
    "untyped_local": {
        "inputs": "x, fn: object, flag: bool",
        "forward": "if flag:\n    y = fn(x)\nelse:\n    y = x * 2\nreturn y",
        "grad": {"x": "grad_output"},
        "style": "combined",
    },
    "untyped_pair": {
        "inputs": "x, fn: object",
        "forward": "y, z = fn(x)\nreturn y",
        "grad": {"x": "grad_output * z"},
    },
    "attributes": {
        "inputs": "x, a: int = 1, b: str = 'it\\'s', c: tuple[int, int] = (1, 2), "
        "d: Literal['mean', 'sum'] = 'mean', e: dtype = torch.float32, f: device | None = None, "
        "g: object = None, h: torch.Generator = None",
        "forward": "(x * a).to(e)",
        "grad": {"x": "(grad_output * a).to(x.dtype) if d == 'mean' else grad_output"},
    },
    "keywords": {
        "schema": "op(Tensor x, Tensor[] others, *, float eps=1e-6, bool flag) -> (Tensor, Tensor)",
    },
    "buffers": {
        "inputs": "x[N, D], running_mean[D; const], running_var[D; const], momentum: float = 0.1",
        "forward": "(x - running_mean) * torch.rsqrt(running_var + 1e-5)",
        "grad": {"x": "grad_output * torch.rsqrt(running_var + 1e-5)"},
        "buffers": ["running_mean", "running_var"],
        "update": {
            "running_mean": "torch.lerp(running_mean, x.mean(0), momentum)",
            "running_var": "output = x - running_mean\nreturn torch.lerp(running_var, (output * output).mean(0), momentum)",
        },
    },
    "unknown_sizes": {
        "inputs": "x, weight, bias?",
        "forward": "x * weight + bias",
        "grad": {
            "x": "grad_output * weight",
            "weight": "grad_output * x",
            "bias": "grad_output",
        },
    },
    "documented": {
        "inputs": "x[N, D], s[D; const], i[N; index(D)], m[N; bool]",
        "doc": 'Say """what" it\\ does'
        + " and go on about it" * 8
        + ".\n\nThen more\\",
        "forward": "x * s",
        "grad": {"x": "grad_output * s"},
        "surrogate": "x.clamp(-1, 1)",
    },
    "imports": {
        "inputs": "x",
        "import_": [
            "my_kernels:run as go",
            "my_kernels:RunTwo",
            "my_kernels:stop",
            "numpy as np",
        ],
        "forward": "go(RunTwo(x)) + torch.from_numpy(np.exp(stop(x)))",
        "grad": {"x": "grad_output"},
    },
    "sole_variadic": {
        "inputs": "*tensors",
        "forward": "sum(tensors)",
        "grad": {"tensors": "grad_output"},
        "materialize_grads": False,
    },
    "forward_only": {
        "inputs": "x",
        "outputs": "index[...; int]",
        "forward": "x.argmax(-1)",
    },
    "no_module": {
        "inputs": "x",
        "forward": "x * 2",
        "grad": {"x": "grad_output * 2"},
        "module": False,
    },
}


def texts(*, strict: bool = False) -> dict[str, str]:
    """The files of all specs, those of hard ops and of random ones included."""
    every = {name: raw for name, raw in SPECS.items()}
    every |= {f"hard_{k}": op.raw for k, op in enumerate(OPS.values())}
    every |= {f"random_{k}": {**program(k).raw, **options(k)} for k in range(10)}
    specs = {name: spec_of(**raw) for name, raw in every.items()}
    return {
        name: text_of(replace(spec, strict_types=strict))
        for name, spec in specs.items()
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(texts(), tmp_path_factory.mktemp("ops"))


def write(ops: Mapping[str, str], directory: Path) -> Path:
    """Write the ops' files, and those of what they import."""
    for name, text in ops.items():
        (directory / f"op_{name}.py").write_text(text)
    stub = "from typing import Any\n\n\ndef run(*args: Any) -> Any: ...\n"
    for name in ("forward", "backward", "scale", "stop", "RunTwo"):
        stub += stub[stub.index("\n\ndef run") : stub.index("...") + 4].replace(
            "run", name
        )
    for module in ("kernels", "my_kernels"):
        (directory / f"{module}.py").write_text(stub)
    return directory


def test_the_linter_has_nothing_to_say(files: Path) -> None:
    assert not findings_of_ruff(files)


@pytest.mark.each_commit
def test_the_type_checker_has_nothing_to_say(
    files: Path, tmp_path: Path, mypy_cache: Path
) -> None:
    assert not findings_of_mypy(files, mypy_cache)
    write(texts(strict=True), tmp_path)
    assert not findings_of_mypy(tmp_path, mypy_cache, "--strict")


def test_strict_types_name_what_pytorch_leaves_untyped() -> None:
    spec = spec_of("x", forward="x * torch.sigmoid(x)")
    assert "    return SomeOpFunction.apply(x)\n" in text_of(spec)
    strict = text_of(replace(spec, strict_types=True))
    alias = "    apply: Callable[..., Tensor] = SomeOpFunction.apply\n"
    assert f"{alias}    return apply(x)\n" in strict
    assert "            grad_x: Tensor = torch.ops.aten.silu_backward(" in strict
    assert "        grad_x = grad_output * " in strict


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        ({"inputs": "x", "forward": "x.exp()"}, "Tensor"),
        ({"inputs": "x"}, "Tensor | None"),  # not written yet
        ({"inputs": "x, n: int", "forward": "x * n"}, "tuple[Tensor | None, ...]"),
        (
            {"inputs": "x", "forward": "x.exp()", "materialize_grads": False},
            "Tensor | None",
        ),
    ],
)
def test_no_gradient_is_none_that_never_is(raw: Raw, kind: str) -> None:
    text = op_text(**raw)
    (returned,) = re.findall(r"def backward\([^)]*\) -> (.*):", text)
    assert returned == kind


def test_the_formatter_has_nothing_to_change(files: Path) -> None:
    mode = black.Mode(target_versions={TargetVersion.PY311})
    for path in sorted(files.glob("op_*.py")):
        text = path.read_text()
        assert black.format_str(text, mode=mode) == text, path.name
        too_long = [line for line in text.split("\n") if len(line) > 88]
        assert not too_long, f"{path.name}: {too_long}"


def test_every_file_compiles(files: Path) -> None:
    for path in sorted(files.glob("op_*.py")):
        compile(path.read_text(), path.name, "exec")


@pytest.mark.parametrize("name", ["linear", "buffers", "imports"])
def test_a_file_is_the_same_each_time(name: str, files: Path) -> None:
    assert op_text(**SPECS[name]) == (files / f"op_{name}.py").read_text()


@pytest.mark.parametrize("length", [60, 79, 120])
def test_another_line_length(length: int) -> None:
    spec = spec_of(LINEAR, **LINEAR_MATHS)
    layout = Layout("some_op", "some_op.py", "test_some_op.py", line_length=length)
    text = op_file(spec, derive(spec), layout)
    words = ('"""', ":func:")  # docstrings keep their width
    code = [line for line in text.split("\n") if not any(one in line for one in words)]
    assert max(map(len, code)) <= length + 25
    messages = [line for line in code if '"' in line and "import" not in line]
    assert messages and max(map(len, messages)) <= length, messages
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(text_of(spec)))


@pytest.mark.parametrize(
    "text",
    [
        '"""',
        "\\",
        'ends with "',
        "'''",
        "{{ 7 * 7 }}",
        "{% raw %}",
        "\N{SNOWMAN}\t\N{GREEK SMALL LETTER ALPHA}",
        '"""; import os; os.system("ls")  #',
        "word " * 200,
        "a" * 300,
        "one\n\ntwo\n\n\nthree",
    ],
)
def test_what_a_user_writes_stays_text(text: str) -> None:
    plain = op_text("x", forward="x * 2", grad={"x": "grad_output * 2"})
    told = op_text("x", doc=text, forward="x * 2", grad={"x": "grad_output * 2"})
    functions = [
        item for item in ast.parse(told).body if isinstance(item, ast.FunctionDef)
    ]
    words = (ast.get_docstring(functions[0]) or "").split()
    assert words[: len(text.split())] == text.split()
    assert _without_docstrings(told) == _without_docstrings(plain)


def _without_docstrings(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                first.value.value = ""
    return ast.dump(tree)


def test_strings_in_formulas_stay_strings() -> None:
    source = r"""torch.einsum("i\"'\\,{{x}}", x)"""
    text = op_text("x", forward=source, grad={"x": "grad_output"})
    found = [
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant)
    ]
    assert "i\"'\\,{{x}}" in found


def test_no_gradient_is_left_out() -> None:
    for name, op in OPS.items():
        spec = spec_of(**op.raw)
        found = derive(spec)
        names = {item.name for item in found.elements}
        lines = [
            line for block in found.blocks for line in emit_lines(block.statements)
        ]
        for item in spec.differentiable:
            assigned = any(f"grad_{item.name}" in line for line in lines)
            assert assigned or item.name in names, name


def buffered(grad: str) -> str:
    return op_text(
        "x[N, D], running_var[D; const]",
        forward="x * running_var",
        grad={"x": grad},
        buffers=["running_var"],
        update={"running_var": "x.var(0)"},
    )


def test_a_buffer_is_copied_only_where_the_call_holds_on_to_it() -> None:
    saved = buffered("grad_output * running_var")
    assert "output = some_op(x, self.running_var.clone())" in saved
    assert "output = some_op(x, self.running_var)" in buffered("2 * grad_output")


def test_an_update_is_computed_without_autocast_where_that_would_lower_it() -> None:
    """A product would be bfloat16, which `torch.lerp` refuses beside the buffer."""
    text = op_text(
        "x[N, D], second[D, D; const], seen[D; const, int]",
        forward="x - x @ second",
        buffers=["second", "seen"],
        update={
            "second": "torch.lerp(second, x.t() @ x, 0.1)",
            "seen": "seen + 1",
        },
    )
    assert (
        "        if self.training and x.numel() > 0:\n"
        "            with torch.no_grad(), torch.autocast(x.device.type, enabled=False):\n"
        "                x = x.to(self.second.dtype)\n"
    ) in text
    counted = op_text(
        "x[N, D], seen[D; const, int]",
        buffers=["seen"],
        update={"seen": "seen + 1"},
    )
    assert "        if self.training:\n            with torch.no_grad():\n" in counted


def test_a_buffer_that_divides_starts_at_one() -> None:
    text = op_text("x[N, D], shift[D; const], std[D; const]", buffers=["shift", "std"])
    assert 'register_buffer("shift", torch.zeros(' in text
    assert 'register_buffer("std", torch.ones(' in text


def test_torch_func_cannot_repeat_a_random_forward() -> None:
    text = op_text(
        "x",
        forward="mask = torch.bernoulli(x.sigmoid())\nreturn x * mask",
        grad={"x": "grad_output * mask"},
    )
    assert "generate_vmap_rule" not in text


@pytest.mark.parametrize(
    ("forward", "start"),
    [
        ("x + beta", "zeros"),
        ("h = x * 2\nh += beta[None]\nh", "zeros"),
        ("x * torch.sigmoid(beta * x)", "ones"),
        ("torch.tanh(x * beta) / beta", "ones"),
        ("x * beta + beta", "zeros"),
        ("torch.mul(x, beta)", "zeros"),
    ],
)
def test_a_beta_that_multiplies_starts_at_ones(forward: str, start: str) -> None:
    text = op_text("x[N, D], beta[D]", forward=forward, derive=True)
    assert f"nn.init.{start}_(self.beta)" in text


@pytest.mark.parametrize(
    ("inputs", "start"),
    [
        ("x[N, D], up_weight[H, D], up_bias[H]", "bound = 1 / math.sqrt(self.D)"),
        ("x[N, D], norm_weight[D], up_bias[H], w[H, D]", "math.sqrt(self.D)"),
        ("x[N, D], w[H, D], norm_weight[D], norm_bias[D]", "zeros_(self.norm_bias)"),
        ("x[N, D], norm_beta[D]", "zeros_(self.norm_beta)"),
    ],
)
def test_a_bias_starts_as_its_weight_wants_it(inputs: str, start: str) -> None:
    params = re.findall(r"(\w+)\[", inputs)[1:]
    assert start in op_text(inputs, params=params)
