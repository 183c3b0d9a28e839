"""OpSpec + Derivation -> {path: text}. Pure: the same bytes for the same input, templates and version."""

from scaffold.derive import Derivation
from scaffold.render.domains import with_domains
from scaffold.render.environment import format_source
from scaffold.render.layout import Directories, layout
from scaffold.render.opfile import op_draft
from scaffold.render.reference import reference_lines
from scaffold.render.testfile import suite_draft
from scaffold.render.verification import Verification, verification
from scaffold.spec import OpSpec

__all__ = ["Directories", "Verification", "drafts", "render", "verification"]


def render(
    spec: OpSpec, derivation: Derivation, directories: Directories
) -> dict[str, str]:
    """The files of an op, formatted: the op, and its tests unless they are switched off."""
    return {
        path: format_source(draft, directories.line_length)
        for path, draft in drafts(spec, derivation, directories).items()
    }


def drafts(
    spec: OpSpec, derivation: Derivation, directories: Directories
) -> dict[str, str]:
    """The same files before they are formatted: what they say, whatever the formatter."""
    places = layout(spec.name, directories)
    files = {places.op_path: op_draft(spec, derivation)}
    if spec.test:
        spec = with_domains(spec, derivation)
        reference = reference_lines(spec, derivation)
        files[places.test_path] = suite_draft(spec, derivation, places, reference)
    return files
