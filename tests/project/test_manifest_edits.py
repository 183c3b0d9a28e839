"""An op leaves a manifest, or changes its name in it, and nothing else changes."""

import tomllib

import pytest

from scaffold.errors import Location, ScaffoldError
from scaffold.project.manifest_edits import renamed, replaced, without

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


HERE = Location("ops.toml")


@pytest.mark.parametrize("op", WITHOUT)
def test_an_op_leaves_with_the_comments_that_are_its_own(op: str) -> None:
    assert without(MANIFEST, op, HERE) == WITHOUT[op]


def test_tables_far_apart_leave_together() -> None:
    text = "[ops.a]\ninputs = 'x'\n\n[ops.b]\ninputs = 'x'\n\n[ops.a.grad]\nx = 'x'\n"
    assert without(text, "a", HERE) == "[ops.b]\ninputs = 'x'\n"


def test_a_new_name_stands_where_the_old_one_did() -> None:
    assert renamed(MANIFEST, "b", "bee", HERE).splitlines() == [
        line.replace('"b"', "bee").replace("b.grad", "bee.grad")
        for line in MANIFEST.splitlines()
    ]


def test_a_name_that_is_no_bare_key_is_quoted() -> None:
    assert renamed("[ops.a]\n", "a", "b c", HERE) == '[ops."b c"]\n'


WITHOUT_HEADER = {
    "[ops]\n# about a\na.inputs = 'x' # here\na.grad.x = 'x'\n\nb.inputs = 'y'\n": (
        "[ops]\n\nb.inputs = 'y'\n"
    ),
    "[ops]\nb = { inputs = 'y' }\na = { inputs = 'x' }\n": (
        "[ops]\nb = { inputs = 'y' }\n"
    ),
    'ops.a.inputs = """\nx"""\nops.b.inputs = \'y\'\n': "ops.b.inputs = 'y'\n",
}


@pytest.mark.parametrize("text", WITHOUT_HEADER)
def test_an_op_without_a_table_leaves_and_is_renamed_too(text: str) -> None:
    assert without(text, "a", HERE) == WITHOUT_HEADER[text]
    again = renamed(text, "a", "c", HERE)
    assert tomllib.loads(again)["ops"].keys() == {"b", "c"}
    assert renamed(again, "c", "a", HERE) == text


def test_what_an_op_still_says_stays_as_it_is_written() -> None:
    text = MANIFEST.replace(
        "inputs = 'x'\n[ops.b.grad]", "inputs = 'x' # one\n[ops.b.grad]"
    )
    said = {"inputs": "x", "forward": "x * 2", "grad": {"x": "2 * x", "y": "y"}}
    assert replaced(text, "b", said, HERE) == text.replace(
        "inputs = 'x' # one\n[ops.b.grad]\nx = 'x'\n",
        "inputs = 'x' # one\nforward = 'x * 2'\n"
        "[ops.b.grad]\nx = '2 * x'\ny = 'y'\n",
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "[ops.a]\ninputs = 'x'\n# of the gradient\ngrad.x = 'x'\nmodule = false\n",
            "[ops.a]\ninputs = 'x, y'\nforward = 'x * y'\ncheck = ['x', 'y']\n# of the gradient\n",
        ),
        ("[ops.a] # here\ntest = false", "[ops.a] # here"),
        (
            "[ops]\na.inputs = 'x'\nb.inputs = 'x'\n",
            "[ops]\na.inputs = 'x, y'\na.forward = 'x * y'\na.check = ['x', 'y']\nb.inputs",
        ),
        (
            "[ops]\na = { inputs = 'x' } # here\n",
            '[ops]\na = { inputs = "x, y", forward = "x * y", check = ["x", "y"] } # here\n',
        ),
        (
            "[ops.a]\ninputs = 'x, y'\n[ops.a.grad]\nx = 'x'\n\n# below\n",
            "[ops.a]\ninputs = 'x, y'\nforward = 'x * y'\ncheck = ['x', 'y']\n\n# below\n",
        ),
    ],
)
def test_keys_come_and_go_in_every_form_of_a_table(before: str, after: str) -> None:
    said = {"inputs": "x, y", "forward": "x * y", "check": ["x", "y"]}
    assert replaced(before, "a", said, HERE).startswith(after)
    assert tomllib.loads(replaced(before, "a", said, HERE))["ops"]["a"] == said


@pytest.mark.parametrize("op", ["a.inputs = 'x'", "a = { inputs = 'x' }"])
def test_all_ops_in_one_line_are_renamed_and_otherwise_refused(op: str) -> None:
    text = f"ops = {{ {op} }}\n"
    assert renamed(text, "a", "c", HERE) == text.replace("a", "c")
    with pytest.raises(ScaffoldError, match="cannot be changed in this form"):
        replaced(text, "a", {"inputs": "y"}, HERE)
    with pytest.raises(ScaffoldError, match="cannot be changed in this form"):
        without(text, "a", HERE)
