"""Parameters that only a tensor can be."""

import ast

import pytest

from scaffold.inspect.flow import Flow
from scaffold.inspect.imported_names import Names
from scaffold.inspect.values import evident_tensors


def found(statement: str, parameters: str = "x, y, ctx") -> set[str]:
    tree = ast.parse(f"import torch\ndef f({parameters}):\n    {statement}\n")
    node = tree.body[1]
    assert isinstance(node, ast.FunctionDef)
    flow = Flow(node, [item.arg for item in node.args.args])
    return set(evident_tensors(flow, Names(tree)))


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("return x.sigmoid()", {"x"}),
        ("return torch.sigmoid(x)", {"x"}),
        ("ctx.save_for_backward(x, y)", {"x", "y"}),
        ("return x.ndim", {"x"}),
        ("return x.dtype, x.seqlen", set()),
        ("ctx.save_for_backward(x) if torch.is_tensor(x) else n", set()),
        ("return x.size(0)", {"x"}),
        ("return x[:, None] + y[0]", {"x"}),
        ("return x.get(0) + y.copy()", set()),
        ("return x + y", set()),
        ("return torch.zeros(x)", set()),
    ],
)
def test_what_is_done_with_it_tells(statement: str, names: set[str]) -> None:
    assert found(statement) == names


def test_an_annotation_tells() -> None:
    assert found("pass", "x: torch.Tensor, y: int") == {"x"}
