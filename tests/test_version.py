"""The version stands once: the package, the command and what is installed say the same."""

from importlib.metadata import version
from pathlib import Path

import scaffold
from scaffold.version import __version__
from tests.cli.running import scaffold as run


def test_all_say_the_same(tmp_path: Path) -> None:
    assert scaffold.__version__ == __version__ == version("torch-scaffold")
    assert run(tmp_path, "--version").out.split()[-1] == __version__
