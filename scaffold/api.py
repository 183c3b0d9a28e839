"""The Python and notebook interface: an op derived from a forward, with its text, function, explanation and proof.

In: a function or the text of a forward, and keys of the specification. Out: a `Derived`. Invariant: the function is read as text,
never run; nothing is written to disk. PyTorch is imported, and the op's module run, only when `function` is used. This
interface is for writing ops: production code uses the written files.
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
NUMBERS = count(1)  # two ops of one name get modules of different names


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
    """Return the op of a forward, with derived gradients: `scaffold.derive("x * torch.sigmoid(x)")`.

    `forward` is a function, read as source, or text as `scaffold new-op --forward` takes it; without `inputs`, the inputs are
    read from it. `keys` are any other options of `new-op`: `once_differentiable=True`. Raises `ScaffoldError` with the place
    and a hint.
    """
    from scaffold.project.function_sources import forward_of
    from scaffold.project.rendering import generate_keys
    from scaffold.project.specification import Said

    read = forward_of(forward)
    # As keys of an op's table; None: not stated.
    stated: dict[str, Any] = {"inputs": inputs, "outputs": outputs}
    stated |= {"forward": read.text, "grad": dict(grad) or None}
    stated |= {"surrogate": surrogate, "import": list(imports) or None}
    stated |= {"save-policy": save_policy}
    stated |= {key.replace("_", "-"): value for key, value in keys.items()}
    table = {key: value for key, value in stated.items() if value is not None}
    said = Said(name or read.name, table, _locate)
    return Derived(generate_keys(said, {}, read.files))


def _locate(path: KeyPath, *, key: bool = False) -> Location:
    """Return the location of the value of a key, for an error: the Python argument it was given by, `save_policy`.

    A value within an argument has no place of its own, with `key` or not.
    """
    return Location(path[0].replace("-", "_") if path else "scaffold.derive")


@dataclass(frozen=True)
class Derived:
    """A derived op, the result of `scaffold.derive`: its texts, its callable, its report and its proof; a notebook shows its Function."""

    _generated: "Generated"

    @property
    def name(self) -> str:
        """Return the name of the op."""
        return self._generated.spec.name

    @property
    def inputs(self) -> str:
        """Return the inputs in the notation of `--inputs`, as given or as read from the forward."""
        return str(self._generated.specified.raw.get("inputs", ""))

    @property
    def source(self) -> str:
        """Return the text of the op's file, as `scaffold new-op` writes it."""
        return self._generated.written[0].text

    @property
    def test_source(self) -> str:
        """Return the text of the test file, or "" if the op has no tests."""
        # The files are the op's, the test, the kernels.
        return "".join(item.text for item in self._generated.written[1:2])

    @property
    def notes(self) -> tuple[str, ...]:
        """Return notes on assumptions, decisions and the parts left to write."""
        return self._generated.notes

    @cached_property
    def module(self) -> ModuleType:
        """Return the op's file, run as a module of this process; it needs PyTorch."""
        return _module(self.name, self.source)

    @property
    def function(self) -> Callable[..., Any]:
        """Return the op as a callable of tensors; it also runs under `torch.compile(fullgraph=True)`."""
        found: Callable[..., Any] = getattr(self.module, self.name)
        return found

    def explain(self, sizes: str = "") -> str:
        """Return a report on the derivation: the rules used, the saved tensors and their bytes; `sizes`: 'N=32, D=512'."""
        from scaffold.project.explanation import explained, read_sizes

        generated = self._generated
        return explained(generated.spec, generated.derivation, read_sizes(sizes))

    def test(self, limit: int = 30) -> tuple[str, ...]:
        """Check the op against PyTorch's autograd in a separate process, within `limit` seconds; return the check's notes.

        Raises `ScaffoldError` if a gradient differs from the forward's.
        """
        from scaffold.project.console import SILENT
        from scaffold.project.interpreter import proving
        from scaffold.project.proofs import prove

        with proving({"limit": limit}, SILENT) as process:
            proven = prove(self._generated, process, tested=False)
        return proven.notes[len(self.notes) :]  # they were added behind the op's own

    def __repr__(self) -> str:
        return f"<scaffold.Derived {self.name}({self.inputs})>"

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: the notes and the Function."""
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
    """Return Python code as HTML, in colours legible on light and dark pages."""
    from pygments import highlight  # type: ignore[import-untyped]
    from pygments.formatters import HtmlFormatter  # type: ignore[import-untyped]
    from pygments.lexers import PythonLexer  # type: ignore[import-untyped]

    options = {"noclasses": True, "nobackground": True, "style": "solarized-light"}
    found: str = highlight(code, PythonLexer(), HtmlFormatter(**options))
    return found


def _module(name: str, source: str) -> ModuleType:
    """Run source text as a new module, registered for tracebacks (linecache) and compilers (`sys.modules`).

    Raise ScaffoldError if a module it imports is missing, PyTorch above all.
    """
    number = next(NUMBERS)
    module = ModuleType(f"scaffold_derived_{name}_{number}")
    path = module.__file__ = f"<scaffold {name} {number}>"
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    sys.modules[module.__name__] = module
    try:
        exec(compile(source, path, "exec"), vars(module))  # noqa: S102 - our own source
    except ModuleNotFoundError as error:
        del sys.modules[module.__name__]
        hint = f"install it in the environment of {sys.executable}"
        raise ScaffoldError(
            f"there is no module '{error.name}' here", hint=hint
        ) from None
    return module
