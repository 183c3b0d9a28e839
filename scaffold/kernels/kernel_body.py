"""The kernel of a row program in Triton: its parameters, and the lines between `def` and the end.

In: a `RowProgram`, and the names of an op. Out: text. Invariant: each input is read once and each result written once in a walk over a
row; what only one of several gradients needs is computed if that one is asked for.

Words: a result is *summed* if it is a sum over all rows; a *flag* is the constant that asks for one of several gradients; the *sole*
reader of a load or line is the one gradient that needs it; a load is *single* if it is one number for all rows, *gathered* if it is read
at one column; a row is *kept* if the condition of the op selects it; *own* names are those of the kernels' file.
"""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator

from scaffold.derive import grad_name
from scaffold.derive.graph.static_values import UnsupportedError
from scaffold.formula.names import fresh
from scaffold.kernels.expressions import LONGEST, Helpers, Printer, selected
from scaffold.kernels.pair import PLAIN, Pair
from scaffold.kernels.row_program import (
    NUMBER,
    Gather,
    Line,
    Load,
    Name,
    Part,
    Result,
    RowProgram,
    Value,
    names_in,
)
from scaffold.kernels.written_out import Total
from scaffold.spec import OpSpec


class KernelBody:
    """One row program as a Triton kernel: `parameters` and `lines` give its text, the rest tells `Launch` how to call it.

    `tensors`: what the kernel may read, in order of its parameters; `direction`: "forward" or "backward". A result of several in a backward has
    a flag, `NEEDS_GRAD_X`, a constant of the kernel.
    """

    def __init__(
        self, spec: OpSpec, direction: str, pair: Pair, helpers: Helpers
    ) -> None:
        """Prepare the kernel of a direction, or raise UnsupportedError."""
        self.own, self.absent, self.direction = pair.own, pair.absent, direction
        program = pair.forward
        tensors = [item.name for item in spec.tensors]
        if direction == "backward" and pair.backward is not None:
            program = pair.backward
            grads = (grad_name(spec, item.name) for item in spec.outputs)
            read = (load.source for load in program.loads)
            # The incoming gradients come first among its parameters.
            tensors = [*dict.fromkeys((*grads, *read))]
        self.width, self.tensors = program.width, tensors
        loads = sorted(program.loads, key=lambda x: tensors.index(x.source))
        self.program = program = program._replace(loads=tuple(loads))
        self.read = [name for name in tensors if self.loads(name)]
        self.summed = any(item.summed for item in program.results)
        self.flags = _flags(program) if direction == "backward" else {}
        self.begun: list[str] = []  # names of the places where rows begin
        self.printer = printer = Printer(spec, program, pair, helpers, self._address)
        numbers, every = printer.numbers, printer.every
        self.attributes = [x for x in spec.attributes if x.name in numbers]
        # A float argument arrives as float32. One in arithmetic (`2 * alpha`) is a constant instead, and computed in double precision.
        self.floats = [x for x in printer.floats if x in numbers - printer.computed]
        fixed = [x.name for x in self.attributes if x.name not in self.floats]
        self.constants = {x: fresh(x.upper(), printer.taken - {x}) for x in fixed}
        printer.constants = {x: ast.Name(y) for x, y in self.constants.items()}
        # The argument for each parameter: float32 would spoil `1 - alpha` for an alpha near 1.
        # (An argument read in `1 - alpha` alone has a parameter for that, but none of its own.)
        self.given = {name: name for name in self.floats if name in printer.texts}
        self.given |= {name: text for text, name in printer.complements.items()}
        # Names read at all columns, and loads read at one column: a load only gathered from needs no line.
        self.whole = {x.text for x in every if isinstance(x, Name)}
        self.gathered = {x.load for x in every if isinstance(x, Gather)}
        # The first load of a row that all rows read, as of `weight`: it has a comment if it stands in a loop.
        self.weight = next((x for x in loads if x.space == (False, self.width)), None)
        self._find_readers(spec, pair.total)
        # The lines of the condition of the kept rows; none of a program without one, whose `kept` is "".
        self.tests = self._reached(Name(program.kept, NUMBER)) - {""}
        self._refuse()

    def _has_all_rows(self, load: Load) -> bool:
        """Return whether a load's tensor has all rows of the op, so the launch can count them by its shape: not if it may be None."""
        known = load.space.is_row or load.space.rows and not self.width
        optional = load.source in self.absent
        return known and load.repeat is None and not (load.single or optional)

    def _find_readers(self, spec: OpSpec, total: Total | None) -> None:
        """Note what one gradient alone needs: its loads and lines stand under its flag, and an input that only it reads may be None.

        `lead` is the tensor to count rows by, if possible one of several parts: only it tells the size of a part.
        """
        needed = [(x, y) for x in self.program.results for y in self._needed(x)]
        often = Counter(name for _, name in needed)
        self.sole = {y: x for x, y in needed if self.flags and often[y] == 1}
        able = filter(self._has_all_rows, self.program.loads)
        # Last those that one gradient alone reads: as that may make them None, they tell no shape.
        first = sorted(able, key=lambda x: (x.part is None, x.name in self.sole))
        self.lead = next(iter(first), None)
        # The count that a mean divides by reads these whatever gradient is asked for.
        always = total.read if total else set()
        names = {item.name for item in spec.tensors} - {*self.absent, *always}
        self.sole_readers = {x: y for x in names if (y := self._sole_reader(x))}
        self.may_be_none = {*self.absent, *self.sole_readers}

    def _sole_reader(self, source: str) -> Result | None:
        """Return the one gradient that reads the rows of an input; None if there are several, or if it tells how many rows there are."""
        rows = [x for x in self.loads(source) if x.space.rows and not x.single]
        # Of a load that several gradients need it has None.
        readers = {self.sole.get(x.name) for x in rows}
        return readers.pop() if len(readers) == 1 and self.lead not in rows else None

    def _needed(self, item: Result) -> set[str]:
        """Return the names of all loads and lines that a result needs."""
        return set[str]().union(*(self._reached(value) for _, value in item.pieces))

    def _refuse(self) -> None:
        """Raise UnsupportedError for a program without a tensor to count rows by, a result that is no row, or an attribute no registered op takes."""
        if self.lead is None or not self.program.results:
            raise UnsupportedError(f"its {self.direction} reads no row of an input")
        for item in self.program.results:
            if not (item.space.rows or item.summed):
                raise UnsupportedError(f"{item.name} is not a row")
        for attribute in self.attributes:
            if attribute.annotation not in PLAIN:
                raise UnsupportedError(f"'{attribute.name}' is {attribute.annotation}")

    # What it is called with.

    def loads(self, source: str) -> list[Load]:
        """Return the loads from a tensor: one for each part of its rows, none if the kernel does not read it."""
        return [load for load in self.program.loads if load.source == source]

    def is_strided(self, source: str) -> bool:
        """Return whether the kernel reads a tensor row by row, and so needs the stride between rows."""
        return any(x.space.is_row and not x.single for x in self.loads(source))

    def is_single(self, source: str) -> bool:
        """Return whether a tensor is one number for all rows: the gradient of a mean or sum of the losses."""
        return any(load.single for load in self.loads(source))

    def is_shared(self, source: str) -> bool:
        """Return whether several rows read the same numbers of a tensor, as all do of `weight[D]`."""
        loads = self.loads(source)
        return not any(x.space.rows and not (x.repeat or x.single) for x in loads)

    @property
    def sizes(self) -> list[str]:
        """Return the sizes of leading dims among the kernel's parameters: those needed to find the row of an input without some dims."""
        repeats = [load.repeat for load in self.program.loads if load.repeat]
        # `every` is needed only if rows begin again; the sizes of `within` are among `times`.
        every = [y for x in repeats for y in x.times + (x.every if x.again else ())]
        # A size declared as a number, 4, is written into the kernel.
        return [size for size in dict.fromkeys(every) if size.isidentifier()]

    @property
    def counts(self) -> list[str]:
        """Return the parameters for how much there is to compute: `rows`, the row's size and sizes of leading dims; `size` of an elementwise op."""
        rows = [self.own.rows, self.width, *self.sizes]
        return rows if self.width else [self.own.size]

    def parameters(self) -> Iterator[str]:
        """Yield the parameters of the kernel in order: pointers with strides, results, counts, floats, and constants for the compiler."""
        for name in self.read:
            yield f"{name}_ptr"
            if self.is_strided(name):
                yield f"{name}_stride"
        yield from (f"{item.name}_ptr" for item in self.program.results)
        yield from (*self.counts, *self.given)
        fixed = [*self.constants.values(), *self.flags.values(), self.own.DTYPE]
        fixed += [self.own.ROWS] if self.width else []
        yield from (f"{name}: tl.constexpr" for name in (*fixed, self.own.BLOCK))

    # Its lines.

    def lines(self) -> list[str]:
        """Return the lines of the kernel; one program computes a block of rows, or, with a result summed over rows, walks over many blocks.

        In the walk, inputs without rows (`weight`) are loaded for each block: held in registers beside the sums, long rows would spill more.
        Each program stores its sums after it.
        """
        own = self.own
        block, pid = f"tl.arange(0, {own.BLOCK})", "tl.program_id(0).to(tl.int64)"
        if not self.width:
            at = f"{pid} * {own.BLOCK} + {block}"
            inside = f"{own.mask} = {own.offsets} < {own.size}"
            return [f"{own.offsets} = {at}", inside, *self._row()]
        columns, several = f"{own.cols} = {block}[None, :]", f"* {own.ROWS}"
        start = own.start if self.summed else f"{pid} {several}"
        row = f"{own.row} = {start} + tl.arange(0, {own.ROWS})[:, None]"
        inside = f"{own.mask} = ({own.row} < {own.rows}) & ({own.cols} < {self.width})"
        if not self.summed:
            return [row, columns, inside, *self._row()]
        sums = [item for item in self.program.results if item.summed]
        zeros = f"tl.zeros(({own.ROWS}, {own.BLOCK}), dtype={own.DTYPE})"
        walk = f"{own.program} {several}, {own.rows}, tl.num_programs(0) {several}"
        return [
            f"{own.program} = {pid}",
            columns,
            *(f"{item.name} = {zeros}" for item in sums),
            f"for {own.start} in range({walk}):",
            *_indented([row, inside, *self._row()]),
            *(line for x in sums for line in self._asked_for(x, self._store_sum(x))),
        ]

    def _read(self) -> list[str]:
        """Return the lines to load values, and to compute those lines of the program no single result has to itself."""
        read = [x for x in self.program.loads if x.name not in self.sole]
        # Masked by the condition of the kept rows, which must be computed before.
        late = [x for x in read if self._is_masked(x)]
        loads = self._loads_of(x for x in read if x not in late)
        lines = self.program.lines
        loads += self._assigned(x for x in lines if x.name in self.tests)
        loads += self._loads_of(late)
        # The others are computed under the flag of their result.
        rest = (x for x in lines if x.name not in self.tests | self.sole.keys())
        computed = self._assigned(rest)
        return [*loads, "", *computed]

    def _row(self) -> list[str]:
        """Return the lines for a block of rows: loads, values of several results, then each result's own values and its store, under its flag."""
        lines = self._read()
        for item in self.program.results:
            # Without names and places bound under this flag: the next result may be asked for alone.
            known, begun = {**self.printer.named}, [*self.begun]
            own = [x for x in self.program.lines if self.sole.get(x.name) == item]
            read = [x for x in self.program.loads if self.sole.get(x.name) == item]
            steps = [*self._loads_of(read), *self._assigned(own), *self._stored(item)]
            lines += self._asked_for(item, steps)
            self.printer.named, self.begun = known, begun
        return lines

    def _assigned(self, lines: Iterable[Line]) -> list[str]:
        """Return lines of the program as lines of the kernel, with those of their steps before each."""
        self.printer.lines = []
        for line in lines:
            self.printer.assign(line.name, line.value)
        return self.printer.lines

    def _reached(self, value: Value) -> set[str]:
        """Return all names a value depends on, directly or through other lines."""
        read = names_in(value)
        lines = (self.printer.values[x] for x in read if x in self.printer.values)
        return read.union(*map(self._reached, lines))

    def _asked_for(self, item: Result, lines: list[str]) -> list[str]:
        """Return lines under `if NEEDS_GRAD_X:`, as they are if the result has no flag."""
        flag = self.flags.get(item.name)
        return [f"if {flag}:", *_indented(lines)] if flag else lines

    def _loads_of(self, loads: Iterable[Load]) -> list[str]:
        """Return the lines of loads; none of a load that is only gathered from."""
        return [y for x in loads if x.name in self.whole for y in self._load_or_fill(x)]

    def _load_or_fill(self, load: Load) -> Iterator[str]:
        """Yield the lines to load an input; of an optional one, `else` a block of its number: `bias = tl.full((1, BLOCK), 0.0, DTYPE)`."""
        if self.summed and load == self.weight:
            yield "# loaded each time: kept over the loop, long rows would spill more"
        lines = [*self._load(load)]
        number = self.absent.get(load.source)
        if number is None:
            yield from lines
            return
        # Any other is one number for each row, and Python's number broadcasts.
        if load.space.has_columns or not self.width and load.space.rows:
            shape = f"(1, {self.own.BLOCK})" if self.width else f"({self.own.BLOCK},)"
            number = f"tl.full({shape}, {number}, {self.own.DTYPE})"
        yield f"if {load.source}_ptr is not None:"
        yield from _indented(lines)
        yield from ("else:", f"    {load.name} = {number}")

    def _load(self, load: Load) -> Iterator[str]:
        """Yield the line to load an input, after one for the start of its row, `x_row = x_ptr + row * x_stride`.

        The start has a line if it is used several times, or if the load's line would be too long.
        """
        begin, line = self._begin(load.source), self._loaded(load)
        several = len(self.loads(load.source)) > 1 or load.name in self.gathered
        # A line of the file has 88 columns: 4 are indentation, 8 in the loop over rows of a sum.
        long = len(line) > (LONGEST if self.summed else LONGEST + 4)
        row = load.space.is_row and not load.single
        if row and (long or several) and begin not in self.begun:
            yield f"{begin} = {self._start(load)}"
            self.begun.append(begin)
        # Written anew: it now reads the start by its name.
        yield self._loaded(load)

    def _loaded(self, load: Load) -> str:
        """Return the line to load an input, with zeros past the end of a row: `x = tl.load(x_row + cols, mask=mask, other=0.0).to(DTYPE)`."""
        real = load.kind == "real" and not load.single  # the launch casts a single one
        cast = f".to({self.own.DTYPE})" if real else ""
        given = self._address(load, self.own.cols)
        if not load.single and load.space != NUMBER:
            other = {"real": "0.0", "int": "0", "bool": "False"}[load.kind]
            inside = self.printer.inside(load.space)
            inside += f" & {self.program.kept}" if self._is_masked(load) else ""
            given += f", mask={inside}, other={other}"
        return f"{load.name} = tl.load({given}){cast}"

    def _address(self, load: Load, column: str) -> str:
        """Return the pointers to an input's numbers at some columns, `x_ptr + row * x_stride + cols`; `x_row + cols` if that line is written."""
        begin = self._begin(load.source)
        start = begin if begin in self.begun else self._start(load)
        if load.single or not load.space.has_columns:
            return start
        return f"{start} + {self._columns(load.part, column)}"

    def _is_masked(self, load: Load) -> bool:
        """Return whether only those rows of a load are read that are kept: the condition itself does not read it."""
        return bool(self.tests) and load.space.is_row and load.name not in self.tests

    def _start(self, load: Load) -> str:
        """Return the pointer to an input's row (`x_ptr + row * x_stride`), to the number of each row, or to numbers all rows share."""
        pointer = f"{load.source}_ptr"
        if load.single or not load.space.rows:
            return pointer
        stride = f" * {load.source}_stride" if load.space.has_columns else ""
        # Without a width the kernel is elementwise: it walks over numbers, not rows.
        row = f"{self._row_of(load)}{stride}" if self.width else self.own.offsets
        return f"{pointer} + {row}"

    def _row_of(self, load: Load) -> str:
        """Return the number of the row to read of an input: `row`, or of one without some leading dims `(row // H % T)`."""
        row, repeat = self.own.row, load.repeat
        if repeat is None:
            return row
        if repeat.times:
            row += f" // {_product(repeat.times)}"
        if repeat.again:
            row += f" % {_product(repeat.every)}"
        # The position within a stretch of rows that lie together in the input.
        if repeat.within:
            rows = _product(repeat.within)
            row = f"{row} * {rows} + {self.own.row} % {rows}"
        return f"({row})"

    def _begin(self, source: str) -> str:
        """Return the name for the start of an input's row: `x_row`, with a number if taken; the same each time."""
        return fresh(f"{source}_row", self.printer.taken - {*self.begun})

    def _columns(self, part: Part | None, cols: str) -> str:
        """Return the columns of a part of a row, given those within the part: of the second half `D + cols`, of each second one `2 * cols + 1`."""
        if part is None:
            return cols
        if part.interleaved:
            return f"{part.of} * {cols}" + (f" + {part.at}" if part.at else "")
        times = f"{part.at} * " if part.at > 1 else ""
        return f"{times}{self.width} + {cols}" if part.at else cols

    def _stored(self, item: Result) -> list[str]:
        """Return the lines to store each piece of a result, or to add it to the sum over rows."""
        self.printer.lines = lines = []
        for part, value in item.pieces:
            text = self.printer.text(value)
            if item.summed:
                lines.append(self._added(item, value, text))
            else:
                lines.append(self._store(item, part, text))
        return lines

    def _store_sum(self, item: Result) -> list[str]:
        """Return the lines after the loop over rows: add up the sum's block of rows, and store it for this program."""
        name, at, masked = item.name, f"{item.name}_ptr + {self.own.program}", ""
        # The sum of everything: past the row's end a value with columns may have left no 0.
        total = f"tl.sum(tl.where({self.own.cols} < {self.width}, {name}, 0.0))"
        if item.space.has_columns:
            total = f"tl.sum({name}, axis=0, keep_dims=True)"
            at += f" * {self.width} + {self.own.cols}"
            masked = f", mask={self.printer.inside(item.space)}"
        return [f"{name} = {total}", f"tl.store({at}, {name}{masked})"]

    def _added(self, item: Result, value: Value, text: str) -> str:
        """Return the line to add a block of rows to a sum, or, elementwise, to store the sum of the block.

        Numbers past the last row must add 0: they are masked, unless the value is surely 0 there.
        """
        own = self.own
        if not self.width:
            total = f"tl.sum(tl.where({own.mask}, {text}, 0.0), axis=0)"
            return f"tl.store({item.name}_ptr + tl.program_id(0), {total})"
        if not value.space.has_columns:  # once, not for each column
            text = f"tl.where({own.mask} & ({own.cols} == 0), {text}, 0.0)"
        elif not self.printer.ends_in_zeros(value, rows=True):
            text = selected(own.mask, text)
        return f"{item.name} += {text}"

    def _store(self, item: Result, part: Part | None, text: str) -> str:
        """Return the line to store a piece of a result (`text`: its expression) in the columns of its part."""
        at, of = self.own.row if self.width else self.own.offsets, len(item.pieces)
        if item.space.has_columns:
            length = f"({of} * {self.width})" if of > 1 else self.width
            at += f" * {length} + {self._columns(part, self.own.cols)}"
        inside = self.printer.inside(item.space)
        return f"tl.store({item.name}_ptr + {at}, {text}, mask={inside})"


def _flags(program: RowProgram) -> dict[str, str]:
    """Return the flag of each result, `{"grad_x": "NEEDS_GRAD_X"}`; {} for a single one, as then autograd calls the backward only to get it.

    Names keep their case if they differ only by it.
    """
    names = [item.name for item in program.results]
    if len(names) == 1:
        return {}
    distinct = len({name.upper() for name in names}) == len(names)
    return {name: f"NEEDS_{name.upper() if distinct else name}" for name in names}


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" if line else line for line in lines]


def _product(sizes: tuple[str, ...]) -> str:
    """Return the product of some sizes, in parentheses if there are several: `(H * T)`."""
    return f"({' * '.join(sizes)})" if len(sizes) > 1 else sizes[0]
