"""All rules, one file each, in the order of their ids."""

from pathlib import Path

from scaffold.lint import registry
from scaffold.lint.registry import RULES


def test_every_file_of_a_rule_is_listed_under_its_id() -> None:
    rules = Path(registry.__file__).with_name("rules")
    files = sorted(path.stem.upper() for path in rules.glob("af*.py"))
    assert files == list(RULES)
    assert [rule.id for rule in RULES.values()] == list(RULES)


def test_every_rule_has_something_that_looks() -> None:
    unchecked = [
        rule.id for rule in RULES.values() if rule.each is None and rule.whole is None
    ]
    assert unchecked == ["AF00"]  # files that no rule can look at
