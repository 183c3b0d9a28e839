"""The names of an op change where they are the op's."""

import pytest

from scaffold.inspect.renaming import Names, Renaming, renamed

RENAMING = Renaming(
    Names("linear", "linear_op", ("LinearFunction", "Linear")),
    Names("dense", "dense_op", ("DenseFunction", "Dense")),
    frozenset({"x", "weight"}),
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("y = linear(x, linear)", "y = dense(x, dense)"),
        ("y = F.linear(x)", "y = F.linear(x)"),
        ("y = f(linear=linear)", "y = f(linear=dense)"),
        ("class Mine(LinearFunction): pass", "class Mine(DenseFunction): pass"),
        ("x = LinearFunction.apply", "x = DenseFunction.apply"),
        (
            "from ops.linear_op import linear, Linear as L",
            "from ops.dense_op import dense, Dense as L",
        ),
        (
            "from .linear_op import (\n    linear,\n)",
            "from .dense_op import (\n    dense,\n)",
        ),
        ("from ops import linear_op", "from ops import dense_op"),
        ("import ops.linear_op", "import ops.dense_op"),
        (
            "from torch.nn.functional import linear",
            "from torch.nn.functional import linear",
        ),
        ("import linear", "import linear"),
        ("def test_of_linear_too(): pass", "def test_of_dense_too(): pass"),
        ("def test_linearity(): pass", "def test_linearity(): pass"),
        ("raise E('linear: write forward')", "raise E('dense: write forward')"),
        ('""":func:`linear` is linear."""', '""":func:`dense` is linear."""'),
        ("x = 1  # linear", "x = 1  # linear"),
        ("a linear (", "a linear ("),
        ("é = 'é'; linear(é)", "é = 'é'; dense(é)"),
    ],
)
def test_a_word_changes_where_it_is_the_op(before: str, after: str) -> None:
    assert renamed(before + "\n", RENAMING) == after + "\n"


def test_an_argument_of_that_name_is_none_of_it() -> None:
    renaming = RENAMING._replace(arguments=frozenset({"linear"}))
    assert renamed("y = linear(x) * linear\n", renaming) == "y = dense(x) * linear\n"
