"""How inputs are declared for a trial, as the text of a Function tells."""

import pytest

from scaffold.inspect import inspect_text
from scaffold.inspect.declared_inputs import (
    numbers_in,
    other_arguments,
    ways_to_declare,
)
from scaffold.inspect.facts import Facts

TEXT = """
import torch
from torch.autograd import Function

class Op(Function):
    @staticmethod
    def forward(ctx, {parameters}):
        ctx.save_for_backward(x)
        return {forward}

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return {backward}
"""


def facts(parameters: str, forward: str, backward: str) -> Facts:
    text = TEXT.format(parameters=parameters, forward=forward, backward=backward)
    module = inspect_text(text, "op.py")
    return Facts(module.functions[0], module)


@pytest.mark.parametrize(
    ("parameters", "forward", "backward", "expected"),
    [
        ("x", "x * 2", "grad_output", "x"),
        ("x, w=None", "x * w", "grad_output, grad_output * x", "x, w?"),
        ("x, eps=1e-6", "x + eps", "grad_output, None", "x, eps = 1e-06"),
        ("x, dim", "x.sum(dim)", "grad_output, None", "x, dim = -1"),
        ("x, limit", "x.clamp(max=limit)", "grad_output, None", "x, limit = 0.5"),
        ("x, index", "x[index]", "grad_output, None", "x, index[; int]"),
        ("x, mask", "x.masked_fill(mask, 0)", "grad_output, None", "x, mask[; bool]"),
        ("x, k", "x.topk(k)", "grad_output, None", "x, k = 2"),
        ("x, padding", "g(x, padding)", "grad_output, None", "x, padding = 1"),
        ("x, dim_size", "g(x, dim_size)", "grad_output, None", "x, dim_size = 2"),
        ("x, dim_size=None", "g(x)", "grad_output, None", "x, dim_size = 2"),
        ("x, weight", "x.mean((0, 2, 3))", "g, g", "x[N, C, H, W], weight[C]"),
        ("x, w", "F.conv1d(x, w)", "g, g", "x[N, C, H], w[O, C, 2]"),
        ("x, lo, hi", "f(x, lo, hi)", "grad_output", "x, lo = 0.25, hi = 0.75"),
        ("x, gamma", "x**gamma", "grad_output, None", "x, gamma = 2.0"),
        ("x, c", "x.chunk(2)[0] * c", "grad_output, c", "x[N, 4], c[N, 4]"),
        ("x, *more", "torch.cat([x, *more])", "(grad_output,) * 3", "x, *more"),
    ],
)
def test_the_likeliest_way(
    parameters: str, forward: str, backward: str, expected: str
) -> None:
    first, *_ = ways_to_declare(facts(parameters, forward, backward))
    assert ", ".join(entry.text() for entry in first) == expected


def test_a_guessed_number_may_be_a_whole_one() -> None:
    found = ways_to_declare(facts("x, alpha", "x * alpha", "grad_output, None"))
    assert [way[1].text() for way in found] == ["alpha = 0.5", "alpha = 2"]


def test_what_the_text_does_not_tell_is_tried_in_several_ways() -> None:
    found = ways_to_declare(facts("x, rate", "x * rate", "grad_output, None"))
    assert [way[1].text() for way in found][:4] == [
        *("rate = 0.5", "rate[; const]", "rate[; int]", "rate[; bool]"),
    ]
    assert found[1][1].text("N, D") == "rate[N, D; const]"


def test_a_shape_is_a_tuple_and_an_index_no_mask() -> None:
    found = facts("x, idx, shape", "x[idx].sum() * shape", "grad_output, None, None")
    texts = [[entry.text() for entry in way] for way in ways_to_declare(found)]
    assert texts[0] == ["x", "idx[; int]", "shape = (4, 4)"]
    assert not any("idx[; bool]" in way for way in texts)


def test_a_function_may_be_kept_before_it_is_called() -> None:
    found = facts("run, x", "ctx.run(x)", "None, grad_output")
    assert ways_to_declare(found)[0][0].called


def test_numbers_of_the_text_are_values_to_try() -> None:
    found = numbers_in(facts("x", "x.clamp(-3, 6)", "grad_output * 0.5"))
    assert {3.0, -3.0, 6.0, 12.0, 0.5, 1000.0} <= {*found}


def test_windows_of_another_stride_overlap() -> None:
    found = facts("x, stride", "x.unfold(-1, 2, stride)", "grad_output, None")
    assert other_arguments(found, ways_to_declare(found)[0]) == {"stride": [1]}


def test_a_convolution_may_be_depthwise() -> None:
    found = ways_to_declare(facts("x, w", "F.conv2d(x, w)", "g, g"))
    assert found[1][1].text() == "w[C, 1, 2, 2]"


def test_arguments_that_choose_a_branch_have_other_values() -> None:
    found = facts(
        "x, dim, mode='a', training=True",
        "x.sum(dim) if mode == 'b' or mode in ('c',) else x",
        "grad_output, None, None, None",
    )
    assert other_arguments(found, ways_to_declare(found)[0]) == {
        "dim": [0],
        "mode": ["b", "c"],
        "training": [False],
    }


def test_a_number_has_another_value() -> None:
    found = facts("x, eps=1e-6, p=0.5", "x * p + eps", "grad_output, None, None")
    others = other_arguments(found, ways_to_declare(found)[0])
    assert others == {"eps": [0.01], "p": [0.25]}


def test_a_point_makes_no_number_of_a_default() -> None:
    found = facts("x, betas=(0.9, 0.5), mode='a.b'", "x * betas[0]", "g, None, None")
    assert not any(other_arguments(found, ways_to_declare(found)[0]).values())


def test_parameters_are_vectors_by_their_names() -> None:
    found = facts("x, weight", "x * weight", "grad_output, grad_output")
    first, second = ways_to_declare(found)
    assert [one.text() for one in first] == ["x[N, D]", "weight[D]"]
    assert [one.text() for one in second] == ["x", "weight"]
