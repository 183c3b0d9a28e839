"""A cache of compiled templates, in a `__pycache__` beside them.

Parsing the built-in templates takes longer than rendering them. In: a function writing files. Out: a cache for Jinja to read and fill.
Invariant: an entry belongs to the template's present text, this Python and this Jinja; without a place to write, a template
is compiled anew each time.
"""

import sys
from collections.abc import Callable
from pathlib import Path

from jinja2 import BytecodeCache
from jinja2.bccache import Bucket

from scaffold.render.templates import template_root

Store = Callable[[Path, bytes], None]


class CompiledTemplates(BytecodeCache):
    """A bytecode cache of one file per template, in the `__pycache__` beside them; `store` writes it."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill the bucket with the cached bytecode, if a file has it and is intact."""
        try:
            bucket.bytecode_from_string(_path(bucket).read_bytes())
        # There is no such file, or it is damaged: Jinja compiles the template anew.
        except (OSError, EOFError, ValueError, TypeError):
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        if not sys.dont_write_bytecode:
            self.store(_path(bucket), bucket.bytecode_to_string())


def _path(bucket: Bucket) -> Path:
    """Return the path in a `__pycache__` beside the source, or below `sys.pycache_prefix` where Python keeps its own apart."""
    root = template_root()
    if sys.pycache_prefix is not None:
        root = Path(sys.pycache_prefix) / root.relative_to(root.anchor)
    return root / "__pycache__" / f"{bucket.key}.{sys.implementation.cache_tag}.jinjac"
