"""What a fix makes behaves: the planted bug is there before, and gone after."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck

from scaffold.lint import RULES
from tests.lint.cases import HEAD
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

    torch.func.vmap(total)(torch.rand(3))


def frees_what_is_frozen(module: ModuleType) -> None:
    saved: list[torch.Tensor] = []

    def pack(x: torch.Tensor) -> torch.Tensor:
        saved.append(x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        output = module.Matmul.apply(double(2, 3), torch.rand(3, 2, dtype=torch.double))
    assert len(saved) == 1
    output.sum().backward()


def is_double(module: ModuleType) -> None:
    module.test_double()


PROBES: dict[str, Probe] = {
    "AF01": holds_no_cycle,
    "AF02": checks_versions,
    "AF03": differentiates,
    "AF05": differentiates,
    "AF07": refuses_twice,
    "AF08": marks_dirty,
    "AF11": leaves_the_gradient,
    "AF13": can_be_changed,
    "AF14": mask_has_no_graph,
    "AF17": requires_grad,
    "AF18": refuses_twice,
    "AF24": vmaps,
    "AF25": is_called,
    "AF26": differentiates,
    "AF30": is_double,
    "AF34": frees_what_is_frozen,
}


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
    text = HEAD + RULES[rule].bad
    probe = PROBES[rule]
    with pytest.raises((Exception, pytest.fail.Exception)):  # each in its own way
        probe(load(text, tmp_path, "before"))
    probe(load(fixed(text, rule), tmp_path, "after"))


@pytest.mark.parametrize("rule", ["AF01", "AF03", "AF05", "AF11", "AF26"])
def test_the_good_example_is_what_a_fix_leads_to(rule: str, tmp_path: Path) -> None:
    probe = PROBES[rule]
    probe(load(HEAD + RULES[rule].good, tmp_path, "good"))
