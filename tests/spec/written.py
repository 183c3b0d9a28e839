"""Ops as a user writes them, for tests."""

from collections.abc import Mapping

from scaffold.errors import ScaffoldError
from scaffold.spec import Configuration, OpSpec
from scaffold.spec.build import build
from scaffold.spec.toml import read_ops


def op(
    text: str,
    files: Mapping[str, str] | None = None,
    name: str = "foo",
    configuration: Configuration | None = None,
) -> OpSpec:
    """The op of a table [ops.NAME] with these keys; `files` are those that it may refer to."""

    def read(path: str) -> str:
        if path not in (files or {}):
            raise FileNotFoundError(2, "No such file or directory")
        return (files or {})[path]

    (entry,) = read_ops(f"[ops.{name}]\n{text}", "ops.toml")
    return build(entry.name, entry.raw, entry.locate, configuration, read)


def complaints(
    text: str, files: Mapping[str, str] | None = None, name: str = "foo"
) -> list[str]:
    """What is wrong with it: one text a problem, without the file's name."""
    try:
        op(text, files, name)
    except ScaffoldError as error:
        return [str(item).removeprefix("ops.toml:") for item in error.problems]
    return []
