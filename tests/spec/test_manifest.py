"""Manifests: ops in the order in which they stand, once each; a digest is of what counts."""

import pytest

from scaffold.errors import ScaffoldError
from scaffold.spec.manifest import list_ops, spec_digest, text_digest

SCALE = "[ops.scale]\ninputs = 'x'\nforward = 'x * 2'\n"
SHIFT = "[ops.shift]\ninputs = 'x'\nforward = 'x + 1'\n"


def digest(text: str) -> str:
    (listed,) = list_ops({"ops.toml": text}, packaged=True)
    return spec_digest(listed.entry)


def test_ops_of_several_files_keep_their_order() -> None:
    found = list_ops({"b.toml": SHIFT, "a.toml": SCALE}, packaged=True)
    named = [(item.name, item.manifest) for item in found]
    assert named == [("shift", "b.toml"), ("scale", "a.toml")]


def test_an_op_that_stands_twice_is_told_with_both_places() -> None:
    with pytest.raises(ScaffoldError) as caught:
        list_ops({"a.toml": SCALE, "b.toml": f"# ours\n{SCALE}"}, packaged=True)
    assert "b.toml:2:6: op 'scale' is listed a second time" in str(caught.value)
    assert "the first one: a.toml:1:6" in str(caught.value)


def test_what_is_wrong_in_every_file_is_told_at_once() -> None:
    with pytest.raises(ScaffoldError) as caught:
        list_ops({"a.toml": "[ops.", "b.toml": "[ops"}, packaged=True)
    assert "a.toml:1" in str(caught.value) and "b.toml:1" in str(caught.value)


def test_a_digest_is_of_what_a_table_says() -> None:
    assert digest(SCALE) == digest("# how much\n" + SCALE.replace("'x'", '"x" # all'))
    assert digest(SCALE) != digest(SCALE.replace("* 2", "* 3"))


def test_any_text_has_a_digest() -> None:
    assert text_digest("a") != text_digest("\udcff")  # of a name that is no UTF-8
