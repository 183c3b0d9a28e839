"""A derivation does not depend on where its ops lie in memory, which is what sets of them go by."""

import random

import pytest

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
    for _ in range(12):
        litter += [bytearray(sizes.randrange(600)) for _ in range(3000)]
        texts.add(text_of(spec))
    assert len(texts) == 1
