"""What Python code and notebooks ask for: the op of a forward, its text, its function, how it came about, its proof.

In: a function or the text of a forward, and keys of the specification. Out: a `Derived`. Invariant: the function is read as text,
never run; nothing is written to disk. PyTorch is imported, and the op's module run, when `function` is asked for. It is for
those who write ops: production code has what was written.
"""

import linecache
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import count
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Literal

from scaffold.errors import Location, ScaffoldError
from scaffold.spec.problems import KeyPath

if TYPE_CHECKING:
    from scaffold.project.rendering import Generated

Forward = str | Callable[..., Any]
NUMBERS = count(1)  # of the modules that were made


def derive(
    forward: Forward,
    inputs: str | None = None,
    *,
    name: str | None = None,
    outputs: str | None = None,
    grad: Mapping[str, str] = MappingProxyType({}),
    surrogate: bool | str | None = None,
    imports: Sequence[str] = (),
    save_policy: Literal["recompute", "balanced"] | None = None,
    **keys: Any,
) -> "Derived":
    """The op of a forward, its gradients derived: `scaffold.derive("x * torch.sigmoid(x)")`.

    `forward` is a function, whose source is read, or text as `scaffold new-op --forward` takes it; without `inputs` they are
    taken from it. Any other option of `new-op` is one of `keys`: `once_differentiable=True`. Raises `ScaffoldError`, with the
    place and what to write.
    """
    from scaffold.project.function_sources import forward_of
    from scaffold.project.rendering import generate_keys
    from scaffold.project.specification import Said

    read = forward_of(forward)
    stated: dict[str, Any] = {"inputs": inputs, "outputs": outputs}
    stated |= {"forward": read.text, "grad": dict(grad) or None}
    stated |= {"surrogate": surrogate, "import": list(imports) or None}
    stated |= {"save-policy": save_policy}
    stated |= {key.replace("_", "-"): value for key, value in keys.items()}
    table = {key: value for key, value in stated.items() if value is not None}
    said = Said(name or read.name, table, _locate)
    return Derived(generate_keys(said, {}, read.files))


def _locate(path: KeyPath, *, key: bool = False) -> Location:
    """Where a value begins: the argument that it was given by."""
    return Location(path[0].replace("-", "_") if path else "scaffold.derive")


@dataclass(frozen=True)
class Derived:
    """An op that was derived; a notebook shows its Function."""

    _generated: "Generated"

    @property
    def name(self) -> str:
        """What the op is called."""
        return self._generated.spec.name

    @property
    def inputs(self) -> str:
        """The inputs as `--inputs` has them, stated or taken from the forward."""
        return str(self._generated.specified.raw.get("inputs", ""))

    @property
    def source(self) -> str:
        """The file of the op, as `scaffold new-op` writes it."""
        return self._generated.written[0].text

    @property
    def test_source(self) -> str:
        """The file of its tests; empty if there is to be none."""
        return "".join(item.text for item in self._generated.written[1:2])

    @property
    def notes(self) -> tuple[str, ...]:
        """What was taken for granted, what was decided, what is left to write."""
        return self._generated.notes

    @cached_property
    def module(self) -> ModuleType:
        """The op's file as a module of this process, which needs PyTorch."""
        return _module(self.name, self.source)

    @property
    def function(self) -> Callable[..., Any]:
        """The op, to be called with tensors; it runs under `torch.compile(fullgraph=True)`, too."""
        found: Callable[..., Any] = getattr(self.module, self.name)
        return found

    def explain(self, sizes: str = "") -> str:
        """How it came about: the rules, what is saved, and its bytes; `sizes`: 'N=32, D=512'."""
        from scaffold.project.explanation import explained, read_sizes

        generated = self._generated
        return explained(generated.spec, generated.derivation, read_sizes(sizes))

    def test(self, limit: int = 30) -> tuple[str, ...]:
        """Run it against PyTorch's autograd, in a process of its own, within `limit` seconds; what is to be said of that.

        Raises `ScaffoldError` where a gradient is not that of the forward.
        """
        from scaffold.project.console import SILENT
        from scaffold.project.interpreter import proving
        from scaffold.project.proofs import prove

        with proving({"limit": limit}, SILENT) as process:
            proven = prove(self._generated, process, tested=False)
        return proven.notes[len(self.notes) :]

    def __repr__(self) -> str:
        return f"<scaffold.Derived {self.name}({self.inputs})>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the notes, and the Function."""
        from scaffold.project.rendering import function_shown

        made = self._generated
        text = function_shown(made.spec, made.derivation, made.specified.places)
        said = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        title = escape(f"{self.name}({self.inputs})")
        return (
            f"<details open><summary><code>{title}</code></summary>"
            f"{said and f'<ul>{said}</ul>'}{_coloured(text)}</details>"
        )


def _coloured(code: str) -> str:
    """Return Python code as HTML, in colours that are legible on light and on dark pages."""
    from pygments import highlight  # type: ignore[import-untyped]
    from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
    from pygments.lexers import PythonLexer  # type: ignore[import-untyped]

    options = {"noclasses": True, "nobackground": True, "style": "solarized-light"}
    found: str = highlight(code, PythonLexer(), HtmlFormatter(**options))
    return found


def _module(name: str, source: str) -> ModuleType:
    """A module of that text; tracebacks and compilers find its lines, and it by its name."""
    number = next(NUMBERS)
    module = ModuleType(f"scaffold_derived_{name}_{number}")
    path = module.__file__ = f"<scaffold {name} {number}>"
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, path, "exec"), vars(module))  # noqa: S102 - what we wrote
    except ModuleNotFoundError as error:
        del sys.modules[module.__name__]
        hint = f"install it in the environment of {sys.executable}"
        raise ScaffoldError(
            f"there is no module '{error.name}' here", hint=hint
        ) from None
    return module
