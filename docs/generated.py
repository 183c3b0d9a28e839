"""Parts of the pages that are made from the code when the site is built, so that nobody has to keep them.

In: the name of a part, as a page has it in a line `<!-- generated: NAME -->`. Out: Markdown for that place. Invariant: what is said
of a command, a key or a rule is what the tool itself says of it; torch is not imported.
"""

import io
import json
import re
import sys
import tomllib
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import chdir, redirect_stdout, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import typer

from scaffold.cli import main
from scaffold.cli.app import application
from scaffold.cli.help import PANELS
from scaffold.derive.rules.table import BUILDERS
from scaffold.lint import RULES
from scaffold.spec import config_keys, keys
from scaffold.spec.config_keys import Key as ConfigurationKey
from scaffold.spec.keys import Key as OpKey

HERE = Path(__file__).parent
EXAMPLE = "Example: "  # begins a paragraph of help that is a command
CODE = re.compile(r"((?<![\w'-])--[a-z][a-z-]*|(?<!\w)'[^']+'(?!\w))")
GATE = "x * torch.sigmoid(y)"
MARK = re.compile(r"^<!-- generated: (?P<name>[\w-]+) -->$", re.MULTILINE)


def filled(text: str) -> str:
    """The text of a page with its generated parts in place."""
    return MARK.sub(lambda found: PARTS[found["name"]](), text)


def install() -> str:
    """What the README says of installing, and of when to use something else."""
    text = (HERE.parent / "README.md").read_text(encoding="utf-8")
    install = text[text.index("## Install") : text.index("## Gallery")]
    use = text[text.index("Use it when") : text.index("## One op")]
    part = f"{install}## Use it when, and when not\n\n{use}"
    return part.replace("](docs/", "](")  # as a page beside those sees them


def commands() -> str:
    """Every command with its arguments and options."""
    group: Any = typer.main.get_command(application(None))
    return "\n".join(_commands(group, "scaffold"))


def _commands(group: Any, above: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{above} {name}")
        else:
            yield _command(command, f"{above} {name}")


def _command(command: Any, name: str) -> str:
    paragraphs = (command.help or "").strip().split("\n\n")
    prose = [_prose(one) for one in paragraphs if not one.startswith(EXAMPLE)]
    typed = [one.removeprefix(EXAMPLE) for one in paragraphs if one.startswith(EXAMPLE)]
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    usage = " ".join([name, "[OPTIONS]", *map(_usage, arguments)])
    shown = [f"## {name}", *prose, f"```text\n{usage}\n```"]
    if typed:
        shown.append("```sh\n" + "\n".join(typed) + "\n```")
    for title, members in _panels(command):
        rows = [(_spelled(one), _prose(one.help or "")) for one in members]
        shown.append(_table((title, "meaning"), rows))
    return "\n\n".join(shown) + "\n"


def _panels(command: Any) -> Iterator[tuple[str, list[Any]]]:
    """The arguments, then the options, in the groups that help shows them in."""
    left = {one.opts[0]: one for one in command.params if not one.hidden}
    arguments = [one for one in left.values() if one.param_type_name == "argument"]
    if arguments:
        yield "argument", arguments
    left = {key: one for key, one in left.items() if one not in arguments}
    for panel in PANELS.get(command.name, ()):
        yield panel.title, [left.pop(key) for key in panel.options if key in left]
    if left:
        yield "option", list(left.values())


def _prose(text: str) -> str:
    """Words of help as Markdown, with options and what stands in quotes as code."""
    parts = CODE.split(" ".join(text.split()))
    return "".join(
        f"`{part.strip(chr(39))}`" if CODE.fullmatch(part) else _escaped(part)
        for part in parts
    )


def _usage(argument: Any) -> str:
    shown = str(argument.metavar or argument.name.strip("_").upper())
    return shown if argument.required or shown.startswith("[") else f"[{shown}]"


def _spelled(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_usage(parameter)}`"
    names = ", ".join(f"`{one}`" for one in parameter.opts)
    others = ", ".join(f"`{one}`" for one in parameter.secondary_opts)
    return f"{names}, {others}" if others else names


def op_keys() -> str:
    """Every key of an op's table."""
    rows = [
        (f"`{name}`", _kind(key), _prose(key.help)) for name, key in keys.KEYS.items()
    ]
    return _table(("key", "value", "meaning"), rows)


def configuration_keys() -> str:
    """Every key of `[tool.scaffold]`."""
    rows = [
        (f"`{name}`", _kind(key), _default(key.default), _prose(key.help))
        for name, key in config_keys.KEYS.items()
    ]
    return _table(("key", "value", "default", "meaning"), rows)


def _kind(key: OpKey | ConfigurationKey) -> str:
    return ", ".join(f"`{one}`" for one in key.kind.choices) or key.kind.what


def _default(value: object) -> str:
    return "" if value in (None, {}, []) else f"`{json.dumps(value)}`"


def rules() -> str:
    """Every rule of differentiation, by category, with its formulas."""
    found = json.loads(_said("rules", "list", "--format", "json"))["rules"]
    categories: dict[str, list[Mapping[str, Any]]] = {}
    for rule in found:
        categories.setdefault(rule["category"], []).append(rule)
    return "\n".join(
        f"## {category}\n\n"
        + _table(
            ("rule", "call", "gradients"),
            [(f"`{r['name']}`", f"`{r['call']}`", _gradients(r)) for r in members],
        )
        for category, members in categories.items()
    )


def words() -> str:
    """Every word of formulas that is no primitive."""
    rows = (
        (f"`{name}({', '.join(word.parameters)})`", _escaped(word.meaning))
        for name, word in BUILDERS.items()
    )
    return _table(("word", "meaning"), rows)


def _gradients(rule: Mapping[str, Any]) -> str:
    """The formula of each argument, or where else the gradient comes from."""
    shown = [f"`{name} = {text}`" for name, text in rule["let"].items()]
    shown += [
        f"`{name}`: `{formula if isinstance(formula, str) else formula[0]}`"
        for name, formula in rule["grad"].items()
    ]
    if rule["value"]:
        shown.append(f"those of `{' '.join(rule['value'].split())}`")
    if rule["code"]:
        shown.append("computed by the engine")
    return "<br>".join(shown) or "zero everywhere"


def lint_table() -> str:
    """Every lint rule: its title, its level, and whether `--fix` may repair what it finds."""
    rows = [
        (
            rule.id,
            _escaped(rule.title),
            rule.level if rule.default else f"{rule.level}, off",
            "yes" if rule.fixes else "",
        )
        for rule in RULES.values()
    ]
    return _table(("rule", "finds", "level", "fixed"), rows)


def lint_rules() -> str:
    """Every lint rule: why it matters, a bad and a good example."""
    return "\n".join(
        f"## {rule.id}: {rule.title}\n\n{_escaped(rule.why)}\n\n"
        f"Bad:\n\n```python\n{rule.bad}```\n\nGood:\n\n```python\n{rule.good}```\n"
        for rule in RULES.values()
    )


def examples() -> str:
    """Every command of `scaffold examples`, with the files that it needs."""
    found = json.loads(_said("examples", "--format", "json"))["examples"]
    return "\n".join(
        "\n\n".join(
            (
                f"## {one['name']}",
                f"{_escaped(one['about'][:1].upper() + one['about'][1:])}.",
                *(
                    f"`{name}`:\n\n```python\n{text.rstrip()}\n```"
                    for name, text in one["files"].items()
                ),
                f"```sh\n{one['command']}\n```\n",
            )
        )
        for one in found
    )


def gallery() -> str:
    """Each op of gallery.toml: its forward, its Function, and what it keeps for the backward."""
    ops = tomllib.loads((HERE / "gallery.toml").read_text(encoding="utf-8"))["ops"]
    shown = {name: _derived(name) for name in ops}
    sums = [
        (f"[{name}](#{name.replace('_', '-')})", *_bytes(one["steps"]))
        for name, one in shown.items()
    ]
    heads = ("op", "bytes kept", "kept by plain autograd")
    exhibits = (_exhibit(name, ops[name], one) for name, one in shown.items())
    return "\n".join((_table(heads, sums), "", *exhibits))


def _derived(name: str) -> dict[str, str]:
    """The Function of an op of the gallery, and how it came about."""
    words = ("derive", name, "--spec", "gallery.toml", "--explain")
    found: dict[str, str] = json.loads(_said(*words, "--format", "json"))
    return found


def _bytes(steps: str) -> tuple[str, ...]:
    """What is kept, and what plain autograd keeps, as the explanation has it."""
    return tuple(
        f"`{re.search(rf'^{who} +(.+)$', steps, re.MULTILINE)[1]}`"  # type: ignore[index]
        for who in ("here", "plain autograd")
    )


def _exhibit(name: str, op: Mapping[str, Any], shown: Mapping[str, str]) -> str:
    steps = shown["steps"]
    kept = steps[steps.index("# kept for the backward") :]
    forward = op["forward"].strip("\n")
    return (
        f"## {name}\n\n{op['doc']}\n\n"
        f"Inputs and forward:\n\n```text\n{op['inputs'].strip()}\n```\n\n"
        f"```python\n{forward}\n```\n\n"
        f"The Function:\n\n```python\n{shown['function']}```\n\n"
        f"What it keeps:\n\n```text\n{kept.rstrip()}\n```\n\n"
        + _picture(name, "--spec", "gallery.toml")
    )


def gate() -> str:
    """The picture of the example on the page of the derivation."""
    return _picture("gate", "--inputs", "x[N, D], y[N, D]", "--forward", GATE)


def _picture(name: str, *words: str) -> str:
    """What `scaffold show` draws; as a file of its own it cannot change the look of the page."""
    drawn = _said("show", name, *words, "--stdout")
    data = b64encode(drawn.encode()).decode()
    shown = f'<img alt="{name}: forward, what is saved, backward" src="data:image/svg+xml;base64,{data}">'
    return f'<div class="picture">{shown}</div>\n'


def _said(*words: str) -> str:
    """What a command prints, run where the pages lie."""
    data = io.BytesIO()
    screen = io.TextIOWrapper(data, "utf-8", write_through=True)
    typed = patch.object(sys, "argv", ["scaffold", *words])
    with redirect_stdout(screen), chdir(HERE), typed, suppress(SystemExit):
        main()
    return data.getvalue().decode()


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |"
        for line in lines
    )


def _escaped(text: str) -> str:
    """Prose of help, whose words Markdown is not to read as its own marks."""
    return re.sub(r"([\\*_<>\[\]#`])", r"\\\1", text)


# --- For coding assistants: a skill, and the index of the site.


SKILL = """\
---
name: scaffold
description: Write, prove, judge and mend custom PyTorch operators (torch.autograd.Function) with the scaffold command.
---

"""
COMMENTS = re.compile(r"^<!--.*?-->\n+", re.MULTILINE | re.DOTALL)


def skill() -> str:
    """Return docs/assistants.md as a skill, without the table of objects."""
    text = (HERE / "assistants.md").read_text(encoding="utf-8")
    text = COMMENTS.sub("", text[: text.index("## The objects")])
    return SKILL + text.replace("](", "](../../docs/").rstrip() + "\n"


def llms() -> str:
    """Return the index of the site as llms.txt: each page with its first sentence."""
    lines = ["# scaffold", "", f"> {_first_sentence(HERE / 'index.md')}", ""]
    pages = sorted(HERE.glob("*.md"), key=lambda path: path.stem != "assistants")
    for path in pages:
        if path.stem != "index":
            title = path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")
            lines.append(f"- [{title}]({path.stem}.html): {_first_sentence(path)}")
    return "\n".join(lines) + "\n"


def _first_sentence(page: Path) -> str:
    """Return the sentence below the title of a page, links as words."""
    text = COMMENTS.sub("", page.read_text(encoding="utf-8"))
    paragraph = text.split("\n\n")[1].replace("\n", " ")
    sentence = re.split(r"(?<=[.:?])\s", paragraph)[0]
    return re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", sentence)


PARTS: dict[str, Callable[[], str]] = {
    "install": install,
    "commands": commands,
    "op-keys": op_keys,
    "configuration-keys": configuration_keys,
    "rules": rules,
    "words": words,
    "lint-rules": lint_rules,
    "lint-table": lint_table,
    "examples": examples,
    "gallery": gallery,
    "gate": gate,
}
