"""Inputs and outputs from whichever keys state them."""

import pytest

from scaffold.spec import Output, TensorInput
from tests.spec.written import complaints, op

Tensor = TensorInput


def test_optional_and_nondiff_mean_what_the_marks_mean() -> None:
    lists = "inputs = 'x, b, s[D]'\noptional = ['b']\nnondiff = ['s']"
    assert op(lists).inputs == op("inputs = 'x, b?, s[D; const]'").inputs


def test_nondiff_marks_outputs_and_says_nothing_new_of_integers() -> None:
    found = op("inputs = 'x, m[; bool]'\noutputs = 'y, i'\nnondiff = ['i', 'm', 'x']")
    assert found.outputs == (Output("y"), Output("i", const=True))
    assert found.inputs == (Tensor("x", const=True), Tensor("m", dtype="bool"))


def test_a_list_can_make_a_tensor_behind_a_default_optional() -> None:
    found = op("inputs = 'x, n: int = 1, b'\noptional = ['b']")
    assert found.inputs[2] == Tensor("b", optional=True)


def test_a_schema_takes_shapes_and_traits_from_inputs() -> None:
    found = op(
        "schema = 'f(Tensor(a!) x, Tensor mask, float eps=1e-5) -> Tensor(a!)'\n"
        "inputs = 'mask[N; bool], x[N, D]'\nclass-name = 'Foo'"
    )
    assert found.tensors == (
        Tensor("x", ("N", "D")),
        Tensor("mask", ("N",), "bool"),
    )
    assert found.attributes[0].default == "1e-5"
    assert found.dirty == ("x",)


def test_a_schema_takes_names_and_traits_of_outputs() -> None:
    schema = "schema = 'f(Tensor x) -> (Tensor, Tensor)'\n"
    assert [item.name for item in op(schema).outputs] == ["output0", "output1"]
    named = op(schema + "outputs = 'values, indices[N; int]'\ninputs = 'x[N]'")
    assert named.outputs == (Output("values"), Output("indices", ("N",), "int"))


def test_dirty_of_schema_and_key_are_joined() -> None:
    schema = "schema = 'f(Tensor(a!) x, Tensor y) -> Tensor'\n"
    assert op(schema + "dirty = ['y', 'x']").dirty == ("x", "y")


def test_an_output_may_be_called_like_the_input_it_is() -> None:
    assert op("inputs = 'x'\noutputs = 'x'\ndirty = ['x']").outputs == (Output("x"),)


SHAPES = "hint: with a schema, 'inputs' adds only shapes and traits: 'x[..., D], mask[N; bool]'"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("doc = 'x'", ["1:6: the op has no inputs\nhint: name them in the order of the call: 'x, weight, bias?'"]),
        ("inputs = 'x'\noptional = ['y']\nnondiff = ['x', 'z']", ["3:14: 'y' is not an input\nhint: known: x", "4:18: 'z' is not an input or output\nhint: known: x, output"]),
        ("inputs = 'x, weight'\noptional = ['wieght']", ["3:14: 'wieght' is not an input\nhint: did you mean 'weight'?"]),
        ("inputs = 'x, n: int'\nnondiff = ['n']", ["3:13: 'n' is an attribute, not a tensor\nhint: leave it out: only tensors can be listed here"]),
        ("inputs = '*xs'\noptional = ['xs']", ["2:12: '*xs' cannot be optional\nhint: it may be empty as it is"]),
        ("inputs = 'x, n: int, *xs'\ndirty = ['n', 'xs', 'y']", ["3:11: 'n' is an attribute, not a tensor\nhint: leave it out: only tensors can be listed here", "3:16: '*xs' is any number of tensors: 'dirty' takes single ones", "3:22: 'y' is not an input\nhint: the inputs: x, n, xs"]),
        ("inputs = 'x?'\ndirty = ['x']", ["3:11: 'x' may be None, so it cannot be changed in place"]),
        ("schema = 'f(Tensor(a!)? x) -> Tensor'", ["2:11: 'x' may be None, so it cannot be changed in place"]),
        ("inputs = 'x'\noutputs = 'y, z'\ndirty = ['x']", ["4:11: 'x' is changed in place, so the op has one output\nhint: autograd refuses several where the input is a view"]),
        ("inputs = 'x[*batch, D], y[*other]'\noutputs = 'y_[*batch], z[*bacth, D], w[other]'", ["3:26: no input has the leading dims '*bacth'\nhint: did you mean '*batch'?", "3:40: 'other' and '*other' have the same name\nhint: give one of them another name"]),
        ("inputs = 'x[*batch, D]'\noutputs = 'y[*z]'", ["3:14: no input has the leading dims '*z'\nhint: the inputs have: *batch"]),
        ("inputs = 'x[..., D]'\noutputs = 'y[*b]'", ["3:14: no input has the leading dims '*b'\nhint: '...' is any leading dims"]),
        ("inputs = 'output, target'", ["1:6: 'output' is the name of an input and of an output\nhint: name the output: outputs = 'result'"]),
        ("inputs = 'x'\noutputs = 'y[x], z'", ["3:14: the dimension 'x' has the name of an input\nhint: give one of them another name"]), ("inputs = 'x'\noutputs = 'x'", ["3:12: 'x' is the name of an input and of an output\nhint: give one of them another name"]),
        ("schema = 'f(Tensor x) -> Tensor'\ninputs = 'y'", ["3:11: the schema has no argument 'y'\nhint: it has: x"]),
        ("schema = 'f(Tensor x, int n) -> Tensor'\ninputs = 'x?, n: int'", [f"3:11: 'x' is not optional in the schema\n{SHAPES}", f"3:15: the type and the default of 'n' are the schema's\n{SHAPES}"]),
        ("schema = 'f(Tensor x, int n) -> Tensor'\ninputs = '*x, n[N]'", [f"3:12: 'x' is one tensor in the schema\n{SHAPES}", f"3:15: 'n' is not a tensor in the schema\n{SHAPES}"]),
        ("schema = 'f(Tensor x) -> (Tensor a, Tensor[] b)'\noutputs = 'a, b'", ["3:12: 'outputs' does not fit the schema\nhint: the schema returns: a, *b"]),
        ("schema = 'f(Tensor x) -> Tensor'\ninputs = 'x[N], x[D; int]'\nforward = 'y'", ["4:12: unknown name 'y'\nhint: known here: x; if 'y' is an input, name it among the inputs"]),
        ("inputs = 'x[0]'\noutputs = 'y?'\nforward = 'z'", ["2:13: 0 is not a size\nhint: sizes are integers from 1; empty cases are tested anyway", "3:12: an output cannot be optional"]),
    ],
)  # fmt: skip
def test_what_does_not_fit(text: str, found: list[str]) -> None:
    assert complaints(text) == found
