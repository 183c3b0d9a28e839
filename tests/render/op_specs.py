"""Specs of the operators in `ops/`, by hand, each with the body of its reference."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from scaffold.derive import Derivation, Saved
from scaffold.errors import Location
from scaffold.formula import Formula, Graph
from scaffold.render.layout import Layout
from scaffold.spec import (
    Attribute,
    ModuleSpec,
    OpSpec,
    Output,
    Surrogate,
    TensorInput,
)
from tests.render.formatted import suite_file

OPS = Path(__file__).parent / "ops"
HERE = Location("test")


@dataclass(frozen=True)
class Example:
    """An operator, what is derived of it, and its forward in plain PyTorch."""

    spec: OpSpec
    derivation: Derivation
    reference: tuple[str, ...] | None

    @property
    def op_text(self) -> str:
        return (OPS / f"{self.spec.name}.py").read_text()

    @cached_property
    def suite_text(self) -> str:
        name = self.spec.name
        layout = Layout(name, f"{name}.py", f"test_{name}.py")
        return suite_file(self.spec, self.derivation, layout, self.reference)


def tensor(name: str, *dims: str | int, **traits: object) -> TensorInput:
    return TensorInput(name, dims or None, **traits)  # type: ignore[arg-type]


def formula(name: str) -> Formula:
    return Formula((), Graph().name(name), name, HERE)


WRITTEN = Derivation(forward=())
FEATURES = (
    ("input", ("N", "in_features")),
    ("weight", ("out_features", "in_features")),
    ("bias", ("out_features",)),
)
BIASED = ModuleSpec(parameters=("weight", "bias"))
LINEAR = (
    "output = input @ weight.t()",
    "if bias is not None:",
    "    output = output + bias",
    "return output",
)
PLAIN_LINEAR = (tensor("input"), tensor("weight"), tensor("bias", optional=True))

EXAMPLES = (
    Example(
        OpSpec(
            "linear",
            "Linear",
            (
                tensor("input", "...", "in_features"),
                tensor("weight", "out_features", "in_features"),
                tensor("bias", "out_features", optional=True),
            ),
            module=BIASED,
        ),
        WRITTEN,
        LINEAR,
    ),
    Example(
        OpSpec(
            "linear_2d", "Linear2d", PLAIN_LINEAR, module=BIASED, conventional=FEATURES
        ),
        WRITTEN,
        LINEAR,
    ),
    Example(
        OpSpec(
            "linear_todo",
            "LinearTodo",
            PLAIN_LINEAR,
            module=BIASED,
            conventional=FEATURES,
        ),
        Derivation(forward=None, missing=frozenset({"input", "weight", "bias"})),
        None,
    ),
    Example(
        OpSpec(
            "sort_last",
            "SortLast",
            (tensor("x"),),
            (Output("values"), Output("indices", dtype="int")),
            module=None,
        ),
        WRITTEN,
        ("values, indices = torch.sort(x, dim=-1)", "return values, indices"),
    ),
    Example(
        OpSpec("exp_", "Exp_", (tensor("x"),), dirty=("x",), module=ModuleSpec()),
        Derivation(forward=(), transforms=False),
        ("return x.exp_()",),
    ),
    Example(
        OpSpec(
            "scale_by",
            "ScaleBy",
            (tensor("x"), Attribute("constant", "float")),
            materialize_grads=False,
        ),
        WRITTEN,
        ("return x * constant",),
    ),
    Example(
        OpSpec("numpy_tanh", "NumpyTanh", (tensor("x"),), module=None),
        Derivation(
            forward=(),
            once_differentiable=True,
            opaque=True,
            compiles=False,
            transforms=False,
        ),
        None,
    ),
    Example(
        OpSpec("sum_all", "SumAll", (tensor("tensors", variadic=True),)),
        WRITTEN,
        (
            "output = tensors[0]",
            "for tensor in tensors[1:]:",
            "    output = output + tensor",
            "return output",
        ),
    ),
    Example(
        OpSpec(
            "affine",
            "Affine",
            (
                tensor("x", "...", "D"),
                tensor("weight", "D", optional=True),
                tensor("bias", "D", optional=True),
                Attribute("eps", "float", "1e-6"),
                Attribute("reduction", 'Literal["none", "sum"]', '"none"'),
            ),
            module=BIASED,
        ),
        WRITTEN,
        (
            "output = x + eps",
            "if weight is not None:",
            "    output = output * weight",
            "if bias is not None:",
            "    output = output + bias",
            'if reduction == "sum":',
            "    output = output.sum()",
            "return output",
        ),
    ),
    Example(
        OpSpec(
            "square_once", "SquareOnce", (tensor("x"),), style="combined", module=None
        ),
        Derivation(forward=(), once_differentiable=True, transforms=False),
        ("return x * x",),
    ),
    Example(
        OpSpec("cubed_once", "CubedOnce", (tensor("x"),), module=None),
        Derivation(forward=(), once_differentiable=True),
        ("return x**3",),
    ),
    Example(
        OpSpec(
            "complex_mul",
            "ComplexMul",
            (tensor("z", "...", "D", dtype="complex"), tensor("gain", "...", "D")),
            (Output("output", dtype="complex"),),
            module=None,
        ),
        WRITTEN,
        ("return z * gain",),
    ),
    Example(
        OpSpec(
            "nll",
            "Nll",
            (
                tensor("logp", "N", "C"),
                tensor("target", "N", dtype="index", bound="C"),
                tensor("scale", "C", const=True),
            ),
            module=None,
        ),
        WRITTEN,
        (
            "picked = logp.gather(-1, target.unsqueeze(-1)).squeeze(-1)",
            "return -picked * scale[target]",
        ),
    ),
    Example(
        OpSpec(
            "sign_ste", "SignSte", (tensor("x"),), surrogate=Surrogate(), module=None
        ),
        WRITTEN,
        ("return x.clamp(-1, 1)",),
    ),
    Example(
        OpSpec(
            "top_class",
            "TopClass",
            (tensor("scores"),),
            (Output("output", dtype="int"),),
            module=None,
        ),
        WRITTEN,
        ("return scores.argmax(-1)",),
    ),
    Example(
        OpSpec(
            "apply_to",
            "ApplyTo",
            (tensor("x"), Attribute("function", "Callable[[Tensor], Tensor]")),
        ),
        WRITTEN,
        ("return function(x)",),
    ),
    Example(
        OpSpec(
            "centring",
            "Centring",
            (tensor("x", "N", "D"), tensor("running_mean", "D", const=True)),
            module=ModuleSpec(
                buffers=("running_mean",),
                updates=(("running_mean", formula("running_mean")),),
                attributes=(Attribute("momentum", "float", "0.1"),),
            ),
        ),
        WRITTEN,
        ("return x - running_mean",),
    ),
    Example(
        OpSpec("l2_norm", "L2Norm", (tensor("x", "N", "D"),), module=None),
        Derivation(
            forward=(),
            saved=(Saved("norm", "intermediate", frozenset({"x"}), "norm", True),),
        ),
        ("return x / (x * x).sum(-1, keepdim=True).sqrt()",),
    ),
)
