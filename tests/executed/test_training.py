"""Generated modules are modules like any other: they nest, train, initialise, save and call hooks."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from tests.examples.examples import ROOT
from tests.executed.generation import load


def example(op: str, module: str) -> Any:
    """A module of the examples."""
    return getattr(load(ROOT / op / f"{op}.py"), module)


Linear = example("linear", "Linear")
LinearKaiming = example("linear_kaiming", "LinearKaiming")
LinearInOut = example("linear_in_out", "LinearInOut")
Sigmoid = example("sigmoid", "Sigmoid")
Centre = example("centre", "Centre")
MulConstant = example("mul_constant", "MulConstant")
ExpInPlace = example("exp_in_place", "ExpInPlace")
SortLast = example("sort_last", "SortLast")


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.double)
    yield
    torch.set_default_dtype(torch.float)


def train(model: nn.Module, x: Tensor, y: Tensor) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(100):
        optimizer.zero_grad()
        loss: Any = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()


def data() -> tuple[Tensor, Tensor]:
    x = torch.randn(200, 3)
    return x, x @ torch.tensor([[1.0], [-2.0], [0.5]]) + 3 + 0.1 * torch.randn(200, 1)


def least_squares(x: Tensor, y: Tensor) -> Tensor:
    solution: Tensor = torch.linalg.lstsq(x, y).solution
    return solution


@pytest.mark.parametrize("module", [Linear, LinearKaiming, LinearInOut])
def test_training_reaches_the_closed_form(module: Any) -> None:
    x, y = data()
    model = module(3, 1)
    train(model, x, y)
    expected = least_squares(torch.cat([x, torch.ones(200, 1)], dim=1), y)
    weight = model.weights if module is LinearInOut else model.weight.t()
    assert_close(weight.detach(), expected[:3])
    assert_close(model.bias.detach(), expected[3])


@pytest.mark.parametrize("module", [Linear, LinearKaiming])
def test_training_without_the_bias_reaches_the_closed_form(module: Any) -> None:
    x, y = data()
    model = module(3, 1, bias=False)
    train(model, x, y)
    assert_close(model.weight.detach().t(), least_squares(x, y))
    assert model.bias is None


def test_training_a_chain_reaches_the_closed_form() -> None:
    x, y = data()
    model: Any = nn.Sequential(MulConstant(0.8), Linear(3, 1), MulConstant(1.25))
    train(model, x, y)
    expected = least_squares(torch.cat([x, torch.ones(200, 1)], dim=1), y)
    assert_close(model[1].weight.detach().t(), expected[:3])
    assert_close(1.25 * model[1].bias.detach(), expected[3])


def test_training_through_every_kind_of_op_lowers_the_loss() -> None:
    """Also through an op that sorts, one that works in place and one with a running mean."""
    x, y = data()
    hidden, last = Linear(3, 4), Linear(4, 1, bias=False)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.start = nn.ModuleList([Centre(3), hidden])
            self.ends = nn.ModuleDict({"sorted": SortLast(), "exp": ExpInPlace()})
            self.last = last

        def forward(self, x: Tensor) -> Tensor:
            for module in self.start:
                x = module(x)
            values, _ = self.ends["sorted"](x)
            output: Tensor = self.last(self.ends["exp"](-values.square()))
            return output

    model = Model()
    before = nn.functional.mse_loss(model(x), y).item()
    train(model, x, y)
    assert nn.functional.mse_loss(model(x), y).item() < before / 2
    assert_close(model.start[0].running_mean, x.mean(0), atol=1e-4, rtol=0)
    assert list(model.state_dict()) == [
        *("start.0.running_mean", "start.1.weight", "start.1.bias", "last.weight"),
    ]


def test_names_are_exactly_what_the_modules_own() -> None:
    model = nn.Sequential(Centre(3), Linear(3, 4), Sigmoid(), Linear(4, 1, bias=False))
    named = [(name, type(child)) for name, child in model.named_children()]
    assert named == [("0", Centre), ("1", Linear), ("2", Sigmoid), ("3", Linear)]
    shapes = {name: tuple(item.shape) for name, item in model.named_parameters()}
    assert shapes == {"1.weight": (4, 3), "1.bias": (4,), "3.weight": (1, 4)}
    assert [name for name, _ in model.named_buffers()] == ["0.running_mean"]
    assert list(model.state_dict()) == [
        *("0.running_mean", "1.weight", "1.bias", "3.weight")
    ]
    assert all(item.requires_grad for item in model.parameters())


def test_state_is_loaded_strictly() -> None:
    whole, without = Linear(3, 4), Linear(3, 4, bias=False)
    other = Linear(3, 4)
    other.load_state_dict(whole.state_dict())
    x = torch.randn(2, 3)
    assert_close(other(x), whole(x))
    with pytest.raises(RuntimeError, match='Unexpected key.* "bias"'):
        without.load_state_dict(whole.state_dict())
    with pytest.raises(RuntimeError, match='Missing key.* "bias"'):
        whole.load_state_dict(without.state_dict())


@pytest.mark.parametrize("bias", [True, False])
def test_a_module_moves_and_prints(bias: bool) -> None:
    module = Linear(3, 4, bias=bias, dtype=torch.float)
    assert {item.dtype for item in module.parameters()} == {torch.float}
    module.to(torch.double)
    assert module(torch.randn(2, 3)).dtype == torch.double
    assert repr(module) == f"Linear(in_features=3, out_features=4, bias={bias})"
    module.requires_grad_(False)
    assert not module(torch.randn(2, 3)).requires_grad


def test_apply_initialises() -> None:
    model = nn.Sequential(
        nn.ModuleDict({"a": Linear(3, 4)}), nn.ModuleList([Linear(4, 2, bias=False)])
    )
    linear: Any = model[0].get_submodule("a")

    def fill(module: nn.Module) -> None:
        if isinstance(module, Linear):
            for item in module.parameters():
                nn.init.constant_(item, 2.0)

    model.apply(fill)
    assert all((item == 2).all() for item in model.parameters())
    model.apply(lambda module: getattr(module, "reset_parameters", lambda: None)())
    assert not any((item == 2).any() for item in model.parameters())
    assert all(item.abs().max() <= 0.1 for item in (linear.weight, linear.bias))


def test_start_values_follow_the_spec() -> None:
    """Weights of uniform(-0.1, 0.1); kaiming-uniform with the bias bound by its fan-in."""
    narrow, kaiming = Linear(400, 50), LinearKaiming(400, 50)
    bound = 1 / 400**0.5
    for module, limit in ((narrow, 0.1), (kaiming, bound)):
        for item in module.parameters():
            assert 0.9 * limit < item.abs().max() <= limit
    normal = LinearInOut(400, 50)
    assert abs(normal.weights.std() - 1) < 0.05


Hooked = tuple[Any, Any]


def linear_with_input() -> Hooked:
    return Linear(3, 4), torch.randn(2, 3, requires_grad=True)


def in_place_with_input() -> Hooked:
    return ExpInPlace(), torch.randn(2, 3, requires_grad=True) * 1


def sorting_with_input() -> Hooked:
    return SortLast(), torch.randn(2, 3, requires_grad=True)


def first(value: Any) -> Tensor:
    found: Tensor = value[0] if isinstance(value, tuple) else value
    return found


@pytest.mark.parametrize(
    "make", [linear_with_input, in_place_with_input, sorting_with_input]
)
def test_forward_hooks_see_and_replace_values(make: Callable[[], Hooked]) -> None:
    module, x = make()
    expected = [first(module(value.clone())).detach() for value in (x, 2 * x)]
    seen = []

    def double(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        seen.append(arguments[0].detach().clone())
        return (2 * arguments[0],)

    def keep(_: nn.Module, __: tuple[Tensor, ...], output: Any) -> None:
        seen.append(first(output).detach().clone())

    with module.register_forward_hook(keep):
        module(x.clone())
        with module.register_forward_pre_hook(double):
            module(x.clone())
    assert_close(seen, [expected[0], x.detach(), expected[1]])


def test_full_backward_hooks_see_the_gradients() -> None:
    module, x = linear_with_input()
    seen: dict[str, Any] = {}
    module.register_full_backward_pre_hook(
        lambda _, grad_output: seen.update(before=grad_output)
    )
    module.register_full_backward_hook(
        lambda _, grad_input, grad_output: seen.update(
            grad_input=grad_input, grad_output=grad_output
        )
    )
    grad_output = torch.randn(2, 4)
    module(x).backward(grad_output)
    assert_close(seen["before"], (grad_output,))
    assert_close(seen["grad_output"], (grad_output,))
    assert_close(seen["grad_input"], (grad_output @ module.weight.detach(),))
    assert_close(x.grad, seen["grad_input"][0])


def test_a_full_backward_hook_of_a_sort_sees_both_outputs() -> None:
    module, x = sorting_with_input()
    seen: list[Any] = []
    module.register_full_backward_hook(lambda *found: seen.extend(found[1:]))
    values, indices = module(x)
    grad_values = torch.randn(2, 3)
    values.backward(grad_values)
    grad_input, grad_output = seen
    assert_close(grad_output[0], grad_values)
    assert grad_output[1] is None
    assert_close(grad_input[0], torch.zeros(2, 3).scatter(-1, indices, grad_values))


def test_pytorch_allows_no_full_backward_hook_on_an_op_in_place() -> None:
    module, x = in_place_with_input()
    module.register_full_backward_hook(lambda *_: None)
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        module(x)


def test_tensor_hooks_see_the_gradients() -> None:
    module, x = linear_with_input()
    seen: dict[str, Tensor] = {}
    weight: Any = module.weight
    weight.register_hook(lambda grad: seen.update(weight=grad))
    weight.register_post_accumulate_grad_hook(
        lambda item: seen.update(stored=item.grad)
    )
    x.register_hook(lambda grad: 10 * grad)
    output: Any = module(x)
    output.register_hook(lambda grad: seen.update(output=grad))
    grad_output = torch.randn(2, 4)
    output.backward(grad_output)
    assert_close(seen["output"], grad_output)
    assert_close(seen["weight"], grad_output.t() @ x.detach())
    assert_close(seen["stored"], seen["weight"])
    assert_close(x.grad, 10 * grad_output @ weight.detach())


def test_tensor_hooks_see_the_gradients_of_an_op_in_place() -> None:
    module, _ = in_place_with_input()
    leaf: Any = torch.randn(2, 3, requires_grad=True)
    seen: list[Tensor] = []
    leaf.register_hook(seen.append)
    output = module(1 * leaf)
    output.register_hook(seen.append)
    grad_output = torch.randn(2, 3)
    output.backward(grad_output)
    assert_close(seen, [grad_output, grad_output * leaf.detach().exp()])


@pytest.mark.parametrize("bias", [True, False])
def test_state_dict_hooks_fire(bias: bool) -> None:
    module = Linear(3, 4, bias=bias)
    seen: list[Any] = []
    names = ["weight", "bias"][: 1 + bias]
    module.register_state_dict_pre_hook(lambda *_: seen.append("before saving"))
    module.register_state_dict_post_hook(
        lambda _, state, prefix, __: seen.append((prefix, list(state)))
    )
    module.register_load_state_dict_pre_hook(
        lambda _, state, prefix, *__: seen.append((prefix, list(state)))
    )
    module.register_load_state_dict_post_hook(
        lambda _, found: seen.append((found.missing_keys, found.unexpected_keys))
    )
    model = nn.Sequential(module)
    prefixed = [f"0.{name}" for name in names]
    model.load_state_dict(model.state_dict())
    assert seen == ["before saving", ("0.", prefixed), ("0.", prefixed), ([], [])]


def test_saved_tensors_hooks_see_only_what_will_be_needed() -> None:
    module, x = linear_with_input()
    saved: list[tuple[int, ...]] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tuple(tensor.shape))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        module(x)
        module(x.detach())
        module.requires_grad_(False)(x)
    assert saved == [(2, 3), (4, 3), (2, 3), (4, 3)]


@pytest.mark.parametrize("bias", [True, False])
def test_checkpointing_gives_the_same_gradients(bias: bool) -> None:
    x = torch.randn(2, 3, requires_grad=True)
    model = nn.Sequential(Linear(3, 4, bias=bias), Sigmoid(), Linear(4, 1, bias=bias))
    inputs = [x, *model.parameters()]
    expected = torch.autograd.grad(model(x).sum(), inputs)
    output: Any = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)
    assert_close(torch.autograd.grad(output.sum(), inputs), expected)


def test_buffers_are_updated_as_those_of_a_batch_norm() -> None:
    """In their own dtype, whatever that of the input; an empty batch leaves them as they are."""
    x = torch.randn(5, 4, dtype=torch.float)
    centre, norm = Centre(4, dtype=torch.float), nn.BatchNorm1d(4, dtype=torch.float)
    hidden = nn.Linear(4, 4, dtype=torch.float)
    for each in (centre, norm):
        each(x.bfloat16())
        each(x[:0])
        with torch.autocast("cpu"):
            each(hidden(x))
    assert centre.running_mean.any()
    assert_close(centre.running_mean, norm.running_mean)
