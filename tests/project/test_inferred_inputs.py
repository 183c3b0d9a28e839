"""The inputs of an op that states none, by its forward."""

from pathlib import Path

import pytest

from scaffold.errors import Location, ScaffoldError
from scaffold.formula.program import ALL_OF_THEM
from scaffold.project.inferred_inputs import (
    Unsaid,
    inferred_inputs,
    of_stated_names,
)
from scaffold.spec.arguments import read_arguments
from scaffold.spec.grammar import parse_entries
from scaffold.spec.problems import KeyPath, Problems
from tests.cli.running import new_op, scaffold
from tests.derive.cases import CASES
from tests.derive.ops_of_others import OPS
from tests.derive.published import PUBLISHED
from tests.sweeps import in_every_run

FILE = """
import torch
from torch import Tensor
from typing import Literal, Optional, Sequence

EPS = 1e-6


def typed(x: Tensor, w: "torch.Tensor", b: Tensor | None = None, eps: float = 1e-5, on: bool = True):
    return x


def optional(x: Optional[torch.Tensor], n: Optional[int] = None, mode: Literal["a", "b"] = "a"):
    return x


def defaults(x, w, eps=EPS, dims=(0, 1), *, mode="mean"):
    return x * w


def none(x, b=None, dim=None):
    return x.sum(dim) if b is None else x.sum(dim) + b


def several(xs: Sequence[Tensor]):
    return torch.cat(xs)


def variadic(*tensors: Tensor, dim: int = 0):
    return torch.cat(tensors, dim)


def comprehended(q, k, beta):
    q, k = [x.transpose(1, 2) for x in (q, k)]
    if beta is not None:
        beta = beta[..., None]
    return q * k * beta


def annotated(x: Tensor, index: Tensor, labels: Optional[torch.LongTensor], seen: Bool[Tensor, "n"]):
    return x[index.view(-1)] if labels is None else x * seen


def rebound(delta, bias, last, on: bool = False):
    if on:
        delta = delta + bias
    state = last
    for step in delta.unbind(0):
        state = state * step if on else torch.exp(state)
    return state


def paired(x, h0, c0):
    h, c = h0, c0
    for t in x.unbind(0):
        h, c = torch.tanh(h + t), torch.exp(c) * t
    return h, c


def rows(x, edges):
    row, col = edges
    return x.new_zeros(3).index_add(0, col, x[row])


def edges(x, edge_index, weight):
    src, dst = edge_index[0], edge_index[1]
    out = torch.zeros_like(x)
    out.index_add_(0, dst, weight * x[src])
    return out


def shifted(hidden, weight, labels):
    logits = hidden @ weight.t()
    labels = labels[..., 1:].contiguous()
    return F.nll_loss(logits.view(-1, logits.size(-1)), labels.view(-1))


def chosen(x, labels, on=False):
    if on:
        labels = labels.masked_fill(labels < 0, 0)
    return x.gather(1, labels[:, None])


def coefficients(x, pair):
    a, b = pair
    return a * x.exp() + b


def closed(x, valid_mask):
    return x[valid_mask].sum()


def anything(*args):
    return torch.cat(args)


def listed(tensors: list[torch.Tensor]):
    return torch.stack(tensors).sum(0)


def helper(x, eps):
    return x / (x.norm() + eps)


def helped(x, tiny):
    return helper(x, tiny) * torch.softmax(x, tiny)
"""


def locate(path: KeyPath, *, key: bool = False) -> Location:
    return Location(f"--{path[0]}")


def inferred(forward: str, *imports: str) -> str | None:
    raw = {"forward": forward, "import": list(imports)}
    found = inferred_inputs(raw, locate, lambda path: FILE)
    return found.inputs if found else None


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("x * torch.sigmoid(x)", "x"),
        ("x @ weight.t() + bias", "x, weight, bias"),
        ("weight * x", "weight, x"),
        ("y = x * 2\nreturn y + z", "x, z"),
        ("y = x\ny += z\nreturn y", "x, z"),
        ("x = x * 2\nreturn x", "x"),
        ("torch.where(mask, x, y)", "mask[; bool], x, y"),
        ("x.masked_fill(~mask.unsqueeze(-1), 0.0)", "x, mask[; bool]"),
        ("x + (0 if b is None else b)", "x, b?"),
        ("torch.cat((x, y), dim=1)", "x, y"),
        ("torch.einsum('ij,jk->ik', a, b)", "a, b"),
        ("sum([t * x for t in (1, 2)])", "x"),
        ("x ** 2 + 2 ** y", "x, y"),
        ("x[1:, None].relu()", "x"),
        ("x.masked_fill(~mask[:, None], 0.0)", "x, mask[; bool]"),
        ("torch.exp(-sigma * delta)", "sigma, delta"),
        ("F.softmax(x, dim=-1, dtype=torch.float32)", "x"),
        ("torch.sigmoid(x * beta) * gamma", "x, beta, gamma"),
        ("math.pi * x / math.sqrt(x.shape[-1])", "x"),
        ("F.cross_entropy(x @ w, target)", "x, w, target[; int]"),
        (
            "B = points.shape[0]\nreturn points[idx.view(B, -1), :] + idx.shape[1]",
            "points, idx[; int]",
        ),
        ("torch.eq(y, y.T).to(x.dtype) * x", "y[; int], x"),
        ("(y.view(-1) == 0) * y.view(-1) * x", "y, x"),
        ("~m.unsqueeze(-1) * x", "m[; bool], x"),
        ("z = F.relu(y.view(-1))\nreturn z * (y.view(-1) == 0)", "y"),
    ],
)
def test_the_free_names_of_an_expression_that_are_tensors(
    forward: str, inputs: str
) -> None:
    assert inferred(forward) == inputs


def test_what_the_op_imports_is_no_input() -> None:
    assert inferred("torch.from_numpy(np.exp(x.numpy()))", "numpy as np") == "x"


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        ("typed", "x, w, b?, eps: float = 1e-5, on: bool = True"),
        ("optional", "x?, n: int | None = None, mode: Literal['a', 'b'] = \"a\""),
        (
            "defaults",
            'x, w, eps: float = 1e-6, dims = (0, 1), mode: str = "mean"',
        ),
        ("several", "*xs"),
        ("comprehended", "q, k, beta?"),
        ("rebound", "delta, bias, last, on: bool = False"),
        ("paired", "x, h0, c0"),
        ("closed", "x, valid_mask[; bool]"),
        ("annotated", "x, index[; int], labels[; int]?, seen[; bool]"),
        ("rows", "x, edges[; int]"),
        ("edges", "x, edge_index[; int], weight"),
        ("shifted", "hidden, weight, labels[; int]"),
        ("chosen", "x, labels[; int], on: bool = False"),
        ("variadic", "*tensors, dim: int = 0"),
        ("listed", "*tensors"),
    ],
)
def test_the_signature_of_a_function(function: str, inputs: str) -> None:
    assert inferred(f"@ops.py:{function}") == inputs


@pytest.mark.parametrize(
    ("forward", "said", "inputs"),
    [
        ("torch.softmax(x, dim)", "torch.softmax takes 'dim'", "x, dim: int"),
        ("x.sum(keepdim=keep)", "Tensor.sum takes 'keepdim'", "x, keep: bool"),
        ("x / (x.norm() + eps)", "like a number", "x, eps: float"),
        ("F.layer_norm(x, (d,), w)", "normalized_shape", "x, d: int, w"),
        ("x[i]", "is used as an index", "x, i[; int]"),
        ("x[i + n]", "is used as an index", "x, i[; int], n[; int]"),
        (
            "j = i * n\nreturn x.index_select(0, j)",
            "is used as an index",
            "i[; int], n[; int], x",
        ),
        ("x[:n]", "stands in a slice", "x, n: int"),
        ("@ops.py:coefficients", "whether 'pair' is a tensor", "x, pair"),
        ("x if on else y", "it is a condition", "x, on: bool, y"),
        ("x if mode == 'a' else y", "with a string", "x, mode: str, y"),
        ("x ** n", "is a tensor: '**' takes", "x, n: int"),
        ("x.clamp(-m, m)", "takes a tensor or a number", "x, m: float"),
        ("a @ b.t() / temperature", "like a number", "a, b, temperature: float"),
        ("x + variance_epsilon", "like a number", "x, variance_epsilon: float"),
        ("math.sqrt(d) * x", "math.sqrt takes a number", "d: float, x"),
        ("torch.zeros(n) + x", "torch.zeros takes numbers", "n: int, x"),
        ("x + torch.ones(3, dtype=t)", "torch.ones takes a dtype", "x, t: dtype"),
        ("x + torch.ones(3, device=d)", "torch.ones takes a device", "x, d: device"),
        ("@ops.py:anything", "the inputs in '*args' are unknown", "*args"),
        ("@ops.py:none", "Tensor.sum takes 'dim'", "x, b?, dim: int | None = None"),
        ("@ops.py:helped", "torch.softmax takes 'dim'", "x, tiny: int"),
    ],
)
def test_a_name_that_is_no_tensor_is_refused_with_the_whole_to_copy(
    forward: str, said: str, inputs: str
) -> None:
    with pytest.raises(ScaffoldError) as caught:
        inferred(forward)
    assert said in str(caught.value)
    assert caught.value.problems[-1].hint == f"write: --inputs '{inputs}'"


def test_what_a_function_of_the_users_takes_is_not_known() -> None:
    with pytest.raises(ScaffoldError, match="it is unknown whether 'x' is a tensor"):
        inferred("run(x)", "my_kernels:run")


def test_a_table_that_states_its_inputs_keeps_them() -> None:
    raw = {"forward": "x * y"}
    assert inferred_inputs({**raw, "inputs": "y, x"}, locate, str) is None
    assert inferred_inputs({**raw, "schema": "f(Tensor x)"}, locate, str) is None
    assert inferred_inputs({}, locate, str) is None


def test_a_parameter_of_unknown_shape_is_told_to_start_at_random(
    tmp_path: Path,
) -> None:
    asked = ("--forward", "x * weight + bias", "--dry-run")
    note = "note: the module takes weight_shape and bias_shape, and weight starts at random numbers: declare the shape, as weight[D], and it starts at ones\n"
    assert note in new_op(tmp_path, *asked).err
    shapes = ("--inputs", "x[..., D], weight[D], bias[D]")
    for declared in (shapes, ("--no-module",), ("--init", "weight=ones")):
        assert "random" not in new_op(tmp_path, *asked, *declared).err


def test_the_run_says_what_it_took(tmp_path: Path) -> None:
    done = scaffold(tmp_path, "derive", "swish", "--forward", "x * torch.sigmoid(x)")
    assert done.err == "note: inputs taken from the forward: x\n"
    stated = scaffold(
        *(tmp_path, "derive", "swish", "--forward", "x * torch.sigmoid(x)"),
        *("--inputs", "x"),
    )
    assert stated.out == done.out


def test_a_project_gets_them_written_out(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.scaffold]\n")
    done = new_op(tmp_path, "--forward", "x * w", "--no-verify", "--no-test")
    assert done.code == 0, done.err
    assert "inputs = 'x, w'\nforward = 'x * w'\n" in (tmp_path / "ops.toml").read_text()
    again = scaffold(tmp_path, "check")
    assert again.code == 0, again.err


LAYER = """
import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, dim, eps: float = 1e-6, affine=True):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))
        self.shift = nn.Parameter(torch.zeros(dim)) if affine else None
        self.register_buffer("mean", torch.zeros(dim))

    def _normalized(self, x):
        x = x - self.mean
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        y = self._normalized(x) * self.weight
        return y if self.shift is None else y + self.shift
"""


def test_a_module_says_which_of_its_inputs_it_owns(tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text(LAYER)
    (tmp_path / "pyproject.toml").write_text("[tool.scaffold]\n")
    done = new_op(tmp_path, "--forward", "@layers.py:Norm", "--no-test", name="Norm")
    assert done.code == 0, done.err
    assert done.err.splitlines()[0] == (
        "note: inputs taken from the forward: x[..., dim], mean[dim; const], weight[dim], shift[dim]?, eps: float = 1e-6 "
        "(parameters: weight, shift; buffers: mean)"
    )
    table = (tmp_path / "ops.toml").read_text()
    assert "params = ['weight', 'shift']" in table.replace('"', "'")
    assert "buffers = ['mean']" in table.replace('"', "'")
    written = (tmp_path / "norm.py").read_text()
    assert "register_buffer(" in written


BLOCK = """
import torch
import torch.nn.functional as F
from torch import nn


class Norm(nn.Module):
    def __init__(self, dim, eps=1e-6, affine=True):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim)) if affine else None

    def forward(self, x):
        y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        return y if self.weight is None else y * self.weight


class Block(nn.Module):
    def __init__(self, dim, ratio=4):
        super().__init__()
        self.norm = Norm(dim, 1e-5)
        self.net = nn.Sequential(nn.Linear(dim, ratio * dim), nn.GELU(), nn.Linear(ratio * dim, dim))
        nn.init.zeros_(self.net[2].weight)

    def forward(self, x):
        return x + self.net(self.norm(x))


class Tied(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.up = nn.Linear(dim, hidden, bias=False)
        nn.init.normal_(self.up.weight, std=0.02)

    def forward(self, x):
        return F.linear(self.up(x), self.up.weight.t())
"""


@pytest.mark.parametrize(
    ("name", "inputs", "starts"),
    [
        (
            "Block",
            "x[..., dim], norm_weight[dim], net_0_weight[ratio_dim, dim], net_0_bias[ratio_dim], net_2_weight[dim, ratio_dim], net_2_bias[dim]",
            [
                "nn.init.ones_(self.norm_weight)",
                "bound = 1 / math.sqrt(self.dim) if self.dim > 0",
                "bound = 1 / math.sqrt(self.ratio_dim) if self.ratio_dim > 0",
                "nn.init.zeros_(self.net_2_weight)",
            ],
        ),
        (
            "Tied",
            "x[..., dim], up_weight[hidden, dim]",
            [
                "nn.init.normal_(self.up_weight, std=0.02)",
                "= F.linear(x, up_weight)\n",
            ],
        ),
    ],
)
def test_modules_in_a_module_give_it_their_parameters(
    name: str, inputs: str, starts: list[str], tmp_path: Path
) -> None:
    (tmp_path / "layers.py").write_text(BLOCK)
    maths = ("--forward", f"@layers.py:{name}", "--no-verify", "--no-test")
    done = new_op(tmp_path, *maths, name=name)
    assert done.code == 0, done.err
    assert done.err.startswith(f"note: inputs taken from the forward: {inputs} (")
    written = (tmp_path / f"{name.lower()}.py").read_text()
    assert all(line in written for line in starts)
    assert "Norm.forward" not in written


STARTS = """
import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self, n, gain):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n))
        self.shift = nn.Parameter(torch.linspace(0, gain, n))

    def forward(self, x):
        return x * self.weight + self.shift
"""


CONFIGURED = """
from typing import Any, Callable

import torch
from torch import nn


class Router(nn.Module):
    def __init__(self, config: Any, act: Callable = torch.relu, **kwargs: Any):
        super().__init__()
        self.top_k = config.top_k
        self.eps = config.eps
        self.weight = nn.Parameter(torch.ones(config.hidden_size))

    def forward(self, x, **kwargs: Any):
        return torch.topk(x * self.weight, self.top_k, dim=-1)[0] + self.eps
"""


def test_what_a_configuration_holds_is_of_the_kind_that_its_use_tells(
    tmp_path: Path,
) -> None:
    (tmp_path / "layers.py").write_text(CONFIGURED)
    asked = ("--forward", "@layers.py:Router", "--no-verify", "--stdout")
    done = new_op(tmp_path, *asked, name="router")
    assert done.code == 0, done.err
    assert (
        "weight[hidden_size], top_k: int, eps: float (parameters: weight)" in done.err
    )


def test_the_tests_of_a_module_use_shapes_that_were_found(tmp_path: Path) -> None:
    """Those of its file do not fit what is told of its forward's argument."""
    wide = STARTS.replace("return x", "return x.sum((1, 2), True) * x")
    (tmp_path / "layers.py").write_text(wide)
    done = new_op(tmp_path, "--forward", "@layers.py:Scale", name="scale")
    assert done.code == 0 and "declare them: --inputs 'x[N, D, n], weight[" in done.err


def test_parameters_start_as_those_of_the_module_do(tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text(STARTS)
    asked = ("--forward", "@layers.py:Scale", "--no-test")
    done = new_op(tmp_path, *asked, name="scale")
    assert (
        "note: no module: the tool cannot copy how __init__ sets up shift; to get one, "
        "state --init 'shift=...'"
    ) in done.err
    assert "nn.Module" not in (tmp_path / "scale.py").read_text()
    stated = ("--init", "shift=zeros", "--stdout")
    done = new_op(tmp_path, *asked, *stated, name="scale")
    assert "nn.init.zeros_(self.weight)" in done.out
    assert "nn.init.zeros_(self.shift)" in done.out
    own = ("--params", "weight, shift", "--init", "weight=ones", "--stdout")
    done = new_op(tmp_path, *asked, *own, name="scale")
    assert "note: how __init__ starts shift is not taken over: edit " in done.err
    assert "nn.init.ones_(self.weight)" in done.out
    done = new_op(tmp_path, *asked, "--no-module", "--stdout", name="scale")
    assert done.code == 0 and "starts" not in done.err


CAUSAL = """
import torch
from torch import nn


class Causal(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(n, n)))

    def forward(self, x):
        return (x * self.mask).sum(-1)
"""


def test_a_mask_that_would_start_as_zeros_gets_no_module(tmp_path: Path) -> None:
    """It would mask everything; stated inputs change nothing about that."""
    (tmp_path / "layers.py").write_text(CAUSAL)
    asked = ("--forward", "@layers.py:Causal", "--no-verify", "--stdout")
    said = (
        "note: no module: the tool cannot copy how __init__ sets up mask; to get one, state "
        "--buffers mask, and fill it where the module is made: it starts as zeros"
    )
    for stated in ((), ("--inputs", "x[n, n], mask[n, n; const]")):
        done = new_op(tmp_path, *asked, *stated, name="causal")
        assert said in done.err and "nn.Module" not in done.out
    done = new_op(tmp_path, *asked, "--buffers", "mask", name="causal")
    assert "register_buffer(" in done.out


BY_METHOD = """
import torch
from torch import nn


class Past(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(self.ones(n, scale=1))
        MADE

    def make_mask(self, n):
        \"\"\"A row sees what is before it.\"\"\"
        return torch.tril(torch.ones(n, n)).bool()

    @staticmethod
    def ones(n, scale):
        return torch.ones(n)

    def forward(self, x):
        return (x * self.weight).masked_fill(~self.mask, 0.0).sum(-1)
"""


@pytest.mark.parametrize(
    "made",
    [
        'self.register_buffer("mask", self.make_mask(n))',
        'self.register_buffer("mask", Past.make_mask(self, n=n))',
        "self.mask = nn.Buffer(self.make_mask(n))",
        'mask = self.make_mask(n); self.register_buffer("mask", mask)',
    ],
)
def test_a_mask_that_a_method_makes_has_its_sizes_and_no_module(
    made: str, tmp_path: Path
) -> None:
    (tmp_path / "layers.py").write_text(BY_METHOD.replace("MADE", made))
    asked = ("--forward", "@layers.py:Past", "--no-verify", "--stdout")
    done = new_op(tmp_path, *asked, name="past")
    assert "weight[n], mask[n, n; bool] (parameters: weight; buffers" in done.err
    assert (
        "note: no module: the tool cannot copy how __init__ sets up mask" in done.err
        and done.code == 0
    )
    assert "nn.Module" not in done.out
    done = new_op(tmp_path, *asked, "--buffers", "mask", name="past")
    assert "nn.init.ones_(self.weight)" in done.out


ATTENTION = """
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, num_heads=2, drop=0.0):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = dim // num_heads
        self.scale = self.head_dim**-0.5
        self.qkv = nn.Linear(dim, dim * 3)
        self.drop = nn.Dropout(drop)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, self.head_dim)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        weights = self.drop((q * self.scale @ k.transpose(-2, -1)).softmax(-1))
        return (weights @ v).transpose(1, 2).reshape(B, N, C)


class Excite(nn.Module):
    def __init__(self, channels, few):
        super().__init__()
        self.fc1 = nn.Conv2d(channels, few, 1)
        self.fc2 = nn.Conv2d(few, channels, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.fc2(torch.relu(self.fc1(x.mean((2, 3), True)))))
"""


@pytest.mark.each_commit
def test_the_sizes_of_a_constructor_are_those_of_the_module(tmp_path: Path) -> None:
    """Shapes are looked for with them; what follows of them is no argument."""
    (tmp_path / "layers.py").write_text(ATTENTION)
    asked = ("--forward", "@layers.py:Attention", "--no-test", "--stdout")
    done = new_op(tmp_path, *asked, name="attention")
    assert done.code == 0, done.err
    assert (
        "--inputs 'x[N, D, dim], qkv_weight[dim_3, dim], qkv_bias[dim_3], "
        "training: bool, num_heads: int = 2, drop: float = 0.0' "
        "--require 'dim_3 == dim * 3'\n"
    ) in done.err
    assert (
        "note: the module takes (dim, dim_3, num_heads, drop), __init__ (dim, num_heads, "
        "drop): give them by name"
    ) in done.err
    assert "head_dim = qkv_weight.shape[1] // num_heads\n" in done.out
    assert (
        "        dim: int,\n        dim_3: int,\n        num_heads: int = 2,\n"
        "        drop: float = 0.0,\n        *,\n"
    ) in done.out


def test_the_arguments_have_the_order_of_the_constructor(tmp_path: Path) -> None:
    """A weight has the size of its results first; a call by position would swap them."""
    (tmp_path / "layers.py").write_text(ATTENTION)
    asked = ("--forward", "@layers.py:Excite", "--no-verify", "--stdout")
    done = new_op(tmp_path, *asked, name="excite")
    assert done.code == 0 and "give them by name" not in done.err
    assert "        channels: int,\n        few: int,\n        *,\n" in done.out


def test_an_annotation_of_several_types_is_read(tmp_path: Path) -> None:
    (tmp_path / "ops.py").write_text(
        "from typing import Optional, Union\n\n\n"
        "def scaled(x, by: Union[float, int] = 2.0, more: Optional[Union[float, int]] = None):\n"
        "    return x * by if more is None else x * more\n"
    )
    done = new_op(tmp_path, "--forward", "@ops.py:scaled", "--no-verify", "--stdout")
    said = "x, by: float | int = 2.0, more: float | int | None = None"
    assert done.err.startswith(f"note: inputs taken from the forward: {said}\n")


SEQUENCE = """
import torch
from torch import nn


class Mix(nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.up = nn.Linear(SIZE, d)

    def forward(self, x):
        return torch.tanh(self.up(x.flatten(1)))
"""


@pytest.mark.parametrize(
    ("size", "bound"),
    [
        ("n * d", "1 / math.sqrt(self.n_d) if self.n_d"),
        ("int(n * d)", "1 / math.sqrt(self.n_d) if self.n_d"),
        ("round(n / d)", "1 / math.sqrt(fan_in) if"),
    ],
)
def test_the_bias_of_a_layer_starts_by_its_fan_in(
    size: str, bound: str, tmp_path: Path
) -> None:
    """Also where the sizes of its weight are no plain dims; it was bounded by the number of all its elements."""
    (tmp_path / "layers.py").write_text(SEQUENCE.replace("SIZE", size))
    asked = ("--forward", "@layers.py:Mix", "--no-verify", "--stdout")
    done = new_op(tmp_path, *asked, name="mix")
    assert done.code == 0 and f"        bound = {bound}" in done.out
    fan_in = "        fan_in = self.up_weight.shape[1:].numel()\n"
    assert (fan_in in done.out) == ("fan_in" in bound)


def test_stated_inputs_lose_nothing_of_what_the_module_says(tmp_path: Path) -> None:
    """It owns what it did, which starts as it did; what is not taken over is told."""
    (tmp_path / "layers.py").write_text(
        LAYER.replace("torch.ones(dim)", "torch.full((dim,), 3.0)")
    )
    asked = ("--forward", "@layers.py:Norm", "--no-verify", "--stdout")
    stated = "x[..., D], mean[D], weight[D], eps: float = 1e-6"
    done = new_op(tmp_path, "--inputs", stated, *asked, name="norm")
    assert done.err.splitlines()[:2] == [
        "note: the module is that of the file (parameters: weight; buffers: mean)",
        "note: self.shift is None always: --inputs leaves it out",
    ]
    assert "nn.init.constant_(self.weight, 3.0)" in done.out
    assert "register_buffer(" in done.out and "zeros_(self.mean)" in done.out
    stated = "x[..., D], mean[D]?, weight[D], shift[D]"
    own = ("--params", "weight", "--init", "weight=ones")
    done = new_op(tmp_path, "--inputs", stated, *own, *asked, name="norm")
    assert "note: mean is a buffer in the file, and cannot be one as " in done.err
    assert "note: self.eps is 1e-6 always: --inputs leaves it out" in done.err
    assert "nn.init.ones_(self.weight)" in done.out and "self.shift" not in done.out
    done = new_op(tmp_path, "--inputs", stated, "--no-module", *asked, name="norm")
    assert done.code == 0, done.err


def test_stated_inputs_without_those_of_the_module_are_refused(tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text(LAYER)
    stated = ("--inputs", "x[..., D], mean[D]", "--forward", "@layers.py:Norm")
    done = new_op(tmp_path, *stated, "--no-verify", "--stdout", name="norm")
    (tmp_path / "ops.toml").write_text(
        "[ops.norm]\nforward = '@layers.py:Norm'\ninputs = 'x[..., D], mean[D]'\n"
    )
    of_file = new_op(tmp_path, "--spec", "ops.toml", "--no-verify", name="norm")
    for one in (done, of_file):
        assert one.code == 2
        first, *_, hint = one.err.splitlines()
        assert first.endswith(": the forward also needs weight")
        assert hint == f"hint: {ALL_OF_THEM}"


def test_of_every_known_forward_what_is_proposed_can_be_read() -> None:
    """Names and all; what the op's own table says an attribute is may stand where a tensor may, and is taken for one."""
    for case in CASES:
        raw = {"forward": case.forward}
        try:
            found = inferred_inputs(raw, locate, lambda path: FILE)
            assert found is not None
            proposal = found.inputs
        except ScaffoldError as error:
            last = error.problems[-1]
            assert isinstance(last, Unsaid), (case.name, str(error))
            proposal = last.proposal
        problems = Problems(locate)
        arguments = read_arguments({"inputs": proposal}, problems)
        assert arguments is not None and not problems.found, (case.name, proposal)
        stated = read_arguments({"inputs": case.inputs}, problems)
        assert stated is not None
        names = {item.name for item in arguments.inputs}
        assert names <= {item.name for item in stated.inputs}, case.name


@pytest.mark.parametrize(
    ("inputs", "forward", "taken"),
    [
        (
            "x[N, D], index, count",
            "x.new_zeros(count, x.shape[1]).index_add(0, index, x)",
            "x[N, D], index[; int], count: int",
        ),
        ("x, mask", "x.masked_fill(~mask, -1e9).softmax(-1)", "x, mask[; bool]"),
        ("x, k", "x.sum(k)", "x, k: int"),
        ("x, n", "x.view(*x.shape[:-1], -1, n)", "x, n: int"),
        ("x,\n  on", "x.exp() if on else x", "x, on: bool"),
        ("x, ids, offset", "x[ids + offset]", "x, ids[; int], offset[; int]"),
        ("x, seen_mask", "x[seen_mask]", "x, seen_mask[; bool]"),
        ("x, y", "(x * (y != -100)).sum() / (y != -100).sum()", "x, y[; int]"),
        ("x, n", "B, D = x.shape\nreturn x.view(B, n, D // n)", "x, n: int"),
        ("x, w, eps=1e-6", "x * w + eps", None),
        ("x, y", "x * (y == 0) + y", None),
        ("x, i[; int]", "x[i]", None),
        ("x, i[N]", "x[i]", "x, i[N; int]"),
        ("x, mask?", "x if mask is None else x[~mask]", "x, mask[; bool]?"),
        ("x, mask_ids", "x[mask_ids]", "x, mask_ids[; int]"),
        ("x, i, n", "x[i.clamp(-n, n) + n]", "x, i[; int], n: int"),
        ("x, y", "x * (y[:, None] == y[None, :])", "x, y[; int]"),
        (
            "x, i, n",
            "j = i * n\nreturn x.new_zeros(n * 2, 3).index_add(0, j, x)",
            "x, i[; int], n: int",
        ),
        ("x, n=None", "x.view(n, -1)", None),
        ("x, codes", "x[(codes & 1).view(-1)]", "x, codes[; int]"),
        ("x, i", "x[i +", None),
        # Of several results only some have the elements.
        ("x", "_, i = torch.topk(x, 2)\nreturn x.gather(1, i)", None),
        ("x", "x.gather(1, torch.sort(x * 2)[-1])", None),
        ("x", "t = x.max(1, True)\nreturn x.gather(1, t[1])", None),
        ("x, i", "j, _ = torch.sort(i)\nreturn x.gather(1, j)", None),
    ],
)
def test_bare_names_are_what_their_use_proves(
    inputs: str, forward: str, taken: str | None
) -> None:
    raw = {"inputs": inputs, "forward": forward}
    found = of_stated_names(raw, locate, str)
    assert (found[0] if found else None) == taken


# Forwards in which `x` may be a float that has a gradient, though something that may be it, or has its name, takes integers.
FLOATS = (
    "if on:\n    w = w[x] * x\nreturn w",
    "if on:\n    w = w.masked_fill(x, 0)\nif on:\n    w = w * x\nreturn w",
    # Of what a call gives, or what it turns its argument into.
    "v, i = x.topk(2)\nreturn w.gather(1, i) * v",
    "_, i = torch.sort(x)\nidx = i.unsqueeze(-1).expand(-1, -1, 3)\nreturn torch.gather(x, 1, idx)",
    "u, i = torch.unique(x, return_inverse=True)\nreturn w[i] * x",
    "m, e = torch.frexp(x)\nreturn w[e] * m",
    "i = torch.multinomial(x, 2)\nreturn w[i] * x",
    "i = torch.where(x)\nreturn w[i] * x",
    "return w[(x * 3).round().long()] * x",
    "i = (x * 3).type(torch.LongTensor)\nreturn w[i] * x",
    "kind = torch.long\nreturn w[(x * 3).to(kind)] * x",
    "j = w.argmax(1).masked_fill(w[0] < 0, x)\nreturn w[j] * x",
    "return F.cross_entropy(w, x) + (x * w).sum()",
    "return F.cross_entropy(w, x * 0.9 + 0.1)",
    # Of one thing among several.
    "t = (x, w.argmax(1))\nreturn w[t[1]] * x",
    "t = [x]\nt.append(w.argmax(1))\nreturn w[t[1]] * x",
    "s, p = torch.sort(x)\nt = (s, p)\nu, q = t\nreturn w.gather(1, q) * u",
    "i = x if on else w.argmax(1)\nreturn w[i] + x * 2",
    # Of names that are assigned anew.
    "t = x.view(-1)\ny = t * 2\nt = w.argmax(1)\nreturn w[t] + y",
    "t = x.view(-1)\ny = t * 2\nreturn y + torch.stack([w[t] for t in range(3)])",
    "y = x * 2\nif on:\n    x = x.argsort(1)\nreturn y + w.gather(1, x)",
    "x, b = w.argmax(1), x\nreturn w[x] * b",
    "(x := w.argmax(1))\nreturn w.gather(1, x)",
    # Of what runs only sometimes.
    "return w[x] if on else w * x",
    "if on:\n    return w[x]\nreturn w * x",
    "while w.sum() > 0:\n    w = w[x]\nreturn w * x",
    "y = on and w[x].sum()\nreturn y * x",
    "i = lambda t: t[x]\nreturn w * x",
    # Compared, and used by value where it is hard to see.
    "y = x.float()\nreturn y * (x == 0)",
    "y = torch.fft.fft(x)\nreturn y.abs() * (x == 0)",
    "t = x.topk(2)\nreturn t[0] * (x == 0)",
    "t = x.H\nreturn t * (x == 0)",
    "y = x.unknown(2)\nreturn y * (x == 0)",
    "m = x == 0\nkept = x\nx = w.argsort(1)\nreturn kept * m",
    "m = x == 0\nif on:\n    x = w\nreturn m * x",
    "m = x == 0\nfor i in range(3):\n    x = w\nreturn m * x",
    "t = torch.zeros(3)\nfor i in range(3):\n    w = w * t\n    t = x\nreturn w * (x == 0)",
    "try:\n    y = x * w\nexcept ValueError:\n    y = w\nreturn y * (x == 0)",
    "return torch.stack([x * w for x in x.unbind(0)]) * (x == 0).all()",
    # A number may be any.
    "if x:\n    w = w * x\nreturn w",
    "return w[: int(x * 3)] * x",
    "return torch.full((3,), x) * w * x",
    "return w[not x] * x",
)


@pytest.mark.parametrize("forward", FLOATS)
def test_what_may_be_a_float_with_a_gradient_stays_one(forward: str) -> None:
    """A wrong type would give it no gradient, in silence."""
    for inputs in ("x, w, on: bool", "x[N, D], w[N, D], on: bool"):
        found = of_stated_names({"inputs": inputs, "forward": forward}, locate, str)
        assert found is None, found[0]


@pytest.mark.parametrize(
    ("forward", "kind"),
    [
        ("return w[x] * x", "int"),  # wherever it runs
        ("y = w * x\nif on:\n    return y[x]\nreturn y[x + 1]", None),
        ("return w[x] if on else w[x + 1]", "int"),
        ("x += 1\nreturn w[x]", "int"),
        ("return F.cross_entropy(w, x.view(-1))", "int"),
        ("return w.gather(*x)", None),
        ("if w.dim() == 0:\n    raise ValueError\nreturn w[x] * x", "int"),
    ],
)
def test_what_takes_no_floats_wherever_a_value_is_used_proves_it(
    forward: str, kind: str | None
) -> None:
    raw = {"inputs": "x, w, on: bool", "forward": forward}
    found = of_stated_names(raw, locate, str)
    wanted = f"x[; {kind}], w, on: bool" if kind else None
    assert (found[0] if found else None) == wanted


@pytest.mark.parametrize(
    ("inputs", "kind"),
    [
        ("x[N, C], y[N]", "int"),
        ("x[N, C, L], y[N, L]", "int"),
        ("x[..., C], y[...]", "int"),
        ("x[N, C], y", "int"),
        ("x, y[N]", "int"),
        ("x[N, C], y[N, C]", ""),
        ("x[C], y[C]", ""),
    ],
)
def test_targets_as_deep_as_the_scores_are_probabilities(
    inputs: str, kind: str
) -> None:
    raw = {"inputs": inputs, "forward": "F.cross_entropy(x, y)"}
    found = of_stated_names(raw, locate, str)
    assert ("; int]" in found[0] if found else False) is bool(kind)


def test_of_targets_that_may_be_probabilities_the_note_says_so() -> None:
    raw = {"inputs": "x, y", "forward": "F.cross_entropy(x, y)"}
    assert of_stated_names(raw, locate, str) == (
        "x, y[; int]",
        (
            "y[; int] in --inputs: it holds positions in F.cross_entropy (a float tensor, if it is probabilities)",
        ),
    )


KNOWN = (*CASES, *PUBLISHED, *OPS)
PARTS = range(12)


@pytest.mark.parametrize(
    "part", in_every_run(PARTS, [0], others=pytest.mark.each_commit)
)
def test_no_float_of_a_known_op_is_taken_for_anything_else(part: int) -> None:
    """Each is stated without types, and then not at all; what its own table says has a gradient has to be a float."""
    for case in KNOWN[part :: len(PARTS)]:
        entries = parse_entries(" ".join(case.inputs.split()), Location("--inputs"))
        plain = ", ".join("*" * one.variadic + one.name.text for one in entries)
        floats = {one.name.text for one in entries if one.tensor and not one.traits} - {
            *getattr(case, "nondiff", ())
        }
        found = of_stated_names({"inputs": plain, "forward": case.forward}, locate, str)
        whole = [found[0] if found else plain]
        try:
            alone = inferred_inputs({"forward": case.forward}, locate, str)
        except ScaffoldError:
            pass  # it asks
        else:
            whole += [alone.inputs] if alone else []
        for inputs in whole:
            for entry in parse_entries(inputs, Location("--inputs")):
                kept = entry.tensor and not entry.traits
                assert kept or entry.name.text not in floats, (case.name, inputs)


def test_a_name_of_which_an_option_speaks_is_left_as_it_is() -> None:
    raw = {"inputs": "x, i", "forward": "x[i]", "nondiff": ["i"]}
    assert of_stated_names(raw, locate, str) is None


def test_an_attribute_that_stands_for_a_size_is_a_number(tmp_path: Path) -> None:
    """Of a function's parameter nothing says that it is none; what a module has and is no parameter is no tensor there."""
    (tmp_path / "layers.py").write_text("""import torch
from torch import nn


class Groups(nn.Module):
    def __init__(self, num_groups):
        super().__init__()
        self.num_groups = num_groups

    def forward(self, x, n):
        return x.reshape(n, self.num_groups, -1)
""")
    maths = ("--forward", "@layers.py:Groups", "--no-verify")
    outcome = new_op(tmp_path, *maths)
    assert "'n' is not a tensor" in outcome.err and "'num_groups'" not in outcome.err
    assert outcome.err.endswith("write: --inputs 'x, n: int, num_groups: int'\n")


HEADS = """
import torch.nn.functional as F


def heads(x, w, n, causal):
    B, T, C = x.shape
    y = x.view(B, T, n, C // n).transpose(1, 2)
    weights = y @ y.transpose(-2, -1)
    if causal:
        weights = weights.tril()
    return F.linear((weights @ y).transpose(1, 2).reshape(B, T, C), w)
"""


def test_what_is_taken_of_stated_names_is_told_and_proven(tmp_path: Path) -> None:
    """Also where a weight of one dim has a gradient whose own derivative raises."""
    (tmp_path / "layers.py").write_text(HEADS)
    stated = ("--inputs", "x, w, n, causal", "--forward", "@layers.py:heads")
    done = new_op(tmp_path, *stated, "--no-test", "--dry-run", name="mixed")
    assert done.code == 0, done.err
    assert done.err.splitlines()[:2] == [
        "note: n: int in --inputs: Tensor.view takes 'shape'",
        "note: causal: bool in --inputs: it is a condition",
    ]


FROZEN = """import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.w = nn.Parameter(torch.ones(d))
        {statement}

    def forward(self, x):
        return x * self.w
"""


@pytest.mark.parametrize(
    ("statement", "kept"),
    [
        ("self.w.requires_grad_(False)", False),
        ("self.w.requires_grad_(n > 2)", False),
        ("self.w.requires_grad = False", False),
        ("self.requires_grad_(False)", False),
        ("self.w.requires_grad_()", True),
        ("self.w.requires_grad_(True)", True),
    ],
)
def test_a_parameter_that_is_frozen_makes_no_module(
    tmp_path: Path, statement: str, kept: bool
) -> None:
    (tmp_path / "layers.py").write_text(FROZEN.format(statement=statement))
    words = ("new-op", "scaled", "--forward", "@layers.py:Scale", "--no-verify")
    outcome = scaffold(tmp_path, *words, "--stdout", "--no-test")
    assert ("nn.Module" in outcome.out) is kept
    assert (
        "no module: the tool cannot copy how __init__ sets up w" in outcome.err
    ) is not kept


WIDENED = """import torch
from torch import nn


class FeedForward(nn.Module):
    def __init__(self, dim, mult=4):
        super().__init__()
        inner = int(dim * mult)
        self.up = nn.Linear(dim, inner)
        self.down = nn.Linear(inner, dim)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))
"""


def test_a_number_that_means_something_else_is_told(tmp_path: Path) -> None:
    """`FeedForward(64, 4)` has 256 hidden features in the file, the module's second argument is their number."""
    (tmp_path / "layers.py").write_text(WIDENED)
    words = ("new-op", "widened", "--forward", "@layers.py:FeedForward", "--no-verify")
    outcome = scaffold(tmp_path, *words, "--stdout", "--no-test")
    told = "the module takes (dim, inner), __init__ (dim, mult): give them by name"
    assert told in outcome.err


MARGIN = """import math

import torch
from torch import nn


class Margin(nn.Module):
    def __init__(self, m=0.5):
        super().__init__()
        self.cos_m = math.cos(m)

    def forward(self, x):
        return torch.maximum(x, x * self.cos_m)
"""


def test_a_number_that_a_constructor_computes_is_no_tensor(tmp_path: Path) -> None:
    """The argument stays; inputs that state the number itself take it as it is given."""
    (tmp_path / "layers.py").write_text(MARGIN)
    asked = ("--forward", "@layers.py:Margin", "--no-test", "--stdout")
    done = new_op(tmp_path, *asked)
    assert "taken from the forward: x, m: float = 0.5\n" in done.err
    assert "cos_m = math.cos(m)" in done.out and "def __init__(self, m:" in done.out
    done = new_op(tmp_path, *asked, "--inputs", "x, cos_m: float")
    assert "m is 0.5" not in done.err and "math.cos" not in done.out


HIDDEN = """import torch
from torch import nn


class Hidden(nn.Module):
    def __init__(self, n):
        super().__init__()
        mask = torch.triu(torch.ones(n, n), diagonal=1)
        self.register_buffer("mask", mask.bool(), persistent=False)
        self.kept = torch.rand(n) > 0.5
        self.register_buffer("at", torch.arange(n))

    def forward(self, x):
        return (x * self.kept).masked_fill(self.mask, 0.0)[self.at]
"""


def test_buffers_have_the_elements_that_the_constructor_gives_them(
    tmp_path: Path,
) -> None:
    """They were taken for floats, and a mask of floats raised."""
    (tmp_path / "layers.py").write_text(HIDDEN)
    asked = ("--forward", "@layers.py:Hidden", "--no-verify", "--stdout")
    done = new_op(tmp_path, *asked)
    said = "x, kept[; bool], mask[n, n; bool], at[; int] (buffers: mask, at)"
    assert f"inputs taken from the forward: {said}\n" in done.err
    done = new_op(tmp_path, *asked, "--inputs", "x[n, n], kept[n], mask[n, n], at[n]")
    assert "note: at[; int] in --inputs: it is a buffer of such elements\n" in done.err
    assert "mask[; bool] in --inputs" in done.err


PATCHES = """from torch import nn


class Patches(nn.Module):
    def __init__(self, size=16, channels=3, dim=768):
        super().__init__()
        self.size = (size, size)
        self.proj = nn.Conv2d(channels, dim, kernel_size=self.size, stride=self.size)

    def forward(self, x):
        B, C, H, W = x.shape
        return self.proj(x).flatten(2).transpose(1, 2)
"""


def test_sizes_of_a_kernel_are_those_of_the_constructor(tmp_path: Path) -> None:
    """Those of the data are as large; the module took `proj_weight_shape`. It has the rank that the forward asks for."""
    (tmp_path / "layers.py").write_text(PATCHES)
    done = new_op(tmp_path, "--forward", "@layers.py:Patches", "--no-test", "--stdout")
    assert (
        "x[N, channels, D, K], proj_weight[dim, channels, size, size], proj_bias[dim]' "
        "--require 'D >= size' --require 'K >= size'\n"
    ) in done.err
    assert "        size: int,\n        channels: int,\n        dim: int," in done.out
