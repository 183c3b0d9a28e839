"""Project services shared by commands: its location, manifest, op texts, proofs and pending writes.

In: the working directory, a configuration, ops. Out: values; files only through `workspace`.
Invariant: this package prints and asks only through a `Console`, handed in by a command.
"""
