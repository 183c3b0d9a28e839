"""Functions and custom operators are found in one walk over a file: everything in its order, with what stands around it."""

import ast

import pytest

from scaffold.inspect import NotReadable, function_names, inspect_text, may_matter
from scaffold.inspect.classes import (
    aliases,
    applications,
    find_operators,
    local_names,
    scan,
)
from scaffold.inspect.imported_names import Names

TREE = ast.parse("""\
import torch

Base = torch.autograd.Function


class Outer:
    class Inner(Base):
        def forward(self):
            import math


square = Square.apply


def call(x):
    local = Square.apply
    return square(x) + Square.apply(x) + other.kernel(x)
""")
FOUND = scan(TREE)


def test_definitions_come_in_order_with_those_around_them() -> None:
    within = [
        (getattr(node, "name", ""), [getattr(outer, "name", "") for outer in around])
        for node, around in (*FOUND.classes, *FOUND.functions)
    ]
    assert within == [
        ("Outer", []),
        ("Inner", ["Outer"]),
        ("forward", ["Outer", "Inner"]),
        ("call", []),
    ]
    assert len(FOUND.imports) == 2


def test_apply_is_found_by_both_names() -> None:
    (calls,) = applications(FOUND).items()
    name, found = calls
    assert (name, len(found)) == ("Square", 2)


def test_only_the_module_s_own_names_are_aliases() -> None:
    assert aliases(FOUND) == {"Square": ["square"]}
    local = local_names(FOUND, Names(TREE))
    assert local == {"Base": "torch.autograd.Function", "square": "Square.apply"}


METHODS = """\
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g
"""


def names(text: str, *known: str) -> list[str]:
    return [
        f.qualname for f in inspect_text(text, "ops.py", frozenset(known)).functions
    ]


@pytest.mark.parametrize(
    "head",
    [
        "import torch\nclass F(torch.autograd.Function):\n",
        "import torch.autograd as ag\nclass F(ag.Function):\n",
        "from torch import autograd\nclass F(autograd.Function):\n",
        "from torch.autograd import Function\nclass F(Function):\n",
        "from torch.autograd import Function as Fn\nclass F(Fn):\n",
        "from torch.autograd.function import Function\nclass F(Function):\n",
        "from torch.autograd.function import InplaceFunction\nclass F(InplaceFunction):\n",
        "from torch.autograd import *\nclass F(Function):\n",
        "import torch\nBase = torch.autograd.Function\nclass F(Base):\n",
        "from .compat import Function\nclass F(Function):\n",
        "from .base import Quantizer\nclass F(Quantizer):\n",
        "try:\n    from torch.autograd import Function\nexcept ImportError:\n    pass\nclass F(Function):\n",
    ],
)  # fmt: skip
def test_a_base_says_so(head: str) -> None:
    assert names(head + METHODS) == ["F"]


@pytest.mark.parametrize(
    "text",
    [
        "import sympy\nclass F(sympy.Function):\n    nargs = 1\n",
        "class Function:\n    pass\nclass F(Function):\n    pass\n",
        "from torch import nn\nclass F(nn.Module):\n    def forward(self, x):\n        return x\n",
        f"class F:\n{METHODS}",
        "from a import Base\nclass F(Base):\n    def backward(self, g):\n        return g\n",
        f"from paddle.autograd import PyLayer\nclass F(PyLayer):\n{METHODS}",
        f"from jittor import Function\nclass F(Function):\n{METHODS}",
        f"from mxnet import autograd\nclass F(autograd.Function):\n{METHODS}",
    ],
)
def test_other_classes_are_none(text: str) -> None:
    assert names(text) == []


def test_inheritance_is_followed() -> None:
    text = (
        "from torch.autograd import Function\n"
        f"class Base(Function):\n{METHODS}\n"
        "class Middle(Base):\n    pass\n"
        "class Last(Middle):\n    @staticmethod\n    def forward(ctx, x, y):\n        return x\n"
    )
    module = inspect_text(text, "ops.py")
    assert [f.name for f in module.functions] == ["Base", "Middle", "Last"]
    last = module.functions[-1]
    assert last.forward is not None and len(last.forward.parameters) == 2
    assert last.backward is module.functions[0].backward


def test_a_base_of_another_file_is_known_by_name() -> None:
    text = "from base import Base\nclass F(Base):\n    pass\n"
    assert names(text) == []
    assert names(text, "Base") == ["F"]
    assert function_names("class Base(torch.autograd.Function):\n    pass\n") == {
        "Base"
    }
    assert (
        function_names("class Base(LossFunction, sympy.Function):\n    pass\n") == set()
    )


def test_factories_and_classes_inside_of_classes() -> None:
    body = "".join(f"        {line}\n" for line in METHODS.split("\n"))
    text = (
        "from torch.autograd import Function\n"
        f"def make(k):\n    class Made(Function):\n{body}    return Made\n"
        f"class Layer:\n    class Op(Function):\n{body}"
    )
    module = inspect_text(text, "ops.py")
    assert [f.qualname for f in module.functions] == ["make.Made", "Layer.Op"]
    assert [f.nested for f in module.functions] == [True, False]


def test_two_classes_of_one_name_stay_apart() -> None:
    text = (
        "from torch.autograd import Function\n"
        "if True:\n    class F(Function):\n        a = 1\nelse:\n    class F(Function):\n        b = 1\n"
    )
    module = inspect_text(text, "ops.py")
    assert [f.unique for f in module.functions] == [False, False]


def test_classmethods_lose_their_class_and_ctx() -> None:
    text = (
        "from torch.autograd import Function\n"
        "class F(Function):\n"
        "    @classmethod\n    def forward(cls, ctx, x, *rest, k=1, **more):\n        return x\n"
        "    @classmethod\n    def backward(cls, ctx, g):\n        return g\n"
    )
    (function,) = inspect_text(text, "ops.py").functions
    assert function.forward is not None and function.forward.ctx == "ctx"
    passing = [(p.name, p.passing) for p in function.forward.parameters]
    assert passing == [
        ("x", "positional"),
        ("rest", "variadic"),
        ("k", "keyword"),
        ("more", "keywords"),
    ]
    assert function.setup_context is None


def test_calls_and_aliases_are_found() -> None:
    text = (
        "from torch.autograd import Function\n"
        f"class F(Function):\n{METHODS}\n"
        "f = F.apply\n\n\ndef g(x):\n    return F.apply(x)\n\n\ny = f(1)\n"
    )
    (function,) = inspect_text(text, "ops.py").functions
    assert function.aliases == ("f",)
    assert [item.call.lineno for item in function.applications] == [15, 18]


def test_operators_and_their_registrations() -> None:
    text = (
        "import torch\n"
        "@torch.library.custom_op('lib::f', mutates_args=())\ndef f(x):\n    return x\n"
        "def back(ctx, g):\n    return g\n"
        "torch.library.register_autograd('lib::f', back)\n"
        "@torch.library.custom_op('lib::h', mutates_args=())\ndef h(x):\n    return x\n"
    )
    first, second = inspect_text(text, "ops.py").operators
    assert first.backward is not None and first.backward.name == "back"
    assert second.autograd is None


@pytest.mark.parametrize("text", ["print 'x'", "def f(:\n", "x = \0", "(" * 500])
def test_what_cannot_be_parsed_has_a_place(text: str) -> None:
    with pytest.raises(NotReadable) as raised:
        inspect_text(text, "old.py")
    assert raised.value.location is not None


@pytest.mark.parametrize(
    ("text", "matters"),
    [
        ("x = 1\n", False),
        ("class F(Base):\n    pass\n", True),
        ("class F(Other):\n    pass\n", False),
        ("from torch import autograd\n", True),
        ("self.w = nn.Parameter(torch.Tensor(3, 4))\n", True),
    ],
)
def test_what_is_passed_over_cannot_matter(text: str, matters: bool) -> None:
    assert may_matter(text, frozenset({"Base"})) is matters


def test_a_function_of_another_framework_is_no_base_for_other_files() -> None:
    text = (
        "from chainer import function\nclass Function(function.Function):\n    x = 1\n"
    )
    assert function_names(text) == set()
    assert function_names(f"# unlike torch's\n{text}") == {"Function"}


OPERATOR = """\
import torch
from torch.library import custom_op, register_autograd


@custom_op("team::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return x**3


def backward(ctx, grad):
    return 3 * grad


"""


def found(text: str) -> tuple[str, bool, str | None]:
    tree = ast.parse(text)
    (operator,) = find_operators(scan(tree), Names(tree))
    gradient = operator.backward.name if operator.backward else None
    return operator.name, operator.autograd is not None, gradient


@pytest.mark.parametrize(
    "registration",
    [
        "cube.register_autograd(backward)",
        'register_autograd("team::cube", backward)',
        "register_autograd(cube, backward)",
        'torch.library.register_autograd("team::cube", backward)',
    ],
)
def test_a_gradient_that_is_registered(registration: str) -> None:
    assert found(OPERATOR + registration) == ("cube", True, "backward")


@pytest.mark.parametrize(
    "registration",
    [
        "",
        "square.register_autograd(backward)",
        'register_autograd("team::square", backward)',
    ],
)
def test_what_is_registered_for_another_is_not_its(registration: str) -> None:
    assert found(OPERATOR + registration) == ("cube", False, None)


def test_any_other_decorator_makes_none() -> None:
    tree = ast.parse(OPERATOR.replace("@custom_op(", "@other("))
    assert find_operators(scan(tree), Names(tree)) == ()


def test_a_number_that_is_too_long_for_python_is_named() -> None:
    with pytest.raises(NotReadable) as raised:
        inspect_text(f"x = 1\ny = {'9' * 5000}\n", "old.py")
    assert str(raised.value.location) == "old.py:2:5"
    assert "cannot be parsed: a number has thousands of digits" in str(raised.value)
