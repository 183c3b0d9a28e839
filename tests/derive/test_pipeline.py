"""The passes of a derivation: the same for every way to a gradient, none run in vain, and the same text every time.

A derivation does not depend on where its ops lie in memory, which is what sets of them go by.
"""

import itertools
import random
from itertools import product
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from scaffold.derive import Derivation, derive, pipeline
from scaffold.spec import OpSpec
from tests.derive.building import draft_of, load, reference, spec_of, text_of
from tests.derive.test_ops_of_others import BY_NAME, undeclared
from tests.sweeps import pairs_in_every_run

ASKED = [*product(["arcface", "rodrigues", "rwkv_wkv_step"], ["recompute", "balanced"])]


@pytest.mark.parametrize(
    ("name", "policy"),
    pairs_in_every_run(ASKED, ASKED[::5], pytest.mark.each_commit),
)
def test_the_text_is_the_same_every_time(name: str, policy: str) -> None:
    case = BY_NAME[name]
    spec = spec_of(
        undeclared(case.inputs),
        forward=case.forward,
        outputs=case.outputs,
        derive=True,
        save_policy=policy,
    )
    sizes, litter, texts = random.Random(0), list[bytearray](), set[str]()
    for _ in range(5):
        litter += [bytearray(sizes.randrange(600)) for _ in range(3000)]
        texts.add(text_of(spec))
    assert len(texts) == 1


WAYS: dict[str, dict[str, Any]] = {
    "stated": {"forward": "x.exp() * y", "grad": {"x": "x.exp() * y * grad_output"}},
    "derived": {"forward": "x.exp() * y"},
    "autograd": {"forward": "for _ in range(2):\n    x = x.exp() * y\nreturn x"},
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_a_gradient_ends_in_the_same_passes(way: str) -> None:
    """Whoever gives a gradient: it is assigned under its branch, over what is saved for it."""
    found = derive(spec_of("x, y", derive=True, save_policy="recompute", **WAYS[way]))
    assert not found.missing
    assert ("y" in found.derived, "x" in found.derived) == (True, way != "stated")
    served = {name for block in found.blocks for name in block.serves}
    assert served == {"x", "y"}
    assert {"x", "y"} <= {item.name for item in found.saved}


def test_an_op_is_written_down_once_where_it_relies_on_no_declared_shape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is written for a weaker declaration is the same before the passes after the gradients: they are not run again."""
    runs = list[str]()
    passes = pipeline._in_style

    def counted(spec: OpSpec, *rest: Any) -> Derivation:
        runs.append(spec.style)
        return passes(spec, *rest)

    monkeypatch.setattr(pipeline, "_in_style", counted)
    options: dict[str, Any] = {
        "forward": "x.exp() * 2",
        "derive": True,
        "style": "setup-context",
    }
    found = derive(spec_of("x[N, D]", **options))
    assert runs == ["setup-context"]
    assert not found.checks


# The forward, the function whose derivative the gradient is (over `x`, `w` and perhaps `b`), gradients stated beside it.
SURROGATES: dict[str, tuple[str, str, dict[str, str]]] = {
    "another function": ("(x * w > 0).to(x.dtype)", "torch.sigmoid(3 * x * w)", {}),
    "a local": ("h = x * w\n(h > 0).to(x.dtype)", "torch.tanh(h)", {}),
    "what comes again has a name": (
        "h = x / (1 + w.abs())\ntorch.round(h)",
        "h = x / (1 + w.abs())\nh.clamp(-1, 1)",
        {},
    ),
    "its own value": ("torch.round(x / w)", "torch.exp(x / w) - w", {}),
    "an optional": ("torch.sign(x * w + b)", "torch.tanh(x * w + b) * w", {}),
    "one is stated": (
        "torch.round(x * w)",
        "x * torch.exp(w)",
        {"x": "(grad_output * torch.exp(w)).sum_to_size(x.shape)"},
    ),
}
SHAPES = [((3, 2), (3, 2)), ((3, 1), (2,)), ((0, 2), (2,)), ((), (2, 2))]


@pytest.mark.parametrize("name", SURROGATES)
def test_the_gradient_of_a_surrogate_is_derived(name: str) -> None:
    """Where nobody states it, over what the function itself results in: the op's own output is another."""
    forward, surrogate, grad = SURROGATES[name]
    spec = spec_of(
        "x, w, b?" if " b" in surrogate else "x, w",
        forward=forward,
        surrogate=surrogate,
        grad=grad,
        derive=True,
    )
    assert not derive(spec).missing
    op = load(draft_of(spec)).some_op
    *lines, last = surrogate.splitlines()
    body = "\n".join((*lines, f"return {last}"))
    shown = reference(("x", "w", "b"), f"h = x * w\n{body}")
    torch.manual_seed(0)
    for (one, two), spread in itertools.product(SHAPES, (False, True)):
        for optional in ((two,), ()) if " b" in surrogate else ((),):
            values = [
                torch.randn(*shape, 2, dtype=torch.double)[..., 0]
                for shape in (one, two, *optional)
            ]
            given = [
                (value if spread else value.clone()).requires_grad_()
                for value in values
            ]
            wanted = shown(*given, *((0,) if not optional else ()))
            coming = torch.randn_like(wanted)
            found = torch.autograd.grad(op(*given), given, coming)
            assert_close(found, torch.autograd.grad(wanted, given, coming))


@pytest.mark.parametrize(
    "more",
    [
        {"forward": "x.round_()", "dirty": ["x"]},  # x is gone
        {"forward": "x.round()", "surrogate": "x * torch.rand_like(x)"},
        {"forward": "x.round()", "derive": False},
    ],
)
def test_a_surrogate_that_cannot_be_derived_leaves_its_gradient(
    more: dict[str, Any],
) -> None:
    found = derive(spec_of("x", **{"derive": True, "surrogate": "x * 2", **more}))
    assert found.missing == {"x"}
