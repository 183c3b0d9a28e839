"""Rules of the linter, one file each.

In: the facts of a Function, or a file. Out: findings, with the edits to fix them.
Invariant: a rule other than advice reports only what the syntax shows for sure.
"""
