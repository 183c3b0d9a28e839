"""What the `__init__.py` of the source directory exports, where `exports = true` asks for it.

In: a project whose ops are known, and the files that a run removes. Out: the file with its text, where that is not what it is.
Invariant: a file that is there is only added to, or rid of imports of ops that are not there any more.
"""

import ast
import os
import re
from collections.abc import Collection, Iterator, Mapping

from scaffold.project.console import from_here
from scaffold.project.project import Project, exporting_path
from scaffold.render.package_init import Exported, with_exports
from scaffold.spec.manifest import defined_names
from scaffold.spec.names import registered_name
from scaffold.workspace.reconcile import decoded

NOTHING: Mapping[str, frozenset[str]] = {}


def exports_of(
    project: Project,
    removed: Collection[str] = (),
    obsolete: Mapping[str, frozenset[str]] = NOTHING,
) -> dict[str, str]:
    """The file as it should be; nothing where it is so, or where nobody asked for it.

    `obsolete` are names that a run takes from the files of ops, by op.
    """
    if not project.configuration.exports:
        return {}
    path = exporting_path(project.places)
    data = project.reads[path]
    text = "" if data is None else decoded(data, path)
    changed = with_exports(
        text, from_here(project.root, path), _wanted(project, removed, obsolete)
    )
    return {} if changed == text and data is not None else {path: changed}


def _wanted(
    project: Project, removed: Collection[str], obsolete: Mapping[str, frozenset[str]]
) -> Exported:
    configuration, directories = project.configuration, project.places.directories
    patterns = configuration.names
    modules = {op: patterns.op_file(op).removesuffix(".py") for op in project.listed}
    source = project.root / directories.source
    leaving = {os.path.normpath(project.root / path) for path in removed}
    function = re.compile(re.escape(patterns.function).replace(r"\{Op\}", r"\w+"))

    def gone(module: str, names: frozenset[str]) -> bool:
        if os.path.normpath(source / f"{module}.py") in leaving:
            return True
        ours = any(function.fullmatch(name) for name in names)
        ours = ours or registered_name(module) in names
        return ours and not any(source.glob(f"{module}*"))

    return Exported(
        directories.package,
        {
            modules[op]: defined_names(listed.entry, configuration)
            for op, listed in project.listed.items()
        },
        gone,
        {modules[op]: names for op, names in obsolete.items() if op in modules},
        directories.line_length,
        configuration.single_line_imports,
    )


def names_lost(before: str, after: str) -> frozenset[str]:
    """The names that one text of an op's file defines and another does not."""
    return frozenset(_defined(before)) - frozenset(_defined(after))


def _defined(text: str) -> Iterator[str]:
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
