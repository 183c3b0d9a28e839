"""The source of questions the child asks, for tests that ask them without it.

`scaffold test-stub` copies those questions into the test files it writes. In: nothing. Out: a text. Invariant: the module is read, and
not imported: it needs PyTorch.
"""

from pathlib import Path

from scaffold.files import read_text

QUESTIONS = Path(__file__).with_name("child") / "function_questions.py"


def function_questions() -> str:
    """Return the source of the questions about a hand-written Function."""
    return read_text(QUESTIONS)
