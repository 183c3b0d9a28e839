"""Errors: a place, a message and a hint on lines of their own, and which exit code several of them have."""

import pytest

from scaffold.errors import (
    ConflictError,
    ConflictErrors,
    Location,
    ScaffoldError,
    ScaffoldErrors,
    VerificationError,
    did_you_mean,
    raise_all,
)

PLACE = Location("ops.toml", 3, 5)


def test_a_place_moves_with_the_text_that_starts_there() -> None:
    assert str(PLACE) == "ops.toml:3:5"
    assert PLACE.shifted(0, 4) == Location("ops.toml", 3, 9)
    assert PLACE.shifted(2, 4) == Location("ops.toml", 5, 5)


def test_what_is_printed_is_one_line_and_a_hint() -> None:
    error = ScaffoldError("no 'a\nb\x1b'", PLACE, "say it")
    assert str(error) == "ops.toml:3:5: no 'a\\nb\\x1b'\nhint: say it"
    assert str(ScaffoldError("no")) == "error: no"


def test_several_are_flat_and_have_the_gravest_exit_code() -> None:
    first, second = ConflictError("one"), VerificationError("two", details=("x: 1",))
    both = ScaffoldErrors([first, ScaffoldErrors([second, ScaffoldError("three")])])
    assert [problem.message for problem in both.problems] == ["one", "two", "three"]
    assert str(both).splitlines() == ["error: one", "error: two", "error: three"]
    assert (both.exit_code, both.details) == (2, ("x: 1",))


def test_what_was_collected_is_raised_as_it_is() -> None:
    raise_all([])
    alone = ScaffoldError("alone")
    with pytest.raises(ScaffoldError) as one:
        raise_all([alone])
    assert one.value is alone
    with pytest.raises(ConflictErrors) as conflicts:
        raise_all([ConflictError("a"), ConflictError("b")])
    assert conflicts.value.exit_code == 1
    with pytest.raises(ScaffoldErrors) as mixed:
        raise_all([ConflictError("a"), alone])
    assert mixed.value.exit_code == 2


def test_only_what_is_close_is_meant() -> None:
    assert did_you_mean("smae", ["same", "other"]) == "did you mean 'same'?"
    assert did_you_mean("xyz", ["same", "other"]) is None


def test_a_problem_that_two_find_is_told_once() -> None:
    places = ("a.toml", "a.toml", "b.toml")
    found = [ScaffoldError("cannot be read", Location(path)) for path in places]
    told = str(ScaffoldErrors(found)).splitlines()
    assert told == ["a.toml:1:1: cannot be read", "b.toml:1:1: cannot be read"]


@pytest.mark.parametrize(
    "source", ["--inputs", "NAME", "scaffold list", "SCAFFOLD_PYTHON"]
)
def test_the_command_line_has_no_line_and_column(source: str) -> None:
    """Unless the place is within the text of an option."""
    assert str(Location(source)) == source
    assert str(Location(source).shifted(0, 4)) == f"{source}:1:5"
    assert str(Location("ops.toml")) == "ops.toml:1:1"
