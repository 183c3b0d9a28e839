"""The kinds of what an op is given, and of NumPy imported by any name."""

from scaffold.derive.analysis.input_kinds import kinds_of_inputs
from tests.derive.building import spec_of


def test_the_kinds_of_inputs_and_imports() -> None:
    spec = spec_of(
        "y, *xs, p: float, config: object",
        forward="xs[0] * p + y",
        import_=["numpy as np"],
    )
    kinds = kinds_of_inputs(spec)
    wanted = {"xs": "group", "y": "tensor", "p": "scalar", "config": "tensor"}
    assert {name: kinds.of_name(name) for name in wanted} == wanted
    assert kinds.arrays == {"np"}
