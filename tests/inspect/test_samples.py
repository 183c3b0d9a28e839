"""What a test can call a Function with: what the text states, and what is missing."""

from scaffold.inspect import inspect_text
from scaffold.inspect.facts import Facts
from scaffold.inspect.samples import arguments
from tests.inspect.test_stubs import AFFINE, HEAD, LINEAR, SCALE, SPIKE


def given(code: str) -> list[tuple[str, str]]:
    module = inspect_text(HEAD + code, "ops.py")
    function, *_ = module.functions
    return [(a.kind, a.text) for a in arguments(Facts(function, module))]


def test_arguments_come_from_gradients_defaults_and_calls() -> None:
    assert given(SCALE) == [("tensor", ""), ("value", "2.0")]
    assert given(AFFINE) == [("tensor", ""), ("tensor", ""), ("optional", "")]
    assert given(SPIKE) == [("tensor", ""), ("value", "25.0")]
    assert given(LINEAR)[2:] == [
        ("missing", "a value of stride"),
        ("missing", "a value of target (torch.Tensor)"),
    ]
