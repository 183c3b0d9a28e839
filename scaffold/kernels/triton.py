"""Row programs in Triton: the kernels of an op, and their launches.

In: a `Pair`. Out: `TritonView`, whose lines the template of the file shows. Invariant: each input is read once and each result written
once in a walk over a row; what lies behind the end of a row is 0 where it is read, and has no part in what the row comes to.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from scaffold.derive import grad_name
from scaffold.derive.graph.static_values import UnsupportedError
from scaffold.derive.rules.table import Table
from scaffold.derive.rules.team_tables import table_of
from scaffold.errors import Location, ScaffoldError
from scaffold.formula.names import fresh
from scaffold.kernels.names import FIXED, Own
from scaffold.kernels.pair import PLAIN, Pair, kernel_pair
from scaffold.kernels.row_program import (
    NUMBER,
    ONE,
    Apply,
    Column,
    Load,
    Name,
    Number,
    Part,
    Reduce,
    Repeat,
    Result,
    RowProgram,
    Value,
    Word,
    inner,
)
from scaffold.spec import OpSpec

LONGEST = 84  # of a line in the body of a kernel
# The dtypes that an input of a kind may have; others hold integers.
ALLOWED = {"float": "DTYPES", "bool": "(torch.bool,)"}
NEUTRAL = {"sum": "0.0", "max": 'float("-inf")', "min": 'float("inf")'}
BLANK = ""


class Kernel(NamedTuple):
    """A kernel, and the op to launch it."""

    name: str  # of the op
    kernel: str
    parameters: tuple[str, ...]  # of the kernel
    lines: tuple[str, ...]
    signature: str  # of the op, with types
    arguments: str
    returns: str
    outputs: tuple[str, ...]  # lines that make the tensors which the kernel fills
    grid: str
    launch: tuple[str, ...]  # what the kernel is called with
    result: str
    fake: str
    shared: str  # the positions of inputs that all rows share
    partial: bool  # as many programs as run at once sum their rows
    by_sample: (
        bool  # a batch is no more rows: it sums over rows, or reads rows that repeat
    )


class TritonView(NamedTuple):
    """The template's data for the file."""

    op: str
    namespace: str
    flat: bool
    forward: Kernel
    forward_arguments: tuple[str, ...]
    backward: Kernel | None
    formula: tuple[str, ...]  # of the forward, for the docstring
    gradient: tuple[str, ...]
    inputs: str  # the tensors of the op, with types
    names: str
    first: str  # the one that says how many rows there are
    several: bool  # tensors
    dtypes: tuple[tuple[str, str], ...]  # a tensor, and those that it may have
    refused: tuple[tuple[str, str], ...]  # a test, and what is said where it holds
    dtype: tuple[str, ...]  # lines that give `dtype`, that of the outputs
    extrema: tuple[str, ...]  # those that NaN passes through
    own: Own


# --- Values.


class Printer:
    """Writes the lines of one program."""

    def __init__(
        self, table: Table, program: RowProgram, taken: Iterable[str], own: Own
    ) -> None:
        self.table, self.program, self.own = table, program, own
        self.taken = {*taken, *(line.name for line in program.lines)}
        self.taken |= {load.name for load in program.loads}
        self.values = {line.name: line.value for line in program.lines}
        self.loaded = {load.name: load for load in program.loads}
        self.lines: list[str] = []
        self.folds: set[str] = set()  # extrema that NaN passes through

    def text(self, value: Value) -> str:
        """Return a value as an expression; its steps are written before it."""
        return ast.unparse(self.node(value))

    def node(self, value: Value) -> ast.expr:
        match value:
            case Name(text) | Number(text):
                return _parsed(text)
            case Column():
                return _parsed(self.own.cols)
            case Reduce():
                return self._reduction(value)
            case Apply():
                return self._applied(value)

    def assign(self, name: str, value: Value) -> None:
        """Write a line to name a value."""
        text = self.text(value)
        self.lines.append(f"{name} = {text}")

    def _applied(self, value: Apply) -> ast.expr:
        steps, end, comment = _spelling(self.table, value)
        several = [*steps.values(), end]
        counts = [
            node.id
            for x in several
            for node in ast.walk(x)
            if isinstance(node, ast.Name)
        ]
        known: dict[str, ast.expr] = {}
        for name, item in value.args:
            if isinstance(item, Word):
                continue
            known[name] = self.node(item)
            if counts.count(name) > 1 and not isinstance(item, Name | Number):
                known[name] = self._named(self._word(value), known[name])
        if comment:
            self.lines.append(f"# {comment}")
        for name, step in steps.items():
            filled = _filled(step, known)
            plain = isinstance(filled, ast.Name)
            known[name] = filled if plain else self._named(name, filled)
        return _filled(end, known)

    def _word(self, value: Apply) -> str:
        rule = self.table.rule(value.primitive)
        return rule.facts.argument or "value"

    def _named(self, word: str, node: ast.expr) -> ast.expr:
        name = fresh(word, self.taken)
        self.taken.add(name)
        self.lines.append(f"{name} = {ast.unparse(node)}")
        return _parsed(name)

    def _reduction(self, value: Reduce) -> ast.expr:
        item = self._within(value)
        if value.nan and value.kind == "real":
            self.folds.add(value.fold)
            return _call("reduce", item, "0", f"nan_{value.fold}")
        found = _call(value.fold, item)
        found.keywords.append(ast.keyword("axis", _parsed("0")))
        return found

    def _within(self, value: Reduce) -> ast.expr:
        """Return the reduced value, with a neutral element past the end of the row."""
        inside = value.value
        match inside:
            case Apply(
                "where", ((_, Apply() as test), (_, chosen), (_, Number("0.0")))
            ):
                if value.fold == "sum" and test.space.has_columns:
                    both = _parsed(f"{self.own.mask} & ({self.text(test)})")
                    assert not isinstance(chosen, Word)
                    return _call("where", both, self.node(chosen), "0.0")
        if inside.kind == "bool":
            test_inside = f"{self.own.mask} & ({self.text(inside)})"
            return _call("where", test_inside, "1.0", "0.0")
        if value.fold == "sum" and self._ends_in_zeros(inside):
            return self.node(inside)
        neutral = NEUTRAL[value.fold]
        if value.kind == "int" and value.fold == "min":  # of the number of a column
            neutral = self.program.width
        return _call("where", self.own.mask, self.node(inside), neutral)

    def _ends_in_zeros(self, value: Value) -> bool:
        """Return whether it is surely 0 past the end of a row, as inputs are."""
        match value:
            case Name(text):
                load, line = self.loaded.get(text), self.values.get(text)
                if load is not None:
                    return load.space.has_columns and not load.single
                return line is not None and self._ends_in_zeros(line)
            case Apply("mul"):
                one, two = inner(value)
                return any(
                    self._ends_in_zeros(a) and self._ends_finite(b)
                    for a, b in ((one, two), (two, one))
                )
            case Apply("neg" | "square" | "abs" | "add" | "sub"):
                return all(map(self._ends_in_zeros, inner(value)))
        return False

    def _ends_finite(self, value: Value) -> bool:
        """Return whether it is surely finite there: 0 times infinity is NaN."""
        match value:
            case Number():
                return True
            case Name(text) if text in self.values:
                return self._ends_finite(self.values[text])
            case Apply("mul" | "add" | "sub" | "neg" | "square" | "abs"):
                return all(map(self._ends_finite, inner(value)))
        return self._ends_in_zeros(value)


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _call(function: str, *args: ast.expr | str) -> ast.Call:
    given = [_parsed(item) if isinstance(item, str) else item for item in args]
    return ast.Call(_parsed(f"tl.{function}"), given, [])


def _filled(node: ast.expr, known: Mapping[str, ast.expr]) -> ast.expr:
    """Return the expression of a spelling with its names replaced."""

    class Filling(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return known.get(node.id, node)

    copy = _parsed(ast.unparse(node))
    found: ast.expr = Filling().visit(copy)
    return found


def _spelling(table: Table, value: Apply) -> tuple[dict[str, ast.expr], ast.expr, str]:
    """Return the steps, the value and the comment of a primitive's spelling, for the literals of the call."""
    rule = table.rule(value.primitive)
    code, _, comment = rule.triton.strip().partition("  # ")
    *lines, last = ast.parse(code).body
    assert isinstance(last, ast.Expr)
    end = _chosen(last.value, value)
    if isinstance(end, ast.Constant) and end.value is None:
        raise UnsupportedError(f"{rule.name} with these arguments has no spelling")
    steps: dict[str, ast.expr] = {}
    read = _names(end)
    for line in reversed(lines):
        assert isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name)
        name = line.targets[0].id
        if name in read:
            steps[name] = _chosen(line.value, value)
            read |= _names(steps[name])
    found = dict(reversed(steps.items()))
    return found, end, comment if found or not lines else ""


def _names(node: ast.expr) -> set[str]:
    return {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}


def _chosen(node: ast.expr, value: Apply) -> ast.expr:
    """Return the branch of a choice by the literals of a call."""
    while isinstance(node, ast.IfExp):
        node = node.body if _holds(node.test, value) else node.orelse
    return node


def _holds(test: ast.expr, value: Apply) -> bool:
    """Return whether `exponent == 2` or `exponent % 2 != 0` surely holds for the literals of the call."""
    assert isinstance(test, ast.Compare)
    left, divisor = test.left, None
    if isinstance(test.left, ast.BinOp):
        left, divisor = test.left.left, ast.literal_eval(test.left.right)
    assert isinstance(left, ast.Name)
    wanted = ast.literal_eval(test.comparators[0])
    match dict(value.args)[left.id]:
        case Word(known):
            pass
        case Number(text):
            try:
                known = ast.literal_eval(text)
            except ValueError:
                return False
        case _:
            return False
    rest = known % divisor if divisor and isinstance(known, int | float) else known
    return bool(rest == wanted) is isinstance(test.ops[0], ast.Eq)


# --- Kernels.


class Writer:
    """Writes one program as a kernel and an op."""

    def __init__(
        self,
        spec: OpSpec,
        program: RowProgram,
        direction: str,
        tensors: Iterable[str],
        pair: Pair,
    ) -> None:
        own, self.total, lead = pair.own, pair.total, pair.shapes.lead
        self.own = own
        self.parted = pair.rows
        self.columns = pair.columns  # whether each number of a row is a loss
        self.spec, self.program, self.direction = spec, program, direction
        self.width = program.width
        self.tensors = tensors = tuple(tensors)  # those that it may read
        self.read = [name for name in tensors if self._loads(name)]
        self.summed = any(item.summed for item in program.results)
        named = {*tensors, *(item.name for item in spec.inputs), self.width}
        self.begun: list[str] = []  # names of the places where rows begin
        self.printer = Printer(table_of(spec), program, FIXED | {*own} | named, own)
        loads = sorted(program.loads, key=lambda x: tensors.index(x.source))
        self.program = program = program._replace(loads=tuple(loads))
        packed = [x for x in loads if x.part is not None and x.source in tensors]
        self.lead_dims = [str(dim) for dim in lead]
        self.lead = next(
            (
                x
                for x in [*packed, *loads]
                if x.space.rows and (x.space.has_columns or not self.width)
                if x.repeat is None and not x.single
            ),
            None,
        )
        if self.lead is None or not program.results:
            raise UnsupportedError("it reads no row")
        for item in program.results:
            if not (item.space.rows or item.summed):
                raise UnsupportedError(f"{item.name} is no row")

    @property
    def _sizes(self) -> list[str]:
        """Return the sizes of leading dims that the kernel asks for."""
        repeats = [load.repeat for load in self.program.loads if load.repeat]
        every = (size for item in repeats for size in _asked(item))
        return [size for size in dict.fromkeys(every) if size.isidentifier()]

    def _loads(self, source: str) -> list[Load]:
        return [load for load in self.program.loads if load.source == source]

    def kernel(self) -> Kernel:
        """Return the kernel and its op."""
        attributes = [x for x in self.spec.attributes if x.name in self.program.numbers]
        for item in attributes:
            if item.annotation not in PLAIN:
                raise UnsupportedError(f"'{item.name}' is {item.annotation}")
        given = [f"{name}: Tensor" for name in self.read]
        given += [f"{item.name}: {item.annotation}" for item in attributes]
        names = [*self.read, *(item.name for item in attributes)]
        if self.direction == "forward":
            given.append(f"{self.own.dtype}: torch.dtype")
            names.append(self.own.dtype)
        lines = self._lines()  # first: it says which extrema there are
        count = len(self.program.results)
        results = [self._result(item) for item in self.program.results]
        shared = [str(at) for at, name in enumerate(self.read) if self._is_shared(name)]
        return Kernel(
            name=f"{self.spec.name}_{self.direction}",
            kernel=f"{self.direction}_kernel",
            parameters=tuple(self._parameters([item.name for item in attributes])),
            lines=tuple(lines),
            signature=", ".join(given),
            arguments=", ".join(names),
            returns=(
                "Tensor" if count == 1 else f"tuple[{', '.join(['Tensor'] * count)}]"
            ),
            outputs=tuple(self._outputs()),
            grid=self._grid(),
            launch=tuple(self._launch([item.name for item in attributes])),
            result=", ".join(results),
            fake=", ".join(self._fake(item) for item in self.program.results),
            shared=f"{{{', '.join(shared)}}}" if shared else "()",
            by_sample=self.summed
            or self.total is not None
            or any(x.repeat for x in self.program.loads),
            partial=self.summed and bool(self.width),
        )

    def _is_shared(self, source: str) -> bool:
        loads = self._loads(source)
        whole = [x for x in loads if x.space.rows and not (x.repeat or x.single)]
        return not whole

    # What the kernel is called with.

    def _parameters(self, attributes: list[str]) -> Iterator[str]:
        for name in self.read:
            yield f"{name}_ptr"
            if self._is_strided(name):
                yield f"{name}_stride"
        yield from (f"{item.name}_ptr" for item in self.program.results)
        if not self.width:
            yield self.own.size
        else:
            yield from (self.own.rows, self.width) if self.summed else (self.width,)
        yield from self._sizes
        yield from (f"{name}: tl.constexpr" for name in attributes)
        yield f"{self.own.DTYPE}: tl.constexpr"
        yield f"{self.own.BLOCK}: tl.constexpr"

    def _is_strided(self, source: str) -> bool:
        return any(x.space.is_row and not x.single for x in self._loads(source))

    def _is_single(self, source: str) -> bool:
        return any(load.single for load in self._loads(source))

    def _each_of(self, source: str) -> str:
        """Return the name for the gradient of each loss."""
        return fresh(f"{source}_each", {*self.tensors, *self.own, self.width})

    def _count(self) -> str | None:
        """Return the divisor of the total as code; None of a sum."""
        total = self.total
        if total is None or total.over is None:
            return None
        if total.over.isidentifier() or not total.over:
            if not self.width:
                return f"{self._first}.numel()"
            return (
                f"({self.own.rows} * {self.width})" if self.columns else self.own.rows
            )
        if total.over.endswith(".shape[0]"):
            return f"{self._first}.shape[0]"
        return total.over

    def _launch(self, attributes: list[str]) -> Iterator[str]:
        for name in self.read:
            if self._is_single(name):
                yield self._each_of(name)
            elif self._is_strided(name):
                yield self._rows_of(name)
                yield f"{self._rows_of(name)}.stride(0)"
            else:
                yield f"{name}.contiguous()"
        yield from (item.name for item in self.program.results)
        if not self.width:
            yield f"{self._first}.numel()"
        else:
            yield from (self.own.rows, self.width) if self.summed else (self.width,)
        yield from self._sizes
        yield from attributes
        yield f"{self.own.DTYPE}=PRECISION[{self._precision()}]"
        size = self.width or f"{self._first}.numel()"
        yield f"**{self.own.blocks}({size})"

    def _precision(self) -> str:
        """Return the dtype the kernel computes in."""
        return f"{self.own.precision}({', '.join(self._real())})"

    def _rows_of(self, source: str) -> str:
        """Return the name for an input as rows."""
        return fresh(f"{source}_rows", {*self.tensors, *self.own, self.width})

    @property
    def _first(self) -> str:
        assert self.lead is not None
        return self.lead.source

    def _real(self) -> list[str]:
        return [x for x in self.read if self._loads(x)[0].kind == "real"]

    def _grid(self) -> str:
        if not self.width and not self.summed:
            return f"(triton.cdiv({self._first}.numel(), ELEMENTS),)"
        return f"({self.own.programs if self.summed else self.own.rows},)"

    # What the op makes.

    def _outputs(self) -> Iterator[str]:
        first = self._first
        if self.width:
            parts = self.lead.part.of if self.lead and self.lead.part else 1
            yield f"{self.width} = {first}.shape[-1]" + (
                f" // {parts}" if parts > 1 else ""
            )
            whole = f"{first}.shape[-1]" if parts > 1 else self.width
            yield f"{self.own.rows} = {first}.numel() // {whole}"
        for size in self._sizes:
            at = self.lead_dims.index(size) - len(self.lead_dims) - 1
            yield f"{size} = {first}.shape[{at}]"
        if self.summed:
            given = f"{self.own.rows}, {first}.device"
            made = f"programs_of({given})"
            if not self.width:
                made = f"triton.cdiv({first}.numel(), ELEMENTS)"
            yield f"{self.own.programs} = {made}"
        for item in self.program.results:
            if item.summed:
                width = f" {self.width}" if item.space.has_columns else ""
                shape = f"{self.own.programs},{width}"
                given = f"({shape}), dtype={self._precision()}"
                yield f"{item.name} = {first}.new_empty({given})"
            else:
                yield f"{item.name} = {self._made(item)}"
        for name in self.read:
            if self._is_strided(name):
                yield f"{self._rows_of(name)} = as_rows({name})"
            elif self._is_single(name):
                count = self._count()
                by = f" / {count}" if count else ""
                yield f"{self._each_of(name)} = {name}.to({self._precision()}){by}"

    def _fake(self, item: Result) -> str:
        """Return an empty tensor like a result of the op."""
        first = self._first
        if self.direction == "forward" and self.total is not None:
            return f"torch.empty((), dtype={self.own.dtype}, device={first}.device)"
        source = item.dtypes[0] if item.dtypes else ""
        if self.direction == "backward" and source not in self.read:
            if item.repeat is not None:
                return f"{first}.new_empty({self._declared(source, first)})"
            if item.space == NUMBER:
                return f"{first}.new_empty({self.spec.dims(source) or ()})"
        return self._made(item._replace(repeat=None))

    def _made(self, item: Result) -> str:
        """Return an empty tensor for what the kernel computes."""
        first = self._first
        if self.direction == "forward" and self.total is not None:
            return f"{first}.new_empty({self.own.rows}, dtype={self._precision()})"
        if self.direction == "backward":
            source = item.dtypes[0]
            if item.repeat is not None:
                given = f"{self._shape(item)}, dtype={self._precision()}"
                return f"{first}.new_empty({given})"
            if source in self.read:
                return f"{source}.new_empty({source}.shape)"
            shape = f"({first}.shape[-1],)" if item.summed else self._shape(item)
            return f"{first}.new_empty({shape})"
        given = f"dtype={self.own.dtype}, device={first}.device"
        return f"torch.empty({self._shape(item)}, {given})"

    def _shape(self, item: Result) -> str:
        """Return the shape of a result with rows."""
        first = self._first
        if not self.width:
            return f"{first}.shape"
        if not item.space.has_columns:
            last = ", 1" if item.space.width else ""
            return f"(*{first}.shape[:-1]{last})" if last else f"{first}.shape[:-1]"
        of = len(item.pieces)
        parts = self.lead.part.of if self.lead and self.lead.part else 1
        if of == parts:
            return f"{first}.shape"
        times = f"{of} * " if of > 1 else ""
        by = f" // {parts}" if parts > 1 else ""
        return f"(*{first}.shape[:-1], {times}{first}.shape[-1]{by})"

    def _result(self, item: Result) -> str:
        if self.direction == "forward" and self.total is not None:
            count = self._count()
            found = f"{item.name}.sum()" + (f" / {count}" if count else "")
            found = f"({found})" if count else found
            return f"{found}.to({self.own.dtype})"
        source = item.dtypes[0] if item.dtypes else ""
        like = source if source in self.read else self._first
        if item.repeat is not None and self.direction == "backward":
            shape = self._declared(source, self._first)
            return f"{item.name}.sum_to_size({shape}).to({like}.dtype)"
        if not item.summed:
            return item.name
        only = ", keepdim=True" if self.spec.dims(source) == (1,) else ""
        return f"{item.name}.sum(0{only}).to({like}.dtype)"

    def _declared(self, source: str, first: str) -> str:
        """Return the declared shape of an input that lacks leading dims, as code."""
        parts = self.lead.part.of if self.lead and self.lead.part else 1
        parts = 1 if source in self.parted else parts
        return declared_shape(self.spec, source, first, self.lead_dims, parts)

    # The body of the kernel.

    def _lines(self) -> list[str]:
        own = self.own
        block = f"tl.arange(0, {own.BLOCK})"
        if not self.width:
            at = f"tl.program_id(0).to(tl.int64) * {own.BLOCK} + {block}"
            inside = f"{own.mask} = {own.offsets} < {own.size}"
            start = [f"{own.offsets} = {at}", inside]
            return [*start, *self._row(lambda rows: True), *self._stores()]
        columns = [f"{own.cols} = {block}", f"{own.mask} = {own.cols} < {self.width}"]
        if not self.summed:
            row = f"{own.row} = tl.program_id(0).to(tl.int64)"
            return [row, *columns, *self._row(lambda rows: True), *self._stores()]
        before = self._row(lambda rows: not rows)
        sums = [item for item in self.program.results if item.summed]
        walk = f"range({own.program}, {own.rows}, tl.num_programs(0))"
        return [
            f"{own.program} = tl.program_id(0).to(tl.int64)",
            *columns,
            *before,
            *(
                f"{item.name} = tl.zeros(({own.BLOCK},), dtype={own.DTYPE})"
                for item in sums
            ),
            f"for {own.row} in {walk}:",
            *(
                f"    {x}" if x else x
                for x in [*self._row(lambda rows: rows), *self._stores()]
            ),
            *map(self._store_sum, sums),
        ]

    def _store_sum(self, item: Result) -> str:
        own = self.own
        if not item.space.has_columns:
            total = f"tl.sum(tl.where({own.mask}, {item.name}, 0.0), axis=0)"
            return f"tl.store({item.name}_ptr + {own.program}, {total})"
        at = f"{item.name}_ptr + {own.program} * {self.width} + {own.cols}"
        return f"tl.store({at}, {item.name}, mask={own.mask})"

    def _row(self, wanted: Callable[[bool], bool]) -> list[str]:
        """Return the lines to read and compute the values over rows, or the others."""
        every = self.program.loads
        read = [x for x in every if wanted(x.space.rows and not x.single)]
        loads = [line for x in read for line in self._load(x)]
        self.printer.lines = []
        for line in self.program.lines:
            if wanted(line.value.space.rows):
                self.printer.assign(line.name, line.value)
        computed = self.printer.lines
        return [*loads, *([BLANK] if loads and computed else []), *computed]

    def _load(self, load: Load) -> Iterator[str]:
        """Yield the line to read an input; if it is long, its row's start has a line of its own."""
        space, pointer = load.space, f"{load.source}_ptr"
        cast = f".to({self.own.DTYPE})" if load.kind == "real" else ""
        other = {"real": "0.0", "int": "0", "bool": "False"}[load.kind]
        masked = f", mask={self.own.mask}, other={other}"
        if load.single:
            yield f"{load.name} = tl.load({pointer}){cast}"
        elif not self.width and space.rows:
            yield f"{load.name} = tl.load({pointer} + {self.own.offsets}{masked}){cast}"
        elif not space.has_columns:
            at = f"{pointer} + {self._row_of(load)}" if space.rows else pointer
            yield f"{load.name} = tl.load({at}){cast}"
        else:
            row = f"{self._row_of(load)} * {load.source}_stride"
            start = f"{pointer} + {row}" if space.rows else pointer
            columns = self._columns(load.part)
            line = f"{load.name} = tl.load({start} + {columns}{masked}){cast}"
            several = len(self._loads(load.source)) > 1
            long = len(line) > LONGEST - 4 * self.summed
            if space.rows and (long or several):
                begin = self._begin(load.source)
                if begin not in self.begun:
                    self.begun.append(begin)
                    yield f"{begin} = {start}"
                line = f"{load.name} = tl.load({begin} + {columns}{masked}){cast}"
            yield line

    def _row_of(self, load: Load) -> str:
        """Return which row of an input is read."""
        row, repeat = self.own.row, load.repeat
        if repeat is None:
            return row
        times, count = (" * ".join(x) for x in (repeat.times, repeat.every))
        if repeat.times:
            row += f" // ({times})" if len(repeat.times) > 1 else f" // {times}"
        if repeat.again:
            row += f" % ({count})" if len(repeat.every) > 1 else f" % {count}"
        return f"({row})"

    def _begin(self, source: str) -> str:
        """Return the name for the start of an input's row."""
        taken = self.printer.taken - {*self.begun}
        return fresh(f"{source}_row", taken)

    def _columns(self, part: Part | None) -> str:
        cols = self.own.cols
        if part is None:
            return cols
        if part.interleaved:
            return f"{part.of} * {cols}" + (f" + {part.at}" if part.at else "")
        times = f"{part.at} * " if part.at > 1 else ""
        return f"{times}{self.width} + {cols}" if part.at else cols

    def _stores(self) -> list[str]:
        self.printer.lines = []
        lines = self.printer.lines
        for item in self.program.results:
            for part, value in item.pieces:
                text = self.printer.text(value)
                if item.summed:
                    lines.append(self._added(item, value, text))
                    continue
                lines.append(self._store(item, part, text))
        return lines

    def _added(self, item: Result, value: Value, text: str) -> str:
        """Return the line to add a row to a sum over rows."""
        own = self.own
        if not self.width:
            total = f"tl.sum(tl.where({own.mask}, {text}, 0.0), axis=0)"
            return f"tl.store({item.name}_ptr + tl.program_id(0), {total})"
        if not value.space.has_columns:  # once, not for each column
            text = f"tl.where({own.cols} == 0, {text}, 0.0)"
        return f"{item.name} += {text}"

    def _store(self, item: Result, part: Part | None, text: str) -> str:
        name, own = f"{item.name}_ptr", self.own
        masked = f"{text}, mask={own.mask}"
        if not self.width:
            return f"tl.store({name} + {own.offsets}, {masked})"
        if not item.space.has_columns:
            return f"tl.store({name} + {own.row}, {text})"
        of = len(item.pieces)
        length = f"({of} * {self.width})" if of > 1 else self.width
        start = f"{name} + {own.row} * {length}"
        return f"tl.store({start} + {self._columns(part)}, {masked})"


def _asked(repeat: Repeat) -> tuple[str, ...]:
    return (*repeat.times, *(repeat.every if repeat.again else ()))


def declared_shape(
    spec: OpSpec, name: str, first: str, lead: list[str], parts: int
) -> str:
    """Return the shape of an input with few of the leading dims, as code."""
    *dims, last = map(str, spec.dims(name) or ())
    sizes = [
        f"{first}.shape[{lead.index(dim) - len(lead) - 1}]" if dim in lead else dim
        for dim in dims
    ]
    by = f" // {parts}" if parts > 1 else ""
    sizes.append(last if last == ONE else f"{first}.shape[-1]{by}")
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


# --- The file.


def triton_kernels(spec: OpSpec, place: Location) -> tuple[Pair, TritonView]:
    """Return the kernels of an op; ScaffoldError if there can be none."""
    try:
        pair = kernel_pair(spec)
        return pair, triton_view(spec, pair)
    except UnsupportedError as error:
        hint = "leave 'kernels' out, or wrap a kernel of yours: --import"
        message = f"no kernel can be written of '{spec.name}': {error}"
        raise ScaffoldError(message, place, hint) from None


def triton_view(spec: OpSpec, pair: Pair) -> TritonView:
    """The template's data for the file."""
    every = [item.name for item in spec.tensors]
    forward = Writer(spec, pair.forward, "forward", every, pair)
    writers, backward = [forward], None
    forward_kernel = forward.kernel()
    if pair.backward is not None:
        grads = [grad_name(spec, item.name) for item in spec.outputs]
        saved = [load.source for load in pair.backward.loads]
        read = dict.fromkeys((*grads, *saved))
        writers.append(Writer(spec, pair.backward, "backward", read, pair))
        backward = writers[-1].kernel()
    folds = {fold for writer in writers for fold in writer.printer.folds}
    first = forward.lead.source if forward.lead else ""
    return TritonView(
        op=spec.name,
        namespace=spec.namespace,
        flat=not pair.forward.width,
        forward=forward_kernel,
        forward_arguments=tuple(forward_kernel.arguments.split(", ")[:-1]),
        backward=backward,
        formula=pair.formula,
        gradient=pair.gradient,
        inputs=", ".join(f"{name}: Tensor" for name in every),
        names=", ".join(every),
        several=len(every) > 1,
        dtypes=tuple(
            (item.name, ALLOWED.get(item.dtype, "INDICES")) for item in spec.tensors
        ),
        first=first,
        refused=tuple(_refused(spec, pair, first)),
        dtype=tuple(_dtype(pair.forward, first, pair.own.dtype)),
        extrema=tuple(sorted(folds)),
        own=pair.own,
    )


def _refused(spec: OpSpec, pair: Pair, first: str) -> Iterator[tuple[str, str]]:
    """Yield each test for unsupported shapes, and the reason to report."""
    spaces, lead, of = pair.shapes.spaces, pair.shapes.lead, pair.shapes.of
    width = spaces[first].width
    if width and not str(lead[0]).startswith("*"):
        yield f"{first}.ndim != {len(lead) + 1}", f"{first} has other dims"
    elif width and len(lead) > 1:
        yield f"{first}.ndim < {len(lead)}", f"{first} has other dims"
    if of > 1:
        yield f"{first}.shape[-1] % {of}", f"a row of {first} has no {of} equal parts"
    for name, space in spaces.items():
        if name == first:
            continue
        shape = f"{first}.shape"
        if name in pair.shapes.repeats:
            parts = of if space.is_row and spaces[first] != space else 1
            shape = declared_shape(spec, name, first, [*map(str, lead)], parts)
        elif space == NUMBER:
            shape = "()" if spec.dims(name) == () else "(1,)"
            if not width and shape == "(1,)":
                yield f"{first}.ndim == 0", f"{first} has no dims"
        elif of > 1 and space.is_row and spaces[first] != space:
            shape = f"(*{first}.shape[:-1], {first}.shape[-1] // {of})"
        elif not space.rows:
            shape = f"{first}.shape[-1:]" if space.has_columns else "(1,)"
        elif space.rows and not space.has_columns and width:
            ending = ", 1)" if space.width else ""
            shape = f"(*{first}.shape[:-1]{ending}" if ending else f"{first}.shape[:-1]"
        yield f"{name}.shape != {shape}", f"{name} is broadcast"


def _dtype(program: RowProgram, first: str, name: str) -> Iterator[str]:
    """Yield the lines to compute the dtype of the outputs."""
    read = list(dict.fromkeys(x for item in program.results for x in item.dtypes))
    given = [x if x.startswith("torch.") else f"{x}.dtype" for x in read or [first]]
    text = given[0]
    for other in given[1:]:
        text = f"torch.promote_types({text}, {other})"
    yield f"{name} = {text}"
    if any(item.float32 for item in program.results):
        yield f"if torch.is_autocast_enabled({first}.device.type):"
        yield f"    {name} = torch.promote_types({name}, torch.float32)"
