"""Statements that assign one target each, and return once."""

import ast

import pytest

from scaffold.formula.desugar import (
    plain,
    straightened,
    with_modes_closed,
    with_one_return,
    without_dicts,
)

CASES = [
    ("v[0] = x", "v[0] = x"),
    ("a, b = x, y", "a, b = x, y"),
    ("v[0], v[-1] = x, y", "v_part, v_part_2 = x, y\nv[0] = v_part\nv[-1] = v_part_2"),
    ("v[0], w = x, y", "v_part, w = x, y\nv[0] = v_part"),
    ("v[0], *w = x", "v_part, *w = x\nv[0] = v_part"),
    ("*v[0], w = x", "*v_part, w = x\nv[0] = v_part"),
    ("(v[0], w), z = x", "(v_part, w), z = x\nv[0] = v_part"),
    ("[v[0], w] = x", "v_part, w = x\nv[0] = v_part"),
    # A name that is assigned beside a part is read by it before, or after.
    ("v[i], i = x, 1", "v_part, i_part = x, 1\nv[i] = v_part\ni = i_part"),
    ("i, v[i] = 1, x", "i_part, v_part = 1, x\ni = i_part\nv[i] = v_part"),
    ("a = b = x", "a = x\nb = a"),
    ("a = v[0] = x", "a = x\nv[0] = a"),
    ("v[0] = a = x", "value = x\nv[0] = value\na = value"),
    ("a, b = c = x", "value = x\na, b = value\nc = value"),
    ("v[0], v_part = x", "v_part_2, v_part = x\nv[0] = v_part_2"),
    # The sizes of a star among others, but not where a name is read that is assigned.
    ("b, t, n = *x.shape, 2", "b, t = x.shape\nn = 2"),
    ("k, *b, n = 2, *x.shape, y.shape[0]", "k, *b, n = 2, *x.shape, y.shape[0]"),
    ("k, b, t, n = 2, *x.shape, y.shape[0]", "k = 2\nb, t = x.shape\nn = y.shape[0]"),
    ("b, t, n = *x.shape, b", "b, t, n = *x.shape, b"),
    # One of a dict, by a name.
    (
        'y = {"a": x, "b": z}[m]',
        'if m == "a":\n    y = x\nelif m == "b":\n    y = z\nelse:\n    raise ValueError(f"unknown m: {m}")',
    ),
    (
        'y = {"a": torch.sin, "b": f}[m](x, 2)',
        'if m == "a":\n    y = torch.sin(x, 2)\nelif m == "b":\n    y = f(x, 2)\nelse:\n    raise ValueError(f"unknown m: {m}")',
    ),
    (
        "y = {1: x, 0: z, True: w}[m]",
        'if m == True:\n    y = w\nelif m == 0:\n    y = z\nelse:\n    raise ValueError(f"unknown m: {m}")',
    ),
    ('y = {"a": x.pop(), "b": z.add_(1)}[m]', 'y = {"a": x.pop(), "b": z.add_(1)}[m]'),
    ('y = {"a": x, **z}[m]', 'y = {"a": x, **z}[m]'),
    ('y = {"a": x}[m + 1]', 'y = {"a": x}[m + 1]'),
    ("if t:\n    v[0], w = x\n", "if t:\n    v_part, w = x\n    v[0] = v_part"),
]


@pytest.mark.parametrize(("text", "wanted"), CASES)
def test_each_statement_assigns_one_target(text: str, wanted: str) -> None:
    found = plain(ast.parse(text).body)
    tree = ast.fix_missing_locations(ast.Module(found, []))
    assert ast.unparse(tree) == ast.unparse(ast.parse(wanted))


STRAIGHT = [
    (
        "with torch.no_grad():\n    m = x.amax(-1)\n    n = m - 1",
        "m = x.amax(-1).detach()\nn = (m - 1).detach()",
    ),
    (
        "with torch.no_grad():\n    q = torch.min(x, y)",
        "q = torch.min(x, y).detach()",
    ),
    (
        "with torch.no_grad():\n    v, i = x.topk(2)",
        "v, i = x.topk(2)\nv = v.detach()\ni = i.detach()",
    ),
    (
        "with torch.no_grad():\n    h = torch.zeros_like(x).scatter_(1, i, 1)\n    h[0] = x[1]",
        "h = torch.zeros_like(x).scatter_(1, i, 1).detach()\nh[0] = x[1].detach()",
    ),
    (
        "with torch.no_grad():\n    h = torch.zeros(2)\n    h.scatter_(0, i, 1)",
        "h = torch.zeros(2).detach()\nh.scatter_(0, i, 1)",
    ),
    (
        "with torch.no_grad():\n    h = torch.zeros(2)\n    h.add_(y)",
        "h = torch.zeros(2).detach()\nh.add_(y)\nh = h.detach()",
    ),
    (
        "with torch.no_grad():\n    h = x.exp()\n    h /= h.sum(0)\n    h += 1\n    h -= h",
        "h = x.exp().detach()\nh /= h.sum(0)\nh += 1\nh -= h",
    ),
    (
        "with torch.no_grad():\n    h = x\n    k = h.exp()",
        "h = x\nk = h.exp().detach()",
    ),
    (
        "with torch.no_grad():\n    h = x + 1 if t else (x * 2).float()\n    k = h",
        "h = (x + 1 if t else (x * 2).float()).detach()\nk = h.detach()",
    ),
    (
        "if t:\n    with torch.no_grad():\n        if u:\n            k = 1",
        "if t:\n    if u:\n        k = 1",
    ),
    ("rows = []\nrows.append(x)", "rows = []\nrows = [*rows, x]"),
    ("rows = []\nrows += [x, y]", "rows = []\nrows = [*rows, *[x, y]]"),
    ("rows = [x]\nrows.extend(y)", "rows = [x]\nrows = [*rows, *y]"),
    ("h[..., 0].zero_()", "h[..., 0] = 0"),
    ("h[:, 1].fill_(c)", "h[:, 1] = c"),
    ("h[-1].copy_(y)", "h[-1] = y"),
    ("h[:, 1:].mul_(y)", "h[:, 1:] = h[:, 1:].mul(y)"),
    ("h[0].clamp_(min=0)", "h[0] = h[0].clamp(min=0)"),
    ("y = (e := x.exp()) + e", "e = x.exp()\ny = e + e"),
    ("f(e := x.exp()) + e", "e = x.exp()\nf(e) + e"),
    ("with torch.enable_grad():\n    y = x + 1", "y = x + 1"),
    (
        "with torch.autocast(x.device.type, enabled=False):\n    y = x.float().exp()",
        "y = x.float().exp()",
    ),
    (
        "with torch.cuda.amp.autocast(enabled=False):\n    y = float(n) * x",
        "y = float(n) * x",
    ),
    (
        "if (d := x.shape[0]) > 1:\n    return (y := x)\n",
        "d = x.shape[0]\nif d > 1:\n    y = x\n    return y",
    ),
]


@pytest.mark.parametrize(("text", "wanted"), STRAIGHT)
def test_what_says_the_same_is_an_assignment(text: str, wanted: str) -> None:
    tree = ast.fix_missing_locations(ast.Module(straightened(ast.parse(text).body), []))
    assert ast.unparse(tree) == ast.unparse(ast.parse(wanted))


@pytest.mark.parametrize(
    "text",
    [
        # Of these the value is a tensor that autograd recorded before.
        "with torch.no_grad():\n    y = torch.max(x, dim)",
        "with torch.no_grad():\n    y = torch.max(x, -1)",
        "with torch.no_grad():\n    y = x.float()",
        "with torch.no_grad():\n    y = x if t else z",
        "with torch.no_grad():\n    y = x.real",
        # These change one.
        "with torch.no_grad():\n    h[0] = x",
        "with torch.no_grad():\n    h.mul_(x)",
        "with torch.no_grad():\n    y = h.mul_(2)",
        "with torch.no_grad():\n    y = x * h.mul_(2)",
        "with torch.no_grad():\n    h += 1",
        # Several tensors under one name.
        "with torch.no_grad():\n    parts = x.chunk(2)",
        "with torch.no_grad():\n    if t:\n        y = x.real",
        # One way it is another name of a tensor.
        "with torch.no_grad():\n    if t:\n        y = x\n    else:\n        y = x + 1\n    y.mul_(2)",
        "with torch.no_grad():\n    with torch.enable_grad():\n        y = x + 1",
        "with torch.autocast('cpu'):\n    y = x + 1",
        "with torch.autocast('cpu', enabled=on):\n    y = x + 1",
        # Under the caller's autocast it would be of another dtype.
        "with torch.autocast('cpu', enabled=False):\n    y = x @ w",
        "with torch.autocast('cpu', enabled=False):\n    y = F.linear(x, w)",
        "with torch.autocast('cpu', enabled=False):\n    y = f(x)",
        # A part that is a copy, or that nobody says of what.
        "h[i].mul_(2)",
        "h[x > 0].zero_()",
        "h[0][1].zero_()",
        "h[0].bernoulli_(0.5)",
        "h[0].requires_grad_()",
        # A list that has two names, or is none.
        "rows = []\nsame = rows\nrows.append(x)",
        "rows.append(x)",
        # What is not always computed, or reads another value of the name.
        "y = (e := x) if t else z",
        "y = t and (e := x)",
        "y = [e := x for x in z]",
        "y = e + (e := x)",
        "y = h.exp_() + (e := h)",
    ],
)
def test_what_may_say_something_else_stays(text: str) -> None:
    body = ast.parse(text).body
    assert ast.dump(ast.Module(straightened(body), [])) == ast.dump(
        ast.Module(body, [])
    )


def test_what_is_given_stays_as_it_is() -> None:
    body = ast.parse("v[0], w = x, y").body
    before = ast.dump(body[0])
    plain(body)
    assert ast.dump(body[0]) == before


RETURNS = [
    (
        "if t:\n    return a\nreturn b",
        "if t:\n    result = a\nelse:\n    result = b\nreturn result",
    ),
    (
        "if t:\n    return a, b\nc = d\nreturn c, d",
        "if t:\n    result_0, result_1 = (a, b)\nelse:\n    c = d\n    "
        + "result_0, result_1 = (c, d)\nreturn (result_0, result_1)",
    ),
    # Nothing follows the last test: an unknown mode is an error.
    (
        "if mode == 'a':\n    return x",
        "if mode == 'a':\n    result = x\nelse:\n    raise ValueError(f'unknown mode: {mode}')\nreturn result",
    ),
    # So is an unknown rank.
    (
        "if len(x.shape) == 4:\n    return a\nelif x.ndim == 5:\n    return b",
        "if len(x.shape) == 4:\n    result = a\nelif x.ndim == 5:\n    result = b\nelse:\n    "
        + "raise ValueError(f'unknown x.ndim: {x.ndim}')\nreturn result",
    ),
    ("result = x\nif t:\n    return a\nreturn result", None),
]


@pytest.mark.parametrize(("text", "wanted"), RETURNS)
def test_one_return_stands_at_the_end(text: str, wanted: str | None) -> None:
    done = ast.unparse(ast.Module(with_one_return(ast.parse(text).body), []))
    if wanted is None:
        assert "result_value" in done, "the name is taken"
    else:
        assert done == ast.unparse(ast.parse(wanted))


@pytest.mark.parametrize(
    "text",
    [
        "if t:\n    return a\nb = c",  # not every way returns
        "if t:\n    return a, b\nreturn c",  # not as many
        "if t:\n    if u:\n        return a\n    v = b\nelse:\n    w = c\nreturn v",  # `return v` would stand twice
    ],
)
def test_what_would_repeat_a_statement_stays(text: str) -> None:
    body = ast.parse(text).body
    assert list(map(ast.dump, with_one_return(body))) == list(map(ast.dump, body))


def test_new_dims_of_what_the_line_above_made() -> None:
    loop = "while s.ndim < x.ndim:\n    s.unsqueeze_(-1)"
    found = straightened(ast.parse(f"s = y.exp()\n{loop}").body)
    wanted = "s = y.exp()\ns = s.reshape(*s.shape, *[1] * (x.ndim - s.ndim))"
    assert ast.unparse(ast.Module(found, [])) == wanted
    # Another name may have the tensor.
    shared = f"s = y\n{loop}"
    assert ast.unparse(ast.Module(straightened(ast.parse(shared).body), [])) == shared


def test_a_list_of_sizes_that_changes_is_another_list() -> None:
    def done(text: str) -> str:
        return ast.unparse(ast.Module(straightened(ast.parse(text).body), []))

    text = "shape = list(x.shape)\n"
    for change, wanted in (
        ("shape[0] = n", "shape = [n, *shape[1:]]"),
        ("shape[1] = n", "shape = [*shape[:1], n, *shape[2:]]"),
        ("shape[-1] *= n", "shape = [*shape[:-1], shape[-1] * n]"),
        ("shape[-2] = n", "shape = [*shape[:-2], n, *shape[-1:]]"),
        ("shape[i] = n", "shape[i] = n"),
    ):
        assert done(text + change) == text + wanted
    for kept in (
        "shape = list(x.shape)\nother = shape\nshape[0] = n",
        "ys = [x, y]\nboth = (ys, 1)\nys[0] = n",
        "ys = [x, y]\nboth = ys if a else [z]\nys[0] = n",
        "ys = [x, y]\nall.append(ys)\nys[0] = n",
        "ys = [x, y]\nboth = (ys, 1)\nys.append(n)",
        "ys = [x, y]\nboth = [ys]\nys.append(n)",
        "ys = both = [x, y]\nys.append(n)",
        "ys = [x, y]\nboth = ys if a else [z]\nys.append(n)",
        "ys = [x, y]\nboth, z = (ys, x)\nys += [n]",
    ):
        assert done(kept) == kept, "something else has the list"
    assert done("y[0] = n") == "y[0] = n", "a tensor"
    stacked = "ys = [x, y]\nys = torch.stack(ys)\nys[0] = n"
    assert done(stacked) == stacked, "a tensor below"
    added = "z = x * 2\nys = [z, y]\nys[0] += n"
    assert done(added) == added, "z changes"


def test_a_choice_between_modes_raises_in_another_mode() -> None:
    text = "if mode == 'a':\n    y = x\nelif mode == 'b':\n    y = -x\nreturn y"
    found = with_modes_closed(ast.parse(text).body, {"mode == 'b'"})
    closed = text.replace(
        "\nreturn", "\nelse:\n    raise ValueError(f'unknown mode: {mode}')\nreturn"
    )
    assert ast.unparse(ast.Module(found, [])) == closed
    # One test alone may have lost its `else`: that is said.
    alone = "if mode == 'b':\n    y = x\nreturn y"
    found = with_modes_closed(ast.parse(alone).body, {"mode == 'b'"})
    assert ast.unparse(ast.Module(found, [])) == alone


# --- Autograd switched off around more than assignments: the lines read constants.

LOOP = "for t in range(n):\n        {0}"
OFF = [
    (
        f"with torch.no_grad():\n    a = torch.zeros_like(x)\n    {LOOP.format('a[t] = x[t] * y')}\nz = a + x",
        (
            "x_detached = x.detach()\ny_detached = y.detach()\na = torch.zeros_like(x_detached)\n"
            "for t in range(n):\n    a[t] = x_detached[t] * y_detached\nz = a + x"
        ),
    ),
    # A second name of a tensor that nothing behind reads.
    (
        f"with torch.no_grad():\n    {LOOP.format('v = x')}\nz = y",
        "x_detached = x.detach()\nfor t in range(n):\n    v = x_detached\nz = y",
    ),
    (
        f"m = x * 2\nk = len(m)\nwith torch.no_grad():\n    {LOOP.format('v = m[t] + k')}\nz = v",
        "m = x * 2\nk = len(m)\nm_detached = m.detach()\nfor t in range(n):\n    v = m_detached[t] + k\nz = v",
    ),
]


@pytest.mark.parametrize(("text", "wanted"), OFF)
def test_lines_of_constants_read_what_has_no_gradient(text: str, wanted: str) -> None:
    body = straightened(ast.parse(text).body, {"x", "y"}, {"n"})
    tree = ast.fix_missing_locations(ast.Module(body, []))
    assert ast.unparse(tree) == wanted


@pytest.mark.parametrize(
    "text",
    [
        # What the loop leaves may be a tensor from above, and changes it.
        f"with torch.no_grad():\n    {LOOP.format('v = x')}\nz = v",
        f"with torch.no_grad():\n    {LOOP.format('v = x.float()')}\nz = v",
        f"with torch.no_grad():\n    {LOOP.format('v = x if t else y')}\nz = v",
        f"with torch.no_grad():\n    {LOOP.format('v, w = x, y * 2')}\nz = v",
        "with torch.no_grad():\n    for v in (x, y):\n        w = v * 2\nz = v",
        f"with torch.no_grad():\n    w = x\n    {LOOP.format('v = w')}\nz = v",
        f"with torch.no_grad():\n    a = []\n    {LOOP.format('a.append(x)')}\nz = a",
        f"with torch.no_grad():\n    {LOOP.format('x[t] = y')}",
        f"with torch.no_grad():\n    {LOOP.format('x.mul_(y)')}",
        f"with torch.no_grad():\n    {LOOP.format('x += y')}",
        f"with torch.no_grad():\n    v = x[0]\n    {LOOP.format('v.mul_(y)')}",
        f"with torch.no_grad():\n    v = x.t()\n    {LOOP.format('v[t] = y')}",
        # Nobody says that these are tensors, or that they have been none above.
        f"with torch.no_grad():\n    {LOOP.format('v = u * 2')}",
        f"u = f(x)\nwith torch.no_grad():\n    {LOOP.format('v = u * 2')}",
        f"v = y\nwith torch.no_grad():\n    {LOOP.format('v = v * x')}",
        f"with torch.no_grad():\n    {LOOP.format('return x')}",
    ],
)
def test_lines_that_may_be_no_constants_stay(text: str) -> None:
    body = ast.parse(text).body
    made = straightened(body, {"x", "y"}, {"n"})
    assert ast.dump(ast.Module(made, [])) == ast.dump(ast.Module(body, []))


DICTS = [
    ('d = {"a": x, "b": y}\nz = d["a"] + d["b"]', "d_a = x\nd_b = y\nz = d_a + d_b"),
    (
        "d, e = {}, {}\nd[0] = x\ne[0] = d[0] * 2\nz = e[0]",
        "d_0 = x\ne_0 = d_0 * 2\nz = e_0",
    ),
    ("d = dict(a=x)\nd_a = y\nz = d['a'] + d_a", "d_a_2 = x\nd_a = y\nz = d_a_2 + d_a"),
    ("d = {}\nif t:\n    d['a'] = x\nz = d['a']", "if t:\n    d_a = x\nz = d_a"),
    ("d = {'a': x}\nd['a'] += y\nz = d['a']", "d_a = x\nd_a += y\nz = d_a"),
]


@pytest.mark.parametrize(("text", "wanted"), DICTS)
def test_entries_of_a_dict_are_names(text: str, wanted: str) -> None:
    tree = ast.Module([*without_dicts(ast.parse(text).body)], [])
    assert ast.unparse(ast.fix_missing_locations(tree)) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "d = {'a': x}\nz = f(d)",
        "d = {'a': x}\nz = d['b']",
        "d = {'a': x}\nd = {'a': y}\nz = d['a']",
        "d = {**e}\nz = d['a']",
        "d = {k: x}\nz = d[k]",
        "d, e = {}, {}\nd['a'] = x\nz = d['a'] + f(e)",
        "x = y\nz = x[0]",
    ],
)
def test_other_dicts_stay(text: str) -> None:
    body = ast.parse(text).body
    assert without_dicts(body) is body
