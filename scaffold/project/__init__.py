"""Project services shared by commands: its location, manifest, op texts, proofs and pending writes.

A command of `cli` reads arguments and prints; what it does in between stands here: `project` reads the ops, `specification` and
`rendering` make texts of one, `survey` finds what changed, `update` writes, `proofs` proves, `file_status` reports.
In: the working directory, a configuration, ops. Out: values; files only through `workspace`.
Invariant: this package prints and asks only through a `Console`, handed in by a command.
"""
