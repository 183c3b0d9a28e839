"""Ops from a few words, for tests: a spec as the loaders make it, its file, and that file as a module."""

import builtins
import dis
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from textwrap import dedent
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from scaffold.derive import Derivation, derive
from scaffold.errors import Location
from scaffold.render.formatting import fold, format_source
from scaffold.render.layout import Layout
from scaffold.render.opfile import op_draft, op_file
from scaffold.spec import OpSpec
from scaffold.spec.build import build
from scaffold.spec.other_tools import LINE_LENGTH


def locate(path: tuple[str, ...], *, key: bool = False) -> Location:
    """The option that a key of the spec is on the command line."""
    return Location(f"--{path[0]}")


def spec_of(inputs: str | None = None, name: str = "some_op", **raw: Any) -> OpSpec:
    """The spec of an op; keys are those of TOML with underscores for hyphens."""
    table = {key.rstrip("_").replace("_", "-"): value for key, value in raw.items()}
    if inputs is not None:
        table["inputs"] = inputs
    return build(name, table, locate)


def text_of(spec: OpSpec, derivation: Derivation | None = None) -> str:
    """The op's file."""
    layout = Layout(spec.name, f"{spec.name}.py", f"test_{spec.name}.py")
    return op_file(spec, derivation or derive(spec), layout)


def draft_of(spec: OpSpec, derivation: Derivation | None = None) -> str:
    """The same before it is formatted, for a test that only runs it: to format takes longer than to derive."""
    return op_draft(spec, derivation or derive(spec), LINE_LENGTH)


def overlong(draft: str) -> list[str]:
    """The lines that stay too long once a draft is formatted, which is left out where breaking at brackets is enough."""

    def found(text: str) -> list[str]:
        lines = (re.sub("  # type: ignore.*", "", line) for line in text.splitlines())
        return [line for line in lines if len(line) > LINE_LENGTH]

    folded = found(fold(draft, LINE_LENGTH))
    return folded and found(format_source(draft, LINE_LENGTH))


def op_text(inputs: str | None = None, **raw: Any) -> str:
    return text_of(spec_of(inputs, **raw))


def backward_of(text: str) -> str:
    """The body of `backward`, without its indentation; in the region of autocast that it may stand in."""
    lines = text.split("\n")
    first = next(
        k for k, line in enumerate(lines) if line.startswith("    def backward")
    )
    start = next(k for k in range(first, len(lines)) if lines[k].endswith(":")) + 1
    body = []
    for line in lines[start:]:
        if line and not line.startswith("        "):
            break
        body.append(line[8:])
    found = "\n".join(body).strip()
    region = found.removeprefix("with ctx.autocast:\n")
    return found if region == found else dedent(region).strip()


def load(text: str, **modules: Mapping[str, Any]) -> ModuleType:
    """The file as a module, in which every name is defined; `modules` are those of the user's that it imports."""
    loaded = ModuleType("some_op")
    code = compile(text, "<some_op>", "exec")
    with importable(**modules):
        exec(code, loaded.__dict__)  # noqa: S102
    unknown = {*global_names(code)} - {*vars(loaded), *vars(builtins)}
    assert not unknown, f"undefined: {', '.join(sorted(unknown))}"
    return loaded


def reference(names: Iterable[str], forward: str) -> Callable[..., Any]:
    """The forward as a function of these names, made from the text alone."""
    lines = forward.strip().splitlines()
    if len(lines) == 1 and not lines[0].startswith("return "):
        lines = [f"return {lines[0]}"]
    text = "\n    ".join([f"def forward({', '.join(names)}):", *lines])
    found: dict[str, Any] = {"torch": torch, "F": F, "math": math, "Tensor": Tensor}
    exec(text, found)  # noqa: S102
    function: Callable[..., Any] = found["forward"]
    return function


def global_names(code: CodeType) -> Iterator[str]:
    """The names that functions of a module read of it."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from global_names(inner)
            for item in dis.get_instructions(inner):
                if item.opname == "LOAD_GLOBAL":
                    yield str(item.argval)


@contextmanager
def importable(**modules: Mapping[str, Any]) -> Iterator[None]:
    """Modules of the user's, for as long as something imports them."""
    for name, members in modules.items():
        sys.modules[name] = SimpleNamespace(**members)  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in modules:
            sys.modules.pop(name, None)
