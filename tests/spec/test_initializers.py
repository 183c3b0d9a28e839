"""How a parameter starts."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scaffold.errors import Location, ScaffoldError
from scaffold.spec import Dim, Init
from scaffold.spec.module import FUNCTIONS, parse_init

PLACE = Location("--init", 1, 8)
Dims = tuple[Dim, ...] | None


def init(text: str, dims: Dims = None) -> Init:
    return parse_init("weight", text, PLACE, dims)


@pytest.mark.parametrize(
    ("text", "function", "arguments"),
    [
        ("uniform(-0.1, 0.1)", "uniform", "-0.1, 0.1"),
        ("zeros", "zeros", ""),
        ("zeros()", "zeros", ""),
        ("zeros_", "zeros", ""),
        (" kaiming_uniform ( a=5**0.5, ) ", "kaiming_uniform", "a=5**0.5"),
        ("kaiming_normal(0, 'fan_out')", "kaiming_normal", "0, 'fan_out'"),
        ("kaiming_normal(mode='fan_out')", "kaiming_normal", "mode='fan_out'"),
        ("normal(std=(1 / 3) ** 2 - 1e-3 * 4)", "normal", "std=(1 / 3) ** 2 - 1e-3 * 4"),
        ("constant(+1)", "constant", "+1"),
        ("fan_in_uniform", "fan_in_uniform", ""),
    ],
)  # fmt: skip
def test_forms(text: str, function: str, arguments: str) -> None:
    assert init(text) == Init("weight", function, arguments)


FORM = "hint: write: uniform(-0.1, 0.1), or another function of torch.nn.init"
NUMBER = "hint: write numbers, as in a=5**0.5"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"8: '' is not an initialisation\n{FORM}"),
        ("torch.zeros(3)", f"8: 'torch.zeros(3)' is not an initialisation\n{FORM}"),
        ("(uniform)(1)", f"8: '(uniform)(1)' is not an initialisation\n{FORM}"),
        ("uniform(0)(1)", f"16: 'uniform(0)(1)' is not an initialisation\n{FORM}"),
        ("uniform(0) + f(1)", f"16: 'uniform(0) + f(1)' is not an initialisation\n{FORM}"),
        ("uniform(0 # a\n)", f"8: 'uniform(0 # a )' is not an initialisation\n{FORM}"),
        ("uniform(0 #)", f"16: 'uniform(0 #)' is not an initialisation\n{FORM}"),
        ("unifrom(0, 1)", "8: unknown initialisation 'unifrom'\nhint: did you mean 'uniform'?"),
        ("randn", "8: unknown initialisation 'randn'\nhint: did you mean 'normal'?"),
        ("qqq", f"8: unknown initialisation 'qqq'\nhint: one of: {', '.join(FUNCTIONS)}"),
        ("zeros(1)", "14: zeros takes no arguments"),
        ("xavier_normal(1, 2)", "25: xavier_normal takes 1 argument"),
        ("normal(0, 1, mena=2)", "21: normal has no argument 'mena'\nhint: did you mean 'mean'?"),
        ("normal(0, mean=2)", "18: normal gets 'mean' twice"),
        ("constant", "8: constant needs 'val'\nhint: write: constant(val=0.1)"),
        ("constant()", "17: constant needs 'val'\nhint: write: constant(val=0.1)"),
        ("uniform(-bound, 1)", f"16: -bound is not a number\n{NUMBER}"),
        ("uniform('a')", f"16: 'a' is not a number\n{NUMBER}"),
        ("uniform(True)", f"16: True is not a number\n{NUMBER}"),
        ("uniform(*[1])", f"16: *[1] is not a number\n{NUMBER}"),
        ("uniform(**k)", "16: uniform has no argument '**'"),
        ("kaiming_normal(mode=1)", "28: 1 is not a string"),
    ],
)  # fmt: skip
def test_what_is_no_initialisation(text: str, message: str) -> None:
    with pytest.raises(ScaffoldError) as caught:
        init(text)
    assert str(caught.value) == f"--init:1:{message}"


@pytest.mark.parametrize(
    ("function", "dims", "message"),
    [
        ("kaiming_uniform", ("D",), "kaiming_uniform is for at least 2 dimensions"),
        ("eye", ("A", "B", "C"), "eye is for 2 dimensions, 'weight' has 3"),
        ("dirac", ("A", 3), "dirac is for 3 to 5 dimensions, 'weight' has 2"),
    ],
)
def test_the_shape_must_suit(function: str, dims: Dims, message: str) -> None:
    with pytest.raises(ScaffoldError, match=message):
        init(function, dims)


@pytest.mark.parametrize("dims", [None, ("...", "D"), ("A", "B")])
def test_an_unknown_shape_is_not_judged(dims: Dims) -> None:
    assert init("orthogonal", dims).function == "orthogonal"


@example(")#)")
@given(st.text("uniform(),=-*0.1ab'\"#\n ", max_size=20))
def test_any_arguments_are_numbers_or_an_error(text: str) -> None:
    try:
        found = init(f"uniform({text}")
    except ScaffoldError as error:
        assert error.location is not None
    else:
        assert "#" not in found.arguments and "\n" not in found.arguments
