"""What a fix makes behaves: the planted bug is there before, and gone after."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck

from scaffold.lint import RULES
from tests.lint.cases import HEAD
from tests.lint.planted import PLANTED
from tests.lint.test_fixing import fixed

Probe = Callable[[ModuleType], None]


def double(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, dtype=torch.double, requires_grad=True)


def differentiates(module: ModuleType) -> None:
    """The one Function of a module passes gradcheck."""
    function: Any = next(
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, torch.autograd.Function)
        and value.__module__ == module.__name__
    )
    names = function.forward.__code__.co_varnames[
        : function.forward.__code__.co_argcount
    ]
    inputs = [double(3) for name in names if name != "ctx" and name != "factor"]
    factors = [2.0] if "factor" in names else []
    needed = [
        x.detach() if function.__name__ == "Scale" and n == 0 and len(inputs) > 1 else x
        for n, x in enumerate(inputs)
    ]
    assert gradcheck(lambda *given: function.apply(*given, *factors), needed)


def holds_no_cycle(module: ModuleType) -> None:
    import gc
    import weakref

    gc.disable()
    try:
        output = module.Exp.apply(double(3))
        node = weakref.ref(output.grad_fn)
        del output
        assert node() is None
    finally:
        gc.enable()


def checks_versions(module: ModuleType) -> None:
    x, weight = torch.rand(3, dtype=torch.double), double(3)
    output = module.Scale.apply(x, weight)
    x.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def refuses_twice(module: ModuleType) -> None:
    function = next(
        v
        for v in vars(module).values()
        if getattr(v, "__module__", "") == module.__name__
    )
    x, g = double(3), double(3)
    (grad,) = torch.autograd.grad(function.apply(x), x, g, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        grad.sum().backward()  # type: ignore[no-untyped-call]


def marks_dirty(module: ModuleType) -> None:
    x = double(3) * 1
    assert module.Double.apply(x) is x and "Double" in x.grad_fn.name()


def leaves_the_gradient(module: ModuleType) -> None:
    x, g = -double(3), torch.ones(3, dtype=torch.double)
    module.Relu.apply(x).backward(g)
    assert g.sum() == 3


def can_be_changed(module: ModuleType) -> None:
    module.Reverse.apply(double(3)).mul_(2).sum().backward()


def mask_has_no_graph(module: ModuleType) -> None:
    assert not module.Keep.apply(double(3))[1].requires_grad


def requires_grad(module: ModuleType) -> None:
    assert all(output.requires_grad for output in module.Split.apply(double(3)))


def vmaps(module: ModuleType) -> None:
    x = torch.rand(3)
    assert torch.equal(torch.func.vmap(_shallow(module))(x), x * 2)


def _shallow(module: ModuleType) -> Callable[..., Any]:
    """The example's rule calls apply again, which ends below vmap."""
    result: Callable[..., Any] = module.Double.apply
    return result


def is_called(module: ModuleType) -> None:
    assert torch.equal(module.double(torch.ones(2)), torch.full((2,), 2.0))


def same_sets(module: ModuleType) -> None:
    def total(x: torch.Tensor) -> Any:
        return module.Mul.apply(x, x)

    gradients = torch.func.grad(lambda x: torch.func.vmap(total)(x).sum())(
        torch.ones(3)
    )
    assert torch.equal(gradients, torch.full((3,), 2.0))


def frees_what_is_frozen(module: ModuleType) -> None:
    saved: list[torch.Tensor] = []

    def pack(x: torch.Tensor) -> torch.Tensor:
        saved.append(x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        output = module.Matmul.apply(double(2, 3), torch.rand(3, 2, dtype=torch.double))
    assert len(saved) == 1
    output.sum().backward()


def masks(module: ModuleType) -> None:
    assert gradcheck(lambda x: module.Keep.apply(x)[0], (double(3),))


def scales(module: ModuleType) -> None:
    assert gradcheck(lambda x: module.Scale.apply(x, 3.0), (double(3),))


def goes_without_one(module: ModuleType) -> None:
    """Of two outputs one is used."""
    assert gradcheck(lambda x: module.Both.apply(x)[1], (double(3),))


def returns_the_dirty_one(module: ModuleType) -> None:
    def on_a_copy(x: torch.Tensor) -> Any:
        return module.Double.apply(x * 1)

    assert gradcheck(on_a_copy, (double(3),))


def autocasts(module: ModuleType) -> None:
    x = double(3)
    assert gradcheck(module.Double.apply, (x,))
    assert not hasattr(x, "_fwd_used_autocast")


def compiles(module: ModuleType) -> None:
    x = double(3)
    compiled: Any = torch.compile(module.Double.apply, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x), x * 2)
    assert gradcheck(module.Double.apply, (x,))
    forward = gradcheck(module.DoubleWithJvp.apply, (x,), check_forward_ad=True)
    assert forward and issubclass(module.DoubleWithJvp, module.Double)


def knows_its_arguments(module: ModuleType) -> None:
    assert gradcheck(module.scale, (double(3),))
    assert gradcheck(module.scale, (double(3), torch.ones(3, dtype=torch.double)))


def needs_the_second_alone(module: ModuleType) -> None:
    x = torch.rand(3, dtype=torch.double)
    assert gradcheck(lambda y: module.Mul.apply(x, y), (double(3),))


def returns_a_copy(module: ModuleType) -> None:
    x = torch.rand(3)
    assert torch.equal(module.same(x), x) and module.same(x) is not x


def is_bare(module: ModuleType) -> None:
    assert torch.equal(module.start(2), torch.zeros(2))
    assert "Variable" not in module.start.__code__.co_names


def is_double(module: ModuleType) -> None:
    module.test_double()


def lse_has_no_graph(module: ModuleType) -> None:
    assert not module.Softmax.apply(double(3))[1].requires_grad


def takes_an_expanded_gradient(module: ModuleType) -> None:
    module.Square.apply(double(2, 3)).sum(0).pow(2).sum().backward()


def reads_an_expanded_gradient(module: ModuleType) -> None:
    x = double(2, 3)
    module.Double.apply(x).sum().backward()
    assert x.grad is not None and torch.equal(x.grad, torch.full_like(x, 2))


def is_transformed(module: ModuleType) -> None:
    x = torch.rand(3, dtype=torch.double)
    gradient = torch.func.grad(lambda x: module.Swish.apply(x, 2.0).sum())(x)
    plain = torch.func.grad(lambda x: torch.nn.functional.silu(x).sum())(x)
    assert torch.allclose(gradient, plain)


PROBES: dict[str, Probe] = {
    "AF01": holds_no_cycle,
    "AF02": checks_versions,
    "AF03": differentiates,
    "AF04": masks,
    "AF05": differentiates,
    "AF06": scales,
    "AF07": refuses_twice,
    "AF08": marks_dirty,
    "AF09": returns_the_dirty_one,
    "AF11": leaves_the_gradient,
    "AF13": can_be_changed,
    "AF14": mask_has_no_graph,
    "AF15": goes_without_one,
    "AF17": requires_grad,
    "AF18": refuses_twice,
    "AF20": is_transformed,
    "AF21": autocasts,
    "AF22": compiles,
    "AF23": same_sets,
    "AF24": vmaps,
    "AF25": is_called,
    "AF26": differentiates,
    "AF27": knows_its_arguments,
    "AF29": returns_a_copy,
    "AF30": is_double,
    "AF31": refuses_twice,
    "AF33": needs_the_second_alone,
    "AF34": frees_what_is_frozen,
    "AF35": is_bare,
    "AF36": differentiates,
    "AF37": lse_has_no_graph,
    "AF39": takes_an_expanded_gradient,
    "AF44": reads_an_expanded_gradient,
}


def test_every_rule_that_fixes_has_a_probe() -> None:
    assert list(PROBES) == [rule.id for rule in RULES.values() if rule.fixes]


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands for compiled code: nothing that autograd could look into."""

    def cube_backward(grad_output: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return (3 * x * x * grad_output).detach()

    extension = SimpleNamespace(_C=SimpleNamespace(cube_backward=cube_backward))
    monkeypatch.setitem(sys.modules, "kernels_of_the_test", extension)


def load(text: str, directory: Path, name: str) -> ModuleType:
    path = directory / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("rule", PROBES)
def test_the_bug_is_there_before_and_gone_after(rule: str, tmp_path: Path) -> None:
    text = HEAD + PLANTED.get(rule, RULES[rule].bad)
    probe = PROBES[rule]
    with pytest.raises((Exception, pytest.fail.Exception)):  # each in its own way
        probe(load(text, tmp_path, "before"))
    probe(load(fixed(text, rule), tmp_path, "after"))


@pytest.mark.parametrize("rule", ["AF01", "AF03", "AF05", "AF11", "AF26"])
def test_the_good_example_is_what_a_fix_leads_to(rule: str, tmp_path: Path) -> None:
    probe = PROBES[rule]
    probe(load(HEAD + RULES[rule].good, tmp_path, "good"))


def test_calls_are_not_merged_if_a_saved_name_is_bound_between() -> None:
    """The merged call would save the other value."""
    text = HEAD + RULES["AF05"].bad
    rebound = text.replace(
        "save_for_backward(x)\n", "save_for_backward(x)\n        x = x * 2\n"
    )
    assert rebound != text and fixed(text, "AF05") != text
    assert fixed(rebound, "AF05") == rebound
