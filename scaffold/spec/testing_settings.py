"""The table `[tool.scaffold.testing]`: settings shared by the tests of a project.

`render` writes generated tests by them: the devices, dtypes and further checks of each op's test. In: the table. Out: a
`Testing`. Invariant: an unknown key or a value of the wrong kind is a problem at its place.
"""

import os
import re
from pathlib import Path
from typing import NamedTuple

from scaffold.errors import did_you_mean
from scaffold.spec.config_values import Stated
from scaffold.spec.names import INSTALLED

FILE = "op_testing.py"
DTYPES = ("float32", "bfloat16", "float16")
CHECKS = ("checkpoint", "cuda_graphs", "deterministic", "channels_last")
KEYS = ("file", "devices", "dtypes", "checks")
# A device, `cuda:1`; not `meta`, whose tensors have no values to compare.
_DEVICE = r"^(?!meta\b)[a-z]+(?::[0-9]+)?$(?!\n)"
# A path of a module that pytest does not collect as a test.
_FILE = r"^(?:[^/\0]+/)*(?!test_)[A-Za-z_][A-Za-z0-9_]*(?<!_test)\.py$(?!\n)"


class Testing(NamedTuple):
    """A project's settings for its tests."""

    file: str | None = None  # imported by tests; None: op_testing.py beside them
    devices: tuple[str, ...] = ("cpu",)
    dtypes: tuple[str, ...] = ("float32", "bfloat16")  # besides double
    checks: tuple[str, ...] = ("checkpoint", "cuda_graphs")


BESIDE = Testing()  # no settings: the tests' shared module lies beside them


def read_testing(stated: Stated) -> Testing:
    """Return the settings in the value of the key `testing`, with defaults for those left out; report unknown keys and wrong values."""
    value, problems = stated.value, stated.problems
    for key in value:
        if key not in KEYS:
            path = (stated.key, key)
            problems.unknown_key(path, "[tool.scaffold.testing]", KEYS)
    return Testing(
        file=_file(stated) if "file" in value else None,
        devices=_devices(stated),
        dtypes=_chosen(stated, "dtypes", DTYPES, BESIDE.dtypes),
        checks=_chosen(stated, "checks", CHECKS, BESIDE.checks),
    )


def _listed(stated: Stated, key: str) -> tuple[str, ...] | None:
    """Return the list of words under a key, without duplicates; None if the value is anything else."""
    value = stated.value[key]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(dict.fromkeys(value))
    return None


def _devices(stated: Stated) -> tuple[str, ...]:
    """Return the devices tests run on by default; report an invalid one, or an empty list."""
    if "devices" not in stated.value:
        return BESIDE.devices
    found = _listed(stated, "devices") or ()
    if "meta" in found:
        hint = "values are compared, which tensors on 'meta' do not have"
        stated.refuse("'meta' is not a device for tests", hint, "devices")
    elif not found or not all(re.search(_DEVICE, item) for item in found):
        hint = "such as ['cpu', 'cuda']; where one is missing its tests are skipped"
        stated.refuse("'devices' must list devices of PyTorch", hint, "devices")
    return found


def _chosen(
    stated: Stated, key: str, known: tuple[str, ...], default: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the list of words under a key, perhaps empty; the default if the key is not set.

    Report a word that is none of `known`, and any other value, and give the default.
    """
    if key not in stated.value:
        return default
    found = _listed(stated, key)
    unknown = [item for item in found or () if item not in known]
    if found is None or unknown:
        hint = did_you_mean(unknown[0], known) if unknown else None
        hint = hint or f"some of: {', '.join(known)}"
        stated.refuse(f"'{key}' has an unknown value", hint, key)
        return default
    return found


def _file(stated: Stated) -> str | None:
    """Return the path of the module for shared test helpers; report an invalid one and give None.

    It lies in the project, is not itself collected as a test, and hides no installed module.
    """
    value = stated.value["file"]
    hint = "write it relative to the project, such as 'tests/op_testing.py'"
    if not isinstance(value, str) or not re.search(_FILE, value):
        stated.refuse("'file' must name a module that is not a test", hint, "file")
        return None
    inside = Path(os.path.normpath(value))
    if inside.is_absolute() or inside.parts[0] == "..":
        stated.refuse("'file' must name a file of the project", hint, "file")
        return None
    if inside.stem in INSTALLED:
        message = f"'{inside.name}' would hide the installed module"
        stated.refuse(message, "such as 'tests/op_testing.py'", "file")
        return None
    return inside.as_posix()
