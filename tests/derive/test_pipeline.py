"""The passes of a derivation: the same for every way to a gradient, none run in vain, and the same text every time.

A derivation does not depend on where its ops lie in memory, which is what sets of them go by.
"""

import random
from typing import Any

import pytest

from scaffold.derive import Derivation, derive, pipeline
from scaffold.spec import OpSpec
from tests.derive.building import spec_of, text_of
from tests.derive.test_ops_of_others import BY_NAME, undeclared


@pytest.mark.parametrize("policy", ["recompute", "balanced"])
@pytest.mark.parametrize("name", ["arcface", "rodrigues", "rwkv_wkv_step"])
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
    found = derive(spec_of("x, y", derive=True, **WAYS[way]))
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
