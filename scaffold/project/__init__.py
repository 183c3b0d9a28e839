"""What commands share about a project: where it is, what its manifest lists, the texts and the proofs of its ops, what is to be written.

In: the working directory, a configuration, ops. Out: values; files only through `workspace`.
Invariant: nothing is printed and nobody is asked here but through a `Console`, which a command hands in.
"""
