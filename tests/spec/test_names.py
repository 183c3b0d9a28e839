"""Names of ops, classes and inputs."""

import keyword

import pytest
from hypothesis import strategies as st

from scaffold.errors import Location, ScaffoldError
from scaffold.formula import definitions
from scaffold.spec.names import (
    RESERVED,
    camel_name,
    check_class_name,
    check_name,
    op_names,
    snake_name,
)
from tests.properties.budgets import searched

PLACE = Location("NAME")


def test_what_no_local_of_a_formula_may_be_called_no_input_may_be_either() -> None:
    """Two lists, since names are checked before anything of a formula is imported."""
    assert definitions.RESERVED | {"once_differentiable"} == RESERVED


@pytest.mark.parametrize(
    ("camel", "snake"),
    [
        ("AdaptiveAvgPool2d", "adaptive_avg_pool2d"),
        ("BCEWithLogitsLoss", "bce_with_logits_loss"),
        ("Conv2D", "conv2d"),
        ("Conv3DNorm", "conv3d_norm"),
        ("FP8Linear", "fp8_linear"),
        ("FusedGELU", "fused_gelu"),
        ("GELU", "gelu"),
        ("HardTanhSTE", "hard_tanh_ste"),
        ("Int8GEMM", "int8_gemm"),
        ("KMeans", "kmeans"),
        ("L2Norm", "l2_norm"),
        ("LSTMCell", "lstm_cell"),
        ("Linear", "linear"),
        ("LoRALinear", "lora_linear"),
        ("MyReLU6", "my_relu6"),
        ("MySTE", "my_ste"),
        ("PReLU", "prelu"),
        ("RMSNorm", "rms_norm"),
        ("RoPE", "rope"),
        ("SiLU", "silu"),
        ("SwiGLU", "swiglu"),
        ("X", "x"),
    ],
)
def test_both_spellings_name_the_op(camel: str, snake: str) -> None:
    assert op_names(camel, PLACE, packaged=True) == (snake, camel)


@pytest.mark.parametrize(
    ("snake", "camel"),
    [
        ("rms_norm", "RmsNorm"),
        ("l2_norm", "L2Norm"),
        ("_draft", "_Draft"),
        ("relu6", "Relu6"),
        ("grad_reverse", "GradReverse"),
    ],
)
def test_a_snake_name_makes_a_class_name(snake: str, camel: str) -> None:
    assert op_names(snake, PLACE, packaged=False) == (snake, camel)


@searched(
    30, st.from_regex(r"[a-z]{1,6}[0-9]?(_[a-z]{1,6}[0-9]?){0,3}", fullmatch=True)
)
def test_snake_comes_back_from_its_class_name(snake: str) -> None:
    words = snake.split("_")
    if all(len(word.rstrip("0123456789")) > 3 for word in words):
        assert snake_name(camel_name(snake)) == snake


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "rms-norm",
            (
                "'rms-norm' cannot name an op: neither snake_case nor CamelCase\n"
                "hint: write 'rms_norm' or 'RmsNorm'"
            ),
        ),
        (
            "myOp",
            (
                "'myOp' cannot name an op: neither snake_case nor CamelCase\n"
                "hint: write 'my_op' or 'MyOp'"
            ),
        ),
        (
            "",
            "'' cannot name an op: neither snake_case nor CamelCase\nhint: call it for instance 'scaled_tanh' or 'ScaledTanh'",
        ),
        (
            "_",
            "'_' cannot name an op: neither snake_case nor CamelCase\nhint: call it for instance 'scaled_tanh' or 'ScaledTanh'",
        ),
        (
            "2d",
            "'2d' cannot name an op: neither snake_case nor CamelCase\nhint: call it for instance 'scaled_tanh' or 'ScaledTanh'",
        ),
        (
            "lambda",
            (
                "'lambda' cannot name an op: it is a keyword of Python\n"
                "hint: choose another name, such as 'lambda_'"
            ),
        ),
        (
            "nn",
            (
                "'nn' cannot name an op: it has a meaning in generated code\n"
                "hint: choose another name, such as 'nn_'"
            ),
        ),
        (
            "__init__",
            (
                "'__init__' cannot name an op: it is private to Python\n"
                "hint: choose another name, such as 'init'"
            ),
        ),
        (
            "test_linear",
            (
                "'test_linear' cannot name an op: pytest would collect it as a test\n"
                "hint: choose a name that does not begin with 'test'"
            ),
        ),
        (
            "Select",
            (
                "'select' cannot name an op outside a package: select.py would hide "
                "the standard library's module\nhint: choose another name, such as 'select_op'"
            ),
        ),
        (
            "numpy",
            (
                "'numpy' cannot name an op outside a package: numpy.py would hide "
                "the installed module\nhint: choose another name, such as 'numpy_op'"
            ),
        ),
    ],
)
def test_names_that_no_op_can_have(name: str, message: str) -> None:
    with pytest.raises(ScaffoldError) as caught:
        op_names(name, PLACE, packaged=False)
    assert str(caught.value) == f"NAME: {message}"


def test_in_a_package_a_module_hides_no_other() -> None:
    assert op_names("select", PLACE, packaged=True) == ("select", "Select")
    with pytest.raises(ScaffoldError, match="pytest would collect"):
        op_names("test_it", PLACE, packaged=True)


@pytest.mark.parametrize("name", ["input", "type", "weight", "_x", "β", "x1", "match"])
def test_names_that_an_input_can_have(name: str) -> None:
    assert check_name(name, PLACE, "an input") is None


@pytest.mark.parametrize(
    "name",
    [*keyword.kwlist, "ctx", "self", "cls", "torch", "Tensor", "nn", "F", "math"]
    + ["Function", "grad_x", "grad_output", "__x", "__x__", "a b", "", "1x", "ﬁ"],
)
def test_names_that_no_input_can_have(name: str) -> None:
    problem = check_name(name, PLACE, "an input")
    assert problem is not None and problem.location == PLACE
    if problem.hint and "'" in problem.hint:
        assert check_name(problem.hint.split("'")[1], PLACE, "an input") is None


@pytest.mark.parametrize("name", ["Tensor", "Function", "F", "Any", "class", "a-b"])
def test_names_that_no_class_can_have(name: str) -> None:
    assert check_class_name(name, PLACE) is not None


def test_a_class_is_called_as_the_user_likes() -> None:
    assert check_class_name("rmsNorm_v2", PLACE) is None
