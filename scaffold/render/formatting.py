"""The formatter behind one function.

In: Python source and the length of a line. Out: the same code as black writes it. Invariant: text in, text out.
"""

from scaffold.render.folding import fold


def format_source(source: str, line_length: int = 88) -> str:
    """Python source as black writes it."""
    import black  # what renders nothing does without
    from black.mode import TargetVersion

    mode = black.Mode(target_versions={TargetVersion.PY311}, line_length=line_length)
    return black.format_str(fold(source, line_length), mode=mode)
