"""The launch of a kernel: a function registered as a PyTorch op, which makes the output tensors and calls the kernel.

In: a `Pair`. Out: a `Kernel`, which the template shows. Invariant: nothing is allocated for a gradient that is not asked for.

Words: an input is *there* if the op gets it as an argument that cannot be None; a result is *saved* if it is for the backward alone;
`own` has the names of the file's variables; the `total` of an op is a mean or sum of everything at its end, which PyTorch computes after
the kernel.
"""

from collections.abc import Iterator

from scaffold.formula.names import fresh
from scaffold.kernels.expressions import Helpers
from scaffold.kernels.kernel_body import KernelBody
from scaffold.kernels.pair import Pair
from scaffold.kernels.row_program import NUMBER, ONE, Result, RowProgram
from scaffold.spec import Dim, OpSpec, is_leading


class Kernel:
    """A kernel, and the op to launch it, as the template shows them.

    `first`: the tensor to count rows by, of all rows; `parts`: the number of parts of its rows; `dtypes`: inputs the backward's op does not
    get, `bias`, and the parameter and argument for the dtype of their gradients. `told`: arguments beside tensors, and what each is;
    `by_sample`: a batch is no more rows, as it sums or repeats some; `shared`: the positions of inputs of which several rows read the same
    numbers; `several`: more than one input is not shared; `by`: how a mean divides its sum, ` / rows`, and `shares` the line that divides
    its gradient so, for the docstring.
    """

    def __init__(
        self, spec: OpSpec, direction: str, pair: Pair, helpers: Helpers
    ) -> None:
        """Write all texts of the kernel of a direction and its op."""
        self.spec, self.own, self.pair, self.total = spec, pair.own, pair, pair.total
        self.body = body = KernelBody(spec, direction, pair, helpers)
        self.width, self.read, self.direction = body.width, body.read, direction
        self.results, self.name = body.program.results, f"{spec.name}_{direction}"
        self.lead_dims = [str(dim) for dim in pair.shapes.lead]
        assert body.lead is not None
        self.first, part = body.lead.source, body.lead.part
        self.parts = part.of if part else 1
        self.last = _last_size(self.first, self.parts)
        self.computed, self.floats = self._computed(), body.floats
        sources = [x.source for x in self.results if not self._is_there(x.source)]
        # Without "", the source of a result that is no gradient: of an output, or a saved number.
        self.dtypes = {x: (f"{x}_dtype", f"{x}.dtype") for x in sources if x}
        for x in self.dtypes.keys() & body.absent.keys():
            self.dtypes[x] = (f"{x}_dtype", f"None if {x} is None else {x}.dtype")
        self.told = [(x.name, x.name) for x in body.attributes]
        self.told += self.dtypes.values()
        given = self._given()
        self.signature = ", ".join(given)
        self.arguments = ", ".join(item.partition(":")[0] for item in given)
        several = ", ".join(["Tensor"] * len(self.results))
        self.returns = f"tuple[{several}]" if len(self.results) > 1 else "Tensor"
        self.parameters, lines = [*body.parameters()], body.lines()
        self.lines = [*_comments(body.program, lines), *lines]
        self.by = f" / {count}" if (count := self._count()) else ""
        singles = filter(body.is_single, self.read)
        self.shares = [f"{x} = {x}{self.by}" for x in singles if self.by]
        self.outputs, self.launch = [*self._outputs()], [*self._launch()]
        self.result = ", ".join(map(self._result, self.results))
        self.fake = ", ".join(map(self._fake, self.results))
        self.shared = [at for at, name in enumerate(self.read) if body.is_shared(name)]
        self.several = len(self.read) - len(self.shared) > 1
        repeats = any(load.repeat for load in body.program.loads)
        self.by_sample = body.summed or self.total is not None or repeats

    def _given(self) -> list[str]:
        """Return the parameters of the op, with types."""
        body = self.body
        given = [f"{x}: Tensor{' | None' * (x in body.may_be_none)}" for x in self.read]
        given += [f"{item.name}: {item.annotation}" for item in body.attributes]
        for source, (name, _) in self.dtypes.items():
            given.append(f"{name}: torch.dtype{' | None' * (source in body.absent)}")
        given += [f"needs_{name}: bool" for name in body.flags]
        if self.direction == "forward":
            # Once each: outputs that share a dtype have one parameter for it.
            names = dict.fromkeys(map(self.pair.dtype_of, self.pair.dtypes))
            given += [f"{name}: torch.dtype" for name in names]
        return given

    # What the kernel is called with.

    def _launch(self) -> Iterator[str]:
        """Yield the arguments of the kernel's call, in the order of its parameters; the op's constants by keyword."""
        body = self.body
        for name in self.read:
            if body.is_single(name):
                yield self._rows_of(name, "each")
            elif body.is_strided(name):
                yield self._rows_of(name)
                yield self._if_there(name, f"{self._rows_of(name)}.stride(0)", "0")
            else:
                # Of these the kernel reads one number of each row, or the same numbers in all rows.
                yield self._if_there(name, f"{name}.contiguous()")
        yield from (item.name for item in self.results)
        yield from body.counts if self.width else [f"{self.first}.numel()"]
        yield from body.given.values()
        yield from (f"{known}={name}" for name, known in body.constants.items())

    def _count(self) -> str | None:
        """Return the expression of how many losses the op's mean divides by; None of a sum, or if there is neither."""
        total = self.total
        if total is None or total.over is None:
            return None
        # The divisor's tensor may be none of this op; `first` has as many rows.
        if total.over.endswith(".shape[0]"):
            return f"{self.first}.shape[0]"
        if total.over:
            return total.over
        # "": the mean of all losses, of which there is one for each number or for each row.
        if not self.width:
            return f"{self.first}.numel()"
        rows = self.own.rows
        return f"({rows} * {self.width})" if self.pair.columns else rows

    def _computed(self) -> str:
        """Return the line `compute_dtype = precision(x, weight)`: the dtype of the kernel, from the floating-point tensors it reads."""
        # A saved statistic has this dtype because the forward computed it so: it decides nothing.
        given = [x for x in self.read if x not in self.pair.statistics]
        real = [x for x in given if self.body.loads(x)[0].kind == "real"]
        return f"{self.own.compute_dtype} = {self.own.precision}({', '.join(real)})"

    def _rows_of(self, source: str, word: str = "rows") -> str:
        """Return the variable for a tensor viewed as rows, `x_rows`, or, with the word "each", for the gradient of one loss of a mean."""
        return fresh(f"{source}_{word}", {*self.body.tensors, *self.own, self.width})

    # What the op makes.

    def _outputs(self) -> Iterator[str]:
        """Yield the lines just before the kernel's call: the tensors to fill, the views as rows."""
        body = self.body
        for item in self.results:
            # The row's size is a variable of the launch by then: `D` for `x.shape[-1]`.
            yield f"{item.name} = {self._allocated(item).replace(self.last, self.width)}"
        for name in self.read:
            if body.is_strided(name):
                rows = self._if_there(name, f"as_rows({name})")
                yield f"{self._rows_of(name)} = {rows}"
            elif body.is_single(name):
                each = self._rows_of(name, "each")
                yield f"{each} = {name}.to({self.own.compute_dtype}){self.by}"

    def _is_total(self, item: Result) -> bool:
        """Return whether a result is a partial sum of the losses, which PyTorch adds up after the kernel."""
        forward = self.direction == "forward" and not item.saved
        return forward and self.total is not None

    def _fake(self, item: Result) -> str:
        """Return the expression of an empty tensor with the shape and dtype the op returns: after sums over programs, unlike `_allocated`."""
        shape, source = self._shape(item), item.source
        if self._is_total(item):
            return self._output(item, "()")
        if self.direction == "forward":
            return self._allocated(item)
        if self._is_there(source):
            shape = f"{source}.shape"
        elif item.repeat is not None:
            shape = self._declared(source)
        elif item.space == NUMBER:
            # A scalar is declared `[]`, or `[1]`.
            shape = str(self.spec.dims(source) or ())
        elif item.summed:
            shape = f"({self.last},)"
        # An unwanted scalar is a scalar all the same: the sum of an empty tensor.
        if item.space != NUMBER:
            shape = self._wanted(item, shape)
        return self._empty(source, shape)

    def _output(self, item: Result, shape: str) -> str:
        """Return the expression of an empty tensor for an output of the op, in its promoted dtype."""
        dtype = self.pair.dtype_of(item.name)
        return f"torch.empty({shape}, dtype={dtype}, device={self.first}.device)"

    def _allocated(self, item: Result) -> str:
        """Return the expression of the tensor the kernel fills: of a sum over rows one row for each program, to be added up after the call."""
        first, own, shape, unwanted = self.first, self.own, self._shape(item), "0"
        source = item.source
        if self._is_total(item):
            shape = own.rows if self.width else own.programs
        elif self.direction == "forward" and not item.saved:
            return self._output(item, shape)
        elif item.summed:
            # As it is summed over dim 0 all the same (`_result`), an unwanted one keeps its dims.
            columns = f" {self.width}" if item.space.has_columns else ""
            shape = f"({own.programs},{columns})"
            unwanted = "(0, 0)" if columns else "(0,)"
        elif self._is_there(source) and item.repeat is None:
            shape = f"{source}.shape"
        shape = self._wanted(item, shape, unwanted)
        # What is still to be summed, or saved for the backward, stays in the kernel's precision.
        if self.direction == "forward" or item.summed or item.repeat is not None:
            return f"{first}.new_empty({shape}, dtype={own.compute_dtype})"
        return self._empty(source, shape)

    def _empty(self, source: str, shape: str) -> str:
        """Return the expression of an empty tensor for the gradient of an input, in its dtype: a parameter if the op does not get the input."""
        if source in self.dtypes:
            return f"{self.first}.new_empty({shape}, dtype={self.dtypes[source][0]})"
        like = source if self._is_there(source) else self.first
        return f"{like}.new_empty({shape})"

    def _is_there(self, source: str) -> bool:
        """Return whether the op gets an input as an argument that cannot be None."""
        return source in self.read and source not in self.body.may_be_none

    def _if_there(self, source: str, text: str, other: str = "None") -> str:
        """Return `text`, an expression of an input; of one that may be None `other if bias is None else text`."""
        if source not in self.body.may_be_none:
            return text
        return f"{other} if {source} is None else {text}"

    def _wanted(self, item: Result, shape: str, unwanted: str = "0") -> str:
        """Return the shape of a result, of one with a flag `x.shape if needs_grad_x else 0`: an empty tensor if it is not asked for."""
        if item.name not in self.body.flags:
            return shape
        return f"{shape} if needs_{item.name} else {unwanted}"

    def _shape(self, item: Result) -> str:
        """Return the expression of a result's shape, with rows, from the shape of `first`: its rows may have another number of parts."""
        first = self.first
        if not self.width:
            return f"{first}.shape"
        if not item.space.has_columns:
            one = item.space.width == ONE
            return f"(*{first}.shape[:-1], 1)" if one else f"{first}.shape[:-1]"
        of = len(item.pieces)
        if of == self.parts:
            return f"{first}.shape"
        times = f"{of} * " if of > 1 else ""
        return f"(*{first}.shape[:-1], {times}{self.last})"

    def _result(self, item: Result) -> str:
        """Return the expression the op returns for a result: the kernel's tensor, or its sum over programs or rows, in the right dtype."""
        if self._is_total(item):
            total = f"{item.name}.sum()"
            found = f"({total}{self.by})" if self.by else total
            return f"{found}.to({self.pair.dtype_of(item.name)})"
        source = item.source
        like = source if self._is_there(source) else self.first
        dtype, _ = self.dtypes.get(source, (f"{like}.dtype", ""))
        if item.repeat is not None and self.direction == "backward":
            viewed = self._wanted(item, self._declared(source, viewed=True))
            shape = self._wanted(item, self._declared(source))
            # `cos[:, None]` is summed with its dim of size 1, and then viewed without it.
            view = f".view({shape})" if shape != viewed else ""
            return f"{item.name}.sum_to_size({viewed}){view}.to({dtype})"
        if not item.summed:
            return item.name
        only = ", keepdim=True" if self.spec.dims(source) == (1,) else ""
        return f"{item.name}.sum(0{only}).to({dtype})"

    def _declared(self, source: str, viewed: bool = False) -> str:
        """Return the expression of the shape of an input without some leading dims, as declared.

        `viewed`: with the dims the formula reads it with, `(B, 1, T, D)` of `cos[:, None]`.
        """
        # An input that is read in parts is as long as `first`, any other as one part of it.
        parts = 1 if source in self.pair.rows else self.parts
        dims = self.spec.dims(source) or ()
        dims = self.pair.views.get(source, dims) if viewed else dims
        return declared_shape(dims, self.first, self.lead_dims, parts)


def _comments(program: RowProgram, lines: list[str]) -> list[str]:
    """Return comments on constants some lines contain: `# 1.4142135623730951 stands for sqrt(2)`."""
    read = [x for x in program.constants if x[0] in " ".join(lines) and "math" in x[1]]
    return [f"# {x} stands for {text.replace('math.', '')}" for x, text in read]


def _last_size(first: str, parts: int) -> str:
    """Return the expression of the size of a row of the tensor `first`, or of each of its parts: `x.shape[-1] // 2`."""
    return f"{first}.shape[-1]" + (f" // {parts}" if parts > 1 else "")


def declared_shape(
    given: tuple[Dim, ...], first: str, lead: list[str], parts: int
) -> str:
    """Return the expression of a shape: of dims T and D with leading dims B and T `(x.shape[-2], x.shape[-1])`.

    `given`: the dims; `first`: the tensor to read sizes from; `lead`: its leading dims; `parts`: the number of parts of its rows.
    """
    width = _last_size(first, parts)
    # Counted from the end, as `*rows` before them may be any number of dims.
    places = {dim: at - len(lead) - 1 for at, dim in enumerate(lead)}
    known = {dim: f"{first}.shape[{at}]" for dim, at in places.items()} | {ONE: ONE}
    rows = f"*{first}.shape[:{-len(lead)}]"
    sizes = [rows if is_leading(x) else known.get(str(x), width) for x in given]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
