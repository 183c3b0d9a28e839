"""The file of an op's Triton kernels: the kernels, their launches, and the inputs for them.

In: a `Pair`. Out: `TritonView`, whose lines the template of the file shows. Invariant: inputs that the kernels would compute wrongly are
refused with a reason.
"""

from collections.abc import Iterator

from scaffold.derive import derive
from scaffold.derive.graph.static_values import UnsupportedError
from scaffold.errors import Location, ScaffoldError
from scaffold.kernels.expressions import Helpers
from scaffold.kernels.launch import Kernel, declared_shape
from scaffold.kernels.pair import Pair, kernel_pair
from scaffold.spec import OpSpec

# The dtypes that an input of a kind may have; others hold integers.
ALLOWED = {"float": "DTYPES", "bool": "(torch.bool,)"}


class TritonView:
    """The template's data for the file.

    `numbers`: of a block, in each part of its rows, 0 of an op element by element; `first`: the tensor that says how many rows there are;
    `columns`: of a block, the size of its row, or of each part; `dtypes`: a tensor, those that it may have, and whether it may be None;
    `refused`: a test, and what is said where it holds; `float32`: autocast computes them in float32; `dtype`: lines that give the outputs'.
    """

    def __init__(self, spec: OpSpec, pair: Pair) -> None:
        """Write both kernels of an op, and the questions to its inputs."""
        self.spec, self.pair, self.own = spec, pair, pair.own
        helpers = Helpers(_all_names(pair) | {x.name for x in spec.inputs})
        self.helpers = helpers.functions
        self.forward = Kernel(spec, "forward", pair, helpers)
        dtypes, given = {*map(pair.dtype_of, pair.dtypes)}, self.forward.arguments
        # The file's `forward` computes the outputs' dtypes itself (`dtype`).
        self.forward_arguments = [x for x in given.split(", ") if x not in dtypes]
        back = pair.backward is not None
        self.backward = Kernel(spec, "backward", pair, helpers) if back else None
        # 1024 numbers of a block; of each part the share of the next power of 2: 256 of three parts.
        halvings = (pair.shapes.of - 1).bit_length()
        self.numbers = 1024 >> halvings if pair.shapes.width else 0
        every, other = spec.tensors, "INDICES"
        self.inputs = [f"{x.name}: Tensor{' | None' * x.optional}" for x in every]
        self.dtypes = [(x.name, ALLOWED.get(x.dtype, other), x.optional) for x in every]
        self.first, self.columns = self.forward.first, self.forward.last
        self.refused = [*_refused(spec, pair, self.first)]
        self.float32 = any(float32 for _, float32 in pair.dtypes.values())
        self.dtype = [*_dtype(pair, self.first)]


def triton_kernels(spec: OpSpec, place: Location) -> tuple[Pair, TritonView]:
    """Return the programs of an op and the template's data for the file of its kernels; ScaffoldError, at `place`, if there can be none."""
    try:
        pair = kernel_pair(spec)
        return pair, TritonView(spec, pair)
    except UnsupportedError as error:
        hint = "leave out 'kernels', or wrap your own kernel: --import"
        message = f"no kernel can be written for '{spec.name}': {error}"
        raise ScaffoldError(message, place, hint) from None


def _all_names(pair: Pair) -> set[str]:
    """Return the names of all loads, lines and results, in both directions."""
    programs = filter(None, (pair.forward, pair.backward))
    every = (given for x in programs for given in (x.loads, x.lines, x.results))
    return {item.name for given in every for item in given}


def _refused(spec: OpSpec, pair: Pair, first: str) -> Iterator[tuple[str, str]]:
    """Yield each test for a call the kernels would compute wrongly, and the reason: `("w.shape != x.shape", "w is broadcast")`.

    The wrapper then computes the op with PyTorch. Tests the op makes itself, with an error, are left out.
    """
    # Of the op's own checks those that any call makes in which the input itself is given.
    checks = [x for x in derive(spec).checks if {x.name}.issuperset(x.absent)]
    made = {test for item in checks for test in item.tests}
    shaped = {x.name for x in checks if any(".shape != " in y for y in x.tests)}
    for name, test, said in _tests(spec, pair, first):
        # The op raises for any other shape of an input in `shaped`, before it asks the kernels.
        if name not in shaped and test not in made:
            there = f"{name} is not None and " if name in pair.absent else ""
            yield f"{there}{test}", f"{name} {said}"


def _tests(spec: OpSpec, pair: Pair, first: str) -> Iterator[tuple[str, str, str]]:
    """Yield each input with a test of its shape against that of `first`, the tensor to count rows by, and with what is wrong if it holds."""
    spaces, lead, of = pair.shapes.spaces, [*map(str, pair.shapes.lead)], pair.shapes.of
    width, declared = spaces[first].width, spec.dims(first)
    if width and not lead[0].startswith("*"):
        yield first, f"{first}.ndim != {len(lead) + 1}", "has other dims"
    # `*rows` may be no dim at all; the other leading dims and the columns must be there.
    elif width and len(lead) > 1:
        yield first, f"{first}.ndim < {len(lead)}", "has other dims"
    if of > 1:
        yield first, f"{first}.shape[-1] % {of} != 0", f"has no {of} equal parts"
    for name, space in spaces.items():
        # The row of `first` has all parts; an input of another width is as long as one part.
        dims, parted = spec.dims(name), of > 1 and width != space.width
        # Of a number and `s[1]` PyTorch makes a tensor of one dim, and the kernel one without.
        if dims == (1,) and not width:
            yield first, f"{first}.ndim == 0", "has no dims"
        shape = f"{first}.shape"
        if dims is not None and dims != declared:
            shape = declared_shape(dims, first, lead, of if parted else 1)
        test = f"{name}.shape != {shape}" if dims != () else f"{name}.ndim != 0"
        if name != first:
            yield name, test, "is broadcast"


def _dtype(pair: Pair, first: str) -> Iterator[str]:
    """Yield the lines to compute the outputs' dtypes, promoted from those of their inputs: `dtype = torch.promote_types(x.dtype, y.dtype)`.

    An optional input counts if it is given; under autocast an output of an op computed in float32 is at least float32.
    """
    for name, given in {pair.dtype_of(x): y for x, y in pair.dtypes.items()}.items():
        read, float32 = given
        # Without an input to promote from, it is that of the tensor that gives the rows.
        every = read or [first]
        dtypes = [x if x.startswith("torch.") else f"{x}.dtype" for x in every]
        sure = [x for x in dtypes if x.removesuffix(".dtype") not in pair.absent]
        text = sure[0]
        for other in sure[1:]:
            text = f"torch.promote_types({text}, {other})"
        yield f"{name} = {text}"
        for other in read:
            if other in pair.absent:
                yield f"if {other} is not None:"
                yield f"    {name} = torch.promote_types({name}, {other}.dtype)"
        if float32:
            yield "# Under autocast PyTorch returns float32 here."
            yield f"if torch.is_autocast_enabled({first}.device.type):"
            yield f"    {name} = torch.promote_types({name}, torch.float32)"
