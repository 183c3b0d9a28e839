"""How a project calls the files and classes of its ops.

In: the table `names` of [tool.scaffold]. Out: a `Patterns`, in which `{op}` is rms_norm and `{Op}` is RMSNorm.
Invariant: a pattern that passes here gives every op a name of its own, which Python or pytest can find.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from scaffold.errors import did_you_mean
from scaffold.spec.kinds import ANY_TABLE
from scaffold.spec.problems import KeyPath, Problems


class Patterns(NamedTuple):
    """The names of an op's files and classes."""

    file: str = "{op}.py"
    test: str = "test_{op}.py"  # may begin with directories
    function: str = "{Op}Function"
    module: str = "{Op}"

    def op_file(self, op: str) -> str:
        """The op's file, below the source directory."""
        return self.file.replace("{op}", op)

    def test_file(self, op: str) -> str:
        """The op's test file, below the directory of tests."""
        return self.test.replace("{op}", op)

    def function_class(self, klass: str) -> str:
        """The autograd.Function."""
        return self.function.replace("{Op}", klass)

    def module_class(self, klass: str) -> str:
        """The nn.Module."""
        return self.module.replace("{Op}", klass)


DEFAULT = Patterns()
END = r"$(?!\n)"  # in Python, `$` matches before a last line end too
_WORD = "[A-Za-z_][A-Za-z0-9_]*"
_DIRECTORIES = r"(?:(?:[A-Za-z0-9_-]|\{op\})+/)*"
_FILE = rf"(?!test_)(?:{_WORD})?\{{op\}}(?!\w*_test\.py$)[A-Za-z0-9_]*\.py"
_TEST = r"(?:test_[A-Za-z0-9_]*\{op\}[A-Za-z0-9_]*|[A-Za-z0-9_]*\{op\}[A-Za-z0-9_]*_test)\.py"
_CLASS = rf"(?:{_WORD})?\{{Op\}}[A-Za-z0-9_]*"
EXPRESSIONS = {
    "file": rf"^{_FILE}{END}",  # not what pytest takes for a test
    "test": rf"^{_DIRECTORIES}{_TEST}{END}",  # nothing else
    "function": rf"^{_CLASS}{END}",
    "module": rf"^{_CLASS}{END}",
}
EXAMPLES = {
    "file": "'{op}.py' or '{op}_op.py'",
    "test": "'test_{op}.py', '{op}_test.py' or '{op}/test_{op}.py'",
    "function": "'{Op}Function'",
    "module": "'{Op}' or '{Op}Module'",
}

NAMES = ANY_TABLE._replace(
    schema={
        "type": "object",
        "additionalProperties": False,
        "properties": {
            key: {"type": "string", "pattern": pattern}
            for key, pattern in EXPRESSIONS.items()
        },
    }
)


def read_patterns(
    table: Mapping[str, Any], path: KeyPath, problems: Problems
) -> Patterns:
    """The patterns of a table; those that it leaves out are the usual ones."""
    found = {}
    for key, value in table.items():
        place = (*path, key)
        if key not in EXPRESSIONS:
            hint = (
                did_you_mean(key, EXPRESSIONS) or f"the keys: {', '.join(EXPRESSIONS)}"
            )
            problems.at_key(place, f"unknown key '{key}' in '{path[-1]}'", hint)
        elif not isinstance(value, str) or not re.search(EXPRESSIONS[key], value):
            message = f"'{key}' must be a pattern of names"
            problems.at(place, message, f"such as {EXAMPLES[key]}")
        else:
            found[key] = value
    patterns = DEFAULT._replace(**found)
    if patterns.function == patterns.module:
        key = "function" if "function" in found else "module"
        message = "the Function and the Module would have the same name"
        problems.at(
            (*path, key), message, f"such as {EXAMPLES['function']} and '{{Op}}'"
        )
    return patterns
