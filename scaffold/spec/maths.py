"""Maths: the formulas of an op, each parsed in its own scope.

The longest step of `build`: text becomes `Formula`s, from which `derive` makes a graph. In: `forward`, `grad`, `backward`,
`surrogate`, `import`, `require`, `test-shapes` and `samples`, which may refer to the user's files (`'@file.py:function'`), and
the op's arguments. Out: a `Maths`. Invariant: every name in a formula is known, and nothing was evaluated.

Words: a *scope* is what a formula may read and must assign; a *kept* forward has loops or branches, stays as the user wrote it,
and has its statements in `formula.kept`; a *path* leads to a key, `("grad", "x")`; `place` is where its text stands; the user's
*own* values are results of functions that no table knows: nothing is known of their type.
"""

import ast
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from scaffold.errors import Location, ScaffoldError, did_you_mean, why_unread
from scaffold.formula import (
    Formula,
    Graph,
    Meanings,
    Node,
    Scope,
    Text,
    assigned,
    assignments,
    bound,
    docstring_of,
    emit,
    function_in,
    parse,
)
from scaffold.spec.arguments import Arguments
from scaffold.spec.config_values import Shapes
from scaffold.spec.imports import Imports, meanings, parse_imports
from scaffold.spec.op_spec import (
    Attribute,
    Import,
    Input,
    Samples,
    Surrogate,
    TensorInput,
    is_leading,
    is_size_name,
)
from scaffold.spec.problems import KeyPath, Problems

# --- References to the user's files: `'@file.py:function'`.
#
# In: the text of a reference and a way to read files. Out: the function as text, including its imports. Invariant: a
# file is read, never run.


ReadFile = Callable[[str], str]
NEEDS = "needs_input_grad"  # in a gradient, as on ctx: inputs with a requested gradient
# A formula that is no formula: `package.ops:forward`; `ops.py:forward`. A reference: `@ops.py:forward`.
FUNCTION = re.compile(r"\s*(?P<module>[\w.]*\w):(?P<name>\w+)\s*")
FILE = re.compile(r"\s*[^\s@+*(=]*[\w)]\.py(?::[\w.]+)?\s*")
REFERENCE = re.compile(r"\s*@(?P<path>[^\n]+?\.py)(?::(?P<function>[\w.]+))?\s*")


class Reference(NamedTuple):
    """The function or file named by a reference; `name` is None for a file without functions.

    `text` is what the formula is parsed from, `source` the function with its imports, as the file has it. `parameters` are the
    function's, `imports` the (module, name, alias) it needs of its file.
    """

    name: str | None
    text: Text
    parameters: tuple[str, ...]
    imports: tuple[tuple[str, str | None, str | None], ...]
    source: str


def refuse_file(text: str, place: Location) -> None:
    """Raise for a text that names a function instead of being a formula, `ops.py:forward` without its '@' or `package.ops:forward`."""
    named = text.strip()
    if FILE.fullmatch(text):
        message = f"'{named}' is a file, and no formula"
        raise ScaffoldError(message, place, f"write: '@{named}'")
    if match := FUNCTION.fullmatch(text):
        path = match["module"].replace(".", "/")
        message = f"'{named}' is a function of a module, and no formula"
        hint = f"to read its text: '@{path}.py:{match['name']}'; to call it: --import '{named}'"
        raise ScaffoldError(message, place, hint)


def read_reference(
    value: str,
    role: str,
    place: Location,
    read: ReadFile,
    imported: frozenset[str] = frozenset(),
    inputs: frozenset[str] = frozenset(),
) -> Reference:
    """Return the function named by a reference, `@file.py:function`; raise if it cannot be read.

    `role` is the key, such as `forward`: without `:function` it is the name looked for. Names the op has `imported` itself need no
    import of the file. Of an nn.Module, a number that its constructor computes is a parameter if it is among the `inputs`.
    """
    match = REFERENCE.fullmatch(value)
    if match is None:
        # A wrong mark between file and function: `@ops.py::f`, `@ops.py.f`.
        parts = re.fullmatch(r"\s*@(.+\.py)[:.]+(\w+)\s*", value)
        wanted = "'@file.py' or '@file.py:function'"
        hint = (
            f"write {wanted}" if parts is None else f"write: '@{parts[1]}:{parts[2]}'"
        )
        raise ScaffoldError(f"'{value.strip()}' names no file", place, hint)
    path = match["path"]
    try:
        source = read(path)
    except (OSError, ValueError) as error:
        hint = "give its path from here: '@file.py:function'"
        message = f"cannot read '{path}': {why_unread(error)}"
        raise ScaffoldError(message, place, hint) from None
    source = source.removeprefix("\ufeff")  # a byte order mark
    name = match["function"]
    found = function_in(source, path, name, role, imported, read, inputs)
    name = found.text.origin.function if found.text.origin else None
    return Reference(name, found.text, found.parameters, found.imports, found.source)


# --- The formulas of an op, each parsed in its own scope.


Raw = Mapping[str, Any]
Names = frozenset[str]


class Maths(NamedTuple):
    """All parsed formulas of an op."""

    graph: Graph  # holds the nodes of all of them
    imports: tuple[Import, ...] = ()
    forward: Formula | None = None
    gradients: tuple[tuple[str, Formula], ...] = ()
    backward: Formula | None = None
    surrogate: Surrogate | None = None
    require: tuple[Formula, ...] = ()
    test_require: tuple[Formula, ...] = ()
    samples: Samples | None = None
    doc: str | None = None  # from the docstring of the forward's function


def read_maths(
    op: str,
    raw: Raw,
    arguments: Arguments,
    shapes: Shapes,
    read: ReadFile,
    problems: Problems,
) -> Maths:
    """Return all formulas of an op, parsed; report the problems in them, and leave out such a formula.

    `raw` are the keys of the op, `shapes` the usual shapes of inputs declared without, `read` returns the text of a file named in
    `raw`; `op` is the op's own module, which no formula can import.
    """
    return _Reader(op, raw, arguments, read, problems).maths(shapes)


class _Reader:
    """A parser of all formulas of one op, one after another, into one graph; it collects the imports they need."""

    def __init__(
        self,
        op: str,
        raw: Raw,
        arguments: Arguments,
        read: ReadFile,
        problems: Problems,
    ) -> None:
        """Prepare to parse the formulas in `raw`; `read` returns the text of a file.

        `choices` are the values of attributes typed `Literal["sum", "mean"]`; by them a branch on one can be decided. `hidden` are
        names no import may take.
        """
        self.raw, self.arguments = raw, arguments
        self.read, self.problems = read, problems
        self.inputs = frozenset(item.name for item in arguments.inputs)
        self.tensors = frozenset(item.name for item in arguments.tensors)
        self.variadic = frozenset(
            item.name for item in arguments.tensors if item.variadic
        )
        self.optional = frozenset(
            item.name for item in arguments.tensors if item.optional
        )
        self.choices = _choices(arguments.inputs)
        outputs = {item.name for item in arguments.outputs}
        hidden = dict.fromkeys(outputs, "output") | dict.fromkeys(self.inputs, "input")
        self.graph, self.imports = Graph(), Imports(hidden, op)
        self.forward: Text | None = None
        self.stated: Names = frozenset()  # names bound by the key `import`
        # Names the forward assigns from results of the user's functions.
        self.own_results: Names = frozenset()

    def maths(self, shapes: Shapes) -> Maths:
        """Return all formulas of the op, parsed; `shapes` are the usual ones of inputs declared without.

        The order matters: a gradient may read names the forward assigns, and what a function of the user returns is known only then.
        """
        self._import_stated()
        forward = self._formula(("forward",), self.inputs)
        if forward is not None and self._meanings().own:
            self.own_results = _made_by(forward, self._meanings().own)
        surrogate = self._surrogate(forward)
        readable = self._readable(forward)
        gradients = self._gradients(readable)
        backward = self._backward(readable)
        return Maths(
            graph=self.graph,
            forward=forward,
            gradients=gradients,
            backward=backward,
            surrogate=surrogate,
            require=self._requirements(shapes),
            test_require=self._test_requirements(
                (*shapes, *self.arguments.test_shapes)
            ),
            samples=self._samples(),
            imports=self.imports.found,
            doc=self.forward and docstring_of(self.forward),
        )

    def _import_stated(self) -> None:
        """Add the imports of the key `import`, before any formula reads them; report invalid ones."""
        for position, text in enumerate(self.raw.get("import", ())):
            place = self.problems.within(("import", str(position)))
            found = self.problems.attempt(partial(parse_imports, text, place))
            for item in found or ():
                self.problems.attempt(partial(self.imports.add, item, place))
        self.stated = self.imports.names

    def _text(self, path: KeyPath) -> Text | None:
        """Return the text of a key, that of a function of a file if it is a reference, '@file.py:f'; report a problem and give None.

        `path` is a key, or a key below another, `("grad", "x")`. Adds the imports a function needs of its file. A text that looks like
        a file without the '@' is reported too.
        """
        value: Any = self.raw
        for key in path:
            value = value[int(key)] if isinstance(value, list) else value[key]
        place = self.problems.within(path)
        if not value.lstrip().startswith("@"):
            self.problems.attempt(partial(refuse_file, value, place))
            # Already reported: parsed as a formula, it would be a second problem.
            named = FILE.fullmatch(value) or FUNCTION.fullmatch(value)
            return None if named else Text(value, place)
        # The name of the function if the reference names none: `forward`, `grad_x`.
        role = path[0] if len(path) == 1 else "_".join(path)
        found = self.problems.attempt(
            lambda: read_reference(
                value, role, place, self.read, self.stated, self.inputs
            )
        )
        if found is None:
            return None
        self._add_imports(found)
        return found.text

    def _add_imports(self, function: Reference) -> None:
        """Add the imports a function needs of its file to the op's; report the ones that collide."""
        for item in function.imports:
            added = partial(self.imports.add, Import(*item), function.text.location)
            self.problems.attempt(added)

    def _formula(
        self,
        path: KeyPath,
        names: Names,
        without: str = "",
        targets: tuple[str, ...] | None = None,
    ) -> Formula | None:
        """Return the formula of a key, parsed; None if it is not stated, or has problems (reported). The forward's text is remembered.

        It may read `names`. `without` is the input whose gradient it is: an optional one is not None there. `targets` are the
        gradients that a backward of all inputs must assign.
        """
        if path[0] not in self.raw:
            return None
        text = self._text(path)
        if text is None:
            return None
        if path == ("forward",):
            self.forward = text
        return self._parsed(text, path, names, without, targets)

    def _parsed(
        self,
        text: Text,
        path: KeyPath,
        names: Names,
        without: str = "",
        targets: tuple[str, ...] | None = None,
    ) -> Formula | None:
        """Return a text parsed as a formula of the key at `path`; report problems and give None.

        It may read `names` and imports. `without` is the input whose gradient it is, `targets` the gradients it must assign.
        """
        optional = self.optional - {without}
        tensors = self.tensors & names
        # A name such as `grad_x` is assigned in the backward. So no formula can read an import of that name,
        # not even the forward: the backward may repeat lines of it.
        several = (*self.tensors, *(item.name for item in self.arguments.outputs))
        gradients = {f"grad_{name}" for name in several}
        hidden = self.imports.names & (gradients - names)
        if NEEDS not in text.value:
            names -= {NEEDS}  # so that no hint suggests it
        known = names | (self.imports.names - hidden)
        kept = path == ("forward",)  # it alone may have loops and branches
        # A formula after the forward does not read a size of what the forward assigns.
        changed = frozenset() if kept else _stored(self.forward)
        scope = Scope(
            *(known, optional, targets, tensors),
            variadic=self.variadic,
            kept=kept,
            imported=self.stated,
            hidden=hidden,
            choices=self.choices,
            meanings=self._meanings(),
            sizes=_sizes(self.arguments.tensors, changed),
        )
        return self.problems.attempt(partial(parse, text, scope, self.graph))

    def _meanings(self) -> Meanings:
        """Return what the names in formulas mean: functions of PyTorch by their imports, and values nothing is known of.

        Among the latter are names the forward assigns from results of the user's functions.
        """
        found = meanings(self.imports.found, self.arguments.inputs)
        return found._replace(own=found.own | self.own_results)

    def _surrogate(self, forward: Formula | None) -> Surrogate | None:
        """Return the stated function whose derivative is the op's gradient instead of the forward's, or None.

        It may read names the forward assigns (`locals_`); then it starts with the forward's statements. Those of a kept forward
        cannot be read. `surrogate = true` is a surrogate without a formula: the stated gradient is meant to differ.
        """
        stated = self.raw.get("surrogate")
        if isinstance(stated, str):
            readable = forward is not None and forward.kept is None
            locals_ = assigned(forward) if forward and readable else frozenset[str]()
            formula = self._formula(("surrogate",), self.inputs | locals_)
            if formula is not None and forward is not None and _reads(formula, locals_):
                lines = (*forward.statements, *formula.statements)
                own = partial(_own_text_of_both, forward, formula, locals_)
                formula = replace(formula, statements=lines, own_text=own)
            return Surrogate(formula)
        return Surrogate() if stated else None

    def _readable(self, forward: Formula | None) -> Names:
        """Return the names a gradient may read besides imports: inputs, outputs, `grad_output`, all the forward assigns, `needs_input_grad`.

        With several outputs their gradients are named after each: `grad_values`. A forward with problems has no formula: the names
        in its text count, so that gradients reading them are not reported as well.
        """
        outputs = self.arguments.outputs
        grads = {f"grad_{item.name}" for item in outputs if item.differentiable}
        # A variadic output has one gradient for each of its tensors, under its own name.
        if len(outputs) == 1 and not outputs[0].variadic:
            grads = {"grad_output"}
        locals_ = assigned(forward) if forward else _stored(self.forward)
        names = {item.name for item in outputs} | grads | {NEEDS}
        return self.inputs | locals_ | names

    def _gradients(self, readable: Names) -> tuple[tuple[str, Formula], ...]:
        """Return the gradients stated for single inputs by the key `grad`, by name; report unknown inputs, and a gradient that is a tuple.

        For `*tensors` the formula is that of element `i`, so it must be one expression.
        """
        found = []
        for name in self.raw.get("grad", {}):
            path = ("grad", name)
            if not self._differentiable(path, name):
                continue
            # `_differentiable` has found a tensor of this name.
            item = next(item for item in self.arguments.tensors if item.name == name)
            names = readable | {"i"} if item.variadic else readable
            formula = self._formula(path, names, without=name)
            if formula is not None and item.variadic and formula.statements:
                message = f"the gradient of '*{name}' must be one expression"
                hint = f"write that of element i, as in: grad_output * {name}[i]"
                self.problems.at(path, message, hint)
            # `x * 2,` with a comma at its end.
            elif formula and formula.result and formula.result.kind == "tuple":
                message = f"the gradient of '{name}' is a tuple, not a tensor"
                self.problems.at(path, message, "return it without the commas")
            elif item.variadic and "i" in self.inputs:
                message = f"'i' counts the elements of '*{name}', and is an input"
                self.problems.at(path, message, "rename the input 'i'")
            elif formula is not None:
                found.append((name, formula))
        return tuple(found)

    def _differentiable(self, path: KeyPath, name: str) -> bool:
        """Return whether an input with a gradient stated at `path`, `name`, can have one; report why not: it is an attribute, say."""
        known = {item.name: item for item in self.arguments.inputs}
        item = known.get(name)
        if not name:  # `--grad` without `x=`
            text = self.raw["grad"][name]
            first = next((one.name for one in self.arguments.tensors), "x")
            message = f"'{text}' does not begin with a name and '='"
            said = f"name the input: --grad '{first}=...'; for all inputs, in order: --backward"
            self.problems.at(path, message, said)
        elif item is None:
            # `grad.grad_x` is meant as `grad.x`.
            bare = name.removeprefix("grad_")
            hint = f"write: {bare}" if bare in known else did_you_mean(name, known)
            hint = hint or f"the inputs: {', '.join(known)}"
            self.problems.at_key(path, f"'{name}' is not an input", hint)
        elif isinstance(item, Attribute):
            self.problems.at_key(path, f"'{name}' is an attribute and gets no gradient")
        elif not item.differentiable:
            self.problems.at_key(path, f"'{name}' is declared without a gradient")
        elif not any(output.differentiable for output in self.arguments.outputs):
            self.problems.at_key(path, "no output of the op has a gradient")
        else:
            return True
        return False

    def _backward(self, readable: Names) -> Formula | None:
        """Return the stated backward of all inputs, parsed; None without one, or if no input or output has a gradient (reported).

        It assigns `grad_x` for each input `x` with a gradient. Returning them too, as an autograd.Function does, is
        allowed and changes nothing, so the result is dropped.
        """
        if "backward" not in self.raw:
            return None
        if self.raw.get("grad"):
            message = "'grad' and 'backward' state the same gradients"
            self.problems.at(("backward",), message, "keep one of them")
        items = [item for item in self.arguments.tensors if item.differentiable]
        outputs = self.arguments.outputs
        if not items or not any(item.differentiable for item in outputs):
            kind = "output" if items else "input"
            self.problems.at(("backward",), f"no {kind} of the op has a gradient")
            return None
        targets = tuple(f"grad_{item.name}" for item in items)
        formula = self._formula(("backward",), readable, "", targets)
        if formula is None or formula.result is None:
            return formula
        if not _returns_only(formula.result, targets):
            message = "a backward assigns its gradients and returns no other value"
            hint = f"write: {min(targets)} = ..."
            self.problems.at(("backward",), message, hint)
        return replace(formula, result=None)

    def _size_names(self, shapes: Shapes) -> Names:
        """Return the names a condition on sizes may read: named dims of declared shapes and of `shapes`, and attributes of type int."""
        declared = [item.dims or () for item in self.arguments.tensors]
        dims = [dim for item in (*declared, *dict(shapes).values()) for dim in item]
        return frozenset(filter(is_size_name, dims)) | {
            item.name
            for item in self.arguments.inputs
            if isinstance(item, Attribute) and item.annotation == "int"
        }

    def _requirements(self, shapes: Shapes) -> tuple[Formula, ...]:
        """Return the conditions on sizes of the key `require`, `D % 2 == 0`, one joined by `and` as two; report and drop invalid ones."""
        sizes, found = self._size_names(shapes), list[Formula]()
        for at, text in enumerate(self.raw.get("require", ())):
            path = ("require", str(at))
            found += self._conditions(path, text, partial(self._formula, path, sizes))
        return tuple(found)

    def _test_requirements(self, shapes: Shapes) -> tuple[Formula, ...]:
        """Return the conditions on sizes in tests, stated in `test-shapes` after a `;`; report and drop invalid ones."""
        path, sizes = ("test-shapes",), self._size_names(shapes)
        # Without valid shapes (reported) the conditions have no sizes to read.
        stated = self.raw["test-shapes"] if self.arguments.test_shapes else ""
        place, found = self.problems.within(path), list[Formula]()
        for text in map(str.strip, stated.split(";")[1:]):
            read = partial(self._parsed, Text(text, place), path, sizes)
            found += self._conditions(path, text, read)
        return tuple(found)

    def _conditions(
        self, path: KeyPath, text: str, read: Callable[[], Formula | None]
    ) -> tuple[Formula, ...]:
        """Return a condition on sizes, such as `D % 2 == 0`, as parsed by `read`, or several joined by `and`; report any other formula.

        Common mistakes are found in its text, before parsing, and get a hint of their own: `D = 2`, and a tensor instead of a size.
        """
        if assigned := re.fullmatch(r"\s*(\w+)\s*=\s*([^=\n;]+)", text):
            hint = f"write: '{assigned[1]} == {assigned[2]}'"
            self.problems.at(path, "a condition compares sizes", hint)
            return ()
        # An int attribute is an input, and a condition may read it.
        inputs = {item.name for item in self.arguments.inputs} - self._size_names(())
        words = re.finditer(r"\w+", text)
        if named := next((word for word in words if word[0] in inputs), None):
            message = f"'{named[0]}' is neither a size nor an int"
            hint = f"check it in the forward: 'assert {text.strip()}', then its return"
            place = self.problems.within(path).shifted(0, named.start())
            self.problems.add(ScaffoldError(message, place, hint))
            return ()
        formula = read()
        if formula is None:
            return ()
        result = formula.result
        if formula.statements:
            self.problems.at(path, "a condition is one expression")
            return ()
        if result is not None and not _is_test(result):
            hint = "write as in: 'D % 2 == 0'"
            if result.kind == "tuple" and result.args:  # always true
                joined = self.graph.node("boolean", "and", result.args)
                hint = f"write: '{emit(joined)}'"
            self.problems.at(path, "a condition compares sizes", hint)
            return ()
        return tuple(_conjuncts(formula))

    def _samples(self) -> Samples | None:
        """Return the user's function that makes test inputs, of the key `samples`; None if none is stated or it cannot be read (reported).

        The imports it needs of its file are added to the op's.
        """
        value = self.raw.get("samples")
        if value is None:
            return None
        path = ("samples",)
        place = self.problems.within(path)
        found = self.problems.attempt(
            partial(read_reference, value, "samples", place, self.read)
        )
        if found is None:
            return None
        if found.name is None:
            self.problems.at(path, "the file holds no function that makes samples")
            return None
        if found.parameters:
            self.problems.at(path, "the function that makes samples takes no argument")
        self._add_imports(found)
        return Samples(found.name, found.source)


def _own_text_of_both(
    forward: Formula, surrogate: Formula, locals_: Names, inputs: Sequence[str]
) -> tuple[str, ...]:
    """Return the lines of the user's forward with the surrogate's in place of its return, as a proof runs them to compare gradients.

    `locals_` are the names the surrogate reads of the forward, `inputs` the parameters. () if one of the texts cannot be run alone.
    """
    # The surrogate's text takes names of the forward as parameters too.
    after = surrogate.own_text([*inputs, *sorted(filter(str.isidentifier, locals_))])
    found: tuple[str, ...] = forward.own_text(inputs, after) if after else ()
    return found


def _reads(formula: Formula, names: Names) -> bool:
    """Return whether a formula reads one of these names."""
    return any(names & node.names() for node in formula.expressions())


def _made_by(formula: Formula, own: Names) -> Names:
    """Return the user's own names, `own`, with those assigned from results of their functions: `y` of `y = own.f(x)[0]`.

    Nothing is known of such a value, so the parser allows it any attribute.
    """
    statements = formula.kept.statements if formula.kept else formula.statements
    found = own
    for item in assignments(statements):
        value = item.value
        while value.kind in ("attribute", "call", "starred", "subscript"):
            value = value.args[0]
        if value.kind == "name" and value.label in found:
            found |= bound(item.target)
    return found


def _sizes(tensors: Iterable[TensorInput], changed: Names) -> dict[str, str]:
    """Return an expression for each named dim, `{"D": "x.shape[-1]"}`: a formula may read `D`, and the code needs a value for it.

    It is read from an input that every call has: none that is optional. Inputs in `changed`, which the forward assigns, are left
    out: they may have another shape by then. After leading dims, `x[..., D]`, an index counts from the end.
    """
    found: dict[str, str] = {}
    for item in tensors:
        skipped = item.optional or item.variadic or item.name in changed
        dims = () if skipped else item.dims or ()
        end = len(dims) if any(map(is_leading, dims)) else 0  # to count from
        for at, dim in enumerate(dims):
            if is_size_name(dim):
                found.setdefault(str(dim), f"{item.name}.shape[{at - end}]")
    return found


def _conjuncts(condition: Formula) -> Iterator[Formula]:
    """Yield the conditions joined by `and` one by one: an equation among them can then determine a size."""
    joined = condition.result
    if joined is None or joined.label != "and":
        yield condition
        return
    for part in joined.args:
        yield from _conjuncts(replace(condition, result=part))


def _is_test(node: Node) -> bool:
    """Return whether a condition is a comparison, or a combination of comparisons by `and`, `or`, `not`: anything else may be a mistake."""
    if node.label in ("and", "or", "not", "&", "|"):
        return all(map(_is_test, node.args))
    return node.kind == "compare"


def _choices(inputs: Iterable[Input]) -> dict[str, tuple[object, ...]]:
    """Return all values of the attributes typed as a `Literal` of several, by name: `{"mode": ("sum", "mean")}`.

    The parser decides a branch by them: after `if mode == "sum"`, the `else` is that of "mean".
    """
    found = {}
    for item in inputs:
        # A tensor has no type: any but a `Literal` will do.
        annotation = item.annotation if isinstance(item, Attribute) else "Tensor"
        match ast.parse(annotation, mode="eval").body:
            case ast.Subscript(ast.Name("Literal"), ast.Tuple(values)):
                found[item.name] = tuple(map(ast.literal_eval, values))
    return found


def _returns_only(result: Node, targets: Collection[str]) -> bool:
    """Return whether a backward's `return` only names gradients it assigns (`targets`) or None, as an autograd.Function does."""
    # A single gradient is returned without a tuple.
    items = result.args if result.kind == "tuple" else (result,)
    return all(item.label in targets or item.label == "None" for item in items)


def _stored(text: Text | None) -> Names:
    """Return the names a text assigns, by its syntax alone: it may be a forward with problems, which has no formula. None if not Python."""
    try:
        tree = ast.parse(textwrap.dedent(text.value).strip() if text else "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return frozenset(node.id for node in names if isinstance(node.ctx, ast.Store))
