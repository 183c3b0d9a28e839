"""The cases of the rules, as text files.

In: `cases/af01.txt` and its siblings. Out: whole files of Python, bad and good ones.
A block begins with `--- bad` or `--- good`. It is the body of a Function whose functions are static; if its first line
is `raw` it is a whole file.
"""

import re
from pathlib import Path
from textwrap import indent
from typing import Literal, NamedTuple

from scaffold.lint import RULES
from scaffold.lint.model import UNREAD

CASES = Path(__file__).with_name("cases")
HEAD = """\
from typing import Dict, List, Optional

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable


"""


class Case(NamedTuple):
    """One file, which the rule is to find fault with or not."""

    rule: str
    number: int
    kind: Literal["bad", "good"]
    text: str

    def __str__(self) -> str:
        return f"{self.rule}-{self.kind}-{self.number}"


def cases() -> tuple[Case, ...]:
    """Every case of every rule, its examples first; of AF00, which is no matter of text, there are none."""
    found = []
    for rule in RULES.values():
        if rule.id == UNREAD:
            continue
        found.append(Case(rule.id, 0, "bad", HEAD + rule.bad))
        found.append(Case(rule.id, 0, "good", HEAD + rule.good))
        text = (CASES / f"{rule.id.lower()}.txt").read_text()
        parts = re.split(r"^--- (bad|good)\n", text, flags=re.MULTILINE)[1:]
        for number in range(0, len(parts), 2):
            kind: Literal["bad", "good"] = "bad" if parts[number] == "bad" else "good"
            case = Case(rule.id, number // 2 + 1, kind, _file(parts[number + 1]))
            found.append(case)
    return tuple(found)


def _file(block: str) -> str:
    if block.startswith("raw\n"):
        return block.removeprefix("raw\n")
    static = re.sub(r"^def ", "@staticmethod\ndef ", block, flags=re.MULTILINE)
    return f"{HEAD}class Case(Function):\n{indent(static, '    ')}"
