"""The formatter behind one function.

In: Python source and the length of a line. Out: the same code as black writes it. Invariant: text in, text out.
"""

from collections.abc import Callable, Mapping

from scaffold.render.folding import fold

# {path: text}, the length of a line -> the same texts, formatted
Formatter = Callable[[Mapping[str, str], int], dict[str, str]]


def format_files(files: Mapping[str, str], line_length: int) -> dict[str, str]:
    """The texts of files as black writes them."""
    return {path: format_source(text, line_length) for path, text in files.items()}


def format_source(source: str, line_length: int = 88) -> str:
    """Python source as black writes it."""
    import black  # what renders nothing does without
    from black.mode import TargetVersion

    mode = black.Mode(target_versions={TargetVersion.PY311}, line_length=line_length)
    return black.format_str(fold(source, line_length), mode=mode)
