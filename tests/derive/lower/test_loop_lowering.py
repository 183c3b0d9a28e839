"""Loops of a forward: derived and right, or left to autograd as a whole where anything of them is another matter."""

import re
import textwrap
from math import nan

import pytest
import torch

from scaffold.derive import derive
from tests.derive.against_autograd import check_forward, tensor
from tests.derive.building import backward_of, draft_of, load, reference, spec_of
from tests.derive.published.loops import LOOPS

CELL = "h = torch.tanh(h * w + x[:, t])"
START = "h = torch.zeros_like(x[:, 0])"
SCAN = f"{START}\nfor t in range(x.shape[1]):\n    {CELL}\n"
INPUTS = "x[B, T, D], w[D]"


def backward(forward: str, inputs: str = INPUTS) -> str:
    """The backward of a loop that is derived; '' where autograd differentiates the forward."""
    spec = spec_of(inputs, forward=forward, derive=True)
    derivation = derive(spec)
    if any("as a whole" in note for note in derivation.notes) or derivation.missing:
        return ""
    return backward_of(draft_of(spec, derivation))


@pytest.mark.each_commit
def test_published_loops_are_derived() -> None:
    whole = set()
    for case in LOOPS:
        options = {"forward": case.forward, "outputs": case.outputs}
        notes = derive(spec_of(case.inputs, derive=True, **options)).notes
        whole |= {case.name for note in notes if "as a whole" in note}
    assert not whole and len(LOOPS) > 40


@pytest.mark.parametrize(
    "forward",
    [
        f"{SCAN}return h",
        # what is begun with, and what a step takes from the one before
        f"{START}\ng = h\nfor t in range(x.shape[1]):\n    g = h * w\n    {CELL}\nreturn g * h",
        (
            "h = x[:, 0] * w\nys = [h, h.sin()]\nfor t in range(2, x.shape[1]):\n"
            "    h = torch.sin(h + x[:, t])\n    ys.append(h * w)\nreturn torch.stack(ys, -1)"
        ),
        # values that are other ones by the end of a step
        (
            f"{START}\nys = []\nfor t in range(x.shape[1]):\n    ys.append(h * w)\n    {CELL}\n"
            "return torch.stack(ys, 1) * h.unsqueeze(1)"
        ),
        # two loops, the second the other way round
        (
            f"{START}\nys = []\nfor t in range(x.shape[1]):\n    {CELL}\n    ys.append(h)\n"
            "y = torch.stack(ys, 1)\ng = h\nzs = []\nfor t in reversed(range(x.shape[1])):\n"
            "    g = torch.tanh(g * y[:, t])\n    zs.append(g)\nreturn torch.stack(zs[::-1], 1) + y"
        ),
        # names that the user gives anew, which two values that are carried begin with
        (
            "a = w * 2\nb = a\nfor t in range(x.shape[1]):\n    a, b = b * x[:, t], a + x[:, t]\n"
            "a = a * b\nreturn a * w"
        ),
        (
            "g = w * w\nh = w * w\nfor t in range(x.shape[1]):\n    g = torch.tanh(g * w) + x[:, t]\n"
            "    h = torch.tanh(h * x[:, t])\nreturn torch.stack([g, h])"
        ),
        # constants to autograd
        (
            f"{START}\nfor t in range(x.shape[1]):\n    h = torch.sin(h.detach() * w) + h * x[:, t]\n"
            "return h"
        ),
        (
            f"{START}\nfor t in range(1, x.shape[1]):\n    h = torch.tanh(h * w + x[:, t] * x[:, t - 1])\n"
            "return h"
        ),
        # lists as one may write them, too
        (
            f"h, ys = torch.zeros_like(x[:, 0]), []\nfor t in range(x.shape[1]):\n    {CELL}\n"
            "    ys += [h * w]\nreturn torch.stack(ys, 1)"
        ),
        (
            f"{START}\nys, zs = [], [h.cos()]\nfor t in range(x.shape[1]):\n    {CELL}\n    ys += [h]\n"
            "    zs.append(h * w)\nreturn torch.stack(ys, 1).sum(1) + torch.stack(zs, 1).prod(1)"
        ),
        # names of the loop that stand for something else outside
        (
            "grad_h = x[:, 0].exp()\nhs = grad_h * w\nfor t in range(x.shape[1]):\n"
            "    grad_h = torch.sin(grad_h * w) + x[:, t]\nreturn grad_h * hs"
        ),
        (
            f"{START}\nout = torch.zeros_like(x)\nfor t in range(x.shape[1]):\n    {CELL}\n"
            "    out[:, t] = h\nreturn (out * x).tanh()"
        ),
        # tensors whose parts are read, which each step makes other ones
        f"{START}\nfor t in range(x.shape[1]):\n    x = x * w\n    h = torch.sin(h + x[:, t])\nreturn h",
        (
            f"{START}\nz = x * w\nfor t in range(x.shape[1]):\n"
            "    z = torch.sin(x * (h * w)[:, None])\n    h = h + z[:, t]\nreturn h"
        ),
        # what two lists hold, and what a carry is called, has names of its own
        (
            f"{START}\nys = []\ny = []\nfor t in range(x.shape[1]):\n    {CELL}\n    ys.append(h)\n"
            "    y.append(h * w)\nreturn torch.stack(ys, 1) * torch.stack(y, 1).sin()"
        ),
        (
            "y_t = x[:, 0] * w\nys = []\nfor t in range(x.shape[1]):\n    y_t = torch.sin(y_t * w + x[:, t])\n"
            "    ys.append(y_t)\nreturn torch.stack(ys, 1) * y_t[:, None]"
        ),
        # carries that take their shapes from each other, one step later each
        (
            "a = x[:1, 0, :1]\nb = a + 1\nc = b + 1\nfor t in range(x.shape[1]):\n    c = torch.sin(c * b)\n"
            "    b = b * a + b\n    a = torch.sin(a * w + x[:, t])\nreturn c * b"
        ),
        # two carries that begin alike
        (
            "h = w * w\ng = w * w\nfor t in range(x.shape[1]):\n    g = torch.tanh(g * w)\n"
            "    h = torch.sin(h + x[:, t].mean())\nreturn torch.sin(g) + torch.sin(h) * 1.5"
        ),
        # the gradient of `h[0]` beside that of a tensor called `h0`
        (
            "h0 = w.exp()\ng = h0\nh = x[:, 0]\nfor t in range(x.shape[1]):\n"
            "    h = torch.tanh(h * w + h[0].mean() + x[:, t]) / (2 + g ** 2)\nreturn h * h0"
        ),
        # of a list only what is there before the first step has a gradient
        (
            "h = x[:, 0]\nys = [h * w]\nfor t in range(x.shape[1]):\n    h = torch.tanh(h * w + x[:, t])\n"
            "    ys.append(torch.ones_like(h))\nreturn torch.stack(ys, 1) + h.sum()"
        ),
        # a choice by the step, of which one way reads what the last step has not
        (
            "out = torch.zeros_like(x)\nh = 0\nfor t in reversed(range(x.shape[1])):\n"
            "    if t == x.shape[1] - 1:\n        a = x[:, t] * w\n    else:\n        a = x[:, t + 1] * w\n"
            "    out[:, t] = h = torch.sin(x[:, t]) * a + h * 0.5 * a\nreturn out"
        ),
        f"{START}\nfor t in range(x.shape[1]):\n    if t > 0:\n        {CELL}\nreturn h",
        (
            f"{START}\ng = h\nfor t in range(x.shape[1]):\n    if t > 0:\n        h = g * w\n        g = h + x[:, t]\n"
            "    else:\n        h = x[:, t] * w\nreturn g * h"
        ),
        # numbers to begin with, of which a step makes tensors of two shapes
        (
            "h = g = 0.0\nfor t in range(x.shape[1]):\n    h = h * w + x[:, t].sin()\n"
            "    g = g * 0.5 + (h * w).sum(-1)\nreturn h * g[:, None]"
        ),
        # a tensor that steps read and write
        (
            "out = torch.zeros_like(x)\nout[:, -1] = x[:, -1] * w\nfor t in reversed(range(x.shape[1] - 1)):\n"
            "    out[:, t] = x[:, t] + torch.sin(out[:, t + 1].clone() * w)\nreturn out * w"
        ),
        (
            "c = torch.ones(*x.shape, x.shape[1], dtype=x.dtype)\nif x.shape[1] > 0:\n    c[..., 1] = x * w\nfor t in range(2, x.shape[1]):\n"
            "    c[..., t] = 2 * x * c[..., t - 1].clone() - c[..., t - 2]\nreturn c.sin()"
        ),
        f"{START}\nout = torch.zeros_like(x)\nfor t in range(1, x.shape[1]):\n    {CELL}\n    out[:, t] = h\nreturn out",
        "out = torch.zeros_like(x)\nfor t in range(x.shape[1]):\n    out.add_(x[:, t, None] * w)\nreturn out.sin()",
        # lists that are turned round
        *(
            f"{START}\nys = []\nfor t in reversed(range(x.shape[1])):\n    {CELL}\n    {add}\n{turned}return torch.stack(ys, 1)"
            for add, turned in (
                ("ys.append(h)", "ys.reverse()\n"),
                ("ys.append(h)", "ys = ys[::-1]\n"),
                ("ys.insert(0, h)", ""),
            )
        ),
        # what is short beside the loop, and in a step
        (
            "a, b = [z.sin() for z in (x, w)]\nh = w * w\nfor t in range(x.shape[1]):\n"
            "    for c in (b, w):\n        h = torch.tanh(h * c + a[:, t])\nreturn h"
        ),
        # what a step keeps and nothing reads
        (
            f"{START}\nlast = None\nfor t in range(x.shape[1]):\n    {CELL}\n"
            "    if t == x.shape[1] - 1:\n        last = h\nreturn h * w"
        ),
        # chunks, which are as many as the quotient says
        (
            "more = x.shape[1] % 2\np = F.pad(x, (0, 0, 0, more))\nn = (x.shape[1] + more) // 2\n"
            "z = p.unflatten(1, (-1, 2))\ny = p.reshape(x.shape[0], -1, 2, x.shape[2])\n"
            "h = torch.zeros_like(x[:, 0])\nout = torch.empty_like(z)\nfor t in range(n):\n"
            "    h = torch.tanh(h * w + (z[:, t] * y[:, t]).sum(1))\n    out[:, t] = z[:, t] * h[:, None]\n"
            "return out.flatten(1, 2)"
        ),
        # parts of one step with their dim, and lists that are put one after another
        (
            "h = torch.zeros_like(x[:, 0]).unsqueeze(1)\nout = torch.zeros_like(x)\nys, zs = [], []\n"
            "for t in range(x.shape[1]):\n    h = torch.tanh(h * w + x[:, t : t + 1])\n    out[:, t : t + 1] = h * w\n"
            "    ys.append(torch.cat([h, h.sin()], 1))\n    zs.append(h * x[:, t:t+1])\n"
            "return out.sum(1, keepdim=True) * torch.cat(ys, dim=1) + torch.cat(zs, -1).sum(-1)[..., None]"
        ),
        # a part that is none where the index is negative
        f"{START}\nfor t in range(-1, x.shape[1]):\n    h = torch.tanh(h * w + x[:, t : t + 1].sum(1))\nreturn h",
        # what it leaves is changed behind it
        f"{START}\nfor t in range(x.shape[1]):\n    h = h * w + x[:, t]\ng = h\ng *= 2\nreturn g * w",
        # what the last step leaves, of which there is nothing before the first
        f"{START}\nfor t in range(x.shape[1]):\n    y = x[:, t] * w\nreturn h * y",
        (
            f"{START}\nfor t in range(x.shape[1]):\n    v = torch.tanh(h * w)\n    if t < x.shape[1] - 1:\n"
            "        h = h + v * x[:, t]\nreturn v.exp()"
        ),
        # names of one choice alone, and steps that are left out
        (
            f"{START}\nfor t in range(x.shape[1]):\n    {CELL}\n    if t != 1:\n        d = h * w\n        e = d.exp()\n"
            "        h = d + torch.sin(e)\nreturn h"
        ),
        f"{START}\nfor t in range(x.shape[1]):\n    if t % 2 == 1:\n        continue\n    {CELL}\nreturn h",
        # parts that are changed, where the data say
        (
            "y = torch.zeros_like(x)\nfor t in range(x.shape[1]):\n    rows, steps = torch.where(x[:, :, 0] > 0.5)\n"
            "    y[rows] += torch.sin(x[rows] * w) * x[:, t].sum()\nreturn y"
        ),
        # a list whose name its tensor gets, and those of comprehensions
        f"{START}\nys = [h * w]\nfor t in range(x.shape[1]):\n    {CELL}\n    ys.append(h)\nys = torch.stack(ys, 1)\nreturn ys * ys.sum()",
        "ys = [torch.sin(x[:, t] * w) for t in range(x.shape[1])]\nreturn torch.stack(ys, 1)",
        "t = x.sum()\nreturn torch.stack([torch.sin(x[:, t] * w) for t in range(x.shape[1])], 1) * t",
        "return sum(torch.sin(x[:, t] * w) for t in range(x.shape[1])) * w",
        # counters, two loops of which one is all that the other does, and what is gone through in slices
        "h = x[:, 0]\nt = 0\nwhile t < x.shape[1]:\n    h = h * w + x[:, t]\n    t += 1\nreturn h",
        f"{START}\nt = 1\nwhile t <= x.shape[1] - 1:\n    {CELL}\n    t = t + 1\nreturn h",
        (
            f"{START}\nfor t in range(x.shape[1]):\n    for k in range(x.shape[2]):\n        h = h * w + x[:, t, k].unsqueeze(1)\n"
            "return h"
        ),
        (
            f"{START}\nxs = x.transpose(0, 1)\nfor t, (a, b) in enumerate(zip(xs[:-1], xs[1:])):\n"
            "    h = torch.tanh(h * w + a * b) * (t + 1)\nreturn h"
        ),
        # what is None until the first step gives it a value
        (
            f"{START}\nold = None\nfor t in range(x.shape[1]):\n    d = torch.sin(h * w) + x[:, t]\n"
            "    h = h + (d if old is None else d * 1.5 - old * w)\n    old = d\nreturn h"
        ),
        # parts of a tensor that is longer than the steps are many
        "h = x[:, 0]\nfor t in range(1, x.shape[1] - 1):\n    h = h * w + x[:, t - 1]\nreturn h",
        # a name of the user's that is what a list gets before its names are other values
        (
            "h = x[:, 0]\nys = []\nadded_to_ys = w * 2\nfor t in range(x.shape[1]):\n    ys.append(h)\n"
            "    h = torch.sin(h * w) + x[:, t]\n    added_to_ys = added_to_ys * h\n"
            "return torch.stack(ys, 1) * added_to_ys.sum()"
        ),
        # sizes with names as the ends of two loops
        (
            f"b, steps, d = x.shape\n{START}\nfor t in range(steps):\n    for k in range(d - 1):\n"
            "        h = h * w + x[:, t, k].unsqueeze(1)\nreturn h"
        ),
        # what it begins with is a choice
        f"if x.shape[1] > 2:\n    h = x[:, 0]\nelse:\n    h = x[:, 1] * w\nfor t in range(x.shape[1]):\n    {CELL}\nreturn h",
    ],
)
def test_the_gradients_are_those_of_autograd(forward: str) -> None:
    assert re.search("for (t|step)2? in ", backward(forward))
    module = load(draft_of(spec_of(INPUTS, forward=forward, derive=True)))
    plain = reference(["x", "w"], forward)
    for steps, alone in ((3, None), (2, None), (3, 0), (3, 1)):
        x, w = torch.rand(2, steps, 3).double(), torch.rand(3).double()
        needs = [x, w] if alone is None else [[x, w][alone]]
        for item in needs:
            item.requires_grad_()
        ends = [plain(x, w), module.some_op(x, w)]
        found = [
            torch.autograd.grad(
                end.square().sum(), needs, allow_unused=True, materialize_grads=True
            )
            for end in ends
            if end.requires_grad
        ]
        assert len(found) != 1
        torch.testing.assert_close(*found or ((), ()))


@pytest.mark.parametrize(
    "forward",
    [
        f"{SCAN}y = h\nh *= 2\nreturn y.sin()",  # the list of what was carried holds it
        # parts that are not equally long, as far as the text tells
        f"{START}\nys = []\nfor t in range(x.shape[1]):\n    {CELL}\n    ys.append(x[:, t:] * h[:, None])\nreturn torch.cat(ys, 1)",
        f"{SCAN}y = h.view(-1)\ny.mul_(2)\nreturn h",
        (
            f"{START}\nys = []\nfor t in range(x.shape[1]):\n    h += x[:, t]\n    ys.append(h)\n"
            "return torch.stack(ys, 1) * w"
        ),
        f"{START}\ng = h\nfor t in range(x.shape[1]):\n    h += x[:, t] * w\nreturn g * h",
        (
            f"{START}\nout = torch.zeros_like(x)\nfor t in range(x.shape[1]):\n    {CELL}\n"
            "    out[:, t] = h.mean()\nreturn out"
        ),  # what is written spreads
        f"{START}\nfor t in range(x.shape[1]):\n    {CELL}\n    h = F.dropout(h)\nreturn h",
        f"{START}\nfor t in range(x.shape[1]):\n    if h.sum() > 0:\n        {CELL}\nreturn h",
        # one line of a choice reads what the line above it assigns in the other way through it
        (
            f"{START}\ng = h\nfor t in range(x.shape[1]):\n    if t > 0:\n        h = g * w\n        g = h + x[:, t]\n"
            "    else:\n        g = h * w\n        h = g + x[:, t]\nreturn g * h"
        ),
        # a view of what a step changes
        (
            "out = torch.zeros_like(x)\nrow = out[:, 0]\nfor t in range(1, x.shape[1]):\n"
            "    out[:, t] = out[:, t - 1] * w + x[:, t]\nreturn out + row[:, None]"
        ),
        (
            f"{START}\nys = []\nys += [h + w]\nfor t in range(x.shape[1]):\n    {CELL}\n    ys += [h]\n"
            "return torch.stack(ys, 1)"
        ),  # what is there before the first step stands on a line of its own
        (
            f"{START}\nys = []\nfor t in range(x.shape[1]):\n    {CELL}\n    ys.append(h)\n"
            "return torch.stack(ys, 1) * ys[-1].unsqueeze(1)"
        ),
        # a list that is another one, or may be, where the loop begins
        *(
            f"{START}\nys = []\n{again}\nfor t in range(x.shape[1]):\n    {CELL}\n    ys.append(h)\n"
            "return torch.stack(ys, 1)"
            for again in (
                "ys = ys + [h]",
                "ys = list(x.unbind(1))",
                "if x.shape[1] > 1:\n    ys = [h]",
            )
        ),
        # what it goes over has another value in the step
        f"{START}\nfor x in x.unbind(1):\n    h = torch.sin(h + x * w)\nreturn h",
        f"{START}\nfor a in x.unbind(1):\n    x = x * w\n    h = torch.sin(h + a) + x[:, 0]\nreturn h",
        f"{START}\nfor t in range(x.shape[1]):\n    t = 0\n    {CELL}\nreturn h",
        # names that its gradients have
        f"{START}\ng = h\nnext_h = g + w\nfor t in range(x.shape[1]):\n    {CELL} + next_h\n    next_h = h * w\nreturn h",
        # one of Python's words for loops is a tensor
        "reversed = w * w\n" + SCAN + "return h * reversed",
        # it leaves nothing
        "for t in range(x.shape[1]):\n    y = x[:, t] * w\nreturn x * w",
        # what a statement changes before it makes a list
        "y = x * w\nreturn y.sin_() + torch.stack([y[:, t] for t in range(x.shape[1])], 1)",
        # what a list has a part of and changes before they are put together
        *(
            f"y = x * w\nys = []\nfor t in range(x.shape[1]):\n    ys.append(y[:, t])\n{change}\nreturn torch.stack(ys, 1) * x"
            for change in ("y.mul_(2)", "y *= 2")
        ),
        # what is None again in a later step, or may be
        *(
            f"{START}\nold = None\nfor t in range(x.shape[1]):\n    h = h * w * 1.5 if old is None else h + x[:, t]\n    old = {again}\nreturn h"
            for again in ("None", "x[:, t] if t % 2 == 0 else None")
        ),
        # a counter that is read before the loop, too
        "t = 1\nt = 0\ny = x[:, t]\nh = y\nwhile t < x.shape[1]:\n    h = h * w + x[:, t]\n    t += 1\nreturn h * y",
        # two loops over ranges that may both be negative, and an index that the inner one changes
        *(
            f"{START}\nfor t in range({rows}):\n    for k in range({columns}):\n        h = torch.sin(h * w) + x[:, t] * k{last}\nreturn h"
            for rows, columns, last in (
                ("x.shape[1] - 2", "x.shape[2] - 4", ""),
                ("x.shape[1]", "x.shape[2]", "\n        t = 0"),
            )
        ),
        # what is None behind a loop without a step
        (
            f"{START}\nold = None\nfor t in range(x.shape[1]):\n    d = torch.sin(h * w) + x[:, t]\n"
            "    h = h + (d if old is None else d * 1.5 - old * w)\n    old = d\n"
            "if old is None:\n    h = h * 3\nreturn h"
        ),
        # what the last step leaves, or a list has, is part of what is changed behind it
        "y = x * w\nh = x[:, 0]\nfor t in range(x.shape[1]):\n    v = y[:, t]\n    h = h * w + v\ny.mul_(2)\nreturn h * v",
        (
            "y = x * w\nys = []\nfor t in range(x.shape[1]):\n    ys.append(torch.einsum('ij->ji', y[:, t]))\n"
            "y.mul_(2)\nreturn torch.stack(ys, 1) * x.sum()"
        ),
        # names of one choice, of which one is of what a later line changes
        (
            f"{START}\nfor t in range(x.shape[1]):\n    {CELL}\n    if t > 0:\n        c = h * w\n        d = c * 2\n"
            "        e = c.mul_(2)\n        h = d + e + c\nreturn h"
        ),
        # a choice, or a function, that reads a number at first
        "h = 0\nfor t in range(x.shape[1]):\n    h = x[:, t] if t == 0 else torch.sin(h) * x[:, t]\nreturn h * w",
        "h = 0\nfor t in range(x.shape[1]):\n    h = x[:, t] + torch.where(w > 0.5, w, h)\nreturn h",
    ],
)
def test_another_loop_is_left_to_autograd(forward: str) -> None:
    assert not backward(forward)


@pytest.mark.parametrize(
    "choice",
    [
        "if t % 2 == 0:\n        d = h * w\n        h = torch.sin(h + d)\n    else:\n        h = h - d * x[:, t]",
        "if t > 0:\n        h = torch.sin(h + d) * x[:, t]\n        d = h * w",
    ],
)
def test_an_input_that_a_choice_gives_another_value_is_not_of_the_choice_alone(
    choice: str,
) -> None:
    forward = f"h = x[:, 0]\nfor t in range(x.shape[1]):\n    {choice}\nreturn h"
    spec = spec_of("x[B, T, D], w[D], d[B, D]", forward=forward, derive=True)
    module, plain = load(draft_of(spec)), reference(["x", "w", "d"], forward)
    sizes = (2, 3, 3), (3,), (2, 3)
    given = [torch.rand(size).double().requires_grad_() for size in sizes]
    ends = [plain(*given), module.some_op(*given)]
    found = [
        torch.autograd.grad(end.square().sum(), given, materialize_grads=True)
        for end in ends
    ]
    torch.testing.assert_close(*found)


@pytest.mark.parametrize(
    "forward",
    [
        "n = 0\ny = x * (n + 1)\nh = x[:, 0]\nwhile n < x.shape[1]:\n    h = h * w + y[:, n]\n    n += 1\nreturn h",
        f"{START}\nfor t in range(n):\n    for k in range(n):\n        h = torch.sin(h * w) + x[:, 0] * k\nreturn h",
    ],
)
def test_a_number_of_the_signature_may_be_negative_or_have_another_value(
    forward: str,
) -> None:
    assert not backward(forward, "x[B, T, D], w[D], n: int")


STEPS = "for t in range(x.shape[1]):\n"
OLD = "    d = torch.sin(h * w) + x[:, t]\n    h = h + (d if old is None else d - old * w)\n    old = d"


@pytest.mark.parametrize("policy", ["recompute", "balanced"])
@pytest.mark.parametrize(
    ("forward", "derived"),
    [
        # what begins with a number is that number where there is no step
        (f"h = 0\n{STEPS}    h = torch.sin(h * w) + x[:, t]\nreturn h * 2 + w", True),
        (f"h = 0\n{STEPS}    h = h + x[:, t] * w\nreturn w / (h + 2) + h * w", True),
        (f"h = 0\n{STEPS}    h = h + x[:, t] * w\nreturn (h + w).mean()", False),
        (f"h = 0\n{STEPS}    h = h + x[:, t] * w\nreturn w * abs(h)", False),
        (f"h = 0\n{STEPS}    h = h + (x[:, t] * w).sum()\nreturn h * h * w", True),
        (f"h = 0\n{STEPS}    h = h + x[:, t] * w\nh = h + 1\nreturn h * w + w", True),
        (
            f"h = 0\n{STEPS}    h = h + x[:, t] * w\n{STEPS}    h = h * x[:, t]\nreturn h * w + w",
            False,
        ),
        # but where the forward asks what no number has there is a step
        (f"h = 0\n{STEPS}    h = h + x[:, t] * w\nreturn h.mean(0) + w", True),
        (f"h = 0\n{STEPS}    h = h + x[:, t] * w\nreturn F.silu(h) @ w", True),
        # and so is what is None until the first step, and not read behind it
        (f"h = x.sum(1) * w\nold = None\n{STEPS}{OLD}\nreturn h", True),
    ],
)
def test_a_number_that_a_loop_begins_with(
    forward: str, derived: bool, policy: str
) -> None:
    spec = spec_of(INPUTS, forward=forward, derive=True, save_policy=policy)
    derivation, plain = derive(spec), reference(["x", "w"], forward)
    assert derived == (not any("as a whole" in note for note in derivation.notes))
    module = load(draft_of(spec, derivation))
    for steps in (0, 1, 3):
        given = torch.rand(2, steps, 3).double(), torch.rand(3).double()
        for item in given:
            item.requires_grad_()
        try:
            ends = [plain(*given)]
        except (AttributeError, TypeError):
            assert not steps
            continue
        ends.append(module.some_op(*given))
        torch.testing.assert_close(*ends)
        torch.testing.assert_close(
            *(
                torch.autograd.grad(
                    end.square().sum(), given, allow_unused=True, materialize_grads=True
                )
                for end in ends
            )
        )


def test_a_forward_that_works_without_a_step_has_a_gradient_without_one() -> None:
    start = START.replace("x[:, 0]", "w.expand(x.shape[0], -1)")
    forward = (
        f"{start}\nout = torch.zeros_like(x)\nfor t in range(x.shape[1]):\n    {CELL}\n"
        "    out[:, t] = h\nreturn (out * w).sum(1) + h * w"
    )
    assert "if grads_x else torch.zeros_like(grad_out)" in backward(forward)
    module = load(draft_of(spec_of(INPUTS, forward=forward, derive=True)))
    for steps in (2, 0):
        x, w = torch.rand(2, steps, 3), torch.rand(3)
        pair = x.double().requires_grad_(), w.double().requires_grad_()
        ends = [reference(["x", "w"], forward)(*pair), module.some_op(*pair)]
        found = [
            torch.autograd.grad(end.square().sum(), pair, materialize_grads=True)
            for end in ends
        ]
        torch.testing.assert_close(*found)
    stacked = SCAN.replace(START, f"{START}\nys = []") + "    ys.append(h)\n"
    assert "if grads_x" not in backward(f"{stacked}return torch.stack(ys, 1)")


COLLECTED = (
    f"ys = []\nn = x.shape[1]\nfor t in range(n):\n    {CELL}\n    ys.append(h)\n"
)


@pytest.mark.parametrize(
    "end",
    [
        "return torch.stack(ys, 1) if n > 1 else h[:, None]",
        "if n == 0:\n    return h.sin()\nreturn torch.stack(ys, 1).sin()",
        "if n > 0:\n    y = torch.stack(ys, 1) * x\nelse:\n    y = h\nreturn y * h.sum()",
        "y = h if n < 2 else torch.cat(ys, 1)\nreturn y * 2",
    ],
)
def test_what_one_way_of_a_choice_joins_asks_the_other_for_no_step(end: str) -> None:
    calls = [(tensor(2, n, 3), tensor(2, 3), tensor(3)) for n in (0, 1, 2, 5)]
    calls += [(tensor(2, 3, 4).mT, tensor(3, 2).mT, tensor(3, 2)[:, 0])]
    inputs = "x[B, T, D], h[B, D], w[D]"
    text = check_forward(inputs, COLLECTED + end, calls)
    assert text.count("if grads_x") == 1 and "autograd.grad(" not in text


def test_what_a_choice_joins_may_have_no_step_where_something_stood_before_it() -> None:
    steps = f"for t in range(1, x.shape[1]):\n    {CELL}\n    ys.append(h)\n"
    end = "if x.shape[2] > 9:\n    return h.sin()\nreturn torch.stack(ys, 1)"
    calls = [(tensor(2, n, 3), tensor(2, 3), tensor(3)) for n in (1, 2, 4)]
    check_forward("x[B, T, D], h[B, D], w[D]", f"ys = [x[:, 0]]\n{steps}{end}", calls)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (
            "    if h.sum() > 0:\n        h.add_(1)\n",
            "with a choice (torch.where would be derived)",
        ),
        ("    h = h * w\n    if h.sum() > 3:\n        break\n", "with a break"),
        (
            "    h = h * w\n    for _ in range(x.shape[2]):\n        h = h * w\n",
            "with a loop in it",
        ),
    ],
)
def test_the_note_says_what_a_loop_has_that_is_not_derived(
    step: str, said: str
) -> None:
    forward = f"{START}\nfor t in range(x.shape[1]):\n{step}return h"
    (note,) = derive(spec_of(INPUTS, forward=forward, derive=True)).notes
    assert f"there is a loop {said}" in note


def test_a_zip_ends_with_the_shortest() -> None:
    forward = (
        "h = torch.zeros_like(x[:, 0])\nfor x_t, m_t in zip(x.unbind(1), m.unbind(1)):\n"
        "    h = h * 0.5 + x_t * 2 + m_t\nreturn h.sin()"
    )
    for inputs in ("x[B, T, D], m[B, S, D; const]", "x, m"):
        spec = spec_of(inputs, forward=forward, derive=True)
        assert "for step in " in backward(forward, inputs)
        module, plain = load(draft_of(spec)), reference(["x", "m"], forward)
        for steps, others in ((5, 3), (1, 4), (2, 2)):
            x = torch.rand(2, steps, 3).double().requires_grad_()
            m = torch.rand(2, others, 3).double().requires_grad_("const" not in inputs)
            given = (x, m) if m.requires_grad else (x,)
            ends = [plain(x, m), module.some_op(x, m)]
            found = [torch.autograd.grad(end.square().sum(), given) for end in ends]
            torch.testing.assert_close(*found)
    assert not backward(forward.replace("m", "min"), "x[B, T, D], min[B, S, D]")
    same = backward(forward, "x[B, T, D], m[B, T, D]")
    assert "slice_scatter" not in same


@pytest.mark.parametrize("stop", ["x.shape[1]", "n"])
def test_a_loop_without_steps_leaves_what_was_there_before_it(stop: str) -> None:
    """Of `range(2, 1)`, or with a negative number of steps, the length is 0."""
    inputs = "x[B, T, D], w[D], n: int"
    forward = (
        f"h = x[:, 0] * w\nys = [h, h.sin()]\nfor t in range(2, {stop}):\n    h = torch.sin(h + x[:, t])\n"
        "    ys.append(h)\nreturn torch.stack(ys, 1).mean(1)"
    )
    assert backward(forward, inputs)
    module = load(draft_of(spec_of(inputs, forward=forward, derive=True)))
    plain = reference(["x", "w", "n"], forward)
    x, w = (torch.rand(size).double().requires_grad_() for size in ((2, 1, 3), (3,)))
    for number in (-1, 0, 1):
        ends = [plain(x, w, number), module.some_op(x, w, number)]
        found = [torch.autograd.grad(end.square().sum(), (x, w)) for end in ends]
        torch.testing.assert_close(*found)


def test_what_nothing_reads_is_not_computed_again() -> None:
    """Of a linear recurrence no state is needed, nor what is made to be written in."""
    forward = (
        "y = torch.zeros_like(x)\nh = torch.zeros_like(x[:, 0])\n"
        "for t in reversed(range(x.shape[1])):\n    h = x[:, t] + gamma * h\n    y[:, t] = h\nreturn y"
    )
    text = backward(forward, "x[B, T], gamma: float")
    assert text.count("for ") == 1 and "y =" not in text


def test_a_step_adds_to_the_part_that_it_reads() -> None:
    """In time and memory linear in the number of steps: no tensor of all steps is made in one."""
    inputs = "r[T, E], v[T, E], last[E], gamma: float"
    forward = """
out = torch.zeros_like(r)
a = torch.zeros_like(last)
for t in reversed(range(r.shape[0])):
    following = v[t + 1] if t < r.shape[0] - 1 else last
    a = r[t] + gamma * following - v[t] + gamma * a
    out[t] = a
return out
"""
    found = backward(forward, inputs)
    lines = """
            if ctx.needs_input_grad[1] and t < grad_output.shape[0] - 1:
                grads_v2[t + 1] = grads_v2[t + 1] + grad_following
            if ctx.needs_input_grad[2] and t >= grad_output.shape[0] - 1:
                grad_last = grad_last + grad_following
"""
    assert textwrap.indent(textwrap.dedent(lines).strip(), "    ") in found
    module = load(draft_of(spec_of(inputs, forward=forward, derive=True)))
    plain = reference(["r", "v", "last", "gamma"], forward)
    for steps in (3, 1, 0):
        shapes = ((steps, 2), (steps, 2), (2,))
        given = [torch.rand(shape).double().requires_grad_() for shape in shapes]
        ends = [plain(*given, 0.9), module.some_op(*given, 0.9)]
        grads = [
            torch.autograd.grad(end.square().sum(), given)
            for end in ends
            if end.requires_grad  # of no step only that of the op does
        ]
        zeros = [torch.zeros_like(item) for item in given]
        torch.testing.assert_close(grads[0], grads[1] if steps else zeros)


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    "end", ["return h", "    hs.append(h)\nreturn torch.stack(hs)"]
)
@pytest.mark.parametrize(
    ("test", "n", "e", "rows"),
    [
        ("t < n - 1", 3, 0.0, 2),
        ("t < n - 1", 1, 0.0, 0),
        ("t < e", 3, 2.0, 2),
        ("t < e", 3, nan, 0),
        ("t * e < 4", 3, 2.0, 2),
        ("t * e < 4", 3, nan, 2),
    ],
)
def test_a_part_that_not_every_step_reads(
    test: str, n: int, e: float, rows: int, end: str
) -> None:
    """The others may have none; and where a test reads a nan, so may its opposite."""
    forward = (
        f"h = torch.zeros_like(w)\nhs = []\nfor t in range(n):\n    p = v[t] if {test} else w\n"
        f"    h = torch.tanh(h * w + p)\n{end}"
    )
    inputs = "v[T, D], w[D], n: int, e: float"
    assert "for t in " in backward(forward, inputs)
    module = load(draft_of(spec_of(inputs, forward=forward, derive=True)))
    given = [torch.rand(shape).double().requires_grad_() for shape in ((rows, 2), (2,))]
    grads = [
        torch.autograd.grad(
            op(*given, n, e).square().sum(), given, materialize_grads=True
        )
        for op in (reference(["v", "w", "n", "e"], forward), module.some_op)
    ]
    torch.testing.assert_close(*grads)


def test_the_backward_reads_as_one_writes_it() -> None:
    inputs = "x[B, T, I], W[I, H], U[H, H], h0[B, H]"
    forward = (
        "h = h0\nys = []\nfor t in range(x.shape[1]):\n"
        "    h = torch.tanh(x[:, t] @ W + h @ U)\n    ys.append(h)\nreturn torch.stack(ys, 1)"
    )
    lines = """
        h = h0
        hs = [h]
        for t in range(x.shape[1]):
            h = torch.tanh(x[:, t] @ W + h @ U)
            hs.append(h)
        grad_h = torch.zeros_like(hs[-1])
        grads_x = []
        grad_W = torch.zeros_like(W)
        grad_U = torch.zeros_like(U)
        for t in reversed(range(x.shape[1])):
            grad_h = (grad_h + grad_output[:, t]) * (1 - hs[t + 1] ** 2)
            if ctx.needs_input_grad[0]:
                grads_x.append(grad_h @ W.mT)
            if ctx.needs_input_grad[1]:
                grad_W = grad_W + x[:, t].mT @ grad_h
            if ctx.needs_input_grad[2]:
                grad_U = grad_U + hs[t].mT @ grad_h
            grad_h = grad_h @ U.mT
        if ctx.needs_input_grad[0]:
            grad_x = torch.stack(grads_x[::-1], 1)
"""
    assert textwrap.dedent(lines).strip() in backward(forward, inputs)


@pytest.mark.parametrize(
    ("forward", "lines"),
    [
        ("for t in range(T):\n    x = x + t\nreturn x", ["grad_x = grad_output"]),
        (
            "for t in range(T):\n    x = x + t\n    w = w - t\nreturn x * w",
            ["grad_new_x = grad_output * new_w", "grad_new_w = grad_output * new_x"],
        ),
        (
            "for t in range(T):\n    x = x\nreturn x.sin() * w",
            ["new_x = x\n", "torch.cos(new_x)"],
        ),
    ],
)
def test_a_loop_that_leaves_its_cotangents_as_they_are_is_none(
    forward: str, lines: list[str]
) -> None:
    text = backward(forward, "x[N], w[N], T: int")
    assert "reversed" not in text and all(line in text for line in lines)


def test_the_note_says_what_of_a_loop_is_not_understood() -> None:
    forward = (
        "h = h0\nout = torch.zeros(x.shape[0], x.shape[1] + 1, x.shape[2], dtype=x.dtype)\n"
        "for t in range(x.shape[1]):\n    h = torch.tanh(h + x[:, t])\n    out[:, t] = h\nreturn out"
    )
    spec = spec_of("x[B,T,H], h0[B,H]", forward=forward, derive=True)
    (note,) = derive(spec).notes
    assert note.endswith("there is a loop: a loop writes into a part of a tensor")


def test_what_a_loop_leaves_and_no_gradient_reads_is_no_line() -> None:
    forward = """
h = torch.zeros_like(x[:, 0])
g = w * w
ys = [h, h * w]
for t, x_t in enumerate(x.unbind(1)):
    h = h
    ys.append(h * w)
return torch.sin(torch.stack(ys, 0)) * 1.5, torch.sin(g) * 1.5, torch.sin(h) * 1.5
"""
    spec = spec_of("x[B, T, C], w[]", forward=forward, outputs="a, b, c", derive=True)
    text = draft_of(spec)
    compile(text, "op.py", "exec")
    assert "if :" not in text and "for t in" in backward_of(text)


@pytest.mark.parametrize(
    ("attributes", "loop", "calls"),
    [
        # a counter of steps is compared with what is no integer
        (
            "n: float = 2.5",
            "i = 0\nwhile i < n:\n    h = torch.tanh(h * w + i)\n    i += 1",
            [(2.5,), (0.0,)],
        ),
        (
            "n: int = 3",
            "n = n / 2\ni = 0\nwhile i < n:\n    h = torch.tanh(h * w + i)\n    i += 1",
            [(3,), (1,)],
        ),
        # functions and indices of a number that is carried
        (
            "n: int = 2",
            "k = 0\nfor i in range(n):\n    h = (k + 1) ** (h * w).tanh() * x[:, k % 3]\n    k = k + 1",
            [(2,), (0,)],
        ),
        (
            "n: int = 2",
            "k = 0\nfor i in range(n):\n    h = (k + 1) ** (h * w).tanh()\n    k = k + 1",
            [(2,), (0,)],
        ),
        # none of either loop, though both ranges together would have six
        (
            "n: int = 2, m: int = 2",
            "for i in range(n):\n    for j in range(m):\n        h = torch.tanh(h * w + i - j)",
            [(-2, -3), (2, 2), (-1, 2)],
        ),
        # the outer counter is another one from step to step of the inner loop
        (
            "n: int = 2",
            (
                "for i in range(2):\n    for j in range(n):\n        h = torch.tanh(h * w + x[:, i % 3])\n"
                "        i = i + 1"
            ),
            [(2,), (3,)],
        ),
    ],
)
def test_loops_over_other_ranges_stay(
    attributes: str, loop: str, calls: list[tuple[float, ...]]
) -> None:
    forward = f"h = x[:, 0]\n{loop}\nreturn h"
    tensors = tensor(2, 3, 4), tensor(4)
    check_forward(f"{INPUTS}, {attributes}", forward, [(*tensors, *c) for c in calls])


@pytest.mark.parametrize(
    ("inputs", "step"),
    [
        ("x[N, D]", "loss += (x[:, k] * (x[:, k] > 0).float()).sum()"),
        ("x[N, D], y[N]", "loss = loss * 2 + (x[:, k] * y.float()).sum()"),
        (
            "x[N, D], y[N]",
            "loss = (loss * y.double().sum()).float() + (x[:, k] * y).float().sum()",
        ),
    ],
)
def test_the_dtype_of_what_is_a_number_at_first(inputs: str, step: str) -> None:
    """It has none before the first step."""
    forward = f"loss = 0.0\nfor k in range(x.shape[1]):\n    {step}\nreturn loss"
    spec = spec_of(inputs, forward=forward)
    derivation = derive(spec)
    assert "as a whole" not in "".join(derivation.notes)
    names = [item.name for item in spec.inputs]
    runs = load(draft_of(spec, derivation)).some_op, reference(names, forward)
    x = tensor(3, 4).requires_grad_()
    values = [x, tensor(3)][: len(names)]
    found, right = (torch.autograd.grad(run(*values), x)[0] for run in runs)
    torch.testing.assert_close(found, right)


ADDED = f"{START}\nys = []\nfor t in range(x.shape[1]):\n    h = x[:, t] * h\n"


@pytest.mark.parametrize(
    ("step", "derived"),
    [
        ("h += w\n    ys.append(h)", True),
        ("g = h\n    h = g * w\n    h -= g\n    ys.append(g)", True),
        # what it changes has another name
        ("g = h\n    h += w\n    ys.append(g * h)", False),
        ("ys.append(h)\n    h += w", False),
        ("h = h.view(-1, 3)\n    h += w\n    ys.append(h)", False),
    ],
)
def test_a_step_adds_to_what_it_has_made_itself(step: str, derived: bool) -> None:
    forward = f"{ADDED}    {step}\nreturn torch.stack(ys, 1) * h[:, None]"
    assert bool(backward(forward)) is derived
    calls = [(tensor(2, n, 3), tensor(3)) for n in (1, 2, 5)]
    calls += [(tensor(2, 3, 4).mT, tensor(3, 2)[:, 0])]
    check_forward(INPUTS, forward, calls)


def test_the_gradient_of_a_step_that_adds_to_what_it_has_made() -> None:
    forward = f"{ADDED}    h += w\n    ys.append(h)\nreturn torch.stack(ys, 1)"
    written = """
grad_h = torch.zeros_like(hs[-1])
grads_x = []
grad_w = torch.zeros_like(w)
for t in reversed(range(x.shape[1])):
    grad_h = grad_h + grad_output[:, t]
    if ctx.needs_input_grad[0]:
        grads_x.append(grad_h * hs[t])
    if ctx.needs_input_grad[1]:
        grad_w = grad_w + grad_h.sum(0)
    grad_h = grad_h * x[:, t]
"""
    assert written in backward(forward)


@pytest.mark.parametrize(
    "parts",
    [
        "[t.sin() for t in F.linear(x, w).chunk(3, dim=-1)]",
        "(t.unflatten(-1, (2, -1)).transpose(1, 2) for t in F.linear(x, w).chunk(3, -1))",
        "[F.linear(x, t).sin() for t in w.chunk(3)]",
        "[x[..., :1] * t for t in F.linear(x, w).unflatten(-1, (3, -1)).unbind(2)]",
    ],
)
def test_what_is_unpacked_of_a_comprehension_is_no_loop(parts: str) -> None:
    forward = f"q, k, v = {parts}\nreturn (q @ k.mT).softmax(-1) @ v"
    inputs = "x[B, N, D], w[E, D]"
    assert backward(forward, inputs)
    calls = [(tensor(2, n, 4), tensor(12, 4)) for n in (1, 3)]
    calls += [(tensor(2, 4, 3).mT, tensor(4, 12).mT)]
    check_forward(inputs, forward, calls)


def test_the_gradient_of_what_is_unpacked_of_a_comprehension() -> None:
    forward = "a, b = [t.sin() for t in x.unbind(0)]\nreturn a * b"
    written = """
a_part, b_part = x.unbind(0)
a, b = [a_part.sin(), b_part.sin()]
grad_b_part = grad_output * a * torch.cos(b_part)
return torch.stack((grad_output * b * torch.cos(a_part), grad_b_part))"""
    assert written in backward(forward, "x[2, B, D]")
