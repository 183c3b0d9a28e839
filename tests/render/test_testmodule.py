"""The module's part of the generated test."""

from dataclasses import replace

from scaffold.render.testcases import plan_making
from scaffold.render.testmodule import ModuleTestsView, module_tests
from scaffold.spec import Attribute, ModuleSpec, OpSpec, Samples
from tests.render.op_specs import EXAMPLES, tensor

SPECS = {example.spec.name: example.spec for example in EXAMPLES}


def described(spec: OpSpec) -> ModuleTestsView:
    found = module_tests(spec, plan_making(spec), spec.class_name, "TestOp")
    assert found is not None
    return found


def claims_of(spec: OpSpec) -> dict[str, str]:
    return {claim.name: claim.value for claim in described(spec).claims}


def built(spec: OpSpec) -> str:
    """The call of the constructor."""
    return described(spec).build_lines[-1]


def test_no_module_has_no_tests() -> None:
    spec = replace(SPECS["linear"], module=None)
    assert module_tests(spec, plan_making(spec), "Linear", "TestLinear") is None


def test_an_optional_parameter_is_a_switch() -> None:
    assert claims_of(SPECS["linear"]) == {
        "op_tests": "TestOp",
        "owned": '("weight", "bias")',
        "optional": '("bias",)',
        "given": '("input",)',
    }
    assert described(SPECS["linear"]).build_parameters == "**options: Any"
    assert built(SPECS["linear"]) == (
        "return Linear(in_features=3, out_features=4, dtype=torch.double, **options)"
    )


def test_a_module_without_tensors_has_no_state() -> None:
    assert described(SPECS["scale_by"]).build_parameters == ""
    claims = claims_of(SPECS["scale_by"])
    assert "owned" not in claims
    assert claims["attributes"] == '("constant",)'


def test_a_module_of_nothing_has_nothing_to_copy() -> None:
    assert claims_of(SPECS["exp_"]) == {"op_tests": "TestOp", "given": '("x",)'}


def test_an_object_need_not_survive_a_copy() -> None:
    assert "attributes" not in claims_of(SPECS["apply_to"])


def test_parameters_of_unknown_shape_bring_theirs() -> None:
    inputs = (tensor("x"), tensor("weight"))
    spec = OpSpec("op", "Op", inputs, module=ModuleSpec(("weight",)))
    assert built(spec).startswith("return Op(weight_shape=(2, 3), dtype")


def test_a_parameter_with_leading_dims_has_the_shape_of_the_input_that_it_is_loaded_from() -> (
    None
):
    inputs = (tensor("x", "...", "D"), tensor("bias", "...", "D"))
    spec = OpSpec("op", "Op", inputs, module=ModuleSpec(("bias",)))
    assert built(spec).startswith("return Op(bias_shape=(2, 3), dtype")
    inputs = (tensor("x", "..."), tensor("bias", "..."))
    spec = OpSpec("op", "Op", inputs, module=ModuleSpec(("bias",)))
    assert built(spec).startswith("return Op(bias_shape=(2,), dtype")


def test_a_complex_parameter_makes_a_complex_module() -> None:
    inputs = (tensor("x", "D"), tensor("weight", "D", dtype="complex"))
    spec = OpSpec("op", "Op", inputs, module=ModuleSpec(("weight",)))
    assert "dtype=torch.cdouble" in built(spec)


def test_a_buffer_that_training_updates_is_named() -> None:
    assert claims_of(SPECS["centring"])["updated"] != ""
    assert "momentum=0.1" in built(SPECS["centring"])


def test_the_sizes_of_the_users_own_samples_are_read_off() -> None:
    inputs = (
        tensor("x", "...", "D"),
        tensor("weight", "K", "D"),
        Attribute("p", "float"),
    )
    samples = Samples("draw", "def draw():\n    return []\n")
    spec = OpSpec("op", "Op", inputs, module=ModuleSpec(("weight",)), samples=samples)
    assert described(spec).build_lines[0] == "inputs = TestOp().inputs()"
    assert built(spec).startswith(
        "return Op(D=inputs[0].shape[-1], K=inputs[1].shape[0], p=inputs[2]"
    )


def test_variadic_tensors_are_passed_on() -> None:
    inputs = (tensor("x"), tensor("xs", variadic=True))
    assert claims_of(OpSpec("op", "Op", inputs))["given"] == '("x", "xs")'
