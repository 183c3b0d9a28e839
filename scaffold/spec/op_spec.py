"""What the user asked for: an `OpSpec`, frozen and complete.

In: the loaders of this package fill it. Out: `derive` and `render` read it.
Invariant: every name in it is valid, every reference resolves, every formula has been parsed in its scope.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeGuard

from scaffold.errors import Location
from scaffold.spec.keys import Amp, SavePolicy, Style
from scaffold.spec.names import DEFAULT, NAMESPACE, Patterns, registered_name

if TYPE_CHECKING:  # what reads the configuration alone does without
    from scaffold.formula import Formula, Kept

Dim = str | int  # a name, a size, or any number of dims: "...", "*batch"
ANY_DIMS = "..."
DType = Literal["float", "complex", "int", "bool", "index"]
Domain = Literal["normal", "positive", "unit", "nonzero", "simplex", "spd", "distinct"]


def is_leading(dim: Dim) -> bool:
    """Whether it stands for any number of dimensions: `...`, or `*batch`, which is the same wherever the name stands."""
    return isinstance(dim, str) and (dim == ANY_DIMS or dim.startswith("*"))


def is_size_name(dim: Dim) -> TypeGuard[str]:
    """Whether it is the name of one size."""
    return isinstance(dim, str) and not is_leading(dim)


def leading(dims: tuple[Dim, ...] | None) -> str | None:
    """The dim of a shape that stands for any number of them."""
    return next((str(dim) for dim in dims or () if is_leading(dim)), None)


class TensorInput(NamedTuple):
    """A tensor parameter of the op. `dims` is None where the user declared no shape."""

    name: str
    dims: tuple[Dim, ...] | None = None
    dtype: DType = "float"
    bound: Dim | None = None  # C of index(C): a long in [0, C)
    domain: Domain = "normal"
    const: bool = False  # floating, but without a gradient
    optional: bool = False
    variadic: bool = False
    keyword_only: bool = False

    @property
    def differentiable(self) -> bool:
        return self.dtype in ("float", "complex") and not self.const


class Attribute(NamedTuple):
    """A parameter that is not a tensor: kept on ctx, gradient None."""

    name: str
    annotation: str  # as it stands in code: `float`, `torch.dtype`, `"ProcessGroup"`
    default: str | None = None  # a literal, as it stands in code
    imported: tuple[str, str] | None = None  # (module, name) of a dotted annotation
    keyword_only: bool = False  # it stood after `*tensors` or the `*` of a schema


Input = TensorInput | Attribute


def is_variadic(item: Input) -> TypeGuard[TensorInput]:
    """Whether an input is any number of tensors: `*tensors`."""
    return isinstance(item, TensorInput) and item.variadic


class Output(NamedTuple):
    """A tensor that the op returns."""

    name: str
    dims: tuple[Dim, ...] | None = None
    dtype: DType = "float"
    const: bool = False
    variadic: bool = False

    @property
    def differentiable(self) -> bool:
        return self.dtype in ("float", "complex") and not self.const


class Import(NamedTuple):
    """`import module [as alias]`, or with a name `from module import name [as alias]`."""

    module: str
    name: str | None = None
    alias: str | None = None

    @property
    def binding(self) -> str:
        """The identifier that it puts in scope."""
        return self.alias or self.name or self.module.split(".")[0]


class Init(NamedTuple):
    """How a parameter starts: a function of torch.nn.init (no underscore) or `fan_in_uniform`."""

    parameter: str
    function: str
    arguments: str = ""  # as they stand in code: `a=5**0.5`


class ModuleSpec(NamedTuple):
    """The nn.Module around the op: which inputs it owns."""

    parameters: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    # Buffer -> its new value, in training.
    updates: "tuple[tuple[str, Formula], ...]" = ()
    inits: tuple[Init, ...] = ()  # those the user stated
    # Read by `updates` alone: the module's, not the op's.
    attributes: tuple[Attribute, ...] = ()


# The functions of which an op in library style is made.
FORWARD, FAKE, SETUP, BACKWARD, VMAP, SHARDING = REGISTERED = (
    "_forward",
    "_fake",
    "_setup_context",
    "_backward",
    "_vmap",
    "_sharding",
)


def definitions_of(op: str, function: str) -> tuple[str, ...]:
    """The names of an op, of its Function or what is registered, and of the parts of the latter."""
    parts = REGISTERED if function == registered_name(op) else ()
    return (op, function, *parts)


PLAIN_MODULE = ModuleSpec()  # it owns nothing


class Surrogate(NamedTuple):
    """The gradient is deliberately not the derivative; `forward` is what it is the derivative of."""

    forward: "Formula | None" = None


Indices = tuple[str, ...]  # of the dims of a tensor


class Sharding(NamedTuple):
    """How the op may be split over devices, in index notation: one group of indices for each tensor.

    Along an index, each tensor that has it is split, and an output without it is the sum of what the devices compute.
    """

    text: str  # as the user wrote it
    place: Location
    inputs: tuple[Indices, ...]  # of the tensors among the inputs
    outputs: tuple[Indices, ...]  # of what forward returns, intermediates included


WHOLE = "_"  # the index of a dim that is never split


class RuleFile(NamedTuple):
    """A table of rules beside the built-in one: its path, as messages show it, and its text."""

    path: str
    text: str


class Samples(NamedTuple):
    """Test inputs of the user's: the source of a function that takes nothing and returns them."""

    function: str
    source: str


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One custom operator."""

    name: str  # rms_norm: the functional wrapper and the file
    class_name: str  # RMSNorm: what classes call it
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...] = (Output("output"),)
    doc: str | None = None
    forward: "Formula | None" = None
    gradients: "tuple[tuple[str, Formula], ...]" = ()  # input -> formula
    backward: "Formula | None" = None
    surrogate: Surrogate | None = None
    imports: tuple[Import, ...] = ()
    dirty: tuple[str, ...] = ()
    once_differentiable: bool | None = None  # None: where the backward demands it
    # Whether it has a vmap rule and tests of torch.func; None: unless it leaves torch.
    transforms: bool | None = None
    materialize_grads: bool = True
    derive: bool = True  # derive the gradients that no formula states
    forward_ad: bool = False  # a jvp as well
    rules: tuple[RuleFile, ...] = ()  # tables beside the built-in one
    style: Style = "setup-context"
    style_is_free: bool = False  # `combined` may be taken where that spares time
    namespace: str = NAMESPACE  # in library style, the op is registered below it
    save_policy: SavePolicy = "balanced"
    sharding: Sharding | None = None  # in library style, a rule for DTensor
    amp: Amp | None = None  # None: as the forward's primitives tell
    # Keyword of gradcheck -> number, as written.
    tolerance: tuple[tuple[str, str], ...] = ()
    require: "tuple[Formula, ...]" = ()  # conditions on the named sizes
    samples: Samples | None = None
    # Of undeclared inputs: the tests use them, and nothing else knows of them.
    test_shapes: tuple[tuple[str, tuple[Dim, ...]], ...] = ()
    test_require: "tuple[Formula, ...]" = ()  # conditions on the sizes of those
    module: ModuleSpec | None = PLAIN_MODULE
    test: bool = True
    shape_checks: bool = True  # forward refuses shapes that the backward is not for
    strict_types: bool = False  # what `mypy --strict` asks is written, too
    # Shapes taken from the convention.
    conventional: tuple[tuple[str, tuple[Dim, ...]], ...] = ()
    reason: str | None = None  # why it can be differentiated only once
    patterns: Patterns = DEFAULT  # what files and classes are called

    @property
    def is_library(self) -> bool:
        """Whether PyTorch knows the op by its name, rather than as a Function."""
        return self.style == "library"

    @property
    def function_name(self) -> str:
        """What has the op's backward: the autograd.Function, or the op that is registered."""
        if self.is_library:
            return registered_name(self.name)
        return self.patterns.function_class(self.class_name)

    @property
    def definitions(self) -> tuple[str, ...]:
        """The names in the op's file that its forward and backward stand under, and what calls them."""
        return definitions_of(self.name, self.function_name)

    @property
    def module_name(self) -> str:
        """The nn.Module."""
        return self.patterns.module_class(self.class_name)

    @property
    def tensors(self) -> tuple[TensorInput, ...]:
        return tuple(item for item in self.inputs if isinstance(item, TensorInput))

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return tuple(item for item in self.inputs if isinstance(item, Attribute))

    @property
    def differentiable(self) -> tuple[TensorInput, ...]:
        """The inputs that get a gradient; none where no output has one."""
        if not any(output.differentiable for output in self.outputs):
            return ()
        return tuple(item for item in self.tensors if item.differentiable)

    @property
    def kept(self) -> "Kept | None":
        """The forward, where it stays as the user wrote it."""
        return self.forward.kept if self.forward is not None else None

    @property
    def foreign(self) -> frozenset[str]:
        """The names that are imported from outside torch."""
        return frozenset(
            item.binding
            for item in self.imports
            if item.module.partition(".")[0] != "torch"
        )

    @property
    def forgoes_second(self) -> bool:
        """Whether the op gives up a second derivative for time."""
        return self.save_policy == "balanced" and bool(self.once_differentiable)

    def index(self, name: str) -> int:
        """The position of an input in the call, as `needs_input_grad` counts."""
        return [item.name for item in self.inputs].index(name)

    def dims(self, name: str) -> tuple[Dim, ...] | None:
        """The declared shape of a tensor input, else the conventional one, else None."""
        declared = {item.name: item.dims for item in self.tensors}[name]
        return declared if declared is not None else dict(self.conventional).get(name)

    def tested_dims(self, name: str) -> tuple[Dim, ...] | None:
        """The shape that an input has in the tests: that of `test-shapes`, which any may have that is `[...]` or undeclared, else what `dims` says."""
        return dict(self.test_shapes).get(name, self.dims(name))

    @property
    def tested_require(self) -> "tuple[Formula, ...]":
        """The conditions that the sizes of the tests satisfy."""
        return (*self.require, *self.test_require)
