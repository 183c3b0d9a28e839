"""Generated tests, and what the tests of a project share, as a run writes them: formatted."""

from functools import cache

from scaffold.derive import Derivation
from scaffold.render.file_style import PLAIN, House
from scaffold.render.files import drafts
from scaffold.render.formatting import format_files, format_source
from scaffold.render.layout import Directories, Layout
from scaffold.render.op_testing import op_testing_draft
from scaffold.render.testfile import suite_draft
from scaffold.spec import OpSpec


@cache
def op_testing_file() -> str:
    """The file that generated tests of a project import, without choices of a team."""
    return format_source(op_testing_draft(PLAIN))


def suite_file(
    spec: OpSpec,
    derivation: Derivation,
    layout: Layout,
    reference: tuple[str, ...] | None,
) -> str:
    """The test file of an op; `reference` is the body of a function of its inputs."""
    draft = suite_draft(spec, derivation, layout, reference, PLAIN)
    return format_source(draft, layout.line_length)


def op_files(
    spec: OpSpec, derivation: Derivation, directories: Directories, house: House = PLAIN
) -> dict[str, str]:
    """The files of an op, by path."""
    texts = drafts(spec, derivation, directories, house)
    return format_files(texts, directories.line_length)
