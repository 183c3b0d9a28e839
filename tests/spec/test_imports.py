"""What formulas import."""

import pytest

from scaffold.errors import Location, ScaffoldError
from scaffold.spec import Import
from scaffold.spec.imports import Imports, parse_import, parse_imports
from tests.spec.written import complaints, op

PLACE = Location("--import")


@pytest.mark.parametrize(
    ("text", "item"),
    [
        ("numpy", Import("numpy")),
        ("numpy as np", Import("numpy", None, "np")),
        ("scipy.special", Import("scipy.special")),
        ("my.kernels:forward", Import("my.kernels", "forward")),
        (" my.kernels : forward  as  f ", Import("my.kernels", "forward", "f")),
    ],
)
def test_forms(text: str, item: Import) -> None:
    assert parse_import(text, PLACE) == item


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is not an import"),
        ("from a.b import *", "name what is used: 'from a.b import name'"),
        ("from .b import c", "write the full name of the package"),
        ("from a import", "'from a import' is not an import"),
        ("kernels.py:f", "write 'kernels:f'"),
        ("./lib/kernels.py:f", "write 'lib.kernels:f'"),
        (".kernels:f", "write the full name of the package"),
        ("a, b", "write 'module:one, other', or state one import at a time"),
        ("a:b:c", "write 'module:name', 'module:name as other' or"),
        ("class:x", "'class:x' is not an import"),
        ("a..b", "'a..b' is not an import"),
        ("a:*", "'a:*' is not an import"),
        ("a; import os", "is not an import"),
        ("__future__:annotations", "is private to Python"),
    ],
)
def test_what_is_no_import(text: str, message: str) -> None:
    with pytest.raises(ScaffoldError) as caught:
        parse_imports(text, PLACE)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "items"),
    [
        ("a:b", [Import("a", "b")]),
        ("import numpy as np", [Import("numpy", None, "np")]),
        ("from a.b import c as d", [Import("a.b", "c", "d")]),
        ("from a import b, c as d", [Import("a", "b"), Import("a", "c", "d")]),
        ("from a import (\n    b,\n    c,\n)", [Import("a", "b"), Import("a", "c")]),
        ("import a.b, c", [Import("a.b"), Import("c")]),
        ("importer:f", [Import("importer", "f")]),
    ],
)
def test_statements_of_python(text: str, items: list[Import]) -> None:
    assert [*parse_imports(text, PLACE)] == items


HIDDEN = {"x": "input", "output": "output"}


def test_the_same_import_twice_is_one() -> None:
    imports = Imports(HIDDEN, "foo")
    for text in ("a:b", "a:b", "p.q", "p.r", "torch", "torch.nn as nn", "torch:Tensor"):
        imports.add(parse_import(text, PLACE), PLACE)
    assert imports.found == (Import("a", "b"), Import("p.q"), Import("p.r"))
    assert imports.names == {"b", "p"}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a:x"], "the import hides the input 'x'\nhint: import it under another name: 'a:x as ...'"),
        (["a:output"], "the import hides the output 'output'\nhint: import it under another name: 'a:output as ...'"),
        (["a:b", "c:b"], "two imports bind 'b'\nhint: import it under another name: 'c:b as ...'"),
        (["a:b", "b"], "two imports bind 'b'\nhint: import it under another name: 'b as ...'"),
        (["foo:kernel"], "'foo' is the module of the op itself\nhint: keep your functions in a file of another name"),
        (["torch.distributed"], "'torch' has a meaning in generated code\nhint: import it under another name: 'torch.distributed as ...'"),
        (["numpy as F"], "'F' has a meaning in generated code\nhint: import it under another name: 'numpy as ...'"),
    ],
)  # fmt: skip
def test_imports_that_collide(texts: list[str], message: str) -> None:
    imports = Imports(HIDDEN, "foo")
    with pytest.raises(ScaffoldError) as caught:
        for text in texts:
            imports.add(parse_import(text, PLACE), PLACE)
    assert str(caught.value) == f"--import: {message}"


def test_an_import_is_in_scope_everywhere() -> None:
    found = op(
        "inputs = 'x, m'\nimport = ['a:f', 'numpy as np']\nforward = 'f(x)'\n"
        "grad.x = 'f(grad_output)'\nbuffers = ['m']\nupdate.m = 'f(np.pi)'\n"
        "surrogate = 'f(x)'"
    )
    assert found.imports == (Import("a", "f"), Import("numpy", None, "np"))


def test_an_import_does_not_hide_what_the_op_defines() -> None:
    text = "inputs = 'x'\nimport = ['a:foo', 'a:Foo', 'b:FooFunction']"
    assert complaints(text) == [
        (
            "3:12: the op itself defines 'foo'\n"
            "hint: import it under another name: 'a:foo as ...'"
        ),
        (
            "3:21: the op itself defines 'Foo'\n"
            "hint: import it under another name: 'a:Foo as ...'"
        ),
        (
            "3:30: the op itself defines 'FooFunction'\n"
            "hint: import it under another name: 'b:FooFunction as ...'"
        ),
    ]


def test_several_names_of_one_module() -> None:
    found = parse_imports("kernels:forward, backward as bwd", Location("--import"))
    assert found == (
        Import("kernels", "forward"),
        Import("kernels", "backward", "bwd"),
    )
