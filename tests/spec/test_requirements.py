"""What a project says of every op: defaults that the op may overrule, features that it must have."""

import pytest

from scaffold.errors import ScaffoldError
from scaffold.spec import Configuration
from scaffold.spec.requirements import FEATURES
from tests.spec.written import op

DEFAULTS = Configuration(
    save_policy="balanced",
    defaults=(
        ("module", False),
        ("test", False),
        ("derive", False),
        ("transforms", False),
        ("materialize-grads", False),
        ("once-differentiable", True),
        ("tolerance", {"atol": 1e-4, "eps": 1e-5}),
    ),
)


def lacking(text: str, *wanted: str) -> list[str]:
    configuration = Configuration(require=wanted)
    try:
        op(text, configuration=configuration)
    except ScaffoldError as error:
        return [str(item).split("\n")[0] for item in error.problems]
    return []


def test_a_default_holds_where_the_op_says_nothing() -> None:
    found = op("inputs = 'x'", configuration=DEFAULTS)
    assert (found.module, found.test, found.derive) == (None, False, False)
    assert (found.transforms, found.materialize_grads) == (False, False)
    assert (found.once_differentiable, found.save_policy) == (True, "balanced")
    assert found.tolerance == (("atol", "0.0001"), ("eps", "1e-05"))


def test_the_op_overrules_it() -> None:
    found = op(
        """
inputs = 'x'
module = true
test = true
derive = true
transforms = true
materialize-grads = true
once-differentiable = false
save-policy = 'recompute'
tolerance = { atol = 1 }
""",
        configuration=DEFAULTS,
    )
    assert found.module is not None and found.test and found.derive
    assert (found.transforms, found.materialize_grads) == (True, True)
    assert (found.once_differentiable, found.save_policy) == (False, "recompute")
    assert found.tolerance == (("atol", "1"),)


@pytest.mark.parametrize(
    ("feature", "lacks", "has"),
    [
        ("doc", "doc = ' '", "doc = 'What.'"),
        ("doc", "", "doc = 'What.'"),
        ("forward", "", "forward = 'x.sin()'"),
        ("module", "module = false", "module = true"),
        ("module", "module = false", ""),
        ("test", "test = false", ""),
        ("reason", "once-differentiable = true", ""),
        ("reason", "once-differentiable = true", "once-differentiable = false"),
        (
            "reason",
            "once-differentiable = true\nreason = ' '",
            "once-differentiable = true\nreason = 'a kernel'",
        ),
        ("reason", "once-differentiable = true", "save-policy = 'balanced'"),
    ],
)
def test_a_feature_is_wanted(feature: str, lacks: str, has: str) -> None:
    (problem,) = lacking(f"inputs = 'x[N]'\n{lacks}", feature)
    assert f": the project requires '{feature}' of " in problem
    assert lacking(f"inputs = 'x[N]'\n{lacks}") == []
    assert lacking(f"inputs = 'x[N]'\n{has}", *FEATURES.keys() & {feature}) == []


def test_shapes_are_those_of_every_tensor() -> None:
    assert lacking("inputs = 'x[N], w'", "shapes")
    assert lacking("inputs = 'x[N], *xs'", "shapes")
    assert lacking("inputs = 'x[N], w[...], eps: float = 1.0'", "shapes") == []
    assert lacking("schema = 'f(Tensor x) -> Tensor'", "shapes")


def test_a_default_of_the_project_wants_a_reason_too() -> None:
    once = Configuration(require=("reason",), defaults=(("once-differentiable", True),))
    with pytest.raises(ScaffoldError, match="requires 'reason'"):
        op("inputs = 'x'", configuration=once)
    assert op("inputs = 'x'\nreason = 'fast'", configuration=once).reason == "fast"


def test_the_place_is_the_key_or_the_op() -> None:
    found = lacking("inputs = 'x'\nmodule = false", "doc", "module")
    assert [item.split(": ")[0] for item in found] == ["ops.toml:1:6", "ops.toml:3:10"]
