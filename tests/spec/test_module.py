"""Which inputs the module owns, and what it does with them."""

import pytest

from scaffold.spec import Attribute, Init
from scaffold.spec.module import TAKEN
from tests.spec.written import complaints, op


@pytest.mark.parametrize(
    ("inputs", "parameters"),
    [
        ("x, weight, bias?", ("weight", "bias")),
        ("x, gamma, beta, other", ("gamma", "beta")),
        ("x, weight[; int]", ()),
        ("x, weight[D; const]", ()),
        ("x, *weight", ()),
        ("x, weight: float", ()),
        ("weight, bias", ()),  # nothing would be left to call it with
    ],
)
def test_parameters_by_their_usual_names(
    inputs: str, parameters: tuple[str, ...]
) -> None:
    module = op(f"inputs = '{inputs}'").module
    assert module is not None and module.parameters == parameters


def test_what_is_stated_replaces_the_usual() -> None:
    text = "inputs = 'x, weight, k, mean'\nparams = ['k']\nbuffers = ['mean']\n"
    module = op(text).module
    assert module is not None
    assert (module.parameters, module.buffers) == (("k",), ("mean",))
    none = op("inputs = 'x, weight'\nparams = []").module
    assert none is not None and none.parameters == ()
    dirty = op("inputs = 'x, weight'\ndirty = ['weight']").module
    assert dirty is not None and dirty.parameters == ()


def test_starts_are_kept_in_order() -> None:
    module = op(
        "inputs = 'input, weight, bias?, m[3]'\nbuffers = ['m']\ninit.m = 'ones'\n"
        "init.weight = 'kaiming_uniform(a=5**0.5)'\ninit.bias = 'fan_in_uniform'"
    ).module
    assert module is not None and module.inits == (
        Init("m", "ones"),
        Init("weight", "kaiming_uniform", "a=5**0.5"),
        Init("bias", "fan_in_uniform"),
    )


MOMENTUM = """
inputs = 'x[N, D], mean[D], momentum: float = 0.1'
buffers = ['mean']
update.mean = 'torch.lerp(mean, x.mean(0), momentum)'
"""


def test_what_only_an_update_reads_is_the_modules() -> None:
    found = op(f"{MOMENTUM}forward = 'x - mean'")
    assert found.module is not None
    assert found.attributes == ()
    assert found.module.attributes == (Attribute("momentum", "float", "0.1"),)


@pytest.mark.parametrize(
    "reading",
    [
        "forward = 'x - mean * momentum'",
        "forward = 'x - mean'\ngrad.x = 'grad_output * momentum'",
        "forward = 'x - mean'\nbackward = 'grad_x = grad_output * momentum'",
        "forward = 'x - mean'\nsurrogate = 'x * momentum'",
        "",  # a forward that is yet to be written may read it
    ],
)
def test_what_the_op_reads_too_stays_with_the_op(reading: str) -> None:
    found = op(f"{MOMENTUM}{reading}")
    assert [item.name for item in found.attributes] == ["momentum"]


@pytest.mark.parametrize(
    "inputs",
    [
        "inputs = 'x[N], m[N], size: int = 2'\nrequire = ['N % size == 0']",
        "inputs = 'x, m, size: int = 2'\ntest-shapes = 'x[N], m[N]; N % size == 0'",
        "inputs = 'x[N], m[N], i[N; index(size)], size: int = 2'",
    ],
)
def test_what_its_sizes_or_its_tests_read_too_stays_with_the_op(inputs: str) -> None:
    found = op(f"{inputs}\nforward = 'x * 2'\nbuffers = ['m']\nupdate.m = 'm * size'")
    assert [item.name for item in found.attributes] == ["size"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("params = ['y']", ["3:12: 'y' is not an input\nhint: the inputs: x, weight, i, b, s, xs"]),
        ("params = ['xs']", ["3:12: '*xs' is any number of tensors: 'params' takes single ones"]),
        ("params = ['i']", ["3:12: 'i' gets no gradient, so it is not a parameter\nhint: make it a buffer: buffers = ['i']"]),
        ("params = ['s']", ["3:12: 's' gets no gradient, so it is not a parameter\nhint: make it a buffer: buffers = ['s']"]),
        ("params = ['weight']\nbuffers = ['weight']", ["3:12: 'weight' is a parameter and a buffer\nhint: take 'weight' out of the parameters, or out of the buffers"]),
        ("params = ['i']\nbuffers = ['i']", ["3:12: 'i' is a parameter and a buffer\nhint: take 'i' out of the parameters"]),
        ("params = ['weight']\ndirty = ['weight']", ["3:12: 'weight' is changed in place, which a parameter cannot be"]),
        ("buffers = ['b']", ["3:13: 'b' may be None, which a buffer cannot be"]),
        ("update.weight = 'x'", ["3:8: 'weight' is not a buffer\nhint: name it in buffers: buffers = ['weight']"]),
        ("buffers = ['s']\nupdate.s = 'output'", ["4:13: unknown name 'output'\nhint: known here: b, i, s, weight, x, xs; if 'output' is an input, name it among the inputs"]),
        ("init.x = 'zeros'", ["3:6: 'x' is not a parameter of the module\nhint: name it in params: params = ['x']"]),
        ("init.weight = 'zeors'", ["3:16: unknown initialisation 'zeors'\nhint: did you mean 'zeros'?"]),
        ("module = false\nparams = ['weight']\ninit.weight = 'zeros'", ["4:10: 'params' needs the module, but module is off", "5:1: 'init' needs the module, but module is off"]),
    ],
)  # fmt: skip
def test_what_a_module_cannot_own(text: str, found: list[str]) -> None:
    inputs = "inputs = 'x, weight, i[; int], b?, s[3; const], *xs'"
    assert complaints(f"{inputs}\n{text}") == found


def test_a_module_takes_at_least_one_tensor() -> None:
    text = "inputs = 'x, w'\nparams = ['x', 'w']"
    message = "the module would own every input, so its forward would take no tensor"
    hint = "leave out an input that its forward takes, or write no module"
    assert complaints(text) == [f"3:10: {message}\nhint: {hint}"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("inputs = 'x, type: str'", ["type"]),
        ("inputs = 'x, weight[half, N]'", ["half"]),
        ("inputs = 'x, forward'\nparams = ['forward']", ["forward"]),
        ("inputs = 'x, weight, device: device'", ["device"]),
        ("inputs = 'x, device: device, dtype: dtype'", []),
        ("inputs = 'x[half], forward'", []),
        ("inputs = 'x, training: bool'", []),
        ("inputs = 'x, type: str'\nmodule = false", []),
    ],
)
def test_names_that_nn_module_has_are_not_free(text: str, found: list[str]) -> None:
    assert [item.split("'")[1] for item in complaints(text)] == found


def test_the_table_of_taken_names_is_that_of_torch() -> None:
    nn = pytest.importorskip("torch.nn")
    names = {name for name in dir(nn.Module()) if not name.startswith("_")}
    assert names - TAKEN == set()
