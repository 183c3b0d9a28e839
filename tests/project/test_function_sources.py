"""Functions of this process as text: those of files, of cells, and inside of others."""

import linecache
import math
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

from scaffold.errors import ScaffoldError
from scaffold.project.function_sources import forward_of

SCALE = 2.0
RANGE = (1, -1)
CELLS = iter(range(100))
other = SimpleNamespace(y=1)


def of_this_file(x: Any) -> Any:
    return x * SCALE


def with_constants(k: float) -> Callable[..., Any]:
    def inner(x: Any) -> Any:
        return of_this_file(x) * k * math.pi + RANGE[0]

    return inner


def act(x: Any) -> Any:
    return x * 2


def with_the_act_of_this_file(x: Any) -> Any:
    return act(x)


def with_two_functions_of_one_name() -> Callable[..., Any]:
    def act(x: Any) -> Any:
        return x * 3

    def inner(x: Any) -> Any:
        return with_the_act_of_this_file(act(x))

    return inner


def with_an_object() -> Callable[..., Any]:
    def inner(x: Any) -> Any:
        return x * other.y

    return inner


def cell(text: str) -> dict[str, Any]:
    """What a cell of a notebook defines."""
    path = f"/tmp/ipykernel_1/{next(CELLS)}.py"
    linecache.cache[path] = (len(text), None, text.splitlines(True), path)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, path, "exec"), names)  # noqa: S102 - a cell runs
    return names


def only(files: Any) -> str:
    (text,) = files.values()
    return str(text)


def test_text_stays_as_it_is() -> None:
    assert forward_of("x * 2") == ("x * 2", "derived", {})
    assert forward_of("@ops.py:swish")[:2] == ("@ops.py:swish", "swish")
    assert forward_of("@ops.py").name == "derived"


def test_a_function_of_a_file_is_read_there() -> None:
    found = forward_of(of_this_file)
    assert found.name == "of_this_file"
    path = found.text.removeprefix("@").removesuffix(":of_this_file")
    assert Path(path).samefile(__file__)
    assert not found.files


def test_of_text_that_defines_functions_the_last_is_the_forward() -> None:
    text = "def half(x):\n    return x / 2\n\ndef f(x):\n    return half(x)"
    found = forward_of(text)
    assert (found.name, found.text) == ("f", "@<f>.py:f")
    assert only(found.files) == text


def test_a_function_inside_of_another_brings_what_it_reads() -> None:
    found = forward_of(with_constants(3))
    lines = only(found.files).splitlines()
    assert lines[0] == "import math as math"
    assert sorted(lines[1:]) == sorted(
        [
            "RANGE = (1, -1)",
            "k = 3",
            "SCALE = 2.0",
            "def of_this_file(x: Any) -> Any:",
            "    return x * SCALE",
            "def inner(x: Any) -> Any:",
            "    return of_this_file(x) * k * math.pi + RANGE[0]",
        ]
    )


def test_two_functions_of_one_name_are_refused() -> None:
    with pytest.raises(ScaffoldError, match="'act' is one thing here and another"):
        forward_of(with_two_functions_of_one_name())


def test_a_function_of_a_cell_is_its_text() -> None:
    names = cell("import math\nK = 3\n\ndef f(x):\n    return x * K + math.e\n")
    text = only(forward_of(names["f"]).files)
    assert text.startswith("import math as math\n")
    assert "K = 3\n" in text
    assert text.endswith("def f(x):\n    return x * K + math.e\n")


def unreadable() -> FunctionType:
    names: dict[str, Any] = {}
    exec("def gone(x): return x", names)  # noqa: S102 - as a prompt does
    found = names["gone"]
    assert isinstance(found, FunctionType)
    return found


@pytest.mark.parametrize(
    ("forward", "said", "hint"),
    [
        (lambda x: x * 2 + 1, "a lambda has no name", "scaffold.derive('x * 2 + 1')"),
        (abs, "'abs' is not a function", "scaffold.derive('torch.abs(x)')"),
        (3, "'int' is not a function", "give a function, or text"),
        (str, "'str' is not a function", "give a function, or text"),
        (Path(".").exists, "'exists' is a method", "write a function of"),
        (with_an_object(), "'inner' reads 'other'", "def inner(..., other)"),
        (unreadable(), "the source of 'gone' cannot be read", "define it in a file"),
    ],
    ids=["lambda", "builtin", "number", "class", "method", "object", "prompt"],
)
def test_what_cannot_be_read_is_told_with_what_to_type(
    forward: object, said: str, hint: str
) -> None:
    with pytest.raises(ScaffoldError) as caught:
        forward_of(forward)
    assert said in caught.value.message
    assert hint in str(caught.value.hint)


def test_a_function_under_another_name_is_refused() -> None:
    names = cell(
        "def half(x):\n    return x / 2\n\nh = half\n\ndef f(x):\n    return h(x)\n"
    )
    with pytest.raises(ScaffoldError, match="'h' is a function called 'half'"):
        forward_of(names["f"])


def test_a_class_of_a_cell_has_a_forward() -> None:
    names = cell(
        "import math\n\nclass Base: pass\n\nclass Norm(Base):\n"
        "    def __init__(self, eps=1e-6):\n        self.eps = eps\n"
        "    def forward(self, x):\n        return x * math.pi / self.eps\n"
    )
    found = forward_of(names["Norm"])
    assert (found.name, found.text) == ("Norm", "@<Norm>.py:Norm")
    assert only(found.files).startswith("import math as math\nclass Norm(Base):\n")
