"""Linter of hand-written autograd.Functions; user code is never imported.

`scaffold lint` runs its rules on a team's files; each rule is one mistake that PyTorch does not report, or reports late.

In: the text of a file. Out: findings with the edits that mend them; the text with the edits applied.
Invariant: pure: no torch, no files; LibCST is imported only to fix.
"""

from scaffold.lint.model import Finding, Level, Rule, Unreadable
from scaffold.lint.registry import RULES
from scaffold.lint.run import lint_text

__all__ = ["RULES", "Finding", "Level", "Rule", "Unreadable", "lint_text"]
