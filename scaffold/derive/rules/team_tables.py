"""Choose the tables of rules for an op: the team's own over the built-in one.

In: an `OpSpec`, or a team's files. Out: a `Table`. Invariant: a team's rule overrides the built-in one of that name or spelling; an
invalid table is an error with its places, never left out.
"""

from functools import lru_cache

from scaffold.derive.rules.table import Table, built_in
from scaffold.spec import OpSpec, RuleFile


def table_of(spec: OpSpec) -> Table:
    """Return the table of rules for an op, with those of its team."""
    return table_with(spec.rules)


@lru_cache(maxsize=8)
def table_with(files: tuple[RuleFile, ...]) -> Table:
    """Return the built-in table with a team's own tables over it; a later file overrides an earlier one."""
    table = built_in()
    if files:
        from scaffold.derive.rules.table_checks import checked_table
    for file in files:
        table = checked_table(file.text, file.path, table)
    return table


def ruled_imports(spec: OpSpec) -> frozenset[str]:
    """Return the imported functions for which a team's table has a rule, by the name the forward calls them.

    The rule must be `from` the module that the function is imported from, and the function must not be renamed.
    """
    if not (spec.rules and spec.imports):
        return frozenset()
    table = table_of(spec)
    return frozenset(
        item.binding
        for item in spec.imports
        for found in table.find("function", item.binding)
        if item.name == item.binding and found.rule.module == item.module
    )
