"""Tables as text: what is read back is what was written."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from scaffold.spec.toml import op_table

NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30).map(
    lambda text: text.replace("\r", "")
)
NUMBERS = st.integers(-(2**62), 2**62) | st.floats(allow_nan=False)
PLAIN = TEXTS | st.booleans() | NUMBERS | st.lists(TEXTS, max_size=3)
KEYS = st.dictionaries(
    NAMES | TEXTS,
    PLAIN | st.dictionaries(NAMES, TEXTS, min_size=1, max_size=3),
    max_size=5,
)


@given(NAMES, KEYS)
def test_what_is_read_back_is_what_was_written(
    name: str, keys: dict[str, object]
) -> None:
    assert tomllib.loads(op_table(name, keys))["ops"][name] == keys


def test_a_table_reads_as_a_person_writes_it() -> None:
    keys = {
        "inputs": "x[..., D]",
        "forward": "y = x + 1\nreturn y",
        "grad": {"x": "grad_output"},
        "module": False,
        "require": ["D > 1"],
    }
    assert op_table("add_one", keys) == (
        "[ops.add_one]\n"
        "inputs = 'x[..., D]'\n"
        "forward = '''\ny = x + 1\nreturn y'''\n"
        "grad.x = 'grad_output'\n"
        "module = false\n"
        "require = ['D > 1']\n"
    )
