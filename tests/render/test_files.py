"""The files of an op: where they lie, and all that is wrong with the team's templates at once."""

from collections.abc import Mapping

from scaffold.derive import derive
from scaffold.render.files import drafts, render
from scaffold.render.layout import Directories
from tests.derive.building import spec_of

TWICE = {"forward": "x * 2", "derive": True}
PLACES = Directories(source="ops", tests="tests")


def test_an_op_and_its_test_lie_where_they_should() -> None:
    spec = spec_of("x", name="twice", **TWICE)
    files = render(spec, derive(spec), PLACES)
    assert list(files) == ["ops/twice.py", "tests/test_twice.py"]
    assert "class TwiceFunction(Function):" in files["ops/twice.py"]


def test_a_test_that_is_switched_off_is_no_file() -> None:
    spec = spec_of("x", name="twice", test=False, **TWICE)
    assert list(render(spec, derive(spec), PLACES)) == ["ops/twice.py"]


def test_the_same_op_gives_the_same_bytes() -> None:
    spec = spec_of("x", name="twice", **TWICE)
    assert render(spec, derive(spec), PLACES) == render(spec, derive(spec), PLACES)


def test_only_the_formatter_parts_a_file_from_its_draft() -> None:
    spec = spec_of("x", name="twice", **TWICE)

    def as_it_is(files: Mapping[str, str], line_length: int) -> dict[str, str]:
        return {**files}

    written = render(spec, derive(spec), PLACES, formatter=as_it_is)
    assert written == drafts(spec, derive(spec), PLACES)
