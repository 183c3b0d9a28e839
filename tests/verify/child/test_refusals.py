"""Why a forward takes no such inputs."""

from pathlib import Path

from tests.cli.running import new_op


def test_attributes_that_the_forward_does_not_take_are_told(tmp_path: Path) -> None:
    """Another width makes the power complex, and the usual one raises: that is said of it."""
    stated = ("--inputs", "q, width: int, heads: int = 8")
    maths = ("--forward", "(width // heads)**-0.5 * q", "--dry-run")
    done = new_op(tmp_path, *stated, *maths)
    assert "Traceback" not in done.err
    assert "raised ZeroDivisionError" in done.err
