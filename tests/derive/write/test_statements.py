"""What stands inside a line that the backward repeats is computed once."""

import pytest

from tests.derive.test_gradients import backward


@pytest.mark.parametrize(
    ("inputs", "forward", "lines"),
    [
        (  # a part of a line has a name there, in the user's words
            "x[N, D], y[N, D]",
            "s = x.sub(y).mul(y); return s * s",
            ["diff = x.sub(y)", "s = diff.mul(y)"],
        ),
        (  # all results of a call
            "x[N, D]",
            "y = torch.sort(x, descending=True, dim=-1)[0]; return y.exp() * y",
            ["sort = torch.sort(x, descending=True, dim=-1)", "y = sort[0]"],
        ),
        (
            "x[N, D]",
            "y = x - x.max(dim=-1, keepdim=True).values; return y * y",
            ["max_dim = x.max(dim=-1, keepdim=True)", "y = x - max_dim.values"],
        ),
        (  # of which only the shape is read; a size `k` would be told by the attribute
            "x[N, D]",
            "y = torch.sin(x).unfold(-1, len(x) % 2 + 1, 1).mean(-1); return y * y",
            [
                "windows = torch.sin(x).unfold(-1, len(x) % 2 + 1, 1)",
                "y = windows.mean(-1)",
            ],
        ),
    ],
)
def test_a_part_of_a_repeated_line_has_a_name(
    inputs: str, forward: str, lines: list[str]
) -> None:
    found = backward(inputs, forward)
    assert found[: len(lines)] == lines
    for line in lines:
        value = line.partition(" = ")[2]
        assert sum(value in other for other in found) == 1


def test_a_line_that_is_not_repeated_stays_whole() -> None:
    """The backward reads a part of it alone, and says that in its own words."""
    found = backward("x[N, D]", "y = torch.exp(torch.sin(x)); return y")
    assert found == ["grad_x = grad_output * output * torch.cos(x)"] or found == [
        "grad_x = grad_output * y * torch.cos(x)"
    ]
