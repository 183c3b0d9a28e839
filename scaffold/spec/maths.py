"""Maths: the formulas of an op, each parsed in its own scope.

In: `forward`, `grad`, `backward`, `surrogate`, `import`, `require`, `test-shapes` and `samples`, which may refer to the
user's files (`'@file.py:function'`), and the op's arguments. Out: a `Maths`. Invariant: every name in a formula is
known, and nothing was evaluated.
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
FUNCTION = re.compile(r"\s*(?P<module>[\w.]*\w):(?P<name>\w+)\s*")
FILE = re.compile(r"\s*[^\s@+*(=]*[\w)]\.py(?::[\w.]+)?\s*")
REFERENCE = re.compile(r"\s*@(?P<path>[^\n]+?\.py)(?::(?P<function>[\w.]+))?\s*")


class Reference(NamedTuple):
    """The function or file named by a reference; `name` is None for a file without functions."""

    name: str | None
    text: Text
    parameters: tuple[str, ...]
    imports: tuple[tuple[str, str | None, str | None], ...]
    source: str


def refuse_file(text: str, place: Location) -> None:
    """Raise for a file name without its '@' in place of a formula, `ops.py:forward`, and for `package.ops:forward`."""
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

    `role` is the key, such as `forward`: without `:function` it is the name looked for. Functions the op has `imported` need
    nothing of the file. Numbers an nn.Module computes are parameters if they are among the `inputs`.
    """
    match = REFERENCE.fullmatch(value)
    if match is None:
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
    source = source.removeprefix("\ufeff")
    name = match["function"]
    found = function_in(source, path, name, role, imported, read, inputs)
    name = found.text.origin.function if found.text.origin else None
    return Reference(name, found.text, found.parameters, found.imports, found.source)


# --- The formulas of an op, each parsed in its own scope.


Raw = Mapping[str, Any]
Names = frozenset[str]


class Maths(NamedTuple):
    """All parsed formulas of an op."""

    graph: Graph
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
    """Parse all formulas; report the problems in them.

    `raw` are the keys of the op, `shapes` the conventional shapes of its inputs, `read` returns the text of a file named in it.
    """
    return _Reader(op, raw, arguments, read, problems).maths(shapes)


class _Reader:
    """A parser of formulas, one after another, into one graph; it collects their imports."""

    def __init__(
        self,
        op: str,
        raw: Raw,
        arguments: Arguments,
        read: ReadFile,
        problems: Problems,
    ) -> None:
        """Prepare to parse the formulas in `raw`; `read` returns the text of a file.

        `choices` are the values of attributes with a fixed list of them. `hidden` are names no import may take.
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
        """Parse all formulas of an op; `shapes` are the conventional ones of its inputs.

        The order matters: a gradient may read names the forward assigns.
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
        """Add the imports of the key `import`; report invalid ones."""
        for position, text in enumerate(self.raw.get("import", ())):
            place = self.problems.within(("import", str(position)))
            for item in (
                self.problems.attempt(partial(parse_imports, text, place)) or ()
            ):
                self.problems.attempt(partial(self.imports.add, item, place))
        self.stated = self.imports.names

    def _text(self, path: KeyPath) -> Text | None:
        """Return the text of a key, read from a file for a reference with '@'; report a problem and give None.

        `path` is a key, or a key below another, `("grad", "x")`. The imports a function needs from its file are added. A text
        that looks like a file without the '@' is reported too.
        """
        value: Any = self.raw
        for key in path:
            value = value[int(key)] if isinstance(value, list) else value[key]
        place = self.problems.within(path)
        if not value.lstrip().startswith("@"):
            self.problems.attempt(partial(refuse_file, value, place))
            named = FILE.fullmatch(value) or FUNCTION.fullmatch(value)
            return None if named else Text(value, place)
        role = path[0] if len(path) == 1 else "_".join(path)
        found = self.problems.attempt(
            lambda: read_reference(
                value, role, place, self.read, self.stated, self.inputs
            )
        )
        for module, name, alias in found.imports if found else ():
            item = Import(module, name, alias)
            where = found.text.location if found else place
            self.problems.attempt(partial(self.imports.add, item, where))
        return found.text if found else None

    def _formula(
        self,
        path: KeyPath,
        names: Names,
        without: str = "",
        targets: tuple[str, ...] | None = None,
    ) -> Formula | None:
        """Parse the formula of a key; None if it is not stated or has problems.

        `names` may be read. `without` is the input of a gradient: an optional one is present there. `targets` are the gradients
        that a backward of all inputs assigns.
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
        """Parse a formula in its scope; report problems and give None. The parameters are as in `_formula`."""
        optional = self.optional - {without}
        tensors = self.tensors & names
        # A gradient is assigned in the backward, which may repeat lines of the forward.
        several = (*self.tensors, *(item.name for item in self.arguments.outputs))
        gradients = {f"grad_{name}" for name in several}
        hidden = self.imports.names & gradients - names
        if NEEDS not in text.value:
            names -= {NEEDS}  # so that no hint suggests it
        known = names | self.imports.names - hidden
        kept = path == ("forward",)
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
        """Return the meanings of names in formulas.

        Results of the user's own functions count as the user's own values.
        """
        found = meanings(self.imports.found, self.arguments.inputs)
        return found._replace(own=found.own | self.own_results)

    def _surrogate(self, forward: Formula | None) -> Surrogate | None:
        """Return the stated function to be differentiated instead of the forward, or None.

        It may read names the forward assigns; then it starts with the forward's statements. A kept forward's names cannot be
        read (`there`). `surrogate = true` is a surrogate without a formula: the stated gradient is meant to differ.
        """
        stated = self.raw.get("surrogate")
        if isinstance(stated, str):
            there = forward is not None and forward.kept is None
            locals_ = assigned(forward) if forward and there else frozenset[str]()
            formula = self._formula(("surrogate",), self.inputs | locals_)
            if formula is not None and forward is not None and _reads(formula, locals_):
                lines = (*forward.statements, *formula.statements)
                own = partial(_own_text_of_both, forward, formula, locals_)
                formula = replace(formula, statements=lines, own_text=own)
            return Surrogate(formula)
        return Surrogate() if stated else None

    def _readable(self, forward: Formula | None) -> Names:
        """Return the names a gradient may read besides imports: inputs, `grad_output`, and all the forward assigns.

        Of several outputs `grad_output` is named after each: `grad_values`. An output may be read by its name, and NEEDS,
        `needs_input_grad`, too.
        """
        outputs = self.arguments.outputs
        grads = {f"grad_{item.name}" for item in outputs if item.differentiable}
        if len(outputs) == 1 and not outputs[0].variadic:
            grads = {"grad_output"}
        locals_ = assigned(forward) if forward else _stored(self.forward)
        names = {item.name for item in outputs} | grads | {NEEDS}
        return self.inputs | locals_ | names

    def _gradients(self, readable: Names) -> tuple[tuple[str, Formula], ...]:
        """Return the gradients stated for single inputs, by name; report unknown inputs and tuples.

        For `*tensors` the formula is that of element `i`, so it must be one expression.
        """
        found = []
        for name in self.raw.get("grad", {}):
            path = ("grad", name)
            if not self._differentiable(path, name):
                continue
            item = next(item for item in self.arguments.tensors if item.name == name)
            names = readable | {"i"} if item.variadic else readable
            formula = self._formula(path, names, without=name)
            if formula is not None and item.variadic and formula.statements:
                message = f"the gradient of '*{name}' must be one expression"
                self.problems.at(
                    path,
                    message,
                    f"write that of element i, as in: grad_output * {name}[i]",
                )
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
        """Return whether `name`, with a stated gradient, can have one; report the problem otherwise."""
        known = {item.name: item for item in self.arguments.inputs}
        item = known.get(name)
        if not name:
            text = self.raw["grad"][name]
            first = next((one.name for one in self.arguments.tensors), "x")
            message = f"'{text}' does not begin with a name and '='"
            said = f"name the input: --grad '{first}=...'; for all inputs, in order: --backward"
            self.problems.at(path, message, said)
        elif item is None:
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
        """Parse the backward of all inputs; None if it is not stated, or if no input or output has a gradient (reported).

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
            why = "output" if items else "input"
            self.problems.at(("backward",), f"no {why} of the op has a gradient")
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
        """Return the names a condition may read: dims of declared and of given `shapes`, and inputs of type int."""
        declared = [item.dims or () for item in self.arguments.tensors]
        dims = [dim for item in (*declared, *dict(shapes).values()) for dim in item]
        return frozenset(filter(is_size_name, dims)) | {
            item.name
            for item in self.arguments.inputs
            if isinstance(item, Attribute) and item.annotation == "int"
        }

    def _requirements(self, shapes: Shapes) -> tuple[Formula, ...]:
        """Return the conditions of the key `require`, one joined by `and` as two."""
        sizes = self._size_names(shapes)
        paths = (
            (("require", str(at)), text)
            for at, text in enumerate(self.raw.get("require", ()))
        )
        read = (
            self._condition(path, text, partial(self._formula, path, sizes))
            for path, text in paths
        )
        return tuple(part for one in filter(None, read) for part in _conjuncts(one))

    def _test_requirements(self, shapes: Shapes) -> tuple[Formula, ...]:
        """Return the conditions on test sizes, stated in `test-shapes` after a `;`."""
        path, sizes = ("test-shapes",), self._size_names(shapes)
        said = self.raw["test-shapes"] if self.arguments.test_shapes else ""
        place = self.problems.within(path)
        texts = (text.strip() for text in said.split(";")[1:])
        read = (
            self._condition(
                path, text, partial(self._parsed, Text(text, place), path, sizes)
            )
            for text in texts
        )
        return tuple(part for one in filter(None, read) for part in _conjuncts(one))

    def _condition(
        self, path: KeyPath, text: str, read: Callable[[], Formula | None]
    ) -> Formula | None:
        """Return a condition on sizes, such as `D % 2 == 0`, as parsed by `read`; report and drop any other formula.

        Common mistakes are reported before parsing, with a hint of their own: `D = 2`, and a tensor instead of a size.
        """
        if assigned := re.fullmatch(r"\s*(\w+)\s*=\s*([^=\n;]+)", text):
            hint = f"write: '{assigned[1]} == {assigned[2]}'"
            self.problems.at(path, "a condition compares sizes", hint)
            return None
        inputs = {item.name for item in self.arguments.inputs} - self._size_names(())
        words = re.finditer(r"\w+", text)
        if named := next((word for word in words if word[0] in inputs), None):
            message = f"'{named[0]}' is neither a size nor an int"
            hint = f"check it in the forward: 'assert {text.strip()}', then its return"
            place = self.problems.within(path).shifted(0, named.start())
            self.problems.add(ScaffoldError(message, place, hint))
            return None
        formula = read()
        if formula is not None and formula.statements:
            self.problems.at(path, "a condition is one expression")
            return None
        result = formula.result if formula is not None else None
        if result is not None and not _is_test(result):
            hint = "write as in: 'D % 2 == 0'"
            if result.kind == "tuple" and result.args:  # always true
                whole = self.graph.node("boolean", "and", result.args)
                hint = f"write: '{emit(whole)}'"
            self.problems.at(path, "a condition compares sizes", hint)
            return None
        return formula

    def _samples(self) -> Samples | None:
        """Return the user's function of test inputs; None if none is stated or it cannot be read."""
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
        for item in found.imports:
            added = partial(self.imports.add, Import(*item), found.text.location)
            self.problems.attempt(added)
        return Samples(found.name, found.source)


def _own_text_of_both(
    forward: Formula, surrogate: Formula, locals_: Names, inputs: Sequence[str]
) -> tuple[str, ...]:
    """Return the user's text of a forward with a surrogate in place of its return; () if one of them cannot be run."""
    after = surrogate.own_text([*inputs, *sorted(filter(str.isidentifier, locals_))])
    found: tuple[str, ...] = forward.own_text(inputs, after) if after else ()
    return found


def _reads(formula: Formula, names: Names) -> bool:
    """Return whether a formula reads one of these names."""
    return any(names & node.names() for node in formula.expressions())


def _made_by(formula: Formula, own: Names) -> Names:
    """Return the user's own names, and names assigned results of their functions: `y` for `y = own.f(x)`."""
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
    """Return an expression for each named dim, `{"D": "x.shape[-1]"}`, read from an input of every call.

    Inputs in `changed`, which the forward assigns, are left out: they may have another shape by then.
    """
    found: dict[str, str] = {}
    for item in tensors:
        skipped = item.optional or item.variadic or item.name in changed
        dims = () if skipped else item.dims or ()
        end = len(dims) if any(map(is_leading, dims)) else 0
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
    """Return whether a condition is a comparison, or a combination of comparisons."""
    if node.label in ("and", "or", "not", "&", "|"):
        return all(map(_is_test, node.args))
    return node.kind == "compare"


def _choices(inputs: Iterable[Input]) -> dict[str, tuple[object, ...]]:
    """Return all values of the attributes typed as a `Literal` of several, by name: `{"mode": ("sum", "mean")}`."""
    found = {}
    for item in inputs:
        annotation = item.annotation if isinstance(item, Attribute) else "Tensor"
        match ast.parse(annotation, mode="eval").body:
            case ast.Subscript(ast.Name("Literal"), ast.Tuple(values)):
                found[item.name] = tuple(map(ast.literal_eval, values))
    return found


def _returns_only(result: Node, targets: Collection[str]) -> bool:
    """Return whether a `return` only names assigned gradients, as in an autograd.Function."""
    items = result.args if result.kind == "tuple" else (result,)
    return all(item.label in targets or item.label == "None" for item in items)


def _stored(text: Text | None) -> Names:
    """Return the names a text assigns, none if it is not Python.

    For a forward with problems, so that gradients reading those names are not reported too.
    """
    try:
        tree = ast.parse(textwrap.dedent(text.value).strip() if text else "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return frozenset(node.id for node in names if isinstance(node.ctx, ast.Store))
