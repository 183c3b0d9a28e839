"""Whatever valid op is asked for: the files parse, are formatted, import, run; both forms of it give the same bytes."""

import ast
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import black
import pytest
import torch
from black.mode import TargetVersion
from hypothesis import note
from hypothesis import strategies as st

from scaffold.cli.op_options import SPECIFICATION
from scaffold.project.rendering import generate
from tests.properties.budgets import holds_for
from tests.properties.specs import Raw, options, raws, toml


def values(arguments: tuple[str, ...]) -> dict[str, Any]:
    """What Typer makes of the arguments."""
    kinds = {option.flags.split("/")[0]: option.kind for option in SPECIFICATION}
    found: dict[str, Any] = {}
    words = iter(arguments)
    for word in words:
        if word.startswith("--no-") and word not in kinds:
            found[word.removeprefix("--no-")] = False
        elif kinds[word] is bool:
            found[word[2:]] = True
        elif kinds[word] is list:
            found.setdefault(word[2:], []).append(next(words))
        else:
            found[word[2:]] = next(words)
    return found


def by_options(raw: Raw) -> dict[str, str]:
    return generate("made_op", values(options(raw)), {}, []).files


def by_file(raw: Raw) -> dict[str, str]:
    text = toml("made_op", raw)
    note(text)
    Path("ops.toml").write_text(text)
    return generate("made_op", {}, {"spec": "ops.toml"}, []).files


@contextmanager
def imported(name: str, text: str) -> Iterator[ModuleType]:
    """A fresh module of some source, there for others to import."""
    module = ModuleType(name)
    sys.modules[name] = module
    try:
        exec(compile(text, f"{name}.py", "exec"), module.__dict__)  # noqa: S102
        yield module
    finally:
        del sys.modules[name]


def check_text(text: str) -> None:
    ast.parse(text)
    mode = black.Mode(target_versions={TargetVersion.PY311})
    assert black.format_str(text, mode=mode) == text
    assert text.endswith("\n") and not text.endswith("\n\n")


def raw_dirty(raw: Raw) -> bool:
    return "dirty" in raw or "(a!)" in raw.get("schema", "")


def run(op: ModuleType, tests: ModuleType, raw: Raw) -> None:
    """`apply` on the inputs that the tests make, and backward where it is written."""
    function = next(
        item
        for item in vars(op).values()
        if isinstance(item, type)
        and issubclass(item, torch.autograd.Function)
        and item is not torch.autograd.Function
    )
    apply: Callable[..., Any] = function.apply
    asked = next(
        item
        for item in vars(tests).values()
        if isinstance(item, type)
        and issubclass(item, tests.OpTests)
        and item is not tests.OpTests
    )
    inputs = asked().inputs()
    if "forward" not in raw:
        with pytest.raises(NotImplementedError, match="made_op: write forward"):
            apply(*inputs)
        return
    given_in = [
        item.clone() if raw_dirty(raw) and isinstance(item, torch.Tensor) else item
        for item in inputs
    ]
    results = apply(*given_in)
    results = results if isinstance(results, tuple) else (results,)
    wanted = [item for item in results if item.requires_grad]
    if wanted and "write grad_" not in Path("made_op.py").read_text():
        torch.autograd.backward(wanted, [torch.ones_like(item) for item in wanted])
        for item in inputs:
            if isinstance(item, torch.Tensor) and item.grad is not None:
                assert item.grad.shape == item.shape


def check(raw: Raw) -> None:
    with tempfile.TemporaryDirectory() as directory, chdir(directory):
        files = by_options(raw)
        assert files == by_file(raw)
        assert files == by_options(raw)
        assert list(files) == ["made_op.py", "test_made_op.py"]
        for name, text in files.items():
            check_text(text)
            Path(name).write_text(text)
        op_text, test_text = files["made_op.py"], files["test_made_op.py"]
        with (
            imported("made_op", op_text) as op,
            imported("test_made_op", test_text) as tests,
        ):
            run(op, tests, raw)


@holds_for(raws(), 4)
def test_a_valid_op_comes_out_whole(raw: Raw) -> None:
    check(raw)


@holds_for(st.tuples(raws(), st.integers(40, 140)), 3)
def test_every_line_length_is_kept(drawn: tuple[Raw, int]) -> None:
    raw, length = drawn
    with tempfile.TemporaryDirectory() as directory, chdir(directory):
        Path("pyproject.toml").write_text(f"[tool.scaffold]\nline-length = {length}\n")
        text = by_options(raw | {"test": False})["made_op.py"]
        mode = black.Mode(target_versions={TargetVersion.PY311}, line_length=length)
        assert black.format_str(text, mode=mode) == text
