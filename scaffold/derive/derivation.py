"""`Derivation`: the final forward and backward of an op; `derive` fills it in, `render` writes it out.

In: the results of the passes. Out: all that `render` knows of the maths.
Invariant: names in it are those of the generated code; a gradient in `missing` is not written yet.

Words: saved are tensors passed through `ctx.save_for_backward`, kept (`Kept`) other values on ctx, such as shapes; in
`GradientStatements` and `Maths`, `kept` are the names of locals to be saved, None if that is not decided yet. A line
serves the inputs whose gradients need it. Incoming gradients are those that autograd passes to backward; one is
`handed` if it is for a local that forward returns only to have it saved.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from scaffold.errors import Location
from scaffold.formula import Assign, Formula, Graph, Lines, Node, expressions
from scaffold.spec import Amp, Domain, OpSpec, Style
from scaffold.spec.other_tools import LINE_LENGTH

Source = Literal["input", "output", "intermediate"]


class Saved(NamedTuple):
    """A tensor read by the backward: its name there, its source, and the gradients that need it."""

    name: str
    source: Source
    serves: frozenset[str]
    origin: str  # the input, output or local of the forward
    always: bool = False  # saved without a test of `ctx.needs_input_grad`


class Kept(NamedTuple):
    """A non-tensor value on ctx: `ctx.name = expression`, or a facet of an output."""

    name: str
    expression: str  # for an output: `shape`, `dtype`, ...
    output: str | None = None


class Filled(NamedTuple):
    """An output gradient that may be None, and the zeros to replace it: like a saved tensor, or by values on ctx."""

    output: str
    like: str  # a saved tensor; "" if none has that shape and dtype
    shape: str = ""  # names on ctx
    dtype: str = ""
    device: str = ""
    scalar: bool = False  # it has no dims


class Element(NamedTuple):
    """The gradient of element `i` of a variadic input: statements that read `i`, and its value."""

    name: str
    statements: Lines
    value: Node


class Forward(NamedTuple):
    """The body of forward: statements and one result per output.

    In a forward kept verbatim, every result is its whole `body`.
    """

    statements: Lines
    results: tuple[Node, ...]
    comments: tuple[str, ...]
    renamed: dict[str, str]  # locals with another name than the user's
    returned: dict[str, str]  # local -> the output it is returned as
    hiding: dict[str, str]  # local -> the input whose name the user reuses for it

    def expressions(self) -> Iterator[Node]:
        """Yield every expression of the forward: in its statements, and its results."""
        yield from expressions(*self.statements)
        yield from self.results


class Traits(NamedTuple):
    """Shape and dtype of a tensor as numbers: equal ones mean the same shape, or the same kind and dtype."""

    shape: int
    dtype: int


class IncomingGradients(NamedTuple):
    """The gradients autograd hands to backward: the ones perhaps None, and how to make zeros for them."""

    # The gradient that may come in for a returned local to save -> the local.
    handed: tuple[tuple[str, str], ...] = ()
    undefined: frozenset[str] = frozenset()  # output gradients that may be None
    scalars: frozenset[str] = frozenset()  # outputs with one element
    returned: frozenset[str] = frozenset()  # locals also returned by forward
    akin: frozenset[str] = frozenset()  # tensors of the same kind as the outputs

    @property
    def may_be_none(self) -> bool:
        """Return whether an incoming gradient may be None."""
        return bool(self.handed or self.undefined)


ZEROS_LIKE = "zeros_like"  # of torch
PLAIN_GRADIENTS = IncomingGradients()  # every one is a tensor


class GradientStatements(NamedTuple):
    """Derived gradients: statements of the backward, and notes for the user."""

    statements: Lines = ()
    notes: tuple[str, ...] = ()
    domains: tuple[tuple[str, Domain], ...] = ()  # ranges of inputs' test values
    # Statements and results, with names for more of their values.
    forward: tuple[Lines, tuple[Node, ...]] | None = None
    kept: frozenset[str] | None = None  # the locals to save, if decided
    once: bool = False  # the statements cannot be differentiated
    again: Lines | None = None  # the forward to repeat lines from
    like: tuple[tuple[str, str], ...] = ()  # input -> an output of the same shape
    traits: Mapping[str, Traits] = {}  # of the tensors that are surely present
    vectors: frozenset[str] = frozenset()  # vectors and scalars
    roles: Mapping[str, str] = {}  # name -> its preferred name, had it been free
    incoming: IncomingGradients = PLAIN_GRADIENTS


class Maths(NamedTuple):
    """Forward and backward of an op as statements, with names that do not clash; the saved values are undecided yet."""

    graph: Graph
    place: Location
    forward: Forward | None
    program: Lines  # the backward, in order
    origins: tuple[tuple[str, str], ...]  # name in the backward -> output
    derived: frozenset[str]  # inputs with a derived gradient
    notes: tuple[str, ...]  # about derived and missing gradients
    domains: tuple[tuple[str, Domain], ...]  # ranges of inputs' test values
    kept: frozenset[str] | None  # the locals to save, if some are decided
    planned: bool  # ... and no others are saved unless necessary
    once: bool  # the program is not differentiable
    versions: tuple[tuple[str, str], ...]  # a name of the forward -> the user's
    again: Lines | None  # the forward to repeat in the backward
    like: tuple[tuple[str, str], ...]  # input -> an output of the same shape
    traits: Mapping[str, Traits]  # of the tensors that are surely present
    vectors: frozenset[str]  # vectors and scalars
    roles: Mapping[str, str]  # name -> its preferred name, had it been free
    incoming: IncomingGradients = PLAIN_GRADIENTS


class ShapeCheck(NamedTuple):
    """A check of a declared shape in forward: it raises if a test holds. Text, over the inputs."""

    name: str
    absent: tuple[str, ...]  # optional inputs: without one of them there is no test
    tests: tuple[str, ...]  # any of them: `y.shape != x.shape`
    declared: str  # `y[N, D]`
    expected: str  # as an f-string shows it: `{[*x.shape]}`
    # The checked dim; None if the number of dims or leading dims are checked.
    axis: int | None
    too_few: bool = False  # check only for too few dims
    # The name of each tensor of a variadic input, if `name` is one.
    each: str = ""
    condition: Formula | None = None  # a condition on sizes to check
    # ... and for each size in it: its name, an input that has it, and the dim.
    read: tuple[tuple[str, str, int], ...] = ()


# Columns of a line of the backward: a file's line, the indentation of a method's body,
# and that of each `with` or `if` in it.
LINE, METHOD, STEP = LINE_LENGTH, 8, 4
BY_AUTOGRAD = "autograd differentiates the forward as a whole"  # a comment


def indent_of(amp: Amp) -> int:
    """Return by how many columns all lines of the backward stand further right: `with torch.autocast(...)` may surround them.

    For those who ask whether a line fits.
    """
    return STEP * (amp == "region")


class RealInputs(NamedTuple):
    """Inputs that get wrong gradients if they are complex."""

    names: tuple[str, ...]
    # Whether the incoming gradient is complex if one of them is.
    shown: bool
    # Inputs that, if complex, make the gradients of the others complex.
    alike: tuple[tuple[str, ...], ...] = ()


class Block(NamedTuple):
    """Statements of the backward that serve the same gradients, in order."""

    serves: frozenset[str]
    statements: Lines


class Jvp(NamedTuple):
    """Forward mode: the statements computing the outputs' tangents from the inputs'."""

    parameters: tuple[str, ...]  # the names of the inputs' tangents
    statements: Lines
    results: tuple[Node | None, ...]  # one per output; None for one without a tangent
    missing: bool = False  # left for the user to write


@dataclass(frozen=True, slots=True)
class Derivation:
    """The final forward, and its backward: saved values and the place of each line."""

    forward: Lines | None  # None: not written yet
    results: tuple[Node, ...] = ()  # one for each output of forward
    # Locals also returned, for setup_context.
    extra: tuple[Node, ...] = ()
    comments: tuple[str, ...] = ()  # above the return
    blocks: tuple[Block, ...] = ()
    elements: tuple[Element, ...] = ()
    missing: frozenset[str] = frozenset()  # inputs whose gradient is not written yet
    # Inputs with a derived gradient.
    derived: frozenset[str] = frozenset()
    domains: tuple[tuple[str, Domain], ...] = ()  # where test values of inputs lie
    # Inputs whose gradient is computed along with others, needed or not.
    joint: frozenset[str] = frozenset()
    saved: tuple[Saved, ...] = ()
    kept: tuple[Kept, ...] = ()
    filled: tuple[Filled, ...] = ()
    # Output gradients: if all of them are None, so are the results.
    watched: tuple[str, ...] = ()
    style: Style = "setup-context"
    once_differentiable: bool = False
    opaque: bool = False  # leaves PyTorch: NumPy, or a kernel of the user's
    random: bool = False  # the forward draws random numbers
    transforms: bool = True  # works under torch.func
    compiles: bool = True  # works under torch.compile(fullgraph=True)
    detached: frozenset[str] = frozenset()  # outputs that the forward detaches
    notes: tuple[str, ...] = ()  # for the user, on stderr
    checks: tuple[ShapeCheck, ...] = ()  # of the shapes assumed by the backward
    kernels: "tuple[BackwardKernel, ...]" = ()  # of an op in library style
    amp: Amp = "off"  # behaviour under autocast
    jvp: Jvp | None = None
    incoming: IncomingGradients = PLAIN_GRADIENTS
    region: bool = False  # the backward runs under the autocast of the forward
    real: RealInputs | None = None  # inputs assumed real by the derived gradients

    @property
    def complete(self) -> bool:
        """Return whether nothing is left for the user to write: the forward is there, and a line for each gradient."""
        return self.forward is not None and not self.missing

    @property
    def intermediates(self) -> tuple[str, ...]:
        """Return the names, in the forward, of its locals saved: neither inputs nor outputs."""
        return tuple(
            item.origin for item in self.saved if item.source == "intermediate"
        )

    @property
    def lines(self) -> Lines:
        """Return the statements of all blocks, in order."""
        return tuple(item for block in self.blocks for item in block.statements)

    @property
    def returned_locals(self) -> tuple[str, ...]:
        """Return the names of intermediates returned by forward beside its outputs; without `extra` it saves them itself."""
        return self.intermediates if self.extra else ()


class BackwardKernel(NamedTuple):
    """Lines of the backward that leave PyTorch, as an op of their own, and its name in `backward`."""

    spec: OpSpec
    called: str
    statements: Lines
    results: tuple[Node, ...]
    shapes: tuple[str, ...]  # of the gradients, as code over its inputs


def zero_gradients(derivation: Derivation) -> frozenset[str]:
    """Return the inputs with a derived gradient of zeros, as `grad_x = torch.zeros_like(x)` shows: the user gets a note of it.

    A forward such as `torch.sign(x)` has one, seldom on purpose; no fused kernel is written for it.
    """
    names = {f"grad_{name}": name for name in derivation.derived}
    inputs = (
        names.get(item.target.label)
        for item in derivation.lines
        if isinstance(item, Assign) and _is_zeros(item.value)
    )
    return frozenset(filter(None, inputs))


def _is_zeros(value: Node) -> bool:
    """Return whether a value is a call that makes zeros: `x.new_zeros(...)`, `torch.zeros_like(x)`."""
    made = value.kind == "call" and value.args[0].kind == "attribute"
    return made and value.args[0].label in ("new_zeros", ZEROS_LIKE)
