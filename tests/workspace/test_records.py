"""Records: what a proof is of (the code of the Function and its wrapper, whatever its formatting, and what it names), and how they are read."""

import base64
import os
import subprocess
import sys
import zlib
from hashlib import sha256
from pathlib import Path

import black
import pytest

from scaffold.workspace import records
from scaffold.workspace.records import (
    MOST,
    PIECE,
    adds_only,
    function_digest,
    pack,
    read_state,
    unpack,
)
from tests.render.formatted import op_testing_file

NAMES = ("LinearFunction", "linear")
LINEAR = (Path(__file__).parents[2] / "generated_examples/linear/linear.py").read_text()


def digest(text: str) -> str:
    return function_digest(text, NAMES)


def changed(old: str, new: str) -> str:
    assert old in LINEAR
    return LINEAR.replace(old, new)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(changed("\n", "\r\n"), id="line ends"),
        pytest.param(changed("-0.1, 0.1", "-0.2, 0.2"), id="the Module"),
        pytest.param(changed("import Tensor, nn", "import Tensor"), id="its import"),
        pytest.param(
            changed("from torch import Tensor, nn", "from torch import nn, Tensor"),
            id="sorted imports",
        ),
        pytest.param(changed("``input @ weight", "``input  @ weight"), id="docstring"),
        pytest.param(changed("# one row", "# a row"), id="comment"),
        pytest.param("import os\nSEED = 3\n" + LINEAR, id="what it does not name"),
        pytest.param(
            changed(
                "return grad_input, grad_weight, grad_bias",
                "return (grad_input, grad_weight, grad_bias,)",
            ),
            id="parentheses",
        ),
    ],
)
def test_what_is_no_part_of_a_proof(text: str) -> None:
    assert text != LINEAR
    assert digest(text) == digest(LINEAR)


def test_formatting_is_no_part_of_a_proof() -> None:
    text = black.format_str(LINEAR, mode=black.Mode(line_length=40))
    assert text != LINEAR
    assert digest(text) == digest(LINEAR)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(changed("grad_output @ weight", "weight"), id="a gradient"),
        pytest.param(changed("input @ weight.t()", "input @ weight"), id="the forward"),
        pytest.param(
            changed("return LinearFunction.apply(", "return 2 * LinearFunction.apply("),
            id="the wrapper",
        ),
        pytest.param(
            changed("    generate_vmap_rule = True\n", ""), id="a switch of the class"
        ),
        pytest.param(
            changed("import torch\n", "import fake as torch\n"), id="what a name means"
        ),
        pytest.param(
            changed("\n\nclass Lin", "\ntorch.addmm = None\n\nclass Lin"),
            id="a change of what it names",
        ),
        pytest.param(
            changed("\n\nclass Lin", "\nif True:\n    torch = 3\n\nclass Lin"),
            id="another meaning under a test",
        ),
    ],
)
def test_what_voids_a_proof(text: str) -> None:
    assert digest(text) != digest(LINEAR)


def test_what_the_function_calls_is_a_part_of_it_however_far() -> None:
    helped = changed("grad_output @ weight", "_helped(grad_output, weight)")
    helped += "\n\ndef _helped(one, two):\n    return one @ _same(two)\n"
    helped += "\n\n_same = lambda value: value\n"
    assert digest(helped) != digest(helped.replace("one @ ", "two @ "))
    assert digest(helped) != digest(helped.replace("value: value", "value: -value"))


@pytest.mark.parametrize(
    "more", ["else:\n    torch = None\n", "finally:\n    torch = 3\n"]
)
def test_what_follows_an_import_that_may_fail_is_a_part_of_it(more: str) -> None:
    tried = "try:\n    import torch\nexcept ImportError:\n    torch = None\n"
    text = changed("import torch\n", tried)
    assert digest(text) != digest(text.replace(tried, tried + more))


def test_a_file_without_the_function_counts_as_a_whole() -> None:
    assert function_digest("x = 1\n", NAMES) != function_digest("x = 2\n", NAMES)
    assert function_digest("x = (1)\n", NAMES) == function_digest("x = 1\n", NAMES)


@pytest.mark.parametrize("text", ["def (", "<<<<<<< ours\n", "\0"])
def test_what_is_no_python_has_no_digest(text: str) -> None:
    assert digest(text) == ""


def test_the_digest_is_the_same_in_every_process() -> None:
    program = (
        "from scaffold.workspace.records import function_digest\nimport sys\n"
        f"print(function_digest(sys.stdin.read(), {NAMES!r}))"
    )
    said = subprocess.run(
        [sys.executable, "-c", program],
        input=LINEAR,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == digest(LINEAR)


def test_of_two_definitions_the_order_matters() -> None:
    one, two = "def linear():\n    pass\n", "def linear():\n    return 2\n"
    assert digest(one + two) != digest(two + one)


TESTS = "import torch\n\n@mark\ndef test_one():\n    assert f(1)\n\nf = str\n"


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        (TESTS, True),
        (f"# ours\n{TESTS}\nimport os\n\nN = 3\ndef test_two():\n    pass\n", True),
        (TESTS.replace("f(1)", "f(2)"), False),
        (TESTS.replace("@mark", "@skip\n@mark"), False),
        (TESTS.replace("f = str", ""), False),
        (f"{TESTS}\ndef test_one():\n    pass\n", False),
        (f"{TESTS}\ndef mark(test):\n    pass\n", False),
        (f"{TESTS}\nfrom ours import f\n", False),
        (f"{TESTS}\ndel test_one\n", False),
        (f"{TESTS}\nif True:\n    pass\n", False),
        ("<<<<<<< ours\n", False),
    ],
)
def test_tests_that_somebody_only_added_to(text: str, holds: bool) -> None:
    assert adds_only(TESTS, text) is holds


QUESTIONS = """class OpTests:
    \"\"\"What is asked.\"\"\"

    twice = True

    def test_one(self) -> None:
        assert self.twice
"""


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        (f"{QUESTIONS}\n    def test_ours(self) -> None: ...\n", True),
        (QUESTIONS.replace("    twice = True", "    ours = 1\n    twice = True"), True),
        (QUESTIONS.replace("What is", "All that is"), True),
        (QUESTIONS.replace("twice = True", "twice = False"), False),
        (QUESTIONS.replace("assert self.twice", "pass"), False),
        (f"{QUESTIONS}\n    def test_one(self) -> None: ...\n", False),
        (QUESTIONS.replace("OpTests:", "OpTests(Ours):"), False),
        (f"{QUESTIONS}\n\nOpTests.test_one = None\n", False),
    ],
)
def test_questions_that_somebody_only_added_to(text: str, holds: bool) -> None:
    assert adds_only(QUESTIONS, text) is holds


def test_a_record_that_another_run_has_just_removed_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".scaffold").mkdir()
    (tmp_path / ".scaffold/here.json").write_text("{}")
    monkeypatch.setattr(os, "listdir", lambda path: ["gone.json", "here.json"])
    assert read_state(tmp_path) == {".scaffold/here.json": b"{}"}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param(LINEAR, id="an op"),
        pytest.param("x = '\u2192'\n", id="not ASCII"),
        pytest.param("\u2192" * PIECE, id="a character over the end of a piece"),
        pytest.param("x" * PIECE, id="one piece"),
        pytest.param(LINEAR * 9, id="some pieces"),
    ],
)
def test_what_is_packed_is_a_line_and_comes_out_again(text: str) -> None:
    packed = pack(text)
    assert packed.isascii() and packed.isprintable() and '"' not in packed
    assert unpack(packed) == text


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param("", id="gone"),
        pytest.param(pack(LINEAR)[:-20], id="cut"),
        pytest.param("no base 85\n", id="another alphabet"),
        pytest.param("\N{BULLET}", id="not ASCII"),
        pytest.param(base64.b85encode(b"plain").decode(), id="not packed"),
        pytest.param(base64.b85encode(zlib.compress(b"\xff")).decode(), id="not UTF-8"),
        pytest.param(
            base64.b85encode(zlib.compress(b"0" * (MOST + 1))).decode(), id="a bomb"
        ),
    ],
)
def test_what_was_changed_does_not_come_out(packed: str) -> None:
    assert unpack(packed) is None


def test_what_was_packed_once_comes_out_for_ever() -> None:
    """Records of projects hold what these words stand for: what is added to them needs a VERSION."""
    words = Path(records.__file__).with_name("common_text.txt").read_bytes()
    assert sha256(words).hexdigest().startswith("54e47aa9c92226df")
    plain = base64.b85encode(zlib.compress(LINEAR.encode())).decode()
    assert unpack(plain) == LINEAR, "as version 2 packed it"


def test_generated_text_is_packed_in_a_sixth_of_its_length() -> None:
    """What tests share in more: questions that came later are not among the words."""
    for text, times in ((LINEAR, 6), (op_testing_file(), 3.5)):
        assert unpack(pack(text)) == text
        assert len(pack(text)) < len(text) / times
