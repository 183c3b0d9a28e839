"""What a forward says of wrong inputs: it stays in the forward, and the gradient is derived as if it were not there."""

import re

import pytest

from scaffold.derive import derive
from scaffold.render.testlimits import maps
from tests.derive.building import backward_of, load, spec_of, text_of
from tests.derive.checking import check_op
from tests.derive.test_kept import plain, r

CHAIN = """
assert x.dim() == 2, f'a matrix, not {x.dim()} dims'
n, d = x.shape
if d < 1 or not isinstance(x, torch.Tensor):
    raise TypeError('no tensor: {}'.format(type(x)))
if mode == 'square':
    y = x * w
elif mode == 'exp':
    y = x.exp()
else:
    raise ValueError(f'{type(mode).__name__} {mode}')
return y * y / n
"""
EARLY = """
if mode == 'square':
    return x * x
if mode == 'exp':
    return x.exp() * w
raise ValueError(mode)
"""
PRESENT = """
if w is None:
    raise ValueError('w is missing')
return x * w
"""


@pytest.mark.parametrize("inputs", ["x[N, D], w[D]?, mode: str", "x, w?, mode: str"])
@pytest.mark.parametrize("forward", [CHAIN, EARLY, PRESENT])
def test_the_rest_is_derived(forward: str, inputs: str) -> None:
    guarded = forward.replace("x * w", "x * w if w is not None else x")
    guarded = guarded.replace("x.exp() * w", "x.exp() * (1 if w is None else w)")
    forward = forward if forward == PRESENT else guarded
    spec = spec_of(inputs, forward=forward, derive=True)
    derivation = derive(spec)
    assert not derivation.notes, derivation.notes
    text = text_of(spec, derivation)
    function = load(text).SomeOpFunction
    assert not re.search("raise|assert", backward_of(text))
    for mode in ("square", "exp"):
        values = (r(2, 3), r(3), mode)
        check_op(function, function.apply, plain("x, w, mode", forward), values)


@pytest.mark.parametrize(
    ("forward", "values", "error"),
    [
        (CHAIN, (r(2, 3, 4), r(4), "exp"), "AssertionError: a matrix, not 3 dims"),
        (CHAIN, (r(2, 0), r(1), "exp"), "TypeError: no tensor: <class 'torch.Tensor'>"),
        (CHAIN, (r(2, 3), r(3), "tan"), "ValueError: str tan"),
        (EARLY, (r(2, 3), r(3), "tan"), "ValueError: tan"),
        (PRESENT, (r(2, 3), None, ""), "ValueError: w is missing"),
    ],
)
def test_it_is_said(forward: str, values: tuple[object, ...], error: str) -> None:
    forward = forward.replace("y = x * w", "y = x * (1 if w is None else w)")
    forward = forward.replace("x.exp() * w", "x.exp() * (1 if w is None else w)")
    spec = spec_of("x, w?, mode: str", forward=forward, derive=True)
    function = load(text_of(spec, derive(spec))).SomeOpFunction
    with pytest.raises((AssertionError, TypeError, ValueError)) as found:
        function.apply(*values)
    assert f"{type(found.value).__name__}: {found.value}" == error


@pytest.mark.parametrize(
    "line", ["assert (x == x).all(), 'nan'", "if (x != x).any():\n    raise ValueError"]
)
def test_of_the_data_it_is_for_autograd(line: str) -> None:
    spec = spec_of("x[N, D]", forward=f"{line}\nreturn x.exp()", derive=True)
    derivation = derive(spec)
    assert "depends on the data" in derivation.notes[0]
    assert not maps(spec)
