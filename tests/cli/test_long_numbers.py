"""Numbers of thousands of digits, which Python itself refuses to read or to write: messages, no tracebacks."""

from pathlib import Path

import pytest

from tests.cli.running import scaffold

DECIMAL, HEXADECIMAL = "9" * 5_000, "0x" + "f" * 5_000


@pytest.mark.parametrize(
    ("inputs", "forward", "more"),
    [
        ("x", f"x * {HEXADECIMAL}", ()),
        ("x", f"x * {DECIMAL}", ()),
        ("x[N]", f"x[-{HEXADECIMAL}]", ()),
        (f"x[{DECIMAL}]", "x * 2", ()),
        (f"x[N; index({DECIMAL})]", "x * 2", ()),
        (f"x, a: float = {HEXADECIMAL}", "x * a", ()),
        (f"x, a = (1, {HEXADECIMAL})", "x * a[0]", ()),
        ("x", "x * 2", ("--outputs", f"y[{DECIMAL}]")),
        ("x[N]", "x * 2", ("--require", f"N < {HEXADECIMAL}")),
        ("x", "x * 2", ("--grad", f"x=grad_output * {HEXADECIMAL}")),
    ],
)
def test_a_number_that_no_tensor_takes_is_refused(
    tmp_path: Path, inputs: str, forward: str, more: tuple[str, ...]
) -> None:
    told = scaffold(tmp_path, *DERIVE, inputs, "--forward", forward, *more)
    option, _, _ = told.err.partition(":")
    assert (told.code, told.out, option[:2]) == (2, "", "--")
    assert "hint: " in told.err


DERIVE = ("derive", "foo", "--inputs")


def test_a_width_of_a_terminal_may_have_many_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", DECIMAL)
    assert scaffold(tmp_path, "--help").code == 0
