"""What code that leaves its file still needs of it: imports, from where the file had a name or from the file."""

import pytest

from scaffold.inspect import inspect_text
from scaffold.inspect.bodies import imports_of, module_names
from scaffold.inspect.declarations import Unfit
from scaffold.inspect.facts import Facts

FILE = """\
import math
import numpy as np
import torch
from torch.autograd import Function
from torch.nn import functional as F

LIMIT = 3.0


def helper(x):
    return x


class Twice(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2
"""


def facts() -> Facts:
    module = inspect_text(FILE, "ops.py")
    return Facts(module.functions[0], module)


def imports(body: str, module: str = "ops") -> list[str]:
    return [*imports_of(facts(), f"def body(x):\n    return {body}\n", module)]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("x * 2", []),
        ("max(x, len(x))", []),  # Python's own
        ("math.exp(x)", ["import math"]),
        ("np.exp(x)", ["import numpy as np"]),
        ("F.relu(x)", ["from torch.nn import functional as F"]),
        ("helper(x) * LIMIT", ["from ops import LIMIT, helper"]),
        ("[x for x in x]", []),
        ("np.exp(helper(x))", ["import numpy as np", "from ops import helper"]),
    ],
)
def test_every_name_is_imported_from_where_the_file_had_it(
    body: str, wanted: list[str]
) -> None:
    assert imports(body) == wanted


def test_a_name_that_the_file_does_not_have_is_a_reason() -> None:
    with pytest.raises(Unfit, match="'unknown' is not defined in its module"):
        imports("unknown(x)")


def test_a_file_that_cannot_be_imported_is_a_reason() -> None:
    assert imports("np.exp(x)", "my-ops") == ["import numpy as np"]
    with pytest.raises(Unfit, match="'my-ops' cannot be imported from"):
        imports("helper(x)", "my-ops")


def test_names_of_a_file_are_what_its_top_level_binds() -> None:
    own = {"LIMIT", "helper", "Twice"}
    assert module_names(facts(), own=True) == own
    assert module_names(facts()) >= own | {"F", "Function"}
