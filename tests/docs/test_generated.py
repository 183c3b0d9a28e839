"""Generated parts of the pages say all that the code has, and no page names a part that there is not."""

import os
import re
import tomllib

import pytest

from docs import generated
from scaffold.cli.help import COMMANDS
from scaffold.derive.rules.table import BUILDERS
from scaffold.lint import RULES
from scaffold.spec import config_keys, keys
from tests.cli.running import scaffold
from tests.docs.pages import PAGES, ROOT, read_table


def test_pages_name_every_part_and_no_other() -> None:
    texts = [path.read_text(encoding="utf-8") for path in PAGES]
    named = [mark["name"] for t in texts for mark in generated.MARK.finditer(t)]
    assert sorted(named) == sorted(generated.PARTS)


@pytest.mark.parametrize(
    ("part", "names"),
    [
        ("commands", [f"## scaffold {name}" for name in COMMANDS]),
        ("commands", ["| `--save-policy` |", "## scaffold rules show"]),
        ("op-keys", [f"| `{name}` |" for name in keys.KEYS]),
        ("configuration-keys", [f"| `{name}` |" for name in config_keys.KEYS]),
        ("rules", ["| `tanh` | `torch.tanh(x)` |", "## contraction"]),
        ("words", [f"| `{name}(" for name in BUILDERS]),
        ("lint-rules", [f"## {rule}: " for rule in RULES]),
        ("lint-table", [f"| {rule} |" for rule in RULES]),
        (
            "lint-table",
            [
                "| AF01 | an output is kept on ctx | error | yes |",
                "| advice, off | yes |",
            ],
        ),
    ],
)
def test_a_part_says_all_that_the_code_has(part: str, names: list[str]) -> None:
    text = generated.PARTS[part]()
    assert not [name for name in names if name not in text]


def test_a_cell_keeps_its_column() -> None:
    """A `|` of a formula would begin another one."""
    rows = read_table(generated.PARTS["rules"](), "rule")
    assert {len(row) for row in rows} == {3}


def test_the_gallery_shows_what_each_op_keeps() -> None:
    path = ROOT / "docs" / "gallery.toml"
    ops = tomllib.loads(path.read_text(encoding="utf-8"))["ops"]
    shown = generated.PARTS["gallery"]()
    assert shown.count("\nplain autograd") == len(ops)
    assert shown.count("Function(Function):") == len(ops)


def test_what_a_page_shows_is_what_the_command_prints() -> None:
    words = ("derive", "rotary", "--spec", "docs/gallery.toml")
    assert scaffold(ROOT, *words).out in generated.PARTS["gallery"]()


def test_the_skill_is_the_page_for_assistants() -> None:
    """With SCAFFOLD_REGENERATE it is written."""
    path = ROOT / "skills" / "scaffold" / "SKILL.md"
    if os.environ.get("SCAFFOLD_REGENERATE"):
        path.write_text(generated.skill(), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == generated.skill()
    for link in re.findall(r"\]\(([^)#]+)", generated.skill()):
        assert (path.parent / link).exists(), link


def test_the_index_for_assistants_names_every_page() -> None:
    text = generated.llms()
    pages = [path for path in PAGES if path.parent.name == "docs"]
    assert len(pages) > 20
    for path in pages:
        if path.stem != "index":
            assert f"]({path.stem}.html): " in text
    sentences = [line.partition(".html): ")[2] for line in text.splitlines()]
    assert not [each for each in sentences if each.startswith(("#", "|", "`--"))]
