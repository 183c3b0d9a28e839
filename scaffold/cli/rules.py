"""`scaffold rules`: show the table of differentiation rules; check a team's own table.

A *rule* is a section of a table in TOML: the spellings of a primitive and its gradient as a formula; a team's tables lie on top of
ours, and are *in effect* if the configuration lists them.

In: a rule's name, or files. Out: text on stdout, or one JSON object. Invariant: exit 0 of `check` means that every formula agrees with
autograd on every sample, or with differences if autograd has no gradient; no file is changed.
"""

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from scaffold.cli.options import FORMAT, PYTHON, check_format
from scaffold.cli.output import TERMINAL, say_error, show_object
from scaffold.errors import Location, ScaffoldError, did_you_mean, why_unread
from scaffold.files import read_text

if TYPE_CHECKING:
    from scaffold.derive.rules.table import Rule, Table
    from scaffold.spec import RuleFile
    from scaffold.verify.rule_checks import Checked

WRONG = 1  # exit code: some formula is not a gradient

rules = typer.Typer(
    help="Show the rules of differentiation; check a table of yours.",
    rich_markup_mode=None,
    no_args_is_help=True,
)
NAME = Annotated[str, typer.Argument(metavar="NAME", help="A rule: softplus.")]
FILE = Annotated[
    str | None,
    typer.Argument(
        metavar="[FILE]", help="A table (default: those of the configuration)."
    ),
]


@rules.command("list")
def list_rules(format_: FORMAT = "text") -> None:
    """List the primitives that have a rule: name, category, how it is spelled."""
    table = _table()
    check_format(format_)
    named = [table.rule(name) for name in dict.fromkeys(table.names())]
    # Such a rule serves only formulas of others: no user would look for it.
    found = [rule for rule in named if rule.category != "backward"]
    if format_ == "json":
        show_object({"rules": [_as_data(table, rule) for rule in found]})
        return
    width = max(len(rule.name) for rule in found)
    for rule in found:
        call = _heads(table, rule.name)[0]
        typer.echo(f"{rule.name:{width}}  {rule.category:12}  {call}")


@rules.command("show")
def show_rule(name: NAME, format_: FORMAT = "text") -> None:
    """Show a rule as a table has it: spellings, formulas, domain, samples."""
    table = _table()
    check_format(format_)
    if name not in table:
        hint = did_you_mean(name, table.names()) or "see: scaffold rules list"
        raise ScaffoldError(f"no rule '{name}'", Location("NAME"), hint)
    data = _as_data(table, table.rule(name))
    if format_ == "json":
        show_object({"rules": [data]})
        return
    typer.echo(f"[{name}]")
    for key, value in data.items():
        # What a rule does not state is not shown.
        if key != "name" and value not in ((), {}, [], None):
            _show_key(key, value)


@rules.command("check")
def check(file: FILE = None, python: PYTHON = None, format_: FORMAT = "text") -> None:
    """Check a table: its form, and each formula against PyTorch's autograd on each sample."""
    from scaffold.cli.output import show_notes
    from scaffold.project.interpreter import need_interpreter
    from scaffold.verify.rule_checks import check_rules

    check_format(format_)
    before, files = _files(file)
    interpreter = need_interpreter(python, "check")
    if format_ != "json":
        show_notes(interpreter.note("checked"))
    wrong = False
    results = []
    for position, one in enumerate(files):
        below = (*before, *files[:position], one)
        # For its errors alone: they are raised here, before a process is started.
        _table_with(below)
        with TERMINAL.proving([one.path], "checking"):
            found = check_rules(below, python=interpreter.path)
        wrong |= bool(found.problems or found.died)
        results.append({"file": one.path, **_verdict(found)})
        if format_ != "json":
            _show_verdict(one, found)
    if format_ == "json":
        show_object({"python": interpreter.path, "files": results})
    if wrong:
        sys.exit(WRONG)


def _configured() -> "tuple[RuleFile, ...]":
    """Return the team's tables of rules, in the configuration's order."""
    from scaffold.project.configuration import configuration_here

    return configuration_here().rules


def _table() -> "Table":
    """Return the table of rules in effect: ours, with the team's on top."""
    return _table_with(_configured())


def _table_with(files: "tuple[RuleFile, ...]") -> "Table":
    """Return our table of rules with these files on top, each over its predecessors."""
    from scaffold.derive.rules.team_tables import table_with

    return table_with(files)


def _files(file: str | None) -> "tuple[tuple[RuleFile, ...], tuple[RuleFile, ...]]":
    """Return the tables below the checked ones, whose rules these may use, and the tables to check.

    A named file is checked over the configured tables listed before it; without one all configured tables are checked. Raise a
    ScaffoldError if there is none, or if it cannot be read.
    """
    from scaffold.spec import RuleFile

    configured = _configured()
    if file is None:
        if not configured:
            message = "there is no table to check"
            hint = "name a file, or list it in [tool.scaffold]: rules = ['rules.toml']"
            raise ScaffoldError(message, Location("FILE"), hint)
        return (), configured
    try:
        text = read_text(file, "utf-8-sig")
    except (OSError, ValueError) as error:
        message = f"cannot read '{file}': {why_unread(error)}"
        hint = "name a TOML file of rules, as in: scaffold rules check rules.toml"
        raise ScaffoldError(message, Location("FILE"), hint) from None
    listed = [os.path.normpath(one.path) for one in configured]
    here = os.path.normpath(file)
    # A file that is not listed lies on top of all others.
    position = listed.index(here) if here in listed else len(listed)
    return configured[:position], (RuleFile(file, text),)


def _heads(table: "Table", name: str) -> tuple[str, ...]:
    """Return the spellings of a rule, as its section has them, the one to print first: `F.relu(x)`, `x.relu()`.

    A rule that the table does not have itself is one of the table below it (`base`).
    """
    if name in table.heads or table.base is None:
        return table.heads[name]
    return _heads(table.base, name)


def _as_data(table: "Table", rule: "Rule") -> dict[str, object]:
    """Return a rule as a JSON object, with the keys of its section."""
    call, *also = _heads(table, rule.name)
    gradients = {
        name: (
            " ".join(texts[0].split())
            if len(texts) == 1
            else [" ".join(text.split()) for text in texts]
        )
        for name, texts in rule.formulas.items()
    }
    return {
        "name": rule.name,
        "call": call,
        "also": also,
        "category": rule.category,
        "when": rule.when,
        "let": {name: " ".join(text.split()) for name, text in rule.let.items()},
        "grad": gradients,
        "code": rule.code,
        "value": rule.value,
        "nondiff": list(rule.facts.nondiff),
        # "result" is the default name of the only one.
        "results": [] if rule.results == ("result",) else list(rule.results),
        "domain": dict(rule.domain),
        "samples": list(rule.samples),
        "linear": rule.facts.linear or None,
        "undifferentiated": rule.undifferentiated or None,
        "complex": None if rule.facts.complex is True else rule.facts.complex,
    }


def _show_key(key: str, value: object) -> None:
    """Print a key as a line of TOML; a table as one line for each of its keys."""
    if isinstance(value, dict):
        for name, item in value.items():
            typer.echo(f"{key}.{name} = {json.dumps(item, ensure_ascii=False)}")
    else:
        typer.echo(f"{key} = {json.dumps(value, ensure_ascii=False)}")


def _verdict(found: "Checked") -> dict[str, object]:
    """Return the result of checking a file as a JSON object."""
    problems = [item._asdict() for item in found.problems]
    return {
        "runs": found.runs,
        "problems": problems,
        "by_differences": list(found.opaque),
        "died": found.died or None,
    }


def _show_verdict(file: "RuleFile", found: "Checked") -> None:
    """Print each failed check of a table of rules, as an error at the formula's place, and one line on all checks."""
    from scaffold.spec.toml import Places

    places = Places(file.text, file.path)
    for item in found.problems:
        argument = item.formula.partition(" = ")[0].removeprefix("grad.")
        path = (item.rule, "grad", argument) if item.formula else (item.rule,)
        place = places(path, key=not item.formula)
        about = f"{item.formula} on {item.sample}: " if item.formula else ""
        message = f"rule '{item.rule}': {about}{item.words}"
        say_error(ScaffoldError(message, place))
    if found.died:
        say_error(ScaffoldError(f"{file.path}: {found.died}"))
        return
    failing = f"{len(found.problems)} of {found.runs} checks fail"
    right = f"all {found.runs} checks agree with autograd"
    if found.opaque:
        how = f"with differences in float64, as autograd has no gradient of {', '.join(found.opaque)}"
        others = found.by_differences < found.runs
        right = f"all {found.runs} checks agree{f', {found.by_differences} of them' * others} {how}"
    typer.echo(f"{file.path}: {failing if found.problems else right}")
