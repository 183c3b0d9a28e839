from pathlib import Path

import pytest

from scaffold.workspace import cache, records
from scaffold.workspace.cache import Known
from scaffold.workspace.records import kept_file, unpack
from scaffold.workspace.statements import normal_form


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts whose form was asked for."""
    texts: list[str] = []

    def noting(text: str) -> str:
        texts.append(text)
        return normal_form(text)

    monkeypatch.setattr(cache, "normal_form", noting)
    return texts


def test_a_pair_is_compared_once(tmp_path: Path, parsed: list[str]) -> None:
    place = tmp_path / "cache/known"
    for count in (2, 2, 2):
        pairs = Known(place)
        assert pairs.same("x = 'a'\n", 'x = "a"\n')
        pairs.keep()
        assert len(parsed) == count


def test_what_differs_is_not_remembered(tmp_path: Path, parsed: list[str]) -> None:
    place = tmp_path / "known"
    for count in (2, 4):
        pairs = Known(place)
        assert not pairs.same("x = 1\n", "x = 2\n")
        pairs.keep()
        assert len(parsed) == count
    assert not place.exists()


def test_another_cut_is_another_pair(tmp_path: Path) -> None:
    pairs = Known(tmp_path / "known")
    assert pairs.same("a\n", "a \n")
    assert not pairs.same("a\na", " \n")


def test_earlier_pairs_stay_until_they_are_too_many(
    tmp_path: Path, parsed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "ENOUGH", 2)
    place = tmp_path / "known"
    for name, kept in (("a", 1), ("b", 2), ("c", 1)):
        pairs = Known(place)
        assert pairs.same(f"{name} = 1\n", f"{name} = (1)\n")
        pairs.keep()
        assert len(place.read_text().split()) == kept


def test_a_record_is_unpacked_once_and_again_where_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unpacked: list[str] = []

    def noting(packed: str) -> str | None:
        unpacked.append(packed)
        return unpack(packed)

    monkeypatch.setattr(records, "unpack", noting)
    kept = kept_file("op", "ops/op.py", "", "x = 1\n")
    other = kept._replace(text=kept.text[::-1])
    cut = kept._replace(base=kept.base[:-5])
    for count in (3, 5):  # what is not whole is asked for each time
        known = Known(tmp_path / "known")
        assert known.whole(kept)
        assert not known.whole(other)
        assert not known.whole(cut)
        known.keep()
        assert len(unpacked) == count


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_without_a_place_it_is_found_again(
    tmp_path: Path, content: bytes | None
) -> None:
    place = tmp_path / "known"
    if content is None:
        (tmp_path / "file").write_text("")
        place = tmp_path / "file/known"
    else:
        place.write_bytes(content)
    pairs = Known(place)
    assert pairs.same("x = (1)\n", "x = 1\n")
    pairs.keep()
