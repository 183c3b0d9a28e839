"""docs/lint.md is true: its table of rules is that of the rules."""

import re
from pathlib import Path

from scaffold.lint import RULES

TEXT = (Path(__file__).parents[2] / "docs" / "lint.md").read_text(encoding="utf-8")


def test_every_rule_is_in_the_table() -> None:
    rows = re.findall(
        r"^\| (AF\d\d) \| (.+?) \| (.+?) \| (.*?) \|$", TEXT, re.MULTILINE
    )
    assert rows == [
        (
            rule.id,
            rule.title,
            ("error" if rule.level == "error" else "advice")
            + ("" if rule.default else ", off"),
            "yes" if rule.fixes else "",
        )
        for rule in RULES.values()
    ]
