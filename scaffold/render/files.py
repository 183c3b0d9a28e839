"""The files of an op: OpSpec + Derivation -> {path: text}.

In: what the user asked for, what the compiler made of it, and where files go. Out: drafts, texts that are not formatted yet.
Invariant: the same bytes for the same input, templates and version.
"""

from scaffold.derive import Derivation
from scaffold.errors import ScaffoldError, raise_all
from scaffold.render.file_style import PLAIN, House
from scaffold.render.fused import fused
from scaffold.render.kernel_file import kernel_draft
from scaffold.render.layout import Directories, layout
from scaffold.render.opfile import op_draft
from scaffold.render.reference import reference_lines
from scaffold.render.testdomains import with_domains
from scaffold.render.testfile import suite_draft
from scaffold.spec import OpSpec


def drafts(
    spec: OpSpec,
    derivation: Derivation,
    directories: Directories,
    house: House = PLAIN,
) -> dict[str, str]:
    """Render the files of an op, not formatted yet: the op, its kernels, and its tests unless they are switched off; return them by path.

    Raise ScaffoldError, for all files together, if a team's template fails.
    """
    places = layout(spec.name, directories)
    files: dict[str, str] = {}
    problems: list[ScaffoldError] = []
    try:
        package = directories.package or ""
        length = directories.line_length
        files[places.op_path] = op_draft(spec, derivation, length, house, package)
        kernels = fused(spec)
        if kernels is not None:
            files[places.triton_path] = kernel_draft(kernels.triton, house)
    except ScaffoldError as error:  # in a team's template
        problems.append(error)
    if spec.test:
        # Test values of some inputs lie in a domain: positive for a logarithm.
        tested = with_domains(spec, derivation)
        reference = reference_lines(tested, derivation)
        try:
            draft = suite_draft(tested, derivation, places, reference, house)
            files[places.test_path] = draft
        except ScaffoldError as error:
            problems.append(error)
    raise_all(problems)
    return files
