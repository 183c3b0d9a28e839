"""The test file of a stub: what it uses of `op_testing.py` is a part of it, as of the test of an op.

A stub is a test of a hand-written Function, written by `scaffold test-stub`; it must run where scaffold is not installed.
In: the text of a stub without imports. Out: the whole file, formatted.
Invariant: it imports what it reads, and nothing of this package.
"""

from scaffold.render.file_style import PLAIN
from scaffold.render.formatting import format_source
from scaffold.render.imports import import_block
from scaffold.render.op_testing import KNOWN, needed, op_testing_draft
from scaffold.spec import Import

ALSO = (
    Import("importlib", "import_module"),
    Import("operator", "attrgetter"),
    Import("functools", "cache"),
    Import("functools", "partial"),
    Import("contextlib", "suppress"),
    Import("inspect", "unwrap"),
    Import("unittest.mock", "MagicMock"),
    Import("typing", "NoReturn"),
    Import("warnings"),
    Import("torch.utils.checkpoint"),
)


def stub_file(text: str) -> str:
    """Return a complete test file: the text with its imports, and the parts of `op_testing.py` it uses copied in."""
    # A stub has no unwritten parts, and calls the test methods that it wants.
    draft = op_testing_draft(PLAIN, None)
    shared = needed(draft, text, complete=True, found=False)
    # The imports and shared parts go between the docstring and the code.
    docstring, _, code = text.partition('"""\n\n')
    body = f"{shared}\n\n\n{code}"
    imports = import_block(body, ALSO, KNOWN)
    return format_source(f'{docstring}"""\n\n{imports}\n\n\n{body}\n')
