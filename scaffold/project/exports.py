"""Exports of the source directory's `__init__.py`, for projects with `exports = true`.

So `from my_ops import swish` works for every op. `update` writes the file in the same step as the ops, `check` reports it.
In: a project with its ops, and the files removed by a run. Out: the file with its new text, if it differs.
Invariant: an existing file is only added to, or rid of imports of ops which do not exist any more.
Words: a name is *obsolete*, or *lost*, if the op's new file no longer defines it; an import is *gone* if it is of a removed op.
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
    """Return the new text of the package's `__init__.py` by its path; {} if it is up to date or the setting `exports` is off.

    `removed` are paths of files the run removes; `obsolete` has, by op, names that its file will define no longer: imports of both
    go from the text.
    """
    if not project.configuration.exports:
        return {}
    path = exporting_path(project.places)
    data = project.reads[path]
    text = "" if data is None else decoded(data, path)
    changed = with_exports(
        text, from_here(project.root, path), _wanted(project, removed, obsolete)
    )
    # Without a file even an empty text is written: it makes the directory a package.
    return {} if changed == text and data is not None else {path: changed}


def _wanted(
    project: Project, removed: Collection[str], obsolete: Mapping[str, frozenset[str]]
) -> Exported:
    """Return the names to export from each op's module, `{"swish": ("swish", "SwishFunction", "Swish")}`, and how to know an obsolete import.

    That is one of a removed op (`gone`): its file leaves with this run, or is not there and the names are spelled as an op's.
    """
    configuration, directories = project.configuration, project.places.directories
    patterns = configuration.names
    modules = {op: patterns.op_file(op).removesuffix(".py") for op in project.listed}
    source = project.root / directories.source
    leaving = {os.path.normpath(project.root / path) for path in removed}
    function = re.compile(re.escape(patterns.function).replace(r"\{Op\}", r"\w+"))

    def gone(module: str, names: frozenset[str]) -> bool:
        """Return whether an import of `names` from `module` is of a removed op, so the line may go: other imports are the user's."""
        if os.path.normpath(source / f"{module}.py") in leaving:
            return True
        ours = any(function.fullmatch(name) for name in names)
        ours = ours or registered_name(module) in names
        # Anything of that name may define it: a file, a package, a compiled module.
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
    """Return the classes and functions the text `before` defines and `after` does not: the Module of an op, switched off since."""
    return frozenset(_defined(before)) - frozenset(_defined(after))


def _defined(text: str) -> Iterator[str]:
    """Yield the names of a module's classes and functions."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
