"""The description of an op: `OpSpec`, frozen and complete.

It is what the user said in a table of `ops.toml` or by options of `new-op`, checked and parsed. In: `build` fills it. Out:
`derive` computes the gradients from it, `render` writes the files from both. Invariant: every name in it is valid, every
reference resolves, every formula has been parsed in its scope.

Words: a *dim* is an entry of a declared shape, `x[*batch, N, 3]`; *leading dims*, `*batch` or `...`, stand for any number of
dims; a *variadic* input is `*tensors`, any number of tensors, and always the last input; an *attribute* is a parameter that is
no tensor, `eps: float`; *const* is a floating tensor declared to get no gradient, `x[N; const]`; the *style* is the form of
the generated code: a Function with `setup_context`, one with a combined forward, or an op registered with torch.library.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeGuard

from scaffold.errors import Location
from scaffold.spec.keys import DEFAULT_POLICY, DEFAULT_STYLE, Amp, SavePolicy, Style
from scaffold.spec.names import DEFAULT, NAMESPACE, Patterns, registered_name

if TYPE_CHECKING:  # for mere readers of the configuration, import less
    from scaffold.formula import Formula, Kept

Dim = str | int  # a name, a size, or any number of dims: "...", "*batch"
ANY_DIMS = "..."
DType = Literal["float", "complex", "int", "bool", "index"]
Domain = Literal["normal", "positive", "unit", "nonzero", "simplex", "spd", "distinct"]


def is_leading(dim: Dim) -> bool:
    """Return whether a dim stands for any number of dims: `...` for any at all, `*batch` for the same ones wherever it is written."""
    return isinstance(dim, str) and (dim == ANY_DIMS or dim.startswith("*"))


def is_size_name(dim: Dim) -> TypeGuard[str]:
    """Return whether a dim is the name of one size."""
    return isinstance(dim, str) and not is_leading(dim)


def leading(dims: tuple[Dim, ...] | None) -> str | None:
    """Return the leading dims of a shape, `...` or `*batch`; None if it has none: its rank is then known. It has one at most."""
    return next((str(dim) for dim in dims or () if is_leading(dim)), None)


class TensorInput(NamedTuple):
    """A tensor parameter of the op; `dims` is None without a declared shape."""

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
    """A parameter other than a tensor: stored on ctx for the backward; its gradient there is None."""

    name: str
    annotation: str  # as in code: `float`, `torch.dtype`, `"ProcessGroup"`
    default: str | None = None  # a literal, as in code
    imported: tuple[str, str] | None = None  # (module, name) of a dotted annotation
    keyword_only: bool = False  # after `*tensors` or the `*` of a schema


Input = TensorInput | Attribute


def is_variadic(item: Input) -> TypeGuard[TensorInput]:
    """Return whether an input is any number of tensors: `*tensors`."""
    return isinstance(item, TensorInput) and item.variadic


class Output(NamedTuple):
    """A tensor returned by the op."""

    name: str
    dims: tuple[Dim, ...] | None = None
    dtype: DType = "float"
    const: bool = False
    variadic: bool = False

    @property
    def differentiable(self) -> bool:
        return self.dtype in ("float", "complex") and not self.const


class Import(NamedTuple):
    """An import: `import module [as alias]`, or `from module import name [as alias]`."""

    module: str
    name: str | None = None
    alias: str | None = None

    @property
    def binding(self) -> str:
        """Return the identifier it binds."""
        return self.alias or self.name or self.module.split(".")[0]


class Init(NamedTuple):
    """The initialization of a parameter: a function of torch.nn.init (no underscore) or `fan_in_uniform`."""

    parameter: str
    function: str
    arguments: str = ""  # as in code: `a=5**0.5`


class ModuleSpec(NamedTuple):
    """The nn.Module around the op: its parameters, buffers and updates."""

    parameters: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    # Buffer -> its new value, in training.
    updates: "tuple[tuple[str, Formula], ...]" = ()
    inits: tuple[Init, ...] = ()  # stated by the user; other parameters get a usual one
    # Read only by `updates`: stored by the module, not passed to the op.
    attributes: tuple[Attribute, ...] = ()
    # Arguments of the constructor of an nn.Module that the op is read from.
    made_by: tuple[str, ...] = ()


# The functions that make up an op in library style.
FORWARD, FAKE, SETUP, BACKWARD, VMAP, SHARDING = REGISTERED = (
    "_forward",
    "_fake",
    "_setup_context",
    "_backward",
    "_vmap",
    "_sharding",
)


def definitions_of(op: str, function: str) -> tuple[str, ...]:
    """Return the names an op's file defines besides its nn.Module, such as `swish` and `SwishFunction`, for `scaffold rename` to follow.

    `function` is the name of its autograd.Function or registered op; of the latter the functions registered with it count too.
    """
    parts = REGISTERED if function == registered_name(op) else ()
    return (op, function, *parts)


PLAIN_MODULE = ModuleSpec()  # it owns nothing


class Surrogate(NamedTuple):
    """A gradient deliberately other than the op's derivative, as of a straight-through estimator.

    It is the derivative of `forward`, if given; else what the user states as the gradient.
    """

    forward: "Formula | None" = None


Indices = tuple[str, ...]  # one for each dim of a tensor: ("m", "k")


class Sharding(NamedTuple):
    """The possible splits of an op over devices, `mk, nk -> mn`, as one group of indices for each tensor.

    Along an index each tensor that has it can be split; an output without it, as of `k` here, is then the sum of the devices' results.
    """

    text: str  # as the user wrote it
    place: Location
    inputs: tuple[Indices, ...]  # of the tensor inputs
    outputs: tuple[Indices, ...]  # of the forward's results, intermediates included


WHOLE = "_"  # the index of a dim that is never split


class RuleFile(NamedTuple):
    """A table of differentiation rules besides the built-in one: its path, as in messages, and its text."""

    path: str
    text: str


class Samples(NamedTuple):
    """The user's test inputs: the source of a function that takes nothing and returns them."""

    function: str
    source: str


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One custom operator."""

    name: str  # rms_norm: the functional wrapper and the file
    class_name: str  # RMSNorm: its name in class names
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...] = (Output("output"),)
    doc: str | None = None
    forward: "Formula | None" = None
    gradients: "tuple[tuple[str, Formula], ...]" = ()  # input -> formula
    backward: "Formula | None" = None
    surrogate: Surrogate | None = None
    imports: tuple[Import, ...] = ()
    dirty: tuple[str, ...] = ()
    once_differentiable: bool | None = None  # None: if the backward demands it
    # Whether it has a vmap rule and tests of torch.func; None: unless it runs code
    # outside torch.
    transforms: bool | None = None
    materialize_grads: bool = True
    derive: bool = True  # derive the gradients without a formula
    forward_ad: bool = False  # a jvp as well
    kernels: tuple[str, ...] = ()  # the languages of its fused kernels
    rules: tuple[RuleFile, ...] = ()  # tables besides the built-in one
    style: Style = DEFAULT_STYLE
    style_is_free: bool = False  # `combined` may be chosen if faster
    namespace: str = NAMESPACE  # the namespace of the registered op, in library style
    save_policy: SavePolicy = DEFAULT_POLICY
    sharding: Sharding | None = None  # in library style, a rule for DTensor
    amp: Amp | None = None  # None: derived from the forward's primitives
    # Keyword of gradcheck -> number, as written.
    tolerance: tuple[tuple[str, str], ...] = ()
    require: "tuple[Formula, ...]" = ()  # conditions on the named sizes
    samples: Samples | None = None
    # For undeclared inputs, and used only by tests.
    test_shapes: tuple[tuple[str, tuple[Dim, ...]], ...] = ()
    test_require: "tuple[Formula, ...]" = ()  # conditions on their sizes
    module: ModuleSpec | None = PLAIN_MODULE
    test: bool = True
    shape_checks: bool = True  # forward rejects shapes unsupported by the backward
    strict_types: bool = False  # annotate for `mypy --strict` too
    # Shapes taken from the convention.
    conventional: tuple[tuple[str, tuple[Dim, ...]], ...] = ()
    reason: str | None = None  # why it can be differentiated only once
    patterns: Patterns = DEFAULT  # names of files and classes

    @property
    def is_library(self) -> bool:
        """Return whether the op is registered with PyTorch by name, rather than a Function."""
        return self.style == "library"

    @property
    def function_name(self) -> str:
        """Return the name of the object that has the op's backward: of the autograd.Function, or in library style of the registered op."""
        if self.is_library:
            return registered_name(self.name)
        return self.patterns.function_class(self.class_name)

    @property
    def definitions(self) -> tuple[str, ...]:
        """Return the names the op's file defines besides its nn.Module; imports and inputs must not take them."""
        return definitions_of(self.name, self.function_name)

    @property
    def module_name(self) -> str:
        """Return the name of the nn.Module."""
        return self.patterns.module_class(self.class_name)

    @property
    def tensors(self) -> tuple[TensorInput, ...]:
        return tuple(item for item in self.inputs if isinstance(item, TensorInput))

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return tuple(item for item in self.inputs if isinstance(item, Attribute))

    @property
    def differentiable(self) -> tuple[TensorInput, ...]:
        """Return the inputs that get a gradient; none if no output is differentiable, as for an op of integers."""
        if not any(output.differentiable for output in self.outputs):
            return ()
        return tuple(item for item in self.tensors if item.differentiable)

    @property
    def kept(self) -> "Kept | None":
        """Return the forward kept as the user wrote it, with loops for example; None for a forward read as maths."""
        return self.forward.kept if self.forward is not None else None

    @property
    def foreign(self) -> frozenset[str]:
        """Return the names imported from outside torch: nothing is known of the gradients, or the kernels, of such functions."""
        return frozenset(
            item.binding
            for item in self.imports
            if item.module.partition(".")[0] != "torch"
        )

    @property
    def forgoes_second(self) -> bool:
        """Return whether the op gives up a second derivative for a faster backward, which may read saved intermediate values.

        Autograd cannot differentiate through those: they are constants to it.
        """
        return self.save_policy == "balanced" and bool(self.once_differentiable)

    def index(self, name: str) -> int:
        """Return the position of an input in the call, which is its index in `ctx.needs_input_grad`."""
        return [item.name for item in self.inputs].index(name)

    def dims(self, name: str) -> tuple[Dim, ...] | None:
        """Return the declared shape of a tensor input, else the usual one of its name (`weight[out_features, in_features]`), else None."""
        declared = {item.name: item.dims for item in self.tensors}[name]
        return declared if declared is not None else dict(self.conventional).get(name)

    def tested_dims(self, name: str) -> tuple[Dim, ...] | None:
        """Return the shape of an input in generated tests: the one stated for tests alone, else the one of `dims`.

        The key `test-shapes` may state one for an input declared without a shape, or with `[...]` alone.
        """
        return dict(self.test_shapes).get(name, self.dims(name))

    @property
    def tested_require(self) -> "tuple[Formula, ...]":
        """Return the conditions on sizes of test inputs: `D % 2 == 0` of every call, and conditions for the tests alone."""
        return (*self.require, *self.test_require)
