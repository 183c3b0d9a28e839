"""Random forwards: each gradient is the derivative, has the input's shape, and is None where nobody needs it."""

import pytest

from scaffold.derive import derive
from tests.derive.building import draft_of, load, spec_of
from tests.derive.checking import check_needs
from tests.derive.random_forwards import drawn

DEFAULT, EXHAUSTIVE, CHUNK = 50, 5000, 25


def check(seed: int) -> bool:
    """Check the program of a seed; whether it was derived without a fallback."""
    program = drawn(seed)
    spec = spec_of(program.inputs, forward=program.forward, derive=True)
    derivation = derive(spec)
    assert not derivation.missing, derivation.notes
    text = draft_of(spec, derivation)
    module = load(text)
    plain = spec_of(program.inputs, forward=program.forward, derive=False)
    skeleton = load(draft_of(plain))
    function = getattr(module, spec.function_name)
    wrapper = getattr(module, spec.name)
    reference = getattr(skeleton, spec.function_name).forward
    count = len(program.values)
    alone = [tuple(at == only for at in range(count)) for only in range(count)]
    for needs in {(True,) * count, *alone}:
        check_needs(function, wrapper, reference, program.values, needs, False, False)
    return "torch.func.vjp" not in text


def check_all(seeds: range) -> None:
    direct = 0
    for seed in seeds:
        try:
            direct += check(seed)
        except Exception as error:
            program = drawn(seed)
            error.add_note(f"seed {seed}: {program.inputs}\n{program.forward}")
            raise
    assert direct >= len(seeds) * 0.995


@pytest.mark.one_of(2)
@pytest.mark.parametrize("first", range(0, DEFAULT, CHUNK))
def test_random_programs(first: int) -> None:
    check_all(range(first, first + CHUNK))


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(DEFAULT, EXHAUSTIVE, CHUNK))
def test_many_random_programs(first: int) -> None:
    check_all(range(first, first + CHUNK))
