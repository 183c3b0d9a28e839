"""The configuration that holds here: the nearest file, then the environment."""

from pathlib import Path

import pytest

from scaffold.errors import ScaffoldError
from scaffold.project.configuration import configuration_here, working_directory


def test_the_nearest_file_above_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.scaffold]\nsource = "ops"\n')
    below = tmp_path / "ops" / "deep"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert working_directory() == below
    assert Path(configuration_here().root) == tmp_path


def test_a_directory_that_is_gone_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ScaffoldError, match="does not exist any more"):
        configuration_here()
