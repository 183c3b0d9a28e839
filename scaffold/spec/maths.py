"""The formulas of an op, each parsed in the scope that it may read.

In: `forward`, `grad`, `backward`, `surrogate`, `import`, `require` and `samples`, and the op's arguments.
Out: a `Maths`. Invariant: every name in a formula is known, and nothing was evaluated.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scaffold.errors import did_you_mean
from scaffold.formula import (
    Formula,
    FunctionText,
    Graph,
    Scope,
    Text,
    assigned,
    function_in,
    parse,
)
from scaffold.spec.arguments import Arguments
from scaffold.spec.model import Attribute, Import, Samples, Surrogate
from scaffold.spec.names import RESERVED, is_identifier
from scaffold.spec.problems import KeyPath, Problems

ReadFile = Callable[[str], str]
REFERENCE = re.compile(r"@(?P<path>.+?\.py)(?::(?P<function>\w+))?\s*")
IMPORT = re.compile(
    r"(?P<module>[\w.]+)(?::(?P<name>\w+))?(?:\s+as\s+(?P<alias>\w+))?\s*"
)


@dataclass(slots=True)
class Maths:
    """Everything that is parsed."""

    graph: Graph = field(default_factory=Graph)
    imports: tuple[Import, ...] = ()
    forward: Formula | None = None
    gradients: tuple[tuple[str, Formula], ...] = ()
    backward: Formula | None = None
    surrogate: Surrogate | None = None
    require: tuple[Formula, ...] = ()
    samples: Samples | None = None


def read_maths(
    raw: Mapping[str, Any], arguments: Arguments, read: ReadFile, problems: Problems
) -> Maths:
    """Parse all formulas; what is wrong with them is noted."""
    return _Reader(raw, arguments, read, problems).maths()


class _Reader:
    def __init__(
        self,
        raw: Mapping[str, Any],
        arguments: Arguments,
        read: ReadFile,
        problems: Problems,
    ) -> None:
        self.raw, self.arguments, self.read, self.problems = (
            raw,
            arguments,
            read,
            problems,
        )
        self.inputs = frozenset(item.name for item in arguments.inputs)
        self.optional = frozenset(
            item.name for item in arguments.tensors if item.optional
        )
        self.found = Maths()

    def maths(self) -> Maths:
        found, raw = self.found, self.raw
        found.imports = self._imports()
        found.forward = self._formula(("forward",), self.inputs)
        if isinstance(raw.get("surrogate"), str):
            found.surrogate = Surrogate(self._formula(("surrogate",), self.inputs))
        elif raw.get("surrogate"):
            found.surrogate = Surrogate()
        self._gradients()
        self._backward()
        found.require = self._requirements()
        found.samples = self._samples()
        return found

    def _imports(self) -> tuple[Import, ...]:
        found: list[Import] = []
        for position, text in enumerate(self.raw.get("import", ())):
            item = self._import(("import", str(position)), text)
            if item is not None:
                found.append(item)
        return tuple(dict.fromkeys(found))

    def _import(self, path: KeyPath, text: str) -> Import | None:
        match = IMPORT.fullmatch(text.strip())
        parts = (
            [*match["module"].split("."), match["name"], match["alias"]]
            if match
            else [""]
        )
        if match is None or not all(
            part is None or is_identifier(part) for part in parts
        ):
            hint = "write 'module:name', 'module:name as other' or 'module as other'"
            self.problems.at(path, f"'{text}' is no import", hint)
            return None
        return self._binding(
            path, Import(match["module"], match["name"], match["alias"])
        )

    def _binding(self, path: KeyPath, item: Import) -> Import | None:
        if item.binding in self.inputs | RESERVED:
            hint = f"give it another name: '{item.module}{f':{item.name}' if item.name else ''} as ...'"
            self.problems.at(path, f"the import hides '{item.binding}'", hint)
            return None
        return item

    def _text(self, path: KeyPath, role: str) -> Text | None:
        """The text of a key, read from the file that it names with '@'."""
        value: Any = self.raw
        for key in path:
            value = value[key] if not isinstance(value, list) else value[int(key)]
        if not value.startswith("@"):
            return Text(value, self.problems.within(path))
        function = self._function(path, value, role)
        return function.text if function else None

    def _function(self, path: KeyPath, value: str, role: str) -> FunctionText | None:
        match = REFERENCE.fullmatch(value)
        if match is None:
            self.problems.at(
                path, f"'{value}' names no file", "write '@file.py:function'"
            )
            return None
        try:
            source = self.read(match["path"])
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8"
            self.problems.at(path, f"cannot read '{match['path']}': {reason}")
            return None
        found = self.problems.attempt(
            lambda: function_in(source, match["path"], match["function"], role)
        )
        if found is not None:
            self._adopt_imports(path, found)
        return found

    def _adopt_imports(self, path: KeyPath, found: FunctionText) -> None:
        wanted = (Import(*item) for item in found.imports)
        others = (item for item in wanted if item.binding not in RESERVED)
        items = (self._binding(path, item) for item in others)
        known = [*self.found.imports, *(item for item in items if item is not None)]
        self.found.imports = tuple(dict.fromkeys(known))

    def _formula(
        self,
        path: KeyPath,
        names: frozenset[str],
        without: str = "",
        targets: frozenset[str] | None = None,
    ) -> Formula | None:
        if path[0] not in self.raw:
            return None
        text = self._text(path, path[0])
        if text is None:
            return None
        bound = frozenset(item.binding for item in self.found.imports)
        scope = Scope(names | bound, self.optional - {without}, targets)
        return self.problems.attempt(lambda: parse(text, scope, self.found.graph))

    def _of_backward(self) -> frozenset[str]:
        """The names that a gradient may read, beside imports."""
        forward = self.found.forward
        outputs = self.arguments.outputs
        single = len(outputs) == 1 and not outputs[0].variadic
        grads = {"grad_output"} if single else {f"grad_{item.name}" for item in outputs}
        locals_ = assigned(forward) if forward else frozenset()
        return self.inputs | locals_ | {item.name for item in outputs} | grads

    def _gradients(self) -> None:
        names = self._of_backward()
        found = []
        for name in self.raw.get("grad", {}):
            path = ("grad", name)
            if not self._differentiable(path, name):
                continue
            item = next(item for item in self.arguments.tensors if item.name == name)
            scope = names | {"i"} if item.variadic else names
            formula = self._formula(path, scope, without=name)
            if formula is not None and item.variadic and formula.statements:
                message = f"the gradient of '*{name}' must be one expression"
                self.problems.at(path, message, "it is that of the element number i")
            elif formula is not None:
                found.append((name, formula))
        self.found.gradients = tuple(found)

    def _differentiable(self, path: KeyPath, name: str) -> bool:
        known = {item.name: item for item in self.arguments.inputs}
        item = known.get(name)
        if item is None:
            hint = did_you_mean(name, known) or f"the inputs: {', '.join(known)}"
            self.problems.at_key(path, f"'{name}' is no input", hint)
        elif isinstance(item, Attribute):
            self.problems.at_key(path, f"'{name}' is an attribute and gets no gradient")
        elif not item.differentiable:
            self.problems.at_key(path, f"'{name}' is declared without a gradient")
        elif not any(output.differentiable for output in self.arguments.outputs):
            self.problems.at_key(path, "no output of the op has a gradient")
        else:
            return True
        return False

    def _backward(self) -> None:
        if "backward" not in self.raw:
            return
        if self.raw.get("grad"):
            message = "'grad' and 'backward' state the same gradients"
            self.problems.at(("backward",), message, "keep one of them")
        items = [item for item in self.arguments.tensors if item.differentiable]
        targets = frozenset(f"grad_{item.name}" for item in items)
        self.found.backward = self._formula(
            ("backward",), self._of_backward(), "", targets
        )

    def _requirements(self) -> tuple[Formula, ...]:
        sizes = frozenset(
            dim
            for item in self.arguments.tensors
            for dim in item.dims or ()
            if isinstance(dim, str) and dim != "..."
        )
        paths = [("require", str(k)) for k in range(len(self.raw.get("require", ())))]
        found = [self._formula(path, sizes) for path in paths]
        return tuple(item for item in found if item is not None)

    def _samples(self) -> Samples | None:
        value = self.raw.get("samples")
        if value is None:
            return None
        found = self._function(("samples",), value, "samples")
        if found is None:
            return None
        if found.parameters:
            self.problems.at(
                ("samples",), "the function that makes samples takes no argument"
            )
        name = re.search(r"def\s+(\w+)", found.source)
        return Samples(name[1], found.source) if name else None
