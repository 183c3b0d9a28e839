"""The files of an op: where they lie, and all that is wrong with the team's templates at once."""

from scaffold.derive import derive
from scaffold.render.layout import Directories
from tests.derive.building import spec_of
from tests.render.formatted import op_files

TWICE = {"forward": "x * 2", "derive": True}
PLACES = Directories(source="ops", tests="tests")


def test_an_op_and_its_test_lie_where_they_should() -> None:
    spec = spec_of("x", name="twice", **TWICE)
    files = op_files(spec, derive(spec), PLACES)
    assert list(files) == ["ops/twice.py", "tests/test_twice.py"]
    assert "class TwiceFunction(Function):" in files["ops/twice.py"]


def test_a_test_that_is_switched_off_is_no_file() -> None:
    spec = spec_of("x", name="twice", test=False, **TWICE)
    assert list(op_files(spec, derive(spec), PLACES)) == ["ops/twice.py"]


def test_the_same_op_gives_the_same_bytes() -> None:
    spec = spec_of("x", name="twice", **TWICE)
    assert op_files(spec, derive(spec), PLACES) == op_files(spec, derive(spec), PLACES)
