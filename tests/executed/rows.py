"""Ops of every kind of signature, each with the same thing in plain PyTorch.

The kinds are those that autograd.Functions in use need, counted over 894 of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Values = tuple[Any, ...]


def rand(*sizes: int, needs: bool = True) -> Tensor:
    return torch.randn(sizes, dtype=torch.double).requires_grad_(needs)


@dataclass(frozen=True)
class Row:
    """An op: how a user writes it, what it is, and values to try it on."""

    name: str
    options: tuple[str, ...]  # but for the signature
    signature: str  # of the wrapper
    plain: Callable[..., Any]
    values: Callable[[], Values]
    written: tuple[str, ...] = ()  # the signature by --inputs and --outputs
    schema: tuple[str, ...] = ()  # the signature by --schema
    keywords: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def formulas(forward: str, **gradients: str) -> tuple[str, ...]:
    listed = [f"{name}={formula}" for name, formula in gradients.items()]
    return ("--forward", forward, *(text for one in listed for text in ("--grad", one)))


def pick(scores: Tensor, target: Tensor, scale: Tensor) -> Tensor:
    return scores[torch.arange(len(scores)), target] * scale[target]


def affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


ROWS = (
    Row(
        "tensors_with_one_output",
        formulas(
            "x * torch.sin(y)",
            x="grad_output * torch.sin(y)",
            y="grad_output * x * torch.cos(y)",
        ),
        "(x: Tensor, y: Tensor) -> Tensor",
        lambda x, y: x * torch.sin(y),
        lambda: (rand(2, 3), rand(2, 3)),
        written=("--inputs", "x, y"),
        schema=("--schema", "tensors_with_one_output(Tensor x, Tensor y) -> Tensor"),
    ),
    Row(
        "literal_attributes",
        formulas(
            "x * factor * times * (sizes[0] + sizes[1]) * (-1 if flip else 1)",
            x="grad_output * factor * times * (sizes[0] + sizes[1]) * (-1 if flip else 1)",
        ),
        "(x: Tensor, factor: float, times: int, flip: bool, sizes: tuple[int, int]) -> Tensor",
        lambda x, factor, times, flip, sizes: x * factor * times * sum(sizes) * -1,
        lambda: (rand(2, 3), 0.5, 3, True, (4, 5)),
        written=(
            "--inputs",
            "x, factor: float, times: int, flip: bool, sizes: tuple[int, int]",
        ),
        schema=(
            "--schema",
            "literal_attributes(Tensor x, float factor, int times, bool flip, int[2] sizes) -> Tensor",
        ),
    ),
    Row(
        "tensors_without_gradient",
        formulas(
            "scores.gather(1, target[:, None]).squeeze(1) * scale[target]",
            scores="torch.zeros_like(scores).scatter(1, target[:, None], (grad_output * scale[target])[:, None])",
        ),
        "(scores: Tensor, target: Tensor, scale: Tensor) -> Tensor",
        pick,
        lambda: (rand(3, 4), torch.tensor([3, 0, 1]), rand(4, needs=False)),
        written=("--inputs", "scores[N, C], target[N; index(C)], scale[C; const]"),
        schema=(
            *(
                "--schema",
                "tensors_without_gradient(Tensor scores, Tensor target, Tensor scale) -> Tensor",
            ),
            *("--inputs", "scores[N, C], target[N; index(C)], scale[C]"),
            *("--nondiff", "scale"),
        ),
    ),
    Row(
        "a_mask",
        formulas("torch.where(mask, x, 0)", x="torch.where(mask, grad_output, 0)"),
        "(x: Tensor, mask: Tensor) -> Tensor",
        lambda x, mask: torch.where(mask, x, 0),
        lambda: (rand(2, 3), torch.tensor([True, False, True])),
        written=("--inputs", "x[..., S], mask[S; bool]"),
    ),
    Row(
        "leading_dims_with_a_name",
        formulas("q @ k.mT", q="grad_output @ k", k="grad_output.mT @ q"),
        "(q: Tensor, k: Tensor) -> Tensor",
        lambda q, k: q @ k.mT,
        lambda: (rand(2, 3, 4), rand(2, 5, 4)),
        written=(
            *("--inputs", "q[*batch, S, D], k[*batch, T, D]"),
            *("--outputs", "scores[*batch, S, T]"),
        ),
    ),
    Row(
        "defaults",
        formulas(
            "torch.sqrt(x * x + eps) ** power",
            x="grad_output * power * torch.sqrt(x * x + eps) ** (power - 2) * x",
        ),
        "(x: Tensor, eps: float = 0.5, power: int = 3) -> Tensor",
        lambda x: torch.sqrt(x * x + 0.5) ** 3,
        lambda: (rand(2, 3),),
        written=("--inputs", "x, eps: float = 0.5, power = 3"),
        schema=(
            "--schema",
            "defaults(Tensor x, float eps=0.5, int power=3) -> Tensor",
        ),
    ),
    Row(
        "optional_tensors",
        formulas(
            "(x * weight if weight is not None else x) + bias",
            x="grad_output * weight if weight is not None else grad_output",
            weight="grad_output * x",
            bias="grad_output.sum_to_size(bias.shape)",
        ),
        "(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor",
        affine,
        lambda: (rand(2, 3), None, rand(2, 3)),
        written=("--inputs", "x, weight?, bias?"),
        schema=(
            "--schema",
            "optional_tensors(Tensor x, Tensor? weight=None, Tensor? bias=None) -> Tensor",
        ),
    ),
    Row(
        "several_outputs",
        formulas(
            "return x * y, x + y",
            x="grad_product * y + grad_total",
            y="grad_product * x + grad_total",
        ),
        "(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]",
        lambda x, y: (x * y, x + y),
        lambda: (rand(2, 3), rand(2, 3)),
        written=("--inputs", "x, y", "--outputs", "product, total"),
        schema=(
            "--schema",
            "several_outputs(Tensor x, Tensor y) -> (Tensor product, Tensor total)",
        ),
    ),
    Row(
        "an_opaque_object",
        formulas("function(x)", x="torch.func.vjp(function, x)[1](grad_output)[0]"),
        "(x: Tensor, function: Any) -> Tensor",
        lambda x, function: function(x),
        lambda: (rand(2, 3), torch.exp),
        written=("--inputs", "x, function: object"),
    ),
    Row(
        "a_variable_number_of_outputs",
        formulas("torch.unbind(x.exp())", x="torch.stack(grad_rows) * x.exp()"),
        "(x: Tensor) -> tuple[Tensor, ...]",
        lambda x: torch.unbind(x.exp()),
        lambda: (rand(3, 2),),
        written=("--inputs", "x", "--outputs", "*rows"),
        schema=(
            *("--schema", "a_variable_number_of_outputs(Tensor x) -> Tensor[] rows"),
            *("--outputs", "*rows"),
        ),
    ),
    Row(
        "variadic_tensors",
        formulas(
            "torch.stack(tensors).square().sum(0)",
            tensors="2 * tensors[i] * grad_output",
        ),
        "(*tensors: Tensor) -> Tensor",
        lambda *tensors: torch.stack(tensors).square().sum(0),
        lambda: (rand(2, 3), rand(2, 3), rand(2, 3)),
        written=("--inputs", "*tensors"),
        schema=("--schema", "variadic_tensors(Tensor[] tensors) -> Tensor"),
    ),
    Row(
        "outputs_without_gradient",
        formulas(
            "torch.sort(x, dim=-1)",
            x="torch.zeros_like(x).scatter(-1, indices, grad_values)",
        ),
        "(x: Tensor) -> tuple[Tensor, Tensor]",
        lambda x: tuple(torch.sort(x, dim=-1)),
        lambda: (rand(2, 3),),
        written=(
            *("--inputs", "x[..., N; distinct]"),
            *("--outputs", "values[..., N], indices[..., N; int]"),
        ),
        schema=(
            *("--schema", "outputs_without_gradient(Tensor x) -> (Tensor, Tensor)"),
            *("--inputs", "x[..., N; distinct]"),
            *("--outputs", "values[..., N], indices[..., N; int]"),
        ),
    ),
    Row(
        "forward_only",
        formulas("x.argmax(-1)"),
        "(x: Tensor) -> Tensor",
        lambda x: x.argmax(-1),
        lambda: (rand(2, 3),),
        written=("--inputs", "x[..., N]", "--outputs", "found[...; int]"),
        schema=(
            *("--schema", "forward_only(Tensor x) -> Tensor"),
            *("--inputs", "x[..., N]", "--outputs", "found[...; int]"),
        ),
    ),
    Row(
        "output_gradients_that_are_ignored",
        formulas("y = x * 3; return y, y.detach().abs()", x="3 * grad_y"),
        "(x: Tensor) -> tuple[Tensor, Tensor]",
        lambda x: (x * 3, (x * 3).detach().abs()),
        lambda: (rand(2, 3),),
        written=("--inputs", "x", "--outputs", "y, size[...; const]"),
        schema=(
            *(
                "--schema",
                "output_gradients_that_are_ignored(Tensor x) -> (Tensor y, Tensor size)",
            ),
            *("--outputs", "y, size[...; const]"),
        ),
    ),
    Row(
        "in_place",
        formulas("x.mul_(factor)", x="grad_output * factor"),
        "(x: Tensor, factor: float) -> Tensor",
        lambda x, factor: x * factor,
        lambda: (rand(2, 3), 2.0),
        written=("--inputs", "x, factor: float", "--dirty", "x"),
        schema=("--schema", "in_place(Tensor(a!) x, float factor) -> Tensor(a!)"),
    ),
)
COMBINED = (  # those that the second style says otherwise
    *("tensors_with_one_output", "optional_tensors", "several_outputs"),
    *("a_variable_number_of_outputs", "variadic_tensors", "outputs_without_gradient"),
    *("forward_only", "output_gradients_that_are_ignored", "in_place"),
)
OTHERS = (
    Row(
        "differentiable_once",
        formulas("x * x", x="2 * grad_output * x"),
        "(x: Tensor) -> Tensor",
        lambda x: x * x,
        lambda: (rand(2, 3),),
        written=("--inputs", "x", "--once-differentiable"),
    ),
    Row(
        "no_zeros_for_one_output",
        formulas("x * y", x="grad_output * y", y="grad_output * x"),
        "(x: Tensor, y: Tensor) -> Tensor",
        lambda x, y: x * y,
        lambda: (rand(2, 3), rand(2, 3)),
        written=("--inputs", "x, y", "--no-materialize-grads"),
    ),
    Row(
        "no_zeros_for_several_outputs",
        formulas(
            "return x * y, x + y",
            x="grad_product * y + grad_total",
            y="grad_product * x + grad_total",
        ),
        "(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]",
        lambda x, y: (x * y, x + y),
        lambda: (rand(2, 3), rand(2, 3)),
        written=(
            *("--inputs", "x, y", "--outputs", "product, total"),
            "--no-materialize-grads",
        ),
    ),
    Row(
        "an_optional_handed_on",
        (
            "--forward",
            "torch.nn.functional.linear(input, weight, bias)",
            "--backward",
            (
                "grad_input = grad_output @ weight\n"
                "grad_weight = grad_output.t() @ input\n"
                "grad_bias = grad_output.sum_to_size(bias.shape)"
            ),
        ),
        "(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor",
        torch.nn.functional.linear,
        lambda: (rand(2, 3), rand(4, 3), rand(4)),
        written=("--inputs", "input[N, K], weight[M, K], bias[M]?"),
    ),
    Row(
        "an_empty_size_that_pytorch_refuses",
        (
            *("--forward", "F.conv1d(x, w)", "--backward"),
            (
                "grad_x, grad_w, _ = torch.ops.aten.convolution_backward(\n"
                "    grad_output, x, w, None, [1], [0], [1], False, [0], 1,\n"
                "    [True, True, False],\n"
                ")"
            ),
            *("--amp", "float32"),  # which takes tensors of one dtype
        ),
        "(x: Tensor, w: Tensor) -> Tensor",
        torch.nn.functional.conv1d,
        lambda: (rand(2, 3, 5), rand(4, 3, 2)),
        written=("--inputs", "x[N, C, L], w[O, C, K]", "--require", "L >= K"),
    ),
    Row(
        "imported_kernels",
        (
            *("--import", "kernels:cube", "--import", "kernels:cube_backward as back"),
            *formulas("cube(x, scale)", x="back(grad_output, x, scale)"),
        ),
        "(x: Tensor, scale: float = 2.0) -> Tensor",
        lambda x: 2 * x**3,
        lambda: (rand(2, 3),),
        written=("--inputs", "x, scale: float = 2.0"),
    ),
    Row(
        "complex_tensors",
        formulas("z * w.conj()", z="grad_output * w", w="grad_output.conj() * z"),
        "(z: Tensor, w: Tensor) -> Tensor",
        lambda z, w: z * w.conj(),
        lambda: (
            torch.randn(2, 3, dtype=torch.cdouble, requires_grad=True),
            torch.randn(2, 3, dtype=torch.cdouble, requires_grad=True),
        ),
        written=("--inputs", "z[N, D; complex], w[N, D; complex]"),
    ),
    Row(
        "keywords_after_several_tensors",
        formulas(
            "torch.stack(tensors).sum(0) * (scale if mean else 1)",
            tensors="grad_output * scale if mean else grad_output",
        ),
        "(*tensors: Tensor, scale: float = 2.0, mean: bool = True) -> Tensor",
        lambda *tensors: 3 * sum(tensors),
        lambda: (rand(2, 3), rand(2, 3)),
        written=("--inputs", "*tensors, scale: float = 2.0, mean: bool = True"),
        schema=(
            "--schema",
            "keywords_after_several_tensors(Tensor[] tensors, *, float scale=2.0, bool mean=True) -> Tensor",
        ),
        keywords={"scale": 3.0},
    ),
    Row(
        "conditions_on_sizes",
        formulas(
            "x.reshape(*x.shape[:-1], groups, -1).sum(-1)",
            x="grad_output.repeat_interleave(H // groups, -1)".replace(
                "H", "x.shape[-1]"
            ),
        ),
        "(x: Tensor, groups: int = 4) -> Tensor",
        lambda x: x.unflatten(-1, (4, -1)).sum(-1),
        lambda: (rand(2, 12),),
        written=(
            *("--inputs", "x[..., H], groups: int = 4"),
            *("--require", "H % 4 == 0", "--require", "H > 4"),
        ),
    ),
    Row(
        "solve_lower",
        formulas(
            "torch.linalg.solve_triangular(a, b, upper=False)",
            a="-(torch.linalg.solve_triangular(a.mT, grad_output, upper=True) @ output.mT).tril()",
            b="torch.linalg.solve_triangular(a.mT, grad_output, upper=True)",
        ),
        "(a: Tensor, b: Tensor) -> Tensor",
        lambda a, b: torch.linalg.solve_triangular(a, b, upper=False),
        lambda: (
            (2 * torch.eye(3) + torch.ones(3, 3).tril()).double().requires_grad_(),
            rand(3, 2),
        ),
        written=("--inputs", "a, b", "--samples", "@samples.py:make"),
    ),
    Row(
        "a_surrogate",
        (
            *formulas("torch.round(x)", x="grad_output"),
            *("--surrogate-forward", "1 * x"),
        ),
        "(x: Tensor) -> Tensor",
        lambda x: x + (torch.round(x) - x).detach(),
        lambda: (rand(2, 3),),
        written=("--inputs", "x"),
    ),
    Row(
        "a_surrogate_by_its_gradient_alone",
        (*formulas("torch.round(x)", x="grad_output * x"), "--surrogate"),
        "(x: Tensor) -> Tensor",
        lambda x: x * x / 2 + (torch.round(x) - x * x / 2).detach(),
        lambda: (rand(2, 3),),
        written=("--inputs", "x"),
    ),
    Row(
        "random_numbers",
        formulas(
            "mask = torch.rand_like(x) >= p; return x * mask / (1 - p)",
            x="grad_output * mask / (1 - p)",
        ),
        "(x: Tensor, p: float = 0.5) -> Tensor",
        lambda x: 2 * x * (torch.rand_like(x) >= 0.5),
        lambda: (rand(2, 3),),
        written=("--inputs", "x, p: float = 0.5"),
    ),
    Row(
        "a_joint_backward",
        (
            *("--forward", "torch.tanh(x * y)"),
            *(
                "--backward",
                "inner = grad_output * (1 - output * output); grad_x = inner * y; grad_y = inner * x",
            ),
        ),
        "(x: Tensor, y: Tensor) -> Tensor",
        lambda x, y: torch.tanh(x * y),
        lambda: (rand(2, 3), rand(2, 3)),
        written=("--inputs", "x, y"),
    ),
    Row(
        "one_output_and_any_number_more",
        formulas(
            "return x.sum(), *x.exp().unbind(1)",
            x="grad_total + torch.stack(grad_parts, 1) * x.exp()",
        ),
        "(x: Tensor) -> tuple[Tensor, ...]",
        lambda x: (x.sum(), *x.exp().unbind(1)),
        lambda: (rand(2, 3),),
        written=(
            *("--inputs", "x[N, D]", "--outputs", "total, *parts"),
            *("--require", "D > 0"),
        ),
    ),
    Row(
        "einsum",
        formulas(
            "torch.einsum('oi,ni->no', weight, x)",
            weight="torch.einsum('no,ni->oi', grad_output, x)",
            x="grad_output @ weight",
        ),
        "(weight: Tensor, x: Tensor) -> Tensor",
        lambda weight, x: x @ weight.t(),
        lambda: (rand(4, 3), rand(2, 3)),
        written=("--inputs", "weight[O, I], x[N, I]"),
    ),
    Row(
        "a_view",
        formulas("x.reshape(x.shape[0], -1)", x="grad_output.reshape(x.shape)"),
        "(x: Tensor) -> Tensor",
        lambda x: x.reshape(2, 12),
        lambda: (rand(2, 3, 4),),
        written=("--inputs", "x[N, H, W]", "--require", "N > 0"),
    ),
    Row(
        "a_type_of_another_module",
        formulas("x * 2", x="grad_output * 2"),
        "(x: Tensor, group: 'ProcessGroup') -> Tensor",
        lambda x, group: x * 2,
        lambda: (rand(2, 3), object()),
        written=("--inputs", "x, group: torch.distributed.ProcessGroup"),
    ),
    Row(
        "conditional_gradient_of_several_tensors",
        formulas(
            "torch.stack(tensors).sum(0) * (2 if twice else 1)",
            tensors="grad_output * 2 if twice else grad_output",
        ),
        "(twice: bool, *tensors: Tensor) -> Tensor",
        lambda twice, *tensors: 2 * sum(tensors),
        lambda: (True, rand(2, 3), rand(2, 3)),
        written=("--inputs", "twice: bool, *tensors"),
    ),
    Row(
        "many_tensors",
        formulas(
            "a * b + c * d - e",
            a="grad_output * b",
            b="grad_output * a",
            c="grad_output * d",
            d="grad_output * c",
            e="-grad_output",
        ),
        "(a: Tensor, b: Tensor, c: Tensor, d: Tensor, e: Tensor) -> Tensor",
        lambda a, b, c, d, e: a * b + c * d - e,
        lambda: tuple(rand(2, 3) for _ in range(5)),
        written=("--inputs", "a, b, c, d, e"),
    ),
)
FILES = {
    "kernels.py": '''\
"""Kernels of the user's."""

from torch import Tensor


def cube(x: Tensor, scale: float) -> Tensor:
    return scale * x**3


def cube_backward(grad_output: Tensor, x: Tensor, scale: float) -> Tensor:
    return 3 * scale * grad_output * x * x
''',
    "samples.py": '''\
"""Triangular systems."""

import torch
from torch import Tensor


def make() -> list[tuple[Tensor, Tensor]]:
    eye = 2 * torch.eye(3, dtype=torch.double)
    lower = torch.randn(2, 3, 3, dtype=torch.double).tril(-1)
    right = torch.randn(2, 3, 2, dtype=torch.double)
    return [(eye + lower[0], right[0]), (eye + lower[1], right[1])]
''',
}
