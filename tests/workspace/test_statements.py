import ast
import io
import shutil
import subprocess
import sys
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from scaffold.workspace.statements import cut, normal_form
from tests.sweeps import in_every_run

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "generated_examples").glob("*/*.py"))
RUFF = ("ruff", "format", "--isolated", "-q")
SORT = ("ruff", "check", "--isolated", "-q", "--fix", "--select", "I001")
STYLES: dict[str, list[tuple[str, ...]]] = {
    "ruff-120": [(*RUFF, "--line-length", "120")],
    "ruff-60": [(*RUFF, "--line-length", "60")],
    "single-quotes": [
        (*RUFF, "--config", "format.quote-style='single'"),
    ],
    "no-magic-comma": [
        (*RUFF, "--config", "format.skip-magic-trailing-comma=true"),
    ],
    "one-import-a-line": [(*SORT, "--config", "lint.isort.force-single-line=true")],
    "unsectioned": [
        (*SORT, "--config", "lint.isort.no-sections=true"),
        (*RUFF, "--line-length", "100"),
    ],
    "crlf": [(*RUFF, "--config", "format.line-ending='cr-lf'")],
    "black-60": [("black", "-q", "-l", "60")],
}


@pytest.mark.parametrize(
    "style", in_every_run(STYLES, ["ruff-60", "unsectioned", "crlf"])
)
def test_a_formatter_changes_no_form(style: str, tmp_path: Path) -> None:
    examples = EXAMPLES[:: 8 if style.startswith("black") else 4]
    copies = {path: tmp_path / path.name for path in examples}
    for path, copy in copies.items():
        shutil.copy(path, copy)
    for command in STYLES[style]:
        subprocess.run([sys.executable, "-m", *command, "."], cwd=tmp_path, check=True)
    pairs = [(path.read_bytes(), copy.read_bytes()) for path, copy in copies.items()]
    assert sum(before != after for before, after in pairs) > 2, "it does something"
    for before, after in pairs:
        assert normal_form(before.decode()) == normal_form(after.decode())


SAME = [
    ("x = 'a'\n", 'x = "a"\n'),
    ("x = ('a' 'b')\n", "x = 'ab'\n"),
    ("f(a, b)\n", "f(\n    a,\n    b,\n)\n"),
    ("return_ = (a)\n", "return_ = a\n"),
    ("x = 0XaF + .5 + 1. + 1E+5\n", "x = 0xAF + 0.5 + 1.0 + 1e5\n"),
    ("del (a, b)\n", "del a, b\n"),
    ("class A():\n    pass\n", "class A: pass\n"),
    ("a; b  # c\n", "a\nb  # c\n"),
    ("if x: y  # c\n", "if x:\n  y  # c\n"),
    ("x\n\n\n\ny", "x\ny\n"),
    ("x  \r\ny\r\n", "x\ny\n"),
    ("\ufeffx\n", "x\n"),
    ("#c\nx #d\n", "# c\nx  # d\n"),
    ("x = (  # c\n    1\n)\n", "x = (\n    # c\n    1\n)\n"),
    ("import b, a\n", "import a\n\nimport b\n"),
    ("from x import (\n    b,\n    a as c,\n)\n", "from x import a as c\nfrom x import b\n"),
    (
        "from x import a, b  # noqa: F401\n",
        "from x import a  # noqa: F401\nfrom x import b  # noqa: F401\n",
    ),
    (
        "from x import (\n    a,  # noqa\n    b,\n)\n",
        "from x import a  # noqa\nfrom x import b\n",
    ),
    (
        "import b\n# about c\nimport c\nimport a\n",
        "import a\nimport b\n# about c\nimport c\n",
    ),
    ("# about the file\n\nimport b\nimport a\n", "# about the file\n\nimport a\nimport b\n"),
    (
        'def f():\n    """One.\n\n    Two.  \n      Three.\n    """\n',
        'def f():\n  """\n  One.\n\n  Two.\n    Three."""\n',
    ),
    ("é = 1; b  # c\n", "é = 1\nb  # c\n"),
    ("x = f'{a}'\n", 'x = f"{a}"\n'),
    ("not python (\r\nx  \n", "not python (\nx\n\n"),
    ("x = 1\n", "x = \\\n    1\n"),
]  # fmt: skip

OTHER = [
    ("x = 1\n", "x = 2\n"),
    ("x = 16\n", "x = 0x10\n"),
    ("x = 1000\n", "x = 1_000\n"),
    ("x = 'a'\n", "x = 'a '\n"),
    ("x = '''a\n  b'''\n", "x = '''a\n b'''\n"),
    ("f(a, b)\n", "f((a, b))\n"),
    ("x = (a)\n", "x = (a,)\n"),
    ("x = a - (b - c)\n", "x = a - b - c\n"),
    ("if a:\n    b\nc\n", "if a:\n    b\n    c\n"),
    ("if a:\n  b\nelif c:\n  d\n", "if a:\n  b\nelse:\n  if c:\n    d\n"),
    ("import a\nx\nimport b\n", "import a\nimport b\nx\n"),
    ("from x import a\n", "from .x import a\n"),
    ("import a as b\n", "import a\n"),
    ("from a import b\n", "import a.b\n"),
    ("x\n", "x  # c\n"),
    ("# c\nx\n", "x  # c\n"),
    ("x  # c\ny\n", "x\ny  # c\n"),
    ("# c\nx\ny\n", "x\n# c\ny\n"),
    ("x  # a\n# b\n", "# b\nx  # a\n"),
    ("# type: ignore\nx\n", "# type:ignore[x]\nx\n"),
    ("#    x\ny\n", "# x\ny\n"),
    ("if a:\n    b\n    # c\nd\n", "if a:\n    b\n# c\nd\n"),
    ("f(a, b)  # c\n", "f(a,  # c\n  b)\n"),
    ("f(a,  # c\n  b)\n", "f(a,\n  b  # c\n)\n"),
    ("@a\n# c\n@b\ndef f(): x\n", "@a\n@b\n# c\ndef f(): x\n"),
    ("if a:  # c\n  b\nelse:\n  d\n", "if a:\n  b\nelse:  # c\n  d\n"),
    ("if a:\n  b\n# c\nelse:\n  d\n", "if a:\n  b\nelse:\n  # c\n  d\n"),
    ("import a  # noqa\nimport b\n", "import a\nimport b  # noqa\n"),
    ("import a\n# c\nimport b\n", "import a\nimport b\n# c\n"),
    ("@a\ndef f(): x\n", "@b\ndef f(): x\n"),
    ("try:\n  a\nexcept A:\n  b\n", "try:\n  a\nexcept B:\n  b\n"),
    ("match a:\n  case 1:\n    b\n", "match a:\n  case 2:\n    b\n"),
    ("'''One.\n\n  Two.'''\n", "'''One.\n\nTwo.'''\nx\n"),
    ('def f():\n    """Two words."""\n', 'def f():\n    """Two  words."""\n'),
    ("x = f'{a}'\n", "x = f'{a!r}'\n"),
    ("not python (\nx\n", "not python (\n x\n"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_formatting_is_no_difference(one: str, other: str) -> None:
    assert one != other
    assert normal_form(one) == normal_form(other)


@pytest.mark.parametrize(("one", "other"), OTHER)
def test_an_edit_is_a_difference(one: str, other: str) -> None:
    assert normal_form(one) != normal_form(other)


def changes(text: str) -> Iterator[tuple[str, str]]:
    """The text with one token changed, and with one left out; which one it was."""
    lines = text.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        (row, start), (last, end) = token.start, token.end
        if not token.string.strip() or row != last:
            continue
        line = lines[row - 1]
        middle = start + len(token.string) // 2
        for new in (
            f"{line[:middle]}0{line[middle:]}",
            f"{line[:start]}{line[end:]}",
        ):
            changed = "".join([*lines[: row - 1], new, *lines[row:]])
            yield changed, token.string


def tree(text: str) -> str | None:
    try:
        return ast.dump(ast.parse(text))
    except (SyntaxError, ValueError):
        return None


@pytest.mark.parametrize(
    "name",
    in_every_run(
        ["gelu_tanh/gelu_tanh", "linear_in_out/linear_in_out"],
        ["gelu_tanh/gelu_tanh"],
    ),
)
def test_a_change_of_any_token_is_a_difference(name: str) -> None:
    """But of a comma or a bracket that the syntax can do without."""
    text = (ROOT / f"generated_examples/{name}.py").read_text()
    form, syntax = normal_form(text), tree(text)
    count = 0
    for changed, token in changes(text):
        if normal_form(changed) == form:
            assert token in "(,)" and tree(changed) == syntax, token
        else:
            count += 1
    assert count > 300


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('x = "a" if y else z\n', 'x = "b" if y else z\n'),
        ('x = y if z else "a"\n', 'x = y if z else "b"\n'),
        ('f = lambda x: "a"\n', 'f = lambda x: "b"\n'),
    ],
)
def test_a_change_in_a_value_that_is_called_a_body_is_a_difference(
    one: str, other: str
) -> None:
    assert normal_form(one) != normal_form(other)


def test_the_texts_of_the_statements_are_the_text() -> None:
    sources = [*EXAMPLES, *sorted((ROOT / "scaffold/workspace").glob("*.py"))]
    texts = [path.read_text() for path in sources]
    for text in (
        *texts,
        "",
        "\n",
        "x",
        "\n\n# c",
        "x\n\n\n",
        "x = 1\x0c\ny\n",
        "if x: y; z",
    ):
        statements = cut(text)
        assert statements is not None
        assert "".join(statement.text for statement in statements) == text


def test_an_escape_that_python_warns_of_is_no_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert normal_form("x = '\\d'\n") == normal_form("x = ('\\d')\n")


def test_odd_texts_have_a_form(capfd: pytest.CaptureFixture[str]) -> None:
    for text in (
        "",
        "\0",
        "(" * 5000,
        "x = '\\d'\n",
        "\tx\n",
        "if a:\n\tb\n  c\n",
        "x\\",
    ):
        assert normal_form(text) == normal_form(f"{text}\n") or text.endswith("\\")
    assert capfd.readouterr() == ("", "")
