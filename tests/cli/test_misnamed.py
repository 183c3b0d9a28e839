"""Names that PyTorch does not have: where they stand, and what was meant."""

import pytest

from scaffold.project.proof_errors import misnamed
from tests.derive.building import spec_of

TORCH = "raised AttributeError: module 'torch' has no attribute"
TENSOR = "raised AttributeError: 'Tensor' object has no attribute"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (f"{TORCH} 'sofmax'", "did you mean 'softmax'?"),
        (f"{TORCH} 'gelu'", "write: F.gelu(...)"),
        (f"{TORCH} 'qqqq'", None),
        (
            "raised AttributeError: module 'torch.nn.functional' has no attribute 'sofplus'",
            "did you mean 'softplus'?",
        ),
        (
            "raised AttributeError: module 'torch.linalg' has no attribute 'solv'",
            "did you mean 'solve'?",
        ),
        (
            "raised AttributeError: module 'math' has no attribute 'sqr'",
            "did you mean 'sqrt'?",
        ),
        (f"{TENSOR} 'sofmax'", "did you mean 'softmax'?"),
        (f"{TENSOR} 'gelu'", "write: F.gelu(...)"),
        (f"{TENSOR} 'sofplus'", "did you mean 'F.softplus'?"),
    ],
)
def test_what_was_meant(words: str, hint: str | None) -> None:
    found = misnamed(spec_of("x", forward="x"), words)
    assert found is not None
    assert found.hint == hint


def test_other_complaints_are_none_of_its_own() -> None:
    spec = spec_of("x", forward="x")
    assert misnamed(spec, "raised RuntimeError: no attribute 'sofmax'") is None
    assert misnamed(spec, "None though needed") is None


@pytest.mark.parametrize(
    ("formulas", "place"),
    [
        ({"forward": "y = x.b\nreturn y.newest(-1) + x.newest(0)"}, "--forward:2:8"),
        ({"forward": "x", "grad": {"x": "grad_output * x.newest(0)"}}, "--grad:1:15"),
        ({"forward": "x * 2", "backward": "grad_x = x.newest(0)"}, "--backward:1:10"),
        (
            {"forward": "while x.any(): x = torch.newest(x, 0)\nreturn x"},
            "--forward:1:20",
        ),
        ({"forward": "x"}, "None"),
    ],
)
def test_where_it_stands(formulas: dict[str, str], place: str) -> None:
    found = misnamed(spec_of("x", **formulas), f"{TENSOR} 'newest'")
    assert found is not None
    assert str(found.place) == place
