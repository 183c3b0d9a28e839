"""What a name can be at a place: one thing for sure, or several."""

import ast

import pytest

from scaffold.inspect import Values
from scaffold.inspect.flow import Flow
from scaffold.inspect.imported_names import Names
from scaffold.inspect.values import how_many


def analysed(body: str) -> tuple[Flow, Values]:
    code = "import torch\ndef f(x, y, n, flag):\n" + "".join(
        f"    {line}\n" for line in body.split("\n")
    )
    tree = ast.parse(code)
    node = tree.body[1]
    assert isinstance(node, ast.FunctionDef)
    flow = Flow(node, ["x", "y", "n", "flag"])
    return flow, Values(flow, Names(tree), None, ("x", "y"))


def root_of_return(body: str) -> str | None:
    flow, values = analysed(body)
    step = flow.returns[-1]
    assert isinstance(step.statement, ast.Return) and step.statement.value is not None
    root = values.root(step.statement.value, step)
    return None if root is None else root.name or root.origin


@pytest.mark.parametrize(
    ("body", "root"),
    [
        ("return x", "x"),
        ("z = x\nreturn z", "x"),
        ("z = x.view(-1)\nreturn z[0]", "x"),
        ("x = x.clone()\nreturn x", "fresh"),
        ("z = x + y\nreturn z", "fresh"),
        ("if flag:\n    x = y\nreturn x", None),
        ("if flag:\n    x = y\n    return x\nreturn x", "x"),
        ("if flag:\n    z = x\nelse:\n    z = x\nreturn z", None),
        ("for i in n:\n    x = x * 2\nreturn x", None),
        ("with torch.no_grad():\n    z = y\nreturn z", "y"),
        ("x, y = y, x\nreturn x", "y"),
        ("x, y = n\nreturn x", None),
        ("try:\n    x = y\nexcept E:\n    pass\nreturn x", None),
        ("x = x.contiguous()\nreturn x", None),
        ("z = x.add_(1)\nreturn z", "x"),
        ("def g():\n    nonlocal x\n    x = 1\nreturn x", None),
        ("if (x := n):\n    pass\nreturn x", None),
        ("return unknown(x)", None),
        ("z = (x + y).contiguous()\nreturn z.to(n)", "fresh"),
        ("return x.to(n, copy=True)", "fresh"),
        ("return x[y]", None),
    ],
)
def test_whose_memory_it_is(body: str, root: str | None) -> None:
    assert root_of_return(body) == root


@pytest.mark.parametrize(
    ("body", "length"),
    [
        ("return x, y", 2),
        ("return x * 2", 1),
        ("return (x,) + (None,) * 3", 4),
        ("return (x, *(None, None))", 3),
        ("g = (x, None)\nreturn g", 2),
        ("return (x,) + (None,) * n", None),
        ("g = [x]\ng.append(y)\nreturn (*g,)", None),
        ("g = [x]\nreturn (*g, None)", 2),
        ("return (x, *n)", None),
        ("return compute(x)", None),
        ("return n + flag", None),
        ("g = n\nreturn g", None),
        ("return torch.exp(n)", 1),
        ("d, i = x.topk(2)\nreturn d", 1),
        ("d, i = n.topk(2)\nreturn d", None),
        ("return x == None", None),
        ("return [x, y]", None),
        ("return None", 1),
    ],
)
def test_how_many_values(body: str, length: int | None) -> None:
    flow, values = analysed(body)
    step = flow.returns[-1]
    assert isinstance(step.statement, ast.Return)
    assert how_many(values, step.statement.value, step) == length


def test_a_long_chain_of_names_takes_no_longer_than_it_is() -> None:
    lines = ["a0 = x"]
    for number in range(1, 200):
        lines += [f"if flag:\n        a{number} = a{number - 1} + a{number - 1}",
                  f"else:\n        a{number} = a{number - 1} * a{number - 1}"]  # fmt: skip
    flow, values = analysed("\n".join([*lines, "return a199"]))
    step = flow.returns[-1]
    assert isinstance(step.statement, ast.Return) and step.statement.value is not None
    values.is_tensor(step.statement.value, step)


@pytest.mark.parametrize(
    ("body", "values"),
    [
        ("if flag:\n    z = x\nelse:\n    raise E\nreturn z", ["x"]),
        ("if flag:\n    raise E\nelse:\n    z = x\nreturn z", ["x"]),
        ("if flag:\n    z = x\nelif n:\n    z = y\nelse:\n    z = n\nreturn z", ["n", "x", "y"]),
        ("z = n\nif flag:\n    if n:\n        z = x\n    else:\n        z = y\nelse:\n    return z\nreturn z", ["x", "y"]),
        ("z = n\nif flag:\n    if n:\n        z = x\n    else:\n        z = y\nreturn z", ["n", "x", "y"]),
        ("if flag:\n    z = x\nelif n:\n    z = y\nreturn z", ["", "x", "y"]),
        ("for i in n:\n    if flag:\n        z = x\n    else:\n        raise E\nreturn z", ["", "x"]),
        ("try:\n    if flag:\n        z = x\n    else:\n        raise E\nexcept E:\n    pass\nreturn z", ["", "x"]),
        ("for i in n:\n    if flag:\n        z = x\n    else:\n        break\nreturn z", ["", "x"]),
    ],
)  # fmt: skip
def test_each_branch_binds_a_name_or_leaves(body: str, values: list[str]) -> None:
    flow, _ = analysed(body)
    found = flow.reaching("z", flow.returns[-1])
    texts = [ast.unparse(b.value) if b and b.value else "" for b in found]
    assert sorted(texts) == values
