"""The module's part of the generated test."""

from dataclasses import replace

from scaffold.render.testcases import plan_making
from scaffold.render.testmodule import ModuleTests, module_tests
from scaffold.spec import Attribute, ModuleSpec, OpSpec, Samples
from tests.render.op_specs import EXAMPLES, tensor

SPECS = {example.spec.name: example.spec for example in EXAMPLES}


def described(spec: OpSpec) -> ModuleTests:
    found = module_tests(spec, plan_making(spec), spec.class_name)
    assert found is not None
    return found


def test_no_module_has_no_tests() -> None:
    spec = replace(SPECS["linear"], module=None)
    assert module_tests(spec, plan_making(spec), "Linear") is None


def test_an_optional_parameter_is_a_switch() -> None:
    module = described(SPECS["linear"])
    assert module.switches == ("bias",)
    assert module.build_parameters == '*, bias: bool = True, device: str = "cpu"'
    assert module.arguments == (
        "in_features=3, out_features=4, bias=bias, device=device, dtype=torch.double"
    )
    assert module.operands == "inputs[0], module.weight, module.bias"
    assert module.state == '"weight": inputs[1], "bias": inputs[2]'


def test_a_module_without_tensors_has_no_state() -> None:
    module = described(SPECS["scale_by"])
    assert (module.stateful, module.build_parameters, module.state) == (False, "", "")
    assert module.copied_lines == ("assert copied.constant == module.constant",)


def test_a_module_of_nothing_has_nothing_to_copy() -> None:
    assert described(SPECS["exp_"]).copied_lines == ()
    assert described(SPECS["exp_"]).tensors == "inputs[0].clone()"


def test_an_object_need_not_survive_a_copy() -> None:
    assert described(SPECS["apply_to"]).copied_lines == ()


def test_parameters_of_unknown_shape_bring_theirs() -> None:
    inputs = (tensor("x"), tensor("weight"))
    spec = OpSpec("op", "Op", inputs, module=ModuleSpec(("weight",)))
    assert described(spec).arguments.startswith("weight_shape=(2, 3), device")


def test_a_parameter_with_leading_dims_has_the_shape_of_the_input_that_it_is_loaded_from() -> (
    None
):
    inputs = (tensor("x", "...", "D"), tensor("bias", "...", "D"))
    spec = OpSpec("op", "Op", inputs, module=ModuleSpec(("bias",)))
    assert described(spec).arguments.startswith("bias_shape=(2, 3), device")
    inputs = (tensor("x", "..."), tensor("bias", "..."))
    spec = OpSpec("op", "Op", inputs, module=ModuleSpec(("bias",)))
    assert described(spec).arguments.startswith("bias_shape=(2,), device")


def test_a_complex_parameter_makes_a_complex_module() -> None:
    inputs = (tensor("x", "D"), tensor("weight", "D", dtype="complex"))
    spec = OpSpec("op", "Op", inputs, module=ModuleSpec(("weight",)))
    assert described(spec).arguments.endswith("dtype=torch.cdouble")


def test_a_buffer_that_training_updates_is_compared_in_eval() -> None:
    module = described(SPECS["centring"])
    assert module.to_eval == ".eval()"
    assert "momentum=0.1" in module.arguments
    assert module.updated_lines[-1] == "output.sum().backward()"


def test_the_sizes_of_the_users_own_samples_are_read_off() -> None:
    inputs = (
        tensor("x", "...", "D"),
        tensor("weight", "K", "D"),
        Attribute("p", "float"),
    )
    samples = Samples("draw", "def draw():\n    return []\n")
    spec = OpSpec("op", "Op", inputs, module=ModuleSpec(("weight",)), samples=samples)
    module = described(spec)
    assert module.build_lines == ("inputs = make()",)
    assert module.arguments.startswith(
        "D=inputs[0].shape[-1], K=inputs[1].shape[0], p=inputs[2]"
    )


def test_variadic_tensors_are_passed_on() -> None:
    assert described(SPECS["sum_all"]).operands == "*inputs"
    inputs = (tensor("x"), tensor("xs", variadic=True))
    assert described(OpSpec("op", "Op", inputs)).tensors == "inputs[0], *inputs[1:]"
