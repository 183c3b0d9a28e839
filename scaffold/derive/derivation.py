"""`Derivation`: forward and backward of an op as they will stand; `derive` fills it in, `render` writes it out.

In: what the passes found. Out: all that `render` knows of the maths.
Invariant: names in it are those of the generated code; a gradient in `missing` is not written yet.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from scaffold.errors import Location
from scaffold.formula import Formula, Graph, Lines, Node, expressions
from scaffold.spec import Amp, Domain, OpSpec, Style
from scaffold.spec.other_tools import LINE_LENGTH

Source = Literal["input", "output", "intermediate"]


class Saved(NamedTuple):
    """A tensor that backward reads: its name there, where it comes from, which gradients need it."""

    name: str
    source: Source
    serves: frozenset[str]
    origin: str  # the input, output or local of the forward that it is


class Kept(NamedTuple):
    """A value on ctx that is no tensor: `ctx.name = expression`, or a facet of an output."""

    name: str
    expression: str  # of an output: `shape`, `dtype`, ...
    output: str | None = None


class Filled(NamedTuple):
    """An output gradient that may be None and is read with others: zeros as a saved tensor has them, or of what is on ctx."""

    output: str
    like: str  # a saved tensor; "" where none has that shape and dtype
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
    """The body of forward: statements, and what it returns, one node for each output.

    Of one that stays as the user wrote it, every result is its whole `body`.
    """

    statements: Lines
    results: tuple[Node, ...]
    comments: tuple[str, ...]
    renamed: dict[str, str]  # locals that go by another name than the user's
    returned: dict[str, str]  # local -> the output that it is in the end
    hiding: dict[str, str]  # local -> the input that the user gives its name anew

    def expressions(self) -> Iterator[Node]:
        """Every expression that it reads: of its statements, and its results."""
        for item in self.statements:
            yield from expressions(item)
        yield from self.results


class Traits(NamedTuple):
    """Numbers for each tensor: two tensors with equal numbers have the same shape, or the same kind and dtype."""

    shape: int
    dtype: int


class IncomingGradients(NamedTuple):
    """The gradients that autograd hands to backward: which may be None, and what zeros in their place are made like."""

    # The gradient that may come in for a saved local that forward returns -> the local.
    handed: tuple[tuple[str, str], ...] = ()
    undefined: frozenset[str] = frozenset()  # output gradients that may be None
    scalars: frozenset[str] = frozenset()  # the outputs of one number
    returned: frozenset[str] = frozenset()  # the locals that forward returns, too
    akin: frozenset[str] = frozenset()  # the tensors of the same kind as the outputs

    @property
    def may_be_none(self) -> bool:
        """Tell whether one of them may come in as None."""
        return bool(self.handed or self.undefined)


PLAIN_GRADIENTS = IncomingGradients()  # each comes in as a tensor


class GradientStatements(NamedTuple):
    """Gradients that follow from the forward: statements of the backward, and what the user should know of them."""

    statements: Lines = ()
    notes: tuple[str, ...] = ()
    domains: tuple[tuple[str, Domain], ...] = ()  # where test values of inputs lie
    # Statements and results, with names for more of the values in them.
    forward: tuple[Lines, tuple[Node, ...]] | None = None
    kept: frozenset[str] | None = None  # the locals to save, where that is decided
    once: bool = False  # the statements cannot be differentiated
    again: Lines | None = None  # the forward for what comes again
    like: tuple[tuple[str, str], ...] = ()  # input -> the output that has its shape
    traits: Mapping[str, Traits] = {}  # of the tensors that are surely there
    roles: Mapping[str, str] = {}  # a name -> what it would be if that were free
    incoming: IncomingGradients = PLAIN_GRADIENTS


class Maths(NamedTuple):
    """Forward and backward of an op as statements, with names that do not clash; what is saved is not decided yet."""

    graph: Graph
    place: Location
    forward: Forward | None
    program: Lines  # the backward, in order
    origins: tuple[tuple[str, str], ...]  # name in the backward -> the output it is
    derived: frozenset[str]  # whose gradient follows from the forward
    notes: tuple[str, ...]  # of what was derived, and what was not
    domains: tuple[tuple[str, Domain], ...]  # where test values of inputs lie
    kept: frozenset[str] | None  # the locals to save, where some are decided
    planned: bool  # ... and where no others are but by necessity
    once: bool  # the program cannot be differentiated
    versions: tuple[tuple[str, str], ...]  # a name of the forward -> the user's
    again: Lines | None  # the forward as it comes again in the backward
    like: tuple[tuple[str, str], ...]  # input -> the output that has its shape
    traits: Mapping[str, Traits]  # of the tensors that are surely there
    roles: Mapping[str, str]  # a name -> what it would be if that were free
    incoming: IncomingGradients = PLAIN_GRADIENTS


class ShapeCheck(NamedTuple):
    """What forward demands of a shape that is declared: it raises where the test holds. Text, over the inputs."""

    name: str
    absent: tuple[str, ...]  # optional inputs: without one of them there is no test
    tests: tuple[str, ...]  # any of them: `y.shape != x.shape`
    declared: str  # `y[N, D]`
    expected: str  # as an f-string shows it: `{[*x.shape]}`
    # A dim that is asked for its size; None where only their number is, or leading dims are.
    axis: int | None
    too_few: bool = False  # it asks only whether there are too few dims
    # What each of any number of tensors is called, one of which `name` is.
    each: str = ""
    condition: Formula | None = None  # on sizes, whether it holds is asked
    # ... and for each size that it reads its name, an input that has it, and where.
    read: tuple[tuple[str, str, int], ...] = ()


# How many columns a line of the backward has: of a line of a file, what stands before the body of a method, and what each `with`
# or `if` in it takes.
LINE, METHOD, STEP = LINE_LENGTH, 8, 4
BY_AUTOGRAD = "autograd differentiates the forward as a whole"  # a comment


def indent_of(amp: Amp) -> int:
    """By how many columns all lines of the backward stand further in."""
    return STEP * (amp == "region")


class RealInputs(NamedTuple):
    """Inputs of which complex ones would get wrong gradients."""

    names: tuple[str, ...]
    # Whether the gradient that comes in is complex where one of them is.
    shown: bool
    # Those of which a complex one makes the gradients of the others complex.
    alike: tuple[tuple[str, ...], ...] = ()


class Block(NamedTuple):
    """Statements of the backward that serve the same gradients, in order."""

    serves: frozenset[str]
    statements: Lines


class Jvp(NamedTuple):
    """What `jvp` computes: the tangents of the outputs, of those of the inputs."""

    parameters: tuple[str, ...]  # what the tangent of each input is called
    statements: Lines
    results: tuple[Node | None, ...]  # of each output; None for one that has none
    missing: bool = False  # it is left to write


@dataclass(frozen=True, slots=True)
class Derivation:
    """The forward as it will stand, and its backward: what it saves and where each line goes."""

    forward: Lines | None  # None: not written yet
    results: tuple[Node, ...] = ()  # what forward returns, one for each output
    # The locals that it returns as well, for setup_context.
    extra: tuple[Node, ...] = ()
    comments: tuple[str, ...] = ()  # above the return
    blocks: tuple[Block, ...] = ()
    elements: tuple[Element, ...] = ()
    missing: frozenset[str] = frozenset()  # inputs whose gradient is not written yet
    # Inputs whose gradient follows from the forward.
    derived: frozenset[str] = frozenset()
    domains: tuple[tuple[str, Domain], ...] = ()  # where test values of inputs lie
    # Inputs whose gradient comes with others', needed or not.
    joint: frozenset[str] = frozenset()
    saved: tuple[Saved, ...] = ()
    kept: tuple[Kept, ...] = ()
    filled: tuple[Filled, ...] = ()
    watched: tuple[str, ...] = ()  # output gradients without which there is no gradient
    style: Style = "setup-context"
    once_differentiable: bool = False
    opaque: bool = False  # leaves PyTorch: NumPy, or a kernel of the user's
    random: bool = False  # the forward draws random numbers
    transforms: bool = True  # works under torch.func
    compiles: bool = True  # works under torch.compile(fullgraph=True)
    detached: frozenset[str] = frozenset()  # outputs that the forward detaches
    notes: tuple[str, ...] = ()  # what the user should know, for stderr
    checks: tuple[ShapeCheck, ...] = ()  # of the shapes that the backward is for
    kernels: "tuple[BackwardKernel, ...]" = ()  # of an op in library style
    amp: Amp = "off"  # what it does under autocast
    jvp: Jvp | None = None
    incoming: IncomingGradients = PLAIN_GRADIENTS
    region: bool = False  # the backward runs under the autocast of the forward
    real: RealInputs | None = None  # what the derived gradients take for real

    @property
    def complete(self) -> bool:
        """Whether nothing is left for the user to write."""
        return self.forward is not None and not self.missing

    @property
    def intermediates(self) -> tuple[str, ...]:
        """The locals of the forward that are saved."""
        return tuple(
            item.origin for item in self.saved if item.source == "intermediate"
        )


class BackwardKernel(NamedTuple):
    """Lines of the backward that leave PyTorch, as an op of their own that `backward` calls by a name."""

    spec: OpSpec
    called: str
    statements: Lines
    results: tuple[Node, ...]
    shapes: tuple[str, ...]  # of the gradients, as code over its inputs
