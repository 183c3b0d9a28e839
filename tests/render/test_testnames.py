"""Names in the generated test file: nothing of the user's hides a helper."""

from scaffold.render.testcases import HELPERS, op_imports, samples_name
from scaffold.spec import OpSpec, Samples
from tests.render.op_specs import tensor


def spec(name: str, class_name: str, samples: str = "draw") -> OpSpec:
    source = f"def {samples}():\n    return []\n"
    return OpSpec(name, class_name, (tensor("x"),), samples=Samples(samples, source))


def test_names_that_hide_nothing_stay() -> None:
    assert [item.alias for item in op_imports(spec("linear", "Linear"), "linear")] == [
        None
    ] * 3
    assert samples_name(spec("linear", "Linear")) == "draw"


def test_the_op_is_renamed_where_it_hides_a_helper() -> None:
    function, wrapper, module = op_imports(spec("make", "Questions"), "ops.make")
    assert (module.name, module.alias) == ("Questions", "QuestionsOp")
    assert function.alias is None
    assert (wrapper.module, wrapper.name, wrapper.alias) == (
        "ops.make",
        "make",
        "make_op",
    )


def test_samples_are_renamed_where_they_hide_a_helper() -> None:
    assert samples_name(spec("linear", "Linear", "make")) == "sample_inputs"
    assert samples_name(spec("draw", "Draw", "draw")) == "sample_inputs"


def test_what_the_file_imports_is_taken() -> None:
    assert {"torch", "gc", "pytest", "gradcheck", "make", "Tensor"} <= HELPERS
