"""An op leaves a manifest, or changes its name in it, and nothing else changes."""

import tomllib

import pytest

from scaffold.cli.manifest_edits import without
from scaffold.cli.manifest_tables import renamed_op, without_op

MANIFEST = """#:schema ./scaffold.schema.json
# about a
[ops.a]
inputs = 'x'
forward = '''
[ops.b]
# no comment'''
# below a

# ---- group ----

# about b
[ops."b"] # here
inputs = 'x'
[ops.b.grad]
x = 'x'
# about c
[ops.c]
inputs = [
  ["ops.c"],
]
"""
WITHOUT = {
    "a": """#:schema ./scaffold.schema.json
# ---- group ----

# about b
[ops."b"] # here
inputs = 'x'
[ops.b.grad]
x = 'x'
# about c
[ops.c]
inputs = [
  ["ops.c"],
]
""",
    "b": """#:schema ./scaffold.schema.json
# about a
[ops.a]
inputs = 'x'
forward = '''
[ops.b]
# no comment'''
# below a

# ---- group ----

# about c
[ops.c]
inputs = [
  ["ops.c"],
]
""",
    "c": """#:schema ./scaffold.schema.json
# about a
[ops.a]
inputs = 'x'
forward = '''
[ops.b]
# no comment'''
# below a

# ---- group ----

# about b
[ops."b"] # here
inputs = 'x'
[ops.b.grad]
x = 'x'
""",
}


@pytest.mark.parametrize("op", WITHOUT)
def test_an_op_leaves_with_the_comments_that_are_its_own(op: str) -> None:
    assert without_op(MANIFEST, op) == WITHOUT[op]


def test_tables_far_apart_leave_together() -> None:
    text = "[ops.a]\ninputs = 'x'\n\n[ops.b]\ninputs = 'x'\n\n[ops.a.grad]\nx = 'x'\n"
    assert without_op(text, "a") == "[ops.b]\ninputs = 'x'\n"


def test_a_new_name_stands_where_the_old_one_did() -> None:
    changed = renamed_op(MANIFEST, "b", "bee")
    assert changed is not None
    assert changed.splitlines() == [
        line.replace('"b"', "bee").replace("b.grad", "bee.grad")
        for line in MANIFEST.splitlines()
    ]


@pytest.mark.parametrize(
    "text",
    [
        "[ops]\na.inputs = 'x'\nb.inputs = 'y'\n",
        "[ops]\na = { inputs = 'x' }\nb = { inputs = 'y' }\n",
        "ops.a.inputs = 'x'\nops.b.inputs = 'y'\n",
    ],
)
def test_a_table_without_a_header_leaves_too_but_keeps_its_name(text: str) -> None:
    assert tomllib.loads(without(text, "a")) == {"ops": {"b": {"inputs": "y"}}}
    assert renamed_op(text, "a", "c") is None
