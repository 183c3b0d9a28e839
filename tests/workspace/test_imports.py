"""Imports are merged as a set of names, in the lines of the file."""

import subprocess
import sys

import pytest
from hypothesis import strategies as st

from scaffold.workspace.merge import Merged, merge
from scaffold.workspace.statements import cut
from tests.properties.budgets import searched

BASE = "from typing import Any\n\nimport torch\nfrom torch import Tensor\n\nx = 1\n"


def changed(*edits: tuple[str, str]) -> str:
    text = BASE
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return text


ANY, TENSOR = "from typing import Any\n", "from torch import Tensor\n"
CASES = {
    "both add to one statement": (
        [(ANY, "from typing import Any, Final\n")],
        [(ANY, "from typing import Any, ClassVar\n")],
        [(ANY, "from typing import Any, ClassVar, Final\n")],
    ),
    "a module beside its neighbour": (
        [(ANY, f"import os\n{ANY}")],
        [(ANY, f"import copy\n{ANY}")],
        [(ANY, f"import os\nimport copy\n{ANY}")],
    ),
    "a module after its neighbour": (
        [(ANY, f"import os\n{ANY}")],
        [(TENSOR, f"{TENSOR}from torch.autograd import Function\n")],
        [
            (ANY, f"import os\n{ANY}"),
            (TENSOR, f"{TENSOR}from torch.autograd import Function\n"),
        ],
    ),
    "a section of its own": (
        [(ANY, f"import os\n{ANY}")],
        [(TENSOR, f"{TENSOR}\nfrom mine import f\n")],
        [(ANY, f"import os\n{ANY}"), (TENSOR, f"{TENSOR}\nfrom mine import f\n")],
    ),
    "a section of its own before all": (
        [(TENSOR, "from torch import Tensor, nn\n")],
        [(ANY, f"from __future__ import annotations\n\n{ANY}")],
        [
            (TENSOR, "from torch import Tensor, nn\n"),
            (ANY, f"from __future__ import annotations\n\n{ANY}"),
        ],
    ),
    "one goes and one comes": (
        [(ANY, f"import os\n{ANY}")],
        [(ANY + "\n", "")],
        [(ANY, "import os\n")],
    ),
    "the first of a section goes": (
        [(ANY, f"import os\n{ANY}")],
        [("import torch\n", "")],
        [(ANY, f"import os\n{ANY}"), ("import torch\n", "")],
    ),
    "what the file dropped stays away": (
        [(ANY + "\n", "")],
        [(TENSOR, "from torch import Tensor, nn\n")],
        [(ANY + "\n", ""), (TENSOR, "from torch import Tensor, nn\n")],
    ),
    "a comment stays where it is": (
        [(TENSOR, f"# tensors\n{TENSOR[:-1]}  # noqa\n")],
        [(TENSOR, "from torch import Tensor, nn\n")],
        [(TENSOR, f"# tensors\n{TENSOR[:-1]}  # noqa\nfrom torch import nn\n")],
    ),
    "one name a line": (
        [(TENSOR, f"{TENSOR}from torch import nn\n")],
        [(TENSOR, "from torch import Tensor, float32\n")],
        [(TENSOR, f"{TENSOR}from torch import float32\nfrom torch import nn\n")],
    ),
    "another name": (
        [(ANY, f"import os\n{ANY}")],
        [(TENSOR, "from torch import Tensor as T\n")],
        [(ANY, f"import os\n{ANY}"), (TENSOR, "from torch import Tensor as T\n")],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_imports_of_both_sides_are_kept(case: str) -> None:
    mine, new, both = (changed(*edits) for edits in CASES[case])
    assert merge(BASE, mine, new) == Merged(both, 0)


def test_a_long_statement_has_a_name_a_line() -> None:
    names = ", ".join(f"a_rather_long_name_{number}" for number in range(3))
    mine = changed((ANY, "from typing import Any, Final\n"))
    new = changed((ANY, f"from typing import Any, {names}\n"))
    text = merge(BASE, mine, new).text
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "-"]
    done = subprocess.run(
        command, input=text, stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout == text
    assert text.startswith("from typing import (\n    Any,\n    Final,\n")


@pytest.mark.parametrize(
    ("mine", "new"),
    [
        # two things of one name
        (
            [(TENSOR, f"{TENSOR}from jax import nn\n")],
            [(TENSOR, "from torch import Tensor, nn\n")],
        ),
        # the generator's comment
        ([(TENSOR, "from torch import nn\n")], [(TENSOR, f"{TENSOR[:-1]}  # noqa\n")]),
        # a comment on what goes
        (
            [(ANY, f"import os\n{ANY[:-1]}  # mine\n")],
            [(ANY, "from typing import Final\n")],
        ),
    ],
)
def test_what_cannot_be_told_is_compared_line_by_line(
    mine: list[tuple[str, str]], new: list[tuple[str, str]]
) -> None:
    assert merge(BASE, changed(*mine), changed(*new)).conflicts == 1


NAMES = st.sets(
    st.sampled_from(
        [f"from {module} import {name}{module}" for module in "ab" for name in "XyZ"]
        + ["import c", "import d.e", "from . import f", "from a import Xa as G"]
    )
)


def spelled(names: set[str], single: bool) -> str:
    """Imports as a file has them: one a line, or the names of a module together."""
    if single:
        return "".join(f"{name}\n" for name in sorted(names))
    modules: dict[str, list[str]] = {}
    for name in sorted(names):
        module, _, imported = name.rpartition("import ")
        modules.setdefault(module or imported, []).append(imported)
    return "".join(
        (
            f"{module}import {', '.join(names)}\n"
            if " " in module
            else f"import {module}\n"
        )
        for module, names in modules.items()
    )


@searched(75, NAMES, NAMES, NAMES, st.booleans())
def test_every_name_is_imported_that_should_be(
    base: set[str], mine: set[str], new: set[str], single: bool
) -> None:
    wanted = (mine | (new - base)) - (base - new)
    if not (base and mine and new and wanted):
        return  # a run that is not there in one text is no run to merge
    texts = (spelled(base, False), spelled(mine, single), spelled(new, False))
    merged = merge(*(f'"""Text."""\n\n{text}\nx = 1\n' for text in texts))
    statements = cut(merged.text)
    assert merged.conflicts == 0 and statements is not None
    assert {one.said for part in statements for one in part.imports} == wanted


def test_a_comment_above_the_neighbour_of_a_new_section_stays() -> None:
    base = "import torch\n\nx = 1\n"
    mine = f"import zlib\n# about torch\n{base}"
    new = f"import os\n\n{base}"
    expected = f"import zlib\nimport os\n\n# about torch\n{base}"
    assert merge(base, mine, new) == Merged(expected, 0)
