"""Keys of an op and the kinds of their values."""

import pytest

from tests.spec.written import complaints, op


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("imputs = 'x'", ["2:1: unknown key 'imputs' in op 'foo'\nhint: did you mean 'inputs'?"]),
        ("inputs = 3", ["2:10: 'inputs' must be a string"]),
        ("inputs = 'x'\nmodule = 'no'", ["3:11: 'module' must be true or false\nhint: write: module = false"]),
        ("inputs = 'x'\ndirty = 'x'", ["3:10: 'dirty' must be a list of strings\nhint: write: dirty = ['x']"]),
        ("inputs = 'x'\nrequire = [1]", ["3:11: 'require' must be a list of strings"]),
        ("inputs = 'x'\ngrad = 'x = y'", ["3:9: 'grad' must be a table of strings\nhint: write: grad = { x = 'y' }"]),
        ("inputs = ['x', 'y']", ["2:10: 'inputs' must be a string\nhint: write: inputs = 'x, y'"]),
        ("inputs = 'x'\ngrad = 'x'", ["3:9: 'grad' must be a table of strings"]),
        ("inputs = 'x'\ngrad.x = 1", ["3:1: 'grad' must be a table of strings"]),
        ("inputs = 'x'\nsurrogate = 1", ["3:13: 'surrogate' must be true, false or a string"]),
        ("inputs = 'x'\nstyle = 'combinde'", ["3:10: unknown value 'combinde' for 'style'\nhint: did you mean 'combined'?"]),
        ("inputs = 'x'\nsave-policy = 'q'", ["3:16: unknown value 'q' for 'save-policy'\nhint: one of: recompute, balanced"]),
        ("inputs = 'x'\ntolerance.esp = 1", ["3:11: gradcheck has no argument 'esp'\nhint: did you mean 'eps'?"]),
        ("inputs = 'x'\ntolerance = { eps = 0, atol = -1, rtol = nan }", ["3:21: 'eps' must be above 0", "3:31: 'atol' must be a number from 0 up", "3:42: 'rtol' must be a number from 0 up"]),
        (f"inputs = 'x'\ntolerance.eps = 1{'0' * 400}", ["3:17: 'eps' must be a number from 0 up"]),
        ("inputs = 'x'\ntolerance = { eps = true, fast_mode = 1 }", ["3:21: 'eps' must be a number from 0 up", "3:39: 'fast_mode' must be true or false"]),
        ('inputs = "x\\u0000"', ["2:11: 'inputs' holds the character U+0000\nhint: write text and line ends only"]),
        ('inputs = "x"\ndoc = "\\u2028"', ["3:8: 'doc' holds the character U+2028\nhint: write text and line ends only"]),
        ('inputs = "x"\nrequire = ["1", "\\u001B"]', ["3:18: 'require' holds the character U+001B\nhint: write text and line ends only"]),
    ],
)  # fmt: skip
def test_keys_that_are_amiss(text: str, found: list[str]) -> None:
    assert complaints(text) == found


def test_the_rest_is_looked_at_all_the_same() -> None:
    assert complaints("inputs = 'x'\nstile = 'a'\nforward = 'y'\ntest = 1") == [
        "3:1: unknown key 'stile' in op 'foo'\nhint: did you mean 'style'?",
        "4:12: unknown name 'y'\nhint: known here: x; if 'y' is an input, name it among the inputs",
        "5:8: 'test' must be true or false",
    ]


def test_every_plain_key_arrives() -> None:
    found = op("""
inputs = 'x'
class-name = 'Other'
doc = 'What it does.'
derive = false
once-differentiable = true
transforms = false
materialize-grads = false
style = 'combined'
save-policy = 'balanced'
tolerance = { eps = 1e-6, atol = 0, fast_mode = true }
module = false
test = false
""")
    assert (found.name, found.class_name, found.doc) == (
        "foo",
        "Other",
        "What it does.",
    )
    assert (found.derive, found.once_differentiable) == (False, True)
    assert (found.transforms, found.materialize_grads) == (False, False)
    assert (found.style, found.save_policy) == ("combined", "balanced")
    assert found.tolerance == (("eps", "1e-06"), ("atol", "0"), ("fast_mode", "True"))
    assert (found.module, found.test) == (None, False)
