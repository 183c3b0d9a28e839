"""The rules of the linter, one file each.

In: the facts of a Function, or a file. Out: what is found, with the edits that mend it.
Invariant: a rule that is no advice reports only what the syntax tells for sure.
"""
