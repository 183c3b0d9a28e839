"""Rules of the linter, one file each.

In: the facts of a Function, or a file. Out: findings, with the edits to fix them.
Invariant: a rule other than advice reports only what the syntax shows for sure.

Words: the saver is the method that saves, setup_context or else forward; a value is kept by `ctx.name = value`; a step is one statement of
a method, with the branches (guards) around it; a root is the origin of a tensor's memory, as a parameter or a saved tensor. A name is
bound by its assignments; `definite` gives the only one that reaches a step, and its `element` the position in an unpacked tuple.
"""
